/* pause.h: one request to stand still at an agreed step, and who has answered it.
 * Rule:    a rank stops before step S began, or answers that S has begun already; then a later S is
 *          agreed, and whoever stood already goes on until that. So no rank stands while another
 *          waits for it inside a collective.
 * Who:     each process that was asked, by rank and pid: one that has left without standing still
 *          leaves the request unanswered.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_PROGRESS_PAUSE_H
#define TIDEPOOL_PROGRESS_PAUSE_H

#include <sys/types.h>

#include "server/progress/line.h"

struct asked {
    uint32_t rank;
    pid_t pid; /* as the kernel says */
    bool stands;
};

struct pause {
    uint64_t request; /* 0: nobody is to stand still */
    int64_t step;
    unsigned moves; /* how often a later step had to be agreed */
    struct asked *asked;
    size_t count, capacity;
};

void pause_fini(struct pause *pause);
/* S: the step before which all are to stop. */
void pause_begin(struct pause *pause, uint64_t request, int64_t step);
void pause_end(struct pause *pause);
/* Once more is fine. Negative: no memory, or more than two processes a rank. */
int pause_ask(struct pause *pause, uint32_t rank, pid_t pid);
/* False: an answer to another request, to an earlier step, or of nobody who was asked. */
bool pause_stands(struct pause *pause, const struct progress_message *message, uint32_t rank,
                  pid_t pid);
/* A rank has begun `step` already. True: all are to be told the new step. */
bool pause_late(struct pause *pause, uint64_t request, int64_t step);
/* There is a request, and all that were asked stand. */
bool pause_complete(const struct pause *pause);

#endif
