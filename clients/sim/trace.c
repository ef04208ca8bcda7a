#include "clients/sim/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/sim/array.h"
#include "clients/sim/trace_reader.h"

/* Moves a time to the part that is played. False: it is outside of it. */
static bool time_clip(const struct trace_options *options, uint64_t *time_ns)
{
    if (*time_ns < options->from_ns || (options->until_ns != 0 && *time_ns >= options->until_ns)) {
        return false;
    }
    *time_ns -= options->from_ns;
    return true;
}

int reader_add_request(struct reader *reader, const struct trace_request *request,
                       struct error *error)
{
    struct trace *trace = reader->trace;
    struct trace_request moved = *request;
    if (!time_clip(reader->options, &moved.arrival_ns)) {
        return 0;
    }
    struct trace_request *grown =
        array_room(trace->requests, trace->request_count, &trace->request_capacity, sizeof(*grown),
                   TRACE_REQUESTS_MAX);
    if (grown == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "more requests than the limit of %u, or no memory", TRACE_REQUESTS_MAX);
    }
    trace->requests = grown;
    grown[trace->request_count++] = moved;
    return 0;
}

int reader_add_job(struct reader *reader, const struct trace_job *job, struct error *error)
{
    struct trace *trace = reader->trace;
    struct trace_job moved = *job;
    if (!time_clip(reader->options, &moved.submit_ns)) {
        return 0;
    }
    struct trace_job *grown = array_room(trace->jobs, trace->job_count, &trace->job_capacity,
                                         sizeof(*grown), TRACE_JOBS_MAX);
    if (grown == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "more jobs than the limit of %u, or no memory", TRACE_JOBS_MAX);
    }
    trace->jobs = grown;
    grown[trace->job_count++] = moved;
    return 0;
}

/* ---- what needs all files -------------------------------------------------------------------- */

static int rate_request_add(void *target, const char *endpoint, uint64_t arrival_ns,
                            uint32_t input_tokens, uint32_t output_tokens, struct error *error)
{
    struct reader *reader = target;
    struct trace_request request = {arrival_ns, 0, input_tokens, output_tokens};
    if (names_intern(&reader->trace->endpoints, endpoint, TRACE_NAMES_MAX, &request.endpoint) < 0) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "more than %u different endpoints, or no memory", TRACE_NAMES_MAX);
    }
    return reader_add_request(reader, &request, error);
}

static int rates_play(struct reader *reader, struct error *error)
{
    const struct trace_options *options = reader->options;
    const struct rate_scale scale = {
        .seed = options->seed,
        .factor = options->rate_scale,
        .mean = options->rate_mean,
        .from_ns = options->from_ns,
        .until_ns = options->until_ns != 0 ? options->until_ns : UINT64_MAX,
    };
    const struct rate_sink sink = {rate_request_add, reader};
    double expected = rates_expected(&reader->rates, &scale);
    if (expected > TRACE_REQUESTS_MAX) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "these rate curves make %.3g requests, the limit is %u; scale the rates "
                         "down or play a shorter time",
                         expected, TRACE_REQUESTS_MAX);
    }
    return rates_generate(&reader->rates, &scale, &sink, error);
}

static int applications_measure(struct reader *reader, struct error *error)
{
    struct trace *trace = reader->trace;
    uint32_t count = reader->applications.count;
    trace->applications = calloc(count + 1, sizeof(*trace->applications));
    if (trace->applications == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "trace: no memory");
    }
    for (uint32_t i = 0; i < count; i++) {
        struct trace_application *application = &trace->applications[i];
        int result = elastic_durations(&reader->elastic, reader->applications.names[i],
                                       application->duration_ns, error);
        if (result < 0) {
            return result;
        }
        application->name = strdup(reader->applications.names[i]);
        if (application->name == NULL) {
            return error_set(error, ERROR_RESOURCE_EXHAUSTED, "trace: no memory");
        }
        trace->application_count++;
    }
    return 0;
}

static uint32_t measured(uint32_t devices)
{
    return devices < TRACE_SPEEDS_MAX ? devices : TRACE_SPEEDS_MAX;
}

static int elastic_play(struct reader *reader, struct error *error)
{
    int result = applications_measure(reader, error);
    for (size_t i = 0; i < reader->elastic_count && result == 0; i++) {
        const struct elastic_job *job = &reader->elastic_jobs[i];
        struct trace_job made = {
            .submit_ns = job->submit_ns,
            .devices = measured(job->user_devices),
            .devices_min = 1,
            .devices_max = measured(job->tuned_devices),
            .application = job->application,
        };
        char team[32];
        made.devices_max = made.devices > made.devices_max ? made.devices : made.devices_max;
        made.duration_ns = reader->trace->applications[job->application].duration_ns[made.devices];
        (void)snprintf(team, sizeof(team), "workload %u", job->workload);
        result = names_intern(&reader->trace->teams, team, TRACE_NAMES_MAX, &made.team);
        result = result < 0
                     ? error_set(error, ERROR_RESOURCE_EXHAUSTED,
                                 "more than %u groups and workloads, or no memory", TRACE_NAMES_MAX)
                     : reader_add_job(reader, &made, error);
    }
    return result;
}

