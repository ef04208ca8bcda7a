/* world.c: see world.h. */
#include "tests/sim/world_state.h"

#include <stdlib.h>
#include <string.h>

#include "server/base/random.h"
#include "tests/sim/script.h"

uint64_t world_draw(struct world *world, uint64_t below)
{
    return random_next(&world->random) % below;
}

bool world_chance(struct world *world, uint64_t percent)
{
    return world_draw(world, 100) < percent;
}

/* ---- the shell ---- */

void world_later(struct world *world, struct core_event event)
{
    uint64_t delay = world_draw(world, MS(30));
    if (!world->calm) {
        if (world_chance(world, world->lost_percent)) {
            return;
        }
        if (world_chance(world, world->late_percent)) {
            delay = world_draw(world, SECONDS(40));
        }
        if (world_chance(world, world->doubled_percent)) {
            rig_later(world->rig, event, world_draw(world, SECONDS(3)));
        }
    }
    rig_later(world->rig, event, delay);
}

static void on_action(struct rig *rig, const struct core_action *action)
{
    struct world *world = rig->context;
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        world_answer_instance(world, action);
        break;
    case CORE_ACTION_GRANT:
        world_answer_device(world, action, action->grant.device);
        break;
    case CORE_ACTION_REVOKE:
    case CORE_ACTION_RESUME:
        world_answer_holder(world, action);
        break;
    case CORE_ACTION_KILL:
        world_answer_device(world, action, action->revoke.device);
        break;
    case CORE_ACTION_VERIFY:
        world_answer_device(world, action, action->device.device);
        break;
    default:
        break;
    }
}

static void record(struct world *world, struct script_line *line)
{
    line->time_ns = world->rig->now_ns - SCRIPT_BEGIN_NS;
    script_write_line(line, world->recorded_ns, world->record);
    fflush(world->record); /* the next step may be the last one */
    world->recorded_ns = line->time_ns;
}

/* The checks first: they may send an event of their own before it. */
static void on_event(struct rig *rig, const struct core_event *event)
{
    struct world *world = rig->context;
    checks_event(world->checks, event);
    if (world->record != NULL) {
        struct script_line line = {.what = SCRIPT_EVENT, .event = *event};
        script_refer(&line, &world->checks->history, rig->core);
        record(world, &line);
    }
}

static void on_step(struct rig *rig, const struct core_event *event)
{
    checks_step(((struct world *)rig->context)->checks, event);
}

/* ---- crashes ---- */

static struct core *core_born(struct core_config *config, uint64_t generation)
{
    config->store_epoch++;
    config->generation = generation;
    struct core *core = core_create(config);
    assert_non_null(core);
    return core;
}

static void tell_leases(struct world *world, const struct seen_lease *known)
{
    for (uint64_t id = 1; id <= world->lease_count; id++) {
        if (known[id].alive) {
            rig_send(world->rig, (struct core_event){.kind = CORE_EVENT_RESTORED_LEASE,
                                                     .lease_spec = known[id].spec});
        }
    }
}

static void tell_grants(struct world *world, const struct seen_device *known)
{
    for (uint64_t id = 1; id <= world->device_count; id++) {
        const struct seen_lease *owner = checks_lease(world->checks, known[id].owner);
        if (!known[id].present || owner == NULL || !owner->alive) {
            continue;
        }
        struct core_event event = {.kind = CORE_EVENT_RESTORED_GRANT};
        event.restored_grant.lease = known[id].owner;
        event.restored_grant.device = id;
        event.restored_grant.generation = known[id].generation;
        event.restored_grant.alive =
            known[id].committed && !owner->spec.in_process && world_chance(world, 90);
        if (event.restored_grant.alive && known[id].stopped != CORE_RUNG_NONE) {
            event.restored_grant.stopped = known[id].stopped;
            event.restored_grant.stopped_ns = world->rig->now_ns - known[id].stopped_ns;
            event.restored_grant.residue_bytes = known[id].residue_bytes;
        }
        rig_send(world->rig, event);
    }
}

