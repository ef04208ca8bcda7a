/* test_guard.c: server/core/guard.c: what a lease was promised against being revoked for others. */
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

/* Lease 1 holds all four devices and could give three; lease 2 wants some of them. */
static uint32_t left_after_request(struct rig *rig, struct core_lease_spec spec, uint64_t ran_ns,
                                   uint32_t wanted)
{
    rig_request(rig, spec);
    rig_run(rig, ran_ns);
    assert_int_equal(rig_lease_view(rig, 1).devices, 4);
    rig_lease(rig, 2, wanted, wanted);
    rig_run(rig, SECONDS(1));
    return rig_lease_view(rig, 1).devices;
}

static void reservation_gives_nothing(void **state)
{
    struct core_lease_spec spec = rig_lease_spec(1, 1, 4);
    spec.preemptible = false;
    assert_int_equal(left_after_request(*state, spec, SECONDS(2), 1), 4);
}

static void floor_is_not_shrunk_below(void **state)
{
    struct core_lease_spec spec = rig_lease_spec(1, 1, 4);
    spec.floor = 3;
    assert_int_equal(left_after_request(*state, spec, SECONDS(2), 2), 4);
    rig_lease_event(*state, CORE_EVENT_LEASE_CANCELLED, 2);
    rig_lease(*state, 3, 1, 1);
    rig_run(*state, SECONDS(1));
    assert_int_equal(rig_lease_view(*state, 1).devices, 3);
}

static void nothing_is_taken_within_the_minimum_run_time_and_at_once_after_it(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 1, 4);
    spec.run_min_ns = SECONDS(60);
    assert_int_equal(left_after_request(rig, spec, SECONDS(2), 2), 4);
    rig_run(rig, SECONDS(57) - 1); /* with the second of the request: a moment short of 60 */
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 0);
    rig_run(rig, 1);
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 2);
}

static void revokes_of_an_hour_are_bounded_and_a_gang_counts_once(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 1, 4);
    spec.revokes_per_hour = 2;
    uint64_t start_ns = rig->now_ns;
    assert_int_equal(left_after_request(rig, spec, SECONDS(2), 2), 2);
    for (uint64_t lease = 2; lease <= 4; lease++) {
        rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, lease);
        rig_run(rig, SECONDS(10));
        rig_lease(rig, lease + 1, 2, 2);
        rig_run(rig, SECONDS(10));
        assert_int_equal(rig_lease_view(rig, 1).devices, lease == 2 ? 2 : 4);
    }
    rig_run(rig, SECONDS(3600) - (rig->now_ns - start_ns)); /* the first was 2 s after the start */
    assert_int_equal(rig_lease_view(rig, 1).devices, 4);
    rig_run(rig, SECONDS(3));
    assert_int_equal(rig_lease_view(rig, 1).devices, 2);
}

static void bounds_out_of_range_are_refused(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 1, 4);
    spec.floor = 5;
    rig_request(rig, spec);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_INVALID);
    spec.floor = 0;
    spec.revokes_per_hour = CORE_REVOKES_MAX + 1;
    rig_request(rig, spec);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(reservation_gives_nothing),
        TEST(floor_is_not_shrunk_below),
        TEST(nothing_is_taken_within_the_minimum_run_time_and_at_once_after_it),
        TEST(revokes_of_an_hour_are_bounded_and_a_gang_counts_once),
        TEST(bounds_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
