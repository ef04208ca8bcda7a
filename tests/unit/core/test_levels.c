/* test_levels.c: server/core/levels.c: how many devices stand by where another one takes 30 s to
 * come, from what each of a few rules would have lent and left late. */
#include "tests/unit/core/rig.h"

#include "server/core/state.h"

#define DEVICES 8
#define LEAD SECONDS(30)

struct history {
    struct levels levels;
    struct core_load load;
};

static int setup(void **state)
{
    static struct history history;
    history = (struct history){.load = {.now_ns = SECONDS(1),
                                        .lead_ns = LEAD,
                                        .devices = DEVICES,
                                        .budget_ppm = 10000,
                                        .slo_ns = SECONDS(1)}};
    *state = &history;
    return 0;
}

/* So much demand for so long. */
static void live(struct history *history, uint64_t milli, uint64_t span_ns)
{
    uint64_t end_ns = history->load.now_ns + span_ns;
    while (history->load.now_ns < end_ns) {
        history->load.demand_milli = history->load.base_milli = milli;
        core_levels_follow(&history->levels, &history->load);
        history->load.now_ns += SECONDS(1) / 2;
    }
}

/* Full load for a minute out of silence, every ten minutes. */
static void bursts(struct history *history, int count)
{
    for (int i = 0; i < count; i++) {
        live(history, 0, SECONDS(540));
        live(history, DEVICES * 1000, SECONDS(60));
    }
    live(history, 0, SECONDS(540));
}

static uint32_t needed(const struct history *history)
{
    return core_levels_keeps(&history->levels, history->load.base_milli, 0);
}

static void all_devices_serve_until_lending_has_been_earned(void **state)
{
    struct history *history = *state;
    live(history, 1000, SECONDS(600));
    assert_int_equal(needed(history), DEVICES);
    assert_int_equal(core_levels_takes(&history->levels, history->load.base_milli, 0), 1);
}

static void steady_load_keeps_what_it_needs(void **state)
{
    struct history *history = *state;
    live(history, 1500, SECONDS(4 * 3600));
    assert_int_equal(needed(history), 2);
}

static void bursts_that_come_sooner_than_devices_are_awaited(void **state)
{
    struct history *history = *state;
    bursts(history, 60);
    assert_int_equal(needed(history), DEVICES);
}

static void larger_budget_lends_for_the_same_load(void **state)
{
    struct history *history = *state;
    history->load.budget_ppm = 800000;
    bursts(history, 60);
    assert_true(needed(history) < DEVICES / 2);
}

static void budget_without_a_bound_keeps_nothing(void **state)
{
    struct history *history = *state;
    history->load.budget_ppm = 1000000;
    live(history, 0, SECONDS(600));
    assert_int_equal(needed(history), 0);
}

/* Shorter holds lend between the bursts and are late in each; this one in one of 120. */
static void silence_is_used_after_a_longer_hold(void **state)
{
    struct history *history = *state;
    for (int i = 0; i < 10; i++) {
        for (int j = 0; j < 120; j++) {
            live(history, 0, SECONDS(60));
            live(history, DEVICES * 1000, SECONDS(60));
        }
        live(history, 0, SECONDS(3600));
    }
    assert_int_equal(core_levels_hold_ns(&history->levels), 3 * LEAD);
    assert_true(needed(history) < DEVICES);
}

static void what_is_really_late_ends_lending_until_it_is_paid_for(void **state)
{
    struct history *history = *state;
    live(history, 1500, SECONDS(4 * 3600)); /* 216 s of work may be late */
    core_levels_judge(&history->levels, 300 * 1000000);
    live(history, 1500, SECONDS(10));
    assert_int_equal(needed(history), DEVICES);
    live(history, 1500, SECONDS(4 * 3600));
    assert_int_equal(needed(history), 2);
}

static void what_waits_needs_devices_beside_the_average(void **state)
{
    struct history *history = *state;
    live(history, 1500, SECONDS(4 * 3600));
    /* 50 s of work, within two thirds of the lead. */
    assert_int_equal(core_levels_keeps(&history->levels, 1500, 50 * 1000000), 4);
    assert_int_equal(core_levels_keeps(&history->levels, 1500, UINT64_C(50000) * 1000000), DEVICES);
}

static void devices_that_come_and_go_leave_history_as_it_is(void **state)
{
    struct history *history = *state;
    live(history, 1500, SECONDS(4 * 3600));
    for (uint32_t devices = 1; devices <= DEVICES; devices++) {
        history->load.devices = devices;
        live(history, 1500, SECONDS(60));
        assert_int_equal(needed(history), devices < 2 ? 1 : 2);
    }
}

static void another_lead_time_begins_anew(void **state)
{
    struct history *history = *state;
    live(history, 1500, SECONDS(4 * 3600));
    history->load.lead_ns = 3 * LEAD;
    live(history, 1500, SECONDS(60));
    assert_int_equal(needed(history), DEVICES);
}

static void long_silence_is_learned_in_one_step(void **state)
{
    struct history *history = *state;
    live(history, 1500, SECONDS(4 * 3600));
    live(history, 0, SECONDS(1));
    history->load.now_ns += SECONDS(100 * 24 * 3600);
    core_levels_follow(&history->levels, &history->load);
    assert_int_equal(needed(history), 0);
    assert_true(history->levels.next_ns > history->load.now_ns);
}

static void long_history_counts_less_than_what_came_of_late(void **state)
{
    struct history *history = *state;
    live(history, 1500, SECONDS(3 * 24 * 3600));
    assert_true(history->levels.ticks < 131072);
    assert_true(history->levels.work_us < UINT64_C(1500) * 131072 * 1000);
    assert_int_equal(needed(history), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup(name, setup)
        TEST(all_devices_serve_until_lending_has_been_earned),
        TEST(steady_load_keeps_what_it_needs),
        TEST(bursts_that_come_sooner_than_devices_are_awaited),
        TEST(larger_budget_lends_for_the_same_load),
        TEST(budget_without_a_bound_keeps_nothing),
        TEST(silence_is_used_after_a_longer_hold),
        TEST(what_is_really_late_ends_lending_until_it_is_paid_for),
        TEST(what_waits_needs_devices_beside_the_average),
        TEST(devices_that_come_and_go_leave_history_as_it_is),
        TEST(another_lead_time_begins_anew),
        TEST(long_silence_is_learned_in_one_step),
        TEST(long_history_counts_less_than_what_came_of_late),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
