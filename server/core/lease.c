/* lease.c: who asked for devices, and how far that has come. The only place that changes a lease's
 * state. */
#include <stdlib.h>

#include "server/core/state.h"

#define PRIORITY_MAX 1000000 /* times the time that one step is worth: fits */

#define TO(state) (1u << CORE_LEASE_##state)

/* WAITING to DRAINING or SUSPENDED and DRAINING to RUNNING or SUSPENDED: only while a restart is
 * being told. */
static const uint32_t lease_next[] = {
    [CORE_LEASE_WAITING] = TO(RUNNING) | TO(PAUSED) | TO(ENDED) | TO(DRAINING) | TO(SUSPENDED),
    [CORE_LEASE_RUNNING] = TO(DRAINING) | TO(ENDING) | TO(SUSPENDED),
    [CORE_LEASE_DRAINING] = TO(WAITING) | TO(PAUSED) | TO(ENDING) | TO(RUNNING) | TO(SUSPENDED),
    [CORE_LEASE_PAUSED] = TO(WAITING) | TO(ENDED),
    [CORE_LEASE_ENDING] = TO(ENDED),
    [CORE_LEASE_ENDED] = 0,
    [CORE_LEASE_SUSPENDED] = TO(RUNNING) | TO(DRAINING) | TO(ENDING),
};

static void ended_append(struct core *core, struct lease *lease)
{
    *(core->ended_last != NULL ? &core->ended_last->ended_next : &core->ended_first) = lease;
    core->ended_last = lease;
    core->ended_count++;
}

/* Ended runs that are neither the job's fault nor its owner's wish. */
static bool is_preemption(enum core_reason reason)
{
    return reason == CORE_REASON_DEMAND || reason == CORE_REASON_SUSTAINED_LOAD ||
           reason == CORE_REASON_GANG_MINIMUM || reason == CORE_REASON_PRIORITY ||
           reason == CORE_REASON_QUOTA_RETURNED || reason == CORE_REASON_FAIR_SHARE ||
           reason == CORE_REASON_RECLAIM || reason == CORE_REASON_DEADLINE_PASSED;
}

uint64_t core_lease_ran_ns(const struct core *core, const struct lease *lease)
{
    bool runs = lease->state == CORE_LEASE_RUNNING;
    return lease->ran_ns + (runs ? core->now_ns - lease->running_ns : 0);
}

uint64_t core_lease_end_ns(const struct core *core, const struct lease *lease)
{
    uint64_t end_ns = lease->spec.until_ns != 0 ? lease->spec.until_ns : NEVER_NS;
    if (lease->spec.duration_ns != 0 && lease->state == CORE_LEASE_RUNNING) {
        uint64_t ran_ns = core_lease_ran_ns(core, lease);
        uint64_t left_ns = lease->spec.duration_ns > ran_ns ? lease->spec.duration_ns - ran_ns : 0;
        uint64_t over_ns = core_add_u64(core->now_ns, left_ns);
        end_ns = over_ns < end_ns ? over_ns : end_ns;
    }
    return end_ns;
}

uint64_t core_lease_waited_ns(const struct core *core, const struct lease *lease)
{
    return core_add_u64(core->now_ns - lease->queued_ns, lease->carried_ns);
}

/* It queues (again). What it had waited for counts on, less what it got for it; but for a failure,
 * which starts at the end. */
static void lease_requeue(struct core *core, struct lease *lease, enum core_reason reason)
{
    if (lease->run != 0) {
        uint64_t got_ns = lease->ran_ns - lease->ran_before_ns;
        uint64_t left_ns = lease->carried_ns > got_ns ? lease->carried_ns - got_ns : 0;
        bool failed = reason == CORE_REASON_JOB_EXITED;
        lease->carried_ns = core_add_u64(failed ? 0 : left_ns, lease->credit_ns);
    }
    lease->queued_ns = core->now_ns;
    lease->run = 0;
}

/* A job that has just saved is the cheapest to preempt: it must not lose by that. */
static void lease_preempted(struct core *core, struct lease *lease)
{
    uint64_t age_ns = core->now_ns - lease->checkpoint_ns, fades_ns = core->config.credit_fades_ns;
    lease->preemptions++;
    if (lease->reported && age_ns < fades_ns) {
        lease->credit_ns = core_scale_u64(core->config.credit_ns, fades_ns - age_ns, fades_ns);
    }
}

