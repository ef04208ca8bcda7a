/* clock.h: the process's clocks. The core never calls these: its time comes in events. */
#ifndef TIDEPOOL_BASE_CLOCK_H
#define TIDEPOOL_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

uint64_t clock_now_ns(void);        /* CLOCK_MONOTONIC */
uint64_t clock_wall_ns(void);       /* CLOCK_REALTIME, since 1970 */
uint64_t clock_thread_cpu_ns(void); /* CPU time of the calling thread */
/* a + b that stops at UINT64_MAX: deadlines from outside never wrap. */
uint64_t clock_add_ns(uint64_t a, uint64_t b);

/* A clock that runs `speed` times as fast as the machine's from `begin_ns` on, where both show the
 * same: for a world that is played, not lived in. */
struct clock_pace {
    uint64_t begin_ns, begin_wall_ns;
    double speed; /* > 0 */
};
void clock_pace_begin(struct clock_pace *pace, double speed); /* now */
uint64_t clock_pace_now_ns(const struct clock_pace *pace);
uint64_t clock_pace_wall_ns(const struct clock_pace *pace);
/* How long the machine takes for so long a time of this clock; rounded up. */
uint64_t clock_pace_machine_ns(const struct clock_pace *pace, uint64_t span_ns);

#endif
