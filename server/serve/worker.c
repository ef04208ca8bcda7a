/* The serving thread of one device: takes what is most urgent of the endpoints that have an
 * instance here, runs it, and sleeps when nothing is due. */
#include <stdlib.h>

#include "server/base/clock.h"
#include "server/serve/state.h"

/* ---- changes ----------------------------------------------------------------------------------
 */

void worker_change(struct worker *worker, enum change_kind kind, struct slot *slot)
{
    struct change *change = calloc(1, sizeof(*change));
    if (change == NULL) {
        abort(); /* a placement that nobody can take back: 24 bytes are not to be had */
    }
    *change = (struct change){.kind = kind, .slot = slot};
    (void)pthread_mutex_lock(&worker->shared.lock);
    if (worker->shared.last != NULL) {
        worker->shared.last->next = change;
    } else {
        worker->shared.first = change;
    }
    worker->shared.last = change;
    atomic_store(&worker->changed, true);
    (void)pthread_mutex_unlock(&worker->shared.lock);
    worker_call(worker);
}

/* The tightest SLO on the device bounds every batch on it, and so what endpoints may project. */
static void slo_update(struct worker *worker)
{
    uint64_t tightest_ns = UINT64_MAX;
    for (struct slot *slot = worker->own.slots; slot != NULL; slot = slot->next) {
        uint64_t slo_ns = atomic_load(&slot->endpoint->slo_ns);
        tightest_ns = slo_ns < tightest_ns ? slo_ns : tightest_ns;
    }
    worker->own.slo_tightest_ns = tightest_ns;
    for (struct slot *slot = worker->own.slots; slot != NULL; slot = slot->next) {
        (void)pthread_mutex_lock(&slot->endpoint->lock);
        service_plan(slot->endpoint, worker->kind, tightest_ns);
        (void)pthread_mutex_unlock(&slot->endpoint->lock);
    }
}

static void slot_add(struct worker *worker, struct slot *slot)
{
    struct endpoint *endpoint = slot->endpoint;
    struct serve_event event = {.kind = SERVE_INSTANCE_READY,
                                .endpoint = endpoint->number,
                                .device = worker->index,
                                .memory_bytes = slot->memory_bytes,
                                .service = slot->table};
    slot->next = worker->own.slots;
    worker->own.slots = slot;
    (void)pthread_mutex_lock(&endpoint->lock);
    if (endpoint->tables[worker->kind].count == 0) {
        endpoint->tables[worker->kind] = slot->table;
        endpoint->fast[worker->kind] = slot->table;
    }
    (void)pthread_mutex_unlock(&endpoint->lock);
    slo_update(worker);
    atomic_fetch_or(&endpoint->placed, worker->bit);
    atomic_store(&endpoint->opened, true);
    serve_notify(worker->serve, &event);
    serve_readiness_changed(worker->serve);
}

/* Its endpoint no longer counts on it; the worker forgets it. */
static void slot_drop(struct worker *worker, struct slot *slot, bool tell)
{
    struct endpoint *endpoint = slot->endpoint;
    struct slot **link = &worker->own.slots;
    while (*link != slot) {
        link = &(*link)->next;
    }
    *link = slot->next;
    slo_update(worker);
    timer_at(worker->serve, clock_now_ns()); /* what waits there may wait for a new instance */
    /* Whoever came meanwhile may have woken this worker, or counted on its looking. */
    if (atomic_load(&endpoint->waiting) > 0) {
        endpoint_wake(endpoint);
    }
    slot_retire(slot, tell);
    serve_readiness_changed(worker->serve);
}

/* Under the endpoint's lock. */
static void slot_unplace(struct slot *slot)
{
    atomic_fetch_and(&slot->endpoint->placed, ~slot->worker->bit);
    slot->endpoint->cold_since_ns = clock_now_ns();
}

static void slot_drop_now(struct worker *worker, struct slot *slot, bool tell)
{
    (void)pthread_mutex_lock(&slot->endpoint->lock);
    slot_unplace(slot);
    (void)pthread_mutex_unlock(&slot->endpoint->lock);
    slot_drop(worker, slot, tell);
}

/* The last instance of an endpoint that is being removed stays until the queue is empty. Asked and
 * done under one lock: of two that leave at once, one is the last. */
static void slot_drop_if_done(struct worker *worker, struct slot *slot)
{
    struct endpoint *endpoint = slot->endpoint;
    bool last, leaves;
    (void)pthread_mutex_lock(&endpoint->lock);
    last = (atomic_load(&endpoint->placed) & ~worker->bit) == 0;
    leaves = !last || !atomic_load(&endpoint->stopping) || endpoint->queue.count == 0 ||
             (atomic_load(&worker->serve->resting) & worker->bit) != 0; /* nor will it take them */
    if (leaves) {
        slot_unplace(slot);
    }
    (void)pthread_mutex_unlock(&endpoint->lock);
    if (leaves) {
        slot_drop(worker, slot, true);
    }
}

static void removing_check(struct worker *worker)
{
    struct slot *next;
    for (struct slot *slot = worker->own.slots; slot != NULL; slot = next) {
        next = slot->next;
        if (slot->removing) {
            slot_drop_if_done(worker, slot);
        }
    }
}

static void slots_lose(struct worker *worker)
{
    while (worker->own.slots != NULL) {
        slot_drop_now(worker, worker->own.slots, worker->own.slots->removing);
    }
    worker->own.lost = false;
}

static void change_apply(struct worker *worker, const struct change *change)
{
    switch (change->kind) {
    case CHANGE_ADD:
        slot_add(worker, change->slot);
        break;
    case CHANGE_REMOVE:
        for (struct slot *slot = worker->own.slots; slot != NULL; slot = slot->next) {
            if (slot == change->slot) { /* else it went with its device */
                slot->removing = true;
            }
        }
        break;
    case CHANGE_LOST:
        slots_lose(worker);
        break;
    case CHANGE_SLO:
        slo_update(worker);
        break;
    }
}

