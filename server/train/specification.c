#include "server/train/specification.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "models/native/random.h"
#include "server/base/options.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define PARAMETERS_MAX (UINT64_C(1) << 34)

/* ---- tables ---- */

struct job_fields {
    char *name, *devices, *team;
    json_t *model, *data, *optimizer, *checkpoint, *export;
    int64_t batch, micro_batch, steps, seed, priority;
    double epochs;
    bool strict;
};

struct model_fields {
    int kind, activation;
    json_t *layers;
};

struct optimizer_fields {
    int kind;
    double learning_rate, momentum, weight_decay, beta1, beta2, epsilon;
};

struct data_fields {
    json_t *path;
    char *labels, *label_column;
    double held_out, scale;
    int64_t seed;
};

#define FIELD(type, field) .offset = offsetof(struct type, field)

static const struct option job_table[] = {
    {"name", OPTION_TEXT, FIELD(job_fields, name), .standard = "\"job\"",
     .help = "letters, digits, `.`, `_` and `-`; at most 63"},
    {"model", OPTION_JSON, FIELD(job_fields, model), .required = true, .help = "the model, below"},
    {"data", OPTION_JSON, FIELD(job_fields, data), .required = true, .help = "the data, below"},
    {"batch", OPTION_INT, FIELD(job_fields, batch), "rows", 1, 16777216, .required = true,
     .help = "rows of one step, over all devices"},
    {"micro_batch", OPTION_INT, FIELD(job_fields, micro_batch), "rows", 1, 1048576,
     .help = "rows of one piece of a step; divides `batch`; default: the largest divisor up to 64"},
    {"steps", OPTION_INT, FIELD(job_fields, steps), "steps", 1, 1e15,
     .help = "how long to train; this or `epochs`"},
    {"epochs", OPTION_NUMBER, FIELD(job_fields, epochs), "passes over the data", 1e-6, 1e9,
     .help = "how long to train; this or `steps`"},
    {"optimizer", OPTION_JSON, FIELD(job_fields, optimizer), .standard = "{}",
     .help = "the optimizer, below"},
    {"seed", OPTION_INT, FIELD(job_fields, seed), "", 0, 9007199254740992.0, "0",
     .help = "of the first weights"},
    {"checkpoint", OPTION_JSON, FIELD(job_fields, checkpoint), .standard = "{}",
     .help = "when the state is written, below"},
    {"export", OPTION_JSON, FIELD(job_fields, export),
     .help = "ONNX model written at the end, below; absent: none"},
    {"devices", OPTION_TEXT, FIELD(job_fields, devices), "devices", .standard = "\"1\"",
     .help = "how many: `\"2\"`, or at least and at most: `\"1:4\"`"},
    {"priority", OPTION_INT, FIELD(job_fields, priority), "", 0, 100, "0",
     .help = "higher goes first"},
    {"team", OPTION_TEXT, FIELD(job_fields, team), .standard = "\"\"",
     .help = "whose share and quota of the devices it uses; at most 63 bytes"},
    {"strict", OPTION_BOOL, FIELD(job_fields, strict), .standard = "true",
     .help = "warn when a resumed job cannot give the same bits"},
};

static const char *const model_kinds[] = {"mlp", NULL};
static const char *const activations[] = {"relu", "gelu", "none", NULL};
static const struct option model_table[] = {
    {"kind", OPTION_CHOICE, FIELD(model_fields, kind), .standard = "\"mlp\"",
     .choices = model_kinds, .help = "what is trained"},
    {"layers", OPTION_JSON, FIELD(model_fields, layers), .required = true,
     .help = "widths: inputs, hidden layers, classes; for example `[64, 128, 10]`"},
    {"activation", OPTION_CHOICE, FIELD(model_fields, activation), .standard = "\"relu\"",
     .choices = activations, .help = "between the layers"},
};

