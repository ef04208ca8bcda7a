/* outside_jobs.c: the runs of outside jobs: begun on the devices that were granted, followed, and
 * what becomes of the job when one has ended. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/control/state.h"
#include "server/shim/process.h"

#define QUIET_LOOK_US 1000
#define NOT_EXECUTABLE 126
#define NOT_FOUND 127

const char *control_exit_class_name(enum control_exit_class exit_class)
{
    static const char *const names[CONTROL_EXIT_CLASSES] = {
        [CONTROL_EXIT_NONE] = "none",
        [CONTROL_EXIT_COMPLETED] = "completed",
        [CONTROL_EXIT_FAILED] = "failed",
        [CONTROL_EXIT_PREEMPTED] = "preempted",
        [CONTROL_EXIT_KILLED] = "killed at deadline",
        [CONTROL_EXIT_LOST_DEVICE] = "lost device",
        [CONTROL_EXIT_CANCELLED] = "cancelled",
        [CONTROL_EXIT_NOT_STARTED] = "not started",
        [CONTROL_EXIT_LOST] = "lost",
        [CONTROL_EXIT_TIME_LIMIT] = "time limit",
    };
    return exit_class < CONTROL_EXIT_CLASSES ? names[exit_class] : "unknown";
}

/* ---- making -----------------------------------------------------------------------------------
 */

static int devices_check(const struct control *control, const struct command *command,
                         struct error *error)
{
    if (device_kinds_mask(control, command->kind) == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "job.kind: there is no device of kind '%s'",
                         command->kind);
    }
    if (command->devices_min > control->device_count) {
        int result = error_set(error, ERROR_INVALID_ARGUMENT,
                               "job.devices: at least %u are wanted and the server has %u",
                               command->devices_min, control->device_count);
        error_set_bound(error, "devices", command->devices_min, control->device_count);
        return result;
    }
    return 0;
}

static int names_make(struct job_entry *job, struct error *error)
{
    const char *name = job->outside->command.name;
    free(job->id);
    free(job->name);
    job->id = NULL;
    job->name = strdup(name);
    if (job->name == NULL ||
        asprintf(&job->id, "%s-%llu", name, (unsigned long long)job->number) < 0) {
        job->id = NULL;
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "job '%s': no memory", name);
    }
    return 0;
}

int outside_job_create(struct control *control, struct job_entry *job, const json_t *specification,
                       struct error *error)
{
    struct outside_job *outside = calloc(1, sizeof *outside);
    if (outside == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "job: no memory");
    }
    int result = command_read(specification, &outside->command, error);
    result = result < 0 ? result : devices_check(control, &outside->command, error);
    struct core_lease_spec spec = {0};
    if (result == 0) {
        spec = outside_lease_spec(control, job->number, &outside->command);
        outside->command.devices_max = spec.devices_max;
        outside->grants = calloc(spec.devices_max, sizeof outside->grants[0]);
    }
    if (result == 0 && outside->grants == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "job: no memory");
    }
    if (result == 0) {
        result = team_number(control, outside->command.team, &job->team, error);
    }
    if (result < 0) {
        outside_job_destroy(outside);
        return result;
    }
    job->outside = outside;
    job->devices_min = spec.devices_min;
    job->devices_max = spec.devices_max;
    job->priority = spec.priority;
    job->ready = true;
    control->outside_count++;
    return names_make(job, error);
}

void outside_job_destroy(struct outside_job *outside)
{
    if (outside != NULL) {
        command_fini(&outside->command);
        free(outside->grants);
        free(outside);
    }
}

/* ---- the store --------------------------------------------------------------------------------
 */

struct run_commit {
    struct control_call call; /* first */
    struct control *control;
    uint64_t job;
    uint32_t run;
    outside_then *then;
    struct error error;
};

