#include "server/train/worker.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>

#include "server/base/clock.h"

#define WATCH_MS 2 /* how often an idle device looks whether another one stands still */

struct command {
    struct letter letter;
    enum worker_command command;
    struct train_job *job; /* a hold */
    uint64_t grant;
};

struct worker {
    struct device *device;
    pthread_t thread;
    struct mailbox *box;
    struct letter poke_letter;
    struct gate gate;
    struct {                   /* the worker's thread */
        struct train_job *job; /* a hold; NULL: none */
        struct mlp_workspace *workspace;
    } own;
    _Atomic int place;          /* enum work_place; the worker's thread writes */
    struct {                    /* any thread */
        _Atomic uint32_t abort; /* the gate closes */
        _Atomic uint32_t mail;  /* there are letters */
        _Atomic uint32_t poked; /* the poke letter is in the box */
        _Atomic bool stopping;
    } shared;
};

/* ---- pieces ---- */

/* Between two pieces of work. On the usual path two loads and nothing else. */
static bool worker_may_run(void *context)
{
    struct worker *worker = context;
    bool stands = atomic_load_explicit(&worker->device->shared.serving, memory_order_relaxed) != 0;
    bool goes_on = device_training_may_run(worker->device, &worker->shared.abort);
    if (stands) {
        atomic_fetch_add(&worker->own.job->figures.stands[worker->place], 1);
    }
    if (!goes_on) {
        atomic_fetch_add(&worker->own.job->figures.aborts[worker->place], 1);
    }
    return goes_on;
}

static bool micro_batch_run(struct worker *worker, struct task *task)
{
    const struct specification *s = &worker->own.job->specification;
    const float *inputs = feed_inputs(task->rows);
    worker->place = WORK_FORWARD;
    if (mlp_forward(&s->model, worker->own.workspace, &worker->gate, s->micro_batch, inputs,
                    task->state->data) == NULL) {
        return false;
    }
    worker->place = WORK_BACKWARD;
    return mlp_backward(&s->model, worker->own.workspace, &worker->gate, s->micro_batch, inputs,
                        feed_labels(worker->own.job->shared.feed, task->rows), task->state->data,
                        1.0f / (float)s->batch, task->out->data, &task->sums);
}

static bool apply_run(struct worker *worker, struct task *task)
{
    const struct train_job *job = worker->own.job;
    size_t begin = (size_t)task->index * STEP_RANGE_FLOATS;
    size_t rest = job->keeper.parameters - begin;
    worker->place = WORK_APPLY;
    return optimizer_apply(&worker->gate, &job->specification.optimizer, task->step + 1,
                           job->keeper.parameters, begin,
                           rest < STEP_RANGE_FLOATS ? rest : STEP_RANGE_FLOATS, task->a->data,
                           task->state->data, task->out->data);
}

static bool sum_run(struct worker *worker, struct task *task)
{
    worker->place = WORK_SUM;
    return gradient_add(&worker->gate, worker->own.job->keeper.parameters, task->a->data,
                        task->b->data, task->out->data);
}

static bool evaluate_run(struct worker *worker, struct task *task)
{
    struct train_job *job = worker->own.job;
    const struct specification *s = &job->specification;
    uint64_t first = (uint64_t)task->index * s->micro_batch;
    uint64_t rest = dataset_held_out_rows(job->keeper.dataset) - first;
    uint32_t rows = rest < s->micro_batch ? (uint32_t)rest : s->micro_batch;
    uint32_t *labels = feed_labels(job->shared.feed, task->rows);
    struct error error = {0};
    const float *logits;
    worker->place = WORK_EVALUATE;
    if (dataset_held_out_read(job->keeper.dataset, first, rows, task->rows->data, labels, &error) <
        0) {
        job_fail(job, error.text);
        return false;
    }
    logits = mlp_forward(&s->model, worker->own.workspace, &worker->gate, rows,
                         feed_inputs(task->rows), task->state->data);
    return logits != NULL &&
           softmax_cross_entropy(&worker->gate, rows, s->model.widths[s->model.layer_count], logits,
                                 labels, 0, NULL, &task->sums);
}

static bool task_run(struct worker *worker, struct task *task)
{
    switch (task->kind) {
    case TASK_MICRO_BATCH:
        return micro_batch_run(worker, task);
    case TASK_SUM:
        return sum_run(worker, task);
    case TASK_APPLY:
        return apply_run(worker, task);
    case TASK_EVALUATE:
        return evaluate_run(worker, task);
    case TASK_NONE:
        break;
    }
    return false;
}

static void task_work(struct worker *worker, struct task *task)
{
    struct device *device = worker->device;
    uint64_t start_ns = clock_now_ns();
    uint64_t paused_ns = atomic_load(&device->shared.training_paused_ns);
    uint64_t wall_ns;
    bool complete;
    device_training_begin(device);
    complete = task_run(worker, task);
    device_training_end(device);
    worker->place = WORK_NONE;
    wall_ns = clock_now_ns() - start_ns;
    paused_ns = atomic_load(&device->shared.training_paused_ns) - paused_ns;
    atomic_fetch_add(&device->shared.training_ns, wall_ns > paused_ns ? wall_ns - paused_ns : 0);
    job_push(worker->own.job, device->index, task, complete);
}

/* ---- coming and going ---- */

static void job_drop(struct worker *worker)
{
    job_leave(worker->own.job, worker->device->index);
    job_release(worker->own.job);
    mlp_workspace_destroy(worker->own.workspace);
    worker->own.job = NULL;
    worker->own.workspace = NULL;
}

