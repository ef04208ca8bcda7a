/* devices.c: the life of devices: added, failing, wanted back, sampled; and how a shell answers for
 * them: late, twice, wrong or never. */
#include "tests/sim/world_state.h"

void world_answer_device(struct world *world, enum core_event_kind kind,
                         const struct core_action *action, uint64_t device)
{
    struct core_event event = {.kind = kind, .answer = {.action = action->id, .device = device}};
    if (kind == CORE_EVENT_RELEASE_VERIFIED) {
        event.verified.gone = world->calm || !world_chance(world, 3);
    } else if (kind == CORE_EVENT_ACTION_DONE && !world->calm && world_chance(world, 4)) {
        event.kind = CORE_EVENT_ACTION_FAILED;
    }
    world_later(world, event);
}

void world_send_device(struct world *world)
{
    static const enum core_event_kind flags[] = {CORE_EVENT_DEVICE_SLOW, CORE_EVENT_DEVICE_CORDONED,
                                                 CORE_EVENT_DEVICE_OCCUPIED};
    uint64_t id = 1 + world_draw(world, DEVICES), what = world_draw(world, 20);
    struct rig *rig = world->rig;
    if (!world->devices[id].present || what < 4) {
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                          .device_added = {.device = id,
                                                           .kind = (uint32_t)world_draw(world, 2),
                                                           .memory_bytes = 100}});
    } else if (what < 10) {
        enum core_event_kind kind = flags[world_draw(world, 3)];
        rig_device_flag(rig, kind, id, world_chance(world, 30));
    } else if (what < 12) {
        rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, id);
    } else if (what < 17) {
        rig_device_event(rig, CORE_EVENT_DEVICE_RECOVERED, id);
    } else if (what < 19) {
        uint64_t by_ns = world_chance(world, 30) ? rig->now_ns + world_draw(world, SECONDS(20)) : 0;
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                                          .device_time = {.device = id, .by_ns = by_ns}});
    } else if (world_chance(world, 20)) {
        rig_device_event(rig, CORE_EVENT_DEVICE_REMOVED, id);
    }
}

void world_send_sample(struct world *world)
{
    uint64_t interval = 1 + world_draw(world, MS(100));
    bool busy = (world->rig->now_ns / SECONDS(10)) % 2; /* long enough to be sustained */
    uint64_t serving =
        busy ? interval - world_draw(world, interval / 10 + 1) : world_draw(world, interval);
    struct core_event event = {.kind = CORE_EVENT_DEVICE_SAMPLE};
    event.device_sample.device = 1 + world_draw(world, DEVICES);
    event.device_sample.interval_ns = interval;
    event.device_sample.serving_ns = serving;
    event.device_sample.waiting_ns = world_draw(world, MS(10));
    event.device_sample.slices = (uint32_t)world_draw(world, 5);
    rig_send(world->rig, event);
}
