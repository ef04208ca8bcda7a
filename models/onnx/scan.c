#include "models/onnx/scan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "models/onnx/api.h"
#include "models/onnx/operators.h"

#define EXTERNAL_MAX 4096

/* Kinds of message in which external data may hide, and the fields that lead from one to another.
 * Everything else is passed over. */
enum message_kind { MODEL, GRAPH, NODE, ATTRIBUTE, TENSOR, SPARSE, FUNCTION, TRAINING, ENTRY };

static const struct edge {
    enum message_kind from;
    uint32_t field;
    enum message_kind to;
} edges[] = {
    {MODEL, 7, GRAPH},       {MODEL, 20, TRAINING},     {MODEL, 25, FUNCTION},
    {GRAPH, 1, NODE},        {GRAPH, 5, TENSOR},        {GRAPH, 15, SPARSE},
    {NODE, 5, ATTRIBUTE},    {ATTRIBUTE, 5, TENSOR},    {ATTRIBUTE, 6, GRAPH},
    {ATTRIBUTE, 10, TENSOR}, {ATTRIBUTE, 11, GRAPH},    {ATTRIBUTE, 22, SPARSE},
    {ATTRIBUTE, 23, SPARSE}, {SPARSE, 1, TENSOR},       {SPARSE, 2, TENSOR},
    {FUNCTION, 7, NODE},     {FUNCTION, 11, ATTRIBUTE}, {TRAINING, 1, GRAPH},
    {TRAINING, 2, GRAPH},    {TENSOR, 13, ENTRY},
};

struct span {
    const unsigned char *at, *end;
};

struct field {
    uint32_t number, wire;
    uint64_t value;   /* wire 0 */
    struct span data; /* wire 2 */
};

struct scanner {
    struct onnx_scan *scan;
    size_t weight_bytes_min;
    bool no_memory;
};

static int varint_read(struct span *span, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && span->at < span->end; shift += 7) {
        unsigned char byte = *span->at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *ret_value = value;
            return 0;
        }
    }
    return -1;
}

/* 1: a field was read; 0: the end; -1: not protobuf. Groups are long obsolete and refused. */
static int field_read(struct span *span, struct field *ret_field)
{
    static const size_t fixed[] = {[1] = 8, [5] = 4};
    uint64_t tag = 0, length = 0;
    if (span->at == span->end) {
        return 0;
    }
    if (varint_read(span, &tag) < 0 || tag >> 3 == 0 || tag >> 3 > UINT32_MAX) {
        return -1;
    }
    ret_field->number = (uint32_t)(tag >> 3);
    ret_field->wire = (uint32_t)(tag & 7);
    switch (ret_field->wire) {
    case 0:
        return varint_read(span, &ret_field->value) < 0 ? -1 : 1;
    case 1:
    case 5:
        length = fixed[ret_field->wire];
        break;
    case 2:
        if (varint_read(span, &length) < 0) {
            return -1;
        }
        break;
    default:
        return -1;
    }
    if (length > (uint64_t)(span->end - span->at)) {
        return -1;
    }
    ret_field->data = (struct span){span->at, span->at + length};
    span->at += length;
    return 1;
}

static char *span_text(const struct span *span)
{
    return strndup((const char *)span->at, (size_t)(span->end - span->at));
}

static bool span_is(const struct span *span, const char *text)
{
    size_t length = (size_t)(span->end - span->at);
    return length == strlen(text) && memcmp(span->at, text, length) == 0;
}

