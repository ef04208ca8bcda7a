/* world.c: see world.h. Beside core_check, which looks at one state, it follows what the actions
 * say: no device is granted between its grant and a verified release, tokens only grow, and nothing
 * is killed before a deadline has passed. */
#include "tests/sim/world.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 6
#define ENDPOINTS 4
#define LEASES 9

struct shadow_device {
    bool present;
    uint64_t owner;      /* lease of the last grant that is not verified over */
    uint64_t generation; /* of that grant */
    bool committed;      /* its grant was done, so a restart knows it */
    bool unverified;     /* lost with an owner: needs a look before the next grant */
    uint64_t verify;     /* the VERIFY that would clear it */
};

struct shadow_lease {
    bool alive;
    struct core_lease_spec spec;
    uint64_t deadline_ns; /* earliest of its running revokes */
    bool revoked;
};

struct world {
    struct rig *rig;
    uint64_t random;
    bool crashes, calm;
    uint64_t crash_count, epoch, generation, hash;
    struct shadow_device devices[DEVICES + 1];
    struct shadow_lease leases[LEASES + 1];
    struct core_endpoint_spec endpoints[ENDPOINTS + 1];
};

static uint64_t draw(struct world *world, uint64_t below)
{
    uint64_t z = world->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static bool chance(struct world *world, uint64_t percent)
{
    return draw(world, 100) < percent;
}

static void require(const struct world *world, bool holds, const char *what, uint64_t device)
{
    if (!holds) {
        fail_msg("seed %" PRIu64 ", step %" PRIu64 ", device %" PRIu64 ": %s", world->rig->seed,
                 world->rig->steps, device, what);
    }
}

/* ---- the shell ---- */

static void later(struct world *world, struct core_event event)
{
    uint64_t delay = draw(world, MS(30));
    if (!world->calm) {
        uint64_t fate = draw(world, 100);
        if (fate < 2) {
            return; /* lost */
        }
        if (fate < 7) {
            delay = draw(world, SECONDS(40)); /* late */
        }
        if (fate > 94) {
            rig_later(world->rig, event, draw(world, SECONDS(3))); /* doubled */
        }
    }
    rig_later(world->rig, event, delay);
}

static void answer_device(struct world *world, enum core_event_kind kind,
                          const struct core_action *action, uint64_t device)
{
    struct core_event event = {.kind = kind, .answer = {.action = action->id, .device = device}};
    if (kind == CORE_EVENT_RELEASE_VERIFIED) {
        event.verified.gone = world->calm || !chance(world, 3);
    } else if (kind == CORE_EVENT_ACTION_DONE && !world->calm && chance(world, 4)) {
        event.kind = CORE_EVENT_ACTION_FAILED;
    }
    later(world, event);
}

static void answer_instance(struct world *world, const struct core_action *action)
{
    bool place = action->kind == CORE_ACTION_PLACE;
    bool fails = place && !world->calm && chance(world, 5);
    struct core_event event = {
        .kind = fails   ? CORE_EVENT_INSTANCE_FAILED
                : place ? CORE_EVENT_INSTANCE_READY
                        : CORE_EVENT_INSTANCE_STOPPED,
        .instance = {.action = action->id,
                     .endpoint = action->instance.endpoint,
                     .device = action->instance.device},
    };
    later(world, event);
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

static void on_action(struct rig *rig, const struct core_action *action)
{
    struct world *world = rig->context;
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        answer_instance(world, action);
        break;
    case CORE_ACTION_GRANT:
        shadow_grant(world, action);
        answer_device(world, CORE_EVENT_ACTION_DONE, action, action->grant.device);
        break;
    case CORE_ACTION_REVOKE:
        shadow_revoke(world, action);
        answer_device(world, CORE_EVENT_REVOKE_ACKNOWLEDGED, action, action->revoke.device);
        break;
    case CORE_ACTION_KILL:
        require(world,
                world->leases[action->revoke.lease].revoked &&
                    rig->now_ns >= world->leases[action->revoke.lease].deadline_ns,
                "killed before a deadline passed", action->revoke.device);
        answer_device(world, CORE_EVENT_ACTION_DONE, action, action->revoke.device);
        break;
    case CORE_ACTION_VERIFY:
        world->devices[action->device.device].verify = action->id;
        answer_device(world, CORE_EVENT_RELEASE_VERIFIED, action, action->device.device);
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

static void on_event(struct rig *rig, const struct core_event *event)
{
    struct world *world = rig->context;
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

/* What became of each device since the last look. */
static void follow(struct world *world)
{
    for (uint64_t id = 1; id <= DEVICES; id++) {
        struct core_device_view view;
        world->devices[id].present = core_device_find(world->rig->core, id, &view);
        world->devices[id].committed = world->devices[id].present && view.hold == CORE_HOLD_HELD;
    }
}

/* ---- random events ---- */

static void send_device(struct world *world)
{
    static const enum core_event_kind flags[] = {CORE_EVENT_DEVICE_SLOW, CORE_EVENT_DEVICE_CORDONED,
                                                 CORE_EVENT_DEVICE_OCCUPIED};
    uint64_t id = 1 + draw(world, DEVICES), what = draw(world, 20);
    struct rig *rig = world->rig;
    if (!world->devices[id].present || what < 4) {
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                          .device_added = {.device = id,
                                                           .kind = (uint32_t)draw(world, 2),
                                                           .memory_bytes = 100}});
    } else if (what < 10) {
        enum core_event_kind kind = flags[draw(world, 3)];
        rig_device_flag(rig, kind, id, chance(world, 30));
    } else if (what < 12) {
        rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, id);
    } else if (what < 17) {
        rig_device_event(rig, CORE_EVENT_DEVICE_RECOVERED, id);
    } else if (what < 19) {
        uint64_t by_ns = chance(world, 30) ? rig->now_ns + draw(world, SECONDS(20)) : 0;
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                                          .device_time = {.device = id, .by_ns = by_ns}});
    } else if (chance(world, 20)) {
        rig_device_event(rig, CORE_EVENT_DEVICE_REMOVED, id);
    }
}

