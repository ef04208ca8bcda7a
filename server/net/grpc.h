/* grpc.h: gRPC over HTTP/2 for services that register a table of methods. Knows no service.
 * Shape:   N network threads, each with an event base, its connections and their streams; every
 *          listener is accepted by all of them. Cleartext with prior knowledge; a connection's
 *          bytes pass through two function pointers so that TLS can be put between later.
 * Calls:   a method is called on the network thread when its request message is whole (unary and
 *          server-streaming), or when the call starts and for each message (client streaming).
 *          It answers now or later, from any thread. A call stays valid until grpc_call_finish
 *          has been called for it AND its handler has returned; after finish never touch it.
 * Gone:    when the client cancels, the deadline passes or the connection dies, the call is
 *          marked cancelled and on_cancel runs once on the network thread; the handler must still
 *          finish the call (whatever it sends is dropped). Deadline: the library answers
 *          DEADLINE_EXCEEDED to the client by itself, then marks the call cancelled.
 * Streams: a client-streaming or two-way handler runs once for each message and once more at the
 *          half-close (grpc_call_half_closed). Such a call is finished on the network thread, or
 *          after the half-close was seen, so that no message meets a finished call.
 * Locks:   never call grpc_call_finish (or a reply) while holding a lock that the call's on_cancel
 *          callback takes: finish waits for a callback that runs.
 * Limits:  struct grpc_limits; each has a default and a counter in struct grpc_counters.
 * Answers the library makes itself: no POST: HTTP 405; content-type not application/grpc: HTTP 415;
 *          unknown path or compression: UNIMPLEMENTED; a grpc-timeout that is not 1 to 8 digits
 *          and a unit, or comes twice, broken framing or compression, a wrong number of messages:
 *          INTERNAL; a message, header list or decoded form over its limit: RESOURCE_EXHAUSTED.
 * Errors:  0 or a negative enum error_code. */
#ifndef TIDEPOOL_NET_GRPC_H
#define TIDEPOOL_NET_GRPC_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/buffer.h"
#include "server/base/error.h"

struct grpc_server;
struct grpc_call;

enum grpc_method_kind { GRPC_UNARY, GRPC_SERVER_STREAM, GRPC_CLIENT_STREAM, GRPC_BIDI_STREAM };

struct grpc_method {
    const char *name; /* "ModelInfer" */
    enum grpc_method_kind kind;
    /* Request type, decoded into an arena that lives as long as the call; NULL: the handler reads
     * the raw bytes (grpc_call_body). A message that does not parse is answered INTERNAL here, one
     * with a NUL byte in a string INVALID_ARGUMENT. */
    const ProtobufCMessageDescriptor *request;
    /* `message` is the decoded request, or NULL with `request` NULL. Network thread. For client
     * streaming: once per message (valid until the handler returns; hold the buffer to keep the
     * bytes), then once with half_closed and no message. */
    void (*handle)(struct grpc_call *call, const ProtobufCMessage *message, void *context);
};

struct grpc_service {
    const char *name; /* "inference.GRPCInferenceService" */
    const struct grpc_method *methods;
    size_t method_count;
    void *context;
};

struct grpc_limits {
    uint32_t message_bytes_max;      /* 64 MiB; announced size over it: RESOURCE_EXHAUSTED */
    uint32_t send_bytes_max;         /* 64 MiB */
    uint32_t header_list_bytes_max;  /* 16 KiB, name + value + 32 each */
    uint32_t concurrent_streams_max; /* 1000 per connection */
    uint32_t connections_max;        /* 1024 */
    uint32_t window_bytes;           /* 4 MiB, stream and connection */
    uint32_t ping_interval_min_ms;   /* 5000; strikes over 2 end the connection */
    uint32_t handshake_timeout_ms;   /* 10 s from accept to preface and SETTINGS */
    uint32_t body_timeout_ms;        /* 60 s from HEADERS to the whole first message */
    uint32_t write_timeout_ms;       /* 60 s without progress while output waits */
    uint32_t resets_per_second_max;  /* 200, burst 1000 (see facts: rapid reset) */
    uint64_t output_bytes_max;       /* 256 MiB waiting on one connection, then it is closed */
    uint64_t decoded_bytes_max;      /* 256 MiB of arena for one decoded request */
    uint64_t request_bytes_max;      /* 4 GiB of request bodies held at once, whole server */
    uint32_t calls_max;              /* 65536 open at once, whole server; more: REFUSED_STREAM */
    uint32_t keepalive_time_ms;      /* 2 h without a byte: the server sends a PING */
    uint32_t keepalive_timeout_ms;   /* 20 s for any byte after it, else the connection is closed */
    uint32_t compress_responses_over_bytes; /* 0: never; else only where the client accepts it */
};
extern const struct grpc_limits grpc_limits_default;

/* Totals since start, summed over the threads by grpc_server_counters. */
struct grpc_counters {
    uint64_t connections_accepted, connections_open, connections_refused, connections_timed_out;
    uint64_t calls_started, calls_open, calls_finished_ok, calls_failed, calls_cancelled,
        calls_deadline_exceeded;
    uint64_t messages_too_large, headers_too_large, pings_too_many, resets_too_many, decode_errors,
        bytes_received, bytes_sent, writes, request_bytes_held, glitches_too_many;
};

/* `threads` ≥ 1. The services and what they point to must outlive the server. */
struct grpc_server *grpc_server_create(unsigned threads, const struct grpc_limits *limits,
                                       const struct grpc_service *services, size_t service_count,
                                       struct error *error);
