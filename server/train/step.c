#include "server/train/step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/train/pieces.h"
#include "server/train/tree.h"

/* What a device has in hand. A device that is given up on loses its entry: its result, should it
 * come, finds another serial and is ignored. */
struct holding {
    enum task_kind kind;
    uint32_t index;
    uint64_t serial;
};

struct step {
    struct step_config config;
    struct feed *feed;
    struct vector_pool *gradients, *states;
    struct vector *state;    /* what `number` steps have made */
    struct vector *target;   /* while applying: the next one */
    struct vector *gradient; /* while applying: the whole sum */
    uint64_t number, serial;
    enum step_phase phase;
    struct holding holdings[DEVICES_MAX];
    struct pieces micro_batches, ranges, chunks;
    struct loss_sums *micro_sums, *chunk_sums;
    struct tree *tree;
    uint64_t apply_excluded; /* devices that stood still too long inside this step's ranges */
};

void task_release(struct task *task)
{
    vector_release(task->state);
    vector_release(task->rows);
    vector_release(task->a);
    vector_release(task->b);
    vector_release(task->out);
    *task = (struct task){0};
}

static uint32_t ranges_of(size_t parameters)
{
    return (uint32_t)((parameters + STEP_RANGE_FLOATS - 1) / STEP_RANGE_FLOATS);
}

struct step *step_create(const struct step_config *config, struct feed *feed,
                         struct vector_pool *gradients, struct vector_pool *states,
                         struct vector *state, uint64_t number)
{
    struct step *step = calloc(1, sizeof(*step));
    if (step == NULL) {
        return NULL;
    }
    step->config = *config;
    step->feed = feed;
    step->gradients = gradients;
    step->states = states;
    step->number = number;
    step->micro_sums = calloc(config->micro_batches, sizeof(*step->micro_sums));
    step->chunk_sums = calloc(config->chunks + 1, sizeof(*step->chunk_sums));
    step->tree = tree_create(config->micro_batches);
    if (pieces_init(&step->micro_batches, config->micro_batches) < 0 ||
        pieces_init(&step->ranges, ranges_of(config->parameters)) < 0 ||
        pieces_init(&step->chunks, config->chunks) < 0 || step->micro_sums == NULL ||
        step->chunk_sums == NULL || step->tree == NULL) {
        step_destroy(step);
        return NULL;
    }
    step->state = state;
    return step;
}

void step_destroy(struct step *step)
{
    if (step == NULL) {
        return;
    }
    vector_release(step->state);
    vector_release(step->target);
    vector_release(step->gradient);
    tree_destroy(step->tree);
    pieces_fini(&step->micro_batches);
    pieces_fini(&step->ranges);
    pieces_fini(&step->chunks);
    free(step->micro_sums);
    free(step->chunk_sums);
    free(step);
}

uint64_t step_number(const struct step *step)
{
    return step->number;
}

enum step_phase step_phase(const struct step *step)
{
    return step->phase;
}

struct vector *step_state(const struct step *step)
{
    return step->state;
}

void step_evaluate(struct step *step)
{
    assert(step->phase == STEP_GRADIENTS && step->micro_batches.done == 0);
    pieces_reset(&step->chunks);
    step->phase = STEP_EVALUATE;
}

/* ---- pulling ---- */

static uint64_t sequence_of(const struct step *step, uint32_t micro_batch)
{
    return step->number * step->config.micro_batches + micro_batch;
}

/* The device has it now. */
static void task_begin(struct step *step, uint32_t device, struct task *task)
{
    task->step = step->number;
    task->serial = ++step->serial;
    step->holdings[device] = (struct holding){task->kind, task->index, task->serial};
}

static enum step_pull micro_batch_take(struct step *step, uint32_t index, struct task *task)
{
    struct vector *rows = feed_hold(step->feed, sequence_of(step, index));
    if (rows == NULL) {
        return STEP_DATA;
    }
    *task = (struct task){.kind = TASK_MICRO_BATCH, .index = index, .rows = rows};
    task->out = vector_take(step->gradients);
    if (task->out == NULL) {
        task_release(task);
        return STEP_MEMORY;
    }
    task->state = vector_hold(step->state);
    pieces_mark(&step->micro_batches, index, PIECE_RUNNING);
    return STEP_PULLED;
}

static enum step_pull sum_take(struct step *step, struct task *task)
{
    *task = (struct task){.kind = TASK_SUM};
    if (!tree_pull(step->tree, &task->index, &task->a, &task->b)) {
        return STEP_WAIT;
    }
    task->out = vector_take(step->gradients);
    if (task->out == NULL) {
        tree_return(step->tree, task->index);
        task_release(task);
        return STEP_MEMORY;
    }
    return STEP_PULLED;
}

