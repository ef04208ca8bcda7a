#include "server/net/session.h"

#include <string.h>

#include "server/net/call.h"
#include "server/net/care.h"
#include "server/net/server.h"

/* nghttp2's own limit on resets stands behind ours, which counts and says why. */
#define RESETS_BURST_BEHIND 2000

static struct grpc_call *call_find(struct connection *connection, int32_t stream_id)
{
    if (connection->recent != NULL && connection->recent->stream_id == stream_id) {
        return connection->recent;
    }
    return nghttp2_session_get_stream_user_data(connection->session, stream_id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct connection *connection = context;
    struct loop *loop = connection->loop;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST ||
        connection->state != CONNECTION_OPEN) {
        return 0;
    }
    struct grpc_call *call = NULL;
    if (loop->own.calls_open < loop->server->limits.calls_max / loop->server->loop_count) {
        call = call_create(connection, frame->hd.stream_id);
    }
    if (call == NULL) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_REFUSED_STREAM);
        return 0;
    }
    connection->recent = call;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_length, const uint8_t *value, size_t value_length, uint8_t flags,
                     void *context)
{
    struct connection *connection = context;
    (void)session;
    (void)flags;
    struct grpc_call *call = call_find(connection, frame->hd.stream_id);
    if (call == NULL || request_header(call, (const char *)name, name_length, (const char *)value,
                                       value_length) == 0) {
        return 0;
    }
    connection_glitch(connection);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static void headers_received(struct connection *connection, const nghttp2_frame *frame)
{
    struct grpc_call *call = call_find(connection, frame->hd.stream_id);
    if (call == NULL) {
        return;
    }
    if (!call->request.headers_done) {
        request_headers_done(call);
    }
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        request_end(call);
    }
}

static void data_received(struct connection *connection, const nghttp2_frame *frame)
{
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        struct grpc_call *call = call_find(connection, frame->hd.stream_id);
        if (call != NULL) {
            request_end(call);
        }
    } else if (frame->hd.length == frame->data.padlen) {
        connection_glitch(connection); /* a frame with nothing in it costs us, not the client */
    }
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct connection *connection = context;
    bool is_ack = frame->hd.flags & NGHTTP2_FLAG_ACK;
    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        headers_received(connection, frame);
        break;
    case NGHTTP2_DATA:
        data_received(connection, frame);
        break;
    case NGHTTP2_RST_STREAM:
        care_reset(connection);
        break;
    case NGHTTP2_SETTINGS:
        connection->handshaken = true;
        if (!is_ack) {
            connection_glitch(connection); /* each one costs us an answer */
        }
        break;
    case NGHTTP2_PING:
        if (is_ack) {
            care_ping_answered(connection);
        } else {
            care_ping(connection, frame->ping.opaque_data);
        }
        break;
    default:
        break;
    }
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t length, void *context)
{
    struct connection *connection = context;
    (void)session;
    (void)flags;
    connection->unconsumed += length;
    struct grpc_call *call = call_find(connection, stream_id);
    if (call != NULL) {
        request_data(call, data, length);
    }
    return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code,
                            void *context)
{
    (void)session;
    (void)frame;
    (void)code;
    connection_glitch(context);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t code,
                           void *context)
{
    (void)code;
    (void)context;
    struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream_id);
    if (call != NULL) {
        nghttp2_session_set_stream_user_data(session, stream_id, NULL);
        call_detach(call);
    }
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct connection *connection = context;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) {
        return 0;
    }
    /* A client may ping as much as it wants to measure a connection on which it receives. */
    connection->ping_ns = 0;
    connection->ping_strikes = 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        struct grpc_call *call = call_find(connection, frame->hd.stream_id);
        if (call != NULL && !call->request.ended) {
            /* Answered before the request was whole: nghttp2 keeps the stream until told. */
            nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                      NGHTTP2_NO_ERROR);
        }
    }
    return 0;
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *frame_header,
                        size_t length, nghttp2_data_source *source, void *context)
{
    struct connection *connection = context;
    (void)session;
    (void)frame;
    if (connection->loop->own.gather.length >= GATHER_BYTES_MAX) {
        connection->loop->own.gather.full = true;
        return NGHTTP2_ERR_WOULDBLOCK;
    }
    return response_data(source->ptr, frame_header, length);
}

nghttp2_session_callbacks *session_callbacks_create(void)
{
    nghttp2_session_callbacks *callbacks = NULL;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) {
        return NULL;
    }
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    return callbacks;
}

nghttp2_option *session_option_create(const struct grpc_limits *limits)
{
    nghttp2_option *option = NULL;
    if (nghttp2_option_new(&option) != 0) {
        return NULL;
    }
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_auto_ping_ack(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(option, RESETS_BURST_BEHIND,
                                               limits->resets_per_second_max * UINT64_C(2));
    return option;
}

nghttp2_session *session_create(struct connection *connection)
{
    const struct grpc_server *server = connection->loop->server;
    const struct grpc_limits *limits = &server->limits;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits->concurrent_streams_max},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits->window_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, limits->header_list_bytes_max},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_session *session = NULL;
    if (nghttp2_session_server_new2(&session, server->callbacks, connection, server->option) != 0) {
        return NULL;
    }
    if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings,
                                sizeof settings / sizeof settings[0]) != 0 ||
        nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0,
                                              (int32_t)limits->window_bytes) != 0) {
        nghttp2_session_del(session);
        return NULL;
    }
    return session;
}
