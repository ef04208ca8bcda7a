#include "server/rpc/pages.h"

#include <stdlib.h>
#include <string.h>

#include "server/observe/metrics.h"
#include "server/rpc/metrics.h"

static void reply_text(struct http_reply *reply, int status, const char *text)
{
    reply->status = status;
    reply->body = strdup(text);
    reply->body_length = reply->body != NULL ? strlen(text) : 0;
}

/* Alive: this thread answers, and the process with it. */
static void handle_live(void *context, struct http_reply *reply)
{
    (void)context;
    reply_text(reply, 200, "live\n");
}

static void handle_ready(void *context, struct http_reply *reply)
{
    const struct pages *pages = context;
    if (serve_ready(pages->serve)) {
        reply_text(reply, 200, "ready\n");
    } else {
        reply_text(reply, 503,
                   serve_draining(pages->serve) ? "not ready: draining\n"
                                                : "not ready: models are being loaded\n");
    }
}

static void handle_metrics(void *context, struct http_reply *reply)
{
    reply->content_type = METRICS_CONTENT_TYPE;
    reply->body = metrics_write(context, &reply->body_length);
    if (reply->body == NULL) {
        reply->content_type = NULL;
        reply_text(reply, 500, "no memory for the page\n");
    }
}

void pages_health_routes(struct pages *pages, struct http_route routes[PAGES_HEALTH_COUNT])
{
    routes[0] = (struct http_route){"/v2/health/live", handle_live, pages};
    routes[1] = (struct http_route){"/v2/health/ready", handle_ready, pages};
}

void pages_metrics_routes(struct pages *pages, struct http_route routes[PAGES_METRICS_COUNT])
{
    routes[0] = (struct http_route){"/metrics", handle_metrics, pages};
}
