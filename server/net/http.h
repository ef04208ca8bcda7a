/* http.h: the little HTTP/1.1 that the server speaks itself (health, metrics), on libevent's
 * evhttp, on one thread of its own.
 * Thread:  handlers run on that thread; they must not block and hold no lock of the data path. */
#ifndef TIDEPOOL_NET_HTTP_H
#define TIDEPOOL_NET_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

struct http_server;

struct http_reply {
    int status;               /* 200 when left 0 */
    const char *content_type; /* a literal; "text/plain; charset=utf-8" when NULL */
    char *body;               /* malloc'ed, freed by the server; NULL: empty */
    size_t body_length;
};

/* GET only: other methods on a known path are answered 405, unknown paths 404. */
struct http_route {
    const char *path; /* "/v2/health/live", exact */
    void (*handle)(void *context, struct http_reply *reply);
    void *context;
};

struct http_server *http_server_create(struct error *error);
/* Routes must outlive the server. Addresses as in grpc.h (TCP only). Before start. */
int http_server_listen(struct http_server *server, const char *address,
                       const struct http_route *routes, size_t route_count, uint16_t *ret_port,
                       struct error *error);
int http_server_start(struct http_server *server, struct error *error);
void http_server_destroy(struct http_server *server); /* NULL is fine; joins the thread */

#endif
