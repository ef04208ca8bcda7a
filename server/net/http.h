/* http.h: the little HTTP/1.1 that the server speaks itself (health, metrics, control as JSON), on
 * libevent's evhttp, on one thread of its own.
 * Routes:  one path each, or all paths below one. A page is written at once; a call is answered
 *          when its answer is there, from any thread.
 * Thread:  handlers run on that thread; they must not block and hold no lock of the data path. */
#ifndef TIDEPOOL_NET_HTTP_H
#define TIDEPOOL_NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

struct http_server;
struct http_call;

/* More is refused (413): of a page's request, of a call's. */
#define HTTP_PAGE_BODY_BYTES_MAX 4096
#define HTTP_CALL_BODY_BYTES_MAX (4u << 20)
/* Answers that wait for a client which does not read; more: it is cut off. */
#define HTTP_WAITING_BYTES_MAX (8u << 20)
/* Calls that wait for their answer at once; one more is answered 503. */
#define HTTP_CALLS_MAX 256

struct http_reply {
    int status;               /* 200 when left 0 */
    const char *content_type; /* a literal; "text/plain; charset=utf-8" when NULL */
    char *body;               /* malloc'ed, freed by the server; NULL: empty */
    size_t body_length;
};

/* Unknown paths are answered 404. */
struct http_route {
    const char *path; /* "/v2/health/live", exact; of a call: what its path begins with */
    /* A page: GET only, other methods are answered 405. */
    void (*handle)(void *context, struct http_reply *reply);
    void *context;
    /* Or a call, of any method. Valid until http_call_finish or http_call_reply, exactly one of
     * which ends it. */
    void (*take)(void *context, struct http_call *call);
};

struct http_server *http_server_create(struct error *error);
/* Routes must outlive the server. Addresses as in grpc.h (TCP only). Before start. */
int http_server_listen(struct http_server *server, const char *address,
                       const struct http_route *routes, size_t route_count, uint16_t *ret_port,
                       struct error *error);
int http_server_start(struct http_server *server, struct error *error);
/* NULL is fine. Waits until every call that was taken has been ended, joins the thread. */
void http_server_destroy(struct http_server *server);

/* ---- one call -------------------------------------------------------------------------------- */

/* Of the request; on the HTTP thread, while `take` runs. */
const char *http_call_method(const struct http_call *call); /* "GET", "POST"; "" another one */
const char *http_call_rest(const struct http_call *call);   /* of the path, behind the route's */
const char *http_call_header(const struct http_call *call, const char *name); /* NULL: none */
const char *http_call_body(const struct http_call *call, size_t *ret_length); /* NULL: empty */
/* Each name of the query with its value, decoded, until `each` returns other than 0, which is
 * returned. */
int http_call_query(const struct http_call *call,
                    int (*each)(void *context, const char *name, const char *value), void *context);
/* Once, on the HTTP thread, when the client is gone before the end. Set it while `take` runs. */
void http_call_on_gone(struct http_call *call, void (*callback)(void *arg), void *arg);

/* What is sent later goes through `print` on the HTTP thread, so that whoever answers need not
 * spend the time: parts, and bodies of status 200. It returns malloc'ed bytes, NULL: no memory.
 * `done` runs there last. While `take` runs. */
void http_call_print_with(struct http_call *call,
                          char *(*print)(void *arg, const char *bytes, size_t length,
                                         size_t *ret_length),
                          void (*done)(void *arg), void *arg);

/* The whole answer. Takes the body over. Any thread. */
void http_call_reply(struct http_call *call, struct http_reply *reply);
/* A part of an answer of status 200 and this type (a literal), which goes out at once. Takes over
 * `bytes`, malloc'ed. CANCELLED: the client is gone; RESOURCE_EXHAUSTED: it does not read. */
int http_call_send(struct http_call *call, const char *content_type, char *bytes, size_t length);
/* The end of an answer in parts. Takes over `last`, malloc'ed text that goes out as it is; NULL:
 * none. Any thread. */
void http_call_finish(struct http_call *call, char *last);

#endif
