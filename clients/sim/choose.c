/* choose.c: which device a policy gives or takes when it leaves that to the engine. */
#include "clients/sim/state.h"

static bool rested(const struct engine *engine, const struct device *device)
{
    uint64_t hold_ns = engine->setup->hold_ns;
    return device->moved_ns == 0 || hold_ns == ENGINE_NEVER_NS ||
           engine->now_ns - device->moved_ns >= hold_ns;
}

bool engine_give_any(struct engine *engine)
{
    uint32_t best = NONE, best_score = 0;
    for (uint32_t i = engine->setup->device_count; i-- > 0;) {
        const struct device *device = &engine->devices[i];
        uint32_t score = 1 + 2 * (device->request == NONE) + (device->job != NONE);
        if (device->phase == ENGINE_SERVING && rested(engine, device) && score > best_score) {
            best = i;
            best_score = score;
        }
    }
    return best != NONE && engine_give(engine, best, ENGINE_POOL, false);
}

/* Lower is taken first: what trains nothing, then what has least to lose. */
static uint64_t victim_cost(struct engine *engine, const struct device *device, bool loses)
{
    if (device->job == NONE) {
        return 0;
    }
    struct job *job = &engine->jobs[device->job];
    job_advance(engine, job);
    return job->runs ? core_sum_clip(2 + (loses ? job->provisional_ns : 0)) : 1;
}

bool engine_take_any(struct engine *engine, enum core_rung rung)
{
    const struct sim_rung *how = engine_rung(engine, rung);
    uint32_t best = NONE;
    uint64_t best_cost = UINT64_MAX;
    for (uint32_t i = engine->setup->device_count; i-- > 0 && how != NULL;) {
        const struct device *device = &engine->devices[i];
        bool held = device->phase == ENGINE_TRAINING || device->phase == ENGINE_GIVING ||
                    device->phase == ENGINE_DRAINING;
        uint64_t cost =
            held && rested(engine, device) ? victim_cost(engine, device, how->loses) : UINT64_MAX;
        if (cost < best_cost) {
            best = i;
            best_cost = cost;
        }
    }
    return best != NONE && engine_take(engine, best, rung);
}
