/* Bringing an instance to a device and taking it away again, on helper threads. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/serve/state.h"

struct placing {
    struct endpoint *endpoint; /* a hold */
    struct worker *worker;
};

void slot_destroy(struct slot *slot)
{
    if (slot == NULL) {
        return;
    }
    slot->endpoint->config->runtime->instance_destroy(slot->instance);
    batch_fini(&slot->batch);
    endpoint_release(slot->endpoint);
    free(slot);
}

static struct slot *slot_create(struct endpoint *endpoint, struct worker *worker,
                                struct error *error)
{
    uint32_t capacity = endpoint->signature->batch_max > 0 ? endpoint->batch_limit : 1;
    struct slot *slot = calloc(1, sizeof(*slot));
    if (slot == NULL) {
        goto no_memory;
    }
    slot->endpoint = endpoint_hold(endpoint);
    slot->worker = worker;
    slot->batch.slot = slot;
    slot->shard = endpoint_shard(endpoint, worker->index);
    if (slot->shard == NULL ||
        !batch_init(&slot->batch, capacity, endpoint->signature->output_count)) {
        goto no_memory;
    }
    return slot;
no_memory:
    slot_destroy(slot);
    (void)error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for an instance of '%s'",
                    endpoint_name(endpoint));
    return NULL;
}

static int instance_load(struct placing *placing, struct slot *slot, struct error *error)
{
    struct endpoint *endpoint = placing->endpoint;
    const struct device *device = placing->worker->device;
    struct placement *placement = &endpoint->placements[placing->worker->index];
    const struct model_runtime *runtime = endpoint->config->runtime;
    struct instance_place place = {.device_kind = device->kind,
                                   .device_index = device->index,
                                   .cores = device->cores,
                                   .thread_count = device->core_count};
    struct measure_subject subject = {.runtime = runtime,
                                      .signature = endpoint->signature,
                                      .name = endpoint_name(endpoint),
                                      .digest = endpoint->model->digest,
                                      .device_kind = device->kind,
                                      .core_count = device->core_count};
    bool go_on;
    int result = runtime->instance_create(endpoint->model->model, &place, &slot->instance, error);
    if (result < 0) {
        return result;
    }
    (void)pthread_mutex_lock(&endpoint->serve->control);
    placement->loading = slot->instance;
    go_on = placement->end == PLACEMENT_GO_ON;
    (void)pthread_mutex_unlock(&endpoint->serve->control);
    if (go_on) {
        result = measure_instance(&subject, slot->instance, endpoint->serve->state_directory,
                                  &slot->table, error);
        slot->memory_bytes = runtime->instance_bytes(slot->instance);
    }
    return result;
}

/* Hands the instance over to the worker, or says what is to be told instead. */
static bool placing_settle(struct placing *placing, struct slot *slot, int result,
                           const struct error *error, struct serve_event *ret_event)
{
    struct endpoint *endpoint = placing->endpoint;
    struct serve *serve = endpoint->serve;
    struct placement *placement = &endpoint->placements[placing->worker->index];
    bool handed_over = false;
    (void)pthread_mutex_lock(&serve->control);
    placement->loading = NULL;
    ret_event->kind = SERVE_INSTANCE_FAILED;
    if (placement->end == PLACEMENT_STOP) {
        ret_event->kind = SERVE_INSTANCE_STOPPED;
    } else if (placement->end == PLACEMENT_FAIL) {
        (void)strncpy(ret_event->text, "the device failed while the model was being loaded",
                      sizeof(ret_event->text) - 1);
    } else if (result < 0) {
        memcpy(ret_event->text, error->text, sizeof(ret_event->text));
        memcpy(endpoint->reason, error->text, sizeof(endpoint->reason));
        atomic_store(&endpoint->failed, true);
    } else {
        placement->state = PLACEMENT_PRESENT;
        placement->slot = slot;
        endpoint->reason[0] = '\0';
        handed_over = true;
        /* Under the lock, so that no removal comes before it. */
        worker_change(placing->worker, CHANGE_ADD, slot);
    }
    (void)pthread_mutex_unlock(&serve->control);
    return handed_over;
}