static void send_lease(struct world *world)
{
    uint64_t id = 1 + draw(world, LEASES);
    struct shadow_lease *lease = &world->leases[id];
    /* One statement a draw: inside an initialiser their order is the compiler's choice. */
    struct core_lease_spec spec = {.lease = id};
    spec.devices_min = 1 + (uint32_t)draw(world, 3);
    spec.priority = (int32_t)draw(world, 3);
    spec.kinds_mask = 1 + (uint32_t)draw(world, 3);
    spec.memory_bytes = draw(world, 60);
    spec.until_ns = chance(world, 10) ? world->rig->now_ns + draw(world, SECONDS(60)) : 0;
    spec.preemptible = chance(world, 80);
    spec.in_process = chance(world, 60);
    spec.devices_max = spec.devices_min + (uint32_t)draw(world, 3);
    bool fresh = !lease->alive;
    if (fresh) {
        lease->spec = spec;
        lease->alive = true;
        lease->revoked = false;
    }
    rig_request(world->rig, spec);
    if (fresh && rig_find(world->rig, CORE_ACTION_REJECT) != NULL) {
        lease->alive = false;
    }
}

static void send_holder(struct world *world)
{
    uint64_t id = 1 + draw(world, LEASES);
    struct core_lease_view view;
    if (!core_lease_find(world->rig->core, id, &view)) {
        return;
    }
    uint64_t generation = chance(world, 80) ? view.run : draw(world, world->generation + 2);
    uint64_t device = chance(world, 50) ? 0 : 1 + draw(world, DEVICES);
    if (device != 0 && chance(world, 80)) {
        generation = world->devices[device].generation;
    }
    struct core_event event = {0};
    switch (draw(world, 8)) {
    case 0:
        event.kind = CORE_EVENT_LEASE_RELEASED;
        event.lease_released.device = device;
        event.lease_released.generation = generation;
        break;
    case 1:
        event.kind = CORE_EVENT_JOB_EXITED;
        event.job_exited.generation = generation;
        event.job_exited.kept = chance(world, 50);
        event.job_exited.again = chance(world, 50);
        break;
    default:
        event.kind = CORE_EVENT_LEASE_PROGRESS;
        event.lease_progress.generation = generation;
        event.lease_progress.step = view.step + draw(world, 5);
        event.lease_progress.checkpointed_step =
            view.checkpointed_step + draw(world, view.step - view.checkpointed_step + 1);
        break;
    }
    event.lease.lease = id;
    rig_send(world->rig, event);
}

