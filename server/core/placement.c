/* placement.c: which device holds which endpoint's instance. First what demand needs, by priority:
 * by making room if it must, at last by taking a device from a lease (take.c).
 * Then models are parked wherever memory is left, so that a burst finds them loaded. */
#include "server/core/state.h"

enum fit {
    FIT_YES,
    FIT_UNUSABLE,
    FIT_HOLDER,    /* a lease that shares the device with nobody */
    FIT_MEMORY,    /* beside what is there */
    FIT_NEIGHBOUR, /* a batch would outlast half of somebody's SLO */
};

bool core_may_move(const struct core *core)
{
    return core->mode == CORE_MODE_ACT && !core->hold && core->reconciled;
}

bool core_device_spare(const struct core *core, const struct device *device)
{
    for (size_t i = 0; i < core->endpoint_count && !device->resting; i++) {
        const struct endpoint *endpoint = core->endpoints[i];
        if (core_instance_serves(core_instance_of(device, endpoint)) &&
            core_endpoint_serving(endpoint) < endpoint->needed + endpoint->taken + 1) {
            return false;
        }
    }
    return true;
}

bool core_neighbours_agree(const struct core *core, const struct device *device,
                           const struct endpoint *endpoint)
{
    for (size_t i = 0; i < core->endpoint_count; i++) {
        const struct endpoint *other = core->endpoints[i];
        if (other != endpoint && core_instance_of(device, other)->state != CORE_INSTANCE_ABSENT &&
            (core_endpoint_batch_ns(endpoint) > other->spec.slo_ns / 2 ||
             core_endpoint_batch_ns(other) > endpoint->spec.slo_ns / 2)) {
            return false;
        }
    }
    return true;
}

static bool shares(const struct lease *lease)
{
    return lease == NULL || lease->spec.in_process;
}

static enum fit fit_of(const struct core *core, const struct device *device,
                       const struct endpoint *endpoint)
{
    const struct instance *instance = core_instance_of(device, endpoint);
    bool unverified = device->hold != CORE_HOLD_NONE && device->lease == NULL;
    bool stopped = device->hold == CORE_HOLD_SUSPENDED && !device->lease->going_on_wanted;
    if (!core_device_usable(device) || !((endpoint->spec.kinds_mask >> device->kind) & 1) ||
        instance->state != CORE_INSTANCE_ABSENT || core->now_ns < instance->until_ns ||
        unverified) {
        return FIT_UNUSABLE;
    }
    if ((!stopped && !shares(device->lease)) || !shares(device->promised)) {
        return FIT_HOLDER;
    }
    if (!core_neighbours_agree(core, device, endpoint)) {
        return FIT_NEIGHBOUR;
    }
    uint64_t used = core_device_memory_used(device);
    used = core_add_u64(used, device->promised != NULL ? device->promised->spec.memory_bytes : 0);
    return core_add_u64(used, endpoint->spec.memory_bytes) <= device->memory_bytes ? FIT_YES
                                                                                   : FIT_MEMORY;
}

/* Lower is better: healthy before slow, kept for it before others, then few neighbours. */
static uint64_t place_score(const struct device *device, const struct endpoint *endpoint)
{
    uint64_t slow = device->health == CORE_HEALTH_SLOW;
    uint64_t foreign = !(device->kept && device->kept_for == endpoint->spec.endpoint);
    return slow << 40 | foreign << 39 | device->instances_present;
}

static struct device *place_find(const struct core *core, const struct endpoint *endpoint)
{
    struct device *best = NULL;
    uint64_t best_score = UINT64_MAX;
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        if (fit_of(core, device, endpoint) != FIT_YES) {
            continue;
        }
        uint64_t score = place_score(device, endpoint);
        if (score < best_score) {
            best = device;
            best_score = score;
        }
    }
    return best;
}

static bool can_go(const struct device *device, const struct endpoint *endpoint)
{
    return core_instance_serves(core_instance_of(device, endpoint)) &&
           (device->resting || core_endpoint_serving(endpoint) > endpoint->needed);
}

