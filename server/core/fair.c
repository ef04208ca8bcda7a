/* fair.c: whose turn it is, and who may take from whom.
 *
 * What a team has within its quota is its own. For the rest, teams are ordered by their claim: what
 * they have beyond quota, counted for a half-life to come, and had of late, over their weight; the
 * lower goes first. So shares follow the weights, and who has had little for long gets more for a
 * while. A claim counts devices as of now, and use as of the last tick: it changes only at known
 * moments. Nothing is moved for fairness unless its giver still has no less than its taker
 * afterwards: so there is no way back and forth. */
#include "server/core/state.h"

#define TICKS 256 /* in a half-life */

static uint64_t tick_ns(const struct core *core)
{
    uint64_t span_ns = core->config.usage_half_life_ns / TICKS;
    return span_ns > SECOND_NS ? span_ns : SECOND_NS;
}

/* Between leases of one team nothing of this matters. */
bool core_fair_matters(const struct core *core)
{
    return core->teams_live > 1;
}

void core_fair_touch(struct core *core)
{
    if (core_fair_matters(core) || core->teams_added > 0) {
        core->fair_touched = true;
        core->fair_news = true;
    }
}

void core_fair_tick(struct core *core)
{
    bool matters = core_fair_matters(core);
    core_timer_set(core, &core->fair_timer,
                   matters ? core_add_u64(core->now_ns, tick_ns(core)) : NEVER_NS);
    core->fair_device = core_team_device_to_come(core);
    for (size_t i = 0; i < core->team_count; i++) {
        core->teams[i]->fair_usage = core_team_usage(core, core->teams[i]);
    }
    core_fair_touch(core);
}

/* ---- quotas ---- */

static uint32_t counted(const struct lease *lease, uint32_t kind)
{
    const struct share *share = &lease->team->share[kind];
    return lease->spec.preemptible ? share->held + share->leaving + share->promised
                                   : share->reserved;
}

void core_fair_limits(const struct lease *lease, uint32_t ret_limits[CORE_KINDS_MAX])
{
    uint32_t promised[CORE_KINDS_MAX] = {0}; /* to this lease: it does not stand in its own way */
    for (const struct device *device = lease->promises; device != NULL;
         device = device->promised_next) {
        promised[device->kind]++;
    }
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        uint32_t others = counted(lease, kind) - promised[kind];
        uint32_t quota = lease->team->spec.quota[kind];
        ret_limits[kind] = quota > others ? quota - others : 0;
    }
}

static uint32_t sum_of_kinds(const uint32_t counts[CORE_KINDS_MAX], uint32_t kinds_mask)
{
    uint32_t sum = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        sum += (kinds_mask >> kind) & 1 ? counts[kind] : 0;
    }
    return sum;
}

bool core_fair_is_bound(const struct core *core, const struct lease *lease)
{
    return core->teams_added > 0 && !lease->spec.preemptible;
}

bool core_fair_is_within(const struct core *core, const struct lease *lease, uint32_t devices)
{
    uint32_t limits[CORE_KINDS_MAX];
    if (core->teams_added == 0) {
        return false;
    }
    core_fair_limits(lease, limits);
    return sum_of_kinds(limits, lease->spec.kinds_mask) >= devices;
}

bool core_fair_may_ever(const struct core *core, const struct core_lease_spec *spec)
{
    static const struct core_team_spec none = {.weight = 1};
    const struct team *team = core_team_get(core, spec->team);
    const struct core_team_spec *terms = team != NULL ? &team->spec : &none;
    return core->teams_added == 0 || spec->preemptible ||
           sum_of_kinds(terms->quota, spec->kinds_mask) >= spec->devices_min;
}

/* ---- claims ---- */

/* Where things are going: what is promised counts, what is let go of does not. */
static uint32_t beyond_quota(const struct team *team)
{
    uint32_t beyond = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        uint32_t devices = team->share[kind].held + team->share[kind].promised;
        uint32_t quota = team->spec.quota[kind];
        beyond += devices > quota ? devices - quota : 0;
    }
    return beyond;
}

