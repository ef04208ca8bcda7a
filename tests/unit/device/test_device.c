#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/base/clock.h"
#include "server/device/backend.h"

static int discover(uint32_t devices, uint32_t cores, struct device_set *set, struct error *error)
{
    struct device_config config = {.cpu_devices = devices, .cores_per_device = cores};
    return device_set_discover(&config, set, error);
}

static void devices_share_the_allowed_cores_without_overlap(void **state)
{
    struct device_set set;
    struct error error = {0};
    cpu_set_t all, seen;
    (void)state;
    assert_int_equal(discover(0, 0, &set, &error), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&seen);
    assert_in_range(set.count, 1, 8);
    for (uint32_t i = 0; i < set.count; i++) {
        cpu_set_t both;
        assert_int_equal(set.devices[i].index, i);
        assert_int_equal(CPU_COUNT(&set.devices[i].cores), set.devices[i].core_count);
        assert_int_equal(set.devices[i].core_count, set.devices[0].core_count);
        assert_true(set.devices[i].memory_bytes > 0);
        assert_memory_equal(set.devices[i].id, "cpu:", 4);
        CPU_AND(&both, &seen, &set.devices[i].cores);
        assert_int_equal(CPU_COUNT(&both), 0);
        CPU_OR(&seen, &seen, &set.devices[i].cores);
        CPU_AND(&both, &all, &set.devices[i].cores);
        assert_true(CPU_EQUAL(&both, &set.devices[i].cores));
    }
    assert_true(CPU_COUNT(&set.housekeeping) > 0);
    device_set_destroy(&set);
}

static void more_devices_than_cores_are_refused_with_both_numbers(void **state)
{
    struct device_set set;
    struct error error = {0};
    (void)state;
    assert_int_equal(discover(60, 1000, &set, &error), -ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "60 CPU devices of 1000 cores"));
}

struct seen {
    struct device *device;
    cpu_set_t cores;
    int policy, nice;
    char name[16];
};

static void *look(void *arg)
{
    struct seen *seen = arg;
    (void)pthread_getaffinity_np(pthread_self(), sizeof(seen->cores), &seen->cores);
    (void)pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
    seen->policy = sched_getscheduler(0);
    seen->nice = getpriority(PRIO_PROCESS, (id_t)gettid());
    return NULL;
}

