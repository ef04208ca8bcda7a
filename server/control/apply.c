/* apply.c: the core's actions become calls on serve and train. None of them blocks; what they
 * bring forth comes back as events. */
#include <string.h>

#include "server/base/log.h"
#include "server/control/state.h"

static const char *device_id(const struct control *control, uint64_t device)
{
    return device >= 1 && device <= control->device_count ? control->devices[device - 1].device->id
                                                          : "-";
}

static struct device_entry *device_of(struct control *control, uint64_t device)
{
    return &control->devices[device - 1]; /* the core knows only what we added */
}

/* ---- instances --------------------------------------------------------------------------------
 */

static void feed_instance(struct control *control, enum core_event_kind kind, uint64_t action,
                          uint64_t endpoint, uint64_t device)
{
    struct core_event event = {.kind = kind};
    event.instance.action = action;
    event.instance.endpoint = endpoint;
    event.instance.device = device;
    control_feed(control, event);
}

static void apply_place(struct control *control, const struct core_action *action)
{
    uint64_t number = action->instance.endpoint;
    uint64_t device = action->instance.device;
    struct endpoint_entry *endpoint = endpoint_by_number(control, number, NULL);
    struct error error = {0};
    if (endpoint == NULL ||
        serve_instance_place(control->serve, number, (uint32_t)device - 1, &error) < 0) {
        struct log_text text;
        log_write(LOG_WARN, "control", "not placed", "endpoint=%llu device=%s reason=%s",
                  (unsigned long long)number, device_id(control, device),
                  log_quote(&text, error.text));
        feed_instance(control, CORE_EVENT_INSTANCE_FAILED, action->id, number, device);
        return;
    }
    endpoint->place_action[device - 1] = action->id;
}

static void apply_remove(struct control *control, const struct core_action *action)
{
    uint64_t number = action->instance.endpoint;
    uint64_t device = action->instance.device;
    struct endpoint_entry *endpoint = endpoint_by_number(control, number, NULL);
    if (endpoint == NULL) {
        feed_instance(control, CORE_EVENT_INSTANCE_STOPPED, action->id, number, device);
        return;
    }
    endpoint->place_action[device - 1] = 0;
    endpoint->remove_action[device - 1] = action->id;
    serve_instance_remove(control->serve, number, (uint32_t)device - 1);
}

/* ---- leases ------------------------------------------------------------------------------------
 */

void feed_answer(struct control *control, enum core_event_kind kind, uint64_t action,
                 uint64_t device)
{
    struct core_event event = {.kind = kind};
    event.answer.action = action;
    event.answer.device = device;
    control_feed(control, event);
}

/* A job in this process ends with it, so its grants need no place in the store: the epoch in
 * every token fences those of an earlier run off. */
static void apply_grant(struct control *control, const struct core_action *action)
{
    uint64_t device = action->grant.device;
    struct device_entry *entry = device_of(control, device);
    struct job_entry *job = job_by_number(control, action->grant.lease, NULL);
    if (job != NULL && job->outside != NULL) {
        outside_granted(control, job, action);
        return;
    }
    if (job == NULL || job->train == NULL || entry->failed || entry->holder != 0) {
        feed_answer(control, CORE_EVENT_ACTION_FAILED, action->id, device);
        return;
    }
    entry->holder = job->number;
    entry->wait_seen_ns = job->figures.data_wait_ns / (job->figures.devices_held + 1);
    job->generation = action->grant.token.generation;
    trainer_job_grant(job->train, (uint32_t)device - 1);
    feed_answer(control, CORE_EVENT_ACTION_DONE, action->id, device);
}

static void apply_revoke(struct control *control, const struct core_action *action)
{
    uint64_t device = action->revoke.device;
    struct device_entry *entry = device_of(control, device);
    struct job_entry *job = job_by_number(control, action->revoke.lease, NULL);
    bool holds = job != NULL && job->train != NULL && entry->holder == job->number;
    if (job != NULL && job->outside != NULL) {
        outside_revoked(control, job, action);
        return;
    }
    if (action->revoke.rung == CORE_RUNG_NONE) {
        if (holds) {
            trainer_job_device_failed(job->train, (uint32_t)device - 1);
        }
        return;
    }
    if (!holds) { /* its threads are out already */
        feed_answer(control, CORE_EVENT_REVOKE_ACKNOWLEDGED, action->id, device);
        return;
    }
    entry->revoke_action = action->id;
    trainer_job_revoke(job->train, (uint32_t)device - 1);
}

/* A thread of this process cannot be killed: the device is quarantined when it stays. */
static void apply_kill(struct control *control, const struct core_action *action)
{
    struct job_entry *job = job_by_number(control, action->revoke.lease, NULL);
    if (job != NULL && job->outside != NULL) {
        outside_killed(control, job, action);
        return;
    }
    log_write(LOG_ERROR, "control", "device not given back in time", "device=%s job=%llu",
              device_id(control, action->revoke.device), (unsigned long long)action->revoke.lease);
    feed_answer(control, CORE_EVENT_ACTION_FAILED, action->id, action->revoke.device);
}

