#include "clients/common/grpc_client.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/common/address.h"
#include "clients/common/grpc_client_internal.h"
#include "server/base/clock.h"

#define CONNECT_TIMEOUT_NS (10 * NS_PER_S)
#define OUTPUT_BYTES_HIGH (1u << 20) /* frames stay inside nghttp2 while this much waits */
#define READ_BYTES (64u << 10)
#define READS_PER_PROCESS 16

/* ---- the connection ------------------------------------------------------------------------- */

/* Goes through the candidates until one is connecting. */
static int client_connect_next(struct grpc_client *client, int last_errno, struct error *error)
{
    while (client->candidate < client->address.candidate_count) {
        client->fd = address_connect(&client->address, client->candidate++);
        if (client->fd >= 0) {
            return 0;
        }
        last_errno = errno;
    }
    return error_set(error, ERROR_UNAVAILABLE,
                     "cannot connect to %s: %s; is tidepoold running, and is this its address? "
                     "(--server ADDRESS or TIDEPOOL_SERVER)",
                     client->address.text, strerror(last_errno));
}

int grpc_client_create(const struct grpc_client_options *options, struct grpc_client **ret_client,
                       struct error *error)
{
    int result;
    struct grpc_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a connection");
    }
    client->fd = -1;
    client->wake_fd = -1;
    client->message_bytes_max = options->message_bytes_max != 0 ? options->message_bytes_max
                                                                : GRPC_CLIENT_MESSAGE_BYTES_MAX;
    client->connect_deadline_ns =
        clock_add_ns(clock_now_ns(), options->connect_timeout_ns != 0 ? options->connect_timeout_ns
                                                                      : CONNECT_TIMEOUT_NS);
    if (options->token != NULL && options->token[0] != '\0' &&
        asprintf(&client->authorization, "Bearer %s", options->token) < 0) {
        client->authorization = NULL;
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a connection");
        goto out;
    }
    result = address_resolve(options->address, &client->address, error);
    if (result < 0) {
        goto out;
    }
    result = client_session_create(client);
    if (result < 0) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a connection");
        goto out;
    }
    result = client_connect_next(client, 0, error);
    if (result < 0) {
        goto out;
    }
    *ret_client = client;
    client = NULL;
out:
    grpc_client_destroy(client);
    return result;
}

void grpc_client_destroy(struct grpc_client *client)
{
    if (client == NULL) {
        return;
    }
    while (client->calls_head != NULL) {
        struct client_call *call = client->calls_head;
        call_unlink(client, call);
        call_recycle(client, call);
    }
    while (client->calls_idle != NULL) {
        struct client_call *call = client->calls_idle;
        client->calls_idle = call->next;
        free(call->message);
        free(call);
    }
    nghttp2_session_del(client->session);
    if (client->fd >= 0) {
        close(client->fd);
    }
    free(client->output);
    free(client->authorization);
    free(client);
}

/* The connection is gone: every call ends, in the order of their deadlines. */
static int client_lose(struct grpc_client *client, struct error *error)
{
    client->lost = true;
    while (client->calls_head != NULL) {
        call_end(client, client->calls_head, ERROR_UNAVAILABLE, error->text);
    }
    return -(int)ERROR_UNAVAILABLE;
}

static int client_check_connected(struct grpc_client *client, uint64_t now_ns, struct error *error)
{
    struct pollfd entry = {.fd = client->fd, .events = POLLOUT};
    int ready = poll(&entry, 1, 0);
    if (ready <= 0) {
        if (now_ns < client->connect_deadline_ns) {
            return 0;
        }
        error_set(error, ERROR_UNAVAILABLE, "cannot connect to %s: no answer in time",
                  client->address.text);
        return client_lose(client, error);
    }
    int number = 0;
    socklen_t size = sizeof(number);
    getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &number, &size);
    if (number == 0) {
        client->connected = true;
        return 0;
    }
    close(client->fd);
    client->fd = -1;
    if (client_connect_next(client, number, error) < 0) {
        return client_lose(client, error);
    }
    return 0;
}

static int client_read(struct grpc_client *client, struct error *error)
{
    for (int i = 0; i < READS_PER_PROCESS; i++) {
        unsigned char input[READ_BYTES];
        ssize_t count = read(client->fd, input, sizeof(input));
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            return 0;
        }
        if (count <= 0) {
            error_set(error, ERROR_UNAVAILABLE, "connection to %s lost: %s", client->address.text,
                      count == 0 ? "the server closed it" : strerror(errno));
            return client_lose(client, error);
        }
        ssize_t taken = nghttp2_session_mem_recv(client->session, input, (size_t)count);
        if (taken < 0) {
            error_set(error, ERROR_UNAVAILABLE, "connection to %s: %s (%s)", client->address.text,
                      client_end_reason(client), nghttp2_strerror((int)taken));
            return client_lose(client, error);
        }
        if ((size_t)count < sizeof(input)) {
            return 0;
        }
    }
    return 0;
}

/* Moves frames from nghttp2 into one buffer, so that a wakeup costs one write. */
static int client_gather(struct grpc_client *client)
{
    while (client->output_length - client->output_start < OUTPUT_BYTES_HIGH) {
        const uint8_t *data = NULL;
        ssize_t length = nghttp2_session_mem_send(client->session, &data);
        if (length <= 0) {
            return (int)length;
        }
        size_t needed = client->output_length + (size_t)length;
        if (needed > client->output_capacity) {
            size_t capacity = client->output_capacity == 0 ? 4096 : client->output_capacity * 2;
            capacity = capacity < needed ? needed : capacity;
            unsigned char *larger = realloc(client->output, capacity);
            if (larger == NULL) {
                return -1;
            }
            client->output = larger;
            client->output_capacity = capacity;
        }
        memcpy(client->output + client->output_length, data, (size_t)length);
        client->output_length = needed;
    }
    return 0;
}

