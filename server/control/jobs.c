/* jobs.c: the life of a job: submitted, loaded, granted devices by the core, paused, ended. */
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/base/options.h"
#include "server/control/state.h"

#define WAITING_MUCH 0.1 /* share of the time that loaders should not cost */
#define SLOW_RANK 1.15   /* times the middle rank's step */

/* ---- the list
 * ------------------------------------------------------------------------------------ */

struct job_entry *job_by_number(const struct control *control, uint64_t number, size_t *ret_index)
{
    size_t low = 0;
    size_t high = control->job_count;
    while (low < high) { /* in the order of their numbers */
        size_t middle = low + (high - low) / 2;
        if (control->jobs[middle]->number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == control->job_count || control->jobs[low]->number != number) {
        return NULL;
    }
    if (ret_index != NULL) {
        *ret_index = low;
    }
    return control->jobs[low];
}

struct job_entry *job_add(struct control *control, uint64_t number)
{
    if (control->job_count == control->job_capacity) {
        size_t capacity = control->job_capacity == 0 ? 16 : control->job_capacity * 2;
        struct job_entry **grown = realloc(control->jobs, capacity * sizeof control->jobs[0]);
        if (grown == NULL) {
            return NULL;
        }
        control->jobs = grown;
        control->job_capacity = capacity;
    }
    struct job_entry *job = calloc(1, sizeof *job);
    if (job != NULL) {
        job->number = number;
        job->figures.loss_first = job->figures.loss_last = __builtin_nan("");
        job->figures.held_out_loss = job->figures.held_out_accuracy = __builtin_nan("");
        size_t at = control->job_count++;
        for (; at > 0 && control->jobs[at - 1]->number > number; at--) {
            control->jobs[at] = control->jobs[at - 1]; /* one that is rebuilt from its shim */
        }
        control->jobs[at] = job;
        revision_touch(control, &job->revisions, true);
    }
    return job;
}

void job_destroy(struct job_entry *job)
{
    if (job != NULL) {
        while (job->waiters != NULL) {
            struct job_waiter *waiter = job->waiters;
            job->waiters = waiter->next;
            free(waiter);
        }
        free(job->id);
        free(job->name);
        free(job->specification);
        outside_job_destroy(job->outside);
        free(job);
    }
}

static void job_forget(struct control *control, struct job_entry *job)
{
    size_t index = 0;
    revision_removed(control, true, job->id != NULL ? job->id : "");
    control->outside_count -= job->outside != NULL ? 1 : 0;
    if (job_by_number(control, job->number, &index) == job) {
        memmove(&control->jobs[index], &control->jobs[index + 1],
                (--control->job_count - index) * sizeof control->jobs[0]);
    }
    job_destroy(job);
}

bool job_ended(const struct job_entry *job)
{
    return job->state == CONTROL_JOB_FINISHED || job->state == CONTROL_JOB_FAILED ||
           job->state == CONTROL_JOB_CANCELLED;
}

void job_move(struct control *control, struct job_entry *job, enum control_job_state state)
{
    if (job->state != state) {
        job->state = state;
        revision_touch(control, &job->revisions, true);
    }
}

static size_t active_count(const struct control *control)
{
    size_t count = 0;
    for (size_t i = 0; i < control->job_count; i++) {
        count += job_ended(control->jobs[i]) ? 0 : 1;
    }
    return count;
}

/* As many ended jobs stay as the store keeps. */
static void forget_oldest_ended(struct control *control)
{
    if (control->job_count - active_count(control) <= STORE_ENDED_JOBS_MAX) {
        return;
    }
    for (size_t i = 0; i < control->job_count; i++) {
        const struct outside_job *outside = control->jobs[i]->outside;
        if (job_ended(control->jobs[i]) && (outside == NULL || outside->state == RUN_NONE)) {
            job_forget(control, control->jobs[i]);
            return;
        }
    }
}

/* ---- towards the core
 * ------------------------------------------------------------------------------ */

void feed_lease(struct control *control, enum core_event_kind kind, uint64_t lease)
{
    struct core_event event = {.kind = kind};
    event.lease.lease = lease;
    control_feed(control, event);
}

struct core_lease_spec job_lease_spec(const struct control *control, uint64_t number,
                                      uint32_t devices_min, uint32_t devices_max, int32_t priority)
{
    return (struct core_lease_spec){
        .lease = number,
        .devices_min = devices_min,
        .devices_max = devices_max,
        .priority = priority,
        .kinds_mask = device_kinds_mask(control, "cpu"),
        .preemptible = true,
        .in_process = true,
    };
}

void job_request_lease(struct control *control, struct job_entry *job)
{
    struct core_event event = {.kind = CORE_EVENT_LEASE_REQUESTED};
    if (!job->committed || !job->ready || job->paused || job->in_core || job->outcome != 0) {
        return;
    }
    event.lease_spec = job->outside != NULL ? outside_job_spec(control, job)
                                            : job_lease_spec(control, job->number, job->devices_min,
                                                             job->devices_max, job->priority);
    event.lease_spec.team = job->team;
    job->in_core = true;
    job_move(control, job, CONTROL_JOB_WAITING);
    control_feed(control, event);
}

void job_became_ready(struct control *control, struct job_entry *job)
{
    job->ready = true;
    job_refresh_figures(job);
    if (job->paused) {
        job_move(control, job, CONTROL_JOB_PAUSED);
    }
    job_request_lease(control, job);
}

/* ---- the end
 * ---------------------------------------------------------------------------------------- */

void job_finalize(struct control *control, struct job_entry *job)
{
    struct log_text text;
    job_refresh_figures(job);
    if (job->train != NULL) {
        trainer_job_destroy(job->train);
        job->train = NULL;
    }
    job->figures.devices_held = 0;
    job->figures.steps_per_second = 0;
    job->finished_wall_ns = clock_pace_wall_ns(&control->pace);
    job_move(control, job, job->outcome);
    log_write(LOG_INFO, job->outside != NULL ? "outside" : "train",
              control_job_state_name(job->state), "job=%s step=%llu reason=%s", job->id,
              (unsigned long long)job->figures.step, log_quote(&text, job->reason.text));
    if (job->committed) {
        job_store(control, job, count_store_error, control);
    }
    forget_oldest_ended(control);
}

void job_ends(struct control *control, struct job_entry *job, enum control_job_state outcome,
              const char *reason)
{
    if (job->outcome == 0 || outcome != CONTROL_JOB_CANCELLED) {
        job->outcome = outcome;
        snprintf(job->reason.text, sizeof job->reason.text, "%s", reason);
    }
    if (!job->in_core && (job->outside == NULL || job->outside->state == RUN_NONE)) {
        job_finalize(control, job);
        return;
    }
    job_move(control, job, CONTROL_JOB_STOPPING);
    if (!job->in_core) { /* it is being looked for after a restart, or its end is being written */
        return;
    }
    if (outcome == CONTROL_JOB_CANCELLED || job->generation == 0) {
        feed_lease(control, CORE_EVENT_LEASE_CANCELLED, job->number);
        return;
    }
    struct core_event event = {.kind = CORE_EVENT_JOB_EXITED};
    event.job_exited.lease = job->number;
    event.job_exited.generation = job->generation;
    event.job_exited.kept = outcome == CONTROL_JOB_FINISHED;
    control_feed(control, event);
}

/* ---- from the core
 * ------------------------------------------------------------------------------------- */

void job_runs(struct control *control, struct job_entry *job)
{
    job->reason.text[0] = '\0';
    if (job->started_wall_ns == 0) {
        job->started_wall_ns = clock_pace_wall_ns(&control->pace);
    }
    job_move(control, job, CONTROL_JOB_RUNNING);
}

void job_lease_moved(struct control *control, uint64_t number, enum core_lease_state state,
                     enum core_reason reason)
{
    struct job_entry *job = job_by_number(control, number, NULL);
    if (job == NULL || !job->in_core) {
        return;
    }
    if (job->outside != NULL) {
        outside_lease_moved(control, job, state);
    }
    switch (state) {
    case CORE_LEASE_WAITING:
        snprintf(job->reason.text, sizeof job->reason.text, "waits: %s", core_reason_name(reason));
        job_move(control, job, CONTROL_JOB_WAITING);
        break;
    case CORE_LEASE_RUNNING:
        if (job->outside == NULL || !job->outside->command.held ||
            job->outside->state == RUN_ALIVE) { /* else it cannot be claimed yet: held_begin */
            job_runs(control, job);
        }
        break;
    case CORE_LEASE_DRAINING:
    case CORE_LEASE_ENDING:
        job_move(control, job, CONTROL_JOB_STOPPING);
        break;
    case CORE_LEASE_SUSPENDED:
        job_move(control, job, CONTROL_JOB_SUSPENDED);
        break;
    case CORE_LEASE_PAUSED:
        job_move(control, job, CONTROL_JOB_PAUSED);
        break;
    case CORE_LEASE_ENDED:
        job->in_core = false;
        if (job->outcome == 0 && job->outside != NULL && held_was_resized(job)) {
            if (job->outside->state == RUN_NONE) {
                job->outside->grant_count = 0;
                job->outside->resized = false;
                job_request_lease(control, job);
            }
            break;
        }
        if (job->outcome == 0) { /* ended by the core: by no wish of its owner */
            job->outcome = CONTROL_JOB_FAILED;
            snprintf(job->reason.text, sizeof job->reason.text, "%s", core_reason_name(reason));
        }
        /* Some of an outside job may live on: it is over when that has ended. */
        if (job->outside == NULL || job->outside->state == RUN_NONE) {
            job_finalize(control, job);
        }
        break;
    }
}

/* ---- submit
 * ---------------------------------------------------------------------------------------------- */

static void answer_waiters(struct control *control, struct job_entry *job,
                           const struct error *error)
{
    size_t index = 0;
    struct job_waiter *waiter = job->waiters;
    job->waiters = NULL;
    if (job_by_number(control, job->number, &index) == NULL) {
        index = 0;
    }
    while (waiter != NULL) {
        struct job_waiter *next = waiter->next;
        waiter->done(control, waiter->context, index, error);
        free(waiter);
        waiter = next;
    }
}

struct commit {
    struct control_call call; /* first */
    struct control *control;
    uint64_t job;
    char request_id[CONTROL_REQUEST_ID_BYTES_MAX + 1];
    struct error error;
};

static void run_committed(struct control *control, struct control_call *call)
{
    struct commit *commit = (struct commit *)call;
    struct job_entry *job = control->stopping ? NULL : job_by_number(control, commit->job, NULL);
    if (job != NULL && commit->error.code == ERROR_NONE) {
        job->committed = true;
        answer_waiters(control, job, NULL);
        if (job_ended(job)) { /* failed while it was written */
            job_store(control, job, count_store_error, control);
        } else {
            job_request_lease(control, job);
        }
    } else if (job != NULL) {
        error_prefix(&commit->error, "submit");
        requests_remove(control->requests, commit->request_id);
        answer_waiters(control, job, &commit->error);
        if (job->train != NULL) {
            trainer_job_destroy(job->train);
        }
        job_forget(control, job);
    }
    free(commit);
}

static void on_committed(void *context, const struct error *error)
{
    struct commit *commit = context;
    if (error != NULL) {
        commit->error = *error;
    }
    control_post(commit->control, &commit->call);
}

static int wait_for_commit(struct job_entry *job, control_done *done, void *context,
                           struct error *error)
{
    struct job_waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "submit: no memory");
    }
    *waiter = (struct job_waiter){job->waiters, done, context};
    job->waiters = waiter;
    return 0;
}

