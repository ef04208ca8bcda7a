/* dry_run.c: what a change would bring: put as events of the core and tried on a clone of it.
 * Nothing is changed by it. */
#include <stdlib.h>
#include <string.h>

#include "server/base/options.h"
#include "server/control/state.h"
#include "server/core/trial.h"

#define HORIZON_S 120
#define HORIZON_MAX_S 3600
#define STEPS_MAX 10000 /* some 100 ms of this thread */
#define PLACE_NS UINT64_C(1000000000)
#define ANSWER_NS UINT64_C(10000000)

struct dry {
    struct core_event *events;
    size_t count;
    uint64_t lease; /* whose start is asked for; 0: nobody's */
};

/* ---- changes as events ---- */

static int put_job(struct control *control, const struct control_dry_change *change,
                   struct core_event *event, struct dry *dry, struct error *error)
{
    size_t index = 0;
    if (control_job_find(control, change->name, &index, error) < 0) {
        return -1;
    }
    const struct job_entry *job = control->jobs[index];
    bool resume = change->kind == CONTROL_DRY_RESUME;
    if (job_ended(job) || (!job->in_core && (!resume || !job->ready))) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "job '%s' is %s: it neither has devices nor waits for any", job->id,
                         control_job_state_name(job->state));
    }
    if (job->in_core) {
        event->kind = change->kind == CONTROL_DRY_CANCEL  ? CORE_EVENT_LEASE_CANCELLED
                      : change->kind == CONTROL_DRY_PAUSE ? CORE_EVENT_LEASE_PAUSED
                                                          : CORE_EVENT_LEASE_RESUMED;
        event->lease.lease = job->number;
    } else {
        event->kind = CORE_EVENT_LEASE_REQUESTED;
        event->lease_spec = job->outside != NULL
                                ? outside_job_spec(control, job)
                                : job_lease_spec(control, job->number, job->devices_min,
                                                 job->devices_max, job->priority);
        event->lease_spec.team = job->team;
    }
    dry->lease = resume ? job->number : 0;
    return 0;
}

static int put_submission(const struct control *control, const char *text, struct core_event *event,
                          struct dry *dry, struct error *error)
{
    struct train_request request = {0};
    json_t *specification = options_parse_text(text, strlen(text), "job", error);
    if (specification == NULL) {
        return -1;
    }
    if (command_is(specification)) {
        struct command command;
        int read = command_read(specification, &command, error);
        if (read == 0) {
            dry->lease = control->job_number + 1;
            event->kind = CORE_EVENT_LEASE_REQUESTED;
            event->lease_spec = outside_lease_spec(control, dry->lease, &command);
            event->lease_spec.team = team_known(control, command.team);
            command_fini(&command);
        }
        json_decref(specification);
        return read;
    }
    int result = train_request_read(specification, &request, error);
    if (result == 0) {
        uint32_t most = request.devices_max < control->device_count ? request.devices_max
                                                                    : control->device_count;
        dry->lease = control->job_number + 1;
        event->kind = CORE_EVENT_LEASE_REQUESTED;
        event->lease_spec = job_lease_spec(control, dry->lease, request.devices_min,
                                           most > request.devices_min ? most : request.devices_min,
                                           (int32_t)request.priority);
        event->lease_spec.team = team_known(control, request.team);
    }
    json_decref(specification);
    return result;
}

static int put_endpoint(struct control *control, const struct control_dry_change *change,
                        struct core_event *event, struct error *error)
{
    size_t index = 0;
    if (control_endpoint_find(control, change->name, &index, error) < 0) {
        return -1;
    }
    const struct endpoint_entry *endpoint = control->endpoints[index];
    if (change->kind == CONTROL_DRY_STOP_SERVING) {
        event->kind = CORE_EVENT_ENDPOINT_REMOVED;
        event->endpoint.endpoint = endpoint->number;
        return 0;
    }
    struct core_endpoint_spec *spec = &event->endpoint_spec;
    event->kind = CORE_EVENT_ENDPOINT_CHANGED;
    endpoint_fill_spec(control, endpoint, spec);
    spec->slo_ns = change->slo_ms > 0 ? (uint64_t)(change->slo_ms * 1e6) : spec->slo_ns;
    spec->devices_max = change->devices_max != 0 ? change->devices_max : spec->devices_max;
    spec->devices_min =
        change->devices_min < spec->devices_max ? change->devices_min : spec->devices_max;
    spec->priority = change->priority;
    return 0;
}

static int put_removal(struct control *control, const struct control_dry_change *change,
                       struct core_event *event, struct error *error)
{
    size_t index = 0;
    if (control_device_find(control, change->name, &index, error) < 0) {
        return -1;
    }
    if (change->within_s > 0) {
        event->kind = CORE_EVENT_DEVICE_RECLAIM_BY;
        event->device_time.device = device_number((uint32_t)index);
        event->device_time.by_ns = control->now_ns + (uint64_t)(change->within_s * 1e9);
    } else {
        event->kind = CORE_EVENT_DEVICE_REMOVED;
        event->device.device = device_number((uint32_t)index);
    }
    return 0;
}

static int put_cordon(struct control *control, const struct control_dry_change *change,
                      struct core_event *event, struct error *error)
{
    size_t index = 0;
    if (control_device_find(control, change->name, &index, error) < 0) {
        return -1;
    }
    event->kind = CORE_EVENT_DEVICE_CORDONED;
    event->device_flag.device = device_number((uint32_t)index);
    event->device_flag.on = change->on;
    return 0;
}

