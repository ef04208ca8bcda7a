#include "clients/common/infer_message.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "clients/common/tensor_value.h"

#define RANK_MAX 32
#define TENSORS_MAX 1024

typedef Inference__ModelInferRequest__InferInputTensor input_tensor;

/* ---- the request under construction
 * -------------------------------------------------------------- */

static void request_release(Inference__ModelInferRequest *request)
{
    for (size_t i = 0; i < request->n_inputs && request->inputs != NULL; i++) {
        if (request->inputs[i] != NULL) {
            free(request->inputs[i]->shape);
            free(request->inputs[i]);
        }
    }
    for (size_t i = 0; i < request->n_raw_input_contents; i++) {
        free(request->raw_input_contents[i].data);
    }
    free(request->inputs);
    free(request->raw_input_contents);
}

static int no_memory(struct error *error)
{
    return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the request");
}

static int request_reserve(Inference__ModelInferRequest *request, size_t count, struct error *error)
{
    request->inputs = calloc(count, sizeof(request->inputs[0]));
    request->raw_input_contents = calloc(count, sizeof(request->raw_input_contents[0]));
    return request->inputs == NULL || request->raw_input_contents == NULL ? no_memory(error) : 0;
}

/* Adds an input of the given rank; its shape is for the caller to fill. */
static input_tensor *request_add(Inference__ModelInferRequest *request, const char *name,
                                 const char *datatype, size_t rank)
{
    static const input_tensor empty = INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    input_tensor *input = malloc(sizeof(*input));
    if (input == NULL) {
        return NULL;
    }
    *input = empty;
    input->name = (char *)(uintptr_t)name; /* packing only reads */
    input->datatype = (char *)(uintptr_t)datatype;
    input->shape = calloc(rank + 1, sizeof(input->shape[0]));
    input->n_shape = input->shape == NULL ? 0 : rank;
    request->inputs[request->n_inputs++] = input;
    return input->shape == NULL ? NULL : input;
}

/* Elements of a shape, at most as many as INFER_BYTES_MAX bytes hold. */
static int shape_elements(const int64_t *shape, size_t rank, unsigned element_size,
                          const char *name, size_t *ret_count, struct error *error)
{
    size_t limit = INFER_BYTES_MAX / element_size;
    size_t count = 1;
    for (size_t i = 0; i < rank; i++) {
        if (shape[i] < 0) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "tensor '%s': dimension %zu is %" PRId64 ", below 0", name, i,
                             shape[i]);
        }
        if (shape[i] != 0 && count > limit / (size_t)shape[i]) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "tensor '%s': over the limit of %u MiB for one tensor", name,
                             INFER_BYTES_MAX >> 20);
        }
        count *= (size_t)shape[i];
    }
    *ret_count = count;
    return 0;
}

static int request_pack(const Inference__ModelInferRequest *request, unsigned char **ret_body,
                        size_t *ret_length, struct error *error)
{
    size_t length = inference__model_infer_request__get_packed_size(request);
    unsigned char *body = malloc(length + 1);
    if (body == NULL) {
        return no_memory(error);
    }
    inference__model_infer_request__pack(request, body);
    *ret_body = body;
    *ret_length = length;
    return 0;
}

/* ---- from JSON
 * -------------------------------------------------------------------------------------- */

/* Where the elements of one tensor go, in order. */
struct element_writer {
    const char *name;
    const struct tensor_datatype *datatype;
    unsigned char *data;
    size_t length, capacity;
    size_t count, count_wanted;
};

static int bytes_write(struct element_writer *writer, const json_t *value, struct error *error)
{
    const char *text = json_string_value(value);
    size_t length = json_string_length(value);
    if (text == NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "tensor '%s': element %zu is not text, as BYTES wants", writer->name,
                         writer->count);
    }
    if (length > INFER_BYTES_MAX - 4 || writer->length > INFER_BYTES_MAX - 4 - length) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "tensor '%s': over the limit of %u MiB for one tensor", writer->name,
                         INFER_BYTES_MAX >> 20);
    }
    size_t needed = writer->length + 4 + length;
    if (needed > writer->capacity) {
        size_t capacity = needed * 2;
        unsigned char *larger = realloc(writer->data, capacity);
        if (larger == NULL) {
            return no_memory(error);
        }
        writer->data = larger;
        writer->capacity = capacity;
    }
    for (unsigned i = 0; i < 4; i++) {
        writer->data[writer->length + i] = (unsigned char)(length >> 8 * i);
    }
    memcpy(writer->data + writer->length + 4, text, length);
    writer->length = needed;
    return 0;
}

static int element_write(struct element_writer *writer, const json_t *value, struct error *error)
{
    if (writer->count == writer->count_wanted) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "tensor '%s': more elements than its shape's %zu", writer->name,
                         writer->count_wanted);
    }
    if (writer->datatype->kind == TENSOR_BYTES) {
        int result = bytes_write(writer, value, error);
        if (result < 0) {
            return result;
        }
    } else if (tensor_value_from_json(writer->datatype, value, writer->data + writer->length) < 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "tensor '%s': element %zu is no %s",
                         writer->name, writer->count, writer->datatype->name);
    } else {
        writer->length += writer->datatype->size;
    }
    writer->count++;
    return 0;
}

