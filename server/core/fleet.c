/* fleet.c: endpoints that can share devices, and how many devices they need together. Apart, each
 * would keep its own peak in reserve; together they rarely peak at once.
 *
 * Where a device comes back well within the SLO, nothing is predicted: what runs, and what starts
 * the queue within half the SLO, is all that is needed. Where it takes longer than the queue may
 * wait, the average demand decides, with the reserve of reserve.c beside it. Between the two the
 * prediction counts in part.
 *
 * One endpoint, the bearer, asks for the whole fleet: models of the others are parked beside its
 * own. The others ask for themselves only, so that one that cannot share still has what it needs.
 * Where no lease must be asked for devices, all do.
 */
#include "server/core/state.h"

#define BASE_LEADS 3                     /* window of the base, in hand-overs */
#define LED_NS SECOND_NS                 /* how long figures about leases are good for */
#define HOLD_PERMILLE 700                /* of a hand-over's cost */
#define TOKENS_SPAN_NS (600 * SECOND_NS) /* hand-overs that can be saved up */
#define STRETCH_NS (4 * SECOND_NS)       /* longer hold when none are left */
#define LOAD_HIGH 1000                   /* permille of each device, beside a reserve */
#define LOAD_LOW 900
#define MILLION UINT64_C(1000000)

uint64_t core_hold_ns(const struct core *core)
{
    uint64_t cost_ns = core->handover_cost_ns;
    return cost_ns > core->config.hold_min_ns ? cost_ns : core->config.hold_min_ns;
}

/* ---- who belongs together ---- */

/* CORE_KINDS_MAX: it is in none, being removed. */
static size_t fleet_index(const struct core *core, const struct endpoint *endpoint)
{
    size_t index = 0;
    while (index < CORE_KINDS_MAX &&
           (!core->fleets[index].used ||
            (core->fleets[index].kinds_mask & endpoint->spec.kinds_mask) == 0)) {
        index++;
    }
    return index;
}

static const struct fleet *fleet_seen(const struct core *core, const struct endpoint *endpoint)
{
    size_t index = fleet_index(core, endpoint);
    return index < CORE_KINDS_MAX ? &core->fleets[index] : NULL;
}

static uint32_t lowest_kind(uint32_t kinds_mask)
{
    uint32_t kind = 0;
    while (((kinds_mask >> kind) & 1) == 0) {
        kind++;
    }
    return kind;
}

/* All kinds that are reached from these through endpoints. */
static uint32_t closure(const struct core *core, uint32_t kinds_mask)
{
    uint32_t before = 0;
    while (before != kinds_mask) {
        before = kinds_mask;
        for (size_t i = 0; i < core->endpoint_count; i++) {
            const struct endpoint *endpoint = core->endpoints[i];
            bool reached = !endpoint->removing && (endpoint->spec.kinds_mask & kinds_mask) != 0;
            kinds_mask |= reached ? endpoint->spec.kinds_mask : 0;
        }
    }
    return kinds_mask & ((1u << CORE_KINDS_MAX) - 1);
}

/* On the most devices, for the least memory. */
static bool bears_before(const struct endpoint *a, const struct endpoint *b)
{
    if (a->spec.devices_max != b->spec.devices_max) {
        return a->spec.devices_max > b->spec.devices_max;
    }
    return a->spec.memory_bytes < b->spec.memory_bytes;
}

static void fleet_join(struct core *core, struct fleet *fleet, struct endpoint *endpoint)
{
    const struct endpoint *bearer = core_fleet_bearer(core, endpoint);
    if (bearer == NULL || bears_before(endpoint, bearer)) {
        fleet->bearer = endpoint->slot + 1;
    }
    uint32_t budget_ppm = (1000 - endpoint->spec.target_permille) * 1000;
    if (fleet->slo_ns == 0 || endpoint->spec.slo_ns < fleet->slo_ns) {
        fleet->slo_ns = endpoint->spec.slo_ns;
    }
    fleet->budget_ppm = budget_ppm < fleet->budget_ppm ? budget_ppm : fleet->budget_ppm;
    fleet->fast_milli += endpoint->told_fast_milli;
    fleet->queue_milli += endpoint->told_queue_milli;
    fleet->running_milli += endpoint->told_running_milli;
}

