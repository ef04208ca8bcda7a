/* test_outlook.c: server/core/outlook.c: how long a waiting lease will wait, and how likely a
 * running one is to be revoked. */
#include "tests/unit/core/rig.h"

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

static struct core_outlook outlook(struct rig *rig, uint64_t lease)
{
    struct core_outlook outlook;
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_TIMER}); /* it is as of the last event */
    assert_true(core_outlook(rig->core, lease, &outlook));
    return outlook;
}

/* ---- waiting ---- */

static void request_for(struct rig *rig, uint64_t lease, uint32_t devices, uint64_t duration_ns)
{
    struct core_lease_spec spec = rig_lease_spec(lease, devices, devices);
    spec.preemptible = false;
    spec.duration_ns = duration_ns;
    rig_request(rig, spec);
    rig_run(rig, MS(50));
}

static void leases_that_end_at_a_known_time_tell_the_wait(void **state)
{
    struct rig *rig = *state;
    request_for(rig, 1, 2, SECONDS(100));
    rig_lease(rig, 2, 2, 2);
    assert_in_range(outlook(rig, 2).wait_ns, SECONDS(99), SECONDS(125));
    assert_int_equal(outlook(rig, 2).reason, CORE_REASON_GANG_MINIMUM);
    rig_run(rig, SECONDS(80));
    assert_in_range(outlook(rig, 2).wait_ns, SECONDS(19), SECONDS(25));
}

static void whoever_is_ahead_takes_what_comes_first(void **state)
{
    struct rig *rig = *state;
    request_for(rig, 1, 1, SECONDS(100));
    request_for(rig, 2, 1, SECONDS(1000));
    rig_lease(rig, 3, 1, 1);
    rig_lease(rig, 4, 1, 1);
    assert_in_range(outlook(rig, 3).wait_ns, SECONDS(99), SECONDS(125));
    assert_true(outlook(rig, 4).wait_ns > outlook(rig, 3).wait_ns);
    assert_true(outlook(rig, 4).wait_ns <= SECONDS(1250));
}

static void runs_of_before_tell_how_long_others_run(void **state)
{
    struct rig *rig = *state;
    for (uint64_t lease = 1; lease <= 8; lease++) {
        rig_lease(rig, lease, 2, 2);
        rig_run(rig, SECONDS(60));
        rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, lease);
        rig_run(rig, SECONDS(1));
    }
    rig_lease(rig, 9, 2, 2);
    rig_run(rig, MS(50));
    rig_lease(rig, 10, 2, 2);
    assert_in_range(outlook(rig, 10).wait_ns, SECONDS(30), SECONDS(300));
}

static void nobody_can_tell_before_any_run_has_ended(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 2, 2);
    rig_run(rig, MS(50));
    rig_lease(rig, 2, 2, 2);
    assert_true(outlook(rig, 2).wait_ns == UINT64_MAX);
}

static void impossible_request_waits_for_ever_and_says_why(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 2, 2);
    rig_run(rig, MS(50));
    rig_lease(rig, 2, 2, 2);
    rig_device_event(rig, CORE_EVENT_DEVICE_REMOVED, 2);
    rig_run(rig, SECONDS(60));
    assert_int_equal(outlook(rig, 2).reason, CORE_REASON_IMPOSSIBLE);
    assert_true(outlook(rig, 2).wait_ns == UINT64_MAX);
}

/* ---- running ---- */

static void calm_pool_revokes_nobody(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, 2);
    rig_run(rig, SECONDS(600));
    assert_int_equal(outlook(rig, 1).revoke_permille, 0);
}

/* Leases that come and go take the second device of the elastic one each time. */
static void come_and_go(struct rig *rig, uint64_t first, int times)
{
    for (int i = 0; i < times; i++) {
        uint64_t lease = first + (uint64_t)i;
        rig_lease(rig, lease, 1, 1);
        rig_run(rig, SECONDS(60));
        rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, lease);
        rig_run(rig, SECONDS(60));
    }
}

static void the_more_revokes_of_late_the_likelier_the_next(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, 2);
    rig_run(rig, SECONDS(60));
    come_and_go(rig, 10, 2);
    uint32_t few = outlook(rig, 1).revoke_permille;
    come_and_go(rig, 20, 20);
    uint32_t many = outlook(rig, 1).revoke_permille;
    assert_in_range(few, 1, 600);
    assert_in_range(many, few + 100, 1000);
    rig_run(rig, SECONDS(6 * 3600)); /* that is long ago */
    assert_in_range(outlook(rig, 1).revoke_permille, 0, few);
}

static void reservation_is_not_revoked(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, 1);
    request_for(rig, 2, 1, 0);
    assert_int_equal(outlook(rig, 2).revoke_permille, 0);
}

static void device_that_its_provider_wants_back_soon_is_sure_to_go(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, 2);
    rig_run(rig, SECONDS(60));
    struct core_event event = {.kind = CORE_EVENT_DEVICE_RECLAIM_BY};
    event.device_time.device = 2;
    event.device_time.by_ns = rig->now_ns + SECONDS(200);
    rig_send(rig, event);
    assert_int_equal(outlook(rig, 1).revoke_permille, 1000);
}

static void unknown_lease_has_no_outlook(void **state)
{
    struct rig *rig = *state;
    struct core_outlook outlook;
    assert_false(core_outlook(rig->core, 77, &outlook));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(leases_that_end_at_a_known_time_tell_the_wait),
        TEST(whoever_is_ahead_takes_what_comes_first),
        TEST(runs_of_before_tell_how_long_others_run),
        TEST(nobody_can_tell_before_any_run_has_ended),
        TEST(impossible_request_waits_for_ever_and_says_why),
        TEST(calm_pool_revokes_nobody),
        TEST(the_more_revokes_of_late_the_likelier_the_next),
        TEST(reservation_is_not_revoked),
        TEST(device_that_its_provider_wants_back_soon_is_sure_to_go),
        TEST(unknown_lease_has_no_outlook),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
