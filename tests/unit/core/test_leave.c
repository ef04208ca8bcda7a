/* test_leave.c: devices that their provider takes back at a time that is known. With the defaults:
 * 30 s for serving to move, 10 s for a kill, 30 s of notice (5 s in process), 60 s to be of use. */
#include <stdlib.h>

#include "tests/unit/core/rig.h"

#define END_NS SECONDS(1000)

static int setup(void **state)
{
    *state = rig_create(NULL);
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static void add(struct rig *rig, uint64_t device, uint64_t available_until_ns)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                      .device_added = {.device = device,
                                                       .available_until_ns = available_until_ns}});
}

static void reclaim(struct rig *rig, uint64_t device, uint64_t by_ns)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                                      .device_time = {.device = device, .by_ns = by_ns}});
}

static void run_until(struct rig *rig, uint64_t time_ns)
{
    rig_run(rig, time_ns - rig->now_ns);
}

static void endpoint(struct rig *rig, uint32_t min, uint32_t max)
{
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_ADDED};
    event.endpoint_spec = (struct core_endpoint_spec){
        .endpoint = 1, .slo_ns = MS(100), .devices_min = min, .devices_max = max, .kinds_mask = 1};
    rig_send(rig, event);
}

static void device_is_used_until_shortly_before_its_end(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, END_NS);
    rig_reconcile(rig);
    assert_int_equal(rig_device_view(rig, 1).reclaim_by_ns, END_NS);
    run_until(rig, END_NS - SECONDS(131));
    rig_lease(rig, 1, 1, 1);
    run_until(rig, END_NS - SECONDS(130) + MS(1));
    assert_int_equal(rig_lease_view(rig, 1).devices, 1);
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
    run_until(rig, END_NS - SECONDS(100));
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_NONE);
    rig_lease(rig, 2, 1, 1);
    run_until(rig, END_NS + SECONDS(100));
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_WAITING);
}

static void holder_has_its_whole_notice_and_the_kill_bound_before_the_end(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, END_NS);
    rig_reconcile(rig);
    struct core_lease_spec spec = rig_outside_spec(1, 1, 1, 0);
    spec.notice_ns = SECONDS(200);
    rig_request(rig, spec);
    run_until(rig, END_NS - SECONDS(240) - 1);
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_HELD);
    rig->answers = false;
    run_until(rig, END_NS - SECONDS(240));
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_REVOKING);
    assert_int_equal(rig_device_view(rig, 1).deadline_ns, END_NS - SECONDS(40));
    assert_int_equal(rig_explanation(rig, CORE_WHAT_REVOKE, 1, 1).reason, CORE_REASON_RECLAIM);
    run_until(rig, END_NS - SECONDS(40));
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_KILLING);
}

static void lease_goes_on_with_the_devices_that_stay(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, END_NS);
    add(rig, 2, 0);
    rig_reconcile(rig);
    rig_lease(rig, 1, 1, 2);
    run_until(rig, END_NS - SECONDS(46));
    assert_int_equal(rig_lease_view(rig, 1).devices, 2);
    run_until(rig, END_NS - SECONDS(44));
    assert_int_equal(rig_lease_view(rig, 1).devices, 1);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig_device_view(rig, 2).hold, CORE_HOLD_HELD);
}

static void serving_moves_without_a_gap(void **state)
{
    struct rig *rig = *state;
    rig->place_ns = SECONDS(5);
    add(rig, 1, END_NS);
    rig_reconcile(rig);
    endpoint(rig, 1, 1);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
    add(rig, 2, 0);
    uint64_t least = 1;
    while (rig->now_ns < END_NS) {
        rig_run(rig, MS(500));
        uint64_t ready = rig_endpoint_view(rig, 1).instances_ready;
        least = ready < least ? ready : least;
    }
    assert_int_equal(least, 1);
    assert_int_equal(core_instance_find(rig->core, 1, 1), CORE_INSTANCE_ABSENT);
    assert_int_equal(core_instance_find(rig->core, 1, 2), CORE_INSTANCE_READY);
}

static void instance_with_nowhere_to_go_serves_until_the_last_moment(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, END_NS);
    rig_reconcile(rig);
    endpoint(rig, 1, 1);
    run_until(rig, END_NS - SECONDS(11));
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
    run_until(rig, END_NS - SECONDS(9));
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 0);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_REMOVE, 1, 0).reason, CORE_REASON_RECLAIM);
}

