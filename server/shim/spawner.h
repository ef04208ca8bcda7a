/* spawner.h: the process that starts shims. Forked before any thread begins, it alone keeps the
 * privileges that the server was started with; the server then becomes its own user
 * (server/base/user.h). As a plain user the same, without privileges.
 * Messages: start a shim, end what remains of a job, wake a stopped shim: no others. What it does
 *          is bound to the rules below, whatever the server says:
 *          - the job's directory lies below the rules', and the shim obeys the rules' owner alone;
 *          - a job of root needs a server of root;
 *          - what remains is ended by a record that a shim of ours has written.
 * Life:    ends when the server does; shims and their jobs go on. Whoever loses its parent below a
 *          shim that has died becomes its child while it lives, and is reaped.
 * Thread:  create: before any other; the rest: any, one at a time. Calls take some ms. */
#ifndef TIDEPOOL_SHIM_SPAWNER_H
#define TIDEPOOL_SHIM_SPAWNER_H

#include <sys/types.h>

#include "server/base/error.h"
#include "server/shim/remains.h"

struct spawner_rules {
    const char *program;   /* path of tidepool-shim */
    const char *directory; /* absolute */
    uid_t owner;           /* the user that the server is or will become */
};

struct spawner;

/* Copies the rules. */
int spawner_create(const struct spawner_rules *rules, struct spawner **ret_spawner,
                   struct error *error);
void spawner_destroy(struct spawner *spawner); /* NULL is fine */

/* `job` and `connection` become the shim's descriptors 3 and 4, `input` (-1: none) its 5; all stay
 * the caller's. UNAVAILABLE: the spawner is gone. */
int spawner_start(struct spawner *spawner, int job, int connection, int input, struct error *error);
/* One pass of remains_end by the record in `directory`. */
int spawner_end(struct spawner *spawner, const char *directory, enum remains *ret_remains,
                struct error *error);
/* SIGCONT to the shim of the record. */
int spawner_wake(struct spawner *spawner, const char *directory, struct error *error);

#endif
