/* A real server on a port of the kernel's choice, and a client made of nghttp2. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/base/clock.h"
#include "tests/unit/net/client.h"
#include "tests/unit/net/echo.h"

#define MIB (1024 * 1024)

static void tight(struct grpc_limits *limits)
{
    limits->message_bytes_max = 64 * 1024;
    limits->send_bytes_max = 2 * MIB;
    limits->output_bytes_max = 4 * MIB;
    limits->ping_interval_min_ms = 10000;
}

static int echo_setup(void **state)
{
    struct echo *echo = malloc(sizeof *echo);
    assert_non_null(echo);
    echo_start(echo, 2, tight);
    *state = echo;
    return 0;
}

static int echo_teardown(void **state)
{
    echo_stop(*state);
    free(*state);
    return 0;
}

static void assert_echoed(const struct client_reply *reply, const char *text)
{
    assert_string_equal(reply->http_status, "200");
    assert_int_equal(reply->grpc_status, 0);
    assert_int_equal(reply->length, strlen(text) + 5);
    assert_memory_equal(reply->data + 5, text, strlen(text));
    assert_int_equal(reply->close_code, 0);
}

static void unary_call_is_answered_on_the_network_thread(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    assert_echoed(client_echo(client, "/test.Echo/Unary", "hello"), "hello");
    assert_echoed(client_echo(client, "/test.Echo/Unary", ""), "");
    client_close(client);
}

static void unary_call_is_answered_from_another_thread(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    for (int i = 0; i < 100; i++) {
        assert_echoed(client_echo(client, "/test.Echo/Later", "later"), "later");
    }
    client_close(client);
}

static void thousand_calls_at_once_are_all_answered(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    size_t length;
    unsigned char *body = client_message(2000, &length);
    int32_t ids[1000];
    for (int i = 0; i < 1000; i++) {
        struct client_request request = {.path = i % 2 ? "/test.Echo/Later" : "/test.Echo/Unary",
                                         .body = body,
                                         .length = length};
        ids[i] = client_call(client, &request);
    }
    for (int i = 0; i < 1000; i++) {
        struct client_reply *reply = client_wait(client, ids[i]);
        assert_int_equal(reply->grpc_status, 0);
        assert_int_equal(reply->length, length);
        assert_memory_equal(reply->data, body, length);
    }
    free(body);
    client_close(client);
}

static void message_may_come_in_any_split_of_frames(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    for (size_t chunk = 1; chunk < 12; chunk++) {
        size_t length;
        unsigned char *body = client_message(40, &length);
        struct client_request request = {
            .path = "/test.Echo/Unary", .body = body, .length = length, .chunk = chunk};
        struct client_reply *reply = client_wait(client, client_call(client, &request));
        assert_int_equal(reply->grpc_status, 0);
        assert_memory_equal(reply->data, body, length);
        free(body);
    }
    client_close(client);
}

/* Two connections become readable while the one thread is in a handler of the third. */
static void a_handler_is_told_whether_others_wait_for_its_thread(void **state)
{
    struct echo echo;
    struct client *clients[3];
    int32_t ids[3];
    size_t length;
    unsigned char *body = client_message(1, &length);
    const struct client_request request = {
        .path = "/test.Echo/Spare", .body = body, .length = length};
    (void)state;
    echo_start(&echo, 1, NULL);
    for (size_t i = 0; i < 3; i++) {
        clients[i] = client_connect(echo.port);
        assert_echoed(client_echo(clients[i], "/test.Echo/Unary", "on"), "on");
    }
    for (size_t i = 0; i < 3; i++) {
        ids[i] = client_call(clients[i], &request);
        client_flush(clients[i]);
        echo_wait_waiting(&echo, 1); /* the first one is in its handler */
    }
    atomic_store(&echo.go, true);
    for (size_t i = 0; i < 3; i++) {
        assert_echoed(client_wait(clients[i], ids[i]), "x");
        client_close(clients[i]);
    }
    assert_int_equal(atomic_load(&echo.spare), 2); /* the first one, and the last */
    assert_int_equal(atomic_load(&echo.busy), 1);
    echo_stop(&echo);
    free(body);
}

