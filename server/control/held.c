/* held.c: leases whose holder is a process that nobody here has started: it learns of its devices
 * and of notices by calls, and gives back by calls. The server cannot see whether it still uses a
 * device: one that is not given back by the deadline is quarantined until it is. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/base/options.h"
#include "server/control/state.h"
#include "server/shim/process.h"

/* ---- a run ------------------------------------------------------------------------------------
 */

void held_begin(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    outside->state = RUN_ALIVE;
    outside->began_boot_ns = boottime_now_ns();
    log_write(LOG_INFO, "lease", "held from outside", "lease=%s run=%u devices=%u", job->id,
              outside->run, outside->grant_count);
    outside_answer_grants(control, outside);
    job_store(control, job, count_store_error, control);
    job_runs(control, job);
    if (outside->notice.asked && !outside->notice.told) {
        outside_notice_tell(control, job);
    }
}

/* Nobody can be asked whether it lives: it is taken at its word. A notice is given anew if the
 * devices are still wanted. */
void held_restore(struct control *control, struct job_entry *job)
{
    job->outside->state = RUN_ALIVE;
    outside_notice_clear(job->outside);
    outside_restore_lease(control, job, true);
}

enum control_exit_class held_classify(const struct job_entry *job)
{
    const struct outside_job *outside = job->outside;
    if (job->outcome == CONTROL_JOB_CANCELLED || outside->notice.stopped_by_owner) {
        return CONTROL_EXIT_CANCELLED;
    }
    if (outside->notice.device_lost) {
        return CONTROL_EXIT_LOST_DEVICE;
    }
    if (!outside->notice.given_back) {
        return CONTROL_EXIT_COMPLETED;
    }
    if (outside->notice.expired) {
        return CONTROL_EXIT_TIME_LIMIT;
    }
    return outside->notice.asked ? CONTROL_EXIT_PREEMPTED : CONTROL_EXIT_NONE;
}

/* What it held is no number that it wants any more: it asks anew. */
bool held_was_resized(const struct job_entry *job)
{
    const struct outside_job *outside = job->outside;
    return outside->command.held &&
           (outside->grant_count < job->devices_min || outside->grant_count > job->devices_max);
}

/* ---- who calls --------------------------------------------------------------------------------
 */

static void token_print(const struct job_entry *job, char token[CONTROL_LEASE_TOKEN_SIZE])
{
    snprintf(token, CONTROL_LEASE_TOKEN_SIZE, "%" PRIu64 ".%" PRIu64 ".%016" PRIx64,
             job->outside->epoch, job->generation, job->outside->grants[0].secret);
}

static int refuse_not_held(const struct job_entry *job, struct error *error)
{
    if (job->outside == NULL || !job->outside->command.held) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "'%s' is no lease held from outside but a job, which the server runs",
                         job->id);
    }
    if (job_ended(job)) {
        return error_set(error, ERROR_FAILED_PRECONDITION, "lease '%s' has ended: %s", job->id,
                         control_job_state_name(job->state));
    }
    return 0;
}

static int refuse_waiting(const struct job_entry *job, struct error *error)
{
    int result = refuse_not_held(job, error);
    if (result == 0 && job->outside->state != RUN_ALIVE) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "lease '%s' holds no device now: it is %s", job->id,
                         control_job_state_name(job->state));
    }
    return result;
}

int control_lease_token(struct control *control, size_t index,
                        char ret_token[CONTROL_LEASE_TOKEN_SIZE], struct error *error)
{
    const struct job_entry *job = control->jobs[index];
    int result = refuse_waiting(job, error);
    if (result == 0) {
        token_print(job, ret_token);
    }
    return result;
}

/* In the same time wherever they differ. */
static bool token_is_right(const struct job_entry *job, const char *given)
{
    char token[CONTROL_LEASE_TOKEN_SIZE] = {0};
    size_t length = strlen(given);
    unsigned char difference = 0;
    token_print(job, token);
    if (length != strlen(token)) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        difference |= (unsigned char)(given[i] ^ token[i]);
    }
    return difference == 0;
}

static int check(const struct job_entry *job, const char *token, struct error *error)
{
    int result = refuse_waiting(job, error);
    if (result == 0 && !token_is_right(job, token)) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "lease '%s': the token is not that of its present run %u: what it stood "
                         "for is over; ClaimLease tells the present one",
                         job->id, job->outside->run);
    }
    return result;
}

/* ---- what the holder says ---------------------------------------------------------------------
 */

