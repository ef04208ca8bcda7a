#include "server/rpc/inference.h"

#include <stdio.h>
#include <stdlib.h>

#include "inference/inference.pb-c.h"
#include "server/rpc/inference_context.h"

static void server_live(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    Inference__ServerLiveResponse response = INFERENCE__SERVER_LIVE_RESPONSE__INIT;
    (void)message;
    (void)context;
    response.live = 1;
    grpc_call_reply(call, &response.base);
}

static void server_ready(struct grpc_call *call, const ProtobufCMessage *message, void *arg)
{
    struct inference_context *context = arg;
    Inference__ServerReadyResponse response = INFERENCE__SERVER_READY_RESPONSE__INIT;
    (void)message;
    response.ready = serve_ready(context->serve);
    grpc_call_reply(call, &response.base);
}

/* Only what is served: clients decide by this list. */
static void server_metadata(struct grpc_call *call, const ProtobufCMessage *message, void *arg)
{
    static char name[] = "tidepool", binary[] = "binary_tensor_data", parameters[] = "parameters",
                statistics[] = "statistics", configuration[] = "model_configuration";
    static char *extensions[] = {binary, parameters, statistics, configuration};
    struct inference_context *context = arg;
    Inference__ServerMetadataResponse response = INFERENCE__SERVER_METADATA_RESPONSE__INIT;
    (void)message;
    response.name = name;
    response.version = context->version;
    response.n_extensions = sizeof(extensions) / sizeof(extensions[0]);
    response.extensions = extensions;
    grpc_call_reply(call, &response.base);
}

static void unserved(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    (void)message;
    (void)context;
    grpc_call_finish(call, ERROR_UNIMPLEMENTED,
                     "this method of inference.GRPCInferenceService is not served here; "
                     "ServerMetadata lists the extensions that are");
}

static const struct grpc_method methods[] = {
    {"ModelInfer", GRPC_UNARY, NULL, infer_handle},
    {"ServerLive", GRPC_UNARY, &inference__server_live_request__descriptor, server_live},
    {"ServerReady", GRPC_UNARY, &inference__server_ready_request__descriptor, server_ready},
    {"ModelReady", GRPC_UNARY, &inference__model_ready_request__descriptor, model_ready_handle},
    {"ServerMetadata", GRPC_UNARY, &inference__server_metadata_request__descriptor,
     server_metadata},
    {"ModelMetadata", GRPC_UNARY, &inference__model_metadata_request__descriptor,
     model_metadata_handle},
    {"ModelConfig", GRPC_UNARY, &inference__model_config_request__descriptor, model_config_handle},
    {"ModelStatistics", GRPC_UNARY, &inference__model_statistics_request__descriptor,
     model_statistics_handle},
    {"ModelStreamInfer", GRPC_BIDI_STREAM, NULL, unserved},
    {"RepositoryIndex", GRPC_UNARY, NULL, unserved},
    {"RepositoryModelLoad", GRPC_UNARY, NULL, unserved},
    {"RepositoryModelUnload", GRPC_UNARY, NULL, unserved},
    {"SystemSharedMemoryStatus", GRPC_UNARY, NULL, unserved},
    {"SystemSharedMemoryRegister", GRPC_UNARY, NULL, unserved},
    {"SystemSharedMemoryUnregister", GRPC_UNARY, NULL, unserved},
    {"CudaSharedMemoryStatus", GRPC_UNARY, NULL, unserved},
    {"CudaSharedMemoryRegister", GRPC_UNARY, NULL, unserved},
    {"CudaSharedMemoryUnregister", GRPC_UNARY, NULL, unserved},
    {"TraceSetting", GRPC_UNARY, NULL, unserved},
    {"LogSettings", GRPC_UNARY, NULL, unserved},
};

struct inference_context *inference_create(struct serve *serve, const char *version,
                                           struct error *error)
{
    struct inference_context *context = calloc(1, sizeof(*context));
    if (context == NULL) {
        (void)error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the inference service");
        return NULL;
    }
    context->serve = serve;
    serve_on_answers(serve, grpc_answers_begin, grpc_answers_end);
    (void)snprintf(context->version, sizeof(context->version), "%s", version);
    return context;
}

void inference_destroy(struct inference_context *context)
{
    free(context);
}

struct grpc_service inference_service(struct inference_context *context)
{
    return (struct grpc_service){
        .name = "inference.GRPCInferenceService",
        .methods = methods,
        .method_count = sizeof(methods) / sizeof(methods[0]),
        .context = context,
    };
}