struct endpoint *core_fleet_bearer(const struct core *core, const struct endpoint *endpoint)
{
    const struct fleet *fleet = fleet_seen(core, endpoint);
    return fleet != NULL && fleet->bearer != 0 ? core->endpoint_slots[fleet->bearer - 1] : NULL;
}

/* ---- what its devices are lent to ---- */

static uint64_t rung_ns(const struct core *core, const struct lease *lease, uint32_t kind,
                        uint64_t *ret_give_ns, uint64_t *ret_moves)
{
    const struct core_lease_spec *spec = &lease->spec;
    uint64_t best_ns = NEVER_NS;
    uint32_t rungs = core_rungs_of(lease) & ((1u << CORE_RUNG_KILL) - (1u << RUNG_FIRST));
    for (; rungs != 0; rungs &= rungs - 1) {
        enum core_rung rung = (enum core_rung)__builtin_ctz(rungs);
        uint64_t take_ns = core_rung_take_ns(core, lease, rung, kind);
        if (take_ns < best_ns) {
            best_ns = take_ns;
            *ret_give_ns = core_rung_give_ns(core, lease, rung, kind);
            *ret_moves = core_rung_stops(rung) ? spec->stops_per_hour : spec->revokes_per_hour;
        }
    }
    return best_ns;
}

static uint64_t tokens_most(uint64_t moves_hour)
{
    return core_scale_u64(moves_hour * 1000, TOKENS_SPAN_NS, HOUR_NS);
}

/* What its endpoints decided with other times they decide anew. */
static void lead_set(struct core *core, struct fleet *fleet, bool lends, uint64_t lead_ns,
                     uint64_t give_ns)
{
    bool same = fleet->lends == lends && fleet->lead_ns == lead_ns && fleet->give_ns == give_ns;
    fleet->lends = lends;
    fleet->lead_ns = lead_ns;
    fleet->give_ns = give_ns;
    core->leads_changed = core->leads_changed || !same;
    for (size_t i = 0; i < core->endpoint_count && !same; i++) {
        if ((core->endpoints[i]->spec.kinds_mask & fleet->kinds_mask) != 0) {
            core_endpoint_touch(core, core->endpoints[i]);
        }
    }
}

/* Averages over the leases that must be asked for a device, by the fastest of their rungs. */
static void fleet_learn(struct core *core, struct fleet *fleet)
{
    uint64_t take_us = 0, give_us = 0, devices = 0, moves = 0;
    for (size_t i = 0; i < core->lease_count; i++) {
        const struct lease *lease = core->leases[i];
        bool counts = lease->state != CORE_LEASE_ENDED && !lease->spec.in_process &&
                      (lease->spec.kinds_mask & fleet->kinds_mask) != 0;
        uint64_t give_ns = 0, of_lease = 0;
        uint32_t kind = counts ? lowest_kind(lease->spec.kinds_mask & fleet->kinds_mask) : 0;
        uint64_t take_ns = counts ? rung_ns(core, lease, kind, &give_ns, &of_lease) : NEVER_NS;
        if (take_ns != NEVER_NS) {
            take_us += take_ns / 1000 * lease->spec.devices_min;
            give_us += give_ns / 1000 * lease->spec.devices_min;
            devices += lease->spec.devices_min;
            uint64_t bound = core->config.moves_per_hour;
            moves +=
                lease->spec.devices_min * (of_lease != 0 && of_lease < bound ? of_lease : bound);
        }
    }
    uint64_t passed_ns = core->now_ns - fleet->led_ns;
    fleet->tokens_milli =
        fleet->led_ns == 0 ? tokens_most(moves)
                           : fleet->tokens_milli + core_scale_u64(moves * 1000, passed_ns, HOUR_NS);
    if (fleet->tokens_milli > tokens_most(moves)) {
        fleet->tokens_milli = tokens_most(moves);
    }
    fleet->moves_hour = moves;
    fleet->led_ns = core->now_ns;
    uint64_t lead_ns = devices > 0 ? take_us / devices * 1000 : 0;
    uint64_t give_ns = devices > 0 ? give_us / devices * 1000 : 0;
    lead_set(core, fleet, devices > 0, lead_ns, give_ns);
}

