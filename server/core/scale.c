/* scale.c: see scale.h. Whatever may be of several kinds counts for those that it has; what it
 * lacks counts for the kind that suits it best. */
#include "server/core/scale.h"

#include <stdlib.h>
#include <string.h>

#include "server/core/state.h"

#define HOLD_PARTS 16 /* of a hold, each with its highest figure */

struct held {
    uint32_t highest[HOLD_PARTS]; /* a ring */
};

/* Averages over half a lead time and a whole one: while demand rises steadily they are behind it by
 * what it rises in so long, and half of a lead time's rise apart. In fine units, so that many small
 * steps are not rounded away. */
#define TREND_UNIT 65536
struct trend {
    uint64_t fast, slow; /* milli x TREND_UNIT */
};

struct coming {
    struct core_scale_coming told;
    uint32_t present; /* devices of it that were there before */
};

struct core_scale {
    struct core_scale_config config;
    bool begun;
    uint64_t updated_ns, part; /* parts of a hold since the clock began */
    struct coming coming[CORE_SCALE_COMING_MAX];
    size_t coming_count;
    struct trend trends[CORE_KINDS_MAX];
    struct held held[CORE_KINDS_MAX][CORE_SCALE_REASONS];
    struct core_scale_view views[CORE_KINDS_MAX];
};

/* Sums of one look. */
struct tally {
    uint64_t needed[CORE_KINDS_MAX];       /* most of any endpoint: they may share devices */
    uint64_t demand_milli[CORE_KINDS_MAX]; /* of all endpoints */
    uint64_t apart[CORE_KINDS_MAX];        /* that cannot share what there is */
    uint64_t minimums[CORE_KINDS_MAX], backlog[CORE_KINDS_MAX];
};

const char *core_scale_reason_name(enum core_scale_reason reason)
{
    static const char *const names[] = {[CORE_SCALE_SLO] = "slo",
                                        [CORE_SCALE_WAITING] = "waiting",
                                        [CORE_SCALE_BACKLOG] = "backlog"};
    return reason < CORE_SCALE_REASONS ? names[reason] : "unknown";
}

struct core_scale *core_scale_create(const struct core_scale_config *config)
{
    struct core_scale *scale = calloc(1, sizeof *scale);
    if (scale != NULL) {
        scale->config = *config;
    }
    return scale;
}

void core_scale_destroy(struct core_scale *scale)
{
    free(scale);
}

/* ---- on their way ---- */

static uint32_t present(const struct core *core, uint64_t provider, uint32_t kind)
{
    uint32_t count = 0;
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        count += device->provider == provider && device->kind == kind;
    }
    return count;
}

static struct coming *coming_find(struct core_scale *scale, uint64_t provider, uint32_t kind)
{
    size_t i = 0;
    while (i < scale->coming_count &&
           (scale->coming[i].told.provider != provider || scale->coming[i].told.kind != kind)) {
        i++;
    }
    return i < CORE_SCALE_COMING_MAX ? &scale->coming[i] : NULL;
}

int core_scale_announce(struct core_scale *scale, const struct core *core,
                        const struct core_scale_coming *coming)
{
    struct coming *place =
        coming->kind < CORE_KINDS_MAX ? coming_find(scale, coming->provider, coming->kind) : NULL;
    if (place == NULL) {
        return -1;
    }
    size_t index = (size_t)(place - scale->coming);
    scale->coming_count += index == scale->coming_count;
    *place = (struct coming){*coming, present(core, coming->provider, coming->kind)};
    if (coming->devices == 0 && coming->lead_ns == 0) {
        *place = scale->coming[--scale->coming_count];
    }
    return 0;
}

/* Of one announcement, those that have not come. */
static uint32_t missing(const struct core_scale *scale, const struct core *core,
                        const struct coming *coming, uint64_t now_ns)
{
    uint32_t there = present(core, coming->told.provider, coming->told.kind);
    uint32_t came = there > coming->present ? there - coming->present : 0;
    bool overdue = now_ns > core_add_u64(coming->told.arrives_ns, scale->config.hold_ns);
    return overdue || came >= coming->told.devices ? 0 : coming->told.devices - came;
}

