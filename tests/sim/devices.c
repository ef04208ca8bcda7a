/* devices.c: the life of devices: added, failing, wanted back, sampled; and how a shell answers for
 * them: late, twice, wrong or never. */
#include "tests/sim/world_state.h"

void world_answer_device(struct world *world, const struct core_action *action, uint64_t device)
{
    struct core_event event = {.kind = CORE_EVENT_ACTION_DONE,
                               .answer = {.action = action->id, .device = device}};
    bool fails = !world->calm && world_chance(world, 4);
    if (action->kind == CORE_ACTION_VERIFY) {
        event.kind = CORE_EVENT_RELEASE_VERIFIED;
        event.verified.gone = !fails;
    } else if (action->kind == CORE_ACTION_RESUME) {
        event.kind = CORE_EVENT_RESUMED;
    } else if (fails) {
        event.kind = CORE_EVENT_ACTION_FAILED;
    }
    world_later(world, event);
}

struct core_device_spec world_device_spec(struct world *world, uint64_t device)
{
    struct core_device_spec spec = {.device = device};
    spec.kind = (uint32_t)world_draw(world, world->kind_count);
    spec.memory_bytes = world_chance(world, 80) ? 100 : 40 * world_draw(world, 4);
    spec.node = 1 + device / 8;
    spec.link = 1 + device / 4;
    spec.provider = world_draw(world, 2);
    if (world_chance(world, 3)) {
        spec.available_until_ns = world->rig->now_ns + world_draw(world, SECONDS(120));
    }
    return spec;
}

static void send_flag(struct world *world, uint64_t id)
{
    static const enum core_event_kind flags[] = {CORE_EVENT_DEVICE_SLOW, CORE_EVENT_DEVICE_CORDONED,
                                                 CORE_EVENT_DEVICE_OCCUPIED};
    enum core_event_kind kind = flags[world_draw(world, 3)];
    rig_device_flag(world->rig, kind, id, world_chance(world, 30));
}

static void send_reclaim(struct world *world, uint64_t id)
{
    struct core_event event = {.kind = CORE_EVENT_DEVICE_RECLAIM_BY, .device_time = {.device = id}};
    if (world_chance(world, 30)) {
        event.device_time.by_ns = world->rig->now_ns + world_draw(world, SECONDS(20));
    }
    rig_send(world->rig, event);
}

static void send_speed(struct world *world, uint64_t id)
{
    struct core_event event = {.kind = CORE_EVENT_DEVICE_SPEED, .device_speed = {.device = id}};
    event.device_speed.speed_permille = (uint32_t)world_draw(world, 1500);
    if (world_chance(world, 30)) {
        event = (struct core_event){.kind = CORE_EVENT_KIND_MEASURED};
        event.kind_measured.kind = (uint32_t)world_draw(world, CORE_KINDS_MAX + 1);
        event.kind_measured.speed_permille[CORE_WORK_COMPUTE] = (uint32_t)world_draw(world, 4000);
        event.kind_measured.speed_permille[CORE_WORK_MEMORY] = (uint32_t)world_draw(world, 4000);
        event.kind_measured.bandwidth_bytes_s = world_draw(world, 1000) * 1000000;
    }
    rig_send(world->rig, event);
}

void world_send_device(struct world *world)
{
    uint64_t id = 1 + world_draw(world, world->device_count), what = world_draw(world, 20);
    if (!world->checks->devices[id].present || what < 2) {
        struct core_event event = {.kind = CORE_EVENT_DEVICE_ADDED};
        event.device_added = world_device_spec(world, id);
        rig_send(world->rig, event);
    } else if (what < 8) {
        send_flag(world, id);
    } else if (what < 10) {
        send_speed(world, id);
    } else if (what < 12) {
        rig_device_event(world->rig, CORE_EVENT_DEVICE_FAILED, id);
    } else if (what < 17) {
        rig_device_event(world->rig, CORE_EVENT_DEVICE_RECOVERED, id);
    } else if (what < 19) {
        send_reclaim(world, id);
    } else if (world_chance(world, 20)) {
        rig_device_event(world->rig, CORE_EVENT_DEVICE_REMOVED, id);
    }
}

void world_send_sample(struct world *world)
{
    uint64_t interval = 1 + world_draw(world, MS(100));
    bool busy = (world->rig->now_ns / SECONDS(10)) % 2; /* long enough to be sustained */
    uint64_t serving =
        busy ? interval - world_draw(world, interval / 10 + 1) : world_draw(world, interval);
    struct core_event event = {.kind = CORE_EVENT_DEVICE_SAMPLE};
    event.device_sample.device = 1 + world_draw(world, world->device_count);
    event.device_sample.interval_ns = interval;
    event.device_sample.serving_ns = serving;
    event.device_sample.waiting_ns = world_draw(world, MS(10));
    event.device_sample.restore_ns = world_chance(world, 10) ? world_draw(world, MS(20)) : 0;
    event.device_sample.slices = (uint32_t)world_draw(world, 5);
    rig_send(world->rig, event);
}
