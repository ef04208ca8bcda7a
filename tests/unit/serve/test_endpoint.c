/* Endpoints on real serving threads; the runs are held and let go by the test, nothing sleeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "tests/unit/serve/fake.h"

#define ENDPOINT UINT64_C(7)

static struct {
    struct device_set devices;
    struct serve *serve;
    struct endpoint *endpoint;
    struct fake_request requests[64];
} bench;

static int bench_setup(void **state)
{
    struct device_config config = {.cpu_devices = 2, .cores_per_device = 1};
    struct serve_options options = {.notify = fake_notify};
    struct error error;
    (void)state;
    fake_reset();
    memset(bench.requests, 0, sizeof(bench.requests));
    assert_int_equal(device_set_discover(&config, &bench.devices, &error), 0);
    bench.serve = serve_create(&bench.devices, &options, &error);
    assert_non_null(bench.serve);
    return 0;
}

static int bench_teardown(void **state)
{
    (void)state;
    fake_gate_open(true);
    endpoint_release(bench.endpoint);
    bench.endpoint = NULL;
    serve_destroy(bench.serve);
    device_set_destroy(&bench.devices);
    assert_int_equal(fake_world.instances, 0);
    return 0;
}

/* Adds the model, places it on the first `devices` devices and waits until it is ready there. */
static void serve_model(struct repository_model *model, uint32_t devices)
{
    struct error error;
    assert_int_equal(serve_endpoint_add(bench.serve, ENDPOINT, model, &error), 0);
    bench.endpoint = serve_endpoint_hold(bench.serve, ENDPOINT);
    for (uint32_t i = 0; i < devices; i++) {
        assert_int_equal(serve_instance_place(bench.serve, ENDPOINT, i, &error), 0);
    }
    fake_event_wait(SERVE_INSTANCE_READY, devices);
    pthread_mutex_lock(&fake_world.lock);
    fake_world.runs = fake_world.rows_max = fake_world.requests_max = 0; /* the warm-up's */
    pthread_mutex_unlock(&fake_world.lock);
}

static struct fake_request *submit(size_t index, uint32_t rows, int64_t value)
{
    struct error error;
    struct fake_request *request = &bench.requests[index];
    fake_request_init(request, rows, value);
    assert_int_equal(endpoint_submit(bench.endpoint, &request->request, &error), 0);
    return request;
}

static struct endpoint_statistics statistics(void)
{
    struct endpoint_statistics now;
    endpoint_statistics(bench.endpoint, &now);
    return now;
}

static void a_request_is_answered_with_its_own_rows(void **state)
{
    (void)state;
    serve_model(fake_model("m", 8, false), 1);
    struct fake_request *request = submit(0, 3, 42);
    fake_request_wait(request);
    assert_int_equal(request->status, ERROR_NONE);
    assert_int_equal(request->results[2], 42);
    struct endpoint_statistics now = statistics();
    assert_int_equal(now.success, 1);
    assert_int_equal(now.inference, 3);
    assert_int_equal(now.executions, 1);
    assert_true(now.success_ns >= now.queue_ns + now.input_ns + now.infer_ns);
    struct batch_statistics batch;
    assert_int_equal(endpoint_batches(bench.endpoint, &batch, 1), 1);
    assert_int_equal(batch.batch_size, 3);
}

static void what_waits_behind_a_run_shares_the_next_batch(void **state)
{
    (void)state;
    serve_model(fake_model("m", 8, false), 1);
    struct fake_request *first = submit(0, 1, FAKE_GATE);
    fake_gated_wait(1);
    for (size_t i = 1; i <= 4; i++) {
        (void)submit(i, 2, (int64_t)i);
    }
    fake_gate_open(true);
    for (size_t i = 0; i <= 4; i++) {
        fake_request_wait(&bench.requests[i]);
    }
    assert_int_equal(first->status, ERROR_NONE);
    assert_int_equal(bench.requests[4].results[1], 4);
    assert_int_equal(fake_world.runs, 2);
    assert_int_equal(fake_world.rows_max, 8);
    assert_int_equal(statistics().arrivals, 9); /* rows: demand is theirs, as service times are */
}

