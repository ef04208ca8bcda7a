/* engine.h: what happens in a simulated pool: requests arrive, wait and are served, devices change
 * hands, jobs train, things break. It decides nothing: a policy (policy.h) does, from what a
 * controller could see.
 *
 * Service model. A request takes its own service time on one device, is never interrupted, and
 * requests start in the order of their arrival on the first device that may serve them. It is late
 * when it waited longer than the SLO before it started, or never did. The run starts with all
 * devices serving and ends at end_ns.
 *
 * Devices. Each is in one phase. SERVING: of no job; serves, or is idle. DRAINING: given to a job,
 * but finishes its request first. GIVING: the job restores itself there. TRAINING: the job's; when
 * `shared`, requests that find no idle serving device still run there: the device is taken for
 * them within the take time of `yield` and goes back when no request waits (a slice). TAKING: on
 * its way back by some rung. LOST: broken.
 *
 * Rungs. A way to get a device back costs take_ns until it serves, give_ns until it trains again,
 * and, when it loses work, all progress since the job's last checkpoint. By freeze, pause and swap
 * the job stays resident: the device goes back to that job only, and a job of which one device is
 * taken stands still on all of them. By notice and kill the job leaves all its devices. By yield
 * and shrink the other devices go on.
 *
 * Units:   *_ns are nanoseconds of virtual time from 0.
 * Devices: numbers 0 .. count - 1. Endpoints: 0 .. count - 1. Jobs: index into the setup's table.
 * Owner:   the caller keeps setup, requests and jobs alive while the engine lives.
 * Thread:  one; the same setup and seed give the same run. */
#ifndef TIDEPOOL_CLIENTS_SIM_ENGINE_H
#define TIDEPOOL_CLIENTS_SIM_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"
#include "server/core/core.h"

#define ENGINE_DEVICES_MAX 16384u
#define ENGINE_ENDPOINTS_MAX 256u
#define ENGINE_JOBS_MAX 1000000u
#define ENGINE_SPEEDS_MAX 16 /* device counts with a measured speed */
#define ENGINE_NEVER_NS UINT64_MAX

struct engine; /* opaque */
struct policy_choice;

/* ---- what is played ---- */

struct sim_request {
    uint64_t arrival_ns; /* growing */
    uint64_t service_ns; /* > 0; the policy is never told it before the request has finished */
    uint32_t endpoint;
};

struct sim_job {
    uint64_t submit_ns;                     /* growing */
    uint64_t work_ns;                       /* time of one device at full speed; 0: endless */
    uint32_t devices_min, devices_max;      /* the minimum is a gang */
    uint64_t checkpoint_ns;                 /* training time between checkpoints; 0: every step */
    uint64_t restore_ns;                    /* added to give_ns after work was lost */
    uint32_t team;                          /* 0: none */
    int32_t priority;                       /* higher first */
    uint32_t kinds_mask;                    /* kinds of device it may use */
    uint32_t kind_permille[CORE_KINDS_MAX]; /* speed on a kind; 0 counts as 1000 */
    uint64_t memory_bytes;                  /* on each device */
    enum core_work work;                    /* as a policy may know it */
    /* Speed on i + 1 devices, thousandths of one device; all 0: linear. Beyond the table the last
     * one holds. */
    uint32_t speed_permille[ENGINE_SPEEDS_MAX];
};

struct sim_device {
    uint32_t kind;
    uint64_t memory_bytes; /* 0: not limited */
};

struct sim_rung {
    enum core_rung rung;
    uint64_t take_ns, give_ns;
    bool loses; /* what was trained since the last checkpoint */
};

