/* test_engine.c: clients/sim/engine.c, serve.c, devices.c, book.c: requests and devices, every
 * figure by hand. */
#include "tests/unit/sim/script.h"

#include <inttypes.h>
#include <math.h>

#define NEAR 1e-9

static const struct sim_job endless = {.devices_min = 1, .devices_max = 1, .kinds_mask = 1};

static void requests_start_in_order_and_a_wait_over_the_slo_is_late(void **state)
{
    struct script script;
    static const struct sim_request requests[] = {
        {SECONDS(10), SECONDS(4), 0}, /* 10 - 14 */
        {SECONDS(12), SECONDS(1), 0}, /* 14 - 15: waited 2 s */
        {SECONDS(14), SECONDS(5), 0}, /* 15 - 20: waited 1 s, which is not more than the SLO */
    };
    (void)state;
    script_init(&script);
    script.setup.requests = requests;
    script.setup.request_count = 3;
    script_run(&script);
    assert_int_equal(script.start_ns[0], SECONDS(10));
    assert_int_equal(script.start_ns[1], SECONDS(14));
    assert_int_equal(script.start_ns[2], SECONDS(15));
    assert_int_equal(script.result.late_requests, 1);
    assert_float_equal(script.result.late_fraction, 0.1, NEAR); /* 1 s of 10 s */
    assert_float_equal(script.result.idle_bound, 0.9, NEAR);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_SERVING), 10, NEAR);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_RESERVE), 90, NEAR);
    assert_true(script.result.ledger_balanced);
    assert_string_equal(script.told, "began 0 0;arrived 0;arrived 0;ended 0 0 4;began 0 0;"
                                     "arrived 0;ended 0 0 1;began 0 0;ended 0 0 5;");
}

static void what_is_queued_at_the_end_is_late_and_what_runs_is_judged_by_its_start(void **state)
{
    struct script script;
    static const struct sim_request requests[] = {
        {SECONDS(95), SECONDS(10), 0}, /* runs over the end, in time */
        {SECONDS(99), SECONDS(30), 0}, /* never starts */
    };
    (void)state;
    script_init(&script);
    script.setup.requests = requests;
    script.setup.request_count = 2;
    script_run(&script);
    assert_int_equal(script.start_ns[0], SECONDS(95));
    assert_int_equal(script.start_ns[1], ENGINE_NEVER_NS);
    assert_float_equal(script.result.late_fraction, 0.75, NEAR);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_SERVING), 5, NEAR);
    assert_true(script.result.ledger_balanced);
}

static void one_queue_feeds_all_devices_lowest_first(void **state)
{
    struct script script;
    static const struct sim_request requests[] = {
        {SECONDS(1), SECONDS(9), 0}, {SECONDS(2), SECONDS(3), 0}, {SECONDS(3), SECONDS(1), 0}};
    (void)state;
    script_init(&script);
    script.setup.requests = requests;
    script.setup.request_count = 3;
    script.setup.device_count = 2;
    script_run(&script);
    assert_int_equal(script.start_ns[2], SECONDS(5));
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_SERVING), 9, NEAR);
    assert_float_equal(script_spent_s(&script, 1, CORE_ACCOUNT_SERVING), 4, NEAR);
}

static void an_endpoint_is_served_only_where_it_has_an_instance(void **state)
{
    struct script script;
    static const struct sim_request requests[] = {{SECONDS(1), SECONDS(1), 1},
                                                  {SECONDS(2), SECONDS(1), 0}};
    static const struct script_step steps[] = {
        {.at_ns = 0, .what = SCRIPT_INSTANCE_OFF, .device = 0, .job = 1},
        {.at_ns = SECONDS(4), .what = SCRIPT_INSTANCE_ON, .device = 0, .job = 1},
    };
    (void)state;
    script_init(&script);
    script.setup.requests = requests;
    script.setup.request_count = 2;
    script.setup.endpoint_count = 2;
    script.steps = steps;
    script.step_count = 2;
    script_run(&script);
    assert_int_equal(script.start_ns[0], SECONDS(4));
    assert_int_equal(script.start_ns[1], SECONDS(2)); /* overtakes: nobody else could run there */
}