static void a_full_queue_refuses_at_once_and_says_its_bound(void **state)
{
    struct repository_model *model = fake_model("m", 1, false);
    struct error error;
    (void)state;
    model->config.queue_requests_max = 2;
    serve_model(model, 1);
    (void)submit(0, 1, FAKE_GATE);
    fake_gated_wait(1);
    (void)submit(1, 1, 1);
    (void)submit(2, 1, 1);
    fake_request_init(&bench.requests[3], 1, 1);
    assert_int_equal(endpoint_submit(bench.endpoint, &bench.requests[3].request, &error),
                     -ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "queue full"));
    assert_non_null(strstr(error.text, "the bound is 2 requests"));
    fake_gate_open(true);
    for (size_t i = 0; i < 3; i++) {
        fake_request_wait(&bench.requests[i]);
    }
    assert_int_equal(atomic_load(&bench.requests[3].answered), 0);
    assert_int_equal(statistics().refused[REFUSAL_QUEUE_FULL], 1);
    assert_int_equal(statistics().arrivals, 4);
}

static void the_bound_counts_bytes_too(void **state)
{
    struct repository_model *model = fake_model("m", 8, false);
    struct error error;
    (void)state;
    model->config.queue_bytes_max = 31;
    serve_model(model, 1);
    fake_request_init(&bench.requests[0], 4, 1); /* 32 bytes */
    assert_int_equal(endpoint_submit(bench.endpoint, &bench.requests[0].request, &error),
                     -ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "31 bytes"));
    fake_request_wait(submit(1, 3, 1));
}

static void what_a_failed_device_gives_back_keeps_the_bound_of_bytes(void **state)
{
    struct repository_model *model = fake_model("m", 1, false);
    struct error error;
    (void)state;
    model->config.queue_bytes_max = 8;
    serve_model(model, 1);
    (void)submit(0, 1, FAKE_GATE);
    fake_gated_wait(1);
    (void)submit(1, 1, 1);
    serve_device_failed(bench.serve, 0);
    while (statistics().requeued == 0) {
        (void)sched_yield();
    }
    fake_request_init(&bench.requests[2], 1, 1);
    assert_int_equal(endpoint_submit(bench.endpoint, &bench.requests[2].request, &error),
                     -ERROR_RESOURCE_EXHAUSTED);
    fake_gate_open(true);
    assert_int_equal(serve_instance_place(bench.serve, ENDPOINT, 1, &error), 0);
    fake_request_wait(&bench.requests[0]);
    fake_request_wait(&bench.requests[1]);
}

static void a_deadline_that_has_passed_is_refused_and_runs_nothing(void **state)
{
    struct error error;
    (void)state;
    serve_model(fake_model("m", 8, false), 1);
    fake_request_init(&bench.requests[0], 1, 1);
    bench.requests[0].request.deadline_ns = bench.requests[0].request.arrival_ns;
    assert_int_equal(endpoint_submit(bench.endpoint, &bench.requests[0].request, &error),
                     -ERROR_DEADLINE_EXCEEDED);
    assert_int_equal(statistics().refused[REFUSAL_DEADLINE], 1);
    assert_int_equal(statistics().executions, 0);
}

static void a_cancelled_request_leaves_the_queue_before_cancel_returns(void **state)
{
    (void)state;
    serve_model(fake_model("m", 1, false), 1);
    struct fake_request *first = submit(0, 1, FAKE_GATE);
    fake_gated_wait(1);
    struct fake_request *gone = submit(1, 1, 5), *late = submit(2, 1, 6);
    endpoint_cancel(bench.endpoint, &gone->request, ERROR_CANCELLED);
    assert_int_equal(atomic_load(&gone->answered), 1);
    assert_int_equal(gone->status, ERROR_CANCELLED);
    endpoint_cancel(bench.endpoint, &late->request, ERROR_DEADLINE_EXCEEDED);
    assert_int_equal(late->status, ERROR_DEADLINE_EXCEEDED);
    assert_int_equal(statistics().pending, 0);
    fake_gate_open(true);
    fake_request_wait(first);
    assert_int_equal(statistics().executions, 1);
    assert_int_equal(statistics().failed[FAILURE_CANCELED], 1);
    assert_int_equal(statistics().failed[FAILURE_REJECTED], 1);
}

