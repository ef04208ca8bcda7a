/* config_json.c: a model's config.json, ours, checked strictly. */
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/base/options.h"
#include "server/serve/model_config.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

struct keys {
    int runtime;
    char *file;
    int64_t max_batch, queue_delay_us, priority;
    char *devices;
    json_t *slo, *queue, *inputs, *outputs;
};

static const struct model_runtime *const runtimes[] = {&onnx_runtime, &identity_runtime};
static const char *const runtime_names[] = {"onnxruntime", "identity", NULL};

#define KEY(key) .name = #key, .offset = offsetof(struct keys, key)
static const struct option keys[] = {
    {KEY(runtime), .kind = OPTION_CHOICE, .choices = runtime_names, .standard = "\"onnxruntime\"",
     .help = "what runs the model; identity gives its inputs back"},
    {KEY(file), .kind = OPTION_TEXT, .standard = "\"model.onnx\"",
     .help = "the model's file in its version's folder"},
    {KEY(max_batch), .kind = OPTION_INT, .unit = "rows", .maximum = MODEL_BATCH_LIMIT,
     .help = "largest batch; 0: the first dimension is no batch; left out: as the model allows, "
             "found by a trial (0 where inputs are given)"},
    {KEY(queue_delay_us), .kind = OPTION_INT, .unit = "µs", .maximum = 60e6, .standard = "0",
     .help = "how long the oldest request may wait for others to join its batch"},
    {KEY(slo), .kind = OPTION_JSON, .help = "the latency promised: see below"},
    {KEY(priority), .kind = OPTION_INT, .minimum = -1000, .maximum = 1000, .standard = "0",
     .help = "of this model's requests and demand; higher goes first"},
    {KEY(devices), .kind = OPTION_TEXT, .standard = "\"1:\"",
     .help = "on how many devices it may live, least and most: 2, 1:4, 1: (all there are)"},
    {KEY(queue), .kind = OPTION_JSON, .help = "bounds of what may wait: see below"},
    {KEY(inputs), .kind = OPTION_JSON,
     .help = "list of {name, datatype, dims}; dims without the batch where max_batch is above 0"},
    {KEY(outputs), .kind = OPTION_JSON, .help = "the same for outputs; others are not given out"},
};

struct slo_keys {
    double latency_ms, target;
};
#define SLO(key) .name = #key, .offset = offsetof(struct slo_keys, key), .kind = OPTION_NUMBER
static const struct option slo_keys[] = {
    {SLO(latency_ms), .unit = "ms", .minimum = 0.01, .maximum = 3600e3, .standard = "100",
     .help = "from a request's arrival to its answer"},
    {SLO(target), .minimum = 0.01, .maximum = 0.9999, .standard = "0.99",
     .help = "share of requests that must meet it"},
};

struct queue_keys {
    int64_t requests, bytes;
};
#define QUEUE(key) .name = #key, .offset = offsetof(struct queue_keys, key), .kind = OPTION_INT
static const struct option queue_keys[] = {
    {QUEUE(requests), .minimum = 1, .maximum = 1e6, .standard = "1000",
     .help = "requests that may wait; more are refused"},
    {QUEUE(bytes), .unit = "bytes", .minimum = 1, .maximum = 1099511627776.0,
     .standard = "268435456", .help = "input bytes that may wait"},
};

struct tensor_keys {
    char *name, *datatype;
    json_t *dims;
};
#define TENSOR(key) .name = #key, .offset = offsetof(struct tensor_keys, key), .required = true
static const struct option tensor_keys[] = {
    {TENSOR(name), .kind = OPTION_TEXT, .help = "as in the model"},
    {TENSOR(datatype), .kind = OPTION_TEXT, .help = "FP32, INT64, BYTES and so on"},
    {TENSOR(dims), .kind = OPTION_JSON, .help = "list of sizes; -1: any"},
};

static int dims_read(const json_t *list, const char *where, struct tensor_spec *spec,
                     struct error *error)
{
    size_t index;
    json_t *value;
    if (!json_is_array(list) || json_array_size(list) >= TENSOR_RANK_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "%s.dims: wants a list of at most %d sizes",
                         where, TENSOR_RANK_MAX - 1);
    }
    json_array_foreach((json_t *)list, index, value)
    {
        json_int_t dim = json_integer_value(value);
        if (!json_is_integer(value) || dim < -1) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "%s.dims: element %zu is no size; wants whole numbers, or -1 for any",
                             where, index);
        }
        spec->dims[spec->rank++] = dim;
    }
    return 0;
}

