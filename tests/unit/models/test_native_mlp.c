/* The mlp: its gradient against finite differences, its bits, and its ONNX form in a runtime. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/native/blas.h"
#include "models/native/mlp.h"
#include "models/native/mlp_onnx.h"
#include "models/native/random.h"

#define ROWS 12

static const struct mlp relu_mlp = {3, {11, 17, 9, 5}, ACTIVATION_RELU};
static const struct mlp gelu_mlp = {3, {11, 17, 9, 5}, ACTIVATION_GELU};

struct sample {
    float inputs[ROWS * 11];
    uint32_t labels[ROWS];
    float *parameters, *gradient;
    struct mlp_workspace *workspace;
};

static void sample_init(struct sample *sample, const struct mlp *mlp)
{
    size_t count = mlp_parameters(mlp);
    for (size_t i = 0; i < ROWS * 11; i++) {
        sample->inputs[i] = random_signed_unit(random_at(1, i));
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        sample->labels[i] = (uint32_t)(random_at(2, i) % 5);
    }
    sample->parameters = malloc(count * sizeof(float));
    sample->gradient = malloc(count * sizeof(float));
    sample->workspace = mlp_workspace_create(mlp, ROWS);
    assert_non_null(sample->parameters);
    assert_non_null(sample->gradient);
    assert_non_null(sample->workspace);
    mlp_initialize(mlp, 3, sample->parameters);
}

static void sample_fini(struct sample *sample)
{
    free(sample->parameters);
    free(sample->gradient);
    mlp_workspace_destroy(sample->workspace);
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

static double loss_of(const struct mlp *mlp, struct sample *sample)
{
    struct loss_sums sums;
    const float *logits =
        mlp_forward(mlp, sample->workspace, NULL, ROWS, sample->inputs, sample->parameters);
    assert_true(softmax_cross_entropy(NULL, ROWS, 5, logits, sample->labels, 0, NULL, &sums));
    return sums.loss;
}

static void gradient_check(const struct mlp *mlp)
{
    struct sample sample;
    struct loss_sums sums;
    unsigned checked = 0, off = 0;
    sample_init(&sample, mlp);
    memset(sample.gradient, 0x7f, mlp_parameters(mlp) * sizeof(float)); /* all must be written */
    assert_non_null(
        mlp_forward(mlp, sample.workspace, NULL, ROWS, sample.inputs, sample.parameters));
    assert_true(mlp_backward(mlp, sample.workspace, NULL, ROWS, sample.inputs, sample.labels,
                             sample.parameters, 1.0f, sample.gradient, &sums));
    assert_true(fabs(sums.loss - loss_of(mlp, &sample)) < 1e-9);
    for (size_t i = 0; i < mlp_parameters(mlp); i += i % 3 + 1) {
        float kept = sample.parameters[i];
        double high, low, slope, difference;
        sample.parameters[i] = kept + 0x1p-10f;
        high = loss_of(mlp, &sample);
        sample.parameters[i] = kept - 0x1p-10f;
        low = loss_of(mlp, &sample);
        sample.parameters[i] = kept;
        slope = (high - low) / 0x1p-9;
        difference = fabs(slope - (double)sample.gradient[i]) / (1 + fabs(slope));
        checked++;
        off += difference > 1e-2;
    }
    /* ReLU has corners: a few differences reach across one. */
    assert_true(off <= (mlp->activation == ACTIVATION_GELU ? 0 : checked / 50));
    sample_fini(&sample);
}

static void relu_gradient_agrees_with_differences(void **state)
{
    (void)state;
    gradient_check(&relu_mlp);
}

static void gelu_gradient_agrees_with_differences(void **state)
{
    (void)state;
    gradient_check(&gelu_mlp);
}

struct closing {
    int left;
};

static bool closing_may_run(void *context)
{
    struct closing *closing = context;
    return closing->left-- > 0;
}

/* Every gate is a place where the work may be given up; done again, the bits are the same. */
static void work_given_up_and_done_again_gives_the_same_bits(void **state)
{
    struct sample sample;
    struct loss_sums sums;
    size_t bytes = mlp_parameters(&gelu_mlp) * sizeof(float);
    float *first = malloc(bytes);
    bool complete = false;
    (void)state;
    sample_init(&sample, &gelu_mlp);
    for (int gates = 1000; !complete || gates == 1000; gates = gates == 1000 ? 0 : gates + 1) {
        struct closing closing = {gates};
        const struct gate gate = {closing_may_run, &closing};
        complete = mlp_forward(&gelu_mlp, sample.workspace, &gate, ROWS, sample.inputs,
                               sample.parameters) != NULL &&
                   mlp_backward(&gelu_mlp, sample.workspace, &gate, ROWS, sample.inputs,
                                sample.labels, sample.parameters, 0.5f, sample.gradient, &sums);
        if (gates == 1000) {
            assert_true(complete);
            memcpy(first, sample.gradient, bytes);
        }
        assert_true(gates == 0 ? !complete : true);
    }
    assert_memory_equal(first, sample.gradient, bytes);
    free(first);
    sample_fini(&sample);
}

