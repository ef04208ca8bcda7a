/* feed.h: micro-batches of rows, read and prepared by loader threads ahead of the devices.
 * Ring:    a bounded window of sequence numbers (step · micro-batches + micro-batch) from the
 * oldest unfinished one on; a loader fills the next free place and stands when the ring is full.
 * Keep:    rows stay until their micro-batch is done, so one that goes back to the queue finds
 * them. Thread:  all calls but feed_read under the job's lock. */
#ifndef TIDEPOOL_TRAIN_FEED_H
#define TIDEPOOL_TRAIN_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "server/train/dataset.h"
#include "server/train/vector.h"

struct feed;

struct feed_config {
    const struct dataset *dataset;
    uint32_t rows;       /* of a micro-batch */
    uint32_t inputs;     /* floats of a row */
    uint32_t ahead;      /* places in the ring */
    uint64_t begin, end; /* first sequence number, and the one after the last */
};

struct feed *feed_create(const struct feed_config *config); /* NULL: no memory */
void feed_destroy(struct feed *feed);                       /* NULL is fine */

/* A loader's work: claim a number, read it without the lock, hand it in. 1, or 0: nothing
 * to do, or -1: no memory. */
int feed_claim(struct feed *feed, uint64_t *ret_sequence, struct vector **ret_rows);
int feed_read(const struct feed *feed, uint64_t sequence, struct vector *rows, struct error *error);
void feed_fill(struct feed *feed, uint64_t sequence, struct vector *rows);

/* The rows of `sequence` with a hold for the caller; NULL: not there yet. */
struct vector *feed_hold(struct feed *feed, uint64_t sequence);
/* All before `sequence` are done for good: their places are free. */
void feed_advance(struct feed *feed, uint64_t sequence);
/* Rows to read the held-out part into; NULL: no memory. */
struct vector *feed_take(struct feed *feed);

/* Inside such a vector. */
const float *feed_inputs(const struct vector *rows);
uint32_t *feed_labels(const struct feed *feed, const struct vector *rows);

#endif
