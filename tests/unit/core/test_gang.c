/* test_gang.c: which devices a waiting lease gets, all or nothing. */
#include <stdlib.h>

#include "tests/unit/core/rig.h"

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

static void serve(struct rig *rig, uint32_t min, uint64_t memory_bytes)
{
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_ADDED};
    event.endpoint_spec = (struct core_endpoint_spec){.endpoint = 1,
                                                      .slo_ns = MS(100),
                                                      .devices_min = min,
                                                      .devices_max = min,
                                                      .kinds_mask = 1,
                                                      .memory_bytes = memory_bytes};
    rig_send(rig, event);
    rig_run(rig, SECONDS(10));
}

static bool serves(const struct rig *rig, uint64_t device)
{
    return core_instance_find(rig->core, 1, device) == CORE_INSTANCE_READY;
}

static void gang_gets_all_in_one_step_or_nothing(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 2, 2);
    rig_lease(rig, 2, 3, 3);
    assert_int_equal(rig_lease_view(rig, 1).devices, 2);
    assert_int_equal(rig_lease_view(rig, 2).devices, 0);
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_count(rig, CORE_ACTION_GRANT), 0);
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_lease_view(rig, 2).devices, 3);
}

static void device_with_too_little_memory_is_not_picked(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                      .device_added = {.device = 9, .memory_bytes = 500}});
    struct core_lease_spec spec = rig_lease_spec(1, 1, 4);
    spec.memory_bytes = 400;
    rig_request(rig, spec);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_device_view(rig, 9).lease, 1);
    assert_int_equal(rig_lease_view(rig, 1).devices, 1);
}

static void slow_and_busy_devices_come_last(void **state)
{
    struct rig *rig = *state;
    serve(rig, 2, 10); /* on devices 1 and 2 */
    assert_true(serves(rig, 1) && serves(rig, 2));
    rig_device_flag(rig, CORE_EVENT_DEVICE_SLOW, 3, true);
    for (int i = 0; i < 20; i++) {
        rig_run(rig, MS(100));
        rig_sample(rig, 1, MS(100), MS(100));
    }
    rig_lease(rig, 1, 2, 2);
    assert_int_equal(rig_device_view(rig, 2).lease, 1);
    assert_int_equal(rig_device_view(rig, 4).lease, 1);
    rig_lease(rig, 2, 1, 1); /* it serves all the time, but the other one is slow */
    assert_int_equal(rig_device_view(rig, 1).lease, 2);
}

static void outside_job_leaves_serving_the_devices_it_needs(void **state)
{
    struct rig *rig = *state;
    serve(rig, 2, 10);
    rig_request(rig, rig_outside_spec(1, 3, 3, 0));
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_lease_view(rig, 1).devices, 0); /* there are but two */
    rig_request(rig, rig_outside_spec(2, 2, 2, 0));
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 2).devices, 2);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 2);
}

static void waiting_gang_takes_what_elastic_leases_have_above_their_minimum(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, 4);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).devices, 4);
    rig_lease(rig, 2, 3, 3);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).devices, 1);
    assert_int_equal(rig_lease_view(rig, 2).devices, 3);
    rig_lease(rig, 3, 1, 1); /* nobody has more than a minimum */
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_lease_view(rig, 3).devices, 0);
    assert_int_equal(rig_lease_view(rig, 1).revokes, 3);
}

static void less_urgent_lease_gives_first(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 1, 2);
    spec.priority = 5;
    rig_request(rig, spec);
    rig_run(rig, SECONDS(10));
    spec = rig_lease_spec(2, 1, 2);
    spec.priority = 1;
    rig_request(rig, spec);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).devices, 2);
    assert_int_equal(rig_lease_view(rig, 2).devices, 2);
    spec = rig_lease_spec(3, 1, 1);
    spec.priority = 3;
    rig_request(rig, spec);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).devices, 2);
    assert_int_equal(rig_lease_view(rig, 2).devices, 1);
    assert_int_equal(rig_lease_view(rig, 3).devices, 1);
}

static void nobody_gives_for_a_gang_that_would_still_not_fit(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 2, 4);
    rig_request(rig, spec);
    rig_run(rig, SECONDS(10));
    rig_lease(rig, 2, 3, 3); /* lease 1 can give two */
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_lease_view(rig, 1).devices, 4);
    assert_int_equal(rig_lease_view(rig, 1).revokes, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gang_gets_all_in_one_step_or_nothing),
        TEST(device_with_too_little_memory_is_not_picked),
        TEST(slow_and_busy_devices_come_last),
        TEST(outside_job_leaves_serving_the_devices_it_needs),
        TEST(waiting_gang_takes_what_elastic_leases_have_above_their_minimum),
        TEST(less_urgent_lease_gives_first),
        TEST(nobody_gives_for_a_gang_that_would_still_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
