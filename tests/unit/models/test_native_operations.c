/* Each operation against float64 and, where there is a gradient, against finite differences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/native/blas.h"
#include "models/native/gemm.h"
#include "models/native/operations.h"
#include "models/native/optimizer.h"
#include "models/native/random.h"

static float *random_floats(size_t count, uint64_t seed)
{
    float *values = malloc(count * sizeof(*values));
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = random_signed_unit(random_at(seed, i));
    }
    return values;
}

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance * (1 + fabs(expected)))) {
        fail_msg("%.9g is not %.9g within %g", value, expected, tolerance);
    }
}

static int blas_setup(void **state)
{
    struct error error = {0};
    (void)state;
    blas_choose();
    if (blas_open(&error) < 0) {
        fail_msg("%s", error.text);
    }
    return 0;
}

static void gemm_check(uint32_t m, uint32_t n, uint32_t k, bool a_transposed, bool b_transposed)
{
    float *a = random_floats((size_t)m * k, 1), *b = random_floats((size_t)k * n, 2);
    float *c = random_floats((size_t)m * n, 3);
    assert_true(gemm(NULL, m, n, k, (struct gemm_operand){a, a_transposed ? m : k, a_transposed},
                     (struct gemm_operand){b, b_transposed ? k : n, b_transposed}, c, n));
    for (uint32_t i = 0; i<m; i += m> 40 ? 7 : 1) {
        for (uint32_t j = 0; j<n; j += n> 40 ? 11 : 1) {
            double sum = 0;
            for (uint32_t l = 0; l < k; l++) {
                sum += (double)a[a_transposed ? l * m + i : i * k + l] *
                       (double)b[b_transposed ? j * k + l : l * n + j];
            }
            assert_near(c[(size_t)i * n + j], sum, 1e-5 * sqrt(k));
        }
    }
    free(a);
    free(b);
    free(c);
}

static void gemm_is_the_product_in_all_forms(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        gemm_check(1, 1, 1, form & 1, form >> 1);
        gemm_check(5, 7, 3, form & 1, form >> 1);
        gemm_check(33, 129, 65, form & 1, form >> 1);
        gemm_check(600, 40, 17, form & 1, form >> 1);    /* short side in pieces */
        gemm_check(40, 1500, 9000, form & 1, form >> 1); /* depth in pieces */
    }
}

static void piece_check(uint32_t m, uint32_t n, uint32_t k, bool b_transposed)
{
    struct gemm_tiling tiling = gemm_tiling(m, n, k, b_transposed);
    assert_true(2.0 * tiling.m * tiling.n * tiling.k <= 70e6);
    assert_true(2.0 * tiling.m * tiling.n * tiling.k >= 32e6);
}

static void tiling_cuts_wide_layers_into_short_pieces(void **state)
{
    struct gemm_tiling tiling = gemm_tiling(16, 128, 64, true);
    (void)state;
    assert_int_equal(tiling.m, 16);
    assert_int_equal(tiling.n, 128); /* small products stay whole */
    assert_int_equal(tiling.k, 64);
    for (uint32_t rows = 32; rows <= 1024; rows *= 2) {
        piece_check(rows, 4096, 4096, true);
        piece_check(rows, 4096, 4096, false);
        piece_check(4096, 4096, rows, false);
    }
}

static bool gate_count(void *context)
{
    int *left = context;
    return (*left)-- > 0;
}

static void closed_gate_ends_a_product_between_pieces(void **state)
{
    int left = 3;
    const struct gate gate = {gate_count, &left};
    float *a = random_floats(64 * 4096, 1), *b = random_floats((size_t)4096 * 4096, 2);
    float *c = malloc(64 * 4096 * sizeof(*c));
    (void)state;
    assert_false(gemm(&gate, 64, 4096, 4096, (struct gemm_operand){a, 4096, false},
                      (struct gemm_operand){b, 4096, true}, c, 4096));
    assert_int_equal(left, -1); /* asked for a fourth piece, no further */
    free(a);
    free(b);
    free(c);
}

static void linear_forward_adds_products_and_bias(void **state)
{
    enum { ROWS = 9, IN = 13, OUT = 6 };
    float *x = random_floats(ROWS * IN, 1), *w = random_floats(OUT * IN, 2);
    float *bias = random_floats(OUT, 3), y[ROWS * OUT];
    (void)state;
    assert_true(linear_forward(NULL, ROWS, IN, OUT, x, w, bias, y));
    for (int row = 0; row < ROWS; row++) {
        for (int out = 0; out < OUT; out++) {
            double sum = bias[out];
            for (int in = 0; in < IN; in++) {
                sum += (double)x[row * IN + in] * (double)w[out * IN + in];
            }
            assert_near(y[row * OUT + out], sum, 1e-5);
        }
    }
    free(x);
    free(w);
    free(bias);
}

