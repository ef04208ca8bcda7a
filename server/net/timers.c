#include "server/net/timers.h"

#include <stdlib.h>

#define CAPACITY_FIRST 64

static void heap_put(struct timers *timers, size_t index, struct timer *timer)
{
    timers->heap[index] = timer;
    timer->place = index + 1;
}

static void heap_rise(struct timers *timers, size_t index)
{
    struct timer *timer = timers->heap[index];
    while (index > 0) {
        size_t parent = (index - 1) / 2;
        if (timers->heap[parent]->due_ns <= timer->due_ns) {
            break;
        }
        heap_put(timers, index, timers->heap[parent]);
        index = parent;
    }
    heap_put(timers, index, timer);
}

static void heap_sink(struct timers *timers, size_t index)
{
    struct timer *timer = timers->heap[index];
    for (;;) {
        size_t child = 2 * index + 1;
        if (child >= timers->count) {
            break;
        }
        if (child + 1 < timers->count &&
            timers->heap[child + 1]->due_ns < timers->heap[child]->due_ns) {
            child++;
        }
        if (timer->due_ns <= timers->heap[child]->due_ns) {
            break;
        }
        heap_put(timers, index, timers->heap[child]);
        index = child;
    }
    heap_put(timers, index, timer);
}

void timers_fini(struct timers *timers)
{
    free(timers->heap);
    *timers = (struct timers){0};
}

static bool heap_reserve(struct timers *timers)
{
    if (timers->count < timers->capacity) {
        return true;
    }
    size_t capacity = timers->capacity == 0 ? CAPACITY_FIRST : timers->capacity * 2;
    struct timer **heap = realloc(timers->heap, capacity * sizeof *heap);
    if (heap == NULL) {
        return false;
    }
    timers->heap = heap;
    timers->capacity = capacity;
    return true;
}

bool timer_arm(struct timers *timers, struct timer *timer, uint64_t due_ns)
{
    timer_disarm(timers, timer);
    if (!heap_reserve(timers)) {
        return false;
    }
    timer->due_ns = due_ns;
    heap_put(timers, timers->count, timer);
    timers->count++;
    heap_rise(timers, timers->count - 1);
    return true;
}

void timer_disarm(struct timers *timers, struct timer *timer)
{
    if (timer->place == 0) {
        return;
    }
    size_t index = timer->place - 1;
    timer->place = 0;
    struct timer *last = timers->heap[--timers->count];
    if (last == timer) {
        return;
    }
    heap_put(timers, index, last);
    heap_rise(timers, index);
    heap_sink(timers, last->place - 1);
}

void timers_run(struct timers *timers, uint64_t now_ns)
{
    while (timers->count > 0 && timers->heap[0]->due_ns <= now_ns) {
        struct timer *timer = timers->heap[0];
        timer_disarm(timers, timer);
        timer->fire(timer, now_ns);
    }
}

uint64_t timers_next_ns(const struct timers *timers)
{
    return timers->count == 0 ? UINT64_MAX : timers->heap[0]->due_ns;
}
