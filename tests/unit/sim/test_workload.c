/* test_workload.c: clients/sim/workload.c: service times and jobs from traces, by hand. */
#include "clients/sim/workload.h"
#include "tests/unit/sim/script.h"

#define NEAR 1e-9

static const struct workload_options options = {.device_count = 4, .gang = 1};

static struct workload make(const struct trace *trace, const struct workload_options *how)
{
    struct workload workload;
    struct error error = {0};
    assert_int_equal(workload_make(trace, how, &workload, &error), 0);
    return workload;
}

static void the_busiest_window_just_fits_the_devices(void **state)
{
    /* Work of 1 s and of 2 s + 2 s in the second window; the quantile of two windows lies 0.999 of
     * the way from the lighter to the heavier one. */
    struct trace_request requests[] = {
        {SECONDS(1), 0, 8000, 0}, {SECONDS(11), 0, 8000, 1500}, {SECONDS(12), 0, 0, 3000}};
    struct trace trace = {.requests = requests, .request_count = 3, .end_ns = SECONDS(12)};
    (void)state;
    struct workload workload = make(&trace, &options);
    double scale = 40.0 / (1 + 0.999 * 3);
    assert_float_equal(workload.scale, scale, NEAR);
    assert_int_equal(workload.end_ns, SECONDS(20));
    assert_float_equal((double)workload.requests[0].service_ns / 1e9, scale, 1e-8);
    assert_float_equal((double)workload.requests[2].service_ns / 1e9, 2 * scale, 1e-8);
    assert_int_equal(workload.job_count, 4);
    workload_free(&workload);
}

static void a_scale_that_is_given_holds_for_any_number_of_devices(void **state)
{
    struct trace_request requests[] = {{0, 0, 4000, 0}};
    struct trace trace = {.requests = requests, .request_count = 1};
    struct workload_options how = {.device_count = 1000, .scale = 3, .gang = 4};
    (void)state;
    struct workload workload = make(&trace, &how);
    assert_int_equal(workload.requests[0].service_ns, MS(1500));
    assert_int_equal(workload.job_count, 250);
    assert_int_equal(workload.jobs[0].devices_min, 4);
    workload_free(&workload);
}

static void bursts_rarer_than_the_quantile_are_scaled_by_the_busiest_window(void **state)
{
    struct trace_request requests[] = {{SECONDS(1), 0, 8000, 0}, {SECONDS(200000), 0, 16000, 0}};
    struct trace trace = {.requests = requests, .request_count = 2, .end_ns = SECONDS(200000)};
    (void)state;
    struct workload workload = make(&trace, &options);
    assert_float_equal(workload.scale, 40.0 / 2, NEAR);
    workload_free(&workload);
}

static void a_request_without_tokens_still_takes_a_moment(void **state)
{
    struct trace_request requests[] = {{0, 0, 0, 0}};
    struct trace trace = {.requests = requests, .request_count = 1};
    (void)state;
    struct workload workload = make(&trace, &options);
    assert_int_equal(workload.requests[0].service_ns, 1);
    workload_free(&workload);
}

static void jobs_keep_their_size_and_their_work(void **state)
{
    struct trace_job jobs[] = {{SECONDS(5), SECONDS(100), 4, 4, 4, 2, TRACE_RIGID}};
    struct trace trace = {.jobs = jobs, .job_count = 1, .end_ns = SECONDS(5)};
    struct workload_options how = {
        .device_count = 8, .checkpoint_ns = SECONDS(60), .restore_ns = SECONDS(7)};
    (void)state;
    struct workload workload = make(&trace, &how);
    assert_int_equal(workload.job_count, 1);
    assert_int_equal(workload.jobs[0].submit_ns, SECONDS(5));
    assert_int_equal(workload.jobs[0].work_ns, SECONDS(400));
    assert_int_equal(workload.jobs[0].devices_min, 4);
    assert_int_equal(workload.jobs[0].devices_max, 4);
    assert_int_equal(workload.jobs[0].team, 3);
    assert_int_equal(workload.jobs[0].checkpoint_ns, SECONDS(60));
    assert_int_equal(workload.jobs[0].restore_ns, SECONDS(7));
    assert_int_equal(workload.jobs[0].speed_permille[0], 0); /* linear */
    workload_free(&workload);
}

static void elastic_jobs_take_as_long_as_told_on_what_they_asked_for(void **state)
{
    struct trace_application application = {.name = (char[]){"net"},
                                            .duration_ns = {0, SECONDS(100), SECONDS(60),
                                                            SECONDS(40), SECONDS(30), SECONDS(30),
                                                            SECONDS(30), SECONDS(30), SECONDS(30)}};
    struct trace_job jobs[] = {{0, SECONDS(60), 2, 1, 8, 0, 0}};
    struct trace trace = {
        .jobs = jobs, .job_count = 1, .applications = &application, .application_count = 1};
    struct script script;
    static const struct script_step steps[] = {
        {.at_ns = 0, .what = SCRIPT_GIVE, .device = 0, .job = 0},
        {.at_ns = 0, .what = SCRIPT_GIVE, .device = 1, .job = 0},
    };
    struct workload_options how = {.device_count = 2};
    (void)state;
    struct workload workload = make(&trace, &how);
    script_init(&script);
    script.setup.rung_count = 0;
    script.setup.jobs = workload.jobs;
    script.setup.job_count = 1;
    script.setup.device_count = 2;
    script.steps = steps;
    script.step_count = 2;
    script_run(&script);
    assert_float_equal(script.result.job_completion_mean_s, 60, 0.1);
    script.step_count = 1;
    script_run(&script);
    assert_float_equal(script.result.job_completion_mean_s, 100, 0.2);
    workload_free(&workload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_busiest_window_just_fits_the_devices),
        cmocka_unit_test(a_scale_that_is_given_holds_for_any_number_of_devices),
        cmocka_unit_test(bursts_rarer_than_the_quantile_are_scaled_by_the_busiest_window),
        cmocka_unit_test(a_request_without_tokens_still_takes_a_moment),
        cmocka_unit_test(jobs_keep_their_size_and_their_work),
        cmocka_unit_test(elastic_jobs_take_as_long_as_told_on_what_they_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
