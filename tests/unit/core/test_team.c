/* test_team.c: server/core/team.c: what teams hold, have used and may reserve. */
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

static void request(struct rig *rig, uint64_t lease, uint64_t team, uint32_t min, uint32_t max)
{
    struct core_lease_spec spec = rig_lease_spec(lease, min, max);
    spec.team = team;
    rig_request(rig, spec);
}

static void end(struct rig *rig, uint64_t lease)
{
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, lease);
    rig_run(rig, MS(50));
}

/* Views are as of the last event. */
static void pass(struct rig *rig, uint64_t span_ns)
{
    rig_run(rig, span_ns);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_TIMER});
}

static void use_beyond_quota_counts_and_halves_with_every_half_life(void **state)
{
    struct rig *rig = *state;
    rig_team(rig, 7, 1, 1);
    request(rig, 1, 7, 3, 3); /* two beyond its quota of one */
    pass(rig, SECONDS(1800));
    uint64_t used_ns = rig_team_view(rig, 7).usage_ns;
    /* Half an hour of two devices, the first half of it a little faded. */
    assert_in_range(used_ns, SECONDS(2 * 1800 * 80 / 100), SECONDS(2 * 1800));
    end(rig, 1);
    uint64_t left_ns = rig_team_view(rig, 7).usage_ns;
    pass(rig, SECONDS(3600));
    uint64_t half_ns = rig_team_view(rig, 7).usage_ns;
    assert_in_range(half_ns, left_ns * 49 / 100, left_ns * 51 / 100);
    pass(rig, SECONDS(72 * 3600));
    assert_int_equal(rig_team_view(rig, 7).usage_ns, 0);
}

static void use_in_balance_is_what_is_held_for_1_44_half_lives(void **state)
{
    struct rig *rig = *state;
    rig_team(rig, 7, 1, 0);
    request(rig, 1, 7, 2, 2);
    for (int hour = 0; hour < 48; hour++) {
        pass(rig, SECONDS(1800));
    }
    assert_in_range(rig_team_view(rig, 7).usage_ns, SECONDS(2 * 3600 * 134 / 100),
                    SECONDS(2 * 3600 * 156 / 100));
}

static void use_within_quota_is_the_teams_own(void **state)
{
    struct rig *rig = *state;
    rig_team(rig, 7, 1, 3);
    request(rig, 1, 7, 3, 3);
    rig_run(rig, SECONDS(3600));
    assert_int_equal(rig_team_view(rig, 7).usage_ns, 0);
    assert_int_equal(rig_team_view(rig, 7).devices[0], 3);
}

static void device_that_is_let_go_of_counts_until_it_is_verified(void **state)
{
    struct rig *rig = *state;
    rig_team(rig, 7, 1, 4);
    request(rig, 1, 7, 2, 2);
    rig_run(rig, MS(50));
    rig->answers = false;
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
    rig_run(rig, SECONDS(4));
    assert_int_equal(rig_team_view(rig, 7).devices[0], 2);
    rig->answers = true;
    rig_run(rig, SECONDS(2));
    assert_int_equal(rig_team_view(rig, 7).devices[0], 0);
}

static void reservation_beyond_the_quota_is_refused_or_waits_and_blocks_nobody(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 2, 2);
    rig_team(rig, 7, 1, 2);
    spec.team = 7;
    spec.preemptible = false;
    rig_request(rig, spec);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).devices, 2);
    assert_int_equal(rig_team_view(rig, 7).reserved[0], 2);
    spec.lease = 2;
    spec.devices_min = spec.devices_max = 1;
    rig_request(rig, spec); /* within quota, but that is taken */
    rig_run(rig, SECONDS(600));
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_WAITING);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_WAIT, 0, 2).reason, CORE_REASON_QUOTA);
    request(rig, 3, 7, 1, 1); /* preemptible ones may go beyond */
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 3).devices, 1);
    spec.lease = 4;
    spec.devices_min = spec.devices_max = 3;
    rig_request(rig, spec); /* more than the quota ever allows */
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_QUOTA);
    end(rig, 1);
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_RUNNING);
}

static void reservation_grows_no_further_than_the_quota(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 1, 4);
    rig_team(rig, 7, 1, 3);
    spec.team = 7;
    spec.preemptible = false;
    rig_request(rig, spec);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).devices, 3);
    rig_team(rig, 7, 1, 4);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).devices, 4);
}

static void reservations_are_not_bounded_before_there_are_teams(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 4, 4);
    spec.preemptible = false;
    rig_request(rig, spec);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).devices, 4);
}

static void removed_team_is_forgotten_with_its_last_lease(void **state)
{
    struct rig *rig = *state;
    struct core_team_view view;
    rig_team(rig, 7, 5, 2);
    request(rig, 1, 7, 1, 1);
    rig_run(rig, SECONDS(10));
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_TEAM_REMOVED, .team = {.team = 7}});
    assert_false(rig_team_view(rig, 7).added);
    assert_int_equal(rig_team_view(rig, 7).spec.weight, 1);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    end(rig, 1);
    for (uint64_t lease = 10; lease < 10 + 257; lease++) { /* until lease 1 is forgotten */
        request(rig, lease, 8, 1, 1);
        end(rig, lease);
    }
    assert_false(core_team_find(rig->core, 7, &view));
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_TEAM_REMOVED, .team = {.team = 7}});
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_UNKNOWN);
    rig_team(rig, 7, 0, 2);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_INVALID);
}

static void device_time_is_booked_to_lease_and_team_and_adds_up(void **state)
{
    struct rig *rig = *state;
    request(rig, 1, 7, 1, 1);
    request(rig, 2, 7, 2, 2);
    pass(rig, SECONDS(100));
    end(rig, 1);
    pass(rig, SECONDS(100));
    struct core_lease_view one = rig_lease_view(rig, 1), two = rig_lease_view(rig, 2);
    struct core_team_view team = rig_team_view(rig, 7);
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        assert_int_equal(one.account_ns[account] + two.account_ns[account],
                         team.account_ns[account]);
    }
    uint64_t trained_ns = two.account_ns[CORE_ACCOUNT_TRAINING];
    assert_in_range(trained_ns, SECONDS(2 * 200), SECONDS(2 * 201));
    assert_int_equal(one.account_ns[CORE_ACCOUNT_TRAINING] + one.account_ns[CORE_ACCOUNT_LOST],
                     SECONDS(100) + MS(1)); /* a revoke and its acknowledgement: 2 ms; grant: 1 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(use_beyond_quota_counts_and_halves_with_every_half_life),
        TEST(use_in_balance_is_what_is_held_for_1_44_half_lives),
        TEST(use_within_quota_is_the_teams_own),
        TEST(device_that_is_let_go_of_counts_until_it_is_verified),
        TEST(reservation_beyond_the_quota_is_refused_or_waits_and_blocks_nobody),
        TEST(reservation_grows_no_further_than_the_quota),
        TEST(reservations_are_not_bounded_before_there_are_teams),
        TEST(removed_team_is_forgotten_with_its_last_lease),
        TEST(device_time_is_booked_to_lease_and_team_and_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
