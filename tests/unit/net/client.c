#include "tests/unit/net/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/base/clock.h"

#define PATIENCE_MS 10000

static void text_keep(char *target, size_t size, const uint8_t *value, size_t length)
{
    size_t count = length < size - 1 ? length : size - 1;
    if (count > 0) {
        memcpy(target, value, count);
    }
    target[count] = '\0';
}

struct client_reply *client_reply(struct client *client, int32_t stream_id)
{
    assert_in_range(stream_id / 2, 0, CLIENT_STREAMS_MAX - 1);
    return &client->replies[stream_id / 2];
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_length, const uint8_t *value, size_t length, uint8_t flags,
                     void *context)
{
    struct client_reply *reply = client_reply(context, frame->hd.stream_id);
    char number[16];
    (void)session;
    (void)name_length;
    (void)flags;
    const char *key = (const char *)name;
    if (strcmp(key, ":status") == 0) {
        text_keep(reply->http_status, sizeof reply->http_status, value, length);
    } else if (strcmp(key, "grpc-status") == 0) {
        text_keep(number, sizeof number, value, length);
        reply->grpc_status = atoi(number);
    } else if (strcmp(key, "grpc-message") == 0) {
        text_keep(reply->text, sizeof reply->text, value, length);
    } else if (strcmp(key, "grpc-accept-encoding") == 0) {
        text_keep(reply->accept_encoding, sizeof reply->accept_encoding, value, length);
    } else if (strcmp(key, "grpc-encoding") == 0) {
        text_keep(reply->encoding, sizeof reply->encoding, value, length);
    } else if (strcmp(key, "grpc-retry-pushback-ms") == 0) {
        text_keep(reply->retry_pushback, sizeof reply->retry_pushback, value, length);
    } else if (strcmp(key, "x-echo") == 0) {
        text_keep(reply->echoed, sizeof reply->echoed, value, length);
    }
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct client *client = context;
    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        client_reply(client, frame->hd.stream_id)->header_blocks++;
        client_reply(client, frame->hd.stream_id)->ended_by_headers =
            frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
        break;
    case NGHTTP2_GOAWAY:
        client->goaway = true;
        client->goaway_code = frame->goaway.error_code;
        client->goaway_last = frame->goaway.last_stream_id;
        text_keep(client->goaway_debug, sizeof client->goaway_debug, frame->goaway.opaque_data,
                  frame->goaway.opaque_data_len);
        break;
    case NGHTTP2_PING:
        client->ping_acks += frame->hd.flags & NGHTTP2_FLAG_ACK ? 1 : 0;
        break;
    default:
        break;
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                   size_t length, void *context)
{
    struct client_reply *reply = client_reply(context, stream_id);
    (void)session;
    (void)flags;
    if (reply->capacity - reply->length < length) {
        reply->capacity = reply->capacity * 2 + length;
        reply->data = realloc(reply->data, reply->capacity);
        assert_non_null(reply->data);
    }
    memcpy(reply->data + reply->length, data, length);
    reply->length += length;
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream_id, uint32_t code, void *context)
{
    struct client_reply *reply = client_reply(context, stream_id);
    (void)session;
    reply->closed = true;
    reply->close_code = code;
    return 0;
}

static ssize_t body_read(nghttp2_session *session, int32_t stream_id, uint8_t *bytes, size_t length,
                         uint32_t *flags, nghttp2_data_source *source, void *context)
{
    struct client *client = context;
    struct client_request *request = &client->requests[stream_id / 2];
    size_t *sent = &client->sent[stream_id / 2];
    size_t count = request->length - *sent;
    (void)session;
    (void)source;
    count = count < length ? count : length;
    count = request->chunk > 0 && count > request->chunk ? request->chunk : count;
    if (count == 0 && request->keep_open) {
        return NGHTTP2_ERR_DEFERRED;
    }
    if (count > 0) {
        memcpy(bytes, request->body + *sent, count);
    }
    *sent += count;
    if (*sent == request->length && !request->keep_open) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)count;
}

struct client *client_connect_fd(int fd, int32_t window)
{
    struct client *client = calloc(1, sizeof *client);
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    nghttp2_settings_entry setting = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)window};
    assert_non_null(client);
    client->fd = fd;
    for (size_t i = 0; i < CLIENT_STREAMS_MAX; i++) {
        client->replies[i].grpc_status = -1;
    }
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_option_set_no_auto_window_update(option, window > 0);
    nghttp2_option_set_max_send_header_block_length(option, 1 << 20);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    assert_int_equal(nghttp2_session_client_new2(&client->session, callbacks, client, option), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    nghttp2_submit_settings(client->session, 0, &setting, window > 0 ? 1 : 0);
    client_flush(client);
    return client;
}

struct client *client_connect(uint16_t port)
{
    struct sockaddr_in name = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    return client_connect_fd(fd, 0);
}

