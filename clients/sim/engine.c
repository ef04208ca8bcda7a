/* engine.c: virtual time: the next moment happens, then the policy hears of it. */
#include "clients/sim/engine.h"

#include <stdlib.h>
#include <string.h>

#include "clients/sim/state.h"
#include "server/base/clock.h"

/* ---- life ---- */

static void engine_destroy(struct engine *engine)
{
    if (engine->policy != NULL) {
        engine->policy->class->destroy(engine->policy);
    }
    for (uint32_t i = 0; engine->ready != NULL && i < engine->setup->endpoint_count; i++) {
        bits_fini(&engine->ready[i]);
    }
    bits_fini(&engine->idle);
    bits_fini(&engine->lent);
    bits_fini(&engine->pool);
    bits_fini(&engine->waiting);
    agenda_fini(&engine->agenda);
    free(engine->devices);
    free(engine->ready);
    free(engine->jobs);
    free(engine->queues);
    free(engine->next);
    free(engine->loads);
    free(engine->notices);
    free(engine);
}

static int tables_create(struct engine *engine)
{
    const struct sim_setup *setup = engine->setup;
    engine->devices = calloc(setup->device_count, sizeof *engine->devices);
    engine->ready = calloc(setup->endpoint_count + 1, sizeof *engine->ready);
    engine->jobs = calloc(setup->job_count + 1, sizeof *engine->jobs);
    engine->queues = calloc(setup->endpoint_count + 1, sizeof *engine->queues);
    engine->next = calloc(setup->request_count + 1, sizeof *engine->next);
    engine->loads = calloc(setup->endpoint_count + 1, sizeof *engine->loads);
    if (engine->devices == NULL || engine->ready == NULL || engine->jobs == NULL ||
        engine->queues == NULL || engine->next == NULL || engine->loads == NULL ||
        bits_init(&engine->idle, setup->device_count) < 0 ||
        bits_init(&engine->lent, setup->device_count) < 0 ||
        bits_init(&engine->pool, setup->device_count) < 0 ||
        bits_init(&engine->waiting, (uint32_t)setup->job_count) < 0) {
        return -1;
    }
    for (uint32_t i = 0; i < setup->endpoint_count; i++) {
        if (bits_init(&engine->ready[i], setup->device_count) < 0) {
            return -1;
        }
    }
    return 0;
}

static void tables_fill(struct engine *engine)
{
    const struct sim_setup *setup = engine->setup;
    for (uint32_t i = 0; i < setup->device_count; i++) {
        engine->devices[i] = (struct device){.phase = ENGINE_SERVING,
                                             .request = NONE,
                                             .job = NONE,
                                             .hung = NONE,
                                             .before = NONE,
                                             .after = NONE,
                                             .account = CORE_ACCOUNT_RESERVE};
        bits_set(&engine->idle, i, true);
        for (uint32_t j = 0; j < setup->endpoint_count; j++) {
            bits_set(&engine->ready[j], i, true);
        }
    }
    engine->phase_count[ENGINE_SERVING] = setup->device_count;
    for (uint32_t i = 0; i < setup->endpoint_count; i++) {
        engine->queues[i] = (struct queue){.first = NONE, .last = NONE};
    }
    for (size_t i = 0; i < setup->job_count; i++) {
        engine->jobs[i] = (struct job){
            .first = NONE,
            .granted_ns = ENGINE_NEVER_NS,
            .ended_ns = ENGINE_NEVER_NS,
            .rung = setup->rung_count > 0 ? &setup->rungs[0] : NULL,
        };
    }
}

/* ---- what comes ---- */

void engine_add(struct engine *engine, uint64_t at_ns, enum moment_kind kind, uint32_t object,
                uint64_t detail)
{
    struct moment moment = {.time_ns = at_ns, .kind = kind, .object = object, .detail = detail};
    if (agenda_add(&engine->agenda, moment) < 0) {
        engine->out_of_memory = true;
    }
}

void engine_wake_at(struct engine *engine, uint64_t at_ns, uint64_t cookie)
{
    engine_add(engine, at_ns > engine->now_ns ? at_ns : engine->now_ns, MOMENT_WAKE, 0, cookie);
}

static void crash(struct engine *engine)
{
    const struct policy_class *class = engine->policy->class;
    engine->crashed = true;
    engine->crashes++;
    engine->restart_ns = engine->now_ns + engine->setup->faults.crash_down_ns;
    engine->notice_count = 0;
    engine_add(engine, engine->restart_ns, MOMENT_RESTART, 0, 0);
    if (class->crashed != NULL) {
        class->crashed(engine->policy);
    }
}

static void restart(struct engine *engine)
{
    const struct policy_class *class = engine->policy->class;
    engine->crashed = false;
    if (class->restarted != NULL) {
        class->restarted(engine->policy);
    }
    faults_crash_next(engine);
}

/* While its controller is down, a policy that rebuilds itself forgets its alarms; another one has
 * them later. */
