/* test_health.c: slow devices within the health budget. With the defaults: slow under 900, drained
 * under 600 for 60 s, an eighth of the pool at most. */
#include <stdlib.h>

#include "tests/unit/core/rig.h"

static int setup(void **state)
{
    struct rig *rig = rig_create(NULL);
    for (uint64_t device = 1; device <= 8; device++) {
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

static void speed(struct rig *rig, uint64_t device, uint32_t speed_permille)
{
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_DEVICE_SPEED,
                      .device_speed = {.device = device, .speed_permille = speed_permille}});
}

static struct core_health_view health(const struct rig *rig)
{
    struct core_health_view view;
    core_health_read(rig->core, &view);
    return view;
}

static bool is_drained(const struct rig *rig, uint64_t device)
{
    return rig_device_view(rig, device).drained;
}

static void endpoint(struct rig *rig)
{
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_ADDED};
    event.endpoint_spec = (struct core_endpoint_spec){
        .endpoint = 1, .slo_ns = MS(100), .devices_min = 1, .devices_max = 1, .kinds_mask = 1};
    rig_send(rig, event);
}

static void slow_device_is_chosen_last(void **state)
{
    struct rig *rig = *state;
    speed(rig, 1, 899);
    speed(rig, 2, 900);
    assert_int_equal(rig_device_view(rig, 1).health, CORE_HEALTH_SLOW);
    assert_int_equal(rig_device_view(rig, 2).health, CORE_HEALTH_OK);
    rig_lease(rig, 1, 7, 7);
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_device_view(rig, 1).lease, 0);
    rig_lease(rig, 2, 1, 1);
    assert_int_equal(rig_device_view(rig, 1).lease, 2); /* better than none */
    assert_int_equal(health(rig).slow, 1);
    assert_int_equal(health(rig).drained, 0);
}

static void what_the_shell_says_and_what_was_measured_are_both_heard(void **state)
{
    struct rig *rig = *state;
    speed(rig, 1, 700);
    rig_device_flag(rig, CORE_EVENT_DEVICE_SLOW, 1, true);
    speed(rig, 1, 1000);
    assert_int_equal(rig_device_view(rig, 1).health, CORE_HEALTH_SLOW);
    rig_device_flag(rig, CORE_EVENT_DEVICE_SLOW, 1, false);
    assert_int_equal(rig_device_view(rig, 1).health, CORE_HEALTH_OK);
}

static void much_too_slow_device_is_drained_after_a_while(void **state)
{
    struct rig *rig = *state;
    speed(rig, 3, 599);
    rig_run(rig, SECONDS(59));
    assert_false(is_drained(rig, 3));
    rig_run(rig, SECONDS(1));
    assert_true(is_drained(rig, 3));
    assert_int_equal(rig_explanation(rig, CORE_WHAT_DRAIN, 3, 0).reason, CORE_REASON_SLOW);
    rig_lease(rig, 1, 1, 8);
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_lease_view(rig, 1).devices, 7);
    assert_int_equal(rig_device_view(rig, 3).hold, CORE_HOLD_NONE);
}

static void short_throttling_drains_nothing(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 10; i++) {
        speed(rig, 3, 300);
        rig_run(rig, SECONDS(50));
        speed(rig, 3, 700);
        rig_run(rig, SECONDS(20));
    }
    assert_false(is_drained(rig, 3));
}

static void drained_device_is_used_again_when_it_is_well_for_as_long(void **state)
{
    struct rig *rig = *state;
    speed(rig, 3, 300);
    rig_run(rig, SECONDS(60));
    speed(rig, 3, 800); /* better, not well */
    rig_run(rig, SECONDS(300));
    assert_true(is_drained(rig, 3));
    speed(rig, 3, 950);
    rig_run(rig, SECONDS(59));
    assert_true(is_drained(rig, 3));
    rig_run(rig, SECONDS(1));
    assert_false(is_drained(rig, 3));
    rig_lease(rig, 1, 8, 8);
    rig_run(rig, SECONDS(1));
    assert_int_equal(rig_lease_view(rig, 1).devices, 8);
}

static void beyond_the_budget_there_is_an_alert_instead(void **state)
{
    struct rig *rig = *state;
    speed(rig, 5, 500);
    speed(rig, 2, 400);
    speed(rig, 7, 550);
    rig_run(rig, SECONDS(61));
    assert_true(is_drained(rig, 2)); /* the slowest */
    assert_false(is_drained(rig, 5));
    assert_false(is_drained(rig, 7));
    assert_int_equal(health(rig).budget, 1);
    assert_int_equal(health(rig).drained, 1);
    assert_int_equal(health(rig).beyond, 2);
    struct core_explanation alert = rig_explanation(rig, CORE_WHAT_DRAIN, 5, 0);
    assert_int_equal(alert.reason, CORE_REASON_HEALTH_BUDGET);
    assert_false(alert.applied);
    struct core_explanation all[256];
    rig_run(rig, SECONDS(600));
    assert_int_equal(core_explanations(rig->core, 5, 0, 0, all, 256), 1); /* told once */
    rig_lease(rig, 1, 7, 7);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).devices, 7); /* they are used all the same */
}

