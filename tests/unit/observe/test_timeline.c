#include "server/observe/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void shares_are_kept_slot_by_slot(void **state)
{
    (void)state;
    struct timeline *timeline = timeline_create(2);
    uint8_t shares[3];
    timeline_add(timeline, 0, TIMELINE_SERVING, 50);
    timeline_add(timeline, 0, TIMELINE_TRAINING, 25);
    timeline_add(timeline, 0, TIMELINE_TRAINING, 25);
    timeline_add(timeline, 1, TIMELINE_FAILED, 100);
    timeline_advance(timeline, 100);
    timeline_advance(timeline, 100);
    timeline_add(timeline, 0, TIMELINE_SERVING, 300); /* a slot never has more than its length */
    timeline_advance(timeline, 200);
    assert_int_equal(timeline_oldest(timeline), 1);
    assert_int_equal(timeline_next(timeline), 4);
    timeline_read(timeline, 0, TIMELINE_SERVING, 1, 3, shares);
    assert_int_equal(shares[0], 128);
    assert_int_equal(shares[1], 0);
    assert_int_equal(shares[2], 255);
    timeline_read(timeline, 0, TIMELINE_TRAINING, 1, 1, shares);
    assert_int_equal(shares[0], 128);
    timeline_read(timeline, 1, TIMELINE_FAILED, 1, 2, shares);
    assert_int_equal(shares[0], 255);
    assert_int_equal(shares[1], 0);
    timeline_destroy(timeline);
}

static void the_least_use_is_seen(void **state)
{
    (void)state;
    struct timeline *timeline = timeline_create(1);
    uint8_t share = 0;
    timeline_add(timeline, 0, TIMELINE_HANDOVER, 1);
    timeline_advance(timeline, 100000000);
    timeline_read(timeline, 0, TIMELINE_HANDOVER, 1, 1, &share);
    assert_int_equal(share, 1);
    timeline_destroy(timeline);
}

static void the_oldest_slots_are_overwritten(void **state)
{
    (void)state;
    struct timeline *timeline = timeline_create(1);
    static uint8_t shares[TIMELINE_SLOTS];
    for (uint64_t slot = 1; slot <= TIMELINE_SLOTS + 10; slot++) {
        timeline_add(timeline, 0, TIMELINE_TRAINING, slot % 200);
        timeline_advance(timeline, 255);
    }
    uint64_t oldest = timeline_oldest(timeline);
    assert_int_equal(oldest, 11);
    timeline_read(timeline, 0, TIMELINE_TRAINING, oldest, TIMELINE_SLOTS, shares);
    for (uint64_t i = 0; i < TIMELINE_SLOTS; i++) {
        assert_int_equal(shares[i], (oldest + i) % 200);
    }
    timeline_destroy(timeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_kept_slot_by_slot),
        cmocka_unit_test(the_least_use_is_seen),
        cmocka_unit_test(the_oldest_slots_are_overwritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
