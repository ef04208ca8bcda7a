/* Runs on the network thread, and what may happen to the worker meanwhile; nothing sleeps. A
 * network thread is a thread of the test that submits with time to spare. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/serve/state.h"
#include "tests/unit/serve/fake.h"

#define ENDPOINT UINT64_C(7)
#define QUICK_RUNS 128 /* before anything runs inline */
/* No run of the fake model takes so long, even under a sanitizer on a busy machine. */
#define QUICK_NS (UINT64_C(100) * NS_PER_S)

static struct {
    struct device_set devices;
    struct serve *serve;
    struct endpoint *endpoint;
} bench;

static int bench_setup(void **state)
{
    struct device_config config = {.cpu_devices = 2, .cores_per_device = 1};
    struct serve_options options = {.inline_ns_max = QUICK_NS, .notify = fake_notify};
    struct error error;
    (void)state;
    fake_reset();
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
    assert_false(fake_world.two_in_a_run);
    return 0;
}

/* ---- a network thread -------------------------------------------------------------------------
 */

struct network {
    pthread_t thread;
    struct fake_request request;
    bool spare;
    int result;
};

static void *network_main(void *arg)
{
    struct network *network = arg;
    struct error error;
    endpoint_wakes_begin();
    network->result = endpoint_submit(bench.endpoint, &network->request.request, &error);
    endpoint_wakes_end(network->spare);
    return NULL;
}

static void network_start(struct network *network, int64_t value)
{
    network->spare = true;
    fake_request_init(&network->request, 1, value);
    assert_int_equal(pthread_create(&network->thread, NULL, network_main, network), 0);
}

/* What it submitted has been answered, and it has nothing to do with the worker any more. */
static void network_end(struct network *network)
{
    pthread_join(network->thread, NULL);
    assert_int_equal(network->result, 0);
    fake_request_wait(&network->request);
    assert_int_equal(atomic_load(&network->request.answered), 1);
}

/* One request from this thread; returns whether this thread also ran it. */
static bool runs_here(bool spare)
{
    struct network network = {.thread = pthread_self(), .spare = spare};
    fake_request_init(&network.request, 1, 5);
    (void)network_main(&network);
    fake_request_wait(&network.request);
    assert_int_equal(network.request.status, ERROR_NONE);
    assert_int_equal(network.request.results[0], 5);
    return pthread_equal(fake_world.runner, pthread_self()) != 0;
}

static struct worker *worker_of(uint32_t device)
{
    return &bench.serve->workers[device];
}

static void phase_wait(uint32_t device, enum worker_phase phase)
{
    while (atomic_load(&worker_of(device)->phase) != phase) {
        (void)sched_yield();
    }
}

static void place(uint64_t endpoint, uint32_t device)
{
    struct error error;
    uint32_t ready = fake_world.events[SERVE_INSTANCE_READY];
    assert_int_equal(serve_instance_place(bench.serve, endpoint, device, &error), 0);
    fake_event_wait(SERVE_INSTANCE_READY, ready + 1);
}

/* Answers without running inline, until the next one would. */
static void runs_make_quick(uint32_t device)
{
    for (uint32_t i = 0; i < QUICK_RUNS; i++) {
        phase_wait(device, WORKER_IDLE);
        assert_false(runs_here(true));
    }
    phase_wait(device, WORKER_IDLE);
}

/* Served from device 0, long enough for its runs to be known as quick. */
static void serve_quick(struct repository_model *model)
{
    struct error error;
    assert_int_equal(serve_endpoint_add(bench.serve, ENDPOINT, model, &error), 0);
    bench.endpoint = serve_endpoint_hold(bench.serve, ENDPOINT);
    place(ENDPOINT, 0);
    runs_make_quick(0);
}

/* ---- when -------------------------------------------------------------------------------------
 */

