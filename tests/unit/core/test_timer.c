/* test_timer.c: the heap of times, and that each object's next time is told. */
#include <stdlib.h>
#include <string.h>

#include "server/core/state.h"
#include "tests/unit/core/rig.h"

#define TIMERS 200

struct bench {
    struct core core; /* of which only the heap is used */
    struct timer timers[TIMERS];
};

static int setup(void **state)
{
    struct bench *bench = calloc(1, sizeof *bench);
    assert_non_null(bench);
    for (size_t i = 0; i < TIMERS; i++) {
        bench->timers[i].at_ns = NEVER_NS;
        assert_int_equal(
            core_table_reserve((void ***)&bench->core.timers, &bench->core.timer_capacity, i + 1),
            0);
    }
    *state = bench;
    return 0;
}

static int teardown(void **state)
{
    struct bench *bench = *state;
    free(bench->core.timers);
    free(bench);
    return 0;
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

static uint64_t earliest(const struct bench *bench)
{
    uint64_t first_ns = NEVER_NS;
    for (size_t i = 0; i < TIMERS; i++) {
        first_ns = bench->timers[i].at_ns < first_ns ? bench->timers[i].at_ns : first_ns;
    }
    return first_ns;
}

static void earliest_time_is_next_however_times_change(void **state)
{
    struct bench *bench = *state;
    uint64_t seed = 11;
    assert_true(core_timer_next(&bench->core) == NEVER_NS);
    for (int round = 0; round < 5000; round++) {
        struct timer *timer = &bench->timers[draw(&seed, TIMERS)];
        uint64_t at_ns = draw(&seed, 4) == 0 ? NEVER_NS : draw(&seed, 1000);
        core_timer_set(&bench->core, timer, at_ns);
        assert_true(core_timer_next(&bench->core) == earliest(bench));
        assert_int_equal(timer->place == 0, at_ns == NEVER_NS);
    }
    for (size_t i = 0; i < TIMERS; i++) {
        core_timer_set(&bench->core, &bench->timers[i], NEVER_NS);
    }
    assert_int_equal(bench->core.timer_count, 0);
}

static void same_time_again_changes_nothing(void **state)
{
    struct bench *bench = *state;
    core_timer_set(&bench->core, &bench->timers[0], 5);
    core_timer_set(&bench->core, &bench->timers[1], 7);
    core_timer_set(&bench->core, &bench->timers[1], 7);
    assert_int_equal(bench->core.timer_count, 2);
    core_timer_set(&bench->core, &bench->timers[2], NEVER_NS);
    assert_int_equal(bench->core.timer_count, 2);
    assert_int_equal(core_timer_next(&bench->core), 5);
}

static void sooner_of_two_times_is_the_one_that_lies_ahead(void **state)
{
    struct bench *bench = *state;
    bench->core.now_ns = 100;
    assert_true(core_sooner(&bench->core, NEVER_NS, 50, 60) == 110);
    assert_true(core_sooner(&bench->core, 105, 50, 60) == 105);
    assert_true(core_sooner(&bench->core, NEVER_NS, 50, 50) == NEVER_NS); /* it is now */
    assert_true(core_sooner(&bench->core, 200, NEVER_NS, 1) == 200);      /* no time */
    assert_true(core_sooner(&bench->core, NEVER_NS, NEVER_NS - 1, 5) == NEVER_NS);
}

/* ---- through the core ---- */

static void told_time_is_the_next_one_at_which_something_happens(void **state)
{
    (void)state;
    struct rig *rig = rig_create(NULL);
    rig_device(rig, 1);
    rig_reconcile(rig);
    struct core_lease_spec spec = rig_lease_spec(1, 1, 1);
    spec.until_ns = rig->now_ns + SECONDS(40);
    rig_request(rig, spec);
    rig_run(rig, SECONDS(30));
    assert_true(rig->timer_ns <= spec.until_ns);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).reason, CORE_REASON_EXPIRED);
    rig_run(rig, SECONDS(3600) * 2);
    assert_int_equal(rig->timer_ns, 0); /* nothing is left to wait for */
    rig_destroy(rig);
}

static void early_and_extra_timers_do_no_harm(void **state)
{
    (void)state;
    struct rig *rig = rig_create(NULL);
    rig_device(rig, 1);
    rig_reconcile(rig);
    struct core_lease_spec spec = rig_lease_spec(1, 1, 1);
    spec.until_ns = rig->now_ns + SECONDS(40);
    rig_request(rig, spec);
    for (int i = 0; i < 100; i++) {
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_TIMER});
        rig->now_ns += MS(100);
    }
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_true(rig->timer_ns != 0);
    rig_run(rig, SECONDS(40));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_ENDED);
    rig_destroy(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(earliest_time_is_next_however_times_change, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(same_time_again_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(sooner_of_two_times_is_the_one_that_lies_ahead, setup,
                                        teardown),
        cmocka_unit_test(told_time_is_the_next_one_at_which_something_happens),
        cmocka_unit_test(early_and_extra_timers_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
