/* checks.c: what the actions say, followed beside the core: no device is granted between its grant
 * and a verified release, tokens only grow, nothing is killed before a deadline has passed. */
#include <inttypes.h>
#include <string.h>

#include "tests/sim/world_state.h"

#define EXTENSION_NS SECONDS(6) /* configured */

static void require(const struct world *world, bool holds, const char *what, uint64_t device)
{
    if (!holds) {
        fail_msg("seed %" PRIu64 ", step %" PRIu64 ", device %" PRIu64 ": %s", world->rig->seed,
                 world->rig->steps, device, what);
    }
}

static void shadow_grant(struct world *world, const struct core_action *action)
{
    uint64_t id = action->grant.device;
    struct shadow_device *device = &world->devices[id];
    require(world, device->owner == 0 && !device->unverified,
            "granted before its former holder was verified gone", id);
    require(world, action->grant.token.generation > world->generation, "an old token was used", id);
    world->generation = action->grant.token.generation;
    device->owner = action->grant.lease;
    device->generation = action->grant.token.generation;
    device->committed = false;
    device->stopped = CORE_RUNG_NONE;
    device->stop = 0;
    device->deadline_ns = 0;
}

static void shadow_lose(struct shadow_device *device)
{
    device->unverified = device->unverified || device->owner != 0;
    device->owner = 0;
    device->verify = 0;
    device->stop = 0;
    device->deadline_ns = 0;
}

static void shadow_revoke(struct world *world, const struct core_action *action)
{
    struct shadow_device *device = &world->devices[action->revoke.device];
    const struct core_lease_spec *spec = &world->leases[action->revoke.lease].spec;
    if (action->revoke.rung == CORE_RUNG_NONE) {
        shadow_lose(device);
    } else if (world_rung_stops(action->revoke.rung)) {
        require(world, (spec->rungs_mask >> action->revoke.rung) & 1, "stopped by a rung it lacks",
                action->revoke.device);
        device->stop = action->id;
    } else {
        require(world, device->stopped == CORE_RUNG_NONE, "asked to let go while it stood still",
                action->revoke.device);
        device->deadline_ns = action->revoke.deadline_ns;
        device->latest_ns = action->revoke.deadline_ns +
                            (spec->extension_ns != 0 ? spec->extension_ns : EXTENSION_NS);
        device->extended = !spec->extension;
    }
}

static void shadow_extend(struct world *world, const struct core_action *action)
{
    struct shadow_device *device = &world->devices[action->revoke.device];
    require(world, device->deadline_ns != 0 && !device->extended, "extended without a right to it",
            action->revoke.device);
    require(world,
            action->revoke.deadline_ns > device->deadline_ns &&
                action->revoke.deadline_ns <= device->latest_ns,
            "extended beyond the bound", action->revoke.device);
    device->extended = true;
    device->deadline_ns = action->revoke.deadline_ns;
}

static void shadow_moved(struct world *world, const struct core_action *action)
{
    struct shadow_lease *lease = &world->leases[action->lease.lease];
    if (action->lease.state == CORE_LEASE_ENDED) {
        lease->alive = false;
    }
}

static void shadow_kill(const struct world *world, const struct core_action *action)
{
    const struct shadow_device *device = &world->devices[action->revoke.device];
    require(world,
            device->owner == action->revoke.lease && device->deadline_ns != 0 &&
                world->rig->now_ns >= device->deadline_ns,
            "killed before its deadline passed", action->revoke.device);
}

void checks_action(struct world *world, const struct core_action *action)
{
    switch (action->kind) {
    case CORE_ACTION_GRANT:
        shadow_grant(world, action);
        break;
    case CORE_ACTION_REVOKE:
        shadow_revoke(world, action);
        break;
    case CORE_ACTION_KILL:
        shadow_kill(world, action);
        break;
    case CORE_ACTION_EXTEND:
        shadow_extend(world, action);
        break;
    case CORE_ACTION_RESUME: /* from here on it may be at work again, whether it answers or not */
        world->devices[action->revoke.device].stopped = CORE_RUNG_NONE;
        world->devices[action->revoke.device].stop = 0;
        break;
    case CORE_ACTION_VERIFY:
        world->devices[action->device.device].verify = action->id;
        break;
    case CORE_ACTION_QUARANTINE:
        shadow_lose(&world->devices[action->device.device]);
        break;
    case CORE_ACTION_LEASE_MOVED:
        shadow_moved(world, action);
        break;
    default:
        break;
    }
}

/* The holder does stand still, whatever the core makes of its answer. */
static void shadow_stopped(const struct world *world, struct shadow_device *device,
                           const struct core_event *event)
{
    struct core_device_view view;
    if (device->stop != 0 && event->suspended.action == device->stop &&
        core_device_find(world->rig->core, event->suspended.device, &view)) {
        device->stopped = view.rung;
        device->stopped_ns = world->rig->now_ns;
        device->residue_bytes = event->suspended.residue_bytes;
        device->stop = 0;
    }
}

void checks_event(struct world *world, const struct core_event *event)
{
    struct shadow_device *device = NULL;
    switch (event->kind) {
    case CORE_EVENT_RELEASE_VERIFIED:
        device = &world->devices[event->verified.device % (DEVICES + 1)];
        if (event->verified.gone && event->verified.action == device->verify &&
            device->verify != 0) {
            device->owner = 0;
            device->unverified = false;
            device->verify = 0;
        }
        break;
    case CORE_EVENT_SUSPENDED:
        device = &world->devices[event->suspended.device % (DEVICES + 1)];
        shadow_stopped(world, device, event);
        break;
    case CORE_EVENT_DEVICE_FAILED:
        shadow_lose(&world->devices[event->device.device]);
        break;
    case CORE_EVENT_DEVICE_REMOVED:
        memset(&world->devices[event->device.device], 0, sizeof *device);
        break;
    default:
        break;
    }
}

void checks_follow(struct world *world)
{
    for (uint64_t id = 1; id <= DEVICES; id++) {
        struct core_device_view view;
        world->devices[id].present = core_device_find(world->rig->core, id, &view);
        bool held = view.hold == CORE_HOLD_HELD || view.hold == CORE_HOLD_SUSPENDING ||
                    view.hold == CORE_HOLD_SUSPENDED || view.hold == CORE_HOLD_RESUMING;
        world->devices[id].committed = world->devices[id].present && held;
    }
}
