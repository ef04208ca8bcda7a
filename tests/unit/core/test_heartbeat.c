/* test_heartbeat.c: server/core/heartbeat.c: LP-5 and LP-6, as far as the core decides. */
#include "tests/unit/core/rig.h"

static int setup(void **state)
{
    struct core_config config;
    core_config_init(&config);
    config.heartbeat_lost_ns = SECONDS(5);
    struct rig *rig = rig_create(&config);
    rig_device(rig, 1);
    rig_device(rig, 2);
    rig_reconcile(rig);
    struct core_lease_spec spec = rig_lease_spec(1, 1, 1);
    spec.heartbeats = true;
    rig_request(rig, spec);
    rig_run(rig, MS(10));
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static void beat(struct rig *rig, uint64_t lease, uint64_t generation)
{
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_LEASE_HEARTBEAT,
                                 .lease_heartbeat = {.lease = lease, .generation = generation}});
}

static void beats(struct rig *rig, int seconds)
{
    for (int second = 0; second < seconds; second++) {
        rig_run(rig, SECONDS(1));
        beat(rig, 1, rig_lease_view(rig, 1).run);
    }
}

static size_t losses(const struct rig *rig)
{
    struct core_explanation all[64];
    size_t count = core_explanations(rig->core, 0, 1, 0, all, 64), found = 0;
    for (size_t i = 0; i < count; i++) {
        found += all[i].what == CORE_WHAT_HEARTBEAT_LOST;
    }
    return found;
}

/* (a) and (b) of LP-6. */
static void short_gaps_are_nothing(void **state)
{
    struct rig *rig = *state;
    beats(rig, 10);
    rig_run(rig, SECONDS(1));
    beats(rig, 10);
    rig_run(rig, SECONDS(3));
    beats(rig, 10);
    assert_int_equal(losses(rig), 0);
}

/* (c) and (e): one loss, on time, which takes nothing; the next window is a fresh one. */
static void silence_is_a_flag_once_and_ends_with_the_next_beat(void **state)
{
    struct rig *rig = *state;
    beats(rig, 10);
    rig_run(rig, SECONDS(5) - 1);
    assert_false(rig_lease_view(rig, 1).heartbeat_lost);
    rig_run(rig, 1);
    assert_true(rig_lease_view(rig, 1).heartbeat_lost);
    assert_true(rig_find(rig, CORE_ACTION_LEASE_MOVED)->lease.heartbeat_lost);
    rig_run(rig, SECONDS(600));
    assert_int_equal(losses(rig), 1);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 0);
    beat(rig, 1, rig_lease_view(rig, 1).run);
    assert_false(rig_lease_view(rig, 1).heartbeat_lost);
    assert_false(rig_find(rig, CORE_ACTION_LEASE_MOVED)->lease.heartbeat_lost);
    rig_run(rig, SECONDS(5) - 1);
    assert_int_equal(losses(rig), 1);
}

/* (d): the timer comes late because the server stood still; so may heartbeats. */
static void silence_of_a_stopped_server_is_not_held_against_holders(void **state)
{
    struct rig *rig = *state;
    beats(rig, 10);
    rig->now_ns += SECONDS(10);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_TIMER});
    assert_int_equal(losses(rig), 0);
    rig_run(rig, SECONDS(5) - 1);
    assert_int_equal(losses(rig), 0);
    rig_run(rig, 1);
    assert_int_equal(losses(rig), 1);
}

static void restart_gives_everybody_a_fresh_window(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_view(rig, 1).spec;
    struct rig *next = rig_create(NULL);
    next->now_ns = SECONDS(1000);
    rig_device(next, 1);
    rig_send(next, (struct core_event){.kind = CORE_EVENT_RESTORED_LEASE, .lease_spec = spec});
    rig_send(next,
             (struct core_event){
                 .kind = CORE_EVENT_RESTORED_GRANT,
                 .restored_grant = {.lease = 1, .device = 1, .generation = 1, .alive = true}});
    rig_reconcile(next);
    rig_run(next, SECONDS(60) - 1);
    assert_false(rig_lease_view(next, 1).heartbeat_lost);
    rig_run(next, 1);
    assert_true(rig_lease_view(next, 1).heartbeat_lost);
    rig_destroy(next);
}

static void progress_is_a_heartbeat(void **state)
{
    struct rig *rig = *state;
    for (uint64_t step = 1; step <= 10; step++) {
        rig_run(rig, SECONDS(4));
        rig_send(rig, (struct core_event){
                          .kind = CORE_EVENT_LEASE_PROGRESS,
                          .lease_progress = {
                              .lease = 1, .generation = rig_lease_view(rig, 1).run, .step = step}});
    }
    assert_int_equal(losses(rig), 0);
}

/* LP-5: A is gone from its device; what it sends with its old token changes nothing for B, under
 * whatever name, and is told so. */
static void beat_with_an_old_token_changes_nothing_and_is_told(void **state)
{
    struct rig *rig = *state;
    uint64_t old = rig_lease_view(rig, 1).run;
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_JOB_EXITED,
                                 .job_exited = {.lease = 1, .generation = old, .again = true}});
    rig_run(rig, SECONDS(1)); /* the same name, a new run */
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_not_equal(rig_lease_view(rig, 1).run, old);
    rig_run(rig, SECONDS(3));
    uint64_t hash = core_hash(rig->core);
    beat(rig, 1, old);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_STALE_TOKEN);
    assert_int_not_equal(core_hash(rig->core), hash);
    rig_run(rig, SECONDS(1) + MS(10)); /* 5 s after the start of the new run */
    assert_true(rig_lease_view(rig, 1).heartbeat_lost);
    beat(rig, 1, old);
    assert_true(rig_lease_view(rig, 1).heartbeat_lost);
}

/* LP-5: in the same moment as the loss, before or after it, one of two outcomes and no third. */
static void beat_in_the_moment_of_the_loss_comes_before_or_after_it(void **state)
{
    struct rig *rig = *state;
    for (int round = 0; round < 1000; round++) {
        uint64_t run = rig_lease_view(rig, 1).run;
        beat(rig, 1, run);
        rig_run(rig, SECONDS(5) - 1);
        rig->now_ns++;
        size_t before = losses(rig) + (size_t)rig->total[CORE_ACTION_LEASE_MOVED];
        if (round % 2 == 0) {
            rig_send(rig, (struct core_event){.kind = CORE_EVENT_TIMER});
            assert_true(rig_lease_view(rig, 1).heartbeat_lost);
        }
        beat(rig, 1, run);
        assert_false(rig_lease_view(rig, 1).heartbeat_lost);
        size_t after = losses(rig) + (size_t)rig->total[CORE_ACTION_LEASE_MOVED];
        assert_true(round % 2 == 0 ? after > before : after == before);
    }
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(short_gaps_are_nothing),
        TEST(silence_is_a_flag_once_and_ends_with_the_next_beat),
        TEST(silence_of_a_stopped_server_is_not_held_against_holders),
        TEST(restart_gives_everybody_a_fresh_window),
        TEST(progress_is_a_heartbeat),
        TEST(beat_with_an_old_token_changes_nothing_and_is_told),
        TEST(beat_in_the_moment_of_the_loss_comes_before_or_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
