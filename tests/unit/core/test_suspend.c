/* test_suspend.c: server/core/suspend.c: a gang stopped in place, and back. */
#include "tests/unit/core/rig.h"

#define FREEZE (1u << CORE_RUNG_FREEZE)
#define PAUSE (1u << CORE_RUNG_PAUSE)
#define NOTICE (1u << CORE_RUNG_NOTICE)

/* Four devices, an endpoint whose model is on all of them, and then training. */
static int setup(void **state)
{
    struct core_config config;
    core_config_init(&config);
    config.store_epoch = 7;
    config.hold_min_ns = MS(100);
    struct rig *rig = rig_create(&config);
    for (uint64_t device = 1; device <= 4; device++) {
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                          .device_added = {.device = device, .memory_bytes = 100}});
    }
    rig_reconcile(rig);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED,
                                      .endpoint_spec = {.endpoint = 1,
                                                        .slo_ns = MS(20),
                                                        .target_permille = 990,
                                                        .devices_max = 4,
                                                        .kinds_mask = 1,
                                                        .memory_bytes = 10}});
    rig_run(rig, MS(50));
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static struct core_lease_spec spec_of(uint64_t lease, uint32_t devices, uint32_t rungs)
{
    struct core_lease_spec spec = rig_outside_spec(lease, devices, devices, rungs);
    spec.memory_bytes = 80;
    spec.pause_residue_bytes = 30;
    return spec;
}

static void start(struct rig *rig, struct core_lease_spec spec)
{
    rig_request(rig, spec);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, spec.lease).devices, spec.devices_min);
}

static enum core_hold hold_of(const struct rig *rig, uint64_t device)
{
    return rig_device_view(rig, device).hold;
}

static void instances_rest_beside_a_job_and_serve_while_it_is_stopped(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 4, FREEZE));
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 0);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_resting, 4);
    assert_true(rig_device_view(rig, 1).resting);
    rig_danger(rig, 1, MS(19));
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 4); /* the whole gang */
    assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.rung, CORE_RUNG_FREEZE);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_SUSPENDED);
    assert_int_equal(hold_of(rig, 3), CORE_HOLD_SUSPENDING);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 0); /* not verified quiet yet */
    rig_run(rig, MS(5));
    assert_int_equal(hold_of(rig, 3), CORE_HOLD_SUSPENDED);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 4);
    assert_int_equal(rig_lease_view(rig, 1).devices_stopped, 4);
    assert_int_equal(rig_lease_view(rig, 1).devices, 0);
    assert_int_equal(rig_device_view(rig, 3).account, CORE_ACCOUNT_SUSPENDED);
}

static void load_that_ends_lets_the_gang_go_on_with_its_old_tokens(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 4, FREEZE));
    uint64_t run = rig_lease_view(rig, 1).run, generation = rig_device_view(rig, 2).generation;
    rig_danger(rig, 1, MS(19));
    rig_run(rig, SECONDS(5));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig_lease_view(rig, 1).devices, 4);
    assert_int_equal(rig_lease_view(rig, 1).run, run);
    assert_int_equal(rig_device_view(rig, 2).generation, generation);
    assert_int_equal(rig->total[CORE_ACTION_RESUME], 4);
    assert_int_equal(rig->total[CORE_ACTION_GRANT], 4);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_RESUME, 1, 1).reason, CORE_REASON_LOAD_FELL);
    assert_int_equal(rig_ledger(rig).handovers[CORE_RUNG_FREEZE], 4);
}

static void one_silent_rank_makes_the_stop_fail_and_the_others_go_on(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 2, PAUSE));
    rig->answers = false;
    rig_danger(rig, 1, MS(19));
    struct core_action first = *rig_find(rig, CORE_ACTION_REVOKE);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_SUSPENDED,
                                      .suspended = {.action = first.id,
                                                    .device = first.revoke.device,
                                                    .residue_bytes = 30}});
    assert_int_equal(hold_of(rig, first.revoke.device), CORE_HOLD_SUSPENDED);
    rig_run(rig, SECONDS(10) - 1);
    assert_int_equal(rig->total[CORE_ACTION_RESUME], 0);
    rig->answers = true;
    rig_run(rig, 1);
    assert_int_equal(rig->total[CORE_ACTION_RESUME], 2);
    rig_run(rig, MS(10));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_RESUME, 0, 1).reason, CORE_REASON_ACTION_LOST);
    rig_danger(rig, 1, MS(19)); /* not again at once */
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 0);
}