static int check_sizes(const struct control *control, const char *specification,
                       const char *request_id, struct error *error)
{
    if (strlen(specification) > CONTROL_SPECIFICATION_BYTES_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "submit: the specification has %zu bytes; at most %u",
                         strlen(specification), CONTROL_SPECIFICATION_BYTES_MAX);
    }
    if (strlen(request_id) > CONTROL_REQUEST_ID_BYTES_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "submit: the request id has %zu bytes; at most %d", strlen(request_id),
                         CONTROL_REQUEST_ID_BYTES_MAX);
    }
    if (active_count(control) >= CONTROL_JOBS_ACTIVE_MAX) {
        int result = error_set(error, ERROR_RESOURCE_EXHAUSTED,
                               "submit: %d jobs have not ended yet; wait for some or cancel them",
                               CONTROL_JOBS_ACTIVE_MAX);
        error_set_bound(error, "jobs_active", active_count(control) + 1, CONTROL_JOBS_ACTIVE_MAX);
        return result;
    }
    return 0;
}

static int remember_and_store(struct control *control, const struct job_entry *job,
                              struct commit *commit, struct error *error)
{
    struct store_request request = {commit->request_id, job->number, job->id,
                                    job->submitted_wall_ns};
    int result = requests_add(control->requests, &request, error);
    if (result < 0) {
        return error_prefix(error, "submit");
    }
    result = job_store_new(control, job, commit->request_id, on_committed, commit);
    if (result < 0) {
        requests_remove(control->requests, commit->request_id);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "submit: no memory");
    }
    return 0;
}