static void run_kept(struct control *control, struct control_call *call)
{
    struct run_commit *commit = (struct run_commit *)call;
    struct job_entry *job = control->stopping ? NULL : job_by_number(control, commit->job, NULL);
    if (job != NULL && job->outside != NULL && job->outside->run == commit->run) {
        commit->then(control, job, commit->error.code != ERROR_NONE ? &commit->error : NULL);
    }
    free(commit);
}

static void on_kept(void *context, const struct error *error)
{
    struct run_commit *commit = context;
    if (error != NULL) {
        commit->error = *error;
        count_store_error(commit->control, error);
    }
    control_post(commit->control, &commit->call);
}

void outside_commit(struct control *control, struct job_entry *job, outside_then *then)
{
    struct run_commit *commit = calloc(1, sizeof *commit);
    int result = -ERROR_RESOURCE_EXHAUSTED;
    if (commit != NULL) {
        *commit = (struct run_commit){.call = {.run = run_kept},
                                      .control = control,
                                      .job = job->number,
                                      .run = job->outside->run,
                                      .then = then};
        result = job_store(control, job, on_kept, commit);
    }
    if (result < 0) {
        struct error error = {0};
        error_set(&error, ERROR_RESOURCE_EXHAUSTED, "no memory");
        free(commit);
        then(control, job, &error);
    }
}

/* ---- the devices of a run ---------------------------------------------------------------------
 */

void outside_held_devices(struct control *control, const struct job_entry *job,
                          void (*each)(struct control *control, struct device_entry *entry))
{
    for (uint32_t i = 0; i < control->device_count; i++) {
        if (control->devices[i].holder == job->number) {
            each(control, &control->devices[i]);
        }
    }
}

static bool devices_quiet(const struct control *control, const struct job_entry *job)
{
    bool quiet = true;
    for (uint32_t i = 0; i < control->device_count; i++) {
        quiet = quiet && (control->devices[i].holder != job->number ||
                          serve_device_quiet(control->serve, i));
    }
    return quiet;
}

void outside_devices_print(const struct control *control, const struct outside_job *outside,
                           char **ret_devices, char **ret_cpus, uint32_t *ret_cores)
{
    size_t size = outside->grant_count * sizeof control->devices[0].device->id + 1;
    char *devices = calloc(1, size), *cpus = calloc(1, size);
    *ret_cores = 0;
    for (uint32_t i = 0; i < outside->grant_count && devices != NULL && cpus != NULL; i++) {
        const struct device *device = control->devices[outside->grants[i].device - 1].device;
        const char *colon = strchr(device->id, ':');
        const char *comma = i > 0 ? "," : "";
        snprintf(devices + strlen(devices), size - strlen(devices), "%s%s", comma, device->id);
        snprintf(cpus + strlen(cpus), size - strlen(cpus), "%s%s", comma,
                 colon != NULL ? colon + 1 : "");
        *ret_cores += device->core_count;
    }
    *ret_devices = devices;
    *ret_cpus = cpus;
}

void outside_answer_grants(struct control *control, struct outside_job *outside)
{
    for (uint32_t i = 0; i < outside->grant_count; i++) {
        struct run_grant *grant = &outside->grants[i];
        feed_answer(control, CORE_EVENT_ACTION_DONE, grant->action, grant->device);
        grant->action = 0;
    }
}

static void run_begin(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    char *devices = NULL, *cpus = NULL;
    uint32_t cores = 0;
    if (outside->command.held) {
        held_begin(control, job);
        return;
    }
    outside_devices_print(control, outside, &devices, &cpus, &cores);
    struct outside_lease lease = {
        .job = job->number,
        .run = outside->run,
        .id = job->id,
        .devices = devices,
        .cpus = cpus,
        .device_count = outside->grant_count,
        .core_count = cores,
        .restarts = outside->run - 1,
        .epoch = outside->epoch,
        .generation = job->generation,
        .secret = outside->grants[0].secret,
    };
    int result = devices != NULL && cpus != NULL
                     ? outside_start(control->outside, &lease, job->specification)
                     : -ERROR_RESOURCE_EXHAUSTED;
    free(devices);
    free(cpus);
    outside->state = RUN_STARTING;
    outside_answer_grants(control, outside);
    if (result < 0) {
        struct outside_event event = {.kind = OUTSIDE_NOT_STARTED, .text = "no memory"};
        event.record.step = START_SHIM;
        outside_run_over(control, job, &event);
    }
}

