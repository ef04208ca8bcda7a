#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/sim/rows.h"
#include "tests/unit/sim/files.h"

struct fruit {
    uint64_t ripe_ns, count;
    double weight;
    const char *name;
};

static const struct column fruit_columns[] = {
    {"ripe_s", COLUMN_TIME, offsetof(struct fruit, ripe_ns), 0, 1000},
    {"count", COLUMN_COUNT, offsetof(struct fruit, count), 1, 9},
    {"weight", COLUMN_NUMBER, offsetof(struct fruit, weight), -5, 5, true},
    {"name", COLUMN_NAME, offsetof(struct fruit, name)},
};
static const struct row_table tables[] = {{"fruits", fruit_columns, 4}};

#define HEADER "ripe_s,count,weight,name\n"

static struct error error;

/* The result of reading all of it, with the last row; the error's text is in `error`. */
static int read_all(const char *text, struct fruit *fruit)
{
    const char *path = file_make(text, false);
    struct rows *rows = NULL;
    size_t table = 0;
    int result = rows_open(path, tables, 1, &rows, &table, &error);
    if (result == 0) {
        while ((result = rows_next(rows, fruit, &error)) == 1) {
        }
    }
    rows_close(rows);
    unlink(path);
    return result;
}

static void refuses(const char *text, const char *message)
{
    struct fruit fruit;
    memset(&error, 0, sizeof(error));
    assert_true(read_all(text, &fruit) < 0);
    if (strstr(error.text, message) == NULL) {
        fail_msg("the error is \"%s\", without \"%s\"", error.text, message);
    }
}

static void a_time_is_read_exactly_to_the_nanosecond(void **state)
{
    (void)state;
    const struct {
        const char *text;
        uint64_t ns;
    } times[] = {
        {"0", 0},
        {"0.1", 100000000},
        {"77.299370", 77299370000},
        {"999.999999999", 999999999999},
        {"12.5000000000000", 12500000000},
        {"1000", 1000000000000},
        {"3.", 3000000000},
    };
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        uint64_t ns = 1;
        assert_true(seconds_parse(times[i].text, 1000, &ns));
        assert_int_equal(ns, times[i].ns);
    }
    static const char *const wrong[] = {
        "",    "-1",    "+1",           " 1",
        "1 ",  "1e3",   "0x1",          "1,5",
        ".5",  "1001",  "nan",          "1000.00001",
        "inf", "1.2.3", "0.0000000001", "99999999999999999999999999"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint64_t ns = 1;
        if (seconds_parse(wrong[i], 1000, &ns)) {
            fail_msg("'%s' was read as %llu ns", wrong[i], (unsigned long long)ns);
        }
    }
}

static void a_row_is_read_with_any_line_end_or_none(void **state)
{
    (void)state;
    struct fruit fruit;
    assert_int_equal(read_all(HEADER "1.5,3,-2.5e-1,fig\r\n2.5,4,,kiwi", &fruit), 0);
    assert_int_equal(fruit.ripe_ns, 2500000000);
    assert_int_equal(fruit.count, 4);
    assert_true(fruit.weight == 0);
    assert_int_equal(read_all(HEADER, &fruit), 0);
}

static void a_wrong_field_is_named_with_its_line_column_limits_and_content(void **state)
{
    (void)state;
    refuses(HEADER "1,1,1,a\n1001,1,1,b\n",
            "line 3: column 1 (ripe_s): '1001' is not seconds, at most 9 decimals, 0 to 1000");
    refuses(HEADER "1,0,1,a\n", "line 2: column 2 (count): '0' is not a whole number, 1 to 9");
    refuses(HEADER "1,10,1,a\n", "column 2 (count)");
    refuses(HEADER "1,1.0,1,a\n", "column 2 (count)");
    refuses(HEADER "1,99999999999999999999999,1,a\n", "column 2 (count)");
    refuses(HEADER "1,1,5.1,a\n", "column 3 (weight): '5.1' is not a number, -5 to 5");
    refuses(HEADER "1,1,0x1,a\n", "column 3 (weight)");
    refuses(HEADER "1,1,nan,a\n", "column 3 (weight)");
    refuses(HEADER "1,1,1e,a\n", "column 3 (weight)");
    refuses(HEADER "1,1,1,\n", "column 4 (name): '' is not a name of 1 to 63 printable characters");
    refuses(HEADER "1,1,1,a b\n", "column 4 (name)");
    refuses(HEADER "1,1,1,\xff\x01\n", "column 4 (name): '\?\?'");
    refuses(HEADER ",1,1,a\n", "column 1 (ripe_s): ''");
    refuses(HEADER "1,1,1,"
                   "1234567890123456789012345678901234567890123456789012345678901234\n",
            "column 4 (name): '123456789012345678901234567890123456789012345678...'");
}

static void a_row_of_the_wrong_shape_is_refused(void **state)
{
    (void)state;
    refuses(HEADER "1,1,1\n", "line 2: has 3 fields, not the header's 4");
    refuses(HEADER "1,1,1,a,b\n", "line 2: has more fields than the header's 4");
    refuses(HEADER "\n", "line 2: column 1 (ripe_s)");
    refuses("", "line 1: is empty");
    refuses("ripe_s,count,weight\n", "line 1: unknown header 'ripe_s,count,weight'; known are "
                                     "those of fruits");
    refuses("ripe_s,count,weight,name,more\n", "unknown header");
    char *line = malloc(2 * ROWS_LINE_BYTES_MAX);
    memset(line, 'x', 2 * ROWS_LINE_BYTES_MAX);
    line[2 * ROWS_LINE_BYTES_MAX - 1] = '\0';
    refuses(line, "line 1: longer than 4096 bytes");
    free(line);
}

static void what_is_no_csv_file_is_refused(void **state)
{
    (void)state;
    struct rows *rows = NULL;
    size_t table;
    assert_int_equal(rows_open("/nowhere/at/all", tables, 1, &rows, &table, &error),
                     -ERROR_NOT_FOUND);
    assert_true(rows_open("/tmp", tables, 1, &rows, &table, &error) < 0);
    const char *path = file_make(HEADER "1,1,1,a\n1,1,1,a\n", true);
    assert_int_equal(truncate(path, 40), 0);
    assert_int_equal(rows_open(path, tables, 1, &rows, &table, &error), -ERROR_DATA_LOSS);
    assert_non_null(strstr(error.text, "damaged gzip data"));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_time_is_read_exactly_to_the_nanosecond),
        cmocka_unit_test(a_row_is_read_with_any_line_end_or_none),
        cmocka_unit_test(a_wrong_field_is_named_with_its_line_column_limits_and_content),
        cmocka_unit_test(a_row_of_the_wrong_shape_is_refused),
        cmocka_unit_test(what_is_no_csv_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
