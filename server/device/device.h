/* device.h: the devices of this machine and the two kinds of thread that work on each.
 * Device:   an index (dense, constant while the server runs), a stable id ("cpu:0-3"), a kind.
 * Slicing:  a device's serving thread raises `serving` while a batch runs; training on the same
 *           device asks device_training_may_run() between pieces of work of bounded length and
 *           stands still (futex, no spinning) until the flag falls. On a CPU device the serving
 *           thread is in the normal scheduling class and the training thread and its loaders in
 *           SCHED_IDLE (nice 19 where that is refused), all pinned to the device's cores.
 * Owner:    the set owns its devices; pointers stay valid until device_set_destroy.
 * Thread:   discovery: main, before threads; flags and counters: any. */
#ifndef TIDEPOOL_DEVICE_DEVICE_H
#define TIDEPOOL_DEVICE_DEVICE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/base/error.h"

#define DEVICES_MAX 64

struct device {
    uint32_t index;
    char id[64];   /* "cpu:0-3": stable over restarts */
    char kind[16]; /* "cpu" */
    char node[64]; /* host name */
    cpu_set_t cores;
    unsigned core_count;
    uint64_t memory_bytes; /* what instances and training may use together */
    const struct device_backend *backend;
    void *backend_data;
    struct {
        _Atomic uint32_t serving;            /* 1 while a batch runs */
        _Atomic uint32_t training_stands;    /* training threads that wait for `serving` to fall */
        _Atomic uint32_t training_wakes;     /* futex word: counts reasons to look again */
        _Atomic uint32_t failed;             /* set by the backend or by an injected fault */
        _Atomic uint64_t serving_ns, slices; /* totals since start; slices: batches that stopped
                                                training which was running */
        _Atomic uint64_t serving_since_ns;   /* start of the batch running now, 0 none */
        _Atomic uint32_t training;           /* training thread is inside a piece of work */
        _Atomic uint64_t training_ns, training_paused_ns;
    } shared;
};

struct device_set {
    struct device *devices;
    uint32_t count;
    cpu_set_t housekeeping; /* cores for network, control and helpers; never empty */
};

struct device_config {
    uint32_t cpu_devices;      /* 0: default (see below) */
    uint32_t cores_per_device; /* 0: equal shares */
    uint64_t memory_bytes;     /* 0: an equal share of what the process may use */
};

/* Default: the physical cores of the affinity mask, cut to the cgroup's CPU quota, in at most 8
 * equal devices within a NUMA node, one core kept for the network where there are more than two. */
int device_set_discover(const struct device_config *config, struct device_set *ret_set,
                        struct error *error);
void device_set_destroy(struct device_set *set);

enum device_role { DEVICE_SERVING, DEVICE_TRAINING, DEVICE_LOADER };
/* Starts a thread for the role: pinned to the device's cores, class and name set ("serve-0"). */
int device_thread_start(struct device *device, enum device_role role, void *(*main)(void *),
                        void *arg, pthread_t *ret_thread, struct error *error);

/* Serving thread, around each batch. begin returns true when training was running (a slice). */
bool device_serving_begin(struct device *device, uint64_t now_ns);
void device_serving_end(struct device *device, uint64_t now_ns);

/* Training thread. Between pieces of work; blocks while a batch runs, then goes on. Returns false
 * when `*abort` (the caller's flag) is set, at once or while standing still: abort's setter calls
 * device_training_wake. */
bool device_training_may_run(struct device *device, const _Atomic uint32_t *abort);
void device_training_wake(struct device *device);
void device_training_begin(struct device *device); /* inside a piece of work: for slices */
void device_training_end(struct device *device);

bool device_failed(const struct device *device);
void device_set_failed(struct device *device,
                       bool failed); /* injected by tests and `f` in the demo */

#endif
