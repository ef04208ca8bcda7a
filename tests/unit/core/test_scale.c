/* test_scale.c: the scale signal. */
#include "server/core/scale.h"

#include <stdlib.h>

#include "tests/unit/core/rig.h"

#define HOLD SECONDS(160)

struct bench {
    struct rig *rig;
    struct core_scale *scale;
};

static int setup(void **state)
{
    struct bench *bench = calloc(1, sizeof *bench);
    struct core_scale_config config = {.lead_ns = SECONDS(60), .hold_ns = HOLD};
    bench->rig = rig_create(NULL);
    bench->scale = core_scale_create(&config);
    assert_non_null(bench->scale);
    *state = bench;
    return 0;
}

static int teardown(void **state)
{
    struct bench *bench = *state;
    core_scale_destroy(bench->scale);
    rig_destroy(bench->rig);
    free(bench);
    return 0;
}

static void add_device(struct bench *bench, uint64_t device, uint32_t kind, uint64_t provider)
{
    rig_send(bench->rig,
             (struct core_event){
                 .kind = CORE_EVENT_DEVICE_ADDED,
                 .device_added = {.device = device, .kind = kind, .provider = provider}});
}

static void add_devices(struct bench *bench, uint32_t count)
{
    for (uint32_t i = 1; i <= count; i++) {
        add_device(bench, i, 0, 1);
    }
    rig_reconcile(bench->rig);
}

static struct core_scale_view look_at(struct bench *bench, uint32_t kind)
{
    struct core_scale_view view;
    core_scale_update(bench->scale, bench->rig->core, bench->rig->now_ns);
    assert_true(core_scale_read(bench->scale, kind, &view));
    return view;
}

static struct core_scale_view look(struct bench *bench)
{
    return look_at(bench, 0);
}

/* A second of so many requests; the last look at its end. */
static struct core_scale_view serve_second(struct bench *bench, uint32_t requests)
{
    struct core_scale_view view = {.ready = 0};
    for (int i = 0; i < 10; i++) {
        rig_run(bench->rig, MS(100));
        rig_load(bench->rig, 1, MS(100), requests / 10);
        view = look(bench);
    }
    return view;
}

static void announce(struct bench *bench, uint64_t provider, uint32_t kind, uint32_t devices,
                     uint64_t in_ns, uint64_t lead_ns)
{
    struct core_scale_coming coming = {.provider = provider,
                                       .kind = kind,
                                       .devices = devices,
                                       .arrives_ns = bench->rig->now_ns + in_ns,
                                       .lead_ns = lead_ns};
    assert_int_equal(core_scale_announce(bench->scale, bench->rig->core, &coming), 0);
}

/* ---- what is there ---- */

static void usable_devices_are_ready_and_unused_ones_surplus(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 4);
    add_device(bench, 9, 3, 0);
    rig_device_flag(bench->rig, CORE_EVENT_DEVICE_CORDONED, 1, true);
    assert_int_equal(look(bench).ready, 3);
    assert_int_equal(look(bench).surplus, 3);
    assert_int_equal(look_at(bench, 3).ready, 1);
    assert_int_equal(look_at(bench, 5).ready, 0);
    struct core_scale_view view;
    assert_false(core_scale_read(bench->scale, CORE_KINDS_MAX, &view));
}

static void announced_devices_are_pending_until_they_come(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 1);
    announce(bench, 7, 0, 2, SECONDS(30), SECONDS(90));
    struct core_scale_view view = look(bench);
    assert_int_equal(view.pending, 2);
    assert_int_equal(view.arrives_ns, bench->rig->now_ns + SECONDS(30));
    assert_int_equal(view.lead_ns, SECONDS(90));
    add_device(bench, 2, 0, 7);
    add_device(bench, 3, 0, 1); /* another provider's */
    view = look(bench);
    assert_int_equal(view.pending, 1);
    assert_int_equal(view.ready, 3);
    add_device(bench, 4, 0, 7);
    view = look(bench);
    assert_int_equal(view.pending, 0);
    assert_int_equal(view.arrives_ns, 0);
    assert_int_equal(view.ready, 4);
}

