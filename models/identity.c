/* identity.c: the runtime whose outputs are its inputs: no library, no copy, no time. What remains
 * when it is served is the cost of serving itself. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/runtime.h"

#define IDENTITY_BATCH_MAX 64 /* where the configuration leaves it to the model */

struct model {
    struct model_signature signature;
};

struct instance {
    const struct model *model;
};

static const char *identity_version(void)
{
    return "1";
}

static int pair_check(const struct tensor_spec *input, const struct tensor_spec *output,
                      struct error *error)
{
    if (input->datatype != output->datatype || input->rank != output->rank ||
        memcmp(input->dims, output->dims, input->rank * sizeof(input->dims[0])) != 0) {
        struct shape_text from, to;
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "runtime identity: output '%s' is %s %s and its input '%s' %s %s; they "
                         "have to be the same",
                         output->name, datatype_name(output->datatype),
                         shape_print(&to, output->dims, output->rank), input->name,
                         datatype_name(input->datatype),
                         shape_print(&from, input->dims, input->rank));
    }
    return 0;
}

static int identity_load(const struct model_source *source, struct model **ret_model,
                         struct error *error)
{
    const struct model_signature *wanted = source->configured;
    struct model *model;
    if (wanted == NULL || wanted->input_count == 0 || wanted->input_count != wanted->output_count) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "runtime identity needs inputs and as many outputs in the configuration");
    }
    for (size_t i = 0; i < wanted->input_count; i++) {
        if (pair_check(&wanted->inputs[i], &wanted->outputs[i], error) < 0) {
            return -ERROR_INVALID_ARGUMENT;
        }
    }
    model = calloc(1, sizeof(*model));
    if (model == NULL || model_signature_copy(wanted, &model->signature, error) < 0) {
        free(model);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a model");
    }
    model->signature.batch_max =
        source->batch_max == UINT32_MAX ? IDENTITY_BATCH_MAX : source->batch_max;
    *ret_model = model;
    return 0;
}

static void identity_unload(struct model *model)
{
    if (model != NULL) {
        model_signature_fini(&model->signature);
        free(model);
    }
}

static const struct model_signature *identity_signature(const struct model *model)
{
    return &model->signature;
}

static bool identity_runs_inline(const struct model *model)
{
    (void)model;
    return true;
}

static int identity_instance_create(struct model *model, const struct instance_place *place,
                                    struct instance **ret_instance, struct error *error)
{
    struct instance *instance = malloc(sizeof(*instance));
    (void)place; /* no place is better than another for doing nothing */
    if (instance == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for an instance");
    }
    instance->model = model;
    *ret_instance = instance;
    return 0;
}

static void identity_instance_destroy(struct instance *instance)
{
    free(instance);
}

static uint64_t identity_instance_bytes(const struct instance *instance)
{
    return sizeof(*instance);
}

static int identity_run(struct instance *instance, const struct run_request *requests, size_t count,
                        struct tensor *ret_outputs, struct error *error)
{
    size_t width = instance->model->signature.output_count;
    (void)error;
    for (size_t i = 0; i < count; i++) {
        memcpy(ret_outputs + i * width, requests[i].inputs, width * sizeof(*ret_outputs));
    }
    return 0;
}

static void identity_instance_abort(struct instance *instance)
{
    (void)instance; /* a run is over before it could be seen */
}

const struct model_runtime identity_runtime = {
    .name = "identity",
    .platform = "identity",
    .version = identity_version,
    .load = identity_load,
    .unload = identity_unload,
    .signature = identity_signature,
    .runs_inline = identity_runs_inline,
    .instance_create = identity_instance_create,
    .instance_destroy = identity_instance_destroy,
    .instance_bytes = identity_instance_bytes,
    .run = identity_run,
    .instance_abort = identity_instance_abort,
};
