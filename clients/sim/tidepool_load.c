/* tidepool_load.c: load becomes samples and danger, as the server tells them: ten times a second
 * what has changed. What goes on as before is told in growing spans, so that quiet hours and long
 * requests cost little. */
#include "clients/sim/tidepool.h"

#define MS UINT64_C(1000000)
#define DANGER_INTERVAL (10 * MS) /* at most so often for one endpoint */
#define SPAN_GROWTH 4
#define SPAN_MAX (TIDEPOOL_STALE_NS * 6 / 10)

static uint64_t tick_ns(const struct tidepool *policy)
{
    return (uint64_t)policy->parameters[PARAMETER_SAMPLE_MS] * MS;
}

/* The time of the next sample: soon after a change, ever later without one. */
static uint64_t span_next(const struct tidepool *policy, uint64_t span_ns, bool changed)
{
    uint64_t next = changed || span_ns == 0 ? tick_ns(policy) : span_ns * SPAN_GROWTH;
    return next < SPAN_MAX ? next : SPAN_MAX;
}

/* ---- devices ---- */

void tidepool_sample(struct tidepool *policy, uint32_t number)
{
    struct tide_device *device = &policy->devices[number];
    uint64_t now_ns = engine_now_ns(policy->engine);
    uint64_t interval_ns = now_ns - device->sampled_ns;
    if (interval_ns == 0) {
        return;
    }
    if (device->serving) {
        device->served_ns += now_ns - device->serving_since_ns;
        device->serving_since_ns = now_ns;
    }
    struct core_event event = {
        .kind = CORE_EVENT_DEVICE_SAMPLE,
        .device_sample = {.device = number + 1,
                          .interval_ns = interval_ns,
                          .serving_ns = device->served_ns,
                          .restore_ns = device->restored_ns,
                          .slices = device->slices},
    };
    bits_set(&policy->active, number, device->serving || device->served_ns > 0);
    device->span_ns = span_next(policy, device->span_ns, device->serving != device->served);
    device->sampled_ns = now_ns;
    device->served = device->serving;
    device->served_ns = device->restored_ns = 0;
    device->slices = 0;
    tidepool_feed_first(policy, event);
}

static void sample_devices(struct tidepool *policy)
{
    uint64_t now_ns = engine_now_ns(policy->engine);
    for (uint32_t word = 0; word <= policy->active.size / 64; word++) {
        for (uint64_t left = policy->active.words[word]; left != 0; left &= left - 1) {
            uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(left);
            const struct tide_device *device = &policy->devices[number];
            if (device->serving != device->served || device->slices > 0 ||
                now_ns - device->sampled_ns >= device->span_ns) {
                tidepool_sample(policy, number);
            }
        }
    }
}

/* ---- endpoints ---- */

static void tell_load(struct tidepool *policy, uint32_t number, const struct engine_load *load)
{
    struct tide_endpoint *endpoint = &policy->endpoints[number];
    const struct engine_load before = endpoint->told;
    uint64_t now_ns = engine_now_ns(policy->engine);
    struct core_event event = {
        .kind = CORE_EVENT_ENDPOINT_SAMPLE,
        .endpoint_sample = {.endpoint = number + 1,
                            .interval_ns = now_ns - endpoint->sampled_ns,
                            .arrivals = (uint32_t)(load->arrivals - before.arrivals),
                            .queue_length = load->queue_length,
                            .oldest_wait_ns = load->oldest_wait_ns,
                            .busy_ns = load->busy_ns - before.busy_ns},
    };
    endpoint->told = *load;
    endpoint->sampled_ns = now_ns;
    tidepool_feed(policy, event);
}

