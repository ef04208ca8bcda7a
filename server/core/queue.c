/* queue.c: minimums of waiting leases, all or nothing. A lease gets its minimum from free devices
 * and from what elastic leases hold above theirs. Nothing is revoked unless the whole minimum can
 * be met; what is freed is promised, so that nobody else takes it on the way. */
#include <stdlib.h>
#include <string.h>

#include "server/core/state.h"

/* ---- the order ---- */

static bool ranks_before(const struct lease *a, const struct lease *b)
{
    return a->rank != b->rank ? a->rank > b->rank : a->sequence < b->sequence;
}

static int queue_compare(const void *a, const void *b)
{
    return ranks_before(*(struct lease *const *)a, *(struct lease *const *)b) ? -1 : 1;
}

static int64_t rank_of(const struct core *core, const struct lease *lease)
{
    uint64_t age = (core->now_ns - lease->queued_ns) / core->config.age_ns;
    return (int64_t)lease->spec.priority + (int64_t)age;
}

static bool is_in_place(const struct core *core, const struct lease *lease)
{
    bool waits = lease->state == CORE_LEASE_WAITING;
    return waits == lease->queued && (!waits || lease->rank == rank_of(core, lease));
}

/* Takes out whose place has changed. */
static void queue_thin(struct core *core)
{
    size_t kept = 0;
    for (size_t i = 0; i < core->queue_count; i++) {
        struct lease *lease = core->queue[i];
        lease->queued = !core_lease_is_news(core, lease) || is_in_place(core, lease);
        core->queue[kept] = lease;
        kept += lease->queued;
    }
    core->queue_count = kept;
}

static void queue_insert(struct core *core, struct lease *lease)
{
    size_t low = 0, high = core->queue_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranks_before(core->queue[middle], lease)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    memmove(&core->queue[low + 1], &core->queue[low], (core->queue_count - low) * sizeof(void *));
    core->queue[low] = lease;
    core->queue_count++;
}

/* A place changes only with news: a step of age is one. */
static void queue_sort(struct core *core)
{
    const struct set *news = &core->lease_sets[NEWS];
    uint32_t moved = 0;
    SET_EACH (news, slot) {
        moved += !is_in_place(core, core->lease_slots[slot]);
    }
    if (moved == 0) {
        return;
    }
    bool many = moved > 16;
    queue_thin(core);
    SET_EACH (news, slot) {
        struct lease *lease = core->lease_slots[slot];
        if (lease->state != CORE_LEASE_WAITING || lease->queued) {
            continue;
        }
        lease->rank = rank_of(core, lease);
        lease->queued = true;
        if (many) {
            core->queue[core->queue_count++] = lease;
        } else {
            queue_insert(core, lease);
        }
    }
    if (many) {
        qsort(core->queue, core->queue_count, sizeof *core->queue, queue_compare);
    }
}

uint32_t core_queue_position(const struct core *core, const struct lease *lease)
{
    for (size_t i = 0; i < core->queue_count && lease->queued; i++) {
        if (core->queue[i] == lease) {
            return (uint32_t)i + 1;
        }
    }
    return 0;
}

/* ---- starting one ---- */

static void revoke_picked(struct core *core, struct device *device, const struct lease *lease)
{
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_REVOKE, CORE_REASON_GANG_MINIMUM, device, lease, NULL);
    core_explain_victim(&explanation, device, core_victim_cost(core, device), true);
    core_shrink(core, device, CORE_REASON_GANG_MINIMUM, &explanation);
}

static void promises_trim(struct core *core, const struct lease *lease)
{
    struct device *next = NULL;
    for (struct device *device = lease->promises; device != NULL; device = next) {
        next = device->promised_next;
        if (!core_set_has(&core->device_sets[DEVICES_PICKED], device->slot)) {
            core_device_promise(core, device, NULL);
        }
    }
}