static void lease_count_run(struct core *core, struct lease *lease, enum core_lease_state next,
                            enum core_reason reason)
{
    if (lease->state == CORE_LEASE_RUNNING) {
        lease->ran_ns += core->now_ns - lease->running_ns;
    }
    bool over = next == CORE_LEASE_DRAINING || next == CORE_LEASE_ENDING;
    if (over && lease->run != 0 && !is_preemption(reason)) {
        core_outlook_ran(core, core->now_ns - lease->started_ns);
    }
    if (next == CORE_LEASE_RUNNING) {
        lease->running_ns = core->now_ns;
        core_heartbeat(core, lease);
    } else if (next == CORE_LEASE_DRAINING && is_preemption(reason)) {
        lease_preempted(core, lease);
    }
}

void core_lease_move(struct core *core, struct lease *lease, enum core_lease_state next,
                     enum core_reason reason)
{
    assert(lease_next[lease->state] & (1u << next));
    core_stop_follow_state(core, lease, next);
    lease_count_run(core, lease, next, reason);
    if (lease->state == CORE_LEASE_WAITING) {
        core_queue_leave(core, lease);
    }
    lease->state = next;
    lease->reason = reason;
    lease->since_ns = core->now_ns;
    lease->told = false;
    lease->advice = 0;
    if (next != CORE_LEASE_RUNNING) {
        core_promises_drop(core, lease);
    }
    if (next == CORE_LEASE_WAITING) {
        lease_requeue(core, lease, reason);
        core_queue_join(core, lease);
    } else if (next == CORE_LEASE_ENDED) {
        core_ledger_lose(core, lease); /* nobody will keep it any more */
        core_team_live(core, lease->team, -1);
        ended_append(core, lease);
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_LEASE_ENDED, reason, NULL, lease, NULL);
        core_explain(core, &explanation);
    }
    core_lease_touch(core, lease);
}

void core_lease_settle(struct core *core, struct lease *lease)
{
    if (lease->held > 0 || lease->leaving > 0 || lease->stopped > 0) {
        return;
    }
    if (lease->state == CORE_LEASE_DRAINING) {
        core_lease_move(core, lease, lease->pause_wanted ? CORE_LEASE_PAUSED : CORE_LEASE_WAITING,
                        lease->reason);
        lease->pause_wanted = false;
    } else if (lease->state == CORE_LEASE_ENDING) {
        core_lease_move(core, lease, CORE_LEASE_ENDED, lease->reason);
    }
}

static bool device_is_active(const struct device *device)
{
    return device->hold == CORE_HOLD_GRANTING || device->hold == CORE_HOLD_HELD;
}

/* Returns the deadline; 0: nothing was asked back. */
uint64_t core_lease_recall(struct core *core, struct lease *lease, enum core_lease_state next,
                           enum core_reason reason)
{
    enum core_rung rung = core_rung_for_all(lease);
    uint64_t deadline_ns = 0;
    core_lease_move(core, lease, next, reason);
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        if (device_is_active(device)) {
            core_device_revoke(core, device, rung, reason);
            deadline_ns = device->deadline_ns;
        }
    }
    core_lease_settle(core, lease);
    return deadline_ns;
}

/* Takes all devices back: for a while (DRAINING) or for good (ENDING). One that is stopped in place
 * goes on first. */
void core_lease_withdraw(struct core *core, struct lease *lease, enum core_lease_state next,
                         enum core_reason reason)
{
    if (lease->state == CORE_LEASE_SUSPENDED) {
        core_stop_then(core, lease, next, reason);
        return;
    }
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_REVOKE, reason, NULL, lease, NULL);
    explanation.rung = core_rung_for_all(lease);
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        if (device_is_active(device)) {
            core_explain_victim(&explanation, device, 0, true);
        }
    }
    explanation.deadline_ns = core_lease_recall(core, lease, next, reason);
    core_explain(core, &explanation);
}

void core_lease_lost_device(struct core *core, struct lease *lease, enum core_reason reason)
{
    if (lease->state == CORE_LEASE_SUSPENDED) {
        core_stop_settle(core, lease, reason);
    } else if (lease->state == CORE_LEASE_RUNNING && lease->held < lease->spec.devices_min &&
               core->reconciled) {
        core_lease_withdraw(core, lease, CORE_LEASE_DRAINING, reason);
    } else {
        core_lease_settle(core, lease);
    }
}

