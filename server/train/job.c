#include "server/train/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/train/trainer_internal.h"

#define PROGRESS_NS (100 * NS_PER_MS)
#define LONG_STANDING_NS (10 * NS_PER_MS)
#define DEVICE_BIT(device) (UINT64_C(1) << (device))

/* What is told to others once the lock is released. */
struct news {
    uint64_t poke, cancel; /* masks of devices */
    bool progress, keeper;
};

struct train_job *job_hold(struct train_job *job)
{
    atomic_fetch_add(&job->holders, 1);
    return job;
}

void job_release(struct train_job *job)
{
    if (job == NULL || atomic_fetch_sub(&job->holders, 1) != 1) {
        return;
    }
    step_destroy(job->shared.step);
    feed_destroy(job->shared.feed);
    vector_release(job->shared.checkpoint);
    vector_pool_destroy(job->keeper.gradients);
    vector_pool_destroy(job->keeper.states);
    dataset_close(job->keeper.dataset);
    mailbox_destroy(job->keeper.box);
    (void)pthread_mutex_destroy(&job->lock);
    (void)pthread_cond_destroy(&job->feed_changed);
    specification_fini(&job->specification);
    free(job);
}

static void event_send(struct train_job *job, enum train_event_kind kind, uint32_t device,
                       uint64_t grant, const char *text)
{
    struct train_event event = {
        .kind = kind,
        .job = job->number,
        .device = device,
        .grant = grant,
        .step = atomic_load(&job->figures.step),
        .checkpointed_step = atomic_load(&job->figures.checkpointed_step),
    };
    (void)snprintf(event.text, sizeof(event.text), "%s", text);
    job->trainer->notify(job->trainer->context, &event);
}

void job_notify(struct train_job *job, enum train_event_kind kind, uint32_t device,
                const char *text)
{
    event_send(job, kind, device, 0, text);
}

void job_released(struct train_job *job, uint32_t device, uint64_t grant)
{
    event_send(job, TRAIN_RELEASED, device, grant, "");
}

void job_poke_keeper(struct train_job *job)
{
    if (atomic_exchange(&job->keeper.poked, 1) == 0) {
        mailbox_send(job->keeper.box, &job->keeper.poke_letter);
    }
}

static void news_tell(struct train_job *job, const struct news *news)
{
    for (uint32_t i = 0; i < job->trainer->devices->count; i++) {
        if ((news->cancel & DEVICE_BIT(i)) != 0) {
            worker_cancel(job->trainer->workers[i]);
        }
        if ((news->poke & DEVICE_BIT(i)) != 0) {
            worker_poke(job->trainer->workers[i]);
        }
    }
    if (news->keeper) {
        job_poke_keeper(job);
    }
    if (news->progress) {
        job_notify(job, TRAIN_PROGRESS, 0, "");
    }
}

/* ---- under the lock ---- */

static void fail_locked(struct train_job *job, const char *text, struct news *news)
{
    if (job->shared.state == JOB_LOADING || job->shared.state == JOB_TRAINING ||
        job->shared.state == JOB_ENDING) {
        job->shared.state = JOB_FAILING;
        (void)snprintf(job->shared.failure, sizeof(job->shared.failure), "%s", text);
    }
    news->poke |= job->shared.held;
    news->keeper = true;
}

static void held_set(struct train_job *job, uint64_t held, struct news *news)
{
    job->shared.held = held;
    job->shared.waiting &= held;
    atomic_store(&job->figures.devices_held, (uint32_t)__builtin_popcountll(held));
    news->keeper |= held == 0; /* it may wait for that */
}

/* Everybody who waits has a look. */
static void waiting_wake(struct train_job *job, struct news *news)
{
    news->poke |= job->shared.waiting;
    job->shared.waiting = 0;
}

static void lost_sweep(struct train_job *job, struct news *news)
{
    uint64_t lost = atomic_exchange(&job->figures.lost, 0);
    for (uint32_t i = 0; lost != 0 && i < DEVICES_MAX; i++) {
        if ((lost & DEVICE_BIT(i)) != 0 && (job->shared.held & DEVICE_BIT(i)) != 0) {
            if (job->shared.step != NULL && step_lose(job->shared.step, i)) {
                atomic_fetch_add(&job->figures.micro_batches_returned, 1);
                waiting_wake(job, news);
            }
            held_set(job, job->shared.held & ~DEVICE_BIT(i), news);
        }
    }
}

