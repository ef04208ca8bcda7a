/* gang.c: which devices a waiting lease would get: its promised ones, then idle ones, then what
 * elastic leases hold above their minimum. All or nothing: see queue.c. */
#include "server/core/state.h"

#define SCORE_NONE UINT32_MAX

bool core_device_must_empty(const struct device *device, const struct lease *lease)
{
    bool shares = lease->spec.in_process || core_lease_can_stop(lease);
    return !shares || device->instances_bytes + lease->spec.memory_bytes > device->memory_bytes;
}

bool core_device_empty(struct core *core, struct device *device)
{
    DEVICE_ENDPOINTS (core, device, endpoint) {
        core_instance_remove(core, device, endpoint);
    }
    return device->instances_present == 0;
}

/* Whatever serves there goes on. */
bool core_lease_lets_serve(const struct device *device, const struct lease *lease)
{
    return lease->spec.in_process && !core_device_must_empty(device, lease);
}

static bool suits(const struct core *core, const struct device *device, const struct lease *lease)
{
    return core_device_usable(device) && ((lease->spec.kinds_mask >> device->kind) & 1) &&
           lease->spec.memory_bytes <= device->memory_bytes &&
           (lease->spec.in_process || device->hot_since_ns == NEVER_NS) &&
           (core_lease_lets_serve(device, lease) || core_device_spare(core, device));
}

static bool is_picked(const struct core *core, const struct device *device)
{
    return core_set_has(&core->device_sets[DEVICES_PICKED], device->slot);
}

static void pick(struct core *core, struct device *device, const struct lease *lease)
{
    core_set_put(&core->device_sets[DEVICES_PICKED], device->slot, true);
    if (device->lease != NULL && device->hold == CORE_HOLD_HELD) {
        device->lease->picked++;
    }
    DEVICE_ENDPOINTS (core, device, endpoint) {
        endpoint->taken += !core_lease_lets_serve(device, lease) && !device->resting &&
                           core_instance_serves(core_instance_of(device, endpoint));
    }
}

void core_gang_unpick_endpoints(struct core *core)
{
    for (size_t i = 0; i < core->endpoint_count; i++) {
        core->endpoints[i]->taken = 0;
    }
}

void core_gang_unpick(struct core *core)
{
    core_gang_unpick_endpoints(core);
    SET_EACH (&core->device_sets[DEVICES_PICKED], slot) {
        const struct device *device = core->device_slots[slot];
        if (device->lease != NULL) {
            device->lease->picked = 0;
        }
    }
    core_set_clear(&core->device_sets[DEVICES_PICKED]);
}

/* ---- promised to it, also those still on their way ---- */

static uint32_t pick_promised(struct core *core, const struct lease *lease, uint32_t wanted)
{
    uint32_t picked = 0;
    for (struct device *device = lease->promises; device != NULL && picked < wanted;
         device = device->promised_next) {
        if (suits(core, device, lease)) {
            pick(core, device, lease);
            picked++;
        }
    }
    return picked;
}

/* ---- idle ---- */

/* Lower is taken first: healthy and not busy serving before others. */
static uint32_t idle_score(const struct device *device, const struct lease *lease)
{
    uint32_t slow = device->health == CORE_HEALTH_SLOW;
    uint32_t hot = device->hot_since_ns != NEVER_NS;
    uint32_t emptying = core_device_must_empty(device, lease) && device->instances_present > 0;
    return slow * 4 + hot * 2 + emptying;
}

static struct device *find_idle(const struct core *core, const struct lease *lease)
{
    struct device *best = NULL;
    uint32_t best_score = SCORE_NONE;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        if (((lease->spec.kinds_mask >> kind) & 1) == 0) {
            continue;
        }
        SET_EACH (&core->device_sets[DEVICES_IDLE + kind], slot) {
            struct device *device = core->device_slots[slot];
            uint32_t score = is_picked(core, device) || !suits(core, device, lease)
                                 ? SCORE_NONE
                                 : idle_score(device, lease);
            if (score < best_score || (score == best_score && best != NULL && slot < best->slot)) {
                best = device;
                best_score = score;
            }
        }
    }
    return best;
}

/* ---- held above a minimum ---- */

static bool is_victim(const struct core *core, const struct device *device,
                      const struct lease *lease)
{
    const struct lease *victim = device->lease;
    return device->hold == CORE_HOLD_HELD && device->promised == NULL && !is_picked(core, device) &&
           suits(core, device, lease) && core_device_rested(core, device) &&
           victim->held > victim->spec.devices_min + victim->picked &&
           core_guard(core, victim, victim->picked + 1, CORE_RUNG_SHRINK, false) ==
               CORE_REASON_NONE &&
           core_device_moves(core, device) < core->config.moves_per_hour;
}

static bool victim_before(const struct core *core, const struct device *a, const struct device *b)
{
    const struct lease *left = a->lease, *right = b->lease;
    if (left->spec.priority != right->spec.priority) {
        return left->spec.priority < right->spec.priority;
    }
    uint64_t left_cost = core_victim_cost(core, a), right_cost = core_victim_cost(core, b);
    if (left_cost != right_cost) {
        return left_cost < right_cost;
    }
    uint32_t left_above = left->held - left->spec.devices_min - left->picked;
    uint32_t right_above = right->held - right->spec.devices_min - right->picked;
    return left_above != right_above ? left_above > right_above : a->slot < b->slot;
}

static struct device *victim_of(const struct core *core, const struct lease *victim,
                                const struct lease *lease)
{
    LEASE_DEVICES (victim, device) {
        if (is_victim(core, device, lease)) {
            return device;
        }
    }
    return NULL;
}

/* What it costs does not depend on which of a lease's devices goes: the first that can is it. */
static struct device *find_victim(const struct core *core, const struct lease *lease)
{
    struct device *best = NULL;
    SET_EACH (&core->lease_sets[LEASES_GIVING], slot) {
        struct device *device = victim_of(core, core->lease_slots[slot], lease);
        if (device != NULL && (best == NULL || victim_before(core, device, best))) {
            best = device;
        }
    }
    return best;
}

/* No more than these can be found, whatever else is asked of a device. */
static bool enough_at_most(const struct core *core, const struct lease *lease)
{
    uint32_t most = lease->promised;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        bool asked = (lease->spec.kinds_mask >> kind) & 1;
        most += asked ? core->device_sets[DEVICES_IDLE + kind].count + core->takeable[kind] : 0;
    }
    return most >= lease->spec.devices_min;
}

bool core_gang_pick(struct core *core, struct lease *lease)
{
    if (!enough_at_most(core, lease)) {
        return false;
    }
    uint32_t picked = pick_promised(core, lease, lease->spec.devices_min);
    while (picked < lease->spec.devices_min) {
        struct device *device = find_idle(core, lease);
        if (device == NULL) {
            device = find_victim(core, lease);
        }
        if (device == NULL) {
            return false;
        }
        pick(core, device, lease);
        picked++;
    }
    return true;
}
