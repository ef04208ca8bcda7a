/* suspend.c: stops in place. A gang is stopped whole, by freeze, pause or swap, serves its devices
 * meanwhile, and goes on whole. A stopped job can neither save itself nor be asked anything, so
 * what else is wanted of it (`then`) waits until it goes on. suspending -> suspended -> resuming ->
 * held, for every device of the gang; the lease is SUSPENDED from the first REVOKE to the last
 * RESUMED. */
#include "server/core/state.h"

#define STOP_DOUBLINGS_MAX 10

bool core_rung_stops(enum core_rung rung)
{
    return rung == CORE_RUNG_FREEZE || rung == CORE_RUNG_PAUSE || rung == CORE_RUNG_SWAP;
}

/* When stopped gangs are due depends on each other, and on what is learned of rungs; so does when
 * devices of theirs that are to leave are asked back. */
void core_stops_touch(struct core *core)
{
    for (struct lease *lease = core->stops_first; lease != NULL; lease = lease->stop_next) {
        core_lease_touch(core, lease);
        LEASE_DEVICES (lease, device) {
            if (device->reclaim_by_ns != 0) {
                core_device_touch(core, device);
            }
        }
    }
}

static void stops_link(struct core *core, struct lease *lease)
{
    lease->stop_previous = core->stops_last;
    lease->stop_next = NULL;
    *(core->stops_last != NULL ? &core->stops_last->stop_next : &core->stops_first) = lease;
    core->stops_last = lease;
    core->stops_count++;
    for (size_t i = 0; i < core->endpoint_count && core->stops_count == 1; i++) {
        core->endpoints[i]->wide_lasting = true; /* nobody looked at news for them */
    }
    core_stops_touch(core);
}

/* After the cap on stopped time it is its turn to be at work, as long as it stood still. A need
 * that stops did not end has not become a burst since: without danger for an SLO it must wait ever
 * longer, else an endpoint that lacks its minimum would stop and resume the gang for ever. */
static void stop_rest(const struct core *core, struct lease *lease)
{
    if (lease->going_on_reason != CORE_REASON_STOPPED_TOO_LONG) {
        lease->stops_capped = 0;
        return;
    }
    uint64_t stood_ns = core->now_ns - lease->stop_ns;
    uint64_t doublings = UINT64_C(1) << lease->stops_capped;
    lease->stop_again_ns = core_add_u64(core->now_ns, stood_ns);
    lease->stop_calm_ns = core_add_u64(core->now_ns, core_multiply_u64(stood_ns, doublings));
    lease->stops_capped += lease->stops_capped < STOP_DOUBLINGS_MAX;
}

static void stops_unlink(struct core *core, struct lease *lease)
{
    struct lease *next = lease->stop_next, *previous = lease->stop_previous;
    *(previous != NULL ? &previous->stop_next : &core->stops_first) = next;
    *(next != NULL ? &next->stop_previous : &core->stops_last) = previous;
    lease->stop_next = NULL;
    lease->stop_previous = NULL;
    core->stops_count--;
    core_stops_touch(core);
    stop_rest(core, lease);
}

void core_stop_follow_state(struct core *core, struct lease *lease, enum core_lease_state next)
{
    bool stopped = lease->state == CORE_LEASE_SUSPENDED;
    bool stops = next == CORE_LEASE_SUSPENDED;
    if (stops && !stopped) {
        stops_link(core, lease);
        lease->going_on_wanted = false;
        lease->going_on = false;
        lease->going_on_reason = CORE_REASON_NONE;
        lease->replaced = false;
        lease->idle_devices = 0;
        lease->idle_ns = 0;
        lease->idle_since_ns = core->now_ns;
        lease->then = CORE_LEASE_RUNNING;
    } else if (stopped && !stops) {
        stops_unlink(core, lease);
    }
}

uint64_t core_lease_stop_end_ns(const struct core *core, const struct lease *lease)
{
    uint64_t cap_ns =
        lease->spec.stopped_cap_ns != 0 ? lease->spec.stopped_cap_ns : core->config.stopped_cap_ns;
    return core_add_u64(lease->stop_ns, cap_ns);
}