/* Total orders: what compares equal is equal, so that any sort gives the same. */
static int number_compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int request_compare(const void *left, const void *right)
{
    const struct trace_request *a = left, *b = right;
    int order = number_compare(a->arrival_ns, b->arrival_ns);
    order = order != 0 ? order : number_compare(a->endpoint, b->endpoint);
    order = order != 0 ? order : number_compare(a->input_tokens, b->input_tokens);
    return order != 0 ? order : number_compare(a->output_tokens, b->output_tokens);
}

static int job_compare(const void *left, const void *right)
{
    const struct trace_job *a = left, *b = right;
    int order = number_compare(a->submit_ns, b->submit_ns);
    order = order != 0 ? order : number_compare(a->team, b->team);
    order = order != 0 ? order : number_compare(a->application, b->application);
    order = order != 0 ? order : number_compare(a->devices, b->devices);
    order = order != 0 ? order : number_compare(a->devices_max, b->devices_max);
    return order != 0 ? order : number_compare(a->duration_ns, b->duration_ns);
}

static void trace_close(struct reader *reader)
{
    struct trace *trace = reader->trace;
    if (trace->request_count > 0) { /* an empty array may be NULL, which qsort does not take */
        qsort(trace->requests, trace->request_count, sizeof(*trace->requests), request_compare);
    }
    if (trace->job_count > 0) {
        qsort(trace->jobs, trace->job_count, sizeof(*trace->jobs), job_compare);
    }
    uint64_t end_ns = 0;
    if (trace->request_count > 0) {
        end_ns = trace->requests[trace->request_count - 1].arrival_ns;
    }
    if (trace->job_count > 0 && trace->jobs[trace->job_count - 1].submit_ns > end_ns) {
        end_ns = trace->jobs[trace->job_count - 1].submit_ns;
    }
    trace->end_ns = end_ns;
}

static int options_check(const struct trace_options *options, struct error *error)
{
    const struct {
        const char *name;
        double value;
    } scales[] = {{"time scale", options->time_scale}, {"rate scale", options->rate_scale}};
    for (size_t i = 0; i < 2; i++) {
        if (!(scales[i].value >= 1e-6 && scales[i].value <= 1e3)) {
            return error_set(error, ERROR_INVALID_ARGUMENT, "%s: 1e-6 to 1000, not %g",
                             scales[i].name, scales[i].value);
        }
    }
    if (!(options->rate_mean >= 0 && options->rate_mean <= 1e6)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "mean rate: 0 to 1e6 per second, not %g",
                         options->rate_mean);
    }
    if (options->until_ns != 0 && options->until_ns <= options->from_ns) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "the end of what is played is not after its start");
    }
    return 0;
}

static int files_read(struct reader *reader, const char *const *files, size_t count,
                      struct error *error)
{
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        result = reader_read(reader, files[i], error);
    }
    return result;
}

int trace_read(const char *const *files, size_t file_count, const struct trace_options *options,
               struct trace *ret_trace, struct error *error)
{
    struct trace trace = {0};
    struct reader reader = {.options = options, .trace = &trace};
    int result = options_check(options, error);
    if (result == 0) {
        result = files_read(&reader, files, file_count, error);
    }
    if (result == 0) {
        result = rates_play(&reader, error);
    }
    if (result == 0) {
        result = elastic_play(&reader, error);
    }
    if (result == 0) {
        trace_close(&reader);
        *ret_trace = trace;
        trace = (struct trace){0}; /* now the caller's */
    }
    trace_free(&trace);
    rates_fini(&reader.rates);
    elastic_fini(&reader.elastic);
    names_fini(&reader.applications);
    free(reader.elastic_jobs);
    return result;
}

void trace_options_init(struct trace_options *options)
{
    *options = (struct trace_options){.seed = 1, .time_scale = 1, .rate_scale = 1};
}

void trace_free(struct trace *trace)
{
    for (uint32_t i = 0; i < trace->application_count; i++) {
        free(trace->applications[i].name);
    }
    free(trace->applications);
    names_fini(&trace->endpoints);
    names_fini(&trace->teams);
    free(trace->requests);
    free(trace->jobs);
    *trace = (struct trace){0};
}

uint32_t trace_job_speed_milli(const struct trace *trace, const struct trace_job *job,
                               uint32_t devices)
{
    if (devices < job->devices_min) {
        return 0;
    }
    if (job->application == TRACE_RIGID) {
        return 1000;
    }
    const struct trace_application *application = &trace->applications[job->application];
    double speed = (double)application->duration_ns[job->devices] /
                   (double)application->duration_ns[measured(devices)];
    return (uint32_t)(1000 * speed + 0.5);
}
