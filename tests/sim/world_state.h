/* world_state.h: what the files of the random world share: world.c (the driver), one file a noun
 * for its random events, checks.c for what it watches. */
#ifndef TIDEPOOL_TESTS_SIM_WORLD_STATE_H
#define TIDEPOOL_TESTS_SIM_WORLD_STATE_H

#include "tests/sim/world.h"

#define DEVICES 6
#define ENDPOINTS 4
#define LEASES 9
#define TEAMS 4

struct shadow_device {
    bool present;
    uint64_t owner;         /* lease of the last grant that is not verified over */
    uint64_t generation;    /* of that grant */
    bool committed;         /* its grant was done, so a restart knows it */
    enum core_rung stopped; /* its holder stands still by this rung; NONE: it does not */
    uint64_t stopped_ns, residue_bytes;
    uint64_t stop;        /* the REVOKE that would stop it */
    uint64_t deadline_ns; /* of a running revoke; 0: none */
    uint64_t latest_ns;   /* of that, the latest that an extension may make it */
    bool extended;
    bool unverified; /* lost with an owner: needs a look before the next grant */
    uint64_t verify; /* the VERIFY that would clear it */
};

struct shadow_lease {
    bool alive;
    struct core_lease_spec spec;
};

struct world {
    struct rig *rig;
    uint64_t random;
    bool crashes, calm;
    bool outside; /* most jobs are outside ones, so that more is stopped and noticed */
    uint64_t crash_count, epoch, generation, hash;
    struct shadow_device devices[DEVICES + 1];
    struct shadow_lease leases[LEASES + 1];
    struct core_endpoint_spec endpoints[ENDPOINTS + 1];
    struct core_team_spec teams[TEAMS]; /* of weight 0: not added */
};

/* ---- world.c ---- */
uint64_t world_draw(struct world *world, uint64_t below);
bool world_chance(struct world *world, uint64_t percent);
/* The answer comes after a while; unless all is calm, maybe late, twice or never. */
void world_later(struct world *world, struct core_event event);

/* ---- devices.c ---- */
void world_answer_device(struct world *world, enum core_event_kind kind,
                         const struct core_action *action, uint64_t device);
void world_send_device(struct world *world);
void world_send_sample(struct world *world);

/* ---- leases.c ---- */
void world_send_lease(struct world *world);
void world_send_holder(struct world *world);
void world_send_owner(struct world *world);

/* ---- teams.c ---- */
void world_lease_terms(struct world *world, struct core_lease_spec *spec);
void world_send_team(struct world *world);
void world_tell_teams(struct world *world); /* after a restart */
void world_send_heartbeat(struct world *world);

/* ---- holders.c ---- */
bool world_rung_stops(enum core_rung rung);
void world_answer_holder(struct world *world, const struct core_action *action);
void world_draw_rungs(struct world *world, struct core_lease_spec *spec);
void world_send_wish(struct world *world);

/* ---- endpoints.c ---- */
void world_answer_instance(struct world *world, const struct core_action *action);
void world_send_endpoint(struct world *world);
void world_send_load(struct world *world);

/* ---- checks.c ---- */
void checks_event(struct world *world, const struct core_event *event);    /* before the step */
void checks_action(struct world *world, const struct core_action *action); /* before its answer */
void checks_follow(struct world *world); /* what became of each device since the last look */

#endif
