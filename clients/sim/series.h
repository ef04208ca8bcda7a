/* series.h: a run as it went, in even spans of time: for plots.
 * Use:     init, point setup.observer to series_observer, engine_run, read the fields, fini.
 * Units:   *_s are seconds of device time, or of requests waiting, within the span.
 * Owner:   the series owns its arrays.
 * Thread:  the engine's. */
#ifndef TIDEPOOL_CLIENTS_SIM_SERIES_H
#define TIDEPOOL_CLIENTS_SIM_SERIES_H

#include "clients/sim/engine.h"

#define SERIES_SPANS 480
#define SERIES_DEVICES_MAX 64 /* shown one by one: the first of them */

struct series {
    uint64_t span_ns; /* the last span may reach beyond the end */
    uint32_t device_count;
    uint64_t slo_ns, end_ns;
    double account_s[CORE_ACCOUNT_COUNT][SERIES_SPANS];
    double arriving_s[SERIES_SPANS]; /* service time of what arrives */
    double waiting_s[SERIES_SPANS];
    double late_s[SERIES_SPANS]; /* service time of what arrives and gets late */
    uint32_t handovers[SERIES_SPANS];
    float (*device_s)[SERIES_SPANS][CORE_ACCOUNT_COUNT]; /* [device_count] */
};

int series_init(struct series *series, const struct sim_setup *setup, struct error *error);
void series_fini(struct series *series); /* a zeroed one is fine */
struct sim_observer series_observer(struct series *series);

/* What the device did most of the span. */
enum core_account series_device(const struct series *series, uint32_t device, uint32_t span);

#endif