static void wake(struct engine *engine, uint64_t cookie)
{
    const struct policy_class *class = engine->policy->class;
    if (!engine->crashed) {
        class->wake(engine->policy, cookie);
    } else if (class->restarted == NULL) {
        engine_add(engine, engine->restart_ns, MOMENT_WAKE, 0, cookie);
    }
}

static void moment_happens(struct engine *engine, const struct moment *moment)
{
    switch ((enum moment_kind)moment->kind) {
    case MOMENT_SERVE:
        serve_begun(engine, moment->object, moment->detail);
        break;
    case MOMENT_SERVED:
        serve_ended(engine, moment->object, moment->detail);
        break;
    case MOMENT_SHIFTED:
        device_shifted(engine, moment->object, moment->detail);
        break;
    case MOMENT_UNSLICED:
        device_unsliced(engine, moment->object, moment->detail);
        break;
    case MOMENT_JOB_END:
        job_ended(engine, moment->object, moment->detail);
        break;
    case MOMENT_WAKE:
        wake(engine, moment->detail);
        break;
    case MOMENT_LOSS:
        device_lose(engine, moment->object, moment->detail);
        break;
    case MOMENT_DETECTED:
        device_detected(engine, moment->object);
        break;
    case MOMENT_WANTED:
        device_wanted(engine, moment->object);
        break;
    case MOMENT_RECLAIM:
        device_reclaim(engine, moment->object);
        break;
    case MOMENT_REPAIR:
        device_repair(engine, moment->object);
        break;
    case MOMENT_CRASH:
        crash(engine);
        break;
    case MOMENT_RESTART:
        restart(engine);
        break;
    }
}

/* ---- what the policy hears ---- */

static int notices_grow(struct engine *engine)
{
    size_t capacity = engine->notice_capacity == 0 ? 64 : engine->notice_capacity * 2;
    struct notice *notices = calloc(capacity, sizeof *notices);
    if (notices == NULL) {
        engine->out_of_memory = true;
        return -1;
    }
    for (size_t i = 0; i < engine->notice_count; i++) {
        notices[i] = engine->notices[(engine->notice_first + i) % engine->notice_capacity];
    }
    free(engine->notices);
    engine->notices = notices;
    engine->notice_first = 0;
    engine->notice_capacity = capacity;
    return 0;
}

void engine_tell(struct engine *engine, enum notice_kind kind, uint32_t object, uint32_t detail,
                 uint64_t amount_ns)
{
    if (engine->crashed ||
        (engine->notice_count == engine->notice_capacity && notices_grow(engine) < 0)) {
        return;
    }
    if (kind == NOTICE_MOVED && detail != ENGINE_LOST &&
        engine_fault_lost(engine, object, engine->devices[object].told++)) {
        return;
    }
    size_t place = (engine->notice_first + engine->notice_count++) % engine->notice_capacity;
    engine->notices[place] = (struct notice){kind, object, detail, amount_ns};
}

static void notice_deliver(struct engine *engine, const struct notice *notice)
{
    const struct policy_class *class = engine->policy->class;
    if (notice->kind == NOTICE_ARRIVED && class->arrived != NULL) {
        class->arrived(engine->policy, notice->object);
    } else if (notice->kind == NOTICE_SERVE_BEGAN && class->serve_began != NULL) {
        class->serve_began(engine->policy, notice->object, notice->detail);
    } else if (notice->kind == NOTICE_SERVE_ENDED && class->serve_ended != NULL) {
        class->serve_ended(engine->policy, notice->object, notice->detail, notice->amount_ns);
    } else if (notice->kind == NOTICE_MOVED && class->moved != NULL) {
        class->moved(engine->policy, notice->object, (enum engine_phase)notice->detail);
    } else if (notice->kind == NOTICE_WANTED && class->wanted != NULL) {
        class->wanted(engine->policy, notice->object, notice->amount_ns);
    } else if (notice->kind == NOTICE_JOB_SUBMITTED && class->job_submitted != NULL) {
        class->job_submitted(engine->policy, notice->object);
    } else if (notice->kind == NOTICE_JOB_ENDED && class->job_ended != NULL) {
        class->job_ended(engine->policy, notice->object);
    }
}

static void notices_deliver(struct engine *engine)
{
    while (engine->notice_count > 0) {
        struct notice notice = engine->notices[engine->notice_first];
        engine->notice_first = (engine->notice_first + 1) % engine->notice_capacity;
        engine->notice_count--;
        notice_deliver(engine, &notice);
    }
}

/* ---- the run ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* At one time jobs are submitted first, then what was planned happens, then requests arrive. False:
 * nothing more until the end. */
