#include "clients/sim/search.h"

#include <stdlib.h>
#include <string.h>

#include "clients/sim/array.h"
#include "clients/sim/baselines.h"
#include "server/base/random.h"

#define ROUNDS_MAX 20
/* Combinations by chance, and how many of the best of them to climb from: some 1,500 runs, or 400
 * where a run takes long. */
#define SAMPLES_MAX 400
#define STARTS_MAX 24
#define LONG_REQUESTS 50000
#define LONG_SHARE 4

/* ---- what is tried --------------------------------------------------------------------------- */

static const double targets[] = {0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7,
                                 0.8, 0.9,  1.0, 1.25, 1.5, 2.0, 3.0, 5.0};
static const double panics[] = {1.1, 1.5, 2, 3, 10};
static const double holds[] = {0, 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600};
static const double windows[] = {0.5, 1, 3, 10, 30, 60, 300};
static const double patiences[] = {0.3, 0.5, 1, 2, 5, 20, 100};
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
    TRIED("window", windows), TRIED("patience", patiences), TRIED("headroom", headrooms),
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

static bool within(const struct sim_result *result, const struct search_bound *bound)
{
    return result->late_fraction <= bound->late_most &&
           result->handovers_per_device_hour <= bound->handovers_most;
}

/* How far over the bound, each part by its own measure. */
static double excess(const struct sim_result *result, const struct search_bound *bound)
{
    double late = result->late_fraction - bound->late_most;
    double handovers =
        (result->handovers_per_device_hour - bound->handovers_most) / (1 + bound->handovers_most);
    return (late > 0 ? late : 0) + (handovers > 0 ? handovers : 0);
}

static bool better(const struct sim_result *a, const struct sim_result *b,
                   const struct search_bound *bound)
{
    bool a_within = within(a, bound), b_within = within(b, bound);
    if (a_within != b_within) {
        return a_within;
    }
    return a_within ? a->harvest_fraction > b->harvest_fraction
                    : excess(a, bound) < excess(b, bound);
}

/* Tries all values of one parameter; moves to the best. */
static int axis_search(const struct sim_setup *setup, const struct search_axes *axes, size_t axis,
                       const struct search_bound *bound, struct search_points *points, size_t *best,
                       struct error *error)
{
    struct policy_choice choice = points->points[*best].choice;
    int result = 0;
    for (size_t i = 0; i < axes->axis[axis].count && result == 0; i++) {
        size_t index = *best;
        choice.parameters[axis] = axes->axis[axis].values[i];
        result = point_play(setup, &choice, points, &index, error);
        if (result == 0 &&
            better(&points->points[index].result, &points->points[*best].result, bound)) {
            *best = index;
        }
    }
    return result;
}

static size_t value_find(const struct search_axis *axis, double value)
{
    size_t i = 0;
    while (i + 1 < axis->count && axis->values[i] != value) {
        i++;
    }
    return i;
}

/* One step up or down of two parameters at once: what one gives for the other to take. */
static int pair_search(const struct sim_setup *setup, const struct search_axes *axes, size_t first,
                       size_t second, const struct search_bound *bound,
                       struct search_points *points, size_t *best, struct error *error)
{
    const struct policy_choice from = points->points[*best].choice;
    const struct search_axis *a = &axes->axis[first], *b = &axes->axis[second];
    size_t at_a = value_find(a, from.parameters[first]);
    size_t at_b = value_find(b, from.parameters[second]);
    for (unsigned i = 0; i < 4; i++) {
        struct policy_choice choice = from;
        size_t to_a = at_a + (i & 1 ? 1 : SIZE_MAX), to_b = at_b + (i & 2 ? 1 : SIZE_MAX), index;
        if (to_a >= a->count || to_b >= b->count) {
            continue; /* below the first wraps around to above the last */
        }
        choice.parameters[first] = a->values[to_a];
        choice.parameters[second] = b->values[to_b];
        int result = point_play(setup, &choice, points, &index, error);
        if (result < 0) {
            return result;
        }
        if (better(&points->points[index].result, &points->points[*best].result, bound)) {
            *best = index;
        }
    }
    return 0;
}

