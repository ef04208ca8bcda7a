/* growth.c: what nobody needs goes to leases that can use more. Between teams the one with the
 * lowest claim grows first, before waiting leases of teams that would have more than it; and it may
 * take what a team with more has beyond its minimums, or anything that it lent. */
#include <string.h>

#include "server/core/state.h"

static bool growable(const struct core *core, const struct device *device)
{
    return core_device_usable(device) && device->hold == CORE_HOLD_NONE && !device->kept &&
           device->hot_since_ns == NEVER_NS && core_device_rested(core, device);
}

static bool is_blocked(const struct core *core, uint32_t kind)
{
    return (core->blocked >> kind) & 1;
}

/* Its quota bounds a reservation. */
static bool may_grow(const struct core *core, const struct lease *lease, uint32_t kind)
{
    const struct team *team = lease->team;
    return !core_fair_is_bound(core, lease) || team->share[kind].reserved < team->spec.quota[kind];
}

static bool can_grow_onto(const struct core *core, const struct lease *lease,
                          const struct device *device)
{
    return lease->state == CORE_LEASE_RUNNING && core->now_ns >= lease->retry_ns &&
           (device->promised == lease || may_grow(core, lease, device->kind)) &&
           ((lease->spec.kinds_mask >> device->kind) & 1) &&
           lease->spec.memory_bytes <= device->memory_bytes &&
           core_device_lasts(core, device, lease) &&
           (core_lease_lets_serve(device, lease) || core_device_spare(core, device));
}

static bool grows_within(const struct core *core, const struct lease *lease, uint32_t kind)
{
    const struct share *share = &lease->team->share[kind];
    return core->teams_added > 0 &&
           share->held + share->leaving + share->promised < lease->team->spec.quota[kind];
}

static uint64_t claim_with_one(const struct core *core, const struct lease *lease, uint32_t kind)
{
    return core_fair_claim_with(core, lease->team, UINT32_C(1) << kind, 1);
}

/* Within a team: the most urgent, then who has least. */
static bool grows_first(const struct lease *a, const struct lease *b)
{
    if (a->spec.priority != b->spec.priority) {
        return a->spec.priority > b->spec.priority;
    }
    return a->grown != b->grown ? a->grown < b->grown : a->sequence < b->sequence;
}

static bool grows_before(const struct core *core, const struct lease *a, const struct lease *b,
                         uint32_t kind)
{
    if (a->team == b->team) {
        return grows_first(a, b);
    }
    bool within = grows_within(core, a, kind);
    if (within != grows_within(core, b, kind)) {
        return within;
    }
    uint64_t left = claim_with_one(core, a, kind), right = claim_with_one(core, b, kind);
    return left != right ? left < right : a->team->spec.team < b->team->spec.team;
}

/* ---- those that grow, each team's in their order ---- */

