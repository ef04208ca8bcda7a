/* ModelInfer: decoded and checked on the network thread, answered where it ran. */
#include <inttypes.h>
#include <stdio.h>

#include "server/base/clock.h"
#include "server/rpc/inference_context.h"
#include "server/serve/statistics.h"

static void infer_free(struct infer_call *infer)
{
    endpoint_release(infer->endpoint);
    buffer_release(infer->typed);
    buffer_release(infer->memory);
}

/* Serving thread, or whoever takes the request out of the queue. */
static void infer_done(struct serve_request *request, enum error_code status, const char *text,
                       const struct tensor *outputs)
{
    struct infer_call *infer = (struct infer_call *)request;
    struct error error = {0};
    if (status == ERROR_NONE && !grpc_call_cancelled(infer->call)) {
        grpc_call_reply_buffer(infer->call, infer_encode(infer, outputs));
    } else if (status == ERROR_NONE) {
        grpc_call_finish(infer->call, ERROR_CANCELLED, NULL); /* nobody waits for it */
    } else {
        (void)error_set(&error, status, "%s", text);
        if (strncmp(text, "model '", strlen("model '")) != 0) { /* runtimes say it themselves */
            (void)error_prefix(&error, "model '%s'", endpoint_name(infer->endpoint));
        }
        grpc_call_finish(infer->call, status, error.text);
    }
    infer_free(infer); /* finish has waited for a cancel callback that was running */
}

/* Network thread: the client is gone, or its deadline has passed. */
static void on_cancel(void *arg)
{
    struct infer_call *infer = arg;
    bool late = grpc_call_deadline_ns(infer->call) <= clock_now_ns();
    endpoint_cancel(infer->endpoint, &infer->request,
                    late ? ERROR_DEADLINE_EXCEEDED : ERROR_CANCELLED);
}

static void infer_refuse(struct grpc_call *call, const struct infer_message *message,
                         struct error *error)
{
    struct shown_text id;
    if (message != NULL && message->id.length > 0) {
        (void)error_prefix(error, "request '%s'", shown(&id, message->id));
    }
    grpc_call_finish(call, error->code, error->text);
}

static struct infer_call *infer_create(struct grpc_call *call, struct endpoint *endpoint,
                                       const struct infer_message *message, size_t body_length)
{
    size_t inputs = endpoint_signature(endpoint)->input_count;
    struct buffer *memory =
        buffer_create(sizeof(struct infer_call) + inputs * sizeof(struct tensor));
    struct infer_call *infer;
    if (memory == NULL) {
        return NULL;
    }
    infer = (struct infer_call *)(void *)memory->data;
    infer->request = (struct serve_request){
        .inputs = infer->inputs,
        .bytes = body_length,
        .arrival_ns = grpc_call_arrival_ns(call),
        .deadline_ns = grpc_call_deadline_ns(call),
        .deadline_watched = true,
        .done = infer_done,
    };
    infer->call = call;
    infer->endpoint = endpoint;
    infer->memory = memory;
    infer->typed = NULL;
    infer->model_name = message->model_name;
    infer->id = message->id;
    return infer;
}

/* A hold on the endpoint that the message names, ready to be asked; what is not is counted. */
static int endpoint_take(struct inference_context *context, const struct infer_message *message,
                         struct endpoint **ret_endpoint, struct error *error)
{
    struct endpoint *endpoint;
    int result = infer_endpoint_known(context->serve, message->model_name, message->model_version,
                                      &endpoint, error);
    if (result < 0) {
        atomic_fetch_add(&context->unknown_model, 1);
        return result;
    }
    if (!endpoint_ready(endpoint)) {
        result = endpoint_unavailable(endpoint, error); /* counts it */
        endpoint_release(endpoint);
        return result;
    }
    *ret_endpoint = endpoint;
    return 0;
}

/* Tells clients that retry by themselves when a full queue may have room, or (-1) that it never has
 * room for so large a request. */
static void pushback_set(const struct infer_call *infer)
{
    bool never = infer->request.bytes > endpoint_config(infer->endpoint)->queue_bytes_max;
    uint64_t wait_ms = endpoint_room_ns(infer->endpoint) / NS_PER_MS + 1;
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRIu64, wait_ms);
    /* A hint: the refusal stands without it. */
    (void)grpc_call_set_trailer(infer->call, "grpc-retry-pushback-ms", never ? "-1" : text);
}

static void on_handlers_done(void *arg, bool spare)
{
    (void)arg;
    endpoint_wakes_end(spare);
}

void infer_handle(struct grpc_call *call, const ProtobufCMessage *unused, void *context_arg)
{
    struct inference_context *context = context_arg;
    struct infer_message message;
    struct error error;
    struct endpoint *endpoint = NULL;
    struct infer_call *infer;
    size_t length;
    const unsigned char *body = grpc_call_body(call, &length);
    (void)unused;
    if (infer_message_decode(body, length, &message, &error) < 0) {
        atomic_fetch_add(&context->unreadable, 1);
        infer_refuse(call, NULL, &error);
        return;
    }
    int result = endpoint_take(context, &message, &endpoint, &error);
    if (result < 0) {
        infer_refuse(call, &message, &error);
        return;
    }
    infer = infer_create(call, endpoint, &message, length);
    if (infer == NULL) {
        (void)error_set(&error, ERROR_RESOURCE_EXHAUSTED, "no memory for a request");
        endpoint_count_invalid(endpoint);
        endpoint_release(endpoint);
        infer_refuse(call, &message, &error);
        return;
    }
    result = infer_call_fill(infer, &message, &error);
    if (result < 0) {
        endpoint_count_invalid(endpoint);
    } else {
        grpc_call_on_cancel(call, on_cancel, infer);
        /* Requests that were read together wake a device once. */
        endpoint_wakes_begin();
        grpc_call_after_handlers(call, on_handlers_done, NULL);
        result = endpoint_submit(endpoint, &infer->request, &error);
        if (result == 0) {
            return; /* from here on it may be answered and gone */
        }
        if (result == -ERROR_RESOURCE_EXHAUSTED) {
            pushback_set(infer);
        }
    }
    infer_refuse(call, &message, &error);
    infer_free(infer);
}
