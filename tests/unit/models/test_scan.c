#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit.h"
#include "models/onnx/operators.h"
#include "models/onnx/scan.h"

static unsigned char *file_read(const char *path, size_t *ret_length)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long length = ftell(file);
    rewind(file);
    unsigned char *bytes = malloc((size_t)length);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)length, file), (size_t)length);
    (void)fclose(file);
    *ret_length = (size_t)length;
    return bytes;
}

static void weights_and_external_files_are_found(void **state)
{
    struct onnx_scan scan;
    struct error error = {0};
    size_t length = 0;
    (void)state;
    unsigned char *bytes = file_read(kit_path("dense_small"), &length);
    assert_int_equal(onnx_scan(bytes, length, 4096, &scan, &error), 0);
    assert_int_equal(scan.weight_count, 2);
    assert_string_equal(scan.weights[0].name, "w0");
    assert_int_equal(scan.weights[0].bytes, 384 * 384 * 4);
    assert_int_equal(scan.weights[1].dims[1], 384);
    assert_int_equal(scan.external_count, 0);
    onnx_scan_fini(&scan);
    free(bytes);
    bytes = file_read(kit_path("external_up"), &length);
    assert_int_equal(onnx_scan(bytes, length, 4096, &scan, &error), 0);
    assert_int_equal(scan.weight_count, 0);
    assert_int_equal(scan.external_count, 1);
    assert_string_equal(scan.external[0], "../../outside.bin");
    onnx_scan_fini(&scan);
    free(bytes);
}

static bool model_is_steady(const char *name)
{
    struct onnx_scan scan;
    struct error error = {0};
    size_t length = 0;
    unsigned char *bytes = file_read(kit_path(name), &length);
    assert_int_equal(onnx_scan(bytes, length, 4096, &scan, &error), 0);
    bool steady = scan.steady;
    onnx_scan_fini(&scan);
    free(bytes);
    return steady;
}

static void a_model_whose_time_depends_on_values_is_not_steady(void **state)
{
    (void)state;
    assert_true(model_is_steady("dense_small"));
    assert_true(model_is_steady("identity_fp32"));
    assert_false(model_is_steady("loop"));
}

static void an_operator_is_known_by_its_whole_name(void **state)
{
    (void)state;
    assert_true(onnx_operator_is_steady("Abs", 3));
    assert_true(onnx_operator_is_steady("XorMatMul", 3));
    assert_true(onnx_operator_is_steady("MatMul", 6));
    assert_true(onnx_operator_is_steady("MatMulInteger", 13));
    assert_false(onnx_operator_is_steady("MatMulInte", 10));
    assert_false(onnx_operator_is_steady("MatMul\0", 7));
    assert_false(onnx_operator_is_steady("", 0));
    assert_false(onnx_operator_is_steady("Loop", 4));
    assert_false(onnx_operator_is_steady("NonZero", 7));
}

static void every_cut_of_a_model_is_survived(void **state)
{
    size_t length = 0, good = 0;
    unsigned char *bytes = file_read(kit_path("external"), &length);
    (void)state;
    for (size_t cut = 0; cut < length; cut++) {
        struct onnx_scan scan = {0};
        unsigned char *part = malloc(cut > 0 ? cut : 1);
        assert_non_null(part);
        memcpy(part, bytes, cut);
        good += onnx_scan(part, cut, 1, &scan, NULL) == 0;
        onnx_scan_fini(&scan);
        free(part);
    }
    assert_true(good < 10); /* only cuts between two top-level fields are models */
    free(bytes);
}

static void changed_bytes_are_survived(void **state)
{
    size_t length = 0;
    unsigned char *bytes = file_read(kit_path("loop"), &length);
    uint64_t random = 88172645463325252ULL;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct onnx_scan scan = {0};
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        size_t at = random % 600 < length ? random % 600 : 0; /* the structure is at the front */
        unsigned char kept = bytes[at];
        bytes[at] = (unsigned char)(random >> 32);
        if (onnx_scan(bytes, length, 1, &scan, NULL) == 0) {
            onnx_scan_fini(&scan);
        }
        bytes[at] = kept;
    }
    free(bytes);
}

static void nesting_is_bounded(void **state)
{
    /* graph { node { attribute { g { node { … }}}}} inside out */
    static const unsigned char tags[] = {0x0A, 0x2A, 0x32}; /* node, attribute, g */
    size_t capacity = 4096, length = 0;
    unsigned char *bytes = calloc(1, capacity);
    struct onnx_scan scan = {0};
    struct error error = {0};
    (void)state;
    assert_non_null(bytes);
    for (int i = 0; i < 120; i++) {
        unsigned char head[4] = {i == 119 ? 0x3A : tags[(118 - i) % 3]};
        size_t head_length = 2;
        head[1] = (unsigned char)(length & 0x7F);
        if (length >= 0x80) {
            head[1] |= 0x80;
            head[2] = (unsigned char)(length >> 7);
            head_length = 3;
        }
        memmove(bytes + head_length, bytes, length);
        memcpy(bytes, head, head_length);
        length += head_length;
    }
    assert_int_equal(onnx_scan(bytes, length, 1, &scan, &error), -ERROR_INVALID_ARGUMENT);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_and_external_files_are_found),
        cmocka_unit_test(a_model_whose_time_depends_on_values_is_not_steady),
        cmocka_unit_test(an_operator_is_known_by_its_whole_name),
        cmocka_unit_test(every_cut_of_a_model_is_survived),
        cmocka_unit_test(changed_bytes_are_survived),
        cmocka_unit_test(nesting_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