void core_lease_kill(struct core *core, struct lease *lease, struct device *overdue)
{
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_KILL, CORE_REASON_DEADLINE_PASSED, overdue, lease, NULL);
    explanation.rung = CORE_RUNG_KILL;
    core_ledger_lose(core, lease);
    core_device_killing(core, overdue, 0);
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        if (device->hold != CORE_HOLD_KILLING && device->hold != CORE_HOLD_VERIFYING) {
            core_device_killing(core, device, overdue->action);
        }
    }
    explanation.deadline_ns = overdue->deadline_ns;
    core_explain(core, &explanation);
    if (lease->state == CORE_LEASE_SUSPENDED) {
        core_stop_settle(core, lease, CORE_REASON_DEADLINE_PASSED);
    } else if (lease->state == CORE_LEASE_RUNNING) {
        core_lease_move(core, lease, CORE_LEASE_DRAINING, CORE_REASON_DEADLINE_PASSED);
    }
}

void core_lease_started(struct core *core, struct lease *lease)
{
    lease->carried_ns = core_lease_waited_ns(core, lease);
    lease->credit_ns = 0;
    lease->urgency = lease->spec.priority + (int64_t)(lease->carried_ns / core->config.age_ns);
    lease->started_ns = core->now_ns;
    lease->ran_before_ns = lease->ran_ns;
    core_rung_started(lease);
    core_lease_move(core, lease, CORE_LEASE_RUNNING, CORE_REASON_GANG_MINIMUM);
    lease->runs++;
}

static void lease_back_off(struct core *core, struct lease *lease, uint32_t failures)
{
    uint32_t doublings = failures < 6 ? failures : 6;
    lease->retry_ns = core_add_u64(core->now_ns, core->config.retry_ns << doublings);
    core_lease_touch(core, lease);
}

void core_lease_grant_failed(struct core *core, struct lease *lease, enum core_reason reason)
{
    lease_back_off(core, lease, lease->grants_failed++);
    core_lease_lost_device(core, lease, reason);
}

bool core_lease_wants_more(const struct lease *lease)
{
    return lease->state == CORE_LEASE_RUNNING &&
           lease->held + lease->promised < lease->spec.devices_max;
}

static enum core_reason spec_check(const struct core *core, const struct core_lease_spec *spec)
{
    if (spec->lease == 0 || spec->devices_min == 0 || spec->devices_min > spec->devices_max ||
        spec->memory_bytes > MEMORY_MAX || spec->floor > spec->devices_max ||
        spec->priority < -PRIORITY_MAX || spec->priority > PRIORITY_MAX ||
        spec->revokes_per_hour > CORE_REVOKES_MAX || spec->stops_per_hour > CORE_REVOKES_MAX ||
        !core_rungs_are_valid(spec) || (spec->kinds_mask & ((1u << CORE_KINDS_MAX) - 1)) == 0) {
        return CORE_REASON_INVALID;
    }
    if (core->reconciled && core_pool_matching(core, spec->kinds_mask) < spec->devices_min) {
        return CORE_REASON_IMPOSSIBLE;
    }
    return !core->reconciled || core_fair_may_ever(core, spec) ? CORE_REASON_NONE
                                                               : CORE_REASON_QUOTA;
}

void core_lease_destroy(struct lease *lease)
{
    if (lease != NULL) {
        core_guard_fini(lease);
        free(lease);
    }
}

static void lease_erase(struct core *core, struct lease *lease)
{
    struct lease **link = &core->ended_first, *before = NULL;
    while (*link != lease) {
        before = *link;
        link = &before->ended_next;
    }
    *link = lease->ended_next;
    core->ended_last = core->ended_last == lease ? before : core->ended_last;
    core->ended_count--;
    core_lease_erase(core, lease);
    core_team_leave(core, lease->team);
    core_lease_destroy(lease);
}

