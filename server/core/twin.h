/* twin.h: the same arrivals on all devices: which requests would have been late anyway?
 * Units, threads, memory: as in core.h. */
#ifndef TIDEPOOL_CORE_TWIN_H
#define TIDEPOOL_CORE_TWIN_H

#include "server/core/core.h"

struct core_twin_request {
    uint64_t arrival_ns; /* growing */
    uint64_t service_ns; /* alone on a device; not read when there is a service table */
    uint64_t latency_ns; /* what it took in the run */
};

struct core_twin {
    const struct core_twin_request *requests;
    size_t count;
    uint32_t devices;           /* all of them serve */
    uint64_t slo_ns;            /* late: latency over it */
    uint32_t batch_max;         /* largest batch; 0 or 1: one request at a time */
    const uint64_t *service_ns; /* [CORE_BATCH_SIZES], or NULL: each request's own */
};

struct core_twin_result {
    uint64_t late_in_run;
    uint64_t late_in_twin;
    uint64_t late_by_handover; /* late in the run and not in the twin */
};

/* Replays the same arrivals, first come first served. Pure. -1: no memory, no device, no SLO, or
 * arrivals out of order; nothing written then. */
int core_twin_run(const struct core_twin *twin, struct core_twin_result *ret_result);

#endif