void outside_quiet_look(struct control *control)
{
    bool waits = false;
    for (size_t i = 0; i < control->job_count; i++) {
        struct job_entry *job = control->jobs[i];
        struct outside_job *outside = job->outside;
        if (outside == NULL || (outside->state != RUN_READY && !outside->thaw_wanted)) {
            continue;
        }
        if (!devices_quiet(control, job)) {
            waits = true;
        } else if (outside->state == RUN_READY) {
            run_begin(control, job);
        } else {
            outside->thaw_wanted = false;
            outside_thaw(control->outside, job->number, 0);
        }
    }
    if (waits) {
        struct timeval wait = {.tv_usec = QUIET_LOOK_US};
        event_add(control->quiet_event, &wait);
    }
}

void on_quiet_timer(evutil_socket_t fd, short what, void *arg)
{
    struct control *control = arg;
    (void)fd;
    (void)what;
    control->now_ns = clock_pace_now_ns(&control->pace);
    outside_quiet_look(control);
    revisions_refresh(control);
}

/* ---- the end of a run -------------------------------------------------------------------------
 */

static enum control_exit_class classify(const struct job_entry *job,
                                        const struct outside_event *event)
{
    const struct outside_job *outside = job->outside;
    bool server_fault = event->record.step == START_SHIM || event->record.step == START_GROUP;
    bool clean = event->kind == OUTSIDE_ENDED && event->record.exit_code == 0 &&
                 event->record.exit_signal == 0;
    if (outside->command.held) {
        return held_classify(job);
    }
    if (event->kind == OUTSIDE_NOT_STARTED) {
        return server_fault ? CONTROL_EXIT_LOST : CONTROL_EXIT_NOT_STARTED;
    }
    if (clean && !outside->notice.signalled && !outside->notice.acknowledged &&
        job->outcome != CONTROL_JOB_CANCELLED) {
        return CONTROL_EXIT_COMPLETED;
    }
    if (job->outcome == CONTROL_JOB_CANCELLED || outside->notice.stopped_by_owner) {
        return CONTROL_EXIT_CANCELLED;
    }
    if (outside->notice.expired) {
        return CONTROL_EXIT_TIME_LIMIT;
    }
    if (outside->notice.device_lost) {
        return CONTROL_EXIT_LOST_DEVICE;
    }
    if (outside->notice.killing) {
        return CONTROL_EXIT_KILLED;
    }
    if (outside->notice.asked) {
        return CONTROL_EXIT_PREEMPTED;
    }
    return event->kind == OUTSIDE_ENDED ? CONTROL_EXIT_FAILED : CONTROL_EXIT_LOST;
}

static void exit_note(struct outside_job *outside, const struct outside_event *event)
{
    outside->exit_signal = event->kind == OUTSIDE_ENDED ? (int)event->record.exit_signal : 0;
    outside->exit_code =
        outside->exit_signal != 0 ? 128 + outside->exit_signal : (int)event->record.exit_code;
    if (event->kind == OUTSIDE_NOT_STARTED) {
        outside->exit_code = event->record.error_number == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
    }
}

