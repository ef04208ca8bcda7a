/* schedule.h: when an open-loop load sends: arrivals as nanoseconds from the start, ascending.
 * Kinds:   segments of a rate, each with evenly spaced or Poisson arrivals; or recorded arrivals
 *          ("replay"), from a CSV with the column `arrival_s`, plain or gzip.
 * Repeat:  the same segments and seed give the same arrivals on every run.
 * Errors:  0 or a negative enum error_code; texts name the file and line, or the segment.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_CLIENTS_SCHEDULE_H
#define TIDEPOOL_CLIENTS_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

#define SCHEDULE_SEGMENTS_MAX 10000
#define SCHEDULE_ARRIVALS_MAX (64u << 20)
#define SCHEDULE_RATE_MAX 10e6

enum schedule_kind { SCHEDULE_EVEN, SCHEDULE_POISSON };

struct schedule;

struct schedule_segment {
    double rate;    /* per second; 0: silence */
    double seconds; /* may be infinite in the last segment */
};

int schedule_create(enum schedule_kind kind, const struct schedule_segment *segments, size_t count,
                    uint64_t seed, struct schedule **ret_schedule, struct error *error);
/* "RATE:SECONDS,RATE:SECONDS,…", for example "0:5,300:10". */
int schedule_create_steps(enum schedule_kind kind, const char *text, uint64_t seed,
                          struct schedule **ret_schedule, struct error *error);
/* Recorded arrivals of `path`, `speed` times as fast; of the rows whose column `endpoint` is
 * `endpoint`, or of all when that is NULL. The first arrival counts as time 0 of the trace only if
 * it is 0: silence at the start is kept. */
int schedule_create_replay(const char *path, double speed, const char *endpoint,
                           struct schedule **ret_schedule, struct error *error);
void schedule_destroy(struct schedule *schedule); /* NULL is fine */

/* False at the end; nothing is written then. */
bool schedule_next(struct schedule *schedule, uint64_t *ret_offset_ns);

#endif
