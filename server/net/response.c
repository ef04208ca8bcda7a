/* The response side of a call, on its network thread: headers, messages, trailers. */
#include <stdlib.h>
#include <string.h>

#include "server/net/call.h"
#include "server/net/server.h"
#include "server/net/status_text.h"

#define BLOCK_FIELDS_MAX 48 /* more than a call may set and the protocol's own together */
#define FRAME_HEADER_BYTES 9

/* A header block under construction. Names and values must live until it is submitted. */
struct block {
    nghttp2_nv fields[BLOCK_FIELDS_MAX];
    size_t count;
};

/* A block is 2 KB, most of it unused: cleared would cost more than filled. */
static void block_init(struct block *block)
{
    block->count = 0;
}

static void block_add(struct block *block, const char *name, size_t name_length, const char *value,
                      size_t length)
{
    block->fields[block->count++] = (nghttp2_nv){
        .name = (uint8_t *)(uintptr_t)name,
        .namelen = name_length,
        .value = (uint8_t *)(uintptr_t)value,
        .valuelen = length,
    };
}
#define BLOCK_ADD(block, name, value, length)                                                      \
    block_add(block, name, sizeof(name) - 1, value, length)

static void block_add_list(struct block *block, const struct field *list)
{
    for (; list != NULL; list = list->next) {
        block_add(block, list->name, strlen(list->name), list->value, strlen(list->value));
    }
}

static void block_add_start(struct block *block, const char *http_status)
{
    BLOCK_ADD(block, ":status", http_status, 3);
    BLOCK_ADD(block, "content-type", "application/grpc", sizeof "application/grpc" - 1);
}

/* What the block's values point to until it is submitted. */
struct trailer_text {
    char status[2];
    char message[STATUS_TEXT_ENCODED_MAX];
};

static void block_add_status(struct block *block, enum error_code status, char text[2])
{
    unsigned number = (unsigned)status % 100;
    text[0] = (char)('0' + number / 10);
    text[1] = (char)('0' + number % 10);
    BLOCK_ADD(block, "grpc-status", number < 10 ? text + 1 : text, number < 10 ? 1 : 2);
}

static void block_add_trailers(struct block *block, const struct grpc_call *call,
                               struct trailer_text *text)
{
    const struct response *response = &call->response;
    block_add_status(block, response->status, text->status);
    if (response->text != NULL) {
        size_t encoded = status_text_encode(response->text, text->message);
        BLOCK_ADD(block, "grpc-message", text->message, encoded);
    }
    if (call->request.encoding == COMPRESSION_UNKNOWN) {
        BLOCK_ADD(block, "grpc-accept-encoding", COMPRESSION_ACCEPTED,
                  sizeof COMPRESSION_ACCEPTED - 1);
    }
    block_add_list(block, response->trailers);
}

static void connection_fail(struct connection *connection)
{
    connection->broken = true; /* nghttp2 is out of memory */
    connection_mark(connection);
}

/* One HEADERS frame that is the whole response. */
static void response_submit_alone(struct grpc_call *call, const char *http_status)
{
    struct block block;
    struct trailer_text text;
    block_init(&block);
    block_add_start(&block, http_status);
    block_add_list(&block, call->response.headers);
    block_add_trailers(&block, call, &text);
    call->response.begun = true;
    if (nghttp2_submit_response(call->connection->session, call->stream_id, block.fields,
                                block.count, NULL) != 0) {
        connection_fail(call->connection);
    }
}

static void response_submit(struct grpc_call *call)
{
    struct block block;
    const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = response_read};
    block_init(&block);
    block_add_start(&block, "200");
    if (call->loop->server->limits.compress_responses_over_bytes > 0 &&
        call->request.accepted != COMPRESSION_IDENTITY) {
        const char *name = compression_name(call->request.accepted);
        BLOCK_ADD(&block, "grpc-encoding", name, strlen(name));
    }
    block_add_list(&block, call->response.headers);
    call->response.begun = true;
    if (nghttp2_submit_response(call->connection->session, call->stream_id, block.fields,
                                block.count, &provider) != 0) {
        connection_fail(call->connection);
    }
}

/* Something was queued or decided: lets nghttp2 ask for it. */
static void response_push(struct grpc_call *call)
{
    struct response *response = &call->response;
    if (!response->begun && response->first == NULL) {
        response_submit_alone(call, "200");
    } else if (!response->begun) {
        response_submit(call);
    } else if (response->deferred) {
        response->deferred = false;
        if (nghttp2_session_resume_data(call->connection->session, call->stream_id) != 0) {
            connection_fail(call->connection);
        }
    }
    connection_mark(call->connection);
}

void outgoing_drop(struct outgoing *outgoing)
{
    struct grpc_call *call = outgoing->call;
    size_t length = outgoing->buffer->length;
    atomic_fetch_sub_explicit(&call->waiting_bytes, length, memory_order_relaxed);
    if (outgoing->counted) {
        call->connection->output_bytes -= length;
    }
    buffer_release(outgoing->buffer);
    outgoing->buffer = NULL;
    if (outgoing != &call->response.reply) {
        free(outgoing);
    }
}

