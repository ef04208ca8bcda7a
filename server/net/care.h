/* care.h: what keeps a connection honest: time-outs, keepalive, ping policy, floods, the drain. */
#ifndef TIDEPOOL_NET_CARE_H
#define TIDEPOOL_NET_CARE_H

#include "server/net/connection.h"

bool care_begin(struct connection *connection); /* false: no memory */
/* The client's PING: answers it, or ends the connection when they come too fast. */
void care_ping(struct connection *connection, const uint8_t *opaque);
void care_ping_answered(struct connection *connection);
/* The client reset a stream; too many end the connection. */
void care_reset(struct connection *connection);

#endif
