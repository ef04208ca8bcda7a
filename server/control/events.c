/* events.c: what serve and train tell becomes core events. */
#include <string.h>

#include "server/base/log.h"
#include "server/control/state.h"

/* ---- serve --------------------------------------------------------------------------------------
 */

static void feed_instance(struct control *control, enum core_event_kind kind, uint64_t action,
                          const struct serve_event *told)
{
    struct core_event event = {.kind = kind};
    event.instance.action = action;
    event.instance.endpoint = told->endpoint;
    event.instance.device = device_number(told->device);
    control_feed(control, event);
}

static void on_instance_ready(struct control *control, struct endpoint_entry *endpoint,
                              const struct serve_event *told)
{
    const struct device *device = control->devices[told->device].device;
    uint32_t kind = 0;
    while (kind < control->kind_count && strcmp(control->kinds[kind], device->kind) != 0) {
        kind++;
    }
    if (endpoint->memory_bytes < told->memory_bytes) {
        struct core_event event = {.kind = CORE_EVENT_ENDPOINT_CHANGED};
        endpoint->memory_bytes = told->memory_bytes;
        endpoint_fill_spec(control, endpoint, &event.endpoint_spec);
        control_feed(control, event);
    }
    endpoint_tell_service(control, endpoint, kind, &told->service);
    uint64_t action = endpoint->place_action[told->device];
    endpoint->place_action[told->device] = 0;
    log_write(LOG_INFO, "serve", "instance ready", "endpoint=%s device=%s memory_bytes=%llu",
              endpoint->name, device->id, (unsigned long long)told->memory_bytes);
    feed_instance(control, CORE_EVENT_INSTANCE_READY, action, told);
}

static void on_instance_failed(struct control *control, struct endpoint_entry *endpoint,
                               const struct serve_event *told)
{
    struct log_text text;
    uint64_t action = endpoint->place_action[told->device];
    endpoint->place_action[told->device] = 0;
    log_write(LOG_ERROR, "serve", "instance failed", "endpoint=%s device=%s reason=%s",
              endpoint->name, control->devices[told->device].device->id,
              log_quote(&text, told->text));
    feed_instance(control, CORE_EVENT_INSTANCE_FAILED, action, told);
}

static void on_danger(struct control *control, const struct serve_event *told)
{
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_DANGER};
    event.endpoint_danger.endpoint = told->endpoint;
    event.endpoint_danger.projected_wait_ns = told->projected_wait_ns;
    event.endpoint_danger.queue_length = told->queue_length;
    control_feed(control, event);
}

void control_on_serve(struct control *control, const struct serve_event *event)
{
    struct endpoint_entry *endpoint = endpoint_by_number(control, event->endpoint, NULL);
    if (event->kind == SERVE_DEVICE_LOST) {
        device_fail(control, event->device, event->text);
        return;
    }
    if (endpoint == NULL) { /* told too late: it has stopped meanwhile */
        return;
    }
    switch (event->kind) {
    case SERVE_INSTANCE_READY:
        on_instance_ready(control, endpoint, event);
        break;
    case SERVE_INSTANCE_FAILED:
        on_instance_failed(control, endpoint, event);
        break;
    case SERVE_INSTANCE_STOPPED: {
        uint64_t action = endpoint->remove_action[event->device];
        endpoint->remove_action[event->device] = 0;
        feed_instance(control, CORE_EVENT_INSTANCE_STOPPED, action, event);
        break;
    }
    case SERVE_ENDPOINT_DANGER:
        on_danger(control, event);
        break;
    case SERVE_ENDPOINT_STOPPED:
        endpoint_stopped(control, endpoint);
        break;
    case SERVE_DEVICE_LOST:
        break;
    }
}

/* ---- train --------------------------------------------------------------------------------------
 */

void device_released(struct control *control, uint32_t index)
{
    struct device_entry *entry = &control->devices[index];
    entry->holder = 0;
    if (entry->revoke_action != 0) {
        struct core_event event = {.kind = CORE_EVENT_REVOKE_ACKNOWLEDGED};
        event.answer.action = entry->revoke_action;
        event.answer.device = device_number(index);
        entry->revoke_action = 0;
        control_feed(control, event);
    }
    if (entry->verify_action != 0) {
        struct core_event event = {.kind = CORE_EVENT_RELEASE_VERIFIED};
        event.verified.action = entry->verify_action;
        event.verified.device = device_number(index);
        event.verified.gone = !entry->unsure;
        entry->verify_action = 0;
        control_feed(control, event);
    }
}

static void on_progress(struct control *control, struct job_entry *job,
                        const struct train_event *told)
{
    job->figures.step = told->step;
    job->figures.checkpointed_step = told->checkpointed_step;
    if (!job->in_core || job->generation == 0) {
        return;
    }
    struct core_event event = {.kind = CORE_EVENT_LEASE_PROGRESS};
    event.lease_progress.lease = job->number;
    event.lease_progress.generation = job->generation;
    event.lease_progress.step = told->step;
    event.lease_progress.checkpointed_step = told->checkpointed_step;
    control_feed(control, event);
}

/* The job holds nothing any more: devices whose release was not told are free now. */
static void release_all(struct control *control, const struct job_entry *job)
{
    for (uint32_t i = 0; i < control->device_count; i++) {
        if (control->devices[i].holder == job->number) {
            device_released(control, i);
        }
    }
}

void control_on_train(struct control *control, const struct train_event *event)
{
    struct log_text text;
    struct job_entry *job = job_by_number(control, event->job, NULL);
    if (job == NULL || job_ended(job)) {
        return;
    }
    switch (event->kind) {
    case TRAIN_READY:
        job_became_ready(control, job);
        break;
    case TRAIN_PROGRESS:
    case TRAIN_CHECKPOINT:
        on_progress(control, job, event);
        break;
    case TRAIN_RELEASED:
        if (control->devices[event->device].holder == job->number &&
            event->grant == trainer_grant_number(control->trainer, event->device)) {
            device_released(control, event->device);
        }
        break;
    case TRAIN_FINISHED:
        on_progress(control, job, event);
        release_all(control, job);
        job_ends(control, job, CONTROL_JOB_FINISHED, "");
        break;
    case TRAIN_FAILED:
        log_write(LOG_ERROR, "train", "job failed", "job=%s reason=%s", job->id,
                  log_quote(&text, event->text));
        release_all(control, job);
        job_ends(control, job, CONTROL_JOB_FAILED, event->text);
        break;
    case TRAIN_WARNING:
        log_write(LOG_WARN, "train", "warning", "job=%s text=%s", job->id,
                  log_quote(&text, event->text));
        snprintf(job->warning.text, sizeof job->warning.text, "%s", event->text);
        revision_touch(control, &job->revisions, true);
        break;
    }
}
