/* crowd.h: a core with many devices, leases and endpoints that live: load, progress, jobs that come
 * and end, devices that fail, and a shell that answers each action after a while. All follows from
 * the seed. For measuring: nothing is checked here. */
#ifndef TIDEPOOL_TESTS_BENCH_CROWD_H
#define TIDEPOOL_TESTS_BENCH_CROWD_H

#include "server/core/core.h"

struct crowd_size {
    uint32_t devices, leases, endpoints;
};

struct crowd;

/* Full on return: all there, most leases running, the rest waiting. NULL: no memory. */
struct crowd *crowd_create(const struct crowd_size *size, uint64_t seed);
void crowd_destroy(struct crowd *crowd);
/* The next event; then crowd_step lets the core have it. */
struct core_event crowd_next(struct crowd *crowd);
/* Returns what core_step alone took of this thread's processor time, in ns. */
uint64_t crowd_step(struct crowd *crowd, const struct core_event *event);
struct core *crowd_core(struct crowd *crowd);
uint64_t crowd_now_ns(const struct crowd *crowd);

#endif
