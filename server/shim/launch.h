/* launch.h: starts a job's leader: a process that has nothing of ours but its three descriptors.
 * Order:   own session, control group, cores, limits; then its user; only as that user are its
 *          directory and output opened. What fails there is told as itself, with the system's
 *          reason.
 * Thread:  the shim's only one; children are not reaped here, but for a leader that never ran. */
#ifndef TIDEPOOL_SHIM_LAUNCH_H
#define TIDEPOOL_SHIM_LAUNCH_H

#include "server/shim/job.h"
#include "server/shim/record.h"

struct launch {
    const struct shim_job *job;
    const char *tag; /* NAME=value, added to its environment */
    const struct cgroup *cgroup;
    int stdin_fd;  /* -1: /dev/null */
    int output_fd; /* becomes 1 and 2 */
};

struct launched {
    pid_t pid;
    uint64_t start;
    int copy;     /* the user's output file; -1: none; the caller's */
    bool grouped; /* it is in its control group */
    enum shim_step step;
    int error_number;
};

/* 0; or negative: then `step` and `error_number` are set and nothing is left of it. */
int launch(const struct launch *launch, struct launched *ret_launched, struct error *error);

#endif
