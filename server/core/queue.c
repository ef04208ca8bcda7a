/* queue.c: minimums of waiting leases, all or nothing. Whose turn it is: first leases within the
 * quota of their team, then the others; among teams who has the lowest claim (fair.c); within a
 * team by priority, to which waiting adds. Nothing is revoked unless the whole minimum can be met;
 * what is freed is promised, so that nobody else takes it on the way. */
#include <string.h>

#include "server/core/state.h"

/* One look at all that wait. */
struct queue_pass {
    bool within; /* of quotas: those come first */
    struct supply supply[CORE_KINDS_MAX];
    uint32_t blocked;   /* kinds of which those that are left get nothing ... */
    uint32_t no_growth; /* ... and those that nothing may grow onto */
    uint32_t position;
    uint32_t open; /* leases that are open, see below, and had no turn yet */
};

/* ---- those that are held up ---- */

/* What becomes of it follows from who is ahead of it, without another look at it. */
static bool is_open(const struct lease *lease)
{
    return !lease->held_up || lease->within;
}

/* With neither claims nor quotas the order of a team is the order of all. */
static bool is_one_queue(const struct core *core)
{
    return core->teams_added == 0 && !core_fair_matters(core);
}

static bool is_news_left(const struct core *core)
{
    SET_EACH_IN_BOTH (&core->lease_sets[NEWS], &core->lease_sets[LEASES_WAITING], slot) {
        if (core->lease_slots[slot]->planned != core->plan) {
            return true;
        }
    }
    return false;
}

/* All that are left were held up at the last plan, by those that hold them up now too. */
static bool rest_stays(const struct core *core, const struct queue_pass *pass)
{
    return pass->open == 0 && is_one_queue(core) && core_may_move(core) &&
           (core->held_up & ~pass->blocked) == 0 && !is_news_left(core);
}

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
    lease->held_up = false;
    core->waiting_open++;
}

void core_queue_leave(struct core *core, struct lease *lease)
{
    struct team *team = lease->team;
    size_t place = place_of(team, lease);
    assert(team->waiting[place] == lease);
    team->waiting_count--;
    memmove(&team->waiting[place], &team->waiting[place + 1],
            (team->waiting_count - place) * sizeof(void *));
    core->waiting_open -= is_open(lease);
    core->fair_held_count -= lease->fair_held;
    lease->fair_held = false;
}

uint32_t core_queue_position(const struct core *core, const struct lease *lease)
{
    if (lease->state != CORE_LEASE_WAITING) {
        return 0;
    }
    return is_one_queue(core) ? (uint32_t)place_of(lease->team, lease) + 1 : lease->position;
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

/* ---- who has news ---- */

static uint32_t news_count(const struct core *core)
{
    return core->device_sets[NEWS].count + core->endpoint_sets[NEWS].count +
           core->lease_sets[NEWS].count;
}

/* As at the last plan, unless it has news, somebody has another claim, its turn is another one, or
 * there may be enough for it now (nothing is, for one that is held up, or to which all are
 * promised, within its quota where it can be). */
static bool has_news(const struct core *core, struct lease *lease, const struct queue_pass *pass,
                     bool held_up)
{
    if (core_lease_is_news(core, lease) || held_up != lease->held_up ||
        pass->within != lease->within || !core_may_move(core) || core->fair_news) {
        return true;
    }
    bool whole = lease->promised == lease->spec.devices_min && !lease->beyond;
    return !held_up && !whole && core_supply_reaches(core, lease, pass->supply);
}

/* ---- all of them ---- */

static void consider(struct core *core, struct lease *lease, bool within, bool held_up)
{
    bool fair_held = lease->fair_held;
    core->waiting_open -= is_open(lease);
    lease->held_up = held_up;
    lease->within = within;
    core->waiting_open += is_open(lease);
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
    pass->open -= is_open(lease);
    lease->team->to_come -= lease->promised;
    lease->planned = core->plan;
    lease->position = ++pass->position;
    if (has_news(core, lease, pass, held_up)) {
        uint32_t news = news_count(core);
        consider(core, lease, pass->within, held_up);
        if (news != news_count(core)) { /* others may have what it let go of */
            core_supply_again(core, pass->supply);
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
    while (first < count && !rest_stays(core, pass)) {
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
    for (size_t i = 0; i < core->team_count && core_fair_matters(core); i++) {
        struct team *team = core->teams[i];
        team->to_come = 0;
        for (size_t j = 0; j < team->waiting_count; j++) {
            team->to_come += team->waiting[j]->promised;
        }
    }
}

static void all_take_turns(struct core *core, struct queue_pass *pass)
{
    core->plan++;
    pass->open = core->waiting_open;
    teams_begin(core);
    if (core->teams_added > 0) {
        turns_take(core, pass, true);
    }
    turns_take(core, pass, false);
    core->held_up = pass->blocked;
}

/* Nothing that the last plan looked at is another now. */
static bool is_as_before(const struct core *core, const struct queue_pass *pass)
{
    return core_supply_is_empty(pass->supply) && core->lease_sets[NEWS].count == 0 &&
           !core->fair_news && !core->usable_news && core_may_move(core);
}

void core_queue_plan(struct core *core)
{
    struct queue_pass pass = {.position = 0};
    core_supply_begin(core, pass.supply);
    if (is_as_before(core, &pass)) {
        core_supply_end(core);
        return;
    }
    core->usable_news = false;
    if (core->lease_sets[LEASES_WAITING].count > 0) {
        all_take_turns(core, &pass);
    }
    core_supply_end(core);
    idle_touch(core, core->blocked & ~pass.no_growth);
    core->blocked = pass.no_growth;
}
