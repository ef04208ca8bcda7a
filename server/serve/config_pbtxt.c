/* config_pbtxt.c: the part of Triton's model configuration that is honoured here; the rest of what
 * a file says is named, once. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/serve/model_config.h"
#include "server/serve/pbtxt.h"

struct reader {
    struct model_config *config;
    const char *where;
    char *ignored;
    size_t ignored_size;
    bool batch_given;
    struct error *error;
};

static int refuse(const struct reader *reader, const struct pbtxt_field *field, const char *wants)
{
    return error_set(reader->error, ERROR_INVALID_ARGUMENT, "%s: line %u: %.80s%s%.80s wants %s",
                     reader->where, field->line, field->name, field->text == NULL ? "" : ": ",
                     field->text == NULL ? "" : field->text, wants);
}

/* Adds "group.field" to the list, once. */
static int ignore(struct reader *reader, const char *group, const struct pbtxt_field *field)
{
    char entry[200];
    size_t used = strlen(reader->ignored);
    int length = snprintf(entry, sizeof(entry), "%s%s%.80s", group, group[0] == '\0' ? "" : ".",
                          field->name);
    for (const char *at = reader->ignored; (at = strstr(at, entry)) != NULL; at++) {
        bool starts = at == reader->ignored || at[-1] == ' ';
        if (starts && (at[length] == ',' || at[length] == '\0')) {
            return 0;
        }
    }
    if (used + (size_t)length + sizeof(", …") < reader->ignored_size) {
        (void)snprintf(reader->ignored + used, reader->ignored_size - used, "%s%s",
                       used == 0 ? "" : ", ", entry);
    } else if (used + sizeof(", …") <= reader->ignored_size &&
               (used < 3 || strcmp(reader->ignored + used - 3, "…") != 0)) {
        (void)snprintf(reader->ignored + used, reader->ignored_size - used, ", …");
    }
    return 0;
}

static int text_copy(struct reader *reader, const struct pbtxt_field *field, char *ret_text,
                     size_t size)
{
    if (field->kind != PBTXT_STRING || strlen(field->text) >= size ||
        !model_name_valid(field->text, strlen(field->text))) {
        return refuse(reader, field, "a plain name in quotes: letters, digits, '.', '_' and '-'");
    }
    memcpy(ret_text, field->text, strlen(field->text) + 1);
    return 0;
}

static int name_take(struct reader *reader, const struct pbtxt_field *field)
{
    char name[MODEL_NAME_MAX + 1];
    int result = text_copy(reader, field, name, sizeof(name));
    if (result == 0 && strcmp(name, reader->config->name) != 0) {
        result = error_set(reader->error, ERROR_INVALID_ARGUMENT,
                           "%s: line %u: the model is named '%s' here, but its folder '%s'",
                           reader->where, field->line, name, reader->config->name);
    }
    return result;
}

static int runtime_take(struct reader *reader, const struct pbtxt_field *field)
{
    static const char *const known[] = {"onnxruntime_onnx", "onnxruntime", "onnx_onnxv1"};
    if (field->kind != PBTXT_STRING) {
        return refuse(reader, field, "a text in quotes");
    }
    if (field->text[0] == '\0') {
        return 0;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(field->text, known[i]) == 0) {
            reader->config->runtime = &onnx_runtime;
            return 0;
        }
    }
    if (strcmp(field->text, "identity") == 0) {
        reader->config->runtime = &identity_runtime;
        return 0;
    }
    return error_set(reader->error, ERROR_UNIMPLEMENTED,
                     "%s: line %u: %s '%.80s' is not served; served are onnxruntime_onnx "
                     "(backend onnxruntime) and identity",
                     reader->where, field->line, field->name, field->text);
}

static int batch_take(struct reader *reader, const struct pbtxt_field *field)
{
    int64_t value = 0;
    if (pbtxt_integer(field, 0, MODEL_BATCH_LIMIT, &value) < 0) {
        return refuse(reader, field, "a number from 0 to 4096");
    }
    reader->config->batch_max = (uint32_t)value;
    reader->batch_given = true;
    return 0;
}

static int filename_take(struct reader *reader, const struct pbtxt_field *field)
{
    return text_copy(reader, field, reader->config->filename, sizeof(reader->config->filename));
}

