/* test_bridge.c: server/core/bridge.c: a fast rung for the burst, a slow one for the load that
 * stays, and the fast one given back when the slow one has delivered. */
#include "tests/unit/core/rig.h"

#define FREEZE (1u << CORE_RUNG_FREEZE)
#define NOTICE (1u << CORE_RUNG_NOTICE)
#define DEVICES 4

static int setup(void **state)
{
    struct core_config config;
    core_config_init(&config);
    config.late_budget_ppm = 1000000; /* all may be late: no reserve, only the load itself asks */
    struct rig *rig = rig_create(&config);
    for (uint64_t device = 1; device <= DEVICES; device++) {
        rig_device(rig, device);
    }
    rig_reconcile(rig);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED,
                                      .endpoint_spec = {.endpoint = 1,
                                                        .slo_ns = MS(20),
                                                        .devices_max = DEVICES,
                                                        .kinds_mask = 1}});
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_SERVICE,
                                      .endpoint_service = {.endpoint = 1, .service_ns = {MS(4)}}});
    rig_run(rig, MS(50));
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

/* Each job holds one device. Those that listen to a notice take five seconds to save. */
static void start(struct rig *rig, uint64_t lease, uint32_t rungs)
{
    rig_request(rig, rig_outside_spec(lease, 1, 1, rungs));
    rig_run(rig, MS(50));
    assert_int_equal(rig_lease_view(rig, lease).state, CORE_LEASE_RUNNING);
}

static uint64_t device_of(const struct rig *rig, uint64_t lease)
{
    for (uint64_t device = 1; device <= DEVICES; device++) {
        if (rig_device_view(rig, device).lease == lease) {
            return device;
        }
    }
    return 0;
}

/* So much load that so many devices are needed; serving devices are busy all the time. */
static void load(struct rig *rig, uint32_t devices, uint64_t span_ns)
{
    for (uint64_t passed = 0; passed < span_ns; passed += MS(100)) {
        uint32_t arrivals = devices * 24 * 75 / 100;
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_SAMPLE,
                                          .endpoint_sample = {.endpoint = 1,
                                                              .interval_ns = MS(100),
                                                              .arrivals = arrivals,
                                                              .busy_ns = devices * MS(90)}});
        if (rig_endpoint_view(rig, 1).instances_ready < devices) {
            rig_danger(rig, 1, MS(19));
        }
        rig_run(rig, MS(100));
        uint32_t busy = devices;
        for (uint64_t device = 1; device <= DEVICES; device++) {
            struct core_device_view view = rig_device_view(rig, device);
            bool serves = busy > 0 && !view.resting && view.instances_ready > 0;
            rig_sample(rig, device, MS(100), serves ? MS(90) : 0);
            busy -= serves;
        }
    }
}

static void burst_is_carried_by_a_stop_and_the_load_that_stays_by_a_notice(void **state)
{
    struct rig *rig = *state;
    start(rig, 1, FREEZE | NOTICE);
    start(rig, 2, NOTICE);
    start(rig, 3, NOTICE);
    start(rig, 4, NOTICE);
    rig->release_ns = SECONDS(5);
    uint64_t fast = device_of(rig, 1);
    load(rig, 1, SECONDS(1));
    assert_int_equal(rig_device_view(rig, fast).hold, CORE_HOLD_SUSPENDED);
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 1);
    load(rig, 1, SECONDS(40)); /* long enough that a notice before the cap is due */
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 2);
    struct core_explanation story = rig_explanation(rig, CORE_WHAT_REVOKE, 0, 0);
    assert_int_equal(story.reason, CORE_REASON_SUSTAINED_LOAD);
    assert_int_equal(story.rung, CORE_RUNG_NOTICE);
    assert_int_not_equal(story.device, fast);
    assert_true(rig_device_view(rig, story.device).kept_for_serving);
    assert_int_equal(rig_explanation(rig, CORE_WHAT_RESUME, fast, 1).reason, CORE_REASON_DELIVERED);
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
    load(rig, 1, SECONDS(30));
    assert_int_equal(rig->total[CORE_ACTION_REVOKE], 2); /* and so it stays */
}

