#include "server/serve/statistics.h"

#include <stdlib.h>

#include "server/base/clock.h"
#include "server/observe/recorder.h"
#include "server/serve/state.h"

#define RECORDS_MAX 4096 /* answered requests that the reader may be behind, per device */

/* One writer, so that no locked instruction is needed. */
struct shard_batch {
    _Atomic uint64_t count, input_ns, infer_ns, output_ns;
};

struct shard {
    _Atomic uint64_t success, inference, executions, last_wall_ms;
    _Atomic uint64_t success_ns, queue_ns, input_ns, infer_ns, output_ns;
    _Atomic uint64_t fail_ns, failed[FAILURE_COUNT];
    _Atomic uint64_t late, busy_ns, requeued, inline_executions;
    _Atomic uint64_t latency[LATENCY_BUCKETS];
    struct recorder *recorder;
    struct shard_batch batches[]; /* by rows, 0 to the endpoint's batch_limit */
};

static void add(_Atomic uint64_t *counter, uint64_t amount)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + amount, memory_order_relaxed);
}

static uint64_t read(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

const char *failure_reason_name(enum failure_reason reason)
{
    static const char *const names[FAILURE_COUNT] = {
        [FAILURE_REJECTED] = "REJECTED",
        [FAILURE_CANCELED] = "CANCELED",
        [FAILURE_BACKEND] = "BACKEND",
        [FAILURE_OTHER] = "OTHER",
    };
    return reason < FAILURE_COUNT ? names[reason] : "OTHER";
}

const char *refusal_reason_name(enum refusal_reason reason)
{
    static const char *const names[REFUSAL_COUNT] = {
        [REFUSAL_QUEUE_FULL] = "queue_full",
        [REFUSAL_DEADLINE] = "deadline",
        [REFUSAL_INVALID] = "invalid",
        [REFUSAL_UNAVAILABLE] = "unavailable",
    };
    return reason < REFUSAL_COUNT ? names[reason] : "unavailable";
}

/* ---- writing ----------------------------------------------------------------------------------
 */

struct shard *endpoint_shard(struct endpoint *endpoint, uint32_t device)
{
    struct shard *shard = atomic_load_explicit(&endpoint->shards[device], memory_order_acquire);
    if (shard == NULL) {
        shard = calloc(1, sizeof(*shard) +
                              (endpoint->batch_limit + (size_t)1) * sizeof(struct shard_batch));
        if (shard == NULL) {
            return NULL;
        }
        shard->recorder = recorder_create(RECORDS_MAX);
        if (shard->recorder == NULL) {
            free(shard);
            return NULL;
        }
        atomic_store_explicit(&endpoint->shards[device], shard, memory_order_release);
    }
    return shard;
}

void endpoint_shards_free(struct endpoint *endpoint)
{
    for (uint32_t i = 0; i < DEVICES_MAX; i++) {
        struct shard *shard = atomic_load_explicit(&endpoint->shards[i], memory_order_relaxed);
        if (shard != NULL) {
            recorder_destroy(shard->recorder);
            free(shard);
        }
    }
}

/* All counts move before the answers are sent, so that who has its answer finds itself counted;
 * the time that the answers take is added when they are out (shard_answered). */
void shard_execution(struct shard *shard, uint32_t rows, const struct batch_times *times)
{
    struct shard_batch *batch = &shard->batches[rows];
    add(&shard->executions, 1);
    add(&shard->busy_ns, times->end_ns - times->start_ns);
    add(&batch->count, 1);
    add(&batch->input_ns, times->start_ns - times->taken_ns);
    add(&batch->infer_ns, times->end_ns - times->start_ns);
}

void shard_success(struct shard *shard, const struct batch_times *times,
                   const struct batch_note *note, uint64_t slo_ns)
{
    /* What came back from a failed device, or runs again alone, has waited until this run. */
    uint64_t start_ns = times->taken_ns;
    uint64_t waited_ns = start_ns > note->arrival_ns ? start_ns - note->arrival_ns : 0;
    uint64_t total_ns = waited_ns + (times->end_ns - start_ns);
    add(&shard->success, 1);
    add(&shard->inference, note->rows);
    add(&shard->success_ns, total_ns);
    add(&shard->queue_ns, waited_ns);
    add(&shard->input_ns, times->start_ns - times->taken_ns);
    add(&shard->infer_ns, times->end_ns - times->start_ns);
    add(&shard->latency[latency_bucket(total_ns)], 1);
    recorder_add(shard->recorder, note->arrival_ns, total_ns);
    if (total_ns > slo_ns) {
        add(&shard->late, 1);
    }
}

void shard_answered(struct shard *shard, uint32_t rows, const struct batch_times *times,
                    uint32_t requests)
{
    uint64_t output_ns = times->done_ns - times->end_ns;
    add(&shard->batches[rows].output_ns, output_ns);
    add(&shard->output_ns, output_ns * requests);
    add(&shard->success_ns, output_ns * requests);
}

void shard_wall(struct shard *shard)
{
    atomic_store_explicit(&shard->last_wall_ms, clock_wall_ns() / NS_PER_MS, memory_order_relaxed);
}

void shard_failure(struct shard *shard, enum failure_reason reason, const struct batch_note *note,
                   uint64_t now_ns)
{
    add(&shard->failed[reason], 1);
    add(&shard->fail_ns, now_ns > note->arrival_ns ? now_ns - note->arrival_ns : 0);
}

void shard_inline(struct shard *shard)
{
    add(&shard->inline_executions, 1);
}

void shard_requeued(struct shard *shard, uint32_t count)
{
    add(&shard->requeued, count);
}

void endpoint_count_invalid(struct endpoint *endpoint)
{
    count_add(&endpoint->refused[REFUSAL_INVALID], 1);
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static void shard_read(const struct shard *shard, struct endpoint_statistics *sum)
{
    uint64_t last_ms = read(&shard->last_wall_ms);
    sum->success += read(&shard->success);
    sum->inference += read(&shard->inference);
    sum->executions += read(&shard->executions);
    sum->success_ns += read(&shard->success_ns);
    sum->queue_ns += read(&shard->queue_ns);
    sum->input_ns += read(&shard->input_ns);
    sum->infer_ns += read(&shard->infer_ns);
    sum->output_ns += read(&shard->output_ns);
    sum->fail_ns += read(&shard->fail_ns);
    sum->late += read(&shard->late);
    sum->busy_ns += read(&shard->busy_ns);
    sum->requeued += read(&shard->requeued);
    sum->inline_executions += read(&shard->inline_executions);
    if (last_ms > sum->last_inference_wall_ms) {
        sum->last_inference_wall_ms = last_ms;
    }
    for (int i = 0; i < FAILURE_COUNT; i++) {
        sum->failed[i] += read(&shard->failed[i]);
    }
    for (uint32_t i = 0; i < LATENCY_BUCKETS; i++) {
        sum->latency[i] += read(&shard->latency[i]);
    }
}

void endpoint_statistics(struct endpoint *endpoint, struct endpoint_statistics *ret_statistics)
{
    struct endpoint_statistics sum = {
        .arrivals = read(&endpoint->arrivals),
        .fail_ns = read(&endpoint->failed_waiting_ns),
        .pending = atomic_load(&endpoint->waiting),
    };
    for (uint32_t i = 0; i < DEVICES_MAX; i++) {
        const struct shard *shard =
            atomic_load_explicit(&endpoint->shards[i], memory_order_acquire);
        if (shard != NULL) {
            shard_read(shard, &sum);
        }
    }
    for (int i = 0; i < FAILURE_COUNT; i++) {
        sum.failed[i] += read(&endpoint->failed_waiting[i]);
    }
    for (int i = 0; i < REFUSAL_COUNT; i++) {
        sum.refused[i] = read(&endpoint->refused[i]);
    }
    *ret_statistics = sum;
}

size_t endpoint_recorded(struct endpoint *endpoint, struct recorded_request *ret_requests,
                         size_t capacity)
{
    size_t count = 0;
    for (uint32_t i = 0; i < DEVICES_MAX && count < capacity; i++) {
        const struct shard *shard =
            atomic_load_explicit(&endpoint->shards[i], memory_order_acquire);
        if (shard != NULL) {
            count += recorder_take(shard->recorder, ret_requests + count, capacity - count);
        }
    }
    return count;
}

uint32_t endpoint_batches(struct endpoint *endpoint, struct batch_statistics *ret_batches,
                          uint32_t capacity)
{
    uint32_t count = 0;
    for (uint32_t rows = 0; rows <= endpoint->batch_limit; rows++) {
        struct batch_statistics sum = {.batch_size = rows};
        for (uint32_t i = 0; i < DEVICES_MAX; i++) {
            const struct shard *shard =
                atomic_load_explicit(&endpoint->shards[i], memory_order_acquire);
            if (shard != NULL) {
                sum.count += read(&shard->batches[rows].count);
                sum.input_ns += read(&shard->batches[rows].input_ns);
                sum.infer_ns += read(&shard->batches[rows].infer_ns);
                sum.output_ns += read(&shard->batches[rows].output_ns);
            }
        }
        if (sum.count > 0) {
            if (count < capacity) {
                ret_batches[count] = sum;
            }
            count++;
        }
    }
    return count;
}