static void a_run_that_nobody_waits_for_is_aborted(void **state)
{
    (void)state;
    serve_model(fake_model("m", 1, false), 1);
    struct fake_request *request = submit(0, 1, FAKE_GATE);
    fake_gated_wait(1); /* the gate stays shut: only an abort ends the run */
    endpoint_cancel(bench.endpoint, &request->request, ERROR_CANCELLED);
    fake_request_wait(request);
    assert_int_equal(request->status, ERROR_CANCELLED);
    assert_int_equal(fake_world.aborts, 1);
    fake_request_wait(submit(1, 1, 9)); /* and the next one runs */
    assert_int_equal(bench.requests[1].status, ERROR_NONE);
}

static void a_run_that_somebody_waits_for_goes_on(void **state)
{
    (void)state;
    serve_model(fake_model("m", 8, false), 1);
    (void)submit(0, 1, FAKE_GATE);
    fake_gated_wait(1);
    (void)submit(1, 1, FAKE_GATE);
    (void)submit(2, 1, 3);
    fake_gate_open(true);
    fake_request_wait(&bench.requests[0]);
    for (size_t i = 0; i < 3; i++) {
        fake_request_wait(&bench.requests[i]);
        assert_int_equal(bench.requests[i].status, ERROR_NONE);
    }
    assert_int_equal(fake_world.aborts, 0);
}

static void bad_data_of_one_request_leaves_its_mates_alone(void **state)
{
    (void)state;
    serve_model(fake_model("m", 8, false), 1);
    (void)submit(0, 1, FAKE_GATE);
    fake_gated_wait(1);
    (void)submit(1, 1, 11);
    (void)submit(2, 1, FAKE_BAD);
    (void)submit(3, 1, 13);
    fake_gate_open(true);
    for (size_t i = 1; i <= 3; i++) {
        fake_request_wait(&bench.requests[i]);
    }
    assert_int_equal(bench.requests[1].results[0], 11);
    assert_int_equal(bench.requests[2].status, ERROR_INVALID_ARGUMENT);
    assert_string_equal(bench.requests[2].text, "bad data");
    assert_int_equal(bench.requests[3].results[0], 13);
    assert_int_equal(statistics().success, 3);
    assert_int_equal(statistics().failed[FAILURE_BACKEND], 1);
}

static void the_second_device_lost_under_a_request_makes_it_unavailable(void **state)
{
    (void)state;
    serve_model(fake_model("m", 1, false), 2);
    struct fake_request *request = submit(0, 1, FAKE_LOST);
    fake_request_wait(request);
    assert_int_equal(request->status, ERROR_UNAVAILABLE);
    fake_event_wait(SERVE_DEVICE_LOST, 2);
    assert_int_equal(statistics().requeued, 1);
    assert_int_equal(statistics().failed[FAILURE_OTHER], 1);
}

static void a_device_that_fails_gives_its_batch_back_once(void **state)
{
    struct error error;
    (void)state;
    serve_model(fake_model("m", 1, false), 1);
    struct fake_request *request = submit(0, 1, FAKE_GATE);
    fake_gated_wait(1);
    struct fake_request *behind = submit(1, 1, 2);
    serve_device_failed(bench.serve, 0); /* aborts the run; nobody else can take it */
    fake_gated_wait(0);
    assert_int_equal(serve_instance_place(bench.serve, ENDPOINT, 0, &error), -ERROR_UNAVAILABLE);
    fake_gate_open(true);
    assert_int_equal(serve_instance_place(bench.serve, ENDPOINT, 1, &error), 0);
    fake_request_wait(request);
    fake_request_wait(behind);
    assert_int_equal(request->status, ERROR_NONE);
    assert_int_equal(behind->status, ERROR_NONE);
    assert_int_equal(request->request.tries, 1);
    assert_int_equal(fake_world.events[SERVE_INSTANCE_STOPPED], 0);
    serve_device_recovered(bench.serve, 0);
}

