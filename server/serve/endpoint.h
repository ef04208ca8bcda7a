/* endpoint.h: a model that clients call by name: its bounded queue, its batches, its statistics.
 * Path:    a network thread fills a serve_request and submits it; a device's serving thread takes
 *          a batch, runs it and calls `done` for each request; `done` encodes and answers.
 * Owner:   the submitter owns the request's memory; from a successful submit until `done` has been
 *          called (exactly once) it must stay valid. A refused submit calls nothing.
 * Full:    more than queue_requests_max or queue_bytes_max waiting: RESOURCE_EXHAUSTED, at once.
 * Deadline:one that cannot be met by the projected wait: DEADLINE_EXCEEDED, at once. Missing the
 *          SLO is counted, never a refusal.
 * Thread:  submit and cancel: any; one short lock per endpoint. */
#ifndef TIDEPOOL_SERVE_ENDPOINT_H
#define TIDEPOOL_SERVE_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "models/runtime.h"

struct endpoint; /* counted: endpoint_find gives a hold, endpoint_release gives it back */
struct serve;    /* all endpoints and the serving threads of all devices */

struct serve_request {
    const struct tensor *inputs; /* the signature's order; data stays valid until done */
    uint32_t rows;
    size_t bytes; /* counted against the queue's bound */
    uint64_t arrival_ns, deadline_ns; /* clock_now_ns; deadline UINT64_MAX: none */
    uint32_t priority;                /* 0: the endpoint's */
    /* Serving thread (or the thread that cancels or drains). status NONE: outputs has the
     * signature's output_count tensors, valid during the call only. */
    void (*done)(struct serve_request *request, enum error_code status, const char *text,
                 const struct tensor *outputs);
    struct serve_request *next; /* the queue's */
    struct serve_request *previous;
    uint32_t state; /* the queue's */
    uint32_t tries; /* devices that failed under it */
    uint64_t start_ns;
};

struct endpoint *endpoint_find(struct serve *serve, const char *name, size_t name_length);
void endpoint_release(struct endpoint *endpoint);
const struct model_signature *endpoint_signature(const struct endpoint *endpoint);
bool endpoint_ready(const struct endpoint *endpoint); /* an instance is ready */
int endpoint_submit(struct endpoint *endpoint, struct serve_request *request, struct error *error);
/* Takes the request out of the queue if it still waits: `done` is called with CANCELLED (or
 * DEADLINE_EXCEEDED) before this returns. If it runs, its result will be thrown away by `done`'s
 * owner; if it was the batch's only one, the run is aborted where the runtime can. */
void endpoint_cancel(struct endpoint *endpoint, struct serve_request *request,
                     enum error_code reason);

#endif
