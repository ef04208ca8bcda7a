/* test_tidepool.c: clients/sim/tidepool*.c: the real core over modelled devices: what it is told,
 * what becomes of its actions, what is left of it after a crash. What it decides is tested by
 * tests/unit/core and tests/sim. */
#include <inttypes.h>

#include "tests/unit/sim/script.h"

#define NEAR 1e-9
#define REQUESTS 400
#define JOBS 6

static struct sim_request requests[REQUESTS];
static struct sim_job jobs[JOBS];

static void init(struct script *script, enum core_rung rung, uint64_t take_ns, uint64_t give_ns)
{
    script_init(script);
    script->class = &policy_tidepool;
    script->setup.rungs[0] = (struct sim_rung){rung, take_ns, give_ns, false};
    script->setup.rungs[1] = (struct sim_rung){CORE_RUNG_KILL, SECONDS(1), SECONDS(30), true};
    script->setup.rung_count = 2;
    script->setup.late_budget = 0.005;
}

/* Two endpoints; a quiet start, then a load of about one device in bursts. */
static void make_load(struct script *script, uint64_t seed)
{
    uint64_t z = seed, at_ns = SECONDS(10);
    for (size_t i = 0; i < REQUESTS; i++) {
        z = z * UINT64_C(6364136223846793005) + 1442695040888963407u;
        at_ns += (z >> 60) == 0 ? SECONDS(5) : MS((z >> 40) % 300);
        requests[i] =
            (struct sim_request){at_ns, MS(50 + (z >> 33) % 400), (uint32_t)(z >> 50) % 2};
    }
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = (struct sim_job){.devices_min = 1,
                                   .devices_max = 1,
                                   .checkpoint_ns = SECONDS(30),
                                   .kinds_mask = 1,
                                   .work_ns = i == 0 ? SECONDS(20) : 0};
    }
    script->setup.requests = requests;
    script->setup.request_count = REQUESTS;
    script->setup.endpoint_count = 2;
    script->setup.jobs = jobs;
    script->setup.job_count = JOBS;
    script->setup.device_count = 4;
    script->setup.end_ns = at_ns + SECONDS(10);
}

static void a_request_takes_a_training_device_by_yield_and_gives_it_back(void **state)
{
    struct script script;
    static const struct sim_request one[] = {{SECONDS(40), SECONDS(3), 0}};
    static const struct sim_job endless = {.devices_min = 1, .devices_max = 1, .kinds_mask = 1};
    (void)state;
    init(&script, CORE_RUNG_YIELD, MS(2), 0);
    script.setup.requests = one;
    script.setup.request_count = 1;
    script.setup.jobs = &endless;
    script.setup.job_count = 1;
    script_run(&script);
    assert_int_equal(script.start_ns[0], SECONDS(40) + MS(2));
    assert_float_equal(script.result.harvest_fraction, (100 - 3.002) / 100, NEAR);
    assert_float_equal(script.result.slices_per_device_hour, 36, NEAR);
    assert_float_equal(script.result.handovers_per_device_hour, 36, NEAR);
    assert_true(script.result.ledger_balanced);
}

static void jobs_train_and_end_and_both_books_balance_by_every_rung(void **state)
{
    static const struct {
        enum core_rung rung;
        uint64_t take_ns, give_ns;
        uint64_t finished; /* after some work was late, one that takes long to come is not lent */
    } rungs[] = {{CORE_RUNG_YIELD, MS(2), 0, 1},
                 {CORE_RUNG_FREEZE, MS(5), MS(5), 1},
                 {CORE_RUNG_PAUSE, MS(1500), SECONDS(1), 1},
                 {CORE_RUNG_SWAP, SECONDS(3), SECONDS(3), 1},
                 {CORE_RUNG_NOTICE, SECONDS(10), SECONDS(5), 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct script script;
        init(&script, rungs[i].rung, rungs[i].take_ns, rungs[i].give_ns);
        make_load(&script, i);
        script_run(&script);
        assert_true(script.result.ledger_balanced);
        assert_true(script.result.harvest_fraction > 0);
        assert_true(script.result.harvest_fraction < script.result.idle_bound);
        assert_int_equal(script.result.jobs_finished, rungs[i].finished);
    }
}

static void a_restart_finds_jobs_at_work_and_lets_them_be(void **state)
{
    struct script script;
    (void)state;
    init(&script, CORE_RUNG_YIELD, MS(2), 0);
    make_load(&script, 1);
    script_run(&script);
    struct sim_result calm = script.result;
    script.setup.faults.crash_every_ns = SECONDS(8);
    script.setup.faults.crash_down_ns = MS(500);
    script_run(&script);
    assert_true(script.result.faults >= 3);
    assert_true(script.result.ledger_balanced);
    /* Devices serve and train on without their controller: next to nothing changes. */
    assert_float_equal(script.result.harvest_fraction, calm.harvest_fraction, 0.02);
    assert_float_equal(script.result.late_fraction, calm.late_fraction, 0.02);
    assert_float_equal(script.result.lost_work_fraction, 0, NEAR);
}

static void a_job_that_is_over_is_over_and_the_next_one_comes(void **state)
{
    static struct sim_job short_jobs[20];
    struct script script;
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        short_jobs[i] = (struct sim_job){.submit_ns = SECONDS(i),
                                         .work_ns = SECONDS(4),
                                         .devices_min = 1,
                                         .devices_max = 1,
                                         .kinds_mask = 1};
    }
    init(&script, CORE_RUNG_YIELD, MS(2), 0);
    script.setup.jobs = short_jobs;
    script.setup.job_count = 20;
    script_run(&script);
    assert_int_equal(script.result.jobs_finished, 20);
    /* One grant and one end each: nobody asks for a job that has ended. */
    assert_float_equal(script.result.handovers_per_device_hour * script.setup.device_count *
                           script.result.span_s / 3600,
                       40, NEAR);
}