static void changes_apply(struct worker *worker)
{
    struct change *change;
    (void)pthread_mutex_lock(&worker->shared.lock);
    change = worker->shared.first;
    worker->shared.first = NULL;
    worker->shared.last = NULL;
    atomic_store(&worker->changed, false);
    (void)pthread_mutex_unlock(&worker->shared.lock);
    while (change != NULL) {
        struct change *next = change->next;
        change_apply(worker, change);
        free(change);
        change = next;
    }
}

/* ---- the next batch ---------------------------------------------------------------------------
 */

bool slot_take(struct slot *slot, bool quick, uint64_t now_ns, uint64_t *ret_due_ns)
{
    struct serve_request *expired = NULL;
    bool taken;
    (void)pthread_mutex_lock(&slot->endpoint->lock);
    taken = (!quick || inline_may_take(slot)) && batch_take(slot, now_ns, ret_due_ns, &expired);
    (void)pthread_mutex_unlock(&slot->endpoint->lock);
    while (expired != NULL) {
        struct serve_request *next = expired->next;
        endpoint_drop(slot->endpoint, expired, ERROR_DEADLINE_EXCEEDED,
                      "the deadline passed while the request waited", now_ns);
        expired = next;
    }
    return taken;
}

/* Priority first, then the earliest arrival + SLO. */
static struct slot *slot_choose(struct worker *worker, uint64_t now_ns, uint64_t *ret_due_ns)
{
    struct slot *best = NULL;
    uint64_t best_key = 0;
    int32_t best_priority = 0;
    for (struct slot *slot = worker->own.slots; slot != NULL; slot = slot->next) {
        uint64_t due_ns, key;
        int32_t priority = atomic_load(&slot->endpoint->priority);
        bool due;
        if (atomic_load(&slot->endpoint->waiting) == 0) {
            continue;
        }
        (void)pthread_mutex_lock(&slot->endpoint->lock);
        due = batch_due(slot, now_ns, &due_ns, &key);
        (void)pthread_mutex_unlock(&slot->endpoint->lock);
        if (!due) {
            *ret_due_ns = due_ns < *ret_due_ns ? due_ns : *ret_due_ns;
        } else if (best == NULL || priority > best_priority ||
                   (priority == best_priority && key < best_key)) {
            best = slot;
            best_key = key;
            best_priority = priority;
        }
    }
    return best;
}

bool worker_may_take(const struct worker *worker)
{
    return !worker->own.lost && !atomic_load(&worker->failed) && !device_failed(worker->device) &&
           (atomic_load(&worker->serve->resting) & worker->bit) == 0;
}

/* Takes the most urgent batch that is due; NULL: none, *ret_due_ns says when to look again. */
static struct slot *worker_take(struct worker *worker, uint64_t now_ns, uint64_t *ret_due_ns)
{
    struct slot *slot;
    uint64_t due_ns;
    *ret_due_ns = UINT64_MAX;
    if (!worker_may_take(worker)) {
        return NULL;
    }
    if (worker->own.slots != NULL && worker->own.slots->next == NULL) {
        slot = worker->own.slots;
        return atomic_load(&slot->endpoint->waiting) > 0 &&
                       slot_take(slot, false, now_ns, ret_due_ns)
                   ? slot
                   : NULL;
    }
    while ((slot = slot_choose(worker, now_ns, ret_due_ns)) != NULL) {
        if (slot_take(slot, false, now_ns, &due_ns)) {
            return slot;
        }
        /* Another device was faster, or all of it had expired. */
    }
    return NULL;
}

/* What this worker leaves behind while it runs is for idle ones. */
static void others_wake(struct worker *worker)
{
    for (struct slot *slot = worker->own.slots; slot != NULL; slot = slot->next) {
        if (atomic_load(&slot->endpoint->waiting) > 0) {
            endpoint_wake(slot->endpoint);
        }
    }
}

/* ---- the loop ---------------------------------------------------------------------------------
 */

void worker_rest(struct worker *worker)
{
    if (worker->own.serving) {
        device_serving_end(worker->device, worker->own.now_ns);
        worker->own.serving = false;
    }
}

static void worker_step(struct worker *worker)
{
    uint32_t resting = WORKER_RESTING;
    uint64_t due_ns;
    struct slot *slot;
    if (atomic_load(&worker->changed)) {
        changes_apply(worker);
    }
    removing_check(worker);
    slot = worker_take(worker, worker->own.now_ns, &due_ns);
    if (slot != NULL) {
        atomic_store(&worker->phase, WORKER_RUNNING);
        others_wake(worker);
        worker_run(worker, slot);
        atomic_store(&worker->phase, WORKER_LOOKING);
        return;
    }
    if (atomic_load(&worker->phase) != WORKER_RESTING) {
        worker_rest(worker);
        atomic_store(&worker->phase, WORKER_RESTING);
        return; /* to look once more, now that submitters see it */
    }
    if (atomic_compare_exchange_strong(&worker->phase, &resting, WORKER_IDLE)) {
        worker_sleep(worker, due_ns);
        worker->own.now_ns = clock_now_ns();
    }
}

void *worker_main(void *arg)
{
    struct worker *worker = arg;
    worker->own.slo_tightest_ns = UINT64_MAX;
    worker->own.now_ns = clock_now_ns();
    while (!atomic_load(&worker->stopping)) {
        worker_step(worker);
    }
    worker_rest(worker);
    changes_apply(worker);
    while (worker->own.slots != NULL) {
        slot_drop_now(worker, worker->own.slots, false);
    }
    return NULL;
}
