#include "models/native/operations.h"

#include <math.h>
#include <string.h>

#include "models/native/gemm.h"

static size_t piece_of(size_t count, size_t at, size_t piece)
{
    return count - at < piece ? count - at : piece;
}

/* Rows of one piece of about PIECE_FLOATS. */
static uint32_t piece_rows(uint32_t columns)
{
    return columns >= PIECE_FLOATS ? 1 : PIECE_FLOATS / columns;
}

static bool bias_add(const struct gate *gate, uint32_t rows, uint32_t columns, const float *bias,
                     float *y)
{
    uint32_t piece = piece_rows(columns);
    for (uint32_t row = 0; row < rows; row++) {
        float *out = y + (size_t)row * columns;
        if (row % piece == 0 && !gate_open(gate)) {
            return false;
        }
        for (uint32_t i = 0; i < columns; i++) {
            out[i] += bias[i];
        }
    }
    return true;
}

bool linear_forward(const struct gate *gate, uint32_t rows, uint32_t inputs, uint32_t outputs,
                    const float *x, const float *weights, const float *bias, float *y)
{
    return gemm(gate, rows, outputs, inputs, (struct gemm_operand){x, inputs, false},
                (struct gemm_operand){weights, inputs, true}, y, outputs) &&
           bias_add(gate, rows, outputs, bias, y);
}

/* Sums the columns of dy, row after row. */
static bool bias_gradient_sum(const struct gate *gate, uint32_t rows, uint32_t columns,
                              const float *dy, float *bias_gradient)
{
    uint32_t piece = piece_rows(columns);
    memset(bias_gradient, 0, columns * sizeof(*bias_gradient));
    for (uint32_t row = 0; row < rows; row++) {
        const float *in = dy + (size_t)row * columns;
        if (row % piece == 0 && !gate_open(gate)) {
            return false;
        }
        for (uint32_t i = 0; i < columns; i++) {
            bias_gradient[i] += in[i];
        }
    }
    return true;
}

bool linear_backward(const struct gate *gate, uint32_t rows, uint32_t inputs, uint32_t outputs,
                     const float *x, const float *weights, const float *dy, float *dx,
                     float *weights_gradient, float *bias_gradient)
{
    const struct gemm_operand dy_plain = {dy, outputs, false};
    const struct gemm_operand dy_transposed = {dy, outputs, true};
    if (!gemm(gate, outputs, inputs, rows, dy_transposed, (struct gemm_operand){x, inputs, false},
              weights_gradient, inputs) ||
        !bias_gradient_sum(gate, rows, outputs, dy, bias_gradient)) {
        return false;
    }
    return dx == NULL || gemm(gate, rows, inputs, outputs, dy_plain,
                              (struct gemm_operand){weights, inputs, false}, dx, inputs);
}

static float gelu(float x)
{
    return 0.5f * x * (1.0f + erff(x * (float)M_SQRT1_2));
}

/* d/dx x · Φ(x) = Φ(x) + x · φ(x). */
static float gelu_slope(float x)
{
    static const float inverse_sqrt_2pi = 0.398942280401432678f;
    return 0.5f * (1.0f + erff(x * (float)M_SQRT1_2)) + x * inverse_sqrt_2pi * expf(-0.5f * x * x);
}

static void activation_forward_piece(enum activation activation, size_t count, const float *x,
                                     float *y)
{
    switch (activation) {
    case ACTIVATION_RELU:
        for (size_t i = 0; i < count; i++) {
            y[i] = x[i] < 0.0f ? 0.0f : x[i]; /* a NaN stays one */
        }
        return;
    case ACTIVATION_GELU:
        for (size_t i = 0; i < count; i++) {
            y[i] = gelu(x[i]);
        }
        return;
    case ACTIVATION_NONE:
        memmove(y, x, count * sizeof(*y));
        return;
    }
}

static void activation_backward_piece(enum activation activation, size_t count, const float *x,
                                      float *dy)
{
    switch (activation) {
    case ACTIVATION_RELU:
        for (size_t i = 0; i < count; i++) {
            dy[i] = x[i] > 0.0f ? dy[i] : 0.0f;
        }
        return;
    case ACTIVATION_GELU:
        for (size_t i = 0; i < count; i++) {
            dy[i] *= gelu_slope(x[i]);
        }
        return;
    case ACTIVATION_NONE:
        return;
    }
}

bool activation_forward(const struct gate *gate, enum activation activation, size_t count,
                        const float *x, float *y)
{
    for (size_t at = 0; at < count; at += PIECE_FLOATS) {
        if (!gate_open(gate)) {
            return false;
        }
        activation_forward_piece(activation, piece_of(count, at, PIECE_FLOATS), x + at, y + at);
    }
    return true;
}

bool activation_backward(const struct gate *gate, enum activation activation, size_t count,
                         const float *x, float *dy)
{
    for (size_t at = 0; at < count; at += PIECE_FLOATS) {
        if (!gate_open(gate)) {
            return false;
        }
        activation_backward_piece(activation, piece_of(count, at, PIECE_FLOATS), x + at, dy + at);
    }
    return true;
}

/* One row: returns its loss, log Σ exp(l) − l[label], and writes the scaled gradient. */
static double row_loss(uint32_t classes, const float *logits, uint32_t label, float scale,
                       float *dlogits, bool *ret_correct)
{
    double sum = 0;
    uint32_t best = 0;
    for (uint32_t i = 1; i < classes; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    for (uint32_t i = 0; i < classes; i++) {
        sum += exp((double)logits[i] - (double)logits[best]);
    }
    for (uint32_t i = 0; dlogits != NULL && i < classes; i++) {
        double share = exp((double)logits[i] - (double)logits[best]) / sum;
        dlogits[i] = (float)(share - (i == label ? 1.0 : 0.0)) * scale;
    }
    *ret_correct = best == label;
    return log(sum) + (double)logits[best] - (double)logits[label];
}

bool softmax_cross_entropy(const struct gate *gate, uint32_t rows, uint32_t classes,
                           const float *logits, const uint32_t *labels, float scale, float *dlogits,
                           struct loss_sums *ret_sums)
{
    uint32_t piece = piece_rows(classes);
    *ret_sums = (struct loss_sums){0};
    for (uint32_t row = 0; row < rows; row++) {
        size_t at = (size_t)row * classes;
        bool correct;
        if (row % piece == 0 && !gate_open(gate)) {
            return false;
        }
        ret_sums->loss += row_loss(classes, logits + at, labels[row], scale,
                                   dlogits != NULL ? dlogits + at : NULL, &correct);
        ret_sums->correct += correct;
    }
    return true;
}

bool gradient_add(const struct gate *gate, size_t count, const float *a, const float *b, float *sum)
{
    for (size_t at = 0; at < count; at += PIECE_FLOATS) {
        size_t end = at + piece_of(count, at, PIECE_FLOATS);
        if (!gate_open(gate)) {
            return false;
        }
        for (size_t i = at; i < end; i++) {
            sum[i] = a[i] + b[i];
        }
    }
    return true;
}
