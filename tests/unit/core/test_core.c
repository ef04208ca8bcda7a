/* test_core.c: server/core/core.c, explain.c, words.c, number.c: modes, hold, restart, the story.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/core/rig.h"

static int setup(void **state)
{
    struct rig *rig = rig_create(NULL);
    rig_device(rig, 1);
    rig_device(rig, 2);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static void set_mode(struct rig *rig, enum core_mode mode)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_MODE_CHANGED, .mode = {.mode = mode}});
}

static void set_hold(struct rig *rig, bool on)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_HOLD, .hold = {.on = on}});
}

static uint64_t moves(const struct rig *rig)
{
    return rig->total[CORE_ACTION_GRANT] + rig->total[CORE_ACTION_REVOKE] +
           rig->total[CORE_ACTION_PLACE] + rig->total[CORE_ACTION_REMOVE];
}

static void nothing_moves_before_reconcile_is_done(void **state)
{
    struct rig *rig = *state;
    rig_endpoint(rig, 1, MS(20), MS(4));
    rig_lease(rig, 1, 1, 2);
    rig_run(rig, SECONDS(100));
    assert_int_equal(moves(rig), 0);
    rig_reconcile(rig);
    assert_int_equal(rig_count(rig, CORE_ACTION_GRANT), 2);
    assert_int_equal(rig_count(rig, CORE_ACTION_PLACE), 2);
}

static void observing_records_and_moves_nothing(void **state)
{
    struct rig *rig = *state;
    set_mode(rig, CORE_MODE_OBSERVE);
    rig_reconcile(rig);
    rig_endpoint(rig, 1, MS(20), MS(4));
    rig_lease(rig, 1, 1, 2);
    uint64_t told = rig->total[CORE_ACTION_EXPLAIN];
    rig_run(rig, SECONDS(10));
    assert_int_equal(moves(rig), 0);
    assert_int_equal(rig->total[CORE_ACTION_EXPLAIN], told);
    struct core_explanation story = rig_explanation(rig, CORE_WHAT_GRANT, 0, 1);
    assert_false(story.applied);
    char text[256];
    core_explanation_print(&story, text, sizeof text);
    assert_string_equal(text, "would grant: lease=1 because minimum of a waiting lease; has 0 of 1"
                              " devices");
    set_mode(rig, CORE_MODE_ACT);
    assert_int_equal(rig_count(rig, CORE_ACTION_GRANT), 2);
}

static void advising_shows_each_thought_once_and_the_scale(void **state)
{
    struct rig *rig = *state;
    rig_reconcile(rig);
    set_mode(rig, CORE_MODE_ADVISE);
    rig_endpoint(rig, 1, MS(20), MS(4));
    rig_lease(rig, 1, 2, 2);
    assert_non_null(rig_find(rig, CORE_ACTION_EXPLAIN));
    assert_int_equal(rig_find(rig, CORE_ACTION_SCALE)->scale.devices_wanted, 2);
    assert_int_equal(rig_find(rig, CORE_ACTION_SCALE)->scale.devices_have, 2);
    uint64_t told = rig->total[CORE_ACTION_EXPLAIN];
    for (int i = 0; i < 100; i++) {
        rig_run(rig, MS(100));
        rig_device_flag(rig, CORE_EVENT_DEVICE_CORDONED, 1, false);
    }
    assert_int_equal(rig->total[CORE_ACTION_EXPLAIN], told);
    assert_int_equal(moves(rig), 0);
    rig_lease(rig, 2, 2, 2);
    assert_int_equal(rig_find(rig, CORE_ACTION_SCALE)->scale.devices_wanted, 4);
}

static void hold_freezes_moves_but_not_owners_and_safety(void **state)
{
    struct rig *rig = *state;
    rig_reconcile(rig);
    rig_lease(rig, 1, 1, 2);
    rig_run(rig, MS(50));
    set_hold(rig, true);
    assert_true(core_hold_now(rig->core));
    uint64_t before = moves(rig);
    rig_lease(rig, 2, 1, 1); /* would take the elastic part */
    rig_endpoint(rig, 1, MS(20), MS(4));
    rig_run(rig, SECONDS(10));
    assert_int_equal(moves(rig), before);
    rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, 1);
    assert_int_equal(rig_lease_view(rig, 1).devices, 1);
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_ENDED);
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_WAITING);
    set_hold(rig, false);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
}

static void restore(struct rig *rig, uint64_t device, uint64_t generation, bool alive)
{
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_RESTORED_GRANT,
                      .restored_grant = {
                          .lease = 1, .device = device, .generation = generation, .alive = alive}});
}