/* All off when zero; drawn from the seed. */
struct sim_faults {
    uint64_t device_mtbf_ns;    /* mean time between losses, of one device */
    uint64_t device_repair_ns;  /* a lost device comes back after this */
    uint64_t detect_ns;         /* after a loss: until then its job hangs and nobody knows */
    uint64_t reclaim_every_ns;  /* mean time between devices that their provider takes back ... */
    uint64_t reclaim_notice_ns; /* ... which it says so long before ... */
    uint64_t reclaim_away_ns;   /* ... and brings back after this */
    uint32_t slow_permille;     /* share of devices that are slow ... */
    uint32_t slow_factor_milli; /* ... by this factor, in serving and training; >= 1000 */
    uint32_t late_permille;     /* share of answers that come late ... */
    uint64_t late_ns;           /* ... by up to this */
    uint32_t lost_permille;     /* share of answers that never come */
    uint64_t crash_every_ns;    /* mean time between crashes of the controller */
    uint64_t crash_down_ns;     /* until it runs again; nothing is decided meanwhile */
};

/* Told as it happens, for reports; NULL hooks are not called. Spans come when they end, those of
 * one device in order and without holes. */
struct sim_observer {
    void *context;
    void (*span)(void *context, uint32_t device, enum core_account account, uint64_t from_ns,
                 uint64_t to_ns);
    void (*request)(void *context, const struct sim_request *request, uint64_t start_ns);
    void (*handover)(void *context, uint32_t device, bool to_training, uint64_t at_ns);
    /* At the end, of each job that was submitted: its first grant, its end; ENGINE_NEVER_NS: not.
     */
    void (*job)(void *context, uint32_t job, uint64_t granted_ns, uint64_t ended_ns);
};

struct sim_setup {
    const struct sim_request *requests;
    size_t request_count;
    uint32_t endpoint_count;
    const char *const *endpoint_names; /* [endpoint_count] */
    const struct sim_job *jobs;
    size_t job_count;
    uint32_t device_count;
    const struct sim_device *devices;   /* [device_count], or NULL: all of kind 0, no limit */
    const struct core_kind_spec *kinds; /* [kind_count]: what a policy may know of them */
    uint32_t kind_count;
    struct sim_rung rungs[CORE_RUNG_COUNT]; /* the ways there are, cheapest first */
    size_t rung_count;
    uint64_t slo_ns;
    uint64_t end_ns;
    bool until_done;    /* ends before end_ns when all requests have come and all jobs are over */
    double late_budget; /* share of work that may be late above the floor: the one knob */
    uint64_t hold_ns; /* least time between two moves of a device; ENGINE_NEVER_NS: policy's own */
    uint64_t seed;
    struct sim_faults faults;
    struct sim_observer observer;
};

/* ---- what came of it ---- */

struct sim_result {
    double span_s;                    /* how long the run was */
    uint64_t requests, late_requests; /* that came before the end */
    double service_s, late_service_s;
    double late_fraction;    /* late service time / all service time */
    double harvest_fraction; /* device time of kept progress / (devices x time) */
    double idle_bound;       /* 1 - service time / (devices x time) */
    double slices_per_device_hour, handovers_per_device_hour;
    double lost_work_fraction;          /* lost device time / (devices x time) */
    double goodput_fraction;            /* kept progress at full speed / device time held; NAN */
    double effective_training_fraction; /* kept training time / device time held; NAN: none held */
    double job_wait_p50_s, job_wait_p99_s; /* from submitted to first granted; NAN: no jobs */
    double job_completion_mean_s;          /* of those that finished; NAN: none */
    uint64_t jobs_finished;
    double account_s[CORE_ACCOUNT_COUNT]; /* device time; adds up to devices x time */
    uint64_t faults;                      /* devices lost and controllers crashed */
    uint64_t reclaims;                    /* devices that their provider took back */
    bool ledger_balanced; /* the engine's books, and the policy's own where it keeps any */
    uint64_t events;
    double wall_s;
};

/* Plays the whole setup under one policy. Errors: no memory; the policy's own. */
int engine_run(const struct sim_setup *setup, const struct policy_choice *choice,
               struct sim_result *ret_result, struct error *error);