static const char *const optimizer_kinds[] = {"sgd", "adamw", NULL};
static const struct option optimizer_table[] = {
    {"kind", OPTION_CHOICE, FIELD(optimizer_fields, kind), .standard = "\"adamw\"",
     .choices = optimizer_kinds, .help = "SGD with momentum, or AdamW"},
    {"learning_rate", OPTION_NUMBER, FIELD(optimizer_fields, learning_rate), "", 0, 1e6, "0.001",
     .help = "constant over the whole job"},
    {"momentum", OPTION_NUMBER, FIELD(optimizer_fields, momentum), "", 0, 0.999999, "0.9",
     .help = "sgd"},
    {"weight_decay", OPTION_NUMBER, FIELD(optimizer_fields, weight_decay), "", 0, 1, "0",
     .help = "adamw: decoupled"},
    {"beta1", OPTION_NUMBER, FIELD(optimizer_fields, beta1), "", 0, 0.999999, "0.9",
     .help = "adamw"},
    {"beta2", OPTION_NUMBER, FIELD(optimizer_fields, beta2), "", 0, 0.9999999, "0.999",
     .help = "adamw"},
    {"epsilon", OPTION_NUMBER, FIELD(optimizer_fields, epsilon), "", 1e-12, 1, "1e-8",
     .help = "adamw"},
};

static const struct option data_table[] = {
    {"path", OPTION_JSON, FIELD(data_fields, path), .required = true,
     .help = "a `.npy` or `.csv` file, or a list of them"},
    {"labels", OPTION_TEXT, FIELD(data_fields, labels),
     .help = "`.npy` of whole numbers, one per row, 0 to classes − 1"},
    {"label_column", OPTION_TEXT, FIELD(data_fields, label_column),
     .help = "`.csv`: the labels' column, by name or number from 0"},
    {"held_out", OPTION_NUMBER, FIELD(data_fields, held_out), "share of the rows", 0, 0.9, "0.1",
     .help = "never trained on; loss and accuracy are measured on it"},
    {"scale", OPTION_NUMBER, FIELD(data_fields, scale), "", -1e9, 1e9, "1",
     .help = "inputs are multiplied by it; the exported model does the same"},
    {"seed", OPTION_INT, FIELD(data_fields, seed), "", 0, 9007199254740992.0, "0",
     .help = "of the order of the rows and of what is held out"},
};

static const struct option checkpoint_table[] = {
    {"every_steps", OPTION_INT, FIELD(checkpoint_specification, every_steps), "steps", 0, 1e15, "0",
     .help = "0: not by steps"},
    {"every_s", OPTION_NUMBER, FIELD(checkpoint_specification, every_s), "s", 0, 1e7, "30",
     .help = "0: not by time; one is written at the end in any case"},
    {"keep", OPTION_INT, FIELD(checkpoint_specification, keep), "files", 1, 1000, "2",
     .help = "newest ones kept"},
};

static const struct option export_table[] = {
    {"repository", OPTION_TEXT, FIELD(export_specification, repository), .required = true,
     .help = "directory of a model repository"},
    {"name", OPTION_TEXT, FIELD(export_specification, name), .required = true,
     .help = "the model's name there"},
    {"version", OPTION_INT, FIELD(export_specification, version), "", 0, 1e15, "0",
     .help = "0: one more than the highest there; an existing one is replaced whole"},
    {"softmax", OPTION_BOOL, FIELD(export_specification, softmax), .standard = "false",
     .help = "output `probabilities` instead of `logits`"},
    {"config", OPTION_JSON, FIELD(export_specification, config),
     .help = "written as the model's `config.json`"},
};

