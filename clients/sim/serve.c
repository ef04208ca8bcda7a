/* serve.c: requests: they arrive, wait in the order of their arrival, run whole, or come too late.
 */
#include "clients/sim/state.h"

static struct engine_load *load_of(struct engine *engine, uint32_t endpoint)
{
    return &engine->loads[endpoint];
}

static struct engine_load *load_of_all(struct engine *engine)
{
    return &engine->loads[engine->setup->endpoint_count];
}

/* ---- the queues ---- */

static void queue_push(struct engine *engine, uint32_t request, bool head)
{
    struct queue *queue = &engine->queues[engine->setup->requests[request].endpoint];
    engine->next[request] = head ? queue->first : NONE;
    if (queue->first == NONE) {
        queue->first = queue->last = request;
    } else if (head) {
        queue->first = request;
    } else {
        engine->next[queue->last] = request;
        queue->last = request;
    }
    queue->length++;
    engine->queued++;
}

static void queue_pop(struct engine *engine, struct queue *queue)
{
    queue->first = engine->next[queue->first];
    queue->length--;
    engine->queued--;
}

/* Requests are numbered by arrival, so the lowest head has waited longest. */
static struct queue *queue_for(struct engine *engine, uint32_t number)
{
    struct queue *best = NULL;
    for (uint32_t i = 0; i < engine->setup->endpoint_count && engine->queued > 0; i++) {
        struct queue *queue = &engine->queues[i];
        if (queue->first != NONE && (best == NULL || queue->first < best->first) &&
            bits_has(&engine->ready[i], number)) {
            best = queue;
        }
    }
    return best;
}

/* ---- one request on one device ---- */

static bool is_lent(const struct device *device)
{
    return device->shared && device->job != NONE &&
           (device->phase == ENGINE_GIVING || device->phase == ENGINE_TRAINING ||
            device->phase == ENGINE_TAKING);
}

void serve_update(struct engine *engine, uint32_t number)
{
    const struct device *device = &engine->devices[number];
    bool open = device->request == NONE;
    bits_set(&engine->idle, number, open && device->phase == ENGINE_SERVING);
    bits_set(&engine->lent, number, open && is_lent(device));
}

static void changed(struct engine *engine, uint32_t number)
{
    const struct device *device = &engine->devices[number];
    serve_update(engine, number);
    if (device->job != NONE && device->phase == ENGINE_TRAINING) {
        job_update(engine, number);
    }
    book_update(engine, number);
}

/* Judged once, when it is over: one that a lost device gave back starts again. */
static void judge(struct engine *engine, uint32_t request, uint64_t start_ns)
{
    const struct sim_setup *setup = engine->setup;
    const struct sim_request *asked = &setup->requests[request];
    engine->service_ns += asked->service_ns;
    if (start_ns == ENGINE_NEVER_NS || start_ns - asked->arrival_ns > setup->slo_ns) {
        engine->late_service_ns += asked->service_ns;
        engine->late_requests++;
    }
    if (setup->observer.request != NULL) {
        setup->observer.request(setup->observer.context, asked, start_ns);
    }
}

static void load_begin(struct engine_load *load, uint64_t now_ns)
{
    load->started++;
    load->running++;
    load->busy_ns -= now_ns;
}

static void load_end(struct engine_load *load, uint64_t now_ns)
{
    load->running--;
    load->busy_ns += now_ns;
}

static void begin(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    const struct sim_request *asked = &engine->setup->requests[device->request];
    device->begun = true;
    device->began_ns = engine->now_ns;
    load_begin(load_of(engine, asked->endpoint), engine->now_ns);
    load_begin(load_of_all(engine), engine->now_ns);
    engine_add(engine, engine->now_ns + asked->service_ns * device->slow_milli / 1000,
               MOMENT_SERVED, number, device->serve_version);
    engine_tell(engine, NOTICE_SERVE_BEGAN, number, asked->endpoint, 0);
}

