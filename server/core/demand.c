/* demand.c: how many devices each endpoint needs. What it and those that share devices with it need
 * together is worked out in fleet.c; here come its own limits, two thresholds and the hold. An SLO
 * in danger asks for one device more, at once, for a while. */
#include <stdlib.h>

#include "server/core/state.h"

#define SEEN_MAX 4096 /* requests that the measured device time of one is taken over */

static bool kind_allowed(const struct endpoint *endpoint, int kind)
{
    return (endpoint->spec.kinds_mask >> kind) & 1;
}

uint64_t core_endpoint_batch_ns(const struct endpoint *endpoint)
{
    uint64_t longest = 0;
    for (int kind = 0; kind < CORE_KINDS_MAX; kind++) {
        if (kind_allowed(endpoint, kind) && endpoint->service_ns[kind][0] > longest) {
            longest = endpoint->service_ns[kind][0];
        }
    }
    return longest;
}

/* Device time of one request in the best batch that takes at most half the SLO (or is single). */
static uint64_t request_ns_of_kind(const struct endpoint *endpoint, int kind)
{
    uint64_t best = 0;
    for (int i = 0; i < CORE_BATCH_SIZES; i++) {
        uint64_t batch = endpoint->service_ns[kind][i];
        if (batch == 0 || (i > 0 && batch > endpoint->spec.slo_ns / 2)) {
            continue;
        }
        uint64_t each = batch >> i;
        if (best == 0 || each < best) {
            best = each > 0 ? each : 1;
        }
    }
    return best;
}

/* Of the slowest measured kind, so that no mix of devices is overrated. */
uint64_t core_endpoint_request_ns(const struct endpoint *endpoint)
{
    uint64_t slowest = 0;
    for (int kind = 0; kind < CORE_KINDS_MAX; kind++) {
        uint64_t each = kind_allowed(endpoint, kind) ? request_ns_of_kind(endpoint, kind) : 0;
        slowest = each > slowest ? each : slowest;
    }
    return slowest > 0 ? slowest : endpoint->observed_ns;
}

static uint32_t clamp_devices(const struct endpoint *endpoint, uint32_t devices)
{
    if (devices > endpoint->spec.devices_max) {
        return endpoint->spec.devices_max;
    }
    return devices < endpoint->spec.devices_min ? endpoint->spec.devices_min : devices;
}

/* What it needs for itself, in the balance of two thresholds. */
static struct core_need need_of(const struct core *core, const struct endpoint *endpoint)
{
    struct core_need need = core_fleet_need(core, endpoint);
    bool danger = core->now_ns < endpoint->danger_until_ns;
    uint32_t floor = danger ? endpoint->danger_needed : 0;
    need.high = clamp_devices(endpoint, need.high > floor ? need.high : floor);
    need.low = clamp_devices(endpoint, need.low > floor ? need.low : floor);
    return need;
}

/* Fewer only when fewer were enough for the whole hold time. */
static void endpoint_settle(struct core *core, struct endpoint *endpoint, struct core_need need)
{
    if (need.low >= endpoint->needed) {
        endpoint->lower_until_ns = NEVER_NS;
        endpoint->needed = need.high > endpoint->needed ? need.high : endpoint->needed;
    } else if (endpoint->lower_until_ns == NEVER_NS) {
        endpoint->lower_until_ns = core_add_u64(core->now_ns, core_fleet_hold_ns(core, endpoint));
        endpoint->lower_peak = need.low;
    } else if (core->now_ns >= endpoint->lower_until_ns) {
        endpoint->needed = need.low > endpoint->lower_peak ? need.low : endpoint->lower_peak;
        endpoint->lower_until_ns = NEVER_NS;
        if (need.low < endpoint->needed) {
            endpoint->lower_until_ns =
                core_add_u64(core->now_ns, core_fleet_hold_ns(core, endpoint));
            endpoint->lower_peak = need.low;
        }
    }
    if (endpoint->lower_until_ns != NEVER_NS && need.low > endpoint->lower_peak) {
        endpoint->lower_peak = need.low;
    }
    endpoint->needed = clamp_devices(endpoint, endpoint->needed);
}

