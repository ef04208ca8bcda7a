/* checks.c: see checks.h. Who has which device, by the actions alone. */
#include "tests/sim/checks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void (*checks_more)(const struct checks *checks);

struct checks *checks_create(struct rig *rig, const struct core_config *config)
{
    struct checks *checks = calloc(1, sizeof *checks);
    assert_non_null(checks);
    checks->rig = rig;
    checks->config = *config;
    checks->acts = config->mode == CORE_MODE_ACT;
    return checks;
}

void checks_destroy(struct checks *checks)
{
    for (size_t id = 0; id <= SIM_DEVICES_MAX; id++) {
        free(checks->devices[id].moves.times_ns);
    }
    history_fini(&checks->history);
    free(checks);
}

void checks_require(const struct checks *checks, bool holds, const char *what, uint64_t object)
{
    if (!holds) {
        fail_msg("%s seed %" PRIu64 ", step %" PRIu64 ": %s: %" PRIu64, checks->rig->place,
                 checks->rig->seed, checks->rig->steps, what, object);
    }
}

struct seen_device *checks_device(struct checks *checks, uint64_t device)
{
    return device > 0 && device <= SIM_DEVICES_MAX ? &checks->devices[device] : NULL;
}

struct seen_lease *checks_lease(struct checks *checks, uint64_t lease)
{
    return lease > 0 && lease <= SIM_LEASES_MAX ? &checks->leases[lease] : NULL;
}

/* ---- actions ---- */

static void on_grant(struct checks *checks, const struct core_action *action)
{
    uint64_t id = action->grant.device;
    struct seen_device *device = checks_device(checks, id);
    checks_require(checks, device != NULL && device->present, "granted, but not there: device", id);
    checks_require(checks, device->owner == 0 && !device->unverified,
                   "granted before its former holder was verified gone: device", id);
    checks_require(checks, action->grant.token.generation > checks->generation,
                   "granted with an old token: device", id);
    checks->generation = action->grant.token.generation;
    device->owner = action->grant.lease;
    device->generation = action->grant.token.generation;
    device->committed = false;
    device->stopped = CORE_RUNG_NONE;
    checks_time_forget(device);
}

static void lose(struct seen_device *device)
{
    device->unverified = device->unverified || device->owner != 0;
    device->owner = 0;
    device->verify = 0;
    checks_time_forget(device);
}

static void on_action(struct checks *checks, const struct core_action *action)
{
    history_add(&checks->history, action);
    checks_time_action(checks, action);
    switch (action->kind) {
    case CORE_ACTION_GRANT:
        on_grant(checks, action);
        break;
    case CORE_ACTION_REVOKE:
        if (action->revoke.rung == CORE_RUNG_NONE) {
            lose(checks_device(checks, action->revoke.device));
        }
        break;
    case CORE_ACTION_VERIFY:
        checks_device(checks, action->device.device)->verify = action->id;
        break;
    case CORE_ACTION_QUARANTINE:
        lose(checks_device(checks, action->device.device));
        break;
    case CORE_ACTION_LEASE_MOVED:
        if (action->lease.state == CORE_LEASE_ENDED) {
            checks_lease(checks, action->lease.lease)->alive = false;
        }
        break;
    default:
        break;
    }
}

/* ---- events ---- */

static void on_verified(struct checks *checks, const struct core_event *event)
{
    struct seen_device *device = checks_device(checks, event->verified.device);
    if (device != NULL && event->verified.gone && device->verify != 0 &&
        event->verified.action == device->verify) {
        device->owner = 0;
        device->unverified = false;
        device->verify = 0;
    }
}

void checks_event(struct checks *checks, const struct core_event *event)
{
    struct seen_device *device = checks_device(checks, event->device.device);
    checks_token_event(checks, event);
    checks_ledger_event(checks, event);
    checks_time_event(checks, event);
    switch (event->kind) {
    case CORE_EVENT_RELEASE_VERIFIED:
        on_verified(checks, event);
        break;
    case CORE_EVENT_DEVICE_FAILED:
        if (device != NULL) {
            lose(device);
        }
        break;
    default:
        break;
    }
}

/* ---- after the step ---- */

static bool rejected(const struct checks *checks)
{
    return rig_find(checks->rig, CORE_ACTION_REJECT) != NULL;
}

static void forget_device(struct checks *checks, struct seen_device *device)
{
    checks->ledger.elapsed_ns += checks->rig->now_ns - device->added_ns;
    free(device->moves.times_ns);
    memset(device, 0, sizeof *device);
}

static void learn_device(struct checks *checks, const struct core_event *event)
{
    struct seen_device *device = checks_device(checks, event->device.device);
    if (rejected(checks) || device == NULL) {
        return;
    }
    if (event->kind == CORE_EVENT_DEVICE_REMOVED) {
        forget_device(checks, device);
        return;
    }
    device->present = true;
    device->spec = event->device_added;
    device->added_ns = checks->rig->now_ns;
}

static void learn_lease(struct checks *checks, const struct core_event *event)
{
    struct seen_lease *lease = checks_lease(checks, event->lease.lease);
    if (rejected(checks) || lease == NULL) {
        return;
    }
    if (event->kind == CORE_EVENT_LEASE_RESIZED) {
        lease->spec.devices_min = event->lease_resized.devices_min;
        lease->spec.devices_max = event->lease_resized.devices_max;
    } else {
        *lease = (struct seen_lease){.alive = true, .spec = event->lease_spec};
    }
}

