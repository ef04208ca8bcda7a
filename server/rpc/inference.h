/* inference.h: the service inference.GRPCInferenceService (KServe v2 and Triton's extensions).
 * Served:  ServerLive, ServerReady, ModelReady, ServerMetadata, ModelMetadata, ModelInfer,
 *          ModelConfig, ModelStatistics. Every other method answers UNIMPLEMENTED and says so.
 * Wiring:  context = inference_create(serve, ...); service = inference_service(context); give the
 *          service to grpc_server_create; destroy the grpc server, then the context, then serve.
 * Thread:  handlers run on network threads; answers to ModelInfer are encoded on the serving
 *          thread. */
#ifndef TIDEPOOL_RPC_INFERENCE_H
#define TIDEPOOL_RPC_INFERENCE_H

#include "server/net/grpc.h"
#include "server/serve/serve.h"

struct inference_context;

/* `version` is the server's, for ServerMetadata; copied. */
struct inference_context *inference_create(struct serve *serve, const char *version,
                                           struct error *error);
void inference_destroy(struct inference_context *context); /* NULL is fine */
struct grpc_service inference_service(struct inference_context *context);

/* Requests that failed before an endpoint was found (unknown model, unreadable message): they
 * belong to no endpoint, and no name from outside becomes a label. */
struct inference_counters {
    uint64_t unknown_model, unreadable;
};
void inference_counters(const struct inference_context *context,
                        struct inference_counters *ret_counters);

#endif
