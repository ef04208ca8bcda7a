/* load.h: an open-loop load on an endpoint: requests leave when the schedule says so, however slow
 * the answers are.
 * Latency:  from the time a request was meant to leave to its answer, so a generator or connection
 *           that falls behind shows in the figures instead of hiding in them.
 * Bound:    at most `in_flight_max` requests wait for answers; a request that is due beyond that is
 *           not sent and counts as failed with RESOURCE_EXHAUSTED.
 * Waiting:  in ppoll(2) until the next send, answer or deadline; never spinning. The report tells
 *           how late sends were and how much of a core the thread used.
 * Lost connections are made again after 100 ms; what was due on them meanwhile goes to the others,
 * or fails with UNAVAILABLE when there are none. Thread:   load_run on one thread; load_stop and
 * load_snapshot from any other. */
#ifndef TIDEPOOL_CLIENTS_LOAD_H
#define TIDEPOOL_CLIENTS_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clients/common/histogram.h"
#include "server/base/error.h"

#define LOAD_CONNECTIONS_MAX 256
#define LOAD_CODES 17 /* gRPC's status codes */
#define LOAD_WINDOW_SLOTS 8

struct load;

struct load_counts {
    uint64_t sent, ok, failed; /* sent: left or was refused here; in flight = sent − ok − failed */
    uint64_t late;             /* of the ok ones: slower than the SLO */
    uint64_t by_code[LOAD_CODES];
};

/* One second of the run. */
struct load_slot {
    uint64_t start_ns, end_ns; /* from the start of the run */
    struct load_counts counts; /* of this second */
    struct histogram latency;  /* ns, of ok answers in this second */
};

struct load_options {
    const char *address, *token;
    unsigned connections;
    const void *body; /* an encoded ModelInferRequest; stays valid */
    size_t body_length;
    uint64_t deadline_ns; /* of each request, from its sending; 0: none */
    uint64_t slo_ns;
    uint64_t in_flight_max; /* 0: 100000 */
    uint64_t drain_ns;      /* how long to wait for answers after the last request; 0: 30 s */
    /* The next send, from the start of the run, ascending; false at the end. Load thread. */
    bool (*next)(void *context, uint64_t *ret_offset_ns);
    void *next_context;
    /* Each second that has passed, may be NULL. Load thread. */
    void (*on_slot)(void *context, const struct load_slot *slot);
    void *slot_context;
};

struct load_snapshot {
    uint64_t elapsed_ns, cpu_ns; /* of the load thread */
    struct load_counts total;
    double rate_per_s;       /* of sends, over the last whole second */
    uint64_t p50_ns, p99_ns; /* over the last LOAD_WINDOW_SLOTS seconds */
};

struct load_result {
    uint64_t elapsed_ns, cpu_ns;
    struct load_counts total;
    struct histogram latency;       /* ns, ok answers */
    struct histogram send_lateness; /* ns from the meant to the real sending */
};

int load_create(const struct load_options *options, struct load **ret_load, struct error *error);
void load_destroy(struct load *load); /* NULL is fine; not while it runs */
/* Until the schedule's end or load_stop, and the last answers. Also writes what was measured. */
void load_run(struct load *load, struct load_result *ret_result);
void load_stop(struct load *load);
void load_snapshot(struct load *load, struct load_snapshot *ret_snapshot);

#endif