static void reason_note(struct job_entry *job, const struct outside_event *event)
{
    const struct outside_job *outside = job->outside;
    const char *name = control_exit_class_name(outside->exit_class);
    if (outside->exit_class == CONTROL_EXIT_COMPLETED || outside->command.held ||
        outside->exit_class == CONTROL_EXIT_CANCELLED || job->outcome == CONTROL_JOB_CANCELLED) {
        return;
    }
    if (event->text[0] != '\0') {
        snprintf(job->reason.text, sizeof job->reason.text, "%s: %.200s", name, event->text);
    } else if (outside->exit_signal != 0) {
        snprintf(job->reason.text, sizeof job->reason.text, "%s: ended by signal %d (%s)", name,
                 outside->exit_signal, strsignal(outside->exit_signal));
    } else {
        snprintf(job->reason.text, sizeof job->reason.text, "%s: exit code %d", name,
                 outside->exit_code);
    }
}

/* What the job becomes; 0: it runs again. */
static enum control_job_state outcome_of(struct outside_job *outside)
{
    switch (outside->exit_class) {
    case CONTROL_EXIT_COMPLETED:
        return CONTROL_JOB_FINISHED;
    case CONTROL_EXIT_NOT_STARTED:
    case CONTROL_EXIT_TIME_LIMIT:
        return CONTROL_JOB_FAILED;
    case CONTROL_EXIT_FAILED:
    case CONTROL_EXIT_LOST:
        outside->failures++;
        return outside->failures > (uint64_t)outside->command.retries ? CONTROL_JOB_FAILED : 0;
    case CONTROL_EXIT_PREEMPTED:
    case CONTROL_EXIT_KILLED:
    case CONTROL_EXIT_LOST_DEVICE:
        outside->preemptions++;
        return 0;
    default:
        return 0;
    }
}

static void time_note(struct control *control, struct outside_job *outside)
{
    uint64_t now_boot_ns = boottime_now_ns();
    if (outside->began_boot_ns != 0 && now_boot_ns > outside->began_boot_ns) {
        outside->ran_ns += now_boot_ns - outside->began_boot_ns;
    }
    if (outside->frozen_since_ns != 0) {
        outside->suspended_ns += control->now_ns - outside->frozen_since_ns;
    }
    outside->began_boot_ns = outside->frozen_since_ns = 0;
    outside->ranks = (struct ranks_figures){0};
    outside->thaw_wanted = false;
    outside->pid = 0;
}

static void entry_free(struct control *control, struct device_entry *entry)
{
    (void)control;
    entry->holder = 0;
    entry->revoke_action = entry->stop_action = entry->resume_action = 0;
}

static void tell_exited(struct control *control, const struct job_entry *job)
{
    const struct outside_job *outside = job->outside;
    struct core_event event = {.kind = CORE_EVENT_JOB_EXITED};
    event.job_exited.lease = job->number;
    event.job_exited.generation = job->generation;
    event.job_exited.kept = outside->exit_class == CONTROL_EXIT_COMPLETED ||
                            (outside->exit_class == CONTROL_EXIT_PREEMPTED &&
                             (outside->exit_code == 0 || outside->notice.acknowledged));
    event.job_exited.again = job->outcome == 0 && !held_was_resized(job);
    event.job_exited.failed =
        outside->exit_class == CONTROL_EXIT_FAILED || outside->exit_class == CONTROL_EXIT_LOST;
    control_feed(control, event);
}

/* A recovered device whose verification waited for the end of this run. */
static void answer_verifies(struct control *control)
{
    for (uint32_t i = 0; i < control->device_count; i++) {
        if (control->devices[i].holder == 0 && control->devices[i].verify_action != 0) {
            device_released(control, i);
        }
    }
}

/* The end is in the store, or cannot be: in both cases the devices are free. */
static void on_end_kept(struct control *control, struct job_entry *job, const struct error *error)
{
    struct outside_job *outside = job->outside;
    struct log_text text;
    if (error != NULL) {
        log_write(LOG_WARN, "outside", "end not in the store", "job=%s reason=%s", job->id,
                  log_quote(&text, error->text));
    }
    if (!outside->command.held) {
        outside_forget(control->outside, job->number);
    }
    outside_held_devices(control, job, entry_free);
    outside->state = RUN_NONE;
    outside_notice_clear(outside);
    if (job->in_core) {
        tell_exited(control, job);
        answer_verifies(control);
    } else if (job->outcome != 0 && !job_ended(job)) {
        job_finalize(control, job);
    } else {
        job_request_lease(control, job);
    }
    revisions_refresh(control);
}

