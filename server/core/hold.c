/* hold.c: who has the device: the state machine between a grant and the verified release. The only
 * place that changes a device's hold and its lease. */
#include "server/core/state.h"

#define TO(hold) (1u << CORE_HOLD_##hold)

/* Straight from NONE to HELD or SUSPENDED: only what a restart finds again. To NONE from anywhere:
 * the device itself is lost or quarantined. */
static const uint32_t hold_next[] = {
    [CORE_HOLD_NONE] = TO(GRANTING) | TO(HELD) | TO(SUSPENDED) | TO(VERIFYING),
    [CORE_HOLD_GRANTING] = TO(HELD) | TO(REVOKING) | TO(KILLING) | TO(VERIFYING) | TO(NONE),
    [CORE_HOLD_HELD] = TO(REVOKING) | TO(KILLING) | TO(VERIFYING) | TO(NONE) | TO(SUSPENDING),
    [CORE_HOLD_REVOKING] = TO(KILLING) | TO(VERIFYING) | TO(NONE),
    [CORE_HOLD_KILLING] = TO(VERIFYING) | TO(NONE),
    [CORE_HOLD_VERIFYING] = TO(NONE),
    [CORE_HOLD_SUSPENDING] = TO(SUSPENDED) | TO(RESUMING) | TO(KILLING) | TO(VERIFYING) | TO(NONE),
    [CORE_HOLD_SUSPENDED] = TO(RESUMING) | TO(KILLING) | TO(VERIFYING) | TO(NONE),
    [CORE_HOLD_RESUMING] = TO(HELD) | TO(REVOKING) | TO(KILLING) | TO(VERIFYING) | TO(NONE),
};

bool core_device_stopped(const struct device *device)
{
    return device->hold == CORE_HOLD_SUSPENDING || device->hold == CORE_HOLD_SUSPENDED ||
           device->hold == CORE_HOLD_RESUMING;
}

static void lease_count(struct core *core, const struct device *device, int sign)
{
    struct lease *lease = device->lease;
    if (lease == NULL) {
        return;
    }
    bool stopped = core_device_stopped(device);
    bool active = device->hold == CORE_HOLD_GRANTING || device->hold == CORE_HOLD_HELD;
    *(stopped ? &lease->stopped : active ? &lease->held : &lease->leaving) += (uint32_t)sign;
    lease->granting += (uint32_t)(sign * (device->hold == CORE_HOLD_GRANTING));
    lease->quiet += (uint32_t)(sign * (device->hold == CORE_HOLD_SUSPENDED));
    core_team_count(core, lease, device->kind, !stopped && !active, sign);
}

static void lease_unlink(struct device *device)
{
    struct lease *lease = device->lease;
    if (lease == NULL) {
        return;
    }
    *(device->previous != NULL ? &device->previous->next : &lease->first) = device->next;
    *(device->next != NULL ? &device->next->previous : &lease->last) = device->previous;
    device->next = NULL;
    device->previous = NULL;
}

/* From the end: a gang's devices come in the order of their ids. */
static void lease_link(struct device *device)
{
    struct lease *lease = device->lease;
    if (lease == NULL) {
        return;
    }
    struct device *before = lease->last;
    while (before != NULL && before->id > device->id) {
        before = before->previous;
    }
    device->previous = before;
    device->next = before != NULL ? before->next : lease->first;
    *(before != NULL ? &before->next : &lease->first) = device;
    *(device->next != NULL ? &device->next->previous : &lease->last) = device;
}

/* Whoever has it, or had it and is not verified gone, and does not take turns with serving. */
static bool device_rests(const struct device *device)
{
    return device->lease != NULL && !device->lease->spec.in_process &&
           device->hold != CORE_HOLD_SUSPENDED;
}

