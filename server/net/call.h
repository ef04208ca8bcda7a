/* call.h: the inside of struct grpc_call: one stream's request and response.
 * Block:   a call lies in a block of CALL_BLOCK_BYTES with the first bytes of its arena behind it,
 *          so that a small call costs no other allocation.
 * Life:    freed on the network thread when the stream is gone (`connection` NULL), no handler
 *          owes an answer and the call is not queued to run. */
#ifndef TIDEPOOL_NET_CALL_H
#define TIDEPOOL_NET_CALL_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/net/arena.h"
#include "server/net/compression.h"
#include "server/net/connection.h"
#include "server/net/message.h"
#include "server/net/routes.h"

#define CALL_BLOCK_BYTES 4096
#define HTTP_OK 200

/* One request header, in the call's arena. */
struct header {
    struct header *next;
    const char *name;
    const char *value;
    size_t name_length, value_length;
};

/* One response header or trailer that the service set; malloc'ed. */
struct field {
    struct field *next;
    const char *value;
    char name[]; /* then the value */
};

/* A whole request message of a stream that waits for the handler; malloc'ed. */
struct incoming {
    struct incoming *next;
    struct buffer *buffer;
};

/* A response message on its way out. */
struct outgoing {
    struct note note;
    struct outgoing *next;
    struct grpc_call *call;
    struct buffer *buffer;
    size_t sent;  /* bytes of it that are in frames */
    bool counted; /* in the call's waiting bytes */
};

struct request {
    const struct route *route; /* NULL: unknown */
    struct header *headers, *headers_last;
    size_t header_bytes;
    const char *path; /* cut short; for messages */
    uint64_t begin_ns;
    uint64_t timeout_ns;
    uint64_t deadline_ns; /* UINT64_MAX: none */
    uint64_t arrival_ns;  /* of the last byte of the message */
    enum compression encoding;
    enum compression accepted; /* best coding for responses */
    bool is_post, is_grpc, timeout_seen, timeout_broken, headers_over;
    bool headers_done;
    bool ended;       /* END_STREAM has come */
    bool half_closed; /* the handler has been told */
    struct message_reader reader;
    uint32_t message_count;
    struct incoming *waiting, *waiting_last; /* streams */
    struct buffer *body;                     /* the message handed to the handler */
    uint64_t held_bytes;                     /* counted in the server's request_bytes */
    size_t unconsumed;
};

struct response {
    struct outgoing *first, *last;
    struct outgoing reply; /* a unary answer needs no allocation */
    struct field *headers, *trailers;
    bool begun;    /* HEADERS are submitted */
    bool deferred; /* the data provider waits for more */
    bool answered; /* the final status is known */
    bool sent_any; /* at least one message was queued */
    bool promised; /* nghttp2 has a DATA frame begun whose bytes it has yet to take */
    enum error_code status;
    const char *text;     /* NULL, `own_text` or a literal */
    char *own_text;       /* malloc'ed */
    uint64_t progress_ns; /* last frame, or when output began to wait */
};

struct grpc_call {
    struct note finish_note;
    struct loop *loop;
    struct connection *connection;     /* NULL when the stream is gone */
    struct grpc_call *next, *previous; /* of the connection */
    struct grpc_call *ready_next;
    int32_t stream_id;
    bool queued;  /* in the loop's ready list */
    bool owed;    /* a handler has it and has not finished */
    bool drained; /* all output has gone out since the handler was last told */
    bool has_peer;
    uint32_t uid, pid;
    struct request request;
    struct response response;
    struct timer timer;
    void *data;
    void (*on_drained)(void *arg);
    void *on_drained_arg;
    struct arena_mark headers_mark; /* streams: each message's decoded form starts here */
    struct arena arena;
    /* The handler's side, any thread. */
    enum error_code finish_status;
    char *finish_text;
    bool begun_sending;
    unsigned field_count;
    _Atomic bool cancelled;
    _Atomic bool finished;
    _Atomic uint64_t waiting_bytes;
    struct {
        pthread_mutex_t lock; /* held while on_cancel runs; a finish elsewhere waits for it */
        void (*on_cancel)(void *arg);
        void *on_cancel_arg;
    } shared;
};

/* Network thread, all of them. */
struct grpc_call *call_create(struct connection *connection, int32_t stream_id);
void call_queue(struct grpc_call *call); /* to run at the next settling */
/* The stream is gone. May free the call. */
void call_detach(struct grpc_call *call);
/* Tells the handler that its answer is not wanted any more. */
void call_cancel(struct grpc_call *call);
void call_release(struct grpc_call *call); /* frees it when nothing needs it */
void call_deadline_arm(struct grpc_call *call);
/* A handler's finish has reached the network thread. */
void call_finished(struct grpc_call *call);

/* headers.c */
int request_header(struct grpc_call *call, const char *name, size_t name_length, const char *value,
                   size_t value_length);
void request_headers_done(struct grpc_call *call);

/* request.c */
void request_data(struct grpc_call *call, const unsigned char *data, size_t length);
void request_end(struct grpc_call *call);
void request_run(struct grpc_call *call);
void request_fini(struct grpc_call *call);

/* response.c */
void response_message(struct grpc_call *call, struct outgoing *outgoing);
/* The final status; what is queued goes out before it. `text` must live as long as the call. */
void response_finish(struct grpc_call *call, enum error_code status, const char *text);
/* The library's own answer: what has not begun to go out is dropped. The text is copied. */
void response_fail(struct grpc_call *call, enum error_code status, const char *text);
void response_http(struct grpc_call *call, const char *http_status); /* not gRPC: 405, 415 */
ssize_t response_read(nghttp2_session *session, int32_t stream_id, uint8_t *bytes, size_t length,
                      uint32_t *flags, nghttp2_data_source *source, void *context);
/* `length` bytes of the queued messages, behind the frame header. */
int response_data(struct grpc_call *call, const uint8_t *frame_header, size_t length);
void response_fini(struct grpc_call *call);
void outgoing_drop(struct outgoing *outgoing);

#endif