static enum core_reason lease_create(struct core *core, const struct core_lease_spec *spec)
{
    struct lease *lease = calloc(1, sizeof *lease);
    if (lease == NULL) {
        return CORE_REASON_NO_MEMORY;
    }
    lease->spec = *spec;
    lease->since_ns = core->now_ns;
    lease->queued_ns = core->now_ns;
    enum core_reason reason = core_guard_init(lease) == 0
                                  ? core_team_join(core, spec->team, &lease->team)
                                  : CORE_REASON_NO_MEMORY;
    if (reason == CORE_REASON_NONE && core_lease_insert(core, lease) < 0) {
        core_team_leave(core, lease->team);
        reason = CORE_REASON_NO_MEMORY;
    }
    if (reason != CORE_REASON_NONE) {
        core_lease_destroy(lease);
        return reason;
    }
    lease->sequence = ++core->sequence;
    core_team_live(core, lease->team, 1);
    core_queue_join(core, lease);
    core_lease_compare_kinds(core, lease);
    core_lease_touch(core, lease);
    return CORE_REASON_NONE;
}

static enum core_reason lease_add(struct core *core, const struct core_lease_spec *spec)
{
    enum core_reason reason = spec_check(core, spec);
    struct lease *former = core_lease_get(core, spec->lease);
    if (reason != CORE_REASON_NONE) {
        return reason;
    }
    if (former != NULL && former->state != CORE_LEASE_ENDED) {
        return CORE_REASON_DUPLICATE;
    }
    if (core->lease_count >= CORE_LEASES_MAX) {
        return CORE_REASON_TABLE_FULL;
    }
    if (former != NULL) {
        lease_erase(core, former);
    }
    return lease_create(core, spec);
}

/* By its owner, or because its time is over. */
static void lease_end(struct core *core, struct lease *lease, enum core_reason reason)
{
    switch (lease->state) {
    case CORE_LEASE_WAITING:
    case CORE_LEASE_PAUSED:
        core_lease_move(core, lease, CORE_LEASE_ENDED, reason);
        break;
    case CORE_LEASE_RUNNING:
    case CORE_LEASE_SUSPENDED:
    case CORE_LEASE_DRAINING:
        core_lease_withdraw(core, lease, CORE_LEASE_ENDING, reason);
        break;
    case CORE_LEASE_ENDING:
    case CORE_LEASE_ENDED:
        break;
    }
}

void core_lease_overdue(struct core *core, struct lease *lease)
{
    bool ends = lease->state == CORE_LEASE_SUSPENDED && lease->then == CORE_LEASE_ENDING;
    if (ends || lease->state == CORE_LEASE_ENDING || lease->state == CORE_LEASE_ENDED) {
        return;
    }
    struct core_action *action = core_emit(core, CORE_ACTION_EXPIRE);
    action->lease.lease = lease->spec.lease;
    action->lease.state = lease->state;
    action->lease.devices = lease->held;
    action->lease.reason = CORE_REASON_EXPIRED;
    lease_end(core, lease, CORE_REASON_EXPIRED);
}

static void lease_pause(struct core *core, struct lease *lease)
{
    if (lease->state == CORE_LEASE_WAITING) {
        core_lease_move(core, lease, CORE_LEASE_PAUSED, CORE_REASON_OWNER_PAUSED);
    } else if (lease->state == CORE_LEASE_RUNNING || lease->state == CORE_LEASE_SUSPENDED) {
        lease->pause_wanted = true;
        core_lease_withdraw(core, lease, CORE_LEASE_DRAINING, CORE_REASON_OWNER_PAUSED);
    } else if (lease->state == CORE_LEASE_DRAINING) {
        lease->pause_wanted = true;
        lease->reason = CORE_REASON_OWNER_PAUSED;
    }
}

static void lease_resume(struct core *core, struct lease *lease)
{
    lease->pause_wanted = false;
    if (lease->state == CORE_LEASE_SUSPENDED && lease->then == CORE_LEASE_DRAINING &&
        lease->then_reason == CORE_REASON_OWNER_PAUSED) {
        lease->then = CORE_LEASE_RUNNING;
    } else if (lease->state == CORE_LEASE_PAUSED) {
        core_lease_move(core, lease, CORE_LEASE_WAITING, CORE_REASON_NONE);
    }
}

/* The holder says it has let go of all: every device is verified, whatever state it was in. */
static void lease_let_go(struct core *core, struct lease *lease, enum core_lease_state next,
                         enum core_reason reason)
{
    if (lease->state != next && lease->state != CORE_LEASE_ENDING) {
        core_lease_move(core, lease, next, reason);
    }
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        if (device->hold != CORE_HOLD_VERIFYING) {
            core_device_verify(core, device, reason);
        }
    }
    core_lease_settle(core, lease);
}