void response_message(struct grpc_call *call, struct outgoing *outgoing)
{
    struct response *response = &call->response;
    if (call->connection == NULL || response->answered) {
        outgoing_drop(outgoing);
        return;
    }
    struct connection *connection = call->connection;
    outgoing->counted = true;
    connection->output_bytes += outgoing->buffer->length;
    if (response->last == NULL) {
        response->first = outgoing;
        response->progress_ns = call->loop->own.now_ns;
    } else {
        response->last->next = outgoing;
    }
    response->last = outgoing;
    response->sent_any = true;
    if (connection->output_bytes > call->loop->server->limits.output_bytes_max) {
        connection_fail(connection); /* its client does not read */
        return;
    }
    /* A unary answer waits for its status, so that both leave together. */
    if (outgoing != &response->reply) {
        response_push(call);
    }
}

static void answer_count(struct grpc_call *call, enum error_code status)
{
    switch (status) {
    case ERROR_NONE:
        LOOP_COUNT(call->loop, calls_finished_ok, 1);
        break;
    case ERROR_DEADLINE_EXCEEDED:
        LOOP_COUNT(call->loop, calls_deadline_exceeded, 1);
        break;
    default:
        LOOP_COUNT(call->loop, calls_failed, 1);
        break;
    }
}

static bool needs_message(const struct grpc_call *call)
{
    enum grpc_method_kind kind = call->request.route->method->kind;
    return kind == GRPC_UNARY || kind == GRPC_CLIENT_STREAM;
}

static void response_answer(struct grpc_call *call, enum error_code status, const char *text)
{
    call->response.answered = true;
    call->response.status = status;
    call->response.text = text;
    answer_count(call, status);
    timer_disarm(&call->loop->own.timers, &call->timer);
}

void response_finish(struct grpc_call *call, enum error_code status, const char *text)
{
    if (call->connection == NULL || call->response.answered) {
        return;
    }
    if (status == ERROR_NONE && !call->response.sent_any && needs_message(call)) {
        status = ERROR_INTERNAL;
        text = "the method answered without a message";
    }
    response_answer(call, status, text);
    response_push(call);
}

static void queue_clear(struct response *response)
{
    while (response->first != NULL) {
        struct outgoing *outgoing = response->first;
        response->first = outgoing->next;
        outgoing_drop(outgoing);
    }
    response->last = NULL;
}

void response_fail(struct grpc_call *call, enum error_code status, const char *text)
{
    struct response *response = &call->response;
    if (call->connection == NULL || response->answered) {
        return;
    }
    free(response->own_text);
    response->own_text = strdup(text);
    response_answer(call, status, response->own_text);
    if (response->promised || (response->first != NULL && response->first->sent > 0)) {
        /* Inside a message, or a frame, no status can be sent any more. */
        nghttp2_submit_rst_stream(call->connection->session, NGHTTP2_FLAG_NONE, call->stream_id,
                                  NGHTTP2_CANCEL);
        connection_mark(call->connection);
        return;
    }
    queue_clear(response);
    response_push(call);
}

void response_http(struct grpc_call *call, const char *http_status)
{
    response_answer(call, ERROR_INTERNAL,
                    "this is a gRPC port: POST with content-type application/grpc");
    response_submit_alone(call, http_status);
    connection_mark(call->connection);
}

static int trailers_submit(struct grpc_call *call)
{
    struct block block;
    struct trailer_text text;
    block_init(&block);
    block_add_trailers(&block, call, &text);
    return nghttp2_submit_trailer(call->connection->session, call->stream_id, block.fields,
                                  block.count);
}

ssize_t response_read(nghttp2_session *session, int32_t stream_id, uint8_t *bytes, size_t length,
                      uint32_t *flags, nghttp2_data_source *source, void *context)
{
    struct grpc_call *call = source->ptr;
    struct response *response = &call->response;
    size_t available = 0;
    (void)session;
    (void)stream_id;
    (void)bytes;
    (void)context;
    const struct outgoing *each = response->first;
    for (; each != NULL && available < length; each = each->next) {
        available += each->buffer->length - each->sent;
    }
    bool all = each == NULL && available <= length;
    if (available == 0 && !response->answered) {
        response->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (available > 0) {
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY; /* response_data puts them where they are sent from */
        response->promised = true;           /* which may be later, when the client reads again */
    }
    if (all && response->answered) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (trailers_submit(call) != 0) {
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        }
    }
    return (ssize_t)(available < length ? available : length);
}

int response_data(struct grpc_call *call, const uint8_t *frame_header, size_t length)
{
    struct response *response = &call->response;
    struct gather *gather = &call->loop->own.gather;
    if (!gather_reserve(gather, length + FRAME_HEADER_BYTES)) {
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    memcpy(gather->data + gather->length, frame_header, FRAME_HEADER_BYTES);
    gather->length += FRAME_HEADER_BYTES;
    response->progress_ns = call->loop->own.now_ns;
    response->promised = false;
    while (length > 0) {
        struct outgoing *outgoing = response->first;
        size_t left = outgoing->buffer->length - outgoing->sent;
        size_t count = left < length ? left : length;
        memcpy(gather->data + gather->length, outgoing->buffer->data + outgoing->sent, count);
        gather->length += count;
        outgoing->sent += count;
        length -= count;
        if (count == left) {
            response->first = outgoing->next;
            outgoing_drop(outgoing);
        }
    }
    if (response->first == NULL) {
        response->last = NULL;
        if (call->on_drained != NULL) {
            call->drained = true;
            call_queue(call);
        }
    }
    return 0;
}

void response_fini(struct grpc_call *call)
{
    struct field *lists[] = {call->response.headers, call->response.trailers};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        while (lists[i] != NULL) {
            struct field *field = lists[i];
            lists[i] = field->next;
            free(field);
        }
    }
    free(call->response.own_text);
}
