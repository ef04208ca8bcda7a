/* grpc_client.h: one gRPC connection with many calls on it, cleartext HTTP/2 on nghttp2.
 * Shape:   no loop of its own. The owner polls grpc_client_fd for grpc_client_events until
 *          grpc_client_deadline_ns and calls grpc_client_process; or uses the blocking calls at the
 *          end, which do that with poll(2).
 * Calls:   unary and server streaming: one request message, any number of answers. `on_end` is
 *          called exactly once for each call that was started, also when the connection dies, the
 *          deadline passes or the call is cancelled; nothing is called for it afterwards.
 * Inside a handler: starting and cancelling calls is fine, destroying the client is not.
 * Bounds:  a received message is at most `message_bytes_max`; calls beyond the server's limit of
 *          streams wait here, and their deadline runs while they wait.
 * Errors:  0 or a negative enum error_code; the text names the address and what to do.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_CLIENTS_GRPC_CLIENT_H
#define TIDEPOOL_CLIENTS_GRPC_CLIENT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

#define GRPC_CLIENT_MESSAGE_BYTES_MAX (64u << 20)

struct grpc_client;

struct grpc_client_options {
    const char *address;         /* see address.h */
    const char *token;           /* NULL: none; sent as "authorization: Bearer TOKEN" */
    uint32_t message_bytes_max;  /* 0: GRPC_CLIENT_MESSAGE_BYTES_MAX */
    uint64_t connect_timeout_ns; /* 0: 10 s */
};

struct grpc_client_handler {
    /* Both may be NULL. `data` is valid during the call only. */
    void (*on_message)(void *context, const unsigned char *data, size_t length);
    /* `text` is never NULL. */
    void (*on_end)(void *context, enum error_code status, const char *text);
};

/* Starts to connect; calls may be started at once and wait. */
int grpc_client_create(const struct grpc_client_options *options, struct grpc_client **ret_client,
                       struct error *error);
void grpc_client_destroy(struct grpc_client *client); /* NULL is fine; calls nothing any more */

int grpc_client_fd(const struct grpc_client *client);       /* changes only while connecting */
short grpc_client_events(const struct grpc_client *client); /* POLLIN, POLLOUT */
/* The next time at which grpc_client_process must be called even if nothing happens. */
uint64_t grpc_client_deadline_ns(const struct grpc_client *client);
/* Reads, calls handlers, ends calls that are over their deadline, writes. Negative: the connection
 * is gone (the reason in `error`), all calls have been ended; only destroy is left to do. */
int grpc_client_process(struct grpc_client *client, uint64_t now_ns, struct error *error);
bool grpc_client_connected(const struct grpc_client *client);
size_t grpc_client_calls_open(const struct grpc_client *client);

/* Starts a call of `path` ("/package.Service/Method"). `path` and `body` (the encoded message,
 * without its prefix) stay valid until on_end. `deadline_ns` of clock_now_ns, UINT64_MAX: none.
 * The bytes leave with the next grpc_client_process or grpc_client_flush. */
int grpc_client_start(struct grpc_client *client, const char *path, const void *body,
                      size_t body_length, uint64_t deadline_ns,
                      const struct grpc_client_handler *handler, void *context, int32_t *ret_call,
                      struct error *error);
/* Ends the call with CANCELLED, unless it has ended already. */
void grpc_client_cancel(struct grpc_client *client, int32_t call);
/* Writes what waits as far as the socket takes it; as process, negative when the connection is
 * gone. */
int grpc_client_flush(struct grpc_client *client, struct error *error);

/* ---- blocking convenience ------------------------------------------------------------------- */

/* Calls with poll(2) inside stop with CANCELLED when this descriptor becomes readable (a signalfd);
 * -1: none. */
void grpc_client_set_wake_fd(struct grpc_client *client, int fd);

/* One unary call. *ret_response is freed by the caller with protobuf_c_message_free_unpacked. */
int grpc_client_call(struct grpc_client *client, const char *path, const ProtobufCMessage *request,
                     const ProtobufCMessageDescriptor *response, uint64_t timeout_ns,
                     ProtobufCMessage **ret_response, struct error *error);

/* Calls `on_message` for each answer until the server ends the stream (0), `on_message` returns
 * false (0, the call is cancelled), or it fails. timeout 0: none. */
int grpc_client_stream(struct grpc_client *client, const char *path,
                       const ProtobufCMessage *request, const ProtobufCMessageDescriptor *response,
                       uint64_t timeout_ns,
                       bool (*on_message)(void *context, const ProtobufCMessage *message),
                       void *context, struct error *error);

#endif