static void threads_are_pinned_named_and_in_their_class(void **state)
{
    static const struct {
        enum device_role role;
        const char *name;
        bool below;
    } rows[] = {{DEVICE_SERVING, "serve-0", false},
                {DEVICE_TRAINING, "train-0", true},
                {DEVICE_LOADER, "load-0", true}};
    struct device_set set;
    struct error error = {0};
    (void)state;
    assert_int_equal(discover(1, 1, &set, &error), 0);
    for (size_t i = 0; i < 3; i++) {
        struct seen seen = {.device = &set.devices[0]};
        pthread_t thread;
        assert_int_equal(
            device_thread_start(&set.devices[0], rows[i].role, look, &seen, &thread, &error), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(CPU_EQUAL(&seen.cores, &set.devices[0].cores));
        assert_string_equal(seen.name, rows[i].name);
        assert_int_equal(seen.policy == SCHED_IDLE || seen.nice == 19, rows[i].below);
    }
    device_set_destroy(&set);
}

struct trainer {
    struct device *device;
    _Atomic uint32_t abort;
    _Atomic uint64_t pieces;
    _Atomic uint32_t out;
};

static void *train(void *arg)
{
    struct trainer *trainer = arg;
    device_training_begin(trainer->device);
    while (device_training_may_run(trainer->device, &trainer->abort)) {
        trainer->pieces++;
        (void)sched_yield();
    }
    device_training_end(trainer->device);
    trainer->out = 1;
    return NULL;
}

static void pieces_wait(struct trainer *trainer, uint64_t count)
{
    uint64_t deadline_ns = clock_now_ns() + 10 * NS_PER_S;
    while (trainer->pieces < count) {
        assert_true(clock_now_ns() < deadline_ns);
        (void)sched_yield();
    }
}

static void training_stands_still_while_a_batch_runs_and_goes_on_after(void **state)
{
    struct device_set set;
    struct error error = {0};
    struct trainer trainer = {0};
    pthread_t thread;
    (void)state;
    assert_int_equal(discover(1, 1, &set, &error), 0);
    trainer.device = &set.devices[0];
    assert_int_equal(
        device_thread_start(trainer.device, DEVICE_TRAINING, train, &trainer, &thread, &error), 0);
    pieces_wait(&trainer, 1);
    for (int round = 0; round < 1000; round++) {
        uint64_t before;
        assert_true(device_serving_begin(trainer.device, clock_now_ns()));
        /* Once it stands, no piece is done until the batch ends. */
        while (trainer.device->shared.training_stands == 0) {
            (void)sched_yield();
        }
        before = trainer.pieces;
        for (int i = 0; i < 10; i++) {
            (void)sched_yield();
        }
        assert_int_equal(trainer.pieces, before);
        device_serving_end(trainer.device, clock_now_ns());
        pieces_wait(&trainer, before + 1);
    }
    assert_int_equal(trainer.device->shared.slices, 1000);
    assert_true(trainer.device->shared.serving_ns > 0);
    trainer.abort = 1;
    device_training_wake(trainer.device);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(device_serving_begin(trainer.device, clock_now_ns())); /* nobody to slice */
    device_serving_end(trainer.device, clock_now_ns());
    device_set_destroy(&set);
}

static void an_abort_reaches_training_that_stands_still(void **state)
{
    struct device_set set;
    struct error error = {0};
    (void)state;
    assert_int_equal(discover(1, 1, &set, &error), 0);
    for (int round = 0; round < 500; round++) {
        struct trainer trainer = {.device = &set.devices[0]};
        pthread_t thread;
        (void)device_serving_begin(trainer.device, clock_now_ns());
        assert_int_equal(
            device_thread_start(trainer.device, DEVICE_TRAINING, train, &trainer, &thread, &error),
            0);
        if (round % 2 == 0) {
            while (trainer.device->shared.training_stands == 0) {
                (void)sched_yield();
            }
        }
        trainer.abort = 1;
        device_training_wake(trainer.device);
        assert_int_equal(pthread_join(thread, NULL), 0); /* a lost wake-up hangs here */
        assert_int_equal(trainer.pieces, 0);
        device_serving_end(trainer.device, clock_now_ns());
    }
    device_set_destroy(&set);
}

static void the_cpu_back_end_allocates_copies_and_tells_its_health(void **state)
{
    struct device_set set;
    struct error error = {0};
    struct device_health health;
    void *memory = NULL;
    char back[6] = "";
    int self = getpid();
    (void)state;
    assert_int_equal(discover(1, 1, &set, &error), 0);
    struct device *device = &set.devices[0];
    assert_int_equal(device->backend->memory_allocate(device, 6, &memory, &error), 0);
    assert_int_equal(device->backend->copy(device, DEVICE_COPY_TO, memory, "tides", 6, &error), 0);
    assert_int_equal(device->backend->copy(device, DEVICE_COPY_FROM, back, memory, 6, &error), 0);
    assert_string_equal(back, "tides");
    device->backend->memory_free(device, memory);
    assert_int_equal(device->backend->health(device, &health, &error), 0);
    assert_true(health.usable);
    assert_int_equal(device->backend->verify(device, NULL, 0, &error), 0);
    assert_int_equal(device->backend->verify(device, &self, 1, &error), -ERROR_FAILED_PRECONDITION);
    device_set_destroy(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_share_the_allowed_cores_without_overlap),
        cmocka_unit_test(more_devices_than_cores_are_refused_with_both_numbers),
        cmocka_unit_test(threads_are_pinned_named_and_in_their_class),
        cmocka_unit_test(training_stands_still_while_a_batch_runs_and_goes_on_after),
        cmocka_unit_test(an_abort_reaches_training_that_stands_still),
        cmocka_unit_test(the_cpu_back_end_allocates_copies_and_tells_its_health),
    };
    return cmocka_run_group_tests_name("device/device", tests, NULL, NULL);
}
