/* outside_lease.c: what the core asks of an outside job's lease becomes orders to its shim. What
 * cannot be taken back (a grant, a notice, a kill) is in the store first. */
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/control/state.h"
#include "server/shim/process.h"

#define RUN_MIN_NS (60 * NS_PER_S)
#define NOTICES_PER_HOUR 6
#define STOPS_PER_HOUR 120
#define NOTICE_MIN_NS NS_PER_MS
#define FIND_NS (5 * NS_PER_S)

/* ---- what the lease is ------------------------------------------------------------------------
 */

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * (double)NS_PER_S);
}

struct core_lease_spec outside_lease_spec(const struct control *control, uint64_t number,
                                          const struct command *command)
{
    uint32_t most =
        command->devices_max < control->device_count ? command->devices_max : control->device_count;
    uint64_t notice_ns = command->notice_s < 0 ? 0 : ns_of(command->notice_s);
    /* A stop in place that needs no word from the job, or one at a step that its ranks agree on. */
    enum core_rung stop = command->no_freeze ? CORE_RUNG_PAUSE : CORE_RUNG_FREEZE;
    uint32_t rungs = 1u << CORE_RUNG_NOTICE; /* all that can be asked of who is held from outside */
    return (struct core_lease_spec){
        .lease = number,
        .devices_min = command->devices_min,
        .devices_max = most > command->devices_min ? most : command->devices_min,
        .priority = (int32_t)command->priority,
        .kinds_mask = device_kinds_mask(control, command->kind),
        .memory_bytes = (uint64_t)command->memory_bytes,
        .duration_ns = ns_of(command->time_s),
        .preemptible = true,
        .run_min_ns = RUN_MIN_NS,
        .revokes_per_hour = NOTICES_PER_HOUR,
        .stops_per_hour = STOPS_PER_HOUR,
        .rungs_mask = command->held ? rungs : rungs | 1u << stop,
        .pause_residue_bytes = (uint64_t)command->memory_bytes,
        .notice_ns = command->notice_s < 0       ? 0
                     : notice_ns < NOTICE_MIN_NS ? NOTICE_MIN_NS
                                                 : notice_ns,
        .extension = true,
        .heartbeats = command->held,
    };
}

struct core_lease_spec outside_job_spec(const struct control *control, const struct job_entry *job)
{
    const struct outside_job *outside = job->outside;
    struct core_lease_spec spec = outside_lease_spec(control, job->number, &outside->command);
    spec.team = job->team;
    if (spec.duration_ns != 0) {
        uint64_t now_boot_ns = boottime_now_ns(), ran_ns = outside->ran_ns;
        if (outside->began_boot_ns != 0 && now_boot_ns > outside->began_boot_ns) {
            ran_ns += now_boot_ns - outside->began_boot_ns; /* before a restart of the server */
        }
        uint64_t left_ns = spec.duration_ns > ran_ns ? spec.duration_ns - ran_ns : 0;
        spec.duration_ns = left_ns > 0 ? left_ns : 1;
    }
    if (outside->resized) {
        spec.devices_min = spec.devices_max = outside->grant_count;
    }
    return spec;
}

/* ---- grants -----------------------------------------------------------------------------------
 */

void outside_granted(struct control *control, struct job_entry *job,
                     const struct core_action *action)
{
    struct outside_job *outside = job->outside;
    uint64_t device = action->grant.device;
    struct device_entry *entry = &control->devices[device - 1];
    bool begins = outside->state == RUN_NONE && job->outcome == 0;
    if (entry->failed || entry->holder != 0 || (!begins && outside->state != RUN_GATHERING) ||
        (!begins && outside->grant_count >= outside->command.devices_max)) {
        feed_answer(control, CORE_EVENT_ACTION_FAILED, action->id, device);
        return;
    }
    if (begins) {
        outside->state = RUN_GATHERING;
        outside->grant_count = 0;
        outside->abandoned = false;
        outside_notice_clear(outside);
    }
    entry->holder = job->number;
    outside->epoch = action->grant.token.store_epoch;
    outside->grants[outside->grant_count++] = (struct run_grant){
        device, action->grant.token.generation, action->grant.token.secret, action->id};
    job->generation = action->grant.token.generation;
}

