/* rate.h: a token bucket: `burst` at once, then `per_second`. */
#ifndef TIDEPOOL_NET_RATE_H
#define TIDEPOOL_NET_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/base/clock.h"

struct rate {
    uint32_t burst, per_second;
    uint64_t debt_ns; /* time until the bucket is full again */
    uint64_t seen_ns;
};

static inline void rate_init(struct rate *rate, uint32_t burst, uint32_t per_second)
{
    *rate = (struct rate){.burst = burst, .per_second = per_second > 0 ? per_second : 1};
}

/* Takes one token; false: there is none. */
static inline bool rate_take(struct rate *rate, uint64_t now_ns)
{
    uint64_t token_ns = NS_PER_S / rate->per_second;
    uint64_t passed_ns = now_ns - rate->seen_ns;
    rate->debt_ns = passed_ns >= rate->debt_ns ? 0 : rate->debt_ns - passed_ns;
    rate->seen_ns = now_ns;
    if (rate->debt_ns + token_ns > (uint64_t)rate->burst * token_ns) {
        return false;
    }
    rate->debt_ns += token_ns;
    return true;
}

#endif
