/* http_server.h: what the HTTP server's files share. Inside net/http*.c only. */
#ifndef TIDEPOOL_NET_HTTP_SERVER_H
#define TIDEPOOL_NET_HTTP_SERVER_H

#include <event2/event.h>
#include <event2/http.h>
#include <pthread.h>
#include <stdatomic.h>

#include "server/base/mailbox.h"
#include "server/net/address.h"
#include "server/net/http.h"

struct http_listener {
    struct http_listener *next;
    struct http_server *server;
    struct evhttp *http;
    const struct http_route *routes;
    size_t route_count;
    struct listening listening;
};

struct http_server {
    struct event_base *base;
    struct event *mail_event;
    struct mailbox *mailbox;
    size_t calls_open; /* the HTTP thread's, as the next */
    bool stopping;
    struct letter stop_letter;
    struct http_listener *listeners;
    pthread_t thread;
    bool started;
};

/* http.c: the answer and the end of a request. Takes the body over. */
void http_reply_send(struct evhttp_request *request, struct http_reply *reply);
void http_headers_add(struct evhttp_request *request, const char *content_type);

/* http.c: ends the thread's loop once the server stops and no call is open. */
void http_server_stop_if_over(struct http_server *server);

/* http_call.c, on the HTTP thread. */
void http_call_take(struct http_server *server, const struct http_route *route,
                    struct evhttp_request *request);
void http_call_mail(struct letter *letter); /* a piece of an answer */

#endif