static void endpoint_decide(struct core *core, struct endpoint *endpoint)
{
    uint64_t rate = endpoint->rate_fast_milli > endpoint->rate_slow_milli
                        ? endpoint->rate_fast_milli
                        : endpoint->rate_slow_milli;
    bool idle = endpoint->demand_milli == 0;
    uint32_t before = endpoint->needed;
    uint64_t demand = core_scale_u64(rate, core_endpoint_request_ns(endpoint), SECOND_NS);
    endpoint->demand_milli = demand > UINT32_MAX ? UINT32_MAX : demand;
    endpoint_settle(core, endpoint, need_of(core, endpoint));
    if (endpoint->needed < before) {
        core_fleet_spend(core, endpoint, before - endpoint->needed);
    }
    if (endpoint->needed != before || idle != (demand == 0)) {
        core_endpoint_touch(core, endpoint);
    }
    core_endpoint_note(core, endpoint);
}

/* The endpoint that carries the fleet's need has news too. */
static void fleet_decide(struct core *core, struct endpoint *endpoint)
{
    struct endpoint *bearer = core_fleet_bearer(core, endpoint);
    endpoint_decide(core, endpoint);
    if (bearer != endpoint && bearer != NULL) {
        endpoint_decide(core, bearer);
    }
}

static void all_decide(struct core *core)
{
    core->leads_changed = false;
    for (size_t i = 0; i < core->endpoint_count; i++) {
        if (!core->endpoints[i]->removing) {
            endpoint_decide(core, core->endpoints[i]);
        }
    }
}

/* Endpoints came, went or changed: whoever bears now, or no longer, decides anew. */
static void fleets_reform(struct core *core)
{
    core_fleets_form(core);
    all_decide(core);
}

static void endpoint_feed(struct core *core, struct endpoint *endpoint, uint64_t rate_milli,
                          uint64_t interval_ns)
{
    endpoint->rate_fast_milli = core_average_u64(endpoint->rate_fast_milli, rate_milli, interval_ns,
                                                 core->config.demand_fast_ns);
    endpoint->rate_slow_milli = core_average_u64(endpoint->rate_slow_milli, rate_milli, interval_ns,
                                                 core->config.demand_slow_ns);
    endpoint->sampled_ns = core->now_ns;
    core_fleet_feed(core, endpoint);
    fleet_decide(core, endpoint);
}

static bool is_stale(const struct core *core, const struct endpoint *endpoint)
{
    return core->now_ns - endpoint->sampled_ns >= core->config.sample_stale_ns;
}

/* Nothing was told of it since its last sample: nothing came. */
static void endpoint_silence(struct core *core, struct endpoint *endpoint)
{
    endpoint->running_milli = endpoint->queue_length = 0;
    endpoint->arrived = endpoint->late_ns = 0;
    endpoint_feed(core, endpoint, 0, core->now_ns - endpoint->sampled_ns);
}

static void endpoint_endanger(struct core *core, struct endpoint *endpoint)
{
    bool fresh = core->now_ns >= endpoint->danger_until_ns;
    endpoint->danger_until_ns = core_add_u64(core->now_ns, core->config.danger_hold_ns);
    endpoint->danger_needed = endpoint->ready + 1;
    if (fresh) {
        endpoint->wide = true; /* devices that were left in peace may be taken now */
        core_endpoint_touch(core, endpoint);
    }
}

static void endpoint_danger(struct core *core, struct endpoint *endpoint, uint64_t wait_ns)
{
    struct endpoint *bearer = core_fleet_bearer(core, endpoint);
    bool fresh = core->now_ns >= endpoint->danger_until_ns;
    endpoint->projected_wait_ns = wait_ns;
    endpoint_endanger(core, endpoint);
    if (bearer != endpoint && bearer != NULL) {
        endpoint_endanger(core, bearer);
    }
    fleet_decide(core, endpoint);
    if (fresh) {
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_DANGER, CORE_REASON_DEMAND, NULL, NULL, endpoint);
        core_explain(core, &explanation);
    }
}

/* Device time of a request, over many of them: one interval's batches are another's arrivals. */
static void endpoint_observe(struct endpoint *endpoint, uint64_t arrivals, uint64_t busy_ns)
{
    endpoint->seen_arrivals += arrivals;
    endpoint->seen_busy_ns = core_add_u64(endpoint->seen_busy_ns, busy_ns);
    if (endpoint->seen_arrivals >= SEEN_MAX) {
        endpoint->seen_busy_ns = endpoint->seen_busy_ns / endpoint->seen_arrivals * (SEEN_MAX / 2);
        endpoint->seen_arrivals = SEEN_MAX / 2;
    }
    if (endpoint->seen_arrivals > 0) {
        endpoint->observed_ns = endpoint->seen_busy_ns / endpoint->seen_arrivals;
    }
}

