/* What a handler does with its call, from any thread. */
#include "server/net/call.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/net/server.h"

#define FIELDS_MAX 32 /* headers and trailers that one call may set */
#define FIELD_BYTES_MAX 8192

const unsigned char *grpc_call_body(const struct grpc_call *call, size_t *ret_length)
{
    const struct buffer *body = call->request.body;
    *ret_length = body == NULL ? 0 : body->length;
    return body == NULL ? NULL : body->data;
}

struct buffer *grpc_call_buffer(const struct grpc_call *call)
{
    return call->request.body;
}

uint64_t grpc_call_arrival_ns(const struct grpc_call *call)
{
    return call->request.arrival_ns;
}

uint64_t grpc_call_deadline_ns(const struct grpc_call *call)
{
    return call->request.deadline_ns;
}

bool grpc_call_cancelled(const struct grpc_call *call)
{
    return atomic_load_explicit(&call->cancelled, memory_order_acquire);
}

/* All values of a name, joined, in the call's arena. */
static const char *values_join(struct grpc_call *call, const struct header *first, size_t total)
{
    char *joined = arena_allocate(&call->arena, total);
    char *end = joined;
    for (const struct header *each = first; each != NULL && joined != NULL; each = each->next) {
        if (each->name_length != first->name_length ||
            memcmp(each->name, first->name, first->name_length) != 0) {
            continue;
        }
        if (each != first) {
            *end++ = ',';
        }
        memcpy(end, each->value, each->value_length);
        end += each->value_length;
    }
    if (joined != NULL) {
        *end = '\0';
    }
    return joined;
}

const char *grpc_call_metadata(const struct grpc_call *call, const char *name)
{
    const struct header *first = NULL;
    size_t length = strlen(name), total = 0, count = 0;
    for (const struct header *each = call->request.headers; each != NULL; each = each->next) {
        if (each->name_length == length && memcmp(each->name, name, length) == 0) {
            first = first == NULL ? each : first;
            total += each->value_length + 1;
            count++;
        }
    }
    if (count <= 1) {
        return first == NULL ? NULL : first->value;
    }
    /* The arena is the call's scratch memory: taking from it changes nothing that is seen. */
    return values_join((struct grpc_call *)(uintptr_t)call, first, total);
}

bool grpc_call_peer(const struct grpc_call *call, uint32_t *ret_uid, uint32_t *ret_pid)
{
    if (call->has_peer) {
        *ret_uid = call->uid;
        *ret_pid = call->pid;
    }
    return call->has_peer;
}

void grpc_call_on_cancel(struct grpc_call *call, void (*callback)(void *arg), void *arg)
{
    assert(loop_is_current(call->loop));
    call->shared.on_cancel = callback;
    call->shared.on_cancel_arg = arg;
}

bool grpc_call_half_closed(const struct grpc_call *call)
{
    return call->request.half_closed;
}

void grpc_call_set_data(struct grpc_call *call, void *data)
{
    call->data = data;
}

void *grpc_call_data(const struct grpc_call *call)
{
    return call->data;
}

uint64_t grpc_call_waiting_bytes(const struct grpc_call *call)
{
    return atomic_load_explicit(&call->waiting_bytes, memory_order_relaxed);
}

void grpc_call_on_drained(struct grpc_call *call, void (*callback)(void *arg), void *arg)
{
    assert(loop_is_current(call->loop));
    call->on_drained = callback;
    call->on_drained_arg = arg;
}

static bool name_is_valid(const char *name)
{
    size_t length = strspn(name, "0123456789abcdefghijklmnopqrstuvwxyz_-.");
    return length > 0 && name[length] == '\0';
}

static bool value_is_valid(const char *value)
{
    for (const char *byte = value; *byte != '\0'; byte++) {
        if (*byte < 0x20 || *byte > 0x7E) {
            return false;
        }
    }
    return strlen(value) <= FIELD_BYTES_MAX;
}

static int field_add(struct grpc_call *call, struct field **list, const char *name,
                     const char *value)
{
    if (!name_is_valid(name) || !value_is_valid(value)) {
        return -ERROR_INVALID_ARGUMENT;
    }
    size_t name_size = strlen(name) + 1, value_size = strlen(value) + 1;
    struct field *field = NULL;
    if (call->field_count < FIELDS_MAX) {
        field = malloc(sizeof *field + name_size + value_size);
    }
    if (field == NULL) {
        return -ERROR_RESOURCE_EXHAUSTED;
    }
    call->field_count++;
    memcpy(field->name, name, name_size);
    memcpy(field->name + name_size, value, value_size);
    field->value = field->name + name_size;
    field->next = NULL;
    while (*list != NULL) {
        list = &(*list)->next;
    }
    *list = field;
    return 0;
}

int grpc_call_set_header(struct grpc_call *call, const char *name, const char *value)
{
    if (call->begun_sending) {
        return -ERROR_FAILED_PRECONDITION;
    }
    return field_add(call, &call->response.headers, name, value);
}

int grpc_call_set_trailer(struct grpc_call *call, const char *name, const char *value)
{
    return field_add(call, &call->response.trailers, name, value);
}

