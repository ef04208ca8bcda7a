/* health.c: slow and throttling devices. A slow one comes last for whatever is new. One that is
 * much too slow for long is drained: nothing new comes, serving moves away, and its holder gives it
 * up where it can go on without it or start again elsewhere. At most a share of the pool, the
 * health budget, is drained for slowness; beyond it there is an alert instead. */
#include "server/core/state.h"

static bool is_slow(const struct core *core, const struct device *device)
{
    return device->said_slow || device->speed_permille < core->config.slow_permille;
}

void core_device_health_follow(struct core *core, struct device *device)
{
    uint64_t now_ns = core->now_ns;
    bool ails = device->speed_permille < core->config.drain_permille;
    bool is_well = device->speed_permille >= core->config.slow_permille;
    device->ails_since_ns = !ails                               ? NEVER_NS
                            : device->ails_since_ns == NEVER_NS ? now_ns
                                                                : device->ails_since_ns;
    device->well_since_ns = !is_well                            ? NEVER_NS
                            : device->well_since_ns == NEVER_NS ? now_ns
                                                                : device->well_since_ns;
    if (device->health == CORE_HEALTH_OK || device->health == CORE_HEALTH_SLOW) {
        device->health = is_slow(core, device) ? CORE_HEALTH_SLOW : CORE_HEALTH_OK;
    }
    device->alert = ails ? device->alert : 0;
    core_device_touch(core, device);
}

static bool for_so_long(const struct core *core, uint64_t since_ns)
{
    return since_ns != NEVER_NS && core->now_ns - since_ns >= core->config.drain_after_ns;
}

uint64_t core_device_health_due_ns(const struct core *core, const struct device *device)
{
    uint64_t since_ns = device->drained ? device->well_since_ns : device->ails_since_ns;
    return core_sooner(core, NEVER_NS, since_ns, core->config.drain_after_ns);
}

uint32_t core_health_budget(const struct core *core)
{
    return (uint32_t)core_scale_u64(core->device_count, core->config.health_budget_permille, 1000);
}

static void drained_set(struct core *core, struct device *device, bool drained)
{
    device->drained = drained;
    core->drained_count += drained ? 1 : UINT32_MAX;
    core_instances_go(core, device, drained || device->leaving);
    core_device_touch(core, device);
}

void core_device_health_forget(struct core *core, struct device *device)
{
    core->drained_count -= device->drained;
    device->drained = false;
    SET_EACH (&core->device_sets[DEVICES_AILING], slot) {
        core_device_touch(core, core->device_slots[slot]); /* the budget is another one */
    }
}

/* ---- its holder ---- */

static uint32_t idle_elsewhere(const struct core *core, const struct lease *lease)
{
    uint32_t idle = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        idle += (lease->spec.kinds_mask >> kind) & 1 ? core->free[FREE_CLEAR][kind] : 0;
    }
    return idle;
}

static bool may_be_moved(const struct core *core, const struct device *device)
{
    return core_device_rested(core, device) &&
           !core_device_moves_used_up(core, device, core->config.moves_per_hour);
}

static void give_up_gang(struct core *core, struct lease *lease,
                         const struct core_explanation *explanation)
{
    core_explain(core, explanation);
    LEASE_DEVICES (lease, device) {
        core_device_count_move(core, device);
    }
    core_guard_count(core, lease, explanation->rung);
    core_lease_recall(core, lease, CORE_LEASE_DRAINING, CORE_REASON_SLOW);
}

/* One that is whole and in no hand-over goes on with fewer, or starts again where there is another
 * device; else it keeps this one until it lets go. */