static enum step_pull gradients_pull(struct step *step, struct task *task)
{
    uint32_t index;
    enum step_pull result = sum_take(step, task);
    if (result != STEP_WAIT) {
        return result;
    }
    if (!pieces_find(&step->micro_batches, step->micro_batches.oldest + step->config.window,
                     &index)) {
        return STEP_WAIT;
    }
    return micro_batch_take(step, index, task);
}

static enum step_pull apply_pull(struct step *step, uint32_t device, struct task *task)
{
    uint32_t index;
    if (step->target == NULL) {
        step->target = vector_take(step->states);
        if (step->target == NULL) {
            return STEP_MEMORY;
        }
    }
    if ((step->apply_excluded >> device & 1) != 0 ||
        !pieces_find(&step->ranges, step->ranges.count, &index)) {
        return STEP_WAIT;
    }
    *task = (struct task){.kind = TASK_APPLY,
                          .index = index,
                          .state = vector_hold(step->state),
                          .a = vector_hold(step->gradient),
                          .out = vector_hold(step->target)};
    pieces_mark(&step->ranges, index, PIECE_RUNNING);
    return STEP_PULLED;
}

static enum step_pull chunk_pull(struct step *step, struct task *task)
{
    uint32_t index;
    struct vector *rows;
    if (!pieces_find(&step->chunks, step->chunks.count, &index)) {
        return STEP_WAIT;
    }
    rows = feed_take(step->feed);
    if (rows == NULL) {
        return STEP_MEMORY;
    }
    *task = (struct task){
        .kind = TASK_EVALUATE, .index = index, .state = vector_hold(step->state), .rows = rows};
    pieces_mark(&step->chunks, index, PIECE_RUNNING);
    return STEP_PULLED;
}

void step_include(struct step *step, uint64_t devices)
{
    if ((devices & ~step->apply_excluded) == 0) {
        step->apply_excluded = 0;
    }
}

enum step_pull step_pull(struct step *step, uint32_t device, struct task *ret_task)
{
    enum step_pull result = STEP_WAIT;
    switch (step->phase) {
    case STEP_GRADIENTS:
        result = gradients_pull(step, ret_task);
        break;
    case STEP_APPLY:
        result = apply_pull(step, device, ret_task);
        break;
    case STEP_EVALUATE:
        result = chunk_pull(step, ret_task);
        break;
    }
    if (result == STEP_PULLED) {
        task_begin(step, device, ret_task);
    }
    return result;
}

/* ---- taking over ---- */

static uint32_t devices_on(const struct step *step, uint32_t micro_batch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < DEVICES_MAX; i++) {
        count +=
            step->holdings[i].kind == TASK_MICRO_BATCH && step->holdings[i].index == micro_batch;
    }
    return count;
}

/* Ranges are written in place into the target, so a device that may still write there keeps the
 * old target for itself, and all ranges begin again in another one. */
static void apply_restart(struct step *step)
{
    vector_release(step->target);
    step->target = NULL;
    pieces_reset(&step->ranges);
    for (uint32_t i = 0; i < DEVICES_MAX; i++) {
        if (step->holdings[i].kind == TASK_APPLY) {
            step->holdings[i] = (struct holding){0};
        }
    }
}

bool step_lose(struct step *step, uint32_t device)
{
    struct holding holding = step->holdings[device];
    step->holdings[device] = (struct holding){0};
    switch (holding.kind) {
    case TASK_NONE:
        return false;
    case TASK_MICRO_BATCH:
        if (step->phase == STEP_GRADIENTS &&
            step->micro_batches.states[holding.index] == PIECE_RUNNING &&
            devices_on(step, holding.index) == 0) {
            pieces_mark(&step->micro_batches, holding.index, PIECE_WAITING);
        }
        return true;
    case TASK_SUM:
        tree_return(step->tree, holding.index);
        return true;
    case TASK_APPLY:
        apply_restart(step);
        return true;
    case TASK_EVALUATE:
        pieces_mark(&step->chunks, holding.index, PIECE_WAITING);
        return true;
    }
    return false;
}

/* True: the piece of `other` may be had by `device` now; a micro-batch is in *ret_task. */
static enum step_pull piece_take_over(struct step *step, uint32_t device, uint32_t other,
                                      bool long_standing, struct task *ret_task)
{
    const struct holding *holding = &step->holdings[other];
    enum step_pull result = STEP_WAIT;
    if (holding->kind == TASK_MICRO_BATCH) {
        if (step->micro_batches.states[holding->index] != PIECE_RUNNING ||
            devices_on(step, holding->index) > 1) {
            return STEP_WAIT;
        }
        result = micro_batch_take(step, holding->index, ret_task);
        if (result == STEP_PULLED) {
            task_begin(step, device, ret_task);
        }
        return result;
    }
    if (!long_standing || holding->kind == TASK_NONE) {
        return STEP_WAIT;
    }
    if (holding->kind == TASK_APPLY) {
        step->apply_excluded |= UINT64_C(1) << other;
    }
    (void)step_lose(step, other);
    return step_pull(step, device, ret_task);
}