/* ---- what is needed ---- */

/* How far the average has to be trusted: not at all, where a device is there before the queue has
 * waited for long. */
static uint64_t foresight_permille(const struct fleet *fleet)
{
    uint64_t begin_ns = fleet->slo_ns / 4, span_ns = fleet->slo_ns / 2;
    if (!fleet->lends || fleet->lead_ns >= begin_ns + span_ns) {
        return 1000;
    }
    return fleet->lead_ns <= begin_ns ? 0
                                      : core_scale_u64(fleet->lead_ns - begin_ns, 1000, span_ns);
}

static uint64_t base_window_ns(const struct core *core, const struct fleet *fleet)
{
    uint64_t window_ns = core_scale_u64(fleet->lead_ns + fleet->give_ns, BASE_LEADS, 2);
    return window_ns > core->config.demand_fast_ns ? window_ns : core->config.demand_fast_ns;
}

static struct core_load load_of(const struct core *core, const struct fleet *fleet)
{
    return (struct core_load){
        .now_ns = core->now_ns,
        .lead_ns = fleet->lead_ns,
        .demand_milli = fleet->fast_milli,
        .base_milli = fleet->base_milli,
        .devices = core_pool_usable(core, fleet->kinds_mask),
        .budget_ppm = fleet->budget_ppm,
        .slo_ns = fleet->slo_ns,
    };
}

static uint32_t devices_for(uint64_t milli)
{
    uint64_t devices = (milli + 999) / 1000;
    return devices > CORE_DEVICES_MAX ? CORE_DEVICES_MAX : (uint32_t)devices;
}

/* Devices' worth of work, thousandths. */
struct work {
    uint64_t demand, queue, running;
};

static uint32_t need_for(const struct work *work, uint64_t foresight, uint32_t load_permille,
                         uint64_t reserve_milli)
{
    uint64_t half = 1000 + (1000 - foresight); /* the queue starts within half the SLO, or all */
    uint64_t demand = core_scale_u64(work->demand, 1000, load_permille) + reserve_milli;
    uint64_t milli =
        core_scale_u64(demand, foresight, 1000) + core_scale_u64(work->queue, half, 1000);
    return devices_for(milli > work->running ? milli : work->running);
}

/* Where leases must be asked, what may come above the average is the reserve's to cover. */
static uint32_t load_permille(const struct fleet *fleet, uint32_t configured, uint32_t lending)
{
    return fleet->lends ? lending : configured;
}

static struct core_need need_of(const struct core *core, const struct fleet *fleet,
                                const struct work *work, uint64_t keeps, uint64_t takes)
{
    uint64_t foresight = foresight_permille(fleet);
    return (struct core_need){
        .high = need_for(work, foresight,
                         load_permille(fleet, core->config.load_high_permille, LOAD_HIGH), takes),
        .low = need_for(work, foresight,
                        load_permille(fleet, core->config.load_low_permille, LOAD_LOW), keeps),
    };
}

/* A device that is asked for comes too late for what its demand was. */
static bool takes_long(const struct core *core, const struct fleet *fleet)
{
    return fleet->lends && fleet->lead_ns > core->config.demand_slow_ns;
}