/* Removes the instances that others can spare, if that makes room for the endpoint. */
static bool make_room(struct core *core, struct device *device, const struct endpoint *endpoint)
{
    uint64_t used = device->holder_bytes;
    for (size_t i = 0; i < core->endpoint_count; i++) {
        const struct endpoint *other = core->ranked[i];
        bool stays =
            core_instance_serves(core_instance_of(device, other)) && !can_go(device, other);
        used = core_add_u64(used, stays ? other->spec.memory_bytes : 0);
    }
    if (core_add_u64(used, endpoint->spec.memory_bytes) > device->memory_bytes) {
        return false;
    }
    for (size_t i = core->endpoint_count; i-- > 0;) {
        struct endpoint *other = core->ranked[i];
        if (can_go(device, other)) {
            struct core_explanation explanation =
                core_explain_begin(core, CORE_WHAT_REMOVE, CORE_REASON_DEMAND, device, NULL, other);
            core_explain(core, &explanation);
            core_instance_remove(core, device, other);
        }
    }
    return true;
}

bool core_endpoint_failing(const struct core *core, const struct endpoint *endpoint)
{
    for (size_t i = 0; i < core->device_count; i++) {
        const struct instance *instance = core_instance_of(core->devices[i], endpoint);
        if (instance->failures > 0 && core_device_usable(core->devices[i])) {
            return true;
        }
    }
    return false;
}

/* Fits as soon as the removals that already run are done. */
static bool room_coming(const struct core *core, const struct device *device,
                        const struct endpoint *endpoint)
{
    uint64_t used = device->holder_bytes;
    for (size_t i = 0; i < core->endpoint_count; i++) {
        const struct endpoint *other = core->endpoints[i];
        bool stays = core_instance_serves(core_instance_of(device, other));
        used = core_add_u64(used, stays ? other->spec.memory_bytes : 0);
    }
    return fit_of(core, device, endpoint) == FIT_MEMORY &&
           core_add_u64(used, endpoint->spec.memory_bytes) <= device->memory_bytes;
}

/* On its way from its holder to the endpoint, there by then. */
static bool taken_for(const struct core *core, const struct device *device,
                      const struct endpoint *endpoint, uint64_t by_ns)
{
    bool leaves = device->hold == CORE_HOLD_REVOKING || device->hold == CORE_HOLD_KILLING ||
                  device->hold == CORE_HOLD_VERIFYING || device->hold == CORE_HOLD_SUSPENDING ||
                  (device->hold == CORE_HOLD_RESUMING && device->lease->then != CORE_LEASE_RUNNING);
    bool serves = core_instance_of(device, endpoint)->state != CORE_INSTANCE_ABSENT;
    return device->kept && device->kept_for == endpoint->spec.endpoint && leaves &&
           (!serves || device->resting) && core_device_usable(device) &&
           core_device_arrival_ns(core, device) <= by_ns;
}

uint32_t core_capacity_coming(const struct core *core, const struct endpoint *endpoint,
                              uint64_t by_ns)
{
    uint32_t coming = 0;
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        coming += taken_for(core, device, endpoint, by_ns) || room_coming(core, device, endpoint);
    }
    return coming;
}

/* What rests counts towards the endpoint's maximum too: it goes where it would be one too many. */
static void make_way(struct core *core, struct endpoint *endpoint)
{
    for (size_t i = core->device_count;
         i-- > 0 && endpoint->placed >= endpoint->spec.devices_max;) {
        struct device *device = core->devices[i];
        if (device->resting && core_instance_serves(core_instance_of(device, endpoint))) {
            core_instance_remove(core, device, endpoint);
        }
    }
}

