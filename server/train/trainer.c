#include "server/train/trainer.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/native/blas.h"
#include "server/base/clock.h"
#include "server/base/folder.h"
#include "server/train/trainer_internal.h"

/* ---- the trainer ---- */

static int workers_start(struct trainer *trainer, struct error *error)
{
    for (uint32_t i = 0; i < trainer->devices->count; i++) {
        trainer->workers[i] = worker_start(&trainer->devices->devices[i], error);
        if (trainer->workers[i] == NULL) {
            return -(int)error->code;
        }
    }
    return 0;
}

struct trainer *trainer_create(struct device_set *devices, const char *state_directory,
                               void (*notify)(void *context, const struct train_event *event),
                               void *context, struct error *error)
{
    struct error why = {0};
    struct trainer *trainer = calloc(1, sizeof(*trainer));
    if (trainer == NULL) {
        (void)error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the trainer");
        return NULL;
    }
    trainer->devices = devices;
    trainer->notify = notify;
    trainer->context = context;
    blas_choose();
    if (snprintf(trainer->state_directory, sizeof(trainer->state_directory), "%s/jobs",
                 state_directory) >= (int)sizeof(trainer->state_directory)) {
        (void)error_set(error, ERROR_INVALID_ARGUMENT, "the state directory's path is too long");
    } else if (folder_make(state_directory, 0700, &why) == 0 &&
               folder_make(trainer->state_directory, 0700, &why) == 0 &&
               workers_start(trainer, &why) == 0) {
        return trainer;
    } else {
        (void)error_set(error, why.code, "%s", why.text);
    }
    trainer_destroy(trainer);
    return NULL;
}

uint64_t trainer_last_number(const struct trainer *trainer)
{
    uint64_t last = 0;
    DIR *directory = opendir(trainer->state_directory);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        const char *dash = strrchr(entry->d_name, '-');
        uint64_t number = dash != NULL ? strtoull(dash + 1, NULL, 10) : 0;
        last = number > last && number < UINT64_MAX ? number : last;
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return last;
}

/* Has the keeper ended? Never waits, for it may have to wait for a core; `wait`: it has to end. */
static bool keeper_join(struct train_job *job, bool wait)
{
    if (wait) {
        return pthread_join(job->keeper.thread, NULL) == 0;
    }
    return atomic_load(&job->figures.cancelled) &&
           pthread_tryjoin_np(job->keeper.thread, NULL) == 0;
}

/* The list lets go of jobs whose keeper has ended. */
static void jobs_reap(struct trainer *trainer, bool all)
{
    struct train_job **link = &trainer->jobs;
    while (*link != NULL) {
        struct train_job *job = *link;
        if (keeper_join(job, all)) {
            *link = job->control.next;
            job_release(job);
        } else {
            link = &job->control.next;
        }
    }
}

void trainer_destroy(struct trainer *trainer)
{
    if (trainer == NULL) {
        return;
    }
    for (uint32_t i = 0; i < trainer->devices->count; i++) {
        worker_stop(trainer->workers[i]);
    }
    for (struct train_job *job = trainer->jobs; job != NULL; job = job->control.next) {
        atomic_store(&job->figures.stopping, true);
        job_poke_keeper(job);
    }
    jobs_reap(trainer, true);
    for (uint32_t i = 0; i < trainer->devices->count; i++) {
        worker_destroy(trainer->workers[i]); /* nobody is left to poke it */
    }
    free(trainer);
}

/* ---- jobs ---- */

/* The id names a directory: nothing in it may lead elsewhere. */
static int id_check(const char *id, struct error *error)
{
    size_t length = strlen(id);
    if (length == 0 || length > 127 || id[0] == '.' || strchr(id, '/') != NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job id '%.130s': must be 1 to 127 bytes without '/', not beginning with "
                         "'.'",
                         id);
    }
    return 0;
}

static void figures_init(struct train_job *job)
{
    atomic_store(&job->figures.loss_first, (double)NAN);
    atomic_store(&job->figures.loss_last, (double)NAN);
    atomic_store(&job->figures.held_out_loss, (double)NAN);
    atomic_store(&job->figures.held_out_accuracy, (double)NAN);
}

