/* Tests server/progress/pause.c: an agreed step, and that it moves when steps are quicker than the
 * word of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/progress/pause.h"

static int setup(void **state)
{
    static struct pause pause;
    pause = (struct pause){0};
    pause_begin(&pause, 7, 14);
    *state = &pause;
    return pause_ask(&pause, 0, 100) + pause_ask(&pause, 1, 101);
}

static int teardown(void **state)
{
    pause_fini(*state);
    return 0;
}

static bool stands(struct pause *pause, int64_t request, int64_t step, uint32_t rank)
{
    struct progress_message message = {.kind = PROGRESS_STOPPED, .request = request, .step = step};
    return pause_stands(pause, &message, rank, 100 + (pid_t)rank);
}

static void complete_is_when_all_that_were_asked_stand(void **state)
{
    struct pause *pause = *state;
    assert_true(stands(pause, 7, 14, 0));
    assert_false(pause_complete(pause));
    assert_true(stands(pause, 7, 14, 1));
    assert_true(pause_complete(pause));
    pause_end(pause);
    assert_false(pause_complete(pause));
}

static void answers_to_others_do_not_count(void **state)
{
    struct pause *pause = *state;
    assert_false(stands(pause, 6, 14, 0)); /* another request */
    assert_false(stands(pause, 7, 13, 0)); /* before the agreed step */
    assert_false(stands(pause, 7, 14, 2)); /* nobody asked it */
    pause_end(pause);
    assert_false(stands(pause, 7, 14, 0));
    assert_false(pause_complete(pause));
}

static void a_rank_that_was_late_moves_the_step_for_all(void **state)
{
    struct pause *pause = *state;
    assert_true(stands(pause, 7, 14, 1));
    assert_true(pause_late(pause, 7, 15));
    assert_true(pause->step > 15 + 1);
    int64_t moved = pause->step;
    assert_false(pause_late(pause, 7, 16));   /* it can stop before the new step */
    assert_false(stands(pause, 7, 14, 1));    /* said before it heard of it */
    assert_false(pause_late(pause, 6, 1000)); /* another request */
    assert_true(pause_late(pause, 7, moved)); /* and again, further ahead each time */
    assert_true(pause->step - moved > moved - 15);
    assert_true(stands(pause, 7, pause->step, 0));
    assert_true(stands(pause, 7, pause->step, 1));
    assert_true(pause_complete(pause));
}

static void who_comes_again_answers_again(void **state)
{
    struct pause *pause = *state;
    assert_true(stands(pause, 7, 14, 0) && stands(pause, 7, 14, 1));
    assert_int_equal(pause_ask(pause, 1, 101), 0); /* it has lost its connection */
    assert_false(pause_complete(pause));
    assert_true(stands(pause, 7, 14, 1));
    assert_true(pause_complete(pause));
    assert_int_equal(pause->count, 2);
}

static void processes_that_come_and_go_are_bounded(void **state)
{
    struct pause *pause = *state;
    int result = 0, asked = 0;
    for (; result == 0 && asked < 3 * PROGRESS_RANKS_MAX; asked++) {
        result = pause_ask(pause, 0, 1000 + asked);
    }
    assert_int_equal(result, -(int)ERROR_RESOURCE_EXHAUSTED);
    assert_int_equal(pause->count, 2 * PROGRESS_RANKS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(complete_is_when_all_that_were_asked_stand, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(answers_to_others_do_not_count, setup, teardown),
        cmocka_unit_test_setup_teardown(a_rank_that_was_late_moves_the_step_for_all, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(who_comes_again_answers_again, setup, teardown),
        cmocka_unit_test_setup_teardown(processes_that_come_and_go_are_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
