#include "server/serve/endpoint.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/serve/state.h"

/* ---- life -------------------------------------------------------------------------------------
 */

static bool shapes_are_fixed(const struct model_signature *signature)
{
    for (size_t i = 0; i < signature->input_count; i++) {
        for (uint32_t d = 0; d < signature->inputs[i].rank; d++) {
            if (signature->inputs[i].dims[d] < 0) {
                return false;
            }
        }
    }
    return true;
}

/* The largest preferred size that can be reached, else the limit. */
static uint32_t full_rows(const struct model_config *config, uint32_t limit)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < config->preferred_count; i++) {
        if (config->preferred[i] <= limit && config->preferred[i] > rows) {
            rows = config->preferred[i];
        }
    }
    return rows > 0 ? rows : limit;
}

struct endpoint *endpoint_create(struct serve *serve, uint64_t number,
                                 struct repository_model *model, struct error *error)
{
    struct endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        (void)error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for endpoint '%s'",
                        model->config.name);
        return NULL;
    }
    endpoint->serve = serve;
    endpoint->number = number;
    endpoint->model = model;
    endpoint->signature = model->signature;
    endpoint->config = &model->config;
    (void)snprintf(endpoint->version, sizeof(endpoint->version), "%" PRIu32, model->version);
    endpoint->batch_limit = model->signature->batch_max > 0 ? model->signature->batch_max : 1;
    endpoint->batch_full = full_rows(endpoint->config, endpoint->batch_limit);
    endpoint->shapes_fixed = shapes_are_fixed(endpoint->signature);
    endpoint->runs_inline = endpoint->config->runtime->runs_inline != NULL &&
                            endpoint->config->runtime->runs_inline(model->model);
    endpoint->queue.input_count = endpoint->signature->input_count;
    endpoint->queue.batched = endpoint->signature->batch_max > 0;
    atomic_init(&endpoint->slo_ns, endpoint->config->slo_latency_ns);
    atomic_init(&endpoint->priority, endpoint->config->priority);
    atomic_init(&endpoint->holds, 1);
    atomic_init(&endpoint->expiry_ns, UINT64_MAX);
    (void)pthread_mutex_init(&endpoint->lock, NULL);
    return endpoint;
}

static void endpoint_free(void *arg)
{
    struct endpoint *endpoint = arg;
    repository_model_destroy(endpoint->model);
    endpoint_shards_free(endpoint);
    (void)pthread_mutex_destroy(&endpoint->lock);
    free(endpoint);
}

struct endpoint *endpoint_hold(struct endpoint *endpoint)
{
    atomic_fetch_add_explicit(&endpoint->holds, 1, memory_order_relaxed);
    return endpoint;
}

void endpoint_release(struct endpoint *endpoint)
{
    if (endpoint != NULL &&
        atomic_fetch_sub_explicit(&endpoint->holds, 1, memory_order_acq_rel) == 1) {
        serve_helper(endpoint->serve, endpoint_free, endpoint); /* unloading may take long */
    }
}

/* ---- what it is -------------------------------------------------------------------------------
 */

const char *endpoint_name(const struct endpoint *endpoint)
{
    return endpoint->config->name;
}

const char *endpoint_version(const struct endpoint *endpoint)
{
    return endpoint->version;
}

const struct model_signature *endpoint_signature(const struct endpoint *endpoint)
{
    return endpoint->signature;
}

const struct model_config *endpoint_config(const struct endpoint *endpoint)
{
    return endpoint->config;
}

uint64_t endpoint_serving(const struct endpoint *endpoint)
{
    return atomic_load(&endpoint->placed) & ~atomic_load(&endpoint->serve->resting);
}

enum endpoint_state endpoint_state(const struct endpoint *endpoint)
{
    if (atomic_load(&endpoint->stopping)) {
        return ENDPOINT_STOPPING;
    }
    if (endpoint_serving(endpoint) != 0) {
        return ENDPOINT_READY;
    }
    if (atomic_load(&endpoint->opened)) {
        return ENDPOINT_COLD;
    }
    return atomic_load(&endpoint->failed) ? ENDPOINT_FAILED : ENDPOINT_LOADING;
}

const char *endpoint_state_name(enum endpoint_state state)
{
    static const char *const names[] = {
        [ENDPOINT_LOADING] = "loading", [ENDPOINT_READY] = "ready",       [ENDPOINT_COLD] = "cold",
        [ENDPOINT_FAILED] = "failed",   [ENDPOINT_STOPPING] = "stopping",
    };
    return names[state];
}

bool endpoint_ready(const struct endpoint *endpoint)
{
    enum endpoint_state state = endpoint_state(endpoint);
    return state == ENDPOINT_READY || state == ENDPOINT_COLD;
}

/* ---- admission --------------------------------------------------------------------------------
 */

