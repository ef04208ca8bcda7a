#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/base/clock.h"
#include "server/base/error.h"
#include "server/net/timeout.h"

#define MALFORMED UINT64_C(0xDEAD)

static void every_listed_value_has_its_meaning(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } cases[] = {
        {"1n", 1},
        {"1u", NS_PER_US},
        {"1m", NS_PER_MS},
        {"1S", NS_PER_S},
        {"1M", 60 * NS_PER_S},
        {"1H", 3600 * NS_PER_S},
        {"99999999H", UINT64_MAX},
        {"99999999n", 99999999},
        {"0S", 0},
        {"2968m", 2968 * NS_PER_MS},
        {"00000001S", NS_PER_S},
        {"5124095H", UINT64_C(5124095) * 3600 * NS_PER_S},
        {"5124096H", UINT64_MAX},
        {"100000000S", MALFORMED},
        {"-1S", MALFORMED},
        {"+1S", MALFORMED},
        {"1.5S", MALFORMED},
        {"1s", MALFORMED},
        {"S", MALFORMED},
        {"", MALFORMED},
        {"1 S", MALFORMED},
        {" 1S", MALFORMED},
        {"1S ", MALFORMED},
        {"1", MALFORMED},
        {"1S,1S", MALFORMED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t ns = MALFORMED;
        int result = timeout_parse(cases[i].text, strlen(cases[i].text), &ns);
        assert_int_equal(result, cases[i].ns == MALFORMED ? -ERROR_INTERNAL : 0);
        assert_int_equal(ns, cases[i].ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_listed_value_has_its_meaning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