static void pending_look(const struct core_scale *scale, const struct core *core, uint64_t now_ns,
                         uint32_t kind, struct core_scale_view *view)
{
    uint64_t lead_ns = 0;
    view->pending = 0;
    view->arrives_ns = 0;
    for (size_t i = 0; i < scale->coming_count; i++) {
        const struct coming *coming = &scale->coming[i];
        if (coming->told.kind != kind) {
            continue;
        }
        uint32_t count = missing(scale, core, coming, now_ns);
        uint64_t at_ns = count > 0 ? coming->told.arrives_ns : 0;
        view->pending += count;
        view->arrives_ns = at_ns > view->arrives_ns ? at_ns : view->arrives_ns;
        lead_ns = coming->told.lead_ns > lead_ns ? coming->told.lead_ns : lead_ns;
    }
    view->lead_ns = lead_ns != 0 ? lead_ns : scale->config.lead_ns;
}

/* ---- what endpoints need ---- */

/* Of its kinds, one of the pool on which it is fast. */
static uint32_t kind_of_endpoint(const struct core *core, const struct endpoint *endpoint)
{
    uint32_t best = CORE_KINDS_MAX;
    uint64_t best_ns = NEVER_NS;
    for (uint32_t kind = CORE_KINDS_MAX; kind-- > 0;) {
        if (((endpoint->spec.kinds_mask >> kind) & 1) == 0) {
            continue;
        }
        uint64_t batch_ns = endpoint->service_ns[kind][0];
        batch_ns = core->matching[kind] == 0 ? NEVER_NS : batch_ns == 0 ? NEVER_NS - 1 : batch_ns;
        if (batch_ns <= best_ns) {
            best = kind;
            best_ns = batch_ns;
        }
    }
    return best;
}

static void tally_endpoint(const struct core *core, const struct endpoint *endpoint,
                           struct tally *tally)
{
    uint64_t have[CORE_KINDS_MAX] = {0}, serving = 0;
    uint32_t home = kind_of_endpoint(core, endpoint);
    SET_EACH (&endpoint->hosts, slot) {
        const struct device *device = core->device_slots[slot];
        bool serves = core_instance_serves(core_instance_of(device, endpoint)) && !device->resting;
        if (serves && serving < endpoint->needed) { /* parked ones are nobody's need */
            have[device->kind]++;
            serving++;
        }
    }
    have[home] += endpoint->needed - serving;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX && endpoint->needed > 0; kind++) {
        tally->needed[kind] = have[kind] > tally->needed[kind] ? have[kind] : tally->needed[kind];
        tally->demand_milli[kind] +=
            core_scale_u64(endpoint->demand_milli, have[kind], endpoint->needed);
    }
    enum core_reason lacks =
        serving < endpoint->needed ? core_endpoint_lacks(core, endpoint) : CORE_REASON_NONE;
    if (lacks == CORE_REASON_NO_DEVICE_MEMORY || lacks == CORE_REASON_NEIGHBOUR_SLO) {
        tally->apart[home] += endpoint->needed - serving;
    }
}

/* ---- what leases need ---- */

static uint32_t kind_of_lease(const struct core *core, const struct lease *lease)
{
    uint32_t best = CORE_KINDS_MAX, best_affinity = 0;
    for (uint32_t kind = CORE_KINDS_MAX; kind-- > 0;) {
        if (((lease->spec.kinds_mask >> kind) & 1) == 0) {
            continue;
        }
        uint32_t affinity = core->matching[kind] > 0 ? lease->affinity[kind] + 1 : 0;
        if (affinity >= best_affinity) {
            best = kind;
            best_affinity = affinity;
        }
    }
    return best;
}

static bool counts(const struct lease *lease)
{
    bool again = lease->state == CORE_LEASE_DRAINING && !lease->pause_wanted;
    return lease->state == CORE_LEASE_WAITING || lease->state == CORE_LEASE_RUNNING ||
           lease->state == CORE_LEASE_SUSPENDED || again;
}

static void tally_lease(const struct core *core, const struct lease *lease, uint64_t by_ns,
                        struct tally *tally)
{
    if (!counts(lease) || core_lease_end_ns(core, lease) <= by_ns) {
        return;
    }
    uint32_t left = lease->spec.devices_min, home = kind_of_lease(core, lease);
    for (const struct device *device = lease->first; device != NULL && left > 0;
         device = device->next) {
        tally->minimums[device->kind]++;
        left--;
    }
    tally->minimums[home] += left;
    tally->backlog[home] += lease->spec.devices_max - lease->spec.devices_min;
}

/* ---- together ---- */

