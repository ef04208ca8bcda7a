/* evict.c: whole leases that must go for another: for a more urgent one of their own team, or
 * because their team has what another lent it and wants back. Each has its full notice; as few and
 * as cheap ones as will do; none at all if they will not do. Who had waited for its turn keeps it:
 * its age at the start counts as urgency, that of who waits does not. */
#include <string.h>

#include "server/core/state.h"

/* Urgencies beyond these are counted as the last ones. */
static size_t bucket_of(int64_t urgency)
{
    const int64_t half = URGENCIES / 2;
    return (size_t)(urgency < -half ? 0 : urgency >= half ? URGENCIES - 1 : urgency + half);
}

static uint32_t revocable_of(const struct lease *lease)
{
    return lease->state == CORE_LEASE_RUNNING && lease->spec.preemptible ? lease->held : 0;
}

void core_evict_count(struct lease *lease)
{
    uint32_t *revocable = lease->team->revocable;
    revocable[lease->revocable_bucket] -= lease->revocable;
    lease->revocable = revocable_of(lease);
    lease->revocable_bucket = (uint32_t)bucket_of(lease->urgency);
    revocable[lease->revocable_bucket] += lease->revocable;
}

bool core_evict_is_counted(const struct lease *lease)
{
    return lease->revocable == revocable_of(lease) &&
           (lease->revocable == 0 || lease->revocable_bucket == bucket_of(lease->urgency));
}

uint32_t core_evict_most(const struct core *core, const struct lease *taker)
{
    uint32_t most = 0;
    if ((core->lent & taker->spec.kinds_mask) != 0) {
        return (uint32_t)core->device_count;
    }
    for (size_t bucket = 0; bucket <= bucket_of((int64_t)taker->spec.priority - 1); bucket++) {
        most += taker->team->revocable[bucket];
    }
    return most;
}

/* Devices of it that the taker could use, up to what it may have of each kind. */
static uint32_t useful_devices(const struct core *core, const struct lease *lease,
                               const struct lease *taker, bool within,
                               uint32_t limits[CORE_KINDS_MAX])
{
    uint32_t useful = 0;
    LEASE_DEVICES (lease, device) {
        if (limits[device->kind] > 0 &&
            !core_set_has(&core->device_sets[DEVICES_PICKED], device->slot) &&
            core_may_move_for(core, device, taker, within) &&
            core_device_suits(core, device, taker)) {
            limits[device->kind]--;
            useful++;
        }
    }
    return useful;
}

static bool has_borrowed(const struct lease *lease, uint32_t kinds_mask)
{
    for (const struct device *device = lease->first; device != NULL; device = device->next) {
        if (((kinds_mask >> device->kind) & 1) && core_fair_borrows(lease->team, device->kind)) {
            return true;
        }
    }
    return false;
}

/* They all move, or none. */
static bool may_move_whole(const struct core *core, const struct lease *lease,
                           const struct lease *taker, bool within)
{
    const struct device *device = lease->first;
    while (device != NULL && core_may_move_for(core, device, taker, within)) {
        device = device->next;
    }
    return device == NULL;
}

/* For a minimum, or for growth by no more than `size_max`. */
static bool may_evict(const struct core *core, const struct lease *lease, const struct lease *taker,
                      bool within, uint32_t size_max)
{
    bool waits = taker->state == CORE_LEASE_WAITING, own = lease->team == taker->team;
    if (lease->held == 0 || lease == taker || lease->leaving > 0 || lease->coming < lease->held ||
        (lease->spec.kinds_mask & taker->spec.kinds_mask) == 0) {
        return false;
    }
    if (own ? !waits || lease->urgency >= taker->spec.priority
            : !within || (!waits && lease->held > size_max) ||
                  !has_borrowed(lease, taker->spec.kinds_mask)) {
        return false;
    }
    enum core_rung rung = core_rung_for_all(lease);
    return core_guard(core, lease, lease->held, rung, false) == CORE_REASON_NONE &&
           may_move_whole(core, lease, taker, within);
}

