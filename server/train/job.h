/* job.h: one training job: its state, and what its threads do with it.
 * Threads: `control` calls trainer.h and touches only `control` and atomics: it never waits for a
 *          lock that a training thread (SCHED_IDLE) could hold while serving has its core.
 *          Training threads pull and push pieces under `lock`; loaders fill the feed; the job's
 *          keeper loads, writes checkpoints, exports and ends it.
 * Life:    counted: the trainer's list, and each worker from its grant until it has left. */
#ifndef TIDEPOOL_TRAIN_JOB_H
#define TIDEPOOL_TRAIN_JOB_H

#include <limits.h>

#include "server/base/mailbox.h"
#include "server/train/rate.h"
#include "server/train/step.h"

enum job_state {
    JOB_LOADING,
    JOB_TRAINING,
    JOB_ENDING, /* all steps done: devices leave, then the keeper writes and exports */
    JOB_FAILING,
    JOB_ENDED,
};

/* Where a training thread is inside its piece: what a stop hit is counted by. */
enum work_place { WORK_NONE, WORK_FORWARD, WORK_BACKWARD, WORK_SUM, WORK_APPLY, WORK_EVALUATE };
#define WORK_PLACES 6

struct train_job {
    struct trainer *trainer;
    uint64_t number;
    char id[128];
    char directory[PATH_MAX - 64]; /* of its checkpoints */
    struct specification specification;
    _Atomic uint64_t steps; /* to do; 0 until loaded */
    _Atomic uint32_t holders;

    struct { /* the control thread */
        struct train_job *next;
    } control;

    struct { /* set by the keeper before JOB_TRAINING, constant after */
        struct dataset *dataset;
        struct vector_pool *gradients, *states;
        size_t parameters;
        uint32_t micro_batches, window;
        pthread_t thread;
        struct mailbox *box; /* only poked: look again */
        struct letter poke_letter;
        _Atomic uint32_t poked;
    } keeper;

    pthread_mutex_t lock;
    pthread_cond_t feed_changed; /* loaders wait here */
    struct {                     /* under lock */
        enum job_state state;
        struct step *step;
        struct feed *feed;
        uint64_t held;    /* mask of devices whose training thread is in this job */
        uint64_t waiting; /* of them, those that found nothing to do */
        uint64_t loaders; /* mask of devices that have a loader */
        pthread_t loader_threads[DEVICES_MAX];
        bool closing;              /* loaders end */
        struct vector *checkpoint; /* to be written by the keeper; a hold */
        uint64_t checkpoint_step;
        bool checkpoint_busy;
        uint64_t checkpoint_due_ns, progress_due_ns, retry_ns;
        char failure[256];
    } shared;

    struct {                    /* any thread */
        _Atomic uint64_t lost;  /* mask: devices to be given up on at the next look */
        _Atomic bool cancelled; /* the caller has destroyed it */
        _Atomic bool stopping;  /* the trainer ends: write a checkpoint and go */
        _Atomic bool checkpoint_wanted;
        _Atomic uint64_t step, checkpointed_step, micro_batches_done, micro_batches_returned;
        _Atomic double loss_first, loss_last, held_out_loss, held_out_accuracy;
        _Atomic uint64_t data_wait_ns, preemptions, taken_over;
        _Atomic uint32_t devices_held;
        _Atomic bool exported;
        _Atomic uint64_t stands[WORK_PLACES], aborts[WORK_PLACES];
        struct rate rate;
    } figures;
    char export_path[512]; /* written before `exported` is set */
};

/* ---- job.c: life and pieces ---- */

struct train_job *job_hold(struct train_job *job);
void job_release(struct train_job *job);
void job_notify(struct train_job *job, enum train_event_kind kind, uint32_t device,
                const char *text);
void job_released(struct train_job *job, uint32_t device, uint64_t grant);
/* The job ends with this text; the first one counts. Any thread but control. */
void job_fail(struct train_job *job, const char *text);
void job_sweep(struct train_job *job); /* gives up on devices that have failed */
void job_wake(struct train_job *job);  /* whoever waits for pieces or places has a look */
void job_poke_keeper(struct train_job *job);

/* Training thread of `device`. Enter after a grant, leave when revoked or told JOB_PULL_LEAVE. */
void job_enter(struct train_job *job, uint32_t device);
void job_leave(struct train_job *job, uint32_t device);

enum job_pull { JOB_PULL_TASK, JOB_PULL_WAIT, JOB_PULL_DATA, JOB_PULL_WATCH, JOB_PULL_LEAVE };
/* WATCH: others hold what there is; look again soon, one of them may stand still. */
enum job_pull job_pull(struct train_job *job, uint32_t device, struct task *ret_task);
/* Hands the piece in (complete or not) and releases its vectors. */
void job_push(struct train_job *job, uint32_t device, struct task *task, bool complete);

/* ---- load.c, keeper.c, loader.c ---- */

int job_load(struct train_job *job, struct error *error); /* keeper */
void job_warn(struct train_job *job, const char *text);   /* keeper: log and event */
int keeper_start(struct train_job *job, struct error *error);
void loader_start(struct train_job *job, uint32_t device); /* once per device */
void loaders_join(struct train_job *job);                  /* keeper; after `closing` */

#endif