/* It has no process yet, and shall have none. */
static void grant_taken_back(struct control *control, struct job_entry *job, uint64_t device)
{
    struct outside_job *outside = job->outside;
    outside->abandoned = true;
    for (uint32_t i = 0; i < outside->grant_count; i++) {
        if (outside->grants[i].device == device) {
            outside->grants[i].action = 0;
        }
    }
    control->devices[device - 1].holder = 0;
}

static bool has_not_begun(const struct outside_job *outside)
{
    return outside->state == RUN_NONE || outside->state == RUN_GATHERING ||
           outside->state == RUN_COMMITTING || outside->state == RUN_READY;
}

/* ---- revokes ----------------------------------------------------------------------------------
 */

static void stop_asked(struct control *control, struct job_entry *job,
                       const struct core_action *action)
{
    bool first = true;
    for (uint32_t i = 0; i < control->device_count; i++) {
        first = first && !(control->devices[i].holder == job->number &&
                           control->devices[i].stop_action != 0);
    }
    control->devices[action->revoke.device - 1].stop_action = action->id;
    if (first && action->revoke.rung == CORE_RUNG_PAUSE) {
        outside_pause(control->outside, job->number, 0);
    } else if (first) {
        outside_freeze(control->outside, job->number, 0);
    }
}

static void notice_asked(struct control *control, struct job_entry *job,
                         const struct core_action *action)
{
    struct outside_job *outside = job->outside;
    uint64_t deadline_ns = action->revoke.deadline_ns;
    enum core_reason reason = action->revoke.reason;
    if (outside->notice.deadline_ns == 0 || deadline_ns < outside->notice.deadline_ns) {
        outside->notice.deadline_ns = deadline_ns;
        outside->notice.deadline_boot_ns =
            boottime_now_ns() + (deadline_ns > control->now_ns ? deadline_ns - control->now_ns : 0);
    }
    if (!outside->notice.asked) {
        outside->notice.asked = true;
        outside->notice.reason = reason;
    }
    outside->notice.fresh = true;
    outside->notice.expired = outside->notice.expired || reason == CORE_REASON_EXPIRED;
    outside->notice.stopped_by_owner = outside->notice.stopped_by_owner ||
                                       reason == CORE_REASON_CANCELLED ||
                                       reason == CORE_REASON_OWNER_PAUSED;
}

/* It cannot go on without the device, and nobody else gives it back by itself. */
static void device_lost(struct control *control, struct job_entry *job)
{
    uint64_t bound_ns = ns_of(control->config->planner.kill_bound_s);
    job->outside->notice.device_lost = true;
    outside_kill(control->outside, job->number, bound_ns / 2, bound_ns);
}

void outside_revoked(struct control *control, struct job_entry *job,
                     const struct core_action *action)
{
    uint64_t device = action->revoke.device;
    struct device_entry *entry = &control->devices[device - 1];
    if (action->revoke.rung == CORE_RUNG_NONE) {
        if (has_not_begun(job->outside)) {
            grant_taken_back(control, job, device);
        } else {
            device_lost(control, job);
        }
        return;
    }
    if (entry->holder != job->number || has_not_begun(job->outside)) {
        if (entry->holder == job->number) {
            grant_taken_back(control, job, device);
        }
        feed_answer(control, CORE_EVENT_REVOKE_ACKNOWLEDGED, action->id, device);
        return;
    }
    if (action->revoke.rung == CORE_RUNG_FREEZE || action->revoke.rung == CORE_RUNG_PAUSE) {
        stop_asked(control, job, action);
        return;
    }
    entry->revoke_action = action->id; /* answered by its end: outside_run_over */
    notice_asked(control, job, action);
}

void outside_resumed(struct control *control, struct job_entry *job,
                     const struct core_action *action)
{
    struct device_entry *entry = &control->devices[action->revoke.device - 1];
    entry->stop_action = 0; /* whether it ever stopped no longer matters */
    entry->resume_action = action->id;
    job->outside->thaw_wanted = true; /* once the last batch has ended: outside_quiet_look */
}

void outside_extended(struct control *control, struct job_entry *job,
                      const struct core_action *action)
{
    job->outside->notice.deadline_ns = 0;
    notice_asked(control, job, action);
}

