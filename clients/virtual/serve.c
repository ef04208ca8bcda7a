/* serve.c: server/serve/serve.h of a virtual world: queues of the trace's requests, one request at
 * a time on each device with an instance, the oldest promise first (serving.c). */
#include "server/serve/serve.h"

#include <stdlib.h>
#include <string.h>

#include "clients/virtual/serving.h"

#define RECORDS_MAX 65536

static void enter(void)
{
    pthread_mutex_lock(&world.lock);
    world_now();
}

static void leave(void)
{
    pthread_mutex_unlock(&world.lock);
}

/* There may be a next moment that the thread does not wait for. */
static void leave_changed(void)
{
    world_changed();
    leave();
}

struct serve *serve_create(struct device_set *devices, const struct serve_options *options,
                           struct error *error)
{
    struct serve *serve = calloc(1, sizeof *serve);
    (void)devices; /* the world's */
    if (serve == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "serve: no memory");
        return NULL;
    }
    serve->options = *options;
    world.serve = serve;
    return serve;
}

void serve_destroy(struct serve *serve)
{
    for (size_t i = 0; serve != NULL && i < serve->count; i++) {
        endpoint_let_go(serve->endpoints[i]);
    }
    free(serve);
}

static uint32_t traced_index(const char *name)
{
    const struct trace_names *names = &world.plan->trace->endpoints;
    for (uint32_t i = 0; i < names->count; i++) {
        if (strcmp(names->names[i], name) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

int serve_endpoint_add(struct serve *serve, uint64_t number, struct repository_model *model,
                       struct error *error)
{
    struct endpoint *endpoint = calloc(1, sizeof *endpoint);
    struct recorder *recorder = recorder_create(RECORDS_MAX);
    if (endpoint == NULL || recorder == NULL || serve->count == ENDPOINTS_MAX) {
        free(endpoint);
        recorder_destroy(recorder);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "serve '%s': no memory",
                         model->config.name);
    }
    *endpoint = (struct endpoint){.number = number,
                                  .config = model->config,
                                  .traced = traced_index(model->config.name),
                                  .holds = 1,
                                  .service_ns = world_service_ns(model->config.name),
                                  .recorder = recorder};
    repository_model_destroy(model);
    enter();
    serve->endpoints[serve->count++] = endpoint;
    leave_changed();
    return 0;
}

void serve_endpoint_set(struct serve *serve, uint64_t number, uint64_t slo_ns, int32_t priority)
{
    enter();
    struct endpoint *endpoint = endpoint_numbered(serve, number);
    if (endpoint != NULL) {
        endpoint->config.slo_latency_ns = slo_ns;
        endpoint->config.priority = priority;
    }
    leave_changed();
}

/* What waits is answered UNAVAILABLE at once; what runs is finished. */
void serve_endpoint_remove(struct serve *serve, uint64_t number)
{
    enter();
    struct endpoint *endpoint = endpoint_numbered(serve, number);
    if (endpoint != NULL) {
        endpoint->removing = true;
        endpoint->statistics.failed[FAILURE_OTHER] += endpoint->waiting;
        endpoint->waiting = 0;
        endpoint_end_if_over(serve, endpoint);
    }
    leave_changed();
}

int serve_instance_place(struct serve *serve, uint64_t number, uint32_t device, struct error *error)
{
    int result = 0;
    enter();
    struct endpoint *endpoint = endpoint_numbered(serve, number);
    if (endpoint == NULL || endpoint->removing ||
        endpoint->instances[device].is != INSTANCE_ABSENT) {
        result = error_set(error, ERROR_FAILED_PRECONDITION, "it is there, or no longer served");
    } else {
        endpoint->instances[device].is = INSTANCE_LOADING;
        endpoint->instances[device].ready_ns = world.now_ns + WORLD_LOAD_NS;
    }
    leave_changed();
    return result;
}

void serve_instance_remove(struct serve *serve, uint64_t number, uint32_t device)
{
    enter();
    struct endpoint *endpoint = endpoint_numbered(serve, number);
    if (endpoint != NULL && world.state[device].runs == endpoint) {
        endpoint->instances[device].is = INSTANCE_LEAVING;
    } else if (endpoint != NULL) {
        instance_leave(serve, endpoint, device);
    }
    leave_changed();
}

void serve_device_failed(struct serve *serve, uint32_t device)
{
    enter();
    run_break_off(serve, device);
    for (size_t i = serve->count; i-- > 0;) {
        struct endpoint *endpoint = serve->endpoints[i];
        endpoint->instances[device].is = INSTANCE_ABSENT;
        endpoint_end_if_over(serve, endpoint);
    }
    leave_changed();
}

void serve_device_recovered(struct serve *serve, uint32_t device)
{
    (void)serve; /* it may be placed on again */
    (void)device;
}

/* Nobody at work here keeps serving from a device. */
void serve_device_rest(struct serve *serve, uint32_t device, bool resting)
{
    (void)serve;
    (void)device;
    (void)resting;
}

bool serve_device_quiet(struct serve *serve, uint32_t device)
{
    (void)serve;
    (void)device;
    return true;
}

/* ---- figures ---- */

static enum endpoint_state state_of(const struct endpoint *endpoint, uint32_t ready)
{
    return endpoint->removing    ? ENDPOINT_STOPPING
           : ready > 0           ? ENDPOINT_READY
           : endpoint->was_ready ? ENDPOINT_COLD
                                 : ENDPOINT_LOADING;
}

/* Of the runs under way, as far as they have come by `now_ns`, which may be a little ago. */
static uint64_t running_ns(const struct endpoint *endpoint, uint64_t now_ns, uint32_t *ret_count)
{
    uint64_t sum = 0;
    *ret_count = 0;
    for (uint32_t i = 0; i < world.devices->count; i++) {
        const struct virtual_device *device = &world.state[i];
        if (device->runs == endpoint) {
            sum += now_ns > device->began_ns ? now_ns - device->began_ns : 0;
            (*ret_count)++;
        }
    }
    return sum;
}

int serve_endpoint_sample(struct serve *serve, uint64_t number, uint64_t now_ns,
                          struct serve_sample *ret_sample)
{
    int result = -ERROR_NOT_FOUND;
    (void)now_ns; /* the world's own goes on */
    enter();
    const struct endpoint *endpoint = endpoint_numbered(serve, number);
    if (endpoint != NULL) {
        uint32_t ready = ready_count(endpoint);
        result = 0;
        *ret_sample = (struct serve_sample){
            .arrivals = endpoint->statistics.arrivals,
            .queue_length = (uint32_t)endpoint->waiting,
            .queue_rows = endpoint->waiting,
            .oldest_wait_ns = world.now_ns - oldest_ns(endpoint),
            .projected_wait_ns = projected_wait_ns(endpoint, ready),
            .instances_ready = ready,
            .state = state_of(endpoint, ready),
        };
        ret_sample->busy_ns =
            endpoint->statistics.busy_ns + running_ns(endpoint, world.now_ns, &ret_sample->running);
    }
    leave();
    return result;
}

int serve_endpoint_service(struct serve *serve, uint64_t number, const char *device_kind,
                           struct service_table *ret_table)
{
    (void)device_kind; /* there is one */
    *ret_table = (struct service_table){0};
    enter();
    const struct endpoint *endpoint = endpoint_numbered(serve, number);
    if (endpoint != NULL && endpoint->service_ns > 0) {
        *ret_table = (struct service_table){1, {1}, {endpoint->service_ns}};
    }
    leave();
    return endpoint != NULL ? 0 : -ERROR_NOT_FOUND;
}

/* Nothing here can fail to load: why there is no instance is the scheduler's to tell. */
int serve_endpoint_reason(struct serve *serve, uint64_t number, char *ret_text, size_t size)
{
    (void)serve;
    (void)number;
    snprintf(ret_text, size, "%s", "");
    return 0;
}

struct endpoint *serve_endpoint_hold(struct serve *serve, uint64_t number)
{
    enter();
    struct endpoint *endpoint = endpoint_numbered(serve, number);
    if (endpoint != NULL) {
        endpoint->holds++;
    }
    leave();
    return endpoint;
}

void endpoint_release(struct endpoint *endpoint)
{
    if (endpoint != NULL) {
        pthread_mutex_lock(&world.lock);
        endpoint_let_go(endpoint);
        pthread_mutex_unlock(&world.lock);
    }
}

void endpoint_statistics(struct endpoint *endpoint, struct endpoint_statistics *ret_statistics)
{
    enter();
    *ret_statistics = endpoint->statistics;
    ret_statistics->pending = (uint32_t)endpoint->waiting;
    leave();
}

size_t endpoint_recorded(struct endpoint *endpoint, struct recorded_request *ret_requests,
                         size_t capacity)
{
    return recorder_take(endpoint->recorder, ret_requests, capacity);
}

/* ---- readiness ---- */

bool serve_ready(struct serve *serve)
{
    enter();
    bool ready = serve->open && !serve->draining;
    for (size_t i = 0; i < serve->count; i++) {
        ready = ready && (serve->endpoints[i]->was_ready || serve->endpoints[i]->removing);
    }
    leave();
    return ready;
}

/* The endpoints of the trace are known: it begins. */
void serve_set_open(struct serve *serve, bool open)
{
    enter();
    serve->open = open;
    if (open && world.start_ns == WORLD_NEVER_NS) {
        world.start_ns = world.now_ns;
    }
    leave_changed();
}

void serve_set_draining(struct serve *serve, bool draining)
{
    enter();
    serve->draining = draining;
    leave();
}

bool serve_draining(const struct serve *serve)
{
    pthread_mutex_lock(&world.lock);
    bool draining = serve->draining;
    pthread_mutex_unlock(&world.lock);
    return draining;
}
