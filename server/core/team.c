/* team.c: teams, what they hold, and what they have used of late.
 *
 * Use beyond quota is device time that loses half of its weight every half-life. Instead of making
 * old use smaller, new use counts more: a weight grows from 1 to 2 over the half-life in a straight
 * line (within 7 % of the exponential, and exact at its ends); then everything is halved. So teams
 * compare without a look at the clock. Counted in units of 1024 ns, so that a year of 16384 devices
 * fits; the rest of a unit is counted the next time. */
#include <stdlib.h>

#include "server/core/state.h"

#define UNIT_SHIFT 10
#define WEIGHT_ONE UINT64_C(1000000)
#define TEAM_WEIGHT_MAX 1000000

/* What is still being let go of is used, too. */
static uint32_t devices_beyond(const struct team *team)
{
    uint32_t beyond = 0;
    for (int kind = 0; kind < CORE_KINDS_MAX; kind++) {
        uint32_t devices = team->share[kind].held + team->share[kind].leaving;
        uint32_t quota = team->spec.quota[kind];
        beyond += devices > quota ? devices - quota : 0;
    }
    return beyond;
}

/* Of device time at this moment, in millionths of that at the epoch. */
static uint64_t weight_at(const struct core *core, uint64_t time_ns)
{
    uint64_t since_ns = time_ns > core->usage_epoch_ns ? time_ns - core->usage_epoch_ns : 0;
    return WEIGHT_ONE + core_scale_u64(since_ns, WEIGHT_ONE, core->config.usage_half_life_ns);
}

static uint64_t units_since(const struct team *team, uint64_t until_ns)
{
    return until_ns > team->accrued_ns ? (until_ns - team->accrued_ns) >> UNIT_SHIFT : 0;
}

static uint64_t use_since(const struct core *core, const struct team *team, uint64_t until_ns)
{
    uint64_t weights = weight_at(core, team->accrued_ns) + weight_at(core, until_ns);
    return core_scale_u64(units_since(team, until_ns) * devices_beyond(team), weights,
                          2 * WEIGHT_ONE);
}

static void team_accrue(const struct core *core, struct team *team, uint64_t until_ns)
{
    team->usage = core_add_u64(team->usage, use_since(core, team, until_ns));
    team->accrued_ns += units_since(team, until_ns) << UNIT_SHIFT;
}

void core_teams_follow(struct core *core)
{
    uint64_t half_life_ns = core->config.usage_half_life_ns;
    while (core->now_ns - core->usage_epoch_ns >= half_life_ns) {
        uint64_t end_ns = core->usage_epoch_ns + half_life_ns;
        for (size_t i = 0; i < core->team_count; i++) {
            team_accrue(core, core->teams[i], end_ns);
            core->teams[i]->usage /= 2;
        }
        core->usage_epoch_ns = end_ns;
    }
}

uint64_t core_team_usage(const struct core *core, const struct team *team)
{
    return core_add_u64(team->usage, use_since(core, team, core->now_ns));
}

uint64_t core_team_device_to_come(const struct core *core)
{
    uint64_t units = core->config.usage_half_life_ns >> UNIT_SHIFT;
    return core_scale_u64(units, weight_at(core, core->now_ns), WEIGHT_ONE);
}

uint64_t core_team_usage_ns(const struct core *core, const struct team *team)
{
    return core_scale_u64(core_team_usage(core, team), WEIGHT_ONE << UNIT_SHIFT,
                          weight_at(core, core->now_ns));
}

/* Claims change; and a reservation that its quota keeps waiting or small may have room now. */
static void share_changed(struct core *core, const struct lease *lease)
{
    core_fair_touch(core);
    if (!core_fair_is_bound(core, lease)) {
        return;
    }
    for (size_t i = 0; i < lease->team->waiting_count; i++) {
        core_lease_touch(core, lease->team->waiting[i]);
    }
    SET_EACH (&core->lease_sets[LEASES_GROWING], slot) {
        struct lease *growing = core->lease_slots[slot];
        if (growing->team == lease->team && growing != lease) {
            core_lease_touch(core, growing);
        }
    }
}

void core_team_count(struct core *core, const struct lease *lease, uint32_t kind, bool leaving,
                     int sign)
{
    struct share *share = &lease->team->share[kind];
    team_accrue(core, lease->team, core->now_ns); /* until now it held what it held */
    uint32_t *count = leaving ? &share->leaving : &share->held;
    *count += (uint32_t)sign;
    if (!lease->spec.preemptible) {
        bool ends = lease->spec.until_ns != 0 || lease->spec.duration_ns != 0;
        share->reserved += (uint32_t)sign;
        core->fixed[kind] += ends ? 0 : (uint32_t)sign;
    }
    share_changed(core, lease);
}

