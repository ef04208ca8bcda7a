/* batch.c: requests' tensors to the library's values and back. One request's tensors are used where
 * they lie; several are joined in buffers of the instance; outputs stay where the library put them
 * until the next run. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/onnx/model.h"

#define BUFFER_ALIGNMENT 64

int run_buffer_reserve(struct run_buffer *buffer, size_t bytes, struct error *error)
{
    size_t capacity = (bytes / BUFFER_ALIGNMENT + 1) * BUFFER_ALIGNMENT;
    if (buffer->capacity >= bytes && buffer->data != NULL) {
        return 0;
    }
    free(buffer->data);
    *buffer = (struct run_buffer){.data = aligned_alloc(BUFFER_ALIGNMENT, capacity)};
    if (buffer->data == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for %zu bytes of a batch",
                         bytes);
    }
    buffer->capacity = capacity;
    return 0;
}

/* ---- inputs ------------------------------------------------------------------------------------
 */

static int strings_input(struct instance *instance, const struct batch *batch, size_t index,
                         const int64_t *dims, uint32_t rank, struct error *error)
{
    const struct onnx_api *api = onnx_api();
    size_t first = 0;
    int result = onnx_check(
        api->value_create(api->allocator, dims, rank, ORT_STRING, &instance->inputs[index]),
        ERROR_INTERNAL, "make a string tensor", error);
    for (size_t i = 0; i < batch->count && result == 0; i++) {
        const struct tensor *tensor = &batch->requests[i].inputs[index];
        result = onnx_strings_decode(instance->inputs[index], first, tensor, error);
        first += (size_t)tensor_element_count(tensor->dims, tensor->rank);
    }
    return result;
}

/* Joins the requests' bytes in order; kernels may also want elements aligned, which a lone
 * request's bytes inside a message need not be. */
static int input_gather(struct instance *instance, const struct batch *batch, size_t index,
                        size_t bytes, struct error *error)
{
    struct run_buffer *buffer = &instance->gathered[index];
    int result = run_buffer_reserve(buffer, bytes, error);
    size_t at = 0;
    for (size_t i = 0; i < batch->count && result == 0; i++) {
        const struct tensor *tensor = &batch->requests[i].inputs[index];
        if (tensor->bytes > 0) {
            memcpy(buffer->data + at, tensor->data, tensor->bytes);
        }
        at += tensor->bytes;
    }
    return result;
}

static int numbers_input(struct instance *instance, const struct batch *batch, size_t index,
                         const int64_t *dims, uint32_t rank, struct error *error)
{
    static unsigned char nothing[BUFFER_ALIGNMENT];
    const struct onnx_api *api = onnx_api();
    const struct tensor *first = &batch->requests[0].inputs[index];
    enum datatype datatype = instance->model->signature.inputs[index].datatype;
    void *data = (void *)(uintptr_t)first->data; /* the library only reads it */
    size_t bytes = 0;
    for (size_t i = 0; i < batch->count; i++) {
        bytes += batch->requests[i].inputs[index].bytes;
    }
    if (batch->count > 1 || (uintptr_t)data % datatype_bytes(datatype) != 0) {
        int result = input_gather(instance, batch, index, bytes, error);
        if (result < 0) {
            return result;
        }
        data = instance->gathered[index].data;
    }
    /* It refuses fewer bytes than the shape needs, so a wrong count never reads past the end. */
    return onnx_check(api->value_over(api->memory, data == NULL ? nothing : data, bytes, dims, rank,
                                      onnx_element(datatype), &instance->inputs[index]),
                      ERROR_INTERNAL, instance->model->signature.inputs[index].name, error);
}

int onnx_inputs_fill(struct instance *instance, const struct batch *batch, struct error *error)
{
    const struct model_signature *signature = &instance->model->signature;
    int result = 0;
    for (size_t i = 0; i < signature->input_count && result == 0; i++) {
        const struct tensor *first = &batch->requests[0].inputs[i];
        int64_t dims[TENSOR_RANK_MAX];
        memcpy(dims, first->dims, sizeof(dims));
        if (signature->batch_max > 0) {
            dims[0] = batch->rows;
        }
        result = signature->inputs[i].datatype == DATATYPE_BYTES
                     ? strings_input(instance, batch, i, dims, first->rank, error)
                     : numbers_input(instance, batch, i, dims, first->rank, error);
    }
    return result;
}

/* ---- outputs -----------------------------------------------------------------------------------
 */

