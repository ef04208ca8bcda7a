/* devices.c: devices change hands: the only place that changes a device's phase.
 *   SERVING -> DRAINING (busy) -> GIVING -> TRAINING -> TAKING -> SERVING; any -> LOST -> SERVING.
 * A pooled device without a job waits for one in TRAINING. */
#include "clients/sim/state.h"

#define TO(phase) (1u << ENGINE_##phase)

static const uint32_t phase_next[] = {
    [ENGINE_SERVING] = TO(DRAINING) | TO(GIVING) | TO(TRAINING) | TO(LOST),
    [ENGINE_DRAINING] = TO(GIVING) | TO(TRAINING) | TO(SERVING) | TO(LOST),
    [ENGINE_GIVING] = TO(TRAINING) | TO(TAKING) | TO(SERVING) | TO(LOST),
    [ENGINE_TRAINING] = TO(TAKING) | TO(SERVING) | TO(GIVING) | TO(LOST),
    [ENGINE_TAKING] = TO(SERVING) | TO(LOST),
    [ENGINE_LOST] = TO(SERVING),
};

static void pool_update(struct engine *engine, uint32_t number)
{
    const struct device *device = &engine->devices[number];
    bits_set(&engine->pool, number,
             device->pooled && device->phase == ENGINE_TRAINING && device->job == NONE);
}

static void phase_move(struct engine *engine, uint32_t number, enum engine_phase next)
{
    struct device *device = &engine->devices[number];
    assert(phase_next[device->phase] & (1u << next));
    if (device->job != NONE) {
        engine->jobs[device->job].present -= device->phase == ENGINE_TRAINING;
        engine->jobs[device->job].present += next == ENGINE_TRAINING;
    }
    engine->phase_count[device->phase]--;
    engine->phase_count[next]++;
    device->phase = next;
    device->returning = false;
    device->version++;
    pool_update(engine, number);
    serve_update(engine, number);
    if (device->job != NONE) {
        job_update(engine, number);
    }
    book_update(engine, number);
}

const struct sim_rung *engine_rung(const struct engine *engine, enum core_rung rung)
{
    const struct sim_setup *setup = engine->setup;
    for (size_t i = 0; i < setup->rung_count; i++) {
        if (rung == CORE_RUNG_NONE || setup->rungs[i].rung == rung) {
            return &setup->rungs[i];
        }
    }
    return NULL;
}

static bool stays_resident(const struct sim_rung *rung)
{
    return rung->rung == CORE_RUNG_FREEZE || rung->rung == CORE_RUNG_PAUSE ||
           rung->rung == CORE_RUNG_SWAP;
}

static void moved(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    engine_tell(engine, NOTICE_MOVED, number, device->phase, 0);
    serve_next(engine, number);
}

/* ---- to a job ---- */

static void present(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    struct job *job = &engine->jobs[device->job];
    job->away -= device->away;
    device->away = false;
    phase_move(engine, number, ENGINE_TRAINING);
    book_handover(engine, number, true);
    moved(engine, number);
}

static uint64_t give_ns(const struct engine *engine, const struct device *device)
{
    const struct job *job = &engine->jobs[device->job];
    const struct sim_rung *rung = device->away ? device->rung : job->rung;
    uint64_t restore_ns = job->restore ? engine->setup->jobs[device->job].restore_ns : 0;
    return (rung != NULL ? rung->give_ns : 0) + restore_ns;
}

/* The device is free for the job that it belongs to by now. */
static void enter(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    if (device->job == NONE) {
        phase_move(engine, number, ENGINE_TRAINING);
        pool_schedule(engine);
        return;
    }
    uint64_t span_ns = give_ns(engine, device);
    phase_move(engine, number, ENGINE_GIVING);
    if (span_ns == 0) {
        present(engine, number);
    } else {
        engine_add(engine, engine->now_ns + span_ns, MOMENT_SHIFTED, number, device->version);
        serve_next(engine, number);
    }
}

void device_start(struct engine *engine, uint32_t number, uint32_t job)
{
    job_join(engine, job, number);
    enter(engine, number);
}

void device_drained(struct engine *engine, uint32_t number)
{
    enter(engine, number);
    if (engine->devices[number].phase == ENGINE_GIVING) {
        engine_tell(engine, NOTICE_MOVED, number, ENGINE_GIVING, 0);
    }
}

