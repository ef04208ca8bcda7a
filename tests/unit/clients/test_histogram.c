#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "clients/common/histogram.h"

static struct histogram histogram, other;

static void every_value_lies_in_a_bucket_within_the_documented_error(void **state)
{
    (void)state;
    uint64_t before_highest = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t lowest, highest;
        histogram_bucket_bounds(i, &lowest, &highest);
        assert_true(lowest <= highest);
        assert_true(i == 0 || lowest == before_highest + 1); /* no gap, no overlap */
        /* The middle is wrong by at most half the width. */
        assert_true((double)(highest - lowest) / 2 <= (double)lowest / 512 || lowest < 256);
        before_highest = highest;
    }
    assert_true(before_highest == UINT64_MAX);
}

static void quantiles_of_a_known_set_are_right(void **state)
{
    (void)state;
    histogram_init(&histogram);
    assert_true(histogram_quantile(&histogram, 0.5) == 0);
    for (uint64_t i = 1; i <= 100000; i++) {
        histogram_record(&histogram, i * 1000);
    }
    static const double quantiles[] = {0.5, 0.9, 0.99, 0.999};
    for (size_t i = 0; i < 4; i++) {
        double exact = quantiles[i] * 100000 * 1000;
        double found = (double)histogram_quantile(&histogram, quantiles[i]);
        assert_true(found >= exact * (1 - 1.0 / 512) - 1000);
        assert_true(found <= exact * (1 + 1.0 / 512) + 1000);
    }
    assert_int_equal(histogram_quantile(&histogram, 1), 100000000);
    assert_true(histogram_mean(&histogram) == 50000500.0);
    assert_int_equal(histogram.minimum, 1000);
}

static void one_value_is_reported_exactly(void **state)
{
    (void)state;
    histogram_init(&histogram);
    histogram_record(&histogram, 123456789);
    assert_int_equal(histogram_quantile(&histogram, 0), 123456789);
    assert_int_equal(histogram_quantile(&histogram, 0.5), 123456789);
    assert_int_equal(histogram_quantile(&histogram, 1), 123456789);
}

static void adding_equals_recording_into_one(void **state)
{
    (void)state;
    struct histogram *both = malloc(sizeof(*both));
    assert_non_null(both);
    histogram_init(&histogram);
    histogram_init(&other);
    histogram_init(both);
    uint64_t value = 88172645463325252u;
    for (int i = 0; i < 10000; i++) {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        uint64_t sample = value >> (value & 31);
        histogram_record(i % 3 == 0 ? &histogram : &other, sample);
        histogram_record(both, sample);
    }
    histogram_add(&histogram, &other);
    assert_memory_equal(histogram.buckets, both->buckets, sizeof(both->buckets));
    assert_int_equal(histogram.count, both->count);
    assert_true(histogram.minimum == both->minimum && histogram.maximum == both->maximum);
    free(both);
}

static void the_largest_value_of_all_fits(void **state)
{
    (void)state;
    histogram_init(&histogram);
    histogram_record(&histogram, 0);
    histogram_record(&histogram, UINT64_MAX);
    assert_int_equal(histogram_quantile(&histogram, 0.5), 0);
    assert_true(histogram_quantile(&histogram, 1) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_lies_in_a_bucket_within_the_documented_error),
        cmocka_unit_test(quantiles_of_a_known_set_are_right),
        cmocka_unit_test(one_value_is_reported_exactly),
        cmocka_unit_test(adding_equals_recording_into_one),
        cmocka_unit_test(the_largest_value_of_all_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
