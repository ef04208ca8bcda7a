#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/shim/shim_internal.h"

#define PURSUE_NS NS_PER_MS              /* between two tries */
#define PURSUE_LATE_NS (100 * NS_PER_MS) /* after its bound */
#define FROZEN_LOOK_NS (50 * NS_PER_MS)
#define RECORD_RETRY_NS NS_PER_S
#define DRAIN_BYTES (1 << 20) /* no pipe holds more */

void shim_record_keep(struct shim *shim)
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

void shim_move(struct shim *shim, enum shim_state state)
{
    shim->record.state = state;
    shim_record_keep(shim);
    shim->listener.changed(shim->listener.arg, shim);
}

void shim_group_end(struct shim *shim)
{
    int result = cgroup_remove(&shim->cgroup);
    if (result < 0) {
        struct log_text path;
        log_write(LOG_WARN, "shim", "control group stays", "path=%s errno=%d",
                  log_quote(&path, shim->cgroup.path), -result);
    }
    shim->cgroup = (struct cgroup){.kind = CGROUP_NONE};
}

void shim_fini(struct shim *shim)
{
    output_fini(&shim->output);
    tree_fini(&shim->tree);
    job_copy_fini(&shim->job);
}

/* ---- the leader and the end ------------------------------------------------------------- */

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
    if (shim_all_gone(shim)) {
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
    (void)shim_thaw_all(shim);
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
    shim_group_end(shim);
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
    if (shim->record.state == SHIM_EXITED && shim_childless()) {
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
        pursuit_push(shim);
    }
    if (live && shim->record.state == SHIM_EXITED && shim_all_gone(shim)) {
        job_over(shim);
    }
    if (due(&shim->record_retry_ns, now_ns)) {
        shim_record_keep(shim);
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