static void unknown_method_is_one_headers_frame_with_status_12(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    const char *paths[] = {"/test.Echo/Nothing", "/no.Service/Unary", "/", "/x", "*"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0] - 1; i++) {
        struct client_reply *reply = client_echo(client, paths[i], "x");
        assert_string_equal(reply->http_status, "200");
        assert_int_equal(reply->grpc_status, ERROR_UNIMPLEMENTED);
        assert_int_equal(reply->header_blocks, 1);
        assert_true(reply->ended_by_headers);
        assert_int_equal(reply->length, 0);
    }
    client_close(client);
}

static void what_is_not_grpc_is_refused_by_http_status(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    struct client_request text = {
        .path = "/test.Echo/Unary", .content_type = "text/plain", .no_body = true};
    struct client_request web = {
        .path = "/test.Echo/Unary", .content_type = "application/grpc-web", .no_body = true};
    struct client_request json = {
        .path = "/test.Echo/Unary", .content_type = "application/grpc+json", .no_body = true};
    struct client_request get = {.path = "/", .method = "GET", .no_body = true};
    assert_string_equal(client_wait(client, client_call(client, &text))->http_status, "415");
    assert_string_equal(client_wait(client, client_call(client, &web))->http_status, "415");
    assert_string_equal(client_wait(client, client_call(client, &json))->http_status, "415");
    assert_string_equal(client_wait(client, client_call(client, &get))->http_status, "405");
    client_close(client);
}

static void status_text_arrives_percent_encoded(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    struct client_reply *reply = client_echo(client, "/test.Echo/Fail", "5\xC3\xA9\n\"x\"% \xFF");
    assert_int_equal(reply->grpc_status, 5);
    assert_string_equal(reply->text, "%C3%A9%0A\"x\"%25 %EF%BF%BD");
    assert_string_equal(reply->retry_pushback, "250");
    assert_int_equal(reply->header_blocks, 1);
    char text[4000];
    memset(text, 'n', sizeof text - 1);
    text[0] = '3';
    text[sizeof text - 1] = '\0';
    reply = client_echo(client, "/test.Echo/Fail", text);
    assert_int_equal(reply->grpc_status, 3);
    assert_int_equal(strlen(reply->text), 1024);
    client_close(client);
}

static void metadata_of_one_name_is_joined(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    size_t length;
    unsigned char *body = client_message(1, &length);
    const struct client_header headers[] = {
        {"x-value", "one"}, {"x-other", "no"}, {"x-value", "two"}, {"x-value", ""}};
    struct client_request request = {.path = "/test.Echo/Metadata",
                                     .body = body,
                                     .length = length,
                                     .headers = headers,
                                     .header_count = 4};
    struct client_reply *reply = client_wait(client, client_call(client, &request));
    assert_int_equal(reply->grpc_status, 0);
    assert_string_equal(reply->echoed, "one,two,");
    free(body);
    client_close(client);
}

static void request_without_exactly_one_whole_message_is_an_error(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    static const unsigned char two[] = {0, 0, 0, 0, 1, 'a', 0, 0, 0, 0, 1, 'b'};
    static const unsigned char cut[] = {0, 0, 0, 0, 9, 'a'};
    static const unsigned char flag[] = {7, 0, 0, 0, 1, 'a'};
    const struct {
        const unsigned char *body;
        size_t length;
    } bodies[] = {{two, sizeof two}, {cut, sizeof cut}, {cut, 3}, {flag, sizeof flag}, {NULL, 0}};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct client_request request = {
            .path = "/test.Echo/Unary", .body = bodies[i].body, .length = bodies[i].length};
        struct client_reply *reply = client_wait(client, client_call(client, &request));
        assert_int_equal(reply->grpc_status, ERROR_INTERNAL);
    }
    struct client_request none = {.path = "/test.Echo/Unary", .no_body = true};
    assert_int_equal(client_wait(client, client_call(client, &none))->grpc_status, ERROR_INTERNAL);
    assert_int_equal(atomic_load(&echo->handled), 0);
    assert_echoed(client_echo(client, "/test.Echo/Unary", "still"), "still");
    client_close(client);
}

