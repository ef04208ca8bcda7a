/* gang.c: which devices a waiting lease would get: its promised ones, then idle ones, then what
 * elastic leases hold above their minimum, then those of leases that must go (evict.c). All or
 * nothing: see queue.c.
 * Idle ones are sought close together: in the smallest group (groups.c) that has as many of the
 * kind that suits the work best; only where there is no such group, from anywhere. */
#include <stdlib.h>

#include "server/core/state.h"

/* A minimum that is being gathered. */
struct gathering {
    const struct lease *lease;
    bool within;                   /* the quota of its team */
    uint32_t wanted;               /* devices more */
    uint32_t left[CORE_KINDS_MAX]; /* of each kind that it may still have */
};

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

bool core_device_suits(const struct core *core, const struct device *device,
                       const struct lease *lease)
{
    return core_device_usable(device) && ((lease->spec.kinds_mask >> device->kind) & 1) &&
           lease->spec.memory_bytes <= device->memory_bytes &&
           core_device_lasts(core, device, lease) &&
           (lease->spec.in_process || device->hot_since_ns == NEVER_NS) &&
           (core_lease_lets_serve(device, lease) || core_device_spare(core, device));
}

static bool is_picked(const struct core *core, const struct device *device)
{
    return core_set_has(&core->device_sets[DEVICES_PICKED], device->slot);
}

static bool suits(const struct core *core, const struct device *device,
                  const struct gathering *gathering)
{
    return gathering->left[device->kind] > 0 && core_device_suits(core, device, gathering->lease);
}

