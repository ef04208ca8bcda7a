/* instance.c: one loaded copy of an endpoint's model on one device.
 * absent -> placing -> ready -> removing -> absent; a lost device makes all of them absent. */
#include "server/core/state.h"

#define TO(state) (1u << CORE_INSTANCE_##state)

static const uint32_t instance_next[] = {
    [CORE_INSTANCE_ABSENT] = TO(PLACING) | TO(READY), /* READY: found again by a restart */
    [CORE_INSTANCE_PLACING] = TO(READY) | TO(REMOVING) | TO(ABSENT),
    [CORE_INSTANCE_READY] = TO(REMOVING) | TO(ABSENT),
    [CORE_INSTANCE_REMOVING] = TO(ABSENT),
};

/* Absent, with nothing to remember. */
static bool is_blank(const struct instance *instance)
{
    return instance->state == CORE_INSTANCE_ABSENT && instance->until_ns == 0 &&
           instance->failures == 0;
}

static void instances_due(struct core *core, struct device *device)
{
    device->instances_due_ns = NEVER_NS;
    DEVICE_ENDPOINTS (core, device, endpoint) {
        uint64_t until_ns = core_instance_of(device, endpoint)->until_ns;
        if (until_ns > core->now_ns && until_ns < device->instances_due_ns) {
            device->instances_due_ns = until_ns;
        }
    }
}

/* After every change of an instance: who is where, and when the next of them is due. */
static void instance_settle(struct core *core, struct device *device, struct endpoint *endpoint)
{
    bool blank = is_blank(core_instance_of(device, endpoint));
    core_set_put(&device->live, endpoint->slot, !blank);
    core_set_put(&endpoint->hosts, device->slot, !blank);
    instances_due(core, device);
    core_endpoint_touch(core, endpoint);
    core_device_touch(core, device);
}

static void instance_count(struct device *device, struct endpoint *endpoint,
                           const struct instance *instance, int sign)
{
    bool present = instance->state != CORE_INSTANCE_ABSENT;
    bool ready = instance->state == CORE_INSTANCE_READY;
    endpoint->present += (uint32_t)(sign * present);
    endpoint->placed += (uint32_t)(sign * core_instance_serves(instance));
    endpoint->resting += (uint32_t)(sign * (core_instance_serves(instance) && device->resting));
    endpoint->borrowed += (uint32_t)(sign * (core_instance_serves(instance) && device->borrowed));
    bool stays = device->resting || device->borrowed || !device->going;
    endpoint->going += (uint32_t)(sign * (core_instance_serves(instance) && !stays));
    endpoint->ready += (uint32_t)(sign * (ready && !device->resting));
    device->instances_present += (uint32_t)(sign * present);
    device->instances_ready += (uint32_t)(sign * ready);
    device->instances_removing += (uint32_t)(sign * (instance->state == CORE_INSTANCE_REMOVING));
    device->instances_bytes += (uint64_t)(sign * present) * endpoint->spec.memory_bytes;
}

static void instance_move(struct core *core, struct device *device, struct endpoint *endpoint,
                          enum core_instance_state next)
{
    struct instance *instance = core_instance_of(device, endpoint);
    assert(instance_next[instance->state] & (1u << next));
    instance_count(device, endpoint, instance, -1);
    instance->state = next;
    instance_count(device, endpoint, instance, 1);
    instance->action = 0;
    instance->until_ns = 0;
    instance_settle(core, device, endpoint);
    core_ledger_update(core, device);
}

static void instance_wait(struct core *core, struct device *device, struct endpoint *endpoint,
                          uint64_t span_ns)
{
    core_instance_of(device, endpoint)->until_ns = core_add_u64(core->now_ns, span_ns);
    instance_settle(core, device, endpoint);
}

static void failures_set(struct device *device, struct endpoint *endpoint, uint32_t failures)
{
    struct instance *instance = core_instance_of(device, endpoint);
    endpoint->failing += (uint32_t)(failures > 0) - (uint32_t)(instance->failures > 0);
    instance->failures = failures;
}

void core_instance_forget(struct device *device, const struct endpoint *endpoint)
{
    *core_instance_of(device, endpoint) = (struct instance){0};
    core_set_put(&device->live, endpoint->slot, false);
}

uint32_t core_endpoint_serving(const struct endpoint *endpoint)
{
    return endpoint->placed - endpoint->resting - endpoint->going;
}

uint32_t core_endpoint_most(const struct endpoint *endpoint)
{
    return endpoint->spec.devices_max + endpoint->borrowed + endpoint->going;
}

/* Those on borrowed devices and on devices that go come on top of an endpoint's maximum, as long as
 * they do. */
static void remove_surplus(struct core *core, struct device *device)
{
    DEVICE_ENDPOINTS (core, device, endpoint) {
        if (!device->borrowed && endpoint->placed > core_endpoint_most(endpoint)) {
            core_instance_remove(core, device, endpoint);
        }
    }
}

static void instances_recount(struct core *core, struct device *device, bool resting, bool borrowed,
                              bool going)
{
    DEVICE_ENDPOINTS (core, device, endpoint) {
        instance_count(device, endpoint, core_instance_of(device, endpoint), -1);
    }
    device->resting = resting;
    device->borrowed = borrowed;
    device->going = going;
    DEVICE_ENDPOINTS (core, device, endpoint) {
        instance_count(device, endpoint, core_instance_of(device, endpoint), 1);
        core_endpoint_touch(core, endpoint);
    }
    remove_surplus(core, device);
}

