/* blank.h: inputs made up from a signature, to warm a model up and to try its batch dimension.
 * Values:  zeros; variable dimensions are 1, BYTES elements empty.
 * Owner:   the caller frees with blank_inputs_fini; tensors point into the same memory.
 * Thread:  any; no shared state. */
#ifndef TIDEPOOL_MODELS_BLANK_H
#define TIDEPOOL_MODELS_BLANK_H

#include "models/tensor.h"

#define BLANK_BYTES_MAX ((size_t)1 << 30)

struct blank_inputs {
    struct tensor *tensors; /* input_count, the signature's order */
    void *memory;
};

/* `rows` of the batch dimension (ignored without one). With `mark_first` the first row's floating
 * point numbers are 0.5 instead. RESOURCE_EXHAUSTED: more than BLANK_BYTES_MAX would be needed. */
int blank_inputs_init(struct blank_inputs *inputs, const struct model_signature *signature,
                      uint32_t rows, bool mark_first, struct error *error);
void blank_inputs_fini(struct blank_inputs *inputs);

#endif
