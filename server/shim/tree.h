/* tree.h: all processes below one, found by their parents: a subreaper's orphans come back to it,
 * so that nobody leaves by forking twice or by a session of its own.
 * Signals: through a pidfd whose start time was checked, never to a number that may be somebody
 *          else's by now; STOP and KILL also to each process group that begins within the tree,
 *          which the kernel does in one step: who forks faster than we look is caught too.
 * Thread:  one. */
#ifndef TIDEPOOL_SHIM_TREE_H
#define TIDEPOOL_SHIM_TREE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/shim/process.h"

struct tree {
    pid_t root;    /* never signalled itself */
    pid_t session; /* the root's: groups in it are not the tree's */
    struct process_list members;
};

void tree_init(struct tree *tree, pid_t root);
void tree_fini(struct tree *tree);

/* Looks again. 0, or a negative error: then the members are not known. */
int tree_look(struct tree *tree);
/* To each member once; the number that could not be signalled (another user's). */
size_t tree_signal(const struct tree *tree, int signal);
/* Looks and stops until nobody new is found, three times at most: 1 when all stand still, 0 when
 * not yet, or a negative error. */
int tree_stop(struct tree *tree);
/* Stops all that is found, so that a room of processes that they may have stays taken, then kills.
 */
int tree_kill(struct tree *tree);
bool tree_quiet(const struct tree *tree);
size_t tree_live(const struct tree *tree); /* zombies not counted */

/* Puts all threads on these cores, also those that come while it looks. 0, or a negative error;
 * ABORTED: threads came faster than it looked. */
int tree_pin(struct tree *tree, const cpu_set_t *cpus);

/* "0-3,5" */
int cpus_parse(const char *text, cpu_set_t *ret_cpus, struct error *error);

#endif
