/* serving.h: what serve.c, as the control thread calls it, and serving.c, what happens by itself,
 * share. All under the world's lock. */
#ifndef TIDEPOOL_CLIENTS_VIRTUAL_SERVING_H
#define TIDEPOOL_CLIENTS_VIRTUAL_SERVING_H

#include "clients/virtual/world.h"
#include "server/observe/recorder.h"
#include "server/serve/serve.h"
#include "server/serve/statistics.h"

#define ENDPOINTS_MAX 4096

enum instance_is { INSTANCE_ABSENT, INSTANCE_LOADING, INSTANCE_READY, INSTANCE_LEAVING };

struct endpoint {
    uint64_t number;
    struct model_config config;
    uint32_t traced; /* endpoint of the trace; UINT32_MAX: none of them */
    uint32_t holds;  /* by callers, and one while it is served */
    bool removing, was_ready;
    struct sim_request *queue; /* a ring that grows to the configured bound */
    size_t first, waiting, capacity;
    struct {
        enum instance_is is;
        uint64_t ready_ns;
    } instances[DEVICES_MAX];
    uint64_t service_ns; /* average: of the trace, then of the last ones; 0: not known */
    uint64_t danger_ns;  /* no event before */
    struct endpoint_statistics statistics;
    struct recorder *recorder;
};

struct serve {
    struct serve_options options;
    struct endpoint *endpoints[ENDPOINTS_MAX];
    size_t count;
    size_t next_request; /* of the trace */
    bool open, draining;
};

struct endpoint *endpoint_numbered(const struct serve *serve, uint64_t number); /* or NULL */
void endpoint_let_go(struct endpoint *endpoint); /* frees it with its last hold */
/* It is removed, and its last instance has gone: tells so, and lets it go. */
void endpoint_end_if_over(struct serve *serve, struct endpoint *endpoint);
uint32_t ready_count(const struct endpoint *endpoint); /* instances */
uint64_t oldest_ns(const struct endpoint *endpoint);   /* arrival of who waits longest; or now */
uint64_t projected_wait_ns(const struct endpoint *endpoint, uint32_t ready);
void instance_leave(struct serve *serve, struct endpoint *endpoint, uint32_t device);
/* A device's run breaks off; its request goes to the queue's head. Another device looks for it. */
void run_break_off(struct serve *serve, uint32_t device);

#endif