static void hold_move(struct core *core, struct device *device, enum core_hold next,
                      struct lease *lease)
{
    assert(hold_next[device->hold] & (1u << next));
    core_ledger_update(core, device); /* the time until now belongs to the old state */
    struct lease *former = device->lease;
    lease = next == CORE_HOLD_NONE ? NULL : lease;
    lease_count(core, device, -1);
    device->hold = next;
    if (device->lease != lease) { /* its place in the list stays otherwise */
        lease_unlink(device);
        device->lease = lease;
        lease_link(device);
    }
    lease_count(core, device, 1);
    if (lease == NULL || former != lease || next == CORE_HOLD_RESUMING) {
        device->holder_bytes = lease != NULL ? lease->spec.memory_bytes : 0;
    }
    core_instances_rest(core, device, device_rests(device), next == CORE_HOLD_SUSPENDED);
    device->action = 0;
    device->deadline_ns = 0;
    device->advice = 0;
    if (lease != NULL) {
        core_lease_touch(core, lease);
    }
    if (former != NULL && former != lease) {
        core_lease_touch(core, former);
    }
    core_device_touch(core, device);
    core_ledger_update(core, device);
}

static void promise_take_back(struct core *core, struct device *device)
{
    struct lease *lease = device->promised;
    struct device *next = device->promised_next, *before = device->promised_before;
    if (next != NULL) {
        next->promised_before = before;
    }
    *(before != NULL ? &before->promised_next : &lease->promises) = next;
    device->promised_next = device->promised_before = NULL;
    device->promised = NULL;
    lease->promised--;
    core_team_promise(core, lease, device->kind, -1);
    core_lease_touch(core, lease);
}

static void promise_give(struct core *core, struct device *device, struct lease *lease)
{
    device->promised = lease;
    device->promised_next = lease->promises;
    if (lease->promises != NULL) {
        lease->promises->promised_before = device;
    }
    lease->promises = device;
    lease->promised++;
    core_team_promise(core, lease, device->kind, 1);
    core_lease_touch(core, lease);
}

void core_device_promise(struct core *core, struct device *device, struct lease *lease)
{
    if (device->promised == lease) {
        return;
    }
    if (device->promised != NULL) {
        promise_take_back(core, device);
    }
    if (lease != NULL) {
        promise_give(core, device, lease);
    }
    core_device_touch(core, device);
}

void core_promises_drop(struct core *core, struct lease *lease)
{
    while (lease->promises != NULL) {
        core_device_promise(core, lease->promises, NULL);
    }
}

void core_device_grant(struct core *core, struct device *device, struct lease *lease,
                       enum core_reason reason)
{
    core_device_promise(core, device, NULL);
    core_device_unkeep(core, device);
    device->generation = ++core->generation;
    lease->generation = device->generation;
    if (lease->run == 0) {
        lease->run = device->generation;
    }
    device->granted_ns = 0;
    device->rung = CORE_RUNG_NONE;
    hold_move(core, device, CORE_HOLD_GRANTING, lease);
    struct core_action *action = core_emit(core, CORE_ACTION_GRANT);
    action->grant.lease = lease->spec.lease;
    action->grant.device = device->id;
    action->grant.token.store_epoch = core->config.store_epoch;
    action->grant.token.generation = device->generation;
    action->grant.token.secret =
        core_secret(core->config.seed, core->config.store_epoch, device->generation);
    action->grant.run = lease->run;
    action->grant.yield = lease->spec.in_process;
    action->grant.reason = reason;
    device->action = action->id;
    device->deadline_ns = core_add_u64(core->now_ns, core->config.action_timeout_ns);
}

static uint64_t revoke_deadline(const struct core *core, const struct device *device,
                                enum core_rung rung)
{
    uint64_t deadline = core_add_u64(core->now_ns, core_rung_span_ns(core, device->lease, rung));
    if (device->reclaim_by_ns != 0 && device->reclaim_by_ns < deadline) {
        deadline = device->reclaim_by_ns;
    }
    return deadline > core->now_ns ? deadline : core->now_ns + 1;
}

static struct core_action *emit_revoke(struct core *core, enum core_action_kind kind,
                                       const struct device *device, enum core_rung rung,
                                       enum core_reason reason, uint64_t deadline_ns)
{
    struct core_action *action = core_emit(core, kind);
    action->revoke.lease = device->lease->spec.lease;
    action->revoke.device = device->id;
    action->revoke.generation = device->generation;
    action->revoke.rung = rung;
    action->revoke.reason = reason;
    action->revoke.deadline_ns = deadline_ns;
    return action;
}