/* The device says that it has failed, and only then the control thread does: who comes in between
 * may be given to the failed one. */
static void a_request_that_woke_a_failed_device_goes_to_the_other(void **state)
{
    (void)state;
    fake_gate_open(true);
    serve_model(fake_model("m", 1, false), 2);
    device_set_failed(&bench.devices.devices[0], true);
    struct fake_request *request = submit(0, 1, 4);
    serve_device_failed(bench.serve, 0);
    fake_request_wait(request);
    assert_int_equal(request->results[0], 4);
    device_set_failed(&bench.devices.devices[0], false);
    serve_device_recovered(bench.serve, 0);
}

static void both_devices_work_when_there_is_work_for_both(void **state)
{
    (void)state;
    serve_model(fake_model("m", 1, false), 2);
    (void)submit(0, 1, FAKE_GATE);
    (void)submit(1, 1, FAKE_GATE);
    fake_gated_wait(2);
    fake_gate_open(true);
    fake_request_wait(&bench.requests[0]);
    fake_request_wait(&bench.requests[1]);
}

static void a_model_that_is_not_there_yet_is_unavailable(void **state)
{
    struct error error;
    char reason[128];
    (void)state;
    pthread_mutex_lock(&fake_world.lock);
    fake_world.fail_create = true;
    pthread_mutex_unlock(&fake_world.lock);
    assert_int_equal(serve_endpoint_add(bench.serve, ENDPOINT, fake_model("m", 1, false), &error),
                     0);
    bench.endpoint = serve_endpoint_hold(bench.serve, ENDPOINT);
    serve_set_open(bench.serve, true);
    assert_false(serve_ready(bench.serve));
    fake_request_init(&bench.requests[0], 1, 1);
    assert_int_equal(endpoint_submit(bench.endpoint, &bench.requests[0].request, &error),
                     -ERROR_UNAVAILABLE);
    assert_non_null(strstr(error.text, "loading"));
    assert_int_equal(serve_instance_place(bench.serve, ENDPOINT, 0, &error), 0);
    fake_event_wait(SERVE_INSTANCE_FAILED, 1);
    assert_non_null(strstr(fake_world.last[SERVE_INSTANCE_FAILED].text, "broken"));
    assert_int_equal(serve_endpoint_reason(bench.serve, ENDPOINT, reason, sizeof(reason)), 0);
    assert_non_null(strstr(reason, "broken"));
    assert_true(serve_ready(bench.serve)); /* the model says itself that it failed */
    assert_false(endpoint_ready(bench.endpoint));
}

static void a_cold_endpoint_tells_danger_and_serves_when_it_is_placed(void **state)
{
    struct error error;
    (void)state;
    serve_model(fake_model("m", 1, false), 1);
    serve_instance_remove(bench.serve, ENDPOINT, 0);
    fake_event_wait(SERVE_INSTANCE_STOPPED, 1);
    assert_true(endpoint_ready(bench.endpoint));
    struct fake_request *request = submit(0, 1, 4);
    fake_event_wait(SERVE_ENDPOINT_DANGER, 1);
    assert_int_equal(serve_instance_place(bench.serve, ENDPOINT, 1, &error), 0);
    fake_request_wait(request);
    assert_int_equal(request->results[0], 4);
}

static void an_endpoint_that_is_removed_answers_what_it_accepted(void **state)
{
    struct error error;
    (void)state;
    serve_model(fake_model("m", 1, false), 1);
    (void)submit(0, 1, FAKE_GATE);
    fake_gated_wait(1);
    (void)submit(1, 1, 5);
    serve_endpoint_remove(bench.serve, ENDPOINT);
    serve_instance_remove(bench.serve, ENDPOINT, 0);
    assert_null(endpoint_find(bench.serve, "m", 1));
    fake_request_init(&bench.requests[2], 1, 1);
    assert_int_equal(endpoint_submit(bench.endpoint, &bench.requests[2].request, &error),
                     -ERROR_UNAVAILABLE);
    fake_gate_open(true);
    fake_event_wait(SERVE_ENDPOINT_STOPPED, 1);
    assert_int_equal(atomic_load(&bench.requests[1].answered), 1);
    assert_int_equal(bench.requests[1].status, ERROR_NONE);
    assert_int_equal(fake_world.events[SERVE_INSTANCE_STOPPED], 1);
    assert_null(serve_endpoint_hold(bench.serve, ENDPOINT));
}

