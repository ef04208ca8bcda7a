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

void clock_pace_begin(struct clock_pace *pace, double speed)
{
    *pace = (struct clock_pace){clock_now_ns(), clock_wall_ns(), speed};
}

static uint64_t paced(const struct clock_pace *pace, uint64_t machine_ns)
{
    return pace->speed == 1 ? machine_ns : (uint64_t)((double)machine_ns * pace->speed);
}

uint64_t clock_pace_now_ns(const struct clock_pace *pace)
{
    return pace->begin_ns + paced(pace, clock_now_ns() - pace->begin_ns);
}

uint64_t clock_pace_wall_ns(const struct clock_pace *pace)
{
    return pace->speed == 1 ? clock_wall_ns()
                            : pace->begin_wall_ns + paced(pace, clock_now_ns() - pace->begin_ns);
}

uint64_t clock_pace_machine_ns(const struct clock_pace *pace, uint64_t span_ns)
{
    return pace->speed == 1 ? span_ns : (uint64_t)((double)span_ns / pace->speed) + 1;
}
