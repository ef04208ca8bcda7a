/* test_lease.c: server/core/lease.c and hold.c: what becomes of a lease and of its devices. */
#include "tests/unit/core/rig.h"

static int setup(void **state)
{
    struct rig *rig = rig_create(NULL);
    for (uint64_t device = 1; device <= 4; device++) {
        rig_device(rig, device);
    }
    rig_reconcile(rig);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

/* A lease that holds exactly these many, with its grants done. */
static void run_lease(struct rig *rig, uint64_t lease, uint32_t min, uint32_t max)
{
    rig_lease(rig, lease, min, max);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, lease).state, CORE_LEASE_RUNNING);
}

static void answer(struct rig *rig, enum core_event_kind kind, const struct core_action *action)
{
    rig_send(rig, (struct core_event){.kind = kind,
                                      .answer = {.action = action->id,
                                                 .device = action->kind == CORE_ACTION_GRANT
                                                               ? action->grant.device
                                                               : action->revoke.device}});
}

static void released(struct rig *rig, uint64_t lease, uint64_t device, uint64_t generation)
{
    rig_send(rig,
             (struct core_event){
                 .kind = CORE_EVENT_LEASE_RELEASED,
                 .lease_released = {.lease = lease, .device = device, .generation = generation}});
}

static void gang_is_granted_whole_in_one_step(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 3, 3);
    assert_int_equal(rig_count(rig, CORE_ACTION_GRANT), 3);
    const struct core_action *first = rig_find(rig, CORE_ACTION_GRANT);
    assert_int_equal(first->grant.lease, 1);
    assert_int_equal(first->grant.run, first->grant.token.generation);
    assert_true(first->grant.yield);
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_GRANTING);
    rig_run(rig, MS(5));
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_HELD);
}

static void tokens_are_fresh_and_cannot_be_guessed_from_another(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 3, 3);
    struct core_token token[3];
    for (size_t i = 0, found = 0; i < rig->count; i++) {
        if (rig->actions[i].kind == CORE_ACTION_GRANT) {
            token[found++] = rig->actions[i].grant.token;
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(token[i].store_epoch, 7);
        assert_int_equal(token[i].generation, i + 1);
        assert_int_not_equal(token[i].secret, token[(i + 1) % 3].secret);
        assert_int_not_equal(token[i].secret, 0);
    }
}

static void revoked_device_stays_taken_until_it_is_verified(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 1, 4);
    rig->answers = false;
    rig_lease(rig, 2, 2, 2); /* takes two of the elastic part */
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 2);
    assert_int_equal(rig_count(rig, CORE_ACTION_GRANT), 0);
    struct core_action revoke = *rig_find(rig, CORE_ACTION_REVOKE);
    uint64_t device = revoke.revoke.device;
    assert_int_equal(rig_device_view(rig, device).hold, CORE_HOLD_REVOKING);
    assert_int_equal(rig_device_view(rig, device).promised, 2);
    answer(rig, CORE_EVENT_REVOKE_ACKNOWLEDGED, &revoke);
    struct core_action verify = *rig_find(rig, CORE_ACTION_VERIFY);
    assert_int_equal(rig_device_view(rig, device).hold, CORE_HOLD_VERIFYING);
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_RELEASE_VERIFIED,
                      .verified = {.action = verify.id, .device = device, .gone = true}});
    assert_int_equal(rig_device_view(rig, device).hold, CORE_HOLD_NONE);
    assert_int_equal(rig_count(rig, CORE_ACTION_GRANT), 0); /* the other one is not back yet */
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_WAITING);
}

static void revoke_past_its_deadline_kills_and_past_the_bound_quarantines(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 2, 2);
    rig->answers = false;
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 2);
    uint64_t deadline_ns = rig_find(rig, CORE_ACTION_REVOKE)->revoke.deadline_ns;
    assert_int_equal(deadline_ns, rig->now_ns + SECONDS(5));
    rig_run(rig, SECONDS(5) - 1);
    assert_int_equal(rig->total[CORE_ACTION_KILL], 0);
    rig_run(rig, 1);
    assert_int_equal(rig->total[CORE_ACTION_KILL], 1); /* of the job, not of each device */
    assert_int_equal(rig_device_view(rig, 2).hold, CORE_HOLD_KILLING);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig->total[CORE_ACTION_QUARANTINE], 2);
    assert_int_equal(rig_device_view(rig, 1).health, CORE_HEALTH_QUARANTINED);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_ENDED);
}