/* ---- what a policy may look at ---- */

enum engine_phase {
    ENGINE_SERVING,
    ENGINE_DRAINING,
    ENGINE_GIVING,
    ENGINE_TRAINING,
    ENGINE_TAKING,
    ENGINE_LOST,
    ENGINE_PHASES,
};

/* Sums since the start, and what is at this moment. */
struct engine_load {
    uint64_t arrivals, started, finished;
    uint64_t busy_ns;        /* device time that requests took, running ones up to now */
    uint64_t finished_ns;    /* service time of the finished ones */
    uint32_t queue_length;   /* waiting to start */
    uint64_t oldest_wait_ns; /* of those */
    uint32_t running;        /* devices with a request */
};

#define ENGINE_ALL UINT32_MAX  /* all endpoints together */
#define ENGINE_POOL UINT32_MAX /* the job that the engine's own queue chooses */

const struct sim_setup *engine_setup(const struct engine *engine);
uint64_t engine_now_ns(const struct engine *engine);
uint32_t engine_count(const struct engine *engine, enum engine_phase phase);
enum engine_phase engine_phase_of(const struct engine *engine, uint32_t device);
bool engine_is_busy(const struct engine *engine, uint32_t device); /* runs a request */
/* Whose request that is; ENGINE_ALL: none. */
uint32_t engine_serves(const struct engine *engine, uint32_t device);
bool engine_instance_is_ready(const struct engine *engine, uint32_t device, uint32_t endpoint);
/* When the device was last given or taken (asked for); 0: never. */
uint64_t engine_moved_ns(const struct engine *engine, uint32_t device);
/* The device's job; ENGINE_POOL: none. Also that of a job which only stays resident. */
uint32_t engine_job_of(const struct engine *engine, uint32_t device);
void engine_load(const struct engine *engine, uint32_t endpoint, struct engine_load *ret_load);
bool engine_job_is_over(const struct engine *engine, uint32_t job);
/* What the setup's faults do to the policy's own messages: the number-th one of a stream comes so
 * much later, or never. Streams below ENGINE_DEVICES_MAX are the engine's. */
uint64_t engine_fault_delay_ns(const struct engine *engine, uint64_t stream, uint64_t number);
bool engine_fault_lost(const struct engine *engine, uint64_t stream, uint64_t number);

/* ---- what a policy may do ---- */

/* Lets the job have a device that serves (or drains, then nothing changes). ENGINE_POOL: the
 * engine's own queue, first come first served, gangs whole, no overtaking, gives it work; a device
 * on which a job stays resident goes back to that one. `shared`: requests may still run there, by
 * yield. False: not in SERVING or DRAINING, or the job does not want it. */
bool engine_give(struct engine *engine, uint32_t device, uint32_t job, bool shared);
/* Takes a device back by the rung: from DRAINING at once, from GIVING and TRAINING after take_ns
 * (then it is SERVING, and the policy is told); by kill also a device on which a job stands still
 * (from SERVING at once). False: in none of these, or the setup has no such rung. CORE_RUNG_NONE:
 * the setup's first. */
bool engine_take(struct engine *engine, uint32_t device, enum core_rung rung);
/* The same for a device of the engine's choice. Give: an idle serving one before a busy one, the
 * highest number first. Take: of a job that stands still, then from the pool without a job, then
 * where least work is lost; none that moved within the setup's hold. False: there is none. */
bool engine_give_any(struct engine *engine);
bool engine_take_any(struct engine *engine, enum core_rung rung);
/* Where the endpoint's requests may run beside the phase; true everywhere at the start. */
void engine_instance_set(struct engine *engine, uint32_t device, uint32_t endpoint, bool ready);
/* Calls the policy's wake hook with the cookie at that time. Cannot be taken back. */
void engine_wake_at(struct engine *engine, uint64_t at_ns, uint64_t cookie);

#endif
