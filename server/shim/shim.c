#include "server/shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/shim/launch.h"

#define SPIN_NS (4 * NS_PER_MS) /* a freeze or a death mostly takes less */
#define SPIN_SLEEP_US 50
#define PURSUE_NS NS_PER_MS              /* then, between two tries */
#define PURSUE_LATE_NS (100 * NS_PER_MS) /* after its bound */
#define FROZEN_LOOK_NS (50 * NS_PER_MS)
#define PIN_LOOK_NS NS_PER_S
#define RECORD_RETRY_NS NS_PER_S
#define THAW_LOOKS 3
#define DRAIN_BYTES (1 << 20) /* no pipe holds more */

/* ---- the record --------------------------------------------------------------------------------
 */

static void record_keep(struct shim *shim)
{
    struct error error;
    struct log_text reason;
    shim->record.log_written = shim->output.written;
    shim->record.log_dropped = shim->output.dropped;
    shim->record.log_lost = shim->output.lost;
    shim->record_stale = record_write(shim->job.job.directory, &shim->record, &error) < 0;
    shim->record_retry_ns = shim->record_stale ? boottime_now_ns() + RECORD_RETRY_NS : 0;
    if (shim->record_stale) {
        log_write(LOG_WARN, "shim", "record not written", "reason=%s",
                  log_quote(&reason, error.text));
    }
}

static void shim_move(struct shim *shim, enum shim_state state)
{
    shim->record.state = state;
    record_keep(shim);
    shim->listener.changed(shim->listener.arg, shim);
}

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

/* ---- starting ----------------------------------------------------------------------------------
 */

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