static void refused_stop_leaves_the_job_at_work(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 1, FREEZE));
    rig->answers = false;
    rig_danger(rig, 1, MS(19));
    struct core_action stop = *rig_find(rig, CORE_ACTION_REVOKE);
    rig->answers = true;
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ACTION_FAILED,
                                      .answer = {.action = stop.id, .device = stop.revoke.device}});
    rig_run(rig, MS(10));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(hold_of(rig, stop.revoke.device), CORE_HOLD_HELD);
}

static void late_answer_to_a_stop_changes_nothing(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 1, FREEZE));
    rig->answers = false;
    rig_danger(rig, 1, MS(19));
    struct core_action stop = *rig_find(rig, CORE_ACTION_REVOKE);
    rig->answers = true;
    rig_run(rig, SECONDS(10) + MS(10)); /* given up and resumed */
    struct core_event late = {
        .kind = CORE_EVENT_SUSPENDED,
        .suspended = {.action = stop.id, .device = stop.revoke.device, .residue_bytes = 80}};
    rig_send(rig, late);
    assert_int_equal(hold_of(rig, stop.revoke.device), CORE_HOLD_HELD);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_resting, 1);
}

static void stop_ends_at_its_cap_and_the_job_has_its_turn(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = spec_of(1, 4, FREEZE);
    spec.stopped_cap_ns = SECONDS(3);
    start(rig, spec);
    uint64_t stopped_ns = rig->now_ns;
    for (int i = 0; i < 29; i++) { /* a load that stays */
        rig_danger(rig, 1, MS(19));
        rig_run(rig, MS(100));
    }
    assert_int_equal(rig->total[CORE_ACTION_RESUME], 0);
    rig_danger(rig, 1, MS(19));
    rig_run(rig, MS(100));
    assert_int_equal(rig->now_ns, stopped_ns + SECONDS(3));
    assert_int_equal(rig->total[CORE_ACTION_RESUME], 4);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_RESUME, 0, 1).reason,
                     CORE_REASON_STOPPED_TOO_LONG);
    rig_run(rig, MS(10));
    for (int i = 0; i < 29; i++) { /* at work for as long as it stood still */
        rig_danger(rig, 1, MS(19));
        assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 0);
        rig_run(rig, MS(100));
    }
    rig_run(rig, MS(110));
    rig_danger(rig, 1, MS(19));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_SUSPENDED);
}

static void memory_that_a_pause_set_free_is_cleared_before_the_job_goes_on(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 4, PAUSE));
    rig_danger(rig, 1, MS(19));
    rig_run(rig, MS(10));
    assert_int_equal(rig_device_view(rig, 1).residue_bytes, 30);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED,
                                      .endpoint_spec = {.endpoint = 2,
                                                        .slo_ns = MS(20),
                                                        .devices_min = 1,
                                                        .devices_max = 1,
                                                        .kinds_mask = 1,
                                                        .memory_bytes = 60}});
    rig_run(rig, MS(100));
    assert_int_equal(core_instance_find(rig->core, 2, 1), CORE_INSTANCE_READY);
    assert_int_equal(rig_device_view(rig, 1).memory_used_bytes, 100);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_LEASE_PAUSED, .lease = {.lease = 1}});
    assert_int_equal(rig_count(rig, CORE_ACTION_REMOVE), 1);
    assert_int_equal(rig_count(rig, CORE_ACTION_RESUME), 0); /* nobody goes on alone */
    rig_run(rig, MS(20));
    assert_int_equal(rig->total[CORE_ACTION_RESUME], 4);
}

