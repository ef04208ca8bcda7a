/* The batcher with time as a number: no thread, no clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/serve/state.h"
#include "tests/unit/serve/fake.h"

#define MS(n) ((uint64_t)(n)*NS_PER_MS)
#define START MS(1000)

struct bench {
    struct serve serve;
    struct worker worker;
    struct endpoint *endpoint;
    struct slot slot;
    struct fake_request requests[256];
};
static struct bench bench;

static void on_helper(struct endpoint *endpoint)
{
    repository_model_destroy(endpoint->model);
    endpoint_shards_free(endpoint);
    free(endpoint);
}

static void bench_begin(uint32_t batch_max, uint64_t delay_ns, uint64_t slo_ns)
{
    struct error error;
    memset(&bench, 0, sizeof(bench));
    struct repository_model *model = fake_model("m", batch_max, false);
    model->config.queue_delay_ns = delay_ns;
    model->config.slo_latency_ns = slo_ns;
    bench.endpoint = endpoint_create(&bench.serve, 1, model, &error);
    assert_non_null(bench.endpoint);
    bench.worker.own.slo_tightest_ns = slo_ns;
    bench.slot = (struct slot){.endpoint = bench.endpoint, .worker = &bench.worker};
    assert_true(batch_init(&bench.slot.batch, bench.endpoint->batch_limit, 1));
}

static void bench_end(void)
{
    batch_fini(&bench.slot.batch);
    on_helper(bench.endpoint);
}

static void table_set(size_t count, const uint32_t *rows, const uint64_t *ns)
{
    struct service_table *table = &bench.endpoint->tables[0];
    table->count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        table->batch[i] = rows[i];
        table->ns[i] = ns[i];
    }
}

static void arrive(size_t index, uint32_t rows, uint64_t at_ns)
{
    struct fake_request *request = &bench.requests[index];
    fake_request_init(request, rows, 1);
    request->request.arrival_ns = at_ns;
    request->request.state = SERVE_REQUEST_WAITING;
    queue_push(&bench.endpoint->queue, &request->request);
    endpoint_publish(bench.endpoint);
}

static bool take(uint64_t now_ns, uint64_t *ret_due_ns)
{
    struct serve_request *expired;
    bool taken = batch_take(&bench.slot, now_ns, ret_due_ns, &expired);
    assert_null(expired);
    return taken;
}

static void a_lone_request_starts_exactly_when_its_delay_is_over(void **state)
{
    uint64_t due_ns;
    (void)state;
    bench_begin(8, MS(50), MS(1000));
    arrive(0, 1, START);
    assert_false(take(START + MS(50) - 1, &due_ns));
    assert_int_equal(due_ns, START + MS(50));
    arrive(1, 1, START + MS(49)); /* a newcomer does not start the clock again */
    assert_false(take(START + MS(50) - 1, &due_ns));
    assert_int_equal(due_ns, START + MS(50));
    assert_true(take(START + MS(50), &due_ns));
    assert_int_equal(bench.slot.batch.count, 2);
    bench_end();
}

static void five_rows_go_without_four_when_the_delay_is_over(void **state)
{
    uint64_t due_ns;
    (void)state;
    bench_begin(8, MS(50), MS(1000));
    arrive(0, 5, START);
    arrive(1, 4, START + MS(1));
    assert_false(take(START + MS(2), &due_ns));
    assert_true(take(START + MS(50), &due_ns));
    assert_int_equal(bench.slot.batch.rows, 5);
    assert_int_equal(bench.endpoint->queue.rows, 4);
    bench_end();
}

static void a_full_batch_starts_at_once_and_never_passes_the_maximum(void **state)
{
    uint64_t due_ns;
    (void)state;
    bench_begin(8, MS(50), MS(1000));
    for (size_t i = 0; i < 200; i++) {
        arrive(i, 1, START);
    }
    for (int i = 0; i < 25; i++) {
        assert_true(take(START, &due_ns));
        assert_int_equal(bench.slot.batch.rows, 8);
    }
    assert_false(take(START, &due_ns));
    assert_int_equal(due_ns, UINT64_MAX);
    bench_end();
}

static void without_a_delay_nothing_waits(void **state)
{
    uint64_t due_ns;
    (void)state;
    bench_begin(8, 0, MS(1000));
    arrive(0, 1, START);
    assert_true(take(START, &due_ns));
    bench_end();
}

static void a_model_without_batches_takes_one_request(void **state)
{
    uint64_t due_ns;
    (void)state;
    bench_begin(0, MS(50), MS(1000));
    arrive(0, 1, START);
    arrive(1, 1, START);
    assert_true(take(START, &due_ns)); /* no company to wait for */
    assert_int_equal(bench.slot.batch.count, 1);
    bench_end();
}