void core_device_revoke(struct core *core, struct device *device, enum core_rung rung,
                        enum core_reason reason)
{
    struct lease *lease = device->lease;
    hold_move(core, device, CORE_HOLD_REVOKING, lease);
    device->rung = rung;
    device->revoke_reason = reason;
    device->extended = false;
    device->revoked_ns = core->now_ns;
    device->deadline_ns = revoke_deadline(core, device, rung);
    device->action =
        emit_revoke(core, CORE_ACTION_REVOKE, device, rung, reason, device->deadline_ns)->id;
    lease->revokes++;
}

void core_device_suspend(struct core *core, struct device *device, enum core_rung rung,
                         enum core_reason reason)
{
    hold_move(core, device, CORE_HOLD_SUSPENDING, device->lease);
    device->rung = rung;
    device->revoked_ns = core->now_ns;
    device->deadline_ns = core_add_u64(core->now_ns, core->config.suspend_deadline_ns);
    device->action =
        emit_revoke(core, CORE_ACTION_REVOKE, device, rung, reason, device->deadline_ns)->id;
}

/* Serving is its party now. */
void core_device_suspended(struct core *core, struct device *device, uint64_t residue_bytes)
{
    hold_move(core, device, CORE_HOLD_SUSPENDED, device->lease);
    device->holder_bytes = residue_bytes;
    device->deadline_ns = core_lease_stop_end_ns(core, device->lease);
    core_device_touch(core, device); /* there may be room beside it now */
    device->handovers++;
    core->handovers[device->rung]++;
}

void core_device_resume(struct core *core, struct device *device, enum core_reason reason)
{
    hold_move(core, device, CORE_HOLD_RESUMING, device->lease);
    device->revoked_ns = core->now_ns;
    device->deadline_ns = core_add_u64(core->now_ns, core->config.action_timeout_ns);
    device->action =
        emit_revoke(core, CORE_ACTION_RESUME, device, device->rung, reason, device->deadline_ns)
            ->id;
}

void core_device_resumed(struct core *core, struct device *device)
{
    /* Not moved again at once, but not one of the moves of the hour. */
    uint64_t rest_ns = core_rung_hold_ns(core, device->lease, device->rung, device->kind);
    uint64_t rested_ns = core_add_u64(core->now_ns, rest_ns);
    device->rested_ns = rested_ns > device->rested_ns ? rested_ns : device->rested_ns;
    hold_move(core, device, CORE_HOLD_HELD, device->lease);
    device->rung = CORE_RUNG_NONE;
    device->handovers++;
}

/* All devices of a lease go through this with one action. */
void core_device_killing(struct core *core, struct device *device, uint64_t action)
{
    if (device->hold != CORE_HOLD_REVOKING) {
        device->revoked_ns = core->now_ns;
    }
    hold_move(core, device, CORE_HOLD_KILLING, device->lease);
    device->rung = CORE_RUNG_KILL;
    device->deadline_ns = core_add_u64(core->now_ns, core->config.kill_bound_ns);
    if (action == 0) {
        action = emit_revoke(core, CORE_ACTION_KILL, device, CORE_RUNG_KILL,
                             CORE_REASON_DEADLINE_PASSED, device->deadline_ns)
                     ->id;
    }
    device->action = action;
}

void core_device_verify(struct core *core, struct device *device, enum core_reason reason)
{
    struct lease *lease = device->lease;
    if (core_device_stopped(device)) {
        device->rung = CORE_RUNG_NONE; /* it has let go by itself */
    }
    hold_move(core, device, CORE_HOLD_VERIFYING, lease);
    struct core_action *action = core_emit(core, CORE_ACTION_VERIFY);
    action->device.device = device->id;
    action->device.lease = lease != NULL ? lease->spec.lease : 0;
    action->device.reason = reason;
    device->action = action->id;
    device->deadline_ns = core_add_u64(core->now_ns, core->config.action_timeout_ns);
}

/* The device leaves its lease without being let go of. */
static void device_detach(struct core *core, struct device *device)
{
    core_device_promise(core, device, NULL);
    core_device_unkeep(core, device);
    if (device->hold != CORE_HOLD_NONE) {
        hold_move(core, device, CORE_HOLD_NONE, NULL);
    }
    core_ledger_update(core, device);
}