static void grant_take(struct worker *worker, struct train_job *job)
{
    const struct specification *s = &job->specification;
    if (worker->own.job != NULL) { /* against the contract; the newer grant counts */
        job_drop(worker);
    }
    worker->own.job = job_hold(job);
    worker->own.workspace = mlp_workspace_create(&s->model, s->micro_batch);
    job_enter(job, worker->device->index);
    if (worker->own.workspace == NULL) {
        job_fail(job, "no memory for the activations of a micro-batch; lower micro_batch");
    }
}

static void command_take(struct worker *worker, const struct command *command)
{
    struct train_job *job = command->job;
    bool here = worker->own.job == job;
    switch (command->command) {
    case WORKER_GRANT:
        grant_take(worker, job);
        return;
    case WORKER_REVOKE:
        if (here) {
            atomic_fetch_add(&job->figures.preemptions, 1);
            job_drop(worker);
        }
        job_released(job, worker->device->index, command->grant);
        return;
    case WORKER_LOST:
        if (here) {
            job_drop(worker);
        }
        return;
    }
}

static void mail_take(struct worker *worker)
{
    struct letter *letter = mailbox_take(worker->box);
    while (letter != NULL) {
        struct letter *next = letter->next;
        if (letter == &worker->poke_letter) {
            atomic_store(&worker->shared.poked, 0);
        } else {
            struct command *command = (struct command *)letter;
            command_take(worker, command);
            job_release(command->job);
            free(command);
        }
        letter = next;
    }
}

static void mail_wait(struct worker *worker, int timeout_ms)
{
    struct pollfd wait = {.fd = mailbox_fd(worker->box), .events = POLLIN};
    if (poll(&wait, 1, timeout_ms) > 0) {
        mail_take(worker);
    }
}

static void turn(struct worker *worker)
{
    struct task task = {0};
    uint64_t start_ns;
    if (worker->own.job == NULL) {
        mail_wait(worker, -1);
        return;
    }
    switch (job_pull(worker->own.job, worker->device->index, &task)) {
    case JOB_PULL_TASK:
        task_work(worker, &task);
        return;
    case JOB_PULL_WAIT:
        mail_wait(worker, -1);
        return;
    case JOB_PULL_WATCH:
        mail_wait(worker, WATCH_MS);
        return;
    case JOB_PULL_DATA:
        start_ns = clock_now_ns();
        mail_wait(worker, -1);
        if (worker->own.job != NULL) {
            atomic_fetch_add(&worker->own.job->figures.data_wait_ns, clock_now_ns() - start_ns);
        }
        return;
    case JOB_PULL_LEAVE:
        job_drop(worker);
        return;
    }
}

/* The abort flag falls before the mail is read: who raises it has written the mail before. */
static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    while (!atomic_load(&worker->shared.stopping)) {
        atomic_store(&worker->shared.abort, 0);
        if (atomic_exchange(&worker->shared.mail, 0) != 0) {
            mail_take(worker);
        }
        if (!atomic_load(&worker->shared.stopping)) {
            turn(worker);
        }
    }
    if (worker->own.job != NULL) {
        job_drop(worker);
    }
    return NULL;
}

/* ---- from other threads ---- */

struct worker *worker_start(struct device *device, struct error *error)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    if (worker == NULL || (worker->box = mailbox_create()) == NULL) {
        (void)error_set(error, ERROR_RESOURCE_EXHAUSTED,
                        "no memory or descriptor for the training thread of device %s", device->id);
        free(worker);
        return NULL;
    }
    worker->device = device;
    worker->gate = (struct gate){worker_may_run, worker};
    if (device_thread_start(device, DEVICE_TRAINING, worker_main, worker, &worker->thread, error) <
        0) {
        mailbox_destroy(worker->box);
        free(worker);
        return NULL;
    }
    return worker;
}

/* Closes the gate and opens the eyes of a thread that stands or waits. */
static void worker_interrupt(struct worker *worker)
{
    atomic_store(&worker->shared.mail, 1);
    atomic_store(&worker->shared.abort, 1);
    device_training_wake(worker->device);
}

void worker_poke(struct worker *worker)
{
    if (atomic_exchange(&worker->shared.poked, 1) == 0) {
        mailbox_send(worker->box, &worker->poke_letter);
    }
}

void worker_cancel(struct worker *worker)
{
    atomic_store(&worker->shared.abort, 1);
    device_training_wake(worker->device);
}

int worker_send(struct worker *worker, enum worker_command kind, struct train_job *job,
                uint64_t grant)
{
    struct command *command = malloc(sizeof(*command));
    if (command == NULL) {
        return -1;
    }
    *command = (struct command){.command = kind, .job = job_hold(job), .grant = grant};
    mailbox_send(worker->box, &command->letter);
    if (kind == WORKER_GRANT) {
        atomic_store(&worker->shared.mail, 1);
    } else {
        worker_interrupt(worker);
    }
    return 0;
}

/* What came too late: its holds go. */
static void mail_discard(struct worker *worker)
{
    struct letter *letter = mailbox_take(worker->box);
    while (letter != NULL) {
        struct letter *next = letter->next;
        if (letter != &worker->poke_letter) {
            job_release(((struct command *)letter)->job);
            free(letter);
        }
        letter = next;
    }
}

enum work_place worker_place(const struct worker *worker)
{
    return (enum work_place)atomic_load(&worker->place);
}

void worker_stop(struct worker *worker)
{
    if (worker == NULL) {
        return;
    }
    atomic_store(&worker->shared.stopping, true);
    worker_poke(worker);
    worker_interrupt(worker);
    (void)pthread_join(worker->thread, NULL);
}

void worker_destroy(struct worker *worker)
{
    if (worker == NULL) {
        return;
    }
    mail_discard(worker);
    mailbox_destroy(worker->box);
    free(worker);
}