static int value_describe(struct instance *instance, size_t index, struct tensor *ret_tensor,
                          struct error *error)
{
    const struct onnx_api *api = onnx_api();
    const char *name = instance->model->signature.outputs[index].name;
    struct ort_value *value = instance->outputs[index];
    struct ort_shape *shape = NULL;
    int element = 0, tensor = 0;
    size_t rank = 0;
    int result = onnx_check(api->value_is_tensor(value, &tensor), ERROR_INTERNAL, name, error);
    if (result < 0 || !tensor) {
        return result < 0 ? result
                          : error_set(error, ERROR_INTERNAL, "output '%s' is not a tensor", name);
    }
    result = onnx_check(api->value_shape(value, &shape), ERROR_INTERNAL, name, error);
    if (result == 0) {
        result = onnx_check(api->shape_element(shape, &element), ERROR_INTERNAL, name, error);
    }
    if (result == 0) {
        result = onnx_check(api->shape_rank(shape, &rank), ERROR_INTERNAL, name, error);
    }
    if (result == 0 && rank > TENSOR_RANK_MAX) {
        result = error_set(error, ERROR_INTERNAL,
                           "output '%s' has %zu dimensions, at most %d are served", name, rank,
                           TENSOR_RANK_MAX);
    }
    if (result == 0) {
        result =
            onnx_check(api->shape_dims(shape, ret_tensor->dims, rank), ERROR_INTERNAL, name, error);
    }
    api->shape_release(shape);
    ret_tensor->rank = (uint32_t)rank;
    ret_tensor->datatype = onnx_datatype(element);
    return result;
}

static int output_check(const struct instance *instance, size_t index, const struct tensor *tensor,
                        const struct batch *batch, struct error *error)
{
    const struct model *model = instance->model;
    const struct tensor_spec *spec = &model->signature.outputs[index];
    struct shape_text shape;
    if (tensor->datatype != spec->datatype) {
        return error_set(error, ERROR_INTERNAL, "model '%s' gave output '%s' as %s instead of %s",
                         model->name, spec->name, datatype_name(tensor->datatype),
                         datatype_name(spec->datatype));
    }
    if (model->signature.batch_max > 0 && (tensor->rank == 0 || tensor->dims[0] != batch->rows)) {
        return error_set(error, ERROR_INTERNAL,
                         "model '%s' gave %" PRId64 " rows in output '%s' (shape %s) for a batch "
                         "of %" PRId64 "; set max_batch (config.pbtxt: max_batch_size) to 0 if its "
                         "first dimension is no batch",
                         model->name, tensor->rank == 0 ? 0 : tensor->dims[0], spec->name,
                         shape_print(&shape, tensor->dims, tensor->rank), batch->rows);
    }
    return 0;
}

/* Cuts an output into the requests' parts: `offsets` where its elements differ in size. */
static void output_split(const struct tensor *whole, const struct batch *batch, bool batching,
                         const size_t *offsets, size_t output_count, struct tensor *ret_outputs)
{
    size_t count = (size_t)tensor_element_count(whole->dims, whole->rank);
    size_t row_elements = batch->rows > 0 ? count / (size_t)batch->rows : 0;
    size_t element = datatype_bytes(whole->datatype);
    size_t at = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct tensor *part = &ret_outputs[i * output_count];
        size_t end = batching ? at + row_elements * batch->requests[i].rows : count;
        size_t from = offsets == NULL ? at * element : offsets[at];
        *part = *whole;
        part->bytes = (offsets == NULL ? end * element : offsets[end]) - from;
        part->data = (const unsigned char *)whole->data + from;
        if (batching) {
            part->dims[0] = batch->requests[i].rows;
        }
        at = end;
    }
}

int onnx_output_read(struct instance *instance, size_t index, const struct batch *batch,
                     struct tensor *ret_outputs, struct error *error)
{
    const struct model_signature *signature = &instance->model->signature;
    struct run_buffer *wire = &instance->encoded[index];
    struct tensor whole = {0};
    const size_t *offsets = NULL;
    void *data = NULL;
    int result = value_describe(instance, index, &whole, error);
    if (result == 0) {
        result = output_check(instance, index, &whole, batch, error);
    }
    if (result < 0) {
        return result;
    }
    if (whole.datatype == DATATYPE_BYTES) {
        size_t count = (size_t)tensor_element_count(whole.dims, whole.rank);
        result =
            onnx_strings_encode(instance->outputs[index], count, wire, &instance->offsets, error);
        data = wire->data;
        offsets = (const size_t *)(const void *)instance->offsets.data;
    } else {
        result = onnx_check(onnx_api()->value_data(instance->outputs[index], &data), ERROR_INTERNAL,
                            signature->outputs[index].name, error);
    }
    if (result == 0) {
        whole.data = data;
        output_split(&whole, batch, signature->batch_max > 0, offsets, signature->output_count,
                     ret_outputs + index);
    }
    return result;
}