/* ---- tensors -----------------------------------------------------------------------------------
 */

static int datatype_take(struct reader *reader, const struct pbtxt_field *field,
                         struct tensor_spec *spec)
{
    const char *text = field->kind == PBTXT_WORD ? field->text : "";
    if (strncmp(text, "TYPE_", 5) == 0) {
        spec->datatype = strcmp(text, "TYPE_STRING") == 0
                             ? DATATYPE_BYTES
                             : datatype_parse(text + 5, strlen(text + 5));
    }
    return spec->datatype == DATATYPE_INVALID
               ? refuse(reader, field, "TYPE_FP32, TYPE_INT64, TYPE_STRING or another")
               : 0;
}

static int dim_take(struct reader *reader, const struct pbtxt_field *field,
                    struct tensor_spec *spec)
{
    if (spec->rank == TENSOR_RANK_MAX - 1) {
        return refuse(reader, field, "fewer dimensions");
    }
    if (pbtxt_integer(field, -1, INT64_MAX, &spec->dims[spec->rank]) < 0) {
        return refuse(reader, field, "sizes, or -1 for any");
    }
    spec->rank++;
    return 0;
}

static int tensor_name_take(struct reader *reader, const struct pbtxt_field *field,
                            struct tensor_spec *spec)
{
    if (field->kind != PBTXT_STRING || field->text[0] == '\0' || strlen(field->text) > 1024) {
        return refuse(reader, field, "the tensor's name in quotes");
    }
    free(spec->name);
    spec->name = strdup(field->text);
    return spec->name == NULL ? refuse(reader, field, "more memory") : 0;
}

static int tensor_take(struct reader *reader, const struct pbtxt_field *field,
                       struct tensor_spec **specs, size_t *count)
{
    struct tensor_spec *grown, *spec;
    int result = 0;
    if (field->kind != PBTXT_MESSAGE || *count == MODEL_TENSORS_MAX) {
        return refuse(reader, field, "{ name, data_type, dims }, at most 64 times");
    }
    grown = realloc(*specs, (*count + 1) * sizeof(**specs));
    if (grown == NULL) {
        return refuse(reader, field, "more memory");
    }
    *specs = grown;
    spec = &grown[(*count)++];
    *spec = (struct tensor_spec){0};
    for (const struct pbtxt_field *part = field->first; part != NULL && result == 0;
         part = part->next) {
        result = strcmp(part->name, "name") == 0        ? tensor_name_take(reader, part, spec)
                 : strcmp(part->name, "data_type") == 0 ? datatype_take(reader, part, spec)
                 : strcmp(part->name, "dims") == 0      ? dim_take(reader, part, spec)
                                                        : ignore(reader, field->name, part);
    }
    if (result == 0 && (spec->name == NULL || spec->datatype == DATATYPE_INVALID)) {
        result = refuse(reader, field, "a name and a data_type");
    }
    return result;
}

static int input_take(struct reader *reader, const struct pbtxt_field *field)
{
    struct model_signature *configured = &reader->config->configured;
    return tensor_take(reader, field, &configured->inputs, &configured->input_count);
}

static int output_take(struct reader *reader, const struct pbtxt_field *field)
{
    struct model_signature *configured = &reader->config->configured;
    return tensor_take(reader, field, &configured->outputs, &configured->output_count);
}

/* ---- batching and instances --------------------------------------------------------------------
 */

static int preferred_take(struct reader *reader, const struct pbtxt_field *field)
{
    struct model_config *config = reader->config;
    int64_t value = 0;
    uint32_t at = config->preferred_count;
    if (config->preferred_count == MODEL_PREFERRED_MAX ||
        pbtxt_integer(field, 1, MODEL_BATCH_LIMIT, &value) < 0) {
        return refuse(reader, field, "at most 16 batch sizes from 1 to 4096");
    }
    while (at > 0 && config->preferred[at - 1] > value) {
        config->preferred[at] = config->preferred[at - 1];
        at--;
    }
    config->preferred[at] = (uint32_t)value;
    config->preferred_count++;
    return 0;
}

