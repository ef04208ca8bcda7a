/* The thread that answers requests whose time runs out while they wait and whose submitter does
 * not watch the clock itself, and those for which no instance came. */
#include <stdlib.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/serve/state.h"

void timer_at(struct serve *serve, uint64_t at_ns)
{
    /* In one order with the caller's request and the timer's look: one of the two sees the other.
     */
    if (at_ns >= atomic_load(&serve->timer.next_ns)) {
        return; /* it looks earlier, and then sees for itself */
    }
    (void)pthread_mutex_lock(&serve->timer.lock);
    if (at_ns < atomic_load(&serve->timer.next_ns)) {
        atomic_store(&serve->timer.next_ns, at_ns);
        (void)pthread_cond_signal(&serve->timer.changed);
    }
    (void)pthread_mutex_unlock(&serve->timer.lock);
}

static void timer_look(struct serve *serve)
{
    size_t count = serve_endpoints(serve, NULL, 0);
    struct endpoint **endpoints = calloc(count > 0 ? count : 1, sizeof(*endpoints));
    uint64_t now_ns = clock_now_ns(), next_ns = UINT64_MAX;
    size_t held;
    if (endpoints == NULL) {
        log_write(LOG_WARN, "serve", "no memory to look for expired requests", "endpoints=%zu",
                  count);
        timer_at(serve, now_ns + NS_PER_S);
        return;
    }
    held = serve_endpoints(serve, endpoints, count);
    if (held > count) {
        next_ns = now_ns; /* one more has come meanwhile: look at once again */
        held = count;
    }
    for (size_t i = 0; i < held; i++) {
        uint64_t at_ns = endpoint_expire(endpoints[i], now_ns);
        next_ns = at_ns < next_ns ? at_ns : next_ns;
        endpoint_release(endpoints[i]);
    }
    free(endpoints);
    timer_at(serve, next_ns);
}

void *timer_main(void *arg)
{
    struct serve *serve = arg;
    (void)pthread_setname_np(pthread_self(), "serve-timer");
    (void)pthread_mutex_lock(&serve->timer.lock);
    while (!serve->timer.stopping) {
        uint64_t next_ns = atomic_load(&serve->timer.next_ns);
        if (next_ns == UINT64_MAX) {
            (void)pthread_cond_wait(&serve->timer.changed, &serve->timer.lock);
        } else if (next_ns > clock_now_ns()) {
            struct timespec until = {.tv_sec = (time_t)(next_ns / NS_PER_S),
                                     .tv_nsec = (long)(next_ns % NS_PER_S)};
            (void)pthread_cond_timedwait(&serve->timer.changed, &serve->timer.lock, &until);
        } else {
            atomic_store(&serve->timer.next_ns, UINT64_MAX);
            (void)pthread_mutex_unlock(&serve->timer.lock);
            timer_look(serve);
            (void)pthread_mutex_lock(&serve->timer.lock);
        }
    }
    (void)pthread_mutex_unlock(&serve->timer.lock);
    return NULL;
}