void core_device_quarantine(struct core *core, struct device *device, enum core_reason reason)
{
    struct lease *lease = device->lease;
    struct core_action *action = core_emit(core, CORE_ACTION_QUARANTINE);
    action->device.device = device->id;
    action->device.lease = lease != NULL ? lease->spec.lease : 0;
    action->device.reason = reason;
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_QUARANTINE, reason, device, lease, NULL);
    core_explain(core, &explanation);
    core_ledger_update(core, device);
    device->health = CORE_HEALTH_QUARANTINED;
    core_device_touch(core, device);
    core_device_empty(core, device);
    device_detach(core, device);
    if (lease != NULL) {
        core_lease_lost_device(core, lease, CORE_REASON_BELOW_MINIMUM);
    }
}

void core_device_lose(struct core *core, struct device *device, enum core_reason reason)
{
    struct lease *lease = device->lease;
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_DEVICE_LOST, reason, device, lease, NULL);
    core_explain(core, &explanation);
    if (device->hold == CORE_HOLD_GRANTING || device->hold == CORE_HOLD_HELD ||
        device->hold == CORE_HOLD_REVOKING || core_device_stopped(device)) {
        emit_revoke(core, CORE_ACTION_REVOKE, device, CORE_RUNG_NONE, reason, core->now_ns);
    }
    core_ledger_update(core, device);
    device->health = CORE_HEALTH_FAILED;
    core_device_touch(core, device);
    core_instances_vanish(core, device);
    device_detach(core, device);
    if (lease != NULL) {
        core_lease_lost_device(core, lease, CORE_REASON_BELOW_MINIMUM);
    }
}

void core_device_restore(struct core *core, struct device *device, struct lease *lease,
                         uint64_t generation, bool alive)
{
    device->generation = generation;
    if (generation > core->generation) {
        core->generation = generation;
    }
    if (alive) {
        device->granted_ns = core->now_ns;
        hold_move(core, device, CORE_HOLD_HELD, lease);
        return;
    }
    hold_move(core, device, CORE_HOLD_VERIFYING, lease);
    struct core_action *action = core_emit(core, CORE_ACTION_VERIFY);
    action->device.device = device->id;
    action->device.lease = lease->spec.lease;
    action->device.reason = CORE_REASON_RESTORED;
    device->action = action->id;
    device->deadline_ns = core_add_u64(core->now_ns, core->config.action_timeout_ns);
}

void core_device_restore_stopped(struct core *core, struct device *device, struct lease *lease,
                                 uint64_t generation, uint64_t residue_bytes)
{
    device->generation = generation;
    if (generation > core->generation) {
        core->generation = generation;
    }
    device->rung = lease->stop_rung;
    device->granted_ns = core->now_ns;
    hold_move(core, device, CORE_HOLD_SUSPENDED, lease);
    device->holder_bytes =
        residue_bytes < device->memory_bytes ? residue_bytes : device->memory_bytes;
    device->deadline_ns = core_lease_stop_end_ns(core, lease);
    core_device_touch(core, device);
}

void core_device_overdue(struct core *core, struct device *device)
{
    struct lease *lease = device->lease;
    switch (device->hold) {
    case CORE_HOLD_GRANTING: /* it may have begun all the same, so it is asked back */
        core_device_revoke(core, device, core_rung_for_one(lease), CORE_REASON_ACTION_LOST);
        core_lease_grant_failed(core, lease, CORE_REASON_ACTION_LOST);
        break;
    case CORE_HOLD_REVOKING:
        core_lease_kill(core, lease, device);
        break;
    case CORE_HOLD_KILLING:
        core_device_quarantine(core, device, CORE_REASON_DEADLINE_PASSED);
        break;
    case CORE_HOLD_VERIFYING:
        core_device_quarantine(core, device, CORE_REASON_NOT_VERIFIED);
        break;
    case CORE_HOLD_SUSPENDING:
    case CORE_HOLD_SUSPENDED:
    case CORE_HOLD_RESUMING:
        core_stop_overdue(core, device);
        break;
    case CORE_HOLD_NONE:
    case CORE_HOLD_HELD:
        break;
    }
}

