#include "server/serve/serve.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/base/clock.h"
#include "server/serve/state.h"

/* ---- telling ----------------------------------------------------------------------------------
 */

void serve_notify(struct serve *serve, const struct serve_event *event)
{
    if (serve->options.notify != NULL) {
        serve->options.notify(serve->options.context, event);
    }
}

void serve_readiness_changed(struct serve *serve)
{
    (void)pthread_mutex_lock(&serve->readiness.lock);
    if (serve->readiness.callback != NULL) {
        serve->readiness.callback(serve->readiness.context);
    }
    (void)pthread_mutex_unlock(&serve->readiness.lock);
}

/* ---- helpers ----------------------------------------------------------------------------------
 */

struct helper {
    struct serve *serve;
    void (*main)(void *arg);
    void *arg;
};

static void helper_leave(struct serve *serve)
{
    (void)pthread_mutex_lock(&serve->helpers.lock);
    serve->helpers.count--;
    (void)pthread_cond_broadcast(&serve->helpers.changed);
    (void)pthread_mutex_unlock(&serve->helpers.lock);
}

static void *helper_main(void *arg)
{
    struct helper helper = *(struct helper *)arg;
    free(arg);
    (void)pthread_setname_np(pthread_self(), "serve-help");
    helper.main(helper.arg);
    helper_leave(helper.serve);
    return NULL;
}

void serve_helper(struct serve *serve, void (*main)(void *arg), void *arg)
{
    struct helper *helper = malloc(sizeof(*helper));
    pthread_t thread;
    (void)pthread_mutex_lock(&serve->helpers.lock);
    serve->helpers.count++;
    (void)pthread_mutex_unlock(&serve->helpers.lock);
    if (helper != NULL) {
        *helper = (struct helper){serve, main, arg};
        if (pthread_create(&thread, NULL, helper_main, helper) == 0) {
            (void)pthread_detach(thread);
            return;
        }
    }
    free(helper);
    main(arg); /* slower for the caller, but done */
    helper_leave(serve);
}

static void helpers_wait(struct serve *serve)
{
    (void)pthread_mutex_lock(&serve->helpers.lock);
    while (serve->helpers.count > 0) {
        (void)pthread_cond_wait(&serve->helpers.changed, &serve->helpers.lock);
    }
    (void)pthread_mutex_unlock(&serve->helpers.lock);
}

/* ---- life -------------------------------------------------------------------------------------
 */

static int kind_of(struct serve *serve, const char *kind)
{
    for (uint32_t i = 0; i < serve->kind_count; i++) {
        if (strcmp(serve->kinds[i], kind) == 0) {
            return (int)i;
        }
    }
    if (serve->kind_count == KINDS_MAX) {
        return -1;
    }
    (void)snprintf(serve->kinds[serve->kind_count], sizeof(serve->kinds[0]), "%s", kind);
    return (int)serve->kind_count++;
}

static int worker_start(struct serve *serve, uint32_t index, struct error *error)
{
    struct worker *worker = &serve->workers[index];
    int result, kind = kind_of(serve, serve->devices->devices[index].kind);
    if (kind < 0) {
        return error_set(error, ERROR_OUT_OF_RANGE, "devices of more than %d kinds", KINDS_MAX);
    }
    worker->serve = serve;
    worker->device = &serve->devices->devices[index];
    worker->index = index;
    worker->kind = (uint32_t)kind;
    worker->bit = UINT64_C(1) << index;
    atomic_init(&worker->phase, WORKER_LOOKING);
    (void)pthread_mutex_init(&worker->shared.lock, NULL);
    result = device_thread_start(worker->device, DEVICE_SERVING, worker_main, worker,
                                 &worker->thread, error);
    worker->started = result == 0;
    return result;
}