/* "127.0.0.1:8001", "[::1]:0" or "unix:/path" (mode 0600 until told otherwise, an old socket that
 * nobody listens on is replaced). `service_mask`: bit i = services[i] is offered here, ~0 = all.
 * Before start only. *ret_port: the port the kernel chose (0 for unix). Errors name the address;
 * a port in use says so and how to choose another. */
int grpc_server_listen(struct grpc_server *server, const char *address, uint64_t service_mask,
                       uint16_t *ret_port, struct error *error);
int grpc_server_start(struct grpc_server *server, struct error *error);
/* Stops listening, sends GOAWAY, lets calls finish for `timeout_ms`, answers what is left with
 * UNAVAILABLE, closes. Returns when all is closed (blocks: main thread). */
void grpc_server_drain(struct grpc_server *server, uint64_t timeout_ms);
/* NULL is fine. Closes what is open at once (drain first), waits until every call that a handler
 * holds has been finished, joins the threads. */
void grpc_server_destroy(struct grpc_server *server);
void grpc_server_counters(struct grpc_server *server, struct grpc_counters *ret_counters);

/* ---- one call ------------------------------------------------------------------------------- */

/* The whole request message, uncompressed; valid until finish. Holding its buffer
 * (buffer_hold(grpc_call_buffer(call))) keeps the bytes longer. Take the pointer from here: `data`
 * of the buffer need not be the start of the message. NULL at a half-close. */
const unsigned char *grpc_call_body(const struct grpc_call *call, size_t *ret_length);
struct buffer *grpc_call_buffer(const struct grpc_call *call);
uint64_t grpc_call_arrival_ns(const struct grpc_call *call);  /* clock_now_ns at END of message */
uint64_t grpc_call_deadline_ns(const struct grpc_call *call); /* UINT64_MAX: none */
bool grpc_call_cancelled(const struct grpc_call *call);       /* any thread, an atomic read */
/* Value of a request header, or NULL. Network thread, during the handler. Several values of one
 * name are joined by ','. -bin values as they were sent. */
const char *grpc_call_metadata(const struct grpc_call *call, const char *name);
/* Who calls, over a Unix socket (SO_PEERCRED); false over TCP. */
bool grpc_call_peer(const struct grpc_call *call, uint32_t *ret_uid, uint32_t *ret_pid);
/* One callback; network thread; at most once, never after finish has returned. Set it before the
 * handler returns. */
void grpc_call_on_cancel(struct grpc_call *call, void (*callback)(void *arg), void *arg);
/* Client streaming: true when the client will send no more messages. Network thread. */
bool grpc_call_half_closed(const struct grpc_call *call);
/* A pointer of the service's own that stays with the call (streams). Network thread. */
void grpc_call_set_data(struct grpc_call *call, void *data);
void *grpc_call_data(const struct grpc_call *call);
/* Bytes given to grpc_call_send* that the client's flow control has not let out yet. Any thread. */
uint64_t grpc_call_waiting_bytes(const struct grpc_call *call);
/* Network thread: runs each time all that was sent has gone out, until the call is finished; for
 * streams that skip old states when the client reads slowly. Set it before the handler returns. */
void grpc_call_on_drained(struct grpc_call *call, void (*callback)(void *arg), void *arg);

/* ---- many at once ---------------------------------------------------------------------------- */

/* During a handler: runs `callback` once, on this network thread, when all handlers of this turn
 * have run; for what calls that were read together can share, such as waking a worker. The same
 * callback and argument twice in a turn count once. `spare`: as far as is known, nothing else waits
 * for this thread. */
void grpc_call_after_handlers(struct grpc_call *call, void (*callback)(void *arg, bool spare),
                              void *arg);
/* What the calling thread sends and finishes from begin to end reaches the (other) network threads
 * together at the end, with one wakeup each. Keep it short; no nesting. */
void grpc_answers_begin(void);
void grpc_answers_end(void);

/* Response metadata, before the first message; ASCII text. Any thread. */
int grpc_call_set_header(struct grpc_call *call, const char *name, const char *value);
/* Trailer, e.g. "grpc-retry-pushback-ms". Before finish. */
int grpc_call_set_trailer(struct grpc_call *call, const char *name, const char *value);

/* A response message already encoded. Takes over one hold on `buffer`, whose bytes
 * [GRPC_PREFIX_BYTES, length) are the message: leave GRPC_PREFIX_BYTES free in front, they become
 * the frame's prefix. Streaming methods may send many; refused with RESOURCE_EXHAUSTED when more
 * than `output_bytes_max` waits (slow reader), CANCELLED when the client is gone. Any thread. */
#define GRPC_PREFIX_BYTES 5
int grpc_call_send_buffer(struct grpc_call *call, struct buffer *buffer);
/* The same from a protobuf-c message. */
int grpc_call_send(struct grpc_call *call, const ProtobufCMessage *message);

/* Ends the call, exactly once. `text` is copied, percent-encoded and cut at 1 KiB; NULL: none.
 * Any thread. The call must not be touched afterwards. */
void grpc_call_finish(struct grpc_call *call, enum error_code status, const char *text);
/* Unary success in one step: send + finish(NONE). */
void grpc_call_reply_buffer(struct grpc_call *call, struct buffer *buffer);
void grpc_call_reply(struct grpc_call *call, const ProtobufCMessage *message);

#endif
