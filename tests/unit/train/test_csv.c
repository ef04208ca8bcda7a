/* .csv files: header or none, and errors that name line and column. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/train/csv.h"

static char path[64];

static int setup(void **state)
{
    int fd;
    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/tidepool-csv-XXXXXX");
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

static void text_write(const char *text, size_t length)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fwrite(text, 1, length, file);
    assert_int_equal(fclose(file), 0);
}

static struct csv_table read_ok(const char *text, const char *column)
{
    struct csv_table table = {0};
    struct error error = {0};
    text_write(text, strlen(text));
    if (csv_read(path, column, 2, 3, &table, &error) < 0) {
        fail_msg("%s", error.text);
    }
    return table;
}

static void expect_refused(const char *text, const char *column, const char *message)
{
    struct csv_table table = {0};
    struct error error = {0};
    text_write(text, strlen(text));
    if (csv_read(path, column, 2, 3, &table, &error) >= 0 || strstr(error.text, message) == NULL) {
        fail_msg("'%s' lacks '%s'", error.text, message);
    }
}

static void table_with_header_is_read(void **state)
{
    struct csv_table table = read_ok("a,label,b\r\n1,2,3\r\n\r\n \"4\" , 0 ,5.5e0\r\n", "label");
    (void)state;
    assert_int_equal(table.rows, 2);
    assert_true(table.inputs[0] == 1 && table.inputs[1] == 3);
    assert_true(table.inputs[2] == 4 && table.inputs[3] == 5.5f);
    assert_int_equal(table.labels[0], 2);
    assert_int_equal(table.labels[1], 0);
    csv_free(&table);
}

static void table_without_header_takes_the_column_by_number(void **state)
{
    struct csv_table table = read_ok("1,2,3\n2,1,4", "0");
    (void)state;
    assert_int_equal(table.labels[1], 2);
    assert_true(table.inputs[3] == 4);
    csv_free(&table);
    table = read_ok("0.5,-2,1\n4,1,2", "2");
    assert_int_equal(table.rows, 2);
    assert_int_equal(table.labels[1], 2);
    assert_true(table.inputs[1] == -2);
    csv_free(&table);
}

static void many_rows_are_read(void **state)
{
    enum { ROWS = 5000 };
    char *text = malloc(ROWS * 32);
    size_t length = 0;
    struct csv_table table;
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        length += (size_t)sprintf(text + length, "%d,%d,%d\n", i, -i, i % 3);
    }
    table = read_ok(text, "2");
    assert_int_equal(table.rows, ROWS);
    assert_true(table.inputs[2 * (ROWS - 1)] == ROWS - 1);
    assert_int_equal(table.labels[ROWS - 1], (ROWS - 1) % 3);
    csv_free(&table);
    free(text);
}

static void wrong_fields_are_named_by_line_and_column(void **state)
{
    (void)state;
    expect_refused("a,b,y\n1,2,0\n1,x2,0\n", "y", "line 3, column 2: 'x2' is not a finite number");
    expect_refused("a,b,y\n1,,0\n", "y", "line 2, column 2: '' is not a finite number");
    expect_refused("1,2,0\n1,nan,0\n", "2", "line 2, column 2: 'nan' is not a finite number");
    expect_refused("1,2,0\n1,1e999,0\n", "2", "line 2, column 2: '1e999'");
    expect_refused("1,2,0\n1,2\n", "2", "line 2 has fewer than 3 columns");
    expect_refused("1,2,0\n1,2,0,4\n", "2", "line 2 has more than 3 columns");
    expect_refused("1,2,3\n", "2", "line 1, column 3: label '3' is not a whole number from 0 to 2");
    expect_refused("1,2,0.5\n", "2", "label '0.5'");
    expect_refused("1,2,-1\n", "2", "label '-1'");
    expect_refused("a,b,y\n1,2,0\n", "z", "has no column 'z' for the labels");
    expect_refused("1,2,0\n", "y", "has no column 'y' for the labels (it has no header line)");
    expect_refused("1,2,0\n", "7", "has no column '7'");
}

/* The header names more columns than the rows have: no row may be taken for one. */
static void label_beyond_the_models_columns_is_refused(void **state)
{
    enum { ROWS = 1024 }; /* the reader's first room, to the last row */
    char *text = malloc(ROWS * 8 + 32);
    size_t length = (size_t)sprintf(text, "a,b,c,d,y\n");
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        length += (size_t)sprintf(text + length, "1,2,0\n");
    }
    expect_refused(text, "y", "'y' is column 5; the model's 2 inputs and the label are 3");
    free(text);
}

/* Opening a pipe for reading waits for a writer, which never comes. */
static void pipe_is_refused_at_once(void **state)
{
    struct csv_table table = {0};
    struct error error = {0};
    (void)state;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    (void)alarm(20);
    assert_int_equal(csv_read(path, "2", 2, 3, &table, &error), -(int)ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "is not a regular file"));
    (void)alarm(0);
}

static void file_with_a_nul_byte_is_refused(void **state)
{
    struct csv_table table = {0};
    struct error error = {0};
    (void)state;
    text_write("1,2\0,0\n", 7);
    assert_true(csv_read(path, "2", 2, 3, &table, &error) < 0);
    assert_non_null(strstr(error.text, "line 1 is no line of text"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(table_with_header_is_read),
        TEST(table_without_header_takes_the_column_by_number),
        TEST(many_rows_are_read),
        TEST(wrong_fields_are_named_by_line_and_column),
        TEST(file_with_a_nul_byte_is_refused),
        TEST(label_beyond_the_models_columns_is_refused),
        TEST(pipe_is_refused_at_once),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
