/* test_placement.c: server/core/placement.c and demand.c: who serves where, and how many are
 * needed. */
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

static struct core_endpoint_spec spec_of(uint64_t endpoint, uint32_t min, uint32_t max,
                                         uint64_t memory)
{
    return (struct core_endpoint_spec){.endpoint = endpoint,
                                       .slo_ns = MS(20),
                                       .target_permille = 990,
                                       .devices_min = min,
                                       .devices_max = max,
                                       .kinds_mask = 1,
                                       .memory_bytes = memory};
}

static void add(struct rig *rig, struct core_endpoint_spec spec)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED, .endpoint_spec = spec});
}

static void measured(struct rig *rig, uint64_t endpoint, uint64_t single_ns)
{
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_ENDPOINT_SERVICE,
                      .endpoint_service = {.endpoint = endpoint, .service_ns = {single_ns}}});
}

/* Load for a while, as a shell tells it. */
static void load(struct rig *rig, uint64_t endpoint, uint32_t per_second, uint64_t span_ns)
{
    for (uint64_t passed = 0; passed < span_ns; passed += MS(100)) {
        rig_run(rig, MS(100));
        rig_load(rig, endpoint, MS(100), per_second / 10);
    }
}

static struct core_lease_spec outside(uint64_t lease, uint32_t min, uint32_t max)
{
    struct core_lease_spec spec = rig_lease_spec(lease, min, max);
    spec.in_process = false;
    return spec;
}

static void models_are_parked_wherever_memory_is_left(void **state)
{
    struct rig *rig = *state;
    add(rig, spec_of(1, 1, 4, 60));
    assert_int_equal(rig_count(rig, CORE_ACTION_PLACE), 4);
    add(rig, spec_of(2, 0, 4, 40));
    assert_int_equal(rig_count(rig, CORE_ACTION_PLACE), 4);
    add(rig, spec_of(3, 0, 4, 1));
    assert_int_equal(rig_count(rig, CORE_ACTION_PLACE), 0);
    rig_run(rig, MS(50));
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 4);
    assert_int_equal(rig_device_view(rig, 1).memory_used_bytes, 100);
}

static void needed_model_takes_the_memory_of_parked_ones(void **state)
{
    struct rig *rig = *state;
    add(rig, spec_of(1, 1, 4, 80));
    rig_run(rig, MS(50));
    add(rig, spec_of(2, 2, 2, 60));
    assert_int_equal(rig_count(rig, CORE_ACTION_REMOVE), 2);
    rig_run(rig, MS(100));
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 2);
    assert_int_equal(rig_endpoint_view(rig, 2).instances_ready, 2);
    rig_run(rig, SECONDS(60)); /* and it stays so */
    assert_int_equal(rig->total[CORE_ACTION_REMOVE], 2);
}

static void lacking_memory_is_told_as_the_reason(void **state)
{
    struct rig *rig = *state;
    add(rig, spec_of(1, 1, 1, 101));
    assert_int_equal(rig_count(rig, CORE_ACTION_PLACE), 0);
    assert_int_equal(rig_endpoint_view(rig, 1).reason, CORE_REASON_NO_DEVICE_MEMORY);
}

static void neighbour_with_long_batches_is_refused_beside_a_tight_slo(void **state)
{
    struct rig *rig = *state;
    for (uint64_t device = 2; device <= 4; device++) {
        rig_device_flag(rig, CORE_EVENT_DEVICE_CORDONED, device, true);
    }
    add(rig, spec_of(1, 1, 1, 1));
    measured(rig, 1, MS(2));
    struct core_endpoint_spec slow = spec_of(2, 0, 1, 1);
    slow.slo_ns = MS(200);
    rig_device_flag(rig, CORE_EVENT_DEVICE_CORDONED, 1, true); /* measured before it is placed */
    add(rig, slow);
    measured(rig, 2, MS(11)); /* over half of 20 ms */
    rig_device_flag(rig, CORE_EVENT_DEVICE_CORDONED, 1, false);
    assert_int_equal(core_instance_find(rig->core, 2, 1), CORE_INSTANCE_ABSENT);
    slow.devices_min = 1;
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_CHANGED, .endpoint_spec = slow});
    assert_int_equal(rig_endpoint_view(rig, 2).reason, CORE_REASON_NEIGHBOUR_SLO);
    measured(rig, 2, MS(10));
    assert_int_equal(core_instance_find(rig->core, 2, 1), CORE_INSTANCE_PLACING);
}