/* True: all picked devices could be granted right now. */
static bool promise_picked(struct core *core, struct lease *lease)
{
    bool ready = true;
    core_gang_unpick_endpoints(core); /* from here on removals are real */
    promises_trim(core, lease);
    SET_EACH (&core->device_sets[DEVICES_PICKED], slot) {
        struct device *device = core->device_slots[slot];
        core_device_promise(core, device, lease);
        if (device->hold == CORE_HOLD_HELD) {
            revoke_picked(core, device, lease);
        }
        bool empty = !core_device_must_empty(device, lease) ||
                     (device->hold == CORE_HOLD_NONE && core_device_empty(core, device));
        ready = ready && empty && device->hold == CORE_HOLD_NONE;
    }
    return ready;
}

static void grant_picked(struct core *core, struct lease *lease)
{
    core_lease_started(core, lease);
    SET_EACH (&core->device_sets[DEVICES_PICKED], slot) {
        struct device *device = core->device_slots[slot];
        core_device_grant(core, device, lease, CORE_REASON_GANG_MINIMUM);
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_GRANT, CORE_REASON_GANG_MINIMUM, device, lease,
                               core_device_busiest(core, device));
        explanation.rung = CORE_RUNG_FREE;
        core_explain(core, &explanation);
    }
}

static bool is_impossible(const struct core *core, const struct lease *lease)
{
    return core_pool_matching(core, lease->spec.kinds_mask) < lease->spec.devices_min;
}

/* What is said to be granted while nothing moves may have lost its device. */
void core_queue_pool_changed(struct core *core)
{
    SET_EACH (&core->lease_sets[LEASES_WAITING], slot) {
        struct lease *lease = core->lease_slots[slot];
        if (!core_may_move(core) ||
            is_impossible(core, lease) != (lease->waits_for == CORE_REASON_IMPOSSIBLE)) {
            core_lease_touch(core, lease);
        }
    }
}

static void explain_wait(struct core *core, struct lease *lease)
{
    enum core_reason reason = is_impossible(core, lease)       ? CORE_REASON_IMPOSSIBLE
                              : core->hold                     ? CORE_REASON_HOLD
                              : core->now_ns < lease->retry_ns ? CORE_REASON_ACTION_FAILED
                                                               : CORE_REASON_GANG_MINIMUM;
    if (lease->advice != 0 && lease->waits_for == reason) {
        return; /* told, and it costs less to know that than to ask */
    }
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_WAIT, reason, NULL, lease, NULL);
    explanation.devices_have = lease->promised;
    core_explain_advice(core, &lease->advice, explanation);
    lease->waits_for = reason;
}

/* It got its minimum, or will get it from what is promised to it. */
static bool try_start(struct core *core, struct lease *lease)
{
    bool started = false;
    bool due = core->now_ns >= lease->retry_ns;
    lease->lacks = due ? core_gang_pick(core, lease) : 0;
    bool possible = due && lease->lacks == 0;
    if (!possible) {
        core_promises_drop(core, lease);
        explain_wait(core, lease);
    } else if (!core_may_move(core)) {
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_GRANT, CORE_REASON_GANG_MINIMUM, NULL, lease, NULL);
        core_explain_advice(core, &lease->advice, explanation);
        lease->waits_for = CORE_REASON_NONE;
    } else {
        started = promise_picked(core, lease);
        if (started) {
            grant_picked(core, lease);
        } else {
            explain_wait(core, lease);
        }
    }
    core_gang_unpick(core);
    return started || (possible && lease->promised > 0);
}

/* ---- all of them ---- */

/* After overtake_ns nothing behind it gets devices of its kinds, unless there are not enough of
 * them in the pool at all: an impossible request blocks nobody. */
static bool must_not_be_overtaken(const struct core *core, const struct lease *lease)
{
    return core->now_ns - lease->queued_ns >= core->config.overtake_ns &&
           core->now_ns >= lease->retry_ns &&
           core_pool_usable(core, lease->spec.kinds_mask) >= lease->spec.devices_min;
}

/* At most so many devices, each with at most that memory, can be had that could not be had at the
 * last plan. */
struct supply {
    uint32_t devices;
    uint64_t memory_bytes;
};