static void killed_job_gives_its_devices_back_after_a_look(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 2, 2);
    rig->answers = false;
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
    rig_run(rig, SECONDS(5));
    struct core_action kill = *rig_find(rig, CORE_ACTION_KILL);
    answer(rig, CORE_EVENT_ACTION_DONE, &kill);
    assert_int_equal(rig_count(rig, CORE_ACTION_VERIFY), 2);
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_VERIFYING);
}

static void former_holder_found_alive_quarantines_the_device(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 1, 1);
    rig->answers = false;
    released(rig, 1, 0, rig_lease_view(rig, 1).run);
    struct core_action verify = *rig_find(rig, CORE_ACTION_VERIFY);
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_RELEASE_VERIFIED,
                      .verified = {.action = verify.id, .device = verify.device.device}});
    assert_non_null(rig_find(rig, CORE_ACTION_QUARANTINE));
    rig_lease(rig, 2, 4, 4);
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_WAITING);
    rig->answers = true;
    rig_device_event(rig, CORE_EVENT_DEVICE_RECOVERED, verify.device.device);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_RUNNING);
}

static void late_answers_and_old_tokens_change_nothing(void **state)
{
    struct rig *rig = *state;
    rig->answers = false;
    rig_lease(rig, 1, 1, 1);
    struct core_action grant = *rig_find(rig, CORE_ACTION_GRANT);
    answer(rig, CORE_EVENT_ACTION_DONE, &grant);
    released(rig, 1, 0, grant.grant.token.generation);
    struct core_action verify = *rig_find(rig, CORE_ACTION_VERIFY);
    rig_send(rig,
             (struct core_event){
                 .kind = CORE_EVENT_RELEASE_VERIFIED,
                 .verified = {.action = verify.id, .device = verify.device.device, .gone = true}});
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_ENDED);
    rig_lease(rig, 1, 1, 1); /* the same name again */
    struct core_action second = *rig_find(rig, CORE_ACTION_GRANT);
    assert_int_equal(second.grant.device, grant.grant.device);
    answer(rig, CORE_EVENT_ACTION_FAILED, &grant);     /* the old grant's answer */
    released(rig, 1, 0, grant.grant.token.generation); /* the old holder's release */
    released(rig, 1, grant.grant.device, grant.grant.token.generation);
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_JOB_EXITED,
                      .job_exited = {.lease = 1, .generation = grant.grant.token.generation}});
    rig_send(rig,
             (struct core_event){
                 .kind = CORE_EVENT_RELEASE_VERIFIED,
                 .verified = {.action = verify.id, .device = verify.device.device, .gone = true}});
    assert_int_equal(rig_device_view(rig, grant.grant.device).hold, CORE_HOLD_GRANTING);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
}

static void owners_pause_returns_all_devices_until_resumed(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 2, 3);
    rig_lease_event(rig, CORE_EVENT_LEASE_PAUSED, 1);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_DRAINING);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_PAUSED);
    assert_int_equal(rig_lease_view(rig, 1).reason, CORE_REASON_OWNER_PAUSED);
    rig_run(rig, SECONDS(60));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_PAUSED);
    rig_lease_event(rig, CORE_EVENT_LEASE_RESUMED, 1);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).devices, 3);
    assert_int_equal(rig_lease_view(rig, 1).runs, 2);
}

static void pause_taken_back_while_draining_runs_again(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 2, 2);
    rig_lease_event(rig, CORE_EVENT_LEASE_PAUSED, 1);
    rig_lease_event(rig, CORE_EVENT_LEASE_RESUMED, 1);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
}

static void gang_below_its_minimum_gives_back_the_rest_and_waits(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 4, 4);
    rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, 3);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_DRAINING);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 4); /* 1 gone already, 3 asked back */
    rig_run(rig, SECONDS(1));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_WAITING);
    assert_int_equal(rig_lease_view(rig, 1).devices, 0);
    rig_device_event(rig, CORE_EVENT_DEVICE_RECOVERED, 3);
    rig_run(rig, SECONDS(1));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
}

