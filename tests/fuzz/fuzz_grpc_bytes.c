/* fuzz_grpc_bytes: HTTP/2 as a client could send it, then damaged, into a server's connection:
 * whole, in pieces, a byte at a time. One thread: the event base is turned by hand.
 *     fuzz_grpc_bytes [ROUNDS [SEED]]
 * After each round the connection is closed and nothing of it may be left. */
#include <assert.h>
#include <event2/event.h>
#include <inttypes.h>
#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "server/net/call.h"
#include "server/net/server.h"

#define STREAM_BYTES_MAX 65536
#define TURNS_MAX 50
#define CALLS_MAX 24
#define BODY_BYTES_MAX 3000

struct stream_bytes {
    unsigned char data[STREAM_BYTES_MAX];
    size_t length;
};

static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static size_t random_below(size_t limit)
{
    return (size_t)(random_next() % limit);
}

/* ---- the service ----------------------------------------------------------------------------- */

static void on_cancel(void *call)
{
    grpc_call_finish(call, ERROR_CANCELLED, NULL);
}

static struct buffer *body_copy(const struct grpc_call *call)
{
    size_t length;
    const unsigned char *body = grpc_call_body(call, &length);
    struct buffer *copy = buffer_create(GRPC_PREFIX_BYTES + length);
    assert(copy != NULL);
    if (length > 0) {
        memcpy(copy->data + GRPC_PREFIX_BYTES, body, length);
    }
    copy->length = GRPC_PREFIX_BYTES + length;
    return copy;
}

static void handle_unary(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    (void)message;
    (void)context;
    grpc_call_reply_buffer(call, body_copy(call));
}

static void handle_stream(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    (void)message;
    (void)context;
    grpc_call_on_cancel(call, on_cancel, call);
    if (grpc_call_half_closed(call)) {
        grpc_call_finish(call, ERROR_NONE, NULL);
    } else {
        (void)grpc_call_send_buffer(call, body_copy(call));
    }
}

/* Answers only when its client has gone. */
static void handle_never(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    (void)message;
    (void)context;
    grpc_call_on_cancel(call, on_cancel, call);
}

static const struct grpc_method methods[] = {
    {"Unary", GRPC_UNARY, NULL, handle_unary},
    {"Stream", GRPC_BIDI_STREAM, NULL, handle_stream},
    {"Never", GRPC_UNARY, NULL, handle_never},
};
static const struct grpc_service service = {"f.S", methods, 3, NULL};

/* ---- what a client sends --------------------------------------------------------------------- */

struct body {
    unsigned char data[BODY_BYTES_MAX * 2];
    size_t length, sent, chunk;
};
static struct body bodies[CALLS_MAX];

static void message_append(struct body *body, bool compressed, size_t length)
{
    unsigned char plain[BODY_BYTES_MAX];
    unsigned char *target = body->data + body->length;
    uLongf packed = (uLongf)(sizeof body->data - body->length - MESSAGE_PREFIX_BYTES);
    memset(plain, (int)random_below(256), length);
    if (compressed) {
        assert(compress(target + MESSAGE_PREFIX_BYTES, &packed, plain, length) == Z_OK);
        length = packed;
    } else {
        memcpy(target + MESSAGE_PREFIX_BYTES, plain, length);
    }
    message_prefix_write(target, compressed, (uint32_t)length);
    body->length += MESSAGE_PREFIX_BYTES + length;
}

static ssize_t body_read(nghttp2_session *session, int32_t stream_id, uint8_t *bytes, size_t length,
                         uint32_t *flags, nghttp2_data_source *source, void *context)
{
    struct body *body = source->ptr;
    size_t left = body->length - body->sent;
    size_t count = left < body->chunk ? left : body->chunk;
    (void)session;
    (void)stream_id;
    (void)context;
    count = count < length ? count : length;
    memcpy(bytes, body->data + body->sent, count);
    body->sent += count;
    *flags = body->sent == body->length ? NGHTTP2_DATA_FLAG_EOF : NGHTTP2_DATA_FLAG_NONE;
    return (ssize_t)count;
}

