/* ranks.h: what is known of a job's ranks: who is here, and how far each is.
 * Use:     the listener (progress.h) tells it what it hears; others read.
 * Memory:  80 bytes a rank, at most PROGRESS_RANKS_MAX of them.
 * Units:   *_s are seconds, *_ns nanoseconds of the listener's clock.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_PROGRESS_RANKS_H
#define TIDEPOOL_PROGRESS_RANKS_H

#include "server/progress/line.h"

struct rank {
    uint32_t connections;      /* that are open */
    uint32_t can_pause;        /* of them */
    int64_t step;              /* steps done; -1: never told */
    int64_t checkpointed_step; /* -1: never told */
    double step_s;             /* moving average; NaN: not known */
    double waiting_s;          /* within `observed_s`; older ones fade */
    double observed_s;
    uint64_t told_ns; /* when it last told a step; 0: not since it stood still */
};

struct ranks {
    struct rank *table;
    uint32_t count;     /* as the job says */
    uint32_t allocated; /* some beyond `count` may still be connected */
};

void ranks_fini(struct ranks *ranks);
/* A rank has said hello and how many there are (0: it did not say). Negative: no memory. */
int ranks_join(struct ranks *ranks, uint32_t rank, uint32_t count, bool can_pause);
void ranks_leave(struct ranks *ranks, uint32_t rank, bool can_pause);

/* A rank's progress, heard at `now_ns`. A smaller step than before is a job that went back to its
 * checkpoint: it counts. */
void ranks_step(struct ranks *ranks, uint32_t rank, const struct progress_message *message,
                uint64_t now_ns);
/* It stands still: that time is no time of its steps. */
void ranks_stand(struct ranks *ranks, uint32_t rank);

struct ranks_figures {
    uint32_t ranks, here, can_pause; /* `here`: with a connection */
    int64_t step; /* the highest of those that are here, of all when nobody is; -1: none */
    int64_t checkpointed_step; /* the lowest of those that tell one; -1: none */
    double waiting_fraction;   /* of the time, over the ranks that tell it; NaN: none does */
    double step_s;             /* the middle one of the ranks; NaN: not known */
    double slowest_step_s;     /* of the slowest rank; NaN: not known */
    uint32_t slowest;
};
void ranks_figures(const struct ranks *ranks, struct ranks_figures *ret_figures);

#endif
