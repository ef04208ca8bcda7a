/* endpoint.h: a model that clients call by name: its bounded queue, its batches, its statistics.
 * Path:    a network thread fills a serve_request and submits it; a device's serving thread (or a
 *          network thread in its place, where a run is quick) takes a batch, runs it and calls
 *          `done` for each request; `done` encodes and answers.
 * Owner:   the submitter owns the request's memory; from a successful submit until `done` has been
 *          called (exactly once) it must stay valid. A refused submit calls nothing.
 * Full:    more than queue_requests_max or queue_bytes_max waiting: RESOURCE_EXHAUSTED, at once.
 * Deadline:one that cannot be met by the projected wait: DEADLINE_EXCEEDED, at once. One that
 *          passes while the request waits: DEADLINE_EXCEEDED, and it never runs. Missing the SLO
 *          is counted, never a refusal.
 * Order:   requests of priority 1 before all others; within both by arrival.
 * Thread:  submit and cancel: any; one short lock per endpoint. */
#ifndef TIDEPOOL_SERVE_ENDPOINT_H
#define TIDEPOOL_SERVE_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "models/runtime.h"
#include "server/serve/model_config.h"

struct endpoint; /* counted: endpoint_find gives a hold, endpoint_release gives it back */
struct serve;    /* all endpoints and the serving threads of all devices */

enum serve_request_state {
    SERVE_REQUEST_NEW, /* not submitted, or answered */
    SERVE_REQUEST_WAITING,
    SERVE_REQUEST_RUNNING,
    SERVE_REQUEST_CANCELLED, /* while it ran: its result is thrown away */
};

struct serve_request {
    const struct tensor *inputs; /* the signature's order; data stays valid until done */
    uint32_t rows;
    size_t bytes;                     /* counted against the queue's bound */
    uint64_t arrival_ns, deadline_ns; /* clock_now_ns; deadline UINT64_MAX: none */
    uint32_t priority;                /* 1: before the others; else the endpoint's */
    /* The submitter watches the deadline itself and cancels (gRPC calls do): no timer here. */
    bool deadline_watched;
    /* Serving thread (or the thread that submits, cancels or drains), with no lock held. status
     * NONE: outputs has the signature's output_count tensors, valid during the call only. */
    void (*done)(struct serve_request *request, enum error_code status, const char *text,
                 const struct tensor *outputs);
    /* The rest is the endpoint's; zero at submit. */
    struct serve_request *next, *previous;
    enum serve_request_state state; /* under the endpoint's lock */
    enum error_code cancel_reason;
    uint32_t tries;            /* devices that failed under it */
    uint64_t shapes;           /* hash of all dimensions but the batch's; 0 where they are fixed */
    struct serve_batch *batch; /* while it runs */
};

/* ---- calls ------------------------------------------------------------------------------------
 */

struct endpoint *endpoint_find(struct serve *serve, const char *name, size_t name_length);
struct endpoint *endpoint_hold(struct endpoint *endpoint);
void endpoint_release(struct endpoint *endpoint); /* NULL is fine */
int endpoint_submit(struct endpoint *endpoint, struct serve_request *request, struct error *error);
/* When one that a full queue refused may find room: the time of a batch, as far as it is known. */
uint64_t endpoint_room_ns(const struct endpoint *endpoint);
/* Takes the request out of the queue if it still waits: `done` is called with the reason before
 * this returns. If it runs, `done` will be called with the reason when the run ends; when all
 * requests of its batch are cancelled, the run is aborted where the runtime can. The caller makes
 * sure that `done` has not returned yet. */
void endpoint_cancel(struct endpoint *endpoint, struct serve_request *request,
                     enum error_code reason);

/* Wakeups of the calling thread's submits are held back from begin to end, and then done at once:
 * a network thread that reads many requests in one pass wakes a device once. `spare`: the thread
 * has nothing else to do, so that it may run one that is alone and quick itself, and `done` may be
 * called before this returns. */
void endpoint_wakes_begin(void);
void endpoint_wakes_end(bool spare);

/* ---- what it is -------------------------------------------------------------------------------
 */

const char *endpoint_name(const struct endpoint *endpoint);
const char *endpoint_version(const struct endpoint *endpoint); /* decimal text */
const struct model_signature *endpoint_signature(const struct endpoint *endpoint);
const struct model_config *endpoint_config(const struct endpoint *endpoint);
bool endpoint_ready(const struct endpoint *endpoint); /* an instance is ready, or it is only cold */
/* Says why it is not ready: UNAVAILABLE. Counted as a refusal. */
int endpoint_unavailable(struct endpoint *endpoint, struct error *error);

#endif
