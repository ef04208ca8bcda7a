#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/serve/pbtxt.h"

static struct pbtxt_field *parsed(const char *text)
{
    struct error error = {0};
    struct pbtxt_field *root = pbtxt_parse(text, strlen(text), "test", &error);
    if (root == NULL) {
        fail_msg("'%s': %s", text, error.text);
    }
    return root;
}

static void refused(const char *text, const char *fragment)
{
    struct error error = {0};
    struct pbtxt_field *root = pbtxt_parse(text, strlen(text), "test", &error);
    if (root != NULL || strstr(error.text, fragment) == NULL) {
        fail_msg("'%s' gave '%s' without '%s'", text, error.text, fragment);
    }
}

static void fields_and_messages_are_read(void **state)
{
    struct pbtxt_field *root = parsed(
        "# a comment\nname: \"a\" 'b\\n'  # joined\nmax: -3; group { kind: CPU, x < y: 1 > }");
    struct pbtxt_field *field = root->first;
    (void)state;
    assert_string_equal(field->name, "name");
    assert_int_equal(field->kind, PBTXT_STRING);
    assert_string_equal(field->text, "ab\n");
    assert_int_equal(field->line, 2);
    field = field->next;
    assert_int_equal(field->kind, PBTXT_WORD);
    assert_string_equal(field->text, "-3");
    field = field->next;
    assert_int_equal(field->kind, PBTXT_MESSAGE);
    assert_string_equal(field->first->text, "CPU");
    assert_string_equal(field->first->next->first->name, "y");
    assert_null(field->next);
    pbtxt_free(root);
}

static void lists_are_repeated_fields(void **state)
{
    struct pbtxt_field *root = parsed("dims: [ 1, 2 ] input: [ { a: 1 }, { a: 2 } ] none: []");
    struct pbtxt_field *field = root->first;
    (void)state;
    assert_string_equal(field->text, "1");
    assert_string_equal(field->next->name, "dims");
    assert_string_equal(field->next->text, "2");
    assert_string_equal(field->next->next->first->text, "1");
    assert_string_equal(field->next->next->next->first->text, "2");
    assert_null(field->next->next->next->next);
    pbtxt_free(root);
}

static void escapes_become_bytes(void **state)
{
    struct pbtxt_field *root = parsed("a: \"\\x41\\102\\u00e9\\U0001F30A\\\"\\\\\"");
    (void)state;
    assert_string_equal(root->first->text, "AB\xc3\xa9\xf0\x9f\x8c\x8a\"\\");
    pbtxt_free(root);
}

static void broken_texts_say_where(void **state)
{
    (void)state;
    refused("a: {", "line 1 column 5: the text ends before");
    refused("a\n: \n}", "line 3 column 1: a name or value");
    refused("a 1", "':' or '{'");
    refused("a: \"x", "closing quote");
    refused("a: \"x\ny\"", "its line's end");
    refused("a: \"\\q\"", "unknown escape");
    refused("a: \"\\0\"", "NUL");
    refused("a: \"\\u12\"", "digits");
    refused("a: [1 2]", "',' or ']'");
    refused("}", "a name or value");
    refused("a: \"\\", "unknown escape");
}

static void depth_and_count_are_bounded(void **state)
{
    char deep[4096] = "";
    size_t many = (size_t)PBTXT_FIELDS_MAX * 4 + 8;
    char *wide = calloc(1, many + 1);
    (void)state;
    for (int i = 0; i < 500; i++) {
        strcat(deep, "a { ");
    }
    refused(deep, "nested more deeply");
    assert_non_null(wide);
    for (size_t i = 0; i + 4 <= many; i += 4) {
        memcpy(wide + i, "a:1 ", 4);
    }
    refused(wide, "more fields than are read");
    free(wide);
}

static void integers_are_whole_and_within_bounds(void **state)
{
    static const struct {
        const char *text;
        int result;
        int64_t value;
    } rows[] = {{"a: 12", 0, 12},  {"a: 0x10", 0, 16}, {"a: 010", 0, 8},
                {"a: -1", 0, -1},  {"a: 1.5", -1, 0},  {"a: \"1\"", -1, 0},
                {"a: 101", -1, 0}, {"a: -2", -1, 0},   {"a: 99999999999999999999", -1, 0},
                {"a: +1", -1, 0},  {"a {}", -1, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct pbtxt_field *root = parsed(rows[i].text);
        int64_t value = 0;
        assert_int_equal(pbtxt_integer(root->first, -1, 100, &value), rows[i].result);
        assert_int_equal(value, rows[i].value);
        pbtxt_free(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_and_messages_are_read),
        cmocka_unit_test(lists_are_repeated_fields),
        cmocka_unit_test(escapes_become_bytes),
        cmocka_unit_test(broken_texts_say_where),
        cmocka_unit_test(depth_and_count_are_bounded),
        cmocka_unit_test(integers_are_whole_and_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
