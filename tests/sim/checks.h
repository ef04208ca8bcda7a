/* checks.h: what the events and actions say, kept beside the core by nothing but them, for the
 * invariants that one state cannot show (DESIGN section 6; core_check has the others):
 *   checks.c         1  no device is granted between its grant and a verified release
 *   checks_time.c    2  every revoke ends in time; 3 floors; 6 moves stay under their bounds
 *   checks_token.c   4  what comes late changes nothing
 *   checks_queue.c   5  the head of the queue starts when it fits
 *   checks_ledger.c  7  accounts add up with what was told from outside
 * A broken one ends the test, with the seed. */
#ifndef TIDEPOOL_TESTS_SIM_CHECKS_H
#define TIDEPOOL_TESTS_SIM_CHECKS_H

#include "tests/sim/history.h"
#include "tests/unit/core/rig.h"

/* Ids of a schedule: 1 .. these. */
#define SIM_DEVICES_MAX 64
#define SIM_LEASES_MAX 96
#define SIM_ENDPOINTS_MAX 8
#define SIM_TEAMS_MAX 4

struct seen_moves {
    uint64_t *times_ns; /* of the last hour, in order */
    size_t count, capacity;
};

struct seen_device {
    bool present;
    struct core_device_spec spec;
    uint64_t added_ns;
    uint64_t owner;       /* lease of the last grant that is not verified over */
    uint64_t generation;  /* of that grant */
    bool committed;       /* its grant was done, so a restart knows it */
    bool unverified;      /* lost with an owner: needs a look before the next grant */
    uint64_t verify;      /* the VERIFY that would clear it */
    uint64_t deadline_ns; /* of the revoke that runs; 0: none */
    bool extended;        /* ... or has no right to it */
    uint64_t stop;        /* the REVOKE that would stop its holder in place */
    uint64_t stop_deadline_ns;
    enum core_rung stopped; /* its holder stands still by this rung; NONE: it does not */
    uint64_t stopped_ns, residue_bytes;
    struct seen_moves moves;
    bool moved_by_stop; /* the last one */
};

struct seen_lease {
    bool alive;
    struct core_lease_spec spec;
    uint64_t fits_since_ns; /* it heads the queue and fits; 0: not */
};

struct checks {
    struct rig *rig;
    struct core_config config;
    struct history history;
    uint64_t generation; /* highest ever granted */
    struct seen_device devices[SIM_DEVICES_MAX + 1];
    struct seen_lease leases[SIM_LEASES_MAX + 1];
    struct core_endpoint_spec endpoints[SIM_ENDPOINTS_MAX + 1]; /* endpoint 0: not there */
    struct core_team_spec teams[SIM_TEAMS_MAX + 1];             /* weight 0: not added */
    bool acts;                                                  /* mode ACT, no hold */
    bool reconciled;          /* all from before the restart is told */
    uint64_t danger_until_ns; /* an SLO is in danger */

    struct {
        bool expected; /* the event that runs must change nothing */
        uint64_t state;
    } late;
    struct {
        uint64_t told_ns;    /* by samples, as far as they count */
        uint64_t elapsed_ns; /* of devices that are gone */
    } ledger;
};

struct checks *checks_create(struct rig *rig, const struct core_config *config);
void checks_destroy(struct checks *checks);
void checks_event(struct checks *checks, const struct core_event *event); /* before the step */
void checks_step(struct checks *checks, const struct core_event *event);  /* after it */
/* A new core, of this configuration, is in the rig: only what it is told again counts. */
void checks_crash(struct checks *checks, const struct core_config *config);
/* When all has calmed down: nothing hangs half-way. */
void checks_settled(const struct checks *checks);

/* What a test adds to what is checked after every step; NULL: nothing. */
extern void (*checks_more)(const struct checks *checks);

/* NULL: not an id of a schedule. */
struct seen_device *checks_device(struct checks *checks, uint64_t device);
struct seen_lease *checks_lease(struct checks *checks, uint64_t lease);

/* ---- for the files of the checks ---- */
void checks_require(const struct checks *checks, bool holds, const char *what, uint64_t object);
void checks_time_action(struct checks *checks, const struct core_action *action);
void checks_time_step(struct checks *checks);
void checks_time_forget(struct seen_device *device); /* no revoke or stop of it runs any more */
void checks_time_event(struct checks *checks, const struct core_event *event);
void checks_token_event(struct checks *checks, const struct core_event *event);
void checks_token_step(struct checks *checks, const struct core_event *event);
void checks_ledger_event(struct checks *checks, const struct core_event *event);
void checks_ledger_step(struct checks *checks);
void checks_queue_step(struct checks *checks);

#endif
