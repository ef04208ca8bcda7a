/* world.c: see world.h: the thread, time, and the jobs of the trace. */
#include "clients/virtual/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/control/change.h"

struct world world = {.lock = PTHREAD_MUTEX_INITIALIZER, .start_ns = WORLD_NEVER_NS};

static struct control *control; /* under the lock, as is the next; NULL: nothing is submitted yet */
static size_t next_job;         /* of the trace */

/* ---- devices ---- */

static void device_fill(struct device *device, uint32_t index)
{
    device->index = index;
    snprintf(device->id, sizeof device->id, "virtual:%u", index);
    /* Jobs ask for devices of this kind; it is what the trainer's threads would run on. */
    snprintf(device->kind, sizeof device->kind, "cpu");
    snprintf(device->node, sizeof device->node, "virtual");
    device->core_count = 1;
    device->memory_bytes = WORLD_DEVICE_BYTES;
}

int world_begin(const struct world_plan *plan, uint32_t devices, struct device_set *ret_devices,
                struct error *error)
{
    pthread_condattr_t attributes;
    *ret_devices =
        (struct device_set){.devices = calloc(devices, sizeof(struct device)), .count = devices};
    world.state = calloc(devices, sizeof *world.state);
    world.devices = ret_devices;
    if (ret_devices->devices == NULL || world.state == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for %u devices", devices);
    }
    for (uint32_t i = 0; i < devices; i++) {
        device_fill(&ret_devices->devices[i], i);
        world.state[i].release_ns = WORLD_NEVER_NS;
    }
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&world.changed, &attributes);
    pthread_condattr_destroy(&attributes);
    world.plan = plan;
    world.now_ns = clock_pace_now_ns(plan->pace);
    return 0;
}

void world_end(void)
{
    if (world.devices != NULL) {
        free(world.devices->devices);
        *world.devices = (struct device_set){0};
    }
    free(world.state);
    world.state = NULL;
}

/* ---- requests of the trace ---- */

uint64_t world_service_ns(const char *name)
{
    const struct trace *trace = world.plan->trace;
    const struct workload *workload = world.plan->workload;
    double sum = 0, count = 0;
    for (size_t i = 0; i < workload->request_count; i++) {
        if (strcmp(trace->endpoints.names[workload->requests[i].endpoint], name) == 0) {
            sum += (double)workload->requests[i].service_ns;
            count++;
        }
    }
    return count > 0 ? (uint64_t)(sum / count) : 0;
}

/* ---- jobs of the trace ---- */

struct submission {
    struct control_call call; /* first */
    char name[32], specification[512];
};

static void on_submitted(struct control *of, void *context, size_t index, const struct error *error)
{
    struct log_text text;
    (void)of;
    (void)context;
    (void)index;
    if (error != NULL) {
        log_write(LOG_WARN, "sim", "job not submitted", "reason=%s", log_quote(&text, error->text));
    }
}

static void run_submission(struct control *to, struct control_call *call)
{
    struct submission *submission = (struct submission *)call;
    struct control_submission wanted = {submission->specification, submission->name, true};
    control_job_submit(to, &wanted, on_submitted, NULL);
    free(submission);
}

/* Written as one for the real trainer; of it only steps and devices mean something here. */
static void job_submit(size_t number, const struct sim_job *job)
{
    struct submission *submission = calloc(1, sizeof *submission);
    uint64_t steps = job->work_ns / WORLD_STEP_NS;
    if (submission == NULL) {
        log_write(LOG_ERROR, "sim", "job not submitted", "job=%zu reason=\"no memory\"", number);
        return;
    }
    submission->call.run = run_submission;
    snprintf(submission->name, sizeof submission->name, "trace-%zu", number);
    snprintf(
        submission->specification, sizeof submission->specification,
        "{\"name\": \"%s\", \"model\": {\"layers\": [1, 2]}, \"data\": {\"path\": \"trace.csv\", "
        "\"label_column\": \"0\"}, \"batch\": 1, \"steps\": %llu, \"devices\": \"%u:%u\"}",
        submission->name, (unsigned long long)(steps > 0 ? steps : 1), job->devices_min,
        job->devices_max);
    control_post(control, &submission->call);
}

static uint64_t next_submission_ns(void)
{
    const struct workload *workload = world.plan->workload;
    return world.start_ns == WORLD_NEVER_NS || next_job == workload->job_count
               ? WORLD_NEVER_NS
               : world.start_ns + workload->jobs[next_job].submit_ns;
}

static void submit_what_is_due(void)
{
    while (next_submission_ns() <= world.now_ns) {
        job_submit(next_job + 1, &world.plan->workload->jobs[next_job]);
        next_job++;
    }
}

/* ---- time ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_ns(void)
{
    uint64_t next = least(serve_next_ns(world.serve), trainer_next_ns(world.trainer));
    return control != NULL ? least(next, next_submission_ns()) : next;
}

void world_now(void)
{
    uint64_t present_ns = clock_pace_now_ns(world.plan->pace);
    for (uint64_t at_ns = next_ns(); at_ns <= present_ns; at_ns = next_ns()) {
        world.now_ns = at_ns > world.now_ns ? at_ns : world.now_ns;
        serve_happen(world.serve);
        trainer_happen(world.trainer);
        if (control != NULL) {
            submit_what_is_due();
        }
    }
    world.now_ns = present_ns > world.now_ns ? present_ns : world.now_ns;
}

void world_changed(void)
{
    pthread_cond_signal(&world.changed);
}

void world_book(uint32_t index)
{
    struct virtual_device *device = &world.state[index];
    if (device->job != NULL && device->runs == NULL && world.now_ns > device->booked_ns) {
        trainer_book(device->job, world.now_ns - device->booked_ns);
    }
    device->booked_ns = world.now_ns;
}

static void wait_until(uint64_t at_ns)
{
    struct timespec until;
    if (at_ns == WORLD_NEVER_NS) {
        pthread_cond_wait(&world.changed, &world.lock);
        return;
    }
    uint64_t ahead_ns = at_ns > world.now_ns ? at_ns - world.now_ns : 0;
    uint64_t machine_ns = clock_now_ns() + clock_pace_machine_ns(world.plan->pace, ahead_ns);
    until.tv_sec = (time_t)(machine_ns / NS_PER_S);
    until.tv_nsec = (long)(machine_ns % NS_PER_S);
    pthread_cond_timedwait(&world.changed, &world.lock, &until);
}

static void *world_main(void *arg)
{
    (void)arg;
    pthread_setname_np(pthread_self(), "world");
    pthread_mutex_lock(&world.lock);
    while (!world.stopping) {
        world_now();
        wait_until(next_ns());
    }
    pthread_mutex_unlock(&world.lock);
    return NULL;
}

int world_start(struct control *of, struct error *error)
{
    pthread_mutex_lock(&world.lock); /* the control thread looks at the world already */
    control = of;
    pthread_mutex_unlock(&world.lock);
    int number = pthread_create(&world.thread, NULL, world_main, NULL);
    if (number != 0) {
        return error_set_errno(error, number, "start the virtual world");
    }
    world.running = true;
    return 0;
}

void world_stop(void)
{
    if (world.running) {
        pthread_mutex_lock(&world.lock);
        world.stopping = true;
        world_changed();
        pthread_mutex_unlock(&world.lock);
        pthread_join(world.thread, NULL);
        world.running = false;
    }
}
