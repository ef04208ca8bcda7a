/* Which device is woken for a request, and when. A worker that is awake needs no wakeup: it looks
 * at its queues before it sleeps. Several submits of one pass share one. */
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/serve/state.h"

#define HELD_MAX 8
#define HELD_NS_MAX UINT64_C(50000) /* a pass over large bodies must not hold the first one up */

static _Thread_local struct {
    bool active;
    uint32_t count;
    uint64_t since_ns;
    struct endpoint *endpoints[HELD_MAX];
} held;

/* Absolute on the monotonic clock; UINT64_MAX: until woken. */
void worker_sleep(struct worker *worker, uint32_t wakes, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                             .tv_nsec = (long)(until_ns % NS_PER_S)};
    (void)syscall(SYS_futex, &worker->wakes, FUTEX_WAIT_BITSET_PRIVATE, wakes,
                  until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

void worker_wake(struct worker *worker)
{
    atomic_fetch_add(&worker->wakes, 1);
    (void)syscall(SYS_futex, &worker->wakes, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* What a request that has just come finds: an idle worker, first one on whose device nobody trains,
 * and how many are on their way to look anyway. */
static struct worker *worker_choose(struct serve *serve, uint64_t placed, uint32_t *ret_looking)
{
    struct worker *best = NULL;
    bool best_free = false;
    *ret_looking = 0;
    for (; placed != 0; placed &= placed - 1) {
        struct worker *worker = &serve->workers[__builtin_ctzll(placed)];
        uint32_t phase = atomic_load(&worker->phase);
        if (phase == WORKER_LOOKING) {
            ++*ret_looking;
        } else if (phase == WORKER_IDLE && !best_free) {
            best_free =
                atomic_load_explicit(&worker->device->shared.training, memory_order_relaxed) == 0;
            best = best == NULL || best_free ? worker : best;
        }
    }
    return best;
}

void endpoint_wake(struct endpoint *endpoint)
{
    for (;;) {
        uint32_t looking, expected = WORKER_IDLE;
        struct worker *worker =
            worker_choose(endpoint->serve, atomic_load(&endpoint->placed), &looking);
        uint64_t rows = atomic_load_explicit(&endpoint->waiting_rows, memory_order_relaxed);
        if (worker == NULL || rows <= (uint64_t)endpoint->batch_limit * looking) {
            return; /* all run and look when they have done, or those on their way suffice */
        }
        if (atomic_compare_exchange_strong(&worker->phase, &expected, WORKER_LOOKING)) {
            worker_wake(worker);
            return;
        }
    }
}

static void held_flush(void)
{
    for (uint32_t i = 0; i < held.count; i++) {
        endpoint_wake(held.endpoints[i]);
        endpoint_release(held.endpoints[i]);
    }
    held.count = 0;
}

void endpoint_wake_later(struct endpoint *endpoint, uint64_t now_ns)
{
    if (!held.active) {
        endpoint_wake(endpoint);
        return;
    }
    for (uint32_t i = 0; i < held.count; i++) {
        if (held.endpoints[i] == endpoint) {
            if (now_ns > held.since_ns + HELD_NS_MAX) {
                held_flush();
            }
            return;
        }
    }
    if (held.count == HELD_MAX) {
        held_flush();
    }
    if (held.count == 0) {
        held.since_ns = now_ns;
    }
    held.endpoints[held.count++] = endpoint_hold(endpoint);
}

void endpoint_wakes_begin(void)
{
    held.active = true;
}

void endpoint_wakes_end(void)
{
    held.active = false;
    held_flush();
}
