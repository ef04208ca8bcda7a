/* test_tide.c: the tide, exact in virtual time. */
#include <string.h>

#include "tests/sim/tide.h"

#define TICK_NS (MS(1) / 10)

static void assert_ledger_exact(struct tide *tide)
{
    tide_sample(tide);
    struct core_ledger ledger = rig_ledger(tide->rig);
    uint64_t sum = 0;
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        sum += ledger.account_ns[account];
    }
    assert_int_equal(sum, ledger.elapsed_ns);
    assert_int_equal(ledger.elapsed_ns, tide->devices * (tide->rig->now_ns - SECONDS(1)));
    assert_int_equal(ledger.unbooked_ns, 0);
    assert_int_equal(ledger.account_ns[CORE_ACCOUNT_SERVING], tide->served_ns);
    assert_int_equal(ledger.account_ns[CORE_ACCOUNT_TRAINING], tide_trained(tide));
}

static void start_training(struct tide *tide)
{
    rig_lease(tide->rig, 1, 1, 2);
    tide_run(tide, MS(100));
    assert_int_equal(rig_lease_view(tide->rig, 1).devices, 2);
    assert_int_equal(rig_device_view(tide->rig, 1).hold, CORE_HOLD_HELD);
    assert_int_equal(rig_device_view(tide->rig, 2).hold, CORE_HOLD_HELD);
}

static void burst_is_served_by_yield_and_training_goes_on_at_once(void **state)
{
    (void)state;
    struct tide tide;
    tide_init(&tide, NULL, 2, TICK_NS);
    start_training(&tide);
    tide_run(&tide, SECONDS(2)); /* no load: all training */
    uint64_t trained = tide_trained(&tide);
    tide_run(&tide, SECONDS(1));
    assert_int_equal(tide_trained(&tide) - trained, SECONDS(2));

    tide_load(&tide, 400); /* 1.6 devices' worth */
    tide_run(&tide, SECONDS(3));
    tide_load(&tide, 0);
    tide_run(&tide, MS(5)); /* the last batch */
    assert_int_equal(tide.served, 1200);
    assert_int_equal(tide.late, 0);
    assert_true(tide.latency_max_ns <= tide.slo_ns / 2);

    trained = tide_trained(&tide);
    tide_run(&tide, MS(200)); /* both devices train from the first moment on */
    assert_int_equal(tide_trained(&tide) - trained, 2 * MS(200));
    assert_int_equal(tide.rig->total[CORE_ACTION_REVOKE], 0);
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 2);
    assert_ledger_exact(&tide);

    struct core_ledger ledger = rig_ledger(tide.rig);
    assert_true(ledger.slices >= 1200);
    assert_int_equal(ledger.account_ns[CORE_ACCOUNT_SERVING], 1200 * MS(4));
    for (uint64_t id = 1; id <= 2; id++) {
        struct core_explanation began = rig_explanation(tide.rig, CORE_WHAT_YIELD_BEGAN, id, 1);
        struct core_explanation ended = rig_explanation(tide.rig, CORE_WHAT_YIELD_ENDED, id, 1);
        assert_int_equal(began.rung, CORE_RUNG_YIELD);
        assert_int_equal(began.endpoint, 1);
        assert_int_equal(began.slo_ns, tide.slo_ns);
        assert_true(began.victims[0].lease == 1 && began.victims[0].chosen);
        assert_true(ended.time_ns - began.time_ns >= SECONDS(3));
        assert_true(ended.time_ns - began.time_ns <= SECONDS(3) + MS(200));
    }
    tide_fini(&tide);
}

