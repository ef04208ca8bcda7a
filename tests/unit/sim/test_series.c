#include "clients/sim/series.h"

#include "clients/sim/baselines.h"
#include "tests/unit/sim/script.h"

#define NEAR 1e-6

static const struct sim_job endless[2] = {
    {.devices_min = 1, .devices_max = 1, .kinds_mask = 1},
    {.devices_min = 1, .devices_max = 1, .kinds_mask = 1},
};
/* One device serves: the second request waits 12 s and is late, the third never starts. */
static const struct sim_request requests[] = {{SECONDS(10), SECONDS(22), 0},
                                              {SECONDS(20), SECONDS(4), 0},
                                              {SECONDS(479), SECONDS(3), 0},
                                              {MS(479500), SECONDS(5), 0}};

/* 480 s, so that a span is a second; 3 devices, of which 2 train at most. */
static void played(struct series *series)
{
    const struct sim_setup plain = {
        .requests = requests,
        .request_count = 4,
        .endpoint_count = 1,
        .jobs = endless,
        .job_count = 2,
        .device_count = 3,
        .rungs = {{.rung = CORE_RUNG_NOTICE, .take_ns = SECONDS(3), .give_ns = SECONDS(5)}},
        .rung_count = 1,
        .slo_ns = SECONDS(1),
        .end_ns = SECONDS(480),
        .hold_ns = ENGINE_NEVER_NS,
    };
    struct sim_setup setup = plain;
    struct policy_choice choice = policy_standard(&policy_static);
    struct sim_result result;
    choice.parameters[0] = 1;
    assert_int_equal(series_init(series, &setup, NULL), 0);
    setup.observer = series_observer(series);
    assert_int_equal(engine_run(&setup, &choice, &result, NULL), 0);
}

static void every_span_holds_all_device_time(void **state)
{
    struct series series;
    (void)state;
    played(&series);
    assert_int_equal(series.span_ns, SECONDS(1));
    for (int span = 0; span < SERIES_SPANS; span++) {
        double sum = 0, devices = 0;
        for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
            sum += series.account_s[account][span];
            for (uint32_t device = 0; device < series.device_count; device++) {
                devices += series.device_s[device][span][account];
            }
        }
        assert_float_equal(sum, 3, NEAR);
        assert_float_equal(devices, 3, NEAR);
    }
    assert_float_equal(series.account_s[CORE_ACCOUNT_RESTORE][4], 2, NEAR);
    assert_float_equal(series.account_s[CORE_ACCOUNT_TRAINING][5], 2, NEAR);
    assert_int_equal(series_device(&series, 0, 11), CORE_ACCOUNT_SERVING);
    assert_int_equal(series_device(&series, 2, 11), CORE_ACCOUNT_TRAINING);
    assert_int_equal(series.handovers[5], 2);
    series_fini(&series);
}

static void work_waiting_and_lateness_are_where_they_happen(void **state)
{
    struct series series;
    (void)state;
    played(&series);
    assert_float_equal(series.arriving_s[10], 22, NEAR);
    assert_float_equal(series.arriving_s[20], 4, NEAR);
    assert_float_equal(series.late_s[10], 0, NEAR);
    assert_float_equal(series.late_s[20], 4, NEAR);
    assert_float_equal(series.late_s[479], 5, NEAR);
    assert_float_equal(series.waiting_s[19], 0, NEAR);
    assert_float_equal(series.waiting_s[20], 1, NEAR);
    assert_float_equal(series.waiting_s[31], 1, NEAR);
    assert_float_equal(series.waiting_s[32], 0, NEAR);
    assert_float_equal(series.waiting_s[479], 0.5, NEAR);
    series_fini(&series);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_span_holds_all_device_time),
        cmocka_unit_test(work_waiting_and_lateness_are_where_they_happen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
