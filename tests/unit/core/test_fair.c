/* test_fair.c: server/core/fair.c, queue.c, growth.c and evict.c: shares of teams, quotas lent and
 * given back, priority within a team. */
#include "tests/unit/core/rig.h"

static int setup(void **state)
{
    struct core_config config;
    core_config_init(&config);
    config.usage_half_life_ns = SECONDS(3600);
    struct rig *rig = rig_create(&config);
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

static struct core_lease_spec team_spec(uint64_t lease, uint64_t team, uint32_t min, uint32_t max)
{
    struct core_lease_spec spec = rig_lease_spec(lease, min, max);
    spec.team = team;
    return spec;
}

static void request(struct rig *rig, uint64_t lease, uint64_t team, uint32_t min, uint32_t max)
{
    rig_request(rig, team_spec(lease, team, min, max));
}

static void request_urgent(struct rig *rig, uint64_t lease, uint64_t team, uint32_t min,
                           int32_t priority)
{
    struct core_lease_spec spec = team_spec(lease, team, min, min);
    spec.priority = priority;
    rig_request(rig, spec);
}

/* An outside job: told by notice, and free to take all of it. */
static void request_outside(struct rig *rig, uint64_t lease, uint64_t team, uint32_t min,
                            int32_t priority)
{
    struct core_lease_spec spec = team_spec(lease, team, min, min);
    spec.in_process = false;
    spec.priority = priority;
    rig_request(rig, spec);
    rig_run(rig, MS(100));
}

static void end(struct rig *rig, uint64_t lease)
{
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, lease);
    rig_run(rig, MS(50));
}

static uint32_t held(struct rig *rig, uint64_t lease)
{
    return rig_lease_view(rig, lease).devices;
}

static uint32_t team_held(struct rig *rig, uint64_t team)
{
    return rig_team_view(rig, team).devices[0];
}

static void checkpoint(struct rig *rig, uint64_t lease, uint64_t step)
{
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_LEASE_PROGRESS,
                                 .lease_progress = {.lease = lease,
                                                    .generation = rig_lease_view(rig, lease).run,
                                                    .step = step,
                                                    .checkpointed_step = step}});
}

/* ---- shares ---- */

static void backlog(struct rig *rig, uint64_t first, uint64_t team)
{
    for (uint64_t lease = first; lease < first + 8; lease++) {
        request(rig, lease, team, 1, 1);
    }
}

static void teams_of_one_weight_share_what_comes_free(void **state)
{
    struct rig *rig = *state;
    request(rig, 1, 9, 4, 4);
    backlog(rig, 10, 1); /* all of team 1 came first */
    backlog(rig, 20, 2);
    end(rig, 1);
    assert_int_equal(team_held(rig, 1), 2);
    assert_int_equal(team_held(rig, 2), 2);
}

static void shares_follow_the_weights(void **state)
{
    struct rig *rig = *state;
    rig_team(rig, 1, 1, 0);
    rig_team(rig, 2, 3, 0);
    request(rig, 1, 9, 4, 4);
    backlog(rig, 10, 1);
    backlog(rig, 20, 2);
    end(rig, 1);
    assert_int_equal(team_held(rig, 1), 1);
    assert_int_equal(team_held(rig, 2), 3);
}

static void who_had_much_of_late_gets_less_for_a_while(void **state)
{
    struct rig *rig = *state;
    request(rig, 1, 1, 4, 4);
    rig_run(rig, SECONDS(4 * 3600));
    backlog(rig, 10, 1);
    backlog(rig, 20, 2);
    end(rig, 1);
    assert_int_equal(team_held(rig, 2), 4); /* four times 1.44 half-lives outweigh four to come */
    rig_run(rig, SECONDS(4 * 3600));
    for (uint64_t lease = 20; lease < 24; lease++) {
        end(rig, lease);
    }
    assert_int_equal(team_held(rig, 1), 4);
}

static void elastic_leases_of_two_teams_come_to_equal_parts_and_stay(void **state)
{
    struct rig *rig = *state;
    request(rig, 1, 1, 1, 4);
    rig_run(rig, SECONDS(10));
    assert_int_equal(held(rig, 1), 4);
    request(rig, 2, 2, 1, 4);
    rig_run(rig, SECONDS(60));
    assert_int_equal(held(rig, 1), 2);
    assert_int_equal(held(rig, 2), 2);
    uint64_t revokes = rig->total[CORE_ACTION_REVOKE];
    rig_run(rig, SECONDS(1800));
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], revokes);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_REVOKE, 0, 2).reason, CORE_REASON_FAIR_SHARE);
}

