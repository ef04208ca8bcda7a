/* pages.h: the server's HTTP pages: health on 8000, metrics on 8002.
 * Thread:  the HTTP thread; reads counters and copies, takes no lock of the data path. */
#ifndef TIDEPOOL_RPC_PAGES_H
#define TIDEPOOL_RPC_PAGES_H

#include "server/control/control.h"
#include "server/net/grpc.h"
#include "server/net/http.h"
#include "server/rpc/inference.h"
#include "server/serve/serve.h"

struct pages {
    struct serve *serve;
    struct control *control;
    struct grpc_server *grpc;
    const struct inference_context *inference;
    const char *version;
};

#define PAGES_HEALTH_COUNT 2
#define PAGES_METRICS_COUNT 1

/* Fills the routes; `pages` must outlive the HTTP server. */
void pages_health_routes(struct pages *pages, struct http_route routes[PAGES_HEALTH_COUNT]);
void pages_metrics_routes(struct pages *pages, struct http_route routes[PAGES_METRICS_COUNT]);

#endif