/* Nested lists are taken in order; their depth was bounded when the JSON was read. */
static int elements_write(struct element_writer *writer, const json_t *value, struct error *error)
{
    if (!json_is_array(value)) {
        return element_write(writer, value, error);
    }
    int result = 0;
    for (size_t i = 0; i < json_array_size(value) && result == 0; i++) {
        result = elements_write(writer, json_array_get(value, i), error);
    }
    return result;
}

static int shape_from_json(const json_t *list, input_tensor *input, struct error *error)
{
    for (size_t i = 0; i < input->n_shape; i++) {
        const json_t *dimension = json_array_get(list, i);
        if (!json_is_integer(dimension)) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "tensor '%s': dimension %zu is no whole number", input->name, i);
        }
        input->shape[i] = json_integer_value(dimension);
    }
    return 0;
}

static int input_from_json(Inference__ModelInferRequest *request, const json_t *object,
                           size_t index, struct error *error)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    const char *type_name = json_string_value(json_object_get(object, "datatype"));
    const json_t *shape = json_object_get(object, "shape");
    const json_t *data = json_object_get(object, "data");
    if (name == NULL || type_name == NULL || !json_is_array(shape) || !json_is_array(data) ||
        json_array_size(shape) > RANK_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "inputs[%zu]: wants \"name\", \"datatype\", \"shape\" (at most %d "
                         "dimensions) and \"data\" (a list)",
                         index, RANK_MAX);
    }
    struct element_writer writer = {.name = name, .datatype = tensor_datatype_find(type_name)};
    if (writer.datatype == NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "tensor '%s': no datatype is called '%s'",
                         name, type_name);
    }
    input_tensor *input = request_add(request, name, writer.datatype->name, json_array_size(shape));
    if (input == NULL) {
        return no_memory(error);
    }
    bool bytes = writer.datatype->kind == TENSOR_BYTES;
    int result = shape_from_json(shape, input, error);
    if (result == 0) {
        result = shape_elements(input->shape, input->n_shape, bytes ? 4 : writer.datatype->size,
                                name, &writer.count_wanted, error);
    }
    if (result < 0) {
        return result;
    }
    writer.capacity = bytes ? 64 : writer.count_wanted * writer.datatype->size + 1;
    writer.data = malloc(writer.capacity);
    result = writer.data == NULL ? no_memory(error) : elements_write(&writer, data, error);
    if (result == 0 && writer.count != writer.count_wanted) {
        result = error_set(error, ERROR_INVALID_ARGUMENT,
                           "tensor '%s': %zu elements, its shape wants %zu", name, writer.count,
                           writer.count_wanted);
    }
    request->raw_input_contents[request->n_raw_input_contents++] =
        (ProtobufCBinaryData){writer.length, writer.data};
    return result;
}

int infer_request_from_json(const json_t *object, const char *model, unsigned char **ret_body,
                            size_t *ret_length, struct error *error)
{
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    const json_t *inputs = json_object_get(object, "inputs");
    const char *id = json_string_value(json_object_get(object, "id"));
    size_t count = json_array_size(inputs);
    if (!json_is_array(inputs) || count == 0 || count > TENSORS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "request: wants {\"inputs\": [{\"name\", \"shape\", \"datatype\", "
                         "\"data\"}, …]} with 1 to %d inputs",
                         TENSORS_MAX);
    }
    request.model_name = (char *)(uintptr_t)model;
    if (id != NULL) {
        request.id = (char *)(uintptr_t)id;
    }
    int result = request_reserve(&request, count, error);
    for (size_t i = 0; i < count && result == 0; i++) {
        result = input_from_json(&request, json_array_get(inputs, i), i, error);
    }
    if (result == 0) {
        result = request_pack(&request, ret_body, ret_length, error);
    }
    request_release(&request);
    return result;
}

/* ---- from metadata
 * ---------------------------------------------------------------------------------- */

static double unit_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

static int input_from_metadata(Inference__ModelInferRequest *request,
                               const Inference__ModelMetadataResponse__TensorMetadata *tensor,
                               uint32_t rows, uint64_t *state, struct error *error)
{
    const struct tensor_datatype *datatype = tensor_datatype_find(tensor->datatype);
    if (datatype == NULL || tensor->n_shape > RANK_MAX) {
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "tensor '%s': datatype '%s' or %zu dimensions are unknown here",
                         tensor->name, tensor->datatype, tensor->n_shape);
    }
    input_tensor *input = request_add(request, tensor->name, tensor->datatype, tensor->n_shape);
    if (input == NULL) {
        return no_memory(error);
    }
    for (size_t i = 0; i < tensor->n_shape; i++) {
        input->shape[i] = tensor->shape[i] >= 0 ? tensor->shape[i] : i == 0 ? rows : 1;
    }
    size_t element = datatype->kind == TENSOR_BYTES ? 4 : datatype->size;
    size_t count = 0;
    int result = shape_elements(input->shape, input->n_shape, (unsigned)element, tensor->name,
                                &count, error);
    if (result < 0) {
        return result;
    }
    unsigned char *data = calloc(count * element + 1, 1); /* BYTES: each an empty text */
    if (data == NULL) {
        return no_memory(error);
    }
    for (size_t i = 0; i < count && datatype->kind != TENSOR_BYTES; i++) {
        tensor_value_from_unit(datatype, unit_next(state), data + i * element);
    }
    request->raw_input_contents[request->n_raw_input_contents++] =
        (ProtobufCBinaryData){count * element, data};
    return 0;
}

