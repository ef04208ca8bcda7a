/* worker.h: the training thread of a device.
 * It works for at most one job, pulls that job's pieces, and stops inside a piece when its gate
 * closes: for a moment while a batch runs on the device (it goes on where it stood), or for good
 * when the device is revoked (the piece goes back to the job's queue).
 * Thread:  start, stop, send: the control thread; poke: any. None of them waits for a lock. */
#ifndef TIDEPOOL_TRAIN_WORKER_H
#define TIDEPOOL_TRAIN_WORKER_H

#include "server/train/job.h"

struct worker;

enum worker_command {
    WORKER_GRANT,
    WORKER_REVOKE, /* answered by TRAIN_RELEASED */
    WORKER_LOST,   /* as revoke; the answer has been given already */
};

struct worker *worker_start(struct device *device, struct error *error); /* NULL: error is set */
void worker_stop(struct worker *worker);    /* returns its piece, joins; NULL is fine */
void worker_destroy(struct worker *worker); /* a stopped one; NULL is fine */
enum work_place worker_place(const struct worker *worker);
/* `grant`: the number of the device's last one. -1: no memory, nothing was sent. */
int worker_send(struct worker *worker, enum worker_command command, struct train_job *job,
                uint64_t grant);
void worker_poke(struct worker *worker);   /* there may be work */
void worker_cancel(struct worker *worker); /* its piece is of no use any more */

#endif
