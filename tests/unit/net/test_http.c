#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/net/http.h"

static void handle_ready(void *context, struct http_reply *reply)
{
    reply->body = strdup(context);
    reply->body_length = strlen(context);
    reply->content_type = "text/plain; version=0.0.4";
}

static void handle_down(void *context, struct http_reply *reply)
{
    (void)context;
    reply->status = 503;
}

static char answer[65536];

/* Sends all of `request`, reads until the server closes. */
static void http_ask(uint16_t port, const char *request)
{
    struct sockaddr_in name = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t length = 0;
    ssize_t count;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_true(send(fd, request, strlen(request), MSG_NOSIGNAL) > 0);
    while ((count = recv(fd, answer + length, sizeof answer - 1 - length, 0)) > 0) {
        length += (size_t)count;
    }
    answer[length] = '\0';
    close(fd);
}

static void routes_are_answered_and_the_rest_refused(void **state)
{
    static char body[] = "ready 1\n";
    const struct http_route routes[] = {{"/v2/health/ready", handle_ready, body},
                                        {"/down", handle_down, NULL}};
    struct error error = {0};
    uint16_t port = 0;
    (void)state;
    struct http_server *server = http_server_create(&error);
    assert_non_null(server);
    assert_int_equal(http_server_listen(server, "127.0.0.1:0", routes, 2, &port, &error), 0);
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%u", port);
    assert_int_equal(http_server_listen(server, taken, routes, 2, NULL, &error),
                     -ERROR_UNAVAILABLE);
    assert_int_equal(http_server_start(server, &error), 0);
    http_ask(port, "GET /v2/health/ready?x=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 200"));
    assert_non_null(strstr(answer, "version=0.0.4"));
    assert_non_null(strstr(answer, "\r\n\r\nready 1\n"));
    http_ask(port, "GET /down HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 503"));
    http_ask(port, "GET /other HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 404"));
    http_ask(port, "DELETE /down HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 405"));
    assert_non_null(strstr(answer, "Allow: GET"));
    http_server_destroy(server);
}

static void large_headers_and_bodies_are_refused(void **state)
{
    const struct http_route routes[] = {{"/down", handle_down, NULL}};
    static char request[64 * 1024];
    struct error error = {0};
    uint16_t port = 0;
    (void)state;
    struct http_server *server = http_server_create(&error);
    assert_non_null(server);
    assert_int_equal(http_server_listen(server, "127.0.0.1:0", routes, 1, &port, &error), 0);
    assert_int_equal(http_server_start(server, &error), 0);
    int length = snprintf(request, sizeof request, "GET /down HTTP/1.1\r\nX: ");
    memset(request + length, 'x', 40000);
    snprintf(request + length + 40000, 100, "\r\nConnection: close\r\n\r\n");
    http_ask(port, request);
    assert_null(strstr(answer, "HTTP/1.1 503"));
    http_ask(port, "POST /down HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 413"));
    http_server_destroy(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_are_answered_and_the_rest_refused),
        cmocka_unit_test(large_headers_and_bodies_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
