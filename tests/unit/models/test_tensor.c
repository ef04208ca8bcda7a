#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/blank.h"
#include "models/runtime.h"

static int check(enum datatype datatype, const char *data, size_t bytes, struct error *error,
                 uint32_t rank, const int64_t *dims)
{
    struct tensor tensor = {.datatype = datatype, .rank = rank, .bytes = bytes};
    unsigned char *exact = malloc(bytes + 1); /* the sanitizer then sees one byte too many */
    assert_non_null(exact);
    unsigned char *copy = realloc(exact, bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    memcpy(tensor.dims, dims, rank * sizeof(*dims));
    tensor.data = copy;
    int result = tensor_check(&tensor, "X", error);
    free(copy);
    return result;
}

static void datatypes_have_names_and_sizes(void **state)
{
    (void)state;
    for (int i = DATATYPE_BOOL; i <= DATATYPE_BF16; i++) {
        const char *name = datatype_name((enum datatype)i);
        assert_int_equal(datatype_parse(name, strlen(name)), i);
    }
    assert_int_equal(datatype_bytes(DATATYPE_FP64), 8);
    assert_int_equal(datatype_bytes(DATATYPE_BF16), 2);
    assert_int_equal(datatype_bytes(DATATYPE_BYTES), 0);
    assert_int_equal(datatype_parse("FP3", 3), DATATYPE_INVALID);
    assert_int_equal(datatype_parse("INVALID", 7), DATATYPE_INVALID);
    assert_int_equal(datatype_parse("fp32", 4), DATATYPE_INVALID);
    assert_string_equal(datatype_name((enum datatype)99), "INVALID");
}

static void elements_are_counted_without_wrapping(void **state)
{
    const int64_t plain[] = {2, 3, 4}, empty[] = {INT64_MAX, 0, INT64_MAX}, negative[] = {0, -1};
    const int64_t huge[] = {INT64_MAX, 2}, wraps[] = {1LL << 32, 1LL << 32};
    (void)state;
    assert_int_equal(tensor_element_count(plain, 3), 24);
    assert_int_equal(tensor_element_count(plain, 0), 1);
    assert_int_equal(tensor_element_count(empty, 3), 0);
    assert_int_equal(tensor_element_count(negative, 2), -1);
    assert_int_equal(tensor_element_count(huge, 2), -1);
    assert_int_equal(tensor_element_count(wraps, 2), -1);
}

static void byte_counts_have_to_fit_the_shape(void **state)
{
    const int64_t dims[] = {2, 2}, empty[] = {0, 2}, huge[] = {INT64_MAX / 2};
    struct error error = {0};
    char data[32] = {0};
    (void)state;
    assert_int_equal(check(DATATYPE_FP32, data, 16, &error, 2, dims), 0);
    assert_int_equal(check(DATATYPE_FP32, data, 0, &error, 2, empty), 0);
    assert_int_equal(check(DATATYPE_FP32, data, 15, &error, 2, dims), -ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.text,
                        "tensor 'X': shape [2,2] of FP32 needs 4 elements of 4 bytes (16 in "
                        "all), 15 bytes were given");
    assert_int_equal(check(DATATYPE_FP32, data, 17, &error, 2, dims), -ERROR_INVALID_ARGUMENT);
    assert_int_equal(check(DATATYPE_FP64, data, 0, &error, 1, huge), -ERROR_INVALID_ARGUMENT);
    assert_int_equal(check(DATATYPE_INVALID, data, 0, &error, 1, dims), -ERROR_INVALID_ARGUMENT);
}

static void byte_strings_have_to_add_up(void **state)
{
    const int64_t two[] = {2}, one[] = {1}, none[] = {0};
    struct error error = {0};
    (void)state;
#define TWO "\1\0\0\0a\2\0\0\0b\0"
    assert_int_equal(check(DATATYPE_BYTES, TWO, 11, &error, 1, two), 0);
    assert_int_equal(check(DATATYPE_BYTES, "\0\0\0\0", 4, &error, 1, one), 0);
    assert_int_equal(check(DATATYPE_BYTES, "", 0, &error, 1, none), 0);
    assert_int_equal(check(DATATYPE_BYTES, TWO, 11, &error, 1, one), -ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "1 BYTES elements end at byte 5 of 11"));
    assert_int_equal(check(DATATYPE_BYTES, TWO, 10, &error, 1, two), -ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "element 1 of 2 claims 2 bytes, 1 are left"));
    assert_int_equal(check(DATATYPE_BYTES, TWO, 8, &error, 1, two), -ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "element 1 of 2 has no 4-byte length"));
    assert_int_equal(check(DATATYPE_BYTES, "\xff\xff\xff\xff", 4, &error, 1, one),
                     -ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "element 0 of 1 claims 4294967295 bytes"));
}

