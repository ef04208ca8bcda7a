/* jobs.c: training jobs: what they hold, how they get on, what they lose; and the engine's own
 * queue, which gives pooled devices to waiting jobs: first come first served, gangs whole, nobody
 * overtakes. */
#include "clients/sim/state.h"

#define THOUSAND 1000

static const struct sim_job *spec_of(const struct engine *engine, uint32_t number)
{
    return &engine->setup->jobs[number];
}

/* ---- progress ---- */

bool device_trains(const struct engine *engine, uint32_t number)
{
    const struct device *device = &engine->devices[number];
    return device->phase == ENGINE_TRAINING && device->job != NONE && device->request == NONE &&
           !device->returning && engine->jobs[device->job].runs;
}

static core_sum_ns scaled(uint64_t span_ns, uint64_t rate_milli)
{
    return (core_sum_ns)span_ns * rate_milli / THOUSAND;
}

/* Progress per second, in thousandths of one device at full speed. */
static uint64_t rate_milli(const struct sim_job *spec, const struct job *job)
{
    uint32_t last = ENGINE_SPEEDS_MAX;
    while (last > 0 && spec->speed_permille[last - 1] == 0) {
        last--;
    }
    if (last == 0 || job->active == 0) {
        return job->speed_milli;
    }
    uint32_t devices = job->active < last ? job->active : last;
    uint64_t mean = job->speed_milli / job->active;
    return mean * spec->speed_permille[devices - 1] / THOUSAND;
}

/* A span may hold a checkpoint, or many: what was trained after the last one is provisional. */
void job_advance(struct engine *engine, struct job *job)
{
    const struct sim_job *spec = spec_of(engine, (uint32_t)(job - engine->jobs));
    uint64_t span = engine->now_ns - job->since_ns, rate = rate_milli(spec, job), open = span;
    job->since_ns = engine->now_ns;
    job->held_ns += (core_sum_ns)span * job->held;
    if (job->active == 0 || span == 0) {
        return;
    }
    job->trained_ns += (core_sum_ns)span * job->active;
    job->progress_ns += scaled(span, rate);
    if (spec->checkpoint_ns == 0) {
        return; /* every step is kept */
    }
    job->run_ns += span;
    if (job->run_ns >= spec->checkpoint_ns) {
        job->run_ns %= spec->checkpoint_ns;
        open = job->run_ns;
        job->provisional_ns = job->progress_provisional_ns = 0;
    }
    job->provisional_ns += (core_sum_ns)open * job->active;
    job->progress_provisional_ns += scaled(open, rate);
}

void job_lose(struct engine *engine, uint32_t number)
{
    struct job *job = &engine->jobs[number];
    job_advance(engine, job);
    job->lost_ns += job->provisional_ns;
    job->progress_ns -= job->progress_provisional_ns;
    job->provisional_ns = job->progress_provisional_ns = job->run_ns = 0;
    job->restore = spec_of(engine, number)->checkpoint_ns > 0;
}

void job_keep(struct engine *engine, uint32_t number)
{
    struct job *job = &engine->jobs[number];
    job_advance(engine, job);
    job->provisional_ns = job->progress_provisional_ns = job->run_ns = 0;
}

static void end_plan(struct engine *engine, uint32_t number)
{
    const struct sim_job *spec = spec_of(engine, number);
    struct job *job = &engine->jobs[number];
    uint64_t rate = rate_milli(spec, job);
    job->version++;
    if (spec->work_ns == 0 || rate == 0) {
        return;
    }
    core_sum_ns left = spec->work_ns > job->progress_ns ? spec->work_ns - job->progress_ns : 0;
    uint64_t span = (uint64_t)((left * THOUSAND + rate - 1) / rate);
    engine_add(engine, engine->now_ns + span, MOMENT_JOB_END, number, job->version);
}

static uint64_t speed_milli(const struct engine *engine, uint32_t number, uint32_t device)
{
    const struct sim_setup *setup = engine->setup;
    uint32_t kind = setup->devices != NULL ? setup->devices[device].kind : 0;
    uint64_t speed = setup->jobs[number].kind_permille[kind];
    return (speed != 0 ? speed : THOUSAND) * THOUSAND / engine->devices[device].slow_milli;
}

static void active_set(struct engine *engine, uint32_t number, uint32_t device, bool trains)
{
    struct job *job = &engine->jobs[number];
    if (trains != engine->devices[device].trains) {
        engine->devices[device].trains = trains;
        job->active += trains ? 1 : UINT32_MAX;
        job->speed_milli += (trains ? 1 : UINT64_MAX) * speed_milli(engine, number, device);
    }
}

/* Whether it runs at all; its devices follow. */
static void job_refresh(struct engine *engine, uint32_t number)
{
    struct job *job = &engine->jobs[number];
    bool ran = job->runs;
    job_advance(engine, job);
    job->runs = !job->leaving && job->hangs == 0 && job->away == 0 && job->present > 0 &&
                job->present >= spec_of(engine, number)->devices_min;
    for (uint32_t i = job->first; i != NONE && job->runs != ran; i = engine->devices[i].after) {
        active_set(engine, number, i, device_trains(engine, i));
        book_update(engine, i);
    }
}

void job_update(struct engine *engine, uint32_t device)
{
    uint32_t number = engine->devices[device].job;
    job_refresh(engine, number);
    active_set(engine, number, device, device_trains(engine, device));
    end_plan(engine, number);
}

