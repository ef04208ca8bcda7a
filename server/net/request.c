/* The request side of a call behind its headers: its message or messages, its handler. */
#include <stdlib.h>

#include "server/base/clock.h"
#include "server/net/call.h"
#include "server/net/server.h"
#include "server/net/texts.h"

/* What a decoded request may take: legal messages stay far below it. */
#define DECODED_BYTES_FREE ((uint64_t)1 << 20)
#define DECODED_TIMES_MAX 32

static const struct grpc_limits *limits_of(const struct grpc_call *call)
{
    return &call->loop->server->limits;
}

static bool call_is_stream(const struct grpc_call *call)
{
    enum grpc_method_kind kind = call->request.route->method->kind;
    return kind == GRPC_CLIENT_STREAM || kind == GRPC_BIDI_STREAM;
}

static void bytes_give_back(struct grpc_call *call, uint64_t bytes)
{
    call->request.held_bytes -= bytes;
    atomic_fetch_sub_explicit(&call->loop->server->request_bytes, bytes, memory_order_relaxed);
}

/* Bodies of all calls together have a bound. */
static bool bytes_hold(struct grpc_call *call, uint64_t bytes)
{
    call->request.held_bytes += bytes;
    uint64_t before =
        atomic_fetch_add_explicit(&call->loop->server->request_bytes, bytes, memory_order_relaxed);
    return before + bytes <= limits_of(call)->request_bytes_max;
}

static void message_refuse(struct grpc_call *call, const struct error *error)
{
    if (error->code == ERROR_RESOURCE_EXHAUSTED) {
        LOOP_COUNT(call->loop, messages_too_large, 1);
    } else {
        LOOP_COUNT(call->loop, decode_errors, 1);
    }
    response_fail(call, error->code, error->text);
    if (call->owed) {
        call_cancel(call);
    }
}

/* The plain message in place of the compressed one. */
static int message_inflate(struct grpc_call *call, struct buffer **buffer, struct error *error)
{
    struct buffer *plain = NULL;
    int result = compression_inflate(call->request.encoding, (*buffer)->data, (*buffer)->length,
                                     limits_of(call)->message_bytes_max, &plain, error);
    if (result < 0) {
        return result;
    }
    bytes_give_back(call, (*buffer)->length);
    buffer_release(*buffer);
    *buffer = plain;
    if (!bytes_hold(call, plain->length)) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "the server holds too many request bytes; try again later");
    }
    return 0;
}

static bool message_keep(struct grpc_call *call, struct buffer *buffer, struct error *error)
{
    struct request *request = &call->request;
    request->message_count++;
    if (!call_is_stream(call)) {
        if (request->message_count > 1) {
            error_set(error, ERROR_INTERNAL, "a call of this method has exactly one message");
            return false;
        }
        request->body = buffer;
        return true;
    }
    struct incoming *incoming = malloc(sizeof *incoming);
    if (incoming == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a message");
        return false;
    }
    *incoming = (struct incoming){.buffer = buffer};
    if (request->waiting_last == NULL) {
        request->waiting = incoming;
    } else {
        request->waiting_last->next = incoming;
    }
    request->waiting_last = incoming;
    call_queue(call);
    return true;
}

static int message_complete(struct grpc_call *call, struct error *error)
{
    bool compressed;
    struct buffer *buffer = message_take(&call->request.reader, &compressed);
    if (compressed && message_inflate(call, &buffer, error) < 0) {
        buffer_release(buffer);
        return -1;
    }
    if (!message_keep(call, buffer, error)) {
        buffer_release(buffer);
        return -1;
    }
    return 0;
}

/* One step through the bytes; what is announced is held before it is received. */
static int message_step(struct grpc_call *call, const unsigned char **data, size_t *length,
                        struct error *error)
{
    struct message_reader *reader = &call->request.reader;
    bool had_buffer = reader->buffer != NULL;
    int result = message_feed(reader, limits_of(call)->message_bytes_max, data, length, error);
    if (result < 0) {
        return result;
    }
    if (!had_buffer && reader->buffer != NULL && !bytes_hold(call, reader->length)) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "the server holds too many request bytes; try again later");
    }
    return result == MESSAGE_WHOLE ? message_complete(call, error) : 0;
}

void request_data(struct grpc_call *call, const unsigned char *data, size_t length)
{
    struct request *request = &call->request;
    request->unconsumed += length;
    if (request->unconsumed >= limits_of(call)->window_bytes / 4) {
        nghttp2_session_consume_stream(call->connection->session, call->stream_id,
                                       request->unconsumed);
        request->unconsumed = 0;
    }
    while (length > 0 && !call->response.answered) {
        struct error error;
        if (message_step(call, &data, &length, &error) < 0) {
            message_refuse(call, &error);
            return;
        }
    }
}