static void cordoned_occupied_and_failed_devices_get_nothing_new(void **state)
{
    struct rig *rig = *state;
    rig_device_flag(rig, CORE_EVENT_DEVICE_CORDONED, 1, true);
    rig_device_flag(rig, CORE_EVENT_DEVICE_OCCUPIED, 2, true);
    rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, 3);
    add(rig, spec_of(1, 4, 4, 1));
    assert_int_equal(rig_count(rig, CORE_ACTION_PLACE), 1);
    assert_int_equal(core_instance_find(rig->core, 1, 4), CORE_INSTANCE_PLACING);
    rig_lease(rig, 1, 1, 4);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).devices, 1);
    rig_device_flag(rig, CORE_EVENT_DEVICE_CORDONED, 1, false);
    rig_device_flag(rig, CORE_EVENT_DEVICE_OCCUPIED, 2, false);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).devices, 3);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 3);
}

static void failed_placement_is_tried_again_later_and_later(void **state)
{
    struct rig *rig = *state;
    rig->answers = false;
    for (uint64_t device = 2; device <= 4; device++) {
        rig_device_flag(rig, CORE_EVENT_DEVICE_CORDONED, device, true);
    }
    add(rig, spec_of(1, 1, 1, 1));
    for (uint64_t pause_ns = SECONDS(1); pause_ns <= SECONDS(8); pause_ns *= 2) {
        const struct core_action *place = rig_find(rig, CORE_ACTION_PLACE);
        assert_non_null(place);
        rig_send(rig, (struct core_event){
                          .kind = CORE_EVENT_INSTANCE_FAILED,
                          .instance = {.action = place->id, .endpoint = 1, .device = 1}});
        assert_int_equal(core_instance_find(rig->core, 1, 1), CORE_INSTANCE_ABSENT);
        rig_run(rig, pause_ns - 1);
        assert_int_equal(core_instance_find(rig->core, 1, 1), CORE_INSTANCE_ABSENT);
        rig_run(rig, 1);
        assert_int_equal(core_instance_find(rig->core, 1, 1), CORE_INSTANCE_PLACING);
    }
}

static void instance_told(struct rig *rig, enum core_event_kind kind, uint64_t action,
                          uint64_t device)
{
    rig_send(rig,
             (struct core_event){.kind = kind,
                                 .instance = {.action = action, .endpoint = 1, .device = device}});
}

static void answer_with_another_id_makes_no_instance_ready(void **state)
{
    struct rig *rig = *state;
    rig->answers = false;
    add(rig, spec_of(1, 1, 1, 1));
    struct core_action place = *rig_find(rig, CORE_ACTION_PLACE);
    instance_told(rig, CORE_EVENT_INSTANCE_READY, place.id - 1, place.instance.device);
    instance_told(rig, CORE_EVENT_INSTANCE_READY, 0, place.instance.device);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 0);
    instance_told(rig, CORE_EVENT_INSTANCE_READY, place.id, place.instance.device);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
}

static void instance_that_breaks_is_placed_again(void **state)
{
    struct rig *rig = *state;
    add(rig, spec_of(1, 4, 4, 1));
    rig_run(rig, MS(50));
    instance_told(rig, CORE_EVENT_INSTANCE_FAILED, 0, 3);
    assert_int_equal(core_instance_find(rig->core, 1, 3), CORE_INSTANCE_ABSENT);
    rig_run(rig, SECONDS(2));
    assert_int_equal(core_instance_find(rig->core, 1, 3), CORE_INSTANCE_READY);
}

static void place_always_fails(struct rig *rig, const struct core_action *action)
{
    if (action->kind == CORE_ACTION_PLACE) {
        rig_later(rig,
                  (struct core_event){.kind = CORE_EVENT_INSTANCE_FAILED,
                                      .instance = {.action = action->id,
                                                   .endpoint = action->instance.endpoint,
                                                   .device = action->instance.device}},
                  MS(1));
    }
}

static void device_taken_for_an_endpoint_stays_while_its_model_fails_to_load(void **state)
{
    struct rig *rig = *state;
    rig_request(rig, outside(1, 1, 4));
    rig_run(rig, MS(50));
    rig->on_action = place_always_fails;
    rig->place_ns = SECONDS(1000);
    add(rig, spec_of(1, 1, 1, 1));
    rig_run(rig, SECONDS(120));
    assert_true(rig->total[CORE_ACTION_PLACE] > 5);
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 1);
    assert_int_equal(rig_lease_view(rig, 1).devices, 3);
    assert_int_equal(rig_endpoint_view(rig, 1).reason, CORE_REASON_ACTION_FAILED);
}

