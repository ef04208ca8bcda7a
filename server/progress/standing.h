/* standing.h: the notice that stands, with copies of what it points to.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_PROGRESS_STANDING_H
#define TIDEPOOL_PROGRESS_STANDING_H

#include "server/progress/line.h"

struct standing {
    bool there;
    struct progress_notice notice;
};

int standing_set(struct standing *standing, const struct progress_notice *notice);
void standing_end(struct standing *standing);
uint64_t standing_now_ns(void); /* CLOCK_BOOTTIME, as its deadline */

#endif