bool engine_give(struct engine *engine, uint32_t number, uint32_t job, bool shared)
{
    struct device *device = &engine->devices[number];
    bool resident = device->job != NONE;
    if (device->phase == ENGINE_DRAINING) {
        return job == ENGINE_POOL ? device->pooled : device->job == job;
    }
    if (device->phase != ENGINE_SERVING ||
        (job != ENGINE_POOL && (resident ? device->job != job : !job_wants(engine, job, number)))) {
        return false;
    }
    if (!resident) {
        device->pooled = job == ENGINE_POOL;
    }
    device->shared = shared;
    device->moved_ns = engine->now_ns;
    if (job != ENGINE_POOL && !resident) {
        job_join(engine, job, number);
    }
    if (device->request != NONE && !shared) {
        phase_move(engine, number, ENGINE_DRAINING);
    } else {
        enter(engine, number);
    }
    return true;
}

/* ---- from a job ---- */

void device_free(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    job_leave(engine, number);
    if (device->pooled && device->phase == ENGINE_TRAINING) {
        pool_update(engine, number);
        book_update(engine, number);
    } else if (device->pooled && device->phase == ENGINE_GIVING) {
        phase_move(engine, number, ENGINE_TRAINING);
    } else if (device->phase == ENGINE_TRAINING || device->phase == ENGINE_GIVING) {
        phase_move(engine, number, ENGINE_SERVING);
        book_handover(engine, number, false);
        moved(engine, number);
    }
}

static void taken(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    if (device->job != NONE && !device->away) {
        if (device->rung->rung == CORE_RUNG_NOTICE) {
            job_keep(engine, device->job); /* that is what the time was for */
        }
        job_leave(engine, number);
    }
    phase_move(engine, number, ENGINE_SERVING);
    book_handover(engine, number, false);
    moved(engine, number);
    pool_schedule(engine);
}

void device_shifted(struct engine *engine, uint32_t number, uint64_t version)
{
    const struct device *device = &engine->devices[number];
    if (device->version != version) {
        return;
    }
    if (device->phase == ENGINE_GIVING) {
        present(engine, number);
    } else {
        taken(engine, number);
    }
}

/* Nobody has to let go of it. */
static void give_undo(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    if (device->job != NONE && !device->away) {
        job_leave(engine, number);
    }
    phase_move(engine, number, ENGINE_SERVING);
    moved(engine, number);
}

static void leave_or_stop(struct engine *engine, uint32_t number, const struct sim_rung *rung)
{
    struct device *device = &engine->devices[number];
    struct job *job = &engine->jobs[device->job];
    uint32_t devices_min = engine->setup->jobs[device->job].devices_min;
    if (stays_resident(rung)) {
        job->away += !device->away;
        device->away = true;
        phase_move(engine, number, ENGINE_TAKING);
        return;
    }
    job->rung = rung;
    job->going++;
    if (rung->loses) {
        job_lose(engine, device->job);
    }
    phase_move(engine, number, ENGINE_TAKING);
    if (rung->rung == CORE_RUNG_NOTICE || rung->rung == CORE_RUNG_KILL ||
        job->held - job->going < devices_min) {
        job_disband(engine, device->job);
    }
}

static void take(struct engine *engine, uint32_t number, const struct sim_rung *rung)
{
    struct device *device = &engine->devices[number];
    uint64_t delay_ns = engine_fault_delay_ns(engine, number, device->takes++);
    device->rung = rung;
    leave_or_stop(engine, number, rung);
    if (rung->take_ns + delay_ns == 0) {
        taken(engine, number);
    } else {
        engine_add(engine, engine->now_ns + rung->take_ns + delay_ns, MOMENT_SHIFTED, number,
                   device->version);
        pool_schedule(engine);
    }
}

/* A job that stands still cannot let go of anything: it is gone at once, or when it has stopped. */
static void evict(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    uint32_t job = device->job;
    job_lose(engine, job);
    if (device->phase == ENGINE_TAKING) {
        engine->jobs[job].away--;
        engine->jobs[job].going++;
        device->away = false;
    } else {
        job_leave(engine, number);
        moved(engine, number);
    }
    job_disband(engine, job);
    pool_schedule(engine);
}