static void seeds_give_their_own_weights_within_bounds(void **state)
{
    size_t count = mlp_parameters(&relu_mlp);
    float *a = malloc(count * sizeof(float)), *b = malloc(count * sizeof(float));
    struct mlp_layer layer = mlp_layer(&relu_mlp, 1);
    (void)state;
    mlp_initialize(&relu_mlp, 1, a);
    mlp_initialize(&relu_mlp, 1, b);
    assert_memory_equal(a, b, count * sizeof(float));
    mlp_initialize(&relu_mlp, 2, b);
    assert_memory_not_equal(a, b, count * sizeof(float));
    for (uint32_t i = 0; i < layer.inputs * layer.outputs; i++) {
        assert_true(fabs((double)a[layer.weights + i]) <= sqrt(6.0 / layer.inputs) + 1e-6);
    }
    for (uint32_t i = 0; i < layer.outputs; i++) {
        assert_true(a[layer.bias + i] == 0);
    }
    free(a);
    free(b);
}

/* ---- ONNX ---- */

static void file_write(const char *directory, const char *name, const void *data, size_t bytes)
{
    char path[256];
    FILE *file;
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void outputs_compute(const struct mlp *mlp, struct sample *sample,
                            const struct mlp_onnx_options *options, float *outputs)
{
    float inputs[ROWS * 11];
    for (int i = 0; i < ROWS * 11; i++) {
        inputs[i] = sample->inputs[i] * options->input_scale;
    }
    memcpy(outputs, mlp_forward(mlp, sample->workspace, NULL, ROWS, inputs, sample->parameters),
           ROWS * 5 * sizeof(float));
    for (int row = 0; options->softmax && row < ROWS; row++) {
        double sum = 0;
        for (int i = 0; i < 5; i++) {
            sum += exp((double)outputs[row * 5 + i]);
        }
        for (int i = 0; i < 5; i++) {
            outputs[row * 5 + i] = (float)(exp((double)outputs[row * 5 + i]) / sum);
        }
    }
}

static void onnx_check(const struct mlp *mlp, struct mlp_onnx_options options)
{
    struct sample sample;
    struct error error = {0};
    float outputs[ROWS * 5];
    char directory[] = "/tmp/tidepool-mlp-XXXXXX", path[256], command[1024];
    const char *venv = getenv("TEST_VENV");
    assert_non_null(venv);
    assert_non_null(mkdtemp(directory));
    sample_init(&sample, mlp);
    outputs_compute(mlp, &sample, &options, outputs);
    (void)snprintf(path, sizeof(path), "%s/model.onnx", directory);
    if (mlp_onnx_write(mlp, sample.parameters, &options, path, &error) < 0) {
        fail_msg("%s", error.text);
    }
    file_write(directory, "inputs", sample.inputs, sizeof(sample.inputs));
    file_write(directory, "outputs", outputs, sizeof(outputs));
    (void)snprintf(command, sizeof(command),
                   "'%s/bin/python' tests/unit/models/native_check.py '%s' 11 5 %s", venv,
                   directory, options.softmax ? "probabilities" : "logits");
    assert_int_equal(system(command), 0);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    assert_int_equal(system(command), 0);
    sample_fini(&sample);
}

static void onnx_form_of_relu_gives_our_logits(void **state)
{
    (void)state;
    onnx_check(&relu_mlp, (struct mlp_onnx_options){1.0f, false});
}

static void onnx_form_of_gelu_scales_and_gives_probabilities(void **state)
{
    (void)state;
    onnx_check(&gelu_mlp, (struct mlp_onnx_options){0.0625f, true});
}

static void onnx_file_that_cannot_be_written_is_named(void **state)
{
    struct error error = {0};
    struct sample sample;
    const struct mlp_onnx_options options = {1.0f, false};
    (void)state;
    sample_init(&sample, &relu_mlp);
    assert_int_equal(
        mlp_onnx_write(&relu_mlp, sample.parameters, &options, "/nonexistent/model.onnx", &error),
        -(int)ERROR_NOT_FOUND);
    assert_non_null(strstr(error.text, "/nonexistent/model.onnx"));
    sample_fini(&sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relu_gradient_agrees_with_differences),
        cmocka_unit_test(gelu_gradient_agrees_with_differences),
        cmocka_unit_test(work_given_up_and_done_again_gives_the_same_bits),
        cmocka_unit_test(seeds_give_their_own_weights_within_bounds),
        cmocka_unit_test(onnx_form_of_relu_gives_our_logits),
        cmocka_unit_test(onnx_form_of_gelu_scales_and_gives_probabilities),
        cmocka_unit_test(onnx_file_that_cannot_be_written_is_named),
    };
    return cmocka_run_group_tests(tests, blas_setup, NULL);
}
