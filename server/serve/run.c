/* One batch on its device: run, answer, count; again one by one when it failed as a whole. */
#include <string.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/serve/state.h"

/* How a part of the batch, [first, first + count), has ended. */
struct run_end {
    uint32_t first, count;
    int result; /* of the runtime */
    struct error error;
    struct batch_times times;
};

static uint32_t rows_of(const struct serve_batch *batch, uint32_t first, uint32_t count)
{
    uint32_t rows = 0;
    for (uint32_t i = first; i < first + count; i++) {
        rows += batch->notes[i].rows;
    }
    return rows;
}

static bool device_is_lost(const struct worker *worker, uint32_t losses, int result)
{
    return result == -ERROR_UNAVAILABLE || device_failed(worker->device) ||
           atomic_load(&worker->losses) != losses;
}

/* Under the endpoint's lock: from here on a cancel finds nothing to cancel. */
static void requests_settle(struct serve_batch *batch, const struct run_end *end)
{
    for (uint32_t i = end->first; i < end->first + end->count; i++) {
        struct serve_request *request = batch->requests[i];
        batch->notes[i].cancelled = request->state == SERVE_REQUEST_CANCELLED;
        batch->notes[i].reason = request->cancel_reason;
        if (!batch->notes[i].cancelled) {
            batch->alive--;
        }
        request->state = SERVE_REQUEST_NEW;
        request->batch = NULL;
    }
}

static void requests_count(struct slot *slot, const struct run_end *end)
{
    const struct serve_batch *batch = &slot->batch;
    uint32_t rows = rows_of(batch, end->first, end->count);
    shard_execution(slot->shard, rows, &end->times);
    for (uint32_t i = end->first; i < end->first + end->count; i++) {
        const struct batch_note *note = &batch->notes[i];
        if (note->cancelled) {
            shard_failure(slot->shard,
                          note->reason == ERROR_DEADLINE_EXCEEDED ? FAILURE_REJECTED
                                                                  : FAILURE_CANCELED,
                          note, end->times.end_ns);
        } else if (end->result < 0) {
            shard_failure(slot->shard, FAILURE_BACKEND, note, end->times.end_ns);
        } else {
            shard_success(slot->shard, &end->times, note, atomic_load(&slot->endpoint->slo_ns));
        }
    }
    if (end->result == 0) {
        shard_wall(slot->shard);
    }
}

/* So many bytes of answers are worth a wakeup of their own. */
#define ANSWERS_BYTES_MAX ((size_t)256 << 10)

static size_t outputs_bytes(const struct tensor *outputs, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += outputs[i].bytes;
    }
    return bytes;
}

static void request_answer(const struct run_end *end, struct serve_request *request,
                           const struct batch_note *note, const struct tensor *outputs)
{
    if (note->cancelled) {
        request->done(request, note->reason, "cancelled while it ran", NULL);
    } else if (end->result == -ERROR_CANCELLED) {
        request->done(request, ERROR_INTERNAL, "the model's run was aborted", NULL);
    } else if (end->result < 0) {
        request->done(request, (enum error_code) - end->result, end->error.text, NULL);
    } else {
        request->done(request, ERROR_NONE, NULL, outputs);
    }
}

static void answers_shared(const struct slot *slot, bool begin)
{
    const struct serve *serve = slot->worker->serve;
    if (serve->answers_begin != NULL) {
        (begin ? serve->answers_begin : serve->answers_end)();
    }
}

/* Returns how many were answered with a result. */
static uint32_t requests_answer(struct slot *slot, const struct run_end *end)
{
    struct serve_batch *batch = &slot->batch;
    size_t width = slot->endpoint->signature->output_count, bytes = 0;
    uint32_t answered = 0;
    answers_shared(slot, true);
    for (uint32_t i = 0; i < end->count; i++) {
        const struct batch_note *note = &batch->notes[end->first + i];
        const struct tensor *outputs = batch->outputs + i * width;
        bool good = !note->cancelled && end->result == 0;
        answered += good ? 1 : 0;
        bytes += good ? outputs_bytes(outputs, width) : 0;
        request_answer(end, batch->requests[end->first + i], note, outputs);
        if (bytes > ANSWERS_BYTES_MAX) {
            answers_shared(slot, false);
            answers_shared(slot, true);
            bytes = 0;
        }
    }
    answers_shared(slot, false);
    return answered;
}

static void run_finish(struct worker *worker, struct slot *slot, struct run_end *end, bool last)
{
    struct endpoint *endpoint = slot->endpoint;
    uint32_t rows = rows_of(&slot->batch, end->first, end->count), answered;
    (void)pthread_mutex_lock(&endpoint->lock);
    requests_settle(&slot->batch, end);
    inline_learn(slot, slot->batch.requests[end->first]->shapes,
                 end->times.end_ns - end->times.start_ns);
    if (last) {
        slot->batch.running = false;
    }
    if (end->result == 0) {
        service_learn(slot, rows, end->times.end_ns - end->times.start_ns);
    }
    (void)pthread_mutex_unlock(&endpoint->lock);
    requests_count(slot, end);
    answered = requests_answer(slot, end);
    end->times.done_ns = clock_now_ns();
    shard_answered(slot->shard, rows, &end->times, answered);
    worker->own.now_ns = end->times.done_ns;
}

