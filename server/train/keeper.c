/* The keeper: a job's own helper thread. It loads, writes checkpoints while training goes on,
 * exports, says how the job ended, and waits to be told to go. */
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "models/native/blas.h"
#include "models/native/gemm.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/train/checkpoint.h"
#include "server/train/export.h"
#include "server/train/trainer_internal.h"

#define RETRY_NS (2 * NS_PER_S)

/* ---- loading ------------------------------------------------------------------------------------
 */

static void warn(void *context, const char *text)
{
    struct train_job *job = context;
    struct log_text quoted;
    log_write(LOG_WARN, "train", "warning", "job=%s why=%s", job->id, log_quote(&quoted, text));
    job_notify(job, TRAIN_WARNING, 0, text);
}

static int size_check(const struct train_job *job, struct error *error)
{
    const struct specification *s = &job->specification;
    const struct device_set *set = job->trainer->devices;
    uint32_t devices = s->request.devices_max < set->count ? s->request.devices_max : set->count;
    uint64_t vectors = 3 * (1 + (uint64_t)optimizer_slots(s->optimizer.kind)); /* states */
    uint64_t micro_batches = s->batch / s->micro_batch;
    uint64_t bytes, memory = 0;
    vectors += micro_batches < 2u * devices + 2 ? micro_batches + devices : 2u * devices + 2;
    for (; micro_batches > 1; micro_batches /= 2) {
        vectors++; /* the tree */
    }
    bytes = vectors * job->keeper.parameters * sizeof(float) +
            devices * mlp_workspace_bytes(&s->model, s->micro_batch);
    for (uint32_t i = 0; i < set->count; i++) {
        memory += set->devices[i].memory_bytes;
    }
    if (bytes > memory) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "the job needs about %llu MiB, the devices have %llu MiB; train a smaller "
                         "model, or with a smaller micro_batch",
                         (unsigned long long)(bytes >> 20), (unsigned long long)(memory >> 20));
    }
    return 0;
}

static int data_load(struct train_job *job, struct error *error)
{
    const struct specification *s = &job->specification;
    double rows;
    int result = dataset_open(&s->data, s->model.widths[0], s->model.widths[s->model.layer_count],
                              &job->keeper.dataset, error);
    if (result < 0) {
        return result;
    }
    rows = (double)dataset_train_rows(job->keeper.dataset);
    job->steps = s->steps > 0 ? s->steps : (uint64_t)fmax(1, ceil(s->epochs * rows / s->batch));
    return 0;
}

static int pools_create(struct train_job *job, struct error *error)
{
    const struct specification *s = &job->specification;
    uint32_t devices = s->request.devices_max < job->trainer->devices->count
                           ? s->request.devices_max
                           : job->trainer->devices->count;
    job->keeper.parameters = mlp_parameters(&s->model);
    job->keeper.micro_batches = s->batch / s->micro_batch;
    job->keeper.window = devices + 1;
    job->keeper.gradients = vector_pool_create(job->keeper.parameters);
    job->keeper.states =
        vector_pool_create(job->keeper.parameters * (1 + optimizer_slots(s->optimizer.kind)));
    if (job->keeper.gradients == NULL || job->keeper.states == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the job's pools");
    }
    return size_check(job, error);
}

/* The checkpoint's bits are those of other kernels: say so once. */
static void strict_check(struct train_job *job, const struct checkpoint_head *head)
{
    char text[256];
    if (head->data_hash != dataset_hash(job->keeper.dataset)) {
        warn(job, "the data is not what the checkpoint was trained on; training goes on with it");
    }
    if (!job->specification.strict || (strcmp(head->blas_version, blas_version()) == 0 &&
                                       strcmp(head->blas_core, blas_core()) == 0 &&
                                       head->tiling_version == GEMM_TILING_VERSION)) {
        return;
    }
    (void)snprintf(text, sizeof(text),
                   "strict mode ends: the checkpoint was made with %s, core %s, tiling %u, here "
                   "are %s, core %s, tiling %u; the weights will differ in their last bits",
                   head->blas_version, head->blas_core, head->tiling_version, blas_version(),
                   blas_core(), GEMM_TILING_VERSION);
    warn(job, text);
}

