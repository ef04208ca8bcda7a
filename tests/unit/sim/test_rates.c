#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/sim/trace.h"
#include "tests/unit/sim/files.h"

#define WINDOW_NS UINT64_C(600000000000)

static struct error error;
static struct trace_options options;

static int setup(void **state)
{
    (void)state;
    trace_options_init(&options);
    return 0;
}

static int read_text(const char *text, struct trace *trace)
{
    const char *path = file_make(text, false);
    int result = trace_read(&path, 1, &options, trace, &error);
    unlink(path);
    return result;
}

static double gaps_cv(const struct trace *trace)
{
    double sum = 0, square = 0;
    size_t count = trace->request_count - 1;
    for (size_t i = 0; i < count; i++) {
        double gap = (double)(trace->requests[i + 1].arrival_ns - trace->requests[i].arrival_ns);
        sum += gap;
        square += gap * gap;
    }
    double mean = sum / (double)count;
    return sqrt(square / (double)count - mean * mean) / mean;
}

static void a_window_has_the_number_of_requests_that_its_rate_says(void **state)
{
    (void)state;
    struct trace trace;
    assert_int_equal(read_text(RATE_HEADER "0,a,2.5,1,Gamma,1,100,10,0\n600,a,0,,,,,,0\n"
                                           "1200,a,0.5,1,Weibull,1,100,10,0\n",
                               &trace),
                     0);
    assert_int_equal(trace.request_count, 1500 + 300);
    assert_true(trace.requests[1499].arrival_ns <= WINDOW_NS);
    assert_true(trace.requests[1500].arrival_ns >= 2 * WINDOW_NS);
    trace_free(&trace);
}

static void a_fraction_of_a_request_comes_by_chance(void **state)
{
    (void)state;
    struct trace trace;
    static char text[100000] = RATE_HEADER;
    size_t length = strlen(text);
    for (unsigned i = 0; i < 1000; i++) { /* a quarter of a request in each window */
        length += (size_t)snprintf(text + length, sizeof(text) - length,
                                   "%u,a,0.000416667,1,Gamma,1,100,10,0\n", 600 * i);
    }
    assert_int_equal(read_text(text, &trace), 0);
    assert_in_range(trace.request_count, 200, 300);
    trace_free(&trace);
}

static void the_published_burstiness_stays(void **state)
{
    (void)state;
    struct trace trace;
    /* A gamma distribution of shape k has the variation 1/sqrt(k); Weibull of shape 1/2: sqrt(5).
     */
    assert_int_equal(read_text(RATE_HEADER "0,a,40,3.16,Gamma,0.1,100,10,0\n", &trace), 0);
    assert_true(fabs(gaps_cv(&trace) / sqrt(10) - 1) < 0.1);
    trace_free(&trace);
    assert_int_equal(read_text(RATE_HEADER "0,a,40,2.24,Weibull,0.5,100,10,0\n", &trace), 0);
    assert_true(fabs(gaps_cv(&trace) / sqrt(5) - 1) < 0.1);
    trace_free(&trace);
    assert_int_equal(read_text(RATE_HEADER "0,a,40,0.5,Gamma,4,100,10,0\n", &trace), 0);
    assert_true(fabs(gaps_cv(&trace) / 0.5 - 1) < 0.1);
    trace_free(&trace);
}

static void the_same_seed_repeats_and_another_does_not(void **state)
{
    (void)state;
    struct trace first, again, other;
    const char *text = RATE_HEADER "0,a,1,1,Gamma,0.5,100,10,0\n";
    assert_int_equal(read_text(text, &first), 0);
    assert_int_equal(
        read_text(RATE_HEADER "0,b,3,1,Gamma,2,9,9,0\n0,a,1,1,Gamma,0.5,100,10,0\n", &again), 0);
    options.seed = 2;
    assert_int_equal(read_text(text, &other), 0);
    size_t at = 0;
    for (size_t i = 0; i < again.request_count; i++) { /* what else is played changes nothing */
        if (again.requests[i].endpoint == 1) {
            assert_int_equal(again.requests[i].arrival_ns, first.requests[at].arrival_ns);
            assert_int_equal(again.requests[i].input_tokens, first.requests[at].input_tokens);
            at++;
        }
    }
    assert_int_equal(at, first.request_count);
    assert_true(other.requests[0].arrival_ns != first.requests[0].arrival_ns);
    trace_free(&first);
    trace_free(&again);
    trace_free(&other);
}