static void a_device_given_and_taken_costs_the_times_of_its_rung(void **state)
{
    struct script script;
    static const struct script_step steps[] = {
        {.at_ns = SECONDS(10), .what = SCRIPT_GIVE, .job = 0},                 /* 10 - 12 restore */
        {.at_ns = SECONDS(50), .what = SCRIPT_TAKE, .rung = CORE_RUNG_FREEZE}, /* 50 - 51 */
        {.at_ns = SECONDS(60), .what = SCRIPT_GIVE, .job = 0},                 /* 60 - 62 */
        {.at_ns = SECONDS(62), .what = SCRIPT_REFUSED_GIVE, .job = 0},
        {.at_ns = SECONDS(70), .what = SCRIPT_TAKE, .rung = CORE_RUNG_NOTICE}, /* 70 - 100 */
        {.at_ns = SECONDS(71), .what = SCRIPT_REFUSED_TAKE, .rung = CORE_RUNG_FREEZE},
    };
    (void)state;
    script_init(&script);
    script.setup.jobs = &endless;
    script.setup.job_count = 1;
    script.steps = steps;
    script.step_count = sizeof steps / sizeof steps[0];
    script_run(&script);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_TRAINING), 38 + 8, NEAR);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_RESTORE), 4, NEAR);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_HANDOVER), 31, NEAR);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_RESERVE), 10 + 9, NEAR);
    assert_float_equal(script.result.harvest_fraction, 0.46, NEAR);
    /* To training twice, back once; the second time is still under way. */
    assert_float_equal(script.result.handovers_per_device_hour, 3 * 36, NEAR);
    assert_float_equal(script.result.slices_per_device_hour, 0, NEAR);
    assert_true(script.result.ledger_balanced);
    assert_string_equal(script.told, "submitted 0;training 0;serving 0;training 0;");
}

static void a_device_in_the_pool_before_its_job_trains_when_that_comes(void **state)
{
    struct script script;
    static const struct sim_job later = {
        .submit_ns = SECONDS(10), .devices_min = 1, .devices_max = 1, .kinds_mask = 1};
    static const struct script_step steps[] = {
        {.at_ns = 0, .what = SCRIPT_GIVE, .job = ENGINE_POOL},
    };
    (void)state;
    script_init(&script);
    script.setup.jobs = &later;
    script.setup.job_count = 1;
    script.steps = steps;
    script.step_count = 1;
    script_run(&script);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_TRAINING), 88, NEAR);
    assert_true(script.result.ledger_balanced);
}

static void a_busy_device_finishes_its_request_before_it_goes(void **state)
{
    struct script script;
    static const struct sim_request requests[] = {{SECONDS(9), SECONDS(6), 0},
                                                  {SECONDS(10), SECONDS(1), 0}};
    static const struct script_step steps[] = {
        {.at_ns = SECONDS(11), .what = SCRIPT_GIVE, .job = 0},
        {.at_ns = SECONDS(30), .what = SCRIPT_TAKE, .rung = CORE_RUNG_FREEZE},
    };
    (void)state;
    script_init(&script);
    script.setup.requests = requests;
    script.setup.request_count = 2;
    script.setup.jobs = &endless;
    script.setup.job_count = 1;
    script.steps = steps;
    script.step_count = 2;
    script_run(&script);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_TRAINING), 13, NEAR); /* 17 - 30 */
    assert_int_equal(script.start_ns[1], SECONDS(31));
    assert_string_equal(script.told, "submitted 0;began 0 0;arrived 0;arrived 0;ended 0 0 6;"
                                     "giving 0;training 0;serving 0;began 0 0;ended 0 0 1;");
}

static void a_device_that_drains_can_be_kept(void **state)
{
    struct script script;
    static const struct sim_request requests[] = {{SECONDS(9), SECONDS(6), 0},
                                                  {SECONDS(10), SECONDS(1), 0}};
    static const struct script_step steps[] = {
        {.at_ns = SECONDS(11), .what = SCRIPT_GIVE, .job = 0},
        {.at_ns = SECONDS(12), .what = SCRIPT_TAKE, .rung = CORE_RUNG_NOTICE},
    };
    (void)state;
    script_init(&script);
    script.setup.requests = requests;
    script.setup.request_count = 2;
    script.setup.jobs = &endless;
    script.setup.job_count = 1;
    script.steps = steps;
    script.step_count = 2;
    script_run(&script);
    assert_int_equal(script.start_ns[1], SECONDS(15));
    assert_float_equal(script.result.handovers_per_device_hour, 0, NEAR);
    assert_true(isnan(script.result.effective_training_fraction) ||
                script.result.effective_training_fraction == 0);
}

