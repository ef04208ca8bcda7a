/* grpc_client_internal.h: what grpc_client.c, grpc_client_call.c, grpc_status.c and
 * grpc_blocking.c share. */
#ifndef TIDEPOOL_CLIENTS_GRPC_CLIENT_INTERNAL_H
#define TIDEPOOL_CLIENTS_GRPC_CLIENT_INTERNAL_H

#include <nghttp2/nghttp2.h>

#include "clients/common/address.h"
#include "clients/common/grpc_client.h"

struct client_call {
    struct client_call *next, *previous;
    int32_t stream_id;
    uint64_t deadline_ns;
    struct grpc_client_handler handler;
    void *context;
    const unsigned char *body;
    size_t body_length, sent; /* sent counts the prefix too */
    unsigned char send_prefix[5];
    unsigned char prefix[5]; /* of the message that is being received */
    unsigned prefix_length;
    uint32_t message_size, message_length;
    unsigned http_status;
    bool has_status;
    enum error_code status;
    char text[512]; /* what comes from here on outlives the call: memory is used again */
    unsigned char *message;
    size_t message_capacity;
};

struct grpc_client {
    struct address address;
    unsigned candidate;
    int fd, wake_fd;
    bool connected, lost;
    bool settings_seen, goaway_seen; /* what the server has said */
    uint64_t connect_deadline_ns;
    uint32_t message_bytes_max;
    char *authorization;
    nghttp2_session *session;
    unsigned char *output;
    size_t output_start, output_length, output_capacity;
    struct client_call *calls_head, *calls_tail, *calls_idle;
    size_t calls_open;
};

/* ---- grpc_client_call.c: calls and what nghttp2 tells about them ---------------------------- */
/* Why HTTP/2 ended on this connection, as far as frames tell. */
const char *client_end_reason(const struct grpc_client *client);
int client_session_create(struct grpc_client *client);
struct client_call *call_create(struct grpc_client *client); /* NULL: no memory */
void call_recycle(struct grpc_client *client, struct client_call *call);
void call_link(struct grpc_client *client, struct client_call *call);
void call_unlink(struct grpc_client *client, struct client_call *call);
/* The only place that tells a call's handler its end. */
void call_end(struct grpc_client *client, struct client_call *call, enum error_code status,
              const char *text);
/* Ends a call from this side: its stream, if it has one, is reset and forgets the call. */
void call_abort(struct grpc_client *client, struct client_call *call, enum error_code status,
                const char *text);
/* Hands the request to nghttp2; the stream's number, or a negative nghttp2 error. */
int32_t call_submit(struct grpc_client *client, struct client_call *call, const char *path);

int grpc_client_wake_fd(const struct grpc_client *client);

/* Percent-decoding of grpc-message; never fails, broken escapes stay as they are. */
void grpc_text_decode(const char *value, size_t length, char *text, size_t size);
/* The value of grpc-timeout for what is left until the deadline. */
void grpc_timeout_encode(uint64_t deadline_ns, uint64_t now_ns, char *text, size_t size);
/* The status of a call that ended without a grpc-status, and its text. */
enum error_code grpc_status_without_trailer(unsigned http_status, uint32_t http2_error, char *text,
                                            size_t size);

#endif
