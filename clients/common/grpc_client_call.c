#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/common/grpc_client_internal.h"
#include "server/base/clock.h"

#define WINDOW_BYTES (4u << 20)
#define MESSAGE_BYTES_KEPT (64u << 10) /* a larger buffer is not kept for the next call */

/* ---- calls ---------------------------------------------------------------------------------- */

/* The list is in order of deadline, so that the earliest is its head. */
void call_link(struct grpc_client *client, struct client_call *call)
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

void call_unlink(struct grpc_client *client, struct client_call *call)
{
    *(call->previous == NULL ? &client->calls_head : &call->previous->next) = call->next;
    *(call->next == NULL ? &client->calls_tail : &call->next->previous) = call->previous;
    client->calls_open--;
}

struct client_call *call_create(struct grpc_client *client)
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

void call_recycle(struct grpc_client *client, struct client_call *call)
{
    if (call->message_capacity > MESSAGE_BYTES_KEPT) {
        free(call->message);
        call->message = NULL;
        call->message_capacity = 0;
    }
    call->next = client->calls_idle;
    client->calls_idle = call;
}

/* The only place that ends a call. */
void call_end(struct grpc_client *client, struct client_call *call, enum error_code status,
              const char *text)
{
    call_unlink(client, call);
    if (call->handler.on_end != NULL) {
        call->handler.on_end(call->context, status, text);
    }
    call_recycle(client, call);
}

/* Ends a call from this side: its stream, if it has one, is reset and forgets the call. */
void call_abort(struct grpc_client *client, struct client_call *call, enum error_code status,
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

/* ---- nghttp2's callbacks -------------------------------------------------------------------- */

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

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct grpc_client *client = user_data;
    (void)session;
    client->settings_seen = client->settings_seen || frame->hd.type == NGHTTP2_SETTINGS;
    client->goaway_seen = client->goaway_seen || frame->hd.type == NGHTTP2_GOAWAY;
    return 0;
}

const char *client_end_reason(const struct grpc_client *client)
{
    return !client->settings_seen ? "what answers there does not speak gRPC"
           : client->goaway_seen  ? "the server is stopping"
                                  : "the server broke the rules of HTTP/2";
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
    } else if (!call->has_status && !client->settings_seen) {
        status = ERROR_UNAVAILABLE;
        snprintf(call->text, sizeof(call->text), "connection to %s: %s", client->address.text,
                 client_end_reason(client));
    } else if (!call->has_status) {
        status = grpc_status_without_trailer(call->http_status, error_code, call->text,
                                             sizeof(call->text));
    }
    char text[sizeof(call->text)];
    memcpy(text, call->text, sizeof(text));
    call_end(client, call, status, text);
    return 0;
}

/* ---- the session ---------------------------------------------------------------------------- */

int client_session_create(struct grpc_client *client)
{
    int result = -ERROR_RESOURCE_EXHAUSTED;
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&option) != 0) {
        goto out;
    }
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_option_set_peer_max_concurrent_streams(option, 1000);
    /* A status text that ends in a space is no reason to drop it. */
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1);
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

#define HEADER(name, value, length)                                                                \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1, (length),   \
            NGHTTP2_NV_FLAG_NO_COPY_NAME                                                           \
    }
#define HEADER_LITERAL(name, value) HEADER(name, value, sizeof(value) - 1)

int32_t call_submit(struct grpc_client *client, struct client_call *call, const char *path)
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