enum step_pull step_take_over(struct step *step, uint32_t device, uint64_t standing,
                              uint64_t long_standing, struct task *ret_task)
{
    for (uint32_t other = 0; other < DEVICES_MAX; other++) {
        enum step_pull result = STEP_WAIT;
        if (other != device && (standing >> other & 1) != 0) {
            result =
                piece_take_over(step, device, other, (long_standing >> other & 1) != 0, ret_task);
        }
        if (result != STEP_WAIT) {
            return result;
        }
    }
    return STEP_WAIT;
}

/* ---- results ---- */

/* The micro-batches' sums in their order. */
static struct loss_sums sums_add(const struct loss_sums *sums, uint32_t count)
{
    struct loss_sums total = {0};
    for (uint32_t i = 0; i < count; i++) {
        total.loss += sums[i].loss;
        total.correct += sums[i].correct;
    }
    return total;
}

static enum step_result gradient_put(struct step *step, uint32_t node, struct vector *sum)
{
    step->gradient = tree_put(step->tree, node, vector_hold(sum));
    if (step->gradient != NULL) {
        step->phase = STEP_APPLY;
        step->apply_excluded = 0;
        pieces_reset(&step->ranges);
    }
    return STEP_MORE_WORK;
}

/* Devices that still work on it do so in vain. */
static uint64_t others_cancel(struct step *step, uint32_t micro_batch)
{
    uint64_t cancel = 0;
    for (uint32_t i = 0; i < DEVICES_MAX; i++) {
        if (step->holdings[i].kind == TASK_MICRO_BATCH && step->holdings[i].index == micro_batch) {
            step->holdings[i] = (struct holding){0};
            cancel |= UINT64_C(1) << i;
        }
    }
    return cancel;
}

static enum step_result micro_batch_done(struct step *step, const struct task *task,
                                         uint64_t *ret_cancel)
{
    uint32_t leaf = step->config.sum_on_completion ? step->micro_batches.done : task->index;
    *ret_cancel = others_cancel(step, task->index);
    step->micro_sums[task->index] = task->sums;
    pieces_mark(&step->micro_batches, task->index, PIECE_DONE);
    feed_advance(step->feed, sequence_of(step, step->micro_batches.oldest));
    return gradient_put(step, leaf, task->out);
}

static enum step_result range_done(struct step *step, const struct task *task,
                                   struct loss_sums *ret_sums)
{
    pieces_mark(&step->ranges, task->index, PIECE_DONE);
    if (!pieces_all_done(&step->ranges)) {
        return STEP_GOES_ON;
    }
    *ret_sums = sums_add(step->micro_sums, step->config.micro_batches);
    vector_release(step->state);
    vector_release(step->gradient);
    step->state = step->target;
    step->target = step->gradient = NULL;
    step->number++;
    step->phase = STEP_GRADIENTS;
    tree_reset(step->tree);
    pieces_reset(&step->micro_batches);
    return STEP_APPLIED;
}

static enum step_result chunk_done(struct step *step, const struct task *task,
                                   struct loss_sums *ret_sums)
{
    step->chunk_sums[task->index] = task->sums;
    pieces_mark(&step->chunks, task->index, PIECE_DONE);
    if (!pieces_all_done(&step->chunks)) {
        return STEP_GOES_ON;
    }
    *ret_sums = sums_add(step->chunk_sums, step->config.chunks);
    step->phase = STEP_GRADIENTS;
    return STEP_EVALUATED;
}

static bool holding_drop(struct step *step, uint32_t device, const struct task *task)
{
    bool held =
        step->holdings[device].kind == task->kind && step->holdings[device].serial == task->serial;
    if (held) {
        step->holdings[device] = (struct holding){0};
    }
    return held;
}

enum step_result step_done(struct step *step, uint32_t device, const struct task *task,
                           struct loss_sums *ret_sums, uint64_t *ret_cancel)
{
    *ret_cancel = 0;
    if (!holding_drop(step, device, task)) {
        return STEP_IGNORED;
    }
    switch (task->kind) {
    case TASK_MICRO_BATCH:
        return micro_batch_done(step, task, ret_cancel);
    case TASK_SUM:
        return gradient_put(step, task->index, task->out);
    case TASK_APPLY:
        return range_done(step, task, ret_sums);
    case TASK_EVALUATE:
        return chunk_done(step, task, ret_sums);
    case TASK_NONE:
        break;
    }
    return STEP_IGNORED;
}

bool step_return(struct step *step, uint32_t device, const struct task *task)
{
    if (!holding_drop(step, device, task)) {
        return false;
    }
    /* A range may be done again in the same target: this device is out of it. */
    if (task->kind == TASK_APPLY) {
        pieces_mark(&step->ranges, task->index, PIECE_WAITING);
        return true;
    }
    step->holdings[device] = (struct holding){task->kind, task->index, task->serial};
    return step_lose(step, device);
}
