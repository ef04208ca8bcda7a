#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/sim/trace.h"
#include "tests/unit/sim/files.h"

static struct error error;

static int read_files(const char *const *files, size_t count, const struct trace_options *options,
                      struct trace *trace)
{
    struct trace_options standard;
    trace_options_init(&standard);
    memset(&error, 0, sizeof(error));
    memset(trace, 0, sizeof(*trace));
    return trace_read(files, count, options != NULL ? options : &standard, trace, &error);
}

static int read_text(const char *text, struct trace *trace)
{
    const char *path = file_make(text, false);
    int result = read_files(&path, 1, NULL, trace);
    unlink(path);
    return result;
}

static void refuses(const char *text, const char *message)
{
    struct trace trace;
    assert_true(read_text(text, &trace) < 0);
    if (strstr(error.text, message) == NULL) {
        fail_msg("the error is \"%s\", without \"%s\"", error.text, message);
    }
}

static void files_merge_by_time_with_offsets_of_their_own(void **state)
{
    (void)state;
    char shifted[64];
    struct trace trace;
    const char *conv = file_make(REQUEST_HEADER "0.5,conv,10,1\n2,conv,20,2\n", true);
    const char *code = file_make(REQUEST_HEADER "0.25,code,30,3\n0.75,code,40,4\n", false);
    (void)snprintf(shifted, sizeof(shifted), "%s@1.000000001", code);
    const char *const files[] = {conv, shifted};
    assert_int_equal(read_files(files, 2, NULL, &trace), 0);
    assert_int_equal(trace.request_count, 4);
    const struct trace_request expected[] = {{500000000, 0, 10, 1},
                                             {1250000001, 1, 30, 3},
                                             {1750000001, 1, 40, 4},
                                             {2000000000, 0, 20, 2}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(trace.requests[i].arrival_ns, expected[i].arrival_ns);
        assert_int_equal(trace.requests[i].endpoint, expected[i].endpoint);
        assert_int_equal(trace.requests[i].input_tokens, expected[i].input_tokens);
        assert_int_equal(trace.requests[i].output_tokens, expected[i].output_tokens);
    }
    assert_string_equal(trace.endpoints.names[0], "conv");
    assert_string_equal(trace.endpoints.names[1], "code");
    assert_int_equal(trace.end_ns, 2000000000);
    trace_free(&trace);
    unlink(conv);
    unlink(code);
}

static void only_the_part_between_from_and_until_is_played(void **state)
{
    (void)state;
    struct trace_options options;
    struct trace trace;
    const char *path = file_make(REQUEST_HEADER "1,a,1,1\n2,a,2,1\n3,a,3,1\n4,a,4,1\n", false);
    trace_options_init(&options);
    options.from_ns = 2000000000;
    options.until_ns = 4000000000;
    assert_int_equal(read_files(&path, 1, &options, &trace), 0);
    assert_int_equal(trace.request_count, 2);
    assert_int_equal(trace.requests[0].input_tokens, 2);
    assert_int_equal(trace.requests[0].arrival_ns, 0);
    assert_int_equal(trace.requests[1].arrival_ns, 1000000000);
    trace_free(&trace);
    options.until_ns = 2000000000;
    assert_true(read_files(&path, 1, &options, &trace) < 0);
    unlink(path);
}

static void a_time_scale_of_one_half_doubles_the_load(void **state)
{
    (void)state;
    struct trace_options options;
    struct trace trace;
    const char *path = file_make(REQUEST_HEADER "1,a,1,1\n8,a,2,1\n", false);
    trace_options_init(&options);
    options.time_scale = 0.5;
    assert_int_equal(read_files(&path, 1, &options, &trace), 0);
    assert_int_equal(trace.requests[0].arrival_ns, 500000000);
    assert_int_equal(trace.requests[1].arrival_ns, 4000000000);
    trace_free(&trace);
    options.time_scale = 0;
    assert_true(read_files(&path, 1, &options, &trace) < 0);
    assert_non_null(strstr(error.text, "time scale: 1e-6 to 1000, not 0"));
    unlink(path);
}

static void requests_out_of_order_are_refused(void **state)
{
    (void)state;
    refuses(REQUEST_HEADER "2,a,1,1\n1.999999,a,1,1\n", "line 3: column 1 (arrival_s): before the "
                                                        "line above it");
}

static void jobs_come_in_order_of_submission_with_their_groups(void **state)
{
    (void)state;
    struct trace trace;
    assert_int_equal(read_text(JOB_HEADER "0,100,60,4,red\n1,50,30,1,blue\n2,75,9,8,red\n", &trace),
                     0);
    assert_int_equal(trace.job_count, 3);
    assert_int_equal(trace.jobs[0].submit_ns, 50000000000);
    assert_string_equal(trace.teams.names[trace.jobs[0].team], "blue");
    assert_string_equal(trace.teams.names[trace.jobs[1].team], "red");
    assert_int_equal(trace.jobs[1].devices_min, 8);
    assert_int_equal(trace.jobs[2].duration_ns, 60000000000);
    assert_int_equal(trace_job_speed_milli(&trace, &trace.jobs[1], 7), 0);
    assert_int_equal(trace_job_speed_milli(&trace, &trace.jobs[1], 8), 1000);
    trace_free(&trace);
    refuses(JOB_HEADER "0,100,60,0,red\n", "column 4 (num_gpus): '0'");
}

