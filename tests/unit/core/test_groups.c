/* test_groups.c: which group of close devices a gang is placed in. */
#include <stdlib.h>

#include "tests/unit/core/rig.h"

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

static void add(struct rig *rig, uint64_t first, uint64_t count, uint64_t node, uint64_t link)
{
    for (uint64_t id = first; id < first + count; id++) {
        rig_send(rig,
                 (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                     .device_added = {.device = id, .node = node, .link = link}});
    }
}

/* Devices of the lease between two ids. */
static uint32_t held(const struct rig *rig, uint64_t lease, uint64_t first, uint64_t last)
{
    uint32_t count = 0;
    for (uint64_t id = first; id <= last; id++) {
        count += rig_device_view(rig, id).lease == lease;
    }
    return count;
}

static void gang_is_placed_on_one_node(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, 3, 1, 0);
    add(rig, 11, 4, 2, 0);
    add(rig, 21, 3, 3, 0);
    rig_reconcile(rig);
    rig_lease(rig, 1, 4, 4);
    assert_int_equal(held(rig, 1, 11, 14), 4);
}

static void links_count_before_the_node_when_they_are_enough(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, 2, 1, 1);
    add(rig, 3, 2, 1, 2);
    rig_reconcile(rig);
    rig_lease(rig, 1, 1, 1);
    uint64_t first = held(rig, 1, 1, 2) == 1 ? 3 : 1; /* the links that are still whole */
    rig_lease(rig, 2, 2, 2);
    assert_int_equal(held(rig, 2, first, first + 1), 2);
}

static void smallest_group_that_is_enough_is_taken_so_that_large_ones_stay_whole(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, 8, 1, 0);
    add(rig, 11, 2, 2, 0);
    rig_reconcile(rig);
    rig_lease(rig, 1, 2, 2);
    assert_int_equal(held(rig, 1, 11, 12), 2);
    rig_lease(rig, 2, 8, 8);
    assert_int_equal(held(rig, 2, 1, 8), 8);
}

static void of_two_equal_groups_the_fuller_one_is_filled(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, 4, 1, 0);
    add(rig, 11, 4, 2, 0);
    rig_reconcile(rig);
    rig_lease(rig, 1, 2, 2);
    bool first = held(rig, 1, 1, 4) == 2;
    assert_int_equal(held(rig, 1, first ? 1 : 11, first ? 4 : 14), 2);
    rig_lease(rig, 2, 2, 2);
    assert_int_equal(held(rig, 2, first ? 1 : 11, first ? 4 : 14), 2);
    rig_lease(rig, 3, 4, 4); /* the other one is whole for it */
    assert_int_equal(held(rig, 3, first ? 11 : 1, first ? 14 : 4), 4);
}

static void gang_that_fits_no_group_is_placed_all_the_same(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, 3, 1, 0);
    add(rig, 11, 3, 2, 0);
    add(rig, 21, 1, 0, 0); /* of no known node */
    rig_reconcile(rig);
    rig_lease(rig, 1, 7, 7);
    assert_int_equal(rig_lease_view(rig, 1).devices, 7);
}

static void device_that_cannot_be_had_does_not_count_in_its_group(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, 3, 1, 0);
    add(rig, 11, 4, 2, 0);
    rig_reconcile(rig);
    rig_device_flag(rig, CORE_EVENT_DEVICE_CORDONED, 1, true);
    rig_lease(rig, 1, 3, 3);
    assert_int_equal(held(rig, 1, 11, 14), 3);
}

static void group_follows_devices_that_are_removed_and_added(void **state)
{
    struct rig *rig = *state;
    add(rig, 1, 4, 1, 1);
    add(rig, 11, 2, 2, 2);
    rig_reconcile(rig);
    for (uint64_t id = 2; id <= 4; id++) {
        rig_device_event(rig, CORE_EVENT_DEVICE_REMOVED, id);
    }
    rig_lease(rig, 1, 2, 2);
    assert_int_equal(held(rig, 1, 11, 12), 2);
    rig_device_event(rig, CORE_EVENT_DEVICE_REMOVED, 1); /* the last of its node */
    add(rig, 1, 3, 1, 1);
    rig_lease(rig, 2, 3, 3);
    assert_int_equal(held(rig, 2, 1, 3), 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gang_is_placed_on_one_node),
        TEST(links_count_before_the_node_when_they_are_enough),
        TEST(smallest_group_that_is_enough_is_taken_so_that_large_ones_stay_whole),
        TEST(of_two_equal_groups_the_fuller_one_is_filled),
        TEST(gang_that_fits_no_group_is_placed_all_the_same),
        TEST(device_that_cannot_be_had_does_not_count_in_its_group),
        TEST(group_follows_devices_that_are_removed_and_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