static void announcement_replaces_the_one_before(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 1);
    announce(bench, 7, 0, 5, SECONDS(30), 0);
    announce(bench, 7, 0, 2, SECONDS(40), 0);
    announce(bench, 8, 0, 1, SECONDS(20), 0);
    announce(bench, 8, 1, 4, SECONDS(20), 0);
    assert_int_equal(look(bench).pending, 3);
    assert_int_equal(look(bench).arrives_ns, bench->rig->now_ns + SECONDS(40));
    assert_int_equal(look(bench).lead_ns, SECONDS(60));
    announce(bench, 7, 0, 0, 0, 0);
    assert_int_equal(look(bench).pending, 1);
    assert_int_equal(look_at(bench, 1).pending, 4);
}

static void device_that_does_not_come_is_not_counted_on_for_ever(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 1);
    announce(bench, 7, 0, 2, SECONDS(30), 0);
    rig_run(bench->rig, SECONDS(30) + HOLD);
    assert_int_equal(look(bench).pending, 2);
    rig_run(bench->rig, SECONDS(1));
    assert_int_equal(look(bench).pending, 0);
}

static void announcements_are_bounded(void **state)
{
    struct bench *bench = *state;
    struct core_scale_coming coming = {.kind = CORE_KINDS_MAX, .devices = 1};
    assert_int_equal(core_scale_announce(bench->scale, bench->rig->core, &coming), -1);
    for (uint64_t i = 0; i < CORE_SCALE_COMING_MAX; i++) {
        announce(bench, i + 1, 0, 1, 0, 0);
    }
    coming = (struct core_scale_coming){.provider = 1000, .devices = 1};
    assert_int_equal(core_scale_announce(bench->scale, bench->rig->core, &coming), -1);
    assert_int_equal(look(bench).pending, CORE_SCALE_COMING_MAX);
}

/* ---- what is wanted, by reason ---- */

static void endpoint_wants_devices_for_its_demand(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 2);
    rig_endpoint(bench->rig, 1, MS(100), MS(10));
    assert_int_equal(look(bench).desired[CORE_SCALE_SLO], 1); /* its minimum */
    struct core_scale_view view = {.ready = 0};
    for (int i = 0; i < 500; i++) {      /* the first rise is long ago then */
        view = serve_second(bench, 390); /* 3.9 devices' work, at 80 % of each */
    }
    assert_int_equal(rig_endpoint_view(bench->rig, 1).devices_needed, 5);
    assert_int_equal(view.desired[CORE_SCALE_SLO], 5);
    assert_int_equal(view.desired[CORE_SCALE_WAITING], 0);
    assert_int_equal(view.surplus, 0);
}

static void endpoints_that_share_devices_want_them_once(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 3);
    rig_endpoint(bench->rig, 1, MS(100), MS(10));
    rig_endpoint(bench->rig, 2, MS(100), MS(10));
    struct core_scale_view view = look(bench);
    assert_int_equal(view.desired[CORE_SCALE_SLO], 1);
    assert_int_equal(view.surplus, 2);
}

static void endpoint_that_fits_beside_nobody_wants_a_device_of_its_own(void **state)
{
    struct bench *bench = *state;
    rig_send(bench->rig, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                             .device_added = {.device = 1, .memory_bytes = 100}});
    rig_reconcile(bench->rig);
    for (uint64_t id = 1; id <= 2; id++) {
        struct core_event event = {.kind = CORE_EVENT_ENDPOINT_ADDED};
        event.endpoint_spec = (struct core_endpoint_spec){.endpoint = id,
                                                          .slo_ns = MS(100),
                                                          .devices_min = 1,
                                                          .devices_max = 1,
                                                          .kinds_mask = 1,
                                                          .memory_bytes = 80};
        rig_send(bench->rig, event);
    }
    assert_int_equal(look(bench).desired[CORE_SCALE_SLO], 2);
}

