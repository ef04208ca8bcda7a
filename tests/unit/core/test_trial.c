/* test_trial.c: server/core/trial.c: what a change would bring, and what comes anyway. */
#include "server/core/trial.h"

#include "tests/unit/core/rig.h"

static const struct core_trial_config config = {
    .horizon_ns = SECONDS(120), .place_ns = SECONDS(2), .answer_ns = MS(10), .steps_max = 10000};

static int setup(void **state)
{
    struct rig *rig = rig_create(NULL);
    for (uint64_t device = 1; device <= 2; device++) {
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

static struct core_trial *try_events(const struct rig *rig, const struct core_event *changes,
                                     size_t count)
{
    uint64_t hash = core_hash(rig->core);
    struct core_trial *trial = core_trial_run(rig->core, changes, count, &config);
    assert_non_null(trial);
    assert_true(core_hash(rig->core) == hash); /* it is only asked */
    return trial;
}

static struct core_trial *try_lease(const struct rig *rig, struct core_lease_spec spec)
{
    const struct core_event event = {.kind = CORE_EVENT_LEASE_REQUESTED, .lease_spec = spec};
    return try_events(rig, &event, 1);
}

/* The first move of this kind about the device and lease (0: any), or NULL. */
static const struct core_trial_move *find(const struct core_trial *trial, enum core_what what,
                                          uint64_t device, uint64_t lease)
{
    size_t count;
    const struct core_trial_move *moves = core_trial_moves(trial, &count);
    for (size_t i = 0; i < count; i++) {
        const struct core_explanation *move = &moves[i].explanation;
        if (move->what == what && (device == 0 || move->device == device) &&
            (lease == 0 || move->lease == lease)) {
            return &moves[i];
        }
    }
    return NULL;
}

static void lease_that_fits_starts_at_once(void **state)
{
    struct rig *rig = *state;
    struct core_trial *trial = try_lease(rig, rig_lease_spec(1, 1, 2));
    assert_int_equal(core_trial_start_ns(trial, 1), 0);
    assert_int_equal(core_trial_refused(trial), CORE_REASON_NONE);
    assert_non_null(find(trial, CORE_WHAT_GRANT, 1, 1));
    assert_non_null(find(trial, CORE_WHAT_GRANT, 2, 1));
    core_trial_destroy(trial);
}

static void victims_and_the_time_they_take_are_told(void **state)
{
    struct rig *rig = *state;
    uint32_t notice = 1u << CORE_RUNG_NOTICE | 1u << CORE_RUNG_SHRINK;
    rig->release_ns = SECONDS(7);
    rig_request(rig, rig_outside_spec(1, 1, 2, notice));
    rig_run(rig, SECONDS(60));
    rig_lease(rig, 2, 1, 1); /* so it is known how long it takes to shrink */
    rig_run(rig, SECONDS(60));
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 2);
    rig_run(rig, SECONDS(120));
    assert_int_equal(rig_lease_view(rig, 1).devices, 2);
    struct core_trial *trial = try_lease(rig, rig_lease_spec(3, 1, 1));
    const struct core_trial_move *revoke = find(trial, CORE_WHAT_REVOKE, 0, 3);
    assert_non_null(revoke);
    assert_false(revoke->anyway);
    assert_int_equal(revoke->explanation.victims[0].lease, 1);
    assert_in_range(core_trial_start_ns(trial, 3), SECONDS(6), SECONDS(9));
    core_trial_destroy(trial);
}

static void what_comes_anyway_is_marked(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, 1);
    rig_lease(rig, 2, 1, 1);
    rig_run(rig, SECONDS(1));
    struct core_lease_spec spec = rig_lease_spec(3, 1, 1);
    rig_request(rig, spec);
    struct core_event event = {.kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                               .device_time = {.device = 1, .by_ns = rig->now_ns + SECONDS(60)}};
    rig_send(rig, event); /* lease 1 loses its device, whatever happens */
    event = (struct core_event){.kind = CORE_EVENT_LEASE_CANCELLED, .lease.lease = 2};
    struct core_trial *trial = try_events(rig, &event, 1);
    const struct core_trial_move *grant = find(trial, CORE_WHAT_GRANT, 2, 3);
    assert_non_null(grant);
    assert_false(grant->anyway);
    const struct core_trial_move *revoke = find(trial, CORE_WHAT_REVOKE, 1, 0);
    assert_true(revoke == NULL || revoke->anyway);
    core_trial_destroy(trial);
    trial = try_events(rig, NULL, 0);
    size_t count;
    const struct core_trial_move *moves = core_trial_moves(trial, &count);
    for (size_t i = 0; i < count; i++) {
        assert_true(moves[i].anyway);
    }
    core_trial_destroy(trial);
}