/* Steps of 1 s on one device with a batch of 8; on two 1.5 s for 16. 1,000 steps at a batch of 8,
 * 500 at 16, 400 at 32. */
#define MEASURED STEP_TIME_HEADER "net,1,1,1,8,1,0\nnet,2,2,1+1,8,3,2\nnet,1,2,2,8,1.5,0.5\n"
#define CONVERGED                                                                                  \
    CONVERGENCE_HEADER "net,8,1,1,500,,1e-3,\nnet,8,2,2,1000,,,\nnet,16,2,2,500,,,\n"              \
                       "net,32,2,2,400,,,\n"

static void elastic_jobs_run_as_fast_as_was_measured(void **state)
{
    (void)state;
    struct trace trace;
    const char *jobs =
        file_make(ELASTIC_HEADER "1,net-0,30,net,6,64,1,8\n2,net-1,60,net,2,64,4,8\n", false);
    const char *steps = file_make(MEASURED, true);
    const char *convergence = file_make(CONVERGED, false);
    const char *const files[] = {jobs, steps, convergence};
    assert_int_equal(read_files(files, 3, NULL, &trace), 0);
    assert_int_equal(trace.job_count, 2);
    const struct trace_application *net = &trace.applications[trace.jobs[0].application];
    /* One device: 1,000 steps of 1 s, or 500 of 2 micro-steps. Two, the faster placement: 500 steps
     * of 1.5 s; summing two micro-steps before one exchange, 400 of 2.5 s, is slower. */
    assert_int_equal(net->duration_ns[1], 1000000000000);
    assert_int_equal(net->duration_ns[2], 750000000000);
    assert_int_equal(net->duration_ns[8], 750000000000); /* nothing measured above two */
    assert_int_equal(trace.jobs[0].duration_ns, 1000000000000);
    assert_int_equal(trace.jobs[0].devices_max, 6);
    assert_int_equal(trace.jobs[1].devices_max, 4); /* its user asks for more than is best */
    assert_int_equal(trace_job_speed_milli(&trace, &trace.jobs[0], 1), 1000);
    assert_int_equal(trace_job_speed_milli(&trace, &trace.jobs[0], 6), 1333);
    trace_free(&trace);

    struct trace_options options;
    trace_options_init(&options);
    options.workload = 2;
    assert_int_equal(read_files(files, 3, &options, &trace), 0);
    assert_int_equal(trace.job_count, 1);
    assert_string_equal(trace.teams.names[0], "workload 2");
    trace_free(&trace);

    assert_true(read_files(files, 2, NULL, &trace) < 0);
    assert_non_null(strstr(error.text, "no step time on 1 device"));
    assert_true(read_files(files, 1, NULL, &trace) < 0);
    assert_non_null(strstr(error.text, "files of its step times and its convergence are needed"));
    unlink(jobs);
    unlink(steps);
    unlink(convergence);
}

static void steps_between_two_measured_batches_are_interpolated(void **state)
{
    (void)state;
    struct trace trace;
    const char *jobs = file_make(ELASTIC_HEADER "1,a,0,net,1,8,1,8\n", false);
    const char *steps = file_make(STEP_TIME_HEADER "net,1,1,1,20,1,0\n", false);
    const char *convergence =
        file_make(CONVERGENCE_HEADER "net,10,1,1,400,,,\nnet,39,1,1,100,,,\n", false);
    const char *const files[] = {jobs, steps, convergence};
    assert_int_equal(read_files(files, 3, NULL, &trace), 0);
    /* Half-way from 10 to 40 in logarithms would be 20 and 200 steps; to 39 a little more. */
    assert_true(trace.applications[0].duration_ns[1] > 195000000000);
    assert_true(trace.applications[0].duration_ns[1] < 200000000000);
    trace_free(&trace);
    unlink(jobs);
    unlink(steps);
    unlink(convergence);
}

static void more_endpoints_than_fit_are_refused(void **state)
{
    (void)state;
    static char text[200000] = REQUEST_HEADER;
    size_t length = strlen(text);
    for (unsigned i = 0; i <= TRACE_NAMES_MAX; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "1,endpoint-%u,1,1\n", i);
    }
    refuses(text, "line 4098: more than 4096 different endpoints");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_merge_by_time_with_offsets_of_their_own),
        cmocka_unit_test(only_the_part_between_from_and_until_is_played),
        cmocka_unit_test(a_time_scale_of_one_half_doubles_the_load),
        cmocka_unit_test(requests_out_of_order_are_refused),
        cmocka_unit_test(jobs_come_in_order_of_submission_with_their_groups),
        cmocka_unit_test(elastic_jobs_run_as_fast_as_was_measured),
        cmocka_unit_test(steps_between_two_measured_batches_are_interpolated),
        cmocka_unit_test(more_endpoints_than_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
