/* session.c: sessions of a model, and what they share. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/onnx/model.h"

#define WEIGHT_ALIGNMENT 64
#define TRIM_BYTES_MIN ((size_t)1 << 20)
#define AFFINITY_BYTES_MAX 2048 /* the longest value that 1.16 takes */

static size_t weight_space(const struct onnx_weight *weight)
{
    return (weight->bytes + WEIGHT_ALIGNMENT - 1) / WEIGHT_ALIGNMENT * WEIGHT_ALIGNMENT;
}

int onnx_weights_share(struct model *model, struct error *error)
{
    const struct onnx_api *api = onnx_api();
    const struct onnx_scan *scan = &model->scan;
    size_t total = WEIGHT_ALIGNMENT;
    unsigned char *at;
    for (size_t i = 0; i < scan->weight_count; i++) {
        total += weight_space(&scan->weights[i]);
    }
    model->weights = calloc(scan->weight_count + 1, sizeof(struct ort_value *));
    model->weight_block = aligned_alloc(WEIGHT_ALIGNMENT, total);
    if (model->weights == NULL || model->weight_block == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "no memory for %zu bytes of weights; free memory or serve fewer models",
                         total);
    }
    at = model->weight_block;
    for (size_t i = 0; i < scan->weight_count; i++) {
        const struct onnx_weight *weight = &scan->weights[i];
        memcpy(at, weight->data, weight->bytes);
        int result = onnx_check(api->value_over(api->memory, at, weight->bytes, weight->dims,
                                                weight->rank, weight->element, &model->weights[i]),
                                ERROR_INTERNAL, weight->name, error);
        if (result < 0) {
            return result;
        }
        at += weight_space(weight);
    }
    return onnx_check(api->prepacked_create(&model->prepacked), ERROR_INTERNAL, NULL, error);
}

/* In the library's grammar CPUs are counted from 1. */
static int cores_print(const cpu_set_t *cores, char *text, size_t size)
{
    size_t length = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int last = cpu;
        if (!CPU_ISSET(cpu, cores)) {
            continue;
        }
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cores)) {
            last++;
        }
        int written = last == cpu ? snprintf(text + length, size - length, "%s%d",
                                             length == 0 ? "" : ",", cpu + 1)
                                  : snprintf(text + length, size - length, "%s%d-%d",
                                             length == 0 ? "" : ",", cpu + 1, last + 1);
        length += (size_t)written;
        if (length >= size) {
            return -1;
        }
        cpu = last;
    }
    return length == 0 ? -1 : (int)length;
}

int onnx_affinities_print(const cpu_set_t *cores, unsigned workers, char *ret_text, size_t size)
{
    char entry[AFFINITY_BYTES_MAX];
    int entry_length = cores_print(cores, entry, sizeof(entry));
    size_t length = 0;
    if (entry_length < 0) {
        return -1;
    }
    ret_text[0] = '\0';
    for (unsigned i = 0; i < workers; i++) {
        if (length + (size_t)entry_length + 2 > size) {
            return -1;
        }
        length +=
            (size_t)snprintf(ret_text + length, size - length, "%s%s", i == 0 ? "" : ";", entry);
    }
    return 0;
}

struct entry {
    const char *key, *value;
};

static int entries_set(struct ort_options *options, const struct entry *entries, size_t count,
                       struct error *error)
{
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        result = onnx_check(onnx_api()->options_entry(options, entries[i].key, entries[i].value),
                            ERROR_INTERNAL, entries[i].key, error);
    }
    return result;
}

static int threads_set(struct ort_options *options, const struct instance_place *place,
                       struct error *error)
{
    const struct onnx_api *api = onnx_api();
    char affinities[AFFINITY_BYTES_MAX];
    const struct entry entry = {"session.intra_op_thread_affinities", affinities};
    unsigned threads = place->thread_count;
    /* Cores written so oddly that the value would be too long: fewer threads, all in place. */
    while (threads > 1 &&
           onnx_affinities_print(&place->cores, threads - 1, affinities, sizeof(affinities)) < 0) {
        threads--;
    }
    int result =
        onnx_check(api->options_threads(options, (int)threads), ERROR_INTERNAL, NULL, error);
    if (result == 0) {
        result = onnx_check(api->options_inter_threads(options, 1), ERROR_INTERNAL, NULL, error);
    }
    return result < 0 || threads == 1 ? result : entries_set(options, &entry, 1, error);
}

static int options_fill(struct model *model, struct ort_options *options,
                        const struct instance_place *place, struct error *error)
{
    static const struct entry entries[] = {
        {"session.intra_op.allow_spinning", "0"},
        {"session.inter_op.allow_spinning", "0"},
        /* The file was scanned as ONNX: it must not be read as anything else. */
        {"session.load_model_format", "ONNX"},
    };
    const struct onnx_api *api = onnx_api();
    int result =
        onnx_check(api->options_mode(options, ORT_SEQUENTIAL), ERROR_INTERNAL, NULL, error);
    if (result == 0) {
        result = threads_set(options, place, error);
    }
    if (result == 0) {
        result = entries_set(options, entries, sizeof(entries) / sizeof(entries[0]), error);
    }
    for (size_t i = 0; i < model->scan.weight_count && result == 0; i++) {
        const char *name = model->scan.weights[i].name;
        result = onnx_check(api->options_initializer(options, name, model->weights[i]),
                            ERROR_INTERNAL, name, error);
    }
    return result;
}

/* What the library thinks of a file decides whether the model or this server is at fault. */
static enum error_code load_code(const struct ort_status *status)
{
    switch (status == NULL ? 0 : onnx_api()->status_code(status)) {
    case ORT_NO_SUCH_FILE:
        return ERROR_NOT_FOUND;
    case ORT_NOT_IMPLEMENTED:
        return ERROR_UNIMPLEMENTED;
    case ORT_PROVIDER_FAIL:
    case ORT_DEVICE_RESET:
        return ERROR_UNAVAILABLE;
    default:
        return ERROR_INVALID_ARGUMENT;
    }
}

/* The library has read the whole file and packed weights that it then found packed already; malloc
 * would keep all of that. */
void onnx_memory_trim(const struct model *model)
{
    if (model->byte_count >= TRIM_BYTES_MIN) {
        (void)malloc_trim(0);
    }
}

int onnx_session_create(struct model *model, const struct instance_place *place,
                        struct ort_session **ret_session, struct error *error)
{
    const struct onnx_api *api = onnx_api();
    struct ort_options *options = NULL;
    struct ort_status *status;
    int result = onnx_check(api->options_create(&options), ERROR_INTERNAL, NULL, error);
    if (result == 0) {
        result = options_fill(model, options, place, error);
    }
    if (result == 0) {
        status = model->external
                     ? api->session_from_file(api->env, model->path, options, model->prepacked,
                                              ret_session)
                     : api->session_from_bytes(api->env, model->bytes, model->byte_count, options,
                                               model->prepacked, ret_session);
        result = onnx_check(status, load_code(status), NULL, error);
    }
    api->options_release(options);
    onnx_memory_trim(model);
    return result;
}