static void endpoint_sample(struct core *core, struct endpoint *endpoint,
                            const struct core_event *event)
{
    uint64_t interval = event->endpoint_sample.interval_ns;
    uint64_t arrivals = event->endpoint_sample.arrivals;
    uint64_t wait_ns = event->endpoint_sample.oldest_wait_ns;
    if (interval < 1000) {
        return; /* says nothing about a rate */
    }
    endpoint_observe(endpoint, arrivals, event->endpoint_sample.busy_ns);
    endpoint->queue_length = event->endpoint_sample.queue_length;
    endpoint->running_milli = core_scale_u64(event->endpoint_sample.busy_ns, 1000, interval);
    endpoint->arrived = arrivals;
    endpoint->late_ns = wait_ns > endpoint->spec.slo_ns ? event->endpoint_sample.busy_ns : 0;
    endpoint_feed(core, endpoint, arrivals * SECOND_NS / (interval / 1000), interval);
    endpoint->projected_wait_ns = wait_ns;
    if (wait_ns > endpoint->spec.slo_ns / 2) {
        endpoint_danger(core, endpoint, wait_ns);
    }
}

static enum core_reason spec_check(const struct core_endpoint_spec *spec)
{
    bool valid = spec->endpoint != 0 && spec->slo_ns != 0 && spec->devices_max != 0 &&
                 spec->devices_min <= spec->devices_max && spec->memory_bytes <= MEMORY_MAX &&
                 spec->target_permille <= 1000 &&
                 (spec->kinds_mask & ((1u << CORE_KINDS_MAX) - 1)) != 0;
    return valid ? CORE_REASON_NONE : CORE_REASON_INVALID;
}

static enum core_reason endpoint_add(struct core *core, const struct core_endpoint_spec *spec)
{
    if (spec_check(spec) != CORE_REASON_NONE) {
        return CORE_REASON_INVALID;
    }
    if (core_endpoint_get(core, spec->endpoint) != NULL) {
        return CORE_REASON_DUPLICATE;
    }
    if (core->endpoint_count >= CORE_ENDPOINTS_MAX) {
        return CORE_REASON_TABLE_FULL;
    }
    struct endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (endpoint == NULL) {
        return CORE_REASON_NO_MEMORY;
    }
    endpoint->spec = *spec;
    endpoint->sampled_ns = core->now_ns;
    endpoint->lower_until_ns = NEVER_NS;
    endpoint->lacking_since_ns = NEVER_NS;
    endpoint->parking_ns = NEVER_NS;
    if (core_endpoint_insert(core, endpoint) < 0) {
        core_endpoint_destroy(endpoint);
        return CORE_REASON_NO_MEMORY;
    }
    core_endpoint_reconsider(core, endpoint);
    core_kept_touch(core, endpoint); /* by one of the same id, before it was removed */
    fleets_reform(core);
    return CORE_REASON_NONE;
}

/* What no longer fits the new wishes is removed; the planner places anew. */
static void endpoint_prune(struct core *core, struct endpoint *endpoint)
{
    uint32_t left = endpoint->placed;
    for (uint32_t slot = endpoint->hosts.word_count * 64; slot-- > 0;) {
        if (!core_set_has(&endpoint->hosts, slot)) {
            continue;
        }
        struct device *device = core->device_slots[slot];
        bool serves = core_instance_serves(core_instance_of(device, endpoint));
        bool fits = kind_allowed(endpoint, (int)device->kind) &&
                    core_device_memory_used(device) <= device->memory_bytes;
        if (serves && (endpoint->removing || !fits || left > endpoint->spec.devices_max)) {
            core_instance_remove(core, device, endpoint);
            left--;
        }
    }
}

static enum core_reason endpoint_change(struct core *core, const struct core_endpoint_spec *spec)
{
    struct endpoint *endpoint = core_endpoint_get(core, spec->endpoint);
    if (endpoint == NULL || endpoint->removing) {
        return CORE_REASON_UNKNOWN;
    }
    if (spec_check(spec) != CORE_REASON_NONE) {
        return CORE_REASON_INVALID;
    }
    core_instances_resize(core, endpoint, spec->memory_bytes);
    endpoint->spec = *spec;
    endpoint->advice = 0;
    core_endpoint_rank(core);
    core_endpoint_reconsider(core, endpoint);
    fleets_reform(core);
    endpoint_prune(core, endpoint);
    return CORE_REASON_NONE;
}

static void endpoint_remove(struct core *core, struct endpoint *endpoint)
{
    endpoint->removing = true;
    endpoint->needed = 0;
    endpoint->demand_milli = 0;
    fleets_reform(core);
    core->endpoints_removing++;
    core_endpoint_touch(core, endpoint);
    endpoint_prune(core, endpoint);
}

