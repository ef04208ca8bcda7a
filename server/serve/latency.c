/* latency.c: the latency histogram of statistics.h. */
#include "server/serve/statistics.h"

uint32_t latency_bucket(uint64_t ns)
{
    uint32_t octave, sub;
    if (ns < (UINT64_C(1) << LATENCY_SHIFT)) {
        return 0;
    }
    octave = 63 - (uint32_t)__builtin_clzll(ns) - LATENCY_SHIFT;
    if (octave >= LATENCY_OCTAVES) {
        return LATENCY_BUCKETS - 1;
    }
    sub = (uint32_t)(ns >> (octave + LATENCY_SHIFT - 3)) & (LATENCY_SUBS - 1);
    return 1 + octave * LATENCY_SUBS + sub;
}

uint64_t latency_bound_ns(uint32_t bucket)
{
    uint32_t octave, sub;
    if (bucket == 0) {
        return UINT64_C(1) << LATENCY_SHIFT;
    }
    if (bucket >= LATENCY_BUCKETS - 1) {
        return UINT64_MAX;
    }
    octave = (bucket - 1) / LATENCY_SUBS;
    sub = (bucket - 1) % LATENCY_SUBS;
    return (uint64_t)(LATENCY_SUBS + sub + 1) << (octave + LATENCY_SHIFT - 3);
}

uint64_t latency_quantile_ns(const uint64_t counts[LATENCY_BUCKETS], double share)
{
    uint64_t total = 0, wanted, seen = 0;
    for (uint32_t i = 0; i < LATENCY_BUCKETS; i++) {
        total += counts[i];
    }
    if (total == 0) {
        return 0;
    }
    wanted = (uint64_t)(share * (double)total);
    wanted = wanted < 1 ? 1 : wanted > total ? total : wanted;
    for (uint32_t i = 0; i < LATENCY_BUCKETS - 1; i++) {
        seen += counts[i];
        if (seen >= wanted) {
            return latency_bound_ns(i);
        }
    }
    return latency_bound_ns(LATENCY_BUCKETS - 2);
}
