/* gang.c: which devices a waiting lease would get: its promised ones, then idle ones, then what
 * elastic leases hold above their minimum. All or nothing: see queue.c.
 * Idle ones are sought close together: in the smallest group (groups.c) that has as many of the
 * kind that suits the work best; only where there is no such group, from anywhere. */
#include <stdlib.h>

#include "server/core/state.h"

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

static void pick_count(struct core *core, struct device *device, const struct lease *lease,
                       bool picked)
{
    uint32_t step = picked ? 1 : UINT32_MAX;
    core_set_put(&core->device_sets[DEVICES_PICKED], device->slot, picked);
    if (device->lease != NULL && device->hold == CORE_HOLD_HELD) {
        device->lease->picked += step;
    }
    if (core_lease_lets_serve(device, lease) || device->resting) {
        return;
    }
    DEVICE_ENDPOINTS (core, device, endpoint) {
        bool serves = core_instance_serves(core_instance_of(device, endpoint));
        endpoint->taken += serves ? step : 0;
    }
}

void core_gang_unpick_endpoints(struct core *core)
{
    SET_EACH (&core->device_sets[DEVICES_PICKED], slot) {
        DEVICE_ENDPOINTS (core, core->device_slots[slot], endpoint) {
            endpoint->taken = 0;
        }
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
            pick_count(core, device, lease, true);
            picked++;
        }
    }
    return picked;
}

/* ---- idle ---- */

static void found_count(const struct device *device, uint32_t step)
{
    for (int level = 0; level < GROUP_LEVELS; level++) {
        if (device->group[level] != NULL) {
            device->group[level]->found += step;
        }
    }
}

static uint32_t found_beside(const struct device *device, int level)
{
    return device->group[level] != NULL ? device->group[level]->found : 0;
}

/* Lower is better: healthy, not busy serving, nothing to be removed. */
static uint64_t idle_cost(const struct device *device, const struct lease *lease)
{
    uint64_t slow = device->health == CORE_HEALTH_SLOW;
    uint64_t hot = device->hot_since_ns != NEVER_NS;
    uint64_t emptying = core_device_must_empty(device, lease) && device->instances_present > 0;
    return slow * 4 + hot * 2 + emptying;
}

/* The kind that suits the work, then whole groups, then the better device. */
static int candidate_compare(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->affinity != b->affinity) {
        return a->affinity > b->affinity ? -1 : 1;
    }
    for (int level = GROUP_LEVELS; level-- > 0;) {
        uint32_t of_a = found_beside(a->device, level), of_b = found_beside(b->device, level);
        if (of_a != of_b) {
            return of_a > of_b ? -1 : 1;
        }
        const struct group *group_a = a->device->group[level], *group_b = b->device->group[level];
        if (group_a != group_b && group_a != NULL && group_b != NULL) {
            return group_a->id < group_b->id ? -1 : 1;
        }
    }
    if (a->cost != b->cost) {
        return a->cost < b->cost ? -1 : 1;
    }
    return a->device->slot < b->device->slot ? -1 : 1;
}

static size_t candidate_add(struct core *core, struct device *device, const struct lease *lease,
                            size_t count)
{
    if (is_picked(core, device) || !suits(core, device, lease)) {
        return count;
    }
    core->candidates[count] = (struct candidate){.device = device,
                                                 .cost = idle_cost(device, lease),
                                                 .affinity = lease->affinity[device->kind]};
    return count + 1;
}

/* Picks up to `wanted` of the candidates in their order. Each makes the next ones' instances there
 * more needed, so each is asked again. */
static uint32_t candidates_pick(struct core *core, const struct lease *lease, size_t count,
                                uint32_t wanted)
{
    uint32_t picked = 0;
    for (size_t i = 0; i < count; i++) {
        found_count(core->candidates[i].device, 1);
    }
    if (count > 1) {
        qsort(core->candidates, count, sizeof *core->candidates, candidate_compare);
    }
    for (size_t i = 0; i < count; i++) {
        struct device *device = core->candidates[i].device;
        if (picked < wanted && suits(core, device, lease)) {
            pick_count(core, device, lease, true);
            picked++;
        }
        found_count(device, UINT32_MAX);
    }
    return picked;
}

static int level_of(const struct core *core, const struct group *group)
{
    return core_group_get(&core->nodes, group->id) == group ? NODES : LINKS;
}

/* All of them or none. */
static bool pick_in_group(struct core *core, const struct lease *lease, struct group *group,
                          uint32_t kinds_mask, uint32_t wanted)
{
    size_t count = 0;
    int level = level_of(core, group);
    for (struct device *device = group->first; device != NULL; device = device->group_next[level]) {
        if (device->free > 0 && ((kinds_mask >> device->kind) & 1)) {
            count = candidate_add(core, device, lease, count);
        }
    }
    if (count >= wanted && candidates_pick(core, lease, count, wanted) == wanted) {
        return true;
    }
    for (size_t i = 0; i < count && count >= wanted; i++) {
        if (is_picked(core, core->candidates[i].device)) {
            pick_count(core, core->candidates[i].device, lease, false);
        }
    }
    group->tried = true;
    core->groups_tried = true;
    return false;
}

/* In one group, of these kinds and as free as that. */
static bool pick_close(struct core *core, const struct lease *lease, uint32_t count,
                       uint32_t kinds_mask, uint32_t wanted)
{
    bool picked = false;
    struct group *group = core_group_find(core, count, kinds_mask, wanted);
    while (group != NULL && !picked) {
        picked = pick_in_group(core, lease, group, kinds_mask, wanted);
        group = picked ? NULL : core_group_find(core, count, kinds_mask, wanted);
    }
    core_groups_forget_tried(core);
    return picked;
}

