#include "server/observe/recorder.h"

#include <stdatomic.h>
#include <stdlib.h>

struct recorder {
    size_t mask;
    struct {
        _Atomic uint64_t head; /* written by the adder, read by the taker */
        uint64_t tail_seen;    /* the adder's last look at tail */
        _Atomic uint64_t dropped;
    } adder __attribute__((aligned(64)));
    struct {
        _Atomic uint64_t tail; /* written by the taker, read by the adder */
    } taker __attribute__((aligned(64)));
    struct recorded_request requests[];
};

struct recorder *recorder_create(size_t capacity)
{
    size_t size = 1;
    while (size < capacity) {
        size *= 2;
    }
    struct recorder *recorder = NULL;
    size_t bytes = sizeof *recorder + size * sizeof recorder->requests[0];
    if (posix_memalign((void **)&recorder, 64, bytes) != 0) {
        return NULL;
    }
    recorder->mask = size - 1;
    recorder->adder.tail_seen = 0;
    atomic_init(&recorder->adder.head, 0);
    atomic_init(&recorder->adder.dropped, 0);
    atomic_init(&recorder->taker.tail, 0);
    return recorder;
}

void recorder_destroy(struct recorder *recorder)
{
    free(recorder);
}

void recorder_add(struct recorder *recorder, uint64_t arrival_ns, uint64_t latency_ns)
{
    uint64_t head = atomic_load_explicit(&recorder->adder.head, memory_order_relaxed);
    if (head - recorder->adder.tail_seen > recorder->mask) {
        recorder->adder.tail_seen =
            atomic_load_explicit(&recorder->taker.tail, memory_order_acquire);
        if (head - recorder->adder.tail_seen > recorder->mask) {
            uint64_t dropped = atomic_load_explicit(&recorder->adder.dropped, memory_order_relaxed);
            atomic_store_explicit(&recorder->adder.dropped, dropped + 1, memory_order_relaxed);
            return;
        }
    }
    recorder->requests[head & recorder->mask] = (struct recorded_request){arrival_ns, latency_ns};
    atomic_store_explicit(&recorder->adder.head, head + 1, memory_order_release);
}

size_t recorder_take(struct recorder *recorder, struct recorded_request *ret_requests,
                     size_t capacity)
{
    uint64_t head = atomic_load_explicit(&recorder->adder.head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&recorder->taker.tail, memory_order_relaxed);
    size_t count = 0;
    while (count < capacity && tail != head) {
        ret_requests[count++] = recorder->requests[tail++ & recorder->mask];
    }
    atomic_store_explicit(&recorder->taker.tail, tail, memory_order_release);
    return count;
}

uint64_t recorder_dropped(const struct recorder *recorder)
{
    return atomic_load_explicit(&recorder->adder.dropped, memory_order_relaxed);
}
