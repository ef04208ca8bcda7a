/* explain.c: the rings of explanations. Every decision leaves one, also those that mode or hold
 * kept from being carried out. */
#include <stdlib.h>

#include "server/core/state.h"

struct core_explanation core_explain_begin(const struct core *core, enum core_what what,
                                           enum core_reason reason, const struct device *device,
                                           const struct lease *lease,
                                           const struct endpoint *endpoint)
{
    struct core_explanation explanation = {
        .what = what, .reason = reason, .applied = true, .time_ns = core->now_ns};
    if (device != NULL) {
        explanation.device = device->id;
        explanation.utilisation_permille = (uint32_t)(device->utilisation_ppm / 1000);
    }
    if (endpoint != NULL) {
        explanation.endpoint = endpoint->spec.endpoint;
        explanation.demand_milli = (uint32_t)endpoint->demand_milli;
        explanation.projected_wait_ns = endpoint->projected_wait_ns;
        explanation.slo_ns = endpoint->spec.slo_ns;
        explanation.devices_have = endpoint->ready;
        explanation.devices_wanted = endpoint->needed;
    }
    if (lease != NULL) {
        explanation.lease = lease->spec.lease;
        explanation.devices_have = lease->held;
        explanation.devices_wanted =
            lease->state == CORE_LEASE_WAITING ? lease->spec.devices_min : lease->spec.devices_max;
    }
    return explanation;
}

void core_explain_victim(struct core_explanation *explanation, const struct device *device,
                         uint64_t cost_ns, bool chosen)
{
    if (explanation->victim_count < CORE_VICTIMS_MAX) {
        explanation->victims[explanation->victim_count++] = (struct core_victim){
            .lease = device->lease != NULL ? device->lease->spec.lease : 0,
            .device = device->id,
            .cost_ns = cost_ns,
            .chosen = chosen,
        };
    }
}

int core_explain_init(struct core *core)
{
    core->moves.capacity = core->config.explanations_kept;
    core->bursts.capacity = core->config.explanations_kept / 4 + 1;
    core->moves.slots = calloc(core->moves.capacity, sizeof *core->moves.slots);
    core->bursts.slots = calloc(core->bursts.capacity, sizeof *core->bursts.slots);
    return core->moves.slots != NULL && core->bursts.slots != NULL ? 0 : -1;
}

void core_explain(struct core *core, const struct core_explanation *explanation)
{
    bool burst = explanation->what == CORE_WHAT_YIELD_BEGAN ||
                 explanation->what == CORE_WHAT_YIELD_ENDED ||
                 explanation->what == CORE_WHAT_DANGER;
    struct ring *ring = burst ? &core->bursts : &core->moves;
    struct core_explanation *slot = &ring->slots[ring->count++ % ring->capacity];
    *slot = *explanation;
    slot->explanation = ++core->explanation_id;
    if (core->mode != CORE_MODE_OBSERVE) {
        core_emit(core, CORE_ACTION_EXPLAIN)->explanation.explanation = slot->explanation;
    }
}

void core_explain_advice(struct core *core, uint64_t *memo, struct core_explanation explanation)
{
    uint64_t key = core_hash_u64(UINT64_C(0xcbf29ce484222325), explanation.what);
    key = core_hash_u64(key, explanation.reason);
    key = core_hash_u64(key, explanation.device);
    key = core_hash_u64(key, explanation.lease);
    key = core_hash_u64(key, explanation.endpoint);
    key = core_hash_u64(key, core->mode * 2 + core->hold);
    if (*memo != key) {
        *memo = key;
        explanation.applied = false;
        core_explain(core, &explanation);
    }
}

/* The one `age` places before the newest, or NULL. */
static const struct core_explanation *ring_at(const struct ring *ring, uint64_t age)
{
    bool there = age < ring->count && age < ring->capacity;
    return there ? &ring->slots[(ring->count - 1 - age) % ring->capacity] : NULL;
}

static const struct core_explanation *ring_find(const struct ring *ring, uint64_t explanation)
{
    const struct core_explanation *found = ring_at(ring, 0);
    for (uint64_t age = 1; found != NULL && found->explanation > explanation; age++) {
        found = ring_at(ring, age);
    }
    return found != NULL && found->explanation == explanation ? found : NULL;
}

bool core_explanation_find(const struct core *core, uint64_t explanation,
                           struct core_explanation *ret_explanation)
{
    const struct core_explanation *found = ring_find(&core->moves, explanation);
    if (found == NULL) {
        found = ring_find(&core->bursts, explanation);
    }
    if (found != NULL) {
        *ret_explanation = *found;
    }
    return found != NULL;
}

static bool concerns(const struct core_explanation *explanation, uint64_t device, uint64_t lease,
                     uint64_t endpoint)
{
    bool victim = false;
    for (uint32_t i = 0; i < explanation->victim_count; i++) {
        victim |= lease != 0 && explanation->victims[i].lease == lease;
    }
    return (device == 0 || explanation->device == device) &&
           (lease == 0 || explanation->lease == lease || victim) &&
           (endpoint == 0 || explanation->endpoint == endpoint);
}

size_t core_explanations(const struct core *core, uint64_t device, uint64_t lease,
                         uint64_t endpoint, struct core_explanation *ret_explanations,
                         size_t capacity)
{
    size_t found = 0;
    uint64_t move_age = 0, burst_age = 0;
    while (found < capacity) {
        const struct core_explanation *move = ring_at(&core->moves, move_age);
        const struct core_explanation *burst = ring_at(&core->bursts, burst_age);
        if (move == NULL && burst == NULL) {
            break;
        }
        bool first = burst == NULL || (move != NULL && move->explanation > burst->explanation);
        const struct core_explanation *newest = first ? move : burst;
        move_age += first;
        burst_age += !first;
        if (concerns(newest, device, lease, endpoint)) {
            ret_explanations[found++] = *newest;
        }
    }
    return found;
}