int control_lease_report(struct control *control, size_t index, const char *token,
                         const struct control_progress *progress, struct error *error)
{
    struct job_entry *job = control->jobs[index];
    int result = check(job, token, error);
    if (result < 0) {
        return result;
    }
    if (!progress->has_step) {
        struct core_event beat = {.kind = CORE_EVENT_LEASE_HEARTBEAT};
        beat.lease_heartbeat.lease = job->number;
        beat.lease_heartbeat.generation = job->generation;
        control_feed(control, beat);
        return 0;
    }
    if (progress->checkpointed_step > progress->step) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "lease '%s': checkpointed_step %" PRIu64 " is beyond step %" PRIu64,
                         job->id, progress->checkpointed_step, progress->step);
    }
    struct core_event event = {.kind = CORE_EVENT_LEASE_PROGRESS};
    event.lease_progress.lease = job->number;
    event.lease_progress.generation = job->generation;
    event.lease_progress.step = progress->step;
    event.lease_progress.checkpointed_step = progress->checkpointed_step;
    job->figures.step = progress->step;
    job->figures.checkpointed_step = progress->checkpointed_step;
    revision_touch(control, &job->revisions, false);
    control_feed(control, event);
    return 0;
}

int control_lease_extend(struct control *control, size_t index, const char *token, double seconds,
                         struct error *error)
{
    struct job_entry *job = control->jobs[index];
    int result = check(job, token, error);
    if (result < 0) {
        return result;
    }
    uint64_t before_ns = job->outside->notice.deadline_ns;
    if (!job->outside->notice.asked) {
        return error_set(error, ERROR_FAILED_PRECONDITION, "lease '%s' is under no notice",
                         job->id);
    }
    struct core_event event = {.kind = CORE_EVENT_EXTENSION_ASKED};
    event.extension.lease = job->number;
    event.extension.generation = job->generation;
    event.extension.extension_ns = (uint64_t)(seconds * (double)NS_PER_S);
    control_feed(control, event);
    if (job->outside->notice.deadline_ns == before_ns) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "lease '%s': its one extension is used up, or its devices go at the "
                         "deadline: give them back by then",
                         job->id);
    }
    return 0;
}

void control_lease_release(struct control *control, size_t index, const char *token, bool again,
                           control_done *done, void *context)
{
    struct job_entry *job = control->jobs[index];
    struct error error = {0};
    struct outside_event event = {.kind = OUTSIDE_ENDED, .empty = true};
    if (check(job, token, &error) < 0) {
        done(control, context, 0, &error);
        return;
    }
    event.job = job->number;
    event.run = job->outside->run;
    job->outside->notice.given_back = again;
    outside_run_over(control, job, &event);
    job_keep_change(control, job, done, context); /* the end was written before */
    revisions_refresh(control);
}

/* ---- its size ---------------------------------------------------------------------------------
 */

static char *specification_resized(const struct job_entry *job, uint32_t least, uint32_t most,
                                   struct error *error)
{
    char devices[32];
    char *text = NULL;
    json_t *object =
        options_parse_text(job->specification, strlen(job->specification), "lease", error);
    snprintf(devices, sizeof devices, "%u:%u", least, most);
    if (object != NULL && json_object_set_new(object, "devices", json_string(devices)) == 0) {
        text = json_dumps(object, JSON_COMPACT);
    }
    json_decref(object);
    if (text == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "lease '%s': no memory", job->id);
    }
    return text;
}

static int resize(struct control *control, struct job_entry *job, uint32_t least, uint32_t most,
                  struct error *error)
{
    struct outside_job *outside = job->outside;
    int result = refuse_not_held(job, error);
    if (result < 0) {
        return result;
    }
    if (least < 1 || most < least || least > control->device_count) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "lease '%s': %u to %u devices: at least 1, the minimum no more than the "
                         "maximum and than the server's %u",
                         job->id, least, most, control->device_count);
    }
    most = most < control->device_count ? most : control->device_count;
    if (outside->state != RUN_NONE && most < outside->grant_count) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "lease '%s' holds %u devices now: release it, with requeue, to have fewer",
                         job->id, outside->grant_count);
    }
    char *text = specification_resized(job, least, most, error);
    struct run_grant *grants =
        text != NULL ? reallocarray(outside->grants, most, sizeof outside->grants[0]) : NULL;
    if (grants == NULL) {
        free(text);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "lease '%s': no memory", job->id);
    }
    free(job->specification);
    job->specification = text;
    outside->grants = grants;
    outside->command.devices_min = job->devices_min = least;
    outside->command.devices_max = job->devices_max = most;
    return 0;
}

void control_lease_resize(struct control *control, size_t index, uint32_t least, uint32_t most,
                          control_done *done, void *context)
{
    struct job_entry *job = control->jobs[index];
    struct error error = {0};
    if (resize(control, job, least, most, &error) < 0) {
        done(control, context, 0, &error);
        return;
    }
    if (job->in_core && job->outside->state == RUN_NONE) {
        outside_resize(control, job);
    }
    revision_touch(control, &job->revisions, true);
    job_keep_change(control, job, done, context);
    revisions_refresh(control);
}