static void sample_endpoint(struct tidepool *policy, uint32_t number)
{
    struct tide_endpoint *endpoint = &policy->endpoints[number];
    uint64_t now_ns = engine_now_ns(policy->engine);
    struct engine_load load;
    engine_load(policy->engine, number, &load);
    bool changed = load.arrivals > endpoint->told.arrivals || load.queue_length > 0;
    bool active = changed || load.busy_ns > endpoint->told.busy_ns;
    if (!active && !endpoint->had_load) {
        endpoint->sampled_ns = now_ns; /* silence is no part of the next rate */
    } else if (changed || now_ns - endpoint->sampled_ns >= endpoint->span_ns) {
        endpoint->span_ns = span_next(policy, endpoint->span_ns, changed);
        endpoint->had_load = active;
        tell_load(policy, number, &load);
    }
}

/* ---- ten times a second, while there is anything to tell ---- */

void tidepool_tick(struct tidepool *policy)
{
    bool active = policy->active.count > 0;
    sample_devices(policy);
    for (uint32_t i = 0; i < policy->setup->endpoint_count; i++) {
        sample_endpoint(policy, i);
        active = active || policy->endpoints[i].had_load;
    }
    policy->ticking = active;
    if (active) {
        engine_wake_at(policy->engine, engine_now_ns(policy->engine) + tick_ns(policy),
                       tidepool_cookie(policy, COOKIE_TICK, 0));
    }
}

void tidepool_tick_begin(struct tidepool *policy)
{
    uint64_t now_ns = engine_now_ns(policy->engine);
    if (policy->ticking) {
        return;
    }
    policy->ticking = true;
    for (uint32_t i = 0; i < policy->setup->endpoint_count; i++) {
        policy->endpoints[i].sampled_ns = now_ns; /* the silence before is no part of the rate */
    }
    engine_wake_at(policy->engine, now_ns + tick_ns(policy),
                   tidepool_cookie(policy, COOKIE_TICK, 0));
}

/* ---- danger ---- */

/* What the newest request will wait: those before it, each for its share of the mean. */
static uint64_t projected_wait_ns(const struct tidepool *policy)
{
    struct engine_load all;
    uint32_t devices = engine_count(policy->engine, ENGINE_SERVING);
    engine_load(policy->engine, ENGINE_ALL, &all);
    devices = all.running > devices ? all.running : devices;
    if (devices == 0) {
        return ENGINE_NEVER_NS;
    }
    return all.finished > 0 ? all.queue_length * (all.finished_ns / all.finished) / devices : 0;
}

static void danger_check(struct tidepool *policy, uint32_t number)
{
    struct tide_endpoint *endpoint = &policy->endpoints[number];
    uint64_t now_ns = engine_now_ns(policy->engine);
    struct engine_load load;
    engine_load(policy->engine, number, &load);
    uint64_t wait_ns = load.queue_length > 0 ? projected_wait_ns(policy) : 0;
    if (wait_ns <= policy->setup->slo_ns / 4 * 3 ||
        (endpoint->danger_ns != 0 && now_ns - endpoint->danger_ns < DANGER_INTERVAL)) {
        return;
    }
    endpoint->danger_ns = now_ns;
    tidepool_feed(policy,
                  (struct core_event){.kind = CORE_EVENT_ENDPOINT_DANGER,
                                      .endpoint_danger = {.endpoint = number + 1,
                                                          .projected_wait_ns = wait_ns,
                                                          .queue_length = load.queue_length}});
}

/* ---- what the engine tells ---- */

void tidepool_arrived(struct tidepool *policy, uint32_t endpoint)
{
    tidepool_tick_begin(policy);
    danger_check(policy, endpoint);
}

void tidepool_serve_began(struct tidepool *policy, uint32_t number)
{
    struct tide_device *device = &policy->devices[number];
    device->slices +=
        !device->serving && engine_phase_of(policy->engine, number) == ENGINE_TRAINING;
    device->serving = true;
    device->serving_since_ns = engine_now_ns(policy->engine);
    bits_set(&policy->active, number, true);
    tidepool_tick_begin(policy);
}

void tidepool_serve_ended(struct tidepool *policy, uint32_t number)
{
    struct tide_device *device = &policy->devices[number];
    if (device->serving) { /* a crash may have hidden its beginning */
        device->served_ns += engine_now_ns(policy->engine) - device->serving_since_ns;
        device->serving = false;
    }
}