/* Demand of the kind at its horizon: a rise goes on, a fall is waited for. */
static uint64_t forecast_milli(struct trend *trend, uint64_t now_milli, uint64_t age_ns,
                               uint64_t lead_ns)
{
    uint64_t now = core_multiply_u64(now_milli, TREND_UNIT);
    trend->fast = core_average_u64(trend->fast, now, age_ns, lead_ns / 2);
    trend->slow = core_average_u64(trend->slow, now, age_ns, lead_ns);
    uint64_t rise = trend->fast > trend->slow ? 2 * (trend->fast - trend->slow) : 0;
    return core_add_u64(now_milli, rise / TREND_UNIT);
}

static uint32_t hold(const struct core_scale *scale, struct held *held, uint64_t part,
                     uint64_t figure)
{
    uint32_t now = figure < UINT32_MAX ? (uint32_t)figure : UINT32_MAX, most = 0;
    uint64_t passed = scale->begun ? part - scale->part : 0;
    for (uint64_t i = 1; i <= passed && i <= HOLD_PARTS; i++) {
        held->highest[(scale->part + i) % HOLD_PARTS] = 0;
    }
    uint32_t *highest = &held->highest[part % HOLD_PARTS];
    *highest = now > *highest ? now : *highest;
    for (int i = 0; i < HOLD_PARTS; i++) {
        most = held->highest[i] > most ? held->highest[i] : most;
    }
    return most;
}

static uint32_t ready(const struct core *core, uint32_t kind, uint64_t by_ns)
{
    uint32_t count = 0;
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        bool goes = device->reclaim_by_ns != 0 && device->reclaim_by_ns <= by_ns;
        count += device->kind == kind && core_device_usable(device) && !goes;
    }
    return count;
}

static void kind_look(struct core_scale *scale, const struct core *core, uint64_t now_ns,
                      uint64_t part, uint32_t kind, const struct tally *tally)
{
    struct core_scale_view *view = &scale->views[kind];
    uint64_t age_ns = scale->begun ? now_ns - scale->updated_ns : view->lead_ns;
    uint64_t demand_milli =
        forecast_milli(&scale->trends[kind], tally->demand_milli[kind], age_ns, view->lead_ns);
    uint64_t load = core->config.load_high_permille;
    uint64_t needed = (core_add_u64(demand_milli, load - 1)) / load;
    needed = needed > tally->needed[kind] ? needed : tally->needed[kind];
    const uint64_t figures[] = {[CORE_SCALE_SLO] = needed + tally->apart[kind],
                                [CORE_SCALE_WAITING] = tally->minimums[kind],
                                [CORE_SCALE_BACKLOG] = tally->backlog[kind]};
    uint64_t wanted = 0;
    for (int reason = 0; reason < CORE_SCALE_REASONS; reason++) {
        view->desired[reason] = hold(scale, &scale->held[kind][reason], part, figures[reason]);
        wanted += view->desired[reason];
    }
    view->ready = ready(core, kind, core_add_u64(now_ns, view->lead_ns));
    uint64_t have = (uint64_t)view->ready + view->pending;
    view->surplus = have > wanted ? (uint32_t)(have - wanted) : 0;
}

void core_scale_update(struct core_scale *scale, const struct core *core, uint64_t now_ns)
{
    struct tally tally = {0};
    uint64_t part_ns = scale->config.hold_ns / HOLD_PARTS;
    uint64_t part = now_ns / (part_ns > 0 ? part_ns : 1);
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        pending_look(scale, core, now_ns, kind, &scale->views[kind]);
    }
    for (size_t i = 0; i < core->endpoint_count; i++) {
        if (!core->endpoints[i]->removing) {
            tally_endpoint(core, core->endpoints[i], &tally);
        }
    }
    for (size_t i = 0; i < core->lease_count; i++) {
        const struct lease *lease = core->leases[i];
        uint64_t lead_ns = scale->views[kind_of_lease(core, lease)].lead_ns;
        tally_lease(core, lease, core_add_u64(now_ns, lead_ns), &tally);
    }
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        kind_look(scale, core, now_ns, part, kind, &tally);
    }
    scale->begun = true;
    scale->updated_ns = now_ns;
    scale->part = part;
}

bool core_scale_read(const struct core_scale *scale, uint32_t kind,
                     struct core_scale_view *ret_view)
{
    if (kind < CORE_KINDS_MAX) {
        *ret_view = scale->views[kind];
    }
    return kind < CORE_KINDS_MAX;
}
