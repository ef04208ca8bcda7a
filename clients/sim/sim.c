/* sim.c: from options to a run, and through it. */
#include "clients/sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/sim/baselines.h"
#include "clients/sim/search.h"

#define DONE_AT_MOST_TIMES 20 /* a run to the last job's end gives up after so many spans */

void sim_options_init(struct sim_options *options)
{
    *options = (struct sim_options){.devices = 8,
                                    .gang = -1,
                                    .slo_ms = 1000,
                                    .rungs = "yield",
                                    .notice_s = 30,
                                    .late_budget = 0.005,
                                    .hold_s = -1,
                                    .seed = 1,
                                    .time_scale = 1,
                                    .rate_scale = 1,
                                    .checkpoint_s = 600,
                                    .device_repair_s = 600,
                                    .reclaim_notice_s = 120,
                                    .reclaim_away_s = 600,
                                    .slow_factor = 1.5,
                                    .late_by_s = 5,
                                    .crash_down_s = 5};
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9 + 0.5);
}

/* ---- reading ---- */

static int traces_read(const struct sim_options *options, struct trace *ret_trace,
                       struct error *error)
{
    size_t count = options->request_files + options->job_files;
    struct trace_options how;
    if (count == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "nothing to play: give --requests FILE, --jobs FILE, or both");
    }
    const char **files = calloc(count, sizeof *files);
    if (files == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory");
    }
    for (size_t i = 0; i < count; i++) {
        files[i] = i < options->request_files ? options->requests[i]
                                              : options->jobs[i - options->request_files];
    }
    trace_options_init(&how);
    how.seed = (uint64_t)options->seed;
    how.time_scale = options->time_scale;
    how.rate_scale = options->rate_scale;
    how.rate_mean = options->rate_rps;
    how.from_ns = ns_of(options->from_s);
    how.until_ns = ns_of(options->until_s);
    how.workload = (uint32_t)options->workload;
    int result = trace_read(files, count, &how, ret_trace, error);
    free(files);
    return result;
}

static int trace_check(const struct sim_options *options, const struct trace *trace,
                       struct error *error)
{
    if (options->request_files > 0 && trace->request_count == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "--requests: the files hold no request between --from-s and --until-s");
    }
    if (options->job_files > 0 && trace->job_count == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "--jobs: the files hold no job between --from-s and --until-s");
    }
    if (trace->endpoints.count > ENGINE_ENDPOINTS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "--requests: %u endpoints; at most %u can be played: leave some out",
                         trace->endpoints.count, ENGINE_ENDPOINTS_MAX);
    }
    if (trace->job_count > ENGINE_JOBS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "--jobs: %zu jobs; at most %u can be played: cut them with --until-s",
                         trace->job_count, ENGINE_JOBS_MAX);
    }
    return 0;
}

/* ---- the setup ---- */

static struct workload_options workload_options(const struct sim_options *options)
{
    int64_t gang = options->gang >= 0 ? options->gang : options->job_files == 0;
    return (struct workload_options){
        .device_count = (uint32_t)options->devices,
        .scale = options->scale,
        .gang = (uint32_t)gang,
        .checkpoint_ns = ns_of(options->checkpoint_s),
        .restore_ns = ns_of(options->restore_s),
    };
}

static void setup_faults(const struct sim_options *options, struct sim_faults *faults)
{
    *faults = (struct sim_faults){
        .device_mtbf_ns = ns_of(options->device_mtbf_h * 3600),
        .device_repair_ns = ns_of(options->device_repair_s),
        .detect_ns = ns_of(options->detect_s),
        .reclaim_every_ns = options->reclaims_per_h > 0 ? ns_of(3600 / options->reclaims_per_h) : 0,
        .reclaim_notice_ns = ns_of(options->reclaim_notice_s),
        .reclaim_away_ns = ns_of(options->reclaim_away_s),
        .slow_permille = (uint32_t)(options->slow_share * 1000 + 0.5),
        .slow_factor_milli = (uint32_t)(options->slow_factor * 1000 + 0.5),
        .late_permille = (uint32_t)(options->late_share * 1000 + 0.5),
        .late_ns = ns_of(options->late_by_s),
        .lost_permille = (uint32_t)(options->lost_share * 1000 + 0.5),
        .crash_every_ns = ns_of(options->crash_every_h * 3600),
        .crash_down_ns = ns_of(options->crash_down_s),
    };
}

