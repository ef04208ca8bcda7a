/* Loading ONNX files: shapes, batch dimension, what is refused and how it is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kit.h"

static int load(const char *name, uint32_t batch_max, const struct model_signature *configured,
                struct model **ret_model, struct error *error)
{
    const struct model_source source = {
        .name = name, .path = kit_path(name), .batch_max = batch_max, .configured = configured};
    return onnx_runtime.load(&source, ret_model, error);
}

static void refused(const char *name, uint32_t batch_max, enum error_code code, const char *text)
{
    struct model *model = NULL;
    struct error error = {0};
    assert_int_equal(load(name, batch_max, NULL, &model, &error), -(int)code);
    assert_null(model);
    if (strstr(error.text, text) == NULL || strstr(error.text, "onnxruntime_src") != NULL) {
        fail_msg("%s: '%s' has no '%s'", name, error.text, text);
    }
}

static uint32_t batch_max_of(const char *name, uint32_t batch_max)
{
    struct model *model = NULL;
    struct error error = {0};
    if (load(name, batch_max, NULL, &model, &error) < 0) {
        fail_msg("%s: %s", name, error.text);
    }
    uint32_t got = onnx_runtime.signature(model)->batch_max;
    onnx_runtime.unload(model);
    return got;
}

static void signature_comes_from_the_model(void **state)
{
    struct model *model = NULL;
    struct error error = {0};
    (void)state;
    assert_int_equal(load("two_inputs", 8, NULL, &model, &error), 0);
    const struct model_signature *signature = onnx_runtime.signature(model);
    assert_int_equal(signature->batch_max, 8);
    assert_int_equal(signature->input_count, 2);
    assert_string_equal(signature->inputs[0].name, "A");
    assert_int_equal(signature->inputs[0].datatype, DATATYPE_FP32);
    assert_int_equal(signature->inputs[0].rank, 1);
    assert_int_equal(signature->inputs[0].dims[0], 4);
    assert_int_equal(signature->inputs[1].datatype, DATATYPE_INT32);
    assert_int_equal(signature->output_count, 2);
    assert_string_equal(signature->outputs[1].name, "COPY");
    onnx_runtime.unload(model);
}

static void batches_are_used_where_a_trial_proves_them(void **state)
{
    (void)state;
    assert_int_equal(batch_max_of("add_one", UINT32_MAX), 64);
    assert_int_equal(batch_max_of("strings_batch", UINT32_MAX), 64);
    assert_int_equal(batch_max_of("identity_bf16", UINT32_MAX), 64);
    assert_int_equal(batch_max_of("images", UINT32_MAX), 64); /* not on points, but on 64 by 64 */
    assert_int_equal(batch_max_of("fixed_input", UINT32_MAX), 0);
    assert_int_equal(batch_max_of("fixed_output", UINT32_MAX), 0);
    assert_int_equal(batch_max_of("mixed_batch", UINT32_MAX), 0);
    assert_int_equal(batch_max_of("centred", UINT32_MAX), 0);
    assert_int_equal(batch_max_of("one_row_only", UINT32_MAX), 0);
    assert_int_equal(batch_max_of("needs_values", UINT32_MAX), 0);
}

static void configured_batches_that_cannot_be_are_refused(void **state)
{
    (void)state;
    refused("fixed_input", 8, ERROR_FAILED_PRECONDITION,
            "input 'INPUT' has shape [1,4]: its first dimension is not variable");
    refused("fixed_output", 8, ERROR_FAILED_PRECONDITION, "output 'OUTPUT' has shape [1,4]");
    refused("mixed_batch", 8, ERROR_FAILED_PRECONDITION, "max_batch_size");
    refused("one_row_only", 8, ERROR_FAILED_PRECONDITION, "a batch of two was tried");
    assert_int_equal(batch_max_of("needs_values", 8), 8); /* its shapes stay unproven */
    assert_int_equal(batch_max_of("centred", 8), 8);      /* the operator's word counts */
}