static void two_instances_that_leave_at_once_answer_what_was_accepted(void **state)
{
    struct error error;
    (void)state;
    for (uint32_t round = 0; round < 50; round++) {
        fake_reset();
        serve_model(fake_model("m", 1, false), 2);
        (void)submit(0, 1, FAKE_GATE);
        (void)submit(1, 1, FAKE_GATE);
        fake_gated_wait(2);
        for (size_t i = 2; i < 6; i++) {
            (void)submit(i, 1, 5);
        }
        serve_endpoint_remove(bench.serve, ENDPOINT);
        serve_instance_remove(bench.serve, ENDPOINT, 0);
        serve_instance_remove(bench.serve, ENDPOINT, 1);
        fake_gate_open(true); /* both end, and both find that they are to leave */
        for (size_t i = 0; i < 6; i++) {
            fake_request_wait(&bench.requests[i]);
            assert_int_equal(bench.requests[i].status, ERROR_NONE);
        }
        fake_event_wait(SERVE_ENDPOINT_STOPPED, 1);
        endpoint_release(bench.endpoint);
        bench.endpoint = NULL;
    }
    assert_int_equal(serve_endpoint_add(bench.serve, ENDPOINT, fake_model("m", 1, false), &error),
                     0);
}

static void a_name_with_a_nul_in_it_is_another_name(void **state)
{
    char name[] = "m\0??";
    (void)state;
    serve_model(fake_model("m", 1, false), 0);
    for (uint32_t tail = 0; tail < 65536; tail++) { /* many of them in the bucket of "m" */
        memcpy(name + 2, &tail, 2);
        assert_null(endpoint_find(bench.serve, name, 4));
    }
}

static void a_deadline_that_nobody_watches_ends_the_wait(void **state)
{
    struct error error;
    (void)state;
    serve_model(fake_model("m", 1, false), 1);
    (void)submit(0, 1, FAKE_GATE);
    fake_gated_wait(1);
    fake_request_init(&bench.requests[1], 1, 1);
    bench.requests[1].request.deadline_ns = clock_now_ns() + 20 * NS_PER_MS;
    bench.requests[1].request.deadline_watched = false;
    assert_int_equal(endpoint_submit(bench.endpoint, &bench.requests[1].request, &error), 0);
    fake_request_wait(&bench.requests[1]); /* while the first one still runs */
    assert_int_equal(bench.requests[1].status, ERROR_DEADLINE_EXCEEDED);
    assert_int_equal(atomic_load(&bench.requests[0].answered), 0);
    fake_gate_open(true);
    fake_request_wait(&bench.requests[0]);
}

static void a_name_and_a_number_are_given_once(void **state)
{
    struct error error;
    struct repository_model *again = fake_model("m", 1, false);
    (void)state;
    serve_model(fake_model("m", 1, false), 0);
    assert_int_equal(serve_endpoint_add(bench.serve, 99, again, &error), -ERROR_ALREADY_EXISTS);
    repository_model_destroy(again);
}

/* ---- many at once -----------------------------------------------------------------------------
 */

#define SUBMITTERS 4
#define ROUNDS 400

struct submitter {
    pthread_t thread;
    unsigned seed;
    uint32_t accepted, answered, refused, rows;
};

static void *submit_and_cancel(void *arg)
{
    struct submitter *self = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct fake_request requests[3];
        struct error error;
        bool accepted[3];
        endpoint_wakes_begin();
        for (int j = 0; j < 3; j++) {
            int64_t value = rand_r(&self->seed) % 16 == 0 ? FAKE_BAD : i * 8 + j;
            fake_request_init(&requests[j], 1 + (uint32_t)rand_r(&self->seed) % 4, value);
            accepted[j] = endpoint_submit(bench.endpoint, &requests[j].request, &error) == 0;
            self->rows += requests[j].request.rows;
            self->accepted += accepted[j];
            self->refused += !accepted[j];
        }
        endpoint_wakes_end(false);
        for (int j = 0; j < 3; j++) {
            if (accepted[j] && rand_r(&self->seed) % 3 == 0) {
                endpoint_cancel(bench.endpoint, &requests[j].request, ERROR_CANCELLED);
            }
            if (accepted[j]) {
                fake_request_wait(&requests[j]);
                assert_int_equal(atomic_load(&requests[j].answered), 1);
                self->answered++;
                if (requests[j].status == ERROR_NONE) {
                    assert_memory_equal(requests[j].values, requests[j].results,
                                        requests[j].input.bytes);
                }
            }
        }
    }
    return NULL;
}

