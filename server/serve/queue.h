/* queue.h: the requests that wait at one endpoint, and which of them make the next batch.
 * Order:   urgent ones (priority 1) first, then by arrival; what comes back from a failed device
 *          goes to the head of its class.
 * Bound:   kept by the endpoint, which looks at count and bytes before it pushes.
 * Thread:  none of its own: the endpoint's lock is held. Every call is O(1) but collect, which
 *          looks at QUEUE_SCAN_MAX requests at most. */
#ifndef TIDEPOOL_SERVE_QUEUE_H
#define TIDEPOOL_SERVE_QUEUE_H

#include "server/serve/endpoint.h"

#define QUEUE_SCAN_MAX 1024

struct request_list {
    struct serve_request *head, *tail;
};

struct request_queue {
    size_t input_count; /* both constant: to compare shapes */
    bool batched;
    struct request_list urgent, normal;
    uint32_t count;
    uint64_t rows, bytes;
};

void queue_push(struct request_queue *queue, struct serve_request *request);
void queue_push_front(struct request_queue *queue, struct serve_request *request);
void queue_remove(struct request_queue *queue, struct serve_request *request);
/* Next to run, or NULL. */
struct serve_request *queue_first(const struct request_queue *queue);
struct serve_request *queue_after(const struct request_queue *queue,
                                  const struct serve_request *request);
/* Arrival of the one that has waited longest; UINT64_MAX: empty. */
uint64_t queue_oldest_ns(const struct request_queue *queue);

/* Writes the next batch without taking it out: the first request, and after it those of the same
 * shapes that still fit into `rows_max` rows, `capacity` requests at most. A first request of more
 * rows goes alone: none is split. Returns the count; *ret_rows their rows. */
uint32_t queue_collect(const struct request_queue *queue, uint32_t rows_max, uint32_t capacity,
                       struct serve_request **ret_requests, uint32_t *ret_rows);

/* Hash of all dimensions but the batch's, for requests whose shapes the signature leaves open;
 * never 0. Equal hashes are compared in full: the hash is nothing to rely on. */
uint64_t request_shapes(const struct tensor *inputs, size_t count, bool batched);

#endif