int infer_request_from_metadata(const Inference__ModelMetadataResponse *metadata, uint32_t rows,
                                uint64_t seed, unsigned char **ret_body, size_t *ret_length,
                                struct error *error)
{
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    if (metadata->n_inputs == 0 || metadata->n_inputs > TENSORS_MAX) {
        return error_set(error, ERROR_UNIMPLEMENTED, "model '%s': has %zu inputs, 1 to %d fit",
                         metadata->name, metadata->n_inputs, TENSORS_MAX);
    }
    request.model_name = metadata->name;
    int result = request_reserve(&request, metadata->n_inputs, error);
    for (size_t i = 0; i < metadata->n_inputs && result == 0; i++) {
        result = input_from_metadata(&request, metadata->inputs[i], rows, &seed, error);
    }
    if (result == 0) {
        result = request_pack(&request, ret_body, ret_length, error);
    }
    request_release(&request);
    return result;
}

/* ---- answers
 * ------------------------------------------------------------------------------------------ */

/* One element, which moves *position on; NULL: the data end too early. */
static json_t *element_to_json(const struct tensor_datatype *datatype,
                               const ProtobufCBinaryData *raw, size_t *position)
{
    const unsigned char *data = raw->data + *position;
    size_t left = raw->len - *position;
    if (datatype->kind != TENSOR_BYTES) {
        *position += datatype->size;
        return left < datatype->size ? NULL : tensor_value_to_json(datatype, data);
    }
    size_t length = left < 4 ? 0
                             : (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16 |
                                   (size_t)data[3] << 24;
    if (left < 4 || length > left - 4) {
        return NULL;
    }
    *position += 4 + length;
    json_t *text = json_stringn((const char *)data + 4, length);
    return text != NULL ? text : json_string("(not valid UTF-8)");
}

static json_t *data_to_json(const struct tensor_datatype *datatype, const ProtobufCBinaryData *raw,
                            size_t count)
{
    json_t *list = json_array();
    size_t position = 0;
    for (size_t i = 0; i < count && list != NULL; i++) {
        json_t *value = element_to_json(datatype, raw, &position);
        if (value == NULL || json_array_append_new(list, value) < 0) {
            json_decref(list);
            list = NULL;
        }
    }
    if (list != NULL && position != raw->len) {
        json_decref(list);
        list = NULL;
    }
    return list;
}

static json_t *output_to_json(const Inference__ModelInferResponse__InferOutputTensor *output,
                              const ProtobufCBinaryData *raw, struct error *error)
{
    const struct tensor_datatype *datatype = tensor_datatype_find(output->datatype);
    json_t *data = NULL;
    size_t count = 0;
    if (datatype != NULL &&
        shape_elements(output->shape, output->n_shape, datatype->size == 0 ? 4 : datatype->size,
                       output->name, &count, error) == 0) {
        data = data_to_json(datatype, raw, count);
    }
    if (data == NULL) {
        error_set(error, ERROR_INTERNAL,
                  "answer: the data of tensor '%s' (%s, %zu bytes) do not "
                  "fit its shape",
                  output->name, output->datatype, raw->len);
        return NULL;
    }
    json_t *shape = json_array();
    for (size_t i = 0; i < output->n_shape; i++) {
        json_array_append_new(shape, json_integer(output->shape[i]));
    }
    return json_pack("{s:s,s:s,s:o,s:o}", "name", output->name, "datatype", output->datatype,
                     "shape", shape, "data", data);
}

json_t *infer_response_to_json(const Inference__ModelInferResponse *response, struct error *error)
{
    json_t *outputs = json_array();
    if (response->n_raw_output_contents != response->n_outputs) {
        error_set(error, ERROR_INTERNAL, "answer: %zu outputs with %zu pieces of data",
                  response->n_outputs, response->n_raw_output_contents);
        json_decref(outputs);
        return NULL;
    }
    for (size_t i = 0; i < response->n_outputs; i++) {
        json_t *output =
            output_to_json(response->outputs[i], &response->raw_output_contents[i], error);
        if (output == NULL) {
            json_decref(outputs);
            return NULL;
        }
        json_array_append_new(outputs, output);
    }
    return json_pack("{s:s,s:s,s:s,s:o}", "model_name", response->model_name, "model_version",
                     response->model_version, "id", response->id, "outputs", outputs);
}