static bool goes_before(const struct candidate *a, const struct candidate *b)
{
    const struct lease *left = a->device->lease, *right = b->device->lease;
    int order = core_fair_compare(&a->giver, &b->giver);
    if (order != 0) {
        return order < 0;
    }
    if (a->cost != b->cost) {
        return a->cost < b->cost;
    }
    if (left->checkpoint_ns != right->checkpoint_ns) { /* the fresher has less to save, or lose */
        return left->checkpoint_ns > right->checkpoint_ns;
    }
    return left->sequence > right->sequence;
}

/* Into a heap. Returns how many devices they have together. */
static uint32_t leases_gather(struct core *core, const struct lease *taker, bool within,
                              uint32_t size_max, size_t *ret_count)
{
    struct candidate *heap = core->candidates;
    uint32_t devices = 0;
    size_t count = 0;
    SET_EACH (&core->lease_sets[LEASES_RUNNING], slot) {
        const struct lease *lease = core->lease_slots[slot];
        if (may_evict(core, lease, taker, within, size_max)) {
            heap[count++] = core_candidate_of(core, lease->first);
            devices += lease->held;
        }
    }
    for (size_t at = count / 2; at-- > 0;) {
        core_candidates_sink(heap, at, count, goes_before);
    }
    *ret_count = count;
    return devices;
}

void core_evict_forget(struct core *core)
{
    while (core->evicted != NULL) {
        struct lease *lease = core->evicted;
        core->evicted = lease->evicted_next;
        lease->evicted_next = NULL;
    }
}

/* The list begins with the last one chosen, the dearest: those without which it is enough stay. */
static void spare_needless(struct core *core, uint32_t useful, uint32_t wanted)
{
    struct lease **link = &core->evicted;
    while (*link != NULL) {
        struct lease *lease = *link;
        if (useful - lease->useful >= wanted) {
            useful -= lease->useful;
            *link = lease->evicted_next;
            lease->evicted_next = NULL;
        } else {
            link = &lease->evicted_next;
        }
    }
}

static uint32_t largest(const uint32_t limits[CORE_KINDS_MAX])
{
    uint32_t most = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        most = limits[kind] > most ? limits[kind] : most;
    }
    return most;
}

uint32_t core_evict_choose(struct core *core, const struct lease *taker, bool within,
                           uint32_t wanted, const uint32_t limits[CORE_KINDS_MAX])
{
    struct candidate *heap = core->candidates;
    uint32_t left[CORE_KINDS_MAX], useful = 0;
    size_t count;
    uint32_t devices = leases_gather(core, taker, within, largest(limits), &count);
    if (devices < wanted) {
        return wanted - devices;
    }
    memcpy(left, limits, sizeof left);
    while (useful < wanted && count > 0) {
        struct lease *lease = heap[0].device->lease;
        heap[0] = heap[--count];
        core_candidates_sink(heap, 0, count, goes_before);
        lease->useful = useful_devices(core, lease, taker, within, left);
        lease->evicted_next = core->evicted;
        core->evicted = lease;
        useful += lease->useful;
    }
    if (useful < wanted) {
        core_evict_forget(core);
        return wanted - useful;
    }
    spare_needless(core, useful, wanted);
    return 0;
}

static void evict(struct core *core, struct lease *lease, const struct lease *taker,
                  enum core_reason reason)
{
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_REVOKE, reason, lease->first, taker, NULL);
    explanation.rung = core_rung_for_all(lease);
    LEASE_DEVICES (lease, device) {
        core_explain_victim(&explanation, device, core_victim_cost(core, device), true);
        core_device_count_move(core, device);
    }
    core_guard_count(core, lease, explanation.rung);
    explanation.deadline_ns = core_lease_recall(core, lease, CORE_LEASE_DRAINING, reason);
    core_explain(core, &explanation);
}

void core_evict_chosen(struct core *core, const struct lease *taker)
{
    for (struct lease *lease = core->evicted; lease != NULL; lease = lease->evicted_next) {
        enum core_reason reason =
            lease->team == taker->team ? CORE_REASON_PRIORITY : CORE_REASON_QUOTA_RETURNED;
        evict(core, lease, taker, reason);
    }
}