int grpc_client_flush(struct grpc_client *client, struct error *error)
{
    struct error local = {0};
    error = error == NULL ? &local : error;
    if (!client->connected || client->lost) {
        return 0;
    }
    for (;;) {
        if (client_gather(client) < 0) {
            error_set(error, ERROR_UNAVAILABLE, "connection to %s lost: no memory for its frames",
                      client->address.text);
            return client_lose(client, error);
        }
        size_t waiting = client->output_length - client->output_start;
        if (waiting == 0) {
            client->output_start = client->output_length = 0;
            return 0;
        }
        ssize_t count =
            send(client->fd, client->output + client->output_start, waiting, MSG_NOSIGNAL);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            return 0;
        }
        if (count < 0) {
            error_set(error, ERROR_UNAVAILABLE, "connection to %s lost: %s", client->address.text,
                      strerror(errno));
            return client_lose(client, error);
        }
        client->output_start += (size_t)count;
        if (client->output_start == client->output_length) {
            client->output_start = client->output_length = 0;
        } else if (client->output_start > OUTPUT_BYTES_HIGH) {
            memmove(client->output, client->output + client->output_start,
                    client->output_length - client->output_start);
            client->output_length -= client->output_start;
            client->output_start = 0;
        }
    }
}

int grpc_client_process(struct grpc_client *client, uint64_t now_ns, struct error *error)
{
    struct error local = {0};
    error = error == NULL ? &local : error;
    if (client->lost) {
        return -(int)ERROR_UNAVAILABLE;
    }
    if (!client->connected) {
        int result = client_check_connected(client, now_ns, error);
        if (result < 0) {
            return result;
        }
    }
    if (client->connected) {
        int result = client_read(client, error);
        if (result < 0) {
            return result;
        }
    }
    while (client->calls_head != NULL && client->calls_head->deadline_ns <= now_ns) {
        call_abort(client, client->calls_head, ERROR_DEADLINE_EXCEEDED, "time is up");
    }
    int result = grpc_client_flush(client, error);
    if (result == 0 && client->connected && nghttp2_session_want_read(client->session) == 0 &&
        nghttp2_session_want_write(client->session) == 0) {
        error_set(error, ERROR_UNAVAILABLE, "connection to %s: %s", client->address.text,
                  client_end_reason(client));
        result = client_lose(client, error);
    }
    return result;
}

int grpc_client_fd(const struct grpc_client *client)
{
    return client->fd;
}

short grpc_client_events(const struct grpc_client *client)
{
    if (!client->connected) {
        return POLLOUT;
    }
    bool writing = client->output_length > client->output_start ||
                   nghttp2_session_want_write(client->session) != 0;
    return (short)(POLLIN | (writing ? POLLOUT : 0));
}

uint64_t grpc_client_deadline_ns(const struct grpc_client *client)
{
    uint64_t deadline = client->calls_head == NULL ? UINT64_MAX : client->calls_head->deadline_ns;
    if (!client->connected && client->connect_deadline_ns < deadline) {
        deadline = client->connect_deadline_ns;
    }
    return deadline;
}

bool grpc_client_connected(const struct grpc_client *client)
{
    return client->connected && !client->lost;
}

int grpc_client_start(struct grpc_client *client, const char *path, const void *body,
                      size_t body_length, uint64_t deadline_ns,
                      const struct grpc_client_handler *handler, void *context, int32_t *ret_call,
                      struct error *error)
{
    if (client->lost || nghttp2_session_check_request_allowed(client->session) == 0) {
        return error_set(error, ERROR_UNAVAILABLE, "connection to %s: takes no more calls",
                         client->address.text);
    }
    if (body_length > UINT32_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "request of %zu bytes: the limit is %u",
                         body_length, UINT32_MAX);
    }
    struct client_call *call = call_create(client);
    if (call == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a call");
    }
    call->body = body;
    call->body_length = body_length;
    call->deadline_ns = deadline_ns;
    call->handler = *handler;
    call->context = context;
    call->send_prefix[1] = (unsigned char)(body_length >> 24);
    call->send_prefix[2] = (unsigned char)(body_length >> 16);
    call->send_prefix[3] = (unsigned char)(body_length >> 8);
    call->send_prefix[4] = (unsigned char)body_length;
    call->stream_id = call_submit(client, call, path);
    if (call->stream_id < 0) {
        int code = call->stream_id;
        call_recycle(client, call);
        return error_set(error, ERROR_UNAVAILABLE, "connection to %s: %s", client->address.text,
                         nghttp2_strerror(code));
    }
    call_link(client, call);
    if (ret_call != NULL) {
        *ret_call = call->stream_id;
    }
    return 0;
}

size_t grpc_client_calls_open(const struct grpc_client *client)
{
    return client->calls_open;
}

void grpc_client_cancel(struct grpc_client *client, int32_t id)
{
    for (struct client_call *call = client->calls_tail; call != NULL; call = call->previous) {
        if (call->stream_id == id) {
            call_abort(client, call, ERROR_CANCELLED, "cancelled by the client");
            return;
        }
    }
}

void grpc_client_set_wake_fd(struct grpc_client *client, int fd)
{
    client->wake_fd = fd;
}

int grpc_client_wake_fd(const struct grpc_client *client)
{
    return client->wake_fd;
}
