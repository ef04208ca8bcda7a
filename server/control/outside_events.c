/* outside_events.c: what the keepers of outside jobs tell becomes core events. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/control/state.h"
#include "server/shim/process.h"

void outside_running_note(struct control *control, struct job_entry *job,
                          const struct outside_event *event)
{
    static const char *const names[] = {"processes", "cgroup v2", "cgroup v1"};
    struct outside_job *outside = job->outside;
    uint64_t kind = event->record.cgroup_kind;
    snprintf(outside->keeper, sizeof outside->keeper, "%s", kind < 3 ? names[kind] : "");
    outside->pid = event->record.leader_pid;
    outside->log_dropped = event->record.log_dropped;
    revision_touch(control, &job->revisions, true);
}

#define SAVED_NS NS_PER_S /* from acknowledged to ended, for who does not end by itself */

static void on_running(struct control *control, struct job_entry *job,
                       const struct outside_event *event)
{
    struct outside_job *outside = job->outside;
    outside_running_note(control, job, event);
    if (outside->state != RUN_STARTING) {
        return;
    }
    outside->state = RUN_ALIVE;
    outside->began_boot_ns = boottime_now_ns();
    log_write(LOG_INFO, "outside", "run began", "job=%s run=%u pid=%llu kept_by=\"%s\"", job->id,
              outside->run, (unsigned long long)outside->pid, outside->keeper);
    job_store(control, job, count_store_error, control);
    if (outside->notice.asked && !outside->notice.told) {
        outside_notice_tell(control, job);
    }
}

static void on_frozen(struct control *control, struct job_entry *job,
                      const struct outside_event *event)
{
    job->outside->frozen_since_ns =
        job->outside->frozen_since_ns != 0 ? job->outside->frozen_since_ns : control->now_ns;
    for (uint32_t i = 0; i < control->device_count; i++) {
        struct device_entry *entry = &control->devices[i];
        if (entry->holder != job->number || entry->stop_action == 0) {
            continue;
        }
        struct core_event told = {.kind = CORE_EVENT_SUSPENDED};
        told.suspended.action = entry->stop_action;
        told.suspended.device = device_number(i);
        told.suspended.residue_bytes = (uint64_t)job->outside->command.memory_bytes;
        entry->stop_action = 0;
        control_feed(control, told);
    }
    (void)event;
}

static void on_not_frozen(struct control *control, struct job_entry *job,
                          const struct outside_event *event)
{
    struct log_text text;
    log_write(LOG_WARN, "outside", "not frozen", "job=%s reason=%s", job->id,
              log_quote(&text, event->text));
    for (uint32_t i = 0; i < control->device_count; i++) {
        struct device_entry *entry = &control->devices[i];
        if (entry->holder == job->number && entry->stop_action != 0) {
            uint64_t action = entry->stop_action;
            entry->stop_action = 0;
            feed_answer(control, CORE_EVENT_ACTION_FAILED, action, device_number(i));
        }
    }
}

static void on_thawed(struct control *control, struct job_entry *job,
                      const struct outside_event *event)
{
    struct outside_job *outside = job->outside;
    struct log_text text;
    bool done = event->kind == OUTSIDE_THAWED;
    if (outside->frozen_since_ns != 0 && done) {
        outside->suspended_ns += control->now_ns - outside->frozen_since_ns;
        outside->frozen_since_ns = 0;
    }
    if (!done) {
        log_write(LOG_WARN, "outside", "not thawed", "job=%s reason=%s", job->id,
                  log_quote(&text, event->text));
    }
    for (uint32_t i = 0; i < control->device_count; i++) {
        struct device_entry *entry = &control->devices[i];
        if (entry->holder == job->number && entry->resume_action != 0) {
            uint64_t action = entry->resume_action;
            entry->resume_action = 0;
            feed_answer(control, done ? CORE_EVENT_RESUMED : CORE_EVENT_ACTION_FAILED, action,
                        device_number(i));
        }
    }
}

/* All of it is saved. */
static void on_saved(struct control *control, struct job_entry *job,
                     const struct outside_event *event)
{
    struct outside_job *outside = job->outside;
    if (event->tag != outside->notice.number || !outside->notice.asked ||
        outside->notice.acknowledged) {
        return;
    }
    log_write(LOG_INFO, "outside", "saved", "job=%s run=%u notice=%llu", job->id, outside->run,
              (unsigned long long)event->tag);
    outside->notice.acknowledged = true;
    outside->notice.end_ns = control->now_ns + SAVED_NS;
}

