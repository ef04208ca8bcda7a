/* endpoints.c: endpoints that come, change and go, their load, and their instances. */
#include "tests/sim/world_state.h"

void world_answer_instance(struct world *world, const struct core_action *action)
{
    bool place = action->kind == CORE_ACTION_PLACE;
    bool fails = place && !world->calm && world_chance(world, 5);
    struct core_event event = {
        .kind = fails   ? CORE_EVENT_INSTANCE_FAILED
                : place ? CORE_EVENT_INSTANCE_READY
                        : CORE_EVENT_INSTANCE_STOPPED,
        .instance = {.action = action->id,
                     .endpoint = action->instance.endpoint,
                     .device = action->instance.device},
    };
    world_later(world, event);
}

void world_send_endpoint(struct world *world)
{
    uint64_t id = 1 + world_draw(world, ENDPOINTS);
    struct core_event event = {.kind = world->endpoints[id].endpoint == 0
                                           ? CORE_EVENT_ENDPOINT_ADDED
                                           : CORE_EVENT_ENDPOINT_CHANGED};
    if (world->endpoints[id].endpoint != 0 && world_chance(world, 10)) {
        event.kind = CORE_EVENT_ENDPOINT_REMOVED;
        event.endpoint.endpoint = id;
        world->endpoints[id].endpoint = 0;
        rig_send(world->rig, event);
        return;
    }
    if (world->endpoints[id].endpoint != 0 && world_chance(world, 70)) {
        event.kind = CORE_EVENT_ENDPOINT_SERVICE;
        event.endpoint_service.endpoint = id;
        event.endpoint_service.kind = (uint32_t)world_draw(world, 2);
        event.endpoint_service.service_ns[0] = world_draw(world, MS(12));
        event.endpoint_service.service_ns[3] = world_draw(world, MS(40));
        rig_send(world->rig, event);
        return;
    }
    uint32_t min = (uint32_t)world_draw(world, 3);
    event.endpoint_spec =
        (struct core_endpoint_spec){.endpoint = id, .target_permille = 990, .devices_min = min};
    event.endpoint_spec.slo_ns = MS(20) + world_draw(world, MS(80));
    event.endpoint_spec.priority = (int32_t)world_draw(world, 3);
    event.endpoint_spec.devices_max = min + 1 + (uint32_t)world_draw(world, 4);
    event.endpoint_spec.kinds_mask = 1 + (uint32_t)world_draw(world, 3);
    event.endpoint_spec.memory_bytes = world_draw(world, 60);
    rig_send(world->rig, event);
    if (rig_find(world->rig, CORE_ACTION_REJECT) == NULL) {
        world->endpoints[id] = event.endpoint_spec;
    }
}

void world_send_load(struct world *world)
{
    uint64_t id = 1 + world_draw(world, ENDPOINTS);
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_DANGER};
    if (world_chance(world, 20)) {
        event.endpoint_danger.endpoint = id;
        event.endpoint_danger.projected_wait_ns = world_draw(world, MS(100));
    } else {
        event.kind = CORE_EVENT_ENDPOINT_SAMPLE;
        event.endpoint_sample.endpoint = id;
        event.endpoint_sample.interval_ns = world_draw(world, MS(200));
        event.endpoint_sample.arrivals =
            (uint32_t)world_draw(world, world_chance(world, 30) ? 100 : 5);
        event.endpoint_sample.oldest_wait_ns = world_draw(world, MS(40));
        event.endpoint_sample.busy_ns = world_draw(world, MS(400));
    }
    rig_send(world->rig, event);
}