/* A token of an earlier run, or of a lease that holds nothing, is late: it changes nothing. */
bool core_lease_token_is_current(const struct lease *lease, uint64_t generation)
{
    return lease->run != 0 && generation >= lease->run && generation <= lease->generation &&
           (lease->state == CORE_LEASE_RUNNING || lease->state == CORE_LEASE_SUSPENDED ||
            lease->state == CORE_LEASE_DRAINING || lease->state == CORE_LEASE_ENDING);
}

static void lease_released(struct core *core, struct lease *lease, const struct core_event *event)
{
    if (event->lease_released.device == 0) {
        if (core_lease_token_is_current(lease, event->lease_released.generation)) {
            core_ledger_kept_all(core, lease);
            lease_let_go(core, lease, CORE_LEASE_ENDING, CORE_REASON_RELEASED);
        }
        return;
    }
    struct device *device = core_device_get(core, event->lease_released.device);
    if (device != NULL && device->lease == lease && device->hold != CORE_HOLD_VERIFYING &&
        device->generation == event->lease_released.generation) {
        core_device_verify(core, device, CORE_REASON_RELEASED);
        core_lease_lost_device(core, lease, CORE_REASON_RELEASED);
    }
}

static void job_exited(struct core *core, struct lease *lease, const struct core_event *event)
{
    if (!core_lease_token_is_current(lease, event->job_exited.generation)) {
        return;
    }
    if (event->job_exited.kept) {
        core_ledger_kept_all(core, lease);
    } else {
        core_ledger_lose(core, lease);
    }
    /* Whoever was asked to let go may end as it likes: that is no failure. */
    bool failed =
        event->job_exited.failed && lease->state == CORE_LEASE_RUNNING && lease->leaving == 0;
    enum core_reason reason = CORE_REASON_JOB_EXITED;
    bool again = event->job_exited.again;
    if (failed) {
        lease_back_off(core, lease, lease->failures++);
        reason =
            again && lease->failures > core->config.retries ? CORE_REASON_RETRIES_USED : reason;
        again = again && reason == CORE_REASON_JOB_EXITED;
    }
    lease_let_go(core, lease, again ? CORE_LEASE_DRAINING : CORE_LEASE_ENDING, reason);
}

static void lease_progress(struct core *core, struct lease *lease, const struct core_event *event)
{
    uint64_t step = event->lease_progress.step;
    uint64_t kept = event->lease_progress.checkpointed_step;
    if (core_lease_token_is_current(lease, event->lease_progress.generation) && kept <= step &&
        step >= lease->step && kept >= lease->checkpointed_step) {
        if (kept > lease->checkpointed_step) {
            lease->reported = true;
            lease->checkpoint_ns = core->now_ns;
            lease->failures = 0;           /* it gets on */
            core_lease_touch(core, lease); /* and is a cheaper victim */
        }
        if (step > lease->step) {
            core_rung_restored(core, lease);
        }
        core_ledger_keep(core, lease, step, kept);
    }
}

static enum core_reason lease_heartbeat(struct core *core, struct lease *lease, uint64_t generation)
{
    if (!core_lease_token_is_current(lease, generation)) {
        return CORE_REASON_STALE_TOKEN;
    }
    core_heartbeat(core, lease);
    return CORE_REASON_NONE;
}

/* What a provider asked for while the gang stood still. */
static void lease_return_reclaimed(struct core *core, struct lease *lease)
{
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        if (device_is_active(device) && device->leaving) {
            core_device_revoke(core, device, core_rung_for_one(lease), CORE_REASON_RECLAIM);
        }
    }
}

/* Down to its maximum, from the last device. */
static void lease_trim(struct core *core, struct lease *lease)
{
    enum core_rung rung = core_rung_for_one(lease);
    for (struct device *device = lease->last;
         device != NULL && lease->held > lease->spec.devices_max; device = device->previous) {
        if (device_is_active(device)) {
            struct core_explanation explanation = core_explain_begin(
                core, CORE_WHAT_REVOKE, CORE_REASON_RESIZED, device, lease, NULL);
            explanation.rung = rung;
            core_device_revoke(core, device, rung, CORE_REASON_RESIZED);
            explanation.deadline_ns = device->deadline_ns;
            core_explain(core, &explanation);
        }
    }
}