static void demand_counts_devices_from_rate_and_service_time(void **state)
{
    struct rig *rig = *state;
    add(rig, spec_of(1, 1, 4, 1));
    measured(rig, 1, MS(4));
    load(rig, 1, 400, SECONDS(3)); /* 1.6 devices' worth */
    struct core_endpoint_view view = rig_endpoint_view(rig, 1);
    assert_in_range(view.demand_milli, 1500, 1600);
    assert_int_equal(view.devices_needed, 2);
    load(rig, 1, 0, SECONDS(20));
    view = rig_endpoint_view(rig, 1);
    assert_true(view.demand_milli < 200);
    assert_int_equal(view.devices_needed, 1);
}

static void batches_within_half_the_slo_count_as_capacity(void **state)
{
    struct rig *rig = *state;
    add(rig, spec_of(1, 1, 4, 1));
    rig_send(rig,
             (struct core_event){
                 .kind = CORE_EVENT_ENDPOINT_SERVICE,
                 .endpoint_service = {.endpoint = 1, .service_ns = {MS(4), MS(5), MS(8), MS(12)}}});
    load(rig, 1, 400, SECONDS(3)); /* batches of 4 in 8 ms: 2 ms each; of 8 they take too long */
    assert_in_range(rig_endpoint_view(rig, 1).demand_milli, 750, 800);
}

static void demand_without_a_measurement_follows_what_was_observed(void **state)
{
    struct rig *rig = *state;
    add(rig, spec_of(1, 1, 4, 1));
    for (int i = 0; i < 100; i++) {
        rig_run(rig, MS(100));
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_SAMPLE,
                                          .endpoint_sample = {.endpoint = 1,
                                                              .interval_ns = MS(100),
                                                              .arrivals = 10,
                                                              .busy_ns = MS(50)}});
    }
    assert_in_range(rig_endpoint_view(rig, 1).demand_milli, 250, 500);
}

static void demand_goes_stale_when_samples_stop(void **state)
{
    struct rig *rig = *state;
    add(rig, spec_of(1, 1, 4, 1));
    measured(rig, 1, MS(4));
    load(rig, 1, 700, SECONDS(3));
    assert_int_equal(rig_endpoint_view(rig, 1).devices_needed, 3); /* 2.8 devices' worth */
    rig_run(rig, SECONDS(60));                                     /* timers alone */
    assert_int_equal(rig_endpoint_view(rig, 1).devices_needed, 1);
}

static void danger_asks_for_one_more_at_once_and_for_a_while(void **state)
{
    struct rig *rig = *state;
    struct core_endpoint_spec spec = spec_of(1, 1, 4, 1);
    add(rig, spec);
    rig_run(rig, MS(50));
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_ENDPOINT_DANGER,
                                 .endpoint_danger = {.endpoint = 1, .projected_wait_ns = MS(19)}});
    assert_int_equal(rig_endpoint_view(rig, 1).devices_needed, 4); /* all 4 are ready already */
    assert_int_equal(rig_explanation(rig, CORE_WHAT_DANGER, 0, 0).projected_wait_ns, MS(19));
    rig_run(rig, MS(650)); /* the danger itself, and most of the hold before fewer are needed */
    assert_int_equal(rig_endpoint_view(rig, 1).devices_needed, 4);
    rig_run(rig, MS(200));
    assert_int_equal(rig_endpoint_view(rig, 1).devices_needed, 1);
}

static void danger_takes_a_device_from_an_outside_elastic_lease(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = outside(1, 2, 4);
    spec.rungs_mask = 1u << CORE_RUNG_SHRINK | 1u << CORE_RUNG_NOTICE;
    rig_request(rig, spec);
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, 1).devices, 4);
    add(rig, spec_of(1, 1, 4, 1));
    const struct core_action *revoke = rig_find(rig, CORE_ACTION_REVOKE);
    assert_int_equal(revoke->revoke.rung, CORE_RUNG_SHRINK);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 1); /* one is needed, no more */
    uint64_t device = revoke->revoke.device;
    assert_int_equal(rig_explanation(rig, CORE_WHAT_REVOKE, device, 1).victim_count, 2);
    rig_run(rig, MS(100));
    assert_int_equal(core_instance_find(rig->core, 1, device), CORE_INSTANCE_READY);
    assert_int_equal(rig_lease_view(rig, 1).devices, 3);
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_ENDPOINT_DANGER,
                                 .endpoint_danger = {.endpoint = 1, .projected_wait_ns = MS(19)}});
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 1);
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_ENDPOINT_DANGER,
                                 .endpoint_danger = {.endpoint = 1, .projected_wait_ns = MS(19)}});
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 0); /* what is on its way counts */
    rig_run(rig, MS(100));
    assert_int_equal(rig_lease_view(rig, 1).devices, 2);
    rig_run(rig,
            SECONDS(20)); /* it comes back when the danger is over: one stays for the endpoint */
    assert_int_equal(rig_lease_view(rig, 1).devices, 3);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
}

