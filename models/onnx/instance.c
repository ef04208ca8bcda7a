/* instance.c: a session that runs batches, one after another. */
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "models/onnx/model.h"

/* A large batch leaves the library's arena, and the buffers here, large. They stay so while large
 * batches keep coming, and are given back after so many small ones. */
#define LARGE_RUN_BYTES ((size_t)16 << 20)
#define SMALL_RUNS_BEFORE_TRIM 64

static void values_release(struct ort_value **values, size_t count)
{
    for (size_t i = 0; i < count && values != NULL; i++) {
        onnx_api()->value_release(values[i]);
        values[i] = NULL;
    }
}

static int options_create(struct ort_run_options **ret_options, struct error *error)
{
    const struct onnx_api *api = onnx_api();
    int result = onnx_check(api->run_options_create(ret_options), ERROR_INTERNAL, NULL, error);
    if (result == 0) {
        /* What goes wrong in a run is told to its caller, not to the log as well. */
        result = onnx_check(api->run_options_severity(*ret_options, ORT_FATAL), ERROR_INTERNAL,
                            NULL, error);
    }
    return result;
}

int onnx_instance_over(struct model *model, struct ort_session *session,
                       struct instance **ret_instance, struct error *error)
{
    size_t input_count = model->signature.input_count;
    size_t output_count = model->signature.output_count;
    struct instance *instance = calloc(1, sizeof(*instance));
    int result;
    if (instance == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for an instance");
    }
    instance->model = model;
    instance->session = session;
    (void)pthread_mutex_init(&instance->abort_lock, NULL);
    instance->inputs = calloc(input_count + 1, sizeof(struct ort_value *));
    instance->outputs = calloc(output_count + 1, sizeof(struct ort_value *));
    instance->gathered = calloc(input_count + 1, sizeof(struct run_buffer));
    instance->encoded = calloc(output_count + 1, sizeof(struct run_buffer));
    if (instance->inputs == NULL || instance->outputs == NULL || instance->gathered == NULL ||
        instance->encoded == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for an instance");
        goto out;
    }
    result = options_create(&instance->run_options, error);
    if (result == 0) {
        result = options_create(&instance->trim_options, error);
    }
    if (result == 0) {
        result =
            onnx_check(onnx_api()->run_options_entry(
                           instance->trim_options, "memory.enable_memory_arena_shrinkage", "cpu:0"),
                       ERROR_INTERNAL, NULL, error);
    }
    if (result == 0) {
        *ret_instance = instance;
        return 0;
    }
out:
    instance->session = NULL; /* stays the caller's */
    onnx_instance_destroy(instance);
    return result;
}

static void buffers_free(struct run_buffer *buffers, size_t count)
{
    for (size_t i = 0; i < count && buffers != NULL; i++) {
        free(buffers[i].data);
    }
    free(buffers);
}

void onnx_instance_destroy(struct instance *instance)
{
    if (instance == NULL) {
        return;
    }
    const struct model_signature *signature = &instance->model->signature;
    values_release(instance->inputs, signature->input_count);
    values_release(instance->outputs, signature->output_count);
    onnx_api()->run_options_release(instance->run_options);
    onnx_api()->run_options_release(instance->trim_options);
    onnx_api()->session_release(instance->session);
    buffers_free(instance->gathered, signature->input_count);
    buffers_free(instance->encoded, signature->output_count);
    free(instance->offsets.data);
    free(instance->inputs);
    free(instance->outputs);
    (void)pthread_mutex_destroy(&instance->abort_lock);
    free(instance);
}

uint64_t onnx_instance_bytes(const struct instance *instance)
{
    const struct model *model = instance->model;
    uint64_t bytes = model->byte_count + model->external_bytes + instance->offsets.capacity;
    for (size_t i = 0; i < model->signature.input_count; i++) {
        bytes += instance->gathered[i].capacity;
    }
    for (size_t i = 0; i < model->signature.output_count; i++) {
        bytes += instance->encoded[i].capacity;
    }
    return bytes;
}

/* Both options: which of the two a run uses is the serving thread's to know. They answer with a
 * status only for want of memory; the run then ends by itself. The lock keeps flag and options
 * together: options that stayed set without it would end every later run. */
void onnx_instance_abort(struct instance *instance)
{
    const struct onnx_api *api = onnx_api();
    (void)pthread_mutex_lock(&instance->abort_lock);
    atomic_store(&instance->aborted, true);
    (void)onnx_check(api->run_options_terminate(instance->run_options), ERROR_INTERNAL, NULL, NULL);
    (void)onnx_check(api->run_options_terminate(instance->trim_options), ERROR_INTERNAL, NULL,
                     NULL);
    (void)pthread_mutex_unlock(&instance->abort_lock);
}