/* From the newest good checkpoint, else from the seed. */
static int state_load(struct train_job *job, struct vector *state, uint64_t *ret_step,
                      struct error *error)
{
    const struct specification *s = &job->specification;
    size_t parameters = job->keeper.parameters;
    uint32_t slots = optimizer_slots(s->optimizer.kind);
    struct checkpoint_head head;
    char path[PATH_MAX];
    int result = checkpoint_load(job->directory, s->hash, parameters * (1 + slots), &head,
                                 state->data, path, warn, job, error);
    *ret_step = 0;
    if (result == 1) {
        *ret_step = head.step;
        atomic_store(&job->figures.step, head.step);
        atomic_store(&job->figures.checkpointed_step, head.step);
        atomic_store(&job->figures.loss_first, head.loss_first);
        atomic_store(&job->figures.loss_last, head.loss_last);
        strict_check(job, &head);
    } else if (result == 0) {
        mlp_initialize(&s->model, s->seed, state->data);
        memset(state->data + parameters, 0, slots * parameters * sizeof(float));
    }
    return result < 0 ? result : 0;
}

static struct feed *feed_make(const struct train_job *job, uint64_t step)
{
    const struct specification *s = &job->specification;
    const struct feed_config config = {
        .dataset = job->keeper.dataset,
        .rows = s->micro_batch,
        .inputs = s->model.widths[0],
        .ahead = 2 * job->keeper.window + 4,
        .begin = step * job->keeper.micro_batches,
        .end = job->steps * job->keeper.micro_batches,
    };
    return feed_create(&config);
}

static int step_make(struct train_job *job, struct vector *state, uint64_t number,
                     struct error *error)
{
    const struct specification *s = &job->specification;
    uint64_t held_out = dataset_held_out_rows(job->keeper.dataset);
    const struct step_config config = {
        .micro_batches = job->keeper.micro_batches,
        .window = job->keeper.window,
        .chunks = (uint32_t)((held_out + s->micro_batch - 1) / s->micro_batch),
        .parameters = job->keeper.parameters,
        .sum_on_completion = job->trainer->sum_on_completion,
    };
    struct feed *feed = feed_make(job, number);
    struct step *step = NULL;
    if (feed != NULL) {
        step = step_create(&config, feed, job->keeper.gradients, job->keeper.states, state, number);
    }
    if (step == NULL) {
        feed_destroy(feed);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the job's steps");
    }
    (void)pthread_mutex_lock(&job->lock);
    job->shared.feed = feed;
    job->shared.step = step;
    job->shared.state = JOB_TRAINING;
    job->shared.checkpoint_due_ns =
        clock_now_ns() + (uint64_t)(s->checkpoint.every_s * (double)NS_PER_S);
    if (number >= job->steps) { /* went on after its end: figures and export are still to come */
        if (held_out > 0) {
            step_evaluate(step);
        } else {
            job->shared.state = JOB_ENDING;
        }
    }
    (void)pthread_mutex_unlock(&job->lock);
    return 0;
}

static int job_load(struct train_job *job, struct error *error)
{
    struct vector *state = NULL;
    uint64_t number = 0;
    int result = blas_open(error);
    if (result == 0) {
        result = data_load(job, error);
    }
    if (result == 0) {
        result = pools_create(job, error);
    }
    if (result < 0) {
        return result;
    }
    state = vector_take(job->keeper.states);
    if (state == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the job's state");
    }
    result = state_load(job, state, &number, error);
    if (result == 0) {
        result = step_make(job, state, number, error);
    }
    if (result < 0) {
        vector_release(state);
    }
    return result;
}

/* ---- checkpoints
 * ----------------------------------------------------------------------------------- */

