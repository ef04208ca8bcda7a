/* trainer.h: in-process training: jobs, their steps and micro-batches, on the devices they hold.
 * Job:     made from a JSON specification (docs/training.md prints the table); runs on the devices
 *          that the core grants; stands still (yield) whenever a batch runs on its device.
 * Grant:   at most one job at a time per device; after a revoke, not before `released`. A job that
 *          finished or failed has left its devices by itself: no `released` follows for them.
 * Revoke:  a granted device is given back at once: its micro-batch returns to the job's queue; the
 *          `released` event follows when the training thread is verifiably out of the job.
 * Strict:  weights after N steps are bit-identical however devices came and went.
 * Durable: a checkpoint is written atomically, checksummed; a job of the same id and specification
 *          that is created again goes on from the newest good one.
 * Thread:  the control thread calls; events come by `notify` from any thread and must only post a
 *          letter. Snapshots may be taken from any thread. */
#ifndef TIDEPOOL_TRAIN_TRAINER_H
#define TIDEPOOL_TRAIN_TRAINER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/base/error.h"
#include "server/device/device.h"

struct trainer;
struct train_job;

enum train_event_kind {
    TRAIN_READY,      /* data and model loaded: the job may be granted devices */
    TRAIN_PROGRESS,   /* at most every 100 ms: step, checkpointed step */
    TRAIN_RELEASED,   /* device given back after a revoke; index in `device` */
    TRAIN_CHECKPOINT, /* written: `step` */
    TRAIN_FINISHED,   /* all steps done, exported; holds no device any more */
    TRAIN_FAILED,     /* text says at which step and why; last good checkpoint kept */
    TRAIN_WARNING,    /* e.g. no space for a checkpoint; training goes on */
};

struct train_event {
    enum train_event_kind kind;
    uint64_t job; /* the caller's number */
    uint32_t device;
    uint64_t grant; /* RELEASED: of trainer_grant_number */
    uint64_t step, checkpointed_step;
    char text[256];
};

struct train_status {
    uint64_t step, steps, checkpointed_step, micro_batches_done, micro_batches_returned;
    double loss_first, loss_last, held_out_loss, held_out_accuracy; /* NAN: not known yet */
    double steps_per_second;                                        /* over the last 5 s */
    uint64_t data_wait_ns, preemptions;
    uint32_t devices_held;
    char checkpoint_path[512], export_path[512];
};

/* What a specification asks of the core. */
struct train_request {
    char name[64], team[64];           /* team: "" none */
    uint32_t devices_min, devices_max; /* "devices": "1:4" */
    uint32_t priority;                 /* 0 to 100; higher goes first */
};
/* Checks the specification's text alone: no file is opened. */
int train_request_read(const json_t *specification, struct train_request *ret_request,
                       struct error *error);

struct trainer *trainer_create(struct device_set *devices, const char *state_directory,
                               void (*notify)(void *context, const struct train_event *event),
                               void *context, struct error *error);
/* Stops its threads, writes a checkpoint of each job that is not finished, frees the jobs too. */
void trainer_destroy(struct trainer *trainer);

/* Highest number among the jobs whose folders lie in the state directory ("<name>-<number>"), 0
 * none. A new job of such an id would go on from the old one's checkpoint. */
uint64_t trainer_last_number(const struct trainer *trainer);

/* Checks the specification whole (unknown keys, shapes, files) before it returns; loading goes on
 * in the background until TRAIN_READY. */
int trainer_job_create(struct trainer *trainer, uint64_t number, const char *job_id,
                       const json_t *specification, struct train_job **ret_job,
                       struct error *error);
void trainer_job_destroy(struct train_job *job); /* holds no device any more */
/* Frees destroyed jobs whose threads have ended meanwhile; to be called now and then. */
void trainer_reap(struct trainer *trainer);
void trainer_job_grant(struct train_job *job, uint32_t device);
/* Of the device's last grant to any job. A release of another one comes late: a revoke that a
 * failure has overtaken is answered by both. */
uint64_t trainer_grant_number(const struct trainer *trainer, uint32_t device);
void trainer_job_revoke(struct train_job *job, uint32_t device);
/* The device is lost: as revoke, but its threads may never come back: the released event follows
 * at once, and what such a thread still does is ignored. */
void trainer_job_device_failed(struct train_job *job, uint32_t device);
int trainer_job_checkpoint(struct train_job *job); /* asks for one at the end of this step */
void trainer_job_status(const struct train_job *job, struct train_status *ret_status);

#endif