static void external_add(struct scanner *scanner, const struct span *path)
{
    struct onnx_scan *scan = scanner->scan;
    char **grown;
    for (size_t i = 0; i < scan->external_count; i++) {
        if (span_is(path, scan->external[i])) {
            return;
        }
    }
    grown = realloc(scan->external, (scan->external_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        scanner->no_memory = true;
        return;
    }
    scan->external = grown;
    grown[scan->external_count] = span_text(path);
    scanner->no_memory |= grown[scan->external_count] == NULL;
    scan->external_count += grown[scan->external_count] != NULL;
}

/* One key with its value of a tensor's external data; only the file's path matters. */
static int entry_scan(struct scanner *scanner, struct span span)
{
    static const unsigned char nothing[1];
    struct span key = {nothing, nothing}, value = {nothing, nothing};
    struct field field;
    int more;
    while ((more = field_read(&span, &field)) > 0) {
        if (field.wire == 2 && field.number == 1) {
            key = field.data;
        } else if (field.wire == 2 && field.number == 2) {
            value = field.data;
        }
    }
    if (more == 0 && span_is(&key, "location")) {
        if (scanner->scan->external_count >= EXTERNAL_MAX ||
            memchr(value.at, 0, (size_t)(value.end - value.at)) != NULL) {
            return -1;
        }
        external_add(scanner, &value);
    }
    return more;
}

static int dims_add(struct onnx_weight *weight, uint64_t dim)
{
    if (weight->rank == TENSOR_RANK_MAX || dim > INT64_MAX) {
        return -1;
    }
    weight->dims[weight->rank++] = (int64_t)dim;
    return 0;
}

/* Reads a tensor's head; false when it is of a form that is not shared. */
static bool weight_read(struct span span, struct onnx_weight *weight, struct span *ret_name)
{
    struct field field;
    *weight = (struct onnx_weight){0};
    while (field_read(&span, &field) > 0) {
        uint64_t dim;
        if (field.number == 1 && field.wire == 0 && dims_add(weight, field.value) < 0) {
            return false;
        }
        while (field.number == 1 && field.wire == 2 && field.data.at < field.data.end) {
            if (varint_read(&field.data, &dim) < 0 || dims_add(weight, dim) < 0) {
                return false;
            }
        }
        if (field.number == 2 && field.wire == 0) {
            weight->element = (int32_t)field.value;
        } else if (field.number == 8 && field.wire == 2) {
            *ret_name = field.data;
        } else if (field.number == 9 && field.wire == 2) {
            weight->data = field.data.at;
            weight->bytes = (size_t)(field.data.end - field.data.at);
        } else if (field.number == 13) {
            return false;
        }
    }
    return weight->data != NULL;
}

static size_t element_bytes(int32_t element)
{
    static const unsigned char sizes[] = {
        [ORT_FLOAT] = 4,  [ORT_UINT8] = 1,   [ORT_INT8] = 1,     [ORT_UINT16] = 2, [ORT_INT16] = 2,
        [ORT_INT32] = 4,  [ORT_INT64] = 8,   [ORT_BOOL] = 1,     [ORT_DOUBLE] = 8, [ORT_UINT32] = 4,
        [ORT_UINT64] = 8, [ORT_FLOAT16] = 2, [ORT_BFLOAT16] = 2,
    };
    return element > 0 && element < (int32_t)sizeof(sizes) ? sizes[element] : 0;
}

static void weight_add(struct scanner *scanner, struct span tensor)
{
    struct onnx_scan *scan = scanner->scan;
    struct onnx_weight weight;
    struct span name = {NULL, NULL};
    struct onnx_weight *grown;
    if (!weight_read(tensor, &weight, &name) || weight.bytes < scanner->weight_bytes_min ||
        name.at == name.end || memchr(name.at, 0, (size_t)(name.end - name.at)) != NULL) {
        return;
    }
    int64_t count = tensor_element_count(weight.dims, weight.rank);
    size_t element = element_bytes(weight.element);
    if (element == 0 || count < 0 || (uint64_t)count != weight.bytes / element ||
        weight.bytes % element != 0) {
        return; /* the library will say what is wrong with it */
    }
    if ((scan->weight_count & (scan->weight_count - 1)) == 0) {
        size_t capacity = scan->weight_count == 0 ? 1 : scan->weight_count * 2;
        grown = realloc(scan->weights, capacity * sizeof(*grown));
        if (grown == NULL) {
            scanner->no_memory = true;
            return;
        }
        scan->weights = grown;
    }
    weight.name = span_text(&name);
    scanner->no_memory |= weight.name == NULL;
    if (weight.name != NULL) {
        scan->weights[scan->weight_count++] = weight;
    }
}

/* Functions bring operators of their own making. */
static bool field_is_steady(enum message_kind kind, const struct field *field)
{
    const struct span *text = &field->data;
    if (field->wire != 2) {
        return true;
    }
    if (kind == NODE && field->number == 4) {
        return onnx_operator_is_steady((const char *)text->at, (size_t)(text->end - text->at));
    }
    if (kind == NODE && field->number == 7) {
        return span_is(text, "") || span_is(text, "ai.onnx") || span_is(text, "ai.onnx.ml");
    }
    return kind != MODEL || field->number != 25;
}

static int message_scan(struct scanner *scanner, enum message_kind kind, struct span span,
                        unsigned depth)
{
    struct field field;
    int more;
    if (kind == ENTRY) {
        return entry_scan(scanner, span);
    }
    if (depth == ONNX_DEPTH_MAX) {
        return -1;
    }
    while ((more = field_read(&span, &field)) > 0) {
        scanner->scan->steady &= field_is_steady(kind, &field);
        for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
            if (field.wire != 2 || edges[i].from != kind || edges[i].field != field.number) {
                continue;
            }
            if (message_scan(scanner, edges[i].to, field.data, depth + 1) < 0) {
                return -1;
            }
            if (kind == GRAPH && edges[i].to == TENSOR && depth == 1) {
                weight_add(scanner, field.data);
            }
        }
    }
    return more;
}

