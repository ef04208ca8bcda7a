#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/shim/launch.h"
#include "server/shim/shim_internal.h"

static int record_begin(struct shim *shim, struct error *error)
{
    const struct shim_job *job = &shim->job.job;
    struct shim_record *record = &shim->record;
    unsigned char tag[16];
    struct process self;
    size_t length;
    if (strlen(job->job) >= sizeof(record->job) || strlen(job->lease) >= sizeof(record->lease) ||
        strlen(job->devices) >= sizeof(record->devices) ||
        job->token_size > sizeof(record->token)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "start job '%.64s': too long a name, lease, list of devices or token",
                         job->job);
    }
    if (getrandom(tag, sizeof(tag), 0) != sizeof(tag) ||
        getrandom(record->secret, sizeof(record->secret), 0) != sizeof(record->secret) ||
        !process_read(getpid(), &self)) {
        return error_set_errno(error, errno, "start job '%s': random numbers, /proc", job->job);
    }
    (void)stpcpy(record->job, job->job);
    (void)stpcpy(record->lease, job->lease);
    (void)stpcpy(record->devices, job->devices);
    if (job->token_size > 0) {
        memcpy(record->token, job->token, job->token_size);
    }
    record->token_size = job->token_size;
    record->epoch = job->epoch;
    record->generation = job->generation;
    record->uid = job->uid;
    record->owner = job->owner;
    record->shim_pid = (uint64_t)self.pid;
    record->shim_start = self.start;
    record->state = SHIM_STARTING;
    length = (size_t)snprintf(record->tag, sizeof(record->tag), "TIDEPOOL_JOB_TAG=");
    for (size_t i = 0; i < sizeof(tag); i++) {
        length +=
            (size_t)snprintf(record->tag + length, sizeof(record->tag) - length, "%02x", tag[i]);
    }
    return boot_id_read(record->boot, error);
}

static int group_begin(struct shim *shim, struct error *error)
{
    char name[64];
    int result;
    (void)snprintf(name, sizeof(name), "tidepool-%s", strchr(shim->record.tag, '=') + 1);
    result = cgroup_create(shim->job.job.cgroup, name, &shim->cgroup, error);
    if (result < 0) {
        shim->record.step = START_GROUP;
        return result;
    }
    shim->record.cgroup_kind = shim->cgroup.kind;
    (void)stpcpy(shim->record.cgroup_path, shim->cgroup.path);
    return 0;
}

static int leader_begin(struct shim *shim, struct launched *ret_launched, struct error *error)
{
    struct launch launch_it = {.job = &shim->job.job,
                               .tag = shim->record.tag,
                               .cgroup = &shim->cgroup,
                               .stdin_fd = shim->job.job.stdin_fd};
    int pipes[2], result;
    if (pipe2(pipes, O_CLOEXEC) < 0) {
        return error_set_errno(error, errno, "start job: pipe");
    }
    (void)fcntl(pipes[0], F_SETFL,
                O_NONBLOCK); /* our end alone: the job's stays as it expects it */
    launch_it.output_fd = pipes[1];
    result = launch(&launch_it, ret_launched, error);
    (void)close(pipes[1]);
    if (result < 0) {
        (void)close(pipes[0]);
        shim->record.step = ret_launched->step;
        shim->record.error_number = (uint64_t)ret_launched->error_number;
        return result;
    }
    shim->output.pipe = pipes[0];
    shim->output.copy = ret_launched->copy;
    return 0;
}

static int job_begin(struct shim *shim, struct error *error)
{
    const struct shim_job *job = &shim->job.job;
    struct launched launched;
    int result = record_begin(shim, error);
    if (result == 0) {
        result = output_init(&shim->output, job->directory, job->owner, job->log_bytes, error);
    }
    if (result == 0) {
        result = group_begin(shim, error);
    }
    if (result == 0) {
        result = record_write(job->directory, &shim->record, error);
    }
    if (result == 0) {
        result = leader_begin(shim, &launched, error);
    }
    if (result < 0) {
        return result;
    }
    shim->record.leader_pid = (uint64_t)launched.pid;
    shim->record.leader_start = launched.start;
    if (!launched.grouped) {
        shim_group_end(shim);
        shim->record.cgroup_kind = CGROUP_NONE;
        shim->record.cgroup_path[0] = '\0';
    }
    return 0;
}

int shim_init(struct shim *shim, struct job_copy *job, const struct shim_listener *listener,
              struct error *error)
{
    int result;
    *shim = (struct shim){.job = *job, .listener = *listener};
    *job = (struct job_copy){0};
    shim->output.pipe = shim->output.copy = shim->output.log = shim->output.directory = -1;
    tree_init(&shim->tree, getpid());
    result = job_begin(shim, error);
    if (result < 0) {
        shim->record.step = shim->record.step != 0 ? shim->record.step : START_SHIM;
        (void)snprintf(shim->record.text, sizeof(shim->record.text), "%s", error->text);
        shim_group_end(shim);
        shim_move(shim, SHIM_FAILED);
        shim->closed = true;
        return result;
    }
    if (shim->job.job.cpus != NULL && cpus_parse(shim->job.job.cpus, &shim->cpus, NULL) == 0) {
        shim->pinned = true;
        shim->pin_look_ns = boottime_now_ns() + PIN_LOOK_NS;
    }
    shim_move(shim, SHIM_RUNNING);
    return 0;
}
