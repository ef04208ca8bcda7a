/* queue.c: minimums of waiting leases, all or nothing. Whose turn it is: first leases within the
 * quota of their team, then the others; among teams who has the lowest claim (fair.c); within a
 * team by priority, to which waiting adds. Nothing is revoked unless the whole minimum can be met;
 * what is freed is promised, so that nobody else takes it on the way. */
#include <string.h>

#include "server/core/state.h"

/* At most so many devices, each with at most that memory, can be had that could not be had at the
 * last plan; and so many that are held by whoever would have to go as a whole. */
struct supply {
    uint32_t devices, whole;
    uint64_t memory_bytes;
};

/* One look at all that wait. */
struct queue_pass {
    bool within; /* of quotas: those come first */
    struct supply supply[CORE_KINDS_MAX];
    uint32_t blocked;   /* kinds of which those that are left get nothing ... */
    uint32_t no_growth; /* ... and those that nothing may grow onto */
    uint32_t position;
};

/* ---- within a team ---- */

static bool goes_before(const struct lease *a, const struct lease *b)
{
    return a->order != b->order ? a->order > b->order : a->sequence < b->sequence;
}

static size_t place_of(const struct team *team, const struct lease *lease)
{
    size_t low = 0, high = team->waiting_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (goes_before(team->waiting[middle], lease)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* A step of age is worth as much as one of priority: so time changes nothing in the order. */
void core_queue_join(struct core *core, struct lease *lease)
{
    struct team *team = lease->team;
    lease->order = lease->spec.priority * (int64_t)core->config.age_ns +
                   (int64_t)lease->carried_ns - (int64_t)lease->queued_ns;
    size_t place = place_of(team, lease), behind = team->waiting_count - place;
    assert(team->waiting_count < team->waiting_capacity);
    memmove(&team->waiting[place + 1], &team->waiting[place], behind * sizeof(void *));
    team->waiting[place] = lease;
    team->waiting_count++;
}

void core_queue_leave(struct core *core, struct lease *lease)
{
    struct team *team = lease->team;
    size_t place = place_of(team, lease);
    assert(team->waiting[place] == lease);
    team->waiting_count--;
    memmove(&team->waiting[place], &team->waiting[place + 1],
            (team->waiting_count - place) * sizeof(void *));
    lease->position = 0;
    core->fair_held_count -= lease->fair_held;
    lease->fair_held = false;
}

/* ---- starting one ---- */

static void revoke_picked(struct core *core, struct device *device, const struct lease *lease,
                          bool within)
{
    bool lent = within && device->lease->team != lease->team;
    enum core_reason reason = lent ? CORE_REASON_QUOTA_RETURNED : CORE_REASON_GANG_MINIMUM;
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_REVOKE, reason, device, lease, NULL);
    core_explain_victim(&explanation, device, core_victim_cost(core, device), true);
    core_shrink(core, device, reason, &explanation);
}

static void promises_trim(struct core *core, const struct lease *lease)
{
    struct device *next = NULL;
    for (struct device *device = lease->promises; device != NULL; device = next) {
        next = device->promised_next;
        if (!core_set_has(&core->device_sets[DEVICES_PICKED], device->slot)) {
            core_device_promise(core, device, NULL);
        }
    }
}

/* True: all picked devices could be granted right now. */
static bool promise_picked(struct core *core, struct lease *lease, bool within)
{
    bool ready = true;
    core_gang_unpick_endpoints(core); /* from here on removals are real */
    core_evict_chosen(core, lease);
    promises_trim(core, lease);
    SET_EACH (&core->device_sets[DEVICES_PICKED], slot) {
        struct device *device = core->device_slots[slot];
        core_device_promise(core, device, lease);
        if (device->hold == CORE_HOLD_HELD) {
            revoke_picked(core, device, lease, within);
        }
        bool empty = !core_device_must_empty(device, lease) ||
                     (device->hold == CORE_HOLD_NONE && core_device_empty(core, device));
        ready = ready && empty && device->hold == CORE_HOLD_NONE;
    }
    return ready;
}

static void grant_picked(struct core *core, struct lease *lease)
{
    core_lease_started(core, lease);
    SET_EACH (&core->device_sets[DEVICES_PICKED], slot) {
        struct device *device = core->device_slots[slot];
        core_device_grant(core, device, lease, CORE_REASON_GANG_MINIMUM);
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_GRANT, CORE_REASON_GANG_MINIMUM, device, lease,
                               core_device_busiest(core, device));
        explanation.rung = CORE_RUNG_FREE;
        core_explain(core, &explanation);
    }
}

