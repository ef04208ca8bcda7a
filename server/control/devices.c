/* devices.c: the devices as objects: adding, failing, recovering, showing them. */
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/base/options.h"
#include "server/control/adjust.h"
#include "server/control/state.h"

static uint32_t kind_of(struct control *control, const char *kind)
{
    for (uint32_t i = 0; i < control->kind_count; i++) {
        if (strcmp(control->kinds[i], kind) == 0) {
            return i;
        }
    }
    if (control->kind_count < KINDS_MAX) {
        snprintf(control->kinds[control->kind_count], sizeof control->kinds[0], "%s", kind);
        return control->kind_count++;
    }
    return KINDS_MAX - 1;
}

uint32_t device_kinds_mask(const struct control *control, const char *kind)
{
    if (kind[0] == '\0') {
        return (1u << control->kind_count) - 1;
    }
    for (uint32_t i = 0; i < control->kind_count; i++) {
        if (strcmp(control->kinds[i], kind) == 0) {
            return 1u << i;
        }
    }
    return 0;
}

int devices_create(struct control *control, struct error *error)
{
    uint32_t count = control->device_set->count;
    control->devices = calloc(count, sizeof control->devices[0]);
    control->timeline = timeline_create(count);
    if (control->devices == NULL || control->timeline == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "add devices: no memory");
    }
    control->device_count = count;
    for (uint32_t i = 0; i < count; i++) {
        control->devices[i].device = &control->device_set->devices[i];
        kind_of(control, control->devices[i].device->kind);
    }
    return 0;
}

void devices_boot(struct control *control)
{
    control->slot_began_ns = control->now_ns;
    for (uint32_t i = 0; i < control->device_count; i++) {
        struct device_entry *entry = &control->devices[i];
        struct core_event event = {.kind = CORE_EVENT_DEVICE_ADDED};
        entry->sampled_ns = control->now_ns;
        event.device_added.device = device_number(i);
        event.device_added.kind = kind_of(control, entry->device->kind);
        event.device_added.memory_bytes = entry->device->memory_bytes;
        control_feed(control, event);
        device_adjust(control, i);
    }
    scale_refresh(control);
}

void control_reconciled(struct control *control)
{
    if (control->reconciled) {
        return;
    }
    control->reconciled = true;
    control_feed(control, (struct core_event){.kind = CORE_EVENT_RECONCILE_DONE});
    outside_reconciled(control);
}

/* While a holder that cannot yield is at work on a device, nothing serves there. */
void devices_rest(struct control *control)
{
    for (uint32_t i = 0; i < control->device_count; i++) {
        struct device_entry *entry = &control->devices[i];
        struct core_device_view view;
        bool resting = core_device_find(control->core, device_number(i), &view) && view.resting;
        if (resting != entry->resting) {
            entry->resting = resting;
            serve_device_rest(control->serve, i, resting);
        }
    }
}

/* ---- failing and recovering
 * ---------------------------------------------------------------------- */

static void feed_device(struct control *control, enum core_event_kind kind, uint32_t index)
{
    struct core_event event = {.kind = kind};
    event.device.device = device_number(index);
    control_feed(control, event);
}

void device_fail(struct control *control, uint32_t index, const char *reason)
{
    struct device_entry *entry = &control->devices[index];
    struct log_text text;
    if (entry->failed) {
        return;
    }
    log_write(LOG_ERROR, "device", "failed", "device=%s reason=%s", entry->device->id,
              log_quote(&text, reason));
    /* Until here its time is booked as it was used. */
    control_sample_devices(control);
    snprintf(entry->reason.text, sizeof entry->reason.text, "%s", reason);
    entry->failed = true;
    device_set_failed(entry->device, true);
    serve_device_failed(control->serve, index);
    for (size_t i = 0; i < control->endpoint_count; i++) {
        control->endpoints[i]->place_action[index] = 0;
        control->endpoints[i]->remove_action[index] = 0;
    }
    feed_device(control, CORE_EVENT_DEVICE_FAILED, index);
}

void control_device_fail(struct control *control, size_t index, const char *reason)
{
    char text[256];
    snprintf(text, sizeof text, "fault injected%s%s", reason[0] != '\0' ? ": " : "", reason);
    device_fail(control, (uint32_t)index, text);
    revisions_refresh(control);
}

int control_device_recover(struct control *control, size_t index, struct error *error)
{
    struct device_entry *entry = &control->devices[index];
    struct core_device_view view;
    bool quarantined = core_device_find(control->core, device_number((uint32_t)index), &view) &&
                       view.health == CORE_HEALTH_QUARANTINED;
    if (!entry->failed && !quarantined) {
        return error_set(error, ERROR_FAILED_PRECONDITION, "device '%s' has not failed",
                         entry->device->id);
    }
    log_write(LOG_INFO, "device", "recovered", "device=%s", entry->device->id);
    entry->reason.text[0] = '\0';
    entry->unsure = false;
    if (entry->failed) {
        device_set_failed(entry->device, false);
        serve_device_recovered(control->serve, (uint32_t)index);
        entry->failed = false;
        entry->sampled_ns = control->now_ns;
        entry->serving_seen_ns = device_serving_now_ns(entry->device, control->now_ns);
        entry->slices_seen = atomic_load(&entry->device->shared.slices);
    }
    feed_device(control, CORE_EVENT_DEVICE_RECOVERED, (uint32_t)index);
    revisions_refresh(control);
    return 0;
}

/* ---- showing
 * --------------------------------------------------------------------------------------- */

