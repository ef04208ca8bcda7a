/* test_kinds.c: which work goes to which kind of device. Kind 0 computes fast, kind 1 has the
 * memory bandwidth. */
#include <stdlib.h>

#include "tests/unit/core/rig.h"

static void measure(struct rig *rig, uint32_t kind, uint32_t compute, uint32_t memory)
{
    struct core_event event = {.kind = CORE_EVENT_KIND_MEASURED};
    event.kind_measured.kind = kind;
    event.kind_measured.speed_permille[CORE_WORK_COMPUTE] = compute;
    event.kind_measured.speed_permille[CORE_WORK_MEMORY] = memory;
    rig_send(rig, event);
}

static void add(struct rig *rig, uint64_t first, uint64_t count, uint32_t kind)
{
    for (uint64_t id = first; id < first + count; id++) {
        rig_send(rig, (struct core_event){
                          .kind = CORE_EVENT_DEVICE_ADDED,
                          .device_added = {.device = id, .kind = kind, .node = kind + 1}});
    }
}

static int setup(void **state)
{
    struct rig *rig = rig_create(NULL);
    add(rig, 1, 2, 0);
    add(rig, 11, 2, 1);
    rig_reconcile(rig);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static void request(struct rig *rig, uint64_t lease, uint32_t devices, enum core_work work)
{
    struct core_lease_spec spec = rig_lease_spec(lease, devices, devices);
    spec.kinds_mask = 3;
    spec.work = work;
    rig_request(rig, spec);
}

static uint32_t held_of_kind(const struct rig *rig, uint64_t lease, uint32_t kind)
{
    struct core_device_view view;
    uint32_t count = 0;
    for (size_t i = 0; core_device_at(rig->core, i, &view); i++) {
        count += view.lease == lease && view.kind == kind;
    }
    return count;
}

static void work_goes_where_it_is_fast(void **state)
{
    struct rig *rig = *state;
    measure(rig, 0, 2000, 500);
    measure(rig, 1, 1000, 1000);
    request(rig, 1, 1, CORE_WORK_MEMORY);
    request(rig, 2, 1, CORE_WORK_COMPUTE);
    assert_int_equal(held_of_kind(rig, 1, 1), 1);
    assert_int_equal(held_of_kind(rig, 2, 0), 1);
}

/* Whoever is fast at everything is no better for one than for another. */
static void comparison_counts_and_not_the_absolute_speed(void **state)
{
    struct rig *rig = *state;
    measure(rig, 0, 4000, 2000);
    measure(rig, 1, 1000, 1000);
    request(rig, 1, 1, CORE_WORK_MEMORY);
    assert_int_equal(held_of_kind(rig, 1, 1), 1);
    request(rig, 2, 1, CORE_WORK_COMPUTE);
    assert_int_equal(held_of_kind(rig, 2, 0), 1);
}

static void bandwidth_stands_for_a_speed_that_was_not_measured(void **state)
{
    struct rig *rig = *state;
    for (uint32_t kind = 0; kind < 2; kind++) {
        struct core_event event = {.kind = CORE_EVENT_KIND_MEASURED};
        event.kind_measured.kind = kind;
        event.kind_measured.speed_permille[CORE_WORK_COMPUTE] = 1000;
        event.kind_measured.bandwidth_bytes_s = kind == 0 ? 1000000 : 3000000;
        rig_send(rig, event);
    }
    request(rig, 1, 1, CORE_WORK_MEMORY);
    assert_int_equal(held_of_kind(rig, 1, 1), 1);
    request(rig, 2, 1, CORE_WORK_COMPUTE);
    assert_int_equal(held_of_kind(rig, 2, 0), 1);
}

static void what_was_measured_of_the_lease_goes_before_its_class(void **state)
{
    struct rig *rig = *state;
    measure(rig, 0, 2000, 500);
    measure(rig, 1, 1000, 1000);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_HOLD, .hold = {.on = true}});
    request(rig, 1, 1, CORE_WORK_MEMORY); /* waits: nothing moves */
    for (uint32_t kind = 0; kind < 2; kind++) {
        struct core_event event = {.kind = CORE_EVENT_LEASE_SPEED};
        event.lease_speed.lease = 1;
        event.lease_speed.kind = kind;
        event.lease_speed.speed_permille = kind == 0 ? 5000 : 100;
        rig_send(rig, event);
    }
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_HOLD});
    assert_int_equal(held_of_kind(rig, 1, 0), 1);
}

static void gang_has_devices_of_one_kind_where_it_can(void **state)
{
    struct rig *rig = *state;
    rig_lease(rig, 9, 1, 1); /* one of kind 0 is taken */
    request(rig, 1, 2, CORE_WORK_ANY);
    assert_int_equal(held_of_kind(rig, 1, 1), 2);
    request(rig, 2, 1, CORE_WORK_ANY);
    assert_int_equal(held_of_kind(rig, 2, 0), 1);
}

static void kinds_mask_is_kept(void **state)
{
    struct rig *rig = *state;
    measure(rig, 0, 2000, 500);
    measure(rig, 1, 1000, 1000);
    struct core_lease_spec spec = rig_lease_spec(1, 2, 4);
    spec.kinds_mask = 1u << 0;
    spec.work = CORE_WORK_MEMORY;
    rig_request(rig, spec);
    rig_run(rig, SECONDS(100));
    assert_int_equal(held_of_kind(rig, 1, 0), 2);
    assert_int_equal(held_of_kind(rig, 1, 1), 0);
}

static void nonsense_is_refused(void **state)
{
    struct rig *rig = *state;
    measure(rig, CORE_KINDS_MAX, 1000, 1000);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_INVALID);
    measure(rig, 0, 1000001, 1000);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_INVALID);
    measure(rig, 0, 1000000, 1000);
    assert_null(rig_find(rig, CORE_ACTION_REJECT));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(work_goes_where_it_is_fast),
        TEST(comparison_counts_and_not_the_absolute_speed),
        TEST(bandwidth_stands_for_a_speed_that_was_not_measured),
        TEST(what_was_measured_of_the_lease_goes_before_its_class),
        TEST(gang_has_devices_of_one_kind_where_it_can),
        TEST(kinds_mask_is_kept),
        TEST(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