static void a_quick_request_that_is_alone_runs_where_it_was_submitted(void **state)
{
    (void)state;
    serve_quick(fake_model("m", 8, false));
    assert_true(runs_here(true));
    assert_true(runs_here(true));
    struct endpoint_statistics now;
    endpoint_statistics(bench.endpoint, &now);
    assert_int_equal(now.success, QUICK_RUNS + 2);
    assert_int_equal(now.executions, QUICK_RUNS + 2);
    assert_int_equal(now.pending, 0);
    assert_int_equal(atomic_load(&worker_of(0)->phase), WORKER_IDLE);
    assert_int_equal(atomic_load(&bench.devices.devices[0].shared.serving), 0);
    assert_true(atomic_load(&bench.devices.devices[0].shared.serving_ns) > 0);
}

static void a_thread_with_other_work_wakes_the_worker(void **state)
{
    (void)state;
    serve_quick(fake_model("m", 8, false));
    assert_false(runs_here(false));
}

static void what_was_read_together_goes_to_the_worker_together(void **state)
{
    struct fake_request requests[2];
    struct error error;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    endpoint_wakes_begin();
    for (size_t i = 0; i < 2; i++) {
        fake_request_init(&requests[i], 1, 1);
        assert_int_equal(endpoint_submit(bench.endpoint, &requests[i].request, &error), 0);
    }
    endpoint_wakes_end(true);
    for (size_t i = 0; i < 2; i++) {
        fake_request_wait(&requests[i]);
    }
    assert_false(pthread_equal(fake_world.runner, pthread_self()));
    assert_int_equal(fake_world.requests_max, 2);
}

static void a_device_that_trains_keeps_its_runs(void **state)
{
    struct device *device = &bench.devices.devices[0];
    (void)state;
    serve_quick(fake_model("m", 8, false));
    device_training_begin(device);
    assert_false(runs_here(true));
    device_training_end(device);
    phase_wait(0, WORKER_IDLE);
    assert_true(runs_here(true));
}

static void a_batch_that_waits_for_company_is_the_workers(void **state)
{
    struct repository_model *model = fake_model("m", 8, false);
    (void)state;
    model->config.queue_delay_ns = NS_PER_MS;
    serve_quick(model);
    assert_false(runs_here(true));
}

static void the_worker_decides_between_endpoints(void **state)
{
    struct fake_request other;
    struct error error;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    struct repository_model *slower = fake_model("n", 8, false);
    slower->config.queue_delay_ns = 100 * NS_PER_MS; /* waits, and the worker sleeps so long */
    slower->config.slo_latency_ns = 100 * NS_PER_S;
    assert_int_equal(serve_endpoint_add(bench.serve, 8, slower, &error), 0);
    place(8, 0);
    struct endpoint *endpoint = serve_endpoint_hold(bench.serve, 8);
    fake_request_init(&other, 1, 3);
    assert_int_equal(endpoint_submit(endpoint, &other.request, &error), 0);
    assert_false(runs_here(true));
    fake_request_wait(&other);
    endpoint_release(endpoint);
}

/* One slot, without any thread: time is a number. */
static void one_run_that_was_not_quick_ends_it_for_many(void **state)
{
    struct error error;
    struct serve serve = {.options.inline_ns_max = 1000};
    struct worker worker = {.serve = &serve};
    struct repository_model *model = fake_model("m", 8, false);
    struct endpoint *endpoint = endpoint_create(&serve, 1, model, &error);
    struct slot slot = {.endpoint = endpoint, .worker = &worker};
    struct fake_request request;
    (void)state;
    endpoint->tables[0] =
        (struct service_table){.count = 2, .batch = {1, 8}, .ns = {900, 5000}}; /* 2 rows: 1485 */
    fake_request_init(&request, 1, 1);
    queue_push(&endpoint->queue, &request.request);
    for (uint32_t i = 0; i < QUICK_RUNS; i++) {
        assert_false(inline_may_take(&slot));
        inline_learn(&slot, 0, 1000);
    }
    assert_true(inline_may_take(&slot));
    slot.batch.expected_ns = 5000;
    inline_learn(&slot, 0, 6000); /* of a large batch */
    assert_true(inline_may_take(&slot));
    slot.batch.expected_ns = 900;
    inline_learn(&slot, 0, 1001);
    for (uint32_t i = 0; i < QUICK_RUNS; i++) {
        assert_false(inline_may_take(&slot));
        inline_learn(&slot, 0, 900);
    }
    assert_true(inline_may_take(&slot));
    request.request.shapes = 9; /* others than those known */
    assert_false(inline_may_take(&slot));
    for (uint32_t i = 0; i < QUICK_RUNS; i++) {
        assert_false(inline_may_take(&slot));
        inline_learn(&slot, 9, 900);
    }
    assert_true(inline_may_take(&slot));
    queue_remove(&endpoint->queue, &request.request);
    fake_request_init(&request, 2, 1); /* takes longer */
    request.request.shapes = 9;
    queue_push(&endpoint->queue, &request.request);
    assert_false(inline_may_take(&slot));
    repository_model_destroy(model);
    endpoint_shards_free(endpoint);
    free(endpoint);
}

