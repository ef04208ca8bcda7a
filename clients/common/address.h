/* address.h: where a server listens, as text, and the sockets that may reach it.
 * Forms:   "HOST:PORT", "[IPV6]:PORT", "unix:PATH", or a path that begins with '/'.
 * Errors:  0 or a negative enum error_code; the text names the address and how to write one.
 * Thread:  plain values; resolving a host name may block. */
#ifndef TIDEPOOL_CLIENTS_ADDRESS_H
#define TIDEPOOL_CLIENTS_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "server/base/error.h"

#define ADDRESS_CANDIDATES_MAX 8

struct address {
    char text[256];      /* as given */
    char authority[256]; /* the :authority header: "host:port", or "localhost" for a socket file */
    unsigned candidate_count;
    struct {
        struct sockaddr_storage storage;
        socklen_t length;
    } candidates[ADDRESS_CANDIDATES_MAX];
};

int address_resolve(const char *text, struct address *ret_address, struct error *error);

/* A socket that is connecting (or has connected) to the candidate; -1 with errno set. */
int address_connect(const struct address *address, unsigned candidate);

/* Where the command line looks for a server when nobody says where: the environment's
 * TIDEPOOL_SERVER, else the first socket file that exists of /run/tidepool/tidepool.sock and
 * tidepool.sock in the state directory; else the first of these two. Writes into `text`. */
void address_default(char *text, size_t size);

#endif
