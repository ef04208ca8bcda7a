/* reserve.c: how many devices an endpoint keeps beyond what it needs now, because more take time to
 * come. It learns from its own history: by how much has demand risen within the time that a device
 * takes to come, after it was as high as it is now? The reserve is the level that such rises
 * exceeded rarely enough for the share of work that may be late (1 - target).
 *
 * Time is cut into ticks. Rises are counted in bins that grow with them, in contexts by the demand
 * that they began at. */
#include "server/core/state.h"

#define BINS RESERVE_BINS
#define CONTEXTS RESERVE_CONTEXTS
#define PAST RESERVE_PAST

#define LEAD_EVERY_NS SECOND_NS /* how often leases are asked how fast they let go */
#define TICK_MIN_NS (SECOND_NS / 10)
#define TICK_MAX_NS (60 * SECOND_NS)
#define TICKS_PER_LEAD 8
#define SOLVE_EVERY 16       /* ticks */
#define COUNT_MAX (1u << 20) /* of ticks; then the history weighs half */
/* A rise beyond the reserve makes less work late than it is large: it ends, devices come sooner. */
#define BUDGET_TIMES 4
#define SHARE_STEPS 16

/* Devices x 1000 of a bin: quarters of one to four, then four steps an octave. */
static uint64_t bin_milli(uint32_t bin)
{
    return bin < 16 ? bin * UINT64_C(250) : (UINT64_C(4000) + (bin % 4) * 1000) << ((bin - 16) / 4);
}

/* To the nearest one below: less than a quarter is no rise. */
static uint32_t bin_of(uint64_t milli)
{
    uint32_t bin = 0;
    while (bin < BINS - 1 && bin_milli(bin + 1) <= milli) {
        bin++;
    }
    return bin;
}

static uint32_t context_of(uint64_t demand_milli)
{
    static const uint32_t limits_milli[CONTEXTS - 1] = {50, 300, 1000, 2500, 5000, 10000, 40000};
    uint32_t context = 0;
    while (context < CONTEXTS - 1 && demand_milli >= limits_milli[context]) {
        context++;
    }
    return context;
}

/* ---- how long a device takes to come ---- */

static uint64_t lead_of(const struct core *core, const struct lease *lease, uint64_t *ret_give_ns)
{
    uint64_t least_ns = NEVER_NS;
    uint32_t kind = (uint32_t)__builtin_ctz(lease->spec.kinds_mask);
    *ret_give_ns = 0;
    if (lease->spec.in_process) {
        return 0; /* it yields */
    }
    for (enum core_rung rung = RUNG_FIRST; rung < CORE_RUNG_COUNT; rung++) {
        bool way = core_rung_supported(lease, rung) &&
                   (rung != CORE_RUNG_KILL || least_ns == NEVER_NS); /* no work is to be lost */
        uint64_t take_ns = way ? core_rung_take_ns(core, lease, rung, kind) : NEVER_NS;
        if (take_ns < least_ns) {
            least_ns = take_ns;
            *ret_give_ns = core_rung_give_ns(core, lease, rung, kind);
        }
    }
    return least_ns;
}

/* The fuller the bounds of the hour, the longer: half a bound's share of the hour between moves
 * when they are half used, twice of it at the end. */
static uint64_t pace_of(uint64_t used, uint64_t bound, uint64_t leases)
{
    uint64_t share_permille = bound == 0 ? 0 : used * 1000 / bound;
    uint64_t each_ns = bound == 0 ? 0 : core_scale_u64(HOUR_NS, leases, bound);
    return core_scale_u64(each_ns * 2, share_permille * share_permille, 1000000);
}

/* What endpoints decided with another lead or pace they decide anew. */
static void lead_set(struct core *core, uint64_t take_ns, uint64_t give_ns, uint64_t pace_ns)
{
    bool same =
        core->lead_take_ns == take_ns && core->lead_give_ns == give_ns && core->pace_ns == pace_ns;
    core->lead_take_ns = take_ns;
    core->lead_give_ns = give_ns;
    core->pace_ns = pace_ns;
    for (size_t i = 0; i < core->endpoint_count && !same; i++) {
        core_endpoint_touch(core, core->endpoints[i]);
    }
}

