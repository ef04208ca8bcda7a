#include "clients/sim/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/sim/baselines.h"
#include "clients/sim/search.h"
#include "clients/sim/series.h"

/* The page as it lies beside this file; the figures go where its mark stands. */
__asm__(".section .rodata\n"
        "report_page_start:\n"
        ".incbin \"clients/sim/report.html\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char report_page_start[];
#define MARK "/*FIGURES*/"

static const double late_budgets[] = {0, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2};
static const double holds_s[] = {0, 0.1, 1, 5};

/* ---- the course of a run --------------------------------------------------------------------- */

/* Three digits are more than a plot shows. */
static json_t *rounded(double value)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%.3g", value);
    return json_real(strtod(text, NULL));
}

static json_t *values_json(const double *values, double divisor)
{
    json_t *list = json_array();
    for (size_t i = 0; i < SERIES_SPANS; i++) {
        json_array_append_new(list, rounded(values[i] / divisor));
    }
    return list;
}

/* One text for a device: for every span the letter of the account, 'a' for the first. */
static json_t *devices_json(const struct series *series)
{
    json_t *list = json_array();
    for (uint32_t device = 0; device < series->device_count; device++) {
        char text[SERIES_SPANS + 1] = "";
        for (uint32_t span = 0; span < SERIES_SPANS; span++) {
            text[span] = (char)('a' + series_device(series, device, span));
        }
        json_array_append_new(list, json_string(text));
    }
    return list;
}

static json_t *course_json(const struct series *series)
{
    double span_s = (double)series->span_ns / 1e9;
    double handovers[SERIES_SPANS];
    json_t *course = json_object(), *accounts = json_object();
    for (int i = 0; i < CORE_ACCOUNT_COUNT; i++) {
        json_object_set_new(accounts, core_account_name((enum core_account)i),
                            values_json(series->account_s[i], span_s));
    }
    for (size_t i = 0; i < SERIES_SPANS; i++) {
        handovers[i] = series->handovers[i];
    }
    json_object_set_new(course, "devices", devices_json(series));
    json_object_set_new(course, "accounts", accounts);
    json_object_set_new(course, "arriving", values_json(series->arriving_s, span_s));
    json_object_set_new(course, "late", values_json(series->late_s, span_s));
    json_object_set_new(course, "waiting", values_json(series->waiting_s, span_s));
    json_object_set_new(course, "handovers", values_json(handovers, 1));
    return course;
}

static int course_play(const struct sim *sim, const struct policy_choice *choice,
                       json_t **ret_course, struct error *error)
{
    struct sim_setup setup = sim->setup;
    struct sim_result result;
    struct series *series = calloc(1, sizeof(*series));
    int code = series == NULL
                   ? error_set(error, ERROR_RESOURCE_EXHAUSTED, "report: no memory for a series")
                   : series_init(series, &setup, error);
    if (code == 0) {
        baseline_setup(choice->class, &setup);
        setup.observer = series_observer(series);
        code = engine_run(&setup, choice, &result, error);
    }
    if (code == 0) {
        *ret_course = course_json(series);
    }
    if (series != NULL) {
        series_fini(series);
    }
    free(series);
    return code;
}

static int courses_play(const struct sim *sim, json_t *root, struct error *error)
{
    json_t *policies = json_object_get(root, "policies"), *course = NULL;
    for (size_t i = 0; i < sim->outcome_count; i++) {
        int result = course_play(sim, &sim->outcomes[i].choice, &course, error);
        if (result < 0) {
            return result;
        }
        json_object_set_new(json_array_get(policies, i), "course", course);
    }
    return 0;
}

/* ---- sweeps ---------------------------------------------------------------------------------- */

static json_t *point_json(double value, const struct sim_result *result)
{
    return json_pack("{s:f,s:f,s:f,s:f}", "value", value, "late", result->late_fraction, "harvest",
                     result->harvest_fraction, "handovers", result->handovers_per_device_hour);
}

