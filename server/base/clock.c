#include "server/base/clock.h"

#include <time.h>

static uint64_t clock_read(clockid_t id)
{
    struct timespec now;
    (void)clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

uint64_t clock_wall_ns(void)
{
    return clock_read(CLOCK_REALTIME);
}

uint64_t clock_thread_cpu_ns(void)
{
    return clock_read(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_add_ns(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