/* Everything but the commit. On an error nothing is left. */
static int job_make(struct control *control, const struct control_submission *submission,
                    control_done *done, void *context, struct error *error)
{
    const char *text = submission->specification;
    int result = check_sizes(control, text, submission->request_id, error);
    json_t *specification = NULL;
    struct job_entry *job = NULL;
    struct commit *commit = calloc(1, sizeof *commit);
    if (result < 0) {
        goto out;
    }
    result = -ERROR_INVALID_ARGUMENT;
    specification = options_parse_text(text, strlen(text), "job", error);
    if (specification == NULL) {
        goto out;
    }
    job = commit != NULL ? job_add(control, control->job_number + 1) : NULL;
    if (job == NULL || (job->specification = strdup(text)) == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "submit: no memory");
        goto out;
    }
    job->state = CONTROL_JOB_LOADING;
    job->submitted_wall_ns = clock_pace_wall_ns(&control->pace);
    if (command_is(specification)) {
        result = control->outside != NULL || json_object_get(specification, "held") != NULL
                     ? outside_job_create(control, job, specification, error)
                     : error_set(error, ERROR_UNIMPLEMENTED,
                                 "submit: this server starts no outside jobs");
    } else {
        result = job_check_export(control, specification, submission->export_anywhere, error);
        result = result < 0 ? result : job_train(control, job, specification, error);
    }
    if (result == 0) {
        result = wait_for_commit(job, done, context, error);
    }
    if (result < 0) {
        goto out;
    }
    control->job_number = job->number;
    *commit =
        (struct commit){.call = {.run = run_committed}, .control = control, .job = job->number};
    strcpy(commit->request_id, submission->request_id);
    result = remember_and_store(control, job, commit, error);
    if (result < 0) {
        goto out;
    }
    commit = NULL;
    job = NULL;