/* Of all its endpoints together, as of now: kept until the next figures. */
static void fleet_decide(const struct core *core, struct fleet *fleet)
{
    struct core_load load = load_of(core, fleet);
    struct work work = {fleet->base_milli, fleet->queue_milli, fleet->busy_milli};
    if (takes_long(core, fleet)) {
        uint64_t queue_us = core_scale_u64(fleet->queue_milli, fleet->slo_ns, MILLION);
        fleet->need = (struct core_need){
            .high = core_levels_takes(&fleet->levels, fleet->base_milli, queue_us),
            .low = core_levels_keeps(&fleet->levels, fleet->base_milli, queue_us),
        };
        return;
    }
    fleet->need = need_of(core, fleet, &work, core_reserve_keeps_milli(&fleet->reserve, &load),
                          core_reserve_takes_milli(&fleet->reserve, &load));
}

struct core_need core_fleet_need(const struct core *core, const struct endpoint *endpoint)
{
    const struct fleet *fleet = fleet_seen(core, endpoint);
    if (fleet == NULL || endpoint->removing) {
        return (struct core_need){0};
    }
    if (fleet->lends && fleet->bearer == endpoint->slot + 1) {
        return fleet->need;
    }
    struct work work = {endpoint->demand_milli, endpoint->told_queue_milli,
                        endpoint->told_running_milli};
    return need_of(core, fleet, &work, 0, 0);
}

/* What its bearer asks for falls by time alone; NEVER_NS: it is nothing. */
uint64_t core_fleet_due_ns(const struct core *core, const struct endpoint *endpoint)
{
    const struct fleet *fleet = fleet_seen(core, endpoint);
    bool falls = fleet != NULL && fleet->bearer == endpoint->slot + 1 && fleet->base_milli > 0;
    return falls ? core_add_u64(fleet->fed_ns, core->config.sample_stale_ns) : NEVER_NS;
}

/* As long as a hand-over costs; longer when the hour's hand-overs run low, so that they last. */
uint64_t core_fleet_hold_ns(const struct core *core, const struct endpoint *endpoint)
{
    const struct fleet *fleet = fleet_seen(core, endpoint);
    uint64_t hold_ns = core->config.hold_min_ns;
    if (fleet == NULL || !fleet->lends) {
        return hold_ns;
    }
    if (takes_long(core, fleet)) {
        uint64_t long_ns = core_levels_hold_ns(&fleet->levels);
        return long_ns > hold_ns ? long_ns : hold_ns;
    }
    uint64_t cost_ns = core_scale_u64(fleet->lead_ns + fleet->give_ns, HOLD_PERMILLE, 1000);
    uint64_t most = tokens_most(fleet->moves_hour);
    uint64_t used = most > fleet->tokens_milli ? most - fleet->tokens_milli : 0;
    hold_ns = cost_ns > hold_ns ? cost_ns : hold_ns;
    return hold_ns + (most > 0 ? core_scale_u64(STRETCH_NS, used, most) : 0);
}

void core_fleet_spend(struct core *core, const struct endpoint *endpoint, uint32_t devices)
{
    size_t index = fleet_index(core, endpoint);
    if (index < CORE_KINDS_MAX && core->fleets[index].bearer == endpoint->slot + 1) {
        uint64_t *tokens = &core->fleets[index].tokens_milli;
        *tokens -= *tokens < devices * UINT64_C(1000) ? *tokens : devices * UINT64_C(1000);
    }
}

/* ---- following the load ---- */

void core_fleets_form(struct core *core)
{
    for (int i = 0; i < CORE_KINDS_MAX; i++) {
        struct fleet *fleet = &core->fleets[i];
        fleet->used = false;
        fleet->bearer = 0;
        fleet->budget_ppm = core->config.late_budget_ppm;
        fleet->slo_ns = fleet->fast_milli = fleet->queue_milli = fleet->running_milli = 0;
    }
    for (size_t i = 0; i < core->endpoint_count; i++) {
        struct endpoint *endpoint = core->endpoints[i];
        if (!endpoint->removing) {
            uint32_t kinds_mask = closure(core, endpoint->spec.kinds_mask);
            struct fleet *fleet = &core->fleets[lowest_kind(kinds_mask)];
            fleet->used = true;
            fleet->kinds_mask = kinds_mask;
            fleet_join(core, fleet, endpoint);
        }
    }
    for (int i = 0; i < CORE_KINDS_MAX; i++) {
        if (core->fleets[i].used) {
            fleet_decide(core, &core->fleets[i]);
        } else { /* what it learned was about endpoints that are gone */
            core->fleets[i] = (struct fleet){0};
        }
    }
}