/* For one instance more: place it, or set free the memory or the device for it. */
static bool reach(struct core *core, struct endpoint *endpoint)
{
    struct device *device = place_find(core, endpoint);
    if (device != NULL) {
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_PLACE, CORE_REASON_DEMAND, device, NULL, endpoint);
        if (!core_may_move(core)) {
            core_explain_advice(core, &endpoint->advice, explanation);
            return false;
        }
        make_way(core, endpoint);
        core_instance_place(core, device, endpoint);
        core_explain(core, &explanation);
        return true;
    }
    for (size_t i = 0; i < core->device_count && core_may_move(core); i++) {
        device = core->devices[i];
        if (fit_of(core, device, endpoint) == FIT_MEMORY && !room_coming(core, device, endpoint) &&
            make_room(core, device, endpoint)) {
            return true;
        }
    }
    return core_take_for(core, endpoint, CORE_TAKE_ANY);
}

/* What is on its way comes late: stops in place bridge the time until then. */
static void bridge(struct core *core, struct endpoint *endpoint)
{
    uint64_t by_ns = core_add_u64(core->now_ns, core_endpoint_within_ns(core, endpoint));
    uint32_t soon = core_capacity_coming(core, endpoint, by_ns);
    while (core_endpoint_serving(endpoint) + soon < endpoint->needed &&
           core_take_for(core, endpoint, CORE_TAKE_BRIDGE)) {
        soon++;
    }
}

static enum core_reason why_lacking(const struct core *core, const struct endpoint *endpoint)
{
    enum core_reason reason =
        core_endpoint_failing(core, endpoint) ? CORE_REASON_ACTION_FAILED : CORE_REASON_DEMAND;
    for (size_t i = 0; i < core->device_count; i++) {
        enum fit fit = fit_of(core, core->devices[i], endpoint);
        if (fit == FIT_MEMORY) {
            return CORE_REASON_NO_DEVICE_MEMORY;
        }
        if (fit == FIT_NEIGHBOUR) {
            reason = CORE_REASON_NEIGHBOUR_SLO;
        }
    }
    return reason;
}

static void satisfy(struct core *core, struct endpoint *endpoint)
{
    endpoint->lacks = CORE_REASON_NONE;
    if (core_endpoint_serving(endpoint) >= endpoint->needed) {
        endpoint->advice = 0;
        endpoint->lacking_since_ns = NEVER_NS;
        return;
    }
    if (endpoint->lacking_since_ns == NEVER_NS) {
        endpoint->lacking_since_ns = core->now_ns;
    }
    uint32_t coming = core_capacity_coming(core, endpoint, NEVER_NS);
    while (core_endpoint_serving(endpoint) + coming < endpoint->needed) {
        uint32_t serving = core_endpoint_serving(endpoint);
        if (!reach(core, endpoint)) {
            endpoint->lacks = why_lacking(core, endpoint);
            return;
        }
        coming += core_endpoint_serving(endpoint) == serving;
    }
    bridge(core, endpoint);
    endpoint->advice = 0;
}

/* What is being removed makes room for something that is needed, not for parking. */
static bool has_removing(const struct core *core, const struct device *device)
{
    for (size_t i = 0; i < core->endpoint_count; i++) {
        if (core_instance_of(device, core->endpoints[i])->state == CORE_INSTANCE_REMOVING) {
            return true;
        }
    }
    return false;
}

static void park(struct core *core, struct endpoint *endpoint)
{
    for (size_t i = 0; i < core->device_count && endpoint->placed < endpoint->spec.devices_max;
         i++) {
        struct device *device = core->devices[i];
        if (fit_of(core, device, endpoint) == FIT_YES && !has_removing(core, device)) {
            core_instance_place(core, device, endpoint);
        }
    }
}

void core_placement_plan(struct core *core)
{
    for (size_t i = 0; i < core->endpoint_count; i++) {
        if (!core->ranked[i]->removing) {
            satisfy(core, core->ranked[i]);
        }
    }
    for (size_t i = 0; i < core->endpoint_count && core_may_move(core); i++) {
        if (!core->ranked[i]->removing) {
            park(core, core->ranked[i]);
        }
    }
}
