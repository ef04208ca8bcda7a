/* serving.c: what happens by itself: requests arrive, wait, run and end; instances come to be. */
#include "clients/virtual/serving.h"

#include <stdlib.h>

#define DANGER_NS (10 * NS_PER_MS) /* at most one such event of an endpoint in this time */
#define AVERAGE_OF 32              /* finished requests that the service time is an average of */

/* ---- endpoints ---- */

struct endpoint *endpoint_numbered(const struct serve *serve, uint64_t number)
{
    for (size_t i = 0; i < serve->count; i++) {
        if (serve->endpoints[i]->number == number) {
            return serve->endpoints[i];
        }
    }
    return NULL;
}

static struct endpoint *endpoint_traced(const struct serve *serve, uint32_t traced)
{
    for (size_t i = 0; i < serve->count; i++) {
        if (serve->endpoints[i]->traced == traced && !serve->endpoints[i]->removing) {
            return serve->endpoints[i];
        }
    }
    return NULL;
}

uint32_t ready_count(const struct endpoint *endpoint)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < world.devices->count; i++) {
        count += endpoint->instances[i].is == INSTANCE_READY;
    }
    return count;
}

void endpoint_let_go(struct endpoint *endpoint)
{
    if (--endpoint->holds == 0) {
        recorder_destroy(endpoint->recorder);
        free(endpoint->queue);
        free(endpoint);
    }
}

static void tell(const struct serve *serve, struct serve_event event)
{
    serve->options.notify(serve->options.context, &event);
}

static void tell_instance(const struct serve *serve, const struct endpoint *endpoint,
                          enum serve_event_kind kind, uint32_t device)
{
    struct serve_event event = {.kind = kind, .endpoint = endpoint->number, .device = device};
    event.memory_bytes = kind == SERVE_INSTANCE_READY ? WORLD_INSTANCE_BYTES : 0;
    if (kind == SERVE_INSTANCE_READY && endpoint->service_ns > 0) {
        event.service = (struct service_table){1, {1}, {endpoint->service_ns}};
    }
    tell(serve, event);
}

/* The last instance has gone, and nobody waits: it is over. */
void endpoint_end_if_over(struct serve *serve, struct endpoint *endpoint)
{
    bool there = false;
    for (uint32_t i = 0; i < world.devices->count; i++) {
        there = there || endpoint->instances[i].is != INSTANCE_ABSENT;
    }
    if (!endpoint->removing || there) {
        return;
    }
    for (size_t i = 0; i < serve->count; i++) {
        if (serve->endpoints[i] == endpoint) {
            serve->endpoints[i] = serve->endpoints[--serve->count];
        }
    }
    tell(serve, (struct serve_event){.kind = SERVE_ENDPOINT_STOPPED, .endpoint = endpoint->number});
    endpoint_let_go(endpoint);
}

/* ---- queues ---- */

