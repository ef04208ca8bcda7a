/* touch.c: what changed since the last look, and the sets that follow from it: see state.h. */
#include "server/core/state.h"

static void mark(struct set *sets, uint32_t slot)
{
    core_set_put(&sets[TOUCHED], slot, true);
    core_set_put(&sets[NEWS], slot, true);
    core_set_put(&sets[CHANGED], slot, true);
}

/* ---- devices ---- */

static bool device_is_idle(const struct device *device)
{
    return core_device_usable(device) && device->hold == CORE_HOLD_NONE &&
           device->promised == NULL && !device->kept;
}

/* Of an open one. */
static bool device_is_roomy(const struct core *core, const struct device *device)
{
    uint64_t used = core_add_u64(core_device_memory_used(device), core->smallest_bytes);
    return device->instances_removing == 0 && used <= device->memory_bytes;
}

/* Held, and can be taken from its holder, were it only for the device. */
static bool device_comes(const struct core *core, const struct device *device)
{
    return device->hold == CORE_HOLD_HELD && device->promised == NULL &&
           (core_device_rested(core, device) || core->teams_added > 0) &&
           !core_device_moves_used_up(core, device, core->config.moves_per_hour);
}

static bool device_is_movable(const struct core *core, const struct device *device)
{
    return device_comes(core, device) && device->lease->gives && core_device_usable(device) &&
           core_device_rested(core, device);
}

/* Of a held one: whoever serves there could do without it. */
static bool device_is_clear(const struct core *core, const struct device *device)
{
    return device->resting || core_device_clear(core, device);
}

/* In this order are the bits of a device's `sets`. */
static const enum device_set device_sets[] = {DEVICES_KEPT,     DEVICES_MOVING,  DEVICES_PROMISED,
                                              DEVICES_CLEARING, DEVICES_GOING,   DEVICES_AILING,
                                              DEVICES_HOT,      DEVICES_IDLE,    DEVICES_OPEN,
                                              DEVICES_ROOMY,    DEVICES_MOVABLE, DEVICES_CLEAR};

#define DEVICE_SETS_KEPT (sizeof device_sets / sizeof *device_sets)

static uint32_t device_sets_of(const struct core *core, const struct device *device)
{
    bool moving = device->hold != CORE_HOLD_NONE && device->hold != CORE_HOLD_HELD &&
                  device->hold != CORE_HOLD_SUSPENDED;
    bool hot = device->hot_since_ns != NEVER_NS && device->hold == CORE_HOLD_HELD;
    bool open = core_device_is_open(device), movable = device_is_movable(core, device);
    const bool in[DEVICE_SETS_KEPT] = {device->kept,
                                       moving,
                                       device->promised != NULL,
                                       device->instances_removing > 0,
                                       device->going && device->instances_present > 0,
                                       device->ails_since_ns != NEVER_NS || device->drained,
                                       hot,
                                       device_is_idle(device),
                                       open,
                                       open && device_is_roomy(core, device),
                                       movable,
                                       movable && device_is_clear(core, device)};
    uint32_t sets = 0;
    for (uint32_t i = 0; i < DEVICE_SETS_KEPT; i++) {
        sets |= (uint32_t)in[i] << i;
    }
    return sets;
}

/* The set of this name for the device's kind. */
static enum device_set set_for(const struct device *device, enum device_set set)
{
    bool by_kind = set == DEVICES_IDLE || set == DEVICES_OPEN || set == DEVICES_ROOMY ||
                   set == DEVICES_MOVABLE || set == DEVICES_CLEAR;
    return by_kind ? set + device->kind : set;
}

static bool device_is_in(const struct core *core, const struct device *device, enum device_set set)
{
    return core_set_has(&core->device_sets[set_for(device, set)], device->slot);
}

/* See FREE_SHARED and so on. */
static uint32_t device_free(const struct core *core, const struct device *device)
{
    if (!device_is_idle(device) || device->health == CORE_HEALTH_SLOW ||
        device->hot_since_ns != NEVER_NS) {
        return 0;
    }
    bool clear = core_device_clear(core, device);
    return 1 + clear + (clear && device->instances_present == 0);
}