static size_t place_of(const struct team *team, const struct lease *lease)
{
    size_t low = 0, high = team->growing_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (grows_first(team->growing[middle], lease)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void growing_leave(struct lease *lease)
{
    struct team *team = lease->team;
    size_t place = place_of(team, lease);
    assert(team->growing[place] == lease);
    team->growing_count--;
    memmove(&team->growing[place], &team->growing[place + 1],
            (team->growing_count - place) * sizeof(void *));
    lease->grows = false;
}

static void growing_join(struct lease *lease)
{
    struct team *team = lease->team;
    lease->grows = true;
    lease->grown = lease->held + lease->promised;
    size_t place = place_of(team, lease);
    assert(team->growing_count < team->growing_capacity);
    memmove(&team->growing[place + 1], &team->growing[place],
            (team->growing_count - place) * sizeof(void *));
    team->growing[place] = lease;
    team->growing_count++;
}

void core_growth_follow(struct lease *lease)
{
    if (core_growth_is_followed(lease)) {
        return;
    }
    if (lease->grows) {
        growing_leave(lease);
    }
    if (core_lease_wants_more(lease)) {
        growing_join(lease);
    }
}

bool core_growth_is_followed(const struct lease *lease)
{
    return lease->grows == core_lease_wants_more(lease) &&
           (!lease->grows || lease->grown == lease->held + lease->promised);
}

/* ---- whose a free device is ---- */

static struct lease *grower_in(const struct core *core, const struct team *team,
                               const struct device *device)
{
    for (size_t i = 0; i < team->growing_count; i++) {
        if (can_grow_onto(core, team->growing[i], device)) {
            return team->growing[i];
        }
    }
    return NULL;
}

static struct lease *grower_among_all(const struct core *core, const struct device *device)
{
    struct lease *best = NULL;
    for (size_t i = 0; i < core->team_count; i++) {
        struct lease *lease = grower_in(core, core->teams[i], device);
        if (lease != NULL && (best == NULL || grows_before(core, lease, best, device->kind))) {
            best = lease;
        }
    }
    return best;
}

static struct lease *grower_among_news(const struct core *core, const struct device *device)
{
    struct lease *best = NULL;
    SET_EACH_IN_BOTH (&core->lease_sets[NEWS], &core->lease_sets[LEASES_GROWING], slot) {
        struct lease *lease = core->lease_slots[slot];
        if (can_grow_onto(core, lease, device) &&
            (best == NULL || grows_before(core, lease, best, device->kind))) {
            best = lease;
        }
    }
    return best;
}

/* A device without news found nobody at the last plan: only leases with news can want it now. */
static struct lease *grower_for(const struct core *core, const struct device *device)
{
    bool old = core_may_move(core) && core_set_has(&core->device_sets[DEVICES_OLD], device->slot) &&
               !core_set_has(&core->device_sets[TOUCHED], device->slot);
    return old ? grower_among_news(core, device) : grower_among_all(core, device);
}

/* ---- growth and waiting leases of other teams ---- */

static bool has_less(const struct core *core, const struct lease *grower, uint32_t kind,
                     const struct lease *waiting)
{
    return grows_within(core, grower, kind) ||
           claim_with_one(core, grower, kind) <
               core_fair_claim_with(core, waiting->team, waiting->spec.kinds_mask,
                                    waiting->spec.devices_min - waiting->promised);
}

bool core_growth_goes_first(struct core *core, const struct lease *lease)
{
    if (!core_fair_matters(core)) {
        return false;
    }
    SET_EACH (&core->device_sets[DEVICES_PICKED], slot) {
        const struct device *device = core->device_slots[slot];
        const struct lease *grower = device->promised == NULL && growable(core, device)
                                         ? grower_among_all(core, device)
                                         : NULL;
        if (grower != NULL && grower->team != lease->team &&
            has_less(core, grower, device->kind, lease)) {
            return true;
        }
    }
    return false;
}

/* Somebody waits who had left its turn to growth, and has not more now than the grower would. */
static struct lease *held_for(const struct core *core, const struct lease *grower, uint32_t kind)
{
    for (size_t i = 0; i < core->team_count && core->fair_held_count > 0; i++) {
        const struct team *team = core->teams[i];
        for (size_t j = 0; j < team->waiting_count && team != grower->team; j++) {
            struct lease *waiting = team->waiting[j];
            if (waiting->fair_held && ((waiting->spec.kinds_mask >> kind) & 1) &&
                !has_less(core, grower, kind, waiting)) {
                return waiting;
            }
        }
    }
    return NULL;
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

/* What comes to it from others need not rest first, and a promise stands when somebody must not be
 * overtaken any more. */
static bool is_ready_for(const struct core *core, const struct device *device,
                         const struct lease *lease)
{
    bool free = device->hold == CORE_HOLD_NONE;
    return core_device_usable(device) && !device->kept && can_grow_onto(core, lease, device) &&
           (!free || device->hot_since_ns == NEVER_NS);
}

/* Onto one that is promised: it becomes empty, or is on its way from somebody else. */
static void grow_onto_promised(struct core *core, struct device *device)
{
    struct lease *lease = device->promised;
    if (lease->state != CORE_LEASE_RUNNING) {
        return; /* a waiting gang's */
    }
    if (!is_ready_for(core, device, lease)) {
        core_device_promise(core, device, NULL);
    } else if (device->hold == CORE_HOLD_NONE) {
        grow(core, device, lease);
    }
}

static void grow_onto(struct core *core, struct device *device)
{
    if (device->promised != NULL) {
        grow_onto_promised(core, device);
    }
    if (device->promised != NULL || !growable(core, device) || is_blocked(core, device->kind)) {
        return;
    }
    struct lease *lease = grower_for(core, device);
    struct lease *waiting = lease != NULL ? held_for(core, lease, device->kind) : NULL;
    if (waiting == NULL && lease != NULL) {
        grow(core, device, lease);
    } else if (waiting != NULL && core_may_move(core)) {
        core_lease_touch(core, waiting); /* its turn has come */
    }
}

/* Beside devices with news: those promised to a lease with news, and all idle ones that it could
 * want. While nothing moves, another claim would move them to somebody else. */
static void growth_gather(struct core *core)
{
    uint32_t kinds = core->fair_news && !core_may_move(core) ? UINT32_MAX : 0;
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

/* ---- back from teams with more ---- */

static bool may_take(const struct core *core, const struct lease *taker, bool within,
                     const struct lease *giver, uint32_t kind)
{
    return giver->team != taker->team && core_fair_borrows(giver->team, kind) &&
           (within ||
            claim_with_one(core, taker, kind) <= core_fair_claim_without(core, giver->team, 1));
}

static struct device *surplus_of(const struct core *core, const struct lease *giver,
                                 const struct lease *taker, bool within, uint32_t kind)
{
    if (core_guard(core, giver, 1, core_rung_for_one(giver), false) != CORE_REASON_NONE) {
        return NULL;
    }
    LEASE_DEVICES (giver, device) {
        if (device->kind == kind && core_may_move_for(core, device, taker, within) &&
            core_device_suits(core, device, taker)) {
            return device;
        }
    }
    return NULL;
}

static struct device *find_giver(const struct core *core, const struct lease *taker, bool within,
                                 uint32_t kind)
{
    struct device *best = NULL;
    SET_EACH (&core->lease_sets[LEASES_GIVING], slot) {
        const struct lease *giver = core->lease_slots[slot];
        struct device *device = may_take(core, taker, within, giver, kind)
                                    ? surplus_of(core, giver, taker, within, kind)
                                    : NULL;
        if (device != NULL && (best == NULL || core_surplus_before(core, device, best))) {
            best = device;
        }
    }
    return best;
}

/* While nothing moves it is the same thought at each look: one of a team. */
static void take_surplus(struct core *core, struct lease *taker, struct device *device,
                         enum core_reason reason)
{
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_REVOKE, reason, device, taker, NULL);
    core_explain_victim(&explanation, device, core_victim_cost(core, device), true);
    if (core_may_move(core)) {
        core_device_promise(core, device, taker);
        core_shrink(core, device, reason, &explanation);
    } else if (!taker->team->advised) {
        taker->team->advised = true;
        core_explain_advice(core, &taker->advice, explanation);
    }
}

static void promise_lent(struct core *core, struct lease *taker, uint32_t kind, uint32_t wants)
{
    for (struct lease *lease = core->evicted; lease != NULL; lease = lease->evicted_next) {
        LEASE_DEVICES (lease, device) {
            if (device->kind == kind && device->promised == NULL && wants > 0 &&
                core_device_suits(core, device, taker)) {
                core_device_promise(core, device, taker);
                wants--;
            }
        }
    }
}

/* Leases of borrowers that are no larger than what the taker could do with. */
static bool take_lent(struct core *core, struct lease *taker, uint32_t kind)
{
    uint32_t limits[CORE_KINDS_MAX] = {0};
    const struct share *share = &taker->team->share[kind];
    uint32_t room = taker->team->spec.quota[kind] - share->held - share->leaving - share->promised;
    uint32_t wants = taker->spec.devices_max - taker->held - taker->promised;
    limits[kind] = room < wants ? room : wants;
    bool taken = core_may_move(core) && core_evict_choose(core, taker, true, 1, limits) == 0;
    if (taken) {
        promise_lent(core, taker, kind, limits[kind]);
        core_evict_chosen(core, taker);
    }
    core_evict_forget(core);
    return taken;
}

static bool take_for(struct core *core, struct lease *taker, uint32_t kind)
{
    bool within = grows_within(core, taker, kind);
    if (!within && is_blocked(core, kind)) {
        return false;
    }
    struct device *device = find_giver(core, taker, within, kind);
    if (device != NULL) {
        take_surplus(core, taker, device,
                     within ? CORE_REASON_QUOTA_RETURNED : CORE_REASON_FAIR_SHARE);
        return core_may_move(core);
    }
    return within && take_lent(core, taker, kind);
}

/* The lease of each team that would grow next. */
static void growers_find(struct core *core, uint32_t kind)
{
    for (size_t i = 0; i < core->team_count; i++) {
        struct team *team = core->teams[i];
        team->grower = NULL;
        for (size_t j = 0; j < team->growing_count && team->grower == NULL; j++) {
            struct lease *lease = team->growing[j];
            bool may = ((lease->spec.kinds_mask >> kind) & 1) && core->now_ns >= lease->retry_ns &&
                       may_grow(core, lease, kind);
            team->grower = may ? lease : NULL;
        }
    }
}

static struct lease *next_taker(const struct core *core, uint32_t kind)
{
    struct lease *best = NULL;
    for (size_t i = 0; i < core->team_count; i++) {
        struct lease *grower = core->teams[i]->grower;
        if (grower != NULL && (best == NULL || grows_before(core, grower, best, kind))) {
            best = grower;
        }
    }
    return best;
}

static void plan_returns(struct core *core, uint32_t kind)
{
    struct lease *taker;
    growers_find(core, kind);
    while ((taker = next_taker(core, kind)) != NULL) {
        bool taken = take_for(core, taker, kind);
        if (!taken || !core_lease_wants_more(taker) || !may_grow(core, taker, kind)) {
            taker->team->grower = NULL;
        }
    }
}

static void plan_growth(struct core *core)
{
    growth_gather(core);
    SET_EACH (&core->device_sets[NEWS], slot) {
        grow_onto(core, core->device_slots[slot]);
    }
}

/* Kinds of which somebody may have something to give, or to ask for, that was not so at the last
 * plan. */
static uint32_t kinds_with_news(const struct core *core)
{
    uint32_t kinds = core->fair_news || !core_may_move(core) ? UINT32_MAX : 0;
    SET_EACH (&core->device_sets[NEWS], slot) {
        const struct device *device = core->device_slots[slot];
        kinds |= (uint32_t)(device->hold == CORE_HOLD_HELD) << device->kind;
    }
    SET_EACH (&core->lease_sets[NEWS], slot) {
        const struct lease *lease = core->lease_slots[slot];
        kinds |= lease->state == CORE_LEASE_RUNNING ? lease->spec.kinds_mask : 0;
    }
    return kinds;
}

void core_growth_plan(struct core *core)
{
    plan_growth(core);
    if (!core_fair_matters(core) || core->lease_sets[LEASES_GROWING].count == 0) {
        return;
    }
    for (size_t i = 0; i < core->team_count; i++) {
        core->teams[i]->advised = false;
    }
    uint32_t kinds = kinds_with_news(core);
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        if (((kinds >> kind) & 1) && core->matching[kind] > 0) {
            plan_returns(core, kind);
        }
    }
}
