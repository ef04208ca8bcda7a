#include "clients/sim/search.h"

#include <stdlib.h>
#include <string.h>

#include "clients/sim/array.h"
#include "clients/sim/baselines.h"

#define ROUNDS_MAX 8

/* ---- what is tried --------------------------------------------------------------------------- */

static const double targets[] = {0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7,
                                 0.8, 0.9,  1.0, 1.25, 1.5, 2.0, 3.0, 5.0};
static const double panics[] = {1.1, 1.5, 2, 3, 10};
static const double holds[] = {0, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600};
static const double windows[] = {0.5, 1, 3, 10, 30, 60, 300};
static const double headrooms[] = {0, 0.1, 0.25, 0.5, 1, 2, 4};

static const struct {
    const char *name; /* of a parameter */
    const double *values;
    size_t count;
} tried[] = {
#define TRIED(name, values)                                                                        \
    {                                                                                              \
        name, values, sizeof(values) / sizeof((values)[0])                                         \
    }
    TRIED("target", targets), TRIED("panic", panics),       TRIED("hold", holds),
    TRIED("window", windows), TRIED("headroom", headrooms),
#undef TRIED
};

/* Numbers of devices from 0: all of them, or some twenty that grow. */
static void devices_fill(struct search_axis *axis, uint32_t most)
{
    double step = 1;
    for (double value = 0; value <= most && axis->count < SEARCH_VALUES_MAX; value += step) {
        axis->values[axis->count++] = (double)(uint32_t)value;
        if (most >= SEARCH_VALUES_MAX && axis->count > 4) {
            step = value / 4;
        }
    }
}

static void axis_fill(struct search_axis *axis, const struct policy_parameter *parameter,
                      const struct sim_setup *setup)
{
    if (strcmp(parameter->name, "min") == 0 || strcmp(parameter->name, "reserve") == 0) {
        devices_fill(axis, setup->device_count - 1);
        return;
    }
    if (strcmp(parameter->name, "serving") == 0) {
        devices_fill(axis, setup->device_count);
        return;
    }
    for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
        if (strcmp(parameter->name, tried[i].name) == 0) {
            memcpy(axis->values, tried[i].values, tried[i].count * sizeof(*axis->values));
            axis->count = tried[i].count;
            return;
        }
    }
    axis->values[axis->count++] = parameter->standard;
}

void search_axes(const struct policy_class *class, const struct sim_setup *setup,
                 struct search_axes *ret_axes)
{
    memset(ret_axes, 0, sizeof(*ret_axes));
    ret_axes->count = class->parameter_count;
    for (size_t i = 0; i < class->parameter_count; i++) {
        axis_fill(&ret_axes->axis[i], &class->parameters[i], setup);
    }
}

/* ---- playing --------------------------------------------------------------------------------- */

static bool choice_equal(const struct policy_choice *a, const struct policy_choice *b)
{
    bool equal = a->class == b->class;
    for (size_t i = 0; equal && i < a->class->parameter_count; i++) {
        equal = a->parameters[i] == b->parameters[i];
    }
    return equal;
}

/* Plays the choice unless it was played before. *ret_index: where its point is. */
static int point_play(const struct sim_setup *setup, const struct policy_choice *choice,
                      struct search_points *points, size_t *ret_index, struct error *error)
{
    for (size_t i = 0; i < points->count; i++) {
        if (choice_equal(&points->points[i].choice, choice)) {
            *ret_index = i;
            return 0;
        }
    }
    struct sim_setup played = *setup;
    struct search_point point = {.choice = *choice};
    baseline_setup(choice->class, &played);
    int result = engine_run(&played, choice, &point.result, error);
    if (result < 0) {
        return result;
    }
    struct search_point *grown =
        array_room(points->points, points->count, &points->capacity, sizeof(*grown), SIZE_MAX);
    if (grown == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "search: no memory");
    }
    points->points = grown;
    grown[points->count] = point;
    *ret_index = points->count++;
    return 0;
}

