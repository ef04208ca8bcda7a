/* tidepool_world.c: what the core is told when it begins: devices, endpoints, jobs; and after a
 * crash all that was committed before, and what is found. */
#include "clients/sim/tidepool.h"

#define SECOND UINT64_C(1000000000)
#define ALL_KINDS ((1u << CORE_KINDS_MAX) - 1)

/* ---- the core ---- */

static void config_rungs(const struct sim_setup *setup, struct core_config *config)
{
    for (size_t i = 0; i < setup->rung_count; i++) {
        const struct sim_rung *rung = &setup->rungs[i];
        config->rung_prior[rung->rung] =
            (struct core_rung_prior){.take_ns = rung->take_ns, .give_ns = rung->give_ns};
        if (rung->rung == CORE_RUNG_NOTICE) {
            config->notice_ns = rung->take_ns > 0 ? rung->take_ns : 1;
        }
    }
}

struct core *tidepool_core_create(const struct tidepool *policy, uint64_t epoch)
{
    const struct sim_setup *setup = policy->setup;
    struct core_config config;
    core_config_init(&config);
    config.seed[0] = setup->seed;
    config.seed[1] = epoch;
    config.store_epoch = epoch;
    config.generation = policy->generation;
    config.late_budget_ppm = (uint32_t)(setup->late_budget * 1e6 + 0.5);
    config.stopped_cap_ns = (uint64_t)(policy->parameters[PARAMETER_STOPPED_CAP_S] * 1e9);
    if (setup->hold_ns != ENGINE_NEVER_NS) {
        config.hold_min_ns = setup->hold_ns;
    }
    config.sample_stale_ns = TIDEPOOL_STALE_NS;
    config_rungs(setup, &config);
    return core_create(&config);
}

/* ---- objects ---- */

static void tell_device(struct tidepool *policy, uint32_t number)
{
    const struct sim_device *kind =
        policy->setup->devices != NULL ? &policy->setup->devices[number] : NULL;
    struct core_event event = {.kind = CORE_EVENT_DEVICE_ADDED,
                               .device_added = {.device = number + 1}};
    if (kind != NULL) {
        event.device_added.kind = kind->kind;
        event.device_added.memory_bytes = kind->memory_bytes;
    }
    tidepool_feed(policy, event);
}

static void tell_endpoint(struct tidepool *policy, uint32_t number)
{
    double target = 1000 * (1 - policy->setup->late_budget); /* rounded down: the knob decides */
    tidepool_feed(policy,
                  (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED,
                                      .endpoint_spec = {.endpoint = number + 1,
                                                        .slo_ns = policy->setup->slo_ns,
                                                        .target_permille = (uint32_t)target,
                                                        .devices_max = policy->setup->device_count,
                                                        .kinds_mask = ALL_KINDS}});
}

static struct core_lease_spec lease_of(const struct tidepool *policy, uint32_t number)
{
    const struct sim_job *job = &policy->setup->jobs[number];
    const struct sim_setup *setup = policy->setup;
    struct core_lease_spec spec = {
        .lease = number + 1,
        .devices_min = job->devices_min,
        .devices_max = job->devices_max,
        .priority = job->priority,
        .team = job->team,
        .kinds_mask = job->kinds_mask,
        .memory_bytes = job->memory_bytes,
        .work = job->work,
        .preemptible = true,
        .revokes_per_hour = (uint32_t)policy->parameters[PARAMETER_REVOKES_PER_HOUR],
        .stops_per_hour = (uint32_t)policy->parameters[PARAMETER_STOPS_PER_HOUR],
    };
    for (size_t i = 0; i < setup->rung_count; i++) {
        spec.in_process = spec.in_process || setup->rungs[i].rung == CORE_RUNG_YIELD;
        spec.rungs_mask |= 1u << setup->rungs[i].rung;
    }
    /* What goes without saying is not for the lease to tell. */
    spec.rungs_mask &= ~(1u << CORE_RUNG_YIELD | 1u << CORE_RUNG_KILL);
    return spec;
}

void tidepool_tell_job(struct tidepool *policy, uint32_t number)
{
    policy->jobs[number].requested = true;
    tidepool_feed(policy, (struct core_event){.kind = CORE_EVENT_LEASE_REQUESTED,
                                              .lease_spec = lease_of(policy, number)});
}

