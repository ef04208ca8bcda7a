/* test_jobs.c: clients/sim/jobs.c, book.c: training jobs, every figure by hand. */
#include "tests/unit/sim/script.h"

#include <math.h>

#define NEAR 1e-9
#define GIVE(at, number, to)                                                                       \
    {                                                                                              \
        .at_ns = SECONDS(at), .what = SCRIPT_GIVE, .device = number, .job = to                     \
    }
#define TAKE(at, number, by)                                                                       \
    {                                                                                              \
        .at_ns = SECONDS(at), .what = SCRIPT_TAKE, .device = number, .rung = CORE_RUNG_##by        \
    }
#define STEPS(script, list)                                                                        \
    ((script)->steps = (list), (script)->step_count = sizeof(list) / sizeof((list)[0]))

static const struct sim_job gang_of_two = {.devices_min = 2, .devices_max = 2, .kinds_mask = 1};

static void init(struct script *script, const struct sim_job *jobs, size_t job_count,
                 uint32_t devices)
{
    script_init(script);
    script->setup.jobs = jobs;
    script->setup.job_count = job_count;
    script->setup.device_count = devices;
}

static void a_gang_trains_only_while_all_of_it_is_there(void **state)
{
    struct script script;
    static const struct script_step steps[] = {
        GIVE(0, 0, 0),       /* 0 - 2 restore, then waits */
        GIVE(10, 1, 0),      /* 10 - 12: both train from 12 on */
        TAKE(50, 0, FREEZE), /* 50 - 51: both stand still from 50 on */
        GIVE(60, 0, 0),      /* 60 - 62: both train again from 62 on */
    };
    (void)state;
    init(&script, &gang_of_two, 1, 2);
    STEPS(&script, steps);
    script_run(&script);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_WAITING), 10, NEAR);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_TRAINING), 38 + 38, NEAR);
    assert_float_equal(script_spent_s(&script, 1, CORE_ACCOUNT_TRAINING), 38 + 38, NEAR);
    assert_float_equal(script_spent_s(&script, 1, CORE_ACCOUNT_SUSPENDED), 12, NEAR);
    assert_float_equal(script.result.harvest_fraction, 152.0 / 200, NEAR);
    /* Held: device 0 all the time, device 1 from 10 on. */
    assert_float_equal(script.result.effective_training_fraction, 152.0 / 190, NEAR);
    assert_true(script.result.ledger_balanced);
}

static void a_kill_loses_what_came_after_the_last_checkpoint_of_the_whole_gang(void **state)
{
    struct script script;
    static const struct sim_job job = {.devices_min = 2,
                                       .devices_max = 2,
                                       .checkpoint_ns = SECONDS(20),
                                       .restore_ns = SECONDS(3),
                                       .kinds_mask = 1};
    static const struct script_step steps[] = {
        {.at_ns = 0, .what = SCRIPT_GIVE, .device = 0, .job = ENGINE_POOL},
        {.at_ns = 0, .what = SCRIPT_GIVE, .device = 1, .job = ENGINE_POOL}, /* train from 2 on */
        TAKE(47, 0, KILL), /* after 45 s: 2 x 5 s are lost */
        {.at_ns = SECONDS(50), .what = SCRIPT_GIVE, .device = 0, .job = ENGINE_POOL},
    };
    (void)state;
    init(&script, &job, 1, 2);
    STEPS(&script, steps);
    script_run(&script);
    /* A start after a kill takes 30 s and 3 s of restore: from 83 on. */
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_TRAINING), 45 + 17, NEAR);
    assert_float_equal(script_spent_s(&script, 1, CORE_ACCOUNT_FREE), 3, NEAR);
    assert_float_equal(script.result.account_s[CORE_ACCOUNT_LOST], 10, NEAR);
    assert_float_equal(script.result.account_s[CORE_ACCOUNT_TRAINING], 2 * 62 - 10, NEAR);
    assert_float_equal(script.result.lost_work_fraction, 10.0 / 200, NEAR);
    assert_float_equal(script.result.harvest_fraction, 114.0 / 200, NEAR);
    assert_true(script.result.ledger_balanced);
}

static void a_kill_ends_a_job_that_stands_still(void **state)
{
    struct script script;
    static const struct sim_job job = {
        .devices_min = 1, .devices_max = 1, .checkpoint_ns = SECONDS(20), .kinds_mask = 1};
    static const struct script_step steps[] = {
        GIVE(0, 0, 0),       /* trains from 2 on */
        TAKE(32, 0, FREEZE), /* stands still */
        TAKE(40, 0, KILL),   /* leaves at once: 10 s are lost */
        {.at_ns = SECONDS(50), .what = SCRIPT_REFUSED_TAKE, .rung = CORE_RUNG_KILL},
    };
    (void)state;
    init(&script, &job, 1, 1);
    STEPS(&script, steps);
    script_run(&script);
    assert_float_equal(script.result.account_s[CORE_ACCOUNT_LOST], 10, NEAR);
    assert_float_equal(script.result.harvest_fraction, 0.2, NEAR);
    assert_true(script.result.ledger_balanced);
}

