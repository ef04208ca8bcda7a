#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/net/message.h"

#define LIMIT 1000

static size_t message_put(unsigned char *target, unsigned char flag, const char *text)
{
    size_t length = strlen(text);
    message_prefix_write(target, false, (uint32_t)length);
    target[0] = flag;
    memcpy(target + MESSAGE_PREFIX_BYTES, text, length);
    return MESSAGE_PREFIX_BYTES + length;
}

/* Feeds `first` bytes, then `second`, then the rest, and expects exactly these messages. */
static void assert_messages(const unsigned char *bytes, size_t length, size_t first, size_t second)
{
    static const char *const expected[] = {"hello", "", "a longer message"};
    const size_t pieces[] = {first, second, length - first - second};
    struct message_reader reader = {0};
    size_t found = 0;
    for (size_t i = 0; i < 3; i++) {
        const unsigned char *data = bytes;
        size_t left = pieces[i];
        bytes += left;
        while (left > 0) {
            int result = message_feed(&reader, LIMIT, &data, &left, NULL);
            assert_true(result == MESSAGE_PARTIAL || result == MESSAGE_WHOLE);
            if (result == MESSAGE_WHOLE) {
                bool compressed;
                struct buffer *buffer = message_take(&reader, &compressed);
                assert_int_equal(compressed, found == 2);
                assert_int_equal(buffer->length, strlen(expected[found]));
                assert_memory_equal(buffer->data, expected[found], buffer->length);
                buffer_release(buffer);
                found++;
            }
        }
    }
    assert_int_equal(found, 3);
    assert_true(message_is_between(&reader));
}

static void messages_are_found_in_every_split(void **state)
{
    unsigned char bytes[64];
    (void)state;
    size_t length = message_put(bytes, 0, "hello");
    length += message_put(bytes + length, 0, "");
    length += message_put(bytes + length, 1, "a longer message");
    for (size_t first = 0; first <= length; first++) {
        for (size_t second = 0; second <= length - first; second++) {
            assert_messages(bytes, length, first, second);
        }
    }
}

static void size_over_the_limit_is_refused_before_memory_is_taken(void **state)
{
    static const unsigned char over[] = {0, 0, 0, 3, 233};
    static const unsigned char just[] = {0, 0, 0, 3, 232};
    struct message_reader reader = {0};
    struct error error = {0};
    const unsigned char *data = over;
    size_t left = sizeof over;
    (void)state;
    assert_int_equal(message_feed(&reader, LIMIT, &data, &left, &error), -ERROR_RESOURCE_EXHAUSTED);
    assert_null(reader.buffer);
    assert_non_null(strstr(error.text, "1001"));
    assert_non_null(strstr(error.text, "1000"));
    message_reader_fini(&reader);
    data = just;
    left = sizeof just;
    assert_int_equal(message_feed(&reader, LIMIT, &data, &left, &error), MESSAGE_PARTIAL);
    assert_true(reader.buffer->capacity >= LIMIT);
    assert_false(message_is_between(&reader));
    message_reader_fini(&reader);
}

static void flag_other_than_0_and_1_is_refused(void **state)
{
    static const unsigned char bytes[] = {2, 0, 0, 0, 1, 'a'};
    struct message_reader reader = {0};
    const unsigned char *data = bytes;
    size_t left = sizeof bytes;
    (void)state;
    assert_int_equal(message_feed(&reader, LIMIT, &data, &left, NULL), -ERROR_INTERNAL);
    message_reader_fini(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_found_in_every_split),
        cmocka_unit_test(size_over_the_limit_is_refused_before_memory_is_taken),
        cmocka_unit_test(flag_other_than_0_and_1_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
