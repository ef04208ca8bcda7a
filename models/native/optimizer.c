#include "models/native/optimizer.h"

#include <math.h>

#include "models/native/operations.h"

/* The step's numbers, the same for all elements. */
struct factors {
    float rate, decay, momentum;
    float beta1, beta2, rest1, rest2, step_rate, unbias2, epsilon;
};

uint32_t optimizer_slots(enum optimizer_kind kind)
{
    return kind == OPTIMIZER_ADAMW ? 2 : 1;
}

static struct factors factors_of(const struct optimizer *optimizer, uint64_t step)
{
    double bias1 = 1.0 - pow(optimizer->beta1, (double)step);
    double bias2 = 1.0 - pow(optimizer->beta2, (double)step);
    return (struct factors){
        .rate = (float)optimizer->learning_rate,
        .decay = (float)(optimizer->kind == OPTIMIZER_ADAMW
                             ? 1.0 - optimizer->learning_rate * optimizer->weight_decay
                             : optimizer->weight_decay),
        .momentum = (float)optimizer->momentum,
        .beta1 = (float)optimizer->beta1,
        .beta2 = (float)optimizer->beta2,
        .rest1 = (float)(1.0 - optimizer->beta1),
        .rest2 = (float)(1.0 - optimizer->beta2),
        .step_rate = (float)(optimizer->learning_rate / bias1),
        .unbias2 = (float)(1.0 / sqrt(bias2)),
        .epsilon = (float)optimizer->epsilon,
    };
}

/* v' = momentum · v + (g + decay · w); w' = w − rate · v'. */
static void sgd_piece(const struct factors *f, size_t count, const float *restrict g,
                      const float *restrict w, const float *restrict v, float *restrict new_w,
                      float *restrict new_v)
{
    for (size_t i = 0; i < count; i++) {
        float velocity = f->momentum * v[i] + (g[i] + f->decay * w[i]);
        new_v[i] = velocity;
        new_w[i] = w[i] - f->rate * velocity;
    }
}

/* Weight decay is decoupled: w shrinks by rate · decay besides the moment's step. */
static void adamw_piece(const struct factors *f, size_t count, const float *restrict g,
                        const float *restrict w, const float *restrict m, const float *restrict v,
                        float *restrict new_w, float *restrict new_m, float *restrict new_v)
{
    for (size_t i = 0; i < count; i++) {
        float first = f->beta1 * m[i] + f->rest1 * g[i];
        float second = f->beta2 * v[i] + f->rest2 * (g[i] * g[i]);
        new_m[i] = first;
        new_v[i] = second;
        new_w[i] =
            f->decay * w[i] - f->step_rate * (first / (sqrtf(second) * f->unbias2 + f->epsilon));
    }
}

bool optimizer_apply(const struct gate *gate, const struct optimizer *optimizer, uint64_t step,
                     size_t parameters, size_t begin, size_t count, const float *gradient,
                     const float *old_state, float *new_state)
{
    const struct factors factors = factors_of(optimizer, step);
    for (size_t at = begin; at < begin + count; at += PIECE_FLOATS) {
        size_t piece = begin + count - at < PIECE_FLOATS ? begin + count - at : PIECE_FLOATS;
        const float *w = old_state + at;
        float *new_w = new_state + at;
        if (!gate_open(gate)) {
            return false;
        }
        if (optimizer->kind == OPTIMIZER_SGD) {
            sgd_piece(&factors, piece, gradient + at, w, w + parameters, new_w, new_w + parameters);
        } else {
            adamw_piece(&factors, piece, gradient + at, w, w + parameters, w + 2 * parameters,
                        new_w, new_w + parameters, new_w + 2 * parameters);
        }
    }
    return true;
}