static void parked_model_goes_at_once(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, END_NS);
    add(rig, 2, 0);
    rig_reconcile(rig);
    endpoint(rig, 1, 2);
    run_until(rig, END_NS - SECONDS(31));
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 2);
    run_until(rig, END_NS - SECONDS(29));
    assert_int_equal(core_instance_find(rig->core, 1, 1), CORE_INSTANCE_ABSENT);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
}

/* A gang of one stands still for an endpoint. */
static void stop_gang(struct rig *rig)
{
    rig->release_ns = SECONDS(5);
    add(rig, 1, 0);
    rig_reconcile(rig);
    rig_request(rig, rig_outside_spec(1, 1, 1, 1u << CORE_RUNG_FREEZE | 1u << CORE_RUNG_NOTICE));
    rig_run(rig, SECONDS(100));
    endpoint(rig, 1, 1);
    rig_run(rig, SECONDS(5));
}

static void stopped_gang_is_at_work_for_its_notice(void **state)
{
    struct rig *rig = *state;
    stop_gang(rig);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_SUSPENDED);
    uint64_t end_ns = rig->now_ns + SECONDS(75);
    reclaim(rig, 1, end_ns);
    run_until(rig, end_ns - SECONDS(69));
    assert_int_equal(rig_device_view(rig, 1).rung, CORE_RUNG_NOTICE);
    assert_true(rig_device_view(rig, 1).deadline_ns <= end_ns - SECONDS(39));
}

static void gang_that_takes_long_to_go_on_goes_on_earlier(void **state)
{
    struct rig *rig = *state;
    stop_gang(rig);
    uint64_t end_ns = rig->now_ns + SECONDS(79);
    reclaim(rig, 1, end_ns);
    rig_send(rig,
             (struct core_event){
                 .kind = CORE_EVENT_RUNG_MEASURED,
                 .rung_measured = {.lease = 1, .rung = CORE_RUNG_FREEZE, .give_ns = SECONDS(4)}});
    run_until(rig, end_ns - SECONDS(75));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_SUSPENDED);
    run_until(rig, end_ns - SECONDS(73));
    assert_int_equal(rig_device_view(rig, 1).rung, CORE_RUNG_NOTICE);
}

/* Else it would be granted and asked back in turns, until the end. */
static void device_that_a_long_notice_would_take_back_at_once_is_not_granted(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_outside_spec(1, 1, 1, 1u << CORE_RUNG_NOTICE);
    spec.notice_ns = SECONDS(120);
    add(rig, 1, END_NS);
    rig_reconcile(rig);
    run_until(rig, END_NS - SECONDS(219)); /* margin, kill bound, notice, what is of use: 220 s */
    rig_request(rig, spec);
    rig_run(rig, SECONDS(1));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_WAITING);
    reclaim(rig, 1, END_NS + SECONDS(100));
    rig_run(rig, SECONDS(1));
    assert_int_equal(rig_lease_view(rig, 1).devices, 1);
}

static void wish_that_comes_late_is_met_as_well_as_can_be(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, 0);
    rig_reconcile(rig);
    rig_request(rig, rig_outside_spec(1, 1, 1, 0));
    rig_run(rig, SECONDS(10));
    uint64_t end_ns = rig->now_ns + SECONDS(8);
    rig->answers = false;
    reclaim(rig, 1, end_ns);
    assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.deadline_ns, end_ns);
}

static void device_that_stays_after_all_is_used_again(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, END_NS);
    rig_reconcile(rig);
    endpoint(rig, 1, 1);
    rig_run(rig, SECONDS(1));
    run_until(rig, END_NS - SECONDS(20));
    rig_lease(rig, 1, 1, 1);
    assert_int_equal(rig_lease_view(rig, 1).devices, 0);
    reclaim(rig, 1, END_NS + SECONDS(1000));
    rig_run(rig, SECONDS(1));
    assert_int_equal(rig_lease_view(rig, 1).devices, 1);
    run_until(rig, END_NS + SECONDS(100));
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
    run_until(rig, END_NS + SECONDS(996));
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_NONE);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(device_is_used_until_shortly_before_its_end),
        TEST(holder_has_its_whole_notice_and_the_kill_bound_before_the_end),
        TEST(lease_goes_on_with_the_devices_that_stay),
        TEST(serving_moves_without_a_gap),
        TEST(instance_with_nowhere_to_go_serves_until_the_last_moment),
        TEST(parked_model_goes_at_once),
        TEST(stopped_gang_is_at_work_for_its_notice),
        TEST(gang_that_takes_long_to_go_on_goes_on_earlier),
        TEST(device_that_a_long_notice_would_take_back_at_once_is_not_granted),
        TEST(wish_that_comes_late_is_met_as_well_as_can_be),
        TEST(device_that_stays_after_all_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
