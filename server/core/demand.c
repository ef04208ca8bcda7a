/* demand.c: how many devices each endpoint needs, and how busy serving keeps each device.
 * Slow path: arrival rate x device time of a request, over two windows, with two thresholds and a
 * hold. Fast path: an SLO in danger asks for one device more, at once, for a while. */
#include <stdlib.h>

#include "server/core/state.h"

#define MILLION UINT64_C(1000000)
#define OBSERVED_TIMES 6 /* slow windows over which the service time of a request is averaged */

uint64_t core_hold_ns(const struct core *core)
{
    uint64_t twice = core_scale_u64(core->handover_cost_ns, 2, 1);
    return twice > core->config.hold_min_ns ? twice : core->config.hold_min_ns;
}

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
static uint64_t request_ns(const struct endpoint *endpoint)
{
    uint64_t slowest = 0;
    for (int kind = 0; kind < CORE_KINDS_MAX; kind++) {
        uint64_t each = kind_allowed(endpoint, kind) ? request_ns_of_kind(endpoint, kind) : 0;
        slowest = each > slowest ? each : slowest;
    }
    return slowest > 0 ? slowest : endpoint->observed_ns;
}

static uint32_t devices_for(uint64_t demand_milli, uint32_t load_permille)
{
    uint64_t devices = (demand_milli + load_permille - 1) / load_permille;
    return devices > CORE_DEVICES_MAX ? CORE_DEVICES_MAX : (uint32_t)devices;
}

static uint32_t clamp_devices(const struct endpoint *endpoint, uint32_t devices)
{
    if (devices > endpoint->spec.devices_max) {
        return endpoint->spec.devices_max;
    }
    return devices < endpoint->spec.devices_min ? endpoint->spec.devices_min : devices;
}

/* Where devices take time to come: what is there, what waits, and the reserve for what may come. */
static void reserve_decide(const struct core *core, const struct endpoint *endpoint, uint32_t *low,
                           uint32_t *high)
{
    if (core_reserve_is_known(core, endpoint)) {
        uint64_t target_milli =
            core_add_u64(core_reserve_target_milli(endpoint), endpoint->waiting_milli);
        *low = *high = devices_for(target_milli, 1000);
    }
}

/* At least as long as a device takes to go and come back. */
static uint64_t lower_hold_ns(const struct core *core)
{
    uint64_t round_ns = core_add_u64(core->lead_take_ns, core->lead_give_ns);
    uint64_t hold_ns = core_hold_ns(core);
    return core_add_u64(round_ns > hold_ns ? round_ns : hold_ns, core->pace_ns);
}

static void endpoint_decide(struct core *core, struct endpoint *endpoint)
{
    uint64_t rate = endpoint->rate_fast_milli > endpoint->rate_slow_milli
                        ? endpoint->rate_fast_milli
                        : endpoint->rate_slow_milli;
    bool idle = endpoint->demand_milli == 0;
    uint64_t demand = core_scale_u64(rate, request_ns(endpoint), SECOND_NS);
    endpoint->demand_milli = demand > UINT32_MAX ? UINT32_MAX : demand;
    bool danger = core->now_ns < endpoint->danger_until_ns;
    uint32_t floor = danger ? endpoint->danger_needed : 0;
    uint32_t high = devices_for(endpoint->demand_milli, core->config.load_high_permille);
    uint32_t low = devices_for(endpoint->demand_milli, core->config.load_low_permille);
    reserve_decide(core, endpoint, &low, &high);
    high = clamp_devices(endpoint, high > floor ? high : floor);
    low = clamp_devices(endpoint, low > floor ? low : floor);
    uint32_t before = endpoint->needed;
    if (low >= endpoint->needed) {
        endpoint->lower_until_ns = NEVER_NS;
        endpoint->needed = high > endpoint->needed ? high : endpoint->needed;
    } else if (endpoint->lower_until_ns == NEVER_NS) {
        endpoint->lower_until_ns = core_add_u64(core->now_ns, lower_hold_ns(core));
    } else if (core->now_ns >= endpoint->lower_until_ns) {
        endpoint->needed = low;
        endpoint->lower_until_ns = NEVER_NS;
    }
    endpoint->needed = clamp_devices(endpoint, endpoint->needed);
    if (endpoint->needed != before || idle != (demand == 0)) {
        core_endpoint_touch(core, endpoint);
    }
    core_endpoint_note(core, endpoint);
}

static void endpoint_feed(struct core *core, struct endpoint *endpoint, uint64_t rate_milli,
                          uint64_t interval_ns)
{
    endpoint->rate_fast_milli = core_average_u64(endpoint->rate_fast_milli, rate_milli, interval_ns,
                                                 core->config.demand_fast_ns);
    endpoint->rate_slow_milli = core_average_u64(endpoint->rate_slow_milli, rate_milli, interval_ns,
                                                 core->config.demand_slow_ns);
    endpoint->sampled_ns = core->now_ns;
    endpoint_decide(core, endpoint);
}