static void abort_clear(struct instance *instance)
{
    const struct onnx_api *api = onnx_api();
    (void)pthread_mutex_lock(&instance->abort_lock);
    if (atomic_exchange(&instance->aborted, false)) {
        (void)onnx_check(api->run_options_unset_terminate(instance->run_options), ERROR_INTERNAL,
                         NULL, NULL);
        (void)onnx_check(api->run_options_unset_terminate(instance->trim_options), ERROR_INTERNAL,
                         NULL, NULL);
    }
    (void)pthread_mutex_unlock(&instance->abort_lock);
}

/* ---- a run -------------------------------------------------------------------------------------
 */

/* Shapes and types were checked before: an "invalid argument" now is about the values sent. */
static int run_failed(struct instance *instance, struct ort_status *status, struct error *error)
{
    const struct onnx_api *api = onnx_api();
    enum error_code code = ERROR_INTERNAL;
    if (atomic_load(&instance->aborted)) {
        api->status_release(status);
        return error_set(error, ERROR_CANCELLED, "the run was ended before it was done");
    }
    switch (api->status_code(status)) {
    case ORT_INVALID_ARGUMENT:
        code = ERROR_INVALID_ARGUMENT;
        break;
    case ORT_PROVIDER_FAIL:
    case ORT_DEVICE_RESET:
        code = ERROR_UNAVAILABLE;
        break;
    default:
        break;
    }
    (void)onnx_check(status, code, NULL, error);
    if (error != NULL) {
        (void)error_prefix(error, "model '%s'", instance->model->name);
    }
    return -(int)code;
}

static size_t batch_bytes(const struct instance *instance, const struct batch *batch)
{
    size_t bytes = 0;
    for (size_t i = 0; i < batch->count; i++) {
        for (size_t k = 0; k < instance->model->signature.input_count; k++) {
            bytes += batch->requests[i].inputs[k].bytes;
        }
    }
    return bytes;
}

static void buffers_give_back(struct run_buffer *buffers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(buffers[i].data);
        buffers[i] = (struct run_buffer){0};
    }
}

/* Gives memory back with this run when the last large one is long enough ago. Nothing of an
 * earlier run is in use any more. */
static const struct ort_run_options *run_options_choose(struct instance *instance,
                                                        const struct batch *batch)
{
    const struct model_signature *signature = &instance->model->signature;
    if (batch_bytes(instance, batch) >= LARGE_RUN_BYTES) {
        instance->grown = true;
        instance->small_runs = 0;
        return instance->run_options;
    }
    if (!instance->grown || ++instance->small_runs <= SMALL_RUNS_BEFORE_TRIM) {
        return instance->run_options;
    }
    instance->grown = false;
    buffers_give_back(instance->gathered, signature->input_count);
    buffers_give_back(instance->encoded, signature->output_count);
    buffers_give_back(&instance->offsets, 1);
    return instance->trim_options;
}

static int batch_measure(const struct instance *instance, const struct run_request *requests,
                         size_t count, struct batch *ret_batch)
{
    *ret_batch = (struct batch){.requests = requests, .count = count};
    for (size_t i = 0; i < count; i++) {
        ret_batch->rows += requests[i].rows;
    }
    return count == 0 || (instance->model->signature.batch_max == 0 && count > 1) ? -1 : 0;
}

int onnx_instance_run(struct instance *instance, const struct run_request *requests, size_t count,
                      struct tensor *ret_outputs, struct error *error)
{
    const struct onnx_api *api = onnx_api();
    const struct model *model = instance->model;
    const struct model_signature *signature = &model->signature;
    const struct ort_run_options *options;
    struct batch batch;
    struct ort_status *status;
    int result;
    if (batch_measure(instance, requests, count, &batch) < 0) {
        return error_set(error, ERROR_INTERNAL, "model '%s' takes one request a run, got %zu",
                         model->name, count);
    }
    values_release(instance->outputs, signature->output_count);
    abort_clear(instance);
    options = run_options_choose(instance, &batch);
    result = onnx_inputs_fill(instance, &batch, error);
    if (result == 0) {
        status = api->run(instance->session, options, model->input_names,
                          (const struct ort_value *const *)instance->inputs, signature->input_count,
                          model->output_names, signature->output_count, instance->outputs);
        result = status == NULL ? 0 : run_failed(instance, status, error);
    }
    values_release(instance->inputs, signature->input_count);
    if (options == instance->trim_options) {
        (void)malloc_trim(0); /* or malloc would keep what the arena has given back */
    }
    for (size_t i = 0; i < signature->output_count && result == 0; i++) {
        result = onnx_output_read(instance, i, &batch, ret_outputs, error);
    }
    return result;
}
