/* workload.h: a trace made ready for the engine: requests with service times for this many devices,
 * jobs with their work; and the endless jobs that are always there when no trace of jobs is given.
 *
 * service = scale x (input tokens / 8000 + output tokens / 1500) device-seconds; the scale makes
 * the 99.9 % quantile of the work that arrives in 10 s windows just what all devices can do in 10
 * s.
 *
 * Units:  nanoseconds of virtual time.
 * Owner:  the workload owns its tables; names stay the trace's, which must outlive it.
 * Errors: 0 or a negative enum error_code with nothing written. */
#ifndef TIDEPOOL_CLIENTS_SIM_WORKLOAD_H
#define TIDEPOOL_CLIENTS_SIM_WORKLOAD_H

#include "clients/sim/engine.h"
#include "clients/sim/trace.h"

#define WORKLOAD_WINDOW_NS (UINT64_C(10) * 1000000000)

struct workload_options {
    uint32_t device_count;
    double scale;           /* 0: as told above */
    uint32_t gang;          /* devices of each endless job; 0: no endless jobs */
    uint64_t checkpoint_ns; /* of all jobs; 0: every step */
    uint64_t restore_ns;
};

struct workload {
    struct sim_request *requests;
    size_t request_count;
    struct sim_job *jobs;
    size_t job_count;
    double scale;
    uint64_t end_ns; /* the last arrival or submission, up to a whole window */
};

int workload_make(const struct trace *trace, const struct workload_options *options,
                  struct workload *ret_workload, struct error *error);
void workload_free(struct workload *workload); /* a zeroed one is fine */

#endif