/* Plays tidepool once for every value of the one or the other setting. */
static int sweep_play(const struct sim *sim, const struct policy_choice *choice, bool hold,
                      json_t *points, struct error *error)
{
    size_t count = hold ? sizeof(holds_s) / sizeof(holds_s[0])
                        : sizeof(late_budgets) / sizeof(late_budgets[0]);
    for (size_t i = 0; i < count; i++) {
        struct sim_setup setup = sim->setup;
        struct sim_result result;
        if (hold) {
            setup.hold_ns = (uint64_t)(holds_s[i] * 1e9);
        } else {
            setup.late_budget = late_budgets[i];
        }
        int code = engine_run(&setup, choice, &result, error);
        if (code < 0) {
            return code;
        }
        json_array_append_new(points, point_json(hold ? holds_s[i] : late_budgets[i], &result));
    }
    return 0;
}

/* The points of another policy's parameters; a coarse grid is enough for a picture. */
static int grid_play(const struct sim *sim, const struct policy_class *class, json_t *points,
                     struct error *error)
{
    struct search_points played = {0};
    struct search_axes axes;
    search_axes(class, &sim->setup, &axes);
    for (size_t i = 0; i < axes.count; i++) {
        struct search_axis *axis = &axes.axis[i];
        size_t step = class->parameter_count > 1 ? 2 : 1, count = 0;
        for (size_t k = 0; k < axis->count; k += step) {
            axis->values[count++] = axis->values[k];
        }
        axis->count = count;
    }
    int result = search_grid(&sim->setup, class, &axes, &played, error);
    for (size_t i = 0; i < played.count && result == 0; i++) {
        json_array_append_new(points, point_json(0, &played.points[i].result));
    }
    search_points_free(&played);
    return result;
}

static bool is_emulated(const struct policy_class *class)
{
    return class == &policy_static || class == &policy_keda || class == &policy_knative ||
           class == &policy_rayserve;
}

static int sweeps_play(const struct sim *sim, json_t *root, struct error *error)
{
    json_t *budget = json_array(), *hold = json_array(), *grids = json_object();
    int result = 0;
    json_object_set_new(root, "budget_sweep", budget);
    json_object_set_new(root, "hold_sweep", hold);
    json_object_set_new(root, "grids", grids);
    for (size_t i = 0; i < sim->outcome_count && result == 0; i++) {
        const struct policy_choice *choice = &sim->outcomes[i].choice;
        if (sim->setup.request_count > REPORT_SWEEP_REQUESTS_MAX) {
            break;
        }
        if (choice->class == &policy_tidepool && json_array_size(budget) == 0) {
            result = sweep_play(sim, choice, false, budget, error);
            result = result < 0 ? result : sweep_play(sim, choice, true, hold, error);
        } else if (is_emulated(choice->class) &&
                   json_object_get(grids, choice->class->name) == NULL) {
            json_t *points = json_array();
            json_object_set_new(grids, choice->class->name, points);
            result = grid_play(sim, choice->class, points, error);
        }
    }
    return result;
}

/* ---- the page -------------------------------------------------------------------------------- */

static int page_write(const char *path, const json_t *root, struct error *error)
{
    const char *mark = strstr(report_page_start, MARK);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return error_set_errno(error, errno, "open '%s'", path);
    }
    /* JSON_ESCAPE_SLASH: no name can end the script that the figures stand in. */
    bool written =
        fwrite(report_page_start, 1, (size_t)(mark - report_page_start), file) ==
            (size_t)(mark - report_page_start) &&
        json_dumpf(root, file, JSON_COMPACT | JSON_ESCAPE_SLASH | JSON_REAL_PRECISION(12)) == 0 &&
        fputs(mark + strlen(MARK), file) >= 0;
    if (fclose(file) != 0 || !written) {
        return error_set_errno(error, errno, "write '%s'", path);
    }
    return 0;
}

int sim_report_write(const struct sim *sim, const char *path, struct error *error)
{
    json_t *root = sim_json(sim);
    int result = root != NULL ? courses_play(sim, root, error)
                              : error_set(error, ERROR_RESOURCE_EXHAUSTED, "report: no memory");
    if (result == 0) {
        json_object_set_new(
            root, "span_s",
            json_real((double)((sim->setup.end_ns + SERIES_SPANS - 1) / SERIES_SPANS) / 1e9));
        result = sweeps_play(sim, root, error);
    }
    if (result == 0) {
        result = page_write(path, root, error);
    }
    json_decref(root);
    return result;
}
