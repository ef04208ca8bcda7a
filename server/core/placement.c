/* placement.c: which device holds which endpoint's instance. First what demand needs, by priority:
 * by making room if it must, at last by taking a device from a lease (take.c).
 * Then models are parked wherever memory is left, so that a burst finds them loaded. */
#include "server/core/state.h"

/* Of more places that fit, the best one is hardly ever better. */
#define PLACES_COMPARED 32
/* Parking looks at no more devices at once, and at the next ones after a pause. */
#define PARKING_LOOKS 256
#define PARKING_PAUSE_NS (SECOND_NS / 1000)

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

static bool can_spare(const struct endpoint *endpoint, uint32_t instances)
{
    return core_endpoint_serving(endpoint) - endpoint->borrowed >= endpoint->needed + instances;
}

bool core_device_spare(const struct core *core, const struct device *device)
{
    if (device->resting) {
        return true;
    }
    DEVICE_ENDPOINTS (core, device, endpoint) {
        if (core_instance_serves(core_instance_of(device, endpoint)) &&
            !can_spare(endpoint, endpoint->taken + 1)) {
            return false;
        }
    }
    return true;
}

bool core_device_clear(const struct core *core, const struct device *device)
{
    DEVICE_ENDPOINTS (core, device, endpoint) {
        if (core_instance_serves(core_instance_of(device, endpoint)) && !can_spare(endpoint, 1)) {
            return false;
        }
    }
    return true;
}

/* A batch of one may outlast half of the other's SLO in neither direction. */
static bool pair_agrees(const struct endpoint *a, uint64_t batch_of_a_ns, const struct endpoint *b)
{
    return batch_of_a_ns <= b->spec.slo_ns / 2 && core_endpoint_batch_ns(b) <= a->spec.slo_ns / 2;
}

bool core_neighbours_agree(const struct core *core, const struct device *device,
                           const struct endpoint *endpoint)
{
    uint64_t batch_ns = core_endpoint_batch_ns(endpoint);
    DEVICE_ENDPOINTS (core, device, other) {
        if (other != endpoint && core_instance_of(device, other)->state != CORE_INSTANCE_ABSENT &&
            !pair_agrees(endpoint, batch_ns, other)) {
            return false;
        }
    }
    return true;
}

/* Measured times change all the time; what follows from them hardly ever does. */
void core_endpoint_measured(struct core *core, struct endpoint *endpoint, uint64_t former_ns)
{
    uint64_t batch_ns = core_endpoint_batch_ns(endpoint);
    bool same = true;
    for (size_t i = 0; i < core->endpoint_count && same; i++) {
        same = pair_agrees(endpoint, former_ns, core->endpoints[i]) ==
               pair_agrees(endpoint, batch_ns, core->endpoints[i]);
    }
    if (!same) {
        core_endpoint_reconsider(core, endpoint);
    }
}

void core_endpoint_reconsider(struct core *core, struct endpoint *endpoint)
{
    endpoint->wide = true;
    endpoint->wide_parking = true;
    core_endpoint_touch(core, endpoint);
    SET_EACH (&endpoint->hosts, slot) {
        core_device_touch(core, core->device_slots[slot]);
    }
}