static void reservation_gives_no_device_to_an_endpoint(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = outside(1, 4, 4);
    spec.preemptible = false;
    rig_request(rig, spec);
    rig_run(rig, MS(50));
    add(rig, spec_of(1, 1, 4, 1));
    rig_run(rig, SECONDS(5));
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 0);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 0);
    assert_int_equal(rig_endpoint_view(rig, 1).reason, CORE_REASON_DEMAND);
}

static void outside_lease_gets_devices_only_when_no_instance_is_on_them(void **state)
{
    struct rig *rig = *state;
    add(rig, spec_of(1, 2, 4, 1));
    rig_run(rig, MS(50));
    rig_request(rig, outside(1, 2, 2));
    assert_int_equal(rig_count(rig, CORE_ACTION_REMOVE), 2);
    assert_int_equal(rig_count(rig, CORE_ACTION_GRANT), 0);
    rig_run(rig, MS(100));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 2);
    rig_request(rig, outside(2, 1, 1)); /* the endpoint needs what is left */
    rig_run(rig, SECONDS(5));
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_WAITING);
}

static void removed_endpoint_is_forgotten_when_its_instances_are_gone(void **state)
{
    struct rig *rig = *state;
    add(rig, spec_of(1, 1, 4, 1));
    rig_run(rig, MS(50));
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_ENDPOINT_REMOVED, .endpoint = {.endpoint = 1}});
    assert_int_equal(rig_count(rig, CORE_ACTION_REMOVE), 4);
    assert_true(rig_endpoint_view(rig, 1).removing);
    rig_run(rig, MS(50));
    struct core_endpoint_view view;
    assert_false(core_endpoint_find(rig->core, 1, &view));
    add(rig, spec_of(1, 1, 1, 1));
    assert_int_equal(rig_count(rig, CORE_ACTION_PLACE), 1);
}

static void more_endpoints_than_first_reserved_all_find_their_places(void **state)
{
    struct rig *rig = *state;
    for (uint64_t endpoint = 40; endpoint >= 1; endpoint--) {
        add(rig, spec_of(endpoint, 1, 2, 1));
    }
    rig_run(rig, MS(100));
    for (uint64_t endpoint = 1; endpoint <= 40; endpoint++) {
        assert_int_equal(rig_endpoint_view(rig, endpoint).instances_ready, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(models_are_parked_wherever_memory_is_left),
        TEST(needed_model_takes_the_memory_of_parked_ones),
        TEST(lacking_memory_is_told_as_the_reason),
        TEST(neighbour_with_long_batches_is_refused_beside_a_tight_slo),
        TEST(cordoned_occupied_and_failed_devices_get_nothing_new),
        TEST(failed_placement_is_tried_again_later_and_later),
        TEST(answer_with_another_id_makes_no_instance_ready),
        TEST(instance_that_breaks_is_placed_again),
        TEST(device_taken_for_an_endpoint_stays_while_its_model_fails_to_load),
        TEST(demand_counts_devices_from_rate_and_service_time),
        TEST(batches_within_half_the_slo_count_as_capacity),
        TEST(demand_without_a_measurement_follows_what_was_observed),
        TEST(demand_goes_stale_when_samples_stop),
        TEST(danger_asks_for_one_more_at_once_and_for_a_while),
        TEST(danger_takes_a_device_from_an_outside_elastic_lease),
        TEST(reservation_gives_no_device_to_an_endpoint),
        TEST(outside_lease_gets_devices_only_when_no_instance_is_on_them),
        TEST(removed_endpoint_is_forgotten_when_its_instances_are_gone),
        TEST(more_endpoints_than_first_reserved_all_find_their_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
