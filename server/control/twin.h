/* twin.h: how many requests were late because devices changed hands.
 * Method:  the recorded arrivals are played again with all devices serving all the time
 *          (core_twin_run); a request late in the run and not there is late by hand-over.
 * Cut:     played piece by piece, cut where nothing waited or ran; a piece that grows over
 *          TWIN_PIECE_MAX is cut anyway, which can only add to the count (the twin then starts
 *          with empty queues).
 * Thread:  one. */
#ifndef TIDEPOOL_CONTROL_TWIN_H
#define TIDEPOOL_CONTROL_TWIN_H

#include <stddef.h>
#include <stdint.h>

#include "server/observe/recorder.h"
#include "server/serve/measure.h"

#define TWIN_PIECE_MAX 32768

struct twin;

struct twin_subject {
    uint32_t devices; /* that could serve the endpoint */
    uint64_t slo_ns;
    uint32_t batch_max;
    const struct service_table *service;
};

struct twin_totals {
    uint64_t requests, late, late_by_handover;
};

struct twin *twin_create(void);       /* NULL: no memory */
void twin_destroy(struct twin *twin); /* NULL is fine */
/* Answered requests in any order. Returns -1 without memory: they are then not judged. */
int twin_add(struct twin *twin, const struct recorded_request *requests, size_t count);
/* Judges what lies so long ago that nothing earlier can still be answered: all before a silence of
 * `settle_ns`, or before the last moment when nothing waited or ran. */
void twin_advance(struct twin *twin, const struct twin_subject *subject, uint64_t now_ns,
                  uint64_t settle_ns);
struct twin_totals twin_totals(const struct twin *twin);

#endif