static void a_device_wanted_back_by_its_provider_is_left_in_time(void **state)
{
    static const struct sim_job unsaved = {
        .devices_min = 1, .devices_max = 1, .checkpoint_ns = SECONDS(600), .kinds_mask = 1};
    struct script script;
    (void)state;
    init(&script, CORE_RUNG_NOTICE, SECONDS(5), SECONDS(1));
    script.setup.jobs = &unsaved;
    script.setup.job_count = 1;
    script.setup.faults.reclaim_every_ns = SECONDS(15);
    script.setup.faults.reclaim_notice_ns = SECONDS(8);
    script.setup.faults.reclaim_away_ns = SECONDS(10);
    script_run(&script);
    /* Asked back once more at the end. Each time: 5 s to save, 3 s that nobody can use, 10 s away,
     * 1 s to begin again; all the rest is training. */
    double returns = (double)script.result.reclaims;
    assert_true(returns >= 2);
    assert_float_equal(script.result.lost_work_fraction, 0, NEAR);
    assert_float_equal(script.result.account_s[CORE_ACCOUNT_HANDOVER], 5 * (returns + 1), NEAR);
    assert_float_equal(script.result.account_s[CORE_ACCOUNT_RESTORE], returns + 1, NEAR);
    assert_float_equal(script.result.account_s[CORE_ACCOUNT_QUARANTINED], 10 * returns, NEAR);
    assert_true(script.result.account_s[CORE_ACCOUNT_RESERVE] <= 3 * (returns + 1));
    /* Told too late, it has nothing saved. */
    script.setup.faults.reclaim_notice_ns = SECONDS(2);
    script_run(&script);
    assert_true(script.result.lost_work_fraction > 0);
    assert_true(script.result.ledger_balanced);
}

static void whatever_breaks_the_books_balance_and_the_run_repeats(void **state)
{
    static const enum core_rung rungs[] = {CORE_RUNG_YIELD, CORE_RUNG_FREEZE, CORE_RUNG_PAUSE,
                                           CORE_RUNG_NOTICE};
    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        struct script script;
        init(&script, rungs[seed % 4], MS(500), MS(700));
        make_load(&script, seed);
        script.setup.seed = seed;
        script.setup.faults = (struct sim_faults){.device_mtbf_ns = SECONDS(60),
                                                  .device_repair_ns = SECONDS(4),
                                                  .detect_ns = seed % 2 ? MS(700) : 0,
                                                  .reclaim_every_ns = SECONDS(25),
                                                  .reclaim_notice_ns = SECONDS(seed % 7),
                                                  .reclaim_away_ns = SECONDS(3),
                                                  .slow_permille = 300,
                                                  .slow_factor_milli = 1500,
                                                  .late_permille = 100,
                                                  .late_ns = SECONDS(2),
                                                  .lost_permille = 20,
                                                  .crash_every_ns = seed % 3 ? SECONDS(30) : 0,
                                                  .crash_down_ns = SECONDS(1)};
        script_run(&script);
        struct sim_result first = script.result;
        /* Devices break more often than jobs save: one may lose all that it trained. */
        double trained = first.harvest_fraction + first.lost_work_fraction;
        if (!first.ledger_balanced || !(trained > 0)) {
            fail_msg("seed %" PRIu64 ": balanced %d, trained %g", seed, first.ledger_balanced,
                     trained);
        }
        script_run(&script);
        first.wall_s = script.result.wall_s;
        assert_memory_equal(&first, &script.result, sizeof first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_takes_a_training_device_by_yield_and_gives_it_back),
        cmocka_unit_test(jobs_train_and_end_and_both_books_balance_by_every_rung),
        cmocka_unit_test(a_restart_finds_jobs_at_work_and_lets_them_be),
        cmocka_unit_test(a_job_that_is_over_is_over_and_the_next_one_comes),
        cmocka_unit_test(a_device_wanted_back_by_its_provider_is_left_in_time),
        cmocka_unit_test(whatever_breaks_the_books_balance_and_the_run_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