void specification_print(FILE *out)
{
    static const struct {
        const char *title;
        const struct option *table;
        size_t count;
    } parts[] = {
        {"The job", job_table, COUNT(job_table)},
        {"model", model_table, COUNT(model_table)},
        {"data", data_table, COUNT(data_table)},
        {"optimizer", optimizer_table, COUNT(optimizer_table)},
        {"checkpoint", checkpoint_table, COUNT(checkpoint_table)},
        {"export", export_table, COUNT(export_table)},
    };
    for (size_t i = 0; i < COUNT(parts); i++) {
        (void)fprintf(out, "%s### %s\n\n", i > 0 ? "\n" : "", parts[i].title);
        options_print(parts[i].table, parts[i].count, out);
    }
}

/* ---- the parts ---- */

static bool name_is_safe(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr("._-", name[i]) == NULL) {
            return false;
        }
    }
    return length > 0 && length <= 63 && name[0] != '.';
}

static int name_check(const char *where, const char *name, struct error *error)
{
    if (!name_is_safe(name)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "%s: '%.80s' must be 1 to 63 letters, digits, '.', '_' or '-' and not "
                         "begin with '.'",
                         where, name);
    }
    return 0;
}

static int devices_read(const char *text, struct train_request *request, struct error *error)
{
    char *end;
    unsigned long low, high;
    low = high = isdigit((unsigned char)text[0]) ? strtoul(text, &end, 10) : 0;
    if (low > 0 && *end == ':' && isdigit((unsigned char)end[1])) {
        high = strtoul(end + 1, &end, 10);
    }
    if (low == 0 || *end != '\0' || high < low || high > DEVICES_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.devices: '%.40s' must be a count or minimum:maximum, 1 to %d, as in "
                         "\"1:4\"",
                         text, DEVICES_MAX);
    }
    request->devices_min = (uint32_t)low;
    request->devices_max = (uint32_t)high;
    return 0;
}

static int layers_read(const json_t *list, struct mlp *mlp, struct error *error)
{
    size_t index;
    json_t *value;
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count < 2 || count > MLP_LAYERS_MAX + 1) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.model.layers: must be a list of 2 to %d widths, as in [64, 128, 10]",
                         MLP_LAYERS_MAX + 1);
    }
    json_array_foreach(list, index, value)
    {
        json_int_t width = json_integer_value(value);
        if (!json_is_integer(value) || width < 1 || width > MLP_WIDTH_MAX) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "job.model.layers[%zu]: must be a whole number, 1 to %d", index,
                             MLP_WIDTH_MAX);
        }
        mlp->widths[index] = (uint32_t)width;
    }
    if (mlp->widths[count - 1] < 2) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.model.layers: the last width is the number of classes, at least 2");
    }
    mlp->layer_count = (uint32_t)count - 1;
    if (mlp_parameters(mlp) > PARAMETERS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.model.layers: %zu parameters are more than the limit of %llu",
                         mlp_parameters(mlp), (unsigned long long)PARAMETERS_MAX);
    }
    return 0;
}

static int model_read(const json_t *json, struct mlp *mlp, struct error *error)
{
    struct model_fields fields = {0};
    int result = options_read(model_table, COUNT(model_table), json, "job.model", &fields, error);
    if (result == 0) {
        mlp->activation = (enum activation)fields.activation;
        result = layers_read(fields.layers, mlp, error);
    }
    options_free(model_table, COUNT(model_table), &fields);
    return result;
}

static int optimizer_read(const json_t *json, struct optimizer *optimizer, struct error *error)
{
    struct optimizer_fields fields = {0};
    int result = options_read(optimizer_table, COUNT(optimizer_table), json, "job.optimizer",
                              &fields, error);
    *optimizer = (struct optimizer){(enum optimizer_kind)fields.kind,
                                    fields.learning_rate,
                                    fields.weight_decay,
                                    fields.momentum,
                                    fields.beta1,
                                    fields.beta2,
                                    fields.epsilon};
    return result;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static int path_add(struct data_specification *data, const json_t *value, struct error *error)
{
    const char *path = json_string_value(value);
    if (path == NULL || (!ends_with(path, ".npy") && !ends_with(path, ".csv"))) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.data.path: '%.200s' must be a file ending in .npy or .csv",
                         path != NULL ? path : "(not a text)");
    }
    data->paths[data->path_count] = strdup(path);
    if (data->paths[data->path_count] == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "job.data.path: no memory");
    }
    data->path_count++;
    return 0;
}

