/* test_take.c: server/core/take.c and rung.c: who gives a device to an endpoint, and by which rung.
 */
#include "tests/unit/core/rig.h"

#include <string.h>

#define SHRINK (1u << CORE_RUNG_SHRINK)
#define FREEZE (1u << CORE_RUNG_FREEZE)
#define PAUSE (1u << CORE_RUNG_PAUSE)
#define SWAP (1u << CORE_RUNG_SWAP)
#define NOTICE (1u << CORE_RUNG_NOTICE)
#define KILL (1u << CORE_RUNG_KILL)

static int setup(void **state)
{
    struct rig *rig = rig_create(NULL);
    for (uint64_t device = 1; device <= 4; device++) {
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                          .device_added = {.device = device, .memory_bytes = 100}});
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

static void start(struct rig *rig, struct core_lease_spec spec)
{
    rig_request(rig, spec);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, spec.lease).state, CORE_LEASE_RUNNING);
}

static void start_one(struct rig *rig, uint64_t lease, uint32_t rungs)
{
    start(rig, rig_outside_spec(lease, 1, 1, rungs));
}

static void measured(struct rig *rig, uint64_t lease, enum core_rung rung, uint64_t take_ns,
                     uint64_t give_ns)
{
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_RUNG_MEASURED,
                      .rung_measured = {
                          .lease = lease, .rung = rung, .take_ns = take_ns, .give_ns = give_ns}});
}

static void checkpoint(struct rig *rig, uint64_t lease)
{
    struct core_lease_view view = rig_lease_view(rig, lease);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_LEASE_PROGRESS,
                                      .lease_progress = {.lease = lease,
                                                         .generation = view.run,
                                                         .step = view.step + 1,
                                                         .checkpointed_step = view.step + 1}});
}

/* An endpoint that needs one device, and has none: within 10 s, or at once if it is in danger. */
static void need(struct rig *rig, bool danger)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED,
                                      .endpoint_spec = {.endpoint = 1,
                                                        .slo_ns = MS(20),
                                                        .target_permille = 990,
                                                        .devices_min = danger ? 0 : 1,
                                                        .devices_max = 4,
                                                        .kinds_mask = 1,
                                                        .memory_bytes = 10}});
    if (danger) {
        rig_danger(rig, 1, MS(19));
    }
}

static const struct core_action *revoked(const struct rig *rig)
{
    const struct core_action *revoke = rig_find(rig, CORE_ACTION_REVOKE);
    assert_non_null(revoke);
    return revoke;
}

static const struct core_victim *victim(const struct core_explanation *story, uint64_t lease,
                                        enum core_rung rung)
{
    for (uint32_t i = 0; i < story->victim_count; i++) {
        if (story->victims[i].lease == lease && story->victims[i].rung == rung) {
            return &story->victims[i];
        }
    }
    fail_msg("no candidate: lease %d by %s", (int)lease, core_rung_name(rung));
    return NULL;
}

static void cheapest_rung_that_is_fast_enough_is_taken(void **state)
{
    struct rig *rig = *state;
    start_one(rig, 1, NOTICE);
    start_one(rig, 2, NOTICE | SWAP);
    start_one(rig, 3, NOTICE | PAUSE | SWAP);
    start_one(rig, 4, NOTICE);
    need(rig, false);
    assert_int_equal(revoked(rig)->revoke.rung, CORE_RUNG_PAUSE); /* 2 + 2 s, and nothing lost */
    assert_int_equal(revoked(rig)->revoke.lease, 3);
    struct core_explanation story = rig_explanation(rig, CORE_WHAT_SUSPEND, 0, 3);
    assert_int_equal(story.reason, CORE_REASON_DEMAND);
    assert_int_equal(victim(&story, 3, CORE_RUNG_PAUSE)->cost_ns, SECONDS(4));
    assert_int_equal(victim(&story, 3, CORE_RUNG_PAUSE)->take_ns, SECONDS(2));
    assert_true(victim(&story, 3, CORE_RUNG_PAUSE)->chosen);
    assert_int_equal(victim(&story, 2, CORE_RUNG_SWAP)->refused, CORE_REASON_DEARER);
    assert_int_equal(victim(&story, 1, CORE_RUNG_NOTICE)->refused, CORE_REASON_TOO_SLOW);
    char text[1024];
    core_explanation_print(&story, text, sizeof text);
    assert_non_null(strstr(text, "lease 3 on device 3 by pause time=2000.000ms cost=4000.000ms"
                                 " (chosen)"));
    assert_non_null(strstr(text, "by swap time=4000.000ms cost=8000.000ms (dearer)"));
}