static bool is_beyond_quota(const struct core *core, const struct lease *lease)
{
    return core_fair_is_bound(core, lease) &&
           !core_fair_is_within(core, lease, lease->spec.devices_min);
}

static bool is_impossible(const struct core *core, const struct lease *lease)
{
    return core_pool_matching(core, lease->spec.kinds_mask) < lease->spec.devices_min;
}

/* What is said to be granted while nothing moves may have lost its device. */
void core_queue_pool_changed(struct core *core)
{
    SET_EACH (&core->lease_sets[LEASES_WAITING], slot) {
        struct lease *lease = core->lease_slots[slot];
        if (!core_may_move(core) ||
            is_impossible(core, lease) != (lease->waits_for == CORE_REASON_IMPOSSIBLE)) {
            core_lease_touch(core, lease);
        }
    }
}

enum core_reason core_queue_reason(const struct core *core, const struct lease *lease)
{
    if (is_impossible(core, lease)) {
        return CORE_REASON_IMPOSSIBLE;
    }
    if (core->hold) {
        return CORE_REASON_HOLD;
    }
    if (core->now_ns < lease->retry_ns) {
        return CORE_REASON_ACTION_FAILED;
    }
    if (is_beyond_quota(core, lease)) {
        return CORE_REASON_QUOTA;
    }
    return lease->fair_held ? CORE_REASON_FAIR_SHARE : CORE_REASON_GANG_MINIMUM;
}

static void explain_wait(struct core *core, struct lease *lease)
{
    enum core_reason reason = core_queue_reason(core, lease);
    if (lease->advice != 0 && lease->waits_for == reason) {
        return; /* told, and it costs less to know that than to ask */
    }
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_WAIT, reason, NULL, lease, NULL);
    explanation.devices_have = lease->promised;
    core_explain_advice(core, &lease->advice, explanation);
    lease->waits_for = reason;
}

/* Where its quota is of other kinds than what there is, it may go beyond. Returns whether it does.
 */
static bool pick_beyond(struct core *core, struct lease *lease)
{
    uint32_t within = lease->lacks;
    core_gang_unpick(core);
    lease->lacks = core_gang_pick(core, lease, false);
    bool beyond = lease->lacks == 0;
    lease->lacks = within < lease->lacks ? within : lease->lacks;
    return beyond;
}

/* `within`: the quota of its team; not any more, when it has to go beyond. */
static bool can_start(struct core *core, struct lease *lease, bool *within)
{
    bool may = core->now_ns >= lease->retry_ns && !is_beyond_quota(core, lease);
    lease->lacks = may ? core_gang_pick(core, lease, *within) : 0;
    lease->beyond =
        lease->lacks > 0 && *within && !core_fair_is_bound(core, lease) && pick_beyond(core, lease);
    *within = *within && !lease->beyond;
    bool possible = may && lease->lacks == 0;
    lease->fair_held = possible && !*within && core_growth_goes_first(core, lease);
    return possible && !lease->fair_held;
}

/* It got its minimum, or will get it from what is promised to it. */
static bool try_start(struct core *core, struct lease *lease, bool within)
{
    bool started = false;
    bool possible = can_start(core, lease, &within);
    if (!possible) {
        core_promises_drop(core, lease);
        explain_wait(core, lease);
    } else if (!core_may_move(core)) {
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_GRANT, CORE_REASON_GANG_MINIMUM, NULL, lease, NULL);
        core_explain_advice(core, &lease->advice, explanation);
        lease->waits_for = CORE_REASON_NONE;
    } else {
        started = promise_picked(core, lease, within);
        if (started) {
            grant_picked(core, lease);
        } else {
            explain_wait(core, lease);
        }
    }
    core_gang_unpick(core);
    return started || (possible && lease->promised > 0);
}

