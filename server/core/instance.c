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

static void instance_count(struct device *device, struct endpoint *endpoint,
                           const struct instance *instance, int sign)
{
    bool present = instance->state != CORE_INSTANCE_ABSENT;
    bool ready = instance->state == CORE_INSTANCE_READY;
    endpoint->placed += (uint32_t)(sign * core_instance_serves(instance));
    endpoint->resting += (uint32_t)(sign * (core_instance_serves(instance) && device->resting));
    endpoint->ready += (uint32_t)(sign * (ready && !device->resting));
    device->instances_present += (uint32_t)(sign * present);
    device->instances_ready += (uint32_t)(sign * ready);
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
    core->dirty = true;
    core_ledger_update(core, device);
}

struct instance *core_instance_of(const struct device *device, const struct endpoint *endpoint)
{
    return &device->instances[endpoint->slot];
}

bool core_instance_serves(const struct instance *instance)
{
    return instance->state == CORE_INSTANCE_PLACING || instance->state == CORE_INSTANCE_READY;
}

uint32_t core_endpoint_serving(const struct endpoint *endpoint)
{
    return endpoint->placed - endpoint->resting;
}

void core_instances_rest(struct core *core, struct device *device, bool resting)
{
    if (device->resting == resting) {
        return;
    }
    for (size_t i = 0; i < core->endpoint_count; i++) {
        instance_count(device, core->endpoints[i], core_instance_of(device, core->endpoints[i]),
                       -1);
    }
    device->resting = resting;
    for (size_t i = 0; i < core->endpoint_count; i++) {
        instance_count(device, core->endpoints[i], core_instance_of(device, core->endpoints[i]), 1);
    }
}

void core_instances_resize(struct core *core, struct endpoint *endpoint, uint64_t memory_bytes)
{
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        if (core_instance_of(device, endpoint)->state != CORE_INSTANCE_ABSENT) {
            device->instances_bytes += memory_bytes - endpoint->spec.memory_bytes;
        }
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
    instance->until_ns = core_add_u64(core->now_ns, core->config.place_timeout_ns);
}

void core_instance_remove(struct core *core, struct device *device, struct endpoint *endpoint)
{
    struct instance *instance = core_instance_of(device, endpoint);
    if (core_instance_serves(instance)) {
        instance_move(core, device, endpoint, CORE_INSTANCE_REMOVING);
        instance->action = emit_instance(core, CORE_ACTION_REMOVE, device, endpoint);
        instance->until_ns = core_add_u64(core->now_ns, core->config.place_timeout_ns);
    }
}

void core_instances_vanish(struct core *core, struct device *device)
{
    for (size_t i = 0; i < core->endpoint_count; i++) {
        struct endpoint *endpoint = core->endpoints[i];
        struct instance *instance = core_instance_of(device, endpoint);
        if (instance->state != CORE_INSTANCE_ABSENT) {
            instance_move(core, device, endpoint, CORE_INSTANCE_ABSENT);
        }
        instance->failures = 0;
    }
}

static void instance_failed(struct core *core, struct device *device, struct endpoint *endpoint)
{
    struct instance *instance = core_instance_of(device, endpoint);
    instance_move(core, device, endpoint, CORE_INSTANCE_ABSENT);
    uint32_t doublings = instance->failures < 6 ? instance->failures : 6;
    instance->failures++;
    instance->until_ns = core_add_u64(core->now_ns, core->config.retry_ns << doublings);
}

/* No answer: what was being loaded is removed; a removal, which may be repeated, is. */
void core_instance_overdue(struct core *core, struct device *device, struct endpoint *endpoint)
{
    struct instance *instance = core_instance_of(device, endpoint);
    if (instance->state == CORE_INSTANCE_PLACING) {
        core_instance_remove(core, device, endpoint);
    } else if (instance->state == CORE_INSTANCE_REMOVING) {
        instance->action = emit_instance(core, CORE_ACTION_REMOVE, device, endpoint);
        instance->until_ns = core_add_u64(core->now_ns, core->config.place_timeout_ns);
    }
}

static void instance_answered(struct core *core, struct device *device, struct endpoint *endpoint,
                              const struct core_event *event)
{
    struct instance *instance = core_instance_of(device, endpoint);
    bool awaited = event->instance.action != 0 && instance->action == event->instance.action;
    switch (event->kind) {
    case CORE_EVENT_INSTANCE_READY:
        if (awaited && instance->state == CORE_INSTANCE_PLACING) {
            instance_move(core, device, endpoint, CORE_INSTANCE_READY);
            instance->failures = 0;
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
