/* report.h: the figures of a load as JSON, as text for people, and each second as a CSV row.
 * Thread: plain values. */
#ifndef TIDEPOOL_LOAD_REPORT_H
#define TIDEPOOL_LOAD_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "clients/common/load.h"

struct report {
    const char *endpoint, *schedule;
    double slo_ms;
    const struct load_result *result;
};

json_t *report_json(const struct report *report); /* NULL: no memory */
void report_text(const struct report *report, FILE *out);
void report_csv_head(FILE *out);
void report_csv_row(const struct load_slot *slot, FILE *out);
/* The whole distribution of latencies: one row per bucket that is not empty. */
void report_csv_histogram(const struct histogram *histogram, FILE *out);

#endif