static void entry_unsure(struct control *control, struct device_entry *entry)
{
    const struct job_entry *job = job_by_number(control, entry->holder, NULL);
    entry->unsure = true;
    snprintf(entry->reason.text, sizeof entry->reason.text, "%s",
             job != NULL ? job->reason.text : "");
}

void outside_run_over(struct control *control, struct job_entry *job,
                      const struct outside_event *event)
{
    struct outside_job *outside = job->outside;
    struct log_text text;
    outside->state = RUN_ENDED;
    outside->exit_class = classify(job, event);
    exit_note(outside, event);
    reason_note(job, event);
    time_note(control, outside);
    enum control_job_state outcome = outcome_of(outside);
    job->outcome = job->outcome != 0 ? job->outcome : outcome;
    if (event->kind == OUTSIDE_LOST && !event->empty) {
        outside_held_devices(control, job, entry_unsure);
    }
    log_write(LOG_INFO, "outside", "run ended", "job=%s run=%u class=\"%s\" code=%d text=%s",
              job->id, outside->run, control_exit_class_name(outside->exit_class),
              outside->exit_code, log_quote(&text, event->text));
    revision_touch(control, &job->revisions, true);
    outside_commit(control, job, on_end_kept);
}

/* ---- signals ----------------------------------------------------------------------------------
 */

struct signal_waiter {
    struct signal_waiter *next;
    uint64_t tag, job;
    control_done *done;
    void *context;
};

void control_job_signal(struct control *control, size_t index, int signal, bool all,
                        control_done *done, void *context)
{
    struct job_entry *job = control->jobs[index];
    struct error error = {0};
    struct signal_waiter *waiter = calloc(1, sizeof *waiter);
    bool has_process = job->outside != NULL && !job->outside->command.held;
    bool runs =
        has_process && (job->outside->state == RUN_STARTING || job->outside->state == RUN_ALIVE);
    if (!runs || waiter == NULL) {
        error_set(&error, runs ? ERROR_RESOURCE_EXHAUSTED : ERROR_FAILED_PRECONDITION,
                  "job '%s' %s", job->id,
                  runs           ? "no memory"
                  : !has_process ? "has no process that the server has started"
                                 : "does not run");
        free(waiter);
        done(control, context, 0, &error);
        return;
    }
    *waiter = (struct signal_waiter){control->signal_waiters, ++control->signal_tag, job->number,
                                     done, context};
    control->signal_waiters = waiter;
    if (outside_signal(control->outside, job->number, waiter->tag, signal,
                       all ? OUTSIDE_ALL : OUTSIDE_FIRST) < 0) {
        struct outside_event event = {.tag = waiter->tag, .text = "no memory"};
        outside_signalled(control, &event);
    }
}

void outside_signalled(struct control *control, const struct outside_event *event)
{
    struct signal_waiter **link = &control->signal_waiters;
    while (*link != NULL && (*link)->tag != event->tag) {
        link = &(*link)->next;
    }
    struct signal_waiter *waiter = *link;
    size_t index = 0;
    struct error error = {0};
    if (waiter == NULL) {
        return;
    }
    *link = waiter->next;
    if (job_by_number(control, waiter->job, &index) == NULL) {
        error_set(&error, ERROR_NOT_FOUND, "the job has been forgotten meanwhile");
    } else if (event->text[0] != '\0') {
        error_set(&error, ERROR_FAILED_PRECONDITION, "signal: %s", event->text);
    }
    waiter->done(control, waiter->context, index, error.code != ERROR_NONE ? &error : NULL);
    free(waiter);
}
