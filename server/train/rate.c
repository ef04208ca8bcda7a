#include "server/train/rate.h"

#include "server/base/clock.h"

#define BUCKET_NS (100 * NS_PER_MS)
#define WINDOW_BUCKETS 50u
#define COUNT_BITS 24
#define COUNT_MASK ((UINT64_C(1) << COUNT_BITS) - 1)

void rate_add(struct rate *rate, uint64_t now_ns)
{
    uint64_t number = now_ns / BUCKET_NS;
    _Atomic uint64_t *bucket = &rate->buckets[number % RATE_BUCKETS];
    uint64_t old = atomic_load(bucket), fresh;
    uint64_t none = 0;
    (void)atomic_compare_exchange_strong(&rate->first_ns, &none, now_ns);
    do {
        fresh = old >> COUNT_BITS == number ? old + 1 : number << COUNT_BITS | 1;
    } while (!atomic_compare_exchange_weak(bucket, &old, fresh));
}

double rate_per_second(const struct rate *rate, uint64_t now_ns)
{
    uint64_t number = now_ns / BUCKET_NS, count = 0;
    uint64_t first_ns = atomic_load(&rate->first_ns);
    uint64_t oldest = number > WINDOW_BUCKETS ? number - WINDOW_BUCKETS : 0;
    uint64_t since_ns = oldest * BUCKET_NS;
    for (uint32_t i = 0; i < RATE_BUCKETS; i++) {
        uint64_t value = atomic_load(&rate->buckets[i]);
        uint64_t at = value >> COUNT_BITS;
        count += at >= oldest && at <= number ? value & COUNT_MASK : 0;
    }
    since_ns = first_ns > since_ns ? first_ns : since_ns;
    if (first_ns == 0 || now_ns <= since_ns) {
        return 0;
    }
    return (double)count * (double)NS_PER_S / (double)(now_ns - since_ns);
}