static void waiting_lease_wants_its_minimum_and_the_rest_is_backlog(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 3);
    rig_lease(bench->rig, 1, 2, 6);
    rig_lease(bench->rig, 2, 3, 4);
    struct core_scale_view view = look(bench);
    assert_int_equal(view.desired[CORE_SCALE_WAITING], 2 + 3);
    assert_int_equal(view.desired[CORE_SCALE_BACKLOG], 4 + 1);
    assert_int_equal(view.desired[CORE_SCALE_SLO], 0);
    assert_int_equal(view.surplus, 0);
}

static void paused_and_ended_leases_want_nothing(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 1);
    rig_lease(bench->rig, 1, 1, 1);
    rig_lease(bench->rig, 2, 1, 1);
    rig_lease_event(bench->rig, CORE_EVENT_LEASE_PAUSED, 2);
    rig_lease_event(bench->rig, CORE_EVENT_LEASE_CANCELLED, 1);
    rig_run(bench->rig, SECONDS(60));
    assert_int_equal(look(bench).desired[CORE_SCALE_WAITING], 0);
    assert_int_equal(look(bench).surplus, 1);
}

static void lease_counts_for_the_kind_it_has_and_else_for_the_one_that_suits_it(void **state)
{
    struct bench *bench = *state;
    add_device(bench, 1, 2, 1);
    add_device(bench, 2, 4, 1);
    rig_reconcile(bench->rig);
    struct core_lease_spec spec = rig_lease_spec(1, 1, 1);
    spec.kinds_mask = 1u << 2 | 1u << 4;
    rig_request(bench->rig, spec);
    rig_run(bench->rig, SECONDS(1));
    assert_int_equal(rig_device_view(bench->rig, 1).lease, 1);
    spec.lease = 2;
    spec.kinds_mask = 1u << 4 | 1u << 5; /* there is none of kind 5 */
    rig_device_flag(bench->rig, CORE_EVENT_DEVICE_CORDONED, 2, true);
    rig_request(bench->rig, spec);
    assert_int_equal(look_at(bench, 2).desired[CORE_SCALE_WAITING], 1);
    assert_int_equal(look_at(bench, 4).desired[CORE_SCALE_WAITING], 1);
    assert_int_equal(look_at(bench, 5).desired[CORE_SCALE_WAITING], 0);
}

/* ---- the horizon ---- */

static void rise_is_taken_to_go_on_until_a_device_could_be_there(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 8);
    rig_endpoint(bench->rig, 1, MS(100), MS(10));
    announce(bench, 1, 1, 0, 0, SECONDS(60)); /* another kind's lead time */
    announce(bench, 1, 0, 0, 0, SECONDS(120));
    struct core_scale_view view = {.ready = 0};
    for (uint32_t second = 0; second < 300; second++) {
        view = serve_second(bench, second); /* a device's work more every 100 s */
    }
    /* 3 devices' work now, 4.2 in two minutes, at 80 % of each. */
    assert_in_range(view.desired[CORE_SCALE_SLO], 5, 6);
}

static void slow_provider_is_asked_for_more_than_a_quick_one(void **state)
{
    struct bench *bench = *state;
    uint32_t desired[2];
    for (int slow = 0; slow < 2; slow++) {
        if (slow) {
            assert_int_equal(teardown(state), 0);
            assert_int_equal(setup(state), 0);
            bench = *state;
        }
        add_devices(bench, 8);
        rig_endpoint(bench->rig, 1, MS(100), MS(10));
        announce(bench, 1, 0, 0, 0, slow ? SECONDS(100) : SECONDS(1));
        for (uint32_t second = 0; second < 300; second++) {
            desired[slow] = serve_second(bench, second).desired[CORE_SCALE_SLO];
        }
    }
    assert_in_range(desired[0], 4, 4);
    assert_in_range(desired[1], 5, 6);
}