static void bad_files_are_told_apart(void **state)
{
    (void)state;
    refused("corrupt", 0, ERROR_INVALID_ARGUMENT, "not an ONNX model");
    refused("cut_short", 0, ERROR_INVALID_ARGUMENT, "not an ONNX model");
    refused("not-there", 0, ERROR_NOT_FOUND, "not-there/1/model.onnx");
    refused("complex_input", 0, ERROR_INVALID_ARGUMENT, "complex64");
    refused("sequence_output", 0, ERROR_UNIMPLEMENTED, "output 'PARTS' is a sequence");
}

static void weights_outside_the_folder_are_refused_alike(void **state)
{
    (void)state;
    assert_int_equal(batch_max_of("external", UINT32_MAX), 64);
    refused("external_up", 0, ERROR_PERMISSION_DENIED, "not in its own folder");
    refused("external_absolute", 0, ERROR_PERMISSION_DENIED, "not in its own folder");
    refused("external_link", 0, ERROR_PERMISSION_DENIED, "not in its own folder");
    refused("external_missing_up", 0, ERROR_PERMISSION_DENIED, "not in its own folder");
}

static void configured_tensors_choose_and_order(void **state)
{
    struct tensor_spec inputs[] = {
        {.name = (char[]){"B"}, .datatype = DATATYPE_INT32, .rank = 1, .dims = {-1}},
        {.name = (char[]){"A"}, .datatype = DATATYPE_FP32, .rank = 1, .dims = {4}}};
    struct tensor_spec outputs[] = {
        {.name = (char[]){"COPY"}, .datatype = DATATYPE_INT32, .rank = 1, .dims = {4}}};
    const struct model_signature configured = {
        .input_count = 2, .inputs = inputs, .output_count = 1, .outputs = outputs};
    struct model *model = NULL;
    struct error error = {0};
    (void)state;
    assert_int_equal(load("two_inputs", 8, &configured, &model, &error), 0);
    const struct model_signature *signature = onnx_runtime.signature(model);
    assert_string_equal(signature->inputs[0].name, "B");
    assert_int_equal(signature->inputs[0].dims[0], 4); /* the model's fixed one wins */
    assert_string_equal(signature->inputs[1].name, "A");
    assert_int_equal(signature->output_count, 1);
    assert_string_equal(signature->outputs[0].name, "COPY");
    onnx_runtime.unload(model);
}

static void configured_tensors_that_do_not_fit_are_named(void **state)
{
    struct tensor_spec input = {
        .name = (char[]){"INPUT"}, .datatype = DATATYPE_FP32, .rank = 1, .dims = {5}};
    const struct model_signature configured = {.input_count = 1, .inputs = &input};
    struct model *model = NULL;
    struct error error = {0};
    (void)state;
    assert_int_equal(load("add_one", 8, &configured, &model, &error), -ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "configured with dims [5]; the model's are [4]"));
    input.dims[0] = 4;
    input.datatype = DATATYPE_FP64;
    assert_int_equal(load("add_one", 8, &configured, &model, &error), -ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "configured as FP64; the model's is FP32"));
    input.name = (char[]){"OTHER"};
    assert_int_equal(load("add_one", 8, &configured, &model, &error), -ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "input 'INPUT' is missing"));
}

static void a_sequence_that_is_not_asked_for_does_not_matter(void **state)
{
    struct tensor_spec output = {
        .name = (char[]){"OUTPUT"}, .datatype = DATATYPE_FP32, .rank = 2, .dims = {-1, 4}};
    const struct model_signature configured = {.output_count = 1, .outputs = &output};
    struct model *model = NULL;
    struct error error = {0};
    (void)state;
    if (load("sequence_output", 0, &configured, &model, &error) < 0) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(onnx_runtime.signature(model)->output_count, 1);
    onnx_runtime.unload(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signature_comes_from_the_model),
        cmocka_unit_test(batches_are_used_where_a_trial_proves_them),
        cmocka_unit_test(configured_batches_that_cannot_be_are_refused),
        cmocka_unit_test(bad_files_are_told_apart),
        cmocka_unit_test(weights_outside_the_folder_are_refused_alike),
        cmocka_unit_test(configured_tensors_choose_and_order),
        cmocka_unit_test(configured_tensors_that_do_not_fit_are_named),
        cmocka_unit_test(a_sequence_that_is_not_asked_for_does_not_matter),
    };
    return cmocka_run_group_tests(tests, kit_library_set, NULL);
}
