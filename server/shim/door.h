/* door.h: who may command a shim, and how: its socket (`socket` in its directory) and the
 * connection that it was started with.
 * Trust:   the peer's user is the server's, the shim's own or root (SO_PEERCRED), and its first
 *          message has the secret of the record. The connection from the start needs neither: it
 *          was inherited.
 * Fencing: a command carries its token's epoch and generation; one that is behind the record's is
 *          refused, so that a server from before changes nothing.
 * Peers:   the newest server has the say, the one before is closed; who does not read is closed
 *          too and may come again: the state is told on each connection.
 * Thread:  the shim's only one. */
#ifndef TIDEPOOL_SHIM_DOOR_H
#define TIDEPOOL_SHIM_DOOR_H

#include "server/shim/shim.h"

#define DOOR_GUESTS_MAX 4 /* connections that have not said who they are: the oldest goes */

struct door {
    struct shim *shim;
    uid_t owner;  /* the server's user */
    int epoll;    /* the loop's; its events carry descriptors */
    int listener; /* -1: not open */
    int server;   /* -1: none connected */
    int guests[DOOR_GUESTS_MAX];
};

void door_init(struct door *door, struct shim *shim, int epoll);
int door_open(struct door *door, const char *directory, uid_t owner, struct error *error);
/* The connection that the shim was started with; owned from here on. */
void door_welcome(struct door *door, int fd);
void door_fini(struct door *door);

/* Takes what is ready on one of its descriptors. False: the descriptor is none of its. */
bool door_ready(struct door *door, int fd);
/* For shim_listener: tell the server. */
void door_tell_state(void *arg, const struct shim *shim);
void door_tell_outcome(void *arg, const struct shim_outcome *outcome);

#endif