/* ---- the worker is claimed --------------------------------------------------------------------
 */

static void a_worker_that_wakes_while_it_is_claimed_sleeps_again(void **state)
{
    struct network network;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    network_start(&network, FAKE_GATE);
    fake_gated_wait(1);
    assert_int_equal(atomic_load(&worker_of(0)->phase), WORKER_CLAIMED);
    for (int i = 0; i < 100; i++) { /* for no reason */
        (void)syscall(SYS_futex, &worker_of(0)->phase, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        (void)sched_yield();
    }
    assert_int_equal(atomic_load(&worker_of(0)->phase), WORKER_CLAIMED);
    fake_gate_open(true);
    network_end(&network);
    assert_true(pthread_equal(fake_world.runner, network.thread));
    assert_int_equal(atomic_load(&worker_of(0)->phase), WORKER_IDLE);
    assert_true(runs_here(true));
}

static void a_timer_that_fires_while_it_is_claimed_waits_for_the_end(void **state)
{
    struct repository_model *waits = fake_model("n", 8, false);
    struct fake_request gone;
    struct network network;
    struct error error;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    waits->config.queue_delay_ns = 300 * NS_PER_MS; /* so long the worker sleeps for it */
    waits->config.slo_latency_ns = NS_PER_S;
    assert_int_equal(serve_endpoint_add(bench.serve, 8, waits, &error), 0);
    place(8, 0);
    struct endpoint *endpoint = serve_endpoint_hold(bench.serve, 8);
    fake_request_init(&gone, 1, 3);
    assert_int_equal(endpoint_submit(endpoint, &gone.request, &error), 0);
    phase_wait(0, WORKER_IDLE);
    endpoint_cancel(endpoint, &gone.request, ERROR_CANCELLED);
    endpoint_release(endpoint);
    network_start(&network, FAKE_GATE);
    fake_gated_wait(1);
    phase_wait(0, WORKER_WANTED);
    fake_gate_open(true);
    network_end(&network);
    assert_true(pthread_equal(fake_world.runner, network.thread));
    phase_wait(0, WORKER_IDLE); /* it has looked, and rests */
    assert_true(runs_here(true));
}

static void a_request_that_comes_meanwhile_is_run_by_the_worker(void **state)
{
    struct network first, second;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    network_start(&first, FAKE_GATE);
    fake_gated_wait(1);
    network_start(&second, 6);
    phase_wait(0, WORKER_WANTED);
    assert_int_equal(atomic_load(&second.request.answered), 0);
    fake_gate_open(true);
    network_end(&first);
    network_end(&second);
    assert_int_equal(second.request.results[0], 6);
    assert_true(pthread_equal(fake_world.runner, worker_of(0)->thread));
}

static void another_idle_device_takes_it_at_once(void **state)
{
    struct network first, second;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    place(ENDPOINT, 1);
    phase_wait(1, WORKER_IDLE);
    network_start(&first, FAKE_GATE);
    fake_gated_wait(1);
    network_start(&second, 6);
    network_end(&second); /* while the first one still runs */
    assert_true(pthread_equal(fake_world.runner, worker_of(1)->thread));
    fake_gate_open(true);
    network_end(&first);
}

static void an_instance_is_removed_when_the_run_in_it_has_ended(void **state)
{
    struct network network;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    network_start(&network, FAKE_GATE);
    fake_gated_wait(1);
    serve_instance_remove(bench.serve, ENDPOINT, 0);
    assert_int_equal(atomic_load(&worker_of(0)->phase), WORKER_WANTED);
    assert_int_equal(fake_world.events[SERVE_INSTANCE_STOPPED], 0);
    fake_gate_open(true);
    network_end(&network);
    assert_int_equal(network.request.status, ERROR_NONE);
    fake_event_wait(SERVE_INSTANCE_STOPPED, 1);
    place(ENDPOINT, 0); /* a new one has to show that it is quick */
    assert_false(runs_here(true));
}

static void an_endpoint_that_is_removed_meanwhile_answers_what_it_accepted(void **state)
{
    struct network network;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    network_start(&network, FAKE_GATE);
    fake_gated_wait(1);
    serve_endpoint_remove(bench.serve, ENDPOINT);
    serve_instance_remove(bench.serve, ENDPOINT, 0);
    fake_gate_open(true);
    network_end(&network);
    assert_int_equal(network.request.status, ERROR_NONE);
    fake_event_wait(SERVE_ENDPOINT_STOPPED, 1);
}

static void a_device_that_fails_meanwhile_gives_the_request_to_another(void **state)
{
    struct network network;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    place(ENDPOINT, 1);
    phase_wait(1, WORKER_IDLE);
    network_start(&network, FAKE_GATE);
    fake_gated_wait(1);
    serve_device_failed(bench.serve, 0); /* aborts the run */
    fake_gate_open(true);
    network_end(&network);
    assert_int_equal(network.request.status, ERROR_NONE);
    assert_int_equal(network.request.request.tries, 1);
    assert_true(pthread_equal(fake_world.runner, worker_of(1)->thread));
    serve_device_recovered(bench.serve, 0);
}

static void a_run_that_says_the_device_is_lost_is_told(void **state)
{
    struct network network;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    network_start(&network, FAKE_LOST);
    fake_event_wait(SERVE_DEVICE_LOST, 1);
    assert_int_equal(fake_world.last[SERVE_DEVICE_LOST].device, 0);
    place(ENDPOINT, 1); /* where it is lost again */
    network_end(&network);
    assert_int_equal(network.request.status, ERROR_UNAVAILABLE);
}

static void a_cancelled_run_is_aborted(void **state)
{
    struct network network;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    network_start(&network, FAKE_GATE); /* which stays shut: only an abort ends the run */
    fake_gated_wait(1);
    endpoint_cancel(bench.endpoint, &network.request.request, ERROR_DEADLINE_EXCEEDED);
    network_end(&network);
    assert_int_equal(network.request.status, ERROR_DEADLINE_EXCEEDED);
    assert_int_equal(fake_world.aborts, 1);
}

static void *train_a_piece(void *arg)
{
    static const _Atomic uint32_t no_abort = 0;
    struct device *device = arg;
    device_training_begin(device);
    bool may_run = device_training_may_run(device, &no_abort);
    device_training_end(device);
    return may_run && fake_world.gated == 0 ? arg : NULL;
}

static void training_that_begins_meanwhile_stands_still_until_the_end(void **state)
{
    struct network network;
    struct device *device = &bench.devices.devices[0];
    pthread_t trainer;
    void *went_on;
    (void)state;
    serve_quick(fake_model("m", 8, false));
    network_start(&network, FAKE_GATE);
    fake_gated_wait(1);
    assert_int_equal(pthread_create(&trainer, NULL, train_a_piece, device), 0);
    while (atomic_load(&device->shared.training_stands) == 0) {
        (void)sched_yield();
    }
    fake_gate_open(true);
    network_end(&network);
    pthread_join(trainer, &went_on);
    assert_ptr_equal(went_on, device);
    assert_int_equal(atomic_load(&device->shared.serving), 0);
}

/* ---- many at once -----------------------------------------------------------------------------
 */

#define NETWORKS 3
#define ROUNDS 2000
#define SEED 23

struct client {
    pthread_t thread;
    unsigned seed;
    uint32_t accepted, answered, here;
};

static void *submit_one_by_one(void *arg)
{
    struct client *self = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct network network = {.spare = rand_r(&self->seed) % 8 != 0};
        int64_t value = rand_r(&self->seed) % 32 == 0 ? FAKE_BAD : i;
        fake_request_init(&network.request, 1, value);
        (void)network_main(&network);
        if (network.result < 0) {
            continue;
        }
        self->accepted++;
        self->here += atomic_load(&network.request.answered); /* most likely */
        if (rand_r(&self->seed) % 8 == 0) {
            endpoint_cancel(bench.endpoint, &network.request.request, ERROR_CANCELLED);
        }
        fake_request_wait(&network.request);
        self->answered += atomic_load(&network.request.answered);
    }
    return NULL;
}