static void elastic_leases_of_one_team_are_not_moved_for_fairness(void **state)
{
    struct rig *rig = *state;
    request(rig, 1, 1, 1, 4);
    rig_run(rig, SECONDS(10));
    request(rig, 2, 1, 1, 4);
    rig_run(rig, SECONDS(600));
    assert_int_equal(held(rig, 1), 3);
    assert_int_equal(held(rig, 2), 1);
}

/* Many small minimums of one team leave the other its share of growth. */
static void growth_of_who_has_less_goes_before_minimums_of_who_has_more(void **state)
{
    struct rig *rig = *state;
    request(rig, 1, 9, 4, 4);
    request(rig, 2, 2, 1, 4);
    backlog(rig, 10, 1);
    end(rig, 1);
    rig_run(rig, SECONDS(10));
    assert_int_equal(team_held(rig, 1), 2);
    assert_int_equal(held(rig, 2), 2);
    for (uint64_t lease = 10; lease < 14; lease++) { /* what comes free does not go astray either */
        end(rig, lease);
        rig_run(rig, SECONDS(10));
        assert_int_equal(team_held(rig, 1), 2);
        assert_int_equal(held(rig, 2), 2);
    }
}

/* A minimum may take surplus, but not of a team that has no more than its own. */
static void minimum_takes_no_surplus_from_who_has_less(void **state)
{
    struct rig *rig = *state;
    request(rig, 1, 1, 2, 2);
    rig_run(rig, SECONDS(600)); /* of use that makes the other one go before it */
    request(rig, 2, 2, 1, 2);
    rig_run(rig, SECONDS(10));
    request(rig, 3, 1, 1, 1);
    rig_run(rig, SECONDS(600));
    assert_int_equal(held(rig, 2), 2);
    assert_int_equal(held(rig, 3), 0);
    request(rig, 4, 2, 1, 1); /* within a team it does */
    rig_run(rig, SECONDS(10));
    assert_int_equal(held(rig, 2), 1);
    assert_int_equal(held(rig, 4), 1);
}

/* ---- quotas ---- */

static void within_its_quota_a_team_goes_first_whatever_the_priorities(void **state)
{
    struct rig *rig = *state;
    rig_team(rig, 1, 100, 0);
    rig_team(rig, 2, 1, 2);
    request(rig, 1, 9, 4, 4);
    request_urgent(rig, 2, 1, 2, 1000);
    request_urgent(rig, 3, 2, 2, -1000);
    request_urgent(rig, 4, 1, 2, 1000);
    assert_int_equal(rig_lease_view(rig, 3).position, 1);
    end(rig, 1);
    assert_int_equal(held(rig, 3), 2);
    assert_int_equal(held(rig, 2), 2);
}

static void idle_quota_is_lent_and_comes_back_with_notice(void **state)
{
    struct rig *rig = *state;
    rig_team(rig, 1, 1, 3);
    rig_team(rig, 2, 1, 0);
    for (uint64_t lease = 10; lease < 14; lease++) {
        request_outside(rig, lease, 2, 1, 0);
        assert_int_equal(held(rig, lease), 1);
    }
    rig_run(rig, SECONDS(100));
    rig->release_ns = SECONDS(29);
    request(rig, 1, 1, 2, 2);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 2);
    const struct core_action *revoke = rig_find(rig, CORE_ACTION_REVOKE);
    assert_int_equal(revoke->revoke.rung, CORE_RUNG_NOTICE);
    assert_int_equal(revoke->revoke.reason, CORE_REASON_QUOTA_RETURNED);
    assert_int_equal(revoke->revoke.deadline_ns, rig->now_ns + SECONDS(30));
    rig_run(rig, SECONDS(30));
    assert_int_equal(held(rig, 1), 2);
    assert_int_equal(team_held(rig, 2), 2);
    rig_run(rig, SECONDS(600)); /* and those who had to go do not come back for it */
    assert_int_equal(held(rig, 1), 2);
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 2);
}

static void lease_goes_beyond_a_quota_of_kinds_that_are_not_there(void **state)
{
    struct rig *rig = *state;
    struct core_event event = {.kind = CORE_EVENT_TEAM_CHANGED};
    event.team_spec = (struct core_team_spec){.team = 1, .weight = 1, .quota = {[1] = 2}};
    rig_send(rig, event);
    event.kind = CORE_EVENT_DEVICE_ADDED;
    event.device_added = (struct core_device_spec){.device = 5, .kind = 1};
    rig_send(rig, event);
    struct core_lease_spec spec = team_spec(1, 1, 2, 2);
    spec.kinds_mask = 3;
    rig_request(rig, spec);
    rig_run(rig, MS(100));
    assert_int_equal(held(rig, 1), 2);
}

