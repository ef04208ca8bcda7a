/* holders.c: how holders answer when they are asked to stop in place or to go on: in time, late,
 * twice, never, with a refusal, with more left in memory than they said; and what they ask. */
#include "tests/sim/world_state.h"

bool world_rung_stops(enum core_rung rung)
{
    return rung == CORE_RUNG_FREEZE || rung == CORE_RUNG_PAUSE || rung == CORE_RUNG_SWAP;
}

static void answer_stop(struct world *world, const struct core_action *action)
{
    const struct core_lease_spec *spec = &world->checks->leases[action->revoke.lease].spec;
    struct core_event event = {
        .kind = CORE_EVENT_SUSPENDED,
        .suspended = {.action = action->id, .device = action->revoke.device}};
    event.suspended.residue_bytes = world_draw(world, spec->memory_bytes + 1);
    uint64_t fate = world->calm ? 99 : world_draw(world, 100);
    if (fate < 3) {
        event.suspended.residue_bytes += world_draw(world, 60);
    } else if (fate < 8) {
        event.kind = CORE_EVENT_ACTION_FAILED;
    } else if (fate < 10) {
        event.kind = CORE_EVENT_REVOKE_ACKNOWLEDGED; /* it has let go instead */
    }
    world_later(world, event);
}

/* Who saves first takes its time. */
static void answer_notice(struct world *world, const struct core_action *action)
{
    struct core_event event = {.kind = CORE_EVENT_REVOKE_ACKNOWLEDGED,
                               .answer = {.action = action->id, .device = action->revoke.device}};
    if (world->calm || world_chance(world, 40)) {
        world_later(world, event);
    } else {
        rig_later(world->rig, event, world_draw(world, SECONDS(7)));
    }
}

void world_answer_holder(struct world *world, const struct core_action *action)
{
    if (action->kind == CORE_ACTION_RESUME) {
        world_answer_device(world, action, action->revoke.device);
    } else if (world_rung_stops(action->revoke.rung)) {
        answer_stop(world, action);
    } else if (action->revoke.rung != CORE_RUNG_NONE) {
        answer_notice(world, action);
    }
}

void world_draw_rungs(struct world *world, struct core_lease_spec *spec)
{
    static const uint32_t rungs[] = {CORE_RUNG_SHRINK, CORE_RUNG_FREEZE, CORE_RUNG_PAUSE,
                                     CORE_RUNG_SWAP,   CORE_RUNG_NOTICE, CORE_RUNG_KILL};
    bool standard = spec->in_process || world_chance(world, 20);
    for (size_t i = 0; i < sizeof rungs / sizeof *rungs && !standard; i++) {
        spec->rungs_mask |= world_chance(world, 60) ? 1u << rungs[i] : 0;
    }
    spec->notice_ns = world_chance(world, 50) ? 1 + world_draw(world, SECONDS(8)) : 0;
    spec->extension = world_chance(world, 50);
    spec->extension_ns = world_chance(world, 50) ? 1 + world_draw(world, SECONDS(8)) : 0;
    spec->stopped_cap_ns = world_chance(world, 50) ? 1 + world_draw(world, SECONDS(12)) : 0;
    spec->pause_residue_bytes = world_draw(world, spec->memory_bytes + 1);
    spec->swap_residue_bytes = world_draw(world, spec->memory_bytes + 1);
}

void world_send_wish(struct world *world)
{
    uint64_t id = 1 + world_draw(world, world->lease_count),
             device = world_draw(world, world->device_count + 1);
    struct core_lease_view view;
    bool foreign =
        device == 0 || world->checks->devices[device].owner == 0 || world_chance(world, 10);
    id = foreign ? id : world->checks->devices[device].owner;
    device = world_chance(world, 50) ? device : 0;
    if (!core_lease_find(world->rig->core, id, &view)) {
        return;
    }
    struct core_event event = {.kind = CORE_EVENT_EXTENSION_ASKED};
    if (world_chance(world, 20)) {
        event.kind = CORE_EVENT_RUNG_MEASURED;
        event.rung_measured.lease = id;
        event.rung_measured.rung = (enum core_rung)world_draw(world, CORE_RUNG_COUNT + 1);
        event.rung_measured.kind = (uint32_t)world_draw(world, CORE_KINDS_MAX + 1);
        event.rung_measured.take_ns = world_draw(world, SECONDS(3));
        event.rung_measured.give_ns = world_draw(world, SECONDS(3));
    } else {
        event.extension.lease = id;
        event.extension.device = device;
        event.extension.generation =
            device != 0 ? world->checks->devices[device].generation : view.run;
        event.extension.extension_ns = world_draw(world, SECONDS(12));
    }
    rig_send(world->rig, event);
}