/* Only what was committed is known: devices, leases, and what was granted. Answers to the former
 * life still arrive. Instances died with the server. */
static void crash(struct world *world)
{
    struct seen_device devices[SIM_DEVICES_MAX + 1];
    struct seen_lease leases[SIM_LEASES_MAX + 1];
    struct core_team_spec teams[SIM_TEAMS_MAX + 1];
    memcpy(devices, world->checks->devices, sizeof devices);
    memcpy(leases, world->checks->leases, sizeof leases);
    memcpy(teams, world->checks->teams, sizeof teams);
    world->hash = world->hash * 31 + core_hash(world->rig->core);
    world->crash_count++;
    if (world->record != NULL) {
        record(world, &(struct script_line){.what = SCRIPT_CRASH});
    }
    core_destroy(world->rig->core);
    world->rig->core = core_born(&world->config, world->checks->generation);
    world->rig->timer_ns = 0;
    checks_crash(world->checks, &world->config);
    for (uint64_t id = 1; id <= world->device_count; id++) {
        if (devices[id].present) {
            rig_send(world->rig, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                                     .device_added = devices[id].spec});
        }
    }
    world_tell_teams(world, teams);
    tell_leases(world, leases);
    tell_grants(world, devices);
    rig_reconcile(world->rig);
}

/* ---- life ---- */

static const struct world_source sources[] = {
    {world_send_device, 4},    {world_send_lease, 6},    {world_send_holder, 8},
    {world_send_heartbeat, 1}, {world_send_team, 1},     {world_send_owner, 3},
    {world_send_wish, 3},      {world_send_endpoint, 5}, {world_send_load, 20},
    {world_send_sample, 44},   {world_send_operator, 2}, {world_send_nonsense, 3},
};
#define SOURCES (sizeof sources / sizeof *sources)
_Static_assert(SOURCES <= WORLD_SOURCES_MAX, "one more source than a world has room for");

static void draw_config(struct world *world)
{
    struct core_config *config = &world->config;
    core_config_init(config);
    config->seed[0] = world->rig->seed;
    config->shrink_after_ns = SECONDS(1);
    config->cool_down_ns = SECONDS(1);
    config->overtake_ns = SECONDS(30);
    config->age_ns = SECONDS(10);
    config->ended_kept = 3;
    config->explanations_kept = 64;
    config->moves_per_hour = 1 + (uint32_t)world_draw(world, 40);
    config->moves_extra = (uint32_t)world_draw(world, 5);
    config->hold_min_ns = world_draw(world, SECONDS(3));
    config->notice_ns = SECONDS(1) + world_draw(world, SECONDS(20));
    config->extension_ns = SECONDS(1) + world_draw(world, SECONDS(10));
    config->suspend_deadline_ns = SECONDS(3);
    config->stopped_cap_ns = SECONDS(8);
    config->sustained_ns = SECONDS(1);
    config->restore_prior_ns = SECONDS(1);
    config->heartbeat_lost_ns = SECONDS(5);
    config->place_timeout_ns = SECONDS(30);
    config->usage_half_life_ns = SECONDS(60);
    config->drain_after_ns = SECONDS(1);
    config->leave_lead_ns = SECONDS(3);
    config->leave_useful_ns = SECONDS(2);
}

/* Small worlds meet their corners more often; one in eight is large. */
static void draw_size(struct world *world)
{
    uint64_t most = world_chance(world, 12) ? SIM_DEVICES_MAX : 8;
    world->device_count = 1 + (uint32_t)world_draw(world, most);
    world->lease_count = 2 + (uint32_t)world_draw(world, most > 8 ? SIM_LEASES_MAX - 2 : 10);
    world->endpoint_count = 1 + (uint32_t)world_draw(world, SIM_ENDPOINTS_MAX);
    world->kind_count = 1 + (uint32_t)world_draw(world, 3);
    for (size_t i = 0; i < SOURCES; i++) {
        uint32_t usual = sources[i].share;
        world->shares[i] = world_chance(world, 70) ? usual : (uint32_t)world_draw(world, usual * 4);
    }
    world->shares[0]++; /* at least one of them */
    world->lost_percent = (uint32_t)world_draw(world, 5);
    world->late_percent = (uint32_t)world_draw(world, 10);
    world->doubled_percent = (uint32_t)world_draw(world, 10);
}

