/* The keeper: a job's own helper thread. It has the job loaded, writes checkpoints while training
 * goes on, exports, says how the job ended, and waits to be told to go. */
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

void job_warn(struct train_job *job, const char *text)
{
    struct log_text quoted;
    log_write(LOG_WARN, "train", "warning", "job=%s why=%s", job->id, log_quote(&quoted, text));
    job_notify(job, TRAIN_WARNING, 0, text);
}

/* ---- checkpoints ---- */

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
    char path[PATH_MAX], text[sizeof(error.text) + 96];
    (void)snprintf(head.blas_version, sizeof(head.blas_version), "%s", blas_version());
    (void)snprintf(head.blas_core, sizeof(head.blas_core), "%s", blas_core());
    if (!state_is_finite(state->data, head.floats)) {
        (void)snprintf(text, sizeof(text),
                       "the weights are not finite after step %llu; training stopped, the newest "
                       "checkpoint is kept; lower optimizer.learning_rate",
                       (unsigned long long)number);
        job_fail(job, text);
        return -1;
    }
    if (checkpoint_write(job->directory, &head, state->data, (unsigned)s->checkpoint.keep, path,
                         &error) < 0) {
        (void)snprintf(text, sizeof(text), "no checkpoint of step %llu: %s; %s",
                       (unsigned long long)number, error.text,
                       number < job->steps      ? "training goes on"
                       : s->export.name == NULL ? "it is tried again until there is space"
                                                : "the export alone has the weights");
        job_warn(job, text);
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

/* The state after the last step that is done, when nobody works on the next one. Returns 0, or -1
 * when it had to be written and could not. */
static int current_write(struct train_job *job)
{
    struct vector *state = NULL;
    uint64_t number = 0;
    int result = 0;
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
        result = state_write(job, state, number);
        vector_release(state);
    }
    return result;
}

/* ---- the end ---- */

static void state_move(struct train_job *job, enum job_state state)
{
    (void)pthread_mutex_lock(&job->lock);
    job->shared.state = state;
    (void)pthread_mutex_unlock(&job->lock);
}

enum turn { TURN_AGAIN, TURN_WAIT, TURN_RETRY, TURN_END };

static enum turn finish(struct train_job *job)
{
    struct error error = {0};
    struct vector *state = step_state(job->shared.step);
    bool written = current_write(job) == 0;
    if (!state_is_finite(state->data, job->keeper.parameters)) {
        job_fail(job, "the weights are not finite after the last step"); /* unless said already */
        return TURN_AGAIN;
    }
    if (!written && job->specification.export.name == NULL) {
        return TURN_RETRY; /* nothing else has the weights */
    }
    if (job->specification.export.name != NULL) {
        if (export_write(&job->specification, state->data, job->export_path,
                         sizeof(job->export_path), &error) < 0) {
            (void)error_prefix(&error, "export, after all steps");
            job_fail(job, error.text);
            return TURN_AGAIN;
        }
        atomic_store(&job->figures.exported, true);
    }
    state_move(job, JOB_ENDED);
    job_notify(job, TRAIN_FINISHED, 0, "");
    return TURN_AGAIN;
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

/* ---- the thread ---- */

/* Waits for a poke and clears it before the state is looked at. */
static void poke_wait(struct train_job *job, int timeout_ms)
{
    struct pollfd wait = {.fd = mailbox_fd(job->keeper.box), .events = POLLIN};
    (void)poll(&wait, 1, timeout_ms);
    (void)mailbox_take(job->keeper.box);
    atomic_store(&job->keeper.poked, 0);
}

/* One look at what there is to do. */
static enum turn turn(struct train_job *job)
{
    enum job_state state;
    uint64_t held;
    bool goes = atomic_load(&job->figures.cancelled) || atomic_load(&job->figures.stopping);
    enum turn next;
    job_sweep(job); /* a failed device's thread may never do so */
    offered_write(job);
    (void)pthread_mutex_lock(&job->lock);
    state = job->shared.state;
    held = job->shared.held;
    (void)pthread_mutex_unlock(&job->lock);
    if (held != 0) {
        return TURN_WAIT;
    }
    if (state == JOB_ENDING) {
        next = finish(job);
        return next == TURN_RETRY && goes ? TURN_END : next;
    }
    if (state == JOB_FAILING) {
        fail(job);
        return TURN_AGAIN;
    }
    if (state == JOB_TRAINING && atomic_load(&job->figures.checkpoint_wanted)) {
        (void)current_write(job);
        return TURN_AGAIN;
    }
    return goes ? TURN_END : TURN_WAIT;
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
        if (next != TURN_AGAIN) {
            poke_wait(job, next == TURN_RETRY ? (int)(RETRY_NS / NS_PER_MS) : -1);
        }
    }
    if (atomic_load(&job->figures.stopping) && !atomic_load(&job->figures.cancelled)) {
        (void)current_write(job);
    }
    loaders_join(job);
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
