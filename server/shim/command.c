#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/shim/shim_internal.h"

static int must_run(const struct shim *shim, struct error *error)
{
    return shim->record.state == SHIM_RUNNING
               ? 0
               : error_set(error, ERROR_FAILED_PRECONDITION, "job '%s': is over", shim->record.job);
}

int shim_freeze(struct shim *shim, uint64_t command, uint64_t bound_ns, struct error *error)
{
    int result = must_run(shim, error);
    if (result == 0 && shim->pursuit.goal == GOAL_KILL) {
        result = error_set(error, ERROR_FAILED_PRECONDITION, "job '%s': is being killed",
                           shim->record.job);
    }
    if (result == 0 && shim->cgroup.kind != CGROUP_NONE) {
        int written = cgroup_freeze(&shim->cgroup, true);
        result =
            written == 0 ? 0 : error_set_errno(error, -written, "freeze '%s'", shim->cgroup.path);
    }
    if (result == 0) {
        pursuit_begin(shim, GOAL_FREEZE, command, bound_ns);
        pursuit_push(shim);
    }
    return result;
}

int shim_kill(struct shim *shim, uint64_t command, uint64_t bound_ns, struct error *error)
{
    (void)error;
    pursuit_begin(shim, GOAL_KILL, command, bound_ns);
    shim->frozen = false;
    shim->frozen_look_ns = shim->grace_ns = 0;
    pursuit_push(shim);
    return 0;
}

int shim_thaw(struct shim *shim, struct error *error)
{
    int result = must_run(shim, error);
    if (result < 0) {
        return result;
    }
    if (shim->pursuit.goal == GOAL_FREEZE) {
        pursuit_answer(shim, ERROR_ABORTED, "thawed before all stood still");
        shim->pursuit.goal = GOAL_NONE;
    }
    result = shim_thaw_all(shim);
    return result == 0 ? 0 : error_set_errno(error, -result, "thaw '%s'", shim->cgroup.path);
}

static int leader_signal(const struct shim *shim, int signal)
{
    int fd = process_open((pid_t)shim->record.leader_pid, shim->record.leader_start);
    int result = fd < 0 ? -1 : (int)syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
    if (fd >= 0) {
        (void)close(fd);
    }
    return result;
}

int shim_signal(struct shim *shim, int signal, bool leader_only, struct error *error)
{
    size_t refused = 0;
    if (signal < 1 || signal >= NSIG || signal == SIGSTOP || signal == SIGCONT) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "signal %d: not one that is sent; to stop and continue is freeze and thaw",
                         signal);
    }
    if (shim->record.state != SHIM_RUNNING && shim->record.state != SHIM_EXITED) {
        return must_run(shim, error);
    }
    if (leader_only) {
        return leader_signal(shim, signal) == 0
                   ? 0
                   : error_set(error, ERROR_FAILED_PRECONDITION, "signal %d: the leader is over",
                               signal);
    }
    if (tree_look(&shim->tree) < 0) {
        return error_set(error, ERROR_UNAVAILABLE, "signal %d: /proc cannot be read", signal);
    }
    refused = tree_signal(&shim->tree, signal);
    return refused == 0 ? 0
                        : error_set(error, ERROR_PERMISSION_DENIED,
                                    "signal %d: %zu processes are another user's", signal, refused);
}

int shim_pin(struct shim *shim, const char *cpus, struct error *error)
{
    cpu_set_t parsed;
    int result = cpus_parse(cpus, &parsed, error);
    if (result == 0) {
        result = must_run(shim, error);
    }
    if (result < 0) {
        return result;
    }
    shim->cpus = parsed;
    shim->pinned = true;
    shim->pin_look_ns = boottime_now_ns() + PIN_LOOK_NS;
    result = tree_pin(&shim->tree, &parsed);
    return result == 0 ? 0
                       : error_set(error, (enum error_code) - result,
                                   "cores '%s': threads came faster than they could be moved; the "
                                   "shim goes on",
                                   cpus);
}

int shim_update(struct shim *shim, const struct message *message, struct error *error)
{
    static const enum message_field allowed[] = {
        FIELD_LEASE, FIELD_DEVICES,         FIELD_EPOCH,         FIELD_GENERATION,
        FIELD_TOKEN, FIELD_NOTICE_DEADLINE, FIELD_KILL_DEADLINE,
    };
    struct message part = *message;
    struct shim_record before = shim->record;
    uint64_t mask = 0;
    int result;
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
        mask |= UINT64_C(1) << allowed[i];
    }
    part.present &= mask;
    result = record_take(&shim->record, &part, error);
    if (result == 0) {
        result = record_write(shim->job.job.directory, &shim->record, error);
    }
    if (result < 0) {
        shim->record = before; /* the disk has the old one: nothing was promised */
    }
    return result;
}