/* ---- who must not be overtaken ---- */

/* Devices that may come to it: usable ones, less those that nobody can count on. */
static uint32_t to_be_had(const struct core *core, uint32_t kinds_mask)
{
    uint32_t usable = core_pool_usable(core, kinds_mask);
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        uint32_t fixed = (kinds_mask >> kind) & 1 ? core->fixed[kind] : 0;
        usable -= fixed < usable ? fixed : usable;
    }
    return usable;
}

/* After overtake_ns nothing behind it gets devices of its kinds, unless there are not enough of
 * them that it could ever have: an impossible request blocks nobody. */
static bool must_not_be_overtaken(const struct core *core, const struct lease *lease)
{
    return core_lease_waited_ns(core, lease) >= core->config.overtake_ns &&
           core->now_ns >= lease->retry_ns && !is_beyond_quota(core, lease) &&
           to_be_had(core, lease->spec.kinds_mask) >= lease->spec.devices_min;
}

static void idle_touch(struct core *core, uint32_t kinds)
{
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        SET_EACH (&core->device_sets[DEVICES_IDLE + kind], slot) {
            if ((kinds >> kind) & 1) {
                core_device_touch(core, core->device_slots[slot]);
            }
        }
    }
}

/* ---- what there is that was not there at the last plan ---- */

/* Held, and can be taken from its holder. What time alone changes about that is news then. */
static bool may_come(const struct core *core, const struct device *device)
{
    return device->hold == CORE_HOLD_HELD && device->promised == NULL &&
           (core_device_rested(core, device) || core_fair_matters(core)) &&
           core_device_moves(core, device) < core->config.moves_per_hour;
}

/* So many devices may be taken for a waiting lease, all of them at once. */
static uint32_t whole_of(const struct core *core, const struct lease *lease)
{
    bool may =
        lease->state == CORE_LEASE_RUNNING && lease->held > 0 && lease->leaving == 0 &&
        core_guard(core, lease, lease->held, core_rung_for_all(lease), false) == CORE_REASON_NONE;
    for (const struct device *device = lease->first; device != NULL && may; device = device->next) {
        may = may_come(core, device);
    }
    return may ? lease->held : 0;
}

/* The same beyond its minimum, one by one. */
static uint32_t surplus_of(const struct core *core, const struct lease *lease)
{
    bool may = lease->surplus > 0 &&
               core_guard(core, lease, 1, core_rung_for_one(lease), false) == CORE_REASON_NONE;
    uint32_t come = 0;
    for (const struct device *device = may ? lease->first : NULL;
         device != NULL && come < lease->surplus; device = device->next) {
        come += may_come(core, device);
    }
    return come;
}

static void supply_add(struct supply supply[CORE_KINDS_MAX], uint32_t kinds_mask, uint32_t devices,
                       uint32_t whole, uint64_t memory_bytes)
{
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX && devices + whole > 0; kind++) {
        if ((kinds_mask >> kind) & 1) {
            supply[kind].devices += devices;
            supply[kind].whole += whole;
            supply[kind].memory_bytes =
                memory_bytes > supply[kind].memory_bytes ? memory_bytes : supply[kind].memory_bytes;
        }
    }
}

