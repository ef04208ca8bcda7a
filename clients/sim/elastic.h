/* elastic.h: how long kinds of elastic job take on 1 to 8 devices, from measured step times and
 * measured convergence: steps to the end at a total batch × time of a step, at the best batch.
 * How:     a total batch is devices × batch per device × micro-steps whose gradients are summed
 *          before one exchange; steps between two measured total batches are interpolated (both in
 *          logarithms); of several placements the fastest counts.
 * Errors:  0 or a negative enum error_code.
 * Thread:  plain values. */
#ifndef TIDEPOOL_CLIENTS_SIM_ELASTIC_H
#define TIDEPOOL_CLIENTS_SIM_ELASTIC_H

#include <stddef.h>
#include <stdint.h>

#include "clients/sim/rows.h"
#include "clients/sim/trace.h"

#define ELASTIC_APPLICATIONS_MAX 256
#define ELASTIC_MEASUREMENTS_MAX 4096u

struct step_time_row {
    const char *application, *placement;
    uint64_t nodes, devices, batch;
    double step_s, sync_s;
};

struct convergence_row {
    const char *application;
    uint64_t batch, epoch;
    double progress, iteration, metric, square, variance;
};

struct step_time {
    uint32_t application, devices, batch; /* batch: of one device */
    double step_s, sync_s;
};

struct convergence {
    uint32_t application, batch; /* batch: of all devices */
    double steps;                /* to the end of the last epoch recorded */
};

struct elastic {
    struct trace_names applications;
    struct step_time *step_times;
    size_t step_time_count, step_time_capacity;
    struct convergence *convergences;
    size_t convergence_count, convergence_capacity;
};

extern const struct row_table step_time_table, convergence_table;

int elastic_add_step_time(struct elastic *elastic, const struct rows *rows,
                          const struct step_time_row *row, struct error *error);
int elastic_add_convergence(struct elastic *elastic, const struct rows *rows,
                            const struct convergence_row *row, struct error *error);
/* Fills [1] to [TRACE_SPEEDS_MAX]; the first must be measured, a gap above takes the value below.
 * An error names what is not known of the application. */
int elastic_durations(const struct elastic *elastic, const char *application,
                      uint64_t durations_ns[TRACE_SPEEDS_MAX + 1], struct error *error);
void elastic_fini(struct elastic *elastic); /* a zeroed one is fine */

#endif
