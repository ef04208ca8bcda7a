#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "clients/common/grpc_client_internal.h"
#include "server/base/clock.h"

/* One call that somebody waits for. */
struct waited_call {
    const ProtobufCMessageDescriptor *type;
    bool (*on_message)(void *context, const ProtobufCMessage *message); /* NULL: unary */
    void *context;
    ProtobufCMessage *response;
    struct grpc_client *client;
    int32_t id;
    bool ended, stopped, unreadable;
    enum error_code status;
    char text[512];
};

static void on_answer(void *context, const unsigned char *data, size_t length)
{
    struct waited_call *call = context;
    if (call->stopped || call->unreadable) {
        return;
    }
    ProtobufCMessage *message = protobuf_c_message_unpack(call->type, NULL, length, data);
    if (message == NULL) {
        call->unreadable = true;
        return;
    }
    if (call->on_message == NULL) {
        protobuf_c_message_free_unpacked(call->response, NULL); /* NULL is fine */
        call->response = message;
        return;
    }
    call->stopped = !call->on_message(call->context, message);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void on_answer_end(void *context, enum error_code status, const char *text)
{
    struct waited_call *call = context;
    call->ended = true;
    call->status = status;
    strncpy(call->text, text, sizeof(call->text) - 1);
}

/* Sleeps until the connection, the wake descriptor or a deadline wants something; true: woken. */
static bool client_sleep(struct grpc_client *client)
{
    struct pollfd entries[2] = {
        {.fd = grpc_client_fd(client), .events = grpc_client_events(client)},
        {.fd = grpc_client_wake_fd(client), .events = POLLIN},
    };
    uint64_t deadline = grpc_client_deadline_ns(client);
    uint64_t now = clock_now_ns();
    uint64_t left = deadline > now ? deadline - now : 0;
    struct timespec time = {.tv_sec = (time_t)(left / NS_PER_S),
                            .tv_nsec = (long)(left % NS_PER_S)};
    int count = ppoll(entries, 2, deadline == UINT64_MAX ? NULL : &time, NULL);
    return count > 0 && entries[1].revents != 0;
}

/* Runs the call to its end. The connection's own error, if it dies, is the call's. */
static int call_wait(struct grpc_client *client, struct waited_call *call, struct error *error)
{
    while (!call->ended) {
        grpc_client_process(client, clock_now_ns(), NULL);
        if (call->ended) {
            break;
        }
        if (call->stopped || call->unreadable || client_sleep(client)) {
            bool woken = !call->stopped && !call->unreadable;
            grpc_client_cancel(client, call->id);
            grpc_client_flush(client, NULL);
            if (woken) {
                return error_set(error, ERROR_CANCELLED, "interrupted");
            }
        }
    }
    if (call->unreadable) {
        return error_set(error, ERROR_INTERNAL,
                         "the server's answer is no message of the type %s; client and server may "
                         "be of different versions",
                         call->type->name);
    }
    if (call->stopped) {
        return 0;
    }
    return call->status == ERROR_NONE ? 0 : error_set(error, call->status, "%s", call->text);
}

static int call_run(struct grpc_client *client, const char *path, const ProtobufCMessage *request,
                    uint64_t timeout_ns, struct waited_call *call, struct error *error)
{
    static const struct grpc_client_handler handler = {on_answer, on_answer_end};
    size_t length = protobuf_c_message_get_packed_size(request);
    unsigned char *body = malloc(length + 1);
    if (body == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a request of %zu bytes",
                         length);
    }
    protobuf_c_message_pack(request, body);
    uint64_t deadline = timeout_ns == 0 ? UINT64_MAX : clock_add_ns(clock_now_ns(), timeout_ns);
    int result =
        grpc_client_start(client, path, body, length, deadline, &handler, call, &call->id, error);
    if (result == 0) {
        result = call_wait(client, call, error);
    }
    free(body);
    return result;
}

int grpc_client_call(struct grpc_client *client, const char *path, const ProtobufCMessage *request,
                     const ProtobufCMessageDescriptor *response, uint64_t timeout_ns,
                     ProtobufCMessage **ret_response, struct error *error)
{
    struct waited_call call = {.type = response, .client = client};
    int result = call_run(client, path, request, timeout_ns, &call, error);
    if (result == 0 && call.response == NULL) {
        result =
            error_set(error, ERROR_INTERNAL, "%s: the server answered without a message", path);
    }
    if (result == 0) {
        *ret_response = call.response;
    } else {
        protobuf_c_message_free_unpacked(call.response, NULL);
    }
    return result;
}

int grpc_client_stream(struct grpc_client *client, const char *path,
                       const ProtobufCMessage *request, const ProtobufCMessageDescriptor *response,
                       uint64_t timeout_ns,
                       bool (*on_message)(void *context, const ProtobufCMessage *message),
                       void *context, struct error *error)
{
    struct waited_call call = {
        .type = response, .on_message = on_message, .context = context, .client = client};
    return call_run(client, path, request, timeout_ns, &call, error);
}