static void more_left_in_memory_than_there_is_room_for_undoes_the_stop(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 1, PAUSE));
    rig->answers = false;
    rig_danger(rig, 1, MS(19));
    struct core_action stop = *rig_find(rig, CORE_ACTION_REVOKE);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_SUSPENDED,
                                      .suspended = {.action = stop.id,
                                                    .device = stop.revoke.device,
                                                    .residue_bytes = 91}});
    assert_int_equal(rig_count(rig, CORE_ACTION_RESUME), 1);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_RESUME, 0, 1).reason,
                     CORE_REASON_NO_DEVICE_MEMORY);
}

/* Requests may run for a minute; the holder goes on after the one that runs. */
static void job_waits_for_a_long_batch_before_it_goes_on(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 1, FREEZE));
    rig_danger(rig, 1, MS(19));
    rig_run(rig, MS(10));
    uint64_t device = rig_device_view(rig, 1).hold == CORE_HOLD_SUSPENDED ? 1 : 0;
    for (uint64_t i = 2; i <= 4 && device == 0; i++) {
        device = rig_device_view(rig, i).hold == CORE_HOLD_SUSPENDED ? i : 0;
    }
    rig->answers = false;
    rig_run(rig, SECONDS(10));
    assert_int_equal(hold_of(rig, device), CORE_HOLD_RESUMING);
    for (int i = 0; i < 60; i++) {
        rig_sample(rig, device, MS(500), MS(500));
        rig_run(rig, MS(500));
    }
    assert_int_equal(hold_of(rig, device), CORE_HOLD_RESUMING);
    rig_run(rig, SECONDS(20)); /* nothing runs there any more, and still no answer */
    assert_int_not_equal(hold_of(rig, device), CORE_HOLD_RESUMING);
    assert_int_equal(rig_lease_view(rig, 1).reason, CORE_REASON_ACTION_LOST);
}

static void stopped_job_is_cancelled_only_after_it_goes_on(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 2, FREEZE | NOTICE));
    rig_danger(rig, 1, MS(19));
    rig_run(rig, MS(10));
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
    assert_int_equal(rig_count(rig, CORE_ACTION_RESUME), 2);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 0);
    rig->answers = false;
    rig_run(rig, MS(5));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_ENDING);
    const struct core_action *notice = rig_find(rig, CORE_ACTION_REVOKE);
    assert_int_equal(notice->revoke.rung, CORE_RUNG_NOTICE);
    assert_int_equal(notice->revoke.deadline_ns, rig->now_ns + SECONDS(30)); /* all of it */
}

static void pause_taken_back_while_stopped_changes_nothing(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 2, FREEZE));
    rig_danger(rig, 1, MS(19));
    rig_run(rig, MS(10));
    rig_lease_event(rig, CORE_EVENT_LEASE_PAUSED, 1);
    rig_lease_event(rig, CORE_EVENT_LEASE_RESUMED, 1);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig->total[CORE_ACTION_VERIFY], 0);
}

static void device_lost_from_a_stopped_gang_ends_its_run(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 2, FREEZE | NOTICE));
    rig_danger(rig, 1, MS(19));
    rig_run(rig, MS(10));
    rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, 1);
    assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.rung, CORE_RUNG_NONE);
    assert_int_equal(rig_count(rig, CORE_ACTION_RESUME), 1);
    rig_run(rig, MS(20));
    assert_int_equal(rig_explanation(rig, CORE_WHAT_REVOKE, 0, 1).reason,
                     CORE_REASON_BELOW_MINIMUM);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).runs, 2); /* on the two others */
}

static void job_that_does_not_go_on_is_asked_to_let_go(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 1, FREEZE | NOTICE));
    rig_danger(rig, 1, MS(19));
    rig_run(rig, MS(10));
    rig->answers = false;
    rig_run(rig, SECONDS(5));
    assert_int_equal(rig->total[CORE_ACTION_RESUME], 1);
    rig_run(rig, SECONDS(10));
    assert_int_equal(hold_of(rig, 1), CORE_HOLD_REVOKING);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_DRAINING);
    rig_run(rig, SECONDS(30));
    assert_int_equal(rig->total[CORE_ACTION_KILL], 1);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig->total[CORE_ACTION_QUARANTINE], 1);
}