static void message_over_the_limit_is_refused_by_its_prefix(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    static const unsigned char huge[] = {0, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    struct client_request request = {
        .path = "/test.Echo/Unary", .body = huge, .length = sizeof huge, .keep_open = true};
    struct client_reply *reply = client_wait(client, client_call(client, &request));
    assert_int_equal(reply->grpc_status, ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(reply->text, "4294967295"));
    assert_non_null(strstr(reply->text, "65536"));
    assert_int_equal(reply->close_code, NGHTTP2_NO_ERROR);
    size_t length;
    unsigned char *body = client_message(64 * 1024 + 1, &length);
    struct client_request over = {.path = "/test.Echo/Unary", .body = body, .length = length};
    reply = client_wait(client, client_call(client, &over));
    assert_int_equal(reply->grpc_status, ERROR_RESOURCE_EXHAUSTED);
    assert_echoed(client_echo(client, "/test.Echo/Unary", "next"), "next");
    assert_int_equal(echo_counters(echo).messages_too_large, 2);
    free(body);
    client_close(client);
}

static void response_over_the_limit_is_a_status(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    struct client_reply *reply = client_echo(client, "/test.Echo/Large", "\x03");
    assert_int_equal(reply->grpc_status, ERROR_RESOURCE_EXHAUSTED);
    assert_int_equal(reply->length, 0);
    assert_non_null(strstr(reply->text, "3145728"));
    assert_non_null(strstr(reply->text, "2097152"));
    reply = client_echo(client, "/test.Echo/Large", "\x02");
    assert_int_equal(reply->grpc_status, 0);
    assert_int_equal(reply->length, 2 * MIB + 5);
    assert_int_equal(client_echo(client, "/test.Echo/Empty", "")->grpc_status, ERROR_INTERNAL);
    client_close(client);
}

static void compressed_messages_are_inflated_within_the_limit(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    static const unsigned char flagged[] = {1, 0, 0, 0, 3, 'a', 'b', 'c'};
    const struct {
        const char *encoding;
        int status;
    } cases[] = {{"snappy", ERROR_UNIMPLEMENTED},
                 {"identity", ERROR_INTERNAL},
                 {"gzip", ERROR_INTERNAL},
                 {"deflate", ERROR_INTERNAL},
                 {NULL, ERROR_INTERNAL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct client_header header = {"grpc-encoding", cases[i].encoding};
        struct client_request request = {.path = "/test.Echo/Unary",
                                         .body = flagged,
                                         .length = sizeof flagged,
                                         .headers = &header,
                                         .header_count = cases[i].encoding != NULL};
        struct client_reply *reply = client_wait(client, client_call(client, &request));
        assert_int_equal(reply->grpc_status, cases[i].status);
        if (cases[i].status == ERROR_UNIMPLEMENTED) {
            assert_string_equal(reply->accept_encoding, "identity,deflate,gzip");
        }
    }
    client_close(client);
}

static void timeout_header_is_honoured_or_refused(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    size_t length;
    unsigned char *body = client_message(1, &length);
    static const struct {
        const char *value;
        int status;
    } cases[] = {
        {"99999999H", 0},
        {"1H", 0},
        {"1M", 0},
        {"10S", 0},
        {"0S", ERROR_DEADLINE_EXCEEDED},
        {"1n", ERROR_DEADLINE_EXCEEDED},
        {"100000000S", ERROR_INTERNAL},
        {"-1S", ERROR_INTERNAL},
        {"1.5S", ERROR_INTERNAL},
        {"1s", ERROR_INTERNAL},
        {"S", ERROR_INTERNAL},
        {"", ERROR_INTERNAL},
        {"1 S", ERROR_INTERNAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct client_request request = {
            .path = "/test.Echo/Unary", .body = body, .length = length, .timeout = cases[i].value};
        assert_int_equal(client_wait(client, client_call(client, &request))->grpc_status,
                         cases[i].status);
    }
    const struct client_header second = {"grpc-timeout", "1S"};
    struct client_request twice = {.path = "/test.Echo/Unary",
                                   .body = body,
                                   .length = length,
                                   .timeout = "1S",
                                   .headers = &second,
                                   .header_count = 1};
    assert_int_equal(client_wait(client, client_call(client, &twice))->grpc_status, ERROR_INTERNAL);
    free(body);
    client_close(client);
}

static void deadline_is_answered_and_cancels_the_handler(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    size_t length;
    unsigned char *body = client_message(1, &length);
    struct client_request request = {
        .path = "/test.Echo/Hold", .body = body, .length = length, .timeout = "300m"};
    struct client_reply *reply = client_wait(client, client_call(client, &request));
    assert_int_equal(reply->grpc_status, ERROR_DEADLINE_EXCEEDED);
    echo_wait_cancels(echo, 1);
    assert_true(grpc_call_cancelled(echo->held[0]));
    assert_int_equal(echo_counters(echo).calls_deadline_exceeded, 1);
    struct client_request slow = {
        .path = "/test.Echo/Unary", .body = body, .length = 3, .timeout = "30m", .keep_open = true};
    assert_int_equal(client_wait(client, client_call(client, &slow))->grpc_status,
                     ERROR_DEADLINE_EXCEEDED);
    free(body);
    client_close(client);
}

static void reset_by_the_client_cancels_the_handler(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    size_t length;
    unsigned char *body = client_message(1, &length);
    struct client_request request = {.path = "/test.Echo/Hold", .body = body, .length = length};
    int32_t id = client_call(client, &request);
    client_flush(client);
    echo_wait_held(echo, 1);
    nghttp2_submit_rst_stream(client->session, 0, id, NGHTTP2_CANCEL);
    client_flush(client);
    echo_wait_cancels(echo, 1);
    echo_release_held(echo); /* the late answer is dropped */
    assert_echoed(client_echo(client, "/test.Echo/Unary", "on"), "on");
    assert_int_equal(echo_counters(echo).calls_cancelled, 1);
    free(body);
    client_close(client);
}

static void client_that_dies_with_calls_in_flight_cancels_them(void **state)
{
    struct echo *echo = *state;
    size_t length;
    unsigned char *body = client_message(100, &length);
    struct client_request request = {.path = "/test.Echo/Hold", .body = body, .length = length};
    for (unsigned round = 1; round <= 5; round++) {
        struct client *client = client_connect(echo->port);
        for (int i = 0; i < 50; i++) {
            client_call(client, &request);
        }
        client_flush(client);
        echo_wait_held(echo, 50 * round);
        unsigned before = atomic_load(&echo->cancels);
        client_close(client);
        if (round % 2 == 0) {
            echo_wait_cancels(echo, before + 50);
        } /* in the other rounds the answers race with the cancels */
        echo_release_held(echo);
    }
    free(body);
}

static void server_stream_sends_all_its_messages(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    struct client_reply *reply = client_echo(client, "/test.Echo/Count", "\xC8");
    assert_int_equal(reply->grpc_status, 0);
    assert_int_equal(reply->length, 200 * 1029);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(reply->data[i * 1029 + 5], i);
    }
    client_close(client);
}

static void slow_reader_is_bounded(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    struct client_reply *reply = client_echo(client, "/test.Echo/Flood", "x");
    assert_int_equal(reply->grpc_status, 0);
    uint64_t sent = atomic_load(&echo->flood_sent);
    assert_true(sent <= 4 * MIB && sent > 3 * MIB);
    client_close(client);
}

static void client_stream_gets_one_answer_after_the_half_close(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    static const unsigned char body[] = {0, 0, 0, 0, 2, 'a', 'b', 0,   0,   0,
                                         0, 0, 0, 0, 0, 0,   3,   'c', 'd', 'e'};
    for (size_t chunk = 0; chunk < 9; chunk++) {
        struct client_request request = {
            .path = "/test.Echo/Sum", .body = body, .length = sizeof body, .chunk = chunk};
        struct client_reply *reply = client_wait(client, client_call(client, &request));
        assert_int_equal(reply->grpc_status, 0);
        assert_int_equal(reply->length, 6);
        assert_int_equal(reply->data[5], '5');
    }
    client_close(client);
}

static void two_way_stream_answers_while_it_receives(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    static const unsigned char one[] = {0, 0, 0, 0, 1, 'a'};
    static const unsigned char over[] = {0, 0, 2, 0, 0, 'a'};
    struct client_request request = {.path = "/test.Echo/PingPong", .keep_open = true};
    int32_t id = client_call(client, &request);
    for (size_t i = 1; i <= 10; i++) {
        client_body(client, id, one, sizeof one, false);
        client_wait_data(client, id, i * sizeof one);
    }
    client_body(client, id, NULL, 0, true);
    assert_int_equal(client_wait(client, id)->grpc_status, 0);
    id = client_call(client, &request);
    client_body(client, id, one, sizeof one, false);
    client_wait_data(client, id, sizeof one);
    client_body(client, id, over, sizeof over, false); /* a later message over the limit */
    assert_int_equal(client_wait(client, id)->grpc_status, ERROR_RESOURCE_EXHAUSTED);
    client_close(client);
}

static void too_many_pings_end_the_connection_with_the_agreed_words(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    struct client *other = client_connect(echo->port);
    nghttp2_submit_ping(client->session, 0, (const uint8_t *)"12345678");
    client_flush(client);
    while (client->ping_acks == 0) {
        client_read(client, 100);
    }
    for (int i = 0; i < 1000; i++) {
        nghttp2_submit_ping(client->session, 0, NULL);
    }
    client_flush(client);
    client_wait_end(client);
    assert_true(client->goaway);
    assert_int_equal(client->goaway_code, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_string_equal(client->goaway_debug, "too_many_pings");
    assert_echoed(client_echo(other, "/test.Echo/Unary", "calm"), "calm");
    assert_int_equal(echo_counters(echo).pings_too_many, 1);
    client_close(client);
    client_close(other);
}

static void rapid_resets_end_the_connection(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    struct client_request request = {.path = "/test.Echo/Unary", .keep_open = true};
    for (int i = 0; i < 4000 && !client->eof; i++) {
        int32_t id = client_call(client, &request);
        client_flush(client);
        nghttp2_submit_rst_stream(client->session, 0, id, NGHTTP2_CANCEL);
        client_flush(client);
    }
    client_wait_end(client);
    assert_int_equal(echo_counters(echo).resets_too_many, 1);
    assert_int_equal(atomic_load(&echo->handled), 0);
    client_close(client);
}

static void headers_over_the_limit_are_refused_and_the_next_call_works(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    char value[3000];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    struct client_header headers[60];
    for (int i = 0; i < 60; i++) {
        headers[i] = (struct client_header){"x-large", value};
    }
    size_t length;
    unsigned char *body = client_message(1, &length);
    struct client_request request = {.path = "/test.Echo/Unary",
                                     .body = body,
                                     .length = length,
                                     .headers = headers,
                                     .header_count = 8};
    struct client_reply *reply = client_wait(client, client_call(client, &request));
    assert_int_equal(reply->grpc_status, ERROR_RESOURCE_EXHAUSTED);
    request.header_count = 60; /* indexed: few bytes on the wire, much when unpacked */
    reply = client_wait(client, client_call(client, &request));
    assert_int_equal(reply->close_code, NGHTTP2_INTERNAL_ERROR);
    assert_echoed(client_echo(client, "/test.Echo/Unary", "fine"), "fine");
    assert_int_equal(echo_counters(echo).headers_too_large, 2);
    free(body);
    client_close(client);
}

static void frame_repeat(struct client *client, const unsigned char *frame)
{
    unsigned char many[64 * 9];
    for (size_t i = 0; i < 64; i++) {
        memcpy(many + i * 9, frame, 9);
    }
    for (int i = 0; i < 200 && !client->eof; i++) { /* 12,800 of them, unless cut off before */
        if (send(client->fd, many, sizeof many, MSG_NOSIGNAL) < 0) {
            break;
        }
        client_read(client, 0);
    }
    client_wait_end(client);
}

static void floods_of_frames_that_cost_only_us_end_the_connection(void **state)
{
    struct echo *echo = *state;
    static const unsigned char settings[9] = {0, 0, 0, NGHTTP2_SETTINGS, 0, 0, 0, 0, 0};
    static const unsigned char nothing[9] = {0, 0, 0, NGHTTP2_DATA, 0, 0, 0, 0, 1};
    const unsigned char *const floods[] = {settings, nothing};
    struct client *other = client_connect(echo->port);
    for (size_t i = 0; i < sizeof floods / sizeof floods[0]; i++) {
        struct client *client = client_connect(echo->port);
        struct client_request open = {.path = "/test.Echo/Unary", .keep_open = true};
        client_call(client, &open);
        client_flush(client);
        frame_repeat(client, floods[i]);
        client_close(client);
        assert_echoed(client_echo(other, "/test.Echo/Unary", "fine"), "fine");
    }
    /* nghttp2 may end the first one itself: a thousand SETTINGS in one read. */
    assert_in_range(echo_counters(echo).glitches_too_many, 1, 2);
    client_close(other);
}

/* Each bad frame makes the server reset a stream, which no limit on the client's resets sees. */
static void resets_caused_on_purpose_end_the_connection(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    const struct client_header forbidden = {"connection", "close"};
    struct client_request bad = {
        .path = "/test.Echo/Unary", .keep_open = true, .headers = &forbidden, .header_count = 1};
    for (int i = 0; i < 4000 && !client->eof; i++) {
        client_call(client, &bad);
        while (client_read(client, 0)) {
        }
    }
    client_wait_end(client);
    assert_int_equal(echo_counters(echo).glitches_too_many, 1);
    client_close(client);
}

struct drain {
    struct echo *echo;
    uint64_t timeout_ms;
};

static void *drain_main(void *arg)
{
    struct drain *drain = arg;
    grpc_server_drain(drain->echo->server, drain->timeout_ms);
    return NULL;
}

static void drain_lets_calls_finish(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    size_t length;
    unsigned char *body = client_message(1, &length);
    struct client_request request = {.path = "/test.Echo/Hold", .body = body, .length = length};
    int32_t id = client_call(client, &request);
    client_flush(client);
    echo_wait_held(echo, 1);
    struct drain drain = {echo, 10000};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drain_main, &drain), 0);
    while (!client->goaway || client->goaway_last == INT32_MAX) {
        client_read(client, 100); /* the notice, a PING, then the last stream */
    }
    assert_int_equal(client->goaway_code, NGHTTP2_NO_ERROR);
    assert_int_equal(client->goaway_last, id);
    echo_release_held(echo);
    assert_int_equal(client_wait(client, id)->grpc_status, 0);
    client_wait_end(client);
    client_close(client);
    pthread_join(thread, NULL);
    assert_int_equal(echo_counters(echo).connections_open, 0);
    free(body);
}

static void drain_that_takes_too_long_answers_unavailable(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    size_t length;
    unsigned char *body = client_message(1, &length);
    struct client_request request = {.path = "/test.Echo/Hold", .body = body, .length = length};
    int32_t id = client_call(client, &request);
    client_flush(client);
    echo_wait_held(echo, 1);
    struct drain drain = {echo, 50};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drain_main, &drain), 0);
    assert_int_equal(client_wait(client, id)->grpc_status, ERROR_UNAVAILABLE);
    client_wait_end(client);
    client_close(client);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&echo->cancels), 1);
    free(body);
}