/* When the first of its devices will look at the queue again. */
static uint64_t first_free_ns(const struct endpoint *endpoint, uint64_t placed, uint64_t now_ns,
                              bool fast)
{
    uint64_t first_ns = UINT64_MAX;
    for (; placed != 0 && first_ns > 0; placed &= placed - 1) {
        const struct worker *worker = &endpoint->serve->workers[__builtin_ctzll(placed)];
        uint64_t end_ns = atomic_load_explicit(
            fast ? &worker->run_end_fast_ns : &worker->run_end_ns, memory_order_relaxed);
        uint64_t left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
        first_ns = left_ns < first_ns ? left_ns : first_ns;
    }
    return first_ns;
}

uint64_t endpoint_projected_ns(const struct endpoint *endpoint, uint64_t now_ns, bool fast)
{
    uint64_t placed = endpoint_serving(endpoint), wait_ns;
    uint32_t rows = (uint32_t)endpoint->queue.rows, plan_rows;
    if (placed == 0) {
        return UINT64_MAX; /* nobody knows: until the core has placed one */
    }
    wait_ns = first_free_ns(endpoint, placed, now_ns, fast);
    plan_rows = atomic_load_explicit(&endpoint->plan_rows, memory_order_relaxed);
    if (plan_rows > 0 && rows >= plan_rows) {
        uint64_t plan_ns = atomic_load_explicit(fast ? &endpoint->fast_ns : &endpoint->plan_ns,
                                                memory_order_relaxed);
        wait_ns += rows / plan_rows * plan_ns / (uint32_t)__builtin_popcountll(placed);
    }
    return wait_ns;
}

static void refuse(struct endpoint *endpoint, enum refusal_reason reason)
{
    count_add(&endpoint->refused[reason], 1);
}

int endpoint_unavailable(struct endpoint *endpoint, struct error *error)
{
    static const char *const why[] = {
        [ENDPOINT_LOADING] = "is still loading; try again later",
        [ENDPOINT_READY] = "was not ready a moment ago; try again",
        [ENDPOINT_COLD] = "was not ready a moment ago; try again",
        [ENDPOINT_FAILED] = "could not be loaded; the server's log says why",
        [ENDPOINT_STOPPING] = "is being removed",
    };
    refuse(endpoint, REFUSAL_UNAVAILABLE);
    return error_set(error, ERROR_UNAVAILABLE, "model '%s' %s", endpoint_name(endpoint),
                     why[endpoint_state(endpoint)]);
}

static int refuse_full(struct endpoint *endpoint, const struct serve_request *request,
                       struct error *error)
{
    const struct model_config *config = endpoint->config;
    refuse(endpoint, REFUSAL_QUEUE_FULL);
    return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                     "queue full: model '%s' has %" PRIu32 " requests of %" PRIu64
                     " bytes waiting and this one has %zu; the bound is %" PRIu32
                     " requests and %" PRIu64 " bytes; try again later",
                     endpoint_name(endpoint), endpoint->queue.count, endpoint->queue.bytes,
                     request->bytes, config->queue_requests_max, config->queue_bytes_max);
}

static int refuse_deadline(struct endpoint *endpoint, const struct serve_request *request,
                           uint64_t least_ns, struct error *error)
{
    uint64_t left_ns =
        request->deadline_ns > request->arrival_ns ? request->deadline_ns - request->arrival_ns : 0;
    refuse(endpoint, REFUSAL_DEADLINE);
    return error_set(error, ERROR_DEADLINE_EXCEEDED,
                     "model '%s' cannot answer by the deadline: %.3f ms are left, and waiting and "
                     "running would take at least %.3f ms",
                     endpoint_name(endpoint), (double)left_ns / 1e6, (double)least_ns / 1e6);
}

/* Waiting and running. */
static uint64_t needed_ns(const struct endpoint *endpoint, const struct serve_request *request,
                          bool fast)
{
    return clock_add_ns(endpoint_projected_ns(endpoint, request->arrival_ns, fast),
                        atomic_load_explicit(fast ? &endpoint->fast_one_ns : &endpoint->plan_one_ns,
                                             memory_order_relaxed));
}

