/* Tests server/shim/message.c: what a shim and its server say to each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/base/random.h"
#include "server/shim/message.h"

#define SEED 20261201

static size_t encode_sample(unsigned char *bytes, size_t size)
{
    struct message message;
    message_init(&message, MESSAGE_UPDATE, 77);
    message_put_string(&message, FIELD_JOB, "train");
    message_put_string(&message, FIELD_LEASE, "");
    message_put_bytes(&message, FIELD_TOKEN, "\0\1\2", 3);
    message_put(&message, FIELD_GENERATION, UINT64_MAX);
    message_put(&message, FIELD_EPOCH, 0);
    assert_true(message_size(&message) <= size);
    message_encode(&message, bytes);
    return message_size(&message);
}

static void a_message_comes_back_as_it_was_written(void **state)
{
    unsigned char bytes[256];
    size_t length = encode_sample(bytes, sizeof(bytes));
    struct message message;
    (void)state;
    assert_int_equal(message_decode(bytes, length, &message, NULL), 0);
    assert_int_equal(message.type, MESSAGE_UPDATE);
    assert_int_equal(message.id, 77);
    assert_string_equal(message_string(&message, FIELD_JOB), "train");
    assert_true(message_has(&message, FIELD_LEASE));
    assert_string_equal(message_string(&message, FIELD_LEASE), "");
    assert_int_equal(message_bytes(&message, FIELD_TOKEN).length, 3);
    assert_true(message_number(&message, FIELD_GENERATION, 0) == UINT64_MAX);
    assert_int_equal(message_number(&message, FIELD_EPOCH, 5), 0); /* zero is not absent */
    assert_int_equal(message_number(&message, FIELD_SIGNAL, 5), 5);
    assert_string_equal(message_string(&message, FIELD_TEXT), "");
}

static void a_message_of_another_version_is_refused_by_name(void **state)
{
    unsigned char bytes[256];
    size_t length = encode_sample(bytes, sizeof(bytes));
    struct message message;
    struct error error;
    (void)state;
    bytes[4] = MESSAGE_VERSION + 1;
    assert_int_equal(message_decode(bytes, length, &message, &error), -(int)ERROR_UNIMPLEMENTED);
    assert_non_null(strstr(error.text, "version 2"));
}

static void fields_of_a_later_version_are_skipped(void **state)
{
    unsigned char bytes[256];
    size_t length = encode_sample(bytes, sizeof(bytes));
    struct message message;
    (void)state;
    bytes[length++] = 0xF8; /* field 1023, a number */
    bytes[length++] = 0x3F;
    bytes[length++] = 7;
    bytes[0] = (unsigned char)length;
    assert_int_equal(message_decode(bytes, length, &message, NULL), 0);
    assert_string_equal(message_string(&message, FIELD_JOB), "train");
}

static void a_string_without_its_end_is_refused(void **state)
{
    static const unsigned char inside[] = {FIELD_JOB << 3 | 2, 3, 'a', 0, 0};
    static const unsigned char none[] = {FIELD_JOB << 3 | 2, 2, 'a', 'b'};
    static const unsigned char empty[] = {FIELD_JOB << 3 | 2, 0};
    const struct {
        const unsigned char *field;
        size_t length;
    } cases[] = {{inside, sizeof(inside)}, {none, sizeof(none)}, {empty, sizeof(empty)}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned char bytes[64] = {0};
        struct message message;
        message_init(&message, MESSAGE_STATE, 0);
        message_encode(&message, bytes);
        memcpy(bytes + MESSAGE_HEAD, cases[i].field, cases[i].length);
        bytes[0] = (unsigned char)(MESSAGE_HEAD + cases[i].length);
        assert_int_equal(message_decode(bytes, bytes[0], &message, NULL),
                         -(int)ERROR_INVALID_ARGUMENT);
    }
}

static void damaged_messages_are_refused_or_read_and_never_touch_what_is_beyond_them(void **state)
{
    uint64_t random = SEED;
    unsigned char sample[256];
    size_t length = encode_sample(sample, sizeof(sample));
    (void)state;
    print_message("seed %d\n", SEED);
    for (int round = 0; round < 20000; round++) {
        size_t cut = random_next(&random) % (length + 1);
        unsigned char *bytes = malloc(cut + 1); /* exact: a sanitizer sees one byte beyond */
        struct message message;
        memcpy(bytes, sample, cut);
        for (int changes = 0; cut > 0 && changes < 3; changes++) {
            bytes[random_next(&random) % cut] = (unsigned char)random_next(&random);
        }
        if (cut >= 4 && round % 2 == 0) {
            bytes[0] = (unsigned char)cut;
            bytes[1] = bytes[2] = bytes[3] = 0;
        }
        if (message_decode(bytes, cut, &message, NULL) == 0) {
            assert_true(strlen(message_string(&message, FIELD_JOB)) < cut);
        }
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_comes_back_as_it_was_written),
        cmocka_unit_test(a_message_of_another_version_is_refused_by_name),
        cmocka_unit_test(fields_of_a_later_version_are_skipped),
        cmocka_unit_test(a_string_without_its_end_is_refused),
        cmocka_unit_test(damaged_messages_are_refused_or_read_and_never_touch_what_is_beyond_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