out:
    if (job != NULL) {
        if (job->train != NULL) {
            trainer_job_destroy(job->train);
        }
        job_forget(control, job);
    }
    free(commit);
    json_decref(specification);
    return result;
}

/* The call was made before: its job, once more. */
static int answer_again(struct control *control, const struct store_request *request,
                        control_done *done, void *context, struct error *error)
{
    size_t index = 0;
    struct job_entry *job = job_by_number(control, request->job, &index);
    if (job == NULL) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "submit: request id '%s' made job '%s', which has ended and is no longer "
                         "remembered; a new job wants a new id",
                         request->id, request->job_id);
    }
    if (!job->committed) {
        return wait_for_commit(job, done, context, error);
    }
    done(control, context, index, NULL);
    return 0;
}

void control_job_submit(struct control *control, const struct control_submission *submission,
                        control_done *done, void *context)
{
    struct error error = {0};
    const struct store_request *request =
        requests_find(control->requests, submission->request_id, clock_wall_ns());
    int result = request != NULL ? answer_again(control, request, done, context, &error)
                                 : job_make(control, submission, done, context, &error);
    if (result < 0) {
        done(control, context, 0, &error);
    }
}

/* ---- cancel, pause, resume
 * ------------------------------------------------------------------------------ */

static bool refuse_ended(struct control *control, const struct job_entry *job, control_done *done,
                         void *context)
{
    struct error error = {0};
    if (!job_ended(job) && job->outcome == 0) {
        return false;
    }
    error_set(&error, ERROR_FAILED_PRECONDITION, "job '%s' %s %s", job->id,
              job_ended(job) ? "has" : "is about to be",
              control_job_state_name(job_ended(job) ? job->state : job->outcome));
    done(control, context, 0, &error);
    return true;
}

/* The answer to a cancel, pause or resume waits for the disk: they hold over a restart. */
struct kept_change {
    struct control_call call; /* first */
    struct control *control;
    uint64_t job;
    control_done *done;
    void *context;
    struct error error;
};

static void run_kept(struct control *control, struct control_call *call)
{
    struct kept_change *kept = (struct kept_change *)call;
    size_t index = 0;
    if (kept->error.code == ERROR_NONE && job_by_number(control, kept->job, &index) == NULL) {
        error_set(&kept->error, ERROR_NOT_FOUND, "the job has been forgotten meanwhile");
    }
    kept->done(control, kept->context, index, kept->error.code != ERROR_NONE ? &kept->error : NULL);
    free(kept);
}

static void on_kept(void *context, const struct error *error)
{
    struct kept_change *kept = context;
    if (error != NULL) {
        kept->error = *error;
        error_prefix(&kept->error, "done, but a restart will not know of it");
    }
    control_post(kept->control, &kept->call);
}