/* Under the lock. */
static int request_admit(struct endpoint *endpoint, struct serve_request *request,
                         uint64_t *ret_expected_ns, struct error *error)
{
    const struct model_config *config = endpoint->config;
    uint64_t least_ns;
    enum endpoint_state state = endpoint_state(endpoint);
    if (state != ENDPOINT_READY && state != ENDPOINT_COLD) {
        return endpoint_unavailable(endpoint, error);
    }
    /* What a failed device gave back may have filled it over the bound. */
    if (endpoint->queue.count >= config->queue_requests_max ||
        endpoint->queue.bytes > config->queue_bytes_max ||
        request->bytes > config->queue_bytes_max - endpoint->queue.bytes) {
        return refuse_full(endpoint, request, error);
    }
    *ret_expected_ns = needed_ns(endpoint, request, false);
    /* Without an instance only a deadline that has passed is known not to be met. */
    least_ns = state == ENDPOINT_COLD || request->deadline_ns == UINT64_MAX
                   ? 0
                   : needed_ns(endpoint, request, true);
    if (request->deadline_ns != UINT64_MAX &&
        request->deadline_ns <= clock_add_ns(request->arrival_ns, least_ns)) {
        return refuse_deadline(endpoint, request, least_ns, error);
    }
    return 0;
}

void endpoint_publish(struct endpoint *endpoint)
{
    atomic_store_explicit(&endpoint->waiting_rows, (uint32_t)endpoint->queue.rows,
                          memory_order_relaxed);
    atomic_store(&endpoint->waiting, endpoint->queue.count);
}

/* The projected wait takes more than three quarters of the SLO: the control thread is told. */
static void danger_check(struct endpoint *endpoint, uint64_t expected_ns, uint32_t queue_length,
                         uint64_t now_ns)
{
    struct serve_event event = {.kind = SERVE_ENDPOINT_DANGER,
                                .endpoint = endpoint->number,
                                .projected_wait_ns = expected_ns,
                                .queue_length = queue_length};
    uint64_t last_ns = atomic_load_explicit(&endpoint->danger_ns, memory_order_relaxed);
    if (expected_ns <= atomic_load(&endpoint->slo_ns) / 4 * 3 ||
        (last_ns != 0 && now_ns < clock_add_ns(last_ns, DANGER_INTERVAL_NS)) ||
        !atomic_compare_exchange_strong(&endpoint->danger_ns, &last_ns, now_ns)) {
        return;
    }
    serve_notify(endpoint->serve, &event);
}

int endpoint_submit(struct endpoint *endpoint, struct serve_request *request, struct error *error)
{
    uint64_t expected_ns = 0, now_ns = request->arrival_ns, expiry_ns = UINT64_MAX;
    uint32_t length;
    bool wake;
    int result;
    if (!endpoint->shapes_fixed) {
        request->shapes = request_shapes(request->inputs, endpoint->signature->input_count,
                                         endpoint->signature->batch_max > 0);
    }
    (void)endpoint_hold(endpoint);
    (void)pthread_mutex_lock(&endpoint->lock);
    atomic_store_explicit(&endpoint->arrivals,
                          atomic_load_explicit(&endpoint->arrivals, memory_order_relaxed) +
                              request->rows,
                          memory_order_relaxed);
    result = request_admit(endpoint, request, &expected_ns, error);
    if (result == 0) {
        request->state = SERVE_REQUEST_WAITING;
        request->batch = NULL;
        if (!request->deadline_watched && request->deadline_ns < UINT64_MAX) {
            expiry_ns = request->deadline_ns;
        }
        queue_push(&endpoint->queue, request);
        endpoint_publish(endpoint);
    }
    length = endpoint->queue.count;
    /* With a delay, somebody already waits for the first one's to pass. */
    wake = endpoint->config->queue_delay_ns == 0 || length == 1 ||
           endpoint->queue.rows >= endpoint->batch_full;
    (void)pthread_mutex_unlock(&endpoint->lock);
    /* From here on the request may be answered and gone, with its hold on the endpoint. */
    if (result == 0 && wake) {
        endpoint_wake_later(endpoint, now_ns);
    }
    if (result == 0 && expected_ns == UINT64_MAX) {
        expiry_ns = expiry_ns < now_ns + COLD_WAIT_NS ? expiry_ns : now_ns + COLD_WAIT_NS;
    }
    if (expiry_ns != UINT64_MAX) {
        timer_at(endpoint->serve, expiry_ns);
    }
    if (expected_ns != 0) {
        danger_check(endpoint, expected_ns, length, now_ns);
    }
    endpoint_release(endpoint);
    return result;
}

uint64_t endpoint_room_ns(const struct endpoint *endpoint)
{
    return atomic_load_explicit(&endpoint->plan_ns, memory_order_relaxed);
}

/* ---- leaving the queue ------------------------------------------------------------------------
 */

void endpoint_unqueue(struct endpoint *endpoint, struct serve_request *request)
{
    assert(request->state == SERVE_REQUEST_WAITING);
    queue_remove(&endpoint->queue, request);
    endpoint_publish(endpoint);
}

void endpoint_requeue(struct endpoint *endpoint, struct serve_request *request)
{
    request->state = SERVE_REQUEST_WAITING;
    request->batch = NULL;
    queue_push_front(&endpoint->queue, request);
    endpoint_publish(endpoint);
}

