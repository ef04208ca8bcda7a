/* take.c: devices back from leases for endpoints: who gives one, and by which rung. Every rung of
 * every lease is an offer with a time and a cost in device time; the cheapest that is fast enough
 * is taken, else the fastest. */
#include "server/core/state.h"

/* What a device is wanted for. */
struct need {
    const struct endpoint *endpoint;
    uint32_t count; /* how many */
    enum core_take how;
    bool wide; /* all leases are asked, not only those with news */
    enum core_reason reason;
    uint64_t within_ns;
    bool danger;
};

struct offer {
    struct lease *lease;
    struct device *device; /* that serves then; NULL: none of the lease's can */
    uint32_t most, useful; /* of the lease's so many could serve then, and do */
    enum core_rung rung;
    enum core_reason refused;
    bool late; /* takes longer than the need allows */
    uint64_t take_ns, cost_ns;
};

#define OFFERS_MAX 32

struct offers {
    struct offer best[OFFERS_MAX]; /* in order */
    uint32_t count, limit;
};

/* Those that are taken, and those that are told of. */
static void offers_begin(struct offers *offers, const struct need *need)
{
    bool few = need->count < OFFERS_MAX - CORE_VICTIMS_MAX;
    offers->count = 0;
    offers->limit = few ? need->count + CORE_VICTIMS_MAX : OFFERS_MAX;
}

/* Leaves the lease with too few to go on: all its devices come back. */
static bool takes_all(const struct lease *lease, enum core_rung rung)
{
    return rung != CORE_RUNG_SHRINK && lease->held <= lease->spec.devices_min;
}

/* ---- what it costs ---- */

/* Those of the gang that do not serve stand still for nothing. */
static uint64_t cost_of_stop(const struct core *core, const struct lease *lease,
                             enum core_rung rung, uint32_t kind, uint32_t useful)
{
    uint64_t moves_ns = core_add_u64(core_rung_take_ns(core, lease, rung, kind),
                                     core_rung_give_ns(core, lease, rung, kind));
    uint64_t idle_ns = core_multiply_u64(core->stop_length_ns, lease->held - useful);
    return core_add_u64(core_multiply_u64(moves_ns, lease->held), idle_ns);
}

/* In process it only puts a micro-batch back; an outside job saves, ends and starts again. */
static uint64_t cost_of_shrink(const struct core *core, const struct lease *lease,
                               enum core_rung rung, uint32_t kind)
{
    uint64_t take_ns = core_rung_take_ns(core, lease, rung, kind);
    uint64_t give_ns = core_rung_give_ns(core, lease, rung, kind);
    return lease->spec.in_process ? take_ns : core_multiply_u64(give_ns, lease->held);
}

/* One that never told of a checkpoint may have none; one that takes no notice loses what it has. */
static uint64_t cost_of_end(const struct core *core, const struct lease *lease, enum core_rung rung,
                            uint32_t kind)
{
    bool loses = rung == CORE_RUNG_KILL || !lease->reported;
    uint64_t restore_ns =
        core_multiply_u64(core_rung_give_ns(core, lease, rung, kind), lease->held);
    uint64_t lost_ns = loses ? core_sum_clip(core_lease_provisional(core, lease)) : 0;
    return core_add_u64(restore_ns, lost_ns);
}

static uint64_t cost_of(const struct core *core, const struct lease *lease, enum core_rung rung,
                        uint32_t kind, uint32_t useful)
{
    if (core_rung_stops(rung)) {
        return cost_of_stop(core, lease, rung, kind, useful);
    }
    return takes_all(lease, rung) ? cost_of_end(core, lease, rung, kind)
                                  : cost_of_shrink(core, lease, rung, kind);
}

uint64_t core_victim_cost(const struct core *core, const struct device *device)
{
    enum core_rung rung = core_rung_for_one(device->lease);
    return cost_of(core, device->lease, rung, device->kind, 1);
}

/* ---- whether it may be ---- */

/* It was stopped for as long as it may be, and is at work in its turn. */
static bool stop_was_capped(const struct core *core, const struct lease *lease,
                            const struct need *need)
{
    return core->now_ns < lease->stop_again_ns ||
           (!need->danger && core->now_ns < lease->stop_calm_ns);
}

