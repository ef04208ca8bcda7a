/* reactive.c: the family of policies that react to everything at once: `hindsight` and `kill`.
 *
 * Needed are the devices that the arrivals of the last window keep busy, with headroom, and those
 * that start what waits within the patience; at least those that run requests; and a reserve. Some
 * serve in any case. A device
 * stays with serving until `hold` after it was last needed. Service times are known from the
 * requests that have finished. Where the pool's first rung is yield, `shared` gives all devices to
 * training for good and requests take turns with it. */
#include <stdlib.h>

#include "clients/sim/baselines.h"
#include "clients/sim/scaler.h"

#define SECOND_NS 1e9
#define SLOTS 10 /* of the rate window */

enum {
    REACTIVE_RESERVE,
    REACTIVE_MINIMUM,
    REACTIVE_HOLD,
    REACTIVE_WINDOW,
    REACTIVE_HEADROOM,
    REACTIVE_PATIENCE,
    REACTIVE_SHARED,
};
#define FAMILY                                                                                     \
    {"reserve", 0, ENGINE_DEVICES_MAX, 1, "devices that serve beyond what is needed"},             \
        {"min", 0, ENGINE_DEVICES_MAX, 0, "devices that serve at least"},                          \
        {"hold", 0, 3600, 10, "seconds that a device stays after it was last needed"},             \
        {"window", 0.1, 3600, 10, "seconds over which arrivals are averaged"},                     \
        {"headroom", 0, 10, 0.25, "devices for the average, above 1, for each that it needs"},     \
    {                                                                                              \
        "patience", 0.1, 3600, 1, "seconds in which what waits is to be started"                   \
    }
static const struct policy_parameter reactive_parameters[] = {
    FAMILY,
    {"shared", 0, 1, 1, "with yield: 1 lets requests take turns with training everywhere"},
};
static const struct policy_parameter kill_parameters[] = {FAMILY};

enum reactive_wake { REACTIVE_SLOT, REACTIVE_HELD };

struct reactive {
    struct scaler scaler;
    uint32_t reserve;
    uint64_t hold_ns;
    uint64_t slot_ns; /* the window's tenth */
    double headroom, patience_ns;
    bool shared;
    uint32_t arrivals[SLOTS];
    uint64_t slot; /* number of the one that fills */
    uint32_t window_arrivals;
    bool slot_wakes;
    uint64_t held_wake_ns; /* 0: none is on its way */
    uint32_t needed;
    uint64_t *last_ns; /* [devices + 1]: when so many were last needed */
};

static struct policy *reactive_create(struct engine *engine, const double *parameters,
                                      struct error *error)
{
    struct reactive *reactive =
        scaler_create(engine, sizeof(*reactive), parameters[REACTIVE_MINIMUM], error);
    if (reactive == NULL) {
        return NULL;
    }
    reactive->last_ns = calloc((size_t)reactive->scaler.devices + 1, sizeof(*reactive->last_ns));
    if (reactive->last_ns == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "simulate: no memory for a policy");
        free(reactive);
        return NULL;
    }
    reactive->reserve = (uint32_t)parameters[REACTIVE_RESERVE];
    reactive->hold_ns = (uint64_t)(parameters[REACTIVE_HOLD] * SECOND_NS);
    reactive->slot_ns = (uint64_t)(parameters[REACTIVE_WINDOW] * SECOND_NS / SLOTS);
    reactive->headroom = parameters[REACTIVE_HEADROOM];
    reactive->patience_ns = parameters[REACTIVE_PATIENCE] * SECOND_NS;
    reactive->needed = reactive->scaler.devices;
    return (struct policy *)reactive;
}