/* From one point along one parameter after another, then along two, until nothing gets better. */
static int climb(const struct sim_setup *setup, const struct search_axes *axes,
                 const struct search_bound *bound, struct search_points *points, size_t *best,
                 struct error *error)
{
    int result = 0;
    bool moved = true;
    for (int round = 0; round < ROUNDS_MAX && moved && result == 0; round++) {
        size_t before = *best;
        for (size_t axis = 0; axis < axes->count && result == 0; axis++) {
            result = axis_search(setup, axes, axis, bound, points, best, error);
        }
        for (size_t i = 0; *best == before && i < axes->count && result == 0; i++) {
            for (size_t k = i + 1; k < axes->count && result == 0; k++) {
                result = pair_search(setup, axes, i, k, bound, points, best, error);
            }
        }
        moved = *best != before;
    }
    return result;
}

/* A wide look: combinations by chance, or all of them where they are few. */
static int sample(const struct sim_setup *setup, const struct policy_class *class,
                  const struct search_axes *axes, struct search_points *points, struct error *error)
{
    int samples = setup->request_count > LONG_REQUESTS ? SAMPLES_MAX / LONG_SHARE : SAMPLES_MAX;
    double combinations = 1;
    for (size_t i = 0; i < axes->count; i++) {
        combinations *= (double)axes->axis[i].count;
    }
    if (combinations <= samples) {
        return search_grid(setup, class, axes, points, error);
    }
    struct policy_choice choice = policy_standard(class);
    uint64_t random = 1;
    int result = 0;
    for (int i = 0; i < samples && result == 0; i++) {
        size_t at[POLICY_PARAMETERS_MAX] = {0}, index;
        for (size_t k = 0; k < axes->count; k++) {
            at[k] = random_next(&random) % axes->axis[k].count;
        }
        choice_set(&choice, axes, at);
        result = point_play(setup, &choice, points, &index, error);
    }
    return result;
}

/* The best of the points of this class but for those that led to `before` already. */
static size_t start_find(const struct search_points *points, const struct policy_class *class,
                         const struct search_bound *bound, const size_t *before, size_t count)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < points->count; i++) {
        bool used = points->points[i].choice.class != class;
        for (size_t k = 0; k < count; k++) {
            used = used || before[k] == i;
        }
        if (!used && (best == SIZE_MAX ||
                      better(&points->points[i].result, &points->points[best].result, bound))) {
            best = i;
        }
    }
    return best;
}

int search_best(const struct sim_setup *setup, const struct policy_class *class,
                const struct search_axes *axes, const struct search_bound *bound,
                struct search_points *points, struct search_point *ret_best, bool *ret_within,
                struct error *error)
{
    size_t starts[STARTS_MAX], count = 0, best = SIZE_MAX;
    size_t most = setup->request_count > LONG_REQUESTS ? STARTS_MAX / LONG_SHARE : STARTS_MAX;
    int result = sample(setup, class, axes, points, error);
    size_t sampled = points->count;
    for (; count < most && count < sampled && result == 0; count++) {
        starts[count] = start_find(points, class, bound, starts, count);
        size_t at = starts[count];
        if (at == SIZE_MAX) {
            break;
        }
        result = climb(setup, axes, bound, points, &at, error);
        if (best == SIZE_MAX ||
            better(&points->points[at].result, &points->points[best].result, bound)) {
            best = at;
        }
    }
    if (result < 0) {
        return result;
    }
    *ret_best = points->points[best];
    *ret_within = within(&ret_best->result, bound);
    return 0;
}

void search_points_free(struct search_points *points)
{
    free(points->points);
    *points = (struct search_points){0};
}
