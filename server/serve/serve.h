/* serve.h: all endpoints, the serving thread of each device, and where instances live.
 * Roles:   the control thread (through the core) decides what is placed where; this room carries
 *          it out and tells by `notify` what came of it. It decides alone only what must be decided
 *          per request: admission, batches, and which idle device is woken.
 * Numbers: endpoints have the number that the caller gave; devices are indexes into the set.
 * Threads: one serving thread per device from serve_create on; one helper per placement while it
 *          lasts; one timer thread for requests that run out of time while they wait.
 * Owner:   serve owns the models given to it. The device set must outlive it.
 * Thread:  functions of this header may be called from any thread, but the add, place, remove and
 *          device calls of one endpoint or device come from one thread (control). None blocks on
 *          a run or a load, except serve_destroy.
 * Errors:  0 or a negative enum error_code with text. */
#ifndef TIDEPOOL_SERVE_SERVE_H
#define TIDEPOOL_SERVE_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/device/device.h"
#include "server/serve/endpoint.h"
#include "server/serve/measure.h"
#include "server/serve/repository.h"

enum serve_event_kind {
    SERVE_INSTANCE_READY,   /* answers place: it takes requests */
    SERVE_INSTANCE_FAILED,  /* answers place: text says why */
    SERVE_INSTANCE_STOPPED, /* answers remove: unloaded, its memory is free */
    SERVE_DEVICE_LOST,      /* a run said that the device is gone: the caller follows up with
                               serve_device_failed (and tells its core) */
    SERVE_ENDPOINT_DANGER,  /* at enqueue: the projected wait endangers the SLO, or there is no
                               instance; at most one per endpoint and 10 ms */
    SERVE_ENDPOINT_STOPPED, /* answers endpoint_remove: all accepted requests are answered and all
                               instances gone; the number may be used again */
};

struct serve_event {
    enum serve_event_kind kind;
    uint64_t endpoint;            /* number; 0 for DEVICE_LOST */
    uint32_t device;              /* index, where one is concerned */
    uint64_t memory_bytes;        /* INSTANCE_READY: of the instance */
    uint64_t projected_wait_ns;   /* ENDPOINT_DANGER */
    uint32_t queue_length;        /* ENDPOINT_DANGER */
    struct service_table service; /* INSTANCE_READY: as measured at load; count 0: unknown */
    char text[512];               /* INSTANCE_FAILED, DEVICE_LOST */
};

struct serve_options {
    const char *state_directory; /* for cached measurements; NULL: none kept */
    /* A run known to take no longer may be done on the network thread that submitted it, when an
     * idle device on which nobody trains has nothing else to do; 0: never. */
    uint64_t inline_ns_max;
    /* From any thread, also with none of the caller's locks free: it must only post a letter. */
    void (*notify)(void *context, const struct serve_event *event);
    void *context;
};

struct serve *serve_create(struct device_set *devices, const struct serve_options *options,
                           struct error *error);
/* Answers what still waits with UNAVAILABLE, lets running batches end, joins all threads, unloads
 * all models. No event after it has returned. No network thread may submit any more; holds on
 * endpoints must have been released. NULL is fine. */
void serve_destroy(struct serve *serve);

/* The serving threads call these around the answers of a batch: whoever answers can share there
 * what many answers cost together. Before the first endpoint is added. */
void serve_on_answers(struct serve *serve, void (*begin)(void), void (*end)(void));

/* ---- endpoints --------------------------------------------------------------------------------
 */

/* Makes the model callable by its configured name; it is `loading` until its first instance is
 * ready. Takes the model over on success. ALREADY_EXISTS: the name or the number is in use. */
int serve_endpoint_add(struct serve *serve, uint64_t number, struct repository_model *model,
                       struct error *error);
/* In the place of the configuration's. What is on a device beside it is bounded anew. */
void serve_endpoint_set(struct serve *serve, uint64_t number, uint64_t slo_ns, int32_t priority);
/* No new request from now on; what was accepted is answered. Instances stay until the caller
 * removes each (serve_instance_remove): the last one leaves only when the queue is empty. Without
 * any instance what waits is answered UNAVAILABLE. */