static void elastic_lease_goes_on_without_a_failed_device(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 2, 4);
    rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, 3);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 1);
    assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.rung, CORE_RUNG_NONE);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig_lease_view(rig, 1).devices, 3);
}

static void failed_grant_returns_the_gang_and_is_tried_again_later(void **state)
{
    struct rig *rig = *state;
    rig->answers = false;
    rig_lease(rig, 1, 2, 2);
    struct core_action grant = *rig_find(rig, CORE_ACTION_GRANT);
    rig->answers = true;
    answer(rig, CORE_EVENT_ACTION_FAILED, &grant);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_DRAINING);
    rig_run(rig, MS(500));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_WAITING);
    rig_run(rig, SECONDS(1));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
}

static void unanswered_grant_is_asked_back(void **state)
{
    struct rig *rig = *state;
    rig->answers = false;
    rig_lease(rig, 1, 1, 1);
    rig->answers = true;
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.reason, CORE_REASON_ACTION_LOST);
    rig_run(rig, SECONDS(5));
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_HELD);
}

static void time_limit_expires_a_lease(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 1, 1);
    spec.until_ns = rig->now_ns + SECONDS(30);
    rig_request(rig, spec);
    rig_run(rig, SECONDS(30) - 1);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    rig_run(rig, MS(50));
    assert_int_equal(rig->total[CORE_ACTION_EXPIRE], 1);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_ENDED);
    assert_int_equal(rig_lease_view(rig, 1).reason, CORE_REASON_EXPIRED);
}

static void lowered_maximum_gives_devices_back_and_an_unmet_minimum_is_refused(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 1, 3);
    run_lease(rig, 2, 1, 1);
    struct core_event resize = {.kind = CORE_EVENT_LEASE_RESIZED,
                                .lease_resized = {.lease = 1, .devices_min = 1, .devices_max = 1}};
    rig_send(rig, resize);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 2);
    assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.reason, CORE_REASON_RESIZED);
    resize.lease_resized.devices_min = 2;
    resize.lease_resized.devices_max = 4;
    rig_send(rig, resize);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_BELOW_MINIMUM);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).devices, 1);
}

static void holder_gives_back_one_device_early(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 1, 2);
    released(rig, 1, 2, rig_device_view(rig, 2).generation);
    assert_int_equal(rig_device_view(rig, 2).hold, CORE_HOLD_VERIFYING);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    released(rig, 1, 1, rig_device_view(rig, 2).generation); /* not that device's token */
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_HELD);
}

static void crashed_job_that_wants_to_run_again_waits_in_the_queue(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 2, 2);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_JOB_EXITED,
                                      .job_exited = {.lease = 1,
                                                     .generation = rig_lease_view(rig, 1).run,
                                                     .again = true}});
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_DRAINING);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig_lease_view(rig, 1).runs, 2);
}

static void progress(struct rig *rig, uint64_t lease, uint64_t step, uint64_t checkpointed_step)
{
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_LEASE_PROGRESS,
                                 .lease_progress = {.lease = lease,
                                                    .generation = rig_lease_view(rig, lease).run,
                                                    .step = step,
                                                    .checkpointed_step = checkpointed_step}});
}

static void fails(struct rig *rig, uint64_t lease)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_JOB_EXITED,
                                      .job_exited = {.lease = lease,
                                                     .generation = rig_lease_view(rig, lease).run,
                                                     .again = true,
                                                     .failed = true}});
    rig_run(rig, SECONDS(20)); /* past any of its first waits */
}

static void job_that_fails_again_and_again_waits_longer_each_time_and_ends(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 1, 1);
    for (uint32_t failure = 1; failure <= 3; failure++) {
        fails(rig, 1);
        assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
        assert_int_equal(rig_lease_view(rig, 1).failures, failure);
        assert_true(rig_lease_view(rig, 1).since_ns >=
                    rig->now_ns - SECONDS(20) + (SECONDS(1) << (failure - 1)));
    }
    fails(rig, 1);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_ENDED);
    assert_int_equal(rig_lease_view(rig, 1).reason, CORE_REASON_RETRIES_USED);
    assert_int_equal(rig_lease_view(rig, 1).preemptions, 0);
}