void core_instances_rest(struct core *core, struct device *device, bool resting, bool borrowed)
{
    if (device->resting != resting || device->borrowed != borrowed) {
        instances_recount(core, device, resting, borrowed, device->going);
    }
}

void core_instances_go(struct core *core, struct device *device, bool going)
{
    if (device->going != going) {
        instances_recount(core, device, device->resting, device->borrowed, going);
        core_device_touch(core, device);
    }
}

void core_instances_resize(struct core *core, struct endpoint *endpoint, uint64_t memory_bytes)
{
    SET_EACH (&endpoint->hosts, slot) {
        struct device *device = core->device_slots[slot];
        if (core_instance_of(device, endpoint)->state != CORE_INSTANCE_ABSENT) {
            device->instances_bytes += memory_bytes - endpoint->spec.memory_bytes;
        }
        core_device_touch(core, device);
    }
    endpoint->spec.memory_bytes = memory_bytes;
}

static uint64_t emit_instance(struct core *core, enum core_action_kind kind,
                              const struct device *device, const struct endpoint *endpoint)
{
    struct core_action *action = core_emit(core, kind);
    action->instance.endpoint = endpoint->spec.endpoint;
    action->instance.device = device->id;
    return action->id;
}

void core_instance_place(struct core *core, struct device *device, struct endpoint *endpoint)
{
    struct instance *instance = core_instance_of(device, endpoint);
    instance_move(core, device, endpoint, CORE_INSTANCE_PLACING);
    instance->action = emit_instance(core, CORE_ACTION_PLACE, device, endpoint);
    instance_wait(core, device, endpoint, core->config.place_timeout_ns);
}

void core_instance_remove(struct core *core, struct device *device, struct endpoint *endpoint)
{
    struct instance *instance = core_instance_of(device, endpoint);
    if (core_instance_serves(instance)) {
        instance_move(core, device, endpoint, CORE_INSTANCE_REMOVING);
        instance->action = emit_instance(core, CORE_ACTION_REMOVE, device, endpoint);
        instance_wait(core, device, endpoint, core->config.place_timeout_ns);
    }
}

void core_instances_vanish(struct core *core, struct device *device)
{
    DEVICE_ENDPOINTS (core, device, endpoint) {
        failures_set(device, endpoint, 0);
        if (core_instance_of(device, endpoint)->state != CORE_INSTANCE_ABSENT) {
            instance_move(core, device, endpoint, CORE_INSTANCE_ABSENT);
        } else {
            instance_settle(core, device, endpoint);
        }
    }
}

static void instance_failed(struct core *core, struct device *device, struct endpoint *endpoint)
{
    struct instance *instance = core_instance_of(device, endpoint);
    instance_move(core, device, endpoint, CORE_INSTANCE_ABSENT);
    uint32_t doublings = instance->failures < 6 ? instance->failures : 6;
    failures_set(device, endpoint, instance->failures + 1);
    instance_wait(core, device, endpoint, core->config.retry_ns << doublings);
}

/* No answer: what was being loaded is removed; a removal, which may be repeated, is. */
static void instance_overdue(struct core *core, struct device *device, struct endpoint *endpoint)
{
    struct instance *instance = core_instance_of(device, endpoint);
    if (instance->state == CORE_INSTANCE_PLACING) {
        core_instance_remove(core, device, endpoint);
    } else if (instance->state == CORE_INSTANCE_REMOVING) {
        instance->action = emit_instance(core, CORE_ACTION_REMOVE, device, endpoint);
        instance_wait(core, device, endpoint, core->config.place_timeout_ns);
    }
}

void core_instances_overdue(struct core *core, struct device *device)
{
    if (device->instances_due_ns > core->now_ns) {
        return;
    }
    DEVICE_ENDPOINTS (core, device, endpoint) {
        const struct instance *instance = core_instance_of(device, endpoint);
        if (instance->action != 0 && instance->until_ns <= core->now_ns) {
            instance_overdue(core, device, endpoint);
        }
    }
    instances_due(core, device);
}

static void instance_answered(struct core *core, struct device *device, struct endpoint *endpoint,
                              const struct core_event *event)
{
    struct instance *instance = core_instance_of(device, endpoint);
    bool awaited = event->instance.action != 0 && instance->action == event->instance.action;
    switch (event->kind) {
    case CORE_EVENT_INSTANCE_READY:
        if (awaited && instance->state == CORE_INSTANCE_PLACING) {
            failures_set(device, endpoint, 0);
            instance_move(core, device, endpoint, CORE_INSTANCE_READY);
        }
        break;
    case CORE_EVENT_INSTANCE_FAILED:
        if ((awaited && instance->state == CORE_INSTANCE_PLACING) ||
            (event->instance.action == 0 && instance->state == CORE_INSTANCE_READY)) {
            instance_failed(core, device, endpoint);
        }
        break;
    case CORE_EVENT_INSTANCE_STOPPED:
        if (awaited && instance->state == CORE_INSTANCE_REMOVING) {
            instance_move(core, device, endpoint, CORE_INSTANCE_ABSENT);
        }
        break;
    case CORE_EVENT_RESTORED_INSTANCE:
        if (instance->state == CORE_INSTANCE_ABSENT && core_device_usable(device)) {
            instance_move(core, device, endpoint, CORE_INSTANCE_READY);
        }
        break;
    default:
        assert(false);
    }
}

void core_instance_event(struct core *core, const struct core_event *event)
{
    struct device *device = core_device_get(core, event->instance.device);
    struct endpoint *endpoint = core_endpoint_get(core, event->instance.endpoint);
    if (device != NULL && endpoint != NULL) {
        instance_answered(core, device, endpoint, event);
    }
}