int onnx_scan(const unsigned char *bytes, size_t length, size_t weight_bytes_min,
              struct onnx_scan *ret_scan, struct error *error)
{
    struct onnx_scan scan = {.steady = true};
    struct scanner scanner = {.scan = &scan, .weight_bytes_min = weight_bytes_min};
    int result = message_scan(&scanner, MODEL, (struct span){bytes, bytes + length}, 0);
    if (result < 0 || length == 0) {
        result =
            error_set(error, ERROR_INVALID_ARGUMENT,
                      "the file is not an ONNX model: its %zu bytes cannot be read as one", length);
    } else if (scanner.no_memory) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory to read a model");
    }
    if (result < 0) {
        onnx_scan_fini(&scan);
        return result;
    }
    *ret_scan = scan;
    return 0;
}

void onnx_scan_fini(struct onnx_scan *scan)
{
    for (size_t i = 0; i < scan->weight_count; i++) {
        free(scan->weights[i].name);
    }
    for (size_t i = 0; i < scan->external_count; i++) {
        free(scan->external[i]);
    }
    free(scan->weights);
    free(scan->external);
    *scan = (struct onnx_scan){0};
}

/* True when no part of the path is "..", it is relative and names something. */
static bool path_stays(const char *path)
{
    const char *part = path;
    if (path[0] == '/' || path[0] == '\0') {
        return false;
    }
    while (part != NULL) {
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) {
            return false;
        }
        part = strchr(part, '/');
        part = part == NULL ? NULL : part + 1;
    }
    return true;
}

/* Where the file really lies. One that is not there is left to the library's own message. */
static bool file_within(const char *folder, const char *path, uint64_t *bytes)
{
    char joined[PATH_MAX];
    struct stat status;
    char *root = realpath(folder, NULL);
    char *file = NULL;
    bool within = false;
    if (root != NULL &&
        (size_t)snprintf(joined, sizeof(joined), "%s/%s", folder, path) < sizeof(joined)) {
        file = realpath(joined, NULL);
        within =
            file == NULL || (strncmp(file, root, strlen(root)) == 0 && file[strlen(root)] == '/');
    }
    if (within && file != NULL && stat(file, &status) == 0) {
        *bytes += (uint64_t)status.st_size;
    }
    free(file);
    free(root);
    return within;
}

int onnx_external_check(const struct onnx_scan *scan, const char *model_path, uint64_t *ret_bytes,
                        struct error *error)
{
    uint64_t bytes = 0;
    const char *slash = strrchr(model_path, '/');
    char folder[PATH_MAX] = ".";
    int result = 0;
    if (slash != NULL && (size_t)snprintf(folder, sizeof(folder), "%.*s",
                                          slash == model_path ? 1 : (int)(slash - model_path),
                                          model_path) >= sizeof(folder)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "the model's path is too long");
    }
    for (size_t i = 0; i < scan->external_count && result == 0; i++) {
        if (!path_stays(scan->external[i]) || !file_within(folder, scan->external[i], &bytes)) {
            result = error_set(error, ERROR_PERMISSION_DENIED,
                               "the model reads weights from '%.200s', which is not in its own "
                               "folder; export it again with its data beside it",
                               scan->external[i]);
        }
    }
    if (result == 0) {
        *ret_bytes = bytes;
    }
    return result;
}