static bool device_is_takeable(const struct device *device)
{
    return device->hold == CORE_HOLD_HELD && device->lease->surplus > 0;
}

static void count(uint32_t *counter, bool *counted, bool counts)
{
    *counter += (uint32_t)counts - (uint32_t)*counted;
    *counted = counts;
}

static void lease_counts(struct core *core, struct lease *lease, enum lease_set set,
                         uint32_t counts[CORE_KINDS_MAX], uint32_t kind, bool more)
{
    counts[kind] += more ? 1 : UINT32_MAX;
    core_set_put(&core->lease_sets[set + kind], lease->slot, counts[kind] > 0);
}

/* With the lease that can be asked for it, or could be until now. */
static void holder_counts(struct core *core, struct device *device)
{
    bool comes = device_comes(core, device);
    bool movable = device_is_in(core, device, DEVICES_MOVABLE);
    bool clear = device_is_in(core, device, DEVICES_CLEAR);
    struct lease *lease = comes ? device->lease : device->counted_for;
    if (lease == NULL) {
        return;
    }
    if (device->counted_movable != movable) {
        lease_counts(core, lease, LEASES_MOVABLE, lease->movable, device->kind, movable);
    }
    if (device->counted_clear != clear) {
        lease_counts(core, lease, LEASES_CLEAR, lease->clear, device->kind, clear);
    }
    count(&lease->coming, &device->counted_coming, comes);
    device->counted_movable = movable;
    device->counted_clear = clear;
    device->counted_for = comes ? lease : NULL;
}

void core_device_touch(struct core *core, struct device *device)
{
    mark(core->device_sets, device->slot);
    uint32_t sets = device_sets_of(core, device);
    for (uint32_t left = sets ^ device->sets; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        enum device_set set = set_for(device, device_sets[i]);
        core_set_put(&core->device_sets[set], device->slot, (sets >> i) & 1);
    }
    device->sets = sets;
    holder_counts(core, device);
    core_groups_count(core, device, device_free(core, device));
    core->usable_news = core->usable_news || device->counted_usable != core_device_usable(device);
    count(&core->usable[device->kind], &device->counted_usable, core_device_usable(device));
    count(&core->takeable[device->kind], &device->counted_takeable, device_is_takeable(device));
    if (device->promised != NULL) {
        mark(core->lease_sets, device->promised->slot); /* what it reaches for is there, or not */
    }
}

void core_device_note(struct core *core, struct device *device)
{
    core_set_put(&core->device_sets[CHANGED], device->slot, true);
}

/* ---- endpoints ---- */

/* Which of its instances may go: none, borrowed ones (1), any (2). */
static uint32_t endpoint_spare(const struct endpoint *endpoint)
{
    uint32_t serving = core_endpoint_serving(endpoint);
    return (serving > endpoint->needed) + (serving - endpoint->borrowed > endpoint->needed);
}

static bool endpoint_is_lacking(const struct endpoint *endpoint)
{
    return endpoint->ready < endpoint->needed;
}

/* Where its instances rest nobody asks whether it can spare them. */
static void hosts_touch(struct core *core, const struct endpoint *endpoint, uint32_t former)
{
    bool any = (endpoint->spare == 2) != (former == 2);
    bool borrowed = (endpoint->spare > 0) != (former > 0);
    SET_EACH (&endpoint->hosts, slot) {
        struct device *device = core->device_slots[slot];
        if (!device->resting && (device->borrowed ? borrowed : any)) {
            core_device_touch(core, device);
        }
    }
}

void core_kept_touch(struct core *core, const struct endpoint *endpoint)
{
    SET_EACH (&core->device_sets[DEVICES_KEPT], slot) {
        if (core->device_slots[slot]->kept_for == endpoint->spec.endpoint) {
            core_device_touch(core, core->device_slots[slot]);
        }
    }
}

/* Those that are promised may have to stay after all, unless all of them together can be spared. */
static void promised_touch(struct core *core, const struct endpoint *endpoint, uint32_t excess)
{
    const struct set *promised = &core->device_sets[DEVICES_PROMISED];
    if (excess >= promised->count) {
        return;
    }
    SET_EACH_IN_BOTH (&endpoint->hosts, promised, slot) {
        core_device_touch(core, core->device_slots[slot]);
    }
}