static void setup_point(struct sim *sim)
{
    sim->setup.requests = sim->workload.requests;
    sim->setup.request_count = sim->workload.request_count;
    sim->setup.jobs = sim->workload.jobs;
    sim->setup.job_count = sim->workload.job_count;
}

static void setup_fill(const struct sim_options *options, struct sim *sim)
{
    struct sim_setup *setup = &sim->setup;
    setup_point(sim);
    setup->endpoint_count = sim->trace.endpoints.count;
    setup->endpoint_names = (const char *const *)sim->trace.endpoints.names;
    setup->device_count = (uint32_t)options->devices;
    setup->slo_ns = ns_of(options->slo_ms / 1000);
    setup->until_done = options->until_done;
    setup->end_ns = options->duration_s > 0
                        ? ns_of(options->duration_s)
                        : sim->workload.end_ns * (options->until_done ? DONE_AT_MOST_TIMES : 1);
    setup->late_budget = options->late_budget;
    setup->hold_ns = options->hold_s < 0 ? ENGINE_NEVER_NS : ns_of(options->hold_s);
    setup->seed = (uint64_t)options->seed;
    setup_faults(options, &setup->faults);
}

static int policies_parse(const struct sim_options *options, struct sim *sim, struct error *error)
{
    static const char *const standard[] = {"tidepool"};
    const char *const *texts = options->policy_count > 0 ? options->policies : standard;
    size_t count = options->policy_count > 0 ? options->policy_count : 1;
    if (count > SIM_POLICIES_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "--policy: %zu policies; at most %d in one run: split them over several",
                         count, SIM_POLICIES_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        struct sim_outcome *outcome = &sim->outcomes[i];
        if (sim_policy_parse(texts[i], &outcome->choice, error) < 0) {
            return -(int)error->code;
        }
        outcome->search =
            outcome->choice.class == &policy_hindsight && strchr(texts[i], ':') == NULL;
        outcome->harvest_vs_hindsight = NAN;
        if (outcome->search && options->find_devices) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "--find-devices cannot search for hindsight as well; give its "
                             "parameters, as in hindsight:%s=%g",
                             policy_hindsight.parameters[0].name,
                             policy_hindsight.parameters[0].standard);
        }
    }
    sim->outcome_count = count;
    return 0;
}

int sim_open(const struct sim_options *options, struct sim *ret_sim, struct error *error)
{
    struct sim sim = {0};
    struct workload_options work = workload_options(options);
    if (options->until_s > 0 && options->until_s <= options->from_s) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "--until-s %g is not after --from-s %g: nothing would be played",
                         options->until_s, options->from_s);
    }
    if (sim_rungs_parse(options->rungs, options->notice_s, &sim.setup, error) < 0 ||
        policies_parse(options, &sim, error) < 0 || traces_read(options, &sim.trace, error) < 0 ||
        trace_check(options, &sim.trace, error) < 0 ||
        workload_make(&sim.trace, &work, &sim.workload, error) < 0) {
        sim_close(&sim);
        return -(int)error->code;
    }
    setup_fill(options, &sim);
    *ret_sim = sim;
    return 0;
}

void sim_close(struct sim *sim)
{
    workload_free(&sim->workload);
    trace_free(&sim->trace);
    *sim = (struct sim){0};
}

/* ---- playing ---- */

static int play_one(const struct sim *sim, const struct policy_choice *choice,
                    struct sim_result *ret_result, struct error *error)
{
    struct sim_setup setup = sim->setup;
    baseline_setup(choice->class, &setup);
    return engine_run(&setup, choice, ret_result, error);
}