static void locks_init(struct serve *serve)
{
    pthread_condattr_t attributes;
    (void)pthread_mutex_init(&serve->control, NULL);
    (void)pthread_mutex_init(&serve->names, NULL);
    (void)pthread_mutex_init(&serve->readiness.lock, NULL);
    (void)pthread_mutex_init(&serve->helpers.lock, NULL);
    (void)pthread_cond_init(&serve->helpers.changed, NULL);
    (void)pthread_mutex_init(&serve->timer.lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&serve->timer.changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    atomic_init(&serve->timer.next_ns, UINT64_MAX);
}

struct serve *serve_create(struct device_set *devices, const struct serve_options *options,
                           struct error *error)
{
    struct serve *serve = calloc(1, sizeof(*serve));
    int number;
    if (serve == NULL) {
        (void)error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory to serve");
        return NULL;
    }
    serve->devices = devices;
    serve->options = *options;
    locks_init(serve);
    serve->workers = calloc(devices->count, sizeof(struct worker));
    if (options->state_directory != NULL) {
        serve->state_directory = strdup(options->state_directory);
    }
    if (serve->workers == NULL ||
        (options->state_directory != NULL && serve->state_directory == NULL)) {
        (void)error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory to serve");
        goto failed;
    }
    number = pthread_create(&serve->timer.thread, NULL, timer_main, serve);
    if (number != 0) {
        (void)error_set_errno(error, number, "start the serving timer");
        goto failed;
    }
    serve->timer.started = true;
    for (uint32_t i = 0; i < devices->count; i++) {
        serve->worker_count++;
        if (worker_start(serve, i, error) < 0) {
            goto failed;
        }
    }
    return serve;
failed:
    serve_destroy(serve);
    return NULL;
}

/* Nothing is handed to a worker any more, nothing new is accepted. */
static void endpoints_close(struct serve *serve)
{
    (void)pthread_mutex_lock(&serve->control);
    for (struct endpoint *endpoint = serve->endpoints; endpoint != NULL;
         endpoint = endpoint->next) {
        atomic_store(&endpoint->stopping, true);
        endpoint->stopped = true;
        for (uint32_t i = 0; i < serve->worker_count; i++) {
            struct placement *placement = &endpoint->placements[i];
            if (placement->state == PLACEMENT_LOADING) {
                placement->end = PLACEMENT_STOP;
                if (placement->loading != NULL) {
                    endpoint->config->runtime->instance_abort(placement->loading);
                }
            }
        }
    }
    (void)pthread_mutex_unlock(&serve->control);
}

static void workers_stop(struct serve *serve)
{
    for (uint32_t i = 0; i < serve->worker_count; i++) {
        if (serve->workers[i].started) {
            atomic_store(&serve->workers[i].stopping, true);
            worker_call(&serve->workers[i]);
        }
    }
    for (uint32_t i = 0; i < serve->worker_count; i++) {
        if (serve->workers[i].started) {
            (void)pthread_join(serve->workers[i].thread, NULL);
        }
        (void)pthread_mutex_destroy(&serve->workers[i].shared.lock);
    }
}

static void timer_stop(struct serve *serve)
{
    if (!serve->timer.started) {
        return;
    }
    (void)pthread_mutex_lock(&serve->timer.lock);
    serve->timer.stopping = true;
    (void)pthread_cond_signal(&serve->timer.changed);
    (void)pthread_mutex_unlock(&serve->timer.lock);
    (void)pthread_join(serve->timer.thread, NULL);
}

void serve_destroy(struct serve *serve)
{
    struct endpoint *next;
    if (serve == NULL) {
        return;
    }
    endpoints_close(serve);
    workers_stop(serve);
    helpers_wait(serve);
    timer_stop(serve);
    for (struct endpoint *endpoint = serve->endpoints; endpoint != NULL; endpoint = next) {
        next = endpoint->next;
        endpoint_fail_waiting(endpoint, ERROR_UNAVAILABLE, "the server is shutting down");
        assert(atomic_load(&endpoint->holds) == 1);
        endpoint_release(endpoint);
    }
    helpers_wait(serve);
    (void)pthread_mutex_destroy(&serve->control);
    (void)pthread_mutex_destroy(&serve->names);
    (void)pthread_mutex_destroy(&serve->readiness.lock);
    (void)pthread_mutex_destroy(&serve->helpers.lock);
    (void)pthread_cond_destroy(&serve->helpers.changed);
    (void)pthread_mutex_destroy(&serve->timer.lock);
    (void)pthread_cond_destroy(&serve->timer.changed);
    free(serve->workers);
    free(serve->state_directory);
    free(serve);
}

void serve_on_answers(struct serve *serve, void (*begin)(void), void (*end)(void))
{
    serve->answers_begin = begin;
    serve->answers_end = end;
}

/* ---- readiness --------------------------------------------------------------------------------
 */

void serve_on_readiness(struct serve *serve, void (*callback)(void *context), void *context)
{
    (void)pthread_mutex_lock(&serve->readiness.lock);
    serve->readiness.callback = callback;
    serve->readiness.context = context;
    (void)pthread_mutex_unlock(&serve->readiness.lock);
}

void serve_set_open(struct serve *serve, bool open)
{
    atomic_store(&serve->open, open);
    serve_readiness_changed(serve);
}

bool serve_opened(const struct serve *serve)
{
    return atomic_load(&serve->open);
}

void serve_set_draining(struct serve *serve, bool draining)
{
    atomic_store(&serve->draining, draining);
    serve_readiness_changed(serve);
}

bool serve_draining(const struct serve *serve)
{
    return atomic_load(&serve->draining);
}

bool serve_ready(struct serve *serve)
{
    bool ready = atomic_load(&serve->open) && !atomic_load(&serve->draining);
    (void)pthread_mutex_lock(&serve->names);
    for (struct endpoint *endpoint = serve->endpoints; ready && endpoint != NULL;
         endpoint = endpoint->next) {
        ready = endpoint_state(endpoint) != ENDPOINT_LOADING;
    }
    (void)pthread_mutex_unlock(&serve->names);
    return ready;
}