static void job_that_gets_on_between_its_failures_does_not_use_up_its_retries(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 1, 1);
    for (uint64_t failure = 1; failure <= 10; failure++) {
        progress(rig, 1, failure, failure);
        fails(rig, 1);
        assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
        assert_int_equal(rig_lease_view(rig, 1).failures, 1);
    }
}

static void exit_of_a_preempted_job_is_no_failure(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 1, 4);
    rig_run(rig, SECONDS(2));
    rig->answers = false;
    rig_lease(rig, 2, 1, 1); /* one device is asked back */
    rig->answers = true;
    fails(rig, 1);
    assert_int_equal(rig_lease_view(rig, 1).failures, 0);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
}

static void lease_expires_after_its_duration_of_running_however_it_is_cut(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 1, 1);
    spec.duration_ns = SECONDS(30);
    rig_request(rig, spec);
    rig_run(rig, SECONDS(20));
    rig_lease_event(rig, CORE_EVENT_LEASE_PAUSED, 1);
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_lease_view(rig, 1).run_ns, SECONDS(20));
    rig_lease_event(rig, CORE_EVENT_LEASE_RESUMED, 1);
    rig_run(rig, SECONDS(10) - 1);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_ENDED);
    assert_int_equal(rig_lease_view(rig, 1).reason, CORE_REASON_EXPIRED);
}

static void reclaimed_device_is_asked_back_before_its_time(void **state)
{
    struct rig *rig = *state;
    run_lease(rig, 1, 1, 4);
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                                 .device_time = {.device = 4, .by_ns = rig->now_ns + SECONDS(2)}});
    const struct core_action *revoke = rig_find(rig, CORE_ACTION_REVOKE);
    assert_int_equal(revoke->revoke.device, 4);
    assert_int_equal(revoke->revoke.deadline_ns, rig->now_ns + SECONDS(2));
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_device_view(rig, 4).hold, CORE_HOLD_NONE);
    assert_int_equal(rig_lease_view(rig, 1).devices, 3);
}

static void owner_of_an_unknown_lease_is_told(void **state)
{
    struct rig *rig = *state;
    rig_lease_event(rig, CORE_EVENT_LEASE_PAUSED, 99);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_UNKNOWN);
    rig_lease(rig, 1, 2, 1);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_INVALID);
    rig_lease(rig, 1, 1, 1);
    rig_lease(rig, 1, 1, 1);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_DUPLICATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(gang_is_granted_whole_in_one_step),
        TEST(tokens_are_fresh_and_cannot_be_guessed_from_another),
        TEST(revoked_device_stays_taken_until_it_is_verified),
        TEST(revoke_past_its_deadline_kills_and_past_the_bound_quarantines),
        TEST(killed_job_gives_its_devices_back_after_a_look),
        TEST(former_holder_found_alive_quarantines_the_device),
        TEST(late_answers_and_old_tokens_change_nothing),
        TEST(owners_pause_returns_all_devices_until_resumed),
        TEST(pause_taken_back_while_draining_runs_again),
        TEST(gang_below_its_minimum_gives_back_the_rest_and_waits),
        TEST(elastic_lease_goes_on_without_a_failed_device),
        TEST(failed_grant_returns_the_gang_and_is_tried_again_later),
        TEST(unanswered_grant_is_asked_back),
        TEST(time_limit_expires_a_lease),
        TEST(lowered_maximum_gives_devices_back_and_an_unmet_minimum_is_refused),
        TEST(holder_gives_back_one_device_early),
        TEST(crashed_job_that_wants_to_run_again_waits_in_the_queue),
        TEST(job_that_fails_again_and_again_waits_longer_each_time_and_ends),
        TEST(job_that_gets_on_between_its_failures_does_not_use_up_its_retries),
        TEST(exit_of_a_preempted_job_is_no_failure),
        TEST(lease_expires_after_its_duration_of_running_however_it_is_cut),
        TEST(reclaimed_device_is_asked_back_before_its_time),
        TEST(owner_of_an_unknown_lease_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