static enum fit fit_of(const struct core *core, const struct device *device,
                       const struct endpoint *endpoint)
{
    const struct instance *instance = core_instance_of(device, endpoint);
    if (!core_device_usable(device) || !((endpoint->spec.kinds_mask >> device->kind) & 1) ||
        instance->state != CORE_INSTANCE_ABSENT || core->now_ns < instance->until_ns) {
        return FIT_UNUSABLE;
    }
    if (!core_device_is_open(device)) {
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

/* ---- which devices to look at: those with news, or all where an instance could be at all ---- */

static struct device *candidate(const struct core *core, const struct endpoint *endpoint,
                                enum device_set set, bool wide, uint32_t from)
{
    uint32_t best = SLOT_NONE;
    const struct set *news = &core->device_sets[NEWS];
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        const struct set *of_kind = &core->device_sets[set + kind];
        if (((endpoint->spec.kinds_mask >> kind) & 1) && of_kind->count > 0) {
            uint32_t slot =
                wide ? core_set_next(of_kind, from) : core_set_next_in_both(of_kind, news, from);
            best = slot < best ? slot : best;
        }
    }
    return best != SLOT_NONE ? core->device_slots[best] : NULL;
}

#define CANDIDATES(core, of, set, wide, each)                                                      \
    for (struct device *each = candidate(core, of, set, wide, 0); each != NULL;                    \
         each = candidate(core, of, set, wide, each->slot + 1))

/* ---- what demand needs ---- */

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
    uint32_t fits = 0;
    CANDIDATES (core, endpoint, DEVICES_OPEN, endpoint->wide, device) {
        if (fit_of(core, device, endpoint) != FIT_YES) {
            continue;
        }
        uint64_t score = place_score(device, endpoint);
        if (score < best_score) {
            best = device;
            best_score = score;
        }
        if (++fits == PLACES_COMPARED) {
            break;
        }
    }
    return best;
}

static bool can_go(const struct device *device, const struct endpoint *endpoint)
{
    uint32_t serving = core_endpoint_serving(endpoint);
    uint32_t stay = device->borrowed ? serving : serving - endpoint->borrowed;
    return core_instance_serves(core_instance_of(device, endpoint)) &&
           (device->resting || stay > endpoint->needed);
}

/* Removes the instances that others can spare, if that makes room for the endpoint. */
static bool make_room(struct core *core, struct device *device, const struct endpoint *endpoint)
{
    uint64_t used = device->holder_bytes;
    DEVICE_ENDPOINTS (core, device, other) {
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
    if (endpoint->failing == 0) {
        return false;
    }
    SET_EACH (&endpoint->hosts, slot) {
        const struct device *device = core->device_slots[slot];
        if (core_instance_of(device, endpoint)->failures > 0 && core_device_usable(device)) {
            return true;
        }
    }
    return false;
}

/* Fits as soon as the removals that already run are done. */
static bool room_coming(const struct core *core, const struct device *device,
                        const struct endpoint *endpoint)
{
    if (device->instances_removing == 0 || fit_of(core, device, endpoint) != FIT_MEMORY) {
        return false;
    }
    uint64_t used = device->holder_bytes;
    DEVICE_ENDPOINTS (core, device, other) {
        bool stays = core_instance_serves(core_instance_of(device, other));
        used = core_add_u64(used, stays ? other->spec.memory_bytes : 0);
    }
    return core_add_u64(used, endpoint->spec.memory_bytes) <= device->memory_bytes;
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
    const struct set *moving = &core->device_sets[DEVICES_MOVING];
    SET_EACH_IN_BOTH (moving, &core->device_sets[DEVICES_KEPT], slot) {
        coming += taken_for(core, core->device_slots[slot], endpoint, by_ns);
    }
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        if (((endpoint->spec.kinds_mask >> kind) & 1) == 0) {
            continue;
        }
        SET_EACH_IN_BOTH (&core->device_sets[DEVICES_CLEARING],
                          &core->device_sets[DEVICES_OPEN + kind], slot) {
            const struct device *device = core->device_slots[slot];
            bool counted = core_set_has(moving, slot) && taken_for(core, device, endpoint, by_ns);
            coming += !counted && room_coming(core, device, endpoint);
        }
    }
    return coming;
}

/* What rests counts towards the endpoint's maximum too: it goes where it would be one too many. */
static void make_way(struct core *core, struct endpoint *endpoint)
{
    SET_EACH (&endpoint->hosts, slot) {
        struct device *device = core->device_slots[slot];
        if (endpoint->placed >= core_endpoint_most(endpoint) && device->resting &&
            core_instance_serves(core_instance_of(device, endpoint))) {
            core_instance_remove(core, device, endpoint);
        }
    }
}

static bool make_room_somewhere(struct core *core, const struct endpoint *endpoint)
{
    CANDIDATES (core, endpoint, DEVICES_OPEN, endpoint->wide, device) {
        if (fit_of(core, device, endpoint) == FIT_MEMORY && !room_coming(core, device, endpoint) &&
            make_room(core, device, endpoint)) {
            return true;
        }
    }
    return false;
}

