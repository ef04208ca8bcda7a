/* connection.h: one HTTP/2 connection: bytes in and out, its care (time-outs, pings, floods).
 * Owner:   its loop; freed in loop_settle or by its timer, never inside an nghttp2 callback.
 * Calls:   nghttp2 forgets to report the streams of a session that is deleted, so each connection
 *          keeps a list of its calls. A call outlives its stream until its handler has finished
 *          it, and then knows no connection: a late answer never reaches for a stream. */
#ifndef TIDEPOOL_NET_CONNECTION_H
#define TIDEPOOL_NET_CONNECTION_H

#include <nghttp2/nghttp2.h>
#include <sys/types.h>

#include "server/net/loop.h"
#include "server/net/rate.h"

struct grpc_call;

/* Where a connection's bytes pass; as recv and send: -1 with errno, EAGAIN when it would block. */
struct transport {
    ssize_t (*receive)(struct connection *connection, void *bytes, size_t length);
    ssize_t (*send)(struct connection *connection, const void *bytes, size_t length);
};

enum connection_state {
    CONNECTION_OPEN,
    CONNECTION_CLOSING,   /* nothing more is read; closes when the output is out */
    CONNECTION_LINGERING, /* all is sent; waits shortly for the peer to read it and close */
};

struct connection {
    struct loop *loop;
    struct connection *next, *previous; /* of the loop */
    struct connection *dirty_next;
    bool dirty;
    int fd;
    const struct transport *transport;
    nghttp2_session *session;
    struct event read_event, write_event;
    enum connection_state state;
    bool handshaken; /* preface and SETTINGS have come */
    bool broken;     /* no sense in writing any more; freed at the next settling */
    struct grpc_call *calls;
    struct grpc_call *recent; /* the call of the last header block */
    unsigned char *rest;      /* what the socket would not take */
    size_t rest_length, rest_sent;
    uint64_t output_bytes; /* messages of all calls that wait */
    size_t unconsumed;     /* received, not yet given back to the connection's window */
    uint64_t service_mask;
    bool has_peer;
    uint32_t uid, pid;
    uint64_t begin_ns, read_ns, progress_ns;
    uint64_t keepalive_ns; /* when the unanswered PING was sent; 0: none */
    uint64_t ping_ns;      /* last PING of the client; 0: none since we last sent something */
    uint32_t ping_strikes;
    uint64_t goaway_due_ns; /* draining: when the second GOAWAY goes out at the latest; 0: none */
    struct rate resets, glitches;
    struct timer timer;
};

/* Takes over `fd`. Closes it when there is no memory. */
void connection_open(struct loop *loop, const struct arrival *arrival);
/* The connection has something to write: flushed at the next settling. */
void connection_mark(struct connection *connection);
void connection_flush(struct connection *connection); /* may free it */
/* Sends GOAWAY with `code`, then closes. */
void connection_refuse(struct connection *connection, uint32_t code, const char *debug);
void connection_drain(struct connection *connection, uint64_t timeout_ms);
/* Draining: the client has seen the notice; new streams stop here. */
void connection_drain_last(struct connection *connection);
/* Ends what is left with UNAVAILABLE, then closes. */
void connection_abort(struct connection *connection);
void connection_free(struct connection *connection); /* at once */
/* Something odd was received; too much of it ends the connection. False: it does. */
bool connection_glitch(struct connection *connection);

#endif