static void learn_grant(struct checks *checks, const struct core_event *event)
{
    struct seen_device *device = checks_device(checks, event->restored_grant.device);
    const struct seen_lease *lease = checks_lease(checks, event->restored_grant.lease);
    if (checks->reconciled || rejected(checks) || device == NULL || !device->present ||
        lease == NULL || !lease->alive) {
        return;
    }
    device->owner = event->restored_grant.lease;
    device->generation = event->restored_grant.generation;
    if (event->restored_grant.alive) {
        device->stopped = event->restored_grant.stopped;
        device->stopped_ns = checks->rig->now_ns - event->restored_grant.stopped_ns;
        device->residue_bytes = event->restored_grant.residue_bytes;
    }
}

static void learn_endpoint(struct checks *checks, const struct core_event *event)
{
    uint64_t id = event->endpoint.endpoint;
    if (rejected(checks) || id == 0 || id > SIM_ENDPOINTS_MAX) {
        return;
    }
    if (event->kind == CORE_EVENT_ENDPOINT_REMOVED) {
        checks->endpoints[id].endpoint = 0;
    } else {
        checks->endpoints[id] = event->endpoint_spec;
    }
}

static void learn_team(struct checks *checks, const struct core_event *event)
{
    uint64_t id = event->team.team;
    if (rejected(checks) || id > SIM_TEAMS_MAX) {
        return;
    }
    if (event->kind == CORE_EVENT_TEAM_REMOVED) {
        checks->teams[id].weight = 0;
    } else {
        checks->teams[id] = event->team_spec;
    }
}

static void learn(struct checks *checks, const struct core_event *event)
{
    switch (event->kind) {
    case CORE_EVENT_DEVICE_ADDED:
    case CORE_EVENT_DEVICE_REMOVED:
        learn_device(checks, event);
        break;
    case CORE_EVENT_LEASE_REQUESTED:
    case CORE_EVENT_LEASE_RESIZED:
    case CORE_EVENT_RESTORED_LEASE:
        learn_lease(checks, event);
        break;
    case CORE_EVENT_RESTORED_GRANT:
        learn_grant(checks, event);
        break;
    case CORE_EVENT_TEAM_CHANGED:
    case CORE_EVENT_TEAM_REMOVED:
        learn_team(checks, event);
        break;
    case CORE_EVENT_RECONCILE_DONE:
        checks->reconciled = true;
        break;
    case CORE_EVENT_ENDPOINT_ADDED:
    case CORE_EVENT_ENDPOINT_CHANGED:
    case CORE_EVENT_ENDPOINT_REMOVED:
        learn_endpoint(checks, event);
        break;
    default:
        break;
    }
}

void checks_step(struct checks *checks, const struct core_event *event)
{
    struct core_device_view view;
    learn(checks, event);
    for (size_t i = 0; i < checks->rig->count; i++) {
        on_action(checks, &checks->rig->actions[i]);
    }
    checks->acts =
        core_mode_now(checks->rig->core) == CORE_MODE_ACT && !core_hold_now(checks->rig->core);
    for (size_t i = 0; core_device_at(checks->rig->core, i, &view); i++) {
        checks_device(checks, view.device)->committed =
            view.hold == CORE_HOLD_HELD || view.hold == CORE_HOLD_SUSPENDING ||
            view.hold == CORE_HOLD_SUSPENDED || view.hold == CORE_HOLD_RESUMING;
    }
    checks_time_step(checks);
    checks_token_step(checks, event);
    checks_ledger_step(checks);
    checks_queue_step(checks);
    if (checks_more != NULL) {
        checks_more(checks);
    }
}

/* ---- life ---- */

/* An added device is vouched for by whoever adds it: it has no former holder. */
void checks_crash(struct checks *checks, const struct core_config *config)
{
    for (size_t id = 0; id <= SIM_DEVICES_MAX; id++) {
        free(checks->devices[id].moves.times_ns);
    }
    memset(checks->devices, 0, sizeof checks->devices);
    memset(checks->leases, 0, sizeof checks->leases);
    memset(checks->endpoints, 0, sizeof checks->endpoints);
    memset(checks->teams, 0, sizeof checks->teams);
    memset(&checks->ledger, 0, sizeof checks->ledger);
    memset(&checks->late, 0, sizeof checks->late);
    history_crash(&checks->history);
    checks->reconciled = false;
    checks->danger_until_ns = 0;
    checks->config = *config;
}

/* A gang that is stopped in place for load that only its devices can take is stopped and resumed
 * for as long as that lasts: this is no hanging. */
void checks_settled(const struct checks *checks)
{
    struct core_device_view device;
    for (size_t i = 0; core_device_at(checks->rig->core, i, &device); i++) {
        bool well = device.health == CORE_HEALTH_OK || device.health == CORE_HEALTH_SLOW;
        bool stops = device.hold == CORE_HOLD_SUSPENDING || device.hold == CORE_HOLD_SUSPENDED ||
                     device.hold == CORE_HOLD_RESUMING;
        checks_require(checks, well, "stays failed or quarantined: device", device.device);
        checks_require(checks,
                       stops || device.hold == CORE_HOLD_NONE || device.hold == CORE_HOLD_HELD,
                       "stays on its way: device", device.device);
    }
    struct core_lease_view lease;
    for (size_t i = 0; core_lease_at(checks->rig->core, i, &lease); i++) {
        checks_require(checks,
                       lease.state != CORE_LEASE_DRAINING && lease.state != CORE_LEASE_ENDING,
                       "stays on its way: lease", lease.spec.lease);
    }
}
