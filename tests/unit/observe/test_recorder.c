#include "server/observe/recorder.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MANY 300000

static void records_come_out_in_order(void **state)
{
    (void)state;
    struct recorder *recorder = recorder_create(4);
    struct recorded_request taken[8];
    for (uint64_t i = 1; i <= 3; i++) {
        recorder_add(recorder, i, i * 10);
    }
    assert_int_equal(recorder_take(recorder, taken, 2), 2);
    assert_int_equal(taken[1].arrival_ns, 2);
    assert_int_equal(taken[1].latency_ns, 20);
    assert_int_equal(recorder_take(recorder, taken, 8), 1);
    assert_int_equal(taken[0].arrival_ns, 3);
    assert_int_equal(recorder_take(recorder, taken, 8), 0);
    recorder_destroy(recorder);
}

static void what_does_not_fit_is_dropped_and_counted(void **state)
{
    (void)state;
    struct recorder *recorder = recorder_create(3); /* rounded up to 4 */
    struct recorded_request taken[8];
    for (uint64_t i = 1; i <= 6; i++) {
        recorder_add(recorder, i, 0);
    }
    assert_int_equal(recorder_dropped(recorder), 2);
    assert_int_equal(recorder_take(recorder, taken, 8), 4);
    recorder_add(recorder, 7, 0);
    assert_int_equal(recorder_take(recorder, taken, 8), 1);
    assert_int_equal(taken[0].arrival_ns, 7);
    recorder_destroy(recorder);
}

static void *add_many(void *arg)
{
    for (uint64_t i = 1; i <= MANY; i++) {
        recorder_add(arg, i, i ^ 0x5555);
    }
    return NULL;
}

static void two_threads_lose_nothing_but_what_is_counted(void **state)
{
    (void)state;
    struct recorder *recorder = recorder_create(1024);
    struct recorded_request taken[300];
    pthread_t thread;
    uint64_t count = 0;
    uint64_t last = 0;
    assert_int_equal(pthread_create(&thread, NULL, add_many, recorder), 0);
    while (last < MANY && count + recorder_dropped(recorder) < MANY) {
        size_t some = recorder_take(recorder, taken, 300);
        for (size_t i = 0; i < some; i++) {
            assert_true(taken[i].arrival_ns > last);
            assert_int_equal(taken[i].latency_ns, taken[i].arrival_ns ^ 0x5555);
            last = taken[i].arrival_ns;
        }
        count += some;
        if (some == 0) {
            sched_yield();
        }
    }
    pthread_join(thread, NULL);
    for (size_t some; (some = recorder_take(recorder, taken, 300)) > 0;) {
        count += some;
    }
    assert_int_equal(count + recorder_dropped(recorder), MANY);
    recorder_destroy(recorder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_out_in_order),
        cmocka_unit_test(what_does_not_fit_is_dropped_and_counted),
        cmocka_unit_test(two_threads_lose_nothing_but_what_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
