#include "server/serve/queue.h"

#include <string.h>

static struct request_list *list_of(struct request_queue *queue,
                                    const struct serve_request *request)
{
    return request->priority == 1 ? &queue->urgent : &queue->normal;
}

static void queue_count(struct request_queue *queue, const struct serve_request *request)
{
    queue->count++;
    queue->rows += request->rows;
    queue->bytes += request->bytes;
}

void queue_push(struct request_queue *queue, struct serve_request *request)
{
    struct request_list *list = list_of(queue, request);
    request->next = NULL;
    request->previous = list->tail;
    if (list->tail != NULL) {
        list->tail->next = request;
    } else {
        list->head = request;
    }
    list->tail = request;
    queue_count(queue, request);
}

void queue_push_front(struct request_queue *queue, struct serve_request *request)
{
    struct request_list *list = list_of(queue, request);
    request->previous = NULL;
    request->next = list->head;
    if (list->head != NULL) {
        list->head->previous = request;
    } else {
        list->tail = request;
    }
    list->head = request;
    queue_count(queue, request);
}

void queue_remove(struct request_queue *queue, struct serve_request *request)
{
    struct request_list *list = list_of(queue, request);
    if (request->previous != NULL) {
        request->previous->next = request->next;
    } else {
        list->head = request->next;
    }
    if (request->next != NULL) {
        request->next->previous = request->previous;
    } else {
        list->tail = request->previous;
    }
    request->next = NULL;
    request->previous = NULL;
    queue->count--;
    queue->rows -= request->rows;
    queue->bytes -= request->bytes;
}

struct serve_request *queue_first(const struct request_queue *queue)
{
    return queue->urgent.head != NULL ? queue->urgent.head : queue->normal.head;
}

struct serve_request *queue_after(const struct request_queue *queue,
                                  const struct serve_request *request)
{
    if (request->next != NULL) {
        return request->next;
    }
    return request->priority == 1 ? queue->normal.head : NULL;
}

uint64_t queue_oldest_ns(const struct request_queue *queue)
{
    uint64_t oldest_ns = UINT64_MAX;
    if (queue->urgent.head != NULL) {
        oldest_ns = queue->urgent.head->arrival_ns;
    }
    if (queue->normal.head != NULL && queue->normal.head->arrival_ns < oldest_ns) {
        oldest_ns = queue->normal.head->arrival_ns;
    }
    return oldest_ns;
}

/* A request of no rows still is one of the batch. */
static uint32_t request_weight(const struct serve_request *request)
{
    return request->rows > 0 ? request->rows : 1;
}

/* All dimensions but the batch's. */
static bool shapes_equal(const struct request_queue *queue, const struct serve_request *a,
                         const struct serve_request *b)
{
    if (a->shapes != b->shapes) {
        return false;
    }
    if (a->shapes == 0) {
        return true;
    }
    for (size_t i = 0; i < queue->input_count; i++) {
        uint32_t first = queue->batched ? 1 : 0, rank = a->inputs[i].rank;
        if (b->inputs[i].rank != rank ||
            (rank > first && memcmp(a->inputs[i].dims + first, b->inputs[i].dims + first,
                                    (rank - first) * sizeof(int64_t)) != 0)) {
            return false;
        }
    }
    return true;
}

uint32_t queue_collect(const struct request_queue *queue, uint32_t rows_max, uint32_t capacity,
                       struct serve_request **ret_requests, uint32_t *ret_rows)
{
    struct serve_request *request = queue_first(queue);
    uint32_t count = 0, rows = 0, weight = 0;
    for (uint32_t seen = 0; request != NULL && seen < QUEUE_SCAN_MAX && count < capacity; seen++) {
        bool fits = count == 0 || (request_weight(request) <= rows_max - weight);
        if (fits && (count == 0 || shapes_equal(queue, ret_requests[0], request))) {
            ret_requests[count++] = request;
            rows += request->rows;
            weight += request_weight(request);
            if (weight >= rows_max) {
                break;
            }
        }
        request = queue_after(queue, request);
    }
    *ret_rows = rows;
    return count;
}

uint64_t request_shapes(const struct tensor *inputs, size_t count, bool batched)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++) {
        for (uint32_t d = batched ? 1 : 0; d < inputs[i].rank; d++) {
            hash = (hash ^ (uint64_t)inputs[i].dims[d]) * UINT64_C(0x100000001b3);
            hash ^= hash >> 29;
        }
        hash = (hash ^ inputs[i].rank) * UINT64_C(0x100000001b3);
    }
    return hash != 0 ? hash : 1;
}
