#include "models/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct datatype_row {
    const char *name;
    size_t bytes;
} datatypes[] = {
    [DATATYPE_INVALID] = {"INVALID", 0}, [DATATYPE_BOOL] = {"BOOL", 1},
    [DATATYPE_UINT8] = {"UINT8", 1},     [DATATYPE_UINT16] = {"UINT16", 2},
    [DATATYPE_UINT32] = {"UINT32", 4},   [DATATYPE_UINT64] = {"UINT64", 8},
    [DATATYPE_INT8] = {"INT8", 1},       [DATATYPE_INT16] = {"INT16", 2},
    [DATATYPE_INT32] = {"INT32", 4},     [DATATYPE_INT64] = {"INT64", 8},
    [DATATYPE_FP16] = {"FP16", 2},       [DATATYPE_FP32] = {"FP32", 4},
    [DATATYPE_FP64] = {"FP64", 8},       [DATATYPE_BYTES] = {"BYTES", 0},
    [DATATYPE_BF16] = {"BF16", 2},
};

#define DATATYPE_COUNT (sizeof(datatypes) / sizeof(datatypes[0]))

static const struct datatype_row *datatype_row(enum datatype datatype)
{
    return &datatypes[(size_t)datatype < DATATYPE_COUNT ? datatype : DATATYPE_INVALID];
}

size_t datatype_bytes(enum datatype datatype)
{
    return datatype_row(datatype)->bytes;
}

const char *datatype_name(enum datatype datatype)
{
    return datatype_row(datatype)->name;
}

enum datatype datatype_parse(const char *name, size_t name_length)
{
    for (size_t i = DATATYPE_INVALID + 1; i < DATATYPE_COUNT; i++) {
        if (strlen(datatypes[i].name) == name_length &&
            memcmp(datatypes[i].name, name, name_length) == 0) {
            return (enum datatype)i;
        }
    }
    return DATATYPE_INVALID;
}

const char *shape_print(struct shape_text *buffer, const int64_t *dims, uint32_t rank)
{
    size_t room = sizeof(buffer->text) - sizeof("…]");
    size_t length = 1;
    buffer->text[0] = '[';
    for (uint32_t i = 0; i < rank; i++) {
        char dim[24];
        int written = snprintf(dim, sizeof(dim), "%s%" PRId64, i == 0 ? "" : ",", dims[i]);
        if (length + (size_t)written > room) {
            memcpy(buffer->text + length, "…", sizeof("…") - 1);
            length += sizeof("…") - 1;
            break;
        }
        memcpy(buffer->text + length, dim, (size_t)written);
        length += (size_t)written;
    }
    buffer->text[length++] = ']';
    buffer->text[length] = '\0';
    return buffer->text;
}

int64_t tensor_element_count(const int64_t *dims, uint32_t rank)
{
    int64_t count = 1;
    bool empty = false;
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return -1;
        }
        empty |= dims[i] == 0;
    }
    for (uint32_t i = 0; i < rank && !empty; i++) {
        if (__builtin_mul_overflow(count, dims[i], &count)) {
            return -1;
        }
    }
    return empty ? 0 : count;
}

static uint32_t length_read(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Each element takes at least its 4 bytes of length, so the walk is bounded by the bytes there. */
static int strings_check(const struct tensor *tensor, const char *name, int64_t count,
                         struct error *error)
{
    const unsigned char *data = tensor->data;
    size_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        size_t left = tensor->bytes - at;
        if (left < 4) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "tensor '%s': BYTES element %" PRId64 " of %" PRId64
                             " has no 4-byte length: %zu of %zu bytes are left",
                             name, i, count, left, tensor->bytes);
        }
        uint32_t length = length_read(data + at);
        if (length > left - 4) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "tensor '%s': BYTES element %" PRId64 " of %" PRId64 " claims %" PRIu32
                             " bytes, %zu are left",
                             name, i, count, length, left - 4);
        }
        at += 4 + (size_t)length;
    }
    if (at != tensor->bytes) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "tensor '%s': %" PRId64
                         " BYTES elements end at byte %zu of %zu, %zu bytes are left over; the "
                         "shape and the data disagree",
                         name, count, at, tensor->bytes, tensor->bytes - at);
    }
    return 0;
}

int tensor_check(const struct tensor *tensor, const char *name, struct error *error)
{
    struct shape_text shape;
    size_t element = datatype_bytes(tensor->datatype);
    size_t wanted = 0;
    if (tensor->rank > TENSOR_RANK_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "tensor '%s': %" PRIu32 " dimensions, at most %d are served", name,
                         tensor->rank, TENSOR_RANK_MAX);
    }
    int64_t count = tensor_element_count(tensor->dims, tensor->rank);
    if (count < 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "tensor '%s': shape %s has a negative dimension or too many elements",
                         name, shape_print(&shape, tensor->dims, tensor->rank));
    }
    if (tensor->datatype == DATATYPE_BYTES) {
        return strings_check(tensor, name, count, error);
    }
    if (element == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "tensor '%s': unknown datatype", name);
    }
    if (__builtin_mul_overflow((size_t)count, element, &wanted) || wanted != tensor->bytes) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "tensor '%s': shape %s of %s needs %" PRId64
                         " elements of %zu bytes (%zu in all), %zu bytes were given",
                         name, shape_print(&shape, tensor->dims, tensor->rank),
                         datatype_name(tensor->datatype), count, element, wanted, tensor->bytes);
    }
    return 0;
}

static int specs_copy(const struct tensor_spec *specs, size_t count, struct tensor_spec **ret_specs)
{
    if (count == 0) {
        return 0;
    }
    *ret_specs = calloc(count, sizeof(*specs));
    if (*ret_specs == NULL) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        (*ret_specs)[i] = specs[i];
        (*ret_specs)[i].name = NULL;
    }
    for (size_t i = 0; i < count; i++) {
        (*ret_specs)[i].name = strdup(specs[i].name);
        if ((*ret_specs)[i].name == NULL) {
            return -1;
        }
    }
    return 0;
}

int model_signature_copy(const struct model_signature *signature, struct model_signature *ret_copy,
                         struct error *error)
{
    *ret_copy = (struct model_signature){
        .batch_max = signature->batch_max,
        .input_count = signature->input_count,
        .output_count = signature->output_count,
    };
    if (specs_copy(signature->inputs, signature->input_count, &ret_copy->inputs) < 0 ||
        specs_copy(signature->outputs, signature->output_count, &ret_copy->outputs) < 0) {
        model_signature_fini(ret_copy);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a model's signature");
    }
    return 0;
}

static void specs_free(struct tensor_spec *specs, size_t count)
{
    for (size_t i = 0; i < count && specs != NULL; i++) {
        free(specs[i].name);
    }
    free(specs);
}

void model_signature_fini(struct model_signature *signature)
{
    specs_free(signature->inputs, signature->input_count);
    specs_free(signature->outputs, signature->output_count);
    *signature = (struct model_signature){0};
}
