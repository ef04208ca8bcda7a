/* .npy files: what is read, and what hostile headers say. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/train/npy.h"

static char path[64];

static int setup(void **state)
{
    int fd;
    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/tidepool-npy-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static void raw_write(const void *data, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fwrite(data, 1, bytes, file);
    assert_int_equal(fclose(file), 0);
}

/* A version 1 file with this header text and no data. */
static void header_write(const char *text)
{
    unsigned char bytes[1024] = "\x93NUMPY\x01\x00";
    size_t length = strlen(text);
    bytes[8] = (unsigned char)length;
    bytes[9] = (unsigned char)(length >> 8);
    memcpy(bytes + 10, text, length);
    raw_write(bytes, 10 + length);
}

static void expect_refused(const char *text)
{
    struct npy npy;
    struct error error = {0};
    if (npy_open(path, &npy, &error) >= 0 || strstr(error.text, text) == NULL) {
        fail_msg("'%s' lacks '%s'", error.text, text);
    }
}

static void all_types_are_read(void **state)
{
    static const float f4[6] = {1, 2, 3, 4, 5, 6.5f};
    static const double f8[6] = {1, 2, 3, 4, 5, 6.5};
    static const uint8_t u1[6] = {1, 2, 3, 4, 5, 200};
    static const int32_t i4[6] = {1, 2, 3, 4, 5, -6};
    static const int64_t i8[6] = {1, 2, 3, 4, 5, -7};
    static const struct {
        const char *type;
        const void *items;
        size_t bytes;
        float last;
        int64_t label;
    } cases[] = {{"<f4", f4, sizeof(f4), 6.5f, -1},
                 {"<f8", f8, sizeof(f8), 6.5f, -1},
                 {"|u1", u1, sizeof(u1), 200, 200},
                 {"<i4", i4, sizeof(i4), -6, -1},
                 {"<i8", i8, sizeof(i8), -7, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct npy npy;
        struct error error = {0};
        unsigned char items[64];
        float values[6];
        npy_write(path, cases[i].type, "2, 3", cases[i].items, cases[i].bytes);
        assert_int_equal(npy_open(path, &npy, &error), 0);
        assert_int_equal(npy.rows, 2);
        assert_int_equal(npy.columns, 3);
        assert_int_equal(npy_read(&npy, 0, 2, items, &error), 0);
        npy_to_float(npy.type, items, 6, values);
        assert_true(values[1] == 2 && values[5] == cases[i].last);
        assert_int_equal(npy_to_label(npy.type, items, 2), 3);
        assert_int_equal(npy_to_label(npy.type, items, 5), cases[i].label);
        npy_close(&npy);
    }
}

static void version_2_and_more_dimensions_are_read(void **state)
{
    static const char header[] = "{'shape': (2, 2, 2), 'fortran_order': False, 'descr': '|u1'}\n";
    unsigned char bytes[256] = "\x93NUMPY\x02\x00";
    struct npy npy;
    struct error error = {0};
    (void)state;
    bytes[8] = sizeof(header) - 1;
    memcpy(bytes + 12, header, sizeof(header) - 1);
    raw_write(bytes, 12 + sizeof(header) - 1 + 8);
    assert_int_equal(npy_open(path, &npy, &error), 0);
    assert_int_equal(npy.rows, 2);
    assert_int_equal(npy.columns, 4);
    npy_close(&npy);
}

static void hostile_headers_are_refused(void **state)
{
    static const struct {
        const char *header, *text;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}", "its header promises"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
         "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4294967296, 4294967296)}",
         "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
         "damaged"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}", "damaged"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}", "Fortran order"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (0, 2)}", "type '>f4'"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (0, 2)}", "type '|O'"},
        {"{'descr': '<f4', 'fortran_order': False}", "damaged"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (0,)}", "damaged"},
        {"{'descr': '<f4', 'evil': __import__('os'), 'shape': (0,)}", "damaged"},
        {"{'descr': 'a type name that never ends here', 'shape': (0,)}", "damaged"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "damaged"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1", "damaged"},
        {"", "is not a .npy file"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        header_write(cases[i].header);
        expect_refused(cases[i].text);
    }
    raw_write("PK\x03\x04 something else entirely", 20);
    expect_refused("is not a .npy file");
    raw_write("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12); /* header of 4 GiB */
    expect_refused("is not a .npy file");
}

static void every_cut_of_a_file_is_refused(void **state)
{
    static const float items[6] = {1, 2, 3, 4, 5, 6};
    unsigned char bytes[512];
    size_t length;
    FILE *file;
    (void)state;
    npy_write(path, "<f4", "2, 3", items, sizeof(items));
    file = fopen(path, "r");
    length = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    for (size_t cut = 0; cut < length; cut++) {
        raw_write(bytes, cut);
        expect_refused(path);
    }
}

static void file_cut_after_opening_is_an_error_of_its_row(void **state)
{
    static const float items[6] = {1, 2, 3, 4, 5, 6};
    struct npy npy;
    struct error error = {0};
    float values[3];
    (void)state;
    npy_write(path, "<f4", "2, 3", items, sizeof(items));
    assert_int_equal(npy_open(path, &npy, &error), 0);
    assert_int_equal(truncate(path, (off_t)npy.data_offset + 13), 0);
    assert_int_equal(npy_read(&npy, 0, 1, values, &error), 0);
    assert_int_equal(npy_read(&npy, 1, 1, values, &error), -(int)ERROR_DATA_LOSS);
    assert_non_null(strstr(error.text, "ends before row 1"));
    npy_close(&npy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_types_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(version_2_and_more_dimensions_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(hostile_headers_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(every_cut_of_a_file_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(file_cut_after_opening_is_an_error_of_its_row, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