void request_end(struct grpc_call *call)
{
    struct request *request = &call->request;
    request->ended = true;
    request->arrival_ns = call->loop->own.now_ns;
    if (call->response.answered) {
        return;
    }
    struct error error = {.code = ERROR_INTERNAL};
    if (!message_is_between(&request->reader)) {
        error_set(&error, ERROR_INTERNAL, "the request ended inside a message");
        message_refuse(call, &error);
    } else if (!call_is_stream(call) && request->message_count == 0) {
        error_set(&error, ERROR_INTERNAL, "the request ended without a message");
        message_refuse(call, &error);
    } else {
        call_queue(call);
    }
}

/* False: the message does not parse, which has been answered. */
static bool body_decode(struct grpc_call *call, const ProtobufCMessage **ret_message)
{
    const struct grpc_method *method = call->request.route->method;
    const struct buffer *body = call->request.body;
    *ret_message = NULL;
    if (method->request == NULL) {
        return true;
    }
    uint64_t decoded_max = DECODED_BYTES_FREE + body->length * DECODED_TIMES_MAX;
    uint64_t limit = limits_of(call)->decoded_bytes_max;
    call->arena.limit = call->arena.used + (decoded_max < limit ? decoded_max : limit);
    *ret_message = protobuf_c_message_unpack(method->request, &call->arena.allocator, body->length,
                                             body->data);
    struct error error;
    if (*ret_message != NULL) {
        struct wire_text text = {body->data, body->length};
        if (texts_check(method->request, text, &error) == 0) {
            return true;
        }
    } else if (call->arena.exhausted) {
        error_set(&error, ERROR_RESOURCE_EXHAUSTED,
                  "request of %zu bytes takes more than %zu bytes of memory when decoded",
                  body->length, call->arena.limit);
    } else {
        error_set(&error, ERROR_INTERNAL, "request does not parse as a %s", method->request->name);
    }
    message_refuse(call, &error);
    return false;
}

static void handler_run(struct grpc_call *call)
{
    const struct route *route = call->request.route;
    const ProtobufCMessage *message = NULL;
    if (call->request.body != NULL && !body_decode(call, &message)) {
        return;
    }
    if (!call->owed) {
        call->owed = true;
        call->loop->own.calls_owed++;
    }
    route->method->handle(call, message, route->service->context);
}

static bool stream_goes_on(const struct grpc_call *call)
{
    return !atomic_load(&call->finished) && !call->response.answered;
}

/* Hands the messages that wait to the handler, then the half-close. */
static void stream_run(struct grpc_call *call)
{
    struct request *request = &call->request;
    while (request->waiting != NULL && stream_goes_on(call)) {
        struct incoming *incoming = request->waiting;
        request->waiting = incoming->next;
        if (request->waiting == NULL) {
            request->waiting_last = NULL;
        }
        request->body = incoming->buffer;
        free(incoming);
        arena_reset(&call->arena, &call->headers_mark);
        handler_run(call);
        bytes_give_back(call, request->body->length);
        buffer_release(request->body);
        request->body = NULL;
    }
    if (request->ended && !request->half_closed && stream_goes_on(call)) {
        request->half_closed = true;
        handler_run(call);
    }
}

static void request_deliver(struct grpc_call *call)
{
    struct request *request = &call->request;
    if (request->deadline_ns != UINT64_MAX && request->deadline_ns <= clock_now_ns()) {
        response_fail(call, ERROR_DEADLINE_EXCEEDED, "the call's deadline passed");
        call_cancel(call);
        return;
    }
    if (call_is_stream(call)) {
        stream_run(call);
    } else if (request->ended && !call->owed && !atomic_load(&call->finished)) {
        handler_run(call);
    }
    if (call->drained && call->on_drained != NULL && stream_goes_on(call)) {
        call->drained = false;
        call->on_drained(call->on_drained_arg);
    }
    if (stream_goes_on(call)) {
        call_deadline_arm(call);
    }
}

void request_run(struct grpc_call *call)
{
    if (call->connection != NULL && !call->response.answered) {
        request_deliver(call);
    }
    call_release(call);
}

void request_fini(struct grpc_call *call)
{
    struct request *request = &call->request;
    while (request->waiting != NULL) {
        struct incoming *incoming = request->waiting;
        request->waiting = incoming->next;
        buffer_release(incoming->buffer);
        free(incoming);
    }
    buffer_release(request->body);
    message_reader_fini(&request->reader);
    bytes_give_back(call, request->held_bytes);
}