static bool turn(struct engine *engine)
{
    const struct sim_setup *setup = engine->setup;
    struct moment moment = {.time_ns = ENGINE_NEVER_NS};
    bool planned = agenda_first(&engine->agenda, &moment);
    uint64_t job_ns = engine->next_job < setup->job_count ? setup->jobs[engine->next_job].submit_ns
                                                          : ENGINE_NEVER_NS;
    uint64_t arrival_ns = engine->next_request < setup->request_count
                              ? setup->requests[engine->next_request].arrival_ns
                              : ENGINE_NEVER_NS;
    uint64_t at_ns = least(moment.time_ns, least(job_ns, arrival_ns));
    bool done = setup->until_done && engine->jobs_over == setup->job_count &&
                engine->next_request == setup->request_count;
    if (done || at_ns >= setup->end_ns) {
        engine->end_ns = done ? engine->now_ns : setup->end_ns;
        return false;
    }
    engine->now_ns = at_ns;
    engine->events++;
    if (job_ns == at_ns) {
        job_submit(engine);
    } else if (planned && moment.time_ns == at_ns) {
        agenda_pop(&engine->agenda);
        moment_happens(engine, &moment);
    } else {
        serve_arrival(engine);
    }
    notices_deliver(engine);
    return true;
}

static void play(struct engine *engine, struct sim_result *ret_result)
{
    const struct policy_class *class = engine->policy->class;
    faults_begin(engine);
    if (class->begin != NULL) {
        class->begin(engine->policy);
    }
    notices_deliver(engine);
    while (!engine->out_of_memory && turn(engine)) {
    }
    engine->now_ns = engine->end_ns;
    serve_close(engine);
    book_result(engine, ret_result);
}

int engine_run(const struct sim_setup *setup, const struct policy_choice *choice,
               struct sim_result *ret_result, struct error *error)
{
    struct sim_result result = {0};
    uint64_t began_ns = clock_now_ns();
    int status = -1;
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "simulate: no memory");
    }
    engine->setup = setup;
    if (tables_create(engine) < 0) {
        status = error_set(error, ERROR_RESOURCE_EXHAUSTED, "simulate: no memory for %zu requests",
                           setup->request_count);
        goto out;
    }
    tables_fill(engine);
    engine->policy = choice->class->create(engine, choice->parameters, error);
    if (engine->policy == NULL) {
        goto out; /* it has said why */
    }
    engine->policy->class = choice->class;
    engine->policy->engine = engine;
    play(engine, &result);
    if (engine->out_of_memory) {
        status = error_set(error, ERROR_RESOURCE_EXHAUSTED, "simulate: no memory for its events");
        goto out;
    }
    result.wall_s = (double)(clock_now_ns() - began_ns) / 1e9;
    *ret_result = result;
    status = 0;
out:
    engine_destroy(engine);
    return status;
}

/* ---- looking ---- */

const struct sim_setup *engine_setup(const struct engine *engine)
{
    return engine->setup;
}

uint64_t engine_now_ns(const struct engine *engine)
{
    return engine->now_ns;
}

uint32_t engine_count(const struct engine *engine, enum engine_phase phase)
{
    return engine->phase_count[phase];
}

enum engine_phase engine_phase_of(const struct engine *engine, uint32_t device)
{
    return engine->devices[device].phase;
}

bool engine_is_busy(const struct engine *engine, uint32_t device)
{
    return engine->devices[device].request != NONE;
}

uint32_t engine_serves(const struct engine *engine, uint32_t device)
{
    uint32_t request = engine->devices[device].request;
    return request != NONE ? engine->setup->requests[request].endpoint : ENGINE_ALL;
}

bool engine_instance_is_ready(const struct engine *engine, uint32_t device, uint32_t endpoint)
{
    return bits_has(&engine->ready[endpoint], device);
}

uint64_t engine_moved_ns(const struct engine *engine, uint32_t device)
{
    return engine->devices[device].moved_ns;
}

uint32_t engine_job_of(const struct engine *engine, uint32_t device)
{
    uint32_t job = engine->devices[device].job;
    return job != NONE ? job : ENGINE_POOL;
}

bool engine_job_is_over(const struct engine *engine, uint32_t job)
{
    return engine->jobs[job].state == JOB_DONE;
}

static uint64_t oldest_wait_ns(const struct engine *engine, uint32_t endpoint)
{
    uint32_t request = engine->queues[endpoint].first;
    return request != NONE ? engine->now_ns - engine->setup->requests[request].arrival_ns : 0;
}

void engine_load(const struct engine *engine, uint32_t endpoint, struct engine_load *ret_load)
{
    uint32_t count = engine->setup->endpoint_count;
    bool all = endpoint == ENGINE_ALL;
    *ret_load = engine->loads[all ? count : endpoint];
    ret_load->busy_ns += ret_load->running * engine->now_ns;
    ret_load->queue_length = all ? engine->queued : engine->queues[endpoint].length;
    for (uint32_t i = all ? 0 : endpoint; i < (all ? count : endpoint + 1); i++) {
        uint64_t wait_ns = oldest_wait_ns(engine, i);
        ret_load->oldest_wait_ns =
            wait_ns > ret_load->oldest_wait_ns ? wait_ns : ret_load->oldest_wait_ns;
    }
}

void engine_instance_set(struct engine *engine, uint32_t device, uint32_t endpoint, bool ready)
{
    bits_set(&engine->ready[endpoint], device, ready);
    if (ready) {
        serve_next(engine, device);
    }
}
