/* echo.h: a service for tests, `test.Echo`, and a server that offers it.
 *   Unary      gives the message back, on the network thread
 *   Later      the same, from a worker thread
 *   Hold       keeps the call until echo_release_held; counts cancels
 *   Fail       status and text from the message: first byte is the status, the rest the text
 *   Metadata   header and trailer x-echo: the values of the request's x-value
 *   Count      server stream: as many messages as the first byte says, each of 1 KiB
 *   Flood      server stream: sends 64 KiB messages until refused, then ends OK
 *   Sum        client stream: the sum of the message lengths as text
 *   PingPong   two-way: each message back at once
 *   Empty      unary that finishes OK without a message
 *   Spare      gives the message back when `go` is set; counts what it is told about its thread
 *   Large      unary: a message of as many MiB as the first byte says */
#ifndef TIDEPOOL_TESTS_NET_ECHO_H
#define TIDEPOOL_TESTS_NET_ECHO_H

#include "server/net/grpc.h"

struct echo {
    struct grpc_server *server;
    uint16_t port;
    void *worker; /* struct echo_worker */
    struct grpc_call *held[4096];
    size_t held_count;
    _Atomic unsigned held_seen, cancels, handled;
    _Atomic uint64_t flood_sent;
    _Atomic bool go;
    _Atomic unsigned waiting, spare, busy;
};

/* One for a test process; `adjust` may change the limits. */
void echo_start(struct echo *echo, unsigned threads, void (*adjust)(struct grpc_limits *limits));
void echo_stop(struct echo *echo);
void echo_wait_held(struct echo *echo, unsigned count);
void echo_wait_waiting(struct echo *echo, unsigned count); /* in Spare */
void echo_wait_cancels(struct echo *echo, unsigned count);
void echo_release_held(struct echo *echo); /* answers all held calls from this thread */
struct grpc_counters echo_counters(struct echo *echo);

#endif
