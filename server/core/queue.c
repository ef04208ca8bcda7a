/* queue.c: minimums of waiting leases, all or nothing. A lease gets its minimum from free devices
 * and from what elastic leases hold above theirs. Nothing is revoked unless the whole minimum can
 * be met; what is freed is promised, so that nobody else takes it on the way. */
#include <stdlib.h>

#include "server/core/state.h"

#define SCORE_PROMISED 0
#define SCORE_NONE UINT32_MAX

static int queue_compare(const void *a, const void *b)
{
    const struct lease *left = *(struct lease *const *)a;
    const struct lease *right = *(struct lease *const *)b;
    if (left->rank != right->rank) {
        return left->rank > right->rank ? -1 : 1;
    }
    return left->sequence < right->sequence ? -1 : 1;
}

static size_t queue_sort(struct core *core)
{
    size_t count = 0;
    for (size_t i = 0; i < core->lease_count; i++) {
        struct lease *lease = core->leases[i];
        lease->position = 0;
        if (lease->state == CORE_LEASE_WAITING) {
            uint64_t age = (core->now_ns - lease->queued_ns) / core->config.age_ns;
            lease->rank = (int64_t)lease->spec.priority + (int64_t)age;
            core->queue[count++] = lease;
        }
    }
    if (count > 1) {
        qsort(core->queue, count, sizeof *core->queue, queue_compare);
    }
    for (size_t i = 0; i < count; i++) {
        core->queue[i]->position = (uint32_t)i + 1;
    }
    return count;
}

bool core_device_must_empty(const struct device *device, const struct lease *lease)
{
    bool shares = lease->spec.in_process || core_lease_can_stop(lease);
    return !shares || device->instances_bytes + lease->spec.memory_bytes > device->memory_bytes;
}

bool core_device_empty(struct core *core, struct device *device)
{
    for (size_t i = 0; i < core->endpoint_count; i++) {
        core_instance_remove(core, device, core->endpoints[i]);
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
           (core_lease_lets_serve(device, lease) || core_device_spare(core, device));
}

/* Lower is taken first. Promised ones, also those still on their way; then free ones: healthy and
 * not busy serving before others. What serving keeps is not to be had. */
static uint32_t free_score(const struct core *core, const struct device *device,
                           const struct lease *lease)
{
    bool hot = device->hot_since_ns != NEVER_NS;
    if (!suits(core, device, lease) || (hot && !lease->spec.in_process)) {
        return SCORE_NONE;
    }
    if (device->promised == lease) {
        return SCORE_PROMISED;
    }
    if (device->hold != CORE_HOLD_NONE || device->promised != NULL || device->kept) {
        return SCORE_NONE;
    }
    uint32_t slow = device->health == CORE_HEALTH_SLOW;
    uint32_t emptying = core_device_must_empty(device, lease) && device->instances_present > 0;
    return 1 + slow * 4 + hot * 2 + emptying;
}

static bool is_victim(const struct core *core, const struct device *device,
                      const struct lease *lease)
{
    const struct lease *victim = device->lease;
    return device->hold == CORE_HOLD_HELD && victim != lease && device->promised == NULL &&
           victim->state == CORE_LEASE_RUNNING &&
           victim->held > victim->spec.devices_min + victim->picked && suits(core, device, lease) &&
           core_guard(core, victim, victim->picked + 1, CORE_RUNG_SHRINK, false) ==
               CORE_REASON_NONE &&
           core_device_rested(core, device) &&
           core_device_moves(core, device) < core->config.moves_per_hour;
}

static void pick(struct core *core, struct device *device, const struct lease *lease)
{
    device->picked = true;
    if (device->lease != NULL && device->hold == CORE_HOLD_HELD) {
        device->lease->picked++;
    }
    for (size_t i = 0; i < core->endpoint_count; i++) {
        struct endpoint *endpoint = core->endpoints[i];
        endpoint->taken += !core_lease_lets_serve(device, lease) && !device->resting &&
                           core_instance_serves(core_instance_of(device, endpoint));
    }
}

static void unpick_endpoints(struct core *core)
{
    for (size_t i = 0; i < core->endpoint_count; i++) {
        core->endpoints[i]->taken = 0;
    }
}

static void unpick(struct core *core)
{
    unpick_endpoints(core);
    for (size_t i = 0; i < core->device_count; i++) {
        core->devices[i]->picked = false;
    }
    for (size_t i = 0; i < core->lease_count; i++) {
        core->leases[i]->picked = 0;
    }
}

static struct device *find_free(const struct core *core, const struct lease *lease)
{
    struct device *best = NULL;
    uint32_t best_score = SCORE_NONE;
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        uint32_t score = device->picked ? SCORE_NONE : free_score(core, device, lease);
        if (score < best_score) {
            best = device;
            best_score = score;
        }
    }
    return best;
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
    return left->held - left->spec.devices_min - left->picked >
           right->held - right->spec.devices_min - right->picked;
}

