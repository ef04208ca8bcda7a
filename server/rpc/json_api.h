/* json_api.h: the control API as JSON over HTTP (docs/control-api.md): POST /tidepool/v1/<Call>,
 * GET too for what only reads; the same handlers as by gRPC. Who:     reads: everybody who reaches
 * the listener; changes: who sends the token. A web page in a browser of this machine is a
 * stranger: an allowed Host, no foreign Origin, a body of type application/json. Thread:  requests
 * are read and answers printed on the HTTP thread; calls run on the control thread. Wiring:  create
 * after the control service; destroy after the HTTP server, before that service. */
#ifndef TIDEPOOL_RPC_JSON_API_H
#define TIDEPOOL_RPC_JSON_API_H

#include "server/net/http.h"
#include "server/rpc/control.h"

struct json_api;

struct json_api_options {
    struct control_service *service;
    /* Host names beside those of the loopback that a request may be for; outlive the API. */
    const char *const *hosts;
    size_t host_count;
};

struct json_api *json_api_create(const struct json_api_options *options, struct error *error);
void json_api_destroy(struct json_api *api); /* NULL is fine */
struct http_route json_api_route(struct json_api *api);

/* Whether a Host header's value ("localhost:8000") may be asked. For the tests. */
bool json_api_host_allowed(const struct json_api *api, const char *host);

#endif