static void on_kill_kept(struct control *control, struct job_entry *job, const struct error *error)
{
    struct log_text text;
    if (error != NULL) { /* it must end all the same; its shim's record has the deadline */
        log_write(LOG_WARN, "outside", "kill not in the store", "job=%s reason=%s", job->id,
                  log_quote(&text, error->text));
    }
    if (job->outside->command.held) {
        outside_stuck(control, job, "its holder has not given it back by the deadline");
    } else if (job->outside->notice.killing && !has_not_begun(job->outside)) {
        outside_kill(control->outside, job->number, job->outside->notice.kill_ns / 2,
                     job->outside->notice.kill_ns);
    }
}

void outside_killed(struct control *control, struct job_entry *job,
                    const struct core_action *action)
{
    struct outside_job *outside = job->outside;
    uint64_t until_ns = action->revoke.deadline_ns;
    log_write(LOG_WARN, "outside", "deadline passed", "job=%s run=%u", job->id, outside->run);
    if (has_not_begun(outside)) {
        outside->abandoned = true;
        feed_answer(control, CORE_EVENT_ACTION_DONE, action->id, action->revoke.device);
        return;
    }
    outside->notice.killing = true;
    outside->notice.kill_action = action->id;
    /* A little less than the core's: its answer must come by then. */
    outside->notice.kill_ns =
        until_ns > control->now_ns ? (until_ns - control->now_ns) / 10 * 9 : NS_PER_S;
    outside_commit(control, job, on_kill_kept);
}

/* ---- the notice -------------------------------------------------------------------------------
 */

static void signal_when_due(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    uint64_t before_ns = ns_of(outside->command.notice_signal_before_s);
    uint64_t now_ns = clock_pace_now_ns(&control->pace);
    if (!outside->notice.told || outside->notice.signalled || outside->command.notice_signal == 0 ||
        (before_ns != 0 && now_ns + before_ns < outside->notice.deadline_ns)) {
        return;
    }
    outside->notice.signalled = true;
    outside_signal(control->outside, job->number, 0, outside->command.notice_signal,
                   OUTSIDE_FIRST_IF_HANDLED);
}

/* Who cancels does not wait for a job to save. */
static bool ends_at_once(const struct outside_job *outside)
{
    return outside->notice.reason == CORE_REASON_CANCELLED;
}

void outside_notice_tell(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    if (outside->command.held) {
        outside->notice.told = true; /* to whoever looks: the change is the telling */
        revision_touch(control, &job->revisions, true);
        return;
    }
    char *devices = NULL, *cpus = NULL;
    uint32_t cores = 0;
    if (has_not_begun(outside) || outside->state == RUN_ENDED) {
        return;
    }
    outside_devices_print(control, outside, &devices, &cpus, &cores);
    struct outside_notice notice = {outside->notice.number, outside->notice.deadline_boot_ns,
                                    devices != NULL ? devices : "",
                                    core_reason_name(outside->notice.reason)};
    outside->notice.told = true;
    outside_notify(control->outside, job->number, &notice);
    free(devices);
    free(cpus);
    if (ends_at_once(outside)) {
        uint64_t bound_ns = ns_of(control->config->planner.kill_bound_s);
        outside_kill(control->outside, job->number, bound_ns, 2 * bound_ns);
        return;
    }
    signal_when_due(control, job);
}

static void on_notice_kept(struct control *control, struct job_entry *job,
                           const struct error *error)
{
    struct log_text text;
    if (error != NULL) { /* a job that is told late has less time to save */
        log_write(LOG_WARN, "outside", "notice not in the store", "job=%s reason=%s", job->id,
                  log_quote(&text, error->text));
    }
    outside_notice_tell(control, job);
}

/* After a restart the deadline that was told still holds, but for 5 s to see it. */
static void restored_deadline(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    if (!outside->notice.restored || outside->notice.killing ||
        control->now_ns < outside->notice.deadline_ns) {
        return;
    }
    outside->notice.killing = true;
    outside->notice.kill_ns = ns_of(control->config->planner.kill_bound_s);
    outside_commit(control, job, on_kill_kept);
}