static void linear_backward_is_the_transposed_product(void **state)
{
    enum { ROWS = 9, IN = 13, OUT = 6 };
    float *x = random_floats(ROWS * IN, 1), *w = random_floats(OUT * IN, 2);
    float *dy = random_floats(ROWS * OUT, 3), dx[ROWS * IN], dw[OUT * IN], db[OUT];
    (void)state;
    assert_true(linear_backward(NULL, ROWS, IN, OUT, x, w, dy, dx, dw, db));
    for (int out = 0; out < OUT; out++) {
        double bias = 0;
        for (int row = 0; row < ROWS; row++) {
            bias += (double)dy[row * OUT + out];
        }
        assert_near(db[out], bias, 1e-5);
        for (int in = 0; in < IN; in++) {
            double sum = 0;
            for (int row = 0; row < ROWS; row++) {
                sum += (double)dy[row * OUT + out] * (double)x[row * IN + in];
            }
            assert_near(dw[out * IN + in], sum, 1e-5);
        }
    }
    for (int row = 0; row < ROWS; row++) {
        for (int in = 0; in < IN; in++) {
            double sum = 0;
            for (int out = 0; out < OUT; out++) {
                sum += (double)dy[row * OUT + out] * (double)w[out * IN + in];
            }
            assert_near(dx[row * IN + in], sum, 1e-5);
        }
    }
    free(x);
    free(w);
    free(dy);
}

static double activation_exact(enum activation activation, double x)
{
    return activation == ACTIVATION_RELU   ? fmax(x, 0)
           : activation == ACTIVATION_GELU ? 0.5 * x * (1 + erf(x / sqrt(2)))
                                           : x;
}

static void activations_and_their_slopes_are_right(void **state)
{
    enum { COUNT = 400 };
    (void)state;
    for (int kind = ACTIVATION_RELU; kind <= ACTIVATION_NONE; kind++) {
        float x[COUNT], y[COUNT], dy[COUNT];
        for (int i = 0; i < COUNT; i++) {
            x[i] = (float)(i - COUNT / 2) * 0.037f + 0.0011f;
            dy[i] = 1.5f;
        }
        assert_true(activation_forward(NULL, (enum activation)kind, COUNT, x, y));
        assert_true(activation_backward(NULL, (enum activation)kind, COUNT, x, dy));
        for (int i = 0; i < COUNT; i++) {
            double step = 1e-6;
            double slope = (activation_exact((enum activation)kind, (double)x[i] + step) -
                            activation_exact((enum activation)kind, (double)x[i] - step)) /
                           (2 * step);
            assert_near(y[i], activation_exact((enum activation)kind, (double)x[i]), 2e-6);
            assert_near(dy[i], 1.5 * slope, 1e-5);
        }
    }
}

static void relu_keeps_a_nan(void **state)
{
    float x[1] = {NAN}, y[1] = {0};
    (void)state;
    assert_true(activation_forward(NULL, ACTIVATION_RELU, 1, x, y));
    assert_true(isnan(y[0]));
}

static double loss_exact(const float *logits, int classes, uint32_t label, int moved, double step)
{
    double sum = 0, chosen = 0;
    for (int i = 0; i < classes; i++) {
        double logit = (double)logits[i] + (i == moved ? step : 0);
        sum += exp(logit);
        chosen = i == (int)label ? logit : chosen;
    }
    return log(sum) - chosen;
}

static void cross_entropy_and_its_gradient_are_right(void **state)
{
    enum { ROWS = 5, CLASSES = 7 };
    float *logits = random_floats(ROWS * CLASSES, 4), gradient[ROWS * CLASSES];
    uint32_t labels[ROWS] = {0, 6, 3, 3, 1};
    struct loss_sums sums;
    double loss = 0;
    uint64_t correct = 0;
    (void)state;
    assert_true(softmax_cross_entropy(NULL, ROWS, CLASSES, logits, labels, 0.25f, gradient, &sums));
    for (int row = 0; row < ROWS; row++) {
        const float *in = logits + row * CLASSES;
        int best = 0;
        loss += loss_exact(in, CLASSES, labels[row], -1, 0);
        for (int i = 0; i < CLASSES; i++) {
            double slope = (loss_exact(in, CLASSES, labels[row], i, 1e-5) -
                            loss_exact(in, CLASSES, labels[row], i, -1e-5)) /
                           2e-5;
            assert_near(gradient[row * CLASSES + i], 0.25 * slope, 1e-6);
            best = in[i] > in[best] ? i : best;
        }
        correct += (uint32_t)best == labels[row];
    }
    assert_near(sums.loss, loss, 1e-9);
    assert_int_equal(sums.correct, correct);
    free(logits);
}