static void endpoint_danger(struct core *core, struct endpoint *endpoint, uint64_t wait_ns)
{
    bool fresh = core->now_ns >= endpoint->danger_until_ns;
    uint32_t ready = endpoint->ready;
    endpoint->projected_wait_ns = wait_ns;
    endpoint->danger_until_ns = core_add_u64(core->now_ns, core->config.danger_hold_ns);
    endpoint->danger_needed = ready + 1;
    endpoint_decide(core, endpoint);
    if (fresh) {
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_DANGER, CORE_REASON_DEMAND, NULL, NULL, endpoint);
        core_explain(core, &explanation);
        endpoint->wide = true; /* devices that were left in peace may be taken now */
        core_endpoint_touch(core, endpoint);
    }
}

/* Requests and the device time that they take come in different samples: both are averaged, over
 * long enough for a long one, and then divided. */
static void observe(const struct core *core, struct endpoint *endpoint, uint64_t arrivals,
                    uint64_t busy_ns, uint64_t interval_ns)
{
    uint64_t window_ns = core_scale_u64(core->config.demand_slow_ns, OBSERVED_TIMES, 1);
    endpoint->arrivals_average = core_average_u64(
        endpoint->arrivals_average, core_scale_u64(arrivals * MILLION, SECOND_NS, interval_ns),
        interval_ns, window_ns);
    endpoint->busy_average =
        core_average_u64(endpoint->busy_average, core_scale_u64(busy_ns, SECOND_NS, interval_ns),
                         interval_ns, window_ns);
    if (endpoint->arrivals_average > 1000) {
        endpoint->observed_ns =
            core_scale_u64(endpoint->busy_average, MILLION, endpoint->arrivals_average);
    }
}