static void sustained_load_shrinks_training_to_its_minimum_and_it_comes_back(void **state)
{
    (void)state;
    struct tide tide;
    tide_init(&tide, NULL, 2, TICK_NS);
    start_training(&tide);
    tide_load(&tide, 475); /* 1.9 devices' worth: yielding would leave 5 % */
    tide_run(&tide, SECONDS(10));
    assert_int_equal(tide.rig->total[CORE_ACTION_REVOKE], 1);
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 1);
    assert_int_equal(rig_lease_view(tide.rig, 1).state, CORE_LEASE_RUNNING);
    assert_true(rig_device_view(tide.rig, 1).kept_for_serving);
    assert_int_equal(rig_device_view(tide.rig, 1).account, CORE_ACCOUNT_RESERVE);

    struct core_explanation story = rig_explanation(tide.rig, CORE_WHAT_REVOKE, 1, 1);
    assert_int_equal(story.reason, CORE_REASON_SUSTAINED_LOAD);
    assert_int_equal(story.rung, CORE_RUNG_SHRINK);
    assert_int_equal(story.deadline_ns, story.time_ns + SECONDS(5));
    assert_int_equal(story.victim_count, 2);
    assert_true(story.utilisation_permille > 850 && story.demand_milli > 1700);
    char text[512];
    core_explanation_print(&story, text, sizeof text);
    assert_non_null(strstr(text, "revoke: device=1 lease=1 endpoint=1 rung=shrink because sustained"
                                 " load"));

    tide_load(&tide, 0);
    tide_run(&tide, MS(5));
    uint64_t trained = tide_trained(&tide);
    tide_run(&tide, MS(200)); /* on the device it kept, at once */
    assert_int_equal(tide_trained(&tide) - trained, MS(200));
    tide_run(&tide, SECONDS(4)); /* cool-down and hold, then the other one */
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 2);
    assert_int_equal(rig_explanation(tide.rig, CORE_WHAT_GIVE_BACK, 1, 0).reason,
                     CORE_REASON_LOAD_FELL);
    assert_int_equal(rig_explanation(tide.rig, CORE_WHAT_GRANT, 1, 1).reason,
                     CORE_REASON_ELASTIC_GROWTH);
    assert_int_equal(tide.late, 0);
    assert_ledger_exact(&tide);
    assert_int_equal(rig_ledger(tide.rig).handovers[CORE_RUNG_SHRINK], 1);
    tide_fini(&tide);
}

static void gang_that_cannot_shrink_keeps_yielding_under_sustained_load(void **state)
{
    (void)state;
    struct tide tide;
    tide_init(&tide, NULL, 2, TICK_NS);
    rig_lease(tide.rig, 1, 2, 2);
    tide_run(&tide, MS(100));
    tide_load(&tide, 475);
    tide_run(&tide, SECONDS(10));
    assert_int_equal(tide.rig->total[CORE_ACTION_REVOKE], 0);
    assert_int_equal(tide.late, 0);
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 2);
    assert_ledger_exact(&tide);
    tide_fini(&tide);
}

static void device_failing_under_load_costs_only_itself(void **state)
{
    (void)state;
    struct tide tide;
    tide_init(&tide, NULL, 2, TICK_NS);
    start_training(&tide);
    tide_load(&tide, 100);
    tide_run(&tide, SECONDS(1));
    tide_sample(&tide);
    tide.device[2].busy = false; /* its batch dies with it */
    rig_device_event(tide.rig, CORE_EVENT_DEVICE_FAILED, 2);
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 1);
    tide_run(&tide, SECONDS(1));
    assert_int_equal(tide.late, 0);
    rig_device_event(tide.rig, CORE_EVENT_DEVICE_RECOVERED, 2);
    assert_non_null(rig_find(tide.rig, CORE_ACTION_VERIFY));
    assert_null(rig_find(tide.rig, CORE_ACTION_GRANT));
    tide_run(&tide, SECONDS(1));
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 2);
    assert_int_equal(core_instance_find(tide.rig->core, 1, 2), CORE_INSTANCE_READY);
    tide_sample(&tide);
    struct core_ledger ledger = rig_ledger(tide.rig);
    /* Failed for a second, and for the look at it afterwards nobody had it. */
    assert_int_equal(ledger.account_ns[CORE_ACCOUNT_QUARANTINED], SECONDS(1));
    tide_fini(&tide);
}

/* LP-2: load that swings around the threshold every 5 s for 10 minutes. */
static void swinging_load_moves_a_device_no_oftener_than_hold_and_cool_down_allow(void **state)
{
    (void)state;
    struct core_config config;
    core_config_init(&config);
    config.hold_min_ns = SECONDS(2);
    config.cool_down_ns = SECONDS(3);
    config.moves_per_hour = 1000;
    struct tide tide;
    tide_init(&tide, &config, 2, MS(1) / 2);
    start_training(&tide);
    for (int swing = 0; swing < 60; swing++) {
        tide_load(&tide, 480);
        tide_run(&tide, SECONDS(5));
        tide_load(&tide, 200);
        tide_run(&tide, SECONDS(5));
    }
    assert_true(tide.rig->total[CORE_ACTION_REVOKE] > 0);
    for (uint64_t id = 1; id <= 2; id++) {
        assert_true(rig_device_view(tide.rig, id).handovers <= 600 / (2 + 3) + 1);
    }
    assert_int_equal(tide.late, 0);
    assert_ledger_exact(&tide);
    tide_fini(&tide);
}

