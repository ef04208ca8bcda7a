/* What the next batch of an instance is, and when it is due. */
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/serve/state.h"

bool batch_init(struct serve_batch *batch, uint32_t capacity, size_t output_count)
{
    batch->capacity = capacity;
    batch->requests = calloc(capacity, sizeof(struct serve_request *));
    batch->notes = calloc(capacity, sizeof(struct batch_note));
    batch->runs = calloc(capacity, sizeof(struct run_request));
    batch->outputs =
        calloc(capacity * (output_count > 0 ? output_count : 1), sizeof(struct tensor));
    return batch->requests != NULL && batch->notes != NULL && batch->runs != NULL &&
           batch->outputs != NULL;
}

void batch_fini(struct serve_batch *batch)
{
    free(batch->requests);
    free(batch->notes);
    free(batch->runs);
    free(batch->outputs);
}

/* As many rows as keep the oldest request within its SLO, and never longer than half the tightest
 * SLO on the device. An oldest request that is late whatever is done counts as late: then only
 * the neighbours bound the batch, since larger ones catch up sooner. */
static uint32_t batch_rows_max(const struct slot *slot, uint64_t oldest_ns, uint64_t now_ns)
{
    const struct endpoint *endpoint = slot->endpoint;
    const struct service_table *table = &endpoint->tables[slot->worker->kind];
    uint64_t budget_ns = slot->worker->own.slo_tightest_ns / 2;
    uint64_t due_ns = clock_add_ns(oldest_ns, atomic_load(&endpoint->slo_ns));
    uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    if (table->count == 0) {
        return endpoint->batch_limit; /* unknown: learned from what is run */
    }
    if (left_ns < budget_ns && left_ns >= service_table_ns(table, 1)) {
        budget_ns = left_ns;
    }
    return service_table_rows(table, budget_ns, endpoint->batch_limit);
}

/* When a batch of so many rows has waited long enough for company. */
static uint64_t wait_end_ns(const struct slot *slot, uint64_t oldest_ns, uint32_t rows)
{
    const struct endpoint *endpoint = slot->endpoint;
    const struct model_config *config = endpoint->config;
    uint64_t end_ns = clock_add_ns(oldest_ns, config->queue_delay_ns);
    uint64_t service_ns = service_table_ns(&endpoint->tables[slot->worker->kind], rows);
    uint64_t latest_ns = clock_add_ns(oldest_ns, atomic_load(&endpoint->slo_ns));
    latest_ns = latest_ns > service_ns ? latest_ns - service_ns : 0;
    return latest_ns < end_ns ? latest_ns : end_ns;
}

/* Writes the batch that could run now to slot->batch and says when it is due. */
static uint64_t batch_look(struct slot *slot, uint64_t now_ns, uint32_t *ret_count)
{
    struct endpoint *endpoint = slot->endpoint;
    struct request_queue *queue = &endpoint->queue;
    struct serve_batch *batch = &slot->batch;
    uint64_t oldest_ns = queue_oldest_ns(queue);
    uint32_t rows_max = 1, full;
    *ret_count = 0;
    if (queue->count == 0) {
        return UINT64_MAX;
    }
    if (queue->count > 1) {
        rows_max = batch_rows_max(slot, oldest_ns, now_ns);
    }
    *ret_count = queue_collect(queue, rows_max, batch->capacity, batch->requests, &batch->rows);
    full = queue->count > 1 && rows_max < endpoint->batch_full ? rows_max : endpoint->batch_full;
    if (endpoint->config->queue_delay_ns == 0 || batch->rows >= full ||
        atomic_load_explicit(&endpoint->stopping, memory_order_relaxed)) {
        return 0;
    }
    return wait_end_ns(slot, oldest_ns, batch->rows);
}

bool batch_due(struct slot *slot, uint64_t now_ns, uint64_t *ret_due_ns, uint64_t *ret_key)
{
    uint32_t count;
    *ret_due_ns = batch_look(slot, now_ns, &count);
    *ret_key =
        clock_add_ns(queue_oldest_ns(&slot->endpoint->queue), atomic_load(&slot->endpoint->slo_ns));
    return count > 0 && *ret_due_ns <= now_ns;
}

/* Removes what has expired from the collected requests; true: something was. */
static bool expired_remove(struct slot *slot, uint32_t count, uint64_t now_ns,
                           struct serve_request **ret_expired)
{
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        struct serve_request *request = slot->batch.requests[i];
        if (request->deadline_ns <= now_ns) {
            endpoint_unqueue(slot->endpoint, request);
            request->state = SERVE_REQUEST_NEW;
            request->next = *ret_expired;
            *ret_expired = request;
            found = true;
        }
    }
    return found;
}

