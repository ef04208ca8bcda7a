#include "clients/sim/series.h"

#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1e9

int series_init(struct series *series, const struct sim_setup *setup, struct error *error)
{
    memset(series, 0, sizeof(*series));
    series->span_ns = (setup->end_ns + SERIES_SPANS - 1) / SERIES_SPANS;
    series->span_ns = series->span_ns > 0 ? series->span_ns : 1;
    series->device_count =
        setup->device_count < SERIES_DEVICES_MAX ? setup->device_count : SERIES_DEVICES_MAX;
    series->slo_ns = setup->slo_ns;
    series->end_ns = setup->end_ns;
    series->device_s = calloc(series->device_count, sizeof(*series->device_s));
    return series->device_s != NULL
               ? 0
               : error_set(error, ERROR_RESOURCE_EXHAUSTED, "report: no memory for a series");
}

void series_fini(struct series *series)
{
    free(series->device_s);
    series->device_s = NULL;
}

static uint32_t span_of(const struct series *series, uint64_t at_ns)
{
    uint64_t span = at_ns / series->span_ns;
    return span < SERIES_SPANS ? (uint32_t)span : SERIES_SPANS - 1;
}

/* The seconds of [from, to) within a span. */
static double overlap_s(const struct series *series, uint32_t span, uint64_t from_ns,
                        uint64_t to_ns)
{
    uint64_t start_ns = span * series->span_ns, end_ns = start_ns + series->span_ns;
    start_ns = from_ns > start_ns ? from_ns : start_ns;
    end_ns = to_ns < end_ns ? to_ns : end_ns;
    return end_ns > start_ns ? (double)(end_ns - start_ns) / SECOND_NS : 0;
}

static void on_span(void *context, uint32_t device, enum core_account account, uint64_t from_ns,
                    uint64_t to_ns)
{
    struct series *series = context;
    uint32_t last = span_of(series, to_ns);
    for (uint32_t span = span_of(series, from_ns); span <= last; span++) {
        double seconds = overlap_s(series, span, from_ns, to_ns);
        series->account_s[account][span] += seconds;
        if (device < series->device_count) {
            series->device_s[device][span][account] += (float)seconds;
        }
    }
}

static void on_request(void *context, const struct sim_request *request, uint64_t start_ns)
{
    struct series *series = context;
    uint32_t first = span_of(series, request->arrival_ns);
    uint64_t until_ns = start_ns < series->end_ns ? start_ns : series->end_ns;
    double service_s = (double)request->service_ns / SECOND_NS;
    series->arriving_s[first] += service_s;
    if (start_ns - request->arrival_ns > series->slo_ns) {
        series->late_s[first] += service_s;
    }
    for (uint32_t span = first; span <= span_of(series, until_ns); span++) {
        series->waiting_s[span] += overlap_s(series, span, request->arrival_ns, until_ns);
    }
}

static void on_handover(void *context, uint32_t device, bool to_training, uint64_t at_ns)
{
    struct series *series = context;
    (void)device;
    (void)to_training;
    series->handovers[span_of(series, at_ns)]++;
}

struct sim_observer series_observer(struct series *series)
{
    return (struct sim_observer){
        .context = series, .span = on_span, .request = on_request, .handover = on_handover};
}

enum core_account series_device(const struct series *series, uint32_t device, uint32_t span)
{
    const float *seconds = series->device_s[device][span];
    enum core_account most = CORE_ACCOUNT_FREE;
    for (int account = 1; account < CORE_ACCOUNT_COUNT; account++) {
        if (seconds[account] > seconds[most]) {
            most = (enum core_account)account;
        }
    }
    return most;
}
