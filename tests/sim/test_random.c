/* test_random.c: random schedules. TIDEPOOL_SIM_EVENTS and TIDEPOOL_SIM_SEED change how many and
 * which. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/world.h"

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void play(bool crashes)
{
    uint64_t events = setting("TIDEPOOL_SIM_EVENTS", 100000);
    uint64_t seed = setting("TIDEPOOL_SIM_SEED", 1);
    uint64_t total[CORE_ACTION_COUNT] = {0}, crash_count = 0;
    for (uint64_t played = 0; played < events; played += 2000, seed++) {
        struct world *world = world_create(seed, crashes);
        world_play(world, 2000);
        world_settle(world);
        for (int kind = 0; kind < CORE_ACTION_COUNT; kind++) {
            total[kind] += world_rig(world)->total[kind];
        }
        crash_count += world_crashes(world);
        world_destroy(world);
    }
    printf("random schedules: %" PRIu64 " events, %" PRIu64 " grants, %" PRIu64 " revokes, %" PRIu64
           " stops undone, %" PRIu64 " extensions, %" PRIu64 " kills, %" PRIu64
           " quarantines, %" PRIu64 " crashes\n",
           events, total[CORE_ACTION_GRANT], total[CORE_ACTION_REVOKE], total[CORE_ACTION_RESUME],
           total[CORE_ACTION_EXTEND], total[CORE_ACTION_KILL], total[CORE_ACTION_QUARANTINE],
           crash_count);
    /* A schedule that never gets there proves nothing. */
    for (int kind = 0; kind < CORE_ACTION_COUNT; kind++) {
        assert_true(total[kind] > 0);
    }
    assert_true(!crashes || crash_count > events / 400);
}

static void invariants_hold_after_every_event_of_random_schedules(void **state)
{
    (void)state;
    play(false);
}

static void invariants_hold_across_crashes_at_random_points(void **state)
{
    (void)state;
    play(true);
}

static void same_events_give_the_same_actions(void **state)
{
    (void)state;
    uint64_t hashes[2];
    for (int run = 0; run < 2; run++) {
        struct world *world = world_create(42, true);
        world_play(world, 5000);
        hashes[run] = world_hash(world);
        world_destroy(world);
    }
    assert_int_equal(hashes[0], hashes[1]);
}

/* What is not touched needs no look: looking at everything in every step changes nothing. */
static void looking_only_at_news_decides_what_looking_at_everything_does(void **state)
{
    (void)state;
    uint64_t seed = setting("TIDEPOOL_SIM_SEED", 1);
    uint64_t last = seed + setting("TIDEPOOL_SIM_EVENTS", 100000) / 4000;
    for (; seed < last; seed++) {
        uint64_t hashes[2];
        for (int whole = 0; whole < 2; whole++) {
            struct world *world = world_create(seed, true);
            world_rig(world)->whole = whole;
            world_play(world, 1000);
            world_settle(world);
            hashes[whole] = world_hash(world);
            world_destroy(world);
        }
        if (hashes[0] != hashes[1]) {
            fail_msg("seed %" PRIu64 ": something is decided only when looked at", seed);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_events_give_the_same_actions),
        cmocka_unit_test(looking_only_at_news_decides_what_looking_at_everything_does),
        cmocka_unit_test(invariants_hold_after_every_event_of_random_schedules),
        cmocka_unit_test(invariants_hold_across_crashes_at_random_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
