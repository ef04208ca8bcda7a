#include "server/rpc/exchange.h"

#include <inttypes.h>
#include <stdio.h>

static void reply(const struct exchange *exchange, const ProtobufCMessage *message)
{
    grpc_call_reply(exchange->call, message);
}

static int send_message(const struct exchange *exchange, const ProtobufCMessage *message)
{
    return grpc_call_send(exchange->call, message);
}

static void set_number(struct grpc_call *call, const char *name, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    grpc_call_set_trailer(call, name, text); /* what does not fit is left out */
}

static void finish(const struct exchange *exchange, enum error_code status, const char *text,
                   const struct error_bound *bound)
{
    if (bound != NULL) {
        grpc_call_set_trailer(exchange->call, "tidepool-limit", bound->name);
        set_number(exchange->call, "tidepool-limit-value", bound->value);
        set_number(exchange->call, "tidepool-limit-maximum", bound->most);
    }
    grpc_call_finish(exchange->call, status, text);
}

static void on_cancel(const struct exchange *exchange, void (*callback)(void *arg), void *arg)
{
    grpc_call_on_cancel(exchange->call, callback, arg);
}

static const char *metadata(const struct exchange *exchange, const char *name)
{
    return grpc_call_metadata(exchange->call, name);
}

static bool peer(const struct exchange *exchange, uint32_t *ret_uid, uint32_t *ret_pid)
{
    return grpc_call_peer(exchange->call, ret_uid, ret_pid);
}

static uint64_t waiting_bytes(const struct exchange *exchange)
{
    return grpc_call_waiting_bytes(exchange->call);
}

struct exchange exchange_of_grpc(struct grpc_call *call)
{
    static const struct exchange_kind kind = {.reply = reply,
                                              .send = send_message,
                                              .finish = finish,
                                              .on_cancel = on_cancel,
                                              .metadata = metadata,
                                              .peer = peer,
                                              .waiting_bytes = waiting_bytes};
    return (struct exchange){&kind, call};
}