/* All that is left of the stopped gang is at work again. */
void core_lease_goes_on(struct core *core, struct lease *lease)
{
    enum core_lease_state then = lease->then;
    core_lease_move(core, lease, CORE_LEASE_RUNNING, lease->going_on_reason);
    if (then != CORE_LEASE_RUNNING) {
        core_lease_withdraw(core, lease, then, lease->then_reason);
    } else {
        for (struct device *device = lease->first; device != NULL; device = device->next) {
            core_device_unkeep(core, device);
        }
        lease_return_reclaimed(core, lease);
        lease_trim(core, lease);
        core_lease_lost_device(core, lease, CORE_REASON_BELOW_MINIMUM);
    }
}

static enum core_reason lease_resize(struct core *core, struct lease *lease,
                                     const struct core_event *event)
{
    struct core_lease_spec spec = lease->spec;
    spec.devices_min = event->lease_resized.devices_min;
    spec.devices_max = event->lease_resized.devices_max;
    enum core_reason reason = spec_check(core, &spec);
    if (reason != CORE_REASON_NONE) {
        return reason;
    }
    bool runs = lease->state == CORE_LEASE_RUNNING || lease->state == CORE_LEASE_SUSPENDED;
    if (runs && spec.devices_min > lease->held + lease->stopped) {
        return CORE_REASON_BELOW_MINIMUM; /* a running gang cannot wait for its own minimum */
    }
    lease->spec = spec;
    lease->advice = 0;
    core_promises_drop(core, lease);
    core_lease_touch(core, lease);
    if (lease->state != CORE_LEASE_SUSPENDED) { /* else as soon as it goes on */
        lease_trim(core, lease);
    }
    return CORE_REASON_NONE;
}

static enum core_reason restored_grant(struct core *core, struct lease *lease,
                                       const struct core_event *event)
{
    struct device *device = core_device_get(core, event->restored_grant.device);
    if (core->reconciled || device == NULL || device->hold != CORE_HOLD_NONE ||
        !(lease->state == CORE_LEASE_WAITING || lease->state == CORE_LEASE_RUNNING ||
          lease->state == CORE_LEASE_DRAINING || lease->state == CORE_LEASE_SUSPENDED)) {
        return CORE_REASON_INVALID;
    }
    uint64_t generation = event->restored_grant.generation;
    bool alive = event->restored_grant.alive;
    bool stopped = alive && core_rung_stops(event->restored_grant.stopped);
    if (alive && lease->runs == 0) {
        lease->started_ns = core->now_ns;
        lease->urgency = lease->spec.priority;
        lease->runs++;
    }
    if (stopped) {
        core_stop_restore(core, device, lease, event);
    } else if (alive && lease->state != CORE_LEASE_RUNNING &&
               lease->state != CORE_LEASE_SUSPENDED) {
        core_lease_move(core, lease, CORE_LEASE_RUNNING, CORE_REASON_RESTORED);
    } else if (!alive && lease->state == CORE_LEASE_WAITING) {
        core_lease_move(core, lease, CORE_LEASE_DRAINING, CORE_REASON_RESTORED);
    }
    lease->run = lease->run == 0 || generation < lease->run ? generation : lease->run;
    lease->generation = generation > lease->generation ? generation : lease->generation;
    if (!stopped) {
        core_device_restore(core, device, lease, generation, alive);
    }
    return CORE_REASON_NONE;
}

void core_lease_restored(struct core *core)
{
    for (size_t i = 0; i < core->lease_count; i++) {
        core_lease_lost_device(core, core->leases[i], CORE_REASON_RESTORED);
        if (core->leases[i]->state == CORE_LEASE_RUNNING) {
            lease_trim(core, core->leases[i]); /* what it was about to give back */
        }
    }
    core_stops_restored(core);
}

