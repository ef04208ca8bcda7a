#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

#include "server/base/error.h"
#include "server/base/log.h"

/* Writes one line as `json` says and reads it back. */
static void line_of(bool json, const char *value, char *line, size_t size)
{
    struct log_text text;
    int ends[2];
    ssize_t length;
    assert_int_equal(pipe(ends), 0);
    log_open(ends[1], LOG_INFO, json);
    log_write(LOG_WARN, "net", "refused", "name=%s count=%d", log_quote(&text, value), 3);
    log_open(2, LOG_INFO, false);
    (void)close(ends[1]);
    length = read(ends[0], line, size - 1);
    (void)close(ends[0]);
    assert_true(length > 0);
    line[length] = '\0';
}

static void any_value_stays_on_one_line_and_reads_back_as_json(void **state)
{
    static const char *const values[] = {
        "plain", "", "two words", "quote\"d", "back\\slash", "line\nbreak", "é\x01", "a=b"};
    char line[4096];
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        json_t *object;
        line_of(false, values[i], line, sizeof(line));
        assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
        line_of(true, values[i], line, sizeof(line));
        object = json_loads(line, 0, NULL);
        assert_non_null(object);
        assert_string_equal(json_string_value(json_object_get(object, "name")), values[i]);
        assert_int_equal(json_integer_value(json_object_get(object, "count")), 3);
        assert_string_equal(json_string_value(json_object_get(object, "event")), "refused");
        json_decref(object);
    }
}

static void a_long_value_is_cut_at_a_whole_character(void **state)
{
    struct log_text text;
    char value[1001];
    (void)state;
    for (size_t i = 0; i < 500; i++) {
        memcpy(value + 2 * i, "é", 2);
    }
    value[1000] = '\0';
    (void)log_quote(&text, value);
    assert_true(strlen(text.text) < sizeof(text.text));
    json_t *read_back = json_loads(text.text, JSON_DECODE_ANY, NULL); /* refuses broken UTF-8 */
    assert_non_null(read_back);
    json_decref(read_back);
}

static void error_texts_are_cut_at_a_whole_character(void **state)
{
    struct error error = {0};
    char value[2001] = {0};
    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        memcpy(value + 2 * i, "é", 2);
    }
    assert_int_equal(error_set(&error, ERROR_NOT_FOUND, "model %s", value), -ERROR_NOT_FOUND);
    json_t *read_back = json_stringn(error.text, strlen(error.text));
    assert_non_null(read_back);
    json_decref(read_back);
    assert_int_equal(error_prefix(&error, "load"), -ERROR_NOT_FOUND);
    assert_memory_equal(error.text, "load: model ", 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_value_stays_on_one_line_and_reads_back_as_json),
        cmocka_unit_test(a_long_value_is_cut_at_a_whole_character),
        cmocka_unit_test(error_texts_are_cut_at_a_whole_character),
    };
    return cmocka_run_group_tests_name("base/log", tests, NULL, NULL);
}