static void next_one_is_drained_when_the_budget_has_room_again(void **state)
{
    struct rig *rig = *state;
    speed(rig, 2, 400);
    speed(rig, 5, 500);
    rig_run(rig, SECONDS(61));
    speed(rig, 2, 1000);
    rig_run(rig, SECONDS(61));
    assert_false(is_drained(rig, 2));
    assert_true(is_drained(rig, 5));
    assert_int_equal(health(rig).beyond, 0);
}

static void smaller_pool_has_a_smaller_budget(void **state)
{
    struct rig *rig = *state;
    speed(rig, 2, 400);
    rig_run(rig, SECONDS(61));
    assert_true(is_drained(rig, 2));
    rig_device_event(rig, CORE_EVENT_DEVICE_REMOVED, 8);
    assert_false(is_drained(rig, 2));
    assert_int_equal(health(rig).beyond, 1);
}

static void elastic_holder_goes_on_without_the_slow_device(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 2, 8);
    rig_run(rig, SECONDS(10));
    assert_int_equal(rig_lease_view(rig, 1).devices, 8);
    speed(rig, 4, 300);
    rig_run(rig, SECONDS(70));
    assert_int_equal(rig_lease_view(rig, 1).devices, 7);
    assert_int_equal(rig_device_view(rig, 4).hold, CORE_HOLD_NONE);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_REVOKE, 4, 1).reason, CORE_REASON_SLOW);
}

static void gang_starts_again_only_where_there_is_another_device(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 7, 7);
    rig_lease(rig, 2, 1, 1);
    rig_run(rig, SECONDS(100));
    uint64_t slow = rig_device_view(rig, 1).lease == 1 ? 1 : 2;
    speed(rig, slow, 300);
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_lease_view(rig, 1).runs, 1); /* there is none */
    assert_int_equal(rig_device_view(rig, slow).lease, 1);
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 2);
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_lease_view(rig, 1).runs, 2);
    assert_int_equal(rig_lease_view(rig, 1).devices, 7);
    assert_int_equal(rig_device_view(rig, slow).lease, 0);
}

static void reservation_keeps_its_slow_device(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = rig_lease_spec(1, 1, 4);
    spec.preemptible = false;
    rig_request(rig, spec);
    rig_run(rig, SECONDS(10));
    speed(rig, 1, 300);
    rig_run(rig, SECONDS(100));
    assert_int_equal(rig_device_view(rig, 1).lease, 1);
    assert_true(is_drained(rig, 1));
}

static void serving_moves_away_from_a_drained_device(void **state)
{
    struct rig *rig = *state;
    rig->place_ns = SECONDS(3);
    endpoint(rig);
    rig_run(rig, SECONDS(10));
    assert_int_equal(core_instance_find(rig->core, 1, 1), CORE_INSTANCE_READY);
    speed(rig, 1, 300);
    for (int i = 0; i < 80; i++) {
        rig_run(rig, SECONDS(1));
        assert_true(rig_endpoint_view(rig, 1).instances_ready >= 1);
    }
    assert_int_equal(core_instance_find(rig->core, 1, 1), CORE_INSTANCE_ABSENT);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
}

static void nothing_is_drained_on_hold(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_HOLD, .hold = {.on = true}});
    speed(rig, 1, 300);
    rig_run(rig, SECONDS(100));
    assert_false(is_drained(rig, 1));
    assert_int_equal(rig_explanation(rig, CORE_WHAT_DRAIN, 1, 0).reason, CORE_REASON_SLOW);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_HOLD});
    assert_true(is_drained(rig, 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(slow_device_is_chosen_last),
        TEST(what_the_shell_says_and_what_was_measured_are_both_heard),
        TEST(much_too_slow_device_is_drained_after_a_while),
        TEST(short_throttling_drains_nothing),
        TEST(drained_device_is_used_again_when_it_is_well_for_as_long),
        TEST(beyond_the_budget_there_is_an_alert_instead),
        TEST(next_one_is_drained_when_the_budget_has_room_again),
        TEST(smaller_pool_has_a_smaller_budget),
        TEST(elastic_holder_goes_on_without_the_slow_device),
        TEST(gang_starts_again_only_where_there_is_another_device),
        TEST(reservation_keeps_its_slow_device),
        TEST(serving_moves_away_from_a_drained_device),
        TEST(nothing_is_drained_on_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