static struct device *find_victim(const struct core *core, const struct lease *lease)
{
    struct device *best = NULL;
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        if (!device->picked && is_victim(core, device, lease) &&
            (best == NULL || victim_before(core, device, best))) {
            best = device;
        }
    }
    return best;
}

/* Picks the minimum, or nothing of use. */
static bool pick_minimum(struct core *core, const struct lease *lease)
{
    for (uint32_t count = 0; count < lease->spec.devices_min; count++) {
        struct device *device = find_free(core, lease);
        if (device == NULL) {
            device = find_victim(core, lease);
        }
        if (device == NULL) {
            return false;
        }
        pick(core, device, lease);
    }
    return true;
}

static void revoke_picked(struct core *core, struct device *device, const struct lease *lease)
{
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_REVOKE, CORE_REASON_GANG_MINIMUM, device, lease, NULL);
    core_explain_victim(&explanation, device, core_victim_cost(core, device), true);
    core_shrink(core, device, CORE_REASON_GANG_MINIMUM, &explanation);
}

/* True: all picked devices could be granted right now. */
static bool promise_picked(struct core *core, struct lease *lease)
{
    bool ready = true;
    unpick_endpoints(core); /* from here on removals are real */
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        if (!device->picked) {
            if (device->promised == lease) {
                core_device_promise(device, NULL);
            }
            continue;
        }
        if (device->promised != lease) {
            core_device_promise(device, lease);
            core->dirty = true;
        }
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
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        if (device->picked) {
            core_device_grant(core, device, lease, CORE_REASON_GANG_MINIMUM);
            struct core_explanation explanation =
                core_explain_begin(core, CORE_WHAT_GRANT, CORE_REASON_GANG_MINIMUM, device, lease,
                                   core_device_busiest(core, device));
            explanation.rung = CORE_RUNG_FREE;
            core_explain(core, &explanation);
        }
    }
}

static void promises_drop(struct core *core, const struct lease *lease)
{
    for (size_t i = 0; i < core->device_count && lease->promised > 0; i++) {
        if (core->devices[i]->promised == lease) {
            core_device_promise(core->devices[i], NULL);
            core->dirty = true;
        }
    }
}

static void explain_wait(struct core *core, struct lease *lease)
{
    bool impossible = core_pool_matching(core, lease->spec.kinds_mask) < lease->spec.devices_min;
    enum core_reason reason = impossible                       ? CORE_REASON_IMPOSSIBLE
                              : core->hold                     ? CORE_REASON_HOLD
                              : core->now_ns < lease->retry_ns ? CORE_REASON_ACTION_FAILED
                                                               : CORE_REASON_GANG_MINIMUM;
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_WAIT, reason, NULL, lease, NULL);
    explanation.devices_have = lease->promised;
    core_explain_advice(core, &lease->advice, explanation);
}

static bool try_start(struct core *core, struct lease *lease)
{
    bool started = false;
    bool possible = core->now_ns >= lease->retry_ns && pick_minimum(core, lease);
    if (!possible) {
        promises_drop(core, lease);
        explain_wait(core, lease);
    } else if (!core_may_move(core)) {
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_GRANT, CORE_REASON_GANG_MINIMUM, NULL, lease, NULL);
        core_explain_advice(core, &lease->advice, explanation);
    } else {
        started = promise_picked(core, lease);
        if (started) {
            grant_picked(core, lease);
        } else {
            explain_wait(core, lease);
        }
    }
    unpick(core);
    return started || (possible && lease->promised > 0);
}

static uint32_t usable_matching(const struct core *core, uint32_t kinds_mask)
{
    uint32_t matching = 0;
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        matching += core_device_usable(device) && ((kinds_mask >> device->kind) & 1);
    }
    return matching;
}

/* After overtake_ns nothing behind it gets devices of its kinds, unless there are not enough of
 * them in the pool at all: an impossible request blocks nobody. */
static bool must_not_be_overtaken(const struct core *core, const struct lease *lease)
{
    return core->now_ns - lease->queued_ns >= core->config.overtake_ns &&
           core->now_ns >= lease->retry_ns &&
           usable_matching(core, lease->spec.kinds_mask) >= lease->spec.devices_min;
}

uint32_t core_queue_plan(struct core *core)
{
    uint32_t blocked = 0;
    size_t count = queue_sort(core);
    for (size_t i = 0; i < count; i++) {
        struct lease *lease = core->queue[i];
        if (lease->spec.kinds_mask & blocked) {
            promises_drop(core, lease);
            explain_wait(core, lease);
        } else if (!try_start(core, lease) && must_not_be_overtaken(core, lease)) {
            blocked |= lease->spec.kinds_mask;
        }
    }
    return blocked;
}
