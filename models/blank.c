#include "models/blank.h"

#include <stdlib.h>
#include <string.h>

/* Where a tensor's data starts within the block: enough for any element and any kernel. */
#define ALIGNMENT 64

static int blank_tensor(const struct tensor_spec *spec, bool batching,
                        const struct blank_form *form, struct tensor *ret_tensor)
{
    size_t element = spec->datatype == DATATYPE_BYTES ? 4 : datatype_bytes(spec->datatype);
    int64_t count;
    *ret_tensor = (struct tensor){.datatype = spec->datatype};
    if (batching) {
        ret_tensor->dims[ret_tensor->rank++] = form->rows;
    }
    for (uint32_t i = 0; i < spec->rank; i++) {
        ret_tensor->dims[ret_tensor->rank++] = spec->dims[i] < 0 ? form->variable : spec->dims[i];
    }
    count = tensor_element_count(ret_tensor->dims, ret_tensor->rank);
    if (count < 0 || (uint64_t)count > BLANK_BYTES_MAX / element) {
        return -1;
    }
    ret_tensor->bytes = (size_t)count * element;
    return 0;
}

/* 0.5 in each floating point format; other types keep their zeros. */
static void row_mark(enum datatype datatype, unsigned char *data, size_t bytes)
{
    const float single = 0.5F;
    const double twice = 0.5;
    const uint16_t half = 0x3800, brain = 0x3F00;
    const void *value = datatype == DATATYPE_FP32   ? (const void *)&single
                        : datatype == DATATYPE_FP64 ? (const void *)&twice
                        : datatype == DATATYPE_FP16 ? (const void *)&half
                        : datatype == DATATYPE_BF16 ? (const void *)&brain
                                                    : NULL;
    size_t element = datatype_bytes(datatype);
    for (size_t at = 0; value != NULL && at < bytes; at += element) {
        memcpy(data + at, value, element);
    }
}

int blank_inputs_init(struct blank_inputs *inputs, const struct model_signature *signature,
                      const struct blank_form *form, struct error *error)
{
    bool batching = signature->batch_max > 0;
    size_t total = 0;
    unsigned char *at;
    *inputs = (struct blank_inputs){
        .tensors = calloc(signature->input_count + 1, sizeof(*inputs->tensors))};
    if (inputs->tensors == NULL) {
        goto no_memory;
    }
    for (size_t i = 0; i < signature->input_count; i++) {
        if (blank_tensor(&signature->inputs[i], batching, form, &inputs->tensors[i]) < 0 ||
            inputs->tensors[i].bytes > BLANK_BYTES_MAX - total) {
            blank_inputs_fini(inputs);
            return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                             "%u rows of input '%s' alone, or of all inputs, take more than 1 GiB",
                             (unsigned)form->rows, signature->inputs[i].name);
        }
        total += (inputs->tensors[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    inputs->memory = aligned_alloc(ALIGNMENT, total + ALIGNMENT);
    if (inputs->memory == NULL) {
        goto no_memory;
    }
    memset(inputs->memory, 0, total + ALIGNMENT);
    at = inputs->memory;
    for (size_t i = 0; i < signature->input_count; i++) {
        struct tensor *tensor = &inputs->tensors[i];
        tensor->data = at;
        if (form->mark_first && batching && form->rows > 0) {
            row_mark(tensor->datatype, at, tensor->bytes / form->rows);
        }
        at += (tensor->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return 0;
no_memory:
    blank_inputs_fini(inputs);
    return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a model's warm-up inputs");
}

void blank_inputs_fini(struct blank_inputs *inputs)
{
    free(inputs->tensors);
    free(inputs->memory);
    *inputs = (struct blank_inputs){0};
}