static void job_found_alive_after_a_restart_goes_on(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 2, 2);
    spec.in_process = false;
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_RESTORED_LEASE, .lease_spec = spec});
    restore(rig, 1, 41, true);
    restore(rig, 2, 42, true);
    rig_reconcile(rig);
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 0);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig_lease_view(rig, 1).run, 41);
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
    rig_run(rig, MS(50));
    rig_lease(rig, 2, 1, 1);
    assert_int_equal(rig_find(rig, CORE_ACTION_GRANT)->grant.token.generation, 43);
}

static void job_that_died_with_the_server_starts_again_after_a_look(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_RESTORED_LEASE,
                                      .lease_spec = rig_lease_spec(1, 2, 2)});
    restore(rig, 1, 41, false);
    assert_non_null(rig_find(rig, CORE_ACTION_VERIFY));
    restore(rig, 2, 42, false);
    rig_reconcile(rig);
    assert_int_equal(rig_count(rig, CORE_ACTION_GRANT), 0);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_true(rig_lease_view(rig, 1).run > 42);
}

static void gang_found_incomplete_gives_back_the_rest(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 2, 2);
    spec.in_process = false;
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_RESTORED_LEASE, .lease_spec = spec});
    restore(rig, 1, 41, false);
    restore(rig, 2, 42, true);
    rig_reconcile(rig);
    const struct core_action *revoke = rig_find(rig, CORE_ACTION_REVOKE);
    assert_int_equal(revoke->revoke.device, 2);
    assert_int_equal(revoke->revoke.rung, CORE_RUNG_NOTICE);
    assert_int_equal(revoke->revoke.deadline_ns, rig->now_ns + SECONDS(30));
    restore(rig, 1, 43, true); /* too late to be told */
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_INVALID);
}

static void ended_leases_are_kept_a_while_and_no_more(void **state)
{
    struct rig *rig = *state;
    rig_reconcile(rig);
    for (uint64_t lease = 1; lease <= 300; lease++) {
        rig_lease(rig, lease, 1, 1);
        rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, lease);
        rig_run(rig, MS(50));
    }
    struct core_lease_view view;
    assert_true(core_lease_find(rig->core, 300, &view));
    assert_int_equal(view.state, CORE_LEASE_ENDED);
    assert_false(core_lease_find(rig->core, 1, &view));
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 300); /* ended already: that is fine */
    assert_null(rig_find(rig, CORE_ACTION_REJECT));
}

static void explanations_are_found_by_device_and_by_lease(void **state)
{
    struct rig *rig = *state;
    rig_reconcile(rig);
    rig_lease(rig, 1, 1, 1);
    rig_lease(rig, 2, 1, 1);
    rig_run(rig, MS(50));
    struct core_explanation found[8];
    assert_int_equal(core_explanations(rig->core, 2, 0, 0, found, 8), 1);
    assert_int_equal(found[0].lease, 2);
    assert_int_equal(core_explanations(rig->core, 0, 1, 0, found, 8), 1);
    assert_int_equal(found[0].device, 1);
    assert_int_equal(core_explanations(rig->core, 0, 0, 0, found, 1), 1);
    struct core_explanation same;
    assert_true(core_explanation_find(rig->core, found[0].explanation, &same));
    assert_memory_equal(&same, &found[0], sizeof same);
    assert_false(core_explanation_find(rig->core, 0, &same));
    assert_false(core_explanation_find(rig->core, 1000, &same));
}

static void many_bursts_do_not_push_out_who_got_what(void **state)
{
    struct rig *rig = *state;
    rig_reconcile(rig);
    rig_endpoint(rig, 1, MS(20), MS(4));
    rig_lease(rig, 1, 1, 2);
    rig_run(rig, MS(100));
    for (int burst = 0; burst < 10000; burst++) {
        rig_run(rig, MS(50));
        rig_sample(rig, 1, MS(50), MS(4));
        rig_run(rig, MS(200));
    }
    struct core_explanation *found = calloc(2000, sizeof *found);
    assert_non_null(found);
    size_t count = core_explanations(rig->core, 1, 0, 0, found, 2000);
    assert_in_range(count, 1000, 1100);
    assert_int_equal(found[0].what, CORE_WHAT_YIELD_ENDED);
    assert_int_equal(found[1].what, CORE_WHAT_YIELD_BEGAN);
    assert_true(found[0].explanation > found[1].explanation);
    assert_int_equal(found[count - 1].what, CORE_WHAT_PLACE); /* the oldest of all */
    free(found);
}