static void lease_that_is_over_before_a_device_could_come_wants_none(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 1);
    rig_lease(bench->rig, 1, 1, 1);
    struct core_lease_spec spec = rig_lease_spec(2, 1, 1);
    spec.until_ns = bench->rig->now_ns + SECONDS(60);
    rig_request(bench->rig, spec);
    assert_int_equal(look(bench).desired[CORE_SCALE_WAITING], 1);
    announce(bench, 1, 0, 0, 0, SECONDS(10));
    assert_int_equal(look(bench).desired[CORE_SCALE_WAITING], 2);
}

static void device_that_is_gone_before_another_could_come_is_not_ready(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 2);
    rig_send(bench->rig,
             (struct core_event){
                 .kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                 .device_time = {.device = 1, .by_ns = bench->rig->now_ns + SECONDS(300)}});
    assert_int_equal(look(bench).ready, 2);
    announce(bench, 1, 0, 0, 0, SECONDS(300));
    assert_int_equal(look(bench).ready, 1);
}

/* ---- no flapping ---- */

static void figure_rises_at_once_and_falls_after_the_hold(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 3);
    rig_lease(bench->rig, 1, 3, 3);
    assert_int_equal(look(bench).desired[CORE_SCALE_WAITING], 3);
    rig_lease_event(bench->rig, CORE_EVENT_LEASE_CANCELLED, 1);
    rig_run(bench->rig, HOLD - SECONDS(10));
    assert_int_equal(look(bench).desired[CORE_SCALE_WAITING], 3);
    rig_run(bench->rig, SECONDS(20));
    assert_int_equal(look(bench).desired[CORE_SCALE_WAITING], 0);
}

static void waves_within_the_hold_do_not_move_the_figure(void **state)
{
    struct bench *bench = *state;
    add_devices(bench, 2);
    uint64_t lease = 1;
    for (int wave = 0; wave < 40; wave++) {
        rig_lease(bench->rig, lease, 2, 2);
        assert_int_equal(look(bench).desired[CORE_SCALE_WAITING], 2);
        rig_run(bench->rig, SECONDS(20));
        rig_lease_event(bench->rig, CORE_EVENT_LEASE_CANCELLED, lease++);
        rig_run(bench->rig, SECONDS(60));
        assert_int_equal(look(bench).desired[CORE_SCALE_WAITING], 2);
    }
}

static void every_reason_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(core_scale_reason_name(CORE_SCALE_SLO), "slo");
    assert_string_equal(core_scale_reason_name(CORE_SCALE_BACKLOG), "backlog");
    assert_string_equal(core_scale_reason_name(CORE_SCALE_REASONS), "unknown");
}

#define SCALE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCALE_TEST(usable_devices_are_ready_and_unused_ones_surplus),
        SCALE_TEST(announced_devices_are_pending_until_they_come),
        SCALE_TEST(announcement_replaces_the_one_before),
        SCALE_TEST(device_that_does_not_come_is_not_counted_on_for_ever),
        SCALE_TEST(announcements_are_bounded),
        SCALE_TEST(endpoint_wants_devices_for_its_demand),
        SCALE_TEST(endpoints_that_share_devices_want_them_once),
        SCALE_TEST(endpoint_that_fits_beside_nobody_wants_a_device_of_its_own),
        SCALE_TEST(waiting_lease_wants_its_minimum_and_the_rest_is_backlog),
        SCALE_TEST(paused_and_ended_leases_want_nothing),
        SCALE_TEST(lease_counts_for_the_kind_it_has_and_else_for_the_one_that_suits_it),
        SCALE_TEST(rise_is_taken_to_go_on_until_a_device_could_be_there),
        SCALE_TEST(slow_provider_is_asked_for_more_than_a_quick_one),
        SCALE_TEST(lease_that_is_over_before_a_device_could_come_wants_none),
        SCALE_TEST(device_that_is_gone_before_another_could_come_is_not_ready),
        SCALE_TEST(figure_rises_at_once_and_falls_after_the_hold),
        SCALE_TEST(waves_within_the_hold_do_not_move_the_figure),
        cmocka_unit_test(every_reason_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