bool engine_take(struct engine *engine, uint32_t number, enum core_rung rung)
{
    struct device *device = &engine->devices[number];
    const struct sim_rung *how = engine_rung(engine, rung);
    bool stands =
        device->away && (device->phase == ENGINE_SERVING || device->phase == ENGINE_TAKING);
    if (rung == CORE_RUNG_KILL && stands) {
        evict(engine, number);
        return true;
    }
    bool held = device->phase == ENGINE_GIVING || device->phase == ENGINE_TRAINING;
    if (how == NULL || (!held && device->phase != ENGINE_DRAINING)) {
        return false;
    }
    device->moved_ns = engine->now_ns;
    if (device->phase == ENGINE_DRAINING || device->job == NONE) {
        give_undo(engine, number);
    } else {
        take(engine, number, how);
    }
    return true;
}

/* ---- between training and a slice ---- */

void device_slice_over(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    const struct sim_rung *yield = engine_rung(engine, CORE_RUNG_YIELD);
    if (yield != NULL && yield->give_ns > 0) {
        device->returning = true;
        engine_add(engine, engine->now_ns + yield->give_ns, MOMENT_UNSLICED, number,
                   device->serve_version);
    }
}

void device_unsliced(struct engine *engine, uint32_t number, uint64_t version)
{
    struct device *device = &engine->devices[number];
    if (device->serve_version == version && device->returning) {
        device->returning = false;
        job_update(engine, number);
        book_update(engine, number);
    }
}

/* ---- loss and repair ---- */

/* A job of its own processes breaks whole; in process the others go on. */
static void job_broken(struct engine *engine, uint32_t number, bool in_process)
{
    const struct job *job = &engine->jobs[number];
    if (!in_process || job->held - job->going < engine->setup->jobs[number].devices_min) {
        job_disband(engine, number);
    }
}

static void lost_noticed(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    uint32_t job = device->hung;
    device->hung = NONE;
    /* A job that has been ended meanwhile, and may have begun anew elsewhere, misses nothing. */
    if (job != NONE && engine->jobs[job].run == device->hung_run) {
        job_hang(engine, job, false);
        job_broken(engine, job, device->shared);
    }
    engine_tell(engine, NOTICE_MOVED, number, ENGINE_LOST, 0);
    pool_schedule(engine);
}

static void lose(struct engine *engine, uint32_t number, uint64_t detect_ns, uint64_t away_ns)
{
    struct device *device = &engine->devices[number];
    serve_abort(engine, number);
    if (device->job != NONE) {
        device->hung = device->job;
        job_lose(engine, device->job);
        job_leave(engine, number);
        job_hang(engine, device->hung, true);
        device->hung_run = engine->jobs[device->hung].run;
    }
    phase_move(engine, number, ENGINE_LOST);
    engine_add(engine, engine->now_ns + detect_ns + away_ns, MOMENT_REPAIR, number, 0);
    if (detect_ns == 0) {
        lost_noticed(engine, number);
    } else {
        engine_add(engine, engine->now_ns + detect_ns, MOMENT_DETECTED, number, 0);
    }
}

void device_lose(struct engine *engine, uint32_t number, uint64_t loss)
{
    const struct sim_faults *faults = &engine->setup->faults;
    const struct device *device = &engine->devices[number];
    if (device->phase != ENGINE_LOST && loss + 1 == device->losses) {
        engine->faults++;
        lose(engine, number, faults->detect_ns, faults->device_repair_ns);
    }
}

void device_detected(struct engine *engine, uint32_t number)
{
    lost_noticed(engine, number);
}

void device_repair(struct engine *engine, uint32_t number)
{
    engine->devices[number].wanted = false;
    phase_move(engine, number, ENGINE_SERVING);
    faults_loss_next(engine, number);
    moved(engine, number);
}

/* ---- providers ---- */

/* A device that is away, or wanted already, is not asked for again. */
void device_wanted(struct engine *engine, uint32_t number)
{
    struct device *device = &engine->devices[number];
    uint64_t by_ns = engine->now_ns + engine->setup->faults.reclaim_notice_ns;
    if (device->phase != ENGINE_LOST && !device->wanted) {
        device->wanted = true;
        engine_tell(engine, NOTICE_WANTED, number, 0, by_ns);
        engine_add(engine, by_ns, MOMENT_RECLAIM, number, 0);
    }
    faults_wish_next(engine);
}

/* It is gone at once, whoever has it: that is seen. One that broke before, and was replaced, stays.
 */
void device_reclaim(struct engine *engine, uint32_t number)
{
    const struct device *device = &engine->devices[number];
    if (device->wanted && device->phase != ENGINE_LOST) {
        engine->reclaims++;
        lose(engine, number, 0, engine->setup->faults.reclaim_away_ns);
    }
}