void core_lease_stop(struct core *core, struct lease *lease, enum core_rung rung,
                     enum core_reason reason)
{
    assert(core_rung_stops(rung) && lease->leaving == 0);
    core_lease_move(core, lease, CORE_LEASE_SUSPENDED, reason);
    lease->stop_rung = rung;
    lease->stop_ns = core->now_ns;
    lease->stops++;
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        core_device_suspend(core, device, rung, reason);
    }
}

/* Beside its holder at work. What serving leaves for that is removed, the least urgent first. */
static bool room_for_holder(struct core *core, struct device *device)
{
    uint64_t bytes = device->lease->spec.memory_bytes, stays = bytes;
    for (size_t i = 0; i < core->endpoint_count && device->live.count > 0; i++) {
        struct endpoint *endpoint = core->ranked[i];
        if (!core_instance_serves(core_instance_of(device, endpoint))) {
            continue;
        }
        if (stays + endpoint->spec.memory_bytes > device->memory_bytes) {
            core_instance_remove(core, device, endpoint);
        } else {
            stays += endpoint->spec.memory_bytes;
        }
    }
    return device->hold != CORE_HOLD_SUSPENDED ||
           bytes + device->instances_bytes <= device->memory_bytes;
}

/* Once all its devices have the memory for it, the gang goes on. */
void core_stop_follow(struct core *core, struct lease *lease)
{
    bool room = true;
    if (!lease->going_on_wanted || lease->going_on || !core->reconciled) {
        return;
    }
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        room = (!core_device_stopped(device) || room_for_holder(core, device)) && room;
    }
    if (!room) {
        return;
    }
    lease->going_on = true;
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        if (core_device_stopped(device)) {
            core_device_resume(core, device, lease->going_on_reason);
        }
    }
}

void core_lease_go_on(struct core *core, struct lease *lease, enum core_reason reason)
{
    if (lease->state != CORE_LEASE_SUSPENDED || lease->going_on_wanted) {
        return;
    }
    lease->going_on_wanted = true;
    lease->going_on_reason = reason;
    core_lease_touch(core, lease);
    core->stop_length_ns =
        core_average_u64(core->stop_length_ns, core->now_ns - lease->stop_ns, 1, 4);
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        if (core_device_stopped(device)) { /* whether it ever stopped no longer matters */
            device->action = 0;
            device->deadline_ns = 0;
            core_device_touch(core, device);
        }
    }
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_RESUME, reason, lease->first, lease, NULL);
    explanation.rung = lease->stop_rung;
    core_explain(core, &explanation);
    core_stop_follow(core, lease);
}

/* What is wanted of the gang as soon as it is at work again; an end outranks a break. */
void core_stop_then(struct core *core, struct lease *lease, enum core_lease_state then,
                    enum core_reason reason)
{
    if (lease->then != CORE_LEASE_ENDING) {
        lease->then = then;
        lease->then_reason = reason;
    }
    core_lease_go_on(core, lease, reason);
}

/* After a device has left the stopped gang, or is at work again. */
void core_stop_settle(struct core *core, struct lease *lease, enum core_reason reason)
{
    uint32_t left = lease->held + lease->stopped;
    if (left > 0 && left < lease->spec.devices_min && core->reconciled &&
        lease->then == CORE_LEASE_RUNNING) {
        core_stop_then(core, lease, CORE_LEASE_DRAINING, reason);
    }
    if (left == 0) {
        bool ends = lease->then == CORE_LEASE_ENDING;
        core_lease_move(core, lease, ends ? CORE_LEASE_ENDING : CORE_LEASE_DRAINING,
                        lease->then != CORE_LEASE_RUNNING ? lease->then_reason : reason);
        core_lease_settle(core, lease);
    } else if (lease->stopped == 0) {
        core_lease_goes_on(core, lease);
    }
}

/* The rung is not tried again for a while, longer each time. */
static void stop_failed(struct core *core, struct lease *lease, enum core_reason reason)
{
    struct stop_failure *failure = &lease->stop_failures[lease->stop_rung - CORE_RUNG_FREEZE];
    uint32_t doublings = failure->count < 10 ? failure->count : 10;
    failure->count++;
    failure->until_ns = core_add_u64(core->now_ns, core->config.retry_ns << doublings);
    core_lease_touch(core, lease);
    core_lease_go_on(core, lease, reason);
}