static struct policy *hindsight_create(struct engine *engine, const double *parameters,
                                       struct error *error)
{
    struct reactive *reactive = (struct reactive *)reactive_create(engine, parameters, error);
    const struct sim_setup *setup = engine_setup(engine);
    if (reactive != NULL) {
        reactive->shared = parameters[REACTIVE_SHARED] > 0 && setup->rung_count > 0 &&
                           setup->rungs[0].rung == CORE_RUNG_YIELD;
    }
    return (struct policy *)reactive;
}

static struct policy *kill_create(struct engine *engine, const double *parameters,
                                  struct error *error)
{
    struct reactive *reactive = (struct reactive *)reactive_create(engine, parameters, error);
    if (reactive != NULL) {
        reactive->scaler.rung = CORE_RUNG_KILL;
    }
    return (struct policy *)reactive;
}

static void reactive_destroy(struct policy *policy)
{
    struct reactive *reactive = (struct reactive *)policy;
    if (reactive != NULL) {
        free(reactive->last_ns);
        free(reactive);
    }
}

/* ---- what is needed -------------------------------------------------------------------------- */

static void slots_advance(struct reactive *reactive)
{
    uint64_t slot = engine_now_ns(reactive->scaler.policy.engine) / reactive->slot_ns;
    for (unsigned i = 0; i < SLOTS && reactive->slot < slot; i++) {
        uint32_t *oldest = &reactive->arrivals[++reactive->slot % SLOTS];
        reactive->window_arrivals -= *oldest;
        *oldest = 0;
    }
    reactive->slot = slot;
}

static uint32_t needed_now(const struct reactive *reactive)
{
    const struct sim_setup *setup = engine_setup(reactive->scaler.policy.engine);
    uint32_t devices = reactive->scaler.devices;
    struct engine_load load;
    engine_load(reactive->scaler.policy.engine, ENGINE_ALL, &load);
    /* Nothing known yet: a request takes as long as it may wait. */
    double mean_ns = load.finished > 0 ? (double)load.finished_ns / (double)load.finished
                                       : (double)setup->slo_ns;
    double window_ns = (double)reactive->slot_ns * SLOTS;
    double rate_devices = reactive->window_arrivals * mean_ns / window_ns;
    uint32_t busy = scaler_ceiling(rate_devices * (1 + reactive->headroom), devices);
    uint32_t waiting = scaler_ceiling(load.queue_length * mean_ns / reactive->patience_ns, devices);
    uint64_t needed = (uint64_t)busy + waiting;
    needed = (needed > load.running ? needed : load.running) + reactive->reserve;
    return needed < devices ? (uint32_t)needed : devices;
}

/* Devices that are needed, or were within the hold time. */
static uint32_t held_now(struct reactive *reactive)
{
    uint64_t now_ns = engine_now_ns(reactive->scaler.policy.engine);
    uint32_t held = reactive->scaler.wanted;
    held = held > reactive->needed ? held : reactive->needed;
    while (held > reactive->needed && reactive->last_ns[held] + reactive->hold_ns <= now_ns) {
        held--;
    }
    return held;
}

static void wakes_set(struct reactive *reactive)
{
    struct engine *engine = reactive->scaler.policy.engine;
    uint64_t now_ns = engine_now_ns(engine);
    uint32_t wanted = reactive->scaler.wanted;
    if (!reactive->slot_wakes && reactive->window_arrivals > 0) {
        reactive->slot_wakes = true;
        engine_wake_at(engine, (now_ns / reactive->slot_ns + 1) * reactive->slot_ns, REACTIVE_SLOT);
    }
    if (wanted > reactive->needed && wanted > reactive->scaler.minimum &&
        reactive->held_wake_ns == 0) {
        reactive->held_wake_ns = reactive->last_ns[wanted] + reactive->hold_ns;
        engine_wake_at(engine, reactive->held_wake_ns, REACTIVE_HELD);
    }
}

