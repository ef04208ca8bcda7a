/* test_twin.c: server/core/twin.c: requests that are late because a device was elsewhere. */
#include "server/core/twin.h"
#include "tests/unit/core/rig.h"

static struct core_twin_result run(const struct core_twin *twin)
{
    struct core_twin_result result;
    assert_int_equal(core_twin_run(twin, &result), 0);
    return result;
}

static void request_late_only_in_the_run_is_counted(void **state)
{
    (void)state;
    const struct core_twin_request requests[] = {
        {.arrival_ns = 0, .service_ns = MS(5), .latency_ns = MS(30)},
        {.arrival_ns = MS(100), .service_ns = MS(5), .latency_ns = MS(5)},
        {.arrival_ns = MS(200), .service_ns = MS(25), .latency_ns = MS(40)}, /* late anyway */
    };
    struct core_twin twin = {.requests = requests, .count = 3, .devices = 1, .slo_ns = MS(20)};
    struct core_twin_result result = run(&twin);
    assert_int_equal(result.late_in_run, 2);
    assert_int_equal(result.late_in_twin, 1);
    assert_int_equal(result.late_by_handover, 1);
}

static void queue_of_the_twin_is_served_in_order_by_the_first_idle_device(void **state)
{
    (void)state;
    /* Five at once, 10 ms each, two devices: ends at 10 10 20 20 30. */
    struct core_twin_request requests[5];
    for (int i = 0; i < 5; i++) {
        requests[i] = (struct core_twin_request){.service_ns = MS(10), .latency_ns = MS(100)};
    }
    struct core_twin twin = {.requests = requests, .count = 5, .devices = 2, .slo_ns = MS(20)};
    assert_int_equal(run(&twin).late_in_twin, 1);
    assert_int_equal(run(&twin).late_by_handover, 4);
    twin.devices = 3;
    assert_int_equal(run(&twin).late_in_twin, 0);
    twin.devices = 1;
    assert_int_equal(run(&twin).late_in_twin, 3);
}

static void latency_of_exactly_the_slo_is_in_time(void **state)
{
    (void)state;
    const struct core_twin_request request = {.service_ns = MS(20), .latency_ns = MS(20)};
    struct core_twin twin = {.requests = &request, .count = 1, .devices = 1, .slo_ns = MS(20)};
    assert_int_equal(run(&twin).late_in_run, 0);
    assert_int_equal(run(&twin).late_in_twin, 0);
}

static void batches_of_the_twin_take_what_has_arrived(void **state)
{
    (void)state;
    /* One alone (10 ms); the eight that came meanwhile go in batches of 4 (16 ms each). */
    struct core_twin_request requests[9] = {{.arrival_ns = 0, .latency_ns = MS(10)}};
    for (int i = 1; i < 9; i++) {
        requests[i] = (struct core_twin_request){.arrival_ns = MS(i), .latency_ns = MS(100)};
    }
    const uint64_t table[CORE_BATCH_SIZES] = {MS(10), 0, MS(16)};
    struct core_twin twin = {.requests = requests,
                             .count = 9,
                             .devices = 1,
                             .slo_ns = MS(25),
                             .batch_max = 64,
                             .service_ns = table};
    struct core_twin_result result = run(&twin);
    assert_int_equal(result.late_in_run, 8);
    assert_int_equal(result.late_in_twin, 4); /* the second four end at 42 ms */
    assert_int_equal(result.late_by_handover, 4);
    twin.batch_max = 1;
    assert_int_equal(run(&twin).late_in_twin, 7); /* 10 ms each: only the first two in time */
}

static void nonsense_is_refused_and_nothing_written(void **state)
{
    (void)state;
    const struct core_twin_request requests[] = {{.arrival_ns = 5}, {.arrival_ns = 4}};
    struct core_twin twin = {.requests = requests, .count = 2, .devices = 1, .slo_ns = 1};
    struct core_twin_result result = {.late_in_run = 77};
    assert_int_equal(core_twin_run(&twin, &result), -1);
    twin.count = 1;
    twin.devices = 0;
    assert_int_equal(core_twin_run(&twin, &result), -1);
    twin.devices = 1;
    twin.slo_ns = 0;
    assert_int_equal(core_twin_run(&twin, &result), -1);
    assert_int_equal(result.late_in_run, 77);
    twin.slo_ns = 1;
    twin.count = 0;
    assert_int_equal(core_twin_run(&twin, &result), 0);
    assert_int_equal(result.late_in_run, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_late_only_in_the_run_is_counted),
        cmocka_unit_test(queue_of_the_twin_is_served_in_order_by_the_first_idle_device),
        cmocka_unit_test(latency_of_exactly_the_slo_is_in_time),
        cmocka_unit_test(batches_of_the_twin_take_what_has_arrived),
        cmocka_unit_test(nonsense_is_refused_and_nothing_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