/* The state as it is after this step goes to the keeper when it is time and the keeper is free. */
static bool checkpoint_offer(struct train_job *job, uint64_t now_ns, struct news *news)
{
    const struct checkpoint_specification *when = &job->specification.checkpoint;
    uint64_t number = step_number(job->shared.step);
    bool due = atomic_load(&job->figures.checkpoint_wanted) ||
               (when->every_steps > 0 && number % (uint64_t)when->every_steps == 0) ||
               (when->every_s > 0 && now_ns >= job->shared.checkpoint_due_ns) ||
               (job->shared.retry_ns > 0 && now_ns >= job->shared.retry_ns);
    if (!due || number >= job->steps) { /* the last one is the keeper's own */
        return false;
    }
    if (job->shared.checkpoint_busy) {
        atomic_store(&job->figures.checkpoint_wanted, true); /* at the end of a later step */
        return false;
    }
    atomic_store(&job->figures.checkpoint_wanted, false);
    job->shared.checkpoint_busy = true;
    job->shared.retry_ns = 0;
    job->shared.checkpoint_due_ns = now_ns + (uint64_t)(when->every_s * (double)NS_PER_S);
    job->shared.checkpoint = vector_hold(step_state(job->shared.step));
    job->shared.checkpoint_step = number;
    news->keeper = true;
    return true;
}

static void step_applied(struct train_job *job, const struct loss_sums *sums, struct news *news)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t number = step_number(job->shared.step);
    double loss = sums->loss / job->specification.batch;
    bool held_out = dataset_held_out_rows(job->keeper.dataset) > 0;
    if (isnan(atomic_load(&job->figures.loss_first))) {
        atomic_store(&job->figures.loss_first, loss);
    }
    atomic_store(&job->figures.loss_last, loss);
    atomic_store(&job->figures.step, number);
    rate_add(&job->figures.rate, now_ns);
    if ((checkpoint_offer(job, now_ns, news) || number >= job->steps) && held_out) {
        step_evaluate(job->shared.step); /* with every checkpoint, and at the end */
    } else if (number >= job->steps) {
        job->shared.state = JOB_ENDING;
        news->keeper = true;
    }
    if (now_ns >= job->shared.progress_due_ns) {
        job->shared.progress_due_ns = now_ns + PROGRESS_NS;
        news->progress = true;
    }
}

static void step_evaluated(struct train_job *job, const struct loss_sums *sums, struct news *news)
{
    double rows = (double)dataset_held_out_rows(job->keeper.dataset);
    atomic_store(&job->figures.held_out_loss, sums->loss / rows);
    atomic_store(&job->figures.held_out_accuracy, (double)sums->correct / rows);
    if (step_number(job->shared.step) >= job->steps) {
        job->shared.state = JOB_ENDING;
        news->keeper = true;
    }
}

/* NaN or infinite: the weights are beyond repair; the newest checkpoint is from before that. */
static void loss_check(struct train_job *job, const struct task *task, struct news *news)
{
    char text[256];
    if (isfinite(task->sums.loss)) {
        return;
    }
    (void)snprintf(text, sizeof(text),
                   "the loss is %s at step %llu; training stopped, the newest checkpoint is kept; "
                   "lower optimizer.learning_rate or look for such values in the data",
                   isnan(task->sums.loss) ? "not a number" : "infinite",
                   (unsigned long long)task->step + 1);
    fail_locked(job, text, news);
}

static void done_locked(struct train_job *job, uint32_t device, const struct task *task,
                        struct news *news)
{
    struct loss_sums sums;
    switch (step_done(job->shared.step, device, task, &sums, &news->cancel)) {
    case STEP_IGNORED:
    case STEP_GOES_ON:
        return;
    case STEP_MORE_WORK:
        break;
    case STEP_APPLIED:
        step_applied(job, &sums, news);
        break;
    case STEP_EVALUATED:
        step_evaluated(job, &sums, news);
        break;
    }
    if (task->kind == TASK_MICRO_BATCH) {
        atomic_fetch_add(&job->figures.micro_batches_done, 1);
        (void)pthread_cond_broadcast(&job->feed_changed);
        loss_check(job, task, news);
    }
    waiting_wake(job, news);
}

/* Masks of other devices on which a batch runs now, and for long. */
static void standing_find(const struct train_job *job, uint64_t *ret_standing, uint64_t *ret_long)
{
    uint64_t now_ns = clock_now_ns();
    *ret_standing = *ret_long = 0;
    for (uint32_t i = 0; i < job->trainer->devices->count; i++) {
        struct device *device = &job->trainer->devices->devices[i];
        uint64_t since_ns = atomic_load(&device->shared.serving_since_ns);
        if ((job->shared.held & DEVICE_BIT(i)) != 0 && atomic_load(&device->shared.serving) != 0) {
            *ret_standing |= DEVICE_BIT(i);
            *ret_long |= since_ns > 0 && now_ns > since_ns + LONG_STANDING_NS ? DEVICE_BIT(i) : 0;
        }
    }
}

