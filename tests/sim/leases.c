/* leases.c: what owners ask for and what holders report, with current and with old tokens. */
#include "tests/sim/world_state.h"

void world_send_lease(struct world *world)
{
    uint64_t id = 1 + world_draw(world, LEASES);
    struct shadow_lease *lease = &world->leases[id];
    /* One statement a draw: inside an initialiser their order is the compiler's choice. */
    struct core_lease_spec spec = {.lease = id};
    spec.devices_min = 1 + (uint32_t)world_draw(world, 3);
    spec.priority = (int32_t)world_draw(world, 3);
    spec.kinds_mask = 1 + (uint32_t)world_draw(world, 3);
    spec.memory_bytes = world_draw(world, 60);
    spec.until_ns =
        world_chance(world, 10) ? world->rig->now_ns + world_draw(world, SECONDS(60)) : 0;
    spec.preemptible = world_chance(world, 80);
    spec.in_process = world_chance(world, world->outside ? 10 : 50);
    spec.devices_max = spec.devices_min + (uint32_t)world_draw(world, 3);
    world_lease_terms(world, &spec);
    world_draw_rungs(world, &spec);
    bool fresh = !lease->alive;
    if (fresh) {
        lease->spec = spec;
        lease->alive = true;
    }
    rig_request(world->rig, spec);
    if (fresh && rig_find(world->rig, CORE_ACTION_REJECT) != NULL) {
        lease->alive = false;
    }
}

void world_send_holder(struct world *world)
{
    uint64_t id = 1 + world_draw(world, LEASES);
    struct core_lease_view view;
    if (!core_lease_find(world->rig->core, id, &view)) {
        return;
    }
    uint64_t generation =
        world_chance(world, 80) ? view.run : world_draw(world, world->generation + 2);
    uint64_t device = world_chance(world, 50) ? 0 : 1 + world_draw(world, DEVICES);
    if (device != 0 && world_chance(world, 80)) {
        generation = world->devices[device].generation;
    }
    struct core_event event = {0};
    switch (world_draw(world, 8)) {
    case 0:
        event.kind = CORE_EVENT_LEASE_RELEASED;
        event.lease_released.device = device;
        event.lease_released.generation = generation;
        break;
    case 1:
        event.kind = CORE_EVENT_JOB_EXITED;
        event.job_exited.generation = generation;
        event.job_exited.kept = world_chance(world, 50);
        event.job_exited.again = world_chance(world, 50);
        event.job_exited.failed = world_chance(world, 50);
        break;
    default:
        event.kind = CORE_EVENT_LEASE_PROGRESS;
        event.lease_progress.generation = generation;
        event.lease_progress.step = view.step + world_draw(world, 5);
        event.lease_progress.checkpointed_step =
            view.checkpointed_step + world_draw(world, view.step - view.checkpointed_step + 1);
        break;
    }
    event.lease.lease = id;
    rig_send(world->rig, event);
}

void world_send_owner(struct world *world)
{
    static const enum core_event_kind kinds[] = {CORE_EVENT_LEASE_PAUSED, CORE_EVENT_LEASE_RESUMED,
                                                 CORE_EVENT_LEASE_RESUMED,
                                                 CORE_EVENT_LEASE_CANCELLED};
    uint64_t id = 1 + world_draw(world, LEASES);
    if (world_chance(world, 70)) {
        rig_lease_event(world->rig, kinds[world_draw(world, 4)], id);
        return;
    }
    struct core_event event = {.kind = CORE_EVENT_LEASE_RESIZED, .lease_resized = {.lease = id}};
    event.lease_resized.devices_min = (uint32_t)world_draw(world, 4);
    event.lease_resized.devices_max = (uint32_t)world_draw(world, 6);
    rig_send(world->rig, event);
    if (rig_find(world->rig, CORE_ACTION_REJECT) == NULL) {
        world->leases[id].spec.devices_min = event.lease_resized.devices_min;
        world->leases[id].spec.devices_max = event.lease_resized.devices_max;
    }
}