/* The reference that others are measured by gets the best parameters for this very trace. */
static int play_search(const struct sim *sim, struct sim_outcome *outcome, struct error *error)
{
    struct search_points points = {0};
    struct search_axes axes;
    struct search_point best;
    const struct search_bound bound = {sim->late_floor + sim->setup.late_budget, INFINITY};
    bool within = false;
    search_axes(outcome->choice.class, &sim->setup, &axes);
    int result = search_best(&sim->setup, outcome->choice.class, &axes, &bound, &points, &best,
                             &within, error);
    if (result == 0) {
        outcome->choice = best.choice;
        outcome->result = best.result;
    }
    search_points_free(&points);
    return result;
}

static int floor_find(struct sim *sim, struct error *error)
{
    struct policy_choice all = policy_standard(&policy_serve_all);
    struct sim_result result;
    if (play_one(sim, &all, &result, error) < 0) {
        return -(int)error->code;
    }
    sim->late_floor = result.late_fraction;
    return 0;
}

/* ---- the fewest devices ---- */

/* With so many devices, and the same service times. */
static int play_with(struct sim *sim, const struct sim_options *options, uint32_t device_count,
                     struct sim_outcome *outcome, struct error *error)
{
    struct workload_options work = workload_options(options);
    struct workload workload;
    work.device_count = device_count;
    work.scale = sim->workload.scale;
    if (workload_make(&sim->trace, &work, &workload, error) < 0) {
        return -(int)error->code;
    }
    workload_free(&sim->workload);
    sim->workload = workload;
    setup_point(sim);
    sim->setup.device_count = device_count;
    return play_one(sim, &outcome->choice, &outcome->result, error);
}

static int devices_find(struct sim *sim, const struct sim_options *options,
                        struct sim_outcome *outcome, struct error *error)
{
    uint32_t low = 0, high = 1; /* too few; perhaps enough */
    struct sim_result enough = {0};
    for (;;) {
        if (play_with(sim, options, high, outcome, error) < 0) {
            return -(int)error->code;
        }
        if (outcome->result.late_fraction <= options->late_budget) {
            break;
        }
        low = high;
        if (high >= ENGINE_DEVICES_MAX) {
            return 0; /* not even so many: devices_needed stays 0 */
        }
        high *= 2;
    }
    enough = outcome->result;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (play_with(sim, options, middle, outcome, error) < 0) {
            return -(int)error->code;
        }
        bool meets = outcome->result.late_fraction <= options->late_budget;
        high = meets ? middle : high;
        low = meets ? low : middle;
        enough = meets ? outcome->result : enough;
    }
    outcome->result = enough;
    outcome->devices_needed = high;
    return 0;
}

static void compare(struct sim *sim)
{
    double reference = NAN;
    for (size_t i = 0; i < sim->outcome_count; i++) {
        if (sim->outcomes[i].choice.class == &policy_hindsight) {
            reference = sim->outcomes[i].result.harvest_fraction;
        }
    }
    for (size_t i = 0; i < sim->outcome_count && reference > 0; i++) {
        sim->outcomes[i].harvest_vs_hindsight =
            sim->outcomes[i].result.harvest_fraction / reference;
    }
}

int sim_play(struct sim *sim, const struct sim_options *options, FILE *progress,
             struct error *error)
{
    if (floor_find(sim, error) < 0) {
        return -(int)error->code;
    }
    for (size_t i = 0; i < sim->outcome_count; i++) {
        struct sim_outcome *outcome = &sim->outcomes[i];
        if (progress != NULL) {
            fprintf(progress, "playing %s\n", outcome->choice.class->name);
        }
        int result = options->find_devices ? devices_find(sim, options, outcome, error)
                     : outcome->search     ? play_search(sim, outcome, error)
                                       : play_one(sim, &outcome->choice, &outcome->result, error);
        if (result < 0) {
            return result;
        }
    }
    compare(sim);
    return 0;
}