/* Exchanges the message for its compressed form where that was asked for and helps. */
static bool message_compress(struct grpc_call *call, struct buffer **buffer)
{
    uint32_t threshold = call->loop->server->limits.compress_responses_over_bytes;
    size_t length = (*buffer)->length - GRPC_PREFIX_BYTES;
    struct buffer *smaller = NULL;
    if (threshold == 0 || length < threshold || call->request.accepted == COMPRESSION_IDENTITY ||
        compression_deflate(call->request.accepted, (*buffer)->data + GRPC_PREFIX_BYTES, length,
                            GRPC_PREFIX_BYTES, &smaller) < 0) {
        return false;
    }
    if (smaller->length >= (*buffer)->length) {
        buffer_release(smaller);
        return false;
    }
    buffer_release(*buffer);
    *buffer = smaller;
    return true;
}

/* Checks and frames a message. Takes over the hold. */
static int outgoing_prepare(struct grpc_call *call, struct outgoing *outgoing,
                            struct buffer *buffer)
{
    const struct grpc_limits *limits = &call->loop->server->limits;
    assert(buffer->length >= GRPC_PREFIX_BYTES);
    size_t length = buffer->length - GRPC_PREFIX_BYTES;
    int result = 0;
    if (grpc_call_cancelled(call)) {
        result = -ERROR_CANCELLED;
    } else if (length > limits->send_bytes_max ||
               grpc_call_waiting_bytes(call) + length > limits->output_bytes_max) {
        result = -ERROR_RESOURCE_EXHAUSTED;
    }
    if (result < 0) {
        buffer_release(buffer);
        return result;
    }
    bool compressed = message_compress(call, &buffer);
    message_prefix_write(buffer->data, compressed, (uint32_t)(buffer->length - GRPC_PREFIX_BYTES));
    outgoing->note.kind = NOTE_SEND;
    outgoing->call = call;
    outgoing->buffer = buffer;
    call->begun_sending = true;
    atomic_fetch_add_explicit(&call->waiting_bytes, buffer->length, memory_order_relaxed);
    return 0;
}

int grpc_call_send_buffer(struct grpc_call *call, struct buffer *buffer)
{
    struct outgoing *outgoing = calloc(1, sizeof *outgoing);
    if (outgoing == NULL) {
        buffer_release(buffer);
        return -ERROR_RESOURCE_EXHAUSTED;
    }
    int result = outgoing_prepare(call, outgoing, buffer);
    if (result < 0) {
        free(outgoing);
        return result;
    }
    loop_post(call->loop, &outgoing->note);
    return 0;
}

/* NULL: no memory. */
static struct buffer *message_pack(const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    struct buffer *buffer = buffer_create(GRPC_PREFIX_BYTES + size);
    if (buffer != NULL) {
        protobuf_c_message_pack(message, buffer->data + GRPC_PREFIX_BYTES);
        buffer->length = GRPC_PREFIX_BYTES + size;
    }
    return buffer;
}

int grpc_call_send(struct grpc_call *call, const ProtobufCMessage *message)
{
    struct buffer *buffer = message_pack(message);
    return buffer == NULL ? -ERROR_RESOURCE_EXHAUSTED : grpc_call_send_buffer(call, buffer);
}

static void finish_post(struct grpc_call *call)
{
    /* On the network thread no cancel callback can run beside this; elsewhere wait for it. */
    if (loop_is_current(call->loop)) {
        bool again = atomic_exchange(&call->finished, true);
        assert(!again);
    } else {
        pthread_mutex_lock(&call->shared.lock);
        bool again = atomic_exchange(&call->finished, true);
        assert(!again);
        pthread_mutex_unlock(&call->shared.lock);
    }
    loop_post(call->loop, &call->finish_note);
}

void grpc_call_finish(struct grpc_call *call, enum error_code status, const char *text)
{
    call->finish_status = status;
    call->finish_text = text == NULL || text[0] == '\0' ? NULL : strdup(text);
    finish_post(call);
}

/* Names the size and the limit that stand against each other. */
static void reply_refuse(struct grpc_call *call, size_t length)
{
    const struct grpc_limits *limits = &call->loop->server->limits;
    char text[192];
    if (length > limits->send_bytes_max) {
        snprintf(text, sizeof text,
                 "response of %zu bytes is over the limit of %u bytes; ask for less at once or "
                 "raise the server's send limit",
                 length, limits->send_bytes_max);
    } else {
        snprintf(text, sizeof text, "more than %" PRIu64 " bytes of answers wait for this client",
                 limits->output_bytes_max);
    }
    grpc_call_finish(call, ERROR_RESOURCE_EXHAUSTED, text);
}

void grpc_call_reply_buffer(struct grpc_call *call, struct buffer *buffer)
{
    if (buffer == NULL) {
        grpc_call_finish(call, ERROR_RESOURCE_EXHAUSTED, "no memory for the response");
        return;
    }
    size_t length = buffer->length - GRPC_PREFIX_BYTES;
    int result = outgoing_prepare(call, &call->response.reply, buffer);
    if (result == -ERROR_RESOURCE_EXHAUSTED) {
        reply_refuse(call, length);
        return;
    }
    call->finish_status = result < 0 ? ERROR_CANCELLED : ERROR_NONE;
    finish_post(call);
}

void grpc_call_reply(struct grpc_call *call, const ProtobufCMessage *message)
{
    grpc_call_reply_buffer(call, message_pack(message));
}