static enum core_reason stop_refused(const struct core *core, const struct lease *lease,
                                     const struct need *need, enum core_rung rung)
{
    if (need->how == CORE_TAKE_LASTING || stop_was_capped(core, lease, need)) {
        return CORE_REASON_STOPPED_TOO_LONG;
    }
    if (core->now_ns < lease->stop_failures[rung - CORE_RUNG_FREEZE].until_ns) {
        return CORE_REASON_RUNG_FAILED;
    }
    if (lease->leaving > 0 || lease->granting > 0) {
        return CORE_REASON_BUSY;
    }
    return core_guard(core, lease, 0, rung, need->danger);
}

static enum core_reason end_refused(const struct core *core, const struct lease *lease,
                                    const struct need *need, enum core_rung rung)
{
    uint32_t devices = takes_all(lease, rung) ? lease->held : 1;
    if (need->how == CORE_TAKE_BRIDGE) {
        return CORE_REASON_TOO_SLOW;
    }
    if (rung == CORE_RUNG_SHRINK && lease->held <= lease->spec.devices_min) {
        return CORE_REASON_BELOW_MINIMUM;
    }
    if (rung == CORE_RUNG_KILL &&
        core->now_ns < core_add_u64(need->endpoint->lacking_since_ns, core->config.sustained_ns)) {
        return CORE_REASON_DEARER; /* nobody is killed for a short burst */
    }
    return core_guard(core, lease, devices, rung, need->danger);
}

/* Room for the endpoint's instance while the holder is stopped; else it is made afterwards. */
static bool stop_leaves_room(const struct device *device, const struct endpoint *endpoint,
                             enum core_rung rung)
{
    const struct core_lease_spec *spec = &device->lease->spec;
    uint64_t residue = rung == CORE_RUNG_PAUSE  ? spec->pause_residue_bytes
                       : rung == CORE_RUNG_SWAP ? spec->swap_residue_bytes
                                                : spec->memory_bytes;
    uint64_t used = core_add_u64(residue, device->instances_bytes);
    return core_instance_serves(core_instance_of(device, endpoint)) ||
           core_add_u64(used, endpoint->spec.memory_bytes) <= device->memory_bytes;
}

/* The moves of the device's last hour are used up, or the last one was just now. */
static bool is_bound(const struct core *core, const struct device *device, const struct need *need)
{
    uint32_t bound = core->config.moves_per_hour + (need->danger ? core->config.moves_extra : 0);
    return core_device_moves_used_up(core, device, bound) ||
           (!need->danger && !core_device_rested(core, device));
}

static enum core_reason device_refused(const struct core *core, const struct device *device,
                                       const struct need *need, enum core_rung rung)
{
    const struct endpoint *endpoint = need->endpoint;
    enum core_instance_state state = core_instance_of(device, endpoint)->state;
    bool serves = state != CORE_INSTANCE_ABSENT && !device->resting;
    if (device->hold != CORE_HOLD_HELD || !core_device_usable(device) || serves ||
        state == CORE_INSTANCE_REMOVING) {
        return CORE_REASON_BUSY;
    }
    if (core_rung_stops(rung) ? !stop_leaves_room(device, endpoint, rung)
                              : endpoint->spec.memory_bytes > device->memory_bytes) {
        return CORE_REASON_NO_DEVICE_MEMORY;
    }
    if (!core_neighbours_agree(core, device, endpoint)) {
        return CORE_REASON_NEIGHBOUR_SLO;
    }
    return is_bound(core, device, need) ? CORE_REASON_RATE_BOUND : CORE_REASON_NONE;
}

static bool is_ready(const struct device *device, const struct endpoint *endpoint)
{
    return core_instance_of(device, endpoint)->state == CORE_INSTANCE_READY;
}

static bool suits(const struct device *device, const struct need *need)
{
    return (need->endpoint->spec.kinds_mask >> device->kind) & 1;
}

/* They all move, or none. */
static bool gang_is_bound(const struct core *core, const struct need *need,
                          const struct offer *offer)
{
    bool all = core_rung_stops(offer->rung) || takes_all(offer->lease, offer->rung);
    const struct device *device = all ? offer->lease->first : NULL;
    while (device != NULL && !is_bound(core, device, need)) {
        device = device->next;
    }
    return device != NULL;
}

/* Of as many as are wanted, one on which the model is loaded already, else the first. False: none
 * of a kind that it may be. */