bool batch_take(struct slot *slot, uint64_t now_ns, uint64_t *ret_due_ns,
                struct serve_request **ret_expired)
{
    struct endpoint *endpoint = slot->endpoint;
    struct serve_batch *batch = &slot->batch;
    uint32_t count;
    *ret_expired = NULL;
    do {
        *ret_due_ns = batch_look(slot, now_ns, &count);
        if (count == 0 || *ret_due_ns > now_ns) {
            return false;
        }
    } while (expired_remove(slot, count, now_ns, ret_expired));
    for (uint32_t i = 0; i < count; i++) {
        struct serve_request *request = batch->requests[i];
        queue_remove(&endpoint->queue, request);
        request->state = SERVE_REQUEST_RUNNING;
        request->batch = batch;
        batch->notes[i] =
            (struct batch_note){.arrival_ns = request->arrival_ns, .rows = request->rows};
        batch->runs[i] = (struct run_request){request->inputs, request->rows};
    }
    endpoint_publish(endpoint);
    batch->expected_ns = service_table_ns(&endpoint->tables[slot->worker->kind], batch->rows);
    batch->fast_ns = service_table_ns(&endpoint->fast[slot->worker->kind], batch->rows);
    batch->count = count;
    batch->alive = count;
    batch->running = true;
    atomic_fetch_add_explicit(&endpoint->running, 1, memory_order_relaxed);
    return true;
}

void batch_cancelled(struct endpoint *endpoint, struct serve_batch *batch)
{
    if (--batch->alive == 0 && batch->running) {
        endpoint->config->runtime->instance_abort(batch->slot->instance);
    }
}

/* ---- service times ----------------------------------------------------------------------------
 */

/* Moves an entry a sixteenth of the way for a batch of its size, less for one between two. */
static void entry_correct(uint64_t *entry_ns, uint64_t expected_ns, uint64_t ns, uint32_t weight)
{
    int64_t error_ns = (int64_t)ns - (int64_t)expected_ns;
    int64_t corrected_ns = (int64_t)*entry_ns + error_ns * (int64_t)weight / (16 * 256);
    *entry_ns = corrected_ns > 0 ? (uint64_t)corrected_ns : 1;
}

static void entry_insert(struct service_table *table, uint32_t at, uint32_t rows, uint64_t ns)
{
    uint32_t after = table->count - at;
    memmove(&table->batch[at + 1], &table->batch[at], after * sizeof(table->batch[0]));
    memmove(&table->ns[at + 1], &table->ns[at], after * sizeof(table->ns[0]));
    table->batch[at] = rows;
    table->ns[at] = ns;
    table->count++;
}

/* Returns whether anything changed by so much that the plan should follow. */
static bool table_learn(struct service_table *table, uint32_t rows, uint64_t ns)
{
    uint64_t expected_ns = service_table_ns(table, rows);
    uint32_t at = 0, gap;
    while (at < table->count && table->batch[at] < rows) {
        at++;
    }
    if (at < table->count && table->batch[at] == rows) {
        entry_correct(&table->ns[at], table->ns[at], ns, 256);
    } else if ((rows & (rows - 1)) == 0 && table->count < SERVICE_SIZES_MAX) {
        entry_insert(table, at, rows, ns);
        return true;
    } else if (at > 0 && at < table->count) {
        gap = table->batch[at] - table->batch[at - 1];
        entry_correct(&table->ns[at - 1], expected_ns, ns, 256 * (table->batch[at] - rows) / gap);
        entry_correct(&table->ns[at], expected_ns, ns, 256 * (rows - table->batch[at - 1]) / gap);
    } else if (at > 0) {
        entry_correct(&table->ns[at - 1], expected_ns, ns, 256);
    }
    /* One twentieth off moves an entry by 1/320: too little to plan anew for. */
    return ns > expected_ns + expected_ns / 20 || ns < expected_ns - expected_ns / 20;
}

/* A run of so many rows was faster than any before: then fewer rows may be, too. Sizes that were
 * not measured at load stay unknown here: one slow first run must not refuse all that follow. */
static bool table_lower(struct service_table *table, uint32_t rows, uint64_t ns)
{
    bool lowered = false;
    for (uint32_t i = 0; i < table->count && table->batch[i] <= rows; i++) {
        if (table->ns[i] > ns) {
            table->ns[i] = ns;
            lowered = true;
        }
    }
    return lowered;
}

void service_plan(struct endpoint *endpoint, uint32_t kind, uint64_t slo_tightest_ns)
{
    const struct service_table *table = &endpoint->tables[kind], *fast = &endpoint->fast[kind];
    uint32_t rows = service_table_rows(table, slo_tightest_ns / 2, endpoint->batch_limit);
    if (table->count == 0) {
        return;
    }
    atomic_store_explicit(&endpoint->plan_rows, rows, memory_order_relaxed);
    atomic_store_explicit(&endpoint->plan_ns, service_table_ns(table, rows), memory_order_relaxed);
    atomic_store_explicit(&endpoint->plan_one_ns, service_table_ns(table, 1), memory_order_relaxed);
    atomic_store_explicit(&endpoint->fast_ns, service_table_ns(fast, rows), memory_order_relaxed);
    atomic_store_explicit(&endpoint->fast_one_ns, service_table_ns(fast, 1), memory_order_relaxed);
}

void service_learn(struct slot *slot, uint32_t rows, uint64_t ns)
{
    uint32_t kind = slot->worker->kind;
    struct endpoint *endpoint = slot->endpoint;
    bool changed;
    if (rows == 0 || ns == 0) {
        return;
    }
    changed = table_learn(&endpoint->tables[kind], rows, ns);
    if (table_lower(&endpoint->fast[kind], rows, ns) || changed) {
        service_plan(endpoint, kind, slot->worker->own.slo_tightest_ns);
    }
}
