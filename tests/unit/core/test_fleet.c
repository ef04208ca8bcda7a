/* test_fleet.c: server/core/fleet.c: endpoints that can share devices need them together. */
#include "tests/unit/core/rig.h"

#include "server/core/state.h"

#define DEVICES 8

static int setup(void **state)
{
    struct core_config config;
    core_config_init(&config);
    config.store_epoch = 1;
    config.late_budget_ppm = 1000000; /* the load alone */
    struct rig *rig = rig_create(&config);
    for (uint64_t device = 1; device <= DEVICES; device++) {
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

static void endpoint(struct rig *rig, enum core_event_kind kind, uint64_t id, uint32_t devices_max)
{
    rig_send(rig, (struct core_event){.kind = kind,
                                      .endpoint_spec = {.endpoint = id,
                                                        .slo_ns = SECONDS(1),
                                                        .devices_max = devices_max,
                                                        .kinds_mask = 1}});
}

static void remove_endpoint(struct rig *rig, uint64_t id)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_REMOVED,
                                      .endpoint = {.endpoint = id}});
}

/* Jobs of one device each; that long until it is serving. */
static void jobs(struct rig *rig, uint64_t count)
{
    for (uint64_t lease = 1; lease <= count; lease++) {
        rig_request(rig, rig_outside_spec(lease, 1, 1, 1u << CORE_RUNG_PAUSE));
    }
    rig_run(rig, MS(100));
}

/* Each endpoint has so many tenths of a device's worth of requests of 100 ms. */
static void load(struct rig *rig, uint64_t endpoints, uint32_t tenths, uint64_t span_ns)
{
    for (uint64_t passed = 0; passed < span_ns; passed += MS(100)) {
        rig_run(rig, MS(100));
        for (uint64_t id = 1; id <= endpoints; id++) {
            rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_SAMPLE,
                                              .endpoint_sample = {.endpoint = id,
                                                                  .interval_ns = MS(100),
                                                                  .arrivals = tenths,
                                                                  .busy_ns = tenths * MS(10)}});
        }
    }
}

static uint32_t needed(const struct rig *rig, uint64_t id)
{
    return rig_endpoint_view(rig, id).devices_needed;
}

static void one_asks_for_what_all_need_together(void **state)
{
    struct rig *rig = *state;
    for (uint64_t id = 1; id <= 4; id++) {
        endpoint(rig, CORE_EVENT_ENDPOINT_ADDED, id, DEVICES);
    }
    jobs(rig, DEVICES);
    load(rig, 4, 4, SECONDS(30)); /* 1.6 devices in all: two, and not four */
    assert_int_equal(needed(rig, 1), 2);
    for (uint64_t id = 2; id <= 4; id++) {
        assert_int_equal(needed(rig, id), 1);
    }
}

static void each_asks_for_itself_where_no_lease_must_be_asked(void **state)
{
    struct rig *rig = *state;
    for (uint64_t id = 1; id <= 2; id++) {
        endpoint(rig, CORE_EVENT_ENDPOINT_ADDED, id, DEVICES);
    }
    rig_lease(rig, 1, 1, DEVICES); /* in process: it yields */
    load(rig, 2, 15, SECONDS(30)); /* 1.5 at 0.8 each */
    assert_int_equal(needed(rig, 1), 2);
    assert_int_equal(needed(rig, 2), 2);
}

static void bearer_that_goes_is_followed_by_another(void **state)
{
    struct rig *rig = *state;
    for (uint64_t id = 1; id <= 3; id++) {
        endpoint(rig, CORE_EVENT_ENDPOINT_ADDED, id, DEVICES);
    }
    jobs(rig, DEVICES);
    load(rig, 3, 9, SECONDS(30)); /* 2.7 devices */
    assert_int_equal(needed(rig, 1), 3);
    remove_endpoint(rig, 1);
    rig_run(rig, MS(200));
    load(rig, 3, 9, SECONDS(30)); /* 1.8: what is told of one that is gone counts for nothing */
    assert_int_equal(needed(rig, 2), 2);
    assert_int_equal(needed(rig, 3), 1);
}

