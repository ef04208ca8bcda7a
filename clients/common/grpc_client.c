#include "clients/common/grpc_client.h"

#include <assert.h>
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
#define WINDOW_BYTES (4u << 20)
#define OUTPUT_BYTES_HIGH (1u << 20) /* frames stay inside nghttp2 while this much waits */
#define READ_BYTES (64u << 10)
#define READS_PER_PROCESS 16

/* ---- calls ----------------------------------------------------------------------------------- */

/* The list is in order of deadline, so that the earliest is its head. */
static void call_link(struct grpc_client *client, struct client_call *call)
{
    struct client_call *before = client->calls_tail;
    while (before != NULL && before->deadline_ns > call->deadline_ns) {
        before = before->previous;
    }
    call->previous = before;
    call->next = before == NULL ? client->calls_head : before->next;
    *(call->previous == NULL ? &client->calls_head : &call->previous->next) = call;
    *(call->next == NULL ? &client->calls_tail : &call->next->previous) = call;
    client->calls_open++;
}

static void call_unlink(struct grpc_client *client, struct client_call *call)
{
    *(call->previous == NULL ? &client->calls_head : &call->previous->next) = call->next;
    *(call->next == NULL ? &client->calls_tail : &call->next->previous) = call->previous;
    client->calls_open--;
}

static struct client_call *call_create(struct grpc_client *client)
{
    struct client_call *call = client->calls_idle;
    if (call == NULL) {
        return calloc(1, sizeof(*call));
    }
    client->calls_idle = call->next;
    unsigned char *message = call->message;
    size_t capacity = call->message_capacity;
    memset(call, 0, offsetof(struct client_call, text));
    call->text[0] = '\0';
    call->message = message;
    call->message_capacity = capacity;
    return call;
}

static void call_recycle(struct grpc_client *client, struct client_call *call)
{
    if (call->message_capacity > READ_BYTES) { /* large buffers are not kept */
        free(call->message);
        call->message = NULL;
        call->message_capacity = 0;
    }
    call->next = client->calls_idle;
    client->calls_idle = call;
}

/* The only place that ends a call. */
static void call_end(struct grpc_client *client, struct client_call *call, enum error_code status,
                     const char *text)
{
    call_unlink(client, call);
    if (call->handler.on_end != NULL) {
        call->handler.on_end(call->context, status, text);
    }
    call_recycle(client, call);
}

/* Ends a call from this side: its stream, if it has one, is reset and forgets the call. */
static void call_abort(struct grpc_client *client, struct client_call *call, enum error_code status,
                       const char *text)
{
    nghttp2_session_set_stream_user_data(client->session, call->stream_id, NULL);
    nghttp2_submit_rst_stream(client->session, NGHTTP2_FLAG_NONE, call->stream_id, NGHTTP2_CANCEL);
    call_end(client, call, status, text);
}

/* Takes a piece of the answer's body apart into messages. False: the answer is broken and the call
 * has been told why. */