static void sentence_is_cut_at_its_size(void **state)
{
    (void)state;
    struct core_explanation story = {.what = CORE_WHAT_REVOKE, .applied = true, .device = 1};
    char text[12];
    memset(text, 'x', sizeof text);
    core_explanation_print(&story, text, 10);
    assert_string_equal(text, "revoke: d");
    assert_int_equal(text[10], 'x');
    core_explanation_print(&story, text, 0);
}

static void every_word_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < CORE_REASON_COUNT; i++) {
        assert_string_not_equal(core_reason_name((enum core_reason)i), "unknown");
    }
    for (int i = 0; i < CORE_WHAT_COUNT; i++) {
        assert_string_not_equal(core_what_name((enum core_what)i), "unknown");
    }
    for (int i = 0; i < CORE_RUNG_COUNT; i++) {
        assert_string_not_equal(core_rung_name((enum core_rung)i), "unknown");
    }
    for (int i = 0; i < CORE_ACCOUNT_COUNT; i++) {
        assert_string_not_equal(core_account_name((enum core_account)i), "unknown");
    }
    assert_string_equal(core_hold_name((enum core_hold)99), "unknown");
}

static void nonsense_in_a_configuration_is_refused(void **state)
{
    (void)state;
    struct core_config config;
    core_config_init(&config);
    config.load_low_permille = config.load_high_permille + 1;
    assert_null(core_create(&config));
    core_config_init(&config);
    config.shrink_low_permille = 900;
    assert_null(core_create(&config));
    core_config_init(&config);
    config.explanations_kept = 0;
    assert_null(core_create(&config));
    core_destroy(NULL);
}

static void nonsense_in_events_is_refused_or_ignored(void **state)
{
    struct rig *rig = *state;
    rig_reconcile(rig);
    rig_device(rig, 1);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_DUPLICATE);
    rig_device(rig, 0);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_INVALID);
    rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, 77);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_UNKNOWN);
    rig_endpoint(rig, 0, MS(20), MS(4));
    rig_load(rig, 5, MS(100), 10);
    rig_sample(rig, 77, MS(100), MS(100));
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_COUNT});
    rig->now_ns -= MS(500); /* a clock that went back */
    rig_lease(rig, 1, 1, 1);
    assert_int_equal(rig_count(rig, CORE_ACTION_GRANT), 1);
}

static void actions_have_growing_ids_that_no_former_life_used(void **state)
{
    struct rig *rig = *state;
    rig_reconcile(rig);
    rig_lease(rig, 1, 2, 2);
    for (size_t i = 0; i < rig->count; i++) {
        assert_int_equal(rig->actions[i].id >> 40, 7);
        assert_true(i == 0 || rig->actions[i].id == rig->actions[i - 1].id + 1);
    }
}

static void timer_that_comes_too_early_is_set_again(void **state)
{
    struct rig *rig = *state;
    rig_reconcile(rig);
    rig->answers = false;
    rig_lease(rig, 1, 1, 1);
    uint64_t at_ns = rig->timer_ns;
    assert_int_equal(at_ns, rig->now_ns + SECONDS(10));
    rig->now_ns = at_ns - 1;
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_TIMER});
    assert_int_equal(rig_find(rig, CORE_ACTION_SET_TIMER)->timer.at_ns, at_ns);
}

static void idle_core_needs_no_timer(void **state)
{
    struct rig *rig = *state;
    rig_reconcile(rig);
    rig_endpoint(rig, 1, MS(20), MS(4));
    rig_lease(rig, 1, 1, 2);
    rig_run(rig, SECONDS(30));
    uint64_t steps = rig->steps;
    rig_run(rig, SECONDS(3600));
    assert_int_equal(rig->steps, steps);
    assert_int_equal(rig->timer_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(nothing_moves_before_reconcile_is_done),
        TEST(observing_records_and_moves_nothing),
        TEST(advising_shows_each_thought_once_and_the_scale),
        TEST(hold_freezes_moves_but_not_owners_and_safety),
        TEST(job_found_alive_after_a_restart_goes_on),
        TEST(job_that_died_with_the_server_starts_again_after_a_look),
        TEST(gang_found_incomplete_gives_back_the_rest),
        TEST(ended_leases_are_kept_a_while_and_no_more),
        TEST(explanations_are_found_by_device_and_by_lease),
        TEST(many_bursts_do_not_push_out_who_got_what),
        TEST(timer_that_comes_too_early_is_set_again),
        TEST(sentence_is_cut_at_its_size),
        TEST(every_word_has_a_name),
        TEST(nonsense_in_a_configuration_is_refused),
        TEST(nonsense_in_events_is_refused_or_ignored),
        TEST(actions_have_growing_ids_that_no_former_life_used),
        TEST(idle_core_needs_no_timer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