/* The device has no instance of it any more and none on its way: the number is free again. */
static void placement_end_tell(struct endpoint *endpoint, uint32_t device,
                               const struct serve_event *event)
{
    struct serve *serve = endpoint->serve;
    bool stopped;
    (void)pthread_mutex_lock(&serve->control);
    endpoint->placements[device] = (struct placement){0};
    stopped = endpoint_stopped_now(endpoint);
    (void)pthread_mutex_unlock(&serve->control);
    if (event != NULL) {
        serve_notify(serve, event);
    }
    serve_readiness_changed(serve);
    if (stopped) {
        endpoint_tell_stopped(endpoint);
    }
}

static void placing_main(void *arg)
{
    struct placing *placing = arg;
    struct endpoint *endpoint = placing->endpoint;
    struct worker *worker = placing->worker;
    struct serve_event event = {.endpoint = endpoint->number, .device = worker->index};
    struct error error = {0};
    struct log_text name, why;
    struct slot *slot;
    int result = -ERROR_RESOURCE_EXHAUSTED;
    /* Measured where it will run. A thread that may not be pinned measures all the same. */
    (void)sched_setaffinity(0, sizeof(worker->device->cores), &worker->device->cores);
    slot = slot_create(endpoint, worker, &error);
    if (slot != NULL) {
        result = instance_load(placing, slot, &error);
    }
    if (!placing_settle(placing, slot, result, &error, &event)) {
        slot_destroy(slot);
        if (event.kind == SERVE_INSTANCE_FAILED) {
            log_write(LOG_ERROR, "serve", "instance not placed", "endpoint=%s device=%s why=%s",
                      log_quote(&name, endpoint_name(endpoint)), worker->device->id,
                      log_quote(&why, event.text));
        }
        placement_end_tell(endpoint, worker->index, &event);
    }
    endpoint_release(endpoint);
    free(placing);
}

int serve_instance_place(struct serve *serve, uint64_t number, uint32_t device, struct error *error)
{
    struct placing *placing = NULL;
    struct endpoint *endpoint;
    struct placement *placement;
    int result = 0;
    (void)pthread_mutex_lock(&serve->control);
    endpoint = serve_endpoint_at(serve, number);
    if (endpoint == NULL || device >= serve->worker_count || endpoint->stopped) {
        result = error_set(error, ERROR_NOT_FOUND, "no such endpoint or device");
        goto out;
    }
    placement = &endpoint->placements[device];
    if (atomic_load(&serve->workers[device].failed)) {
        result = error_set(error, ERROR_UNAVAILABLE, "device %u has failed", device);
    } else if (placement->state != PLACEMENT_ABSENT) {
        result = error_set(error, ERROR_FAILED_PRECONDITION,
                           "device %u still has an instance of '%s', or is just getting it or "
                           "losing it",
                           device, endpoint_name(endpoint));
    } else if ((placing = calloc(1, sizeof(*placing))) == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a placement");
    } else {
        *placing = (struct placing){endpoint_hold(endpoint), &serve->workers[device]};
        *placement = (struct placement){.state = PLACEMENT_LOADING};
        atomic_store(&endpoint->failed, false);
    }
out:
    (void)pthread_mutex_unlock(&serve->control);
    if (result == 0) {
        serve_helper(serve, placing_main, placing);
    }
    return result;
}

/* ---- leaving ----------------------------------------------------------------------------------
 */

static void retire_main(void *arg)
{
    struct slot *slot = arg;
    struct endpoint *endpoint = endpoint_hold(slot->endpoint);
    uint32_t device = slot->worker->index;
    struct serve_event event = {
        .kind = SERVE_INSTANCE_STOPPED, .endpoint = endpoint->number, .device = device};
    bool tell = slot->tell;
    slot_destroy(slot);
    placement_end_tell(endpoint, device, tell ? &event : NULL);
    endpoint_release(endpoint);
}

void slot_retire(struct slot *slot, bool tell)
{
    struct serve *serve = slot->worker->serve;
    slot->tell = tell;
    (void)pthread_mutex_lock(&serve->control);
    slot->endpoint->placements[slot->worker->index].state = PLACEMENT_LEAVING;
    (void)pthread_mutex_unlock(&serve->control);
    serve_helper(serve, retire_main, slot);
}

