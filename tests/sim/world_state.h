/* world_state.h: what the files of the random world share: world.c (the driver), one file a noun
 * for its random events. What devices, leases and endpoints there are is in the checks. */
#ifndef TIDEPOOL_TESTS_SIM_WORLD_STATE_H
#define TIDEPOOL_TESTS_SIM_WORLD_STATE_H

#include "tests/sim/checks.h"
#include "tests/sim/world.h"

/* A sort of random event. Each seed has its own shares of them: some schedules are all load, some
 * all owners. */
struct world_source {
    void (*send)(struct world *world);
    uint32_t share;
};

#define WORLD_SOURCES_MAX 16

struct world {
    struct rig *rig;
    struct checks *checks;
    struct core_config config;
    uint64_t random;
    bool crashes, calm;
    bool outside; /* most jobs are outside ones, so that more is stopped and noticed */
    uint64_t crash_count, hash;
    FILE *record;
    uint64_t recorded_ns; /* time of the last line */
    /* Ids are 1 .. these. */
    uint32_t device_count, lease_count, endpoint_count;
    uint32_t kind_count;
    uint32_t shares[WORLD_SOURCES_MAX];
    uint32_t lost_percent, late_percent, doubled_percent; /* answers */
};

/* ---- world.c ---- */
/* world_create_recorded in two steps: before the first event, and that. */
struct world *world_prepare(uint64_t seed, bool crashes, FILE *record);
void world_begin(struct world *world);
uint64_t world_draw(struct world *world, uint64_t below); /* below > 0 */
bool world_chance(struct world *world, uint64_t percent);
/* The answer comes after a while; unless all is calm, maybe late, twice or never. */
void world_later(struct world *world, struct core_event event);

/* ---- devices.c ---- */
void world_answer_device(struct world *world, const struct core_action *action, uint64_t device);
struct core_device_spec world_device_spec(struct world *world, uint64_t device);
void world_send_device(struct world *world);
void world_send_sample(struct world *world);

/* ---- leases.c ---- */
void world_send_lease(struct world *world);
void world_send_holder(struct world *world);
void world_send_owner(struct world *world);

/* ---- holders.c ---- */
bool world_rung_stops(enum core_rung rung);
void world_answer_holder(struct world *world, const struct core_action *action);
void world_draw_rungs(struct world *world, struct core_lease_spec *spec);
void world_send_wish(struct world *world);

/* ---- teams.c ---- */
void world_lease_terms(struct world *world, struct core_lease_spec *spec);
void world_send_team(struct world *world);
void world_tell_teams(struct world *world, const struct core_team_spec *known); /* after a crash */
void world_send_heartbeat(struct world *world);

/* ---- endpoints.c ---- */
void world_answer_instance(struct world *world, const struct core_action *action);
void world_send_endpoint(struct world *world);
void world_send_load(struct world *world);

/* ---- operators.c ---- */
void world_send_operator(struct world *world);
void world_send_nonsense(struct world *world);

#endif