static void supply_gather(struct core *core, struct supply supply[CORE_KINDS_MAX])
{
    struct set *givers = &core->lease_sets[LEASES_ASKED];
    memset(supply, 0, CORE_KINDS_MAX * sizeof *supply);
    core_set_copy(givers, &core->lease_sets[NEWS]);
    SET_EACH (&core->device_sets[NEWS], slot) {
        const struct device *device = core->device_slots[slot];
        bool comes = may_come(core, device);
        bool there = core_set_has(&core->device_sets[DEVICES_IDLE + device->kind], slot) ||
                     (comes && device->counted_takeable);
        supply_add(supply, 1u << device->kind, there, 0, device->memory_bytes);
        if (comes) {
            core_set_put(givers, device->lease->slot, true); /* all of its devices, or none */
        }
    }
    SET_EACH (&core->endpoint_sets[NEWS], slot) {
        const struct endpoint *endpoint = core->endpoint_slots[slot];
        uint32_t more =
            endpoint->excess > endpoint->excess_seen ? endpoint->excess - endpoint->excess_seen : 0;
        supply_add(supply, endpoint->spec.kinds_mask, more, 0, UINT64_MAX);
    }
    SET_EACH (givers, slot) {
        const struct lease *lease = core->lease_slots[slot];
        uint32_t surplus = core_lease_is_news(core, lease) ? surplus_of(core, lease) : 0;
        supply_add(supply, lease->spec.kinds_mask, surplus, whole_of(core, lease), UINT64_MAX);
    }
}

/* Only what an endpoint has more of than at this plan is news to the next one. */
static void excess_seen(struct core *core)
{
    SET_EACH (&core->endpoint_sets[NEWS], slot) {
        core->endpoint_slots[slot]->excess_seen = core->endpoint_slots[slot]->excess;
    }
}

static bool supply_is_empty(const struct supply supply[CORE_KINDS_MAX])
{
    bool empty = true;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX && empty; kind++) {
        empty = supply[kind].devices == 0 && supply[kind].whole == 0;
    }
    return empty;
}

static uint32_t news_count(const struct core *core)
{
    return core->device_sets[NEWS].count + core->endpoint_sets[NEWS].count +
           core->lease_sets[NEWS].count;
}

/* One that lacked more than that cannot have its minimum now either. */
static bool may_reach(const struct core *core, struct lease *lease,
                      const struct supply supply[CORE_KINDS_MAX])
{
    uint32_t devices = 0;
    bool evicts = core_evict_is_possible(core, lease);
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        bool asked = (lease->spec.kinds_mask >> kind) & 1;
        bool large = lease->spec.memory_bytes <= supply[kind].memory_bytes;
        devices += asked && large ? supply[kind].devices + (evicts ? supply[kind].whole : 0) : 0;
    }
    bool may = devices > 0 && devices >= lease->lacks;
    lease->lacks -= may ? 0 : devices;
    return may;
}

/* As at the last plan, unless it has news, somebody has another claim, its turn is another one, or
 * there may be enough for it now (nothing is, for one to which all are promised, within its quota
 * where it can be). */
static bool has_news(const struct core *core, struct lease *lease, const struct queue_pass *pass,
                     bool held_up)
{
    bool whole = lease->promised == lease->spec.devices_min && !lease->beyond;
    return core_lease_is_news(core, lease) || held_up != lease->held_up ||
           pass->within != lease->within || !core_may_move(core) || core->fair_news ||
           (!whole && may_reach(core, lease, pass->supply));
}

/* ---- all of them ---- */

static void consider(struct core *core, struct lease *lease, bool within, bool held_up)
{
    bool fair_held = lease->fair_held;
    lease->held_up = held_up;
    lease->within = within;
    lease->reaching = false;
    lease->fair_held = false;
    if (held_up) {
        core_promises_drop(core, lease);
        explain_wait(core, lease);
    } else {
        lease->reaching = try_start(core, lease, within);
    }
    core->fair_held_count += (uint32_t)lease->fair_held - (uint32_t)fair_held;
    if (lease->fair_held != fair_held) {
        idle_touch(core, lease->spec.kinds_mask); /* others may grow there, or not any more */
    }
}