/* What it needs and what it has decide over all devices where it is. */
void core_endpoint_touch(struct core *core, struct endpoint *endpoint)
{
    mark(core->endpoint_sets, endpoint->slot);
    uint32_t serving = core_endpoint_serving(endpoint) - endpoint->borrowed;
    uint32_t excess = serving > endpoint->needed ? serving - endpoint->needed : 0;
    if (excess < endpoint->excess) {
        promised_touch(core, endpoint, excess);
    }
    endpoint->excess = excess;
    uint32_t former = endpoint->spare;
    endpoint->spare = endpoint_spare(endpoint);
    if (endpoint->spare != former) {
        hosts_touch(core, endpoint, former);
    }
    if (endpoint->lacking != endpoint_is_lacking(endpoint)) {
        endpoint->lacking = !endpoint->lacking;
        core_kept_touch(core, endpoint);
    }
    core_endpoint_note(core, endpoint);
}

void core_endpoint_note(struct core *core, struct endpoint *endpoint)
{
    core_set_put(&core->endpoint_sets[CHANGED], endpoint->slot, true);
    core->demand_milli += endpoint->demand_milli - endpoint->counted_milli;
    endpoint->counted_milli = endpoint->demand_milli;
}

/* ---- leases ---- */

/* Devices that it may have to give. */
static uint32_t lease_surplus(const struct lease *lease)
{
    bool gives = lease->state == CORE_LEASE_RUNNING && lease->spec.preemptible &&
                 lease->held > lease->spec.devices_min;
    return gives ? lease->held - lease->spec.devices_min : 0;
}

static bool lease_gives(const struct core *core, const struct lease *lease)
{
    return lease_surplus(lease) > 0 &&
           core_guard(core, lease, 1, core_rung_for_one(lease), false) == CORE_REASON_NONE;
}

static uint64_t lease_minimum(const struct lease *lease)
{
    bool counts = lease->state == CORE_LEASE_WAITING || lease->state == CORE_LEASE_RUNNING ||
                  lease->state == CORE_LEASE_DRAINING;
    return counts ? lease->spec.devices_min : 0;
}

static bool lease_is_in(const struct lease *lease, enum lease_set set)
{
    switch (set) {
    case LEASES_WAITING:
        return lease->state == CORE_LEASE_WAITING;
    case LEASES_GROWING:
        return core_lease_wants_more(lease);
    case LEASES_GIVING:
        return lease_surplus(lease) > 0;
    case LEASES_RUNNING:
        return lease->state == CORE_LEASE_RUNNING;
    default:
        return true;
    }
}

void core_lease_note(struct core *core, struct lease *lease)
{
    core_set_put(&core->lease_sets[CHANGED], lease->slot, true);
}

/* Its devices become victims, or are none any more. */
void core_lease_touch(struct core *core, struct lease *lease)
{
    mark(core->lease_sets, lease->slot);
    for (enum lease_set set = LEASES_WAITING; set < LEASES_ASKED; set++) {
        core_set_put(&core->lease_sets[set], lease->slot, lease_is_in(lease, set));
    }
    core->lease_minimums += lease_minimum(lease) - lease->counted;
    lease->counted = lease_minimum(lease);
    core_evict_count(lease);
    core_growth_follow(lease);
    bool gave = lease->gives, had = lease->surplus > 0;
    lease->surplus = lease_surplus(lease);
    lease->gives = lease_gives(core, lease);
    if (lease->gives != gave || (lease->surplus > 0) != had) {
        LEASE_DEVICES (lease, device) {
            core_device_touch(core, device);
        }
    }
}

/* ---- all of it ---- */

