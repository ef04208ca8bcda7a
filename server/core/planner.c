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

/* The hot ones of leases with news: all hot ones are looked at, or all of these leases', whichever
 * are fewer. */
static void hot_join_news(struct core *core)
{
    const struct set *hot = &core->device_sets[DEVICES_HOT], *leases = &core->lease_sets[NEWS];
    uint32_t held = 0;
    SET_EACH (leases, slot) {
        held += core->lease_slots[slot]->held;
    }
    if (hot->count < held) {
        SET_EACH (hot, slot) {
            if (core_lease_is_news(core, core->device_slots[slot]->lease)) {
                core_set_put(&core->device_sets[NEWS], slot, true);
            }
        }
        return;
    }
    SET_EACH (leases, slot) {
        for (const struct device *device = core->lease_slots[slot]->first; device != NULL;
             device = device->next) {
            if (core_set_has(hot, device->slot)) {
                core_set_put(&core->device_sets[NEWS], device->slot, true);
            }
        }
    }
}

/* Yielding carried the burst; a load that stays leaves training next to nothing there, and a step
 * of training would only wait for that device. */
static void plan_sustained(struct core *core)
{
    hot_join_news(core);
    SET_EACH_IN_BOTH (&core->device_sets[NEWS], &core->device_sets[DEVICES_HOT], slot) {
        struct device *device = core->device_slots[slot];
        if (!hot_victim(core, device) || !core_device_rested(core, device)) {
            continue;
        }
        struct core_explanation explanation = hot_explanation(core, device);
        if (core_device_moves_used_up(core, device, core->config.moves_per_hour)) {
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
    SET_EACH_IN_BOTH (&core->device_sets[NEWS], &core->device_sets[DEVICES_KEPT], slot) {
        struct device *device = core->device_slots[slot];
        if (device->hold != CORE_HOLD_NONE || !core_device_cool(core, device) ||
            !core_device_rested(core, device) || endpoint_lacks(core, device->kept_for)) {
            continue;
        }
        bool bound = core_device_moves_used_up(core, device, core->config.moves_per_hour);
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

void core_plan(struct core *core)
{
    core_fair_begin(core);
    core_health_plan(core);
    core_stops_release(core);
    plan_give_back(core);
    core_placement_plan(core);
    core_leaving_plan(core);
    core_stops_replace(core);
    plan_sustained(core);
    core_queue_plan(core);
    core_growth_plan(core);
}