static void apply_verify(struct control *control, const struct core_action *action)
{
    struct device_entry *entry = device_of(control, action->device.device);
    entry->verify_action = action->id;
    if (entry->holder == 0) {
        device_released(control, (uint32_t)action->device.device - 1);
    }
}

/* Never of a job in this process: it yields, and has no notice. */
static void apply_to_outside(struct control *control, const struct core_action *action)
{
    struct job_entry *job = job_by_number(control, action->revoke.lease, NULL);
    if (job == NULL || job->outside == NULL) {
        return;
    }
    if (action->kind == CORE_ACTION_RESUME) {
        outside_resumed(control, job, action);
    } else {
        outside_extended(control, job, action);
    }
}

/* ---- told only ----------------------------------------------------------------------------------
 */

static void apply_timer(struct control *control, const struct core_action *action)
{
    if (action->timer.at_ns == 0) {
        event_del(control->core_event);
        return;
    }
    uint64_t wait_ns =
        action->timer.at_ns > control->now_ns ? action->timer.at_ns - control->now_ns : 0;
    /* Rounded up: a timer that comes too early is asked for again. */
    uint64_t wait_us = (clock_pace_machine_ns(&control->pace, wait_ns) + NS_PER_US - 1) / NS_PER_US;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000),
                           .tv_usec = (suseconds_t)(wait_us % 1000000)};
    event_add(control->core_event, &wait);
}

static void apply_quarantine(struct control *control, const struct core_action *action)
{
    struct device_entry *entry = device_of(control, action->device.device);
    if (entry->reason.text[0] == '\0') { /* else who could not be verified has said more */
        snprintf(entry->reason.text, sizeof entry->reason.text, "%s",
                 core_reason_name(action->device.reason));
    }
    log_write(LOG_ERROR, "core", "quarantine", "device=%s job=%llu reason=\"%s\"",
              entry->device->id, (unsigned long long)action->device.lease,
              core_reason_name(action->device.reason));
}

static void apply_reject(struct control *control, const struct core_action *action)
{
    const char *why = core_reason_name(action->reject.reason);
    if (action->reject.reason == CORE_REASON_STALE_TOKEN) {
        return; /* the last words of a run that is over */
    }
    log_write(LOG_WARN, "core", "reject", "device=%llu endpoint=%llu job=%llu reason=\"%s\"",
              (unsigned long long)action->reject.device,
              (unsigned long long)action->reject.endpoint, (unsigned long long)action->reject.lease,
              why);
    struct job_entry *job = job_by_number(control, action->reject.lease, NULL);
    bool holds = job != NULL && job->outside != NULL && job->outside->state != RUN_NONE;
    if (job != NULL && job->in_core && !holds) {
        struct reason text;
        snprintf(text.text, sizeof text.text, "refused: %s", why);
        job->in_core = false;
        job_ends(control, job, CONTROL_JOB_FAILED, text.text);
    }
}

static void apply_explain(struct control *control, const struct core_action *action)
{
    static struct control_move move; /* the control thread's */
    struct core_explanation explanation;
    struct log_text text;
    if (!core_explanation_find(control->core, action->explanation.explanation, &explanation)) {
        return;
    }
    /* Slices come many times a second under load: they are for those who ask. */
    bool slice = explanation.what == CORE_WHAT_YIELD_BEGAN ||
                 explanation.what == CORE_WHAT_YIELD_ENDED || explanation.what == CORE_WHAT_DANGER;
    move_fill(control, &explanation, &move);
    log_write(slice ? LOG_DEBUG : LOG_INFO, "core", core_what_name(explanation.what), "story=%s",
              log_quote(&text, move.text));
}

void control_apply(struct control *control, const struct core_action *action)
{
    switch (action->kind) {
    case CORE_ACTION_PLACE:
        apply_place(control, action);
        break;
    case CORE_ACTION_REMOVE:
        apply_remove(control, action);
        break;
    case CORE_ACTION_GRANT:
        apply_grant(control, action);
        break;
    case CORE_ACTION_REVOKE:
        apply_revoke(control, action);
        break;
    case CORE_ACTION_RESUME:
    case CORE_ACTION_EXTEND:
        apply_to_outside(control, action);
        break;
    case CORE_ACTION_KILL:
        apply_kill(control, action);
        break;
    case CORE_ACTION_VERIFY:
        apply_verify(control, action);
        break;
    case CORE_ACTION_QUARANTINE:
        apply_quarantine(control, action);
        break;
    case CORE_ACTION_REJECT:
        apply_reject(control, action);
        break;
    case CORE_ACTION_LEASE_MOVED:
    case CORE_ACTION_EXPIRE: /* a job in this process has no end of its lease */
        job_lease_moved(control, action->lease.lease, action->lease.state, action->lease.reason);
        break;
    case CORE_ACTION_SET_TIMER:
        apply_timer(control, action);
        break;
    case CORE_ACTION_SCALE:
        control->devices_wanted = action->scale.devices_wanted;
        control->devices_have = action->scale.devices_have;
        break;
    case CORE_ACTION_EXPLAIN:
        apply_explain(control, action);
        break;
    case CORE_ACTION_COUNT:
        break;
    }
}