static void cross_entropy_of_huge_logits_stays_finite(void **state)
{
    float logits[3] = {1e30f, -1e30f, 3e4f}, gradient[3];
    uint32_t label = 0;
    struct loss_sums sums;
    (void)state;
    assert_true(softmax_cross_entropy(NULL, 1, 3, logits, &label, 1, gradient, &sums));
    assert_true(sums.loss == 0);
    assert_true(gradient[0] == 0 && gradient[1] == 0);
}

static void gradients_add_element_by_element(void **state)
{
    size_t count = 3 * PIECE_FLOATS + 5;
    float *a = random_floats(count, 1), *b = random_floats(count, 2),
          *sum = random_floats(count, 3);
    int left = 100;
    const struct gate gate = {gate_count, &left};
    (void)state;
    assert_true(gradient_add(&gate, count, a, b, sum));
    assert_int_equal(left, 96); /* four pieces */
    for (size_t i = 0; i < count; i++) {
        assert_true(sum[i] == a[i] + b[i]);
    }
    free(a);
    free(b);
    free(sum);
}

/* ---- optimizers ---- */

static const struct optimizer sgd = {OPTIMIZER_SGD, .learning_rate = 0.1, .momentum = 0.9,
                                     .weight_decay = 0.01};
static const struct optimizer adamw = {OPTIMIZER_ADAMW, .learning_rate = 0.01, .weight_decay = 0.1,
                                       .beta1 = 0.9,    .beta2 = 0.999,        .epsilon = 1e-8};

/* One element, in double. */
static void step_exact(const struct optimizer *o, int step, double gradient, double *w, double *m,
                       double *v)
{
    if (o->kind == OPTIMIZER_SGD) {
        *m = o->momentum * *m + gradient + o->weight_decay * *w;
        *w -= o->learning_rate * *m;
        return;
    }
    *m = o->beta1 * *m + (1 - o->beta1) * gradient;
    *v = o->beta2 * *v + (1 - o->beta2) * gradient * gradient;
    *w -= o->learning_rate * o->weight_decay * *w;
    *w -= o->learning_rate * (*m / (1 - pow(o->beta1, step))) /
          (sqrt(*v / (1 - pow(o->beta2, step))) + o->epsilon);
}

static void optimizer_check(const struct optimizer *optimizer)
{
    enum { COUNT = 50, STEPS = 30 };
    uint32_t slots = optimizer_slots(optimizer->kind);
    float *state = random_floats(3 * COUNT, 5), *next = random_floats(3 * COUNT, 6), *swap;
    double w[COUNT], m[COUNT] = {0}, v[COUNT] = {0};
    memset(state + COUNT, 0, slots * COUNT * sizeof(*state));
    for (int i = 0; i < COUNT; i++) {
        w[i] = (double)state[i];
    }
    for (int step = 1; step <= STEPS; step++) {
        float *gradient = random_floats(COUNT, (uint64_t)step + 100);
        assert_true(
            optimizer_apply(NULL, optimizer, (uint64_t)step, COUNT, 0, 20, gradient, state, next));
        for (int again = 0; again < 2; again++) { /* a range may be done twice */
            assert_true(optimizer_apply(NULL, optimizer, (uint64_t)step, COUNT, 20, COUNT - 20,
                                        gradient, state, next));
        }
        for (int i = 0; i < COUNT; i++) {
            step_exact(optimizer, step, (double)gradient[i], &w[i], &m[i], &v[i]);
            assert_near(next[i], w[i], 2e-5);
        }
        swap = state;
        state = next;
        next = swap;
        free(gradient);
    }
    free(state);
    free(next);
}

static void sgd_with_momentum_follows_its_formula(void **state)
{
    (void)state;
    optimizer_check(&sgd);
}

static void adamw_follows_its_formula(void **state)
{
    (void)state;
    optimizer_check(&adamw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_is_the_product_in_all_forms),
        cmocka_unit_test(tiling_cuts_wide_layers_into_short_pieces),
        cmocka_unit_test(closed_gate_ends_a_product_between_pieces),
        cmocka_unit_test(linear_forward_adds_products_and_bias),
        cmocka_unit_test(linear_backward_is_the_transposed_product),
        cmocka_unit_test(activations_and_their_slopes_are_right),
        cmocka_unit_test(relu_keeps_a_nan),
        cmocka_unit_test(cross_entropy_and_its_gradient_are_right),
        cmocka_unit_test(cross_entropy_of_huge_logits_stays_finite),
        cmocka_unit_test(gradients_add_element_by_element),
        cmocka_unit_test(sgd_with_momentum_follows_its_formula),
        cmocka_unit_test(adamw_follows_its_formula),
    };
    return cmocka_run_group_tests(tests, blas_setup, NULL);
}