static void call_submit(nghttp2_session *session, struct body *body)
{
    static const char *const paths[] = {"/f.S/Unary", "/f.S/Stream", "/f.S/Never", "/f.S/Other"};
    static const char *const timeouts[] = {"10S", "1n", "99999999H", "bad"};
    size_t kind = random_below(4), extra = random_below(4);
    const char *encoding = random_below(8) ? "deflate" : "snappy";
    const char *timeout = timeouts[random_below(4)];
    const nghttp2_nv all[] = {
#define NV(name, value)                                                                            \
    {(uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), strlen(name), strlen(value), 0}
        NV(":method", "POST"),         NV(":scheme", "http"),
        NV(":path", paths[kind]),      NV(":authority", "f"),
        NV("te", "trailers"),          NV("content-type", "application/grpc"),
        NV("grpc-encoding", encoding), NV("x-value", "some text of a service's own"),
        NV("grpc-timeout", timeout),
#undef NV
    };
    const nghttp2_data_provider provider = {.source.ptr = body, .read_callback = body_read};
    memset(body, 0, sizeof *body);
    body->chunk = 1 + random_below(BODY_BYTES_MAX);
    for (size_t count = kind == 1 ? random_below(3) : 1; count > 0; count--) {
        message_append(body, random_below(3) == 0, random_below(BODY_BYTES_MAX / 2));
    }
    int32_t id = nghttp2_submit_request(session, NULL, all, 6 + extra, &provider, NULL);
    if (random_below(8) == 0) {
        nghttp2_submit_rst_stream(session, 0, id, NGHTTP2_CANCEL);
    }
    if (random_below(10) == 0) {
        nghttp2_submit_ping(session, 0, NULL);
    }
}

static void stream_make(struct stream_bytes *stream)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *session;
    const uint8_t *bytes;
    ssize_t count;
    stream->length = 0;
    assert(nghttp2_session_callbacks_new(&callbacks) == 0);
    assert(nghttp2_session_client_new(&session, callbacks, NULL) == 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session, 0, NULL, 0);
    for (size_t calls = 1 + random_below(CALLS_MAX); calls > 0; calls--) {
        call_submit(session, &bodies[calls - 1]);
        while (random_below(2) && (count = nghttp2_session_mem_send(session, &bytes)) > 0 &&
               stream->length + (size_t)count <= STREAM_BYTES_MAX) {
            memcpy(stream->data + stream->length, bytes, (size_t)count);
            stream->length += (size_t)count;
        }
    }
    while ((count = nghttp2_session_mem_send(session, &bytes)) > 0 &&
           stream->length + (size_t)count <= STREAM_BYTES_MAX) {
        memcpy(stream->data + stream->length, bytes, (size_t)count);
        stream->length += (size_t)count;
    }
    nghttp2_session_del(session);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void range_remove(struct stream_bytes *stream, size_t at, size_t count)
{
    memmove(stream->data + at, stream->data + at + count, stream->length - at - count);
    stream->length -= count;
}

static void frame_insert(struct stream_bytes *stream, size_t at)
{
    unsigned char frame[9 + 64];
    size_t length = random_below(64), total = 9 + length;
    if (stream->length + total > STREAM_BYTES_MAX) {
        return;
    }
    for (size_t i = 0; i < total; i++) {
        frame[i] = (unsigned char)random_next();
    }
    frame[0] = frame[1] = 0;
    frame[2] = (unsigned char)length;
    frame[3] = (unsigned char)random_below(11);
    frame[5] = frame[6] = frame[7] = 0;
    frame[8] = (unsigned char)random_below(12);
    memmove(stream->data + at + total, stream->data + at, stream->length - at);
    memcpy(stream->data + at, frame, total);
    stream->length += total;
}

/* Where some frame begins, so that most of what follows stays in step. */
static size_t frame_find(const struct stream_bytes *stream)
{
    size_t at = 24, chosen = 24, seen = 0; /* behind the preface */
    while (at + 9 <= stream->length) {
        seen++;
        chosen = random_below(seen) == 0 ? at : chosen;
        at += 9 + ((size_t)stream->data[at] << 16 | (size_t)stream->data[at + 1] << 8 |
                   stream->data[at + 2]);
    }
    return chosen < stream->length ? chosen : stream->length;
}