static void group_end(struct shim *shim)
{
    int result = cgroup_remove(&shim->cgroup);
    if (result < 0) {
        struct log_text path;
        log_write(LOG_WARN, "shim", "control group stays", "path=%s errno=%d",
                  log_quote(&path, shim->cgroup.path), -result);
    }
    shim->cgroup = (struct cgroup){.kind = CGROUP_NONE};
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
        group_end(shim);
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
        group_end(shim);
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

void shim_fini(struct shim *shim)
{
    output_fini(&shim->output);
    tree_fini(&shim->tree);
    job_copy_fini(&shim->job);
}

/* ---- the whole tree ----------------------------------------------------------------------------
 */

static bool childless(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 && errno == ECHILD;
}

/* Nobody below lives. */
static bool all_gone(const struct shim *shim)
{
    return childless() &&
           (shim->cgroup.kind == CGROUP_NONE || cgroup_populated(&shim->cgroup) == 0);
}

bool shim_empty(struct shim *shim, uint64_t *ret_processes)
{
    *ret_processes = 0;
    shim_reap(shim);
    if (all_gone(shim)) {
        return true;
    }
    /* A look can miss who forks meanwhile: never 0 while somebody is there. */
    *ret_processes = tree_look(&shim->tree) == 0 ? tree_live(&shim->tree) : 0;
    *ret_processes += *ret_processes == 0;
    return false;
}

static void thaw_by_signals(struct shim *shim)
{
    for (int looks = 0; looks < THAW_LOOKS && tree_look(&shim->tree) == 0; looks++) {
        bool stopped = false;
        for (size_t i = 0; i < shim->tree.members.count; i++) {
            stopped = stopped || shim->tree.members.items[i].state == 'T';
        }
        if (!stopped && looks > 0) {
            break;
        }
        (void)tree_signal(&shim->tree, SIGCONT);
    }
}

static int thaw(struct shim *shim)
{
    int result = 0;
    if (shim->cgroup.kind != CGROUP_NONE) {
        result = cgroup_freeze(&shim->cgroup, false);
    } else {
        thaw_by_signals(shim);
    }
    shim->frozen = shim->frozen && result < 0;
    shim->frozen_look_ns = 0;
    return result;
}

/* ---- pursuits: what takes more than one try
 * ------------------------------------------------------ */

static void pursuit_answer(struct shim *shim, enum error_code code, const char *text)
{
    struct shim_outcome outcome = {.command = shim->pursuit.command, .code = code};
    if (shim->pursuit.command == 0) {
        return;
    }
    (void)snprintf(outcome.text, sizeof(outcome.text), "%s", text);
    outcome.took_ns = boottime_now_ns() - shim->pursuit.began_ns;
    outcome.empty = shim_empty(shim, &outcome.processes);
    shim->pursuit.command = 0;
    shim->listener.finished(shim->listener.arg, &outcome);
}

static void pursuit_begin(struct shim *shim, enum shim_goal goal, uint64_t command,
                          uint64_t bound_ns)
{
    pursuit_answer(shim, ERROR_ABORTED, "another command took its place");
    shim->pursuit.goal = goal;
    shim->pursuit.command = command;
    shim->pursuit.began_ns = boottime_now_ns();
    shim->pursuit.bound_ns = clock_add_ns(shim->pursuit.began_ns, bound_ns);
}

static bool frozen_now(struct shim *shim)
{
    return shim->cgroup.kind != CGROUP_NONE ? cgroup_is_frozen(&shim->cgroup)
                                            : tree_stop(&shim->tree) == 1;
}

static bool killed_now(struct shim *shim)
{
    shim_reap(shim);
    return all_gone(shim);
}

static bool goal_reached(struct shim *shim)
{
    return shim->pursuit.goal == GOAL_FREEZE ? frozen_now(shim) : killed_now(shim);
}

static void goal_push(struct shim *shim)
{
    if (shim->pursuit.goal != GOAL_KILL) {
        return;
    }
    if (shim->cgroup.kind != CGROUP_NONE) {
        (void)cgroup_kill(&shim->cgroup);
    }
    /* Those outside the group too: root may have left it. */
    if (tree_look(&shim->tree) == 0 && tree_live(&shim->tree) > 0) {
        if (shim->cgroup.kind == CGROUP_NONE) {
            (void)tree_kill(&shim->tree);
        } else {
            (void)tree_signal(&shim->tree, SIGKILL);
        }
    }
}

static void goal_done(struct shim *shim)
{
    if (shim->pursuit.goal == GOAL_FREEZE) {
        shim->frozen = true;
        shim->frozen_look_ns = boottime_now_ns() + FROZEN_LOOK_NS;
    }
    pursuit_answer(shim, ERROR_NONE, "");
    shim->pursuit.goal = GOAL_NONE;
}

static void goal_late(struct shim *shim)
{
    if (shim->pursuit.goal == GOAL_FREEZE) {
        (void)thaw(shim); /* half a freeze would be worse than none */
        pursuit_answer(shim, ERROR_DEADLINE_EXCEEDED, "not all of the job stood still in time");
        shim->pursuit.goal = GOAL_NONE;
    } else {
        pursuit_answer(shim, ERROR_DEADLINE_EXCEEDED, "some of the job live on; the shim goes on");
    }
}

/* A few ms at most. */
static void pursue(struct shim *shim)
{
    uint64_t until = boottime_now_ns() + SPIN_NS;
    goal_push(shim);
    do {
        if (goal_reached(shim)) {
            goal_done(shim);
            return;
        }
        (void)usleep(SPIN_SLEEP_US);
    } while (boottime_now_ns() < until);
    if (boottime_now_ns() >= shim->pursuit.bound_ns) {
        goal_late(shim);
    }
}

/* ---- the leader and the end
 * ---------------------------------------------------------------------- */

static void usage_take(struct shim *shim)
{
    struct rusage usage;
    if (getrusage(RUSAGE_CHILDREN, &usage) == 0) {
        shim->record.user_ns = (uint64_t)usage.ru_utime.tv_sec * NS_PER_S +
                               (uint64_t)usage.ru_utime.tv_usec * NS_PER_US;
        shim->record.system_ns = (uint64_t)usage.ru_stime.tv_sec * NS_PER_S +
                                 (uint64_t)usage.ru_stime.tv_usec * NS_PER_US;
        shim->record.rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    }
}

static void leader_over(struct shim *shim, int status)
{
    shim->record.exit_code = WIFEXITED(status) ? (uint64_t)WEXITSTATUS(status) : 0;
    shim->record.exit_signal = WIFSIGNALED(status) ? (uint64_t)WTERMSIG(status) : 0;
    if (all_gone(shim)) {
        shim->record.state = SHIM_EXITED; /* for a moment: shim_turn ends it, and tells */
        return;
    }
    usage_take(shim);
    shim_move(shim, SHIM_EXITED);
    if (shim->pursuit.goal == GOAL_KILL) {
        return;
    }
    if (shim->pursuit.goal == GOAL_FREEZE) {
        pursuit_answer(shim, ERROR_FAILED_PRECONDITION, "the job's leader is over");
        shim->pursuit.goal = GOAL_NONE;
    }
    /* What outlives its leader is asked first; it can hear that only when it runs. */
    (void)thaw(shim);
    if (tree_look(&shim->tree) == 0) {
        (void)tree_signal(&shim->tree, SIGTERM);
        (void)tree_signal(&shim->tree, SIGCONT);
    }
    shim->grace_ns = boottime_now_ns() + shim->job.job.grace_ms * NS_PER_MS;
}

static void job_over(struct shim *shim)
{
    (void)output_pump(&shim->output, DRAIN_BYTES);
    /* Whoever got the pipe's other end handed to it elsewhere does not delay the end. */
    output_fini(&shim->output);
    usage_take(shim);
    group_end(shim);
    shim->record.cgroup_kind = CGROUP_NONE;
    shim->record.cgroup_path[0] = '\0';
    shim->frozen = shim->pinned = false;
    shim->frozen_look_ns = shim->pin_look_ns = shim->grace_ns = 0;
    shim->linger_ns = boottime_now_ns() + shim->job.job.linger_ms * NS_PER_MS;
    shim_move(shim, SHIM_ENDED);
}

void shim_reap(struct shim *shim)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
        if ((uint64_t)pid == shim->record.leader_pid && shim->record.state == SHIM_RUNNING) {
            leader_over(shim, status);
        }
    }
}

