/* Time-outs, limits on connections, who calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "tests/unit/net/client.h"
#include "tests/unit/net/echo.h"

/* Long enough for a busy machine: only what is meant to be late may be. */
static void short_handshake(struct grpc_limits *limits)
{
    limits->handshake_timeout_ms = 1000;
}

static void short_body(struct grpc_limits *limits)
{
    limits->body_timeout_ms = 400;
}

static void short_write(struct grpc_limits *limits)
{
    limits->write_timeout_ms = 200;
}

static void short_keepalive(struct grpc_limits *limits)
{
    limits->keepalive_time_ms = 200;
    limits->keepalive_timeout_ms = 1500;
}

static void few(struct grpc_limits *limits)
{
    limits->connections_max = 2;
    limits->calls_max = 3;
    limits->request_bytes_max = 100000;
}

static void compressing(struct grpc_limits *limits)
{
    limits->compress_responses_over_bytes = 1000;
}

static void silent_connection_is_cut(void **state)
{
    struct echo echo;
    (void)state;
    echo_start(&echo, 1, short_handshake);
    struct client *client = client_connect(echo.port);
    assert_int_equal(client_echo(client, "/test.Echo/Unary", "x")->grpc_status, 0);
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    assert_int_equal(getpeername(client->fd, (struct sockaddr *)&name, &length), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, length), 0);
    char bytes[256];
    ssize_t count;
    while ((count = recv(fd, bytes, sizeof bytes, 0)) > 0) {
    }
    assert_int_equal(count, 0);
    close(fd);
    assert_int_equal(client_echo(client, "/test.Echo/Unary", "y")->grpc_status, 0);
    assert_int_equal(echo_counters(&echo).connections_timed_out, 1);
    client_close(client);
    echo_stop(&echo);
}

static void message_that_does_not_come_ends_its_call_only(void **state)
{
    struct echo echo;
    static const unsigned char part[] = {0, 0, 0, 0, 9, 'a'};
    (void)state;
    echo_start(&echo, 1, short_body);
    struct client *client = client_connect(echo.port);
    struct client_request request = {
        .path = "/test.Echo/Unary", .body = part, .length = sizeof part, .keep_open = true};
    struct client_reply *reply = client_wait(client, client_call(client, &request));
    assert_int_equal(reply->grpc_status, ERROR_CANCELLED);
    assert_int_equal(client_echo(client, "/test.Echo/Unary", "y")->grpc_status, 0);
    client_close(client);
    echo_stop(&echo);
}

static void answer_that_is_not_read_is_given_up(void **state)
{
    struct echo echo;
    (void)state;
    echo_start(&echo, 1, short_write);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct client *first = client_connect(echo.port);
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    assert_int_equal(getpeername(first->fd, (struct sockaddr *)&name, &length), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, length), 0);
    struct client *client = client_connect_fd(fd, 1000); /* a window that is never opened */
    struct client_reply *reply = client_echo(client, "/test.Echo/Large", "\x01");
    assert_int_equal(reply->close_code, NGHTTP2_CANCEL);
    assert_int_equal(reply->length, 1000);
    client_close(client);
    client_close(first);
    echo_stop(&echo);
}

static void wide(struct grpc_limits *limits)
{
    limits->window_bytes = 64u << 20;
}

/* Each answer is one frame, and the frame that waits for the socket is none that has begun: the
 * deadline must not take its message away. */
static void deadline_while_a_frame_waits_for_the_reader_resets_the_stream(void **state)
{
    static const size_t frames = 1024, frame_bytes = 16384;
    struct echo echo;
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    const int small = 4096;
    (void)state;
    echo_start(&echo, 1, wide);
    struct client *first = client_connect(echo.port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(getpeername(first->fd, (struct sockaddr *)&name, &length), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, length), 0);
    struct client *client = client_connect_fd(fd, 64 << 20);
    nghttp2_session_set_local_window_size(client->session, NGHTTP2_FLAG_NONE, 0, 64 << 20);
    assert_int_equal(client_echo(client, "/test.Echo/Unary", "x")->grpc_status, 0);

    size_t message_length;
    unsigned char *message = client_message(frame_bytes - 5, &message_length);
    unsigned char *body = malloc(frames * frame_bytes);
    assert_non_null(body);
    for (size_t i = 0; i < frames; i++) {
        memcpy(body + i * frame_bytes, message, message_length);
    }
    struct client_request request = {.path = "/test.Echo/PingPong",
                                     .body = body,
                                     .length = frames * frame_bytes,
                                     .keep_open = true,
                                     .timeout = "3S"};
    int32_t id = client_call(client, &request);
    client_flush(client); /* and nothing is read */
    uint64_t limit_ns = clock_now_ns() + 30 * NS_PER_S;
    while (echo_counters(&echo).calls_deadline_exceeded == 0) {
        assert_true(clock_now_ns() < limit_ns);
        client_read(first, 10);
    }
    struct client_reply *reply = client_wait(client, id);
    assert_int_equal(reply->close_code, NGHTTP2_CANCEL);
    assert_true(reply->length < frames * frame_bytes);
    assert_int_equal(client_echo(client, "/test.Echo/Unary", "y")->grpc_status, 0);
    free(message);
    free(body);
    client_close(client);
    client_close(first);
    echo_stop(&echo);
}

