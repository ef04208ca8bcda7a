/* trace.h: what a simulation plays: requests to endpoints and training jobs, read from files.
 * Files:   CSV, plain or gzip; the header line says what a file holds, in any mix and order:
 *            arrival_s,endpoint,input_tokens,output_tokens           requests, ascending
 *            t_s,endpoint,rate_rps,iat_cv,...,gap                    rate curves (rates.h)
 *            t_s,model,rate_rps,active_clients,top_client_share      the same, of whole models
 *            endpoint,field,p1,...,p99_9                             token lengths of rate curves
 *            job_id,submit_s,duration_s,num_gpus,group               training jobs
 *            workload,job,submit_s,application,...,user_batch        elastic jobs, with both of:
 *            application,num_nodes,num_gpus,placement,...            their measured step times
 *            application,batch_size,epoch,progress,iteration,...     their measured convergence
 *          "FILE@77.5" adds 77.5 s to all times of that file. Files merge by time.
 * Units:   *_ns are nanoseconds from the start of the trace.
 * Trust:   none: a wrong field is an error that names file, line, column and limits.
 * Repeat:  the same files and options give the same trace on every run of one machine (generated
 *          requests use the C library's logarithm and power).
 * Errors:  0 or a negative enum error_code with nothing written.
 * Thread:  plain values. */
#ifndef TIDEPOOL_CLIENTS_SIM_TRACE_H
#define TIDEPOOL_CLIENTS_SIM_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

#define TRACE_REQUESTS_MAX 100000000u
#define TRACE_JOBS_MAX 10000000u
#define TRACE_NAMES_MAX 4096u       /* endpoints, as many as the core takes; the same of teams */
#define TRACE_TOKENS_MAX 100000000u /* of one request, in or out */
#define TRACE_SPEEDS_MAX 8          /* devices up to which elastic jobs were measured */
#define TRACE_RIGID UINT32_MAX      /* application of a job that runs on one size only */

struct trace_request {
    uint64_t arrival_ns;
    uint32_t endpoint; /* index into trace.endpoints */
    uint32_t input_tokens, output_tokens;
};

struct trace_job {
    uint64_t submit_ns;
    uint64_t duration_ns;              /* undisturbed, on `devices` devices */
    uint32_t devices;                  /* what its user asked for */
    uint32_t devices_min, devices_max; /* sizes it can run on; both `devices` when rigid */
    uint32_t team;        /* index into trace.teams: its group; elastic jobs: their workload */
    uint32_t application; /* index into trace.applications, or TRACE_RIGID */
};

/* How fast one kind of elastic job is: the run's whole time on n devices, each with the best batch
 * size measured; never longer on more devices (what does not help stands idle). */
struct trace_application {
    char *name;
    uint64_t duration_ns[TRACE_SPEEDS_MAX + 1]; /* [n]; [0] is not used */
};

struct trace_names {
    char **names; /* in order of appearance */
    uint32_t *sorted;
    uint32_t count, capacity;
};

struct trace {
    struct trace_names endpoints, teams;
    struct trace_request *requests; /* ascending by arrival */
    size_t request_count, request_capacity;
    struct trace_job *jobs; /* ascending by submission */
    size_t job_count, job_capacity;
    struct trace_application *applications;
    uint32_t application_count;
    uint64_t end_ns; /* of the last arrival or submission */
};

struct trace_options {
    uint64_t seed;     /* of generated requests */
    double time_scale; /* arrivals are multiplied by it: 0.5 doubles the load */
    double rate_scale; /* rate curves are multiplied by it */
    double rate_mean;  /* if above 0: scales each curve to this mean, requests per second */
    uint64_t from_ns, until_ns; /* only what happens in between, with from_ns as the new start;
                                 * until_ns 0: to the end */
    uint32_t workload;          /* of elastic jobs, 1 to 8; 0: all of them */
};

void trace_options_init(struct trace_options *options); /* seed 1, scales 1, all of the time */

int trace_read(const char *const *files, size_t file_count, const struct trace_options *options,
               struct trace *ret_trace, struct error *error);
void trace_free(struct trace *trace); /* a zeroed one is fine */

/* Progress of a job per second on so many devices, over that on the devices it asked for, in
 * thousandths; 0 when it cannot run on so few. */
uint32_t trace_job_speed_milli(const struct trace *trace, const struct trace_job *job,
                               uint32_t devices);

#endif
