/* test_reserve.c: server/core/reserve.c: how many devices stand by, from the rises of demand that
 * were seen, within the share of work that may be late. */
#include "tests/unit/core/rig.h"

#include "server/core/state.h"

#define DEVICES 8
#define LEAD SECONDS(2)
#define STEP MS(100)

struct history {
    struct reserve reserve;
    struct core_load load;
};

static int setup(void **state)
{
    static struct history history;
    history = (struct history){
        .load = {.now_ns = SECONDS(1), .lead_ns = LEAD, .devices = DEVICES, .budget_ppm = 10000}};
    *state = &history;
    return 0;
}

/* So much demand for so long, after as much before. */
static void live(struct history *history, uint64_t milli, uint64_t span_ns)
{
    uint64_t end_ns = history->load.now_ns + span_ns;
    while (history->load.now_ns < end_ns) {
        history->load.demand_milli = milli;
        core_reserve_follow(&history->reserve, &history->load);
        history->load.base_milli = core_average_u64(history->load.base_milli, milli, STEP, LEAD);
        history->load.now_ns += STEP;
    }
}

static void bursts(struct history *history, uint64_t milli, int count)
{
    for (int i = 0; i < count; i++) {
        live(history, 0, SECONDS(40));
        live(history, milli, SECONDS(20));
    }
    live(history, 0, SECONDS(40));
}

/* Of one to six devices. */
static void mixed_bursts(struct history *history)
{
    for (int i = 0; i < 60; i++) {
        bursts(history, (uint64_t)(i % 6 + 1) * 1000, 1);
    }
}

/* So much work in time, then so much late. */
static void judge(struct history *history, uint64_t work_s, uint64_t late_s)
{
    for (uint64_t i = 0; i < work_s * 10; i++) {
        core_reserve_judge(&history->reserve, &history->load, 100000, 0);
    }
    for (uint64_t i = 0; i < late_s * 10; i++) {
        core_reserve_judge(&history->reserve, &history->load, 100000, 100000);
    }
}

static void all_devices_are_kept_before_anything_is_known(void **state)
{
    struct history *history = *state;
    core_reserve_follow(&history->reserve, &history->load);
    assert_int_equal(core_reserve_keeps_milli(&history->reserve, &history->load), DEVICES * 1000);
    assert_int_equal(core_reserve_takes_milli(&history->reserve, &history->load), 0);
}

static void rises_seen_before_are_awaited(void **state)
{
    struct history *history = *state;
    bursts(history, 3000, 10);
    assert_in_range(core_reserve_keeps_milli(&history->reserve, &history->load), 2500, 3250);
    history->load.base_milli = 3000; /* in the burst nothing more has ever come */
    assert_in_range(core_reserve_keeps_milli(&history->reserve, &history->load), 0, 500);
}

static void steady_load_needs_no_reserve(void **state)
{
    struct history *history = *state;
    live(history, 3000, SECONDS(300));
    assert_in_range(core_reserve_keeps_milli(&history->reserve, &history->load), 0, 250);
}

static void larger_budget_keeps_fewer(void **state)
{
    struct history *history = *state;
    mixed_bursts(history);
    uint32_t careful = core_reserve_keeps_milli(&history->reserve, &history->load);
    history->load.budget_ppm = 60000; /* the rises are some 2 s of 20 */
    live(history, 0, SECONDS(5));
    uint32_t middle = core_reserve_keeps_milli(&history->reserve, &history->load);
    history->load.budget_ppm = 1000000;
    live(history, 0, SECONDS(5));
    assert_true(middle < careful);
    assert_true(middle > 0);
    assert_int_equal(core_reserve_keeps_milli(&history->reserve, &history->load), 0);
}

static void expected_excess_keeps_to_the_budget(void **state)
{
    struct history *history = *state;
    for (int i = 0; i < 200; i++) { /* one rise in ten is large */
        live(history, 1000, SECONDS(10));
        live(history, i % 10 == 0 ? 6000 : 2000, SECONDS(2));
    }
    live(history, 1000, SECONDS(10));
    uint32_t keeps = core_reserve_keeps_milli(&history->reserve, &history->load);
    uint64_t excess = 20 * 2 * (keeps < 5000 ? 5000 - keeps : 0); /* of the large ones */
    uint64_t work = 200 * (10 * 1000 + 2 * 2000) + 20 * 2 * 4000;
    assert_true(keeps >= 750); /* the usual rise is covered */
    assert_true(excess <= work / 100);
}

static void late_work_grows_the_reserve_and_calm_shrinks_it(void **state)
{
    struct history *history = *state;
    mixed_bursts(history);
    uint32_t before = core_reserve_keeps_milli(&history->reserve, &history->load);
    judge(history, 0, 60);
    live(history, 0, SECONDS(5));
    uint32_t sorry = core_reserve_keeps_milli(&history->reserve, &history->load);
    judge(history, 4000, 0);
    live(history, 0, SECONDS(5));
    uint32_t calm = core_reserve_keeps_milli(&history->reserve, &history->load);
    assert_true(sorry > before);
    assert_true(calm < before);
}

static void debt_is_bounded_and_is_paid_off(void **state)
{
    struct history *history = *state;
    judge(history, 0, 100000);
    int64_t deepest = history->reserve.balance_us;
    judge(history, 0, 100000);
    assert_true(history->reserve.balance_us == deepest);
    judge(history, 100000, 0);
    assert_true(history->reserve.ease > 0);
}

static void another_lead_time_begins_anew_with_all_devices(void **state)
{
    struct history *history = *state;
    live(history, 1000, SECONDS(100));
    assert_in_range(core_reserve_keeps_milli(&history->reserve, &history->load), 0, 1000);
    history->load.lead_ns = SECONDS(10);
    core_reserve_follow(&history->reserve, &history->load);
    assert_int_equal(core_reserve_keeps_milli(&history->reserve, &history->load), DEVICES * 1000);
}

static void long_silence_is_learned_in_one_step(void **state)
{
    struct history *history = *state;
    bursts(history, 3000, 10);
    uint64_t counted = history->reserve.counts[0][0];
    history->load.now_ns += SECONDS(100 * 24 * 3600);
    core_reserve_follow(&history->reserve, &history->load);
    assert_true(history->reserve.counts[0][0] > counted + 1000000);
    live(history, 0, SECONDS(60));
    assert_int_equal(history->reserve.next_ns > history->load.now_ns - SECONDS(1), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup(name, setup)
        TEST(all_devices_are_kept_before_anything_is_known),
        TEST(rises_seen_before_are_awaited),
        TEST(steady_load_needs_no_reserve),
        TEST(larger_budget_keeps_fewer),
        TEST(expected_excess_keeps_to_the_budget),
        TEST(late_work_grows_the_reserve_and_calm_shrinks_it),
        TEST(debt_is_bounded_and_is_paid_off),
        TEST(another_lead_time_begins_anew_with_all_devices),
        TEST(long_silence_is_learned_in_one_step),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