static void device_begun(struct core *core, struct device *device)
{
    hold_move(core, device, CORE_HOLD_HELD, device->lease);
    device->granted_ns = core->now_ns;
    device->handovers++;
    core->handovers[CORE_RUNG_FREE]++;
    device->lease->grants_failed = 0;
}

static void handover_measure(struct core *core, const struct device *device)
{
    uint64_t cost = core->now_ns - device->revoked_ns;
    core->handover_cost_ns = core_average_u64(core->handover_cost_ns, cost, 1, 4);
}

static void device_let_go(struct core *core, struct device *device)
{
    struct lease *lease = device->lease;
    if (lease != NULL) {
        device->handovers++;
        core->handovers[device->rung]++;
        if (device->rung != CORE_RUNG_NONE) {
            core_rung_took(core, device, device->rung, core->now_ns - device->revoked_ns);
            handover_measure(core, device);
        }
    }
    hold_move(core, device, CORE_HOLD_NONE, NULL);
    if (device->kept && device->cool_since_ns != NEVER_NS) {
        device->cool_since_ns = core->now_ns; /* it has not served at all yet */
    }
    if (lease != NULL) {
        core_lease_settle(core, lease);
    }
}

static void kill_answered(struct core *core, struct lease *lease, uint64_t action, bool done)
{
    LEASE_DEVICES (lease, device) {
        if (device->hold != CORE_HOLD_KILLING || device->action != action) {
            continue;
        }
        if (done) {
            core_device_verify(core, device, CORE_REASON_DEADLINE_PASSED);
        } else {
            core_device_quarantine(core, device, CORE_REASON_NOT_VERIFIED);
        }
    }
}

static void action_answered(struct core *core, struct device *device, uint64_t action, bool done)
{
    if (device->hold == CORE_HOLD_KILLING) {
        kill_answered(core, device->lease, action, done);
    } else if (device->hold == CORE_HOLD_GRANTING && done) {
        device_begun(core, device);
    } else if (device->hold == CORE_HOLD_GRANTING) {
        struct lease *lease = device->lease;
        core_device_verify(core, device, CORE_REASON_ACTION_FAILED);
        core_lease_grant_failed(core, lease, CORE_REASON_ACTION_FAILED);
    } else if (device->hold == CORE_HOLD_REVOKING && !done) {
        core_device_verify(core, device, CORE_REASON_ACTION_FAILED); /* it reached nobody */
    }
}

/* Whoever lets go where it was asked to stop has let go. */
static void revoke_acknowledged(struct core *core, struct device *device)
{
    struct lease *lease = device->lease;
    bool stopping = device->hold == CORE_HOLD_SUSPENDING;
    if (stopping || device->hold == CORE_HOLD_REVOKING) {
        core_device_verify(core, device, CORE_REASON_RELEASED);
    }
    if (stopping) {
        core_lease_lost_device(core, lease, CORE_REASON_RELEASED);
    }
}

/* Answers count only while they are awaited: an old, doubled or invented id changes nothing. */
void core_hold_event(struct core *core, const struct core_event *event)
{
    bool verified = event->kind == CORE_EVENT_RELEASE_VERIFIED;
    uint64_t action = verified ? event->verified.action : event->answer.action;
    struct device *device =
        core_device_get(core, verified ? event->verified.device : event->answer.device);
    if (device == NULL || action == 0 || device->action != action) {
        return;
    }
    if (event->kind == CORE_EVENT_REVOKE_ACKNOWLEDGED) {
        revoke_acknowledged(core, device);
    } else if (core_device_stopped(device)) {
        core_stop_answered(core, device, event);
    } else if (!verified) {
        action_answered(core, device, action, event->kind == CORE_EVENT_ACTION_DONE);
    } else if (device->hold == CORE_HOLD_VERIFYING && event->verified.gone) {
        device_let_go(core, device);
    } else if (device->hold == CORE_HOLD_VERIFYING) {
        core_device_quarantine(core, device, CORE_REASON_NOT_VERIFIED);
    }
}
