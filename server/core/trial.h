/* trial.h: a change tried before it is made. The core is cloned, the change is played into the
 * clone, and then virtual time up to a horizon, with a shell that answers everything: models load,
 * holders let go in the time that their rung took so far, or within their notice. Load stays as it
 * is, jobs run on and are heard of, nothing fails. The same without the change tells which moves
 * would come anyway.
 *
 * Thread: the core's. Owner: the caller; nothing here points into the core that was asked. */
#ifndef TIDEPOOL_CORE_TRIAL_H
#define TIDEPOOL_CORE_TRIAL_H

#include "server/core/core.h"

struct core_trial_config {
    uint64_t horizon_ns; /* how far it looks */
    uint64_t place_ns;   /* until a model is loaded or unloaded */
    uint64_t answer_ns;  /* until a grant, a verification or a kill is done */
    uint64_t steps_max;  /* of the core; it looks no further then */
};

struct core_trial_move {
    struct core_explanation explanation; /* its time_ns is on the core's clock */
    bool anyway;                         /* it comes without the change too */
};

struct core_trial; /* opaque */

/* The changes are events, their times are not looked at. NULL: no memory. */
struct core_trial *core_trial_run(const struct core *core, const struct core_event *changes,
                                  size_t count, const struct core_trial_config *config);
void core_trial_destroy(struct core_trial *trial); /* NULL is fine */

/* In the order of time, without the turns that serving and training take on a device. */
const struct core_trial_move *core_trial_moves(const struct core_trial *trial, size_t *ret_count);
const struct core *core_trial_core(const struct core_trial *trial); /* as it is at the horizon */
/* Of the first change that was refused; NONE. */
enum core_reason core_trial_refused(const struct core_trial *trial);
/* From the change until the move; until it stopped looking. */
uint64_t core_trial_after_ns(const struct core_trial *trial, const struct core_trial_move *move);
uint64_t core_trial_looked_ns(const struct core_trial *trial);
/* From the change until the lease has its minimum; UINT64_MAX: not up to the horizon. */
uint64_t core_trial_start_ns(const struct core_trial *trial, uint64_t lease);

#endif
