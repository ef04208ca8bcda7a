/* ModelReady, ModelMetadata, ModelConfig. */
#include <string.h>

#include "inference/inference.pb-c.h"
#include "server/base/clock.h"
#include "server/rpc/inference_context.h"
#include "server/rpc/scratch.h"

/* The endpoint of a request, or NULL: then it has been answered. */
static struct endpoint *endpoint_of(struct grpc_call *call, struct inference_context *context,
                                    const char *name, const char *version)
{
    struct wire_text name_text = {(const unsigned char *)name, strlen(name)};
    struct wire_text version_text = {(const unsigned char *)version, strlen(version)};
    struct endpoint *endpoint;
    struct error error;
    if (infer_endpoint_known(context->serve, name_text, version_text, &endpoint, &error) < 0) {
        grpc_call_finish(call, error.code, error.text);
        return NULL;
    }
    return endpoint;
}

static void reply(struct grpc_call *call, const ProtobufCMessage *response, struct scratch *scratch)
{
    if (scratch->failed) {
        grpc_call_finish(call, ERROR_RESOURCE_EXHAUSTED, "no memory for the answer");
    } else {
        grpc_call_reply(call, response);
    }
    scratch_free(scratch);
}

void model_ready_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Inference__ModelReadyRequest *request = (const Inference__ModelReadyRequest *)message;
    Inference__ModelReadyResponse response = INFERENCE__MODEL_READY_RESPONSE__INIT;
    struct endpoint *endpoint = endpoint_of(call, context, request->name, request->version);
    if (endpoint != NULL) {
        response.ready = endpoint_ready(endpoint);
        grpc_call_reply(call, &response.base);
        endpoint_release(endpoint);
    }
}

/* ---- metadata ---------------------------------------------------------------------------------
 */

typedef Inference__ModelMetadataResponse__TensorMetadata TensorMetadata;

static TensorMetadata **tensors_describe(struct scratch *scratch, const struct tensor_spec *specs,
                                         size_t count, bool batched)
{
    TensorMetadata **list = scratch_take(scratch, count, sizeof(*list));
    TensorMetadata *tensors = scratch_take(scratch, count, sizeof(*tensors));
    for (size_t i = 0; i < count && !scratch->failed; i++) {
        size_t lead = batched ? 1 : 0;
        int64_t *shape = scratch_take(scratch, specs[i].rank + lead, sizeof(*shape));
        inference__model_metadata_response__tensor_metadata__init(&tensors[i]);
        list[i] = &tensors[i];
        tensors[i].name = specs[i].name;
        tensors[i].datatype = scratch_text(scratch, datatype_name(specs[i].datatype));
        tensors[i].n_shape = specs[i].rank + lead;
        tensors[i].shape = shape;
        if (shape != NULL && batched) {
            shape[0] = -1;
        }
        if (shape != NULL) {
            memcpy(shape + lead, specs[i].dims, specs[i].rank * sizeof(*shape));
        }
    }
    return list;
}

void model_metadata_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Inference__ModelMetadataRequest *request =
        (const Inference__ModelMetadataRequest *)message;
    Inference__ModelMetadataResponse response = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    struct endpoint *endpoint = endpoint_of(call, context, request->name, request->version);
    struct scratch scratch = {0};
    char *version;
    if (endpoint == NULL) {
        return;
    }
    const struct model_signature *signature = endpoint_signature(endpoint);
    bool batched = signature->batch_max > 0;
    version = scratch_text(&scratch, endpoint_version(endpoint));
    response.name = scratch_text(&scratch, endpoint_name(endpoint));
    response.n_versions = 1;
    response.versions = &version;
    response.platform = scratch_text(&scratch, endpoint_config(endpoint)->runtime->platform);
    response.n_inputs = signature->input_count;
    response.inputs =
        tensors_describe(&scratch, signature->inputs, signature->input_count, batched);
    response.n_outputs = signature->output_count;
    response.outputs =
        tensors_describe(&scratch, signature->outputs, signature->output_count, batched);
    reply(call, &response.base, &scratch);
    endpoint_release(endpoint);
}

/* ---- configuration ----------------------------------------------------------------------------
 */

static void inputs_configure(struct scratch *scratch, const struct model_signature *signature,
                             Inference__ModelConfig *config)
{
    size_t count = signature->input_count;
    Inference__ModelInput *inputs = scratch_take(scratch, count, sizeof(*inputs));
    config->n_input = count;
    config->input = scratch_take(scratch, count, sizeof(*config->input));
    for (size_t i = 0; i < count && !scratch->failed; i++) {
        inference__model_input__init(&inputs[i]);
        config->input[i] = &inputs[i];
        inputs[i].name = signature->inputs[i].name;
        inputs[i].data_type = (Inference__DataType)signature->inputs[i].datatype;
        inputs[i].n_dims = signature->inputs[i].rank;
        inputs[i].dims = signature->inputs[i].dims;
    }
}