/* ---- holding devices ---- */

static void job_move(struct engine *engine, uint32_t number, enum job_state next)
{
    engine->jobs[number].state = next;
    bits_set(&engine->waiting, number, next == JOB_WAITING);
}

bool job_wants(const struct engine *engine, uint32_t number, uint32_t device)
{
    const struct job *job = &engine->jobs[number];
    const struct sim_job *spec = spec_of(engine, number);
    const struct sim_device *kind =
        engine->setup->devices != NULL ? &engine->setup->devices[device] : NULL;
    bool fits =
        kind == NULL || (((spec->kinds_mask >> kind->kind) & 1) &&
                         (kind->memory_bytes == 0 || spec->memory_bytes <= kind->memory_bytes));
    return (job->state == JOB_WAITING || job->state == JOB_HELD) && !job->leaving && fits &&
           job->held < spec->devices_max;
}

void job_join(struct engine *engine, uint32_t number, uint32_t device)
{
    struct job *job = &engine->jobs[number];
    struct device *joined = &engine->devices[device];
    job_advance(engine, job);
    joined->job = number;
    joined->before = NONE;
    joined->after = job->first;
    if (job->first != NONE) {
        engine->devices[job->first].before = device;
    }
    job->first = device;
    job->held++;
    job->present += joined->phase == ENGINE_TRAINING; /* it waited in the pool for a job */
    if (job->granted_ns == ENGINE_NEVER_NS) {
        job->granted_ns = engine->now_ns;
    }
    job_move(engine, number, JOB_HELD);
}

static void unlink_device(struct engine *engine, struct job *job, struct device *left)
{
    if (left->before != NONE) {
        engine->devices[left->before].after = left->after;
    } else {
        job->first = left->after;
    }
    if (left->after != NONE) {
        engine->devices[left->after].before = left->before;
    }
    left->job = left->before = left->after = NONE;
}

void job_leave(struct engine *engine, uint32_t device)
{
    struct device *left = &engine->devices[device];
    uint32_t number = left->job;
    struct job *job = &engine->jobs[number];
    job_advance(engine, job);
    active_set(engine, number, device, false);
    unlink_device(engine, job, left);
    job->away -= left->away;
    job->going -= left->phase == ENGINE_TAKING && !left->away;
    job->present -= left->phase == ENGINE_TRAINING;
    left->away = false;
    job->held--;
    if (job->held == 0 && job->state == JOB_HELD) {
        job->leaving = false;
        job->run++;
        job->hangs = 0;
        job_move(engine, number, JOB_WAITING);
    }
    job_refresh(engine, number);
    end_plan(engine, number);
}

/* One of its processes is gone, and the others wait for it. */
void job_hang(struct engine *engine, uint32_t number, bool hangs)
{
    engine->jobs[number].hangs += hangs ? 1 : UINT32_MAX;
    job_refresh(engine, number);
    end_plan(engine, number);
}

/* The devices of the engine's own queue come back by themselves, others are the policy's to take.
 */
void job_disband(struct engine *engine, uint32_t number)
{
    engine->jobs[number].leaving = engine->jobs[number].held > 0; /* else it has left already */
    job_refresh(engine, number);
    for (uint32_t i = engine->jobs[number].first; i != NONE;) {
        uint32_t after = engine->devices[i].after;
        if (engine->devices[i].pooled && engine->devices[i].phase != ENGINE_TAKING) {
            device_free(engine, i);
        }
        i = after;
    }
}

/* ---- coming and going ---- */

void job_submit(struct engine *engine)
{
    uint32_t number = (uint32_t)engine->next_job++;
    job_move(engine, number, JOB_WAITING);
    engine_tell(engine, NOTICE_JOB_SUBMITTED, number, 0, 0);
    pool_schedule(engine);
}

void job_ended(struct engine *engine, uint32_t number, uint64_t version)
{
    struct job *job = &engine->jobs[number];
    if (job->version != version) {
        return;
    }
    job_advance(engine, job);
    job->provisional_ns = job->progress_provisional_ns = 0;
    job->ended_ns = engine->now_ns;
    engine->jobs_over++;
    job_move(engine, number, JOB_DONE);
    while (job->first != NONE) {
        device_free(engine, job->first);
    }
    engine_tell(engine, NOTICE_JOB_ENDED, number, 0, 0);
    pool_schedule(engine);
}

/* ---- the engine's own queue ---- */

static bool pool_start(struct engine *engine, uint32_t number)
{
    const struct sim_job *spec = spec_of(engine, number);
    uint32_t fitting = 0;
    for (uint32_t i = 0; i < engine->setup->device_count; i++) {
        fitting += bits_has(&engine->pool, i) && job_wants(engine, number, i);
    }
    for (uint32_t i = 0; i < engine->setup->device_count && fitting >= spec->devices_min; i++) {
        if (bits_has(&engine->pool, i) && job_wants(engine, number, i)) {
            device_start(engine, i, number);
        }
    }
    return fitting >= spec->devices_min;
}

void pool_schedule(struct engine *engine)
{
    while (engine->pool.count > 0) {
        uint32_t number = bits_first(&engine->waiting);
        if (number == BITS_NONE || engine->jobs[number].hangs > 0 ||
            engine->pool.count < spec_of(engine, number)->devices_min ||
            !pool_start(engine, number)) {
            return;
        }
    }
}