static void a_notice_loses_nothing(void **state)
{
    struct script script;
    static const struct sim_job job = {
        .devices_min = 1, .devices_max = 1, .checkpoint_ns = SECONDS(600), .kinds_mask = 1};
    static const struct script_step steps[] = {GIVE(0, 0, 0), TAKE(50, 0, NOTICE)};
    (void)state;
    init(&script, &job, 1, 1);
    STEPS(&script, steps);
    script_run(&script);
    assert_float_equal(script.result.harvest_fraction, 0.48, NEAR);
    assert_float_equal(script.result.lost_work_fraction, 0, NEAR);
}

static void an_elastic_job_goes_on_with_fewer_as_fast_as_was_measured(void **state)
{
    struct script script;
    static const struct sim_job job = {.work_ns = SECONDS(100),
                                       .devices_min = 1,
                                       .devices_max = 2,
                                       .kinds_mask = 1,
                                       .speed_permille = {1000, 1500}};
    static const struct script_step steps[] = {
        GIVE(0, 0, 0), GIVE(0, 1, 0), /* from 2 on: 1.5 a second */
        TAKE(42, 1, YIELD),           /* 60 done; 1 a second */
    };
    (void)state;
    init(&script, &job, 1, 2);
    script.setup.until_done = true;
    script.setup.end_ns = SECONDS(1000);
    STEPS(&script, steps);
    script_run(&script); /* the last 40 end at 82 */
    assert_int_equal(script.result.jobs_finished, 1);
    assert_float_equal(script.result.job_completion_mean_s, 82, NEAR);
    assert_float_equal(script.result.job_wait_p50_s, 0, NEAR);
    assert_float_equal(script.result.harvest_fraction, (40 * 2 + 40) / (2 * 82.0), NEAR);
    /* Progress at full speed of one device over device time held: 84 + 40. */
    assert_float_equal(script.result.goodput_fraction, 100.0 / (82 + 42), NEAR);
    assert_true(script.result.ledger_balanced);
}

static void jobs_of_the_engines_queue_start_in_order_and_whole(void **state)
{
    struct script script;
    static const struct sim_job jobs[] = {
        {.work_ns = SECONDS(20), .devices_min = 2, .devices_max = 2, .kinds_mask = 1},
        {.submit_ns = SECONDS(1),
         .work_ns = SECONDS(8),
         .devices_min = 1,
         .devices_max = 1,
         .kinds_mask = 1},
        {.submit_ns = SECONDS(2),
         .work_ns = SECONDS(9),
         .devices_min = 1,
         .devices_max = 1,
         .kinds_mask = 1},
    };
    static const struct script_step steps[] = {
        {.at_ns = SECONDS(4), .what = SCRIPT_GIVE, .device = 0, .job = ENGINE_POOL},
        {.at_ns = SECONDS(5), .what = SCRIPT_GIVE, .device = 1, .job = ENGINE_POOL},
    };
    (void)state;
    init(&script, jobs, 3, 2);
    STEPS(&script, steps);
    script_run(&script);
    /* The gang waits for both (4 - 5), restores 5 - 7, runs 7 - 17; the others 19 - 27, 19 - 28. */
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_FREE), 1 + 73, NEAR);
    assert_int_equal(script.result.jobs_finished, 3);
    assert_float_equal(script.result.job_completion_mean_s, (17 + 26 + 26) / 3.0, NEAR);
    assert_float_equal(script.result.job_wait_p50_s, 15, NEAR); /* 5, 15, 16 */
    assert_float_equal(script.result.job_wait_p99_s, 16, NEAR);
    assert_float_equal(script.result.harvest_fraction, 37.0 / 200, NEAR);
    assert_true(script.result.ledger_balanced);
}

static void a_job_that_never_starts_waits_to_the_end(void **state)
{
    struct script script;
    static const struct sim_job job = {
        .submit_ns = SECONDS(30), .devices_min = 2, .devices_max = 2, .kinds_mask = 1};
    (void)state;
    init(&script, &job, 1, 1);
    script_run(&script);
    assert_float_equal(script.result.job_wait_p50_s, 70, NEAR);
    assert_true(isnan(script.result.job_completion_mean_s));
}

static void slow_devices_and_other_kinds_train_slower(void **state)
{
    struct script script;
    static const struct sim_device devices[] = {{.kind = 1}};
    static const struct sim_job job = {.work_ns = SECONDS(10),
                                       .devices_min = 1,
                                       .devices_max = 1,
                                       .kinds_mask = 3,
                                       .kind_permille = {1000, 400}};
    static const struct script_step steps[] = {GIVE(0, 0, 0)};
    (void)state;
    init(&script, &job, 1, 1);
    script.setup.devices = devices;
    script.setup.faults.slow_permille = 1000;
    script.setup.faults.slow_factor_milli = 2000;
    script.setup.until_done = true;
    script.setup.end_ns = SECONDS(1000);
    STEPS(&script, steps);
    script_run(&script); /* 10 at 0.2 a second, after 2 */
    assert_float_equal(script.result.job_completion_mean_s, 52, NEAR);
    assert_float_equal(script.result.goodput_fraction, 10.0 / 52, NEAR);
    assert_float_equal(script.result.effective_training_fraction, 50.0 / 52, NEAR);
}

