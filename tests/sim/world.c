/* world.c: see world.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_state.h"

uint64_t world_draw(struct world *world, uint64_t below)
{
    uint64_t z = world->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

bool world_chance(struct world *world, uint64_t percent)
{
    return world_draw(world, 100) < percent;
}

void world_later(struct world *world, struct core_event event)
{
    uint64_t delay = world_draw(world, MS(30));
    if (!world->calm) {
        uint64_t fate = world_draw(world, 100);
        if (fate < 2) {
            return; /* lost */
        }
        if (fate < 7) {
            delay = world_draw(world, SECONDS(40)); /* late */
        }
        if (fate > 94) {
            rig_later(world->rig, event, world_draw(world, SECONDS(3))); /* doubled */
        }
    }
    rig_later(world->rig, event, delay);
}

static void on_action(struct rig *rig, const struct core_action *action)
{
    struct world *world = rig->context;
    checks_action(world, action);
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        world_answer_instance(world, action);
        break;
    case CORE_ACTION_GRANT:
        world_answer_device(world, CORE_EVENT_ACTION_DONE, action, action->grant.device);
        break;
    case CORE_ACTION_REVOKE:
    case CORE_ACTION_RESUME:
        world_answer_holder(world, action);
        break;
    case CORE_ACTION_KILL:
        world_answer_device(world, CORE_EVENT_ACTION_DONE, action, action->revoke.device);
        break;
    case CORE_ACTION_VERIFY:
        world_answer_device(world, CORE_EVENT_RELEASE_VERIFIED, action, action->device.device);
        break;
    default:
        break;
    }
}

static void on_event(struct rig *rig, const struct core_event *event)
{
    checks_event(rig->context, event);
}

static void send_operator(struct world *world)
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
static void send_nonsense(struct world *world)
{
    struct core_event event = {.kind = CORE_EVENT_INSTANCE_READY};
    event.instance.action = world_draw(world, 1000);
    event.instance.device = world_draw(world, DEVICES + 2);
    switch (world_draw(world, 4)) {
    case 0:
        event.kind = CORE_EVENT_REVOKE_ACKNOWLEDGED;
        event.answer.device = world_draw(world, DEVICES + 2);
        break;
    case 1:
        event.kind = CORE_EVENT_RELEASE_VERIFIED;
        event.verified.device = world_draw(world, DEVICES + 2);
        event.verified.gone = true;
        break;
    case 2:
        event.kind = CORE_EVENT_RESTORED_INSTANCE;
        break;
    default:
        break;
    }
    rig_send(world->rig, event);
}

/* ---- crashes ---- */

static struct core *core_born(struct world *world)
{
    struct core_config config;
    core_config_init(&config);
    config.seed[0] = world->rig != NULL ? world->rig->seed : 0;
    config.store_epoch = ++world->epoch;
    config.generation = world->generation;
    config.notice_ns = SECONDS(6);
    config.extension_ns = SECONDS(6);
    config.suspend_deadline_ns = SECONDS(3);
    config.stopped_cap_ns = SECONDS(8);
    config.sustained_ns = SECONDS(1);
    config.restore_prior_ns = SECONDS(1);
    config.shrink_after_ns = SECONDS(1);
    config.cool_down_ns = SECONDS(1);
    config.moves_per_hour = 20;
    config.overtake_ns = SECONDS(30);
    config.age_ns = SECONDS(10);
    config.heartbeat_lost_ns = SECONDS(5);
    config.usage_half_life_ns = SECONDS(60);
    config.ended_kept = 3;
    config.explanations_kept = 64;
    struct core *core = core_create(&config);
    assert_non_null(core);
    return core;
}

static void tell_leases(struct world *world)
{
    for (uint64_t id = 1; id <= LEASES; id++) {
        if (world->leases[id].alive) {
            rig_send(world->rig, (struct core_event){.kind = CORE_EVENT_RESTORED_LEASE,
                                                     .lease_spec = world->leases[id].spec});
        }
    }
}

static void tell_grants(struct world *world, const struct shadow_device *known)
{
    for (uint64_t id = 1; id <= DEVICES; id++) {
        uint64_t owner = known[id].owner;
        if (!known[id].present || owner == 0 || !world->leases[owner].alive) {
            continue;
        }
        bool alive =
            known[id].committed && !world->leases[owner].spec.in_process && world_chance(world, 90);
        world->devices[id].owner = owner;
        world->devices[id].generation = known[id].generation;
        world->devices[id].stopped = alive ? known[id].stopped : CORE_RUNG_NONE;
        world->devices[id].stopped_ns = known[id].stopped_ns;
        world->devices[id].residue_bytes = known[id].residue_bytes;
        struct core_event event = {
            .kind = CORE_EVENT_RESTORED_GRANT,
            .restored_grant = {
                .lease = owner, .device = id, .generation = known[id].generation, .alive = alive}};
        event.restored_grant.stopped = world->devices[id].stopped;
        event.restored_grant.stopped_ns = world->rig->now_ns - known[id].stopped_ns;
        event.restored_grant.residue_bytes = known[id].residue_bytes;
        rig_send(world->rig, event);
    }
}

