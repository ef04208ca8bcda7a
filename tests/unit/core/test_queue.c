/* test_queue.c: server/core/queue.c and planner.c: who is granted what, and in which order. */
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

static uint32_t held(struct rig *rig, uint64_t lease)
{
    return rig_lease_view(rig, lease).devices;
}

static void request(struct rig *rig, uint64_t lease, uint32_t min, uint32_t max, int32_t priority)
{
    struct core_lease_spec spec = rig_lease_spec(lease, min, max);
    spec.priority = priority;
    rig_request(rig, spec);
}

static void end(struct rig *rig, uint64_t lease)
{
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, lease);
    rig_run(rig, MS(50));
}

static void impossible_request_is_refused_at_once_with_the_reason(void **state)
{
    struct rig *rig = *state;
    struct core_lease_view view;
    rig_lease(rig, 1, 5, 5);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.lease, 1);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_IMPOSSIBLE);
    assert_false(core_lease_find(rig->core, 1, &view));
    struct core_lease_spec other_kind = rig_lease_spec(2, 1, 1);
    other_kind.kinds_mask = 2;
    rig_request(rig, other_kind);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_IMPOSSIBLE);
}

static void one_of_two_large_requests_gets_all_and_the_other_nothing(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 3, 3);
    rig_lease(rig, 2, 3, 3);
    rig_run(rig, SECONDS(10));
    assert_int_equal(held(rig, 1), 3);
    assert_int_equal(held(rig, 2), 0);
    assert_int_equal(rig_lease_view(rig, 2).position, 1);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_WAIT, 0, 2).reason, CORE_REASON_GANG_MINIMUM);
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 0);
    end(rig, 1);
    assert_int_equal(held(rig, 2), 3);
}

static void nobody_is_revoked_for_a_plan_that_would_still_not_fit(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 2, 2); /* a floor that stays */
    rig_lease(rig, 2, 1, 2); /* one device of it could go */
    rig_run(rig, SECONDS(2));
    rig_lease(rig, 3, 2, 2);
    rig_run(rig, SECONDS(60));
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 0);
    assert_int_equal(held(rig, 2), 2);
    end(rig, 2);
    assert_int_equal(held(rig, 3), 2);
}

static void what_is_freed_for_one_goes_to_no_other(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, 4);
    rig_run(rig, SECONDS(2));
    rig->release_ns = SECONDS(2);
    rig_lease(rig, 2, 3, 3);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 3);
    request(rig, 3, 1, 1, 0);
    rig_run(rig, SECONDS(4));
    assert_int_equal(held(rig, 2), 3);
    assert_int_equal(held(rig, 3), 0);
    assert_int_equal(held(rig, 1), 1);
}

static void elastic_surplus_makes_room_for_a_waiting_minimum_and_grows_back(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, 4);
    rig_run(rig, SECONDS(2));
    assert_int_equal(held(rig, 1), 4);
    rig_lease(rig, 2, 2, 2);
    rig_run(rig, SECONDS(2));
    assert_int_equal(held(rig, 1), 2);
    assert_int_equal(held(rig, 2), 2);
    end(rig, 2);
    rig_run(rig, SECONDS(2));
    assert_int_equal(held(rig, 1), 4);
}

static void lease_that_is_not_preemptible_keeps_its_surplus(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 1, 4);
    spec.preemptible = false;
    rig_request(rig, spec);
    rig_run(rig, SECONDS(2));
    rig_lease(rig, 2, 1, 1);
    rig_run(rig, SECONDS(10));
    assert_int_equal(held(rig, 1), 4);
    assert_int_equal(held(rig, 2), 0);
}

static void higher_priority_goes_first_and_waiting_counts_as_priority(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 4, 4);
    request(rig, 2, 4, 4, 0);
    request(rig, 3, 4, 4, 1);
    end(rig, 1);
    assert_int_equal(held(rig, 3), 4);
    rig_run(rig, SECONDS(70)); /* more than a step of age */
    request(rig, 4, 4, 4, 1);
    end(rig, 3);
    assert_int_equal(held(rig, 2),
                     4); /* as old as it is, it ranks with priority 1 and came first */
}

