/* outlook.c: forecasts for owners. How long a waiting lease still waits: devices that come free,
 * one after the other, against what it and those ahead of it need. How likely a running lease is to
 * be revoked: the revokes that the next minutes bring at the rate of late, against the victims that
 * go before it. Both are expectations: nothing is promised by them. */
#include "server/core/state.h"

#define MILLI UINT64_C(1000)
#define RATE_HALF_LIFE_NS (HOUR_NS / 2)
#define STEPS_MAX 100 /* of the scale of times: see scale_ns */
#define Q 32          /* bits after the point in a probability */
#define ONE (UINT64_C(1) << Q)
#define REVOKES_MAX 64 /* more than so many expected ones are sure to reach everybody */

/* ---- what is learned ---- */

void core_outlook_ran(struct core *core, uint64_t run_ns)
{
    core->run_average_ns =
        core->run_average_ns == 0 ? run_ns : core_average_u64(core->run_average_ns, run_ns, 1, 8);
}

static uint64_t revokes_now(const struct core *core)
{
    return core_decay_u64(core->revokes_milli, core->now_ns - core->revokes_since_ns,
                          RATE_HALF_LIFE_NS);
}

void core_outlook_revoked(struct core *core)
{
    core->revokes_milli = core_add_u64(revokes_now(core), MILLI);
    core->revokes_since_ns = core->now_ns;
}

/* ---- waiting ---- */

static bool asks_for(const struct lease *lease, const struct device *device)
{
    return ((lease->spec.kinds_mask >> device->kind) & 1) && core_device_usable(device) &&
           lease->spec.memory_bytes <= device->memory_bytes;
}

/* Part of such a run that ends within the span, in thousandths. The longer it has run, the longer
 * it goes on: lengths of jobs spread wide. e-fold times are 1.44 half-lives. */
static uint64_t ended_milli(const struct core *core, const struct lease *holder, uint64_t span_ns)
{
    uint64_t end_ns = core_lease_end_ns(core, holder);
    if (end_ns != NEVER_NS) {
        return end_ns <= core_add_u64(core->now_ns, span_ns) ? MILLI : 0;
    }
    uint64_t ran_ns = core->now_ns - holder->started_ns;
    uint64_t mean_ns = ran_ns > core->run_average_ns ? ran_ns : core->run_average_ns;
    return core->run_average_ns == 0
               ? 0
               : MILLI - core_decay_u64(MILLI, span_ns, mean_ns - mean_ns * 3 / 10 + 1);
}

/* Runs that end within the span on a device that comes free after `first`: each next run is as long
 * as runs are on average. */
static uint64_t turns_milli(const struct core *core, uint64_t first_ns, uint64_t span_ns)
{
    if (span_ns < first_ns) {
        return 0;
    }
    return MILLI + (core->run_average_ns > 0
                        ? core_scale_u64(span_ns - first_ns, MILLI, core->run_average_ns)
                        : 0);
}

static uint64_t holder_milli(const struct core *core, const struct lease *holder, uint64_t span_ns)
{
    uint64_t ended = ended_milli(core, holder, span_ns);
    uint64_t end_ns = core_lease_end_ns(core, holder);
    uint64_t first_ns = end_ns != NEVER_NS ? end_ns - core->now_ns : core->run_average_ns;
    uint64_t turns = turns_milli(core, first_ns, span_ns);
    return turns > MILLI ? core_scale_u64(ended, turns, MILLI) : ended;
}

/* Devices that are free for somebody within the span, in thousandths. */
static uint64_t supply_milli(const struct core *core, const struct lease *lease, uint64_t span_ns)
{
    uint64_t supply = 0;
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        const struct lease *holder = device->lease;
        if (!asks_for(lease, device) || device->kept) {
            continue;
        }
        bool stays = device->hold == CORE_HOLD_HELD || core_device_stopped(device);
        supply += stays ? holder_milli(core, holder, span_ns)
                        : turns_milli(core, core->handover_cost_ns, span_ns);
    }
    return supply;
}

/* What running leases would have to give at once. */
static uint64_t surplus_milli(const struct core *core, const struct lease *lease)
{
    uint64_t surplus = 0;
    for (size_t i = 0; i < core->lease_count; i++) {
        const struct lease *holder = core->leases[i];
        bool gives = holder->state == CORE_LEASE_RUNNING && holder->spec.preemptible &&
                     holder->held > holder->spec.devices_min &&
                     (holder->spec.kinds_mask & lease->spec.kinds_mask) != 0;
        surplus += gives ? holder->held - holder->spec.devices_min : 0;
    }
    return surplus * MILLI;
}

static uint64_t needed_milli(const struct core *core, const struct lease *lease)
{
    uint64_t needed = lease->spec.devices_min;
    uint32_t position = core_queue_position(core, lease);
    for (size_t i = 0; i < core->lease_count; i++) {
        const struct lease *other = core->leases[i];
        bool ahead = other->state == CORE_LEASE_WAITING &&
                     (other->spec.kinds_mask & lease->spec.kinds_mask) != 0 &&
                     core_queue_position(core, other) < position;
        needed += ahead ? other->spec.devices_min : 0;
    }
    return needed * MILLI;
}

