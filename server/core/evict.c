/* evict.c: whole leases that must go for another: for a more urgent one of their own team, or
 * because their team has what another lent it and wants back. Each has its full notice; as few and
 * as cheap ones as will do; none at all if they will not do. Who had waited for its turn keeps it:
 * its age at the start counts as urgency, that of who waits does not. */
#include <string.h>

#include "server/core/state.h"

/* A team's own less urgent ones, or what it lent: if there is neither, nobody needs to be asked. */
bool core_evict_is_possible(const struct core *core, const struct lease *taker)
{
    return core->teams_added > 0 || taker->spec.priority > taker->team->least_urgent;
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

/* For a minimum, or for growth by no more than `size_max`. */
static bool may_evict(const struct core *core, const struct lease *lease, const struct lease *taker,
                      bool within, uint32_t size_max)
{
    if (lease->state != CORE_LEASE_RUNNING || lease == taker || lease->evicted ||
        lease->leaving > 0 || (lease->spec.kinds_mask & taker->spec.kinds_mask) == 0) {
        return false;
    }
    bool waits = taker->state == CORE_LEASE_WAITING, may = false;
    if (lease->team == taker->team) {
        may = waits && lease->urgency < taker->spec.priority;
    } else {
        may = within && (waits || lease->held <= size_max) &&
              has_borrowed(lease, taker->spec.kinds_mask);
    }
    return may && core_guard(core, lease, lease->held, core_rung_for_all(lease), false) ==
                      CORE_REASON_NONE;
}

static bool goes_before(const struct core *core, const struct lease *a, const struct lease *b)
{
    int order = core_fair_compare_givers(a, b);
    if (order != 0) {
        return order < 0;
    }
    uint64_t left = core_victim_cost(core, a->first), right = core_victim_cost(core, b->first);
    if (left != right) {
        return left < right;
    }
    if (a->checkpoint_ns != b->checkpoint_ns) { /* the fresher has less to save, or to lose */
        return a->checkpoint_ns > b->checkpoint_ns;
    }
    return a->sequence > b->sequence;
}

static struct lease *find_next(const struct core *core, const struct lease *taker, bool within,
                               uint32_t size_max)
{
    struct lease *best = NULL;
    SET_EACH (&core->lease_sets[LEASES_RUNNING], slot) {
        struct lease *lease = core->lease_slots[slot];
        if (may_evict(core, lease, taker, within, size_max) &&
            (best == NULL || goes_before(core, lease, best))) {
            best = lease;
        }
    }
    return best;
}

void core_evict_forget(struct core *core)
{
    while (core->evicted != NULL) {
        struct lease *lease = core->evicted;
        core->evicted = lease->evicted_next;
        lease->evicted_next = NULL;
        lease->evicted = false;
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
            lease->evicted = false;
        } else {
            link = &lease->evicted_next;
        }
    }
}

bool core_evict_choose(struct core *core, const struct lease *taker, bool within, uint32_t wanted,
                       const uint32_t limits[CORE_KINDS_MAX])
{
    uint32_t left[CORE_KINDS_MAX], useful = 0, size_max = 0;
    memcpy(left, limits, sizeof left);
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        size_max = limits[kind] > size_max ? limits[kind] : size_max;
    }
    while (useful < wanted) {
        struct lease *lease = find_next(core, taker, within, size_max);
        if (lease == NULL) {
            core_evict_forget(core);
            return false;
        }
        lease->evicted = true;
        lease->useful = useful_devices(core, lease, taker, within, left);
        lease->evicted_next = core->evicted;
        core->evicted = lease;
        useful += lease->useful;
    }
    spare_needless(core, useful, wanted);
    return true;
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