static void idle_time_of_a_large_gang_brings_the_notice_early(void **state)
{
    struct rig *rig = *state;
    rig_request(rig, rig_outside_spec(1, 3, 3, FREEZE));
    rig_run(rig, MS(50));
    start(rig, 2, NOTICE);
    struct core_event measured = {.kind = CORE_EVENT_RUNG_MEASURED,
                                  .rung_measured = {.lease = 2, .rung = CORE_RUNG_NOTICE}};
    measured.rung_measured.take_ns = SECONDS(25);
    rig_send(rig, measured);
    rig->release_ns = SECONDS(5);
    uint64_t begun_ns = rig->now_ns;
    load(rig, 1, SECONDS(20)); /* two of three stand idle: 10 s of a restore are soon spent */
    struct core_explanation story = rig_explanation(rig, CORE_WHAT_REVOKE, 0, 2);
    assert_int_equal(story.reason, CORE_REASON_SUSTAINED_LOAD);
    assert_true(story.time_ns - begun_ns >= SECONDS(10)); /* not for a burst */
    assert_true(story.time_ns - begun_ns <= SECONDS(11));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_RUNNING);
}

static void notice_on_its_way_is_bridged_by_a_stop(void **state)
{
    struct rig *rig = *state;
    start(rig, 1, NOTICE);
    uint64_t slow = device_of(rig, 1);
    struct core_event saved = {.kind = CORE_EVENT_LEASE_PROGRESS,
                               .lease_progress = {.lease = 1, .step = 1, .checkpointed_step = 1}};
    saved.lease_progress.generation = rig_lease_view(rig, 1).run;
    rig_send(rig, saved);
    struct core_event measured = {.kind = CORE_EVENT_RUNG_MEASURED,
                                  .rung_measured = {.lease = 1, .rung = CORE_RUNG_NOTICE}};
    measured.rung_measured.take_ns = SECONDS(5);
    rig_send(rig, measured);
    rig_request(rig, rig_outside_spec(2, 3, 3, FREEZE)); /* two of three would stand idle */
    rig_run(rig, MS(50));
    rig->release_ns = SECONDS(5);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_CHANGED,
                                      .endpoint_spec = {.endpoint = 1,
                                                        .slo_ns = MS(20),
                                                        .devices_min = 1,
                                                        .devices_max = 1,
                                                        .kinds_mask = 1}});
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 1); /* soon enough, and cheaper */
    assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.device, slow);
    rig_danger(rig, 1, MS(19)); /* not soon enough any more */
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 3);
    assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.rung, CORE_RUNG_FREEZE);
    rig_run(rig, MS(100));
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
    rig_danger(rig, 1, MS(19)); /* what bridges counts too */
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 0);
    rig_run(rig, SECONDS(6));
    assert_int_equal(rig_explanation(rig, CORE_WHAT_RESUME, 0, 2).reason, CORE_REASON_DELIVERED);
    assert_int_equal(rig_lease_view(rig, 2).state, CORE_LEASE_RUNNING);
    assert_int_equal(core_instance_find(rig->core, 1, slow), CORE_INSTANCE_READY);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 1);
}

static void gangs_whose_caps_end_together_do_not_leave_together(void **state)
{
    struct rig *rig = *state;
    for (uint64_t lease = 1; lease <= 4; lease++) {
        start(rig, lease, FREEZE | NOTICE);
    }
    rig->release_ns = SECONDS(5);
    uint32_t fewest = 4;
    load(rig, 4, SECONDS(5));
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 4);
    for (int i = 0; i < 100; i++) {
        load(rig, 4, SECONDS(1));
        uint32_t ready = rig_endpoint_view(rig, 1).instances_ready;
        fewest = ready < fewest ? ready : fewest;
    }
    assert_true(fewest >= 2);
    assert_int_equal(rig_endpoint_view(rig, 1).instances_ready, 4);
    for (uint64_t lease = 1; lease <= 4; lease++) { /* each was asked while at work */
        assert_int_equal(rig_lease_view(rig, lease).state, CORE_LEASE_WAITING);
    }
    assert_int_equal(rig->total[CORE_ACTION_KILL], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(burst_is_carried_by_a_stop_and_the_load_that_stays_by_a_notice),
        TEST(idle_time_of_a_large_gang_brings_the_notice_early),
        TEST(notice_on_its_way_is_bridged_by_a_stop),
        TEST(gangs_whose_caps_end_together_do_not_leave_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
