/* operations.h: what a layer does, forward and backward, on rows of float32.
 * Layout:  all matrices are row major and dense; weights are outputs × inputs.
 * Bits:    the same inputs give the same bits, however often the gate stood still.
 * Stop:    false means that the gate closed; the outputs are then undefined.
 * Thread:  any number at once, on different outputs. */
#ifndef TIDEPOOL_MODELS_NATIVE_OPERATIONS_H
#define TIDEPOOL_MODELS_NATIVE_OPERATIONS_H

#include <stdint.h>

#include "models/native/gate.h"

/* Floats of one piece of work that only moves memory: about 50 µs. */
#define PIECE_FLOATS 65536u

enum activation { ACTIVATION_RELU, ACTIVATION_GELU, ACTIVATION_NONE };

/* y = x · wᵀ + bias. */
bool linear_forward(const struct gate *gate, uint32_t rows, uint32_t inputs, uint32_t outputs,
                    const float *x, const float *weights, const float *bias, float *y);
/* From dy: dx (NULL: not wanted), the gradient of the weights and of the bias. */
bool linear_backward(const struct gate *gate, uint32_t rows, uint32_t inputs, uint32_t outputs,
                     const float *x, const float *weights, const float *dy, float *dx,
                     float *weights_gradient, float *bias_gradient);

/* y = f(x); in place is fine. GELU is the exact one, x · Φ(x). */
bool activation_forward(const struct gate *gate, enum activation activation, size_t count,
                        const float *x, float *y);
/* dy becomes dx, given the x of the forward pass. */
bool activation_backward(const struct gate *gate, enum activation activation, size_t count,
                         const float *x, float *dy);

struct loss_sums {
    double loss;      /* of all rows, not divided */
    uint64_t correct; /* rows whose largest logit is the label's */
};
/* Softmax and cross-entropy. Labels are below `classes` (checked where they were read).
 * dlogits (NULL: not wanted) is the gradient of the loss times `scale`. */
bool softmax_cross_entropy(const struct gate *gate, uint32_t rows, uint32_t classes,
                           const float *logits, const uint32_t *labels, float scale, float *dlogits,
                           struct loss_sums *ret_sums);

/* sum = a + b, element by element. */
bool gradient_add(const struct gate *gate, size_t count, const float *a, const float *b,
                  float *sum);

#endif