static void move_holder(struct core *core, struct device *device)
{
    struct lease *lease = device->lease;
    if (device->hold != CORE_HOLD_HELD || lease->state != CORE_LEASE_RUNNING ||
        lease->granting > 0 || lease->leaving > 0 || !may_be_moved(core, device)) {
        return;
    }
    bool fewer = lease->held > lease->spec.devices_min;
    enum core_rung rung = fewer ? core_rung_for_one(lease) : core_rung_for_all(lease);
    uint32_t count = fewer && rung == CORE_RUNG_SHRINK ? 1 : lease->held;
    if ((!fewer && idle_elsewhere(core, lease) == 0) ||
        core_guard(core, lease, count, rung, false) != CORE_REASON_NONE) {
        return;
    }
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_REVOKE, CORE_REASON_SLOW, device, lease, NULL);
    explanation.rung = rung;
    if (fewer) {
        core_shrink(core, device, CORE_REASON_SLOW, &explanation);
    } else {
        give_up_gang(core, lease, &explanation);
    }
}

/* ---- the budget ---- */

static struct device *slowest_ailing(const struct core *core)
{
    struct device *slowest = NULL;
    SET_EACH (&core->device_sets[DEVICES_AILING], slot) {
        struct device *device = core->device_slots[slot];
        if (!device->drained && for_so_long(core, device->ails_since_ns) &&
            (slowest == NULL || device->speed_permille < slowest->speed_permille)) {
            slowest = device;
        }
    }
    return slowest;
}

static struct device *fastest_drained(const struct core *core)
{
    struct device *fastest = NULL;
    SET_EACH (&core->device_sets[DEVICES_AILING], slot) {
        struct device *device = core->device_slots[slot];
        if (device->drained &&
            (fastest == NULL || device->speed_permille > fastest->speed_permille)) {
            fastest = device;
        }
    }
    return fastest;
}

static void drain(struct core *core, struct device *device)
{
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_DRAIN, CORE_REASON_SLOW, device, device->lease, NULL);
    core_explain(core, &explanation);
    core_device_promise(core, device, NULL);
    core_device_unkeep(core, device);
    drained_set(core, device, true);
}

static void use_again(struct core *core, struct device *device, enum core_reason reason)
{
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_USE_AGAIN, reason, device, device->lease, NULL);
    core_explain(core, &explanation);
    drained_set(core, device, false);
}

static void alert(struct core *core, struct device *device)
{
    enum core_reason reason = core_may_move(core) ? CORE_REASON_HEALTH_BUDGET : CORE_REASON_SLOW;
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_DRAIN, reason, device, device->lease, NULL);
    core_explain_advice(core, &device->alert, explanation);
}

static void alert_others(struct core *core)
{
    SET_EACH (&core->device_sets[DEVICES_AILING], slot) {
        struct device *device = core->device_slots[slot];
        if (!device->drained && for_so_long(core, device->ails_since_ns)) {
            alert(core, device);
        }
    }
}

void core_health_plan(struct core *core)
{
    SET_EACH (&core->device_sets[DEVICES_AILING], slot) {
        struct device *device = core->device_slots[slot];
        if (device->drained && for_so_long(core, device->well_since_ns)) {
            use_again(core, device, CORE_REASON_NONE);
        }
    }
    uint32_t budget = core_health_budget(core);
    while (core->drained_count > budget) {
        use_again(core, fastest_drained(core), CORE_REASON_HEALTH_BUDGET);
    }
    struct device *next = slowest_ailing(core);
    while (next != NULL && core_may_move(core) && core->drained_count < budget) {
        drain(core, next);
        next = slowest_ailing(core);
    }
    if (next != NULL) {
        alert_others(core);
    }
    SET_EACH (&core->device_sets[DEVICES_AILING], slot) {
        if (core->device_slots[slot]->drained && core_may_move(core)) {
            move_holder(core, core->device_slots[slot]);
        }
    }
}

/* ---- for those who watch ---- */

void core_health_read(const struct core *core, struct core_health_view *ret_view)
{
    *ret_view = (struct core_health_view){.drained = core->drained_count,
                                          .budget = core_health_budget(core)};
    for (size_t i = 0; i < core->device_count; i++) {
        ret_view->slow += core->devices[i]->health == CORE_HEALTH_SLOW;
    }
    SET_EACH (&core->device_sets[DEVICES_AILING], slot) {
        const struct device *device = core->device_slots[slot];
        ret_view->beyond += !device->drained && for_so_long(core, device->ails_since_ns);
    }
}