/* For more instances: place one, or set free the memory for one or the devices for up to `count`.
 * Returns for how many. */
static uint32_t reach(struct core *core, struct endpoint *endpoint, uint32_t count)
{
    struct device *device = place_find(core, endpoint);
    if (device != NULL) {
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_PLACE, CORE_REASON_DEMAND, device, NULL, endpoint);
        if (!core_may_move(core)) {
            core_explain_advice(core, &endpoint->advice, explanation);
            return 0;
        }
        make_way(core, endpoint);
        core_instance_place(core, device, endpoint);
        core_explain(core, &explanation);
        return 1;
    }
    if (core_may_move(core) && make_room_somewhere(core, endpoint)) {
        return 1;
    }
    uint64_t within_ns = core_endpoint_within_ns(core, endpoint);
    return core_take_for(core, endpoint, count, CORE_TAKE_ANY, within_ns);
}

enum core_reason core_endpoint_lacks(const struct core *core, const struct endpoint *endpoint)
{
    if (core_endpoint_serving(endpoint) + core_capacity_coming(core, endpoint, NEVER_NS) >=
        endpoint->needed) {
        return CORE_REASON_NONE;
    }
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

/* A stop is worth it when it takes less than half of the time until the first device that comes
 * after that time. When that is another device than before, whoever was too slow may be fast enough
 * now. */
static uint64_t bridge_within_ns(const struct core *core, struct endpoint *endpoint,
                                 uint64_t after_ns)
{
    uint64_t first_ns = NEVER_NS;
    SET_EACH (&core->device_sets[DEVICES_MOVING], slot) {
        const struct device *device = core->device_slots[slot];
        if (taken_for(core, device, endpoint, NEVER_NS)) {
            uint64_t at_ns = core_device_arrival_ns(core, device);
            first_ns = at_ns > after_ns && at_ns < first_ns ? at_ns : first_ns;
        }
    }
    endpoint->wide_bridging = endpoint->wide_bridging || first_ns != endpoint->bridged_until_ns;
    endpoint->bridged_until_ns = first_ns;
    return (first_ns - core->now_ns) / 2;
}

/* What is on its way comes late: stops in place bridge the time until then. */
static bool bridge(struct core *core, struct endpoint *endpoint)
{
    uint64_t by_ns = core_add_u64(core->now_ns, core_endpoint_within_ns(core, endpoint));
    uint32_t soon = core_capacity_coming(core, endpoint, by_ns);
    while (core_endpoint_serving(endpoint) + soon < endpoint->needed) {
        uint64_t within_ns = bridge_within_ns(core, endpoint, by_ns);
        uint32_t count = endpoint->needed - core_endpoint_serving(endpoint) - soon;
        uint32_t taken = core_take_for(core, endpoint, count, CORE_TAKE_BRIDGE, within_ns);
        if (taken == 0) {
            endpoint->wide_bridging = core_take_undecided(core, endpoint);
            return false;
        }
        soon += taken;
    }
    return true;
}

/* One that is stopped for it is another one for now, one taken for good stays. */
static bool settles_on(const struct device *device, const struct endpoint *endpoint)
{
    uint32_t serving = core_endpoint_serving(endpoint);
    if (device->kept_for != endpoint->spec.endpoint) {
        return false;
    }
    if (device->hold == CORE_HOLD_SUSPENDED) {
        return serving < endpoint->needed;
    }
    return device->hold == CORE_HOLD_NONE && endpoint->borrowed > 0 &&
           serving - endpoint->borrowed < endpoint->needed;
}

/* What has been stopped for it is used before more is asked for; and what serves on borrowed
 * devices moves to those that were taken for good in their stead. */
static void settle_down(struct core *core, struct endpoint *endpoint)
{
    const struct set *kept = &core->device_sets[DEVICES_KEPT];
    const struct set *news =
        core_endpoint_is_news(core, endpoint) ? kept : &core->device_sets[NEWS];
    SET_EACH_IN_BOTH (kept, news, slot) {
        struct device *device = core->device_slots[slot];
        if (core_endpoint_serving(endpoint) - endpoint->borrowed >= endpoint->needed) {
            return;
        }
        if (settles_on(device, endpoint) && fit_of(core, device, endpoint) == FIT_YES) {
            make_way(core, endpoint);
            core_instance_place(core, device, endpoint);
        }
    }
}

static void lacking_follow(struct core *core, struct endpoint *endpoint, bool lacking)
{
    if (lacking != (endpoint->lacking_since_ns != NEVER_NS)) {
        endpoint->lacking_since_ns = lacking ? core->now_ns : NEVER_NS;
        core_endpoint_note(core, endpoint);
    }
    bool sustained =
        core->now_ns >= core_add_u64(endpoint->lacking_since_ns, core->config.sustained_ns);
    if (sustained != endpoint->sustained) {
        endpoint->sustained = sustained;
        endpoint->wide = endpoint->wide || sustained; /* more may be taken for it now */
    }
}

static void satisfy(struct core *core, struct endpoint *endpoint)
{
    if ((endpoint->borrowed > 0 || core->stops_count > 0) && core_may_move(core)) {
        settle_down(core, endpoint);
    }
    bool lacking = core_endpoint_serving(endpoint) < endpoint->needed;
    lacking_follow(core, endpoint, lacking);
    if (!lacking) {
        endpoint->wide = true; /* it has not looked at what is new */
        endpoint->wide_bridging = true;
        endpoint->advice = 0;
        return;
    }
    uint32_t coming = core_capacity_coming(core, endpoint, NEVER_NS);
    while (core_endpoint_serving(endpoint) + coming < endpoint->needed) {
        uint32_t serving = core_endpoint_serving(endpoint);
        uint32_t more = reach(core, endpoint, endpoint->needed - serving - coming);
        if (more == 0) {
            endpoint->wide = core_take_undecided(core, endpoint);
            endpoint->wide_bridging = true;
            return;
        }
        coming += core_endpoint_serving(endpoint) == serving ? more : 0;
    }
    endpoint->wide = true;
    if (bridge(core, endpoint)) {
        endpoint->advice = 0;
    }
}

/* ---- parking: where memory is left, but not what is being cleared for something needed ---- */

static bool is_full(const struct endpoint *endpoint)
{
    return endpoint->placed >= endpoint->spec.devices_max;
}

static void park_on(struct core *core, struct device *device, struct endpoint *endpoint)
{
    if (!is_full(endpoint) && fit_of(core, device, endpoint) == FIT_YES) {
        core_instance_place(core, device, endpoint);
    }
}

/* All devices, a part at a time: it is not urgent. */
static void park_widely(struct core *core, struct endpoint *endpoint)
{
    uint32_t looks = 0;
    struct device *device = candidate(core, endpoint, DEVICES_ROOMY, true, endpoint->parking_slot);
    while (device != NULL && looks++ < PARKING_LOOKS && !is_full(endpoint)) {
        park_on(core, device, endpoint);
        endpoint->parking_slot = device->slot + 1;
        device = candidate(core, endpoint, DEVICES_ROOMY, true, endpoint->parking_slot);
    }
    endpoint->parking_ns = NEVER_NS;
    if (device == NULL) {
        endpoint->wide_parking = false;
        endpoint->parking_slot = 0;
    } else if (!is_full(endpoint)) {
        endpoint->parking_ns = core_add_u64(core->now_ns, PARKING_PAUSE_NS);
    }
    core_endpoint_note(core, endpoint);
}

static void park(struct core *core, struct endpoint *endpoint)
{
    if (is_full(endpoint)) {
        endpoint->wide_parking = true; /* it has not looked at what is new */
        endpoint->parking_slot = 0;
        return;
    }
    if (endpoint->wide_parking &&
        (endpoint->parking_ns == NEVER_NS || core->now_ns >= endpoint->parking_ns)) {
        park_widely(core, endpoint);
    }
    CANDIDATES (core, endpoint, DEVICES_ROOMY, false, device) {
        park_on(core, device, endpoint);
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
