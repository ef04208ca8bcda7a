/* state.h: what the files of the engine share. Not for others: they include engine.h.
 * One writer: a device's phase changes only in devices.c, its account only in book.c, its request
 * only in serve.c, a job's figures only in jobs.c. */
#ifndef TIDEPOOL_CLIENTS_SIM_STATE_H
#define TIDEPOOL_CLIENTS_SIM_STATE_H

#include <assert.h>

#include "clients/sim/agenda.h"
#include "clients/sim/bits.h"
#include "clients/sim/engine.h"
#include "clients/sim/policy.h"

#define NONE UINT32_MAX

enum moment_kind {
    MOMENT_SERVE,    /* a device, taken by yield for a request: the request begins */
    MOMENT_SERVED,   /* a device: its request ends */
    MOMENT_SHIFTED,  /* a device: its phase ends */
    MOMENT_UNSLICED, /* a device: training goes on after a slice */
    MOMENT_JOB_END,  /* a job has done its work */
    MOMENT_WAKE,     /* the policy's */
    MOMENT_LOSS,     /* a device breaks */
    MOMENT_DETECTED, /* a device: its loss is noticed */
    MOMENT_REPAIR,   /* a device comes back */
    MOMENT_WANTED,   /* a device: its provider wants it back */
    MOMENT_RECLAIM,  /* a device: its provider takes it back */
    MOMENT_CRASH,    /* of the controller */
    MOMENT_RESTART,  /* of the controller */
};

struct device {
    enum engine_phase phase;
    uint32_t version;       /* of the moment awaited for the phase: older ones are void */
    uint32_t serve_version; /* the same for its request */
    uint32_t request;       /* NONE: idle */
    bool begun;             /* the request runs; else the device is being taken for it */
    uint64_t began_ns;
    uint32_t job;                 /* NONE: none; in SERVING: that which stays resident */
    uint32_t before, after;       /* in the job's list of devices; NONE ends it */
    bool pooled;                  /* its work comes from the engine's own queue */
    bool shared;                  /* requests may run while a job has it */
    bool away;                    /* stopped in place: taken, or not yet at work again */
    bool returning;               /* to its job after a slice */
    bool trains;                  /* counted in the job's active */
    const struct sim_rung *rung;  /* of the last take */
    uint32_t takes, losses, told; /* so far; number the draws of faults */
    uint32_t hung;                /* the job that hangs since the device was lost, or NONE */
    uint32_t hung_run;            /* in that run of it */
    bool wanted;                  /* by its provider */
    uint64_t moved_ns;
    uint32_t slow_milli; /* 1000: as fast as its kind */
    enum core_account account;
    uint64_t account_since_ns;
};

enum job_state {
    JOB_ABSENT, /* not submitted yet */
    JOB_WAITING,
    JOB_HELD, /* has at least one device */
    JOB_DONE,
};

struct job {
    enum job_state state;
    uint32_t first;               /* of its devices, which it holds in any phase */
    uint32_t held;                /* how many */
    uint32_t present;             /* of those, in TRAINING */
    uint32_t away;                /* of those, stopped in place */
    uint32_t going;               /* of those, being taken for good */
    uint32_t run;                 /* so often it has left all its devices */
    uint32_t hangs;               /* on so many lost devices that nobody has noticed yet */
    bool leaving;                 /* gives up all its devices, then waits again */
    bool runs;                    /* trains on those that are free for it */
    uint32_t active;              /* devices on which it trains right now */
    uint64_t speed_milli;         /* sum of the speeds of those */
    uint64_t since_ns;            /* figures hold up to here */
    core_sum_ns trained_ns;       /* device time that was training, with what got lost */
    core_sum_ns progress_ns;      /* time of one device at full speed, without what got lost */
    core_sum_ns held_ns, lost_ns; /* device time */
    /* Since the last checkpoint: time, device time, progress. */
    uint64_t run_ns;
    core_sum_ns provisional_ns, progress_provisional_ns;
    uint64_t granted_ns, ended_ns; /* first time; ENGINE_NEVER_NS: never */
    const struct sim_rung *rung;   /* by which it last left a device */
    bool restore;                  /* work was lost: the next start takes restore_ns longer */
    uint32_t version;              /* of its MOMENT_JOB_END */
};

struct queue {
    uint32_t first, last, length; /* requests, linked by engine.next */
};

enum notice_kind {
    NOTICE_ARRIVED,
    NOTICE_SERVE_BEGAN,
    NOTICE_SERVE_ENDED,
    NOTICE_MOVED,
    NOTICE_WANTED,
    NOTICE_JOB_SUBMITTED,
    NOTICE_JOB_ENDED,
};

/* For the policy's hooks, called between moments. */
struct notice {
    enum notice_kind kind;
    uint32_t object, detail;
    uint64_t amount_ns;
};

