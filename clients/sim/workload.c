/* workload.c: see workload.h. */
#include "clients/sim/workload.h"

#include <stdlib.h>

#define INPUT_TOKENS_PER_S 8000.0
#define OUTPUT_TOKENS_PER_S 1500.0
#define QUANTILE 0.999
#define ALL_KINDS ((1u << CORE_KINDS_MAX) - 1)

void workload_free(struct workload *workload)
{
    free(workload->requests);
    free(workload->jobs);
    *workload = (struct workload){0};
}

/* ---- requests ---- */

static double work_s(const struct trace_request *request)
{
    return request->input_tokens / INPUT_TOKENS_PER_S +
           request->output_tokens / OUTPUT_TOKENS_PER_S;
}

static int compare_work(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Between two windows the quantile is interpolated. */
static double busiest_window_s(const struct trace *trace, double *windows, size_t count)
{
    for (size_t i = 0; i < trace->request_count; i++) {
        windows[trace->requests[i].arrival_ns / WORKLOAD_WINDOW_NS] += work_s(&trace->requests[i]);
    }
    qsort(windows, count, sizeof *windows, compare_work);
    double place = QUANTILE * (double)(count - 1);
    size_t below = (size_t)place;
    size_t above = below + 1 < count ? below + 1 : below;
    return windows[below] + (windows[above] - windows[below]) * (place - (double)below);
}

static int scale_find(const struct trace *trace, uint32_t device_count, double *ret_scale)
{
    size_t count = trace->end_ns / WORKLOAD_WINDOW_NS + 1;
    double *windows = calloc(count, sizeof *windows);
    if (windows == NULL) {
        return -1;
    }
    double busiest_s = busiest_window_s(trace, windows, count);
    /* Bursts so rare that hardly any window has work at all: then the busiest one counts. */
    busiest_s = busiest_s > 0 ? busiest_s : windows[count - 1];
    free(windows);
    *ret_scale = busiest_s > 0 ? device_count * ((double)WORKLOAD_WINDOW_NS / 1e9) / busiest_s : 1;
    return 0;
}

static int requests_make(const struct trace *trace, const struct workload_options *options,
                         struct workload *workload)
{
    workload->scale = options->scale;
    workload->requests = calloc(trace->request_count + 1, sizeof *workload->requests);
    if (workload->requests == NULL ||
        (options->scale == 0 && scale_find(trace, options->device_count, &workload->scale) < 0)) {
        return -1;
    }
    workload->request_count = trace->request_count;
    for (size_t i = 0; i < trace->request_count; i++) {
        double service_ns = work_s(&trace->requests[i]) * workload->scale * 1e9;
        workload->requests[i] = (struct sim_request){
            .arrival_ns = trace->requests[i].arrival_ns,
            .service_ns = service_ns >= 1 ? (uint64_t)service_ns : 1,
            .endpoint = trace->requests[i].endpoint,
        };
    }
    return 0;
}

/* ---- jobs ---- */

static struct sim_job job_of(const struct trace *trace, const struct trace_job *from,
                             const struct workload_options *options)
{
    struct sim_job job = {
        .submit_ns = from->submit_ns,
        .work_ns = from->duration_ns * from->devices,
        .devices_min = from->devices_min,
        .devices_max = from->devices_max,
        .checkpoint_ns = options->checkpoint_ns,
        .restore_ns = options->restore_ns,
        .team = from->team + 1,
        .kinds_mask = ALL_KINDS,
    };
    for (uint32_t i = 0; i < ENGINE_SPEEDS_MAX && from->application != TRACE_RIGID; i++) {
        uint32_t devices = i + 1 < TRACE_SPEEDS_MAX ? i + 1 : TRACE_SPEEDS_MAX;
        job.speed_permille[i] = from->devices * trace_job_speed_milli(trace, from, devices);
    }
    return job;
}

static int jobs_make(const struct trace *trace, const struct workload_options *options,
                     struct workload *workload)
{
    size_t endless = options->gang > 0 ? options->device_count / options->gang : 0;
    workload->jobs = calloc(trace->job_count + endless + 1, sizeof *workload->jobs);
    if (workload->jobs == NULL) {
        return -1;
    }
    for (size_t i = 0; i < endless; i++) {
        workload->jobs[i] = (struct sim_job){.devices_min = options->gang,
                                             .devices_max = options->gang,
                                             .checkpoint_ns = options->checkpoint_ns,
                                             .restore_ns = options->restore_ns,
                                             .kinds_mask = ALL_KINDS};
    }
    for (size_t i = 0; i < trace->job_count; i++) {
        workload->jobs[endless + i] = job_of(trace, &trace->jobs[i], options);
    }
    workload->job_count = endless + trace->job_count;
    return 0;
}

int workload_make(const struct trace *trace, const struct workload_options *options,
                  struct workload *ret_workload, struct error *error)
{
    struct workload workload = {0};
    if (requests_make(trace, options, &workload) < 0 || jobs_make(trace, options, &workload) < 0) {
        workload_free(&workload);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for %zu requests and %zu jobs",
                         trace->request_count, trace->job_count);
    }
    workload.end_ns = (trace->end_ns / WORKLOAD_WINDOW_NS + 1) * WORKLOAD_WINDOW_NS;
    *ret_workload = workload;
    return 0;
}