static void a_batch_is_as_large_as_the_oldest_ones_slo_allows(void **state)
{
    uint64_t due_ns;
    (void)state;
    bench_begin(64, 0, MS(100));
    table_set(3, (const uint32_t[]){1, 32, 64}, (const uint64_t[]){MS(2), MS(33), MS(65)});
    for (size_t i = 0; i < 64; i++) {
        arrive(i, 1, START);
    }
    assert_true(take(START + MS(90), &due_ns)); /* 10 ms are left: 1 ms a row and 1 */
    assert_int_equal(bench.slot.batch.rows, 9);
    bench_end();
}

static void a_batch_never_runs_longer_than_half_the_tightest_slo(void **state)
{
    uint64_t due_ns;
    (void)state;
    bench_begin(64, 0, MS(1000));
    table_set(2, (const uint32_t[]){1, 64}, (const uint64_t[]){MS(1), MS(64)});
    bench.worker.own.slo_tightest_ns = MS(20); /* of a neighbour */
    for (size_t i = 0; i < 64; i++) {
        arrive(i, 1, START);
    }
    assert_true(take(START, &due_ns));
    assert_int_equal(bench.slot.batch.rows, 10);
    bench_end();
}

static void what_is_late_anyway_does_not_make_batches_small(void **state)
{
    uint64_t due_ns;
    (void)state;
    bench_begin(64, 0, MS(100));
    table_set(2, (const uint32_t[]){1, 64}, (const uint64_t[]){MS(1), MS(32)});
    for (size_t i = 0; i < 64; i++) {
        arrive(i, 1, START);
    }
    assert_true(take(START + MS(200), &due_ns));
    assert_int_equal(bench.slot.batch.rows, 64);
    bench_end();
}

static void waiting_for_company_ends_early_enough_for_the_slo(void **state)
{
    uint64_t due_ns;
    (void)state;
    bench_begin(8, MS(500), MS(100));
    table_set(1, (const uint32_t[]){1}, (const uint64_t[]){MS(30)});
    arrive(0, 1, START);
    assert_false(take(START, &due_ns));
    assert_int_equal(due_ns, START + MS(70));
    bench_end();
}

static void what_has_expired_is_given_back_and_never_runs(void **state)
{
    struct serve_request *expired;
    uint64_t due_ns;
    (void)state;
    bench_begin(8, 0, MS(100));
    arrive(0, 1, START);
    arrive(1, 1, START);
    bench.requests[0].request.deadline_ns = START + MS(5);
    assert_true(batch_take(&bench.slot, START + MS(5), &due_ns, &expired));
    assert_ptr_equal(expired, &bench.requests[0].request);
    assert_null(expired->next);
    assert_int_equal(bench.slot.batch.count, 1);
    assert_ptr_equal(bench.slot.batch.requests[0], &bench.requests[1].request);
    bench_end();
}

static void a_preferred_size_is_worth_no_more_waiting(void **state)
{
    uint64_t due_ns;
    (void)state;
    bench_begin(8, MS(50), MS(1000));
    bench.endpoint->batch_full = 4;
    for (size_t i = 0; i < 4; i++) {
        assert_false(take(START, &due_ns));
        arrive(i, 1, START);
    }
    assert_true(take(START, &due_ns));
    assert_int_equal(bench.slot.batch.rows, 4);
    bench_end();
}

static void the_table_follows_what_runs_take(void **state)
{
    (void)state;
    bench_begin(8, 0, MS(1000));
    table_set(2, (const uint32_t[]){1, 8}, (const uint64_t[]){MS(10), MS(80)});
    bench.endpoint->fast[0] = bench.endpoint->tables[0];
    for (int i = 0; i < 200; i++) {
        service_learn(&bench.slot, 1, MS(20));
    }
    assert_in_range(service_table_ns(&bench.endpoint->tables[0], 1), MS(19), MS(20));
    assert_int_equal(service_table_ns(&bench.endpoint->fast[0], 1), MS(10)); /* no slower */
    service_learn(&bench.slot, 1, MS(3));
    assert_int_equal(service_table_ns(&bench.endpoint->fast[0], 1), MS(3));
    for (int i = 0; i < 400; i++) {
        service_learn(&bench.slot, 5, MS(50)); /* between two sizes */
    }
    assert_in_range(service_table_ns(&bench.endpoint->tables[0], 5), MS(49), MS(51));
    bench_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_request_starts_exactly_when_its_delay_is_over),
        cmocka_unit_test(five_rows_go_without_four_when_the_delay_is_over),
        cmocka_unit_test(a_full_batch_starts_at_once_and_never_passes_the_maximum),
        cmocka_unit_test(without_a_delay_nothing_waits),
        cmocka_unit_test(a_model_without_batches_takes_one_request),
        cmocka_unit_test(a_batch_is_as_large_as_the_oldest_ones_slo_allows),
        cmocka_unit_test(a_batch_never_runs_longer_than_half_the_tightest_slo),
        cmocka_unit_test(what_is_late_anyway_does_not_make_batches_small),
        cmocka_unit_test(waiting_for_company_ends_early_enough_for_the_slo),
        cmocka_unit_test(what_has_expired_is_given_back_and_never_runs),
        cmocka_unit_test(a_preferred_size_is_worth_no_more_waiting),
        cmocka_unit_test(the_table_follows_what_runs_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
