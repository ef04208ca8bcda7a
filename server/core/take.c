/* take.c: devices back from leases: who must give one, and by which rung. */
#include "server/core/state.h"

uint64_t core_victim_cost(const struct core *core, const struct device *device)
{
    const struct lease *lease = device->lease;
    uint64_t lost = lease->spec.in_process || lease->held == 0
                        ? 0 /* it puts its micro-batch back */
                        : lease->provisional_ns / lease->held;
    return core_add_u64(lost, core->handover_cost_ns);
}

void core_shrink(struct core *core, struct device *device, enum core_reason reason,
                 struct core_explanation *explanation)
{
    enum core_rung rung = CORE_RUNG_SHRINK;
    core_device_count_move(core, device);
    core_guard_count(core, device->lease, rung);
    core_device_revoke(core, device, rung, reason);
    explanation->rung = rung;
    explanation->deadline_ns = device->deadline_ns;
    core_explain(core, explanation);
}

static bool is_victim(const struct core *core, const struct device *device,
                      const struct endpoint *endpoint, bool danger)
{
    const struct lease *lease = device->lease;
    uint32_t bound = core->config.moves_per_hour + (danger ? core->config.moves_extra : 0);
    return device->hold == CORE_HOLD_HELD && lease->state == CORE_LEASE_RUNNING &&
           lease->held > lease->spec.devices_min &&
           core_guard(core, lease, 1, CORE_RUNG_SHRINK, danger) == CORE_REASON_NONE &&
           core_device_usable(device) && ((endpoint->spec.kinds_mask >> device->kind) & 1) &&
           endpoint->spec.memory_bytes <= device->memory_bytes &&
           core_instance_of(device, endpoint)->state == CORE_INSTANCE_ABSENT &&
           core_neighbours_agree(core, device, endpoint) &&
           core_device_moves(core, device) < bound && (danger || core_device_rested(core, device));
}

static bool victim_before(const struct core *core, const struct device *a, const struct device *b)
{
    if (a->lease->spec.priority != b->lease->spec.priority) {
        return a->lease->spec.priority < b->lease->spec.priority;
    }
    return core_victim_cost(core, a) < core_victim_cost(core, b);
}

bool core_take_for(struct core *core, struct endpoint *endpoint)
{
    bool danger = core->now_ns < endpoint->danger_until_ns;
    struct device *best = NULL;
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_REVOKE, CORE_REASON_DEMAND, NULL, NULL, endpoint);
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        if (is_victim(core, device, endpoint, danger)) {
            core_explain_victim(&explanation, device, core_victim_cost(core, device), false);
            best = best == NULL || victim_before(core, device, best) ? device : best;
        }
    }
    if (best == NULL || core_endpoint_failing(core, endpoint)) {
        return false;
    }
    explanation.device = best->id;
    explanation.lease = best->lease->spec.lease;
    explanation.rung = CORE_RUNG_SHRINK;
    for (uint32_t i = 0; i < explanation.victim_count; i++) {
        explanation.victims[i].chosen = explanation.victims[i].device == best->id;
    }
    if (!core_may_move(core)) {
        core_explain_advice(core, &endpoint->advice, explanation);
        return false;
    }
    core_device_keep(core, best, endpoint->spec.endpoint);
    core_shrink(core, best, CORE_REASON_DEMAND, &explanation);
    return true;
}