static void dead_peer_is_found_by_keepalive(void **state)
{
    struct echo echo;
    (void)state;
    echo_start(&echo, 1, short_keepalive);
    struct client *alive = client_connect(echo.port);
    struct client *dead = client_connect(echo.port);
    assert_int_equal(client_echo(dead, "/test.Echo/Unary", "x")->grpc_status, 0);
    uint64_t limit_ns = clock_now_ns() + 10 * NS_PER_S;
    while (echo_counters(&echo).connections_timed_out == 0) { /* `dead` answers no PING */
        assert_true(clock_now_ns() < limit_ns);
        client_read(alive, 10);
    }
    assert_int_equal(client_echo(alive, "/test.Echo/Unary", "y")->grpc_status, 0);
    client_close(alive);
    client_close(dead);
    echo_stop(&echo);
}

static void connections_calls_and_bytes_have_a_bound(void **state)
{
    struct echo echo;
    (void)state;
    echo_start(&echo, 1, few);
    struct client *one = client_connect(echo.port);
    struct client *two = client_connect(echo.port);
    assert_int_equal(client_echo(one, "/test.Echo/Unary", "x")->grpc_status, 0);
    assert_int_equal(client_echo(two, "/test.Echo/Unary", "x")->grpc_status, 0);
    struct client *three = client_connect(echo.port);
    client_wait_end(three);
    client_close(three);
    assert_int_equal(echo_counters(&echo).connections_refused, 1);

    size_t length;
    unsigned char *body = client_message(1, &length);
    struct client_request hold = {.path = "/test.Echo/Hold", .body = body, .length = length};
    for (int i = 0; i < 3; i++) {
        client_call(one, &hold);
    }
    client_flush(one);
    echo_wait_held(&echo, 3);
    assert_int_equal(client_wait(one, client_call(one, &hold))->close_code, NGHTTP2_REFUSED_STREAM);
    echo_release_held(&echo);
    free(body);
    for (int32_t id = 3; id <= 7; id += 2) {
        assert_int_equal(client_wait(one, id)->grpc_status, 0);
    }

    body = client_message(100001, &length);
    struct client_request large = {.path = "/test.Echo/Unary", .body = body, .length = length};
    assert_int_equal(client_wait(one, client_call(one, &large))->grpc_status,
                     ERROR_RESOURCE_EXHAUSTED);
    assert_int_equal(client_echo(one, "/test.Echo/Unary", "x")->grpc_status, 0);
    assert_int_equal(echo_counters(&echo).request_bytes_held, 0);
    free(body);
    client_close(one);
    client_close(two);
    echo_stop(&echo);
}

static void responses_are_compressed_where_asked_for(void **state)
{
    struct echo echo;
    (void)state;
    echo_start(&echo, 1, compressing);
    struct client *client = client_connect(echo.port);
    size_t length;
    unsigned char *body = client_message(5000, &length);
    const struct client_header accept = {"grpc-accept-encoding", "identity,deflate,gzip"};
    struct client_request request = {.path = "/test.Echo/Unary",
                                     .body = body,
                                     .length = length,
                                     .headers = &accept,
                                     .header_count = 1};
    struct client_reply *reply = client_wait(client, client_call(client, &request));
    assert_int_equal(reply->grpc_status, 0);
    assert_string_equal(reply->encoding, "gzip");
    assert_int_equal(reply->data[0], 1);
    assert_true(reply->length < 200);
    request.header_count = 0;
    reply = client_wait(client, client_call(client, &request));
    assert_int_equal(reply->data[0], 0);
    assert_int_equal(reply->length, length);
    free(body);
    client_close(client);
    echo_stop(&echo);
}

static uint32_t seen_uid, seen_pid;
static bool seen;

static void handle_who(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    (void)message;
    (void)context;
    seen = grpc_call_peer(call, &seen_uid, &seen_pid);
    grpc_call_finish(call, ERROR_NOT_FOUND, NULL);
}

static void peer_of_a_unix_socket_is_known(void **state)
{
    static const struct grpc_method methods[] = {{"Who", GRPC_UNARY, NULL, handle_who}};
    const struct grpc_service services[] = {{"test.Who", methods, 1, NULL},
                                            {"test.Hidden", methods, 1, NULL}};
    char directory[] = "/tmp/tidepool-net-XXXXXX";
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char address[128];
    struct error error = {0};
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(name.sun_path, sizeof name.sun_path, "%s/s", directory);
    snprintf(address, sizeof address, "unix:%s", name.sun_path);
    struct grpc_server *server = grpc_server_create(1, &grpc_limits_default, services, 2, &error);
    assert_int_equal(grpc_server_listen(server, address, 1, NULL, &error), 0);
    assert_int_equal(grpc_server_start(server, &error), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    struct client *client = client_connect_fd(fd, 0);
    assert_int_equal(client_echo(client, "/test.Who/Who", "")->grpc_status, ERROR_NOT_FOUND);
    assert_true(seen);
    assert_int_equal(seen_uid, getuid());
    assert_int_equal(seen_pid, getpid());
    assert_int_equal(client_echo(client, "/test.Hidden/Who", "")->grpc_status,
                     ERROR_UNIMPLEMENTED); /* not in this listener's mask */
    client_close(client);
    grpc_server_destroy(server);
    assert_int_equal(rmdir(directory), 0); /* the socket's file is gone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_connection_is_cut),
        cmocka_unit_test(message_that_does_not_come_ends_its_call_only),
        cmocka_unit_test(answer_that_is_not_read_is_given_up),
        cmocka_unit_test(deadline_while_a_frame_waits_for_the_reader_resets_the_stream),
        cmocka_unit_test(dead_peer_is_found_by_keepalive),
        cmocka_unit_test(connections_calls_and_bytes_have_a_bound),
        cmocka_unit_test(responses_are_compressed_where_asked_for),
        cmocka_unit_test(peer_of_a_unix_socket_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