static void take_turn(struct core *core, struct lease *lease, struct queue_pass *pass)
{
    bool held_up = (lease->spec.kinds_mask & pass->blocked) != 0;
    lease->team->to_come -= lease->promised;
    lease->planned = core->plan;
    lease->position = ++pass->position;
    if (has_news(core, lease, pass, held_up)) {
        uint32_t news = news_count(core);
        consider(core, lease, pass->within, held_up);
        if (news != news_count(core)) { /* others may have what it let go of */
            supply_gather(core, pass->supply);
        }
    }
    if (!held_up && !lease->reaching && must_not_be_overtaken(core, lease)) {
        pass->blocked |= lease->spec.kinds_mask;
        pass->no_growth |= lease->fair_held ? 0 : lease->spec.kinds_mask;
    }
}

/* Its next lease of this pass. False: there is none. */
static bool find_turn(const struct core *core, struct team *team, bool within)
{
    for (; team->next < team->waiting_count; team->next++) {
        const struct lease *lease = team->waiting[team->next];
        if (lease->planned != core->plan &&
            (!within || core_fair_is_within(core, lease, lease->spec.devices_min))) {
            team->turn =
                core_fair_matters(core) ? core_fair_claim_without(core, team, team->to_come) : 0;
            return true;
        }
    }
    return false;
}

static bool turn_before(const struct team *a, const struct team *b)
{
    return a->turn != b->turn ? a->turn < b->turn : a->spec.team < b->spec.team;
}

/* The first one goes back behind those whose turn comes before. */
static void turn_sink(struct team **turns, size_t count)
{
    for (size_t i = 0; i + 1 < count && turn_before(turns[i + 1], turns[i]); i++) {
        struct team *team = turns[i];
        turns[i] = turns[i + 1];
        turns[i + 1] = team;
    }
}

static size_t turns_begin(struct core *core, bool within)
{
    size_t count = 0;
    for (size_t i = 0; i < core->team_count; i++) {
        struct team *team = core->teams[i];
        team->next = 0;
        if (find_turn(core, team, within)) {
            core->turns[count++] = team;
        }
    }
    for (size_t i = count; i-- > 0;) {
        turn_sink(&core->turns[i], count - i);
    }
    return count;
}

static void turns_take(struct core *core, struct queue_pass *pass, bool within)
{
    size_t count = turns_begin(core, within), first = 0;
    pass->within = within;
    while (first < count) {
        struct team *team = core->turns[first];
        take_turn(core, team->waiting[team->next], pass);
        if (find_turn(core, team, within)) {
            turn_sink(&core->turns[first], count - first);
        } else {
            first++;
        }
    }
}

static void teams_begin(struct core *core)
{
    for (size_t i = 0; i < core->team_count; i++) {
        struct team *team = core->teams[i];
        team->least_urgent = INT64_MAX;
        team->to_come = 0;
        memset(team->revocable, 0, sizeof team->revocable);
        for (size_t j = 0; j < team->waiting_count; j++) {
            team->to_come += team->waiting[j]->promised;
        }
    }
    SET_EACH (&core->lease_sets[LEASES_RUNNING], slot) {
        const struct lease *lease = core->lease_slots[slot];
        if (lease->spec.preemptible) {
            core_evict_count(lease);
        }
    }
}

static void all_take_turns(struct core *core, struct queue_pass *pass)
{
    core->plan++;
    teams_begin(core);
    if (core->teams_added > 0) {
        turns_take(core, pass, true);
    }
    turns_take(core, pass, false);
}

/* Nothing that the last plan looked at is another now. */
static bool is_as_before(const struct core *core, const struct queue_pass *pass)
{
    return supply_is_empty(pass->supply) && core->lease_sets[NEWS].count == 0 && !core->fair_news &&
           !core->usable_news && core_may_move(core);
}

void core_queue_plan(struct core *core)
{
    struct queue_pass pass = {.position = 0};
    supply_gather(core, pass.supply);
    if (is_as_before(core, &pass)) {
        excess_seen(core);
        return;
    }
    core->usable_news = false;
    if (core->lease_sets[LEASES_WAITING].count > 0) {
        all_take_turns(core, &pass);
    }
    excess_seen(core);
    idle_touch(core, core->blocked & ~pass.no_growth);
    core->blocked = pass.no_growth;
}
