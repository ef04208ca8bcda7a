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
    SET_EACH (&core->device_sets[DEVICES_HOT], slot) {
        const struct device *device = core->device_slots[slot];
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
    SET_EACH (&core->device_sets[DEVICES_HOT], slot) {
        if (core_lease_is_news(core, core->device_slots[slot]->lease)) {
            core_set_put(&core->device_sets[NEWS], slot, true);
        }
    }
    SET_EACH (&core->device_sets[NEWS], slot) {
        struct device *device = core->device_slots[slot];
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
    SET_EACH (&core->device_sets[NEWS], slot) {
        struct device *device = core->device_slots[slot];
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

static bool growable(const struct core *core, const struct device *device)
{
    return core_device_usable(device) && device->hold == CORE_HOLD_NONE && !device->kept &&
           device->hot_since_ns == NEVER_NS && core_device_rested(core, device) &&
           !((core->blocked >> device->kind) & 1);
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

/* A device without news found nobody at the last plan: only leases with news can want it now. */
static struct lease *grower_for(const struct core *core, const struct device *device)
{
    struct lease *best = NULL;
    bool old = core_may_move(core) && core_set_has(&core->device_sets[DEVICES_OLD], device->slot) &&
               !core_set_has(&core->device_sets[TOUCHED], device->slot);
    SET_EACH (&core->lease_sets[old ? NEWS : LEASES_GROWING], slot) {
        struct lease *lease = core->lease_slots[slot];
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
        explanation.endpoint = 0; /* it is no other thought when that one changes */
        core_explain_advice(core, &device->advice, explanation);
        return;
    }
    bool must_empty = core_device_must_empty(device, lease);
    core_device_promise(core, device, lease);
    if (!must_empty || core_device_empty(core, device)) {
        core_device_grant(core, device, lease, CORE_REASON_ELASTIC_GROWTH);
        core_explain(core, &explanation);
    }
}

static void grow_onto(struct core *core, struct device *device)
{
    struct lease *promised = device->promised;
    if (promised != NULL && promised->state != CORE_LEASE_RUNNING) {
        return; /* a waiting gang's */
    }
    bool possible = growable(core, device);
    if (promised != NULL && (!possible || !can_grow_onto(core, promised, device))) {
        core_device_promise(core, device, NULL);
        promised = NULL;
    }
    struct lease *lease = promised != NULL || !possible ? promised : grower_for(core, device);
    if (lease != NULL) {
        grow(core, device, lease);
    }
}

/* Beside devices with news: those promised to a lease with news, and all idle ones that it could
 * want. */
static void growth_gather(struct core *core)
{
    uint32_t kinds = 0;
    struct set *old = &core->device_sets[DEVICES_OLD];
    core_set_clear(old);
    SET_EACH (&core->lease_sets[NEWS], slot) {
        struct lease *lease = core->lease_slots[slot];
        bool wants = core_lease_wants_more(lease) || !core_may_move(core);
        kinds |= wants ? lease->spec.kinds_mask : 0;
        for (struct device *device = lease->promises; device != NULL;
             device = device->promised_next) {
            core_set_put(old, device->slot, true);
        }
    }
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        if ((kinds >> kind) & 1) {
            core_set_join(old, &core->device_sets[DEVICES_IDLE + kind]);
        }
    }
    SET_EACH (&core->device_sets[NEWS], slot) {
        core_set_put(old, slot, false);
    }
    core_set_join(&core->device_sets[NEWS], old);
}

static void plan_growth(struct core *core)
{
    growth_gather(core);
    SET_EACH (&core->device_sets[NEWS], slot) {
        grow_onto(core, core->device_slots[slot]);
    }
}

void core_plan(struct core *core)
{
    core_stops_release(core);
    plan_give_back(core);
    core_placement_plan(core);
    core_leaving_plan(core);
    core_stops_replace(core);
    plan_sustained(core);
    core_queue_plan(core);
    plan_growth(core);
}