static bool state_is_finite(const float *state, size_t count)
{
    float sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += state[i] * 0.0f; /* NaN for NaN and for the infinities, else 0 */
    }
    return sum == 0.0f;
}

/* Returns 0, or -1 after it has said why. */
static int state_write(struct train_job *job, const struct vector *state, uint64_t number)
{
    const struct specification *s = &job->specification;
    uint32_t slots = optimizer_slots(s->optimizer.kind);
    struct checkpoint_head head = {
        .specification_hash = s->hash,
        .data_hash = dataset_hash(job->keeper.dataset),
        .step = number,
        .position = number * s->batch,
        .floats = job->keeper.parameters * (1 + slots),
        .slots = slots,
        .tiling_version = GEMM_TILING_VERSION,
        .loss_first = atomic_load(&job->figures.loss_first),
        .loss_last = atomic_load(&job->figures.loss_last),
    };
    struct error error = {0};
    char path[PATH_MAX], text[sizeof(error.text) + 64];
    (void)snprintf(head.blas_version, sizeof(head.blas_version), "%s", blas_version());
    (void)snprintf(head.blas_core, sizeof(head.blas_core), "%s", blas_core());
    if (!state_is_finite(state->data, head.floats)) {
        (void)snprintf(text, sizeof(text),
                       "the weights are not finite after step %llu; training stopped and the "
                       "checkpoint of step %llu is kept; lower optimizer.learning_rate",
                       (unsigned long long)number,
                       (unsigned long long)atomic_load(&job->figures.checkpointed_step));
        job_fail(job, text);
        return -1;
    }
    if (checkpoint_write(job->directory, &head, state->data, (unsigned)s->checkpoint.keep, path,
                         &error) < 0) {
        (void)snprintf(text, sizeof(text), "no checkpoint of step %llu: %s; training goes on",
                       (unsigned long long)number, error.text);
        warn(job, text);
        return -1;
    }
    atomic_store(&job->figures.checkpointed_step, number);
    job_notify(job, TRAIN_CHECKPOINT, 0, path);
    return 0;
}

/* The state that a step's end has put aside; training goes on in another one meanwhile. */
static void offered_write(struct train_job *job)
{
    struct vector *state;
    uint64_t number;
    int result;
    (void)pthread_mutex_lock(&job->lock);
    state = job->shared.checkpoint;
    number = job->shared.checkpoint_step;
    job->shared.checkpoint = NULL;
    (void)pthread_mutex_unlock(&job->lock);
    if (state == NULL) {
        return;
    }
    result = state_write(job, state, number);
    vector_release(state);
    (void)pthread_mutex_lock(&job->lock);
    job->shared.checkpoint_busy = false;
    job->shared.retry_ns = result < 0 ? clock_now_ns() + RETRY_NS : 0;
    (void)pthread_mutex_unlock(&job->lock);
}

/* The state after the last step that is done, when nobody works on the next one. */
static void current_write(struct train_job *job)
{
    struct vector *state = NULL;
    uint64_t number = 0;
    (void)pthread_mutex_lock(&job->lock);
    if (job->shared.step != NULL && job->shared.held == 0) {
        number = step_number(job->shared.step);
        if (number > atomic_load(&job->figures.checkpointed_step)) {
            state = vector_hold(step_state(job->shared.step));
        }
        atomic_store(&job->figures.checkpoint_wanted, false);
    }
    (void)pthread_mutex_unlock(&job->lock);
    if (state != NULL) {
        (void)state_write(job, state, number);
        vector_release(state);
    }
}

/* ---- the end
 * ----------------------------------------------------------------------------------------- */

static void state_move(struct train_job *job, enum job_state state)
{
    (void)pthread_mutex_lock(&job->lock);
    job->shared.state = state;
    (void)pthread_mutex_unlock(&job->lock);
}