static bool devices_find(const struct core *core, const struct need *need, struct offer *offer)
{
    enum core_reason none = CORE_REASON_BUSY;
    uint32_t useful = 0;
    bool some = false;
    for (struct device *device = offer->lease->first; device != NULL; device = device->next) {
        if (!suits(device, need)) {
            continue;
        }
        some = true;
        enum core_reason refused = device_refused(core, device, need, offer->rung);
        bool ready = refused == CORE_REASON_NONE && is_ready(device, need->endpoint);
        useful += refused == CORE_REASON_NONE;
        if (refused != CORE_REASON_NONE) {
            none = refused;
        } else if (offer->device == NULL || (ready && !is_ready(offer->device, need->endpoint))) {
            offer->device = device;
        }
        if (useful >= offer->most && is_ready(offer->device, need->endpoint)) {
            break;
        }
    }
    offer->useful = useful == 0 ? 1 : useful < offer->most ? useful : offer->most;
    if (offer->refused == CORE_REASON_NONE && gang_is_bound(core, need, offer)) {
        none = CORE_REASON_RATE_BOUND;
        offer->device = NULL;
    }
    if (offer->refused == CORE_REASON_NONE && offer->device == NULL) {
        offer->refused = none;
    }
    return some;
}

/* ---- which is best ---- */

/* Among those that come too late, a little earlier is no merit. */
static int time_class(uint64_t take_ns)
{
    int class = 0;
    while (take_ns >>= 1) {
        class ++;
    }
    return class;
}

static bool victim_before(const struct offer *a, const struct offer *b)
{
    const struct lease *left = a->lease, *right = b->lease;
    bool unsaved = a->rung == CORE_RUNG_KILL && !left->reported;
    if (unsaved != (b->rung == CORE_RUNG_KILL && !right->reported)) {
        return !unsaved;
    }
    if (left->heartbeat_lost != right->heartbeat_lost) {
        return left->heartbeat_lost;
    }
    if (left->spec.priority != right->spec.priority) {
        return left->spec.priority < right->spec.priority;
    }
    uint64_t left_ns = core_multiply_u64(a->cost_ns, b->useful);
    uint64_t right_ns = core_multiply_u64(b->cost_ns, a->useful);
    if (left_ns != right_ns) { /* each for as many devices as it brings */
        return left_ns < right_ns;
    }
    return a->device != NULL && b->device != NULL && a->device->id < b->device->id;
}

static bool offer_before(const struct offer *a, const struct offer *b)
{
    if ((a->refused == CORE_REASON_NONE) != (b->refused == CORE_REASON_NONE)) {
        return a->refused == CORE_REASON_NONE;
    }
    if (a->late != b->late) {
        return !a->late;
    }
    if (a->late && time_class(a->take_ns) != time_class(b->take_ns)) {
        return a->take_ns < b->take_ns;
    }
    return victim_before(a, b);
}

static uint32_t place_of(const struct offers *offers, const struct offer *offer)
{
    uint32_t place = offers->count;
    while (place > 0 && offer_before(offer, &offers->best[place - 1])) {
        place--;
    }
    return place;
}

static void offers_add(struct offers *offers, const struct offer *offer)
{
    uint32_t place = place_of(offers, offer);
    if (place == offers->limit) {
        return;
    }
    offers->count += offers->count < offers->limit;
    for (uint32_t i = offers->count - 1; i > place; i--) {
        offers->best[i] = offers->best[i - 1];
    }
    offers->best[place] = *offer;
}

/* As good as it can be, from what its lease alone tells. */
static struct offer offer_begin(const struct core *core, const struct need *need,
                                struct lease *lease, enum core_rung rung)
{
    bool all = core_rung_stops(rung) || takes_all(lease, rung);
    uint32_t kind = lease->first->kind, most = all ? need->count : 1;
    struct offer offer = {.lease = lease, .rung = rung, .most = most};
    offer.useful = most < lease->held ? most : lease->held;
    offer.take_ns = core_rung_take_ns(core, lease, rung, kind);
    offer.cost_ns = cost_of(core, lease, rung, kind, offer.useful);
    offer.late = offer.take_ns > need->within_ns;
    return offer;
}

static enum core_reason lease_refused(const struct core *core, const struct need *need,
                                      const struct offer *offer)
{
    enum core_reason refused = core_rung_stops(offer->rung)
                                   ? stop_refused(core, offer->lease, need, offer->rung)
                                   : end_refused(core, offer->lease, need, offer->rung);
    bool slow = need->how == CORE_TAKE_BRIDGE && offer->late; /* what is on its way is as fast */
    return refused == CORE_REASON_NONE && slow ? CORE_REASON_TOO_SLOW : refused;
}

