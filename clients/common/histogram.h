/* histogram.h: counts of durations in buckets that grow with the value.
 * Error:   a value is reported as the middle of its bucket, which is wrong by at most 1/512 (0.2 %)
 *          of the value; values under 256 ns are exact. Minimum, maximum and sum are exact.
 * Range:   all of uint64_t nanoseconds.
 * Memory:  about 116 KiB, whatever is recorded. Plain data: copying and adding are fine.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_CLIENTS_HISTOGRAM_H
#define TIDEPOOL_CLIENTS_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_SUB_BITS 8 /* buckets per power of two: 2^8 */
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
    uint64_t count, minimum, maximum;
    double sum;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_init(struct histogram *histogram); /* also empties it */
void histogram_record(struct histogram *histogram, uint64_t value);
void histogram_add(struct histogram *histogram, const struct histogram *other);
/* The smallest value that at least `quantile` (0 to 1) of the recorded values do not exceed; 0 when
 * nothing was recorded. */
uint64_t histogram_quantile(const struct histogram *histogram, double quantile);
double histogram_mean(const struct histogram *histogram); /* 0 when nothing was recorded */

/* The bounds of a bucket: lowest <= value <= highest. For output of the whole distribution. */
void histogram_bucket_bounds(size_t bucket, uint64_t *ret_lowest, uint64_t *ret_highest);

#endif