struct engine {
    const struct sim_setup *setup;
    struct policy *policy;
    uint64_t now_ns;
    struct agenda agenda;
    bool out_of_memory;
    bool crashed;
    uint64_t restart_ns;
    uint64_t end_ns; /* once it has ended */

    struct device *devices;
    uint32_t phase_count[ENGINE_PHASES];
    struct bits idle;   /* SERVING without a request */
    struct bits lent;   /* shared and with a job, without a request */
    struct bits pool;   /* TRAINING, pooled, without a job */
    struct bits *ready; /* [endpoint_count]: devices where it may run */

    struct job *jobs;
    struct bits waiting; /* jobs in JOB_WAITING */
    size_t next_job;     /* not submitted yet */
    size_t jobs_over;

    size_t next_request;
    struct queue *queues; /* [endpoint_count] */
    uint32_t *next;       /* [request_count] */
    uint32_t queued;
    struct engine_load *loads; /* [endpoint_count + 1], the last of all together; busy_ns without
                                * running x now */

    struct notice *notices; /* a ring */
    size_t notice_first, notice_count, notice_capacity;

    core_sum_ns account_ns[CORE_ACCOUNT_COUNT];
    core_sum_ns service_ns, late_service_ns;
    uint64_t late_requests, slices, handovers, faults, crashes, reclaims, events;
    uint64_t wishes; /* of providers; numbers their draws */
};

/* ---- engine.c ---- */
void engine_add(struct engine *engine, uint64_t at_ns, enum moment_kind kind, uint32_t object,
                uint64_t detail);
void engine_tell(struct engine *engine, enum notice_kind kind, uint32_t object, uint32_t detail,
                 uint64_t amount_ns);

/* ---- serve.c: requests ---- */
void serve_arrival(struct engine *engine);               /* the next one, which is due */
void serve_next(struct engine *engine, uint32_t number); /* a waiting request, if it may have one */
void serve_begun(struct engine *engine, uint32_t number, uint64_t version);
void serve_ended(struct engine *engine, uint32_t number, uint64_t version);
void serve_abort(struct engine *engine, uint32_t number);  /* back to the queue's head */
void serve_update(struct engine *engine, uint32_t number); /* whether it is idle, or lent */
void serve_close(struct engine *engine);                   /* the end: what waits is late */

/* ---- devices.c ---- */
void device_shifted(struct engine *engine, uint32_t number, uint64_t version);
void device_unsliced(struct engine *engine, uint32_t number, uint64_t version);
void device_slice_over(struct engine *engine, uint32_t number);
void device_drained(struct engine *engine, uint32_t number);
void device_lose(struct engine *engine, uint32_t number, uint64_t loss);
void device_detected(struct engine *engine, uint32_t number);
void device_wanted(struct engine *engine, uint32_t number);
void device_reclaim(struct engine *engine, uint32_t number);
void device_repair(struct engine *engine, uint32_t number);
void device_start(struct engine *engine, uint32_t number, uint32_t job); /* one of the pool's */
void device_free(struct engine *engine, uint32_t number); /* its job has no more use for it */
const struct sim_rung *engine_rung(const struct engine *engine, enum core_rung rung);

/* ---- jobs.c ---- */
void job_submit(struct engine *engine);                   /* the next one, which is due */
void job_advance(struct engine *engine, struct job *job); /* its figures, up to now */
/* After anything about one of its devices changed: who trains, how fast, until when. */
void job_update(struct engine *engine, uint32_t device);
void job_join(struct engine *engine, uint32_t number, uint32_t device);
void job_leave(struct engine *engine, uint32_t device);
void job_lose(struct engine *engine, uint32_t number); /* what is not checkpointed */
void job_keep(struct engine *engine, uint32_t number); /* it saves a checkpoint now */
void job_ended(struct engine *engine, uint32_t number, uint64_t version);
void job_disband(struct engine *engine, uint32_t number); /* it gives up all its devices */
void job_hang(struct engine *engine, uint32_t number, bool hangs);
bool job_wants(const struct engine *engine, uint32_t number, uint32_t device);
void pool_schedule(struct engine *engine);
bool device_trains(const struct engine *engine, uint32_t number); /* right now */

/* ---- book.c ---- */
void book_update(struct engine *engine, uint32_t number); /* after anything about it changed */
void book_handover(struct engine *engine, uint32_t number, bool to_training);
void book_result(struct engine *engine, struct sim_result *ret_result);

/* ---- faults.c ---- */
void faults_begin(struct engine *engine);
void faults_loss_next(struct engine *engine, uint32_t number);
void faults_crash_next(struct engine *engine);
void faults_wish_next(struct engine *engine);

#endif