enum control_device_state device_state(const struct control *control, uint32_t index,
                                       struct core_device_view *ret_view)
{
    if (!core_device_find(control->core, device_number(index), ret_view)) {
        return CONTROL_DEVICE_FREE; /* before it was added */
    }
    if (ret_view->health == CORE_HEALTH_FAILED) {
        return CONTROL_DEVICE_FAILED;
    }
    if (ret_view->health == CORE_HEALTH_QUARANTINED || ret_view->occupied) {
        return CONTROL_DEVICE_QUARANTINED;
    }
    if (ret_view->hold == CORE_HOLD_HELD) {
        return CONTROL_DEVICE_TRAINING;
    }
    if (ret_view->hold == CORE_HOLD_SUSPENDED) {
        return CONTROL_DEVICE_SUSPENDED;
    }
    if (ret_view->hold != CORE_HOLD_NONE || ret_view->promised != 0) {
        return CONTROL_DEVICE_HANDOVER;
    }
    if (ret_view->instances_ready > 0 && ret_view->account != CORE_ACCOUNT_FREE) {
        return CONTROL_DEVICE_SERVING;
    }
    if (ret_view->account == CORE_ACCOUNT_HANDOVER) {
        return CONTROL_DEVICE_HANDOVER;
    }
    return ret_view->cordoned ? CONTROL_DEVICE_CORDONED : CONTROL_DEVICE_FREE;
}

const char *control_device_state_name(enum control_device_state state)
{
    static const char *const names[CONTROL_DEVICE_STATES] = {
        [CONTROL_DEVICE_FREE] = "free",           [CONTROL_DEVICE_SERVING] = "serving",
        [CONTROL_DEVICE_TRAINING] = "training",   [CONTROL_DEVICE_HANDOVER] = "handover",
        [CONTROL_DEVICE_SUSPENDED] = "suspended", [CONTROL_DEVICE_CORDONED] = "cordoned",
        [CONTROL_DEVICE_FAILED] = "failed",       [CONTROL_DEVICE_QUARANTINED] = "quarantined",
    };
    return state < CONTROL_DEVICE_STATES && names[state] != NULL ? names[state] : "unknown";
}

static double share_of_last_second(const struct control *control, uint32_t index,
                                   enum timeline_use use)
{
    uint8_t shares[1000 / TICK_MS];
    size_t slots = 1000 / TICK_MS;
    uint64_t next = timeline_next(control->timeline);
    uint64_t first = next > slots ? next - slots : 1;
    unsigned sum = 0;
    if (first == next) {
        return 0;
    }
    timeline_read(control->timeline, index, use, first, next - first, shares);
    for (size_t i = 0; i < next - first; i++) {
        sum += shares[i];
    }
    return sum / 255.0 / (double)(next - first);
}

static void list_instances(const struct control *control, uint32_t index,
                           struct control_device *device)
{
    size_t capacity = sizeof device->instances / sizeof device->instances[0];
    for (size_t i = 0; i < control->endpoint_count && device->instance_count < capacity; i++) {
        const struct endpoint_entry *endpoint = control->endpoints[i];
        if (endpoint->in_serve && core_instance_find(control->core, endpoint->number,
                                                     device_number(index)) == CORE_INSTANCE_READY) {
            device->instances[device->instance_count++] = endpoint->name;
        }
    }
}

bool control_device_at(struct control *control, size_t index, struct control_device *ret_device)
{
    if (index >= control->device_count) {
        return false;
    }
    static char reason[OVERRIDE_ACTOR_SIZE + OVERRIDE_REASON_SIZE + 32]; /* the control thread's */
    const struct device_entry *entry = &control->devices[index];
    const struct job_entry *job = NULL;
    *ret_device = (struct control_device){
        .revision = entry->revisions.any,
        .state_revision = entry->revisions.state,
        .device = entry->device,
        .reason = entry->reason.text,
        .serving = share_of_last_second(control, (uint32_t)index, TIMELINE_SERVING),
        .training = share_of_last_second(control, (uint32_t)index, TIMELINE_TRAINING),
        .handover = share_of_last_second(control, (uint32_t)index, TIMELINE_HANDOVER),
    };
    ret_device->state = device_state(control, (uint32_t)index, &ret_device->core);
    ret_device->cordoned = entry->cordoned;
    ret_device->leaves_wall_ns = entry->leaves_wall_ns;
    if (entry->reason.text[0] == '\0') {
        device_adjust_reason(control, (uint32_t)index, reason, sizeof reason);
        ret_device->reason = reason[0] != '\0'          ? reason
                             : ret_device->core.drained ? "drained: much slower than its kind"
                                                        : "";
    }
    job = ret_device->core.lease != 0 ? job_by_number(control, ret_device->core.lease, NULL) : NULL;
    ret_device->job = job != NULL ? job->id : "";
    list_instances(control, (uint32_t)index, ret_device);
    return true;
}

/* "3" within `count`, or false. */
static bool index_parse(const char *text, size_t count, size_t *ret_index)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    unsigned long long value = strtoull(text, &end, 10);
    *ret_index = (size_t)value;
    return *end == '\0' && value < count;
}

int control_device_find(struct control *control, const char *text, size_t *ret_index,
                        struct error *error)
{
    const char *ids[DEVICES_MAX];
    char all[256] = "";
    for (uint32_t i = 0; i < control->device_count; i++) {
        ids[i] = control->devices[i].device->id;
        if (strcmp(ids[i], text) == 0) {
            *ret_index = i;
            return 0;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", ids[i]);
    }
    if (index_parse(text, control->device_count, ret_index)) {
        return 0;
    }
    return error_set(error, ERROR_NOT_FOUND, "no device '%.64s'; there are %s", text, all);
}
