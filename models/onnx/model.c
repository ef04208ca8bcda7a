/* model.c: loads an ONNX file, tries its batch dimension, and offers it all as a runtime. */
#include "models/onnx/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/log.h"

#define MODEL_BYTES_MAX ((off_t)1 << 31) /* protobuf's own bound */
#define WEIGHT_BYTES_MIN 4096            /* smaller ones are not worth sharing */
#define BATCH_AUTO_MAX 64

static const char *onnx_version(void)
{
    return onnx_api() == NULL ? "" : onnx_api()->version;
}

/* ---- the file ----------------------------------------------------------------------------------
 */

static int descriptor_read(int fd, struct model *model, struct error *error)
{
    size_t done = 0;
    while (done < model->byte_count) {
        ssize_t got = read(fd, model->bytes + done, model->byte_count - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return error_set_errno(error, errno, "read '%s'", model->path);
        }
        if (got == 0) {
            return error_set(error, ERROR_DATA_LOSS,
                             "'%s' ended after %zu of %zu bytes: it is being written", model->path,
                             done, model->byte_count);
        }
        done += (size_t)got;
    }
    return 0;
}

/* Into memory of our own: a file that is mapped and then cut short would end the server. */
static int file_read(struct model *model, struct error *error)
{
    struct stat status;
    int result;
    int fd = open(model->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return error_set_errno(error, errno, "open '%s'", model->path);
    }
    if (fstat(fd, &status) < 0) {
        result = error_set_errno(error, errno, "look at '%s'", model->path);
    } else if (!S_ISREG(status.st_mode)) {
        result = error_set(error, ERROR_INVALID_ARGUMENT, "'%s' is not a file", model->path);
    } else if (status.st_size >= MODEL_BYTES_MAX) {
        result = error_set(error, ERROR_INVALID_ARGUMENT,
                           "'%s' has %lld bytes, an ONNX file has less than 2 GiB; keep its "
                           "weights in files beside it",
                           model->path, (long long)status.st_size);
    } else {
        model->byte_count = (size_t)status.st_size;
        model->bytes = malloc(model->byte_count + 1);
        result = model->bytes == NULL
                     ? error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for '%s', %zu bytes",
                                 model->path, model->byte_count)
                     : descriptor_read(fd, model, error);
    }
    (void)close(fd);
    return result;
}

/* ---- loading -----------------------------------------------------------------------------------
 */

static int names_fill(struct model *model, struct error *error)
{
    const struct model_signature *signature = &model->signature;
    free(model->input_names);
    free(model->output_names);
    model->input_names = calloc(signature->input_count + 1, sizeof(char *));
    model->output_names = calloc(signature->output_count + 1, sizeof(char *));
    if (model->input_names == NULL || model->output_names == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for names");
    }
    for (size_t i = 0; i < signature->input_count; i++) {
        model->input_names[i] = signature->inputs[i].name;
    }
    for (size_t i = 0; i < signature->output_count; i++) {
        model->output_names[i] = signature->outputs[i].name;
    }
    return 0;
}

static int signature_make(struct model *model, const struct model_source *source,
                          uint32_t batch_max, struct error *error)
{
    int result;
    model_signature_fini(&model->signature);
    result = onnx_signature_read(model->spare, source->configured, &model->signature, error);
    if (result == 0 && batch_max > 0) {
        result = onnx_signature_batches(&model->signature, error);
    }
    if (result == 0) {
        result = onnx_signature_apply(&model->signature, source->configured, batch_max, error);
    }
    return result < 0 ? result : names_fill(model, error);
}

/* Makes the signature for this largest batch and tries it on the spare session. */
static int signature_try(struct model *model, const struct model_source *source, uint32_t batch_max,
                         bool compare, enum trial *ret_trial, struct error *error)
{
    struct instance *instance = NULL;
    int result = signature_make(model, source, batch_max, error);
    if (result == 0) {
        result = onnx_instance_over(model, model->spare, &instance, error);
    }
    if (result == 0) {
        *ret_trial = onnx_batch_try(instance, compare, error);
        instance->session = NULL; /* stays the spare one */
        onnx_instance_destroy(instance);
    }
    return result;
}

/* As the configuration says; a batch that does not work is then an error. */
static int signature_as_configured(struct model *model, const struct model_source *source,
                                   struct error *error)
{
    struct error trial_error = {0};
    struct log_text name, text;
    enum trial trial = TRIAL_PROVEN;
    int result = signature_try(model, source, source->batch_max, false, &trial, &trial_error);
    if (result == 0 && trial == TRIAL_UNPROVEN) {
        log_write(LOG_WARN, "onnx", "model does not run on zeros: its shapes stay unproven",
                  "model=%s text=%s", log_quote(&name, model->name),
                  log_quote(&text, trial_error.text));
        return 0;
    }
    if (result < 0 || trial == TRIAL_WRONG) {
        return error_set(error, result < 0 ? trial_error.code : ERROR_FAILED_PRECONDITION, "%s",
                         trial_error.text);
    }
    return 0;
}

