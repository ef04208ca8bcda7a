/* sim.h: `tidepool sim`: reads traces, plays them under the policies asked for, writes what came of
 * it.
 * Units:   as the fields say; *_s are seconds, also parts of them.
 * Owner:   the caller keeps the texts alive; results belong to the caller.
 * Errors:  0 or a negative enum error_code; the text names the option, its limits and the way out.
 * Thread:  one. */
#ifndef TIDEPOOL_CLIENTS_SIM_SIM_H
#define TIDEPOOL_CLIENTS_SIM_SIM_H

#include <jansson.h>
#include <stdio.h>

#include "clients/sim/policy.h"
#include "clients/sim/workload.h"

#define SIM_POLICIES_MAX 32

/* What the command line says, unchecked. */
struct sim_options {
    const char *const *requests, *const *jobs, *const *policies;
    size_t request_files, job_files, policy_count;
    int64_t devices;
    int64_t gang; /* devices of each endless job; 0: none; -1: 1, or none where jobs are given */
    double slo_ms;
    const char *rungs;
    double notice_s; /* time to take of the rung `notice` */
    double late_budget;
    double hold_s; /* negative: the policy's own */
    int64_t seed;
    double scale;      /* of service times; 0: from the trace and the devices */
    double time_scale; /* of all times of the traces */
    double rate_scale; /* of rate curves */
    double rate_rps;   /* mean of each rate curve; 0: as published */
    double from_s, until_s;
    double duration_s; /* of the run; 0: to the end of the traces */
    bool until_done;   /* ends with the last job instead */
    double checkpoint_s, restore_s;
    int64_t workload; /* of elastic jobs */
    bool find_devices;
    /* Faults. */
    double device_mtbf_h, device_repair_s, detect_s;
    double reclaims_per_h, reclaim_notice_s, reclaim_away_s;
    double slow_share, slow_factor;
    double late_share, late_by_s, lost_share;
    double crash_every_h, crash_down_s;
};

/* The defaults that the help tells. */
void sim_options_init(struct sim_options *options);

/* One policy as asked for, and what it came to. */
struct sim_outcome {
    struct policy_choice choice;
    bool search; /* hindsight without parameters: they are searched for */
    struct sim_result result;
    double
        harvest_vs_hindsight; /* NAN: hindsight was not among the policies, or harvests nothing */
    uint32_t devices_needed;  /* --find-devices: fewest within the late budget; 0: not asked for,
                               * or not even with the most */
};

/* All that a run needs, made from options, and all that came of it. */
struct sim {
    struct trace trace;
    struct workload workload;
    struct sim_setup setup; /* points into the two */
    struct sim_outcome outcomes[SIM_POLICIES_MAX];
    size_t outcome_count;
    double late_floor; /* late fraction of the same setup with all devices serving */
};

/* Checks all options and reads all traces. */
int sim_open(const struct sim_options *options, struct sim *ret_sim, struct error *error);
/* Plays every policy, in the order asked for. `progress`, or NULL, is told of each. */
int sim_play(struct sim *sim, const struct sim_options *options, FILE *progress,
             struct error *error);
void sim_close(struct sim *sim); /* a zeroed one is fine */

/* A new reference; NULL: no memory. */
json_t *sim_json(const struct sim *sim);
void sim_print(const struct sim *sim, FILE *out); /* a table for people */

/* "freeze,notice=20/10": names from a table of standard times; TAKE/GIVE seconds change them. The
 * kill that ends every job is always there, last. */
int sim_rungs_parse(const char *text, double notice_s, struct sim_setup *setup,
                    struct error *error);
/* "static" or "keda:target=2,devices_min=1". */
int sim_policy_parse(const char *text, struct policy_choice *ret_choice, struct error *error);

#endif
