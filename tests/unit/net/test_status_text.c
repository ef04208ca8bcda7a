#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/net/status_text.h"

static void assert_encoded(const char *text, const char *expected)
{
    static char out[STATUS_TEXT_ENCODED_MAX];
    size_t length = status_text_encode(text, out);
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(out, expected, length);
}

static void only_printable_ascii_leaves(void **state)
{
    (void)state;
    assert_encoded("", "");
    assert_encoded("plain text ~!", "plain text ~!");
    assert_encoded("100%", "100%25");
    assert_encoded("\t\r\n\x7F", "%09%0D%0A%7F");
    assert_encoded("\xC3\xA9", "%C3%A9");
    assert_encoded("\xF0\x9F\x8C\x8A", "%F0%9F%8C%8A");
}

static void spaces_at_the_ends_are_escaped(void **state)
{
    (void)state;
    assert_encoded(" both ends ", "%20both ends%20");
    assert_encoded(" ", "%20");
    assert_encoded("  ", "%20%20");
}

static void bytes_that_are_not_utf8_are_replaced(void **state)
{
    (void)state;
    assert_encoded("\xFF", "%EF%BF%BD");
    assert_encoded("\xC3", "%EF%BF%BD");
    assert_encoded("a\xC0\x80z", "a%EF%BF%BD%EF%BF%BDz");
    assert_encoded("\xED\xA0\x80", "%EF%BF%BD%EF%BF%BD%EF%BF%BD");              /* a surrogate */
    assert_encoded("\xE0\x80\x80", "%EF%BF%BD%EF%BF%BD%EF%BF%BD");              /* overlong */
    assert_encoded("\xF4\x90\x80\x80", "%EF%BF%BD%EF%BF%BD%EF%BF%BD%EF%BF%BD"); /* beyond */
}

static void long_text_is_cut_at_a_whole_character(void **state)
{
    static char text[4000], out[STATUS_TEXT_ENCODED_MAX];
    (void)state;
    memset(text, 'a', 1023);
    memcpy(text + 1023, "\xC3\xA9 and more", 11);
    assert_int_equal(status_text_encode(text, out), 1023);
    memset(text, 0xFF, sizeof text - 1);
    assert_int_equal(status_text_encode(text, out), STATUS_TEXT_ENCODED_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_printable_ascii_leaves),
        cmocka_unit_test(spaces_at_the_ends_are_escaped),
        cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
        cmocka_unit_test(long_text_is_cut_at_a_whole_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