/* Its devices may be taken: a moment to end by itself, then it is ended. */
static void saved_end(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    if (outside->notice.end_ns != 0 && control->now_ns >= outside->notice.end_ns) {
        uint64_t bound_ns = ns_of(control->config->planner.kill_bound_s);
        outside->notice.end_ns = 0;
        outside_kill(control->outside, job->number, bound_ns / 2, bound_ns);
    }
}

static void job_tick(struct control *control, struct job_entry *job)
{
    if (job->outside->state == RUN_ALIVE && !job->outside->command.held) {
        saved_end(control, job);
        signal_when_due(control, job);
        restored_deadline(control, job);
    }
}

void outside_tick(struct control *control)
{
    if (!control->reconciled && control->now_ns - control->start_ns > FIND_NS) {
        outside_find_overdue(control);
    }
    for (size_t i = 0; i < control->job_count && control->outside_count > 0; i++) {
        if (control->jobs[i]->outside != NULL && !job_ended(control->jobs[i])) {
            job_tick(control, control->jobs[i]);
        }
    }
}

/* ---- after each turn of the core's loop -------------------------------------------------------
 */

void outside_resize(struct control *control, const struct job_entry *job)
{
    struct core_event event = {.kind = CORE_EVENT_LEASE_RESIZED};
    struct core_lease_spec spec = outside_job_spec(control, job);
    event.lease_resized.lease = job->number;
    event.lease_resized.devices_min = spec.devices_min;
    event.lease_resized.devices_max = spec.devices_max;
    control_feed(control, event);
}

static void all_failed(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    outside->state = RUN_NONE;
    for (uint32_t i = 0; i < outside->grant_count; i++) {
        struct run_grant *grant = &outside->grants[i];
        if (grant->action != 0) {
            control->devices[grant->device - 1].holder = 0;
            feed_answer(control, CORE_EVENT_ACTION_FAILED, grant->action, grant->device);
        }
    }
    outside->grant_count = 0;
    outside->abandoned = false;
}

static void on_grants_kept(struct control *control, struct job_entry *job,
                           const struct error *error)
{
    struct log_text text;
    if (error != NULL) {
        log_write(LOG_ERROR, "outside", "not begun", "job=%s reason=%s", job->id,
                  log_quote(&text, error->text));
    }
    if (error != NULL || job->outside->abandoned) {
        all_failed(control, job);
        if (!job->in_core && job->outcome != 0 && !job_ended(job)) { /* cancelled meanwhile */
            job_finalize(control, job);
        } else if (error == NULL) { /* the store still thinks that it holds something */
            job_store(control, job, count_store_error, control);
        }
        return;
    }
    job->outside->state = RUN_READY;
    outside_quiet_look(control);
}

/* It runs with what it was granted in this turn, and gets neither more nor less while it runs. */
static bool gathered(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    if (outside->state != RUN_GATHERING) {
        return false;
    }
    outside->state = RUN_COMMITTING;
    outside->run++;
    outside->resized = true;
    outside->exit_class = CONTROL_EXIT_NONE;
    outside_resize(control, job);
    outside_commit(control, job, on_grants_kept);
    return true;
}

static void notice_settle(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    if (outside->notice.fresh && !has_not_begun(outside)) {
        outside->notice.number += outside->notice.numbered ? 0 : 1;
        outside->notice.numbered = true;
        outside_commit(control, job, on_notice_kept);
    }
    outside->notice.fresh = false;
}

bool outside_settle(struct control *control)
{
    bool fed = false;
    for (size_t i = 0; i < control->job_count && control->outside_count > 0; i++) {
        struct job_entry *job = control->jobs[i];
        if (job->outside != NULL && !job_ended(job)) {
            fed = gathered(control, job) || fed;
            notice_settle(control, job);
        }
    }
    if (control->outside_count > 0) {
        devices_rest(control);
        outside_quiet_look(control);
    }
    return fed;
}

void outside_lease_moved(struct control *control, struct job_entry *job,
                         enum core_lease_state state)
{
    struct outside_job *outside = job->outside;
    if (outside->resized && (state == CORE_LEASE_DRAINING || state == CORE_LEASE_WAITING ||
                             state == CORE_LEASE_PAUSED)) {
        outside->resized = false;
        outside_resize(control, job);
    }
}