static void offer_of(const struct core *core, const struct need *need, struct lease *lease,
                     enum core_rung rung, struct offers *offers)
{
    struct offer offer = offer_begin(core, need, lease, rung);
    if (place_of(offers, &offer) == offers->limit) {
        return; /* there are enough better ones */
    }
    offer.refused = lease_refused(core, need, &offer);
    if (place_of(offers, &offer) == offers->limit || !devices_find(core, need, &offer)) {
        return;
    }
    if (offer.device != NULL) {
        uint32_t kind = offer.device->kind;
        offer.take_ns = core_rung_take_ns(core, lease, rung, kind);
        offer.cost_ns = cost_of(core, lease, rung, kind, offer.useful);
    }
    offers_add(offers, &offer);
}

static void offers_of(const struct core *core, const struct need *need, const struct set *leases,
                      struct offers *offers)
{
    SET_EACH (leases, slot) {
        struct lease *lease = core->lease_slots[slot];
        bool asked = lease->state == CORE_LEASE_RUNNING && lease->held > 0;
        uint32_t rungs = asked ? core_rungs_of(lease) >> RUNG_FIRST << RUNG_FIRST : 0;
        for (; rungs != 0; rungs &= rungs - 1) {
            offer_of(core, need, lease, (enum core_rung)__builtin_ctz(rungs), offers);
        }
    }
}

static bool is_any_good(const struct offers *offers)
{
    return offers->count > 0 && offers->best[0].refused == CORE_REASON_NONE;
}

/* Whoever had nothing to offer at the last plan has something only with news. */
static bool news_are_good(struct core *core, const struct need *need)
{
    struct offers offers;
    struct set *asked = &core->lease_sets[LEASES_ASKED];
    core_set_copy(asked, &core->lease_sets[NEWS]);
    SET_EACH (&core->device_sets[NEWS], slot) {
        const struct device *device = core->device_slots[slot];
        if (device->lease != NULL) {
            core_set_put(asked, device->lease->slot, true);
        }
    }
    offers_begin(&offers, need);
    offers_of(core, need, asked, &offers);
    return is_any_good(&offers);
}

static bool offers_gather(struct core *core, const struct need *need, struct offers *offers)
{
    if (!need->wide && !news_are_good(core, need)) {
        return false;
    }
    offers_of(core, need, &core->lease_sets[LEASES_RUNNING], offers);
    return is_any_good(offers);
}

/* For ANY the endpoint's own flag tells: what it lacks changes all the time, what it is offered
 * does not change by that. */
static bool looks_wide(const struct core *core, const struct endpoint *endpoint, enum core_take how)
{
    if (how == CORE_TAKE_ANY) {
        return endpoint->wide;
    }
    return core_endpoint_is_news(core, endpoint) ||
           (how == CORE_TAKE_LASTING ? endpoint->wide_lasting : endpoint->wide_bridging);
}

/* ---- taking it ---- */

/* The candidates from the chosen one on: those before it are taken already. */
static struct core_explanation take_explain(const struct core *core, const struct need *need,
                                            const struct offers *offers, uint32_t chosen)
{
    const struct offer *best = &offers->best[chosen];
    enum core_what what = core_rung_stops(best->rung) ? CORE_WHAT_SUSPEND : CORE_WHAT_REVOKE;
    struct core_explanation explanation =
        core_explain_begin(core, what, need->reason, best->device, NULL, need->endpoint);
    explanation.lease = best->lease->spec.lease;
    explanation.rung = best->rung;
    explanation.deadline_ns =
        core_add_u64(core->now_ns, core_rung_span_ns(core, best->lease, best->rung));
    for (uint32_t i = chosen; i < offers->count && i < chosen + CORE_VICTIMS_MAX; i++) {
        const struct offer *offer = &offers->best[i];
        bool dearer = i > chosen && offer->refused == CORE_REASON_NONE;
        explanation.victims[explanation.victim_count++] = (struct core_victim){
            .lease = offer->lease->spec.lease,
            .device = offer->device != NULL ? offer->device->id : 0,
            .rung = offer->rung,
            .take_ns = offer->take_ns,
            .cost_ns = offer->cost_ns,
            .chosen = i == chosen,
            .refused = dearer && offer->late ? CORE_REASON_TOO_SLOW
                       : dearer              ? CORE_REASON_DEARER
                                             : offer->refused,
        };
    }
    return explanation;
}