/* The device is gone: its requests go back to the head of the queue, each once. */
static void batch_give_back(struct slot *slot, uint32_t first, uint64_t now_ns)
{
    struct endpoint *endpoint = slot->endpoint;
    struct serve_batch *batch = &slot->batch;
    uint32_t requeued = 0;
    (void)pthread_mutex_lock(&endpoint->lock);
    batch->running = false;
    for (uint32_t i = batch->count; i-- > first;) {
        struct serve_request *request = batch->requests[i];
        struct batch_note *note = &batch->notes[i];
        note->cancelled = request->state == SERVE_REQUEST_CANCELLED;
        note->reason = request->cancel_reason;
        if (!note->cancelled && ++request->tries < 2) {
            endpoint_requeue(endpoint, request);
            batch->requests[i] = NULL; /* not ours any more */
            requeued++;
        } else {
            request->state = SERVE_REQUEST_NEW;
            request->batch = NULL;
        }
    }
    (void)pthread_mutex_unlock(&endpoint->lock);
    for (uint32_t i = first; i < batch->count; i++) {
        struct serve_request *request = batch->requests[i];
        if (request != NULL && batch->notes[i].cancelled) {
            endpoint_drop(endpoint, request, batch->notes[i].reason, "cancelled while it ran",
                          now_ns);
        } else if (request != NULL) {
            endpoint_drop(endpoint, request, ERROR_UNAVAILABLE,
                          "two devices failed under this request; try again later", now_ns);
        }
    }
    shard_requeued(slot->shard, requeued);
    if (requeued > 0) {
        endpoint_wake(endpoint);
        timer_at(endpoint->serve, now_ns);
    }
}

static void device_lost_tell(struct worker *worker, const struct error *error)
{
    struct serve_event event = {.kind = SERVE_DEVICE_LOST, .device = worker->index};
    struct log_text text;
    if (worker->own.lost) {
        return;
    }
    worker->own.lost = true;
    memcpy(event.text, error->text, sizeof(event.text));
    log_write(LOG_ERROR, "serve", "device lost under a batch", "device=%s why=%s",
              worker->device->id, log_quote(&text, error->text));
    serve_notify(worker->serve, &event);
}

/* Runs [first, first + count). False: the device is lost, and the rest has been given back. */
static bool part_run(struct worker *worker, struct slot *slot, struct run_end *end, uint32_t losses)
{
    struct serve_batch *batch = &slot->batch;
    end->times.start_ns = clock_now_ns();
    atomic_store_explicit(&worker->run_end_ns, end->times.start_ns + batch->expected_ns,
                          memory_order_relaxed);
    atomic_store_explicit(&worker->run_end_fast_ns, end->times.start_ns + batch->fast_ns,
                          memory_order_relaxed);
    end->error.text[0] = '\0';
    end->result = slot->endpoint->config->runtime->run(slot->instance, batch->runs + end->first,
                                                       end->count, batch->outputs, &end->error);
    end->times.end_ns = clock_now_ns();
    atomic_store_explicit(&worker->run_end_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&worker->run_end_fast_ns, 0, memory_order_relaxed);
    if (!device_is_lost(worker, losses, end->result)) {
        return true;
    }
    worker->own.now_ns = end->times.end_ns;
    batch_give_back(slot, end->first, end->times.end_ns);
    if (end->result == -ERROR_UNAVAILABLE || device_failed(worker->device)) {
        device_lost_tell(worker, &end->error);
    }
    return false;
}

/* The batch failed as a whole: one request's bad data must not fail its mates. */
static void batch_run_singly(struct worker *worker, struct slot *slot, uint32_t losses)
{
    struct serve_batch *batch = &slot->batch;
    uint32_t count = batch->count;
    for (uint32_t i = 0; i < count; i++) {
        struct run_end end = {.first = i, .count = 1, .times.taken_ns = worker->own.now_ns};
        if (!part_run(worker, slot, &end, losses)) {
            return;
        }
        run_finish(worker, slot, &end, i + 1 == count);
    }
}

static bool batch_is_wanted(struct slot *slot)
{
    bool wanted;
    (void)pthread_mutex_lock(&slot->endpoint->lock);
    wanted = slot->batch.alive > 0;
    (void)pthread_mutex_unlock(&slot->endpoint->lock);
    return wanted;
}

void worker_run(struct worker *worker, struct slot *slot)
{
    struct endpoint *endpoint = slot->endpoint;
    struct run_end end = {.count = slot->batch.count, .times.taken_ns = worker->own.now_ns};
    uint32_t losses = atomic_load(&worker->losses);
    if (!worker->own.serving) {
        (void)device_serving_begin(worker->device, worker->own.now_ns);
        worker->own.serving = true;
    }
    if (part_run(worker, slot, &end, losses)) {
        worker->own.now_ns = end.times.end_ns;
        if (end.result < 0 && end.count > 1 && batch_is_wanted(slot)) {
            batch_run_singly(worker, slot, losses);
        } else {
            run_finish(worker, slot, &end, true);
        }
    }
    atomic_fetch_sub_explicit(&endpoint->running, 1, memory_order_relaxed);
}