static void stream_damage(struct stream_bytes *stream)
{
    size_t at = random_below(stream->length);
    switch (random_below(6)) {
    case 0:
        stream->data[at] ^= (unsigned char)(1u << random_below(8));
        break;
    case 1:
        stream->data[at] = (unsigned char)random_next();
        break;
    case 2:
        stream->length = at + 1;
        break;
    case 3:
        range_remove(stream, at, random_below(stream->length - at < 64 ? stream->length - at : 64));
        break;
    case 4:
        frame_insert(stream, frame_find(stream));
        break;
    default: { /* a frame's flags, type or stream */
        size_t frame = frame_find(stream);
        if (frame + 9 <= stream->length) {
            stream->data[frame + 3 + random_below(6)] ^= (unsigned char)(1u << random_below(4));
        }
        break;
    }
    }
}

/* ---- one round ------------------------------------------------------------------------------- */

static void turn(struct grpc_server *server)
{
    event_base_loop(server->loops[0].own.base, EVLOOP_NONBLOCK);
}

static void output_drop(int fd)
{
    char bytes[65536];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
}

static void feed(struct grpc_server *server, const struct stream_bytes *stream, size_t piece)
{
    int pair[2];
    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    struct arrival *arrival = calloc(1, sizeof *arrival);
    assert(arrival != NULL);
    arrival->note.kind = NOTE_CONNECTION;
    arrival->fd = pair[0];
    arrival->service_mask = 1;
    atomic_fetch_add(&server->loops[0].connection_count, 1);
    mailbox_send(server->loops[0].mailbox, &arrival->note.letter);
    turn(server);
    for (size_t at = 0; at < stream->length; at += piece) {
        size_t count = stream->length - at < piece ? stream->length - at : piece;
        if (send(pair[1], stream->data + at, count, MSG_NOSIGNAL) != (ssize_t)count) {
            break; /* the server has closed */
        }
        turn(server);
        output_drop(pair[1]);
    }
    close(pair[1]);
    for (int i = 0; i < TURNS_MAX && server->loops[0].own.connections != NULL; i++) {
        turn(server);
    }
    turn(server); /* what was finished by cancels */
}

static void check_clean(struct grpc_server *server)
{
    struct grpc_counters counters;
    grpc_server_counters(server, &counters);
    assert(counters.connections_open == 0);
    assert(counters.calls_open == 0);
    assert(counters.request_bytes_held == 0);
    assert(counters.calls_started == counters.calls_finished_ok + counters.calls_failed +
                                         counters.calls_cancelled +
                                         counters.calls_deadline_exceeded);
    assert(server->loops[0].own.calls_owed == 0);
}

int main(int count, char **arguments)
{
    static struct stream_bytes stream;
    uint64_t rounds = count > 1 ? strtoull(arguments[1], NULL, 10) : 400;
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    struct error error = {0};
    struct grpc_counters counters;
    struct grpc_limits limits = grpc_limits_default;
    limits.message_bytes_max = BODY_BYTES_MAX;
    limits.header_list_bytes_max = 1024;
    struct grpc_server *server = grpc_server_create(1, &limits, &service, 1, &error);
    assert(server != NULL);
    loop_enter(&server->loops[0]);
    (void)printf("fuzz_grpc_bytes: %" PRIu64 " rounds from seed %" PRIu64 "\n", rounds, seed);
    (void)fflush(stdout); /* an assertion that fails says less */
    for (uint64_t round = 0; round < rounds; round++) {
        random_state = (seed + round) * UINT64_C(0x9E3779B97F4A7C15) | 1;
        (void)random_next();
        stream_make(&stream);
        for (size_t damage = round % 4 == 0 ? 0 : random_below(6); damage > 0; damage--) {
            stream_damage(&stream);
        }
        feed(server, &stream, STREAM_BYTES_MAX);
        check_clean(server);
        feed(server, &stream, 1 + random_below(200));
        check_clean(server);
        if (round % 16 < 2) {
            feed(server, &stream, 1);
            check_clean(server);
        }
    }
    grpc_server_counters(server, &counters);
    (void)printf("fuzz_grpc_bytes: %" PRIu64 " calls, %" PRIu64 " ok, %" PRIu64 " failed, %" PRIu64
                 " cancelled, %" PRIu64 " over their deadline\n",
                 counters.calls_started, counters.calls_finished_ok, counters.calls_failed,
                 counters.calls_cancelled, counters.calls_deadline_exceeded);
    grpc_server_destroy(server);
    return counters.calls_finished_ok > 0 && counters.calls_failed > 0 ? 0 : 1;
}