static void take_one(struct core *core, struct device *device, enum core_rung rung,
                     enum core_reason reason, struct core_explanation *explanation)
{
    core_device_count_move(core, device);
    core_guard_count(core, device->lease, rung);
    core_device_revoke(core, device, rung, reason);
    explanation->rung = rung;
    explanation->deadline_ns = device->deadline_ns;
    core_explain(core, explanation);
}

void core_shrink(struct core *core, struct device *device, enum core_reason reason,
                 struct core_explanation *explanation)
{
    take_one(core, device, core_rung_for_one(device->lease), reason, explanation);
}

static void take_all(struct core *core, const struct offer *offer, enum core_reason reason)
{
    struct lease *lease = offer->lease;
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        core_device_count_move(core, device);
    }
    core_guard_count(core, lease, offer->rung);
    if (core_rung_stops(offer->rung)) {
        core_lease_stop(core, lease, offer->rung, reason);
    } else {
        core_lease_recall(core, lease, CORE_LEASE_DRAINING, reason);
    }
}

/* As many of the lease's devices as are useful. */
static void keep(struct core *core, const struct need *need, const struct offer *offer)
{
    uint64_t endpoint = need->endpoint->spec.endpoint;
    uint32_t left = offer->useful - 1;
    for (struct device *device = offer->lease->first; device != NULL && left > 0;
         device = device->next) {
        if (device != offer->device && suits(device, need) &&
            device_refused(core, device, need, offer->rung) == CORE_REASON_NONE) {
            core_device_keep(core, device, endpoint);
            left--;
        }
    }
    core_device_keep(core, offer->device, endpoint);
}

static void take(struct core *core, const struct need *need, const struct offer *offer,
                 struct core_explanation *explanation)
{
    keep(core, need, offer);
    if (core_rung_stops(offer->rung) || takes_all(offer->lease, offer->rung)) {
        core_explain(core, explanation);
        take_all(core, offer, explanation->reason);
        offer->lease->replaced = need->how == CORE_TAKE_BRIDGE; /* from the start */
    } else {
        take_one(core, offer->device, offer->rung, explanation->reason, explanation);
    }
}

/* A lease offers several rungs, and gives by one of them. */
static bool is_given(const struct offers *offers, uint32_t index)
{
    bool given = false;
    for (uint32_t i = 0; i < index && !given; i++) {
        given = offers->best[i].lease == offers->best[index].lease;
    }
    return given;
}

/* The best offers one after the other, as long as they are the best that is left. */
static uint32_t take_best(struct core *core, struct endpoint *endpoint, struct need *need,
                          const struct offers *offers)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < offers->count && need->count > taken; i++) {
        const struct offer *offer = &offers->best[i];
        bool fits = offer->refused == CORE_REASON_NONE && offer->useful <= need->count - taken;
        if (!fits || is_given(offers, i)) {
            break; /* what is best now is to be asked again */
        }
        struct core_explanation explanation = take_explain(core, need, offers, i);
        if (!core_may_move(core)) {
            core_explain_advice(core, &endpoint->advice, explanation);
            break;
        }
        take(core, need, offer, &explanation);
        taken += offer->useful;
    }
    return taken;
}

uint64_t core_endpoint_within_ns(const struct core *core, const struct endpoint *endpoint)
{
    return core->now_ns < endpoint->danger_until_ns ? endpoint->spec.slo_ns
                                                    : core->config.demand_slow_ns;
}

bool core_take_undecided(const struct core *core, const struct endpoint *endpoint)
{
    return !core_may_move(core) || core_endpoint_failing(core, endpoint);
}

uint32_t core_take_for(struct core *core, struct endpoint *endpoint, uint32_t count,
                       enum core_take how, uint64_t within_ns)
{
    uint32_t taken = 0, more = 1;
    struct need need = {.endpoint = endpoint,
                        .how = how,
                        .reason = how == CORE_TAKE_LASTING ? CORE_REASON_SUSTAINED_LOAD
                                                           : CORE_REASON_DEMAND,
                        .within_ns = within_ns,
                        .danger = core->now_ns < endpoint->danger_until_ns};
    while (taken < count && more > 0 && !core_endpoint_failing(core, endpoint)) {
        struct offers offers;
        need.count = count - taken;
        offers_begin(&offers, &need);
        need.wide = looks_wide(core, endpoint, how) || taken > 0;
        more = offers_gather(core, &need, &offers) ? take_best(core, endpoint, &need, &offers) : 0;
        taken += more;
    }
    return taken;
}