static void nothing_fast_enough_means_the_fastest(void **state)
{
    struct rig *rig = *state;
    start_one(rig, 1, NOTICE);
    start_one(rig, 2, SWAP);
    start_one(rig, 3, NOTICE);
    start_one(rig, 4, NOTICE);
    measured(rig, 3, CORE_RUNG_NOTICE, SECONDS(1), SECONDS(60)); /* fast, though dear */
    need(rig, true);
    assert_int_equal(revoked(rig)->revoke.lease, 3);
    assert_int_equal(revoked(rig)->revoke.rung, CORE_RUNG_NOTICE);
}

static void idle_gang_makes_a_stop_dear(void **state)
{
    struct rig *rig = *state;
    start(rig, rig_outside_spec(1, 3, 3, FREEZE));
    start_one(rig, 2, PAUSE);
    need(rig, false);
    assert_int_equal(revoked(rig)->revoke.lease, 2); /* 4 s against two devices idle for 5 s */
}

static void gang_that_brings_all_that_is_needed_is_stopped_alone(void **state)
{
    struct rig *rig = *state;
    start_one(rig, 1, FREEZE);
    start(rig, rig_outside_spec(2, 3, 3, FREEZE));
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED,
                                      .endpoint_spec = {.endpoint = 1,
                                                        .slo_ns = MS(20),
                                                        .devices_min = 3,
                                                        .devices_max = 4,
                                                        .kinds_mask = 1}});
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 4); /* 1 is as cheap, and comes first */
    rig_run(rig, SECONDS(5));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING); /* one too many */
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_SUSPENDED);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 3);
}

static void large_gang_is_cheap_where_all_of_it_is_needed(void **state)
{
    struct rig *rig = *state;
    start(rig, rig_outside_spec(1, 3, 3, FREEZE)); /* 10 s of idle time for one, none for three */
    start_one(rig, 2, PAUSE);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED,
                                      .endpoint_spec = {.endpoint = 1,
                                                        .slo_ns = MS(20),
                                                        .devices_min = 3,
                                                        .devices_max = 4,
                                                        .kinds_mask = 1}});
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 3);
    assert_int_equal(revoked(rig)->revoke.lease, 1);
    rig_run(rig, SECONDS(2));
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_RUNNING);
    struct core_explanation story = rig_explanation(rig, CORE_WHAT_SUSPEND, 0, 1);
    assert_int_equal(victim(&story, 1, CORE_RUNG_FREEZE)->cost_ns, 3 * MS(10));
}

static void times_are_learned_by_lease_and_by_all(void **state)
{
    struct rig *rig = *state;
    rig->stop_ns = SECONDS(3);
    start_one(rig, 1, PAUSE);
    start_one(rig, 2, PAUSE);
    start_one(rig, 3, NOTICE);
    start_one(rig, 4, NOTICE);
    need(rig, false);
    assert_int_equal(revoked(rig)->revoke.lease, 1);
    rig_run(rig, SECONDS(4));
    rig_danger(rig, 1, MS(19));
    struct core_explanation story = rig_explanation(rig, CORE_WHAT_SUSPEND, 0, 2);
    assert_int_equal(story.victims[0].take_ns, SECONDS(3)); /* not the 2 s of the configuration */
}

