/* rate.h: how often something happened in the last 5 s, without a lock. */
#ifndef TIDEPOOL_TRAIN_RATE_H
#define TIDEPOOL_TRAIN_RATE_H

#include <stdatomic.h>
#include <stdint.h>

#define RATE_BUCKETS 64

/* A bucket is its number (time ÷ 100 ms) in the upper 40 bits and a count in the lower 24. */
struct rate {
    _Atomic uint64_t buckets[RATE_BUCKETS];
    _Atomic uint64_t first_ns; /* of the first event; 0: none yet */
};

void rate_add(struct rate *rate, uint64_t now_ns);
double rate_per_second(const struct rate *rate, uint64_t now_ns);

#endif
