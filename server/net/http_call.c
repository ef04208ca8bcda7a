/* http_call.c: requests whose answer comes later, from any thread, whole or in parts. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/keyvalq_struct.h>
#include <stdlib.h>
#include <string.h>

#include "server/net/http_server.h"

/* A piece of an answer on its way to the HTTP thread. */
struct part {
    struct letter letter; /* first */
    struct http_call *call;
    char *bytes; /* or NULL */
    size_t length;
    const char *content_type;
    int status;
    bool ends;
};

struct http_call {
    struct http_server *server;
    const struct http_route *route;
    struct evhttp_request *request; /* ours until the end, also when its connection is gone */
    bool begun, ending;             /* the HTTP thread's: parts, or the last of it, go out */
    struct part end;                /* so that an end needs no memory */
    char *(*print)(void *arg, const char *bytes, size_t length, size_t *ret_length);
    void (*done)(void *arg);
    void *arg;                     /* of both; set while the route takes the call */
    _Atomic uint64_t queued_bytes; /* in parts on their way here */
    _Atomic uint64_t output_bytes; /* of the connection, when it was last looked at */
    _Atomic bool gone;
    struct {
        pthread_mutex_t lock; /* held while on_gone runs; an end elsewhere waits for it */
        bool ended;
        void (*on_gone)(void *arg);
        void *gone_arg;
    } shared; /* under lock */
};

/* ---- on the HTTP thread ---- */

static void call_free(struct http_call *call)
{
    struct http_server *server = call->server;
    if (call->done != NULL) {
        call->done(call->arg);
    }
    pthread_mutex_destroy(&call->shared.lock);
    free(call);
    server->calls_open--;
    http_server_stop_if_over(server);
}

/* Its connection is gone. libevent leaves the request to us as long as it is not answered. */
static void on_close(struct evhttp_connection *connection, void *arg)
{
    struct http_call *call = arg;
    (void)connection;
    if (call->ending) {
        call_free(call);
        return;
    }
    atomic_store(&call->gone, true);
    pthread_mutex_lock(&call->shared.lock);
    if (!call->shared.ended && call->shared.on_gone != NULL) {
        void (*callback)(void *) = call->shared.on_gone;
        call->shared.on_gone = NULL;
        callback(call->shared.gone_arg);
    }
    pthread_mutex_unlock(&call->shared.lock);
}

void http_call_take(struct http_server *server, const struct http_route *route,
                    struct evhttp_request *request)
{
    struct http_call *call =
        server->calls_open < HTTP_CALLS_MAX && !server->stopping ? calloc(1, sizeof *call) : NULL;
    if (call == NULL) {
        struct http_reply busy = {.status = HTTP_SERVUNAVAIL};
        http_reply_send(request, &busy);
        return;
    }
    call->server = server;
    call->route = route;
    call->request = request;
    call->end.call = call;
    call->end.ends = true;
    pthread_mutex_init(&call->shared.lock, NULL);
    server->calls_open++;
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), on_close, call);
    route->take(route->context, call);
}

/* Of what was sent what goes out; false: no memory. */
static bool part_print(const struct http_call *call, struct part *part)
{
    if (call->print == NULL || part->bytes == NULL) {
        return true;
    }
    size_t length = 0;
    char *printed = call->print(call->arg, part->bytes, part->length, &length);
    free(part->bytes);
    part->bytes = printed;
    part->length = printed != NULL ? length : 0;
    return printed != NULL;
}

static void bytes_send(struct evhttp_request *request, const struct part *part)
{
    struct evbuffer *buffer = part->bytes != NULL ? evbuffer_new() : NULL;
    if (buffer != NULL && evbuffer_add(buffer, part->bytes, part->length) == 0) {
        evhttp_send_reply_chunk(request, buffer);
    }
    if (buffer != NULL) {
        evbuffer_free(buffer);
    }
}

/* All of it has gone out; the connection may bring another request. */
static void on_sent(struct evhttp_request *request, void *arg)
{
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), NULL, NULL);
    call_free(arg);
}

/* Frees the part's bytes. libevent frees the request: when all has gone out, and at once where its
 * connection is gone. */
static void end_send(struct http_call *call, struct part *part)
{
    struct evhttp_request *request = call->request;
    if (call->begun) {
        bytes_send(request, part);
        free(part->bytes);
        evhttp_send_reply_end(request);
        return;
    }
    bool whole = part->status != HTTP_OK || part_print(call, part);
    struct http_reply reply = {whole ? part->status : HTTP_INTERNAL, part->content_type,
                               part->bytes, part->length};
    http_reply_send(request, &reply);
}

/* The call (with the part, which is in it) lives until all has gone out: a server that stops waits
 * for that. */
