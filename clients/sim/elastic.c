#include "clients/sim/elastic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/sim/array.h"
#include "clients/sim/names.h"

#define MICRO_STEPS_MAX 32

static const struct column step_time_columns[] = {
    {"application", COLUMN_NAME, offsetof(struct step_time_row, application)},
    {"num_nodes", COLUMN_COUNT, offsetof(struct step_time_row, nodes), 1, 1e6},
    {"num_gpus", COLUMN_COUNT, offsetof(struct step_time_row, devices), 1, 1e6},
    {"placement", COLUMN_NAME, offsetof(struct step_time_row, placement)},
    {"batch_per_gpu", COLUMN_COUNT, offsetof(struct step_time_row, batch), 1, 1e6},
    {"step_time_s", COLUMN_NUMBER, offsetof(struct step_time_row, step_s), 1e-6, 1e6},
    {"sync_time_s", COLUMN_NUMBER, offsetof(struct step_time_row, sync_s), 0, 1e6},
};
const struct row_table step_time_table = {"step times", step_time_columns,
                                          sizeof(step_time_columns) / sizeof(step_time_columns[0])};

static const struct column convergence_columns[] = {
    {"application", COLUMN_NAME, offsetof(struct convergence_row, application)},
    {"batch_size", COLUMN_COUNT, offsetof(struct convergence_row, batch), 1, 1e9},
    {"epoch", COLUMN_COUNT, offsetof(struct convergence_row, epoch), 0, 1e9},
    {"progress", COLUMN_NUMBER, offsetof(struct convergence_row, progress), 0, 1e12},
    {"iteration", COLUMN_NUMBER, offsetof(struct convergence_row, iteration), 1, 1e12},
    {"metric", COLUMN_NUMBER, offsetof(struct convergence_row, metric), -1e300, 1e300, true},
    {"grad_sqr", COLUMN_NUMBER, offsetof(struct convergence_row, square), -1e300, 1e300, true},
    {"grad_var", COLUMN_NUMBER, offsetof(struct convergence_row, variance), -1e300, 1e300, true},
};
const struct row_table convergence_table = {"convergence", convergence_columns,
                                            sizeof(convergence_columns) /
                                                sizeof(convergence_columns[0])};

/* ---- reading --------------------------------------------------------------------------------- */

static int application_of(struct elastic *elastic, const struct rows *rows, const char *name,
                          uint32_t *ret_application, struct error *error)
{
    int result =
        names_intern(&elastic->applications, name, ELASTIC_APPLICATIONS_MAX, ret_application);
    return result == 0 ? 0
                       : rows_refuse(rows, error,
                                     "column 1 (application): more than %d, or no "
                                     "memory",
                                     ELASTIC_APPLICATIONS_MAX);
}

int elastic_add_step_time(struct elastic *elastic, const struct rows *rows,
                          const struct step_time_row *row, struct error *error)
{
    struct step_time time = {
        .devices = (uint32_t)row->devices,
        .batch = (uint32_t)row->batch,
        .step_s = row->step_s,
        .sync_s = row->sync_s,
    };
    if (row->sync_s > row->step_s) {
        return rows_refuse(rows, error, "column 7 (sync_time_s): longer than the step");
    }
    int result = application_of(elastic, rows, row->application, &time.application, error);
    if (result < 0) {
        return result;
    }
    struct step_time *grown =
        array_room(elastic->step_times, elastic->step_time_count, &elastic->step_time_capacity,
                   sizeof(*grown), ELASTIC_MEASUREMENTS_MAX);
    if (grown == NULL) {
        return rows_refuse(rows, error, "more than %u step times, or no memory",
                           ELASTIC_MEASUREMENTS_MAX);
    }
    elastic->step_times = grown;
    grown[elastic->step_time_count++] = time;
    return 0;
}