static void outputs_configure(struct scratch *scratch, const struct model_signature *signature,
                              Inference__ModelConfig *config)
{
    size_t count = signature->output_count;
    Inference__ModelOutput *outputs = scratch_take(scratch, count, sizeof(*outputs));
    config->n_output = count;
    config->output = scratch_take(scratch, count, sizeof(*config->output));
    for (size_t i = 0; i < count && !scratch->failed; i++) {
        inference__model_output__init(&outputs[i]);
        config->output[i] = &outputs[i];
        outputs[i].name = signature->outputs[i].name;
        outputs[i].data_type = (Inference__DataType)signature->outputs[i].datatype;
        outputs[i].n_dims = signature->outputs[i].rank;
        outputs[i].dims = signature->outputs[i].dims;
    }
}

static void batching_configure(struct scratch *scratch, const struct model_config *ours,
                               Inference__ModelConfig *config)
{
    Inference__ModelDynamicBatching *batching = scratch_take(scratch, 1, sizeof(*batching));
    int32_t *preferred = scratch_take(scratch, ours->preferred_count, sizeof(*preferred));
    if (scratch->failed) {
        return;
    }
    inference__model_dynamic_batching__init(batching);
    batching->max_queue_delay_microseconds = ours->queue_delay_ns / NS_PER_US;
    batching->n_preferred_batch_size = ours->preferred_count;
    batching->preferred_batch_size = preferred;
    for (uint32_t i = 0; i < ours->preferred_count; i++) {
        preferred[i] = (int32_t)ours->preferred[i];
    }
    config->scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
    config->dynamic_batching = batching;
}

static Inference__ModelInstanceGroup__Kind kind_of(const char *device_kind)
{
    return strcmp(device_kind, "cpu") == 0    ? INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU
           : strcmp(device_kind, "cuda") == 0 ? INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU
                                              : INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_AUTO;
}

static void instances_configure(struct scratch *scratch, const struct model_config *ours,
                                Inference__ModelConfig *config)
{
    Inference__ModelInstanceGroup *group = scratch_take(scratch, 1, sizeof(*group));
    config->instance_group = scratch_take(scratch, 1, sizeof(*config->instance_group));
    if (scratch->failed) {
        return;
    }
    inference__model_instance_group__init(group);
    group->name = scratch_text(scratch, ours->name);
    group->count = 1; /* on each device that the model is placed on */
    group->kind = kind_of(ours->device_kind);
    config->n_instance_group = 1;
    config->instance_group[0] = group;
}

static void version_configure(struct scratch *scratch, Inference__ModelConfig *config)
{
    Inference__ModelVersionPolicy *policy = scratch_take(scratch, 1, sizeof(*policy));
    Inference__ModelVersionPolicy__Latest *latest = scratch_take(scratch, 1, sizeof(*latest));
    if (scratch->failed) {
        return;
    }
    inference__model_version_policy__init(policy);
    inference__model_version_policy__latest__init(latest);
    latest->num_versions = 1;
    policy->policy_choice_case = INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_LATEST;
    policy->latest = latest;
    config->version_policy = policy;
}

void model_config_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Inference__ModelConfigRequest *request = (const Inference__ModelConfigRequest *)message;
    Inference__ModelConfigResponse response = INFERENCE__MODEL_CONFIG_RESPONSE__INIT;
    Inference__ModelConfig config = INFERENCE__MODEL_CONFIG__INIT;
    struct endpoint *endpoint = endpoint_of(call, context, request->name, request->version);
    struct scratch scratch = {0};
    if (endpoint == NULL) {
        return;
    }
    const struct model_config *ours = endpoint_config(endpoint);
    const struct model_signature *signature = endpoint_signature(endpoint);
    config.name = scratch_text(&scratch, ours->name);
    config.platform = scratch_text(&scratch, ours->runtime->platform);
    config.backend = scratch_text(&scratch, ours->runtime->name);
    config.default_model_filename = scratch_text(&scratch, ours->filename);
    config.max_batch_size = (int32_t)signature->batch_max;
    inputs_configure(&scratch, signature, &config);
    outputs_configure(&scratch, signature, &config);
    instances_configure(&scratch, ours, &config);
    version_configure(&scratch, &config);
    if (signature->batch_max > 0) {
        batching_configure(&scratch, ours, &config);
    }
    response.config = &config;
    reply(call, &response.base, &scratch);
    endpoint_release(endpoint);
}