static void endpoint_sample(struct core *core, struct endpoint *endpoint,
                            const struct core_event *event)
{
    uint64_t interval = event->endpoint_sample.interval_ns;
    uint64_t arrivals = event->endpoint_sample.arrivals;
    if (interval < 1000) {
        return; /* says nothing about a rate */
    }
    observe(core, endpoint, arrivals, event->endpoint_sample.busy_ns, interval);
    uint64_t each = request_ns(endpoint), since = core->now_ns - endpoint->sampled_ns;
    endpoint->waiting_milli = core_scale_u64(event->endpoint_sample.queue_length * UINT64_C(1000),
                                             each, endpoint->spec.slo_ns);
    core_reserve_feed(core, endpoint, 0, since > interval ? since - interval : 0);
    core_reserve_feed(core, endpoint, core_scale_u64(arrivals, each, 1), interval);
    endpoint_feed(core, endpoint, arrivals * SECOND_NS / (interval / 1000), interval);
    endpoint->projected_wait_ns = event->endpoint_sample.oldest_wait_ns;
    if (event->endpoint_sample.oldest_wait_ns > endpoint->spec.slo_ns / 2) {
        endpoint_danger(core, endpoint, event->endpoint_sample.oldest_wait_ns);
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
    endpoint_decide(core, endpoint);
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
    endpoint_decide(core, endpoint);
    endpoint_prune(core, endpoint);
    return CORE_REASON_NONE;
}

static void endpoint_remove(struct core *core, struct endpoint *endpoint)
{
    endpoint->removing = true;
    endpoint->needed = 0;
    endpoint->demand_milli = 0;
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

struct endpoint *core_device_busiest(const struct core *core, const struct device *device)
{
    struct endpoint *busiest = NULL;
    for (size_t i = 0; i < core->endpoint_count; i++) {
        struct endpoint *endpoint = core->endpoints[i];
        bool ready = core_instance_of(device, endpoint)->state == CORE_INSTANCE_READY;
        if (ready && (busiest == NULL || endpoint->demand_milli > busiest->demand_milli)) {
            busiest = endpoint;
        }
    }
    return busiest;
}

bool core_device_hot(const struct core *core, const struct device *device)
{
    return device->hot_since_ns != NEVER_NS &&
           core->now_ns - device->hot_since_ns >= core->config.shrink_after_ns;
}

bool core_device_cool(const struct core *core, const struct device *device)
{
    return device->cool_since_ns != NEVER_NS &&
           core->now_ns - device->cool_since_ns >= core->config.cool_down_ns;
}

static void device_share(struct core *core, struct device *device, uint64_t share_ppm,
                         uint64_t interval_ns)
{
    device->utilisation_ppm = core_average_u64(device->utilisation_ppm, share_ppm, interval_ns,
                                               core->config.utilisation_ns);
    bool hot = device->utilisation_ppm >= core->config.shrink_high_permille * UINT64_C(1000);
    bool cool = device->utilisation_ppm < core->config.shrink_low_permille * UINT64_C(1000);
    if (hot != (device->hot_since_ns != NEVER_NS)) {
        device->hot_since_ns = hot ? core->now_ns : NEVER_NS;
        core_device_touch(core, device);
    }
    if (cool != (device->cool_since_ns != NEVER_NS)) {
        device->cool_since_ns = cool ? core->now_ns : NEVER_NS;
        core_device_touch(core, device);
    }
    device->sampled_ns = core->now_ns;
    core_device_note(core, device);
}

static void burst_explain(struct core *core, struct device *device, enum core_what what)
{
    struct core_explanation explanation = core_explain_begin(
        core, what, what == CORE_WHAT_YIELD_BEGAN ? CORE_REASON_DEMAND : CORE_REASON_LOAD_FELL,
        device, device->lease, core_device_busiest(core, device));
    explanation.rung = CORE_RUNG_YIELD;
    if (device->lease != NULL) {
        core_explain_victim(&explanation, device, 0, what == CORE_WHAT_YIELD_BEGAN);
    }
    core_explain(core, &explanation);
}

void core_burst_follow(struct core *core, struct device *device)
{
    bool granted = device->hold == CORE_HOLD_HELD;
    bool quiet =
        device->served_ns == NEVER_NS || core->now_ns - device->served_ns >= core->config.quiet_ns;
    if (device->lending && (quiet || !granted)) {
        device->lending = false;
        if (granted) {
            burst_explain(core, device, CORE_WHAT_YIELD_ENDED);
        }
    } else if (!device->lending && granted && !quiet) {
        device->lending = true;
        burst_explain(core, device, CORE_WHAT_YIELD_BEGAN);
    }
}

static void device_sample(struct core *core, const struct core_event *event)
{
    struct device *device = core_device_get(core, event->device_sample.device);
    uint64_t interval = event->device_sample.interval_ns;
    if (device == NULL || interval == 0) {
        return;
    }
    uint64_t serving = event->device_sample.serving_ns;
    core_ledger_book(core, device, serving, CORE_ACCOUNT_SERVING);
    if (device->account == CORE_ACCOUNT_TRAINING) {
        core_ledger_book(core, device, event->device_sample.waiting_ns, CORE_ACCOUNT_WAITING);
        core_ledger_book(core, device, event->device_sample.restore_ns, CORE_ACCOUNT_RESTORE);
    }
    device->account_open_ns = 0; /* this stretch is told */
    device->slices += event->device_sample.slices;
    uint64_t share = serving >= interval ? MILLION : core_scale_u64(serving, MILLION, interval);
    device_share(core, device, share, interval);
    if (serving > 0) {
        device->served_ns = core->now_ns;
    }
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
        endpoint_danger(core, endpoint, event->endpoint_danger.projected_wait_ns);
        break;
    default:
        assert(false);
    }
}

void core_demand_event(struct core *core, const struct core_event *event)
{
    if (event->kind == CORE_EVENT_DEVICE_SAMPLE) {
        device_sample(core, event);
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

void core_demand_refresh(struct core *core)
{
    SET_EACH (&core->endpoint_sets[TOUCHED], slot) {
        struct endpoint *endpoint = core->endpoint_slots[slot];
        uint64_t age = core->now_ns - endpoint->sampled_ns;
        if (endpoint->removing) {
            continue;
        }
        if (age >= core->config.sample_stale_ns && endpoint->demand_milli > 0) {
            endpoint_feed(core, endpoint, 0, age);
        } else {
            endpoint_decide(core, endpoint);
        }
    }
    SET_EACH (&core->device_sets[TOUCHED], slot) {
        struct device *device = core->device_slots[slot];
        uint64_t age = core->now_ns - device->sampled_ns;
        if (age >= core->config.sample_stale_ns && device->utilisation_ppm > 0) {
            device_share(core, device, 0, age);
        }
    }
}

uint64_t core_endpoint_due_ns(const struct core *core, const struct endpoint *endpoint)
{
    uint64_t due_ns = core_sooner(core, NEVER_NS, endpoint->danger_until_ns, 0);
    due_ns = core_sooner(core, due_ns, endpoint->lower_until_ns, 0);
    due_ns = core_sooner(core, due_ns, endpoint->lacking_since_ns, core->config.sustained_ns);
    due_ns = core_sooner(core, due_ns, endpoint->parking_ns, 0);
    if (endpoint->demand_milli > 0) {
        due_ns = core_sooner(core, due_ns, endpoint->sampled_ns, core->config.sample_stale_ns);
    }
    return due_ns;
}