void core_team_promise(struct core *core, const struct lease *lease, uint32_t kind, int sign)
{
    struct share *share = &lease->team->share[kind];
    share->promised += (uint32_t)sign;
    share->reserved += lease->spec.preemptible ? 0 : (uint32_t)sign;
    share_changed(core, lease);
}

void core_team_live(struct core *core, struct team *team, int sign)
{
    bool lived = team->live > 0;
    team->live += (uint32_t)sign;
    core->teams_live += (uint32_t)((team->live > 0) - lived);
    if (core_fair_matters(core) && core->fair_timer.place == 0) {
        core_fair_tick(core); /* claims are needed from now on */
    }
}

void core_team_destroy(struct team *team)
{
    if (team != NULL) {
        free(team->waiting);
        free(team->growing);
        free(team);
    }
}

static struct team *team_make(struct core *core, uint64_t id)
{
    struct team *team = calloc(1, sizeof *team);
    if (team == NULL) {
        return NULL;
    }
    team->spec = (struct core_team_spec){.team = id, .weight = 1};
    team->accrued_ns = core->now_ns;
    if (core_team_insert(core, team) < 0) {
        free(team);
        return NULL;
    }
    return team;
}

int core_teams_init(struct core *core)
{
    return team_make(core, 0) != NULL ? 0 : -1;
}

static enum core_reason team_find_or_make(struct core *core, uint64_t id, struct team **ret_team)
{
    struct team *team = core_team_get(core, id);
    if (team == NULL && core->team_count >= CORE_TEAMS_MAX) {
        return CORE_REASON_TABLE_FULL;
    }
    team = team != NULL ? team : team_make(core, id);
    if (team == NULL) {
        return CORE_REASON_NO_MEMORY;
    }
    *ret_team = team;
    return CORE_REASON_NONE;
}

enum core_reason core_team_join(struct core *core, uint64_t id, struct team **ret_team)
{
    enum core_reason reason = team_find_or_make(core, id, ret_team);
    if (reason != CORE_REASON_NONE) {
        return reason;
    }
    struct team *team = *ret_team;
    if (core_table_reserve((void ***)&team->waiting, &team->waiting_capacity, team->leases + 1) <
            0 ||
        core_table_reserve((void ***)&team->growing, &team->growing_capacity, team->leases + 1) <
            0) {
        return CORE_REASON_NO_MEMORY;
    }
    team->leases++;
    return CORE_REASON_NONE;
}

static void team_forget_if_idle(struct core *core, struct team *team)
{
    if (team->leases == 0 && !team->added && team->spec.team != 0) {
        core_totals_forget_team(core, team);
        core_team_erase(core, team);
        core_team_destroy(team);
    }
}

void core_team_leave(struct core *core, struct team *team)
{
    team->leases--;
    team_forget_if_idle(core, team);
}

static enum core_reason team_change(struct core *core, const struct core_team_spec *spec)
{
    struct team *team = NULL;
    if (spec->weight == 0 || spec->weight > TEAM_WEIGHT_MAX) {
        return CORE_REASON_INVALID;
    }
    for (int kind = 0; kind < CORE_KINDS_MAX; kind++) {
        if (spec->quota[kind] > CORE_DEVICES_MAX) {
            return CORE_REASON_INVALID;
        }
    }
    enum core_reason reason = team_find_or_make(core, spec->team, &team);
    if (reason == CORE_REASON_NONE) {
        team_accrue(core, team, core->now_ns); /* what was beyond the old quota counts */
        core->teams_added += !team->added;
        team->added = true;
        team->spec = *spec;
    }
    return reason;
}

static enum core_reason team_remove(struct core *core, uint64_t id)
{
    struct team *team = core_team_get(core, id);
    if (team == NULL || !team->added) {
        return CORE_REASON_UNKNOWN;
    }
    team_accrue(core, team, core->now_ns);
    core->teams_added--;
    team->added = false;
    team->spec = (struct core_team_spec){.team = id, .weight = 1};
    team_forget_if_idle(core, team);
    return CORE_REASON_NONE;
}

void core_team_event(struct core *core, const struct core_event *event)
{
    bool change = event->kind == CORE_EVENT_TEAM_CHANGED;
    enum core_reason reason =
        change ? team_change(core, &event->team_spec) : team_remove(core, event->team.team);
    core_touch_all(core); /* whoever waits may come before others now */
    if (reason != CORE_REASON_NONE) {
        core_emit_reject(core, 0, 0, 0, reason);
    }
}