static void destroy_closes_what_is_open(void **state)
{
    struct echo *echo = *state;
    struct client *client = client_connect(echo->port);
    assert_echoed(client_echo(client, "/test.Echo/Unary", "x"), "x");
    grpc_server_destroy(echo->server);
    client_wait_end(client);
    client_close(client);
    struct error error = {0};
    echo->server = grpc_server_create(1, &grpc_limits_default, NULL, 0, &error);
    assert_non_null(echo->server);
}

static void garbage_is_cut_off_and_others_go_on(void **state)
{
    struct echo *echo = *state;
    struct client *other = client_connect(echo->port);
    struct client *client = client_connect(echo->port);
    assert_echoed(client_echo(client, "/test.Echo/Unary", "x"), "x");
    static const char junk[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF";
    assert_true(send(client->fd, junk, sizeof junk, MSG_NOSIGNAL) > 0);
    client_wait_end(client);
    client_close(client);
    assert_echoed(client_echo(other, "/test.Echo/Unary", "y"), "y");
    client_close(other);
}

static void port_in_use_says_so(void **state)
{
    struct echo *echo = *state;
    struct error error = {0};
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", echo->port);
    struct grpc_server *second = grpc_server_create(1, &grpc_limits_default, NULL, 0, &error);
    assert_non_null(second);
    assert_int_equal(grpc_server_listen(second, address, 1, NULL, &error), -ERROR_UNAVAILABLE);
    assert_non_null(strstr(error.text, address));
    assert_non_null(strstr(error.text, "in use"));
    assert_non_null(strstr(error.text, "choose another port"));
    grpc_server_destroy(second);
}

int main(void)
{
#define SERVER_TEST(name) cmocka_unit_test_setup_teardown(name, echo_setup, echo_teardown)
    const struct CMUnitTest tests[] = {
        SERVER_TEST(unary_call_is_answered_on_the_network_thread),
        SERVER_TEST(unary_call_is_answered_from_another_thread),
        SERVER_TEST(thousand_calls_at_once_are_all_answered),
        SERVER_TEST(message_may_come_in_any_split_of_frames),
        cmocka_unit_test(a_handler_is_told_whether_others_wait_for_its_thread),
        SERVER_TEST(unknown_method_is_one_headers_frame_with_status_12),
        SERVER_TEST(what_is_not_grpc_is_refused_by_http_status),
        SERVER_TEST(status_text_arrives_percent_encoded),
        SERVER_TEST(metadata_of_one_name_is_joined),
        SERVER_TEST(request_without_exactly_one_whole_message_is_an_error),
        SERVER_TEST(message_over_the_limit_is_refused_by_its_prefix),
        SERVER_TEST(response_over_the_limit_is_a_status),
        SERVER_TEST(compressed_messages_are_inflated_within_the_limit),
        SERVER_TEST(timeout_header_is_honoured_or_refused),
        SERVER_TEST(deadline_is_answered_and_cancels_the_handler),
        SERVER_TEST(reset_by_the_client_cancels_the_handler),
        SERVER_TEST(client_that_dies_with_calls_in_flight_cancels_them),
        SERVER_TEST(server_stream_sends_all_its_messages),
        SERVER_TEST(slow_reader_is_bounded),
        SERVER_TEST(client_stream_gets_one_answer_after_the_half_close),
        SERVER_TEST(two_way_stream_answers_while_it_receives),
        SERVER_TEST(too_many_pings_end_the_connection_with_the_agreed_words),
        SERVER_TEST(rapid_resets_end_the_connection),
        SERVER_TEST(headers_over_the_limit_are_refused_and_the_next_call_works),
        SERVER_TEST(floods_of_frames_that_cost_only_us_end_the_connection),
        SERVER_TEST(resets_caused_on_purpose_end_the_connection),
        SERVER_TEST(drain_lets_calls_finish),
        SERVER_TEST(drain_that_takes_too_long_answers_unavailable),
        SERVER_TEST(destroy_closes_what_is_open),
        SERVER_TEST(garbage_is_cut_off_and_others_go_on),
        SERVER_TEST(port_in_use_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