static void send_owner(struct world *world)
{
    static const enum core_event_kind kinds[] = {CORE_EVENT_LEASE_PAUSED, CORE_EVENT_LEASE_RESUMED,
                                                 CORE_EVENT_LEASE_RESUMED,
                                                 CORE_EVENT_LEASE_CANCELLED};
    uint64_t id = 1 + draw(world, LEASES);
    if (chance(world, 70)) {
        rig_lease_event(world->rig, kinds[draw(world, 4)], id);
        return;
    }
    struct core_event event = {.kind = CORE_EVENT_LEASE_RESIZED, .lease_resized = {.lease = id}};
    event.lease_resized.devices_min = (uint32_t)draw(world, 4);
    event.lease_resized.devices_max = (uint32_t)draw(world, 6);
    rig_send(world->rig, event);
    if (rig_find(world->rig, CORE_ACTION_REJECT) == NULL) {
        world->leases[id].spec.devices_min = event.lease_resized.devices_min;
        world->leases[id].spec.devices_max = event.lease_resized.devices_max;
    }
}

static void send_endpoint(struct world *world)
{
    uint64_t id = 1 + draw(world, ENDPOINTS);
    struct core_event event = {.kind = world->endpoints[id].endpoint == 0
                                           ? CORE_EVENT_ENDPOINT_ADDED
                                           : CORE_EVENT_ENDPOINT_CHANGED};
    if (world->endpoints[id].endpoint != 0 && chance(world, 10)) {
        event.kind = CORE_EVENT_ENDPOINT_REMOVED;
        event.endpoint.endpoint = id;
        world->endpoints[id].endpoint = 0;
        rig_send(world->rig, event);
        return;
    }
    if (world->endpoints[id].endpoint != 0 && chance(world, 70)) {
        event.kind = CORE_EVENT_ENDPOINT_SERVICE;
        event.endpoint_service.endpoint = id;
        event.endpoint_service.kind = (uint32_t)draw(world, 2);
        event.endpoint_service.service_ns[0] = draw(world, MS(12));
        event.endpoint_service.service_ns[3] = draw(world, MS(40));
        rig_send(world->rig, event);
        return;
    }
    uint32_t min = (uint32_t)draw(world, 3);
    event.endpoint_spec =
        (struct core_endpoint_spec){.endpoint = id, .target_permille = 990, .devices_min = min};
    event.endpoint_spec.slo_ns = MS(20) + draw(world, MS(80));
    event.endpoint_spec.priority = (int32_t)draw(world, 3);
    event.endpoint_spec.devices_max = min + 1 + (uint32_t)draw(world, 4);
    event.endpoint_spec.kinds_mask = 1 + (uint32_t)draw(world, 3);
    event.endpoint_spec.memory_bytes = draw(world, 60);
    rig_send(world->rig, event);
    if (rig_find(world->rig, CORE_ACTION_REJECT) == NULL) {
        world->endpoints[id] = event.endpoint_spec;
    }
}

