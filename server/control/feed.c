/* feed.c: events into the core, its actions out. */
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/control/state.h"

/* ---- the queue ----------------------------------------------------------------------------------
 * Events that actions bring forth wait for the step that is being carried out. */

static void queue_push(struct event_queue *queue, const struct core_event *event)
{
    if (queue->count == queue->capacity) {
        size_t capacity = queue->capacity == 0 ? 64 : queue->capacity * 2;
        struct core_event *events = calloc(capacity, sizeof *events);
        if (events == NULL) {
            /* A lost event would leave the core with a false picture of the machine. */
            log_write(LOG_ERROR, "control", "no memory for an event", "waiting=%zu", queue->count);
            abort();
        }
        for (size_t i = 0; i < queue->count; i++) {
            events[i] = queue->events[(queue->first + i) % queue->capacity];
        }
        free(queue->events);
        *queue = (struct event_queue){events, 0, queue->count, capacity};
    }
    queue->events[(queue->first + queue->count++) % queue->capacity] = *event;
}

static struct core_event queue_pop(struct event_queue *queue)
{
    struct core_event event = queue->events[queue->first];
    queue->first = (queue->first + 1) % queue->capacity;
    queue->count--;
    return event;
}

/* ---- one step
 * ------------------------------------------------------------------------------------ */

static void reserve_actions(struct control *control)
{
    size_t needed = core_actions_max(control->core);
    if (needed > control->action_capacity) {
        struct core_action *actions =
            realloc(control->actions, needed * 2 * sizeof control->actions[0]);
        if (actions == NULL) {
            log_write(LOG_ERROR, "control", "no memory for actions", "count=%zu", needed);
            abort();
        }
        control->actions = actions;
        control->action_capacity = needed * 2;
    }
}

static void step(struct control *control, struct core_event *event)
{
    event->time_ns = control->now_ns;
    reserve_actions(control);
    size_t count = core_step(control->core, event, control->actions);
    record_writer_event(control->record, control->core, event);
    for (size_t i = 0; i < count; i++) {
        control_apply(control, &control->actions[i]);
    }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    char broken[256];
    if (!core_check(control->core, broken, sizeof broken)) {
        log_write(LOG_ERROR, "core", "invariant broken", "text=\"%s\"", broken);
        abort();
    }
#endif
}

/* ---- samples of devices
 * ---------------------------------------------------------------------------- */

uint64_t device_serving_now_ns(const struct device *device, uint64_t now_ns)
{
    for (;;) {
        uint64_t since = atomic_load(&device->shared.serving_since_ns);
        uint64_t total = atomic_load(&device->shared.serving_ns);
        if (since == atomic_load(&device->shared.serving_since_ns)) {
            return total + (since != 0 && since < now_ns ? now_ns - since : 0);
        }
    }
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Time that the holder's threads on this device waited for data: the job tells it for all its
 * devices together. */
static uint64_t wait_since_last(struct control *control, struct device_entry *entry)
{
    struct job_entry *job = entry->holder != 0 ? job_by_number(control, entry->holder, NULL) : NULL;
    if (job == NULL || job->train == NULL || job->figures.devices_held == 0) {
        return 0;
    }
    uint64_t total = job->figures.data_wait_ns / job->figures.devices_held;
    uint64_t passed = total > entry->wait_seen_ns ? total - entry->wait_seen_ns : 0;
    entry->wait_seen_ns = total;
    return passed;
}

static void sample_device(struct control *control, struct device_entry *entry)
{
    struct device *device = entry->device;
    uint64_t interval_ns = control->now_ns - entry->sampled_ns;
    if (control->now_ns <= entry->sampled_ns) {
        return;
    }
    uint64_t serving_ns = device_serving_now_ns(device, control->now_ns);
    /* The running batch may have ended between two looks: never go back. */
    uint64_t served_ns =
        serving_ns > entry->serving_seen_ns ? serving_ns - entry->serving_seen_ns : 0;
    uint64_t slices = atomic_load(&device->shared.slices);
    entry->sampled_ns = control->now_ns;
    if (entry->failed || (served_ns == 0 && entry->holder == 0)) {
        entry->serving_seen_ns += served_ns;
        entry->slices_seen = slices;
        return;
    }
    served_ns = least(served_ns, interval_ns);
    struct core_event event = {.kind = CORE_EVENT_DEVICE_SAMPLE};
    event.device_sample.device = device_number(device->index);
    event.device_sample.interval_ns = interval_ns;
    event.device_sample.serving_ns = served_ns;
    event.device_sample.waiting_ns =
        least(wait_since_last(control, entry), interval_ns - served_ns);
    event.device_sample.slices = (uint32_t)(slices - entry->slices_seen);
    entry->serving_seen_ns += served_ns;
    entry->slices_seen = slices;
    step(control, &event);
}

static void sample_devices(struct control *control)
{
    for (uint32_t i = 0; i < control->device_count; i++) {
        sample_device(control, &control->devices[i]);
    }
}

/* ---- the loop
 * --------------------------------------------------------------------------------------- */

static void pump(struct control *control)
{
    control->pumping = true;
    sample_devices(control);
    do {
        while (control->events.count > 0) {
            struct core_event next = queue_pop(&control->events);
            step(control, &next);
            /* What follows may change who holds what: up to here the time is booked as it was. */
            sample_devices(control);
        }
    } while (outside_settle(control) || control->events.count > 0);
    control->pumping = false;
}

void control_feed(struct control *control, struct core_event event)
{
    queue_push(&control->events, &event);
    control->moved = true;
    if (!control->pumping) {
        pump(control);
    }
}

void control_sample_devices(struct control *control)
{
    if (!control->pumping) {
        pump(control);
    }
}

void on_core_timer(evutil_socket_t fd, short what, void *arg)
{
    struct control *control = arg;
    (void)fd;
    (void)what;
    control->now_ns = clock_pace_now_ns(&control->pace);
    control_feed(control, (struct core_event){.kind = CORE_EVENT_TIMER});
    revisions_refresh(control);
}