static void a_gap_of_the_source_makes_no_requests_and_does_not_count_in_the_mean(void **state)
{
    (void)state;
    struct trace trace;
    options.rate_mean = 0.5;
    assert_int_equal(read_text(RATE_HEADER "0,a,10,1,Gamma,1,100,10,0\n600,a,0.0,,,,,,1\n"
                                           "1200,a,30,1,Gamma,1,100,10,0\n",
                               &trace),
                     0);
    assert_int_equal(trace.request_count, 600); /* two windows of 0.5 per second on average */
    trace_free(&trace);
}

static void lengths_follow_the_quantiles_scaled_to_the_window(void **state)
{
    (void)state;
    struct trace trace;
    const char *rates = file_make(RATE_HEADER "0,a,20,1,Gamma,1,2000,50,0\n", false);
    const char *lengths = file_make("endpoint,field,p1,p5,p10,p25,p50,p75,p90,p95,p99,p99_9\n"
                                    "a,input_tokens,500,500,500,500,1000,1500,1500,1500,1500,1500\n"
                                    "b,input_tokens,1,1,1,1,1,1,1,1,1,1\n",
                                    false);
    const char *const files[] = {rates, lengths};
    assert_int_equal(trace_read(files, 2, &options, &trace, &error), 0);
    assert_int_equal(trace.endpoints.count, 1); /* b has lengths and no requests */
    double input = 0, output = 0;
    for (size_t i = 0; i < trace.request_count; i++) {
        assert_in_range(trace.requests[i].input_tokens, 1000, 3000); /* twice 500 to 1500 */
        input += trace.requests[i].input_tokens;
        output += trace.requests[i].output_tokens;
    }
    assert_true(fabs(input / (double)trace.request_count / 2000 - 1) < 0.02);
    assert_true(fabs(output / (double)trace.request_count / 50 - 1) < 0.05); /* exponential */
    trace_free(&trace);
    unlink(rates);
    unlink(lengths);
}

static void totals_of_a_model_are_played_as_a_poisson_stream(void **state)
{
    (void)state;
    struct trace trace;
    assert_int_equal(
        read_text("t_s,model,rate_rps,active_clients,top_client_share\n0,m,20,3,0.5\n", &trace), 0);
    assert_int_equal(trace.request_count, 12000);
    assert_true(fabs(gaps_cv(&trace) - 1) < 0.05);
    trace_free(&trace);
}

static void refuses(const char *text, const char *message)
{
    struct trace trace;
    assert_true(read_text(text, &trace) < 0);
    if (strstr(error.text, message) == NULL) {
        fail_msg("the error is \"%s\", without \"%s\"", error.text, message);
    }
}

static void curves_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    refuses(RATE_HEADER "0,a,1,1,Pareto,1,100,10,0\n", "neither Gamma nor Weibull");
    refuses(RATE_HEADER "0,a,1,1,Gamma,,100,10,0\n", "line 2: column 6 (iat_shape): below 0.01");
    refuses(RATE_HEADER "0,a,1000000,1,Gamma,1,100,10,0\n", "make 6e+08 requests, the limit is");
    refuses("endpoint,field,p1,p5,p10,p25,p50,p75,p90,p95,p99,p99_9\n"
            "a,input_tokens,1,2,3,2,5,6,7,8,9,10\n",
            "column 6 (p25): below the quantile before it");
    refuses("endpoint,field,p1,p5,p10,p25,p50,p75,p90,p95,p99,p99_9\na,words,1,2,3,4,5,6,7,8,9,9\n",
            "column 2 (field)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_window_has_the_number_of_requests_that_its_rate_says, setup),
        cmocka_unit_test_setup(a_fraction_of_a_request_comes_by_chance, setup),
        cmocka_unit_test_setup(the_published_burstiness_stays, setup),
        cmocka_unit_test_setup(the_same_seed_repeats_and_another_does_not, setup),
        cmocka_unit_test_setup(a_gap_of_the_source_makes_no_requests_and_does_not_count_in_the_mean,
                               setup),
        cmocka_unit_test_setup(lengths_follow_the_quantiles_scaled_to_the_window, setup),
        cmocka_unit_test_setup(totals_of_a_model_are_played_as_a_poisson_stream, setup),
        cmocka_unit_test_setup(curves_that_make_no_sense_are_refused, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
