/* test_clock.c: server/base/clock.c: a clock that runs faster or slower than the machine's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/base/clock.h"

/* Between two looks at the machine's clock. */
static void paced_span_is_the_machines_times_the_speed(void **state)
{
    (void)state;
    const double speeds[] = {0.5, 1, 20, 100};
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
        struct clock_pace pace;
        clock_pace_begin(&pace, speeds[i]);
        uint64_t before_ns = clock_now_ns();
        uint64_t paced_ns = clock_pace_now_ns(&pace) - pace.begin_ns;
        uint64_t wall_ns = clock_pace_wall_ns(&pace) - pace.begin_wall_ns;
        uint64_t after_ns = clock_now_ns();
        assert_true((double)paced_ns >= (double)(before_ns - pace.begin_ns) * speeds[i] - 1);
        assert_true((double)paced_ns <= (double)(after_ns - pace.begin_ns) * speeds[i] + 1);
        assert_true(speeds[i] == 1 ||
                    (double)wall_ns <= (double)(after_ns - pace.begin_ns) * speeds[i] + 1);
    }
}

static void paced_time_never_goes_back(void **state)
{
    (void)state;
    struct clock_pace pace;
    clock_pace_begin(&pace, 33.3);
    uint64_t last_ns = clock_pace_now_ns(&pace);
    for (int i = 0; i < 100000; i++) {
        uint64_t now_ns = clock_pace_now_ns(&pace);
        assert_true(now_ns >= last_ns);
        last_ns = now_ns;
    }
}

/* A timer that waits so long never comes too early. */
static void wait_on_the_machine_is_long_enough(void **state)
{
    (void)state;
    struct clock_pace pace = {.speed = 7};
    for (uint64_t span_ns = 1; span_ns < NS_PER_S; span_ns = span_ns * 3 + 1) {
        uint64_t machine_ns = clock_pace_machine_ns(&pace, span_ns);
        assert_true((double)machine_ns * pace.speed >= (double)span_ns);
        assert_true((double)machine_ns * pace.speed <= (double)span_ns + 2 * pace.speed);
    }
    pace.speed = 1;
    assert_int_equal(clock_pace_machine_ns(&pace, 12345), 12345);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paced_span_is_the_machines_times_the_speed),
        cmocka_unit_test(paced_time_never_goes_back),
        cmocka_unit_test(wait_on_the_machine_is_long_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