static void moves_past_the_hourly_bound_end_and_the_reserve_stays(void **state)
{
    (void)state;
    struct core_config config;
    core_config_init(&config);
    config.moves_per_hour = 3;
    struct tide tide;
    tide_init(&tide, &config, 2, MS(1) / 2);
    start_training(&tide);
    for (int swing = 0; swing < 12; swing++) {
        tide_load(&tide, 480);
        tide_run(&tide, SECONDS(6));
        tide_load(&tide, 0);
        tide_run(&tide, SECONDS(6));
    }
    assert_int_equal(tide.rig->total[CORE_ACTION_REVOKE], 3);
    assert_int_equal(rig_explanation(tide.rig, CORE_WHAT_KEEP, 1, 0).reason,
                     CORE_REASON_RATE_BOUND);
    assert_true(rig_device_view(tide.rig, 1).kept_for_serving);
    tide_run(&tide, SECONDS(3600)); /* an hour later it may move again */
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 2);
    tide_fini(&tide);
}

static void device_whose_moves_are_used_up_is_left_to_yielding(void **state)
{
    (void)state;
    struct core_config config;
    core_config_init(&config);
    config.moves_per_hour = 1;
    struct tide tide;
    tide_init(&tide, &config, 2, MS(1) / 2);
    start_training(&tide);
    rig_lease(tide.rig, 2, 1, 1); /* takes device 1: its only move */
    tide_run(&tide, SECONDS(1));
    assert_int_equal(rig_device_view(tide.rig, 1).lease, 2);
    rig_lease_event(tide.rig, CORE_EVENT_LEASE_CANCELLED, 2);
    tide_run(&tide, SECONDS(2));
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 2);
    tide_load(&tide, 480);
    tide_run(&tide, SECONDS(6));
    assert_int_equal(rig_device_view(tide.rig, 1).lease, 1);
    assert_true(rig_device_view(tide.rig, 2).kept_for_serving);
    struct core_explanation story = rig_explanation(tide.rig, CORE_WHAT_REVOKE, 1, 1);
    assert_int_equal(story.reason, CORE_REASON_RATE_BOUND);
    assert_false(story.applied);
    tide_fini(&tide);
}

static void lease_starts_on_a_busy_device_but_does_not_grow_onto_one(void **state)
{
    (void)state;
    struct tide tide;
    tide_init(&tide, NULL, 2, MS(1) / 2);
    tide_load(&tide, 480);
    tide_run(&tide, SECONDS(5));
    rig_lease(tide.rig, 1, 1, 2);
    tide_run(&tide, SECONDS(2));
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 1);
    tide_load(&tide, 0);
    tide_run(&tide, SECONDS(1));
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 2);
    assert_int_equal(tide.rig->total[CORE_ACTION_REVOKE], 0);
    tide_fini(&tide);
}

/* LP-2: load just above the threshold for ever. */
static void load_just_above_the_threshold_moves_a_device_once(void **state)
{
    (void)state;
    struct tide tide;
    tide_init(&tide, NULL, 2, MS(1) / 2);
    start_training(&tide);
    tide_load(&tide, 440);
    tide_run(&tide, SECONDS(300));
    assert_int_equal(tide.rig->total[CORE_ACTION_REVOKE], 1);
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 1);
    assert_int_equal(tide.late, 0);
    tide_fini(&tide);
}

/* LP-2: two jobs of equal priority share without taking from each other again and again. */
static void equal_jobs_settle_without_evicting_each_other(void **state)
{
    (void)state;
    struct tide tide;
    tide_init(&tide, NULL, 2, MS(1));
    start_training(&tide);
    rig_lease(tide.rig, 2, 1, 2);
    tide_run(&tide, SECONDS(600));
    assert_int_equal(tide.rig->total[CORE_ACTION_REVOKE], 1); /* the elastic part, once */
    assert_int_equal(rig_lease_view(tide.rig, 1).devices, 1);
    assert_int_equal(rig_lease_view(tide.rig, 2).devices, 1);
    tide_fini(&tide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burst_is_served_by_yield_and_training_goes_on_at_once),
        cmocka_unit_test(sustained_load_shrinks_training_to_its_minimum_and_it_comes_back),
        cmocka_unit_test(gang_that_cannot_shrink_keeps_yielding_under_sustained_load),
        cmocka_unit_test(device_failing_under_load_costs_only_itself),
        cmocka_unit_test(swinging_load_moves_a_device_no_oftener_than_hold_and_cool_down_allow),
        cmocka_unit_test(moves_past_the_hourly_bound_end_and_the_reserve_stays),
        cmocka_unit_test(device_whose_moves_are_used_up_is_left_to_yielding),
        cmocka_unit_test(lease_starts_on_a_busy_device_but_does_not_grow_onto_one),
        cmocka_unit_test(load_just_above_the_threshold_moves_a_device_once),
        cmocka_unit_test(equal_jobs_settle_without_evicting_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