static void on_extend(struct control *control, struct job_entry *job,
                      const struct outside_event *event)
{
    struct core_event asked = {.kind = CORE_EVENT_EXTENSION_ASKED};
    if (event->tag != job->outside->notice.number || !job->in_core) {
        return;
    }
    asked.extension.lease = job->number;
    asked.extension.generation = job->generation;
    asked.extension.extension_ns = (uint64_t)(event->seconds * (double)NS_PER_S);
    control_feed(control, asked);
}

static void figures_take(struct train_status *figures, const struct outside_event *event)
{
    const struct ranks_figures *told = &event->figures;
    figures->step = told->step > 0 ? (uint64_t)told->step : 0;
    figures->checkpointed_step =
        told->checkpointed_step > 0 ? (uint64_t)told->checkpointed_step : 0;
    figures->steps_per_second = told->step_s > 0 ? 1 / told->step_s : 0;
    if (isfinite(event->loss)) {
        figures->loss_first = isfinite(figures->loss_first) ? figures->loss_first : event->loss;
        figures->loss_last = event->loss;
    }
}

static void on_progress(struct control *control, struct job_entry *job,
                        const struct outside_event *event)
{
    job->outside->ranks = event->figures;
    revision_touch(control, &job->revisions, false);
    if (event->figures.step < 0) {
        return;
    }
    figures_take(&job->figures, event);
    if (!job->in_core) {
        return;
    }
    struct core_event told = {.kind = CORE_EVENT_LEASE_PROGRESS};
    told.lease_progress.lease = job->number;
    told.lease_progress.generation = job->generation;
    told.lease_progress.step = job->figures.step;
    told.lease_progress.checkpointed_step = job->figures.checkpointed_step < job->figures.step
                                                ? job->figures.checkpointed_step
                                                : job->figures.step;
    control_feed(control, told);
}

/* The devices are quarantined; should it end after all, they can be recovered. */
void outside_stuck(struct control *control, struct job_entry *job, const char *why)
{
    uint64_t action = job->outside->notice.kill_action;
    struct log_text text;
    log_write(LOG_ERROR, "outside", "does not end", "job=%s reason=%s", job->id,
              log_quote(&text, why));
    job->outside->notice.kill_action = 0;
    for (uint32_t i = 0; i < control->device_count && action != 0; i++) {
        struct device_entry *entry = &control->devices[i];
        if (entry->holder == job->number) {
            snprintf(entry->reason.text, sizeof entry->reason.text, "job %s: %.150s", job->id, why);
            feed_answer(control, CORE_EVENT_ACTION_FAILED, action, device_number(i));
        }
    }
}

static void on_over(struct control *control, struct job_entry *job,
                    const struct outside_event *event)
{
    job->outside->log_dropped = event->record.log_dropped;
    if (job->outside->state == RUN_STARTING || job->outside->state == RUN_ALIVE) {
        outside_run_over(control, job, event);
    }
}

void control_on_outside(struct control *control, const struct outside_event *event)
{
    struct job_entry *job = job_by_number(control, event->job, NULL);
    if (event->kind == OUTSIDE_SIGNALLED) {
        outside_signalled(control, event);
        return;
    }
    if (job == NULL || job->outside == NULL || job->outside->run != event->run) {
        return;
    }
    if (job->outside->state == RUN_FINDING) {
        outside_found(control, job, event);
        return;
    }
    switch (event->kind) {
    case OUTSIDE_RUNNING:
        on_running(control, job, event);
        break;
    case OUTSIDE_FROZEN:
        on_frozen(control, job, event);
        break;
    case OUTSIDE_NOT_FROZEN:
        on_not_frozen(control, job, event);
        break;
    case OUTSIDE_THAWED:
    case OUTSIDE_NOT_THAWED:
        on_thawed(control, job, event);
        break;
    case OUTSIDE_LOG_MOVED:
        job->outside->log_dropped = event->record.log_dropped;
        break;
    case OUTSIDE_PROGRESS:
        on_progress(control, job, event);
        break;
    case OUTSIDE_SAVED:
        on_saved(control, job, event);
        break;
    case OUTSIDE_EXTEND:
        on_extend(control, job, event);
        break;
    case OUTSIDE_STUCK:
        outside_stuck(control, job, event->text);
        break;
    case OUTSIDE_ENDED:
    case OUTSIDE_LOST:
    case OUTSIDE_NOT_STARTED:
    case OUTSIDE_NOT_FOUND:
        on_over(control, job, event);
        break;
    case OUTSIDE_SIGNALLED:
        break;
    }
}