static enum core_reason lease_event(struct core *core, struct lease *lease,
                                    const struct core_event *event)
{
    switch (event->kind) {
    case CORE_EVENT_LEASE_RESIZED:
        return lease_resize(core, lease, event);
    case CORE_EVENT_RESTORED_GRANT:
        return restored_grant(core, lease, event);
    case CORE_EVENT_LEASE_PAUSED:
        lease_pause(core, lease);
        break;
    case CORE_EVENT_LEASE_RESUMED:
        lease_resume(core, lease);
        break;
    case CORE_EVENT_LEASE_CANCELLED:
        lease_end(core, lease, CORE_REASON_CANCELLED);
        break;
    case CORE_EVENT_LEASE_RELEASED:
        lease_released(core, lease, event);
        break;
    case CORE_EVENT_EXTENSION_ASKED:
        return core_notice_extend(core, lease, event);
    case CORE_EVENT_RUNG_MEASURED:
        core_rung_measured(core, lease, event);
        break;
    case CORE_EVENT_LEASE_PROGRESS:
        lease_progress(core, lease, event);
        return lease_heartbeat(core, lease, event->lease_progress.generation);
    case CORE_EVENT_LEASE_HEARTBEAT:
        return lease_heartbeat(core, lease, event->lease_heartbeat.generation);
    case CORE_EVENT_JOB_EXITED:
        job_exited(core, lease, event);
        break;
    default:
        assert(false);
    }
    return CORE_REASON_NONE;
}

void core_lease_event(struct core *core, const struct core_event *event)
{
    enum core_reason reason;
    struct lease *lease = core_lease_get(core, event->lease.lease);
    if (event->kind == CORE_EVENT_LEASE_REQUESTED || event->kind == CORE_EVENT_RESTORED_LEASE) {
        reason = lease_add(core, &event->lease_spec);
    } else if (lease != NULL && lease->state != CORE_LEASE_ENDED) {
        reason = lease_event(core, lease, event);
    } else {
        /* Ended and forgotten are the same to those who come late; an owner is told, and so is a
         * holder that asks to go on. */
        bool owner = event->kind == CORE_EVENT_LEASE_RESIZED ||
                     event->kind == CORE_EVENT_LEASE_PAUSED ||
                     event->kind == CORE_EVENT_LEASE_RESUMED ||
                     (event->kind == CORE_EVENT_LEASE_CANCELLED && lease == NULL);
        bool holder =
            event->kind == CORE_EVENT_LEASE_HEARTBEAT || event->kind == CORE_EVENT_LEASE_PROGRESS;
        reason = owner ? CORE_REASON_UNKNOWN : holder ? CORE_REASON_STALE_TOKEN : CORE_REASON_NONE;
    }
    if (reason != CORE_REASON_NONE) {
        core_emit_reject(core, 0, 0, event->lease.lease, reason);
    }
}

void core_lease_tell(struct core *core, struct lease *lease)
{
    if (lease->told && lease->told_held == lease->held && lease->told_state == lease->state &&
        lease->told_lost == lease->heartbeat_lost) {
        return;
    }
    lease->told = true;
    lease->told_lost = lease->heartbeat_lost;
    lease->told_held = lease->held;
    lease->told_state = lease->state;
    struct core_action *action = core_emit(core, CORE_ACTION_LEASE_MOVED);
    action->lease.lease = lease->spec.lease;
    action->lease.state = lease->state;
    action->lease.devices = lease->held;
    action->lease.reason = lease->reason;
    action->lease.heartbeat_lost = lease->heartbeat_lost;
}

/* Only what is told already: nobody is forgotten in the step in which it ended. */
void core_leases_forget(struct core *core)
{
    while (core->ended_count > core->config.ended_kept) {
        lease_erase(core, core->ended_first);
    }
}

uint64_t core_lease_due_ns(const struct core *core, const struct lease *lease)
{
    if (lease->state == CORE_LEASE_ENDED || lease->state == CORE_LEASE_ENDING) {
        return NEVER_NS;
    }
    uint64_t due_ns = core_sooner(core, NEVER_NS, core_lease_end_ns(core, lease), 0);
    due_ns = core_sooner(core, due_ns, core_heartbeat_due_ns(core, lease), 0);
    due_ns = core_sooner(core, due_ns, lease->retry_ns, 0);
    if (lease->state == CORE_LEASE_RUNNING) {
        due_ns = core_sooner(core, due_ns, core_guard_due_ns(core, lease), 0);
    }
    due_ns = core_sooner(core, due_ns, core_stop_due_ns(core, lease), 0);
    if (lease->state == CORE_LEASE_WAITING && lease->carried_ns < core->config.overtake_ns) {
        due_ns = core_sooner(core, due_ns, lease->queued_ns,
                             core->config.overtake_ns - lease->carried_ns);
    }
    return due_ns;
}