void serve_endpoint_remove(struct serve *serve, uint64_t number);

/* ---- instances and devices --------------------------------------------------------------------
 */

/* Starts to load one instance on a helper thread, to warm it up and to measure it. */
int serve_instance_place(struct serve *serve, uint64_t endpoint, uint32_t device,
                         struct error *error);
/* Takes no more batches there, lets the running one finish, unloads. Always answered by STOPPED,
 * also when there is none; a placement that still loads ends with STOPPED instead of READY. */
void serve_instance_remove(struct serve *serve, uint64_t endpoint, uint32_t device);
/* The device is lost: its instances are gone without further events; a batch in flight is aborted
 * and its requests return to the head of their queue, once each. A placement in progress there
 * ends with FAILED. */
void serve_device_failed(struct serve *serve, uint32_t device);
/* It may be placed on again. */
void serve_device_recovered(struct serve *serve, uint32_t device);
/* A holder that cannot yield is at work there: instances stay loaded and take no batch; an endpoint
 * that has no others is COLD. */
void serve_device_rest(struct serve *serve, uint32_t device, bool resting);
/* Of a resting device: no batch runs there any more, and none will. */
bool serve_device_quiet(struct serve *serve, uint32_t device);

/* ---- figures ----------------------------------------------------------------------------------
 */

enum endpoint_state {
    ENDPOINT_LOADING,  /* no instance has been ready yet: requests are UNAVAILABLE */
    ENDPOINT_READY,    /* at least one instance */
    ENDPOINT_COLD,     /* none now: requests wait for the core to place one (30 s at most) */
    ENDPOINT_FAILED,   /* its last placement failed before any was ready: requests UNAVAILABLE */
    ENDPOINT_STOPPING, /* removed: requests UNAVAILABLE */
};
const char *endpoint_state_name(enum endpoint_state state);

/* For the core's samples: totals since the endpoint was added; the caller takes differences. */
struct serve_sample {
    uint64_t arrivals; /* rows of valid requests, refused ones included: demand, as service times
                        * are those of rows */
    uint64_t busy_ns;  /* device time of its batches, over all devices */
    uint32_t queue_length;
    uint64_t queue_rows, queue_bytes;
    uint64_t oldest_wait_ns; /* 0: nothing waits */
    uint64_t projected_wait_ns;
    uint32_t instances_ready;
    uint32_t running; /* batches in flight */
    enum endpoint_state state;
};
int serve_endpoint_sample(struct serve *serve, uint64_t endpoint, uint64_t now_ns,
                          struct serve_sample *ret_sample);
/* Service times on devices of this kind, as measured at load and corrected by every batch since. */
int serve_endpoint_service(struct serve *serve, uint64_t endpoint, const char *device_kind,
                           struct service_table *ret_table);
/* Why it is LOADING or FAILED, or "". */
int serve_endpoint_reason(struct serve *serve, uint64_t endpoint, char *ret_text, size_t size);
/* A hold on the endpoint of that number, or NULL (statistics: endpoint_statistics). */
struct endpoint *serve_endpoint_hold(struct serve *serve, uint64_t endpoint);
/* Holds on all endpoints in the order of their names; returns how many there are (which may be
 * more than `capacity`: none beyond it is held). */
size_t serve_endpoints(struct serve *serve, struct endpoint **ret_endpoints, size_t capacity);

/* ---- readiness --------------------------------------------------------------------------------
 */

/* Ready: opened by main once the repository has been read, not draining, and no endpoint is still
 * LOADING. An endpoint that is COLD or FAILED does not make the server unready: the first is
 * served on demand, the second is told by its own readiness. */
bool serve_ready(struct serve *serve);
void serve_set_open(struct serve *serve, bool open); /* false at first */
bool serve_opened(const struct serve *serve);
void serve_set_draining(struct serve *serve, bool draining); /* readiness off, requests go on */
bool serve_draining(const struct serve *serve);
/* One watcher (health's): called, from any thread, after the readiness of the server or of any
 * endpoint may have changed. NULL takes it away: no call runs any more when this returns. */
void serve_on_readiness(struct serve *serve, void (*callback)(void *context), void *context);

#endif