static void slices_take_the_device_within_yields_time_and_count_no_hand_over(void **state)
{
    struct script script;
    static const struct sim_request requests[] = {
        {SECONDS(20), SECONDS(3), 0}, /* 20.5 - 23.5 */
        {SECONDS(21), SECONDS(2), 0}, /* 23.5 - 25.5: same slice, waited 2.5 s */
        {SECONDS(40), SECONDS(1), 0}, /* 40.5 - 41.5 */
    };
    static const struct script_step steps[] = {
        {.at_ns = SECONDS(10), .what = SCRIPT_GIVE_SHARED, .job = 0}};
    (void)state;
    script_init(&script);
    script.setup.requests = requests;
    script.setup.request_count = 3;
    script.setup.rungs[0] = (struct sim_rung){CORE_RUNG_YIELD, MS(500), MS(250), false};
    script.setup.rung_count = 1;
    script.setup.jobs = &endless;
    script.setup.job_count = 1;
    script.steps = steps;
    script.step_count = 1;
    script_run(&script);
    assert_int_equal(script.start_ns[0], MS(20500));
    assert_int_equal(script.start_ns[1], MS(23500));
    assert_int_equal(script.start_ns[2], MS(40500));
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_SERVING), 6, NEAR);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_HANDOVER), 2 * 0.75, NEAR);
    assert_float_equal(script_spent_s(&script, 0, CORE_ACCOUNT_RESTORE), 0.25, NEAR);
    assert_float_equal(script.result.harvest_fraction, (100 - 10.25 - 6 - 1.5) / 100, NEAR);
    assert_float_equal(script.result.late_fraction, 2.0 / 6, NEAR);
    assert_float_equal(script.result.slices_per_device_hour, 2 * 36, NEAR);
    assert_float_equal(script.result.handovers_per_device_hour, 36, NEAR);
    assert_true(script.result.ledger_balanced);
}

static void a_lost_device_gives_its_request_back_to_the_head_of_the_queue(void **state)
{
    struct script script;
    static const struct sim_request requests[] = {
        {SECONDS(1), SECONDS(90), 0}, {SECONDS(2), SECONDS(1), 0}, {SECONDS(3), SECONDS(1), 0}};
    (void)state;
    script_init(&script);
    script.setup.requests = requests;
    script.setup.request_count = 3;
    script.setup.faults.device_mtbf_ns = SECONDS(20);
    script.setup.faults.device_repair_ns = SECONDS(5);
    script_run(&script);
    /* Whenever it broke: the first starts again before the others. */
    assert_true(script.result.faults > 0);
    assert_true(script.start_ns[0] > SECONDS(1));
    assert_int_equal(script.start_ns[1], ENGINE_NEVER_NS);
    assert_true(script_spent_s(&script, 0, CORE_ACCOUNT_QUARANTINED) > 0);
    assert_float_equal(script.result.late_fraction, 1, NEAR);
    assert_true(script.result.ledger_balanced);
}

/* Random requests to all endpoints; job sizes 1 to 4, endless and finite, with checkpoints. */
static void make_random(struct script *script, struct sim_request *requests, size_t request_count,
                        struct sim_job *jobs, size_t job_count)
{
    uint64_t z = script->setup.seed;
    for (size_t i = 0; i < request_count; i++) {
        z = z * UINT64_C(6364136223846793005) + 1442695040888963407u;
        requests[i] = (struct sim_request){MS(90 * i), 1 + (z >> 40) * 60, (uint32_t)(z >> 33) % 3};
    }
    for (size_t i = 0; i < job_count; i++) {
        z = z * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint32_t size = 1 + (uint32_t)(z >> 33) % 4;
        jobs[i] = (struct sim_job){.submit_ns = SECONDS(i),
                                   .work_ns = (z >> 40) % 2 ? SECONDS(20) : 0,
                                   .devices_min = size,
                                   .devices_max = size + (uint32_t)(z >> 50) % 2,
                                   .checkpoint_ns = (z >> 44) % 2 ? SECONDS(5) : 0,
                                   .restore_ns = SECONDS(1),
                                   .kinds_mask = 1};
    }
    script->setup.requests = requests;
    script->setup.request_count = request_count;
    script->setup.jobs = jobs;
    script->setup.job_count = job_count;
}

static void a_device_wanted_back_is_told_of_in_time_then_gone_then_back(void **state)
{
    static const struct script_step steps[] = {{0, SCRIPT_GIVE, 0, 0, 0}};
    static const struct sim_job unsaved = {
        .devices_min = 1, .devices_max = 1, .checkpoint_ns = SECONDS(1000), .kinds_mask = 1};
    struct script script;
    (void)state;
    script_init(&script);
    script.steps = steps;
    script.step_count = 1;
    script.setup.jobs = &unsaved;
    script.setup.job_count = 1;
    script.setup.faults.reclaim_every_ns = SECONDS(20);
    script.setup.faults.reclaim_notice_ns = SECONDS(15);
    script.setup.faults.reclaim_away_ns = SECONDS(40);
    script_run(&script);
    assert_non_null(strstr(script.told, "wanted 0 15;lost 0;serving 0;"));
    assert_true(script.result.reclaims >= 1);
    assert_int_equal(script.result.faults, 0);
    assert_true(script.result.account_s[CORE_ACCOUNT_QUARANTINED] >= 40 - NEAR);
    /* It was at work to the end, and had saved nothing. */
    assert_true(script.result.lost_work_fraction > 0.15);
    assert_float_equal(script.result.harvest_fraction, 0, NEAR);
    assert_true(script.result.ledger_balanced);
}

