/* recorder.h: the arrivals and latencies of answered requests, handed from the thread that answers
 * them to the one that judges them later.
 * Bound:   `capacity` records (rounded up to a power of two); when the reader is behind, new ones
 *          are dropped and counted.
 * Thread:  add: one thread; take: one other. No lock, no locked instruction. */
#ifndef TIDEPOOL_OBSERVE_RECORDER_H
#define TIDEPOOL_OBSERVE_RECORDER_H

#include <stddef.h>
#include <stdint.h>

struct recorder;

struct recorded_request {
    uint64_t arrival_ns;
    uint64_t latency_ns; /* from arrival to the answer */
};

struct recorder *recorder_create(size_t capacity); /* NULL: no memory */
void recorder_destroy(struct recorder *recorder);  /* NULL is fine */
void recorder_add(struct recorder *recorder, uint64_t arrival_ns, uint64_t latency_ns);
/* Moves out at most `capacity` records in the order they were added; returns how many. */
size_t recorder_take(struct recorder *recorder, struct recorded_request *ret_requests,
                     size_t capacity);
uint64_t recorder_dropped(const struct recorder *recorder);

#endif