static void choice_set(struct policy_choice *choice, const struct search_axes *axes,
                       const size_t at[POLICY_PARAMETERS_MAX])
{
    for (size_t i = 0; i < axes->count; i++) {
        choice->parameters[i] = axes->axis[i].values[at[i]];
    }
}

/* The next combination, the last parameter fastest. False: that was the last. */
static bool combination_next(const struct search_axes *axes, size_t at[POLICY_PARAMETERS_MAX])
{
    for (size_t i = axes->count; i-- > 0;) {
        if (++at[i] < axes->axis[i].count) {
            return true;
        }
        at[i] = 0;
    }
    return false;
}

int search_grid(const struct sim_setup *setup, const struct policy_class *class,
                const struct search_axes *axes, struct search_points *points, struct error *error)
{
    struct policy_choice choice = policy_standard(class);
    size_t at[POLICY_PARAMETERS_MAX] = {0}, index;
    int result;
    do {
        choice_set(&choice, axes, at);
        result = point_play(setup, &choice, points, &index, error);
    } while (result == 0 && combination_next(axes, at));
    return result;
}

/* ---- the best -------------------------------------------------------------------------------- */

static bool better(const struct sim_result *a, const struct sim_result *b, double late_most)
{
    bool a_within = a->late_fraction <= late_most, b_within = b->late_fraction <= late_most;
    if (a_within != b_within) {
        return a_within;
    }
    return a_within ? a->harvest_fraction > b->harvest_fraction
                    : a->late_fraction < b->late_fraction;
}

/* Tries all values of one parameter; moves to the best. */
static int axis_search(const struct sim_setup *setup, const struct search_axes *axes, size_t axis,
                       double late_most, struct search_points *points, size_t *best,
                       struct error *error)
{
    struct policy_choice choice = points->points[*best].choice;
    int result = 0;
    for (size_t i = 0; i < axes->axis[axis].count && result == 0; i++) {
        size_t index = *best;
        choice.parameters[axis] = axes->axis[axis].values[i];
        result = point_play(setup, &choice, points, &index, error);
        if (result == 0 &&
            better(&points->points[index].result, &points->points[*best].result, late_most)) {
            *best = index;
        }
    }
    return result;
}

static int start_search(const struct sim_setup *setup, const struct policy_choice *start,
                        const struct search_axes *axes, double late_most,
                        struct search_points *points, size_t *ret_best, struct error *error)
{
    size_t best;
    int result = point_play(setup, start, points, &best, error);
    bool moved = true;
    for (int round = 0; round < ROUNDS_MAX && moved && result == 0; round++) {
        size_t before = best;
        for (size_t axis = 0; axis < axes->count && result == 0; axis++) {
            result = axis_search(setup, axes, axis, late_most, points, &best, error);
        }
        moved = best != before;
    }
    *ret_best = best;
    return result;
}

int search_best(const struct sim_setup *setup, const struct policy_class *class,
                const struct search_axes *axes, double late_most, struct search_points *points,
                struct search_point *ret_best, bool *ret_within, struct error *error)
{
    bool found = false;
    /* Low, middle and high corners: hold against reserve has more than one hill. */
    for (size_t part = 1; part < 4; part++) {
        struct policy_choice start = policy_standard(class);
        size_t best = 0;
        for (size_t i = 0; i < axes->count; i++) {
            start.parameters[i] = axes->axis[i].values[axes->axis[i].count * part / 5];
        }
        int result = start_search(setup, &start, axes, late_most, points, &best, error);
        if (result < 0) {
            return result;
        }
        if (!found || better(&points->points[best].result, &ret_best->result, late_most)) {
            *ret_best = points->points[best];
            found = true;
        }
    }
    *ret_within = ret_best->result.late_fraction <= late_most;
    return 0;
}

void search_points_free(struct search_points *points)
{
    free(points->points);
    *points = (struct search_points){0};
}