static void time_to_start_again_is_learned_from_what_jobs_tell(void **state)
{
    struct rig *rig = *state;
    for (uint64_t lease = 1; lease <= 4; lease++) {
        start_one(rig, lease, NOTICE);
    }
    rig_run(rig, SECONDS(40));
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_SAMPLE,
                                      .device_sample = {.device = 2,
                                                        .interval_ns = SECONDS(40),
                                                        .restore_ns = SECONDS(36)}});
    checkpoint(rig, 2);
    checkpoint(rig, 3);
    need(rig, false);
    struct core_explanation story = rig_explanation(rig, CORE_WHAT_REVOKE, 0, 3);
    assert_int_equal(victim(&story, 2, CORE_RUNG_NOTICE)->cost_ns, SECONDS(36));
    assert_int_equal(victim(&story, 3, CORE_RUNG_NOTICE)->cost_ns, SECONDS(36)); /* as of all */
    assert_true(victim(&story, 3, CORE_RUNG_NOTICE)->chosen || story.lease == 2);
}

static void fresh_checkpoint_makes_a_cheaper_victim(void **state)
{
    struct rig *rig = *state;
    for (uint64_t lease = 1; lease <= 4; lease++) {
        start_one(rig, lease, KILL);
    }
    for (uint64_t lease = 1; lease <= 4; lease++) {
        checkpoint(rig, lease);
    }
    rig_run(rig, SECONDS(100));
    checkpoint(rig, 3);
    rig_run(rig, SECONDS(10));
    need(rig, false);
    rig_run(rig, SECONDS(11)); /* nobody is killed for a short burst */
    struct core_explanation story = rig_explanation(rig, CORE_WHAT_REVOKE, 0, 3);
    assert_int_equal(story.rung, CORE_RUNG_KILL);
    assert_int_equal(victim(&story, 3, CORE_RUNG_KILL)->cost_ns / SECONDS(1), 30); /* + restore */
    assert_int_equal(victim(&story, 1, CORE_RUNG_KILL)->cost_ns / SECONDS(1), 130);
}

static void job_that_never_reported_is_killed_last(void **state)
{
    struct rig *rig = *state;
    start_one(rig, 1, KILL);
    start_one(rig, 2, KILL);
    rig_run(rig, SECONDS(100));
    start_one(rig, 3, KILL); /* just begun: little to lose, but nobody knows */
    start_one(rig, 4, KILL);
    checkpoint(rig, 1);
    checkpoint(rig, 2);
    rig_run(rig, SECONDS(100));
    checkpoint(rig, 2);
    need(rig, false);
    assert_null(rig_find(rig, CORE_ACTION_REVOKE));
    rig_run(rig, SECONDS(11));
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 1);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_REVOKE, 0, 2).rung, CORE_RUNG_KILL);
}

static void lower_priority_gives_first(void **state)
{
    struct rig *rig = *state;
    for (uint64_t lease = 1; lease <= 4; lease++) {
        struct core_lease_spec spec = rig_outside_spec(lease, 1, 1, FREEZE);
        spec.priority = lease == 2 ? 0 : 1;
        start(rig, spec);
    }
    need(rig, true);
    assert_int_equal(revoked(rig)->revoke.lease, 2);
}

static void lost_heartbeat_makes_a_first_choice(void **state)
{
    struct rig *rig = *state;
    for (uint64_t lease = 1; lease <= 4; lease++) {
        struct core_lease_spec spec = rig_outside_spec(lease, 1, 1, FREEZE);
        spec.heartbeats = lease == 3;
        start(rig, spec);
    }
    rig_run(rig, SECONDS(61));
    need(rig, true);
    assert_int_equal(revoked(rig)->revoke.lease, 3);
}

static void minimum_run_time_holds_but_for_an_slo_in_danger(void **state)
{
    struct rig *rig = *state;
    for (uint64_t lease = 1; lease <= 4; lease++) {
        struct core_lease_spec spec = rig_outside_spec(lease, 1, 1, FREEZE);
        spec.run_min_ns = SECONDS(60);
        start(rig, spec);
    }
    need(rig, false);
    assert_null(rig_find(rig, CORE_ACTION_REVOKE));
    rig_danger(rig, 1, MS(19));
    assert_int_equal(revoked(rig)->revoke.rung, CORE_RUNG_FREEZE);
}

