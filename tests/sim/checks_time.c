/* checks_time.c: invariants 2 and 6 by their history: deadlines are kept and moved at most once;
 * moves that the core chose are bounded by the hour and rest between each other. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/checks.h"

void checks_time_forget(struct seen_device *device)
{
    device->extended = false;
    device->deadline_ns = 0;
    device->stop = 0;
    device->stop_deadline_ns = 0;
}

/* ---- moves ---- */

static bool for_serving(enum core_reason reason)
{
    return reason == CORE_REASON_DEMAND || reason == CORE_REASON_SUSTAINED_LOAD;
}

static bool chosen(enum core_reason reason)
{
    return for_serving(reason) || reason == CORE_REASON_GANG_MINIMUM ||
           reason == CORE_REASON_PRIORITY || reason == CORE_REASON_FAIR_SHARE ||
           reason == CORE_REASON_QUOTA_RETURNED;
}

static void moves_add(struct seen_moves *moves, uint64_t now_ns)
{
    size_t old = 0;
    while (old < moves->count && now_ns - moves->times_ns[old] >= SECONDS(3600)) {
        old++;
    }
    moves->count -= old;
    if (old > 0) {
        memmove(moves->times_ns, moves->times_ns + old, moves->count * sizeof *moves->times_ns);
    }
    if (moves->count == moves->capacity) {
        moves->capacity = moves->capacity * 2 + 16;
        moves->times_ns = realloc(moves->times_ns, moves->capacity * sizeof *moves->times_ns);
        assert_non_null(moves->times_ns);
    }
    moves->times_ns[moves->count++] = now_ns;
}

static void on_move(struct checks *checks, struct seen_device *device,
                    const struct core_action *action)
{
    struct seen_moves *moves = &device->moves;
    /* An SLO in danger may use extra moves, and need not wait; nor need who wants back its own. */
    bool urgent =
        for_serving(action->revoke.reason) && checks->rig->now_ns < checks->danger_until_ns;
    bool at_once = urgent || action->revoke.reason == CORE_REASON_QUOTA_RETURNED;
    uint64_t bound = checks->config.moves_per_hour + (urgent ? checks->config.moves_extra : 0);
    uint64_t now_ns = checks->rig->now_ns;
    if (moves->count > 0) {
        uint64_t last_ns = moves->times_ns[moves->count - 1];
        checks_require(checks, at_once || now_ns - last_ns >= checks->config.hold_min_ns,
                       "6: moved again before its hold time was over: device",
                       action->revoke.device);
    }
    moves_add(moves, now_ns);
    checks_require(checks, moves->count <= bound, "6: moved too often in an hour: device",
                   action->revoke.device);
}

/* ---- deadlines ---- */

static void on_stop(struct checks *checks, const struct core_action *action)
{
    struct seen_device *device = checks_device(checks, action->revoke.device);
    const struct core_lease_spec *spec = &checks->leases[action->revoke.lease].spec;
    checks_require(checks, (spec->rungs_mask >> action->revoke.rung) & 1,
                   "stopped by a rung it lacks: device", action->revoke.device);
    checks_require(checks,
                   action->revoke.deadline_ns <=
                       checks->rig->now_ns + checks->config.suspend_deadline_ns,
                   "2: the deadline of a stop is too far away: device", action->revoke.device);
    device->stop = action->id;
    device->stop_deadline_ns = action->revoke.deadline_ns;
    on_move(checks, device, action);
    device->moved_by_stop = true;
}

static uint64_t span_ns(const struct checks *checks, const struct core_lease_spec *spec)
{
    if (spec->in_process) {
        return checks->config.shrink_deadline_ns;
    }
    return spec->notice_ns != 0 ? spec->notice_ns : checks->config.notice_ns;
}

static void on_revoke(struct checks *checks, const struct core_action *action)
{
    struct seen_device *device = checks_device(checks, action->revoke.device);
    const struct core_lease_spec *spec = &checks->leases[action->revoke.lease].spec;
    uint64_t deadline_ns = action->revoke.deadline_ns;
    checks_require(checks, deadline_ns <= checks->rig->now_ns + span_ns(checks, spec),
                   "2: a deadline is too far away: device", action->revoke.device);
    checks_require(checks, device->deadline_ns == 0 || deadline_ns <= device->deadline_ns,
                   "2: a second revoke moves the deadline: device", action->revoke.device);
    checks_require(checks, device->stopped == CORE_RUNG_NONE,
                   "asked to let go while it stands still: device", action->revoke.device);
    device->deadline_ns = deadline_ns;
    device->extended = !spec->extension;
    /* A stop that lasts becomes a notice: one move. */
    bool follows = device->moved_by_stop && action->revoke.reason == CORE_REASON_SUSTAINED_LOAD;
    if (chosen(action->revoke.reason) && !follows) {
        on_move(checks, device, action);
        device->moved_by_stop = false;
    }
}

