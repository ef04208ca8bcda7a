/* trainer.c: server/train/trainer.h of a virtual world: jobs whose steps take device time. Their
 * specifications are checked as the real trainer does, but for the files that they name. */
#include "server/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/virtual/world.h"
#include "server/train/specification.h"

#define LOOK_NS (100 * NS_PER_MS) /* progress is told, and the end noticed, so often */
#define RATE_NS (5 * NS_PER_S)
#define STEPS_OF_EPOCH 100 /* there is no data whose rows could be counted */

struct train_job {
    struct train_job *next;
    uint64_t number, steps, checkpoint_steps;
    uint64_t ready_ns; /* WORLD_NEVER_NS: it is */
    bool ended;        /* finished; waits to be destroyed */
    uint64_t work_ns;  /* device time of its steps */
    uint64_t told_step;
    uint32_t devices;
    uint64_t preemptions;
    uint64_t rate_ns, rate_work_ns; /* when the rate was last measured, and the work then */
    double steps_per_second;
};

struct trainer {
    void (*notify)(void *context, const struct train_event *event);
    void *context;
    struct train_job *jobs;
    uint64_t look_ns;
};

static void enter(void)
{
    pthread_mutex_lock(&world.lock);
    world_now();
}

static void leave(void)
{
    pthread_mutex_unlock(&world.lock);
}

/* There may be a next moment that the thread does not wait for. */
static void leave_changed(void)
{
    world_changed();
    leave();
}

/* ---- steps ---- */

static uint64_t step_of(const struct train_job *job)
{
    uint64_t step = job->work_ns / WORLD_STEP_NS;
    return step < job->steps ? step : job->steps;
}

/* A last checkpoint is written when all is done. */
static uint64_t checkpoint_of(const struct train_job *job)
{
    uint64_t step = step_of(job);
    return step == job->steps          ? step
           : job->checkpoint_steps > 0 ? step / job->checkpoint_steps * job->checkpoint_steps
                                       : 0;
}

void trainer_book(struct train_job *job, uint64_t span_ns)
{
    job->work_ns += span_ns;
}

static void tell(const struct train_job *job, enum train_event_kind kind, uint32_t device)
{
    struct train_event event = {.kind = kind,
                                .job = job->number,
                                .device = device,
                                .grant = world.state[device].grant,
                                .step = step_of(job),
                                .checkpointed_step = checkpoint_of(job)};
    world.trainer->notify(world.trainer->context, &event);
}

static void device_leave(uint32_t index)
{
    struct virtual_device *device = &world.state[index];
    world_book(index);
    device->job->devices--;
    device->job = NULL;
    device->release_ns = WORLD_NEVER_NS;
}

static void devices_leave(const struct train_job *job)
{
    for (uint32_t i = 0; i < world.devices->count; i++) {
        if (world.state[i].job == job) {
            device_leave(i);
        }
    }
}

static void measure_rate(struct train_job *job)
{
    uint64_t span_ns = world.now_ns - job->rate_ns;
    if (span_ns >= RATE_NS) {
        job->steps_per_second = (double)(job->work_ns - job->rate_work_ns) / (double)WORLD_STEP_NS /
                                ((double)span_ns / NS_PER_S);
        job->rate_ns = world.now_ns;
        job->rate_work_ns = job->work_ns;
    }
}

static void job_look(struct train_job *job)
{
    if (job->ready_ns <= world.now_ns) {
        job->ready_ns = WORLD_NEVER_NS;
        job->rate_ns = world.now_ns;
        tell(job, TRAIN_READY, 0);
    }
    measure_rate(job);
    if (!job->ended && step_of(job) == job->steps) {
        job->ended = true;
        devices_leave(job);
        tell(job, TRAIN_FINISHED, 0);
    } else if (!job->ended && step_of(job) != job->told_step) {
        job->told_step = step_of(job);
        tell(job, TRAIN_PROGRESS, 0);
    }
}

/* ---- what happens by itself ---- */

uint64_t trainer_next_ns(const struct trainer *trainer)
{
    uint64_t next = trainer != NULL && trainer->jobs != NULL ? trainer->look_ns : WORLD_NEVER_NS;
    for (uint32_t i = 0; i < world.devices->count; i++) {
        next = world.state[i].release_ns < next ? world.state[i].release_ns : next;
    }
    return next;
}