static void agreed_stops_of_the_hour_are_not_exceeded(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_outside_spec(1, 4, 4, FREEZE);
    spec.stops_per_hour = 2;
    start(rig, spec);
    need(rig, true);
    for (int i = 0; i < 10; i++) {
        rig_run(rig, SECONDS(10)); /* the danger ends, the gang goes on */
        rig_danger(rig, 1, MS(19));
    }
    assert_int_equal(rig_lease_view(rig, 1).stops, 2);
    rig_run(rig, SECONDS(3600));
    rig_danger(rig, 1, MS(19));
    assert_int_equal(rig_lease_view(rig, 1).stops, 3);
}

static void floor_is_broken_only_with_the_full_notice(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_outside_spec(1, 2, 4, SHRINK | NOTICE);
    spec.floor = 4;
    start(rig, spec);
    need(rig, true);
    assert_int_equal(revoked(rig)->revoke.rung, CORE_RUNG_NOTICE);
    assert_int_equal(revoked(rig)->revoke.deadline_ns, rig->now_ns + SECONDS(30));
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 1); /* of one: it can go on with three */
    struct core_explanation story = rig_explanation(rig, CORE_WHAT_REVOKE, 0, 1);
    assert_int_equal(victim(&story, 1, CORE_RUNG_SHRINK)->refused, CORE_REASON_FLOOR);
}

static void gang_at_its_minimum_is_noticed_whole(void **state)
{
    struct rig *rig = *state;
    start(rig, rig_outside_spec(1, 4, 4, NOTICE));
    rig->release_ns = SECONDS(2);
    need(rig, false);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 4);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_DRAINING);
    rig_run(rig, SECONDS(3));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_WAITING);
    assert_true(rig_endpoint_view(rig, 1).instances_ready >= 1);
}

static void freeze_needs_memory_that_is_reserved_already(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_outside_spec(1, 4, 4, FREEZE | NOTICE);
    spec.memory_bytes = 95;
    start(rig, spec);
    need(rig, true); /* its model needs 10 of 100 */
    assert_int_equal(revoked(rig)->revoke.rung, CORE_RUNG_NOTICE);
    struct core_explanation story = rig_explanation(rig, CORE_WHAT_REVOKE, 0, 1);
    assert_int_equal(victim(&story, 1, CORE_RUNG_FREEZE)->refused, CORE_REASON_NO_DEVICE_MEMORY);
}

static void pause_makes_the_memory_that_freeze_lacks(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_outside_spec(1, 4, 4, FREEZE | PAUSE | NOTICE);
    spec.memory_bytes = 95;
    spec.pause_residue_bytes = 5;
    start(rig, spec);
    need(rig, true);
    assert_int_equal(revoked(rig)->revoke.rung, CORE_RUNG_PAUSE);
    rig_run(rig, MS(100));
    assert_true(rig_endpoint_view(rig, 1).instances_ready >= 1); /* placed beside the residue */
}

static void lease_in_process_has_no_rungs_of_outside_jobs(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 1, 1);
    spec.rungs_mask = FREEZE;
    rig_request(rig, spec);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_INVALID);
    spec = rig_outside_spec(1, 1, 1, 1u << CORE_RUNG_YIELD);
    rig_request(rig, spec);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(cheapest_rung_that_is_fast_enough_is_taken),
        TEST(nothing_fast_enough_means_the_fastest),
        TEST(idle_gang_makes_a_stop_dear),
        TEST(gang_that_brings_all_that_is_needed_is_stopped_alone),
        TEST(large_gang_is_cheap_where_all_of_it_is_needed),
        TEST(times_are_learned_by_lease_and_by_all),
        TEST(time_to_start_again_is_learned_from_what_jobs_tell),
        TEST(fresh_checkpoint_makes_a_cheaper_victim),
        TEST(job_that_never_reported_is_killed_last),
        TEST(lower_priority_gives_first),
        TEST(lost_heartbeat_makes_a_first_choice),
        TEST(minimum_run_time_holds_but_for_an_slo_in_danger),
        TEST(agreed_stops_of_the_hour_are_not_exceeded),
        TEST(floor_is_broken_only_with_the_full_notice),
        TEST(gang_at_its_minimum_is_noticed_whole),
        TEST(freeze_needs_memory_that_is_reserved_already),
        TEST(pause_makes_the_memory_that_freeze_lacks),
        TEST(lease_in_process_has_no_rungs_of_outside_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