/* Under serve.control. */
static void placing_end(struct endpoint *endpoint, struct placement *placement,
                        enum placement_end end)
{
    placement->end = end;
    if (placement->loading != NULL) {
        endpoint->config->runtime->instance_abort(placement->loading);
    }
}

void serve_instance_remove(struct serve *serve, uint64_t number, uint32_t device)
{
    struct serve_event event = {
        .kind = SERVE_INSTANCE_STOPPED, .endpoint = number, .device = device};
    struct endpoint *endpoint;
    bool tell = true;
    (void)pthread_mutex_lock(&serve->control);
    endpoint = serve_endpoint_at(serve, number);
    if (endpoint != NULL && device < serve->worker_count) {
        struct placement *placement = &endpoint->placements[device];
        if (placement->state == PLACEMENT_LOADING) {
            placing_end(endpoint, placement, PLACEMENT_STOP);
            tell = false;
        } else if (placement->state == PLACEMENT_PRESENT) {
            placement->state = PLACEMENT_LEAVING;
            worker_change(&serve->workers[device], CHANGE_REMOVE, placement->slot);
            tell = false;
        }
    }
    (void)pthread_mutex_unlock(&serve->control);
    if (tell) {
        serve_notify(serve, &event);
    }
}

/* Under serve.control: a batch that runs there is not worth its end. */
static void slot_abort(struct slot *slot)
{
    struct endpoint *endpoint = slot->endpoint;
    (void)pthread_mutex_lock(&endpoint->lock);
    if (slot->batch.running) {
        endpoint->config->runtime->instance_abort(slot->instance);
    }
    (void)pthread_mutex_unlock(&endpoint->lock);
}

void serve_device_failed(struct serve *serve, uint32_t device)
{
    struct worker *worker = &serve->workers[device];
    atomic_store(&worker->failed, true);
    atomic_fetch_add(&worker->losses, 1);
    (void)pthread_mutex_lock(&serve->control);
    for (struct endpoint *endpoint = serve->endpoints; endpoint != NULL;
         endpoint = endpoint->next) {
        struct placement *placement = &endpoint->placements[device];
        if (placement->state == PLACEMENT_LOADING) {
            placing_end(endpoint, placement, PLACEMENT_FAIL);
        } else if (placement->state == PLACEMENT_PRESENT || placement->state == PLACEMENT_LEAVING) {
            if (placement->slot != NULL && placement->state == PLACEMENT_PRESENT) {
                slot_abort(placement->slot);
            }
            placement->state = PLACEMENT_LEAVING;
        }
    }
    (void)pthread_mutex_unlock(&serve->control);
    worker_change(worker, CHANGE_LOST, NULL);
}

void serve_device_recovered(struct serve *serve, uint32_t device)
{
    atomic_store(&serve->workers[device].failed, false);
}

void serve_device_rest(struct serve *serve, uint32_t device, bool resting)
{
    struct worker *worker = &serve->workers[device];
    if (resting) {
        atomic_fetch_or(&serve->resting, worker->bit);
    } else {
        atomic_fetch_and(&serve->resting, ~worker->bit);
        worker_call(worker); /* what waited is for it, too */
    }
    serve_readiness_changed(serve);
}

/* Whoever looked before the bit was set has run its batch once the worker is seen idle. */
bool serve_device_quiet(struct serve *serve, uint32_t device)
{
    return atomic_load(&serve->workers[device].phase) == WORKER_IDLE;
}

/* ---- figures ----------------------------------------------------------------------------------
 */

uint32_t endpoint_memory(struct endpoint *endpoint, struct instance_memory *ret_memory,
                         uint32_t capacity)
{
    struct serve *serve = endpoint->serve;
    uint32_t count = 0;
    (void)pthread_mutex_lock(&serve->control);
    for (uint32_t i = 0; i < serve->worker_count; i++) {
        const struct placement *placement = &endpoint->placements[i];
        if (placement->state == PLACEMENT_PRESENT && count++ < capacity) {
            ret_memory[count - 1] = (struct instance_memory){serve->workers[i].device->kind, i,
                                                             placement->slot->memory_bytes};
        }
    }
    (void)pthread_mutex_unlock(&serve->control);
    return count;
}
