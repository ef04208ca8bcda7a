/* gemm.h: a matrix product in pieces.
 * Bits:    the pieces, and so the order of all sums, follow from the shapes and layouts alone.
 * Thread:  any number at once, on different outputs. */
#ifndef TIDEPOOL_MODELS_NATIVE_GEMM_H
#define TIDEPOOL_MODELS_NATIVE_GEMM_H

#include <stdint.h>

#include "models/native/gate.h"

/* Grows with every change to gemm_tiling: bits of another version are other bits. */
#define GEMM_TILING_VERSION 1

struct gemm_tiling {
    uint32_t m, n, k; /* size of a piece */
};

/* `b_transposed`: rows of b as stored run along k (the weights of a forward pass), so narrow strips
 * of columns read memory in order; else they run along n, and the pieces are wide. */
struct gemm_tiling gemm_tiling(uint32_t m, uint32_t n, uint32_t k, bool b_transposed);

struct gemm_operand {
    const float *data;
    uint32_t stride; /* floats from row to row as stored */
    bool transposed;
};

/* c (m × n, row major) = a (m × k) · b (k × n). false: the gate closed, c is undefined. */
bool gemm(const struct gate *gate, uint32_t m, uint32_t n, uint32_t k, struct gemm_operand a,
          struct gemm_operand b, float *c, uint32_t c_stride);

#endif
