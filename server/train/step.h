/* step.h: the pieces of work of a step, who has them, and which comes next.
 * Pieces:  micro-batches (forward, backward), sums of their gradients in a fixed pairwise tree over
 *          the micro-batch index, ranges of the optimizer's step, chunks of the held-out part.
 * Bits:    a piece reads vectors that nobody writes and writes one of its own, so it may be done
 *          again, or by two devices at once: the first result counts.
 * Atomic:  ranges go into a second state that is swapped in when all are done.
 * Memory:  at most `window` micro-batches are under way or wait for their neighbour beyond the
 *          oldest unfinished one; the tree before it is log2(micro-batches) vectors.
 * Thread:  all calls under the job's lock; nothing here blocks or computes. */
#ifndef TIDEPOOL_TRAIN_STEP_H
#define TIDEPOOL_TRAIN_STEP_H

#include "models/native/operations.h"
#include "server/device/device.h"
#include "server/train/feed.h"

/* Parameters of one range of the optimizer's step. */
#define STEP_RANGE_FLOATS ((size_t)262144)

enum task_kind { TASK_NONE, TASK_MICRO_BATCH, TASK_SUM, TASK_APPLY, TASK_EVALUATE };

/* One piece in the hands of a device. The vectors are held until task_release. */
struct task {
    enum task_kind kind;
    uint32_t index; /* micro-batch, node of the tree, range or chunk */
    uint64_t step;  /* steps done before this one */
    uint64_t serial;
    struct vector *state;  /* read: parameters and slots */
    struct vector *rows;   /* read: micro-batch; written: held-out chunk */
    struct vector *a, *b;  /* read: two gradients to add; or `a` the one to apply */
    struct vector *out;    /* written: gradient, or the new state */
    struct loss_sums sums; /* result of a micro-batch or chunk */
};
void task_release(struct task *task);

enum step_phase { STEP_GRADIENTS, STEP_APPLY, STEP_EVALUATE };

struct step_config {
    uint32_t micro_batches; /* of a step */
    uint32_t window;
    uint32_t chunks; /* of the held-out part */
    size_t parameters;
    uint32_t slots;
    bool sum_on_completion; /* a test's planted fault: sums in the order of completion */
};

struct step;

/* Takes over a hold of `state`, which is what `number` steps have made. */
struct step *step_create(const struct step_config *config, struct feed *feed,
                         struct vector_pool *gradients, struct vector_pool *states,
                         struct vector *state, uint64_t number);
void step_destroy(struct step *step); /* NULL is fine */

uint64_t step_number(const struct step *step); /* steps done */
enum step_phase step_phase(const struct step *step);
struct vector *step_state(const struct step *step); /* borrowed */
/* Between steps only: the next pieces are the held-out chunks, then the next step's. */
void step_evaluate(struct step *step);

enum step_pull {
    STEP_PULLED,
    STEP_WAIT,   /* others have what there is */
    STEP_DATA,   /* the rows are not there yet */
    STEP_MEMORY, /* a vector could not be had */
};
enum step_pull step_pull(struct step *step, uint32_t device, struct task *ret_task);
/* `devices` are all that the job has now. A device that stood still too long inside a range is kept
 * away from the rest of that step's ranges, but where that goes for all of them, for none. */
void step_include(struct step *step, uint64_t devices);
/* For a device that found nothing: a piece of one that stands still. `standing` and `long_standing`
 * are masks of devices: a micro-batch is worked on by both at once, other pieces are taken away
 * only from the long standing. */
enum step_pull step_take_over(struct step *step, uint32_t device, uint64_t standing,
                              uint64_t long_standing, struct task *ret_task);

enum step_result {
    STEP_IGNORED, /* came too late: done by another, or given up on */
    STEP_GOES_ON,
    STEP_MORE_WORK, /* others may find work now */
    STEP_APPLIED,   /* the step is done; ret_sums has the sums over its rows */
    STEP_EVALUATED, /* ret_sums has the held-out part's sums */
};
/* The piece is done. ret_cancel: devices that work on the same micro-batch in vain. The task's
 * vectors are still to be released by the caller. */
enum step_result step_done(struct step *step, uint32_t device, const struct task *task,
                           struct loss_sums *ret_sums, uint64_t *ret_cancel);
/* The piece goes back to the queue. True: it was this device's. */
bool step_return(struct step *step, uint32_t device, const struct task *task);
/* The device does not come back: its piece goes to the queue, its late result is ignored. */
bool step_lose(struct step *step, uint32_t device);

#endif