static void device_stopped(struct core *core, struct device *device, uint64_t residue_bytes)
{
    struct lease *lease = device->lease;
    if (residue_bytes > MEMORY_MAX ||
        core_add_u64(residue_bytes, device->instances_bytes) > device->memory_bytes) {
        stop_failed(core, lease, CORE_REASON_NO_DEVICE_MEMORY);
        return;
    }
    core_rung_took(core, device, device->rung, core->now_ns - device->revoked_ns);
    core_device_suspended(core, device, residue_bytes);
    lease->stop_failures[device->rung - CORE_RUNG_FREEZE].count = 0;
}

/* It did not go on: it is asked to let go, and whoever is left of its gang after that. */
static void device_stuck(struct core *core, struct device *device)
{
    struct lease *lease = device->lease;
    core_stop_then(core, lease, CORE_LEASE_DRAINING, CORE_REASON_ACTION_LOST);
    core_device_revoke(core, device, core_rung_for_all(lease), CORE_REASON_ACTION_LOST);
    core_stop_settle(core, lease, CORE_REASON_ACTION_LOST);
}

void core_stop_answered(struct core *core, struct device *device, const struct core_event *event)
{
    if (device->hold == CORE_HOLD_SUSPENDING && event->kind == CORE_EVENT_SUSPENDED) {
        device_stopped(core, device, event->suspended.residue_bytes);
    } else if (device->hold == CORE_HOLD_SUSPENDING && event->kind == CORE_EVENT_ACTION_FAILED) {
        stop_failed(core, device->lease, CORE_REASON_RUNG_FAILED);
    } else if (device->hold == CORE_HOLD_RESUMING && event->kind == CORE_EVENT_RESUMED) {
        struct lease *lease = device->lease;
        core_rung_gave(core, device, device->rung, core->now_ns - device->revoked_ns);
        core_device_resumed(core, device);
        core_stop_settle(core, lease, CORE_REASON_NONE);
    } else if (device->hold == CORE_HOLD_RESUMING && event->kind == CORE_EVENT_ACTION_FAILED) {
        device_stuck(core, device);
    }
}

/* A batch that runs there ends first, however long it is; the holder goes on after it. */
static bool batch_runs(const struct core *core, const struct device *device)
{
    return device->served_ns != NEVER_NS &&
           core->now_ns - device->served_ns < core->config.sample_stale_ns;
}

void core_stop_overdue(struct core *core, struct device *device)
{
    if (device->hold == CORE_HOLD_SUSPENDING) {
        stop_failed(core, device->lease, CORE_REASON_ACTION_LOST);
    } else if (device->hold == CORE_HOLD_RESUMING && batch_runs(core, device)) {
        device->deadline_ns = core_add_u64(core->now_ns, core->config.action_timeout_ns);
        core_device_touch(core, device);
    } else if (device->hold == CORE_HOLD_RESUMING) {
        device_stuck(core, device);
    } else {
        core_lease_go_on(core, device->lease, CORE_REASON_STOPPED_TOO_LONG);
    }
}

/* Found by a restart as it was left; its stop was a move of this hour. */
void core_stop_restore(struct core *core, struct device *device, struct lease *lease,
                       const struct core_event *event)
{
    uint64_t stopped_ns = event->restored_grant.stopped_ns;
    uint64_t since_ns = core->now_ns > stopped_ns ? core->now_ns - stopped_ns : 0;
    if (lease->state != CORE_LEASE_SUSPENDED) {
        core_lease_move(core, lease, CORE_LEASE_SUSPENDED, CORE_REASON_RESTORED);
        lease->stop_ns = since_ns;
    }
    lease->stop_rung = event->restored_grant.stopped;
    lease->stop_ns = since_ns < lease->stop_ns ? since_ns : lease->stop_ns;
    core_device_restore_stopped(core, device, lease, event->restored_grant.generation,
                                event->restored_grant.residue_bytes);
    core_device_count_move(core, device);
}

/* A gang that was found half stopped goes on. */
void core_stops_restored(struct core *core)
{
    struct lease *next;
    for (struct lease *lease = core->stops_first; lease != NULL; lease = next) {
        next = lease->stop_next;
        core_stop_settle(core, lease, CORE_REASON_RESTORED);
        if (lease->state == CORE_LEASE_SUSPENDED && lease->held > 0) {
            core_lease_go_on(core, lease, CORE_REASON_RESTORED);
        }
        core_stop_follow(core, lease);
    }
}