static enum job_pull pull_locked(struct train_job *job, uint32_t device, struct task *ret_task,
                                 struct news *news)
{
    enum step_pull pulled;
    uint64_t standing, long_standing;
    if (job->shared.state == JOB_LOADING) { /* granted before it was ready */
        job->shared.waiting |= DEVICE_BIT(device);
        return JOB_PULL_WAIT;
    }
    if (job->shared.state != JOB_TRAINING) {
        return JOB_PULL_LEAVE;
    }
    step_include(job->shared.step, job->shared.held);
    pulled = step_pull(job->shared.step, device, ret_task);
    if (pulled == STEP_WAIT && job->shared.held != DEVICE_BIT(device)) {
        standing_find(job, &standing, &long_standing);
        pulled = step_take_over(job->shared.step, device, standing, long_standing, ret_task);
        if (pulled == STEP_PULLED) {
            atomic_fetch_add(&job->figures.taken_over, 1);
        }
    }
    switch (pulled) {
    case STEP_PULLED:
        job->shared.waiting &= ~DEVICE_BIT(device);
        return JOB_PULL_TASK;
    case STEP_MEMORY:
        fail_locked(job,
                    "no memory for the job's gradients or state; train a smaller model or "
                    "on fewer devices",
                    news);
        return JOB_PULL_LEAVE;
    case STEP_WAIT:
    case STEP_DATA:
        break;
    }
    job->shared.waiting |= DEVICE_BIT(device);
    return pulled == STEP_DATA                      ? JOB_PULL_DATA
           : job->shared.held != DEVICE_BIT(device) ? JOB_PULL_WATCH
                                                    : JOB_PULL_WAIT;
}

/* ---- from the threads ---- */

void job_fail(struct train_job *job, const char *text)
{
    struct news news = {0};
    (void)pthread_mutex_lock(&job->lock);
    fail_locked(job, text, &news);
    (void)pthread_mutex_unlock(&job->lock);
    news_tell(job, &news);
}

void job_sweep(struct train_job *job)
{
    struct news news = {0};
    (void)pthread_mutex_lock(&job->lock);
    lost_sweep(job, &news);
    (void)pthread_mutex_unlock(&job->lock);
    news_tell(job, &news);
}

void job_wake(struct train_job *job)
{
    struct news news = {0};
    (void)pthread_mutex_lock(&job->lock);
    waiting_wake(job, &news);
    (void)pthread_cond_broadcast(&job->feed_changed);
    (void)pthread_mutex_unlock(&job->lock);
    news_tell(job, &news);
}

void job_enter(struct train_job *job, uint32_t device)
{
    struct news news = {0};
    (void)pthread_mutex_lock(&job->lock);
    lost_sweep(job, &news);
    held_set(job, job->shared.held | DEVICE_BIT(device), &news);
    (void)pthread_mutex_unlock(&job->lock);
    news_tell(job, &news);
    loader_start(job, device);
}

void job_leave(struct train_job *job, uint32_t device)
{
    struct news news = {0};
    (void)pthread_mutex_lock(&job->lock);
    lost_sweep(job, &news);
    held_set(job, job->shared.held & ~DEVICE_BIT(device), &news);
    (void)pthread_cond_broadcast(&job->feed_changed);
    (void)pthread_mutex_unlock(&job->lock);
    news_tell(job, &news);
}

enum job_pull job_pull(struct train_job *job, uint32_t device, struct task *ret_task)
{
    struct news news = {0};
    enum job_pull result;
    (void)pthread_mutex_lock(&job->lock);
    lost_sweep(job, &news);
    result = pull_locked(job, device, ret_task, &news);
    (void)pthread_mutex_unlock(&job->lock);
    news.poke &= ~DEVICE_BIT(device);
    news_tell(job, &news);
    return result;
}

void job_push(struct train_job *job, uint32_t device, struct task *task, bool complete)
{
    struct news news = {0};
    (void)pthread_mutex_lock(&job->lock);
    lost_sweep(job, &news);
    if (complete) {
        done_locked(job, device, task, &news);
    } else if (step_return(job->shared.step, device, task)) {
        atomic_fetch_add(&job->figures.micro_batches_returned, task->kind == TASK_MICRO_BATCH);
        waiting_wake(job, &news);
    }
    (void)pthread_mutex_unlock(&job->lock);
    news.poke &= ~DEVICE_BIT(device);
    task_release(task);
    news_tell(job, &news);
}
