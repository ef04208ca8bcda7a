/* Loader threads: one per device that the job has ever held, working while it is held. */
#include "server/train/trainer_internal.h"

#include <stdlib.h>

struct loader {
    struct train_job *job; /* joined by the job's keeper, so it needs no hold of its own */
    uint32_t device;
};

/* Under the lock, which is let go for the reading. */
static void claim_work(struct train_job *job, uint64_t sequence, struct vector *rows)
{
    struct error error = {0};
    int result;
    (void)pthread_mutex_unlock(&job->lock);
    result = feed_read(job->shared.feed, sequence, rows, &error);
    if (result < 0) {
        job_fail(job, error.text);
    }
    (void)pthread_mutex_lock(&job->lock);
    feed_fill(job->shared.feed, sequence, rows); /* after a failure nobody pulls any more */
    (void)pthread_mutex_unlock(&job->lock);
    job_wake(job);
    (void)pthread_mutex_lock(&job->lock);
}

/* Under the lock. False: nothing to do now. */
static bool loader_work(struct train_job *job, uint32_t device)
{
    uint64_t sequence;
    struct vector *rows;
    int claimed;
    if (job->shared.state != JOB_TRAINING || (job->shared.held >> device & 1) == 0) {
        return false;
    }
    claimed = feed_claim(job->shared.feed, &sequence, &rows);
    if (claimed > 0) {
        claim_work(job, sequence, rows);
    } else if (claimed < 0) {
        (void)pthread_mutex_unlock(&job->lock);
        job_fail(job, "no memory for the rows of a micro-batch; lower micro_batch");
        (void)pthread_mutex_lock(&job->lock);
    }
    return claimed != 0;
}

static void *loader_main(void *arg)
{
    struct loader loader = *(struct loader *)arg;
    struct train_job *job = loader.job;
    free(arg);
    (void)pthread_mutex_lock(&job->lock);
    while (!job->shared.closing) {
        if (!loader_work(job, loader.device)) {
            (void)pthread_cond_wait(&job->feed_changed, &job->lock);
        }
    }
    (void)pthread_mutex_unlock(&job->lock);
    return NULL;
}

void loader_start(struct train_job *job, uint32_t device)
{
    struct error error = {0};
    struct loader *loader = NULL;
    int result = 0;
    (void)pthread_mutex_lock(&job->lock);
    if (!job->shared.closing && (job->shared.loaders >> device & 1) == 0) {
        loader = malloc(sizeof(*loader));
        if (loader != NULL) {
            *loader = (struct loader){job, device};
            result = device_thread_start(&job->trainer->devices->devices[device], DEVICE_LOADER,
                                         loader_main, loader, &job->shared.loader_threads[device],
                                         &error);
        } else {
            result = error_set(&error, ERROR_RESOURCE_EXHAUSTED, "no memory for a loader");
        }
        if (result == 0) {
            job->shared.loaders |= UINT64_C(1) << device;
        } else {
            free(loader);
        }
    }
    (void)pthread_cond_broadcast(&job->feed_changed); /* this device is held now */
    (void)pthread_mutex_unlock(&job->lock);
    if (result < 0) {
        job_fail(job, error.text);
    }
}

void loaders_join(struct train_job *job)
{
    uint64_t loaders;
    (void)pthread_mutex_lock(&job->lock);
    job->shared.closing = true;
    loaders = job->shared.loaders;
    (void)pthread_cond_broadcast(&job->feed_changed);
    (void)pthread_mutex_unlock(&job->lock);
    for (uint32_t i = 0; i < DEVICES_MAX; i++) {
        if ((loaders >> i & 1) != 0) {
            (void)pthread_join(job->shared.loader_threads[i], NULL);
        }
    }
}