static void finish(struct train_job *job)
{
    struct error error = {0};
    struct vector *state = step_state(job->shared.step);
    current_write(job);
    if (!state_is_finite(state->data, job->keeper.parameters)) {
        job_fail(job, "the weights are not finite after the last step"); /* unless said already */
        return;
    }
    if (job->specification.export.name != NULL) {
        if (export_write(&job->specification, state->data, job->export_path,
                         sizeof(job->export_path), &error) < 0) {
            (void)error_prefix(&error, "export, after all steps");
            job_fail(job, error.text);
            return;
        }
        atomic_store(&job->figures.exported, true);
    }
    state_move(job, JOB_ENDED);
    job_notify(job, TRAIN_FINISHED, 0, "");
}

static void fail(struct train_job *job)
{
    char text[sizeof(job->shared.failure)];
    struct log_text quoted;
    (void)pthread_mutex_lock(&job->lock);
    (void)snprintf(text, sizeof(text), "%s", job->shared.failure);
    job->shared.state = JOB_ENDED;
    (void)pthread_mutex_unlock(&job->lock);
    log_write(LOG_ERROR, "train", "failed", "job=%s why=%s", job->id, log_quote(&quoted, text));
    job_notify(job, TRAIN_FAILED, 0, text);
}

/* ---- the thread
 * ----------------------------------------------------------------------------------------- */

/* Waits for a poke and clears it before the state is looked at. */
static void poke_wait(struct train_job *job)
{
    struct pollfd wait = {.fd = mailbox_fd(job->keeper.box), .events = POLLIN};
    (void)poll(&wait, 1, -1);
    (void)mailbox_take(job->keeper.box);
    atomic_store(&job->keeper.poked, 0);
}

enum turn { TURN_AGAIN, TURN_WAIT, TURN_END };

/* One look at what there is to do. */
static enum turn turn(struct train_job *job)
{
    enum job_state state;
    uint64_t held;
    offered_write(job);
    (void)pthread_mutex_lock(&job->lock);
    state = job->shared.state;
    held = job->shared.held;
    (void)pthread_mutex_unlock(&job->lock);
    if (held != 0) {
        return TURN_WAIT;
    }
    if (state == JOB_ENDING) {
        finish(job);
        return TURN_AGAIN;
    }
    if (state == JOB_FAILING) {
        fail(job);
        return TURN_AGAIN;
    }
    if (state == JOB_TRAINING && atomic_load(&job->figures.checkpoint_wanted)) {
        current_write(job);
        return TURN_AGAIN;
    }
    return atomic_load(&job->figures.cancelled) || atomic_load(&job->figures.stopping) ? TURN_END
                                                                                       : TURN_WAIT;
}

static void *keeper_main(void *arg)
{
    struct train_job *job = arg;
    struct sched_param none = {0};
    struct error error = {0};
    (void)pthread_setname_np(pthread_self(), "train-keeper");
    (void)pthread_setaffinity_np(pthread_self(), sizeof(cpu_set_t),
                                 &job->trainer->devices->housekeeping);
    (void)sched_setscheduler(0, SCHED_IDLE, &none); /* refused: in the normal class it works too */
    if (job_load(job, &error) < 0) {
        job_fail(job, error.text);
    } else {
        job_notify(job, TRAIN_READY, 0, "");
        job_wake(job);
    }
    for (enum turn next = turn(job); next != TURN_END; next = turn(job)) {
        if (next == TURN_WAIT) {
            poke_wait(job);
        }
    }
    if (atomic_load(&job->figures.stopping) && !atomic_load(&job->figures.cancelled)) {
        current_write(job);
    }
    loaders_join(job);
    atomic_store(&job->keeper.done, true);
    return NULL;
}

int keeper_start(struct train_job *job, struct error *error)
{
    int number;
    job->keeper.box = mailbox_create();
    if (job->keeper.box == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory or descriptor for a job");
    }
    number = pthread_create(&job->keeper.thread, NULL, keeper_main, job);
    if (number != 0) {
        return error_set_errno(error, number, "start the keeper of job '%s'", job->id);
    }
    return 0;
}