static bool due(uint64_t *at_ns, uint64_t now_ns)
{
    bool is_due = *at_ns != 0 && now_ns >= *at_ns;
    if (is_due) {
        *at_ns = 0;
    }
    return is_due;
}

/* By signals, anybody who may can set a stopped process going again. */
static void frozen_look(struct shim *shim)
{
    if (!shim->frozen) {
        return;
    }
    if (shim->cgroup.kind == CGROUP_NONE &&
        (tree_look(&shim->tree) < 0 || !tree_quiet(&shim->tree))) {
        shim->stirred++;
        (void)tree_stop(&shim->tree);
        shim->listener.changed(shim->listener.arg, shim);
    }
    shim->frozen_look_ns = boottime_now_ns() + FROZEN_LOOK_NS;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns == 0 || (b_ns != 0 && b_ns < a_ns) ? b_ns : a_ns;
}

static uint64_t next_due(const struct shim *shim)
{
    uint64_t now_ns = boottime_now_ns();
    uint64_t next = earlier(shim->frozen_look_ns, shim->pin_look_ns);
    next = earlier(next, earlier(shim->grace_ns, shim->linger_ns));
    next = earlier(next, shim->record_retry_ns);
    if (shim->record.state == SHIM_EXITED && childless()) {
        next = earlier(next, now_ns + PURSUE_NS); /* a control group is empty a moment later */
    }
    if (shim->pursuit.goal != GOAL_NONE) {
        next =
            earlier(next, now_ns + (now_ns < shim->pursuit.bound_ns ? PURSUE_NS : PURSUE_LATE_NS));
    }
    return next;
}

uint64_t shim_turn(struct shim *shim)
{
    uint64_t now_ns = boottime_now_ns();
    bool live = shim->record.state == SHIM_RUNNING || shim->record.state == SHIM_EXITED;
    if (due(&shim->frozen_look_ns, now_ns)) {
        frozen_look(shim);
    }
    if (due(&shim->pin_look_ns, now_ns) && shim->pinned) {
        (void)tree_pin(&shim->tree, &shim->cpus);
        shim->pin_look_ns = now_ns + PIN_LOOK_NS;
    }
    if (due(&shim->grace_ns, now_ns) && shim->pursuit.goal != GOAL_KILL) {
        pursuit_begin(shim, GOAL_KILL, 0, 0);
    }
    if (shim->pursuit.goal != GOAL_NONE) {
        pursue(shim);
    }
    if (live && shim->record.state == SHIM_EXITED && all_gone(shim)) {
        job_over(shim);
    }
    if (due(&shim->record_retry_ns, now_ns)) {
        record_keep(shim);
    }
    if (due(&shim->linger_ns, now_ns)) {
        shim->closed = true;
    }
    return next_due(shim);
}

bool shim_over(const struct shim *shim)
{
    /* A record that could not be written is kept in memory until it can, or was told. */
    return shim->closed && !shim->record_stale;
}

/* ---- commands
 * ------------------------------------------------------------------------------------ */

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
        pursue(shim);
    }
    return result;
}

int shim_kill(struct shim *shim, uint64_t command, uint64_t bound_ns, struct error *error)
{
    (void)error;
    pursuit_begin(shim, GOAL_KILL, command, bound_ns);
    shim->frozen = false;
    shim->frozen_look_ns = shim->grace_ns = 0;
    pursue(shim);
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
    result = thaw(shim);
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
