/* Which device is woken for a request, and when; whose a worker is. A worker that is awake needs no
 * wakeup: it looks at its queues before it sleeps. Several submits of one pass share one. */
#include <errno.h>
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

/* ---- whose a worker is ------------------------------------------------------------------------
 */

/* What a call makes of a phase: in those left out the worker looks by itself. */
static const uint8_t called[] = {
    [WORKER_IDLE] = WORKER_LOOKING,    [WORKER_CLAIMED] = WORKER_WANTED,
    [WORKER_RESTING] = WORKER_LOOKING, [WORKER_WANTED] = WORKER_WANTED,
    [WORKER_LOOKING] = WORKER_LOOKING, [WORKER_RUNNING] = WORKER_RUNNING,
};

/* Returns the phase that it found. */
static uint32_t phase_call(struct worker *worker)
{
    uint32_t phase = atomic_load(&worker->phase);
    while (called[phase] != phase &&
           !atomic_compare_exchange_weak(&worker->phase, &phase, called[phase])) {
    }
    return phase;
}

static void thread_wake(struct worker *worker)
{
    (void)syscall(SYS_futex, &worker->phase, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void worker_call(struct worker *worker)
{
    if (phase_call(worker) == WORKER_IDLE) {
        thread_wake(worker);
    }
}

/* Only LOOKING ends the sleep: the timer and wakeups without a reason may come while a network
 * thread has the worker. */
void worker_sleep(struct worker *worker, uint64_t until_ns)
{
    uint32_t phase;
    while ((phase = atomic_load(&worker->phase)) != WORKER_LOOKING) {
        struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                                 .tv_nsec = (long)(until_ns % NS_PER_S)};
        if (syscall(SYS_futex, &worker->phase, FUTEX_WAIT_BITSET_PRIVATE, phase,
                    until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY) < 0 &&
            errno == ETIMEDOUT) {
            (void)phase_call(worker);
            until_ns = UINT64_MAX;
        }
    }
}

bool worker_claim(struct worker *worker)
{
    uint32_t idle = WORKER_IDLE;
    return atomic_compare_exchange_strong(&worker->phase, &idle, WORKER_CLAIMED);
}

void worker_give_back(struct worker *worker)
{
    uint32_t claimed = WORKER_CLAIMED;
    if (!atomic_compare_exchange_strong(&worker->phase, &claimed, WORKER_IDLE)) {
        atomic_store(&worker->phase, WORKER_LOOKING); /* it was called meanwhile */
        thread_wake(worker);
    }
}

/* ---- waking -----------------------------------------------------------------------------------
 */

/* One on whose device nobody trains comes first, one that a network thread still has comes last. */
static uint32_t worker_rank(const struct worker *worker, uint32_t phase)
{
    bool trains = atomic_load_explicit(&worker->device->shared.training, memory_order_relaxed) != 0;
    return phase == WORKER_CLAIMED ? 1 : trains ? 2 : 3;
}

struct worker *worker_choose(const struct endpoint *endpoint, uint32_t *ret_looking)
{
    struct worker *best = NULL;
    uint32_t best_rank = 0;
    *ret_looking = 0;
    for (uint64_t left = endpoint_serving(endpoint); left != 0; left &= left - 1) {
        struct worker *worker = &endpoint->serve->workers[__builtin_ctzll(left)];
        uint32_t phase = atomic_load(&worker->phase);
        if (phase == WORKER_LOOKING || phase == WORKER_WANTED) {
            ++*ret_looking;
        } else if (phase != WORKER_RUNNING && worker_rank(worker, phase) > best_rank) {
            best_rank = worker_rank(worker, phase);
            best = worker;
        }
    }
    return best;
}

void endpoint_wake(struct endpoint *endpoint)
{
    uint32_t looking, phase = WORKER_RUNNING;
    while (called[phase] == phase) { /* else it was called, or somebody else did meanwhile */
        struct worker *worker = worker_choose(endpoint, &looking);
        uint64_t rows = atomic_load_explicit(&endpoint->waiting_rows, memory_order_relaxed);
        if (worker == NULL || rows <= (uint64_t)endpoint->batch_limit * looking) {
            return; /* all run and look when they have done, or those on their way suffice */
        }
        phase = phase_call(worker);
        if (phase == WORKER_IDLE) {
            thread_wake(worker);
        }
    }
}

static void held_flush(bool spare)
{
    for (uint32_t i = 0; i < held.count; i++) {
        if (!spare || held.count > 1 || !inline_run(held.endpoints[i])) {
            endpoint_wake(held.endpoints[i]);
        }
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
                held_flush(false);
            }
            return;
        }
    }
    if (held.count == HELD_MAX) {
        held_flush(false);
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

void endpoint_wakes_end(bool spare)
{
    held.active = false;
    held_flush(spare);
}
