#include "server/net/http.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/base/log.h"
#include "server/net/http_server.h"

#define HEADER_BYTES_MAX 16384
#define TIMEOUT_S 10
#define ALL_METHODS                                                                                \
    (EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |     \
     EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE | EVHTTP_REQ_CONNECT | EVHTTP_REQ_PATCH)

static const struct http_route *route_find(const struct http_listener *listener, const char *path)
{
    for (size_t i = 0; path != NULL && i < listener->route_count; i++) {
        const struct http_route *route = &listener->routes[i];
        if (route->take != NULL ? strncmp(route->path, path, strlen(route->path)) == 0
                                : strcmp(route->path, path) == 0) {
            return route;
        }
    }
    return NULL;
}

static void body_free(const void *data, size_t length, void *arg)
{
    (void)data;
    (void)length;
    free(arg);
}

void http_headers_add(struct evhttp_request *request, const char *content_type)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Content-Type",
                      content_type != NULL ? content_type : "text/plain; charset=utf-8");
    evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
}

void http_reply_send(struct evhttp_request *request, struct http_reply *reply)
{
    struct evbuffer *body = evbuffer_new();
    bool whole = body != NULL;
    if (whole && reply->body != NULL) {
        whole = evbuffer_add_reference(body, reply->body, reply->body_length, body_free,
                                       reply->body) == 0;
        reply->body = whole ? NULL : reply->body; /* the buffer's now */
    }
    free(reply->body);
    http_headers_add(request, reply->content_type);
    evhttp_send_reply(request, whole ? (reply->status != 0 ? reply->status : 200) : 500, NULL,
                      body);
    if (body != NULL) {
        evbuffer_free(body);
    }
}

void http_server_stop_if_over(struct http_server *server)
{
    if (server->stopping && server->calls_open == 0) {
        event_base_loopbreak(server->base);
    }
}

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *server = arg;
    struct letter *letter = mailbox_take(server->mailbox);
    (void)fd;
    (void)what;
    while (letter != NULL) {
        struct letter *next = letter->next;
        if (letter == &server->stop_letter) {
            server->stopping = true;
        } else {
            http_call_mail(letter);
        }
        letter = next;
    }
    http_server_stop_if_over(server);
}

static void on_request(struct evhttp_request *request, void *arg)
{
    const struct http_listener *listener = arg;
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const struct http_route *route =
        uri == NULL ? NULL : route_find(listener, evhttp_uri_get_path(uri));
    struct http_reply reply = {0};
    if (route != NULL && route->take != NULL) {
        http_call_take(listener->server, route, request);
        return;
    }
    if (route == NULL) {
        reply.status = HTTP_NOTFOUND;
    } else if (evhttp_request_get_command(request) != EVHTTP_REQ_GET) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", "GET");
        reply.status = HTTP_BADMETHOD;
    } else {
        route->handle(route->context, &reply);
    }
    http_reply_send(request, &reply);
}

struct http_server *http_server_create(struct error *error)
{
    struct http_server *server = calloc(1, sizeof *server);
    if (server == NULL) {
        goto no_memory;
    }
    server->base = event_base_new();
    server->mailbox = mailbox_create();
    if (server->base == NULL || server->mailbox == NULL) {
        goto no_memory;
    }
    server->mail_event =
        event_new(server->base, mailbox_fd(server->mailbox), EV_READ | EV_PERSIST, on_mail, server);
    if (server->mail_event == NULL || event_add(server->mail_event, NULL) < 0) {
        goto no_memory;
    }
    return server;
no_memory:
    error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory or descriptors for the HTTP server");
    http_server_destroy(server);
    return NULL;
}

static ev_ssize_t body_bytes_max(const struct http_route *routes, size_t count)
{
    bool calls = false;
    for (size_t i = 0; i < count; i++) {
        calls = calls || routes[i].take != NULL;
    }
    return calls ? HTTP_CALL_BODY_BYTES_MAX : HTTP_PAGE_BODY_BYTES_MAX;
}

int http_server_listen(struct http_server *server, const char *address,
                       const struct http_route *routes, size_t route_count, uint16_t *ret_port,
                       struct error *error)
{
    if (strncmp(address, "unix:", 5) == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "listen on '%s': HTTP takes host:port only",
                         address);
    }
    struct listening listening = {.fd = -1};
    int result = address_listen(address, &listening, error);
    if (result < 0) {
        return result;
    }
    struct http_listener *listener = calloc(1, sizeof *listener);
    struct evhttp *http = evhttp_new(server->base);
    if (listener == NULL || http == NULL || evhttp_accept_socket(http, listening.fd) < 0) {
        free(listener);
        if (http != NULL) {
            evhttp_free(http);
        }
        address_close(&listening);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "listen on '%s': no memory", address);
    }
    *listener = (struct http_listener){.next = server->listeners,
                                       .server = server,
                                       .http = http,
                                       .routes = routes,
                                       .route_count = route_count,
                                       .listening = listening};
    server->listeners = listener;
    evhttp_set_max_headers_size(http, HEADER_BYTES_MAX);
    evhttp_set_max_body_size(http, body_bytes_max(routes, route_count));
    evhttp_set_timeout(http, TIMEOUT_S);
    evhttp_set_allowed_methods(http, ALL_METHODS); /* so that we say 405 ourselves */
    evhttp_set_gencb(http, on_request, listener);
    if (ret_port != NULL) {
        *ret_port = listening.port;
    }
    return 0;
}

static void *http_main(void *arg)
{
    struct http_server *server = arg;
    pthread_setname_np(pthread_self(), "tide-http");
    if (event_base_dispatch(server->base) < 0) {
        log_write(LOG_ERROR, "http", "event loop ended", "listeners=all");
    }
    return NULL;
}

int http_server_start(struct http_server *server, struct error *error)
{
    int failure = pthread_create(&server->thread, NULL, http_main, server);
    if (failure != 0) {
        return error_set_errno(error, failure, "start the HTTP thread");
    }
    server->started = true;
    return 0;
}

void http_server_destroy(struct http_server *server)
{
    if (server == NULL) {
        return;
    }
    if (server->started) {
        mailbox_send(server->mailbox, &server->stop_letter);
        pthread_join(server->thread, NULL);
    }
    while (server->listeners != NULL) {
        struct http_listener *listener = server->listeners;
        server->listeners = listener->next;
        evhttp_free(listener->http); /* closes the socket too */
        free(listener);
    }
    if (server->mail_event != NULL) {
        event_free(server->mail_event);
    }
    if (server->base != NULL) {
        event_base_free(server->base);
    }
    mailbox_destroy(server->mailbox);
    free(server);
}
