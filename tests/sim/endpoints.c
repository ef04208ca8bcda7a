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

static void send_service(struct world *world, uint64_t id)
{
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_SERVICE};
    event.endpoint_service.endpoint = id;
    event.endpoint_service.kind = (uint32_t)world_draw(world, world->kind_count);
    event.endpoint_service.service_ns[0] = world_draw(world, MS(12));
    event.endpoint_service.service_ns[3] = world_draw(world, MS(40));
    rig_send(world->rig, event);
}

static void send_spec(struct world *world, uint64_t id, enum core_event_kind kind)
{
    struct core_event event = {.kind = kind};
    struct core_endpoint_spec spec = {.endpoint = id, .target_permille = 990};
    uint32_t most = world_chance(world, 80) ? 4 : world->device_count;
    spec.devices_min = (uint32_t)world_draw(world, 3);
    spec.devices_max = spec.devices_min + 1 + (uint32_t)world_draw(world, most);
    spec.slo_ns = MS(20) + world_draw(world, MS(80));
    spec.priority = (int32_t)world_draw(world, 3);
    spec.kinds_mask = 1 + (uint32_t)world_draw(world, (1u << world->kind_count) - 1);
    spec.memory_bytes = world_draw(world, 60);
    spec.work = (enum core_work)world_draw(world, CORE_WORK_COUNT);
    event.endpoint_spec = spec;
    rig_send(world->rig, event);
}

/* A ready instance that breaks by itself. */
static void send_broken(struct world *world, uint64_t id)
{
    struct core_event event = {.kind = CORE_EVENT_INSTANCE_FAILED};
    event.instance.endpoint = id;
    event.instance.device = 1 + world_draw(world, world->device_count);
    rig_send(world->rig, event);
}

void world_send_endpoint(struct world *world)
{
    uint64_t id = 1 + world_draw(world, world->endpoint_count), what = world_draw(world, 20);
    if (world->checks->endpoints[id].endpoint == 0) {
        send_spec(world, id, CORE_EVENT_ENDPOINT_ADDED);
    } else if (what < 2) {
        rig_send(world->rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_REMOVED,
                                                 .endpoint = {.endpoint = id}});
    } else if (what < 13) {
        send_service(world, id);
    } else if (what < 15) {
        send_broken(world, id);
    } else {
        send_spec(world, id, CORE_EVENT_ENDPOINT_CHANGED);
    }
}

void world_send_load(struct world *world)
{
    uint64_t id = 1 + world_draw(world, world->endpoint_count);
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_DANGER};
    if (world_chance(world, 20)) {
        event.endpoint_danger.endpoint = id;
        event.endpoint_danger.projected_wait_ns = world_draw(world, MS(100));
        event.endpoint_danger.queue_length = (uint32_t)world_draw(world, 50);
    } else {
        event.kind = CORE_EVENT_ENDPOINT_SAMPLE;
        event.endpoint_sample.endpoint = id;
        event.endpoint_sample.interval_ns = world_draw(world, MS(200));
        event.endpoint_sample.arrivals =
            (uint32_t)world_draw(world, world_chance(world, 30) ? 100 : 5);
        event.endpoint_sample.queue_length = (uint32_t)world_draw(world, 20);
        event.endpoint_sample.oldest_wait_ns = world_draw(world, MS(40));
        event.endpoint_sample.busy_ns = world_draw(world, MS(400));
    }
    rig_send(world->rig, event);
}
