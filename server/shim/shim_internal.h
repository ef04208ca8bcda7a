/* shim_internal.h: what the parts of a shim share: begin.c starts the job, pursuit.c stops and ends
 * its tree, command.c does what the server says, shim.c keeps time and state. */
#ifndef TIDEPOOL_SHIM_SHIM_INTERNAL_H
#define TIDEPOOL_SHIM_SHIM_INTERNAL_H

#include "server/shim/shim.h"

#define PIN_LOOK_NS UINT64_C(1000000000) /* threads that have strayed are put back so often */

void shim_record_keep(struct shim *shim); /* on disk; tried again later when that cannot be */
void shim_move(struct shim *shim, enum shim_state state);
void shim_group_end(struct shim *shim);

bool shim_childless(void);
bool shim_all_gone(const struct shim *shim); /* nobody below lives */
int shim_thaw_all(struct shim *shim);        /* 0 or -errno */

/* One at a time; a new one answers the one before. `command` 0: nobody waits. */
void pursuit_begin(struct shim *shim, enum shim_goal goal, uint64_t command, uint64_t bound_ns);
void pursuit_answer(struct shim *shim, enum error_code code, const char *text);
void pursuit_push(struct shim *shim); /* a few ms at most */

#endif
