/* server.h: the inside of struct grpc_server. */
#ifndef TIDEPOOL_NET_SERVER_H
#define TIDEPOOL_NET_SERVER_H

#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdatomic.h>

#include "server/net/address.h"
#include "server/net/loop.h"
#include "server/net/routes.h"

/* Accepted on loop 0, which gives each connection to the loop that has the fewest. */
struct listener {
    struct listener *next;
    struct grpc_server *server;
    struct listening listening;
    uint64_t service_mask;
    struct event accept_event;
    struct timer pause_timer; /* out of descriptors: accepting goes on after a while */
};

struct grpc_server {
    struct grpc_limits limits;
    struct routes routes;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct listener *listeners;
    struct loop *loops;
    unsigned loop_count;
    bool started, draining;         /* the thread that starts and drains */
    _Atomic uint64_t request_bytes; /* of calls not yet freed */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        unsigned loops_drained;
    } shared;
};

/* listener.c; on loop 0's thread, or before it runs. */
struct listener *listener_create(struct grpc_server *server, const char *address,
                                 uint64_t service_mask, struct error *error);
int listener_start(struct listener *listener);
void listener_stop(struct listener *listener); /* accepts no more; the socket is closed */
void listener_destroy(struct listener *listener);
/* A loop's thread: its connections are all closed. */
void server_loop_drained(struct grpc_server *server);

#endif