/* LP-3 (d), and invariant 5: small ones may overtake, but not for ever. */
static void large_request_is_not_starved_by_small_ones(void **state)
{
    struct rig *rig = *state;
    for (uint64_t lease = 11; lease <= 14; lease++) {
        rig_lease(rig, lease, 1, 1);
    }
    rig_lease(rig, 1, 4, 4);
    uint64_t asked_ns = rig->now_ns, name = 20, oldest = 11;
    while (rig_lease_view(rig, 1).state == CORE_LEASE_WAITING &&
           rig->now_ns - asked_ns < SECONDS(600)) {
        /* Small jobs of 20 s each; one ends every 5 s and two new ones come. */
        rig_run(rig, SECONDS(5));
        struct core_lease_view view;
        while (core_lease_find(rig->core, oldest, &view) && view.state == CORE_LEASE_ENDED) {
            oldest++;
        }
        if (core_lease_find(rig->core, oldest, &view) && view.state == CORE_LEASE_RUNNING) {
            rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, oldest);
        }
        oldest = oldest == 14 ? 20 : oldest + 1;
        request(rig, name++, 1, 1, 1);
        request(rig, name++, 1, 1, 1);
    }
    assert_int_equal(held(rig, 1), 4);
    assert_true(rig->now_ns - asked_ns <= SECONDS(120 + 5 * 20));
}

static void impossible_for_now_blocks_nobody(void **state)
{
    struct rig *rig = *state;
    rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, 4);
    rig_lease(rig, 1, 4, 4); /* the pool has four, but one is broken */
    rig_run(rig, SECONDS(300));
    rig_lease(rig, 2, 3, 3);
    rig_run(rig, MS(50));
    assert_int_equal(held(rig, 2), 3);
}

static void growth_is_shared_evenly_among_equals(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 4, 4);
    rig_lease(rig, 2, 1, 4);
    rig_lease(rig, 3, 1, 4);
    end(rig, 1);
    rig_run(rig, SECONDS(2));
    assert_int_equal(held(rig, 2), 2);
    assert_int_equal(held(rig, 3), 2);
}

static void higher_priority_grows_first(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 4, 4);
    request(rig, 2, 1, 4, 0);
    request(rig, 3, 1, 2, 5);
    end(rig, 1);
    rig_run(rig, SECONDS(2));
    assert_int_equal(held(rig, 3), 2);
    assert_int_equal(held(rig, 2), 2);
}

static void slow_device_is_chosen_last(void **state)
{
    struct rig *rig = *state;
    rig_device_flag(rig, CORE_EVENT_DEVICE_SLOW, 1, true);
    rig_lease(rig, 1, 3, 3);
    assert_int_equal(rig_device_view(rig, 1).hold, CORE_HOLD_NONE);
    rig_lease(rig, 2, 1, 1);
    assert_int_equal(rig_device_view(rig, 1).lease, 2);
}

static void promise_that_cannot_be_kept_is_dropped_and_made_anew(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, 4);
    rig_run(rig, SECONDS(2));
    rig->release_ns = SECONDS(1);
    rig_lease(rig, 2, 3, 3);
    rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, 3);
    rig_run(rig, SECONDS(5)); /* three are left and one is a floor: not possible any more */
    assert_int_equal(held(rig, 2), 0);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(held(rig, 1), 3); /* what had been promised grows back */
    rig_device_event(rig, CORE_EVENT_DEVICE_RECOVERED, 3);
    rig_run(rig, SECONDS(5));
    assert_int_equal(held(rig, 2), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(impossible_request_is_refused_at_once_with_the_reason),
        TEST(one_of_two_large_requests_gets_all_and_the_other_nothing),
        TEST(nobody_is_revoked_for_a_plan_that_would_still_not_fit),
        TEST(what_is_freed_for_one_goes_to_no_other),
        TEST(elastic_surplus_makes_room_for_a_waiting_minimum_and_grows_back),
        TEST(lease_that_is_not_preemptible_keeps_its_surplus),
        TEST(higher_priority_goes_first_and_waiting_counts_as_priority),
        TEST(large_request_is_not_starved_by_small_ones),
        TEST(impossible_for_now_blocks_nobody),
        TEST(growth_is_shared_evenly_among_equals),
        TEST(higher_priority_grows_first),
        TEST(slow_device_is_chosen_last),
        TEST(promise_that_cannot_be_kept_is_dropped_and_made_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
