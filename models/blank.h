/* blank.h: inputs made up from a signature, to warm a model up and to try its batch dimension.
 * Values:  zeros; BYTES elements are empty. Variable dimensions are all of one size: 1 at first,
 *          and where a model does not run on that (a convolution wants more than a point), 64.
 * Owner:   the caller frees with blank_inputs_fini; tensors point into the same memory.
 * Thread:  any; no shared state. */
#ifndef TIDEPOOL_MODELS_BLANK_H
#define TIDEPOOL_MODELS_BLANK_H

#include "models/tensor.h"

#define BLANK_BYTES_MAX ((size_t)1 << 30)
#define BLANK_SIZES                                                                                \
    {                                                                                              \
        1, 64                                                                                      \
    } /* of variable dimensions, in the order in which they are tried */
#define BLANK_SIZE_COUNT 2

struct blank_inputs {
    struct tensor *tensors; /* input_count, the signature's order */
    void *memory;
};

struct blank_form {
    uint32_t rows;     /* of the batch dimension; ignored without one */
    uint32_t variable; /* size of variable dimensions */
    bool mark_first;   /* the first row's floating point numbers are 0.5 instead */
};

/* RESOURCE_EXHAUSTED: more than BLANK_BYTES_MAX would be needed. */
int blank_inputs_init(struct blank_inputs *inputs, const struct model_signature *signature,
                      const struct blank_form *form, struct error *error);
void blank_inputs_fini(struct blank_inputs *inputs);

#endif
