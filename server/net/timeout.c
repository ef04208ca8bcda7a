#include "server/net/timeout.h"

#include "server/base/clock.h"
#include "server/base/error.h"

#define DIGITS_MAX 8

static uint64_t unit_ns(char unit)
{
    switch (unit) {
    case 'H':
        return 3600 * NS_PER_S;
    case 'M':
        return 60 * NS_PER_S;
    case 'S':
        return NS_PER_S;
    case 'm':
        return NS_PER_MS;
    case 'u':
        return NS_PER_US;
    case 'n':
        return 1;
    default:
        return 0;
    }
}

int timeout_parse(const char *text, size_t length, uint64_t *ret_ns)
{
    if (length < 2 || length > DIGITS_MAX + 1) {
        return -ERROR_INTERNAL;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < length - 1; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -ERROR_INTERNAL;
        }
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    uint64_t unit = unit_ns(text[length - 1]);
    if (unit == 0) {
        return -ERROR_INTERNAL;
    }
    *ret_ns = value > UINT64_MAX / unit ? UINT64_MAX : value * unit;
    return 0;
}
