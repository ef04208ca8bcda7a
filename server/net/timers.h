/* timers.h: one thread's timers in a binary heap; the nearest is at the root. Arming and
 * disarming cost O(log n) and no system call.
 * Owner:   struct timer lies in the object it belongs to; disarm before that goes away. */
#ifndef TIDEPOOL_NET_TIMERS_H
#define TIDEPOOL_NET_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer {
    uint64_t due_ns;
    size_t place; /* 0: not armed, else index in the heap + 1 */
    void (*fire)(struct timer *timer, uint64_t now_ns);
};

struct timers {
    struct timer **heap;
    size_t count, capacity;
};

void timers_fini(struct timers *timers);
/* (Re)arms `timer`. False: no memory, not armed. */
bool timer_arm(struct timers *timers, struct timer *timer, uint64_t due_ns);
void timer_disarm(struct timers *timers, struct timer *timer); /* fine when not armed */
/* Disarms and fires all that are due. */
void timers_run(struct timers *timers, uint64_t now_ns);
uint64_t timers_next_ns(const struct timers *timers); /* UINT64_MAX: none armed */

#endif
