/* planner.c: one look at everything, in the order of what matters: SLOs of endpoints by priority,
 * then (floors of running leases are never touched) minimums of waiting leases, then growth. What
 * need not move stays where it is. */
#include "server/core/state.h"

static bool hot_victim(const struct core *core, const struct device *device)
{
    const struct lease *lease = device->lease;
    return device->hold == CORE_HOLD_HELD && lease->state == CORE_LEASE_RUNNING &&
           lease->held > lease->spec.devices_min && core_device_hot(core, device) &&
           core_guard(core, lease, 1, CORE_RUNG_SHRINK, false) == CORE_REASON_NONE;
}

static struct core_explanation hot_explanation(struct core *core, const struct device *chosen)
{
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_REVOKE, CORE_REASON_SUSTAINED_LOAD, chosen,
                           chosen->lease, core_device_busiest(core, chosen));
    explanation.rung = CORE_RUNG_SHRINK;
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        if (hot_victim(core, device)) {
            core_explain_victim(&explanation, device, core_victim_cost(core, device),
                                device == chosen);
        }
    }
    return explanation;
}

/* Yielding carried the burst; a load that stays leaves training next to nothing there, and a step
 * of training would only wait for that device. */
static void plan_sustained(struct core *core)
{
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        if (!hot_victim(core, device) || !core_device_rested(core, device)) {
            continue;
        }
        struct core_explanation explanation = hot_explanation(core, device);
        if (core_device_moves(core, device) >= core->config.moves_per_hour) {
            explanation.reason = CORE_REASON_RATE_BOUND;
            core_explain_advice(core, &device->advice, explanation);
        } else if (!core_may_move(core)) {
            core_explain_advice(core, &device->advice, explanation);
        } else {
            core_device_keep(core, device, explanation.endpoint);
            core_shrink(core, device, CORE_REASON_SUSTAINED_LOAD, &explanation);
        }
    }
}

static bool endpoint_lacks(const struct core *core, uint64_t id)
{
    const struct endpoint *endpoint = core_endpoint_get(core, id);
    return endpoint != NULL && endpoint->ready < endpoint->needed;
}

/* Past the bound of moves a device is not given back: the reserve grows instead. */
static void plan_give_back(struct core *core)
{
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        if (!device->kept || device->hold != CORE_HOLD_NONE || !core_device_cool(core, device) ||
            !core_device_rested(core, device) || endpoint_lacks(core, device->kept_for)) {
            continue;
        }
        bool bound = core_device_moves(core, device) >= core->config.moves_per_hour;
        struct core_explanation explanation =
            core_explain_begin(core, bound ? CORE_WHAT_KEEP : CORE_WHAT_GIVE_BACK,
                               bound ? CORE_REASON_RATE_BOUND : CORE_REASON_LOAD_FELL, device, NULL,
                               core_endpoint_get(core, device->kept_for));
        if (bound || !core_may_move(core)) {
            core_explain_advice(core, &device->advice, explanation);
        } else {
            core_device_unkeep(core, device);
            core_explain(core, &explanation);
        }
    }
}

static bool growable(const struct core *core, const struct device *device, uint32_t blocked)
{
    return core_device_usable(device) && device->hold == CORE_HOLD_NONE && !device->kept &&
           device->hot_since_ns == NEVER_NS && core_device_rested(core, device) &&
           !((blocked >> device->kind) & 1);
}

static bool can_grow_onto(const struct core *core, const struct lease *lease,
                          const struct device *device)
{
    return lease->state == CORE_LEASE_RUNNING && core->now_ns >= lease->retry_ns &&
           ((lease->spec.kinds_mask >> device->kind) & 1) &&
           lease->spec.memory_bytes <= device->memory_bytes &&
           (core_lease_lets_serve(device, lease) || core_device_spare(core, device));
}

static bool grows_before(const struct lease *a, const struct lease *b)
{
    if (a->spec.priority != b->spec.priority) {
        return a->spec.priority > b->spec.priority;
    }
    if (a->held + a->promised != b->held + b->promised) {
        return a->held + a->promised < b->held + b->promised;
    }
    return a->sequence < b->sequence;
}

static struct lease *grower_for(const struct core *core, const struct device *device)
{
    struct lease *best = NULL;
    for (size_t i = 0; i < core->lease_count; i++) {
        struct lease *lease = core->leases[i];
        if (core_lease_wants_more(lease) && can_grow_onto(core, lease, device) &&
            (best == NULL || grows_before(lease, best))) {
            best = lease;
        }
    }
    return best;
}

static void grow(struct core *core, struct device *device, struct lease *lease)
{
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_GRANT, CORE_REASON_ELASTIC_GROWTH, device, lease,
                           core_device_busiest(core, device));
    explanation.rung = CORE_RUNG_FREE;
    if (!core_may_move(core)) {
        core_explain_advice(core, &device->advice, explanation);
        return;
    }
    bool must_empty = core_device_must_empty(device, lease);
    if (device->promised != lease) {
        core_device_promise(device, lease);
        core->dirty = true;
    }
    if (!must_empty || core_device_empty(core, device)) {
        core_device_grant(core, device, lease, CORE_REASON_ELASTIC_GROWTH);
        core_explain(core, &explanation);
    }
}

static void plan_growth(struct core *core, uint32_t blocked)
{
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        struct lease *promised = device->promised;
        if (promised != NULL && promised->state != CORE_LEASE_RUNNING) {
            continue; /* a waiting gang's */
        }
        bool possible = growable(core, device, blocked);
        if (promised != NULL && (!possible || !can_grow_onto(core, promised, device))) {
            core_device_promise(device, NULL);
            core->dirty = true;
            promised = NULL;
        }
        struct lease *lease = promised != NULL ? promised : grower_for(core, device);
        if (possible && lease != NULL) {
            grow(core, device, lease);
        }
    }
}

void core_plan(struct core *core)
{
    core_stops_release(core);
    plan_give_back(core);
    core_placement_plan(core);
    core_stops_replace(core);
    plan_sustained(core);
    uint32_t blocked = core_queue_plan(core);
    plan_growth(core, blocked);
}