static int job_init(struct train_job *job, const char *id, const json_t *specification,
                    struct error *error)
{
    int result = specification_init(&job->specification, specification, error);
    if (result == 0) {
        result = dataset_check(&job->specification.data, job->specification.model.widths[0], error);
    }
    (void)snprintf(job->id, sizeof(job->id), "%s", id);
    if (result == 0 && snprintf(job->directory, sizeof(job->directory), "%s/%s",
                                job->trainer->state_directory, id) >= (int)sizeof(job->directory)) {
        result = error_set(error, ERROR_INVALID_ARGUMENT, "the checkpoints' path is too long");
    }
    return result == 0 ? keeper_start(job, error) : result;
}

int trainer_job_create(struct trainer *trainer, uint64_t number, const char *job_id,
                       const json_t *specification, struct train_job **ret_job, struct error *error)
{
    struct train_job *job;
    int result = id_check(job_id, error);
    if (result < 0) {
        return result;
    }
    jobs_reap(trainer, false);
    job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a job");
    }
    job->trainer = trainer;
    job->number = number;
    atomic_store(&job->holders, 1);
    (void)pthread_mutex_init(&job->lock, NULL);
    (void)pthread_cond_init(&job->feed_changed, NULL);
    figures_init(job);
    result = job_init(job, job_id, specification, error);
    if (result < 0) {
        job_release(job);
        return result;
    }
    job->control.next = trainer->jobs;
    trainer->jobs = job;
    *ret_job = job;
    return 0;
}

void trainer_job_destroy(struct train_job *job)
{
    struct trainer *trainer;
    if (job == NULL) {
        return;
    }
    trainer = job->trainer;
    atomic_store(&job->figures.cancelled, true);
    job_poke_keeper(job);
    jobs_reap(trainer, false);
}

void trainer_reap(struct trainer *trainer)
{
    jobs_reap(trainer, false);
}

static void command_send(struct train_job *job, uint32_t device, enum worker_command command)
{
    if (device >= job->trainer->devices->count ||
        worker_send(job->trainer->workers[device], command, job, job->trainer->grants[device]) <
            0) {
        job_notify(job, TRAIN_FAILED, device, "no memory to tell a training thread what to do");
    }
}

void trainer_job_grant(struct train_job *job, uint32_t device)
{
    if (device < job->trainer->devices->count) {
        job->trainer->grants[device]++;
    }
    command_send(job, device, WORKER_GRANT);
}

uint64_t trainer_grant_number(const struct trainer *trainer, uint32_t device)
{
    return trainer->grants[device];
}

void trainer_job_revoke(struct train_job *job, uint32_t device)
{
    command_send(job, device, WORKER_REVOKE);
}

void trainer_job_device_failed(struct train_job *job, uint32_t device)
{
    atomic_fetch_or(&job->figures.lost, UINT64_C(1) << device);
    command_send(job, device, WORKER_LOST);
    for (uint32_t i = 0; i < job->trainer->devices->count; i++) {
        worker_poke(job->trainer->workers[i]); /* whoever is in the job sweeps */
    }
    job_poke_keeper(job);
    job_released(job, device, job->trainer->grants[device]);
}

int trainer_job_checkpoint(struct train_job *job)
{
    atomic_store(&job->figures.checkpoint_wanted, true);
    job_poke_keeper(job);
    return 0;
}

void trainer_job_status(const struct train_job *job, struct train_status *ret_status)
{
    *ret_status = (struct train_status){
        .step = atomic_load(&job->figures.step),
        .steps = atomic_load(&job->steps),
        .checkpointed_step = atomic_load(&job->figures.checkpointed_step),
        .micro_batches_done = atomic_load(&job->figures.micro_batches_done),
        .micro_batches_returned = atomic_load(&job->figures.micro_batches_returned),
        .loss_first = atomic_load(&job->figures.loss_first),
        .loss_last = atomic_load(&job->figures.loss_last),
        .held_out_loss = atomic_load(&job->figures.held_out_loss),
        .held_out_accuracy = atomic_load(&job->figures.held_out_accuracy),
        .steps_per_second = rate_per_second(&job->figures.rate, clock_now_ns()),
        .data_wait_ns = atomic_load(&job->figures.data_wait_ns),
        .preemptions = atomic_load(&job->figures.preemptions),
        .devices_held = atomic_load(&job->figures.devices_held),
    };
    if (ret_status->checkpointed_step > 0) {
        (void)snprintf(ret_status->checkpoint_path, sizeof(ret_status->checkpoint_path),
                       "%.400s/checkpoint-%012llu", job->directory,
                       (unsigned long long)ret_status->checkpointed_step);
    }
    if (atomic_load(&job->figures.exported)) {
        (void)snprintf(ret_status->export_path, sizeof(ret_status->export_path), "%s",
                       job->export_path);
    }
}