static void retell(uint64_t *sum, uint64_t *told, uint64_t now)
{
    *sum += now - *told;
    *told = now;
}

static void judge(struct core *core, struct fleet *fleet, struct endpoint *endpoint,
                  uint64_t passed_ns)
{
    struct core_load load = load_of(core, fleet);
    uint64_t capacity_us = load.devices * (passed_ns / 1000);
    uint64_t work_us = core_scale_u64(endpoint->arrived, core_endpoint_request_ns(endpoint), 1000);
    fleet->backlog_us -= fleet->backlog_us < capacity_us ? fleet->backlog_us : capacity_us;
    fleet->backlog_us += work_us;
    /* Late even with all devices is nobody's fault. */
    bool flooded = fleet->backlog_us > load.devices * (fleet->slo_ns / 1000);
    uint64_t late_us = flooded || !fleet->lends ? 0 : endpoint->late_ns / 1000;
    endpoint->late_ns = 0;
    endpoint->arrived = 0;
    core_reserve_judge(&fleet->reserve, &load, work_us, late_us);
    const struct endpoint *bearer = core_fleet_bearer(core, endpoint);
    bool lent = bearer != NULL && bearer->ready < load.devices;
    core_levels_judge(&fleet->levels, lent ? late_us : 0);
}

void core_fleet_feed(struct core *core, struct endpoint *endpoint)
{
    size_t index = fleet_index(core, endpoint);
    if (index == CORE_KINDS_MAX) {
        return;
    }
    struct fleet *fleet = &core->fleets[index];
    if (fleet->led_ns == 0 || core->now_ns - fleet->led_ns >= LED_NS) {
        fleet_learn(core, fleet);
    }
    struct core_load before = load_of(core, fleet);
    core_reserve_follow(&fleet->reserve, &before);
    if (takes_long(core, fleet)) {
        core_levels_follow(&fleet->levels, &before);
    }
    uint64_t each_ns = core_endpoint_request_ns(endpoint);
    retell(&fleet->fast_milli, &endpoint->told_fast_milli,
           core_scale_u64(endpoint->rate_fast_milli, each_ns, SECOND_NS));
    uint64_t queued_ns = core_scale_u64(endpoint->queue_length, each_ns, 1);
    uint64_t queue_milli = core_scale_u64(queued_ns, 1000, endpoint->spec.slo_ns);
    retell(&fleet->queue_milli, &endpoint->told_queue_milli,
           queue_milli < UINT32_MAX ? queue_milli : UINT32_MAX);
    retell(&fleet->running_milli, &endpoint->told_running_milli, endpoint->running_milli);
    uint64_t passed_ns = core->now_ns - fleet->fed_ns;
    /* An average over what there was, until that is as long as the window. */
    fleet->begun_ns = fleet->begun_ns == 0 ? core->now_ns : fleet->begun_ns;
    uint64_t window_ns = base_window_ns(core, fleet), age_ns = core->now_ns - fleet->begun_ns;
    fleet->base_milli = core_average_u64(fleet->base_milli, fleet->fast_milli, passed_ns,
                                         age_ns < window_ns ? age_ns : window_ns);
    /* For a device that takes long to come, what runs by chance at once is no need. */
    bool soon = fleet->lead_ns < core->config.demand_slow_ns / 2;
    fleet->busy_milli =
        soon ? fleet->running_milli
             : core_average_u64(fleet->busy_milli, fleet->running_milli, passed_ns, fleet->lead_ns);
    fleet->fed_ns = core->now_ns;
    judge(core, fleet, endpoint, passed_ns);
    fleet_decide(core, fleet);
}