static void a_job_gets_only_devices_that_it_may_use(void **state)
{
    struct script script;
    static const struct sim_device devices[] = {{.kind = 1, .memory_bytes = 100},
                                                {.kind = 0, .memory_bytes = 10},
                                                {.kind = 0, .memory_bytes = 100}};
    static const struct sim_job job = {
        .devices_min = 1, .devices_max = 1, .kinds_mask = 1, .memory_bytes = 50};
    static const struct script_step steps[] = {
        {.at_ns = 0, .what = SCRIPT_REFUSED_GIVE, .device = 0, .job = 0},
        {.at_ns = 0, .what = SCRIPT_REFUSED_GIVE, .device = 1, .job = 0},
        GIVE(0, 2, 0),
    };
    (void)state;
    init(&script, &job, 1, 3);
    script.setup.devices = devices;
    STEPS(&script, steps);
    script_run(&script);
    assert_float_equal(script_spent_s(&script, 2, CORE_ACCOUNT_TRAINING), 98, NEAR);
}

static void the_cheapest_victim_goes_first(void **state)
{
    struct script script;
    static const struct sim_job jobs[] = {
        {.devices_min = 1, .devices_max = 1, .checkpoint_ns = SECONDS(40), .kinds_mask = 1},
        {.devices_min = 1, .devices_max = 1, .checkpoint_ns = SECONDS(30), .kinds_mask = 1}};
    static const struct script_step steps[] = {
        {.at_ns = 0, .what = SCRIPT_GIVE_ANY},
        {.at_ns = 0, .what = SCRIPT_GIVE_ANY},
        {.at_ns = 0, .what = SCRIPT_GIVE_ANY},
        /* After 33 s the first has 33 s to lose, the second 3 s; the pool's idle one nothing. */
        {.at_ns = SECONDS(35), .what = SCRIPT_TAKE_ANY, .rung = CORE_RUNG_KILL},
        {.at_ns = SECONDS(35), .what = SCRIPT_TAKE_ANY, .rung = CORE_RUNG_KILL},
    };
    (void)state;
    init(&script, jobs, 2, 3);
    STEPS(&script, steps);
    script_run(&script);
    /* Given from the highest number on: job 0 on 2, job 1 on 1, none for 0. */
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_FREE), 35, NEAR);
    assert_float_equal(script_spent_s(&script, 2, CORE_ACCOUNT_TRAINING), 98, NEAR);
    assert_float_equal(script_spent_s(&script, 1, CORE_ACCOUNT_TRAINING), 33, NEAR);
    assert_float_equal(script.result.account_s[CORE_ACCOUNT_LOST], 3, NEAR);
}

/* As much device time as 10,000 devices have in 24 days. */
static void a_large_gang_is_booked_beyond_64_bits(void **state)
{
    enum { DEVICES = 64 };
    const double year_s = 365 * 86400.0;
    struct script script;
    static struct script_step steps[DEVICES];
    static const struct sim_job gang = {.devices_min = DEVICES,
                                        .devices_max = DEVICES,
                                        .checkpoint_ns = SECONDS(600),
                                        .kinds_mask = 1};
    (void)state;
    for (uint32_t i = 0; i < DEVICES; i++) {
        steps[i] = (struct script_step)GIVE(0, i, 0); /* 0 - 2 restore */
    }
    init(&script, &gang, 1, DEVICES);
    STEPS(&script, steps);
    script.setup.end_ns = SECONDS(10 * year_s + 2);
    script_run(&script);
    assert_float_equal(script.result.harvest_fraction, 1, 1e-6);
    assert_float_equal(script.result.effective_training_fraction, 1, 1e-6);
    assert_float_equal(script.result.account_s[CORE_ACCOUNT_TRAINING] / (DEVICES * 10 * year_s), 1,
                       1e-6);
    assert_true(script.result.ledger_balanced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gang_trains_only_while_all_of_it_is_there),
        cmocka_unit_test(a_kill_loses_what_came_after_the_last_checkpoint_of_the_whole_gang),
        cmocka_unit_test(a_kill_ends_a_job_that_stands_still),
        cmocka_unit_test(a_notice_loses_nothing),
        cmocka_unit_test(an_elastic_job_goes_on_with_fewer_as_fast_as_was_measured),
        cmocka_unit_test(jobs_of_the_engines_queue_start_in_order_and_whole),
        cmocka_unit_test(a_job_that_never_starts_waits_to_the_end),
        cmocka_unit_test(slow_devices_and_other_kinds_train_slower),
        cmocka_unit_test(a_job_gets_only_devices_that_it_may_use),
        cmocka_unit_test(the_cheapest_victim_goes_first),
        cmocka_unit_test(a_large_gang_is_booked_beyond_64_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