static void reactive_decide(struct reactive *reactive)
{
    uint64_t now_ns = engine_now_ns(reactive->scaler.policy.engine);
    if (reactive->shared) {
        return;
    }
    slots_advance(reactive);
    uint32_t needed = needed_now(reactive);
    for (uint32_t n = needed + 1; n <= reactive->needed; n++) {
        reactive->last_ns[n] = now_ns; /* until now */
    }
    reactive->needed = needed;
    scaler_want(&reactive->scaler, held_now(reactive));
    wakes_set(reactive);
}

/* ---- hooks ----------------------------------------------------------------------------------- */

static void reactive_share(struct policy *policy)
{
    uint32_t devices = engine_setup(policy->engine)->device_count;
    for (uint32_t device = 0; device < devices; device++) {
        if (engine_phase_of(policy->engine, device) == ENGINE_SERVING) {
            (void)engine_give(policy->engine, device, ENGINE_POOL, true);
        }
    }
}

static void reactive_begin(struct policy *policy)
{
    struct reactive *reactive = (struct reactive *)policy;
    if (reactive->shared) {
        reactive_share(policy);
    } else {
        reactive_decide(reactive);
    }
}

static void reactive_wake(struct policy *policy, uint64_t cookie)
{
    struct reactive *reactive = (struct reactive *)policy;
    if (cookie == REACTIVE_SLOT) {
        reactive->slot_wakes = false;
    } else {
        reactive->held_wake_ns = 0;
    }
    reactive_decide(reactive);
}

static void reactive_arrived(struct policy *policy, uint32_t endpoint)
{
    struct reactive *reactive = (struct reactive *)policy;
    (void)endpoint;
    slots_advance(reactive);
    reactive->arrivals[reactive->slot % SLOTS]++;
    reactive->window_arrivals++;
    reactive_decide(reactive);
}

static void reactive_ended(struct policy *policy, uint32_t device, uint32_t endpoint,
                           uint64_t service_ns)
{
    (void)device;
    (void)endpoint;
    (void)service_ns;
    reactive_decide((struct reactive *)policy);
}

static void reactive_moved(struct policy *policy, uint32_t device, enum engine_phase phase)
{
    (void)device;
    if (phase == ENGINE_SERVING || phase == ENGINE_LOST) {
        reactive_begin(policy);
    }
}

static void reactive_job(struct policy *policy, uint32_t job)
{
    (void)job;
    reactive_begin(policy);
}

const struct policy_class policy_hindsight = {
    .name = "hindsight",
    .help = "reactive family (reserve, hold, rate window, headroom), at its best on the trace",
    .parameters = reactive_parameters,
    .parameter_count = sizeof(reactive_parameters) / sizeof(reactive_parameters[0]),
    .create = hindsight_create,
    .destroy = reactive_destroy,
    .begin = reactive_begin,
    .wake = reactive_wake,
    .arrived = reactive_arrived,
    .serve_ended = reactive_ended,
    .moved = reactive_moved,
    .job_submitted = reactive_job,
    .job_ended = reactive_job,
};

const struct policy_class policy_kill = {
    .name = "kill",
    .help = "kill and restart: 30 s to start again, a checkpoint every 10 minutes",
    .parameters = kill_parameters,
    .parameter_count = sizeof(kill_parameters) / sizeof(kill_parameters[0]),
    .create = kill_create,
    .destroy = reactive_destroy,
    .begin = reactive_begin,
    .wake = reactive_wake,
    .arrived = reactive_arrived,
    .serve_ended = reactive_ended,
    .moved = reactive_moved,
    .job_submitted = reactive_job,
    .job_ended = reactive_job,
};

void baseline_setup(const struct policy_class *class, struct sim_setup *setup)
{
    if (class == &policy_kill) {
        setup->rungs[0] = (struct sim_rung){
            .rung = CORE_RUNG_KILL,
            .take_ns = BASELINE_KILL_TAKE_NS,
            .give_ns = BASELINE_KILL_GIVE_NS,
            .loses = true,
        };
        setup->rung_count = 1;
    }
}