static bool queue_push(struct endpoint *endpoint, const struct sim_request *request, bool front)
{
    if (endpoint->waiting == endpoint->capacity) {
        size_t capacity = endpoint->capacity == 0 ? 64 : endpoint->capacity * 2;
        struct sim_request *grown = calloc(capacity, sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        for (size_t i = 0; i < endpoint->waiting; i++) {
            grown[i] = endpoint->queue[(endpoint->first + i) % endpoint->capacity];
        }
        free(endpoint->queue);
        endpoint->queue = grown;
        endpoint->first = 0;
        endpoint->capacity = capacity;
    }
    if (front) {
        endpoint->first = (endpoint->first + endpoint->capacity - 1) % endpoint->capacity;
    }
    size_t place = front ? endpoint->first : endpoint->first + endpoint->waiting;
    endpoint->queue[place % endpoint->capacity] = *request;
    endpoint->waiting++;
    return true;
}

static struct sim_request queue_pop(struct endpoint *endpoint)
{
    struct sim_request request = endpoint->queue[endpoint->first];
    endpoint->first = (endpoint->first + 1) % endpoint->capacity;
    endpoint->waiting--;
    return request;
}

uint64_t oldest_ns(const struct endpoint *endpoint)
{
    return endpoint->waiting > 0 ? endpoint->queue[endpoint->first].arrival_ns : world.now_ns;
}

uint64_t projected_wait_ns(const struct endpoint *endpoint, uint32_t ready)
{
    return endpoint->waiting * endpoint->service_ns / (ready > 0 ? ready : 1);
}

/* ---- devices ---- */

static void device_flags(uint32_t index, uint64_t since_ns)
{
    struct device *device = &world.devices->devices[index];
    atomic_store(&device->shared.serving_since_ns, since_ns);
    atomic_store(&device->shared.serving, since_ns != 0);
}

static void device_run(struct endpoint *endpoint, uint32_t index)
{
    struct virtual_device *device = &world.state[index];
    world_book(index);
    device->request = queue_pop(endpoint);
    device->runs = endpoint;
    device->began_ns = world.now_ns;
    device->ends_ns = world.now_ns + device->request.service_ns;
    if (device->job != NULL) {
        atomic_fetch_add(&world.devices->devices[index].shared.slices, 1);
    }
    device_flags(index, world.now_ns);
}

/* What the device does next: the request whose promise ends first. */
static void device_look(const struct serve *serve, uint32_t index)
{
    struct endpoint *first = NULL;
    uint64_t first_ns = 0;
    for (size_t i = 0; i < serve->count && world.state[index].runs == NULL; i++) {
        struct endpoint *endpoint = serve->endpoints[i];
        uint64_t due_ns = oldest_ns(endpoint) + endpoint->config.slo_latency_ns;
        if (endpoint->instances[index].is == INSTANCE_READY && endpoint->waiting > 0 &&
            (first == NULL || due_ns < first_ns)) {
            first = endpoint;
            first_ns = due_ns;
        }
    }
    if (first != NULL) {
        device_run(first, index);
    }
}

/* An idle one whose time no training takes, else any idle one. */
static void devices_look(const struct serve *serve, const struct endpoint *endpoint)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t i = 0; i < world.devices->count; i++) {
        bool idle = world.state[i].runs == NULL && endpoint->instances[i].is == INSTANCE_READY;
        if (idle && (found == UINT32_MAX ||
                     (world.state[found].job != NULL && world.state[i].job == NULL))) {
            found = i;
        }
    }
    if (found != UINT32_MAX) {
        device_look(serve, found);
    }
}

/* Of a run that ends, or breaks off. */
static void device_idle(uint32_t index)
{
    struct virtual_device *device = &world.state[index];
    uint64_t span_ns = world.now_ns - device->began_ns;
    device->runs->statistics.busy_ns += span_ns;
    device->runs = NULL;
    device->booked_ns = world.now_ns;
    atomic_fetch_add(&world.devices->devices[index].shared.serving_ns, span_ns);
    device_flags(index, 0);
}

void instance_leave(struct serve *serve, struct endpoint *endpoint, uint32_t index)
{
    endpoint->instances[index].is = INSTANCE_ABSENT;
    tell_instance(serve, endpoint, SERVE_INSTANCE_STOPPED, index);
    endpoint_end_if_over(serve, endpoint);
}

static void device_finish(struct serve *serve, uint32_t index)
{
    struct virtual_device *device = &world.state[index];
    struct endpoint *endpoint = device->runs;
    struct endpoint_statistics *statistics = &endpoint->statistics;
    uint64_t latency_ns = world.now_ns - device->request.arrival_ns;
    uint64_t service_ns = device->request.service_ns;
    statistics->success++;
    statistics->inference++;
    statistics->executions++;
    statistics->success_ns += latency_ns;
    statistics->infer_ns += service_ns;
    statistics->queue_ns += latency_ns - service_ns;
    statistics->late += latency_ns > endpoint->config.slo_latency_ns;
    statistics->latency[latency_bucket(latency_ns)]++;
    recorder_add(endpoint->recorder, device->request.arrival_ns, latency_ns);
    endpoint->service_ns =
        endpoint->service_ns == 0
            ? service_ns
            : (endpoint->service_ns * (AVERAGE_OF - 1) + service_ns) / AVERAGE_OF;
    device_idle(index);
    if (endpoint->instances[index].is == INSTANCE_LEAVING) {
        instance_leave(serve, endpoint, index);
    }
    device_look(serve, index);
}