static void refusal_is_told(void **state)
{
    struct rig *rig = *state;
    struct core_trial *trial = try_lease(rig, rig_lease_spec(1, 3, 3));
    assert_int_equal(core_trial_refused(trial), CORE_REASON_IMPOSSIBLE);
    assert_true(core_trial_start_ns(trial, 1) == UINT64_MAX);
    core_trial_destroy(trial);
}

static void device_that_would_come_is_used(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 2, 2);
    rig_run(rig, SECONDS(1));
    rig_lease(rig, 2, 1, 1);
    const struct core_event event = {.kind = CORE_EVENT_DEVICE_ADDED,
                                     .device_added = {.device = 3}};
    struct core_trial *trial = try_events(rig, &event, 1);
    assert_non_null(find(trial, CORE_WHAT_GRANT, 3, 2));
    assert_int_equal(core_trial_start_ns(trial, 2), 0);
    core_trial_destroy(trial);
}

static void device_that_would_go_ends_its_lease_and_another_waits(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, 1);
    rig_lease(rig, 2, 1, 1);
    rig_run(rig, SECONDS(1));
    const struct core_event event = {.kind = CORE_EVENT_DEVICE_REMOVED, .device.device = 1};
    struct core_trial *trial = try_events(rig, &event, 1);
    struct core_lease_view view;
    assert_true(core_lease_find(core_trial_core(trial), 1, &view));
    assert_int_equal(view.state, CORE_LEASE_WAITING);
    core_trial_destroy(trial);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
}

static void hold_keeps_what_would_be_done(void **state)
{
    struct rig *rig = *state;
    const struct core_event changes[] = {
        {.kind = CORE_EVENT_HOLD, .hold.on = true},
        {.kind = CORE_EVENT_LEASE_REQUESTED, .lease_spec = rig_lease_spec(1, 1, 1)},
    };
    struct core_trial *trial = try_events(rig, changes, 2);
    const struct core_trial_move *grant = find(trial, CORE_WHAT_GRANT, 0, 1);
    assert_true(grant != NULL && !grant->explanation.applied);
    assert_true(core_trial_start_ns(trial, 1) == UINT64_MAX);
    core_trial_destroy(trial);
}

static void load_stays_as_it_is(void **state)
{
    struct rig *rig = *state;
    rig_endpoint(rig, 1, MS(100), MS(10));
    rig_run(rig, SECONDS(5));
    for (int i = 0; i < 100; i++) {
        rig_load(rig, 1, MS(100), 15);
        rig_run(rig, MS(100));
    }
    uint32_t needed = rig_endpoint_view(rig, 1).devices_needed;
    assert_int_equal(needed, 2);
    struct core_trial *trial = try_lease(rig, rig_lease_spec(1, 1, 1));
    struct core_endpoint_view view;
    assert_true(core_endpoint_find(core_trial_core(trial), 1, &view));
    assert_int_equal(view.devices_needed, needed);
    core_trial_destroy(trial);
}

static void other_settings_of_an_endpoint_are_tried(void **state)
{
    struct rig *rig = *state;
    rig_endpoint(rig, 1, MS(100), MS(10));
    rig_run(rig, SECONDS(5));
    uint32_t uses = 1u << CORE_RUNG_NOTICE;
    rig_request(rig, rig_outside_spec(1, 1, 1, uses));
    rig_run(rig, SECONDS(60));
    struct core_endpoint_spec spec = rig_endpoint_view(rig, 1).spec;
    spec.devices_min = 2;
    const struct core_event event = {.kind = CORE_EVENT_ENDPOINT_CHANGED, .endpoint_spec = spec};
    struct core_trial *trial = try_events(rig, &event, 1);
    struct core_endpoint_view view;
    assert_true(core_endpoint_find(core_trial_core(trial), 1, &view));
    assert_int_equal(view.instances_ready, 2);
    assert_non_null(find(trial, CORE_WHAT_REVOKE, 0, 0));
    core_trial_destroy(trial);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(lease_that_fits_starts_at_once),
        TEST(victims_and_the_time_they_take_are_told),
        TEST(what_comes_anyway_is_marked),
        TEST(refusal_is_told),
        TEST(device_that_would_come_is_used),
        TEST(device_that_would_go_ends_its_lease_and_another_waits),
        TEST(hold_keeps_what_would_be_done),
        TEST(load_stays_as_it_is),
        TEST(other_settings_of_an_endpoint_are_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
