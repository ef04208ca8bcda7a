/* operators.c: what operators do: modes, hold; and messages that answer nothing. */
#include "tests/sim/world_state.h"

void world_send_operator(struct world *world)
{
    struct core_event event = {.kind = CORE_EVENT_HOLD, .hold = {.on = world_chance(world, 20)}};
    if (world_chance(world, 40)) {
        event.kind = CORE_EVENT_MODE_CHANGED;
        event.mode.mode =
            world_chance(world, 75) ? CORE_MODE_ACT : (enum core_mode)world_draw(world, 3);
    }
    rig_send(world->rig, event);
}

/* An answer to nothing: any id, any device. */
void world_send_nonsense(struct world *world)
{
    static const enum core_event_kind kinds[] = {
        CORE_EVENT_INSTANCE_READY,    CORE_EVENT_REVOKE_ACKNOWLEDGED, CORE_EVENT_RELEASE_VERIFIED,
        CORE_EVENT_ACTION_DONE,       CORE_EVENT_ACTION_FAILED,       CORE_EVENT_SUSPENDED,
        CORE_EVENT_RESUMED,           CORE_EVENT_INSTANCE_STOPPED,    CORE_EVENT_RESTORED_GRANT,
        CORE_EVENT_RESTORED_INSTANCE,
    };
    struct core_event event = {.kind = kinds[world_draw(world, sizeof kinds / sizeof *kinds)]};
    uint64_t device = world_draw(world, world->device_count + 2);
    if (event.kind == CORE_EVENT_INSTANCE_READY || event.kind == CORE_EVENT_INSTANCE_STOPPED ||
        event.kind == CORE_EVENT_RESTORED_INSTANCE) {
        event.instance.action = world_draw(world, 1000);
        event.instance.endpoint = world_draw(world, world->endpoint_count + 2);
        event.instance.device = device;
    } else if (event.kind == CORE_EVENT_RESTORED_GRANT) {
        event.restored_grant.lease = world_draw(world, world->lease_count + 2);
        event.restored_grant.device = device;
        event.restored_grant.generation = world_draw(world, world->checks->generation + 2);
    } else {
        event.verified.action = world_draw(world, 1000);
        event.verified.device = device;
        event.verified.gone = event.kind == CORE_EVENT_RELEASE_VERIFIED;
    }
    rig_send(world->rig, event);
}
