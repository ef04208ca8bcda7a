/* inference_context.h: what the inference service's files share. */
#ifndef TIDEPOOL_RPC_INFERENCE_CONTEXT_H
#define TIDEPOOL_RPC_INFERENCE_CONTEXT_H

#include <stdatomic.h>

#include "server/rpc/infer_call.h"
#include "server/rpc/inference.h"

struct inference_context {
    struct serve *serve;
    char version[64];
    _Atomic uint64_t unknown_model, unreadable;
};

/* Handlers. infer.c */
void infer_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context);
/* inference_models.c, inference_statistics.c */
void model_ready_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context);
void model_metadata_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context);
void model_config_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context);
void model_statistics_handle(struct grpc_call *call, const ProtobufCMessage *message,
                             void *context);

#endif
