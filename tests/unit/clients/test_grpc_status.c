#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "clients/common/grpc_client_internal.h"
#include "server/base/clock.h"

static void timeouts_have_at_most_eight_digits_and_never_grow(void **state)
{
    (void)state;
    static const struct {
        uint64_t left;
        const char *text;
    } cases[] = {
        {0, "0n"},
        {1, "1n"},
        {99999999, "99999999n"},
        {100000000, "100000u"},
        {20 * NS_PER_MS, "20000000n"},
        {30 * NS_PER_S, "30000000u"},
        {3600 * NS_PER_S, "3600000m"},
        {UINT64_C(10000000) * NS_PER_S, "10000000S"},
        {UINT64_MAX, "99999999S"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[24];
        uint64_t now = i % 2 == 0 ? 0 : 12345;
        uint64_t deadline = cases[i].left == UINT64_MAX ? UINT64_MAX : now + cases[i].left;
        grpc_timeout_encode(deadline, now, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
    }
    char text[24];
    grpc_timeout_encode(5, 10, text, sizeof(text)); /* already over */
    assert_string_equal(text, "0n");
}

static void messages_are_decoded_and_broken_escapes_stay(void **state)
{
    (void)state;
    static const struct {
        const char *value, *text;
    } cases[] = {
        {"", ""},       {"plain", "plain"}, {"a%20b%25", "a b%"}, {"%C3%a9", "é"},
        {"50%", "50%"}, {"%2", "%2"},       {"%zz", "%zz"},       {"%%41", "%A"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[32];
        grpc_text_decode(cases[i].value, strlen(cases[i].value), text, sizeof(text));
        assert_string_equal(text, cases[i].text);
    }
    char small[4];
    grpc_text_decode("abcdef", 6, small, sizeof(small));
    assert_string_equal(small, "abc");
}

static void a_missing_status_follows_from_what_came_instead(void **state)
{
    (void)state;
    char text[256];
    assert_int_equal(grpc_status_without_trailer(503, 0, text, sizeof(text)), ERROR_UNAVAILABLE);
    assert_non_null(strstr(text, "503"));
    assert_int_equal(grpc_status_without_trailer(404, 0, text, sizeof(text)), ERROR_UNIMPLEMENTED);
    assert_int_equal(grpc_status_without_trailer(418, 0, text, sizeof(text)), ERROR_UNKNOWN);
    assert_int_equal(grpc_status_without_trailer(200, 0, text, sizeof(text)), ERROR_INTERNAL);
    assert_int_equal(grpc_status_without_trailer(200, 7, text, sizeof(text)), ERROR_UNAVAILABLE);
    assert_int_equal(grpc_status_without_trailer(0, 8, text, sizeof(text)), ERROR_CANCELLED);
    assert_int_equal(grpc_status_without_trailer(200, 11, text, sizeof(text)),
                     ERROR_RESOURCE_EXHAUSTED);
}

static void addresses_are_read_in_every_form(void **state)
{
    (void)state;
    static const char *const good[] = {"127.0.0.1:80", "[::1]:80", "localhost:80",
                                       "unix:/x/y",    "/x/y",     "unix:relative"};
    static const char *const bad[] = {"",      "localhost", "::1:80",       "[::1]80",
                                      "unix:", ":80",       "127.0.0.1:8x", "127.0.0.1:"};
    struct address address;
    struct error error;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(address_resolve(good[i], &address, &error), 0);
        assert_true(address.candidate_count >= 1);
        assert_true(address.authority[0] != '\0');
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(address_resolve(bad[i], &address, &error), -ERROR_INVALID_ARGUMENT);
    }
    char longest[200];
    memset(longest, 'x', sizeof(longest));
    longest[0] = '/';
    longest[199] = '\0';
    assert_int_equal(address_resolve(longest, &address, &error), -ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "socket path"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timeouts_have_at_most_eight_digits_and_never_grow),
        cmocka_unit_test(messages_are_decoded_and_broken_escapes_stay),
        cmocka_unit_test(a_missing_status_follows_from_what_came_instead),
        cmocka_unit_test(addresses_are_read_in_every_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