static uint64_t claim_of(const struct core *core, const struct team *team, uint64_t beyond)
{
    uint64_t to_come = core_scale_u64(beyond, core->fair_device, 1);
    return core_add_u64(team->fair_usage, to_come) / team->spec.weight;
}

static uint32_t kinds_borrowed(const struct team *team)
{
    uint32_t kinds = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        kinds |= (uint32_t)(team->share[kind].held > team->spec.quota[kind]) << kind;
    }
    return kinds;
}

void core_fair_begin(struct core *core)
{
    core->lent = 0;
    for (size_t i = 0; i < core->team_count && core_fair_matters(core); i++) {
        struct team *team = core->teams[i];
        team->claim = claim_of(core, team, beyond_quota(team));
        core->lent |= core->teams_added > 0 ? kinds_borrowed(team) : 0;
    }
}

uint64_t core_fair_claim_with(const struct core *core, const struct team *team, uint32_t kinds_mask,
                              uint32_t more)
{
    uint32_t room = 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        uint32_t devices = team->share[kind].held + team->share[kind].promised;
        uint32_t quota = team->spec.quota[kind];
        room += ((kinds_mask >> kind) & 1) && devices < quota ? quota - devices : 0;
    }
    return claim_of(core, team, beyond_quota(team) + (more > room ? more - room : 0));
}

uint64_t core_fair_claim_without(const struct core *core, const struct team *team, uint32_t fewer)
{
    uint32_t beyond = beyond_quota(team);
    return claim_of(core, team, beyond > fewer ? beyond - fewer : 0);
}

/* ---- who gives ---- */

/* The team has more of this kind than its quota, even without what the plan takes already. */
bool core_fair_borrows(const struct team *team, uint32_t kind)
{
    return team->share[kind].held > team->spec.quota[kind] + team->picked[kind];
}

bool core_fair_may_take(const struct core *core, const struct lease *taker, uint32_t more,
                        bool within, const struct lease *giver, uint32_t kind)
{
    if (taker->team == giver->team) {
        return true;
    }
    if (!core_fair_borrows(giver->team, kind)) {
        return false;
    }
    uint32_t picked = sum_of_kinds(giver->team->picked, UINT32_MAX);
    return within || core_fair_claim_with(core, taker->team, taker->spec.kinds_mask, more) <=
                         core_fair_claim_without(core, giver->team, picked + 1);
}

/* Who saves nothing loses everything, so it goes last. */
static bool is_unsaved(const struct lease *lease)
{
    return !lease->spec.in_process && !lease->reported;
}

/* Within a team the lower gives first, by the lower half; by the upper one everywhere. */
static uint64_t rank_of(const struct lease *lease)
{
    uint64_t upper = (lease->heartbeat_lost ? 0 : 2) + is_unsaved(lease);
    return upper << 32 | (uint32_t)((int64_t)lease->spec.priority - INT32_MIN);
}

struct giver core_fair_giver(const struct lease *lease)
{
    return (struct giver){.rank = rank_of(lease), .team = lease->team};
}

/* A holder that is not heard of goes first: it may be gone. Of teams, who had most when the plan
 * began;
 * within a team, the least urgent. Then it is the caller's to look at the cost. */
int core_fair_compare(const struct giver *a, const struct giver *b)
{
    if (a->team != b->team && a->rank >> 32 == b->rank >> 32) {
        uint64_t left = a->team->claim, right = b->team->claim;
        bool first = left != right ? left > right : a->team->spec.team < b->team->spec.team;
        return first ? -1 : 1;
    }
    return a->rank == b->rank ? 0 : a->rank < b->rank ? -1 : 1;
}

int core_fair_compare_givers(const struct lease *a, const struct lease *b)
{
    struct giver left = core_fair_giver(a), right = core_fair_giver(b);
    return core_fair_compare(&left, &right);
}