static void supply_add(struct supply supply[CORE_KINDS_MAX], uint32_t kinds_mask, uint32_t devices,
                       uint64_t memory_bytes)
{
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX && devices > 0; kind++) {
        if ((kinds_mask >> kind) & 1) {
            supply[kind].devices += devices;
            supply[kind].memory_bytes =
                memory_bytes > supply[kind].memory_bytes ? memory_bytes : supply[kind].memory_bytes;
        }
    }
}

static void supply_gather(struct core *core, struct supply supply[CORE_KINDS_MAX])
{
    memset(supply, 0, CORE_KINDS_MAX * sizeof *supply);
    SET_EACH (&core->device_sets[NEWS], slot) {
        const struct device *device = core->device_slots[slot];
        bool there = device->counted_takeable ||
                     core_set_has(&core->device_sets[DEVICES_IDLE + device->kind], slot);
        supply_add(supply, 1u << device->kind, there, device->memory_bytes);
    }
    SET_EACH (&core->endpoint_sets[NEWS], slot) {
        const struct endpoint *endpoint = core->endpoint_slots[slot];
        supply_add(supply, endpoint->spec.kinds_mask, endpoint->excess, UINT64_MAX);
    }
    SET_EACH (&core->lease_sets[NEWS], slot) {
        const struct lease *lease = core->lease_slots[slot];
        supply_add(supply, lease->spec.kinds_mask, lease->surplus, UINT64_MAX);
    }
}

static uint32_t news_count(const struct core *core)
{
    return core->device_sets[NEWS].count + core->endpoint_sets[NEWS].count +
           core->lease_sets[NEWS].count;
}

/* One that lacked more than that cannot have its minimum now either. */
static bool may_reach(struct lease *lease, const struct supply supply[CORE_KINDS_MAX])
{
    uint32_t devices = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        bool asked = (lease->spec.kinds_mask >> kind) & 1;
        bool large = lease->spec.memory_bytes <= supply[kind].memory_bytes;
        devices += asked && large ? supply[kind].devices : 0;
    }
    bool may = devices > 0 && devices >= lease->lacks;
    lease->lacks -= may ? 0 : devices;
    return may;
}

/* As at the last plan, unless it has news, there may be enough for it now (nothing is, for one to
 * which all are promised), or it is held up no more. */
static bool has_news(const struct core *core, struct lease *lease,
                     const struct supply supply[CORE_KINDS_MAX], bool held_up)
{
    bool whole = lease->promised == lease->spec.devices_min;
    return core_lease_is_news(core, lease) || held_up != lease->held_up || !core_may_move(core) ||
           (!whole && may_reach(lease, supply));
}

static void consider(struct core *core, struct lease *lease, bool held_up)
{
    lease->held_up = held_up;
    lease->reaching = false;
    if (held_up) {
        core_promises_drop(core, lease);
        explain_wait(core, lease);
    } else {
        lease->reaching = try_start(core, lease);
    }
}

static void unblocked_touch(struct core *core, uint32_t kinds)
{
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        SET_EACH (&core->device_sets[DEVICES_IDLE + kind], slot) {
            if ((kinds >> kind) & 1) {
                core_device_touch(core, core->device_slots[slot]);
            }
        }
    }
}

void core_queue_plan(struct core *core)
{
    uint32_t blocked = 0;
    struct supply supply[CORE_KINDS_MAX];
    queue_sort(core);
    supply_gather(core, supply);
    for (size_t i = 0; i < core->queue_count; i++) {
        struct lease *lease = core->queue[i];
        bool held_up = (lease->spec.kinds_mask & blocked) != 0;
        if (has_news(core, lease, supply, held_up)) {
            uint32_t news = news_count(core);
            consider(core, lease, held_up);
            if (news != news_count(core)) { /* others may have what it let go of */
                supply_gather(core, supply);
            }
        }
        if (!held_up && !lease->reaching && must_not_be_overtaken(core, lease)) {
            blocked |= lease->spec.kinds_mask;
        }
    }
    unblocked_touch(core, core->blocked & ~blocked);
    core->blocked = blocked;
}
