#include "clients/common/histogram.h"

#include <string.h>

#define SUB_COUNT (UINT64_C(1) << HISTOGRAM_SUB_BITS)

/* Values below 2^8 have a bucket each; above, the 8 bits after the leading one choose it. */
static size_t bucket_of(uint64_t value)
{
    if (value < SUB_COUNT) {
        return (size_t)value;
    }
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
    return (size_t)(((uint64_t)(shift + 1) << HISTOGRAM_SUB_BITS) + (value >> shift) - SUB_COUNT);
}

void histogram_bucket_bounds(size_t bucket, uint64_t *ret_lowest, uint64_t *ret_highest)
{
    if (bucket < SUB_COUNT) {
        *ret_lowest = *ret_highest = bucket;
        return;
    }
    unsigned shift = (unsigned)(bucket >> HISTOGRAM_SUB_BITS) - 1;
    uint64_t lowest = (SUB_COUNT + (bucket & (SUB_COUNT - 1))) << shift;
    *ret_lowest = lowest;
    *ret_highest = lowest + ((UINT64_C(1) << shift) - 1);
}

void histogram_init(struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram->minimum = UINT64_MAX;
}

void histogram_record(struct histogram *histogram, uint64_t value)
{
    histogram->count++;
    histogram->sum += (double)value;
    histogram->minimum = value < histogram->minimum ? value : histogram->minimum;
    histogram->maximum = value > histogram->maximum ? value : histogram->maximum;
    histogram->buckets[bucket_of(value)]++;
}

void histogram_add(struct histogram *histogram, const struct histogram *other)
{
    histogram->count += other->count;
    histogram->sum += other->sum;
    if (other->minimum < histogram->minimum) {
        histogram->minimum = other->minimum;
    }
    if (other->maximum > histogram->maximum) {
        histogram->maximum = other->maximum;
    }
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        histogram->buckets[i] += other->buckets[i];
    }
}

static uint64_t value_of(const struct histogram *histogram, size_t bucket)
{
    uint64_t lowest, highest;
    histogram_bucket_bounds(bucket, &lowest, &highest);
    uint64_t value = lowest + (highest - lowest) / 2;
    value = value < histogram->minimum ? histogram->minimum : value;
    return value > histogram->maximum ? histogram->maximum : value;
}

uint64_t histogram_quantile(const struct histogram *histogram, double quantile)
{
    if (histogram->count == 0) {
        return 0;
    }
    double wanted = quantile * (double)histogram->count;
    uint64_t rank = wanted <= 1 ? 1 : (uint64_t)wanted;
    if ((double)rank < wanted) {
        rank++;
    }
    if (rank >= histogram->count) {
        return histogram->maximum;
    }
    uint64_t seen = 0;
    size_t bucket = 0;
    while (bucket < HISTOGRAM_BUCKETS - 1 && (seen += histogram->buckets[bucket]) < rank) {
        bucket++;
    }
    return value_of(histogram, bucket);
}

double histogram_mean(const struct histogram *histogram)
{
    return histogram->count == 0 ? 0 : histogram->sum / (double)histogram->count;
}