/* 0, 1, 1.25, 1.5, 1.75, 2, 2.5 ... seconds: a forecast of more digits would be a lie. */
static uint64_t scale_ns(uint32_t step)
{
    return step == 0 ? 0 : (SECOND_NS / 4 * (4 + (step - 1) % 4)) << ((step - 1) / 4);
}

static uint64_t wait_of(const struct core *core, const struct lease *lease)
{
    uint64_t needed = needed_milli(core, lease), surplus = surplus_milli(core, lease);
    uint32_t low = 0, high = STEPS_MAX;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (supply_milli(core, lease, scale_ns(middle)) + surplus >= needed) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low < STEPS_MAX ? scale_ns(low) : UINT64_MAX;
}

static void outlook_waiting(const struct core *core, const struct lease *lease,
                            struct core_outlook *outlook)
{
    outlook->reason = core_queue_reason(core, lease);
    bool never = outlook->reason == CORE_REASON_IMPOSSIBLE || !core_may_move(core);
    outlook->wait_ns = never ? UINT64_MAX : wait_of(core, lease);
    uint64_t retry_ns = lease->retry_ns > core->now_ns ? lease->retry_ns - core->now_ns : 0;
    outlook->wait_ns = retry_ns > outlook->wait_ns ? retry_ns : outlook->wait_ns;
}

/* ---- running ---- */

/* Sure to come: a provider wants a device back, or a revoke runs already. */
static bool is_certain(const struct core *core, const struct lease *lease)
{
    uint64_t horizon_ns = core_add_u64(core->now_ns, core->config.outlook_ns);
    for (const struct device *device = lease->first; device != NULL; device = device->next) {
        if (device->hold == CORE_HOLD_REVOKING ||
            (device->reclaim_by_ns != 0 && device->reclaim_by_ns <= horizon_ns)) {
            return true;
        }
    }
    return false;
}

/* Devices that single revokes could take from it. */
static uint32_t exposed(const struct lease *lease)
{
    if (lease->state != CORE_LEASE_RUNNING || !lease->spec.preemptible) {
        return 0;
    }
    uint32_t above = lease->held - lease->spec.devices_min;
    return core_lease_can_stop(lease) || above == 0 ? above + 1 : above;
}

/* Revokes that others would take before the first one comes to this lease. */
static uint64_t before_it(const struct core *core, const struct lease *lease)
{
    uint64_t before = 0;
    for (size_t i = 0; i < core->lease_count; i++) {
        const struct lease *other = core->leases[i];
        bool first = other != lease && (other->spec.kinds_mask & lease->spec.kinds_mask) != 0 &&
                     core_fair_compare_givers(other, lease) < 0;
        before += first ? exposed(other) : 0;
    }
    return before;
}

/* e to the power of minus milli / 1000. */
static uint64_t exp_minus(uint64_t milli)
{
    const uint64_t one_over_e = UINT64_C(1580030169);
    uint64_t result = ONE, rest = (milli % MILLI << Q) / MILLI, term = ONE, fraction = ONE;
    for (uint64_t i = 0; i < milli / MILLI; i++) {
        result = result * one_over_e >> Q;
    }
    for (uint64_t i = 1; i <= 8; i++) {
        term = (term * rest >> Q) / i;
        fraction += i % 2 == 0 ? term : 0 - term;
    }
    return core_scale_u64(result, fraction, ONE);
}

/* That more than `before` revokes come when `milli` / 1000 are expected. */
static uint32_t more_than(uint64_t before, uint64_t milli)
{
    if (milli >= REVOKES_MAX * MILLI) {
        return before < milli / MILLI ? 1000 : 0;
    }
    if (before > 4 * REVOKES_MAX) {
        return 0;
    }
    uint64_t term = exp_minus(milli), sum = term;
    for (uint64_t k = 1; k <= before; k++) {
        term = core_scale_u64(term, milli, k * MILLI);
        sum += term;
    }
    return sum < ONE ? (uint32_t)((ONE - sum) * 1000 >> Q) : 0;
}

static uint32_t revoke_permille(const struct core *core, const struct lease *lease)
{
    if (is_certain(core, lease)) {
        return 1000;
    }
    if (exposed(lease) == 0 || !core_may_move(core)) {
        return 0;
    }
    /* In balance the decayed count is rate x half-life / ln 2. */
    uint64_t expected =
        core_scale_u64(revokes_now(core) * 693, core->config.outlook_ns, RATE_HALF_LIFE_NS * MILLI);
    return more_than(before_it(core, lease), expected);
}

bool core_outlook(const struct core *core, uint64_t lease, struct core_outlook *ret_outlook)
{
    const struct lease *found = core_lease_get(core, lease);
    if (found == NULL) {
        return false;
    }
    *ret_outlook = (struct core_outlook){0};
    if (found->state == CORE_LEASE_WAITING) {
        outlook_waiting(core, found, ret_outlook);
    } else if (found->state == CORE_LEASE_RUNNING || found->state == CORE_LEASE_SUSPENDED) {
        ret_outlook->revoke_permille = revoke_permille(core, found);
    }
    return true;
}