static void job_that_ends_while_it_is_stopped_gives_its_devices_back(void **state)
{
    struct rig *rig = *state;
    start(rig, spec_of(1, 2, FREEZE));
    uint64_t run = rig_lease_view(rig, 1).run;
    rig_danger(rig, 1, MS(19));
    rig_run(rig, MS(10));
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_JOB_EXITED,
                                      .job_exited = {.lease = 1, .generation = run}});
    rig_run(rig, MS(20));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_ENDED);
    assert_int_equal(hold_of(rig, 1), CORE_HOLD_NONE);
}

/* ---- a restart ---- */

static void restore(struct rig *rig, uint64_t device, enum core_rung stopped, uint64_t for_ns)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_RESTORED_GRANT,
                                      .restored_grant = {.lease = 1,
                                                         .device = device,
                                                         .generation = 10 + device,
                                                         .alive = true,
                                                         .stopped = stopped,
                                                         .stopped_ns = for_ns,
                                                         .residue_bytes = 80}});
}

static struct rig *restarted(void)
{
    struct rig *rig = rig_create(NULL);
    rig->now_ns = SECONDS(1000);
    for (uint64_t device = 1; device <= 2; device++) {
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                          .device_added = {.device = device, .memory_bytes = 100}});
    }
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_RESTORED_LEASE,
                                      .lease_spec = spec_of(1, 2, FREEZE)});
    return rig;
}

static void gang_found_stopped_by_a_restart_goes_on_once_all_is_told(void **state)
{
    (void)state;
    struct rig *rig = restarted();
    restore(rig, 1, CORE_RUNG_FREEZE, SECONDS(20));
    restore(rig, 2, CORE_RUNG_FREEZE, SECONDS(20));
    assert_int_equal(hold_of(rig, 1), CORE_HOLD_SUSPENDED);
    assert_int_equal(rig_device_view(rig, 1).deadline_ns, rig->now_ns + SECONDS(40));
    assert_int_equal(rig->total[CORE_ACTION_RESUME], 0);
    rig_reconcile(rig); /* nobody needs its devices */
    assert_int_equal(rig_count(rig, CORE_ACTION_RESUME), 2);
    rig_run(rig, MS(10));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    rig_destroy(rig);
}

static void gang_found_half_stopped_goes_on(void **state)
{
    (void)state;
    struct rig *rig = restarted();
    restore(rig, 1, CORE_RUNG_NONE, 0);
    restore(rig, 2, CORE_RUNG_FREEZE, SECONDS(100)); /* long past its cap */
    assert_int_equal(rig->total[CORE_ACTION_RESUME], 0);
    rig_reconcile(rig);
    assert_int_equal(rig->total[CORE_ACTION_RESUME], 1);
    rig_run(rig, MS(10));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig_lease_view(rig, 1).devices, 2);
    rig_destroy(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(instances_rest_beside_a_job_and_serve_while_it_is_stopped),
        TEST(load_that_ends_lets_the_gang_go_on_with_its_old_tokens),
        TEST(one_silent_rank_makes_the_stop_fail_and_the_others_go_on),
        TEST(refused_stop_leaves_the_job_at_work),
        TEST(late_answer_to_a_stop_changes_nothing),
        TEST(stop_ends_at_its_cap_and_the_job_has_its_turn),
        TEST(memory_that_a_pause_set_free_is_cleared_before_the_job_goes_on),
        TEST(more_left_in_memory_than_there_is_room_for_undoes_the_stop),
        TEST(job_waits_for_a_long_batch_before_it_goes_on),
        TEST(stopped_job_is_cancelled_only_after_it_goes_on),
        TEST(pause_taken_back_while_stopped_changes_nothing),
        TEST(device_lost_from_a_stopped_gang_ends_its_run),
        TEST(job_that_does_not_go_on_is_asked_to_let_go),
        TEST(job_that_ends_while_it_is_stopped_gives_its_devices_back),
        cmocka_unit_test(gang_found_stopped_by_a_restart_goes_on_once_all_is_told),
        cmocka_unit_test(gang_found_half_stopped_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
