/* tidepool.h: what the files of the policy `tidepool` share: the real core over the engine's
 * devices, told of the world by the same events as the server tells it, obeyed in the same actions.
 * Not for others: they use policy_tidepool. */
#ifndef TIDEPOOL_CLIENTS_SIM_TIDEPOOL_H
#define TIDEPOOL_CLIENTS_SIM_TIDEPOOL_H

#include "clients/sim/bits.h"
#include "clients/sim/policy.h"

enum tidepool_parameter {
    PARAMETER_SAMPLE_MS,
    PARAMETER_REVOKES_PER_HOUR,
    PARAMETER_STOPS_PER_HOUR,
    PARAMETER_STOPPED_CAP_S,
    PARAMETER_KIND_SPEEDS,
    PARAMETER_COUNT,
};

struct tide_device {
    /* Actions that wait for an answer; 0: none. */
    uint64_t grant, revoke, resume, verify;
    enum core_rung rung; /* of the revoke */
    uint64_t generation; /* of the last grant: committed, so it survives a crash */
    uint64_t sampled_ns; /* the core knows its use up to here ... */
    uint64_t span_ns;    /* ... and hears of it again after so long, if nothing changes */
    bool serving;        /* a request runs, since ... */
    uint64_t serving_since_ns;
    uint64_t served_ns;       /* since the last sample, by requests that ended */
    bool served;              /* one ran when the last sample was sent */
    uint32_t slices;          /* since the last sample */
    uint64_t giving_since_ns; /* the job restores itself since then */
    uint64_t restored_ns;     /* since the last sample */
};

struct tide_endpoint {
    struct engine_load told; /* as of the last sample */
    uint64_t sampled_ns, span_ns, danger_ns;
    bool had_load;
    uint64_t *removes; /* [devices]: REMOVE that waits until its request has ended; 0: none */
};

struct tide_job {
    bool requested, ended;
    bool reporting; /* its progress, from time to time */
    uint64_t step;  /* of the last report: all of it is kept */
};

struct tidepool {
    struct policy base;
    struct engine *engine;
    const struct sim_setup *setup;
    double parameters[PARAMETER_COUNT];
    struct core *core;
    struct core_action *actions;
    size_t action_capacity;
    struct core_event *events; /* a ring: what an action brings forth comes after its step */
    size_t event_first, event_count, event_capacity;
    bool pumping, broken; /* broken: no memory, or the core's books did not add up */
    struct tide_device *devices;
    struct tide_endpoint *endpoints;
    struct tide_job *jobs;
    uint64_t epoch, generation;
    uint64_t timer_ns; /* the core wants to be called then; 0: not */
    uint64_t woken_ns; /* the engine will wake us for it then, or before; 0: not */
    bool ticking;
    struct bits active;       /* devices that serve, or did when they were last told of */
    uint64_t answers;         /* numbers the draws of late and lost ones */
    struct core_event *later; /* late answers; slots are used again */
    size_t later_count;
};

/* What the policy is woken for. */
enum tidepool_cookie { COOKIE_TIMER, COOKIE_TICK, COOKIE_LATER, COOKIE_PROGRESS, COOKIE_CLEANED };

/* ---- tidepool.c ---- */
/* A wish to be woken that a crash ends. */
uint64_t tidepool_cookie(const struct tidepool *policy, enum tidepool_cookie kind, uint64_t number);
void tidepool_feed(struct tidepool *policy, struct core_event event);
/* The same for an answer, which may come late or never. */
void tidepool_answer(struct tidepool *policy, struct core_event event);
void tidepool_feed_first(struct tidepool *policy, struct core_event event); /* before all others */

void tidepool_timer_plan(struct tidepool *policy);
void tidepool_progress_begin(struct tidepool *policy, uint32_t job); /* it is at work */

/* ---- tidepool_load.c: load becomes samples and danger ---- */
/* The core takes what it has not heard of for so long for idle. */
#define TIDEPOOL_STALE_NS (UINT64_C(10) * 1000000000)
void tidepool_arrived(struct tidepool *policy, uint32_t endpoint);
void tidepool_serve_began(struct tidepool *policy, uint32_t device);
void tidepool_serve_ended(struct tidepool *policy, uint32_t device);
void tidepool_sample(struct tidepool *policy, uint32_t device); /* how it was used up to now */
void tidepool_tick(struct tidepool *policy);
void tidepool_tick_begin(struct tidepool *policy);

/* ---- tidepool_apply.c ---- */
bool tidepool_rung_stops(enum core_rung rung); /* in place */
void tidepool_apply(struct tidepool *policy, const struct core_action *action);
void tidepool_moved(struct tidepool *policy, uint32_t device, enum engine_phase phase);
void tidepool_tell_wanted(struct tidepool *policy, uint32_t device, uint64_t by_ns);
void tidepool_served(struct tidepool *policy, uint32_t device, uint32_t endpoint);
void tidepool_cleaned(struct tidepool *policy, uint32_t device);

/* ---- tidepool_world.c: what the core is told at its start, and again after a crash ---- */
struct core *tidepool_core_create(const struct tidepool *policy, uint64_t epoch); /* or NULL */
void tidepool_tell_world(struct tidepool *policy, bool again);
void tidepool_tell_job(struct tidepool *policy, uint32_t job);

#endif