/* Each like the first one of the kind that is here. */
static int put_devices(const struct control *control, const struct control_dry_change *change,
                       struct dry *dry, struct error *error)
{
    uint32_t kind = 0;
    while (kind < control->kind_count && strcmp(control->kinds[kind], change->name) != 0) {
        kind++;
    }
    if (kind == control->kind_count) {
        return error_set(error, ERROR_NOT_FOUND, "no kind of device '%.31s' here", change->name);
    }
    struct core_device_view like = {0};
    for (uint32_t i = 0; i < control->device_count; i++) {
        if (core_device_find(control->core, device_number(i), &like) && like.kind == kind) {
            break;
        }
    }
    for (size_t i = 0; i < dry->count; i++) {
        struct core_event *event = &dry->events[i];
        event->kind = CORE_EVENT_DEVICE_ADDED;
        event->device_added.device = device_number(control->device_count + (uint32_t)i);
        event->device_added.kind = kind;
        event->device_added.memory_bytes = like.memory_bytes;
    }
    return 0;
}

static int put_change(struct control *control, const struct control_dry_change *change,
                      struct dry *dry, struct error *error)
{
    struct core_event *event = dry->events;
    switch (change->kind) {
    case CONTROL_DRY_SUBMIT:
        return put_submission(control, change->specification, event, dry, error);
    case CONTROL_DRY_CANCEL:
    case CONTROL_DRY_PAUSE:
    case CONTROL_DRY_RESUME:
        return put_job(control, change, event, dry, error);
    case CONTROL_DRY_STOP_SERVING:
    case CONTROL_DRY_CHANGE_ENDPOINT:
        return put_endpoint(control, change, event, error);
    case CONTROL_DRY_HOLD:
        event->kind = CORE_EVENT_HOLD;
        event->hold.on = change->on;
        return 0;
    case CONTROL_DRY_MODE:
        event->kind = CORE_EVENT_MODE_CHANGED;
        event->mode.mode = change->mode;
        return 0;
    case CONTROL_DRY_ADD_DEVICES:
        return put_devices(control, change, dry, error);
    case CONTROL_DRY_REMOVE_DEVICE:
        return put_removal(control, change, event, error);
    case CONTROL_DRY_CORDON:
        return put_cordon(control, change, event, error);
    case CONTROL_DRY_TEAM:
        event->kind = CORE_EVENT_TEAM_CHANGED;
        return team_wish_spec(control, change->team, &event->team_spec, error);
    }
    return error_set(error, ERROR_INVALID_ARGUMENT, "dry run: no such change");
}

static int check_sizes(const struct control_dry_change *change, double horizon_s,
                       struct error *error)
{
    if (!(horizon_s >= 0 && horizon_s <= HORIZON_MAX_S)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "dry run: horizon_s is 0 (for %d) to %d, not %g", HORIZON_S, HORIZON_MAX_S,
                         horizon_s);
    }
    if (!(change->within_s >= 0 && change->within_s <= HORIZON_MAX_S)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "dry run: within_s is 0 to %d, not %g",
                         HORIZON_MAX_S, change->within_s);
    }
    bool adds = change->kind == CONTROL_DRY_ADD_DEVICES;
    if (adds && (change->devices == 0 || change->devices > DEVICES_MAX)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "dry run: 1 to %d devices, not %u",
                         DEVICES_MAX, change->devices);
    }
    return 0;
}

/* ---- what it brings ---- */

static void tell(struct control *control, const struct core_trial *trial, const struct dry *dry,
                 control_dry_each *each, void *context, struct control_dry_result *ret_result)
{
    static struct control_move move; /* the control thread's */
    size_t count;
    const struct core_trial_move *moves = core_trial_moves(trial, &count);
    for (size_t i = 0; i < count; i++) {
        move_fill(control, &moves[i].explanation, &move);
        each(context, &move, (double)core_trial_after_ns(trial, &moves[i]) / 1e9, moves[i].anyway);
    }
    uint64_t start_ns = dry->lease != 0 ? core_trial_start_ns(trial, dry->lease) : UINT64_MAX;
    enum core_reason refused = core_trial_refused(trial);
    *ret_result = (struct control_dry_result){
        .refused = refused != CORE_REASON_NONE ? core_reason_name(refused) : "",
        .horizon_s = (double)core_trial_looked_ns(trial) / 1e9,
        .start_s = start_ns != UINT64_MAX ? (double)start_ns / 1e9 : __builtin_nan(""),
    };
}

int control_dry_run(struct control *control, const struct control_dry_change *change,
                    double horizon_s, control_dry_each *each, void *context,
                    struct control_dry_result *ret_result, struct error *error)
{
    int result = check_sizes(change, horizon_s, error);
    struct core_trial *trial = NULL;
    struct dry dry = {.count = change->kind == CONTROL_DRY_ADD_DEVICES ? change->devices : 1};
    if (result < 0) {
        goto out;
    }
    const struct core_trial_config config = {
        .horizon_ns = (uint64_t)((horizon_s > 0 ? horizon_s : HORIZON_S) * 1e9),
        .place_ns = PLACE_NS,
        .answer_ns = ANSWER_NS,
        .steps_max = STEPS_MAX,
    };
    dry.events = calloc(dry.count, sizeof *dry.events);
    if (dry.events == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "dry run: no memory");
        goto out;
    }
    result = put_change(control, change, &dry, error);
    if (result < 0) {
        goto out;
    }
    trial = core_trial_run(control->core, dry.events, dry.count, &config);
    if (trial == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "dry run: no memory");
        goto out;
    }
    tell(control, trial, &dry, each, context, ret_result);
out:
    core_trial_destroy(trial);
    free(dry.events);
    return result;
}
