/* Tests server/progress/ranks.c: what the ranks' words add up to. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/base/clock.h"
#include "server/progress/ranks.h"

#define SECONDS(s) ((uint64_t)((s) * (double)NS_PER_S))

static int setup(void **state)
{
    static struct ranks ranks;
    ranks = (struct ranks){0};
    *state = &ranks;
    return 0;
}

static int teardown(void **state)
{
    ranks_fini(*state);
    return 0;
}

static void join(struct ranks *ranks, uint32_t rank, uint32_t count)
{
    assert_int_equal(ranks_join(ranks, rank, count, true), 0);
}

static void step(struct ranks *ranks, uint32_t rank, int64_t number, double step_s,
                 double waiting_s, uint64_t now_ns)
{
    struct progress_message message = {.kind = PROGRESS_STEP,
                                       .step = number,
                                       .checkpointed_step = -1,
                                       .step_s = step_s,
                                       .waiting_s = waiting_s};
    ranks_step(ranks, rank, &message, now_ns);
}

static struct ranks_figures figures_of(const struct ranks *ranks)
{
    struct ranks_figures figures;
    ranks_figures(ranks, &figures);
    return figures;
}

static void nothing_is_known_before_anybody_came(void **state)
{
    struct ranks_figures figures = figures_of(*state);
    assert_int_equal(figures.ranks, 0);
    assert_int_equal(figures.here, 0);
    assert_int_equal(figures.step, -1);
    assert_int_equal(figures.checkpointed_step, -1);
    assert_true(isnan(figures.step_s) && isnan(figures.waiting_fraction));
}

static void the_slowest_rank_is_named(void **state)
{
    struct ranks *ranks = *state;
    static const double times[] = {0.10, 0.11, 0.35, 0.12};
    for (uint32_t i = 0; i < 4; i++) {
        join(ranks, i, 4);
        step(ranks, i, 20 + i, times[i], (double)NAN, SECONDS(1));
    }
    struct ranks_figures figures = figures_of(ranks);
    assert_int_equal(figures.step, 23);
    assert_int_equal(figures.slowest, 2);
    assert_true(figures.slowest_step_s == 0.35);
    assert_true(figures.step_s == 0.11);
    ranks_leave(ranks, 2, true); /* who is not here is not slow */
    assert_int_equal(figures_of(ranks).slowest, 3);
}

static void the_last_step_stays_when_all_have_left(void **state)
{
    struct ranks *ranks = *state;
    join(ranks, 0, 2);
    join(ranks, 1, 2);
    step(ranks, 0, 20, 1, 0, SECONDS(1));
    step(ranks, 1, 21, 1, 0, SECONDS(1));
    ranks_leave(ranks, 1, true);
    assert_int_equal(figures_of(ranks).step, 20); /* a pause is for those that are here */
    ranks_leave(ranks, 0, true);
    assert_int_equal(figures_of(ranks).step, 21);
}

static void waiting_is_a_share_of_the_time_between_steps(void **state)
{
    struct ranks *ranks = *state;
    join(ranks, 0, 1);
    for (int i = 0; i < 11; i++) {
        step(ranks, 0, i, 0.6, 0.4, SECONDS(i));
    }
    double share = figures_of(ranks).waiting_fraction;
    assert_true(share > 0.399 && share < 0.401);
    ranks_stand(ranks, 0);
    step(ranks, 0, 11, 0.6, 0.4, SECONDS(100)); /* it stood for 90 s: no time of its own */
    assert_true(figures_of(ranks).waiting_fraction == share);
    step(ranks, 0, 12, 0.6, 1e9, SECONDS(101)); /* more than there was */
    assert_true(figures_of(ranks).waiting_fraction < 0.5);
}

static void waiting_long_ago_fades(void **state)
{
    struct ranks *ranks = *state;
    join(ranks, 0, 1);
    for (int i = 0; i < 100; i++) {
        step(ranks, 0, i, 0, 1, SECONDS(i));
    }
    for (int i = 100; i < 700; i++) {
        step(ranks, 0, i, 1, 0, SECONDS(i));
    }
    assert_true(figures_of(ranks).waiting_fraction < 0.02);
}

static void the_saved_step_is_the_lowest_that_is_told(void **state)
{
    struct ranks *ranks = *state;
    struct progress_message message = {
        .kind = PROGRESS_STEP, .step = 30, .step_s = (double)NAN, .waiting_s = (double)NAN};
    for (uint32_t i = 0; i < 3; i++) {
        join(ranks, i, 3);
        message.checkpointed_step = i == 0 ? -1 : 30 - (int64_t)i;
        ranks_step(ranks, i, &message, SECONDS(1));
    }
    assert_int_equal(figures_of(ranks).checkpointed_step, 28);
    message.checkpointed_step = -1; /* not told again: it still holds */
    ranks_step(ranks, 2, &message, SECONDS(2));
    assert_int_equal(figures_of(ranks).checkpointed_step, 28);
}

static void a_job_may_start_again_with_fewer_ranks(void **state)
{
    struct ranks *ranks = *state;
    for (uint32_t i = 0; i < 4; i++) {
        join(ranks, i, 4);
        step(ranks, i, 50, 1, 0, SECONDS(1));
    }
    join(ranks, 0, 2); /* before the old ones have left */
    join(ranks, 1, 2);
    for (uint32_t i = 0; i < 4; i++) {
        ranks_leave(ranks, i, true);
    }
    struct ranks_figures figures = figures_of(ranks);
    assert_int_equal(figures.ranks, 2);
    assert_int_equal(figures.can_pause, 2);
    join(ranks, 3, 4); /* and with more: nothing of the former rank 3 is left */
    assert_int_equal(ranks->table[3].step, -1);
    assert_int_equal(figures_of(ranks).ranks, 4);
}

static void a_short_visit_does_not_say_how_many_there_are(void **state)
{
    struct ranks *ranks = *state;
    join(ranks, 0, 4);
    assert_int_equal(ranks_join(ranks, 0, 0, false), 0); /* `tidepool report` */
    assert_int_equal(figures_of(ranks).ranks, 4);
    ranks_leave(ranks, 0, false);
    assert_int_equal(figures_of(ranks).can_pause, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_known_before_anybody_came),
        TEST(the_slowest_rank_is_named),
        TEST(the_last_step_stays_when_all_have_left),
        TEST(waiting_is_a_share_of_the_time_between_steps),
        TEST(waiting_long_ago_fades),
        TEST(the_saved_step_is_the_lowest_that_is_told),
        TEST(a_job_may_start_again_with_fewer_ranks),
        TEST(a_short_visit_does_not_say_how_many_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