static void endpoint_service(struct core *core, struct endpoint *endpoint,
                             const struct core_event *event)
{
    uint32_t kind = event->endpoint_service.kind;
    uint64_t longest_ns = core_endpoint_batch_ns(endpoint);
    for (int i = 0; i < CORE_BATCH_SIZES && kind < CORE_KINDS_MAX; i++) {
        endpoint->service_ns[kind][i] = event->endpoint_service.service_ns[i];
    }
    core_endpoint_measured(core, endpoint, longest_ns);
    endpoint_decide(core, endpoint);
}

static void endpoint_event(struct core *core, struct endpoint *endpoint,
                           const struct core_event *event)
{
    switch (event->kind) {
    case CORE_EVENT_ENDPOINT_REMOVED:
        endpoint_remove(core, endpoint);
        break;
    case CORE_EVENT_ENDPOINT_SERVICE:
        endpoint_service(core, endpoint, event);
        break;
    case CORE_EVENT_ENDPOINT_SAMPLE:
        endpoint_sample(core, endpoint, event);
        break;
    case CORE_EVENT_ENDPOINT_DANGER:
        if (is_stale(core, endpoint)) {
            endpoint_silence(core, endpoint); /* its end; what is told now stays */
        }
        endpoint->queue_length = event->endpoint_danger.queue_length;
        core_fleet_feed(core, endpoint);
        endpoint_danger(core, endpoint, event->endpoint_danger.projected_wait_ns);
        break;
    default:
        assert(false);
    }
}

void core_demand_event(struct core *core, const struct core_event *event)
{
    if (event->kind == CORE_EVENT_DEVICE_SAMPLE) {
        core_device_sampled(core, event);
        return;
    }
    enum core_reason reason = CORE_REASON_NONE;
    struct endpoint *endpoint = core_endpoint_get(core, event->endpoint.endpoint);
    if (event->kind == CORE_EVENT_ENDPOINT_ADDED) {
        reason = endpoint_add(core, &event->endpoint_spec);
    } else if (event->kind == CORE_EVENT_ENDPOINT_CHANGED) {
        reason = endpoint_change(core, &event->endpoint_spec);
    } else if (endpoint == NULL && event->kind == CORE_EVENT_ENDPOINT_REMOVED) {
        reason = CORE_REASON_UNKNOWN;
    } else if (endpoint != NULL && !endpoint->removing) { /* samples may come a little late */
        endpoint_event(core, endpoint, event);
    }
    if (reason != CORE_REASON_NONE) {
        core_emit_reject(core, 0, event->endpoint.endpoint, 0, reason);
    }
}

static bool is_loaded(const struct endpoint *endpoint)
{
    return endpoint->demand_milli > 0 || endpoint->told_queue_milli > 0 ||
           endpoint->told_running_milli > 0;
}

/* What it asks for in the name of others goes down without samples of its own. */
static void endpoint_lull(struct core *core, struct endpoint *endpoint)
{
    if (core->now_ns >= core_fleet_due_ns(core, endpoint)) {
        core_fleet_feed(core, endpoint);
    }
    endpoint_decide(core, endpoint);
}

void core_demand_refresh(struct core *core)
{
    SET_EACH (&core->endpoint_sets[TOUCHED], slot) {
        struct endpoint *endpoint = core->endpoint_slots[slot];
        if (endpoint->removing) {
            continue;
        }
        if (is_stale(core, endpoint) && is_loaded(endpoint)) {
            endpoint_silence(core, endpoint);
        } else {
            endpoint_lull(core, endpoint);
        }
    }
    if (core->leads_changed) { /* maybe after some of its endpoints had decided */
        all_decide(core);
    }
    SET_EACH (&core->device_sets[TOUCHED], slot) {
        core_device_refresh(core, core->device_slots[slot]);
    }
}

uint64_t core_endpoint_due_ns(const struct core *core, const struct endpoint *endpoint)
{
    uint64_t due_ns = core_sooner(core, NEVER_NS, endpoint->danger_until_ns, 0);
    due_ns = core_sooner(core, due_ns, endpoint->lower_until_ns, 0);
    due_ns = core_sooner(core, due_ns, endpoint->lacking_since_ns, core->config.sustained_ns);
    due_ns = core_sooner(core, due_ns, endpoint->parking_ns, 0);
    due_ns = core_sooner(core, due_ns, core_fleet_due_ns(core, endpoint), 0);
    if (is_loaded(endpoint)) {
        due_ns = core_sooner(core, due_ns, endpoint->sampled_ns, core->config.sample_stale_ns);
    }
    return due_ns;
}
