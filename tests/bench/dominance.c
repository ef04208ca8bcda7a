/* dominance: tidepool with its one knob swept, and every baseline with its parameters on a grid, on
 * the same trace: the points that tests/bench/harvest.py compares.
 *     dominance RUNG DEVICES BUDGET FILE...
 * Prints one JSON object: the floor of late work, and per policy points of late work, harvest and
 * hand-overs per device and hour. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "clients/sim/baselines.h"
#include "clients/sim/search.h"
#include "clients/sim/sim.h"

static const double late_budgets[] = {0,    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02,
                                      0.03, 0.05,  0.075,  0.1,   0.15,   0.2,  0.3,   0.5};
static const double holds_s[] = {0, 0.1, 1, 5};
/* Late work above the floor at which the many parameters of kill-and-restart are searched. */
static const double kill_budgets[] = {0.005, 0.02, 0.1, 0.3};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void fail(const struct error *error)
{
    fprintf(stderr, "dominance: %s\n", error->text);
    exit(1);
}

static json_t *point_of(const struct sim_result *result)
{
    return json_pack("{s:f,s:f,s:f}", "late", result->late_fraction, "harvest",
                     result->harvest_fraction, "handovers", result->handovers_per_device_hour);
}

static struct sim_result played(const struct sim_setup *setup, const struct policy_class *class)
{
    struct policy_choice choice = policy_standard(class);
    struct sim_result result;
    struct error error = {0};
    if (engine_run(setup, &choice, &result, &error) < 0) {
        fail(&error);
    }
    return result;
}

static json_t *budget_sweep(struct sim_setup setup)
{
    json_t *points = json_array();
    for (size_t i = 0; i < COUNT(late_budgets); i++) {
        setup.late_budget = late_budgets[i];
        struct sim_result result = played(&setup, &policy_tidepool);
        json_array_append_new(points, point_of(&result));
    }
    return points;
}

static json_t *hold_sweep(struct sim_setup setup)
{
    json_t *points = json_array();
    for (size_t i = 0; i < COUNT(holds_s); i++) {
        setup.hold_ns = (uint64_t)(holds_s[i] * 1e9);
        struct sim_result result = played(&setup, &policy_tidepool);
        json_array_append_new(points, point_of(&result));
    }
    return points;
}

static json_t *points_json(struct search_points *points)
{
    json_t *list = json_array();
    for (size_t i = 0; i < points->count; i++) {
        json_array_append_new(list, point_of(&points->points[i].result));
    }
    search_points_free(points);
    return list;
}

static json_t *grid(const struct sim_setup *setup, const struct policy_class *class)
{
    struct search_points points = {0};
    struct search_axes axes;
    struct error error = {0};
    search_axes(class, setup, &axes);
    if (search_grid(setup, class, &axes, &points, &error) < 0) {
        fail(&error);
    }
    return points_json(&points);
}

static json_t *kill_points(const struct sim_setup *setup, double floor)
{
    struct search_points points = {0};
    struct search_axes axes;
    struct search_point best;
    struct error error = {0};
    bool within;
    search_axes(&policy_kill, setup, &axes);
    for (size_t i = 0; i < COUNT(kill_budgets); i++) {
        const struct search_bound bound = {floor + kill_budgets[i], INFINITY};
        if (search_best(setup, &policy_kill, &axes, &bound, &points, &best, &within, &error) < 0) {
            fail(&error);
        }
    }
    return points_json(&points);
}

int main(int argc, char **argv)
{
    static const char *const tidepool = "tidepool";
    static const struct policy_class *const grids[] = {&policy_static, &policy_keda,
                                                       &policy_knative, &policy_rayserve};
    struct sim_options options;
    struct error error = {0};
    struct sim sim = {0};
    if (argc < 5) {
        fprintf(stderr, "usage: dominance RUNG DEVICES BUDGET FILE...\n");
        return 2;
    }
    sim_options_init(&options);
    options.rungs = argv[1];
    options.devices = strtol(argv[2], NULL, 10);
    options.late_budget = strtod(argv[3], NULL);
    options.requests = (const char *const *)argv + 4;
    options.request_files = (size_t)argc - 4;
    options.policies = &tidepool;
    options.policy_count = 1;
    if (sim_open(&options, &sim, &error) < 0) {
        fail(&error);
    }
    struct sim_result all = played(&sim.setup, &policy_serve_all);
    struct sim_result ours = played(&sim.setup, &policy_tidepool);
    json_t *baselines = json_object();
    for (size_t i = 0; i < COUNT(grids); i++) {
        json_object_set_new(baselines, grids[i]->name, grid(&sim.setup, grids[i]));
    }
    json_object_set_new(baselines, "kill", kill_points(&sim.setup, all.late_fraction));
    json_t *root = json_pack("{s:f,s:f,s:o,s:o,s:o,s:o}", "floor", all.late_fraction, "idle_bound",
                             all.idle_bound, "standard", point_of(&ours), "budget_sweep",
                             budget_sweep(sim.setup), "hold_sweep", hold_sweep(sim.setup),
                             "baselines", baselines);
    json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(root);
    sim_close(&sim);
    return 0;
}