static void growth_within_quota_takes_lent_devices_back(void **state)
{
    struct rig *rig = *state;
    rig_team(rig, 1, 1, 3);
    request(rig, 10, 2, 1, 4);
    rig_run(rig, SECONDS(10));
    request(rig, 1, 1, 1, 4);
    rig_run(rig, SECONDS(30));
    assert_int_equal(held(rig, 1), 3);
    assert_int_equal(held(rig, 10), 1);
    for (uint64_t lease = 11; lease < 13; lease++) {
        request_outside(rig, lease, 2, 1, 0);
    }
    rig_run(rig, SECONDS(600));
    assert_int_equal(held(rig, 1), 3);
}

static void growth_within_quota_ends_leases_of_borrowers_too(void **state)
{
    struct rig *rig = *state;
    rig_team(rig, 1, 1, 3);
    for (uint64_t lease = 10; lease < 14; lease++) {
        request_outside(rig, lease, 2, 1, 0);
    }
    request(rig, 1, 1, 1, 4);
    rig_run(rig, SECONDS(120));
    assert_int_equal(held(rig, 1), 3);
    assert_int_equal(team_held(rig, 2), 1);
}

static void who_keeps_within_quota_is_not_touched_by_others(void **state)
{
    struct rig *rig = *state;
    rig_team(rig, 1, 1, 2);
    rig_team(rig, 2, 1, 2);
    request(rig, 1, 1, 1, 2);
    request_outside(rig, 2, 2, 2, 0);
    rig_run(rig, SECONDS(10));
    request_urgent(rig, 3, 3, 1, 1000);
    rig_run(rig, SECONDS(1200));
    assert_int_equal(held(rig, 1), 2);
    assert_int_equal(held(rig, 2), 2);
    assert_int_equal(held(rig, 3), 0);
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 0);
}

/* ---- within a team ---- */

static void more_urgent_lease_preempts_a_lesser_one_of_its_team_with_full_notice(void **state)
{
    struct rig *rig = *state;
    request_outside(rig, 1, 1, 2, 5);
    request_outside(rig, 2, 1, 2, 4);
    rig_run(rig, SECONDS(10));
    request_urgent(rig, 3, 1, 1, 5);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 2); /* the gang goes as a whole */
    const struct core_action *revoke = rig_find(rig, CORE_ACTION_REVOKE);
    assert_int_equal(revoke->revoke.lease, 2);
    assert_int_equal(revoke->revoke.reason, CORE_REASON_PRIORITY);
    assert_int_equal(revoke->revoke.deadline_ns, rig->now_ns + SECONDS(30));
    rig_run(rig, SECONDS(10));
    assert_int_equal(held(rig, 3), 1);
    assert_int_equal(rig_lease_view(rig, 2).preemptions, 1);
    assert_int_equal(rig_lease_view(rig, 2).failures, 0);
}

/* LP-2, second variant. */
static void equals_never_evict_each_other(void **state)
{
    struct rig *rig = *state;
    request_outside(rig, 1, 1, 4, 5);
    request_urgent(rig, 2, 1, 4, 5);
    request_urgent(rig, 3, 2, 4, 500);
    rig_run(rig, SECONDS(3600)); /* no age makes one preempt the other */
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 0);
}

/* LP-3 (c) */
static void nobody_is_evicted_for_a_plan_that_would_still_not_fit(void **state)
{
    struct rig *rig = *state;
    request_outside(rig, 1, 1, 2, 5);
    request_outside(rig, 2, 1, 1, 0);
    rig_run(rig, SECONDS(10));
    request_urgent(rig, 3, 1, 3, 4);
    rig_run(rig, SECONDS(600));
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 0);
}

static void no_more_is_evicted_than_is_needed(void **state)
{
    struct rig *rig = *state;
    request_outside(rig, 1, 1, 1, 0);
    request_outside(rig, 2, 1, 3, 1);
    rig_run(rig, SECONDS(10));
    request_urgent(rig, 3, 1, 2, 5); /* lease 1 alone would not do, lease 2 alone does */
    rig_run(rig, SECONDS(10));
    assert_int_equal(held(rig, 3), 2);
    assert_int_equal(held(rig, 1), 1);
    assert_int_equal(rig_lease_view(rig, 1).preemptions, 0);
}

