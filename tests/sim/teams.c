/* teams.c: teams that come, change and go; what leases are promised; signs of life. */
#include "tests/sim/world_state.h"

void world_lease_terms(struct world *world, struct core_lease_spec *spec)
{
    spec->team = world_draw(world, SIM_TEAMS_MAX + 1);
    spec->floor = world_chance(world, 30) ? (uint32_t)world_draw(world, spec->devices_max + 1) : 0;
    spec->run_min_ns = world_chance(world, 30) ? world_draw(world, SECONDS(20)) : 0;
    spec->duration_ns = world_chance(world, 20) ? 1 + world_draw(world, SECONDS(30)) : 0;
    spec->heartbeats = world_chance(world, 50);
    spec->revokes_per_hour = world_chance(world, 30) ? 1 + (uint32_t)world_draw(world, 6) : 0;
    spec->stops_per_hour = world_chance(world, 30) ? 1 + (uint32_t)world_draw(world, 6) : 0;
}

void world_send_team(struct world *world)
{
    struct core_event event = {.kind = CORE_EVENT_TEAM_REMOVED,
                               .team = {.team = world_draw(world, SIM_TEAMS_MAX + 1)}};
    if (world_chance(world, 90)) {
        event.kind = CORE_EVENT_TEAM_CHANGED;
        event.team_spec.weight = (uint32_t)world_draw(world, 5);
        for (uint32_t kind = 0; kind < world->kind_count; kind++) {
            event.team_spec.quota[kind] = (uint32_t)world_draw(world, 1 + world->device_count / 2);
        }
    }
    rig_send(world->rig, event);
}

void world_tell_teams(struct world *world, const struct core_team_spec *known)
{
    for (uint64_t id = 0; id <= SIM_TEAMS_MAX; id++) {
        if (known[id].weight > 0) {
            rig_send(world->rig,
                     (struct core_event){.kind = CORE_EVENT_TEAM_CHANGED, .team_spec = known[id]});
        }
    }
}

void world_send_heartbeat(struct world *world)
{
    uint64_t id = 1 + world_draw(world, world->lease_count);
    struct core_lease_view view;
    bool known = core_lease_find(world->rig->core, id, &view);
    uint64_t generation = known && world_chance(world, 80)
                              ? view.run
                              : world_draw(world, world->checks->generation + 2);
    rig_send(world->rig,
             (struct core_event){.kind = CORE_EVENT_LEASE_HEARTBEAT,
                                 .lease_heartbeat = {.lease = id, .generation = generation}});
}
