/* output.h: what a job writes, taken from its pipe as fast as the disk allows: into the server's
 * copy, bounded and rotated (`log`, before it `log.1`), and into the user's own file, which has no
 * bound.
 * Full:    a full disk drops output, counts it and says so in the log once there is room again;
 *          the job never waits for it, nor for anybody who reads the log.
 * Thread:  one. */
#ifndef TIDEPOOL_SHIM_OUTPUT_H
#define TIDEPOOL_SHIM_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/base/error.h"

struct output {
    int pipe;      /* -1: closed */
    int directory; /* of the log */
    uid_t owner;   /* who may read it */
    int log;
    int copy; /* the user's file; -1: none */
    uint64_t bytes_max;
    uint64_t size, size_before; /* of log and log.1 */
    uint64_t written;           /* by the job, in all */
    uint64_t dropped;           /* rotated away */
    uint64_t lost;              /* never in the log: the disk took it not */
    uint64_t lost_unsaid;       /* the part of it that the log does not tell of yet */
    int lost_reason;
};

/* Opens the log. The pipe (its reading end, non-blocking) and the copy are set, and owned, after
 * that. */
int output_init(struct output *output, const char *directory, uid_t owner, uint64_t bytes_max,
                struct error *error);
void output_fini(struct output *output);
/* Takes at most `bytes_max` bytes: 1 there may be more, 0 nothing now, -1 nobody writes any more.
 */
int output_pump(struct output *output, size_t bytes_max);

#endif