void job_keep_change(struct control *control, const struct job_entry *job, control_done *done,
                     void *context)
{
    struct kept_change *kept = calloc(1, sizeof *kept);
    int result = -ERROR_RESOURCE_EXHAUSTED;
    if (kept != NULL) {
        *kept = (struct kept_change){.call = {.run = run_kept},
                                     .control = control,
                                     .job = job->number,
                                     .done = done,
                                     .context = context};
        result = job_store(control, job, on_kept, kept);
    }
    if (result < 0) {
        struct error error = {0};
        error_set(&error, ERROR_RESOURCE_EXHAUSTED, "job '%s': no memory", job->id);
        free(kept);
        done(control, context, 0, &error);
    }
}

void control_job_cancel(struct control *control, size_t index, control_done *done, void *context)
{
    struct job_entry *job = control->jobs[index];
    bool again = job->state == CONTROL_JOB_CANCELLED || job->outcome == CONTROL_JOB_CANCELLED;
    uint64_t number = job->number;
    if (!again && refuse_ended(control, job, done, context)) {
        return;
    }
    if (!again) {
        job_ends(control, job, CONTROL_JOB_CANCELLED, "cancelled by its owner");
        job = job_by_number(control, number, NULL); /* the oldest that ended is forgotten */
    }
    if (job != NULL) {
        job_keep_change(control, job, done, context);
    } else {
        struct error error = {0};
        error_set(&error, ERROR_NOT_FOUND, "the job is cancelled, and forgotten already");
        done(control, context, 0, &error);
    }
    revisions_refresh(control);
}

void control_job_pause(struct control *control, size_t index, control_done *done, void *context)
{
    struct job_entry *job = control->jobs[index];
    if (refuse_ended(control, job, done, context)) {
        return;
    }
    if (!job->paused) {
        job->paused = true;
        revision_touch(control, &job->revisions, true);
        if (job->in_core) {
            feed_lease(control, CORE_EVENT_LEASE_PAUSED, job->number);
        } else if (job->ready) {
            job_move(control, job, CONTROL_JOB_PAUSED);
        }
    }
    job_keep_change(control, job, done, context);
    revisions_refresh(control);
}

void control_job_resume(struct control *control, size_t index, control_done *done, void *context)
{
    struct job_entry *job = control->jobs[index];
    if (refuse_ended(control, job, done, context)) {
        return;
    }
    if (job->paused) {
        job->paused = false;
        revision_touch(control, &job->revisions, true);
        if (job->in_core) {
            feed_lease(control, CORE_EVENT_LEASE_RESUMED, job->number);
        } else {
            job_request_lease(control, job);
        }
    }
    job_keep_change(control, job, done, context);
    revisions_refresh(control);
}

/* ---- showing
 * ------------------------------------------------------------------------------------------------
 */

const char *control_job_state_name(enum control_job_state state)
{
    static const char *const names[CONTROL_JOB_STATES] = {
        [CONTROL_JOB_LOADING] = "loading",     [CONTROL_JOB_WAITING] = "waiting",
        [CONTROL_JOB_RUNNING] = "running",     [CONTROL_JOB_PAUSED] = "paused",
        [CONTROL_JOB_STOPPING] = "stopping",   [CONTROL_JOB_FINISHED] = "finished",
        [CONTROL_JOB_FAILED] = "failed",       [CONTROL_JOB_CANCELLED] = "cancelled",
        [CONTROL_JOB_SUSPENDED] = "suspended",
    };
    return state < CONTROL_JOB_STATES && names[state] != NULL ? names[state] : "unknown";
}

static void tell_outlook(const struct control *control, const struct job_entry *job,
                         struct control_job *ret_job)
{
    struct core_outlook outlook;
    ret_job->expected_wait_s = ret_job->revoke_fraction = __builtin_nan("");
    if (!job->in_core || !core_outlook(control->core, job->number, &outlook)) {
        return;
    }
    if (job->state == CONTROL_JOB_WAITING && outlook.wait_ns != UINT64_MAX) {
        ret_job->expected_wait_s = (double)outlook.wait_ns / 1e9;
    } else if (job->state == CONTROL_JOB_RUNNING) {
        ret_job->revoke_fraction = outlook.revoke_permille / 1000.0;
    }
}

