/* A request's headers: what the protocol says in them, metadata, and what is refused by them. */
#include <stdio.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/net/call.h"
#include "server/net/server.h"
#include "server/net/timeout.h"

#define PATH_BYTES_SHOWN 256
#define HEADER_OVERHEAD 32 /* as SETTINGS_MAX_HEADER_LIST_SIZE counts */
/* So far over the header limit not even the names are looked at any more. */
#define HEADERS_HOPELESS 8

static const struct grpc_limits *limits_of(const struct grpc_call *call)
{
    return &call->loop->server->limits;
}

static bool text_is(const char *text, size_t length, const char *literal, size_t literal_length)
{
    return length == literal_length && memcmp(text, literal, length) == 0;
}
#define TEXT_IS(text, length, literal) text_is(text, length, literal, sizeof(literal) - 1)

static bool is_grpc_content(const char *value, size_t length)
{
    static const char type[] = "application/grpc";
    size_t type_length = sizeof type - 1;
    if (length < type_length || memcmp(value, type, type_length) != 0) {
        return false;
    }
    const char *rest = value + type_length;
    size_t rest_length = length - type_length;
    return rest_length == 0 || rest[0] == ';' || TEXT_IS(rest, rest_length, "+proto") ||
           (rest_length > 6 && memcmp(rest, "+proto;", 7) == 0);
}

static void path_take(struct grpc_call *call, const char *value, size_t length)
{
    const struct route *route = routes_find(&call->loop->server->routes, value, length);
    if (route != NULL && route->service_bit & call->connection->service_mask) {
        call->request.route = route;
        return;
    }
    size_t shown = length < PATH_BYTES_SHOWN ? length : PATH_BYTES_SHOWN;
    call->request.path = arena_copy(&call->arena, value, shown);
}

static void timeout_take(struct request *request, const char *value, size_t length)
{
    if (request->timeout_seen || timeout_parse(value, length, &request->timeout_ns) < 0) {
        request->timeout_broken = true;
    }
    request->timeout_seen = true;
}

/* True: a header of the protocol itself, not metadata. */
static bool protocol_header(struct grpc_call *call, const char *name, size_t name_length,
                            const char *value, size_t value_length)
{
    struct request *request = &call->request;
    if (name[0] == ':') {
        if (TEXT_IS(name, name_length, ":path")) {
            path_take(call, value, value_length);
        } else if (TEXT_IS(name, name_length, ":method")) {
            request->is_post = TEXT_IS(value, value_length, "POST");
        }
        return true;
    }
    if (TEXT_IS(name, name_length, "content-type")) {
        request->is_grpc = is_grpc_content(value, value_length);
    } else if (TEXT_IS(name, name_length, "grpc-timeout")) {
        timeout_take(request, value, value_length);
    } else if (TEXT_IS(name, name_length, "grpc-encoding")) {
        request->encoding = compression_parse(value, value_length);
    } else if (TEXT_IS(name, name_length, "grpc-accept-encoding")) {
        enum compression best = compression_choose(value, value_length);
        request->accepted = best > request->accepted ? best : request->accepted;
    } else {
        return TEXT_IS(name, name_length, "te");
    }
    return true;
}

static bool header_store(struct grpc_call *call, const char *name, size_t name_length,
                         const char *value, size_t value_length)
{
    struct request *request = &call->request;
    struct header *header = arena_allocate(&call->arena, sizeof *header);
    char *text = arena_allocate(&call->arena, name_length + value_length + 2);
    if (header == NULL || text == NULL) {
        return false;
    }
    memcpy(text, name, name_length);
    text[name_length] = '\0';
    memcpy(text + name_length + 1, value, value_length);
    text[name_length + 1 + value_length] = '\0';
    *header = (struct header){.name = text,
                              .name_length = name_length,
                              .value = text + name_length + 1,
                              .value_length = value_length};
    if (request->headers_last == NULL) {
        request->headers = header;
    } else {
        request->headers_last->next = header;
    }
    request->headers_last = header;
    return true;
}

/* Over the limit nothing is stored any more, so that the answer can still say why; -1 when it is
 * so far over that the stream is better reset. */
int request_header(struct grpc_call *call, const char *name, size_t name_length, const char *value,
                   size_t value_length)
{
    struct request *request = &call->request;
    size_t limit = limits_of(call)->header_list_bytes_max;
    request->header_bytes += name_length + value_length + HEADER_OVERHEAD;
    if (request->header_bytes > limit * HEADERS_HOPELESS ||
        (request->headers_done && request->header_bytes > limit * 2)) {
        LOOP_COUNT(call->loop, headers_too_large, 1);
        return -1;
    }
    if (request->header_bytes > limit) {
        request->headers_over = true;
    }
    if (request->headers_over || request->headers_done || name_length == 0) {
        return 0; /* request trailers mean nothing to us */
    }
    if (!protocol_header(call, name, name_length, value, value_length) &&
        !header_store(call, name, name_length, value, value_length)) {
        request->headers_over = true;
    }
    return 0;
}

static void headers_refuse(struct grpc_call *call)
{
    char text[128];
    LOOP_COUNT(call->loop, headers_too_large, 1);
    snprintf(text, sizeof text, "request headers of %zu bytes are over the limit of %u bytes",
             call->request.header_bytes, limits_of(call)->header_list_bytes_max);
    response_fail(call, ERROR_RESOURCE_EXHAUSTED, text);
    connection_glitch(call->connection);
}

static void path_refuse(struct grpc_call *call)
{
    char text[PATH_BYTES_SHOWN + 64];
    snprintf(text, sizeof text, "no method '%s' is offered here",
             call->request.path != NULL ? call->request.path : "");
    response_fail(call, ERROR_UNIMPLEMENTED, text);
}

void request_headers_done(struct grpc_call *call)
{
    struct request *request = &call->request;
    request->headers_done = true;
    call->headers_mark = arena_mark(&call->arena);
    if (request->headers_over) {
        headers_refuse(call);
    } else if (!request->is_post) {
        response_http(call, "405");
    } else if (!request->is_grpc) {
        response_http(call, "415");
    } else if (request->timeout_broken) {
        response_fail(call, ERROR_INTERNAL,
                      "grpc-timeout must be once 1 to 8 digits and a unit of H, M, S, m, u, n");
    } else if (request->route == NULL) {
        path_refuse(call);
    } else if (request->timeout_seen) {
        request->deadline_ns = clock_add_ns(request->begin_ns, request->timeout_ns);
        call_queue(call); /* arms the deadline if the message is not here by then */
    }
}