static int paths_read(const json_t *path, struct data_specification *data, struct error *error)
{
    size_t count = json_is_array(path) ? json_array_size(path) : 1;
    int result = 0;
    if (count < 1 || count > DATA_PATHS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "job.data.path: 1 to %d files, not %zu",
                         DATA_PATHS_MAX, count);
    }
    data->paths = calloc(count, sizeof(*data->paths));
    if (data->paths == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "job.data.path: no memory");
    }
    for (size_t i = 0; result == 0 && i < count; i++) {
        result = path_add(data, json_is_array(path) ? json_array_get(path, i) : path, error);
    }
    for (size_t i = 0; result == 0 && i < count; i++) {
        if (ends_with(data->paths[i], ".csv") != ends_with(data->paths[0], ".csv")) {
            result = error_set(error, ERROR_INVALID_ARGUMENT,
                               "job.data.path: .npy and .csv files cannot be mixed");
        }
    }
    return result;
}

static int labels_check(const struct data_specification *data, struct error *error)
{
    bool csv = ends_with(data->paths[0], ".csv");
    if (csv && (data->label_column == NULL || data->labels != NULL)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.data: .csv data needs 'label_column' and no 'labels'");
    }
    if (!csv && (data->labels == NULL || data->label_column != NULL)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.data: .npy data needs 'labels', another .npy file, and no "
                         "'label_column'");
    }
    return 0;
}

static int data_read(const json_t *json, struct data_specification *data, struct error *error)
{
    struct data_fields fields = {0};
    int result = options_read(data_table, COUNT(data_table), json, "job.data", &fields, error);
    *data = (struct data_specification){.labels = fields.labels,
                                        .label_column = fields.label_column,
                                        .held_out = fields.held_out,
                                        .scale = fields.scale,
                                        .seed = fields.seed};
    if (result == 0) {
        result = paths_read(fields.path, data, error);
    }
    if (result == 0) {
        result = labels_check(data, error);
    }
    json_decref(fields.path); /* the texts are the caller's now */
    return result;
}

static int export_read(const json_t *json, struct specification *specification, struct error *error)
{
    struct export_specification *export = &specification->export;
    int result;
    if (json == NULL) {
        return 0;
    }
    result = options_read(export_table, COUNT(export_table), json, "job.export", export, error);
    if (result == 0) {
        result = name_check("job.export.name", export->name, error);
    }
    if (result == 0 && export->config != NULL && !json_is_object(export->config)) {
        result = error_set(error, ERROR_INVALID_ARGUMENT, "job.export.config: must be an object");
    }
    return result;
}

/* ---- the whole ---- */

static uint32_t micro_batch_default(uint32_t batch)
{
    for (uint32_t size = batch < 64 ? batch : 64; size > 1; size--) {
        if (batch % size == 0) {
            return size;
        }
    }
    return 1;
}

static int sizes_check(const struct job_fields *fields, struct specification *specification,
                       struct error *error)
{
    specification->batch = (uint32_t)fields->batch;
    specification->micro_batch = fields->micro_batch > 0
                                     ? (uint32_t)fields->micro_batch
                                     : micro_batch_default(specification->batch);
    specification->steps = (uint64_t)fields->steps;
    specification->epochs = fields->epochs;
    specification->seed = (uint64_t)fields->seed;
    specification->strict = fields->strict;
    specification->request.priority = (uint32_t)fields->priority;
    if (strlen(fields->team) >= sizeof specification->request.team) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "job.team: at most %zu bytes",
                         sizeof specification->request.team - 1);
    }
    strcpy(specification->request.team, fields->team);
    if (specification->batch % specification->micro_batch != 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.micro_batch: %u does not divide job.batch, %u",
                         specification->micro_batch, specification->batch);
    }
    if (specification->batch / specification->micro_batch > MICRO_BATCHES_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.micro_batch: %u cuts a batch of %u into more than %u pieces",
                         specification->micro_batch, specification->batch, MICRO_BATCHES_MAX);
    }
    if ((fields->steps > 0) == (fields->epochs > 0)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job: give either 'steps' or 'epochs', not %s",
                         fields->steps > 0 ? "both" : "none");
    }
    return 0;
}

