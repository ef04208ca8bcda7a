/* test_set.c: sets of slots, against a plain array of flags. */
#include "server/core/set.h"

#include <stdlib.h>

#include "tests/unit/core/rig.h"

#define SLOTS 9000 /* more than one word of the second layer */

struct pair {
    struct set set;
    bool in[SLOTS];
    uint32_t count;
};

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

static struct pair *pair_create(void)
{
    struct pair *pair = calloc(1, sizeof *pair);
    assert_non_null(pair);
    assert_int_equal(core_set_reserve(&pair->set, SLOTS), 0);
    return pair;
}

static void pair_destroy(struct pair *pair)
{
    core_set_fini(&pair->set);
    free(pair);
}

static void put(struct pair *pair, uint32_t slot, bool in)
{
    core_set_put(&pair->set, slot, in);
    pair->count += (uint32_t)in - (uint32_t)pair->in[slot];
    pair->in[slot] = in;
}

/* Few slots or many, in a part or all over. */
static void fill(struct pair *pair, uint64_t *state)
{
    uint32_t first = (uint32_t)draw(state, SLOTS), span = 1 + (uint32_t)draw(state, SLOTS - first);
    for (uint64_t i = draw(state, 300); i > 0; i--) {
        put(pair, first + (uint32_t)draw(state, span), draw(state, 3) > 0);
    }
}

static void same(const struct pair *pair)
{
    uint32_t expected = 0, seen = 0;
    assert_int_equal(pair->set.count, pair->count);
    SET_EACH (&pair->set, slot) {
        while (expected < slot) {
            assert_false(pair->in[expected++]);
        }
        assert_true(pair->in[slot] && core_set_has(&pair->set, slot));
        expected = slot + 1;
        seen++;
    }
    assert_int_equal(seen, pair->count);
}

static void walk_finds_what_is_in_the_set_in_order(void **state)
{
    (void)state;
    uint64_t seed = 1;
    struct pair *pair = pair_create();
    assert_int_equal(core_set_next(&pair->set, 0), SLOT_NONE);
    for (int round = 0; round < 100; round++) {
        fill(pair, &seed);
        same(pair);
    }
    core_set_clear(&pair->set);
    assert_int_equal(pair->set.count, 0);
    assert_int_equal(core_set_next(&pair->set, 0), SLOT_NONE);
    pair_destroy(pair);
}

static void edges_of_words_are_slots_like_others(void **state)
{
    (void)state;
    static const uint32_t slots[] = {0, 63, 64, 127, 4095, 4096, 8191, 8192, SLOTS - 1};
    struct pair *pair = pair_create();
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        put(pair, slots[i], true);
        put(pair, slots[i], true); /* twice is once */
    }
    same(pair);
    assert_int_equal(core_set_next(&pair->set, 64), 64);
    assert_int_equal(core_set_next(&pair->set, 65), 127);
    assert_int_equal(core_set_next(&pair->set, SLOTS - 1), SLOTS - 1);
    assert_int_equal(core_set_next(&pair->set, SLOTS + 1000), SLOT_NONE);
    pair_destroy(pair);
}

static void walk_sees_what_is_added_ahead_of_it_and_not_what_is_taken_away(void **state)
{
    (void)state;
    uint32_t seen[4], count = 0;
    struct pair *pair = pair_create();
    put(pair, 10, true);
    put(pair, 5000, true);
    put(pair, 6000, true);
    SET_EACH (&pair->set, slot) {
        assert_true(count < 4);
        seen[count++] = slot;
        if (slot == 10) {
            put(pair, 5, true); /* behind it */
            put(pair, 700, true);
            put(pair, 5000, false);
        }
    }
    assert_int_equal(count, 3);
    assert_int_equal(seen[1], 700);
    assert_int_equal(seen[2], 6000);
    pair_destroy(pair);
}

static void walk_of_two_sets_finds_what_is_in_both(void **state)
{
    (void)state;
    uint64_t seed = 7;
    struct pair *a = pair_create(), *b = pair_create();
    for (int round = 0; round < 60; round++) {
        uint32_t expected = 0, seen = 0;
        fill(a, &seed);
        fill(b, &seed);
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            expected += a->in[slot] && b->in[slot];
        }
        SET_EACH_IN_BOTH (&a->set, &b->set, slot) {
            assert_true(a->in[slot] && b->in[slot]);
            seen++;
        }
        assert_int_equal(seen, expected);
        assert_int_equal(core_set_meets(&a->set, &b->set), expected > 0);
    }
    pair_destroy(a);
    pair_destroy(b);
}

static void sets_of_two_sizes_meet_where_both_are(void **state)
{
    (void)state;
    struct set small = {0};
    struct pair *large = pair_create();
    assert_int_equal(core_set_reserve(&small, 100), 0);
    put(large, 5000, true);
    core_set_put(&small, 70, true);
    assert_false(core_set_meets(&small, &large->set));
    put(large, 70, true);
    assert_true(core_set_meets(&small, &large->set));
    assert_true(core_set_meets(&large->set, &small));
    core_set_fini(&small);
    pair_destroy(large);
}

static void copy_and_union_are_what_one_would_think(void **state)
{
    (void)state;
    uint64_t seed = 3;
    struct pair *a = pair_create(), *b = pair_create();
    for (int round = 0; round < 40; round++) {
        fill(a, &seed);
        fill(b, &seed);
        core_set_join(&a->set, &b->set);
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            a->count += !a->in[slot] && b->in[slot];
            a->in[slot] = a->in[slot] || b->in[slot];
        }
        same(a);
        core_set_copy(&b->set, &a->set);
        assert_int_equal(b->set.count, a->count);
        core_set_copy(&a->set, &b->set);
        same(a);
        core_set_clear(&b->set);
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            b->in[slot] = false;
        }
        b->count = 0;
    }
    pair_destroy(a);
    pair_destroy(b);
}

static void lowest_unused_slot_is_found_also_behind_full_words(void **state)
{
    (void)state;
    struct pair *pair = pair_create();
    assert_int_equal(core_set_unused(&pair->set), 0);
    for (uint32_t slot = 0; slot < 200; slot++) {
        put(pair, slot, true);
    }
    assert_int_equal(core_set_unused(&pair->set), 200);
    put(pair, 130, false);
    assert_int_equal(core_set_unused(&pair->set), 130);
    pair_destroy(pair);
}

static void growing_keeps_what_is_there(void **state)
{
    (void)state;
    struct set set = {0};
    assert_int_equal(core_set_reserve(&set, 64), 0);
    core_set_put(&set, 63, true);
    assert_int_equal(core_set_reserve(&set, SLOTS), 0);
    assert_true(core_set_has(&set, 63));
    core_set_put(&set, SLOTS - 1, true);
    assert_int_equal(core_set_next(&set, 64), SLOTS - 1);
    assert_int_equal(core_set_reserve(&set, 10), 0); /* never smaller */
    assert_true(core_set_has(&set, SLOTS - 1));
    core_set_fini(&set);
    core_set_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walk_finds_what_is_in_the_set_in_order),
        cmocka_unit_test(edges_of_words_are_slots_like_others),
        cmocka_unit_test(walk_sees_what_is_added_ahead_of_it_and_not_what_is_taken_away),
        cmocka_unit_test(walk_of_two_sets_finds_what_is_in_both),
        cmocka_unit_test(sets_of_two_sizes_meet_where_both_are),
        cmocka_unit_test(copy_and_union_are_what_one_would_think),
        cmocka_unit_test(lowest_unused_slot_is_found_also_behind_full_words),
        cmocka_unit_test(growing_keeps_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
