#include "server/observe/metrics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_page(struct metrics_page *page, const char *expected)
{
    size_t length = 0;
    char *text = metrics_finish(page, &length);
    assert_non_null(text);
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(text, expected, length);
    free(text);
}

static void a_family_has_help_type_and_its_series(void **state)
{
    (void)state;
    struct metrics_page *page = metrics_create();
    struct metrics_label labels[] = {{"model", "digits"}, {"version", "1"}};
    metrics_family(page, "nv_inference_count", METRICS_COUNTER, "Number of inferences");
    metrics_series(page, labels, 2, 12000000000);
    metrics_family(page, "up", METRICS_GAUGE, "Is it");
    metrics_series(page, NULL, 0, 1);
    assert_page(page, "# HELP nv_inference_count Number of inferences\n"
                      "# TYPE nv_inference_count counter\n"
                      "nv_inference_count{model=\"digits\",version=\"1\"} 12000000000\n"
                      "# HELP up Is it\n# TYPE up gauge\nup 1\n");
}

static void assert_escaped(const char *value, const char *expected)
{
    char text[512];
    struct metrics_page *page = metrics_create();
    struct metrics_label label = {"model", value};
    metrics_family(page, "m", METRICS_GAUGE, "h");
    metrics_series(page, &label, 1, 0);
    snprintf(text, sizeof text, "# HELP m h\n# TYPE m gauge\nm{model=\"%s\"} 0\n", expected);
    assert_page(page, text);
}

static void label_values_are_escaped_and_no_more_than_that(void **state)
{
    (void)state;
    assert_escaped("a\"b", "a\\\"b");
    assert_escaped("a\\b", "a\\\\b");
    assert_escaped("a\nb", "a\\nb");
    assert_escaped("tab\there {x=y}, # é 日本 😀", "tab\there {x=y}, # é 日本 😀");
    assert_escaped("", "");
}

static void bytes_that_are_no_utf8_are_replaced(void **state)
{
    (void)state;
#define REPLACED "\xef\xbf\xbd"
    assert_escaped("a\xff"
                   "b",
                   "a" REPLACED "b");
    assert_escaped("\xc0\x80", REPLACED REPLACED);              /* overlong */
    assert_escaped("\xed\xa0\x80", REPLACED REPLACED REPLACED); /* surrogate */
    assert_escaped("end\xe2\x82", "end" REPLACED REPLACED);     /* cut */
    assert_escaped("\xf5\x80\x80\x80", REPLACED REPLACED REPLACED REPLACED);
}

static void doubles_are_plain_where_whole_and_exact_elsewhere(void **state)
{
    (void)state;
    struct metrics_page *page = metrics_create();
    metrics_family(page, "m", METRICS_GAUGE, "h");
    const double values[] = {0.25, 12000000000.0, 0.1, 1.0 / 3, 1e300, NAN, INFINITY};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        metrics_series_double(page, NULL, 0, values[i]);
    }
    assert_page(page, "# HELP m h\n# TYPE m gauge\nm 0.25\nm 12000000000\nm 0.1\n"
                      "m 0.3333333333333333\nm 1e+300\nm NaN\nm +Inf\n");
}

static void a_histogram_is_cumulative_and_ends_with_inf(void **state)
{
    (void)state;
    struct metrics_page *page = metrics_create();
    struct metrics_label label = {"model", "digits"};
    const double bounds[] = {0.5, 1, 10};
    const uint64_t counts[] = {1, 2, 0, 4};
    metrics_family(page, "lat", METRICS_HISTOGRAM, "h");
    metrics_histogram(page, &label, 1, bounds, counts, 3, 123.5);
    assert_page(page, "# HELP lat h\n# TYPE lat histogram\n"
                      "lat_bucket{model=\"digits\",le=\"0.5\"} 1\n"
                      "lat_bucket{model=\"digits\",le=\"1\"} 3\n"
                      "lat_bucket{model=\"digits\",le=\"10\"} 3\n"
                      "lat_bucket{model=\"digits\",le=\"+Inf\"} 7\n"
                      "lat_sum{model=\"digits\"} 123.5\n"
                      "lat_count{model=\"digits\"} 7\n");
}

static void a_page_grows_with_its_content(void **state)
{
    (void)state;
    struct metrics_page *page = metrics_create();
    metrics_family(page, "m", METRICS_GAUGE, "h");
    for (uint64_t i = 0; i < 20000; i++) {
        metrics_series(page, NULL, 0, i % 10);
    }
    size_t length = 0;
    char *text = metrics_finish(page, &length);
    assert_int_equal(length, strlen("# HELP m h\n# TYPE m gauge\n") + 20000 * 4);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_family_has_help_type_and_its_series),
        cmocka_unit_test(label_values_are_escaped_and_no_more_than_that),
        cmocka_unit_test(bytes_that_are_no_utf8_are_replaced),
        cmocka_unit_test(doubles_are_plain_where_whole_and_exact_elsewhere),
        cmocka_unit_test(a_histogram_is_cumulative_and_ends_with_inf),
        cmocka_unit_test(a_page_grows_with_its_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