static void lead_refresh(struct core *core)
{
    uint64_t take_ns = 0, give_ns = 0, count = 0, stops = 0, stops_bound = 0;
    if (core->now_ns < core->lead_due_ns) {
        return;
    }
    core->lead_due_ns = core_add_u64(core->now_ns, LEAD_EVERY_NS);
    for (size_t i = 0; i < core->lease_count; i++) {
        const struct lease *lease = core->leases[i];
        uint64_t give = 0;
        uint64_t take = lease->state == CORE_LEASE_ENDED ? NEVER_NS : lead_of(core, lease, &give);
        if (take != NEVER_NS) {
            take_ns = core_add_u64(take_ns, take);
            give_ns = core_add_u64(give_ns, give);
            stops += core_guard_stops(core, lease);
            stops_bound += lease->stop_times.capacity;
            count++;
        }
    }
    uint64_t divisor = count == 0 ? 1 : count;
    lead_set(core, take_ns / divisor, give_ns / divisor, pace_of(stops, stops_bound, count));
}

/* Another way to get devices back: what was learned is about something else. */
static void tick_choose(struct core *core, struct reserve *reserve)
{
    uint64_t tick_ns = core->lead_take_ns / TICKS_PER_LEAD;
    tick_ns = tick_ns < TICK_MIN_NS ? TICK_MIN_NS : tick_ns > TICK_MAX_NS ? TICK_MAX_NS : tick_ns;
    bool same =
        reserve->tick_ns != 0 && tick_ns <= reserve->tick_ns * 2 && tick_ns >= reserve->tick_ns / 2;
    if (!same) {
        uint64_t base_milli = reserve->base_milli;
        *reserve = (struct reserve){.tick_ns = tick_ns, .base_milli = base_milli};
    }
}

/* ---- the history ---- */

static void halve(struct reserve *reserve)
{
    reserve->counted = 0;
    reserve->work_milli /= 2;
    for (uint32_t context = 0; context < CONTEXTS; context++) {
        for (uint32_t bin = 0; bin < BINS; bin++) {
            reserve->rises[context][bin] /= 2;
            reserve->counted += reserve->rises[context][bin];
        }
    }
}

/* The smallest reserve of a context that at most this share of its rises exceeds, in parts of
 * 2^SHARE_STEPS. */
static uint32_t level_for(const struct reserve *reserve, uint32_t context, uint64_t share)
{
    uint64_t all = 0, above = 0;
    for (uint32_t bin = 0; bin < BINS; bin++) {
        all += reserve->rises[context][bin];
    }
    for (uint32_t bin = BINS; bin-- > 0;) {
        above += reserve->rises[context][bin];
        if (above << SHARE_STEPS > all * share) {
            return bin;
        }
    }
    return 0;
}

/* Device-ticks x 1000 by which rises would have exceeded the reserve. */
static uint64_t excess_of(const struct reserve *reserve, uint32_t context, uint32_t level)
{
    uint64_t excess = 0;
    for (uint32_t bin = level + 1; bin < BINS; bin++) {
        excess += reserve->rises[context][bin] * (bin_milli(bin) - bin_milli(level));
    }
    return excess;
}

/* The largest share whose excess keeps to the budget, and the levels for it. */
static void solve(struct reserve *reserve, uint32_t late_permille)
{
    uint64_t budget = core_scale_u64(reserve->work_milli, late_permille * BUDGET_TIMES, 1000);
    uint64_t share = 0;
    for (int step = SHARE_STEPS; step-- > 0;) {
        uint64_t trial = share | UINT64_C(1) << step, excess = 0;
        for (uint32_t context = 0; context < CONTEXTS; context++) {
            excess += excess_of(reserve, context, level_for(reserve, context, trial));
        }
        share = excess <= budget ? trial : share;
    }
    for (uint32_t context = 0; context < CONTEXTS; context++) {
        reserve->level[context] = level_for(reserve, context, share);
    }
}