static enum failure_reason reason_of(enum error_code code)
{
    return code == ERROR_CANCELLED           ? FAILURE_CANCELED
           : code == ERROR_DEADLINE_EXCEEDED ? FAILURE_REJECTED
                                             : FAILURE_OTHER;
}

void endpoint_drop(struct endpoint *endpoint, struct serve_request *request, enum error_code code,
                   const char *text, uint64_t now_ns)
{
    uint64_t waited_ns = now_ns > request->arrival_ns ? now_ns - request->arrival_ns : 0;
    count_add(&endpoint->failed_waiting[reason_of(code)], 1);
    count_add(&endpoint->failed_waiting_ns, waited_ns);
    request->done(request, code, text, NULL);
}

void endpoint_cancel(struct endpoint *endpoint, struct serve_request *request,
                     enum error_code reason)
{
    bool waiting;
    (void)pthread_mutex_lock(&endpoint->lock);
    waiting = request->state == SERVE_REQUEST_WAITING;
    if (waiting) {
        endpoint_unqueue(endpoint, request);
        request->state = SERVE_REQUEST_NEW;
    } else if (request->state == SERVE_REQUEST_RUNNING) {
        request->state = SERVE_REQUEST_CANCELLED;
        request->cancel_reason = reason;
        batch_cancelled(endpoint, request->batch);
    }
    (void)pthread_mutex_unlock(&endpoint->lock);
    if (waiting) {
        endpoint_drop(endpoint, request, reason,
                      reason == ERROR_CANCELLED ? "cancelled by the client while it waited"
                                                : "the deadline passed while the request waited",
                      clock_now_ns());
    }
}

/* Takes out all that `keep_ns` does not keep: those without time left; everything at 0. Returns
 * them linked by next; *ret_next_ns: the earliest deadline of the rest that nobody watches. */
static struct serve_request *waiting_take(struct endpoint *endpoint, uint64_t now_ns, bool all,
                                          uint64_t *ret_next_ns)
{
    struct serve_request *taken = NULL, **last = &taken;
    struct serve_request *next, *request = queue_first(&endpoint->queue);
    *ret_next_ns = UINT64_MAX;
    for (; request != NULL; request = next) {
        next = queue_after(&endpoint->queue, request);
        if (all || request->deadline_ns <= now_ns) {
            endpoint_unqueue(endpoint, request);
            request->state = SERVE_REQUEST_NEW;
            *last = request;
            last = &request->next;
        } else if (!request->deadline_watched && request->deadline_ns < *ret_next_ns) {
            *ret_next_ns = request->deadline_ns;
        }
    }
    *last = NULL;
    return taken;
}

static void taken_drop(struct endpoint *endpoint, struct serve_request *taken, enum error_code code,
                       const char *text, uint64_t now_ns)
{
    while (taken != NULL) {
        struct serve_request *next = taken->next; /* it is gone once dropped */
        bool expired = taken->deadline_ns <= now_ns;
        endpoint_drop(endpoint, taken, expired ? ERROR_DEADLINE_EXCEEDED : code,
                      expired ? "the deadline passed while the request waited" : text, now_ns);
        taken = next;
    }
}

void endpoint_fail_waiting(struct endpoint *endpoint, enum error_code code, const char *text)
{
    struct serve_request *taken;
    uint64_t now_ns = clock_now_ns(), next_ns;
    (void)pthread_mutex_lock(&endpoint->lock);
    taken = waiting_take(endpoint, now_ns, true, &next_ns);
    (void)pthread_mutex_unlock(&endpoint->lock);
    taken_drop(endpoint, taken, code, text, now_ns);
}

uint64_t endpoint_expire(struct endpoint *endpoint, uint64_t now_ns)
{
    struct serve_request *taken;
    uint64_t next_ns, oldest_ns;
    bool abandoned = false;
    if (atomic_load(&endpoint->waiting) == 0) {
        return UINT64_MAX;
    }
    (void)pthread_mutex_lock(&endpoint->lock);
    if (endpoint_serving(endpoint) == 0) {
        oldest_ns = queue_oldest_ns(&endpoint->queue);
        abandoned =
            now_ns >=
            clock_add_ns(oldest_ns > endpoint->cold_since_ns ? oldest_ns : endpoint->cold_since_ns,
                         COLD_WAIT_NS);
    }
    taken = waiting_take(endpoint, now_ns, abandoned, &next_ns);
    if (endpoint_serving(endpoint) == 0 && endpoint->queue.count > 0 &&
        next_ns > now_ns + NS_PER_S) {
        next_ns = now_ns + NS_PER_S;
    }
    (void)pthread_mutex_unlock(&endpoint->lock);
    taken_drop(endpoint, taken, ERROR_UNAVAILABLE,
               "no device became free for the model while the request waited; try again later",
               now_ns);
    return next_ns;
}
