/* trial.c: finds out by running a model whether its first dimension is a batch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/blank.h"
#include "models/onnx/model.h"

/* ---- the batch dimension -----------------------------------------------------------------------
 */

/* `bytes` of floats or doubles; not-a-numbers match each other. */
static bool floats_near(enum datatype datatype, const char *a, const char *b, size_t bytes)
{
    size_t step = datatype_bytes(datatype);
    for (size_t at = 0; at < bytes; at += step) {
        double pair[2];
        float single[2];
        memcpy(datatype == DATATYPE_FP32 ? (void *)&single[0] : (void *)&pair[0], a + at, step);
        memcpy(datatype == DATATYPE_FP32 ? (void *)&single[1] : (void *)&pair[1], b + at, step);
        if (datatype == DATATYPE_FP32) {
            pair[0] = (double)single[0];
            pair[1] = (double)single[1];
        }
        if (isnan(pair[0]) != isnan(pair[1]) ||
            fabs(pair[0] - pair[1]) > 1e-3 * (1 + fabs(pair[0]))) {
            return false;
        }
    }
    return true;
}

/* Kernels may round a row a little differently beside others; whole numbers have to be equal. The
 * short formats round too coarsely to tell. */
static bool numbers_near(enum datatype datatype, const void *a, const void *b, size_t bytes)
{
    switch (datatype) {
    case DATATYPE_FP32:
    case DATATYPE_FP64:
        return floats_near(datatype, a, b, bytes);
    case DATATYPE_FP16:
    case DATATYPE_BF16:
        return true;
    default:
        return memcmp(a, b, bytes) == 0;
    }
}

/* The last row of a batch has to equal what it gives alone. */
static int rows_compare(const struct model_signature *signature, const struct tensor *alone,
                        const struct tensor *batch, struct error *error)
{
    for (size_t i = 0; i < signature->output_count; i++) {
        bool whole = datatype_bytes(alone[i].datatype) > 0;
        if (whole &&
            (batch[i].bytes != 2 * alone[i].bytes ||
             !numbers_near(alone[i].datatype, alone[i].data,
                           (const char *)batch[i].data + alone[i].bytes, alone[i].bytes))) {
            return error_set(error, ERROR_FAILED_PRECONDITION,
                             "output '%s' of a row depends on the other rows of the batch",
                             signature->outputs[i].name);
        }
    }
    return 0;
}

/* Where the file does not tell an output's shape, the run did: its dimensions are variable. */
static void shapes_learn(struct model_signature *signature, const struct tensor *outputs)
{
    uint32_t skip = signature->batch_max > 0;
    for (size_t i = 0; i < signature->output_count; i++) {
        struct tensor_spec *spec = &signature->outputs[i];
        while (spec->rank == 0 && outputs[i].rank > skip) {
            spec->rank = outputs[i].rank - skip;
            for (uint32_t k = 0; k < spec->rank; k++) {
                spec->dims[k] = -1;
            }
        }
    }
}

static int blank_run(struct instance *instance, const struct blank_form *form,
                     struct tensor *ret_outputs, struct error *error)
{
    struct blank_inputs blank;
    int result = blank_inputs_init(&blank, &instance->model->signature, form, error);
    if (result == 0) {
        const struct run_request request = {.inputs = blank.tensors, .rows = form->rows};
        result = onnx_instance_run(instance, &request, 1, ret_outputs, error);
        blank_inputs_fini(&blank);
    }
    return result;
}

/* Copies the data of outputs that the next run would overwrite. */
static int outputs_keep(struct tensor *outputs, size_t count, void **ret_memory)
{
    size_t total = 1, at = 0;
    for (size_t i = 0; i < count; i++) {
        total += outputs[i].bytes;
    }
    unsigned char *memory = malloc(total);
    for (size_t i = 0; i < count && memory != NULL; i++) {
        if (outputs[i].bytes > 0) {
            memcpy(memory + at, outputs[i].data, outputs[i].bytes);
        }
        outputs[i].data = memory + at;
        at += outputs[i].bytes;
    }
    *ret_memory = memory;
    return memory == NULL ? -1 : 0;
}

static enum trial batch_of_two_try(struct instance *instance, struct tensor *alone,
                                   uint32_t variable, bool compare, struct error *error)
{
    const struct blank_form two = {.rows = 2, .variable = variable, .mark_first = compare};
    const struct model_signature *signature = &instance->model->signature;
    struct tensor batch[MODEL_TENSORS_MAX];
    void *kept = NULL;
    int result = -1;
    if (outputs_keep(alone, signature->output_count, &kept) < 0) {
        (void)error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory to try a batch");
        return TRIAL_UNPROVEN;
    }
    result = blank_run(instance, &two, batch, error);
    if (result == 0 && compare) {
        result = rows_compare(signature, alone, batch, error);
    }
    free(kept);
    if (result < 0) {
        (void)error_prefix(error, "a batch of two was tried");
    }
    return result < 0 ? TRIAL_WRONG : TRIAL_PROVEN;
}

enum trial onnx_batch_try(struct instance *instance, bool compare, struct error *error)
{
    static const uint32_t sizes[] = BLANK_SIZES;
    struct model_signature *signature = &instance->model->signature;
    struct tensor alone[MODEL_TENSORS_MAX];
    struct blank_form form = {.rows = 1};
    int result = -1;
    for (size_t i = 0; i < BLANK_SIZE_COUNT && result < 0; i++) {
        form.variable = sizes[i];
        result = blank_run(instance, &form, alone, error);
    }
    if (result < 0) {
        bool ran = instance->outputs[0] != NULL; /* then it is its outputs that are wrong */
        return ran && signature->batch_max > 0 ? TRIAL_WRONG : TRIAL_UNPROVEN;
    }
    shapes_learn(signature, alone);
    return signature->batch_max < 2
               ? TRIAL_PROVEN
               : batch_of_two_try(instance, alone, form.variable, compare, error);
}