struct world *world_create(uint64_t seed, bool crashes)
{
    return world_create_recorded(seed, crashes, NULL);
}

struct world *world_create_recorded(uint64_t seed, bool crashes, FILE *recorded)
{
    struct world *world = world_prepare(seed, crashes, recorded);
    world_begin(world);
    return world;
}

struct world *world_prepare(uint64_t seed, bool crashes, FILE *recorded)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->random = seed;
    world->outside = seed % 2 == 0;
    world->crashes = crashes;
    world->rig = rig_create(NULL);
    world->rig->seed = seed;
    draw_size(world);
    draw_config(world);
    core_destroy(world->rig->core);
    world->rig->core = core_born(&world->config, 0);
    world->checks = checks_create(world->rig, &world->config);
    world->record = recorded;
    if (recorded != NULL) {
        script_write_config(&world->config, recorded);
    }
    world->rig->answers = false;
    world->rig->context = world;
    world->rig->on_action = on_action;
    world->rig->on_event = on_event;
    world->rig->on_step = on_step;
    return world;
}

void world_begin(struct world *world)
{
    for (uint64_t id = 1; id <= world->device_count; id++) {
        struct core_event event = {.kind = CORE_EVENT_DEVICE_ADDED};
        event.device_added = world_device_spec(world, id);
        rig_send(world->rig, event);
    }
    rig_reconcile(world->rig);
}

void world_destroy(struct world *world)
{
    checks_destroy(world->checks);
    rig_destroy(world->rig);
    free(world);
}

static void send_random(struct world *world)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < SOURCES; i++) {
        sum += world->shares[i];
    }
    uint64_t at = world_draw(world, sum);
    size_t source = 0;
    while (at >= world->shares[source]) {
        at -= world->shares[source++];
    }
    sources[source].send(world);
}

void world_play(struct world *world, uint64_t events)
{
    uint64_t end = world->rig->steps + events;
    while (world->rig->steps < end) {
        rig_run(world->rig,
                world_chance(world, 2) ? world_draw(world, SECONDS(3)) : world_draw(world, MS(20)));
        if (world->crashes && world_draw(world, 100) == 0) {
            crash(world);
        } else {
            send_random(world);
        }
    }
}

void world_settle(struct world *world)
{
    world->calm = true;
    rig_send(world->rig, (struct core_event){.kind = CORE_EVENT_HOLD});
    rig_send(world->rig,
             (struct core_event){.kind = CORE_EVENT_MODE_CHANGED, .mode = {.mode = CORE_MODE_ACT}});
    for (uint64_t id = 1; id <= world->device_count; id++) {
        if (world->checks->devices[id].present) {
            rig_device_flag(world->rig, CORE_EVENT_DEVICE_CORDONED, id, false);
            rig_device_flag(world->rig, CORE_EVENT_DEVICE_OCCUPIED, id, false);
            rig_send(world->rig, (struct core_event){.kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                                                     .device_time = {.device = id}});
        }
    }
    for (int round = 0; round < 3; round++) {
        for (uint64_t id = 1; id <= world->device_count; id++) {
            if (world->checks->devices[id].present) {
                rig_device_event(world->rig, CORE_EVENT_DEVICE_RECOVERED, id);
            }
        }
        rig_run(world->rig, SECONDS(1100)); /* in all less than an hour: then bounds of moves end */
    }
    if (world->record != NULL) {
        record(world, &(struct script_line){.what = SCRIPT_SETTLED});
    }
    checks_settled(world->checks);
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