/* ---- what happens by itself ---- */

static uint64_t arrival_ns(const struct serve *serve)
{
    const struct workload *workload = world.plan->workload;
    return world.start_ns == WORLD_NEVER_NS || serve->next_request == workload->request_count
               ? WORLD_NEVER_NS
               : world.start_ns + workload->requests[serve->next_request].arrival_ns;
}

uint64_t serve_next_ns(const struct serve *serve)
{
    uint64_t next = serve != NULL ? arrival_ns(serve) : WORLD_NEVER_NS;
    for (uint32_t i = 0; i < world.devices->count; i++) {
        if (world.state[i].runs != NULL && world.state[i].ends_ns < next) {
            next = world.state[i].ends_ns;
        }
    }
    for (size_t i = 0; i < serve->count; i++) {
        for (uint32_t j = 0; j < world.devices->count; j++) {
            if (serve->endpoints[i]->instances[j].is == INSTANCE_LOADING &&
                serve->endpoints[i]->instances[j].ready_ns < next) {
                next = serve->endpoints[i]->instances[j].ready_ns;
            }
        }
    }
    return next;
}

static void tell_danger(const struct serve *serve, struct endpoint *endpoint)
{
    uint32_t ready = ready_count(endpoint);
    uint64_t wait_ns = projected_wait_ns(endpoint, ready);
    if ((ready > 0 && wait_ns <= endpoint->config.slo_latency_ns / 2) ||
        world.now_ns < endpoint->danger_ns) {
        return;
    }
    endpoint->danger_ns = world.now_ns + DANGER_NS;
    tell(serve, (struct serve_event){.kind = SERVE_ENDPOINT_DANGER,
                                     .endpoint = endpoint->number,
                                     .projected_wait_ns = wait_ns,
                                     .queue_length = (uint32_t)endpoint->waiting});
}

static void arrive(struct serve *serve)
{
    struct sim_request request = world.plan->workload->requests[serve->next_request++];
    struct endpoint *endpoint = endpoint_traced(serve, request.endpoint);
    if (endpoint == NULL) { /* its callers are refused where the server can count nothing */
        return;
    }
    request.arrival_ns += world.start_ns;
    endpoint->statistics.arrivals++;
    if (!endpoint->was_ready) {
        endpoint->statistics.refused[REFUSAL_UNAVAILABLE]++;
    } else if (endpoint->waiting >= endpoint->config.queue_requests_max ||
               !queue_push(endpoint, &request, false)) {
        endpoint->statistics.refused[REFUSAL_QUEUE_FULL]++;
    }
    devices_look(serve, endpoint);
    tell_danger(serve, endpoint);
}

static void finish_loading(struct serve *serve, struct endpoint *endpoint)
{
    for (uint32_t i = 0; i < world.devices->count; i++) {
        if (endpoint->instances[i].is == INSTANCE_LOADING &&
            endpoint->instances[i].ready_ns <= world.now_ns) {
            endpoint->instances[i].is = INSTANCE_READY;
            endpoint->was_ready = true;
            tell_instance(serve, endpoint, SERVE_INSTANCE_READY, i);
            device_look(serve, i);
        }
    }
}

void serve_happen(struct serve *serve)
{
    for (uint32_t i = 0; i < world.devices->count; i++) {
        if (world.state[i].runs != NULL && world.state[i].ends_ns <= world.now_ns) {
            device_finish(serve, i);
        }
    }
    for (size_t i = 0; i < serve->count; i++) {
        finish_loading(serve, serve->endpoints[i]);
    }
    while (arrival_ns(serve) <= world.now_ns) {
        arrive(serve);
    }
}

void run_break_off(struct serve *serve, uint32_t index)
{
    struct endpoint *endpoint = world.state[index].runs;
    if (endpoint == NULL) {
        return;
    }
    endpoint->statistics.requeued++;
    if (!queue_push(endpoint, &world.state[index].request, true)) {
        endpoint->statistics.failed[FAILURE_OTHER]++;
    }
    device_idle(index);
    endpoint->instances[index].is = INSTANCE_ABSENT;
    devices_look(serve, endpoint);
}