static void send_load(struct world *world)
{
    uint64_t id = 1 + draw(world, ENDPOINTS);
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_DANGER};
    if (chance(world, 20)) {
        event.endpoint_danger.endpoint = id;
        event.endpoint_danger.projected_wait_ns = draw(world, MS(100));
    } else {
        event.kind = CORE_EVENT_ENDPOINT_SAMPLE;
        event.endpoint_sample.endpoint = id;
        event.endpoint_sample.interval_ns = draw(world, MS(200));
        event.endpoint_sample.arrivals = (uint32_t)draw(world, chance(world, 30) ? 100 : 5);
        event.endpoint_sample.oldest_wait_ns = draw(world, MS(40));
        event.endpoint_sample.busy_ns = draw(world, MS(400));
    }
    rig_send(world->rig, event);
}

static void send_sample(struct world *world)
{
    uint64_t interval = 1 + draw(world, MS(100));
    bool busy = (world->rig->now_ns / SECONDS(10)) % 2; /* long enough to be sustained */
    uint64_t serving = busy ? interval - draw(world, interval / 10 + 1) : draw(world, interval);
    struct core_event event = {.kind = CORE_EVENT_DEVICE_SAMPLE};
    event.device_sample.device = 1 + draw(world, DEVICES);
    event.device_sample.interval_ns = interval;
    event.device_sample.serving_ns = serving;
    event.device_sample.waiting_ns = draw(world, MS(10));
    event.device_sample.slices = (uint32_t)draw(world, 5);
    rig_send(world->rig, event);
}

static void send_operator(struct world *world)
{
    struct core_event event = {.kind = CORE_EVENT_HOLD, .hold = {.on = chance(world, 20)}};
    if (chance(world, 40)) {
        event.kind = CORE_EVENT_MODE_CHANGED;
        event.mode.mode = chance(world, 75) ? CORE_MODE_ACT : (enum core_mode)draw(world, 3);
    }
    rig_send(world->rig, event);
}

/* An answer to nothing: any id, any device. */
static void send_nonsense(struct world *world)
{
    struct core_event event = {.kind = CORE_EVENT_INSTANCE_READY};
    event.instance.action = draw(world, 1000);
    event.instance.device = draw(world, DEVICES + 2);
    switch (draw(world, 4)) {
    case 0:
        event.kind = CORE_EVENT_REVOKE_ACKNOWLEDGED;
        event.answer.device = draw(world, DEVICES + 2);
        break;
    case 1:
        event.kind = CORE_EVENT_RELEASE_VERIFIED;
        event.verified.device = draw(world, DEVICES + 2);
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
    config.shrink_after_ns = SECONDS(1);
    config.cool_down_ns = SECONDS(1);
    config.moves_per_hour = 20;
    config.overtake_ns = SECONDS(30);
    config.age_ns = SECONDS(10);
    config.ended_kept = 3;
    config.explanations_kept = 64;
    struct core *core = core_create(&config);
    assert_non_null(core);
    return core;
}

static void tell_leases(struct world *world)
{
    for (uint64_t id = 1; id <= LEASES; id++) {
        world->leases[id].revoked = false;
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
            known[id].committed && !world->leases[owner].spec.in_process && chance(world, 90);
        world->devices[id].owner = owner;
        world->devices[id].generation = known[id].generation;
        rig_send(world->rig,
                 (struct core_event){.kind = CORE_EVENT_RESTORED_GRANT,
                                     .restored_grant = {.lease = owner,
                                                        .device = id,
                                                        .generation = known[id].generation,
                                                        .alive = alive}});
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
    uint64_t what = draw(world, 100);
    if (what < 4) {
        send_device(world);
    } else if (what < 10) {
        send_lease(world);
    } else if (what < 20) {
        send_holder(world);
    } else if (what < 24) {
        send_owner(world);
    } else if (what < 30) {
        send_endpoint(world);
    } else if (what < 50) {
        send_load(world);
    } else if (what < 95) {
        send_sample(world);
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
        rig_run(world->rig, chance(world, 2) ? draw(world, SECONDS(3)) : draw(world, MS(20)));
        follow(world);
        if (world->crashes && draw(world, 100) == 0) {
            crash(world);
        } else {
            send_random(world);
        }
        follow(world);
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
        follow(world);
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