void core_touch_all(struct core *core)
{
    core_fair_touch(core);
    for (size_t i = 0; i < core->endpoint_count; i++) {
        core->endpoints[i]->wide = true;
        core->endpoints[i]->wide_parking = true;
        core->endpoints[i]->wide_bridging = true;
        core->endpoints[i]->wide_lasting = true;
        core_endpoint_touch(core, core->endpoints[i]);
    }
    for (size_t i = 0; i < core->lease_count; i++) {
        core->leases[i]->waits_for = CORE_REASON_NONE;
        core_lease_touch(core, core->leases[i]);
    }
    for (size_t i = 0; i < core->device_count; i++) {
        core_device_touch(core, core->devices[i]);
    }
}

bool core_is_touched(const struct core *core)
{
    return core->device_sets[TOUCHED].count > 0 || core->endpoint_sets[TOUCHED].count > 0 ||
           core->lease_sets[TOUCHED].count > 0 || core->fair_touched;
}

static void news_begin(struct set *sets)
{
    core_set_copy(&sets[NEWS], &sets[TOUCHED]);
    core_set_clear(&sets[TOUCHED]);
}

void core_news_begin(struct core *core)
{
    news_begin(core->device_sets);
    news_begin(core->endpoint_sets);
    news_begin(core->lease_sets);
    core->fair_news = core->fair_touched;
    core->fair_touched = false;
}

/* ---- proof: NULL, or what is not as it would be after a touch ---- */

static const char *device_check(const struct core *core, const struct device *device)
{
    if (device->timer.at_ns != core_device_due_ns(core, device)) {
        return "the next time of device";
    }
    for (uint32_t i = 0; i < DEVICE_SETS_KEPT; i++) {
        enum device_set set = set_for(device, device_sets[i]);
        if (core_set_has(&core->device_sets[set], device->slot) !=
            ((device_sets_of(core, device) >> i) & 1)) {
            return "a set of device";
        }
    }
    bool right = device->free == device_free(core, device) &&
                 device->counted_usable == core_device_usable(device) &&
                 device->counted_takeable == device_is_takeable(device) &&
                 device->counted_coming == device_comes(core, device) &&
                 device->counted_movable == device_is_in(core, device, DEVICES_MOVABLE) &&
                 device->counted_clear == device_is_in(core, device, DEVICES_CLEAR) &&
                 (!device->counted_coming || device->counted_for == device->lease);
    return right ? NULL : "a count of device";
}

static const char *endpoint_check(const struct core *core, const struct endpoint *endpoint)
{
    if (endpoint->timer.at_ns != core_endpoint_due_ns(core, endpoint)) {
        return "the next time of endpoint";
    }
    bool right = endpoint->spare == endpoint_spare(endpoint) &&
                 endpoint->lacking == endpoint_is_lacking(endpoint) &&
                 endpoint->counted_milli == endpoint->demand_milli;
    return right ? NULL : "a count of endpoint";
}

static const char *lease_check(const struct core *core, const struct lease *lease)
{
    if (lease->timer.at_ns != core_lease_due_ns(core, lease)) {
        return "the next time of lease";
    }
    for (enum lease_set set = LEASES_THERE; set < LEASES_ASKED; set++) {
        if (core_set_has(&core->lease_sets[set], lease->slot) != lease_is_in(lease, set)) {
            return "a set of lease";
        }
    }
    bool right = lease->surplus == lease_surplus(lease) &&
                 lease->gives == lease_gives(core, lease) &&
                 lease->counted == lease_minimum(lease) && core_evict_is_counted(lease) &&
                 core_growth_is_followed(lease);
    return right ? NULL : "a count of lease";
}

const char *core_index_check(const struct core *core, uint64_t *ret_id)
{
    const char *wrong = NULL;
    for (size_t i = 0; i < core->device_count && wrong == NULL; i++) {
        *ret_id = core->devices[i]->id;
        wrong = device_check(core, core->devices[i]);
    }
    for (size_t i = 0; i < core->endpoint_count && wrong == NULL; i++) {
        *ret_id = core->endpoints[i]->spec.endpoint;
        wrong = endpoint_check(core, core->endpoints[i]);
    }
    for (size_t i = 0; i < core->lease_count && wrong == NULL; i++) {
        *ret_id = core->leases[i]->spec.lease;
        wrong = lease_check(core, core->leases[i]);
    }
    return wrong;
}
