/* test_reserve.c: server/core/reserve.c: what an endpoint keeps for rises that it has seen before.
 */
#include "tests/unit/core/rig.h"

#define DEVICES 8

static int setup(void **state)
{
    struct core_config config;
    core_config_init(&config);
    config.store_epoch = 1;
    struct rig *rig = rig_create(&config);
    for (uint64_t device = 1; device <= DEVICES; device++) {
        rig_device(rig, device);
    }
    rig_reconcile(rig);
    rig_endpoint(rig, 1, SECONDS(1), MS(100)); /* one device always */
    rig_run(rig, MS(50));
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

/* `devices` worth of requests for so long, a sample each 100 ms. */
static void load(struct rig *rig, uint32_t devices, uint64_t span_ns)
{
    for (uint64_t at_ns = 0; at_ns < span_ns; at_ns += MS(100)) {
        rig_run(rig, MS(100));
        rig_load(rig, 1, MS(100), devices);
    }
}

static void bursts(struct rig *rig, int count)
{
    for (int i = 0; i < count; i++) {
        load(rig, 0, SECONDS(40));
        load(rig, 3, SECONDS(20));
    }
    load(rig, 0, SECONDS(40));
}

static void bursts_seen_before_are_awaited_with_devices_that_take_long_to_come(void **state)
{
    struct rig *rig = *state;
    rig_request(rig, rig_outside_spec(1, 1, 1, 1u << CORE_RUNG_PAUSE));
    load(rig, 0, SECONDS(40));
    assert_int_equal(rig_endpoint_view(rig, 1).devices_needed, 1); /* nothing has ever come */
    bursts(rig, 10);
    assert_in_range(rig_endpoint_view(rig, 1).devices_needed, 3, 4);
}

static void devices_that_yield_at_once_need_no_reserve(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 1, 1, DEVICES);
    bursts(rig, 10);
    assert_int_equal(rig_endpoint_view(rig, 1).devices_needed, 1);
}

static void steady_load_keeps_what_its_own_start_needed(void **state)
{
    struct rig *rig = *state;
    rig_request(rig, rig_outside_spec(1, 1, 1, 1u << CORE_RUNG_PAUSE));
    load(rig, 2, SECONDS(300));
    assert_in_range(rig_endpoint_view(rig, 1).devices_needed, 2, 4);
}

static void larger_share_that_may_be_late_keeps_fewer(void **state)
{
    struct rig *rig = *state;
    struct core_endpoint_spec spec = rig_endpoint_view(rig, 1).spec;
    spec.target_permille = 0; /* all of it */
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_CHANGED, .endpoint_spec = spec});
    rig_request(rig, rig_outside_spec(1, 1, 1, 1u << CORE_RUNG_PAUSE));
    bursts(rig, 10);
    assert_int_equal(rig_endpoint_view(rig, 1).devices_needed, 1);
}

static void long_silence_is_learned_in_one_step(void **state)
{
    struct rig *rig = *state;
    rig_request(rig, rig_outside_spec(1, 1, 1, 1u << CORE_RUNG_PAUSE));
    bursts(rig, 10);
    rig_run(rig, SECONDS(100 * 24 * 3600));
    rig_load(rig, 1, MS(100), 0);
    load(rig, 0, SECONDS(60));
    assert_int_equal(rig_endpoint_view(rig, 1).devices_needed, 1); /* ten bursts in 100 days */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(bursts_seen_before_are_awaited_with_devices_that_take_long_to_come),
        TEST(devices_that_yield_at_once_need_no_reserve),
        TEST(steady_load_keeps_what_its_own_start_needed),
        TEST(larger_share_that_may_be_late_keeps_fewer),
        TEST(long_silence_is_learned_in_one_step),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