static int delay_take(struct reader *reader, const struct pbtxt_field *field)
{
    int64_t value = 0;
    if (pbtxt_integer(field, 0, 60000000, &value) < 0) {
        return refuse(reader, field, "microseconds, at most 60000000 (a minute)");
    }
    reader->config->queue_delay_ns = (uint64_t)value * NS_PER_US;
    return 0;
}

static int batching_take(struct reader *reader, const struct pbtxt_field *field)
{
    int result = 0;
    if (field->kind != PBTXT_MESSAGE) {
        return refuse(reader, field, "{ … }");
    }
    for (const struct pbtxt_field *part = field->first; part != NULL && result == 0;
         part = part->next) {
        result = strcmp(part->name, "preferred_batch_size") == 0 ? preferred_take(reader, part)
                 : strcmp(part->name, "max_queue_delay_microseconds") == 0
                     ? delay_take(reader, part)
                     : ignore(reader, field->name, part);
    }
    return result;
}

static int kind_take(struct reader *reader, const struct pbtxt_field *field)
{
    static const char *const kinds[][2] = {
        {"KIND_CPU", "cpu"}, {"KIND_GPU", "cuda"}, {"KIND_AUTO", ""}, {"KIND_MODEL", ""}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && field->kind == PBTXT_WORD; i++) {
        if (strcmp(field->text, kinds[i][0]) == 0) {
            (void)snprintf(reader->config->device_kind, sizeof(reader->config->device_kind), "%s",
                           kinds[i][1]);
            return 0;
        }
    }
    return refuse(reader, field, "KIND_CPU, KIND_GPU, KIND_AUTO or KIND_MODEL");
}

static int group_take(struct reader *reader, const struct pbtxt_field *field)
{
    int result = 0;
    if (field->kind != PBTXT_MESSAGE) {
        return refuse(reader, field, "{ … }");
    }
    for (const struct pbtxt_field *part = field->first; part != NULL && result == 0;
         part = part->next) {
        result = strcmp(part->name, "kind") == 0 ? kind_take(reader, part)
                                                 : ignore(reader, field->name, part);
    }
    return result;
}

static const struct known_field {
    const char *name;
    int (*take)(struct reader *reader, const struct pbtxt_field *field);
} known_fields[] = {
    {"name", name_take},
    {"platform", runtime_take},
    {"backend", runtime_take},
    {"max_batch_size", batch_take},
    {"input", input_take},
    {"output", output_take},
    {"dynamic_batching", batching_take},
    {"instance_group", group_take},
    {"default_model_filename", filename_take},
};

static int field_take(struct reader *reader, const struct pbtxt_field *field)
{
    for (size_t i = 0; i < sizeof(known_fields) / sizeof(known_fields[0]); i++) {
        if (strcmp(field->name, known_fields[i].name) == 0) {
            return known_fields[i].take(reader, field);
        }
    }
    return ignore(reader, "", field);
}

static int whole_check(struct reader *reader)
{
    struct model_config *config = reader->config;
    uint32_t count = config->preferred_count;
    if (!reader->batch_given && config->configured.input_count > 0) {
        config->batch_max = 0; /* its dims are then the whole shape, as in Triton */
    }
    if (count > 0 && config->batch_max != MODEL_BATCH_AUTO &&
        config->preferred[count - 1] > config->batch_max) {
        return error_set(reader->error, ERROR_INVALID_ARGUMENT,
                         "%s: preferred_batch_size %" PRIu32 " is above max_batch_size %" PRIu32,
                         reader->where, config->preferred[count - 1], config->batch_max);
    }
    return 0;
}

int model_config_read_pbtxt(struct model_config *config, const char *text, size_t length,
                            const char *where, char *ret_ignored, size_t ignored_size,
                            struct error *error)
{
    struct reader reader = {.config = config,
                            .where = where,
                            .ignored = ret_ignored,
                            .ignored_size = ignored_size,
                            .error = error};
    struct pbtxt_field *root = pbtxt_parse(text, length, where, error);
    int result = 0;
    ret_ignored[0] = '\0';
    if (root == NULL) {
        return -ERROR_INVALID_ARGUMENT;
    }
    for (const struct pbtxt_field *field = root->first; field != NULL && result == 0;
         field = field->next) {
        result = field_take(&reader, field);
    }
    pbtxt_free(root);
    return result < 0 ? result : whole_check(&reader);
}
