/* exchange.h: one request and its answer, whatever carries it: gRPC, or JSON over HTTP. A service
 * that answers with these knows no transport.
 * Shape:   a value to copy; it stays good until reply or finish, which end it, exactly once.
 * Request: its message lives as long as the exchange.
 * Thread:  metadata, peer and on_cancel: the transport's thread, inside the handler; else any. */
#ifndef TIDEPOOL_RPC_EXCHANGE_H
#define TIDEPOOL_RPC_EXCHANGE_H

#include "server/net/grpc.h"

struct exchange;

struct exchange_kind {
    void (*reply)(const struct exchange *exchange, const ProtobufCMessage *message);
    int (*send)(const struct exchange *exchange, const ProtobufCMessage *message);
    /* `bound` NULL: none. */
    void (*finish)(const struct exchange *exchange, enum error_code status, const char *text,
                   const struct error_bound *bound);
    void (*on_cancel)(const struct exchange *exchange, void (*callback)(void *arg), void *arg);
    const char *(*metadata)(const struct exchange *exchange, const char *name);
    bool (*peer)(const struct exchange *exchange, uint32_t *ret_uid, uint32_t *ret_pid);
    uint64_t (*waiting_bytes)(const struct exchange *exchange);
};

struct exchange {
    const struct exchange_kind *kind;
    void *call; /* the transport's */
};

struct exchange exchange_of_grpc(struct grpc_call *call);

/* The one message of a unary call, and its end. */
static inline void exchange_reply(const struct exchange *exchange, const ProtobufCMessage *message)
{
    exchange->kind->reply(exchange, message);
}

/* One message of a stream. CANCELLED: the client is gone; RESOURCE_EXHAUSTED: it does not read. */
static inline int exchange_send(const struct exchange *exchange, const ProtobufCMessage *message)
{
    return exchange->kind->send(exchange, message);
}

/* The end without a (further) message; ERROR_NONE: of a stream that is complete. */
static inline void exchange_finish(const struct exchange *exchange, enum error_code status,
                                   const char *text)
{
    exchange->kind->finish(exchange, status, text, NULL);
}

static inline void exchange_refuse(const struct exchange *exchange, const struct error *error)
{
    exchange->kind->finish(exchange, error->code, error->text,
                           error->bound.name[0] != '\0' ? &error->bound : NULL);
}

/* As grpc_call_on_cancel. */
static inline void exchange_on_cancel(const struct exchange *exchange, void (*callback)(void *arg),
                                      void *arg)
{
    exchange->kind->on_cancel(exchange, callback, arg);
}

/* A request's header, or NULL. */
static inline const char *exchange_metadata(const struct exchange *exchange, const char *name)
{
    return exchange->kind->metadata(exchange, name);
}

/* Of a stream: sent, and not taken by the client yet. */
static inline uint64_t exchange_waiting_bytes(const struct exchange *exchange)
{
    return exchange->kind->waiting_bytes(exchange);
}

/* Who asks, over a Unix socket; false over TCP. */
static inline bool exchange_peer(const struct exchange *exchange, uint32_t *ret_uid,
                                 uint32_t *ret_pid)
{
    return exchange->kind->peer(exchange, ret_uid, ret_pid);
}

#endif