void trainer_happen(struct trainer *trainer)
{
    for (uint32_t i = 0; i < world.devices->count; i++) {
        struct train_job *job = world.state[i].job;
        if (world.state[i].release_ns <= world.now_ns) {
            device_leave(i);
            tell(job, TRAIN_RELEASED, i);
        }
    }
    if (trainer == NULL || trainer->look_ns > world.now_ns) {
        return;
    }
    trainer->look_ns = world.now_ns + LOOK_NS;
    for (uint32_t i = 0; i < world.devices->count; i++) {
        world_book(i);
    }
    for (struct train_job *job = trainer->jobs; job != NULL; job = job->next) {
        job_look(job);
    }
}

/* ---- trainer.h ---- */

struct trainer *trainer_create(struct device_set *devices, const char *state_directory,
                               void (*notify)(void *context, const struct train_event *event),
                               void *context, struct error *error)
{
    struct trainer *trainer = calloc(1, sizeof *trainer);
    (void)devices; /* the world's */
    (void)state_directory;
    if (trainer == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "trainer: no memory");
        return NULL;
    }
    trainer->notify = notify;
    trainer->context = context;
    world.trainer = trainer;
    return trainer;
}

void trainer_destroy(struct trainer *trainer)
{
    while (trainer != NULL && trainer->jobs != NULL) {
        struct train_job *job = trainer->jobs;
        trainer->jobs = job->next;
        free(job);
    }
    free(trainer);
}

uint64_t trainer_last_number(const struct trainer *trainer)
{
    (void)trainer;
    return 0; /* nothing outlives the program */
}

int trainer_job_create(struct trainer *trainer, uint64_t number, const char *job_id,
                       const json_t *json, struct train_job **ret_job, struct error *error)
{
    struct specification specification;
    struct train_job *job = calloc(1, sizeof *job);
    int result = job == NULL ? error_set(error, ERROR_RESOURCE_EXHAUSTED, "job: no memory")
                             : specification_init(&specification, json, error);
    (void)job_id; /* nothing is kept under it */
    if (result < 0) {
        free(job);
        return result;
    }
    job->number = number;
    job->checkpoint_steps = (uint64_t)specification.checkpoint.every_steps;
    job->steps = specification.steps > 0 ? specification.steps
                                         : (uint64_t)ceil(specification.epochs * STEPS_OF_EPOCH);
    specification_fini(&specification);
    enter();
    job->ready_ns = world.now_ns + WORLD_LOAD_NS;
    job->next = trainer->jobs;
    trainer->jobs = job;
    leave_changed();
    *ret_job = job;
    return 0;
}

void trainer_job_destroy(struct train_job *job)
{
    struct train_job **place = &world.trainer->jobs;
    enter();
    devices_leave(job);
    while (*place != job) {
        place = &(*place)->next;
    }
    *place = job->next;
    leave_changed();
    free(job);
}

void trainer_reap(struct trainer *trainer)
{
    (void)trainer; /* no thread outlives its job */
}

void trainer_job_grant(struct train_job *job, uint32_t index)
{
    struct virtual_device *device = &world.state[index];
    enter();
    device->grant++;
    if (!job->ended) { /* else it has said that it is over: who grants is about to hear it */
        device->job = job;
        device->booked_ns = world.now_ns;
        job->devices++;
    }
    leave_changed();
}

uint64_t trainer_grant_number(const struct trainer *trainer, uint32_t device)
{
    (void)trainer;
    pthread_mutex_lock(&world.lock);
    uint64_t grant = world.state[device].grant;
    pthread_mutex_unlock(&world.lock);
    return grant;
}

void trainer_job_revoke(struct train_job *job, uint32_t index)
{
    struct virtual_device *device = &world.state[index];
    enter();
    if (device->job == job && device->release_ns == WORLD_NEVER_NS) {
        job->preemptions++;
        device->release_ns = world.now_ns + WORLD_RELEASE_NS;
    }
    leave_changed();
}

void trainer_job_device_failed(struct train_job *job, uint32_t index)
{
    enter();
    if (world.state[index].job == job) {
        device_leave(index);
        tell(job, TRAIN_RELEASED, index);
    }
    leave_changed();
}

void trainer_job_status(const struct train_job *job, struct train_status *ret_status)
{
    enter();
    *ret_status = (struct train_status){
        .step = step_of(job),
        .steps = job->steps,
        .checkpointed_step = checkpoint_of(job),
        .loss_first = NAN, /* nothing is computed */
        .loss_last = NAN,
        .held_out_loss = NAN,
        .held_out_accuracy = NAN,
        .steps_per_second = job->devices > 0 ? job->steps_per_second : 0,
        .preemptions = job->preemptions,
        .devices_held = job->devices,
    };
    leave();
}
