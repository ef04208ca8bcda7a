#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/net/rate.h"
#include "server/net/timers.h"

#define COUNT 500

static uint64_t fired_ns[COUNT];
static size_t fired_count;

static void on_fire(struct timer *timer, uint64_t now_ns)
{
    assert_true(timer->due_ns <= now_ns);
    fired_ns[fired_count++] = timer->due_ns;
}

static uint32_t seed_next(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static void timers_fire_in_order_and_disarmed_ones_do_not(void **state)
{
    static struct timer timers_of[COUNT];
    struct timers timers = {0};
    uint32_t seed = 7;
    size_t armed = 0;
    (void)state;
    fired_count = 0;
    for (size_t i = 0; i < COUNT; i++) {
        timers_of[i].fire = on_fire;
        assert_true(timer_arm(&timers, &timers_of[i], seed_next(&seed) % 1000));
    }
    for (size_t i = 0; i < COUNT; i += 3) {
        timer_disarm(&timers, &timers_of[i]);
        timer_disarm(&timers, &timers_of[i]);
    }
    for (size_t i = 1; i < COUNT; i += 3) { /* moved, earlier or later */
        assert_true(timer_arm(&timers, &timers_of[i], seed_next(&seed) % 1000));
    }
    for (size_t i = 0; i < COUNT; i++) {
        armed += timers_of[i].place != 0;
    }
    for (uint64_t now_ns = 0; now_ns <= 1000; now_ns += 10) {
        timers_run(&timers, now_ns);
        assert_true(timers_next_ns(&timers) > now_ns);
    }
    assert_int_equal(fired_count, armed);
    for (size_t i = 1; i < fired_count; i++) {
        assert_true(fired_ns[i - 1] <= fired_ns[i]);
    }
    assert_int_equal(timers_next_ns(&timers), UINT64_MAX);
    timers_fini(&timers);
}

static void rate_allows_a_burst_then_so_many_a_second(void **state)
{
    struct rate rate;
    uint64_t now_ns = 5 * NS_PER_S;
    unsigned taken = 0;
    (void)state;
    rate_init(&rate, 100, 10);
    for (int i = 0; i < 1000; i++) {
        taken += rate_take(&rate, now_ns);
    }
    assert_int_equal(taken, 100);
    for (int i = 0; i < 1000; i++) {
        now_ns += NS_PER_S / 100;
        taken += rate_take(&rate, now_ns);
    }
    assert_int_equal(taken, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_in_order_and_disarmed_ones_do_not),
        cmocka_unit_test(rate_allows_a_burst_then_so_many_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