static void call_end(struct http_call *call, struct part *part)
{
    bool gone = evhttp_request_get_connection(call->request) == NULL;
    call->ending = true;
    if (!gone) {
        evhttp_request_set_on_complete_cb(call->request, on_sent, call);
    }
    end_send(call, part);
    if (gone) {
        call_free(call);
    }
}

static void part_send(struct http_call *call, struct part *part)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(call->request);
    atomic_fetch_sub(&call->queued_bytes, part->length);
    part_print(call, part);
    if (!call->begun) {
        call->begun = true;
        http_headers_add(call->request, part->content_type);
        evhttp_send_reply_start(call->request, HTTP_OK, NULL);
    }
    bytes_send(call->request, part);
    if (connection != NULL) {
        struct bufferevent *bytes = evhttp_connection_get_bufferevent(connection);
        atomic_store(&call->output_bytes, evbuffer_get_length(bufferevent_get_output(bytes)));
    }
}

void http_call_mail(struct letter *letter)
{
    struct part *part = (struct part *)letter;
    if (part->ends) {
        call_end(part->call, part);
    } else {
        part_send(part->call, part);
        free(part->bytes);
        free(part);
    }
}

/* ---- from outside ---- */

const char *http_call_method(const struct http_call *call)
{
    switch (evhttp_request_get_command(call->request)) {
    case EVHTTP_REQ_GET:
        return "GET";
    case EVHTTP_REQ_POST:
        return "POST";
    default:
        return "";
    }
}

const char *http_call_rest(const struct http_call *call)
{
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(call->request));
    return path + strlen(call->route->path);
}

const char *http_call_header(const struct http_call *call, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(call->request), name);
}

const char *http_call_body(const struct http_call *call, size_t *ret_length)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(call->request);
    *ret_length = evbuffer_get_length(body);
    return *ret_length > 0 ? (const char *)evbuffer_pullup(body, -1) : NULL;
}

int http_call_query(const struct http_call *call,
                    int (*each)(void *context, const char *name, const char *value), void *context)
{
    const char *query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(call->request));
    struct evkeyvalq pairs = {0};
    int result = 0;
    if (query == NULL) {
        return 0;
    }
    if (evhttp_parse_query_str(query, &pairs) < 0) {
        return -ERROR_INVALID_ARGUMENT;
    }
    for (const struct evkeyval *pair = pairs.tqh_first; pair != NULL && result == 0;
         pair = pair->next.tqe_next) {
        result = each(context, pair->key, pair->value);
    }
    evhttp_clear_headers(&pairs);
    return result;
}

void http_call_print_with(struct http_call *call,
                          char *(*print)(void *arg, const char *bytes, size_t length,
                                         size_t *ret_length),
                          void (*done)(void *arg), void *arg)
{
    call->print = print;
    call->done = done;
    call->arg = arg;
}

void http_call_on_gone(struct http_call *call, void (*callback)(void *arg), void *arg)
{
    pthread_mutex_lock(&call->shared.lock);
    call->shared.on_gone = callback;
    call->shared.gone_arg = arg;
    pthread_mutex_unlock(&call->shared.lock);
}

int http_call_send(struct http_call *call, const char *content_type, char *bytes, size_t length)
{
    struct part *part = NULL;
    int result = -ERROR_RESOURCE_EXHAUSTED;
    uint64_t waiting = atomic_load(&call->queued_bytes) + atomic_load(&call->output_bytes);
    if (atomic_load(&call->gone)) {
        result = -ERROR_CANCELLED;
    } else if (waiting + length <= HTTP_WAITING_BYTES_MAX) {
        part = calloc(1, sizeof *part);
    }
    if (part == NULL) {
        free(bytes);
        return result;
    }
    *part =
        (struct part){.call = call, .bytes = bytes, .length = length, .content_type = content_type};
    atomic_fetch_add(&call->queued_bytes, length);
    mailbox_send(call->server->mailbox, &part->letter);
    return 0;
}

static void end_post(struct http_call *call)
{
    pthread_mutex_lock(&call->shared.lock);
    call->shared.ended = true;
    pthread_mutex_unlock(&call->shared.lock);
    mailbox_send(call->server->mailbox, &call->end.letter);
}

void http_call_reply(struct http_call *call, struct http_reply *reply)
{
    call->end.status = reply->status != 0 ? reply->status : HTTP_OK;
    call->end.content_type = reply->content_type;
    call->end.bytes = reply->body;
    call->end.length = reply->body_length;
    reply->body = NULL;
    end_post(call);
}

void http_call_finish(struct http_call *call, char *last)
{
    call->end.bytes = last;
    call->end.length = last != NULL ? strlen(last) : 0;
    call->end.status = HTTP_INTERNAL; /* of one without parts */
    end_post(call);
}
