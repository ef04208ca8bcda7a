#include "tests/unit/net/echo.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/base/clock.h"

#define PATIENCE_NS (10 * NS_PER_S)

struct echo_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct grpc_call *calls[8192];
    size_t count;
    bool stopping;
};

static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

static struct buffer *answer_make(const void *bytes, size_t length)
{
    struct buffer *buffer = buffer_create(GRPC_PREFIX_BYTES + length);
    assert_non_null(buffer);
    if (length > 0) {
        memcpy(buffer->data + GRPC_PREFIX_BYTES, bytes, length);
    }
    buffer->length = GRPC_PREFIX_BYTES + length;
    return buffer;
}

static struct buffer *body_copy(const struct grpc_call *call)
{
    size_t length;
    const unsigned char *body = grpc_call_body(call, &length);
    return answer_make(body, length);
}

static void handle_unary(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    struct echo *echo = context;
    (void)message;
    atomic_fetch_add(&echo->handled, 1);
    grpc_call_reply_buffer(call, body_copy(call));
}

static void handle_later(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    struct echo_worker *worker = ((struct echo *)context)->worker;
    (void)message;
    pthread_mutex_lock(&worker->lock);
    assert_true(worker->count < sizeof worker->calls / sizeof worker->calls[0]);
    worker->calls[worker->count++] = call;
    pthread_cond_signal(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
}

static void *worker_main(void *arg)
{
    struct echo_worker *worker = arg;
    pthread_mutex_lock(&worker->lock);
    for (;;) {
        if (worker->count > 0) {
            struct grpc_call *call = worker->calls[--worker->count];
            pthread_mutex_unlock(&worker->lock);
            grpc_call_reply_buffer(call, body_copy(call));
            pthread_mutex_lock(&worker->lock);
        } else if (worker->stopping) {
            break;
        } else {
            pthread_cond_wait(&worker->changed, &worker->lock);
        }
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

static void on_held_cancel(void *arg)
{
    struct echo *echo = arg;
    atomic_fetch_add(&echo->cancels, 1);
}

static void handle_hold(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    struct echo *echo = context;
    (void)message;
    grpc_call_on_cancel(call, on_held_cancel, echo);
    pthread_mutex_lock(&held_lock);
    assert_true(echo->held_count < sizeof echo->held / sizeof echo->held[0]);
    echo->held[echo->held_count++] = call;
    pthread_mutex_unlock(&held_lock);
    atomic_fetch_add(&echo->held_seen, 1);
}

void echo_release_held(struct echo *echo)
{
    pthread_mutex_lock(&held_lock);
    size_t count = echo->held_count;
    echo->held_count = 0;
    pthread_mutex_unlock(&held_lock);
    for (size_t i = 0; i < count; i++) {
        grpc_call_reply_buffer(echo->held[i], body_copy(echo->held[i]));
    }
}

static void handle_fail(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    size_t length;
    const unsigned char *body = grpc_call_body(call, &length);
    char text[8192] = "";
    (void)message;
    (void)context;
    size_t count = length - 1 < sizeof text - 1 ? length - 1 : sizeof text - 1;
    memcpy(text, body + 1, count);
    grpc_call_set_trailer(call, "grpc-retry-pushback-ms", "250");
    grpc_call_finish(call, (enum error_code)(body[0] - '0'), text);
}

static void handle_metadata(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    const char *value = grpc_call_metadata(call, "x-value");
    (void)message;
    (void)context;
    assert_int_equal(grpc_call_set_header(call, "x-echo", value != NULL ? value : "none"), 0);
    assert_int_equal(grpc_call_set_header(call, "X-Upper", "no"), -ERROR_INVALID_ARGUMENT);
    assert_int_equal(grpc_call_set_header(call, "x-line", "a\nb"), -ERROR_INVALID_ARGUMENT);
    grpc_call_reply_buffer(call, answer_make("ok", 2));
}

static void handle_count(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    size_t length;
    const unsigned char *body = grpc_call_body(call, &length);
    char block[1024];
    (void)message;
    (void)context;
    for (int i = 0; i < body[0]; i++) {
        memset(block, i, sizeof block);
        assert_int_equal(grpc_call_send_buffer(call, answer_make(block, sizeof block)), 0);
    }
    grpc_call_finish(call, ERROR_NONE, NULL);
}

static void handle_flood(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    static char block[65536];
    struct echo *echo = context;
    (void)message;
    int result;
    while ((result = grpc_call_send_buffer(call, answer_make(block, sizeof block))) == 0) {
        atomic_fetch_add(&echo->flood_sent, sizeof block);
    }
    assert_int_equal(result, -ERROR_RESOURCE_EXHAUSTED);
    grpc_call_finish(call, ERROR_NONE, NULL);
}

/* A stream's handler hears of its client's end only here. */
static void on_stream_cancel(void *arg)
{
    grpc_call_finish(arg, ERROR_CANCELLED, NULL);
}

static void handle_sum(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    (void)message;
    (void)context;
    uintptr_t sum = (uintptr_t)grpc_call_data(call);
    grpc_call_on_cancel(call, on_stream_cancel, call);
    if (!grpc_call_half_closed(call)) {
        size_t length;
        grpc_call_body(call, &length);
        grpc_call_set_data(call, (void *)(sum + length));
        return;
    }
    char text[32];
    int length = snprintf(text, sizeof text, "%zu", (size_t)sum);
    grpc_call_reply_buffer(call, answer_make(text, (size_t)length));
}

static void handle_ping_pong(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    (void)message;
    (void)context;
    grpc_call_on_cancel(call, on_stream_cancel, call);
    if (grpc_call_half_closed(call)) {
        grpc_call_finish(call, ERROR_NONE, NULL);
    } else {
        assert_int_equal(grpc_call_send_buffer(call, body_copy(call)), 0);
    }
}

static void handle_empty(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    (void)message;
    (void)context;
    grpc_call_finish(call, ERROR_NONE, NULL);
}

static void on_handlers_done(void *arg, bool spare)
{
    struct echo *echo = arg;
    atomic_fetch_add(spare ? &echo->spare : &echo->busy, 1);
}

static void handle_spare(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    struct echo *echo = context;
    (void)message;
    grpc_call_after_handlers(call, on_handlers_done, echo);
    grpc_call_after_handlers(call, on_handlers_done, echo); /* counts once */
    atomic_fetch_add(&echo->waiting, 1);
    while (!atomic_load(&echo->go)) {
        (void)sched_yield();
    }
    grpc_call_reply_buffer(call, body_copy(call));
}

static void handle_large(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    size_t length;
    const unsigned char *body = grpc_call_body(call, &length);
    size_t size = (size_t)body[0] << 20;
    struct buffer *buffer = buffer_create(size + GRPC_PREFIX_BYTES);
    (void)message;
    (void)context;
    assert_non_null(buffer);
    memset(buffer->data + GRPC_PREFIX_BYTES, 'L', size);
    buffer->length = size + GRPC_PREFIX_BYTES;
    grpc_call_reply_buffer(call, buffer);
}

static const struct grpc_method methods[] = {
    {"Unary", GRPC_UNARY, NULL, handle_unary},
    {"Later", GRPC_UNARY, NULL, handle_later},
    {"Hold", GRPC_UNARY, NULL, handle_hold},
    {"Fail", GRPC_UNARY, NULL, handle_fail},
    {"Metadata", GRPC_UNARY, NULL, handle_metadata},
    {"Count", GRPC_SERVER_STREAM, NULL, handle_count},
    {"Flood", GRPC_SERVER_STREAM, NULL, handle_flood},
    {"Sum", GRPC_CLIENT_STREAM, NULL, handle_sum},
    {"PingPong", GRPC_BIDI_STREAM, NULL, handle_ping_pong},
    {"Empty", GRPC_UNARY, NULL, handle_empty},
    {"Spare", GRPC_UNARY, NULL, handle_spare},
    {"Large", GRPC_UNARY, NULL, handle_large},
};

void echo_start(struct echo *echo, unsigned threads, void (*adjust)(struct grpc_limits *limits))
{
    static struct grpc_service service; /* one server at a time in a test process */
    struct error error = {0};
    memset(echo, 0, sizeof *echo);
    struct echo_worker *worker = calloc(1, sizeof *worker);
    assert_non_null(worker);
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->changed, NULL);
    echo->worker = worker;
    assert_int_equal(pthread_create(&worker->thread, NULL, worker_main, worker), 0);
    service = (struct grpc_service){"test.Echo", methods, sizeof methods / sizeof methods[0], echo};
    struct grpc_limits limits = grpc_limits_default;
    if (adjust != NULL) {
        adjust(&limits);
    }
    echo->server = grpc_server_create(threads, &limits, &service, 1, &error);
    assert_non_null(echo->server);
    assert_int_equal(
        grpc_server_listen(echo->server, "127.0.0.1:0", ~UINT64_C(0), &echo->port, &error), 0);
    assert_int_equal(grpc_server_start(echo->server, &error), 0);
}

void echo_stop(struct echo *echo)
{
    struct echo_worker *worker = echo->worker;
    echo_release_held(echo);
    pthread_mutex_lock(&worker->lock);
    worker->stopping = true;
    pthread_cond_signal(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->thread, NULL);
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->changed);
    free(worker);
    grpc_server_destroy(echo->server);
}

static void wait_for(_Atomic unsigned *value, unsigned count)
{
    uint64_t limit_ns = clock_now_ns() + PATIENCE_NS;
    while (atomic_load(value) < count) {
        assert_true(clock_now_ns() < limit_ns);
        sched_yield();
    }
}

void echo_wait_held(struct echo *echo, unsigned count)
{
    wait_for(&echo->held_seen, count);
}

void echo_wait_waiting(struct echo *echo, unsigned count)
{
    wait_for(&echo->waiting, count);
}

void echo_wait_cancels(struct echo *echo, unsigned count)
{
    wait_for(&echo->cancels, count);
}

struct grpc_counters echo_counters(struct echo *echo)
{
    struct grpc_counters counters;
    grpc_server_counters(echo->server, &counters);
    return counters;
}
