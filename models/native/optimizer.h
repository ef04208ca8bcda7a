/* optimizer.h: one step of an optimizer over a range of the parameters.
 * State:   weights and, after them, as many vectors of the same length as the kind keeps ("slots").
 * Redo:    reads the old state and the gradient, writes the new state: a range may be done again,
 *          and is never doubled. Ranges may be done in any order and at once.
 * Bits:    + − × ÷ and sqrt in float32 only; the step's factors are computed in double. */
#ifndef TIDEPOOL_MODELS_NATIVE_OPTIMIZER_H
#define TIDEPOOL_MODELS_NATIVE_OPTIMIZER_H

#include <stdint.h>

#include "models/native/gate.h"

enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_ADAMW };

struct optimizer {
    enum optimizer_kind kind;
    double learning_rate;
    double weight_decay;
    double momentum;              /* SGD */
    double beta1, beta2, epsilon; /* AdamW */
};

/* SGD: 1 (velocity). AdamW: 2 (first and second moment). */
uint32_t optimizer_slots(enum optimizer_kind kind);

/* Step number `step` counts from 1. `old_state` and `new_state` are (1 + slots) · `parameters`
 * floats; elements begin … begin + count of each vector are written. False: the gate closed. */
bool optimizer_apply(const struct gate *gate, const struct optimizer *optimizer, uint64_t step,
                     size_t parameters, size_t begin, size_t count, const float *gradient,
                     const float *old_state, float *new_state);

#endif