static void pick_count(struct core *core, struct device *device, struct gathering *gathering,
                       bool picked)
{
    uint32_t step = picked ? 1 : UINT32_MAX;
    core_set_put(&core->device_sets[DEVICES_PICKED], device->slot, picked);
    gathering->wanted -= step;
    gathering->left[device->kind] -= step;
    if (device->lease != NULL && device->hold == CORE_HOLD_HELD) {
        device->lease->picked += step;
        device->lease->team->picked[device->kind] += step;
    }
    if (core_lease_lets_serve(device, gathering->lease) || device->resting) {
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
    core_evict_forget(core);
    SET_EACH (&core->device_sets[DEVICES_PICKED], slot) {
        const struct device *device = core->device_slots[slot];
        if (device->lease != NULL) {
            device->lease->picked = 0;
            device->lease->team->picked[device->kind] = 0;
        }
    }
    core_set_clear(&core->device_sets[DEVICES_PICKED]);
}

/* ---- promised to it, also those still on their way ---- */

static void pick_promised(struct core *core, struct gathering *gathering)
{
    for (struct device *device = gathering->lease->promises;
         device != NULL && gathering->wanted > 0; device = device->promised_next) {
        if (suits(core, device, gathering)) {
            pick_count(core, device, gathering, true);
        }
    }
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

static size_t candidate_add(struct core *core, struct device *device,
                            const struct gathering *gathering, size_t count)
{
    const struct lease *lease = gathering->lease;
    if (is_picked(core, device) || !suits(core, device, gathering)) {
        return count;
    }
    core->candidates[count] = (struct candidate){.device = device,
                                                 .cost = idle_cost(device, lease),
                                                 .affinity = lease->affinity[device->kind]};
    return count + 1;
}

/* Picks what is wanted of the candidates, in their order. Each makes the next ones' instances there
 * more needed, so each is asked again. */
static void candidates_pick(struct core *core, struct gathering *gathering, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        found_count(core->candidates[i].device, 1);
    }
    if (count > 1) {
        qsort(core->candidates, count, sizeof *core->candidates, candidate_compare);
    }
    for (size_t i = 0; i < count; i++) {
        struct device *device = core->candidates[i].device;
        if (gathering->wanted > 0 && suits(core, device, gathering)) {
            pick_count(core, device, gathering, true);
        }
        found_count(device, UINT32_MAX);
    }
}

static int level_of(const struct core *core, const struct group *group)
{
    return core_group_get(&core->nodes, group->id) == group ? NODES : LINKS;
}

/* All of them or none. */
static bool pick_in_group(struct core *core, struct gathering *gathering, struct group *group,
                          uint32_t kinds_mask)
{
    size_t count = 0;
    uint32_t wanted = gathering->wanted;
    int level = level_of(core, group);
    for (struct device *device = group->first; device != NULL; device = device->group_next[level]) {
        if (device->free > 0 && ((kinds_mask >> device->kind) & 1)) {
            count = candidate_add(core, device, gathering, count);
        }
    }
    if (count >= wanted) {
        candidates_pick(core, gathering, count);
    }
    for (size_t i = 0; i < count && count >= wanted && gathering->wanted > 0; i++) {
        if (is_picked(core, core->candidates[i].device)) {
            pick_count(core, core->candidates[i].device, gathering, false);
        }
    }
    group->tried = gathering->wanted > 0;
    core->groups_tried = core->groups_tried || group->tried;
    return !group->tried;
}

/* In one group, of these kinds and as free as that. */
static bool pick_close(struct core *core, struct gathering *gathering, uint32_t count,
                       uint32_t kinds_mask)
{
    bool picked = false;
    struct group *group = core_group_find(core, count, kinds_mask, gathering->wanted);
    while (group != NULL && !picked) {
        picked = pick_in_group(core, gathering, group, kinds_mask);
        group = picked ? NULL : core_group_find(core, count, kinds_mask, gathering->wanted);
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
static bool pick_together(struct core *core, struct gathering *gathering)
{
    const struct lease *lease = gathering->lease;
    uint32_t least = lease->spec.in_process ? FREE_SHARED : FREE_CLEAR, done = 0;
    for (uint32_t kinds = next_kinds(core, lease, 0); kinds != 0;
         kinds = next_kinds(core, lease, done)) {
        done |= kinds;
        for (uint32_t count = FREES; count-- > least;) {
            for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
                uint32_t mask = kinds & 1u << kind;
                if (mask != 0 && gathering->left[kind] >= gathering->wanted &&
                    free_of(core, count, mask) >= gathering->wanted &&
                    pick_close(core, gathering, count, mask)) {
                    return true;
                }
            }
        }
    }
    return false;
}

static void pick_anywhere(struct core *core, struct gathering *gathering)
{
    size_t count = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        if (((gathering->lease->spec.kinds_mask >> kind) & 1) == 0 || gathering->left[kind] == 0) {
            continue;
        }
        SET_EACH (&core->device_sets[DEVICES_IDLE + kind], slot) {
            count = candidate_add(core, core->device_slots[slot], gathering, count);
        }
    }
    candidates_pick(core, gathering, count);
}

/* ---- held above a minimum ---- */

/* What was lent comes back without a rest. */
bool core_may_move_for(const struct core *core, const struct device *device,
                       const struct lease *lease, bool within)
{
    bool lent = within && device->lease->team != lease->team;
    return device->hold == CORE_HOLD_HELD && device->promised == NULL &&
           (lent || core_device_rested(core, device)) &&
           !core_device_moves_used_up(core, device, core->config.moves_per_hour);
}

static bool victim_before(const struct candidate *a, const struct candidate *b)
{
    int order = core_fair_compare(&a->giver, &b->giver);
    if (order != 0) {
        return order < 0;
    }
    if (a->cost != b->cost) {
        return a->cost < b->cost;
    }
    return a->above != b->above ? a->above > b->above : a->device->slot < b->device->slot;
}

struct candidate core_candidate_of(const struct core *core, struct device *device)
{
    return (struct candidate){.device = device,
                              .cost = core_victim_cost(core, device),
                              .giver = core_fair_giver(device->lease),
                              .above = device->lease->surplus};
}

bool core_surplus_before(const struct core *core, struct device *a, struct device *b)
{
    struct candidate left = core_candidate_of(core, a), right = core_candidate_of(core, b);
    return victim_before(&left, &right);
}

void core_candidates_sink(struct candidate *heap, size_t at, size_t count,
                          bool (*goes_before)(const struct candidate *, const struct candidate *))
{
    struct candidate sinking = heap[at];
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && goes_before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!goes_before(&heap[child], &sinking)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = sinking;
}

/* What could come from holders now, as far as sets tell; one that shares its devices with serving
 * may have what serving needs. */
static enum device_set movable_for(const struct lease *lease)
{
    return lease->spec.in_process ? DEVICES_MOVABLE : DEVICES_CLEAR;
}

/* Who has a device that may go now. What was lent comes back without a rest. */
static const struct set *givers_of(struct core *core, const struct gathering *gathering)
{
    const struct lease *lease = gathering->lease;
    enum lease_set set = lease->spec.in_process ? LEASES_MOVABLE : LEASES_CLEAR;
    struct set *givers = &core->lease_sets[LEASES_VICTIMS];
    if (gathering->within) {
        return &core->lease_sets[LEASES_GIVING];
    }
    core_set_clear(givers);
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        if ((lease->spec.kinds_mask >> kind) & 1) {
            core_set_join(givers, &core->lease_sets[set + kind]);
        }
    }
    return givers;
}