/* Only what was committed is known: the leases, and the devices granted to them. Answers to the
 * former life still arrive. Instances died with the server. */
static void crash(struct world *world)
{
    struct shadow_device known[DEVICES + 1];
    memcpy(known, world->devices, sizeof known);
    memset(world->devices, 0, sizeof world->devices); /* an added device is vouched for */
    world->hash = world->hash * 31 + core_hash(world->rig->core);
    world->crash_count++;
    core_destroy(world->rig->core);
    world->rig->core = core_born(world);
    world->rig->timer_ns = 0;
    for (uint64_t id = 1; id <= DEVICES; id++) {
        if (known[id].present) {
            rig_send(world->rig,
                     (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                         .device_added = {.device = id, .memory_bytes = 100}});
        }
    }
    world_tell_teams(world);
    tell_leases(world);
    tell_grants(world, known);
    rig_reconcile(world->rig);
    memset(world->endpoints, 0, sizeof world->endpoints);
}

/* ---- life ---- */

struct world *world_create(uint64_t seed, bool crashes)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->random = seed;
    world->outside = seed % 2 == 0;
    world->crashes = crashes;
    struct core *core = core_born(world);
    world->rig = rig_create(NULL);
    core_destroy(world->rig->core);
    world->rig->core = core;
    world->rig->seed = seed;
    world->rig->answers = false;
    world->rig->context = world;
    world->rig->on_action = on_action;
    world->rig->on_event = on_event;
    for (uint64_t id = 1; id <= DEVICES; id++) {
        rig_send(world->rig,
                 (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                     .device_added = {.device = id, .memory_bytes = 100}});
    }
    rig_reconcile(world->rig);
    return world;
}

void world_destroy(struct world *world)
{
    rig_destroy(world->rig);
    free(world);
}

static void send_random(struct world *world)
{
    uint64_t what = world_draw(world, 100);
    if (what < 4) {
        world_send_device(world);
    } else if (what < 10) {
        world_send_lease(world);
    } else if (what < 18) {
        world_send_holder(world);
    } else if (what < 19) {
        world_send_heartbeat(world);
    } else if (what < 20) {
        world_send_team(world);
    } else if (what < 23) {
        world_send_owner(world);
    } else if (what < 26) {
        world_send_wish(world);
    } else if (what < 30) {
        world_send_endpoint(world);
    } else if (what < 50) {
        world_send_load(world);
    } else if (what < 95) {
        world_send_sample(world);
    } else if (what < 97) {
        send_operator(world);
    } else {
        send_nonsense(world);
    }
}

void world_play(struct world *world, uint64_t events)
{
    uint64_t end = world->rig->steps + events;
    while (world->rig->steps < end) {
        rig_run(world->rig,
                world_chance(world, 2) ? world_draw(world, SECONDS(3)) : world_draw(world, MS(20)));
        checks_follow(world);
        if (world->crashes && world_draw(world, 100) == 0) {
            crash(world);
        } else {
            send_random(world);
        }
        checks_follow(world);
    }
}

void world_settle(struct world *world)
{
    world->calm = true;
    rig_send(world->rig, (struct core_event){.kind = CORE_EVENT_HOLD});
    rig_send(world->rig,
             (struct core_event){.kind = CORE_EVENT_MODE_CHANGED, .mode = {.mode = CORE_MODE_ACT}});
    for (uint64_t id = 1; id <= DEVICES; id++) {
        if (world->devices[id].present) {
            rig_device_flag(world->rig, CORE_EVENT_DEVICE_CORDONED, id, false);
            rig_device_flag(world->rig, CORE_EVENT_DEVICE_OCCUPIED, id, false);
            rig_send(world->rig, (struct core_event){.kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                                                     .device_time = {.device = id}});
        }
    }
    for (int round = 0; round < 3; round++) {
        for (uint64_t id = 1; id <= DEVICES; id++) {
            if (world->devices[id].present) {
                rig_device_event(world->rig, CORE_EVENT_DEVICE_RECOVERED, id);
            }
        }
        rig_run(world->rig, SECONDS(1200));
        checks_follow(world);
    }
}

struct rig *world_rig(struct world *world)
{
    return world->rig;
}

uint64_t world_crashes(const struct world *world)
{
    return world->crash_count;
}

uint64_t world_hash(const struct world *world)
{
    return world->hash * 31 + core_hash(world->rig->core);
}