static void every_request_is_answered_once_while_devices_come_and_train(void **state)
{
    struct client clients[NETWORKS];
    struct endpoint_statistics now;
    uint32_t accepted = 0, answered = 0, here = 0;
    uint64_t failed = 0;
    (void)state;
    print_message("seed %d\n", SEED);
    fake_gate_open(true);
    serve_quick(fake_model("m", 8, false));
    for (unsigned i = 0; i < NETWORKS; i++) {
        clients[i] = (struct client){.seed = SEED + i};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, submit_one_by_one, &clients[i]),
                         0);
    }
    for (uint32_t i = 0; i < 20; i++) {
        place(ENDPOINT, 1);
        (void)train_a_piece(&bench.devices.devices[i % 2]);
        serve_instance_remove(bench.serve, ENDPOINT, 1);
        fake_event_wait(SERVE_INSTANCE_STOPPED, i + 1);
    }
    for (unsigned i = 0; i < NETWORKS; i++) {
        pthread_join(clients[i].thread, NULL);
        accepted += clients[i].accepted;
        answered += clients[i].answered;
        here += clients[i].here;
    }
    endpoint_statistics(bench.endpoint, &now);
    for (int i = 0; i < FAILURE_COUNT; i++) {
        failed += now.failed[i];
    }
    assert_int_equal(answered, accepted);
    assert_int_equal(now.success + failed, accepted + QUICK_RUNS);
    assert_int_equal(now.pending, 0);
    assert_true(here > 0);
    phase_wait(0, WORKER_IDLE);
    phase_wait(1, WORKER_IDLE);
    assert_int_equal(atomic_load(&bench.devices.devices[0].shared.serving), 0);
    assert_int_equal(atomic_load(&bench.devices.devices[1].shared.serving), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_quick_request_that_is_alone_runs_where_it_was_submitted),
        TEST(a_thread_with_other_work_wakes_the_worker),
        TEST(what_was_read_together_goes_to_the_worker_together),
        TEST(a_device_that_trains_keeps_its_runs),
        TEST(a_batch_that_waits_for_company_is_the_workers),
        TEST(the_worker_decides_between_endpoints),
        cmocka_unit_test(one_run_that_was_not_quick_ends_it_for_many),
        TEST(a_worker_that_wakes_while_it_is_claimed_sleeps_again),
        TEST(a_timer_that_fires_while_it_is_claimed_waits_for_the_end),
        TEST(a_request_that_comes_meanwhile_is_run_by_the_worker),
        TEST(another_idle_device_takes_it_at_once),
        TEST(an_instance_is_removed_when_the_run_in_it_has_ended),
        TEST(an_endpoint_that_is_removed_meanwhile_answers_what_it_accepted),
        TEST(a_device_that_fails_meanwhile_gives_the_request_to_another),
        TEST(a_run_that_says_the_device_is_lost_is_told),
        TEST(a_cancelled_run_is_aborted),
        TEST(training_that_begins_meanwhile_stands_still_until_the_end),
        TEST(every_request_is_answered_once_while_devices_come_and_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
