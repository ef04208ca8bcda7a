/* leases.c: what owners ask for and what holders report, with current and with old tokens. */
#include "tests/sim/world_state.h"

/* One statement a draw: inside an initialiser their order is the compiler's choice. */
void world_send_lease(struct world *world)
{
    struct core_lease_spec spec = {.lease = 1 + world_draw(world, world->lease_count)};
    uint32_t most = world_chance(world, 90) ? 3 : 1 + world->device_count / 2;
    spec.devices_min = 1 + (uint32_t)world_draw(world, most);
    spec.devices_max = spec.devices_min + (uint32_t)world_draw(world, most);
    spec.priority = (int32_t)world_draw(world, 5) - 2;
    spec.kinds_mask = 1 + (uint32_t)world_draw(world, (1u << world->kind_count) - 1);
    spec.memory_bytes = world_chance(world, 80) ? world_draw(world, 60) : 0;
    spec.in_process = world_chance(world, world->outside ? 10 : 50);
    spec.work = (enum core_work)world_draw(world, CORE_WORK_COUNT);
    spec.preemptible = world_chance(world, 80);
    spec.until_ns =
        world_chance(world, 10) ? world->rig->now_ns + world_draw(world, SECONDS(60)) : 0;
    world_lease_terms(world, &spec);
    world_draw_rungs(world, &spec);
    rig_request(world->rig, spec);
}

/* ---- holders ---- */

static void send_end(struct world *world, struct core_event event, uint64_t generation)
{
    event.kind = CORE_EVENT_JOB_EXITED;
    event.job_exited.generation = generation;
    event.job_exited.kept = world_chance(world, 50);
    event.job_exited.again = world_chance(world, 50);
    event.job_exited.failed = world_chance(world, 20);
    rig_send(world->rig, event);
}

static void send_release(struct world *world, struct core_event event, uint64_t generation)
{
    uint64_t device = world_chance(world, 50) ? 0 : 1 + world_draw(world, world->device_count);
    event.kind = CORE_EVENT_LEASE_RELEASED;
    event.lease_released.device = device;
    event.lease_released.generation = device != 0 && world_chance(world, 80)
                                          ? world->checks->devices[device].generation
                                          : generation;
    rig_send(world->rig, event);
}

static void send_progress(struct world *world, struct core_event event, uint64_t generation,
                          const struct core_lease_view *view)
{
    event.kind = CORE_EVENT_LEASE_PROGRESS;
    event.lease_progress.generation = generation;
    event.lease_progress.step = view->step + world_draw(world, 5);
    event.lease_progress.checkpointed_step =
        view->checkpointed_step + world_draw(world, view->step - view->checkpointed_step + 1);
    rig_send(world->rig, event);
}

static void send_speed(struct world *world, struct core_event event)
{
    event.kind = CORE_EVENT_LEASE_SPEED;
    event.lease_speed.kind = (uint32_t)world_draw(world, world->kind_count);
    event.lease_speed.speed_permille = (uint32_t)world_draw(world, 4000);
    rig_send(world->rig, event);
}

void world_send_holder(struct world *world)
{
    struct core_event event = {.lease = {.lease = 1 + world_draw(world, world->lease_count)}};
    struct core_lease_view view;
    if (!core_lease_find(world->rig->core, event.lease.lease, &view)) {
        return;
    }
    uint64_t generation =
        world_chance(world, 80) ? view.run : world_draw(world, world->checks->generation + 2);
    switch (world_draw(world, 8)) {
    case 0:
        send_release(world, event, generation);
        break;
    case 1:
        send_end(world, event, generation);
        break;
    case 2:
        send_speed(world, event);
        break;
    default:
        send_progress(world, event, generation, &view);
        break;
    }
}

/* ---- owners ---- */

void world_send_owner(struct world *world)
{
    static const enum core_event_kind kinds[] = {CORE_EVENT_LEASE_PAUSED, CORE_EVENT_LEASE_RESUMED,
                                                 CORE_EVENT_LEASE_RESUMED,
                                                 CORE_EVENT_LEASE_CANCELLED};
    uint64_t id = 1 + world_draw(world, world->lease_count);
    if (world_chance(world, 70)) {
        rig_lease_event(world->rig, kinds[world_draw(world, 4)], id);
        return;
    }
    struct core_event event = {.kind = CORE_EVENT_LEASE_RESIZED, .lease_resized = {.lease = id}};
    event.lease_resized.devices_min = (uint32_t)world_draw(world, 4);
    event.lease_resized.devices_max = (uint32_t)world_draw(world, 6);
    rig_send(world->rig, event);
}
