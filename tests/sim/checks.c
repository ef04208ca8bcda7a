/* checks.c: what the actions say, followed beside the core: no device is granted between its grant
 * and a verified release, tokens only grow, nothing is killed before a deadline has passed. */
#include <inttypes.h>
#include <string.h>

#include "tests/sim/world_state.h"

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
}

static void shadow_lose(struct shadow_device *device)
{
    device->unverified = device->unverified || device->owner != 0;
    device->owner = 0;
    device->verify = 0;
}

static void shadow_revoke(struct world *world, const struct core_action *action)
{
    struct shadow_lease *lease = &world->leases[action->revoke.lease];
    if (action->revoke.rung == CORE_RUNG_NONE) {
        shadow_lose(&world->devices[action->revoke.device]);
        return;
    }
    if (!lease->revoked || action->revoke.deadline_ns < lease->deadline_ns) {
        lease->deadline_ns = action->revoke.deadline_ns;
    }
    lease->revoked = true;
}

static void shadow_moved(struct world *world, const struct core_action *action)
{
    struct shadow_lease *lease = &world->leases[action->lease.lease];
    if (action->lease.state == CORE_LEASE_ENDED) {
        lease->alive = false;
    }
    if (action->lease.state != CORE_LEASE_RUNNING && action->lease.state != CORE_LEASE_DRAINING &&
        action->lease.state != CORE_LEASE_ENDING) {
        lease->revoked = false;
    }
}

static void shadow_kill(const struct world *world, const struct core_action *action)
{
    const struct shadow_lease *lease = &world->leases[action->revoke.lease];
    require(world, lease->revoked && world->rig->now_ns >= lease->deadline_ns,
            "killed before a deadline passed", action->revoke.device);
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
        world->devices[id].committed = world->devices[id].present && view.hold == CORE_HOLD_HELD;
    }
}
