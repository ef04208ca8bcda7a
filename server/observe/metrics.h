/* metrics.h: writes one page of Prometheus' text format (the classic one, version 0.0.4).
 * Order:   a family's HELP and TYPE, then all its series, then the next family: asserted.
 * Labels:  names are ours; values may be anything: backslash, quote and newline are escaped, bytes
 *          that are no UTF-8 become U+FFFD, so that no value can spoil the page.
 * Numbers: whole ones without exponent or point, as some readers want; others shortest exact.
 * Memory:  the page grows as needed; when there is none left, metrics_finish returns NULL.
 * Thread:  one page, one thread. Reads no counters itself: the caller gives values. */
#ifndef TIDEPOOL_OBSERVE_METRICS_H
#define TIDEPOOL_OBSERVE_METRICS_H

#include <stddef.h>
#include <stdint.h>

struct metrics_page;

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_LABELS_MAX 4

struct metrics_label {
    const char *name, *value;
};

enum metrics_type { METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM };

struct metrics_page *metrics_create(void);       /* NULL: no memory */
void metrics_destroy(struct metrics_page *page); /* NULL is fine */

/* Begins a family. `help` has no newline. */
void metrics_family(struct metrics_page *page, const char *name, enum metrics_type type,
                    const char *help);
/* One series of the family begun last. */
void metrics_series(struct metrics_page *page, const struct metrics_label *labels, size_t count,
                    uint64_t value);
void metrics_series_double(struct metrics_page *page, const struct metrics_label *labels,
                           size_t count, double value);
/* All series of one histogram. `bounds` rise; counts[i] were at most bounds[i] and more than
 * bounds[i - 1]; counts[bound_count] were more than all. */
void metrics_histogram(struct metrics_page *page, const struct metrics_label *labels, size_t count,
                       const double *bounds, const uint64_t *counts, size_t bound_count,
                       double sum);

/* The page, to be freed by the caller, and its length; the page object is destroyed. */
char *metrics_finish(struct metrics_page *page, size_t *ret_length);

#endif
