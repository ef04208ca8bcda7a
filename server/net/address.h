/* address.h: "127.0.0.1:8001", "[::1]:0", "localhost:8001" or "unix:/path" to a listening socket.
 * Binds exactly what it is told. */
#ifndef TIDEPOOL_NET_ADDRESS_H
#define TIDEPOOL_NET_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/base/error.h"

struct listening {
    int fd;        /* non-blocking, close on exec */
    bool local;    /* a Unix socket */
    uint16_t port; /* what the kernel bound; 0 for a Unix socket */
};

int address_listen(const char *address, struct listening *ret_listening, struct error *error);
/* Closes it and removes a Unix socket's file. */
void address_close(struct listening *listening);

#endif