void client_close(struct client *client)
{
    nghttp2_session_del(client->session);
    close(client->fd);
    for (size_t i = 0; i < CLIENT_STREAMS_MAX; i++) {
        free(client->replies[i].data);
    }
    free(client);
}

void client_flush(struct client *client)
{
    const uint8_t *bytes;
    ssize_t count;
    while ((count = nghttp2_session_mem_send(client->session, &bytes)) > 0) {
        for (ssize_t done = 0, sent; done < count; done += sent) {
            sent = send(client->fd, bytes + done, (size_t)(count - done), MSG_NOSIGNAL);
            if (sent < 0) {
                client->eof = true;
                return;
            }
        }
    }
}

bool client_read(struct client *client, int ms)
{
    static _Thread_local unsigned char bytes[65536];
    struct pollfd waiting = {.fd = client->fd, .events = POLLIN};
    client_flush(client);
    if (poll(&waiting, 1, ms) <= 0) {
        return false;
    }
    ssize_t count = recv(client->fd, bytes, sizeof bytes, 0);
    if (count <= 0) {
        client->eof = true;
        return false;
    }
    assert_true(nghttp2_session_mem_recv(client->session, bytes, (size_t)count) >= 0);
    client_flush(client);
    return true;
}

static void nv_set(nghttp2_nv *nv, const char *name, const char *value)
{
    *nv = (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                       .namelen = strlen(name),
                       .value = (uint8_t *)(uintptr_t)value,
                       .valuelen = strlen(value)};
}

int32_t client_call(struct client *client, const struct client_request *request)
{
    nghttp2_nv fields[256];
    size_t count = 0;
    nv_set(&fields[count++], ":method", request->method ? request->method : "POST");
    nv_set(&fields[count++], ":scheme", "http");
    nv_set(&fields[count++], ":path", request->path);
    nv_set(&fields[count++], ":authority", "localhost");
    nv_set(&fields[count++], "te", "trailers");
    nv_set(&fields[count++], "content-type",
           request->content_type ? request->content_type : "application/grpc");
    if (request->timeout != NULL) {
        nv_set(&fields[count++], "grpc-timeout", request->timeout);
    }
    for (size_t i = 0; i < request->header_count; i++) {
        nv_set(&fields[count++], request->headers[i].name, request->headers[i].value);
    }
    nghttp2_data_provider provider = {.read_callback = body_read};
    int32_t id = nghttp2_submit_request(client->session, NULL, fields, count,
                                        request->no_body ? NULL : &provider, NULL);
    assert_true(id > 0);
    client->requests[id / 2] = *request;
    client->sent[id / 2] = 0;
    return id;
}

void client_body(struct client *client, int32_t stream_id, const unsigned char *body, size_t length,
                 bool end)
{
    client->requests[stream_id / 2].body = body;
    client->requests[stream_id / 2].length = length;
    client->requests[stream_id / 2].keep_open = !end;
    client->sent[stream_id / 2] = 0;
    nghttp2_session_resume_data(client->session, stream_id);
    client_flush(client);
}

struct client_reply *client_wait(struct client *client, int32_t stream_id)
{
    struct client_reply *reply = client_reply(client, stream_id);
    uint64_t limit_ns = clock_now_ns() + PATIENCE_MS * NS_PER_MS;
    while (!reply->closed && !client->eof) {
        assert_true(clock_now_ns() < limit_ns);
        client_read(client, 100);
    }
    assert_true(reply->closed);
    return reply;
}

void client_wait_data(struct client *client, int32_t stream_id, size_t length)
{
    uint64_t limit_ns = clock_now_ns() + PATIENCE_MS * NS_PER_MS;
    while (client_reply(client, stream_id)->length < length) {
        assert_true(clock_now_ns() < limit_ns && !client->eof);
        client_read(client, 100);
    }
}

void client_wait_end(struct client *client)
{
    uint64_t limit_ns = clock_now_ns() + PATIENCE_MS * NS_PER_MS;
    while (!client->eof) {
        assert_true(clock_now_ns() < limit_ns);
        client_read(client, 100);
    }
}

unsigned char *client_message(size_t length, size_t *ret_length)
{
    unsigned char *body = malloc(length + 5);
    assert_non_null(body);
    body[0] = 0;
    for (int i = 0; i < 4; i++) {
        body[1 + i] = (unsigned char)(length >> (24 - 8 * i));
    }
    memset(body + 5, 'x', length);
    *ret_length = length + 5;
    return body;
}

struct client_reply *client_echo(struct client *client, const char *path, const char *text)
{
    size_t length;
    unsigned char *body = client_message(strlen(text), &length);
    memcpy(body + 5, text, strlen(text));
    struct client_request request = {.path = path, .body = body, .length = length};
    struct client_reply *reply = client_wait(client, client_call(client, &request));
    free(body);
    return reply;
}
