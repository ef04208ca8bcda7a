/* remains.h: ends what is left of a job whose shim is dead or answers no more, by the shim's
 * record.
 * Certain: with a control group; or while the shim, stopped, still holds the tree together. Where
 *          both are gone, processes are found by the job's mark in their environment and by its
 *          session, and who has shed both is not seen: UNSURE, and the job's devices stay
 *          quarantined.
 * Thread:  any; blocks for some tens of ms. */
#ifndef TIDEPOOL_SHIM_REMAINS_H
#define TIDEPOOL_SHIM_REMAINS_H

#include "server/shim/record.h"

enum remains {
    REMAINS_EMPTY,  /* verified: nobody of it lives */
    REMAINS_LIVE,   /* killed, but not gone yet: call again */
    REMAINS_UNSURE, /* nobody is found, which proves nothing */
};

/* One pass: kills all that it finds, the shim last. */
enum remains remains_end(const struct shim_record *record);

#endif