static void every_request_is_answered_exactly_once_and_counted_once(void **state)
{
    struct submitter submitters[SUBMITTERS];
    struct error error;
    uint64_t accepted = 0, refused = 0, failed = 0, rows = 0;
    (void)state;
    fake_gate_open(true);
    struct repository_model *model = fake_model("m", 8, false);
    model->config.queue_requests_max = 8;
    serve_model(model, 2);
    for (unsigned i = 0; i < SUBMITTERS; i++) {
        submitters[i] = (struct submitter){.seed = 17 + i};
        assert_int_equal(
            pthread_create(&submitters[i].thread, NULL, submit_and_cancel, &submitters[i]), 0);
    }
    for (int i = 0; i < 20; i++) { /* a device comes and goes meanwhile */
        serve_instance_remove(bench.serve, ENDPOINT, 1);
        fake_event_wait(SERVE_INSTANCE_STOPPED, (uint32_t)i + 1);
        assert_int_equal(serve_instance_place(bench.serve, ENDPOINT, 1, &error), 0);
        fake_event_wait(SERVE_INSTANCE_READY, (uint32_t)i + 3);
    }
    for (int i = 0; i < SUBMITTERS; i++) {
        pthread_join(submitters[i].thread, NULL);
        assert_int_equal(submitters[i].accepted, submitters[i].answered);
        accepted += submitters[i].accepted;
        refused += submitters[i].refused;
        rows += submitters[i].rows;
    }
    struct endpoint_statistics now = statistics();
    for (int i = 0; i < FAILURE_COUNT; i++) {
        failed += now.failed[i];
    }
    assert_int_equal(accepted + refused, SUBMITTERS * ROUNDS * 3);
    assert_int_equal(now.arrivals, rows);
    assert_int_equal(now.success + failed, accepted);
    assert_int_equal(now.refused[REFUSAL_QUEUE_FULL], refused);
    assert_int_equal(now.pending, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_answered_with_its_own_rows),
        TEST(what_waits_behind_a_run_shares_the_next_batch),
        TEST(a_full_queue_refuses_at_once_and_says_its_bound),
        TEST(the_bound_counts_bytes_too),
        TEST(what_a_failed_device_gives_back_keeps_the_bound_of_bytes),
        TEST(a_deadline_that_has_passed_is_refused_and_runs_nothing),
        TEST(a_cancelled_request_leaves_the_queue_before_cancel_returns),
        TEST(a_run_that_nobody_waits_for_is_aborted),
        TEST(a_run_that_somebody_waits_for_goes_on),
        TEST(bad_data_of_one_request_leaves_its_mates_alone),
        TEST(the_second_device_lost_under_a_request_makes_it_unavailable),
        TEST(a_device_that_fails_gives_its_batch_back_once),
        TEST(a_request_that_woke_a_failed_device_goes_to_the_other),
        TEST(both_devices_work_when_there_is_work_for_both),
        TEST(a_model_that_is_not_there_yet_is_unavailable),
        TEST(a_cold_endpoint_tells_danger_and_serves_when_it_is_placed),
        TEST(an_endpoint_that_is_removed_answers_what_it_accepted),
        TEST(two_instances_that_leave_at_once_answer_what_was_accepted),
        TEST(a_name_with_a_nul_in_it_is_another_name),
        TEST(a_deadline_that_nobody_watches_ends_the_wait),
        TEST(a_name_and_a_number_are_given_once),
        TEST(every_request_is_answered_exactly_once_and_counted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