/* The kinds of its mask in the order of what suits it; those that suit as well come together. */
static uint32_t next_kinds(const struct core *core, const struct lease *lease, uint32_t done)
{
    uint32_t kinds = 0, best = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        bool asked = (lease->spec.kinds_mask & ~done) >> kind & 1;
        if (!asked || core->matching[kind] == 0 || lease->affinity[kind] < best) {
            continue;
        }
        kinds = lease->affinity[kind] > best ? 0 : kinds;
        kinds |= 1u << kind;
        best = lease->affinity[kind];
    }
    return kinds;
}

static uint32_t free_of(const struct core *core, uint32_t count, uint32_t kinds_mask)
{
    uint32_t found = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        found += (kinds_mask >> kind) & 1 ? core->free[count][kind] : 0;
    }
    return found;
}

/* One kind at a time: a gang is as fast as its slowest device. */
static bool pick_together(struct core *core, const struct lease *lease, uint32_t wanted)
{
    uint32_t least = lease->spec.in_process ? FREE_SHARED : FREE_CLEAR, done = 0;
    for (uint32_t kinds = next_kinds(core, lease, 0); kinds != 0;
         kinds = next_kinds(core, lease, done)) {
        done |= kinds;
        for (uint32_t count = FREES; count-- > least;) {
            for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
                uint32_t mask = kinds & 1u << kind;
                if (mask != 0 && free_of(core, count, mask) >= wanted &&
                    pick_close(core, lease, count, mask, wanted)) {
                    return true;
                }
            }
        }
    }
    return false;
}

static uint32_t pick_anywhere(struct core *core, const struct lease *lease, uint32_t wanted)
{
    size_t count = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        if (((lease->spec.kinds_mask >> kind) & 1) == 0) {
            continue;
        }
        SET_EACH (&core->device_sets[DEVICES_IDLE + kind], slot) {
            count = candidate_add(core, core->device_slots[slot], lease, count);
        }
    }
    return candidates_pick(core, lease, count, wanted);
}

/* ---- held above a minimum ---- */

static bool is_victim(const struct core *core, const struct device *device,
                      const struct lease *lease)
{
    return device->hold == CORE_HOLD_HELD && device->promised == NULL && !is_picked(core, device) &&
           suits(core, device, lease) && core_device_rested(core, device) &&
           core_device_moves(core, device) < core->config.moves_per_hour;
}

static bool victim_before(const struct candidate *a, const struct candidate *b)
{
    int32_t left = a->device->lease->spec.priority, right = b->device->lease->spec.priority;
    if (left != right) {
        return left < right;
    }
    if (a->cost != b->cost) {
        return a->cost < b->cost;
    }
    return a->above != b->above ? a->above > b->above : a->device->slot < b->device->slot;
}

/* The best victim is at the top. */
static void heap_sink(struct candidate *heap, size_t at, size_t count)
{
    struct candidate sinking = heap[at];
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && victim_before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!victim_before(&heap[child], &sinking)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = sinking;
}

static size_t heap_make(struct core *core)
{
    size_t count = 0;
    SET_EACH (&core->lease_sets[LEASES_GIVING], slot) {
        const struct lease *victim = core->lease_slots[slot];
        core->candidates[count++] = (struct candidate){
            .device = victim->first,
            .cost = core_victim_cost(core, victim->first),
            .above = victim->surplus,
        };
    }
    for (size_t at = count / 2; at-- > 0;) {
        heap_sink(core->candidates, at, count);
    }
    return count;
}

/* The next device of the victim that can go, if it has to give one more at all. */
static struct device *victim_next(const struct core *core, const struct candidate *victim,
                                  const struct lease *lease)
{
    const struct lease *giver = victim->device->lease;
    uint32_t given = giver->surplus - victim->above + 1;
    if (core_guard(core, giver, given, CORE_RUNG_SHRINK, false) != CORE_REASON_NONE) {
        return NULL;
    }
    struct device *device = victim->device;
    while (device != NULL && !is_victim(core, device, lease)) {
        device = device->next;
    }
    return device;
}

/* One device at a time, always from whom it costs least. Returns how many are lacking then. */
static uint32_t pick_victims(struct core *core, const struct lease *lease, uint32_t wanted)
{
    struct candidate *heap = core->candidates;
    for (size_t count = heap_make(core); wanted > 0 && count > 0;) {
        struct device *device = victim_next(core, &heap[0], lease);
        if (device != NULL) {
            pick_count(core, device, lease, true);
            wanted--;
        }
        if (device == NULL || device->next == NULL || --heap[0].above == 0) {
            heap[0] = heap[--count];
        } else {
            heap[0].device = device->next;
        }
        if (count > 0) {
            heap_sink(heap, 0, count);
        }
    }
    return wanted;
}

/* ---- all of it ---- */

/* No more than these can be found, whatever else is asked of a device. */
static uint32_t at_most(const struct core *core, const struct lease *lease)
{
    uint32_t most = lease->promised;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        bool asked = (lease->spec.kinds_mask >> kind) & 1;
        most += asked ? core->device_sets[DEVICES_IDLE + kind].count + core->takeable[kind] : 0;
    }
    return most;
}

uint32_t core_gang_pick(struct core *core, struct lease *lease)
{
    uint32_t wanted = lease->spec.devices_min, most = at_most(core, lease);
    if (most < wanted) {
        return wanted - most;
    }
    wanted -= pick_promised(core, lease, wanted);
    if (wanted == 0 || pick_together(core, lease, wanted)) {
        return 0;
    }
    wanted -= pick_anywhere(core, lease, wanted);
    return wanted == 0 ? 0 : pick_victims(core, lease, wanted);
}