static void on_extend(struct checks *checks, const struct core_action *action)
{
    struct seen_device *device = checks_device(checks, action->revoke.device);
    const struct core_lease_spec *spec = &checks->leases[action->revoke.lease].spec;
    uint64_t bound = spec->extension_ns != 0 ? spec->extension_ns : checks->config.extension_ns;
    checks_require(checks, device->deadline_ns != 0 && !device->extended,
                   "2: extended without a right to it: device", action->revoke.device);
    checks_require(checks, action->revoke.deadline_ns <= device->deadline_ns + bound,
                   "2: extended beyond the bound: device", action->revoke.device);
    device->extended = true;
    device->deadline_ns = action->revoke.deadline_ns;
}

/* One KILL takes all devices of the lease. */
static void on_kill(struct checks *checks, const struct core_action *action)
{
    const struct seen_device *device = checks_device(checks, action->revoke.device);
    uint64_t now_ns = checks->rig->now_ns;
    checks_require(checks,
                   device->owner == action->revoke.lease && device->deadline_ns != 0 &&
                       now_ns >= device->deadline_ns,
                   "9: killed before its deadline passed: device", action->revoke.device);
    checks_require(checks, action->revoke.deadline_ns <= now_ns + checks->config.kill_bound_ns,
                   "2: the kill bound is exceeded: lease", action->revoke.lease);
    for (size_t id = 1; id <= SIM_DEVICES_MAX; id++) {
        struct seen_device *other = &checks->devices[id];
        if (other->owner == action->revoke.lease && other->verify == 0) {
            checks_time_forget(other);
            other->deadline_ns = now_ns;
        }
    }
}

void checks_time_action(struct checks *checks, const struct core_action *action)
{
    switch (action->kind) {
    case CORE_ACTION_REVOKE:
        if (action->revoke.rung >= CORE_RUNG_FREEZE && action->revoke.rung <= CORE_RUNG_SWAP) {
            on_stop(checks, action);
        } else if (action->revoke.rung != CORE_RUNG_NONE) {
            on_revoke(checks, action);
        }
        break;
    case CORE_ACTION_EXTEND:
        on_extend(checks, action);
        break;
    case CORE_ACTION_KILL:
        on_kill(checks, action);
        break;
    case CORE_ACTION_RESUME: /* from here on it may be at work, whether it answers or not */
        checks_time_forget(checks_device(checks, action->revoke.device));
        checks_device(checks, action->revoke.device)->stopped = CORE_RUNG_NONE;
        break;
    case CORE_ACTION_VERIFY:
    case CORE_ACTION_QUARANTINE:
        checks_time_forget(checks_device(checks, action->device.device));
        break;
    default:
        break;
    }
}

static bool endangers(const struct checks *checks, const struct core_event *event)
{
    uint64_t id = event->endpoint.endpoint;
    return event->kind == CORE_EVENT_ENDPOINT_DANGER ||
           (event->kind == CORE_EVENT_ENDPOINT_SAMPLE && id <= SIM_ENDPOINTS_MAX &&
            event->endpoint_sample.oldest_wait_ns > checks->endpoints[id].slo_ns / 2);
}

/* The holder does stand still, whatever the core makes of its answer; or it has refused to. */
void checks_time_event(struct checks *checks, const struct core_event *event)
{
    struct seen_device *device = checks_device(checks, event->suspended.device);
    struct core_device_view view;
    bool refused = event->kind == CORE_EVENT_ACTION_FAILED;
    if (endangers(checks, event)) {
        checks->danger_until_ns = checks->rig->now_ns + checks->config.danger_hold_ns;
    }
    if ((event->kind != CORE_EVENT_SUSPENDED && !refused) || device == NULL || device->stop == 0 ||
        event->suspended.action != device->stop ||
        !core_device_find(checks->rig->core, event->suspended.device, &view)) {
        return;
    }
    device->stop = 0;
    device->stop_deadline_ns = 0;
    if (!refused) {
        device->stopped = view.rung;
        device->stopped_ns = checks->rig->now_ns;
        device->residue_bytes = event->suspended.residue_bytes;
    }
}

/* A stop that was not answered is taken back, once the instances that came for it are gone. */
static uint64_t stop_bound_ns(const struct checks *checks, const struct seen_device *device)
{
    return device->stop_deadline_ns + checks->config.place_timeout_ns +
           checks->config.action_timeout_ns;
}

void checks_time_step(struct checks *checks)
{
    uint64_t now_ns = checks->rig->now_ns, kill_ns = checks->config.kill_bound_ns;
    for (uint64_t id = 1; id <= SIM_DEVICES_MAX; id++) {
        const struct seen_device *device = &checks->devices[id];
        checks_require(checks, device->deadline_ns == 0 || now_ns < device->deadline_ns + kill_ns,
                       "2: a revoke has not ended by its deadline and the kill bound: device", id);
        checks_require(checks,
                       device->stop_deadline_ns == 0 || now_ns < stop_bound_ns(checks, device),
                       "2: a stop has neither ended nor been taken back: device", id);
    }
}