static void cheaper_victims_go_first(void **state)
{
    struct rig *rig = *state;
    for (uint64_t lease = 1; lease <= 4; lease++) {
        struct core_lease_spec spec = team_spec(lease, 1, 1, 1);
        spec.in_process = false;
        spec.heartbeats = lease == 4;
        rig_request(rig, spec);
    }
    rig_run(rig, SECONDS(30));
    checkpoint(rig, 2, 1);
    checkpoint(rig, 3, 1);
    rig_run(rig, SECONDS(30));
    checkpoint(rig, 4, 1);
    checkpoint(rig, 3, 2);
    static const uint64_t order[] = {3, 4, 2, 1};
    rig_run(rig, SECONDS(30));
    checkpoint(rig, 3, 3);
    for (uint64_t urgent = 0; urgent < 4; urgent++) {
        request_urgent(rig, 10 + urgent, 1, 1, 10);
        assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.lease, order[urgent]);
        rig_run(rig, SECONDS(1));
    }
}

static void lost_heartbeat_makes_the_first_victim(void **state)
{
    struct rig *rig = *state;
    for (uint64_t lease = 1; lease <= 4; lease++) {
        struct core_lease_spec spec = team_spec(lease, 1, 1, 1);
        spec.in_process = false;
        spec.heartbeats = lease == 4;
        rig_request(rig, spec);
    }
    rig_run(rig, SECONDS(1));
    for (uint64_t lease = 1; lease <= 3; lease++) {
        checkpoint(rig, lease, 1);
    }
    rig_run(rig, SECONDS(100));
    assert_true(rig_lease_view(rig, 4).heartbeat_lost);
    request_urgent(rig, 10, 1, 1, 10);
    assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.lease, 4);
}

static void preemption_just_after_a_checkpoint_earns_a_place_ahead(void **state)
{
    struct rig *rig = *state;
    request_outside(rig, 1, 1, 2, 0);
    request_outside(rig, 2, 1, 2, 0);
    rig_run(rig, SECONDS(600));
    checkpoint(rig, 1, 1);
    checkpoint(rig, 2, 1);
    rig_run(rig, SECONDS(300));
    checkpoint(rig, 2, 2);
    request_urgent(rig, 3, 1, 4, 10);
    rig_run(rig, SECONDS(10));
    assert_int_equal(held(rig, 3), 4);
    assert_int_equal(rig_lease_view(rig, 1).credit_ns, SECONDS(30)); /* half as fresh as can be */
    assert_int_equal(rig_lease_view(rig, 2).credit_ns, SECONDS(60));
    request(rig, 4, 1, 2, 2);
    assert_int_equal(rig_lease_view(rig, 2).position, 1);
    assert_int_equal(rig_lease_view(rig, 1).position, 2);
    assert_int_equal(rig_lease_view(rig, 4).position, 3);
}

/* LP-2: the evicted one does not come back in front and is evicted again, without end. */
static void evicted_lease_comes_back_once_there_is_room_and_no_earlier(void **state)
{
    struct rig *rig = *state;
    request_outside(rig, 1, 1, 3, 0);
    rig_run(rig, SECONDS(10));
    request_urgent(rig, 2, 1, 2, 1);
    rig_run(rig, SECONDS(3600));
    assert_int_equal(held(rig, 2), 2);
    assert_int_equal(rig_lease_view(rig, 1).preemptions, 1);
    end(rig, 2);
    assert_int_equal(held(rig, 1), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(teams_of_one_weight_share_what_comes_free),
        TEST(shares_follow_the_weights),
        TEST(who_had_much_of_late_gets_less_for_a_while),
        TEST(elastic_leases_of_two_teams_come_to_equal_parts_and_stay),
        TEST(elastic_leases_of_one_team_are_not_moved_for_fairness),
        TEST(growth_of_who_has_less_goes_before_minimums_of_who_has_more),
        TEST(minimum_takes_no_surplus_from_who_has_less),
        TEST(within_its_quota_a_team_goes_first_whatever_the_priorities),
        TEST(idle_quota_is_lent_and_comes_back_with_notice),
        TEST(lease_goes_beyond_a_quota_of_kinds_that_are_not_there),
        TEST(growth_within_quota_takes_lent_devices_back),
        TEST(growth_within_quota_ends_leases_of_borrowers_too),
        TEST(who_keeps_within_quota_is_not_touched_by_others),
        TEST(more_urgent_lease_preempts_a_lesser_one_of_its_team_with_full_notice),
        TEST(equals_never_evict_each_other),
        TEST(nobody_is_evicted_for_a_plan_that_would_still_not_fit),
        TEST(no_more_is_evicted_than_is_needed),
        TEST(cheaper_victims_go_first),
        TEST(lost_heartbeat_makes_the_first_victim),
        TEST(preemption_just_after_a_checkpoint_earns_a_place_ahead),
        TEST(evicted_lease_comes_back_once_there_is_room_and_no_earlier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