/* As the model allows: batches only where a trial has proved that they are right. */
static int signature_by_trial(struct model *model, const struct model_source *source,
                              struct error *error)
{
    struct model_source alone = *source;
    struct error reason = {0};
    struct log_text name, text;
    enum trial trial = TRIAL_WRONG;
    int result = signature_try(model, source, BATCH_AUTO_MAX, true, &trial, &reason);
    if (result == 0 && trial == TRIAL_PROVEN) {
        return 0;
    }
    log_write(LOG_INFO, "onnx", "model runs one request at a time", "model=%s reason=%s",
              log_quote(&name, model->name), log_quote(&text, reason.text));
    alone.batch_max = 0;
    return signature_as_configured(model, &alone, error);
}

static int session_first(struct model *model, struct error *error)
{
    struct instance_place here = {.thread_count = 1};
    int result = onnx_scan(model->bytes, model->byte_count, WEIGHT_BYTES_MIN, &model->scan, error);
    if (result == 0) {
        model->external = model->scan.external_count > 0;
        result = onnx_external_check(&model->scan, model->path, &model->external_bytes, error);
    }
    if (result == 0) {
        result = onnx_weights_share(model, error);
    }
    return result < 0 ? result : onnx_session_create(model, &here, &model->spare, error);
}

static void onnx_unload(struct model *model)
{
    const struct onnx_api *api = onnx_api();
    if (model == NULL) {
        return;
    }
    if (api != NULL) {
        api->session_release(model->spare);
        api->prepacked_release(model->prepacked);
        for (size_t i = 0; i < model->scan.weight_count && model->weights != NULL; i++) {
            api->value_release(model->weights[i]);
        }
    }
    pthread_mutex_destroy(&model->lock);
    free(model->weights);
    free(model->weight_block);
    onnx_scan_fini(&model->scan);
    model_signature_fini(&model->signature);
    free(model->input_names);
    free(model->output_names);
    free(model->bytes);
    free(model->name);
    free(model->path);
    onnx_memory_trim(model);
    free(model);
}

static struct model *model_create(const struct model_source *source)
{
    struct model *model = calloc(1, sizeof(*model));
    if (model == NULL) {
        return NULL;
    }
    pthread_mutex_init(&model->lock, NULL);
    model->name = strdup(source->name == NULL ? source->path : source->name);
    model->path = strdup(source->path);
    if (model->name == NULL || model->path == NULL) {
        onnx_unload(model);
        return NULL;
    }
    return model;
}

static int onnx_load(const struct model_source *source, struct model **ret_model,
                     struct error *error)
{
    struct model *model = NULL;
    int result = onnx_open(error);
    if (result < 0) {
        return result;
    }
    model = model_create(source);
    if (model == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a model");
    }
    result = file_read(model, error);
    if (result == 0) {
        result = session_first(model, error);
    }
    if (result == 0) {
        result = source->batch_max == UINT32_MAX ? signature_by_trial(model, source, error)
                                                 : signature_as_configured(model, source, error);
    }
    if (result == 0) {
        *ret_model = model;
        model = NULL;
    }
    onnx_unload(model);
    return result;
}

static const struct model_signature *onnx_signature(const struct model *model)
{
    return &model->signature;
}

/* ---- instances ---------------------------------------------------------------------------------
 */

static struct ort_session *spare_take(struct model *model)
{
    struct ort_session *spare;
    pthread_mutex_lock(&model->lock);
    spare = model->spare;
    model->spare = NULL;
    pthread_mutex_unlock(&model->lock);
    return spare;
}

static int onnx_instance_create(struct model *model, const struct instance_place *place,
                                struct instance **ret_instance, struct error *error)
{
    struct ort_session *session = NULL, *spare;
    int result = 0;
    if (strcmp(place->device_kind, "cpu") != 0) {
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "ONNX models run on devices of kind cpu, this one is of kind %s",
                         place->device_kind);
    }
    spare = spare_take(model);
    if (spare != NULL && place->thread_count <= 1) {
        session = spare;
    } else {
        result = onnx_session_create(model, place, &session, error);
        onnx_api()->session_release(spare); /* after: it holds packed weights to share */
    }
    if (result == 0) {
        result = onnx_instance_over(model, session, ret_instance, error);
    }
    if (result < 0) {
        onnx_api()->session_release(session);
        return result;
    }
    return 0;
}

/* The time of a text is its length's, not its shape's. */
static bool onnx_runs_inline(const struct model *model)
{
    for (size_t i = 0; i < model->signature.input_count; i++) {
        if (model->signature.inputs[i].datatype == DATATYPE_BYTES) {
            return false;
        }
    }
    return model->scan.steady;
}

const struct model_runtime onnx_runtime = {
    .name = "onnxruntime",
    .platform = "onnxruntime_onnx",
    .version = onnx_version,
    .load = onnx_load,
    .unload = onnx_unload,
    .signature = onnx_signature,
    .runs_inline = onnx_runs_inline,
    .instance_create = onnx_instance_create,
    .instance_destroy = onnx_instance_destroy,
    .instance_bytes = onnx_instance_bytes,
    .run = onnx_instance_run,
    .instance_abort = onnx_instance_abort,
};