static void a_loss_is_noticed_late_and_its_job_hangs_until_then(void **state)
{
    static const struct script_step steps[] = {{0, SCRIPT_GIVE, 0, 0, 0},
                                               {0, SCRIPT_GIVE, 1, 0, 0}};
    static const struct sim_job gang = {.devices_min = 2, .devices_max = 2, .kinds_mask = 1};
    struct script script;
    double at_once_s;
    (void)state;
    script_init(&script);
    script.steps = steps;
    script.step_count = 2;
    script.setup.device_count = 2;
    script.setup.jobs = &gang;
    script.setup.job_count = 1;
    script.setup.faults.device_mtbf_ns = SECONDS(60);
    script.setup.faults.device_repair_ns = SECONDS(1000);
    script_run(&script);
    assert_true(script.result.faults >= 1);
    at_once_s = script.result.account_s[CORE_ACCOUNT_TRAINING];
    script.setup.faults.detect_ns = SECONDS(5);
    script_run(&script);
    assert_float_equal(script.result.account_s[CORE_ACCOUNT_TRAINING], at_once_s, NEAR);
    assert_true(script.result.account_s[CORE_ACCOUNT_WAITING] >= 5 - NEAR);
    assert_true(script.result.ledger_balanced);
}

static void whatever_a_policy_does_the_accounts_add_up_and_it_repeats(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct script script;
        static struct sim_request requests[1000];
        static struct sim_job jobs[12];
        script_init(&script);
        script.setup.seed = seed;
        script.setup.endpoint_count = 3;
        script.setup.device_count = 1 + seed % 9;
        script.random = true;
        script.setup.rungs[1].take_ns = seed % 2 ? MS(2) : 0;
        script.setup.faults = (struct sim_faults){.device_mtbf_ns = SECONDS(30),
                                                  .device_repair_ns = SECONDS(3),
                                                  .detect_ns = seed % 4 ? SECONDS(1) : 0,
                                                  .reclaim_every_ns = SECONDS(17),
                                                  .reclaim_notice_ns = SECONDS(seed % 5),
                                                  .reclaim_away_ns = SECONDS(2),
                                                  .slow_permille = 300,
                                                  .slow_factor_milli = 1700,
                                                  .late_permille = 200,
                                                  .late_ns = SECONDS(2),
                                                  .lost_permille = 100,
                                                  .crash_every_ns = SECONDS(25),
                                                  .crash_down_ns = SECONDS(2)};
        make_random(&script, requests, 1000, jobs, 12);
        script_run(&script);
        struct sim_result first = script.result;
        if (!first.ledger_balanced) {
            fail_msg("seed %" PRIu64 ": the accounts do not add up", seed);
        }
        script_run(&script);
        first.wall_s = script.result.wall_s;
        assert_memory_equal(&first, &script.result, sizeof first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_start_in_order_and_a_wait_over_the_slo_is_late),
        cmocka_unit_test(what_is_queued_at_the_end_is_late_and_what_runs_is_judged_by_its_start),
        cmocka_unit_test(one_queue_feeds_all_devices_lowest_first),
        cmocka_unit_test(an_endpoint_is_served_only_where_it_has_an_instance),
        cmocka_unit_test(a_device_given_and_taken_costs_the_times_of_its_rung),
        cmocka_unit_test(a_device_in_the_pool_before_its_job_trains_when_that_comes),
        cmocka_unit_test(a_busy_device_finishes_its_request_before_it_goes),
        cmocka_unit_test(a_device_that_drains_can_be_kept),
        cmocka_unit_test(slices_take_the_device_within_yields_time_and_count_no_hand_over),
        cmocka_unit_test(a_lost_device_gives_its_request_back_to_the_head_of_the_queue),
        cmocka_unit_test(a_device_wanted_back_is_told_of_in_time_then_gone_then_back),
        cmocka_unit_test(a_loss_is_noticed_late_and_its_job_hangs_until_then),
        cmocka_unit_test(whatever_a_policy_does_the_accounts_add_up_and_it_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