/* ---- at the start ---- */

static void tell_instances(struct tidepool *policy, uint32_t number)
{
    for (uint32_t i = 0; i < policy->setup->endpoint_count; i++) {
        if (engine_instance_is_ready(policy->engine, number, i)) {
            tidepool_feed(
                policy, (struct core_event){.kind = CORE_EVENT_RESTORED_INSTANCE,
                                            .instance = {.endpoint = i + 1, .device = number + 1}});
        }
    }
}

/* ---- after a crash ---- */

static void find_device(struct tidepool *policy, uint32_t number)
{
    struct tide_device *device = &policy->devices[number];
    uint64_t now_ns = engine_now_ns(policy->engine);
    *device = (struct tide_device){
        .rung = device->rung,
        .generation = device->generation,
        .sampled_ns = now_ns,
        .serving_since_ns = now_ns,
        .giving_since_ns = now_ns,
        .serving = engine_serves(policy->engine, number) != ENGINE_ALL,
    };
    bits_set(&policy->active, number, device->serving);
    for (uint32_t i = 0; i < policy->setup->endpoint_count; i++) {
        policy->endpoints[i].removes[number] = 0;
    }
    if (engine_phase_of(policy->engine, number) == ENGINE_LOST) {
        tidepool_feed(policy, (struct core_event){.kind = CORE_EVENT_DEVICE_FAILED,
                                                  .device = {.device = number + 1}});
    }
}

static void find_grant(struct tidepool *policy, uint32_t number)
{
    const struct tide_device *device = &policy->devices[number];
    uint32_t job = engine_job_of(policy->engine, number);
    enum engine_phase phase = engine_phase_of(policy->engine, number);
    if (job == ENGINE_POOL) {
        return;
    }
    bool stopped =
        (phase == ENGINE_SERVING || phase == ENGINE_TAKING) && tidepool_rung_stops(device->rung);
    tidepool_feed(policy,
                  (struct core_event){
                      .kind = CORE_EVENT_RESTORED_GRANT,
                      .restored_grant = {.lease = job + 1,
                                         .device = number + 1,
                                         .generation = device->generation,
                                         .alive = true,
                                         .stopped = stopped ? device->rung : CORE_RUNG_NONE}});
}

static void find_jobs(struct tidepool *policy)
{
    uint64_t now_ns = engine_now_ns(policy->engine);
    for (uint32_t i = 0; i < policy->setup->job_count; i++) {
        struct tide_job *job = &policy->jobs[i];
        job->reporting = false;
        job->ended = engine_job_is_over(policy->engine, i);
        if (policy->setup->jobs[i].submit_ns <= now_ns && !job->ended) {
            job->requested = true;
            tidepool_feed(policy, (struct core_event){.kind = CORE_EVENT_RESTORED_LEASE,
                                                      .lease_spec = lease_of(policy, i)});
        }
    }
}

static void tell_kinds(struct tidepool *policy)
{
    for (uint32_t i = 0; i < policy->setup->kind_count; i++) {
        tidepool_feed(policy, (struct core_event){.kind = CORE_EVENT_KIND_MEASURED,
                                                  .kind_measured = policy->setup->kinds[i]});
    }
}

void tidepool_tell_world(struct tidepool *policy, bool again)
{
    if (policy->parameters[PARAMETER_KIND_SPEEDS] > 0) {
        tell_kinds(policy);
    }
    for (uint32_t i = 0; i < policy->setup->device_count; i++) {
        tell_device(policy, i);
    }
    for (uint32_t i = 0; i < policy->setup->endpoint_count; i++) {
        tell_endpoint(policy, i);
    }
    for (uint32_t i = 0; i < policy->setup->device_count && again; i++) {
        find_device(policy, i);
    }
    if (again) {
        find_jobs(policy);
    }
    for (uint32_t i = 0; i < policy->setup->device_count; i++) {
        tell_instances(policy, i);
        if (again) {
            find_grant(policy, i);
            if (engine_phase_of(policy->engine, i) == ENGINE_TRAINING) {
                tidepool_progress_begin(policy, engine_job_of(policy->engine, i));
            }
        }
    }
    tidepool_feed(policy, (struct core_event){.kind = CORE_EVENT_RECONCILE_DONE});
}