int elastic_add_convergence(struct elastic *elastic, const struct rows *rows,
                            const struct convergence_row *row, struct error *error)
{
    struct convergence convergence = {.batch = (uint32_t)row->batch, .steps = row->iteration};
    int result = application_of(elastic, rows, row->application, &convergence.application, error);
    if (result < 0) {
        return result;
    }
    for (size_t i = 0; i < elastic->convergence_count; i++) {
        struct convergence *known = &elastic->convergences[i];
        if (known->application == convergence.application && known->batch == convergence.batch) {
            known->steps = known->steps > row->iteration ? known->steps : row->iteration;
            return 0;
        }
    }
    struct convergence *grown =
        array_room(elastic->convergences, elastic->convergence_count,
                   &elastic->convergence_capacity, sizeof(*grown), ELASTIC_MEASUREMENTS_MAX);
    if (grown == NULL) {
        return rows_refuse(rows, error, "more than %u batch sizes, or no memory",
                           ELASTIC_MEASUREMENTS_MAX);
    }
    elastic->convergences = grown;
    grown[elastic->convergence_count++] = convergence;
    return 0;
}

/* ---- durations ------------------------------------------------------------------------------- */

/* Steps of the whole run at this total batch; 0: outside of what was measured. */
static double steps_at(const struct elastic *elastic, uint32_t application, double batch)
{
    const struct convergence *below = NULL, *above = NULL;
    for (size_t i = 0; i < elastic->convergence_count; i++) {
        const struct convergence *at = &elastic->convergences[i];
        if (at->application != application) {
            continue;
        }
        if (at->batch <= batch && (below == NULL || at->batch > below->batch)) {
            below = at;
        }
        if (at->batch >= batch && (above == NULL || at->batch < above->batch)) {
            above = at;
        }
    }
    if (below == NULL || above == NULL) {
        return 0;
    }
    if (below == above) {
        return below->steps;
    }
    double share = log(batch / below->batch) / log((double)above->batch / below->batch);
    return below->steps * pow(above->steps / below->steps, share);
}

/* The whole run with this placement and batch of a device, at the best number of micro-steps. */
static double run_s(const struct elastic *elastic, const struct step_time *time)
{
    double best = INFINITY;
    for (uint32_t micro = 1; micro <= MICRO_STEPS_MAX; micro++) {
        double batch = (double)time->devices * time->batch * micro;
        double steps = steps_at(elastic, time->application, batch);
        double step_s = time->step_s + (micro - 1) * (time->step_s - time->sync_s);
        if (steps > 0 && steps * step_s < best) {
            best = steps * step_s;
        }
    }
    return best;
}

int elastic_durations(const struct elastic *elastic, const char *application,
                      uint64_t durations_ns[TRACE_SPEEDS_MAX + 1], struct error *error)
{
    double best[TRACE_SPEEDS_MAX + 1];
    uint32_t index;
    if (!names_find(&elastic->applications, application, &index)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "elastic jobs of '%s': files of its step times and its convergence are "
                         "needed too",
                         application);
    }
    for (size_t n = 0; n <= TRACE_SPEEDS_MAX; n++) {
        best[n] = INFINITY;
    }
    for (size_t i = 0; i < elastic->step_time_count; i++) {
        const struct step_time *time = &elastic->step_times[i];
        if (time->application == index && time->devices <= TRACE_SPEEDS_MAX) {
            best[time->devices] = fmin(best[time->devices], run_s(elastic, time));
        }
    }
    if (!(best[1] < ROWS_SECONDS_MAX)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "elastic jobs of '%s': no step time on 1 device at a batch size whose "
                         "convergence is known",
                         application);
    }
    for (size_t n = 1; n <= TRACE_SPEEDS_MAX; n++) {
        best[n] = fmin(best[n], best[n - 1]);
        durations_ns[n] = (uint64_t)(best[n] * 1e9);
    }
    durations_ns[0] = 0;
    return 0;
}

void elastic_fini(struct elastic *elastic)
{
    names_fini(&elastic->applications);
    free(elastic->step_times);
    free(elastic->convergences);
    *elastic = (struct elastic){0};
}