/* Warm: it has just served, so nobody has to be moved off it. */
static void start(struct engine *engine, uint32_t number, uint32_t request, bool warm)
{
    struct device *device = &engine->devices[number];
    const struct sim_rung *yield = engine_rung(engine, CORE_RUNG_YIELD);
    bool slice = !warm && device->phase != ENGINE_SERVING;
    uint64_t take_ns = slice && yield != NULL ? yield->take_ns : 0;
    engine->slices += slice && device->phase == ENGINE_TRAINING;
    device->request = request;
    device->begun = false;
    device->returning = false;
    device->serve_version++;
    if (take_ns > 0) {
        engine_add(engine, engine->now_ns + take_ns, MOMENT_SERVE, number, device->serve_version);
    } else {
        begin(engine, number);
    }
    changed(engine, number);
}

void serve_begun(struct engine *engine, uint32_t number, uint64_t version)
{
    if (engine->devices[number].serve_version == version) {
        begin(engine, number);
        book_update(engine, number);
    }
}

static bool take_next(struct engine *engine, uint32_t number, bool warm)
{
    struct device *device = &engine->devices[number];
    bool open = device->request == NONE && (device->phase == ENGINE_SERVING || is_lent(device));
    struct queue *queue = open ? queue_for(engine, number) : NULL;
    if (queue == NULL) {
        return false;
    }
    uint32_t request = queue->first;
    queue_pop(engine, queue);
    start(engine, number, request, warm);
    return true;
}

void serve_next(struct engine *engine, uint32_t number)
{
    take_next(engine, number, false);
}

void serve_ended(struct engine *engine, uint32_t number, uint64_t version)
{
    struct device *device = &engine->devices[number];
    if (device->serve_version != version) {
        return;
    }
    uint32_t endpoint = engine->setup->requests[device->request].endpoint;
    uint64_t service_ns = engine->now_ns - device->began_ns;
    struct engine_load *loads[] = {load_of(engine, endpoint), load_of_all(engine)};
    for (size_t i = 0; i < 2; i++) {
        load_end(loads[i], engine->now_ns);
        loads[i]->finished++;
        loads[i]->finished_ns += service_ns;
    }
    judge(engine, device->request, device->began_ns);
    device->request = NONE;
    engine_tell(engine, NOTICE_SERVE_ENDED, number, endpoint, service_ns);
    if (take_next(engine, number, true)) {
        return;
    }
    if (device->phase == ENGINE_DRAINING) {
        device_drained(engine, number);
    } else if (device->phase == ENGINE_TRAINING && device->job != NONE) {
        device_slice_over(engine, number);
    }
    changed(engine, number);
}

void serve_abort(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    if (device->request == NONE) {
        return;
    }
    uint32_t request = device->request;
    uint32_t endpoint = engine->setup->requests[request].endpoint;
    bool begun = device->begun;
    device->request = NONE;
    device->serve_version++;
    if (begun) {
        load_end(load_of(engine, endpoint), engine->now_ns);
        load_end(load_of_all(engine), engine->now_ns);
    }
    queue_push(engine, request, true);
}

/* ---- arrivals ---- */

void serve_arrival(struct engine *engine)
{
    uint32_t request = (uint32_t)engine->next_request++;
    uint32_t endpoint = engine->setup->requests[request].endpoint;
    load_of(engine, endpoint)->arrivals++;
    load_of_all(engine)->arrivals++;
    uint32_t number = bits_first_of_both(&engine->idle, &engine->ready[endpoint]);
    if (number == BITS_NONE) {
        number = bits_first_of_both(&engine->lent, &engine->ready[endpoint]);
    }
    if (number != BITS_NONE) {
        start(engine, number, request, false);
    } else {
        queue_push(engine, request, false);
    }
    engine_tell(engine, NOTICE_ARRIVED, endpoint, 0, 0);
}

void serve_close(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->setup->device_count; i++) {
        const struct device *device = &engine->devices[i];
        if (device->request != NONE) {
            judge(engine, device->request, device->begun ? device->began_ns : ENGINE_NEVER_NS);
        }
    }
    for (uint32_t i = 0; i < engine->setup->endpoint_count; i++) {
        for (struct queue *queue = &engine->queues[i]; queue->first != NONE;) {
            judge(engine, queue->first, ENGINE_NEVER_NS);
            queue_pop(engine, queue);
        }
    }
}