static void one_that_may_be_on_more_devices_becomes_the_bearer(void **state)
{
    struct rig *rig = *state;
    endpoint(rig, CORE_EVENT_ENDPOINT_ADDED, 1, 4);
    endpoint(rig, CORE_EVENT_ENDPOINT_ADDED, 2, 4);
    jobs(rig, DEVICES);
    load(rig, 2, 9, SECONDS(30));
    assert_int_equal(needed(rig, 1), 2);
    endpoint(rig, CORE_EVENT_ENDPOINT_CHANGED, 2, DEVICES);
    load(rig, 2, 9, SECONDS(30));
    assert_int_equal(needed(rig, 1), 1);
    assert_int_equal(needed(rig, 2), 2);
}

static void last_endpoint_removed_leaves_nothing_behind(void **state)
{
    struct rig *rig = *state;
    endpoint(rig, CORE_EVENT_ENDPOINT_ADDED, 1, DEVICES);
    jobs(rig, DEVICES);
    load(rig, 1, 30, SECONDS(30));
    assert_int_equal(needed(rig, 1), 3);
    remove_endpoint(rig, 1);
    rig_run(rig, SECONDS(60));
    for (uint64_t lease = 1; lease <= DEVICES; lease++) {
        assert_int_equal(rig_lease_view(rig, lease).state, CORE_LEASE_RUNNING);
    }
    endpoint(rig, CORE_EVENT_ENDPOINT_ADDED, 2, DEVICES);
    rig_run(rig, MS(100));
    assert_int_equal(needed(rig, 2), 0);
}

static void strictest_target_bounds_the_budget_of_all(void **state)
{
    struct rig *rig = *state;
    endpoint(rig, CORE_EVENT_ENDPOINT_ADDED, 1, DEVICES);
    assert_int_equal(rig->core->fleets[0].budget_ppm, 1000000);
    struct core_event strict = {.kind = CORE_EVENT_ENDPOINT_ADDED,
                                .endpoint_spec = {.endpoint = 2,
                                                  .slo_ns = SECONDS(2),
                                                  .target_permille = 998,
                                                  .devices_max = 1,
                                                  .kinds_mask = 1}};
    rig_send(rig, strict);
    assert_int_equal(rig->core->fleets[0].budget_ppm, 2000);
    remove_endpoint(rig, 2);
    assert_int_equal(rig->core->fleets[0].budget_ppm, 1000000);
}

static void hold_grows_as_the_moves_of_the_hour_are_used(void **state)
{
    struct rig *rig = *state;
    endpoint(rig, CORE_EVENT_ENDPOINT_ADDED, 1, DEVICES);
    jobs(rig, DEVICES);
    load(rig, 1, 10, SECONDS(2));
    struct core *core = rig->core;
    uint64_t fresh_ns = core_fleet_hold_ns(core, core->endpoints[0]);
    core_fleet_spend(core, core->endpoints[0], 100);
    uint64_t spent_ns = core_fleet_hold_ns(core, core->endpoints[0]);
    assert_true(spent_ns > fresh_ns + SECONDS(1));
    load(rig, 1, 10, SECONDS(600)); /* they come back with time */
    assert_true(core_fleet_hold_ns(core, core->endpoints[0]) < spent_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(one_asks_for_what_all_need_together),
        TEST(each_asks_for_itself_where_no_lease_must_be_asked),
        TEST(bearer_that_goes_is_followed_by_another),
        TEST(one_that_may_be_on_more_devices_becomes_the_bearer),
        TEST(last_endpoint_removed_leaves_nothing_behind),
        TEST(strictest_target_bounds_the_budget_of_all),
        TEST(hold_grows_as_the_moves_of_the_hour_are_used),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