static int tensor_read(const json_t *object, const char *where, struct tensor_spec *spec,
                       struct error *error)
{
    struct tensor_keys read = {0};
    int result = options_read(tensor_keys, COUNT(tensor_keys), object, where, &read, error);
    if (result == 0) {
        spec->datatype = datatype_parse(read.datatype, strlen(read.datatype));
        if (spec->datatype == DATATYPE_INVALID) {
            result = error_set(error, ERROR_INVALID_ARGUMENT,
                               "%s.datatype: '%.40s' is none; FP32, INT64, BYTES and so on", where,
                               read.datatype);
        }
    }
    if (result == 0) {
        result = dims_read(read.dims, where, spec, error);
    }
    if (result == 0) {
        spec->name = read.name;
        read.name = NULL;
    }
    options_free(tensor_keys, COUNT(tensor_keys), &read);
    return result;
}

static int tensors_read(const json_t *list, const char *where, const char *word,
                        struct tensor_spec **ret_specs, size_t *ret_count, struct error *error)
{
    char at[300];
    size_t index;
    json_t *value;
    if (list == NULL) {
        return 0;
    }
    if (!json_is_array(list) || json_array_size(list) > MODEL_TENSORS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "%s.%s: wants a list of at most %d", where,
                         word, MODEL_TENSORS_MAX);
    }
    *ret_specs = calloc(json_array_size(list) + 1, sizeof(**ret_specs));
    if (*ret_specs == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a configuration");
    }
    json_array_foreach((json_t *)list, index, value)
    {
        (void)snprintf(at, sizeof(at), "%.200s.%s[%zu]", where, word, index);
        *ret_count = index + 1;
        int result = tensor_read(value, at, &(*ret_specs)[index], error);
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

static int slo_read(const json_t *object, const char *where, struct model_config *config,
                    struct error *error)
{
    struct slo_keys read = {0};
    char at[300];
    (void)snprintf(at, sizeof(at), "%.200s.slo", where);
    if (object == NULL) {
        return 0;
    }
    int result = options_read(slo_keys, COUNT(slo_keys), object, at, &read, error);
    if (result == 0) {
        config->slo_latency_ns = (uint64_t)(read.latency_ms * (double)NS_PER_MS);
        config->slo_target = read.target;
    }
    return result;
}

static int queue_read(const json_t *object, const char *where, struct model_config *config,
                      struct error *error)
{
    struct queue_keys read = {0};
    char at[300];
    (void)snprintf(at, sizeof(at), "%.200s.queue", where);
    if (object == NULL) {
        return 0;
    }
    int result = options_read(queue_keys, COUNT(queue_keys), object, at, &read, error);
    if (result == 0) {
        config->queue_requests_max = (uint32_t)read.requests;
        config->queue_bytes_max = (uint64_t)read.bytes;
    }
    return result;
}

static int plain_take(struct model_config *config, const struct keys *read, const char *where,
                      struct error *error)
{
    if (!model_name_valid(read->file, strlen(read->file))) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "%s.file: a plain file name in the version's folder is wanted", where);
    }
    memcpy(config->filename, read->file, strlen(read->file) + 1);
    config->runtime = runtimes[read->runtime];
    config->queue_delay_ns = (uint64_t)read->queue_delay_us * NS_PER_US;
    config->priority = (int32_t)read->priority;
    config->batch_max = read->max_batch >= 0   ? (uint32_t)read->max_batch
                        : read->inputs != NULL ? 0
                                               : MODEL_BATCH_AUTO;
    int result =
        model_devices_parse(read->devices, &config->devices_min, &config->devices_max, error);
    return result < 0 ? error_prefix(error, "%s", where) : 0;
}

int model_config_read_json(struct model_config *config, const json_t *object, const char *where,
                           struct error *error)
{
    struct keys read = {.max_batch = -1};
    struct model_signature *configured = &config->configured;
    int result = options_read(keys, COUNT(keys), object, where, &read, error);
    if (result == 0) {
        result = plain_take(config, &read, where, error);
    }
    if (result == 0) {
        result = slo_read(read.slo, where, config, error);
    }
    if (result == 0) {
        result = queue_read(read.queue, where, config, error);
    }
    if (result == 0) {
        result = tensors_read(read.inputs, where, "inputs", &configured->inputs,
                              &configured->input_count, error);
    }
    if (result == 0) {
        result = tensors_read(read.outputs, where, "outputs", &configured->outputs,
                              &configured->output_count, error);
    }
    options_free(keys, COUNT(keys), &read);
    return result;
}

void model_config_print(FILE *out)
{
    options_print(keys, COUNT(keys), out);
    (void)fputs("\n`slo`:\n\n", out);
    options_print(slo_keys, COUNT(slo_keys), out);
    (void)fputs("\n`queue`:\n\n", out);
    options_print(queue_keys, COUNT(queue_keys), out);
    (void)fputs("\n`inputs`, `outputs`:\n\n", out);
    options_print(tensor_keys, COUNT(tensor_keys), out);
}