static size_t victims_gather(struct core *core, const struct gathering *gathering)
{
    size_t count = 0;
    const struct set *givers = givers_of(core, gathering);
    SET_EACH (givers, slot) {
        core->candidates[count++] = core_candidate_of(core, core->lease_slots[slot]->first);
    }
    for (size_t at = count / 2; at-- > 0;) {
        core_candidates_sink(core->candidates, at, count, victim_before);
    }
    return count;
}

/* With every device that a team gives it has less of a claim to keep the next. */
static bool is_victim(const struct core *core, const struct device *device,
                      const struct gathering *gathering)
{
    const struct lease *lease = gathering->lease;
    uint32_t more = lease->spec.devices_min - lease->promised;
    return core_may_move_for(core, device, lease, gathering->within) && !is_picked(core, device) &&
           suits(core, device, gathering) &&
           core_fair_may_take(core, lease, more, gathering->within, device->lease, device->kind);
}

/* The next device of the victim that can go, if it has to give one more at all. */
static struct device *victim_next(const struct core *core, const struct candidate *victim,
                                  const struct gathering *gathering)
{
    const struct lease *giver = victim->device->lease;
    uint32_t given = giver->surplus - victim->above + 1;
    if (core_guard(core, giver, given, core_rung_for_one(giver), false) != CORE_REASON_NONE) {
        return NULL;
    }
    struct device *device = victim->device;
    while (device != NULL && !is_victim(core, device, gathering)) {
        device = device->next;
    }
    return device;
}

/* One device at a time, always from whom it costs least. */
static void pick_victims(struct core *core, struct gathering *gathering)
{
    struct candidate *heap = core->candidates;
    for (size_t count = victims_gather(core, gathering); gathering->wanted > 0 && count > 0;) {
        struct device *device = victim_next(core, &heap[0], gathering);
        if (device != NULL) {
            pick_count(core, device, gathering, true);
        }
        if (device == NULL || device->next == NULL || --heap[0].above == 0) {
            heap[0] = heap[--count];
        } else {
            heap[0].device = device->next;
        }
        if (count > 0) {
            core_candidates_sink(heap, 0, count, victim_before);
        }
    }
}

/* ---- of leases that must go ---- */

static void pick_evicted(struct core *core, struct gathering *gathering)
{
    for (struct lease *lease = core->evicted; lease != NULL; lease = lease->evicted_next) {
        LEASE_DEVICES (lease, device) {
            if (gathering->wanted > 0 && !is_picked(core, device) &&
                suits(core, device, gathering) &&
                core_may_move_for(core, device, gathering->lease, gathering->within)) {
                pick_count(core, device, gathering, true);
            }
        }
    }
}

/* ---- all of it ---- */

static struct gathering gathering_of(const struct core *core, const struct lease *lease,
                                     bool within)
{
    struct gathering gathering = {
        .lease = lease, .within = within, .wanted = lease->spec.devices_min};
    if (within || core_fair_is_bound(core, lease)) {
        core_fair_limits(lease, gathering.left);
        return gathering;
    }
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        gathering.left[kind] = UINT32_MAX;
    }
    return gathering;
}

/* No more than these can be found, whatever else is asked of a device. */
static uint32_t at_most(const struct core *core, const struct lease *lease, bool within)
{
    uint32_t most = lease->promised;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        bool asked = (lease->spec.kinds_mask >> kind) & 1;
        uint32_t held =
            within ? core->takeable[kind] : core->device_sets[movable_for(lease) + kind].count;
        most += asked ? core->device_sets[DEVICES_IDLE + kind].count + held : 0;
    }
    return most;
}

static uint32_t evict_and_pick(struct core *core, struct gathering *gathering)
{
    uint32_t lacking = core_evict_choose(core, gathering->lease, gathering->within,
                                         gathering->wanted, gathering->left);
    if (lacking > 0) {
        return lacking;
    }
    pick_evicted(core, gathering);
    return gathering->wanted;
}

uint32_t core_gang_pick(struct core *core, struct lease *lease, bool within)
{
    struct gathering gathering = gathering_of(core, lease, within);
    uint32_t most = at_most(core, lease, within);
    uint32_t evicted_most = core_evict_most(core, lease);
    most += evicted_most;
    if (most < gathering.wanted) {
        return gathering.wanted - most;
    }
    pick_promised(core, &gathering);
    if (gathering.wanted > 0 && !pick_together(core, &gathering)) {
        pick_anywhere(core, &gathering);
    }
    if (gathering.wanted > 0) {
        pick_victims(core, &gathering);
    }
    return gathering.wanted > 0 && evicted_most > 0 ? evict_and_pick(core, &gathering)
                                                    : gathering.wanted;
}