static int fields_check(const struct job_fields *fields, struct specification *specification,
                        struct error *error)
{
    int result = name_check("job.name", fields->name, error);
    if (result == 0) {
        (void)snprintf(specification->request.name, sizeof(specification->request.name), "%s",
                       fields->name);
        result = devices_read(fields->devices, &specification->request, error);
    }
    if (result == 0) {
        result = sizes_check(fields, specification, error);
    }
    if (result == 0) {
        result = model_read(fields->model, &specification->model, error);
    }
    if (result == 0) {
        result = data_read(fields->data, &specification->data, error);
    }
    if (result == 0) {
        result = optimizer_read(fields->optimizer, &specification->optimizer, error);
    }
    if (result == 0) {
        result = options_read(checkpoint_table, COUNT(checkpoint_table), fields->checkpoint,
                              "job.checkpoint", &specification->checkpoint, error);
    }
    if (result == 0) {
        result = export_read(fields->export, specification, error);
    }
    return result;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return random_scramble(hash ^ length);
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
}

static uint64_t specification_hash(const struct specification *s)
{
    const uint64_t numbers[] = {s->model.layer_count,
                                (uint64_t)s->model.activation,
                                s->batch,
                                s->micro_batch,
                                s->seed,
                                (uint64_t)s->data.seed,
                                s->data.path_count,
                                (uint64_t)s->optimizer.kind};
    const double factors[] = {s->optimizer.learning_rate, s->optimizer.weight_decay,
                              s->optimizer.momentum,      s->optimizer.beta1,
                              s->optimizer.beta2,         s->optimizer.epsilon,
                              s->data.held_out,           s->data.scale};
    uint64_t hash = hash_bytes(0, numbers, sizeof(numbers));
    hash = hash_bytes(hash, factors, sizeof(factors));
    hash = hash_bytes(hash, s->model.widths, sizeof(s->model.widths));
    for (size_t i = 0; i < s->data.path_count; i++) {
        hash = hash_text(hash, s->data.paths[i]);
    }
    hash = hash_text(hash, s->data.labels);
    return hash_text(hash, s->data.label_column);
}

int specification_init(struct specification *specification, const json_t *json, struct error *error)
{
    struct job_fields fields = {0};
    int result;
    *specification = (struct specification){0};
    result = options_read(job_table, COUNT(job_table), json, "job", &fields, error);
    if (result == 0) {
        result = fields_check(&fields, specification, error);
    }
    options_free(job_table, COUNT(job_table), &fields);
    if (result == 0) {
        specification->hash = specification_hash(specification);
    } else {
        specification_fini(specification);
    }
    return result;
}

void specification_fini(struct specification *specification)
{
    for (size_t i = 0; i < specification->data.path_count; i++) {
        free(specification->data.paths[i]);
    }
    free(specification->data.paths);
    free(specification->data.labels);
    free(specification->data.label_column);
    options_free(export_table, COUNT(export_table), &specification->export);
    *specification = (struct specification){0};
}

int train_request_read(const json_t *json, struct train_request *ret_request, struct error *error)
{
    struct specification specification;
    int result = specification_init(&specification, json, error);
    if (result == 0) {
        *ret_request = specification.request;
        specification_fini(&specification);
    }
    return result;
}