/* Demand over the last SLO: what comes within it need not be served at once. */
static uint64_t lately_milli(const struct endpoint *endpoint)
{
    const struct reserve *reserve = &endpoint->reserve;
    uint64_t span = endpoint->spec.slo_ns / reserve->tick_ns, sum = 0;
    span = span < 1 ? 1 : span > PAST ? PAST : span;
    span = span > reserve->ticks + 1 ? reserve->ticks + 1 : span;
    for (uint64_t i = 0; i < span; i++) {
        sum += reserve->past[(reserve->ticks - i) % PAST].demand_milli;
    }
    return sum / span;
}

static void tick_end(struct core *core, struct endpoint *endpoint, uint64_t work_ns, uint64_t times)
{
    struct reserve *reserve = &endpoint->reserve;
    uint64_t lead = core->lead_take_ns / reserve->tick_ns;
    uint64_t window_ns = core_add_u64(core->lead_take_ns, core->lead_give_ns) * 2;
    uint64_t now_milli = core_scale_u64(work_ns, 1000, reserve->tick_ns);
    struct reserve_past *past = &reserve->past[reserve->ticks % PAST];
    lead = lead < 1 ? 1 : lead >= PAST ? PAST - 1 : lead;
    window_ns = window_ns < core->config.demand_fast_ns ? core->config.demand_fast_ns : window_ns;
    reserve->base_milli =
        core_average_u64(reserve->base_milli, now_milli, reserve->tick_ns * times, window_ns);
    *past = (struct reserve_past){.base_milli = reserve->base_milli, .demand_milli = now_milli};
    if (reserve->ticks >= lead) {
        const struct reserve_past *then = &reserve->past[(reserve->ticks - lead) % PAST];
        uint64_t lately = lately_milli(endpoint);
        uint64_t rise = lately > then->base_milli ? lately - then->base_milli : 0;
        reserve->rises[context_of(then->base_milli)][bin_of(rise)] += (uint32_t)times;
        reserve->counted += times;
    }
    reserve->work_milli = core_add_u64(reserve->work_milli, core_scale_u64(now_milli, times, 1));
    reserve->ticks++;
    if (reserve->counted >= COUNT_MAX) {
        halve(reserve);
    }
    if (reserve->ticks % SOLVE_EVERY == 0) {
        solve(reserve, 1000 - endpoint->spec.target_permille);
    }
}

/* ---- for demand.c ---- */

void core_reserve_feed(struct core *core, struct endpoint *endpoint, uint64_t work_ns,
                       uint64_t interval_ns)
{
    struct reserve *reserve = &endpoint->reserve;
    lead_refresh(core);
    tick_choose(core, reserve);
    while (interval_ns > 0) {
        uint64_t room_ns = reserve->tick_ns - reserve->tick_age_ns;
        uint64_t span_ns = interval_ns < room_ns ? interval_ns : room_ns;
        uint64_t part_ns = core_scale_u64(work_ns, span_ns, interval_ns);
        reserve->tick_age_ns += span_ns;
        reserve->tick_work_ns = core_add_u64(reserve->tick_work_ns, part_ns);
        interval_ns -= span_ns;
        work_ns -= part_ns;
        if (reserve->tick_age_ns == reserve->tick_ns) {
            uint64_t more = interval_ns / reserve->tick_ns;
            uint64_t times = more > PAST * 2 ? more - PAST * 2 : 1; /* a long time of the same */
            tick_end(core, endpoint, reserve->tick_work_ns, times);
            interval_ns -= (times - 1) * reserve->tick_ns;
            reserve->tick_age_ns = reserve->tick_work_ns = 0;
        }
    }
}

bool core_reserve_is_known(const struct core *core, const struct endpoint *endpoint)
{
    return core->lead_take_ns > 0 && endpoint->reserve.ticks >= SOLVE_EVERY;
}

/* At least as much as was learned at a lower demand: whatever made it rise then may do so again. */
uint64_t core_reserve_target_milli(const struct endpoint *endpoint)
{
    const struct reserve *reserve = &endpoint->reserve;
    uint32_t level = 0;
    for (uint32_t i = 0; i <= context_of(reserve->base_milli); i++) {
        level = reserve->level[i] > level ? reserve->level[i] : level;
    }
    return core_add_u64(reserve->base_milli, bin_milli(level));
}