/* What would make it faster. */
static void advise(const struct ranks_figures *ranks, char *text, size_t size)
{
    text[0] = '\0';
    if (ranks->ranks == 0) {
        return;
    }
    if (ranks->waiting_fraction >= WAITING_MUCH) {
        snprintf(text, size, "waits for data %.0f %% of the time: more loader workers would help",
                 ranks->waiting_fraction * 100);
    } else if (ranks->ranks > 1 && ranks->slowest_step_s > SLOW_RANK * ranks->step_s) {
        snprintf(text, size, "rank %u takes %.2f s a step, the others %.2f s: all wait for it",
                 ranks->slowest, ranks->slowest_step_s, ranks->step_s);
    }
}

static void show_outside(const struct control *control, const struct job_entry *job,
                         struct control_outside *shown)
{
    const struct outside_job *outside = job->outside;
    struct core_lease_view view;
    uint64_t frozen_ns =
        outside->frozen_since_ns != 0 ? control->now_ns - outside->frozen_since_ns : 0;
    *shown = (struct control_outside){
        .command = &outside->command,
        .exit_class = outside->exit_class,
        .exit_code = outside->exit_code,
        .exit_signal = outside->exit_signal,
        .runs = outside->run,
        .failures = outside->failures,
        .suspended_s = (double)(outside->suspended_ns + frozen_ns) / (double)NS_PER_S,
        .pid = outside->pid,
        .keeper = outside->keeper,
        .log_dropped = outside->log_dropped,
        .run_over = outside->state == RUN_NONE || outside->state == RUN_ENDED,
        .notice_reason = "",
        .ranks = outside->ranks,
    };
    if (outside->ranks.ranks == 0) {
        shown->ranks.waiting_fraction = shown->ranks.slowest_step_s = __builtin_nan("");
    }
    advise(&outside->ranks, shown->advice, sizeof shown->advice);
    if (core_lease_find(control->core, job->number, &view)) {
        shown->lost_s = (double)view.lost_ns / (double)NS_PER_S;
        shown->heartbeat_lost = view.heartbeat_lost;
    }
    if (outside->run > 0 && !outside->command.held) {
        (void)outside_run_folder(control->config->state, job->id, outside->run, shown->log_path,
                                 sizeof shown->log_path);
    }
    if (outside->notice.told) {
        uint64_t left_ns = outside->notice.deadline_ns > control->now_ns
                               ? outside->notice.deadline_ns - control->now_ns
                               : 0;
        shown->notice_deadline_wall_ns = clock_pace_wall_ns(&control->pace) + left_ns;
        shown->notice_reason = core_reason_name(outside->notice.reason);
    }
}

bool control_job_at(struct control *control, size_t index, struct control_job *ret_job)
{
    if (index >= control->job_count) {
        return false;
    }
    struct job_entry *job = control->jobs[index];
    job_refresh_figures(job);
    *ret_job = (struct control_job){
        .revision = job->revisions.any,
        .state_revision = job->revisions.state,
        .number = job->number,
        .id = job->id,
        .name = job->name,
        .reason = job->reason.text,
        .specification = job->specification,
        .warning = job->warning.text,
        .state = job->state,
        .submitted_wall_ns = job->submitted_wall_ns,
        .started_wall_ns = job->started_wall_ns,
        .finished_wall_ns = job->finished_wall_ns,
        .devices_min = job->devices_min,
        .devices_max = job->devices_max,
        .priority = job->priority,
        .figures = job->figures,
    };
    ret_job->figures.preemptions += job->preemptions_before;
    if (job->outside != NULL) {
        ret_job->specification = ""; /* its environment may hold secrets */
        ret_job->figures.preemptions = job->outside->preemptions;
        show_outside(control, job, &ret_job->outside);
    }
    tell_outlook(control, job, ret_job);
    for (uint32_t i = 0; i < control->device_count; i++) {
        struct core_device_view view;
        if (core_device_find(control->core, device_number(i), &view) && job->in_core &&
            view.lease == job->number) {
            ret_job->devices[ret_job->device_count++] = control->devices[i].device->id;
        }
    }
    return true;
}

int control_job_find(struct control *control, const char *text, size_t *ret_index,
                     struct error *error)
{
    char *end = NULL;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0' &&
        job_by_number(control, number, ret_index) != NULL) {
        return 0;
    }
    for (size_t i = 0; i < control->job_count; i++) {
        if (strcmp(control->jobs[i]->id, text) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    return error_set(error, ERROR_NOT_FOUND, "no job '%.127s'; `tidepool jobs` lists them", text);
}
