/* A quick run on the network thread that submitted it. Waking a serving thread and being woken by
 * it costs more than a small model's run: where one request waits for an idle device on which
 * nobody trains, and its run is known to be quick, the network thread claims the device's worker
 * and runs the batch itself. The device serves meanwhile, as far as training, statistics and the
 * core can see. */
#include "server/base/clock.h"
#include "server/device/backend.h"
#include "server/serve/state.h"

/* So many runs in a row must have been quick: fewer than 1 in 100 then hold the network thread up,
 * and after one that did the device's own thread runs the next ones. */
#define QUICK_RUNS_MIN 128

static uint64_t limit_ns(const struct endpoint *endpoint)
{
    return endpoint->serve->options.inline_ns_max;
}

void inline_learn(struct slot *slot, uint64_t shapes, uint64_t ns)
{
    if (slot->batch.expected_ns > limit_ns(slot->endpoint)) {
        return; /* a large batch says nothing about a small one */
    }
    if (ns > limit_ns(slot->endpoint)) {
        slot->quick.runs = 0;
    } else if (shapes != slot->quick.shapes) {
        slot->quick.shapes = shapes;
        slot->quick.runs = 1;
    } else if (slot->quick.runs < QUICK_RUNS_MIN) {
        slot->quick.runs++;
    }
}

bool inline_may_take(const struct slot *slot)
{
    const struct endpoint *endpoint = slot->endpoint;
    const struct service_table *table = &endpoint->tables[slot->worker->kind];
    return endpoint->queue.count == 1 && slot->quick.runs >= QUICK_RUNS_MIN &&
           queue_first(&endpoint->queue)->shapes == slot->quick.shapes && table->count > 0 &&
           service_table_ns(table, (uint32_t)endpoint->queue.rows) <= limit_ns(endpoint);
}

/* The claimed worker's slot of this endpoint, with a batch that is to be run now; or NULL. */
static struct slot *batch_claim(struct worker *worker, const struct endpoint *endpoint)
{
    struct slot *found = NULL;
    uint64_t due_ns;
    if (!worker_may_take(worker)) {
        return NULL;
    }
    for (struct slot *slot = worker->own.slots; slot != NULL; slot = slot->next) {
        if (slot->endpoint == endpoint) {
            found = slot;
        } else if (atomic_load(&slot->endpoint->waiting) > 0) {
            return NULL; /* which of the two comes first is the worker's to decide */
        }
    }
    worker->own.now_ns = clock_now_ns();
    return found != NULL && !found->removing && slot_take(found, true, worker->own.now_ns, &due_ns)
               ? found
               : NULL;
}

/* Without a lock or a claim, so that endpoints that are not quick leave the workers alone. */
static bool plan_is_quick(const struct endpoint *endpoint)
{
    uint64_t one_ns = atomic_load_explicit(&endpoint->plan_one_ns, memory_order_relaxed);
    return one_ns > 0 && one_ns <= limit_ns(endpoint);
}

bool inline_run(struct endpoint *endpoint)
{
    uint32_t looking;
    struct worker *worker;
    struct slot *slot;
    if (!endpoint->runs_inline || !plan_is_quick(endpoint)) {
        return false;
    }
    worker = worker_choose(endpoint, &looking);
    if (worker == NULL || looking > 0 || !worker->device->backend->runs_inline ||
        atomic_load_explicit(&worker->device->shared.training, memory_order_relaxed) != 0 ||
        !worker_claim(worker)) {
        return false;
    }
    slot = batch_claim(worker, endpoint);
    if (slot != NULL) {
        shard_inline(slot->shard);
        worker_run(worker, slot);
        worker_rest(worker);
    }
    worker_give_back(worker);
    return slot != NULL;
}
