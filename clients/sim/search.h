/* search.h: the same setup played under many parameters of one policy: all of a grid, or the best
 * under a bound of late work. Emulated controllers get the targets and thresholds that suit them on
 * the very trace they are judged on, and `hindsight` the best member of its family.
 * Owner:   results belong to the caller.
 * Errors:  0 or a negative enum error_code.
 * Thread:  one; the same setup gives the same results. */
#ifndef TIDEPOOL_CLIENTS_SIM_SEARCH_H
#define TIDEPOOL_CLIENTS_SIM_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "clients/sim/policy.h"

#define SEARCH_VALUES_MAX 24

/* The values that one parameter is tried with. */
struct search_axis {
    double values[SEARCH_VALUES_MAX];
    size_t count;
};

struct search_axes {
    struct search_axis axis[POLICY_PARAMETERS_MAX]; /* as the class's parameters */
    size_t count;
};

struct search_point {
    struct policy_choice choice;
    struct sim_result result;
};

struct search_points {
    struct search_point *points; /* in the order of trying */
    size_t count, capacity;
};

/* The documented ranges: what is tried for this class on so many devices. */
void search_axes(const struct policy_class *class, const struct sim_setup *setup,
                 struct search_axes *ret_axes);

/* Plays every combination that is not among the points yet and appends it: they must all be of one
 * setup. */
int search_grid(const struct sim_setup *setup, const struct policy_class *class,
                const struct search_axes *axes, struct search_points *points, struct error *error);

struct search_bound {
    double late_most;      /* share of work that may be late */
    double handovers_most; /* per device and hour; INFINITY: not bounded */
};

/* The most harvest within the bound; or what is least over it where nothing keeps to it. Looks at
 * combinations by chance, then climbs from the best of them along one parameter after another.
 * What is played is appended to `points`. False in *ret_within: none kept to the bound. */
int search_best(const struct sim_setup *setup, const struct policy_class *class,
                const struct search_axes *axes, const struct search_bound *bound,
                struct search_points *points, struct search_point *ret_best, bool *ret_within,
                struct error *error);

void search_points_free(struct search_points *points); /* a zeroed one is fine */

#endif
