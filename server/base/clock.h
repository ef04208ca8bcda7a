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

#endif