static void shapes_print_and_are_cut(void **state)
{
    const int64_t long_dims[] = {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN,
                                 INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN};
    const int64_t dims[] = {-1, 4};
    struct shape_text text;
    (void)state;
    assert_string_equal(shape_print(&text, dims, 2), "[-1,4]");
    assert_string_equal(shape_print(&text, dims, 0), "[]");
    assert_true(strlen(shape_print(&text, long_dims, 8)) < sizeof(text.text));
    assert_non_null(strstr(text.text, "…]"));
}

static void blank_inputs_follow_the_signature(void **state)
{
    struct tensor_spec specs[] = {
        {.name = (char[]){"A"}, .datatype = DATATYPE_FP32, .rank = 2, .dims = {-1, 3}},
        {.name = (char[]){"B"}, .datatype = DATATYPE_BYTES, .rank = 1, .dims = {2}}};
    const struct model_signature signature = {.batch_max = 8, .input_count = 2, .inputs = specs};
    const struct blank_form form = {.rows = 2, .variable = 1, .mark_first = true};
    struct blank_inputs blank;
    struct error error = {0};
    (void)state;
    assert_int_equal(blank_inputs_init(&blank, &signature, &form, &error), 0);
    assert_int_equal(blank.tensors[0].rank, 3);
    assert_int_equal(blank.tensors[0].dims[1], 1);
    assert_int_equal(blank.tensors[0].bytes, 24);
    const float *numbers = blank.tensors[0].data;
    for (size_t i = 0; i < 6; i++) {
        assert_true(numbers[i] == (i < 3 ? 0.5F : 0.0F));
    }
    assert_int_equal(tensor_check(&blank.tensors[0], "A", &error), 0);
    assert_int_equal(tensor_check(&blank.tensors[1], "B", &error), 0);
    blank_inputs_fini(&blank);
    specs[0].dims[1] = INT64_MAX / 2;
    assert_int_equal(blank_inputs_init(&blank, &signature, &form, &error),
                     -ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "'A'"));
}

static void identity_gives_its_inputs_back(void **state)
{
    struct tensor_spec spec = {
        .name = (char[]){"X"}, .datatype = DATATYPE_INT8, .rank = 1, .dims = {2}};
    struct tensor_spec other = spec;
    struct model_signature configured = {
        .input_count = 1, .output_count = 1, .inputs = &spec, .outputs = &other};
    const struct model_source source = {.name = "m", .batch_max = 4, .configured = &configured};
    const struct instance_place place = {.device_kind = "cpu", .thread_count = 1};
    const struct tensor inputs[] = {
        {.datatype = DATATYPE_INT8, .rank = 2, .dims = {1, 2}, .data = "ab", .bytes = 2},
        {.datatype = DATATYPE_INT8, .rank = 2, .dims = {2, 2}, .data = "cdef", .bytes = 4}};
    const struct run_request requests[] = {{&inputs[0], 1}, {&inputs[1], 2}};
    struct tensor outputs[2];
    struct model *model = NULL;
    struct instance *instance = NULL;
    struct error error = {0};
    (void)state;
    assert_int_equal(identity_runtime.load(&source, &model, &error), 0);
    assert_int_equal(identity_runtime.signature(model)->batch_max, 4);
    assert_int_equal(identity_runtime.instance_create(model, &place, &instance, &error), 0);
    assert_int_equal(identity_runtime.run(instance, requests, 2, outputs, &error), 0);
    assert_memory_equal(outputs, inputs, sizeof(outputs));
    identity_runtime.instance_destroy(instance);
    identity_runtime.unload(model);
    other.datatype = DATATYPE_FP16;
    assert_int_equal(identity_runtime.load(&source, &model, &error), -ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "FP16"));
    configured.output_count = 0;
    assert_int_equal(identity_runtime.load(&source, &model, &error), -ERROR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(datatypes_have_names_and_sizes),
        cmocka_unit_test(elements_are_counted_without_wrapping),
        cmocka_unit_test(byte_counts_have_to_fit_the_shape),
        cmocka_unit_test(byte_strings_have_to_add_up),
        cmocka_unit_test(shapes_print_and_are_cut),
        cmocka_unit_test(blank_inputs_follow_the_signature),
        cmocka_unit_test(identity_gives_its_inputs_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
