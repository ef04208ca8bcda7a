/* session.h: nghttp2's callbacks, which hand frames on to requests and responses. */
#ifndef TIDEPOOL_NET_SESSION_H
#define TIDEPOOL_NET_SESSION_H

#include <nghttp2/nghttp2.h>

#include "server/net/connection.h"

/* Shared by all sessions of a server; NULL: no memory. */
nghttp2_session_callbacks *session_callbacks_create(void);
nghttp2_option *session_option_create(const struct grpc_limits *limits);
/* A session with our SETTINGS queued; NULL: no memory. */
nghttp2_session *session_create(struct connection *connection);

#endif