static bool call_receive(struct grpc_client *client, struct client_call *call,
                         const unsigned char *data, size_t length)
{
    int32_t stream_id = call->stream_id;
    while (length > 0) {
        if (call->prefix_length < sizeof(call->prefix)) {
            call->prefix[call->prefix_length++] = *data++;
            length--;
            if (call->prefix_length < sizeof(call->prefix)) {
                continue;
            }
            const unsigned char *p = call->prefix;
            call->message_size =
                (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
            call->message_length = 0;
            if (p[0] != 0) {
                call->status = ERROR_INTERNAL;
                snprintf(call->text, sizeof(call->text), "the answer is compressed, unasked");
                return false;
            }
            if (call->message_size > client->message_bytes_max) {
                call->status = ERROR_RESOURCE_EXHAUSTED;
                snprintf(call->text, sizeof(call->text),
                         "the answer has %u bytes, over this client's limit of %u",
                         call->message_size, client->message_bytes_max);
                return false;
            }
            if (call->message_size > call->message_capacity) {
                free(call->message);
                call->message = malloc(call->message_size);
                call->message_capacity = call->message == NULL ? 0 : call->message_size;
                if (call->message == NULL) {
                    call->status = ERROR_RESOURCE_EXHAUSTED;
                    snprintf(call->text, sizeof(call->text), "no memory for an answer of %u bytes",
                             call->message_size);
                    return false;
                }
            }
        }
        size_t take = call->message_size - call->message_length;
        take = take < length ? take : length;
        if (take > 0) {
            memcpy(call->message + call->message_length, data, take);
        }
        call->message_length += (uint32_t)take;
        data += take;
        length -= take;
        if (call->message_length == call->message_size) {
            call->prefix_length = 0;
            if (call->handler.on_message != NULL) {
                call->handler.on_message(call->context, call->message, call->message_size);
            }
            if (nghttp2_session_get_stream_user_data(client->session, stream_id) != call) {
                return true; /* the handler has cancelled it */
            }
        }
    }
    return true;
}

/* ---- nghttp2's callbacks ----------------------------------------------------------------------
 */

static ssize_t on_read_body(nghttp2_session *session, int32_t stream_id, uint8_t *buffer,
                            size_t length, uint32_t *data_flags, nghttp2_data_source *source,
                            void *user_data)
{
    (void)source;
    (void)user_data;
    struct client_call *call = nghttp2_session_get_stream_user_data(session, stream_id);
    if (call == NULL) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the call has ended: reset the stream */
    }
    size_t written = 0;
    while (call->sent < sizeof(call->send_prefix) && written < length) {
        buffer[written++] = call->send_prefix[call->sent++];
    }
    size_t offset = call->sent - sizeof(call->send_prefix);
    if (call->sent >= sizeof(call->send_prefix)) {
        size_t take = call->body_length - offset;
        take = take < length - written ? take : length - written;
        if (take > 0) {
            memcpy(buffer + written, call->body + offset, take);
        }
        written += take;
        call->sent += take;
        if (call->sent == sizeof(call->send_prefix) + call->body_length) {
            *data_flags |= NGHTTP2_DATA_FLAG_EOF;
        }
    }
    return (ssize_t)written;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_length, const uint8_t *value, size_t value_length, uint8_t flags,
                     void *user_data)
{
    (void)flags;
    (void)user_data;
    struct client_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call == NULL) {
        return 0;
    }
    const char *text = (const char *)value;
    if (name_length == 7 && memcmp(name, ":status", 7) == 0) {
        call->http_status = (unsigned)strtoul(text, NULL, 10);
    } else if (name_length == 11 && memcmp(name, "grpc-status", 11) == 0) {
        char *end = NULL;
        unsigned long status = strtoul(text, &end, 10);
        call->has_status = true;
        call->status = value_length == 0 || *end != '\0' || status > ERROR_UNAUTHENTICATED
                           ? ERROR_UNKNOWN
                           : (enum error_code)status;
    } else if (name_length == 12 && memcmp(name, "grpc-message", 12) == 0) {
        grpc_text_decode(text, value_length, call->text, sizeof(call->text));
    }
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t length, void *user_data)
{
    (void)flags;
    struct grpc_client *client = user_data;
    struct client_call *call = nghttp2_session_get_stream_user_data(session, stream_id);
    if (call == NULL || call->http_status != 200) {
        return 0; /* the body of something that is not gRPC is not ours to read */
    }
    if (!call_receive(client, call, data, length)) {
        char text[sizeof(call->text)];
        memcpy(text, call->text, sizeof(text));
        call_abort(client, call, call->status, text);
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user_data)
{
    struct grpc_client *client = user_data;
    struct client_call *call = nghttp2_session_get_stream_user_data(session, stream_id);
    if (call == NULL) {
        return 0;
    }
    enum error_code status = call->status;
    if (call->has_status && status == ERROR_NONE && call->prefix_length != 0) {
        status = ERROR_INTERNAL;
        snprintf(call->text, sizeof(call->text), "the answer ended inside a message");
    } else if (!call->has_status) {
        status = grpc_status_without_trailer(call->http_status, error_code, call->text,
                                             sizeof(call->text));
    }
    char text[sizeof(call->text)];
    memcpy(text, call->text, sizeof(text));
    call_end(client, call, status, text);
    return 0;
}

/* ---- the connection ----------------------------------------------------------------------------
 */

static int client_session_create(struct grpc_client *client)
{
    int result = -ERROR_RESOURCE_EXHAUSTED;
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&option) != 0) {
        goto out;
    }
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_option_set_peer_max_concurrent_streams(option, 1000);
    if (nghttp2_session_client_new2(&client->session, callbacks, client, option) != 0) {
        goto out;
    }
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES},
    };
    if (nghttp2_submit_settings(client->session, NGHTTP2_FLAG_NONE, settings, 2) != 0 ||
        nghttp2_session_set_local_window_size(client->session, NGHTTP2_FLAG_NONE, 0,
                                              (int32_t)WINDOW_BYTES) != 0) {
        goto out;
    }
    result = 0;
out:
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return result;
}

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
            error_set(error, ERROR_UNAVAILABLE,
                      "connection to %s: what answers there does not "
                      "speak gRPC: %s",
                      client->address.text, nghttp2_strerror((int)taken));
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
        error_set(error, ERROR_UNAVAILABLE, "connection to %s ended: the server is stopping",
                  client->address.text);
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

size_t grpc_client_calls_open(const struct grpc_client *client)
{
    return client->calls_open;
}

#define HEADER(name, value, length)                                                                \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1, (length),   \
            NGHTTP2_NV_FLAG_NO_COPY_NAME                                                           \
    }
#define HEADER_LITERAL(name, value) HEADER(name, value, sizeof(value) - 1)

static int32_t call_submit(struct grpc_client *client, struct client_call *call, const char *path)
{
    nghttp2_nv headers[9] = {
        HEADER_LITERAL(":method", "POST"),
        HEADER_LITERAL(":scheme", "http"),
        HEADER(":path", path, strlen(path)),
        HEADER(":authority", client->address.authority, strlen(client->address.authority)),
        HEADER_LITERAL("te", "trailers"),
        HEADER_LITERAL("content-type", "application/grpc"),
        HEADER_LITERAL("user-agent", "grpc-c-tidepool/0.1"),
    };
    size_t count = 7;
    char timeout[24];
    if (call->deadline_ns != UINT64_MAX) {
        grpc_timeout_encode(call->deadline_ns, clock_now_ns(), timeout, sizeof(timeout));
        headers[count++] = (nghttp2_nv)HEADER("grpc-timeout", timeout, strlen(timeout));
    }
    if (client->authorization != NULL) {
        headers[count++] = (nghttp2_nv)HEADER("authorization", client->authorization,
                                              strlen(client->authorization));
    }
    nghttp2_data_provider provider = {.read_callback = on_read_body};
    return nghttp2_submit_request(client->session, NULL, headers, count, &provider, call);
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
