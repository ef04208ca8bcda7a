#include "server/net/care.h"

#include <string.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/net/call.h"
#include "server/net/server.h"

#define CHECK_NS_MIN (10 * NS_PER_MS)
#define CHECK_NS_MAX (15 * NS_PER_S)
#define PING_STRIKES_MAX 2
#define RESETS_BURST 1000
#define GLITCHES_BURST 1000
#define GLITCHES_PER_SECOND 100
#define DRAIN_NOTICE_NS_MAX (5 * NS_PER_S)

static const struct grpc_limits *limits_of(const struct connection *connection)
{
    return &connection->loop->server->limits;
}

static void connection_time_out(struct connection *connection)
{
    LOOP_COUNT(connection->loop, connections_timed_out, 1);
    connection->broken = true;
    connection_mark(connection);
}

void connection_refuse(struct connection *connection, uint32_t code, const char *debug)
{
    if (connection->state == CONNECTION_OPEN) {
        nghttp2_submit_goaway(connection->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(connection->session), code,
                              (const uint8_t *)debug, strlen(debug));
        connection->state = CONNECTION_CLOSING;
        connection_mark(connection);
    }
}

bool connection_glitch(struct connection *connection)
{
    if (rate_take(&connection->glitches, connection->loop->own.now_ns)) {
        return true;
    }
    if (connection->state == CONNECTION_OPEN) {
        LOOP_COUNT(connection->loop, glitches_too_many, 1);
        connection_refuse(connection, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_odd_frames");
    }
    return false;
}

void care_reset(struct connection *connection)
{
    if (!rate_take(&connection->resets, connection->loop->own.now_ns) &&
        connection->state == CONNECTION_OPEN) {
        LOOP_COUNT(connection->loop, resets_too_many, 1);
        connection_refuse(connection, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_resets");
    }
}

void care_ping(struct connection *connection, const uint8_t *opaque)
{
    uint64_t now_ns = connection->loop->own.now_ns;
    uint64_t interval_ns = limits_of(connection)->ping_interval_min_ms * NS_PER_MS;
    if (connection->state != CONNECTION_OPEN) {
        return;
    }
    /* A tenth of tolerance: a client that pings just at the limit is late or early by jitter. */
    if (connection->ping_ns != 0 && now_ns - connection->ping_ns < interval_ns - interval_ns / 10) {
        connection->ping_strikes++;
    }
    connection->ping_ns = now_ns;
    if (connection->ping_strikes > PING_STRIKES_MAX) {
        LOOP_COUNT(connection->loop, pings_too_many, 1);
        connection_refuse(connection, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
        return;
    }
    nghttp2_submit_ping(connection->session, NGHTTP2_FLAG_ACK, opaque);
}

void care_ping_answered(struct connection *connection)
{
    if (connection->goaway_due_ns != 0) {
        connection_drain_last(connection);
    }
}

void connection_drain_last(struct connection *connection)
{
    connection->goaway_due_ns = 0;
    nghttp2_submit_goaway(connection->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(connection->session),
                          NGHTTP2_NO_ERROR, NULL, 0);
    connection_mark(connection);
}

void connection_drain(struct connection *connection, uint64_t timeout_ms)
{
    if (connection->state != CONNECTION_OPEN) {
        return;
    }
    if (!connection->handshaken) {
        connection_refuse(connection, NGHTTP2_NO_ERROR, "shutting_down");
        return;
    }
    uint64_t wait_ns = timeout_ms / 2 * NS_PER_MS;
    wait_ns = wait_ns < DRAIN_NOTICE_NS_MAX ? wait_ns : DRAIN_NOTICE_NS_MAX;
    connection->goaway_due_ns = connection->loop->own.now_ns + wait_ns;
    nghttp2_submit_shutdown_notice(connection->session);
    nghttp2_submit_ping(connection->session, NGHTTP2_FLAG_NONE, NULL);
    timer_arm(&connection->loop->own.timers, &connection->timer, connection->goaway_due_ns);
    connection_mark(connection);
}

void connection_abort(struct connection *connection)
{
    struct grpc_call *next;
    for (struct grpc_call *call = connection->calls; call != NULL; call = next) {
        next = call->next;
        if (!call->response.answered && call->request.headers_done) {
            response_fail(call, ERROR_UNAVAILABLE,
                          "the server is shutting down; try again elsewhere");
            call_cancel(call);
        }
    }
    connection_refuse(connection, NGHTTP2_NO_ERROR, "shutting_down");
    /* What the peer does not take within the linger time is lost to it. */
    timer_arm(&connection->loop->own.timers, &connection->timer,
              connection->loop->own.now_ns + NS_PER_S);
}

/* A call that does not get on: its message does not come, or its answer is not read. */
static void call_check(struct grpc_call *call, uint64_t now_ns)
{
    const struct grpc_limits *limits = limits_of(call->connection);
    struct request *request = &call->request;
    bool slow = now_ns > request->begin_ns + limits->body_timeout_ms * NS_PER_MS;
    if (!request->headers_done) {
        if (slow) {
            connection_time_out(call->connection); /* nghttp2 is inside its header block */
        }
        return;
    }
    if (slow && request->message_count == 0 && !request->ended && !call->response.answered) {
        response_fail(call, ERROR_CANCELLED,
                      "the request message did not arrive within the server's time limit");
        return;
    }
    if (call->response.first != NULL &&
        now_ns > call->response.progress_ns + limits->write_timeout_ms * NS_PER_MS) {
        nghttp2_submit_rst_stream(call->connection->session, NGHTTP2_FLAG_NONE, call->stream_id,
                                  NGHTTP2_CANCEL);
        connection_mark(call->connection);
    }
}

static void keepalive_check(struct connection *connection, uint64_t now_ns)
{
    const struct grpc_limits *limits = limits_of(connection);
    if (connection->keepalive_ns != 0) {
        if (now_ns > connection->keepalive_ns + limits->keepalive_timeout_ms * NS_PER_MS) {
            connection_time_out(connection);
        }
        return;
    }
    if (now_ns > connection->read_ns + limits->keepalive_time_ms * NS_PER_MS) {
        connection->keepalive_ns = now_ns;
        nghttp2_submit_ping(connection->session, NGHTTP2_FLAG_NONE, NULL);
        connection_mark(connection);
    }
}

static void connection_check(struct connection *connection, uint64_t now_ns)
{
    const struct grpc_limits *limits = limits_of(connection);
    if (!connection->handshaken &&
        now_ns >= connection->begin_ns + limits->handshake_timeout_ms * NS_PER_MS) {
        connection_time_out(connection);
        return;
    }
    if (connection->rest != NULL &&
        now_ns > connection->progress_ns + limits->write_timeout_ms * NS_PER_MS) {
        connection_time_out(connection);
        return;
    }
    if (connection->goaway_due_ns != 0 && now_ns >= connection->goaway_due_ns) {
        connection_drain_last(connection);
    }
    keepalive_check(connection, now_ns);
    struct grpc_call *next;
    for (struct grpc_call *call = connection->calls; call != NULL; call = next) {
        next = call->next;
        call_check(call, now_ns);
    }
}

/* Often enough for the shortest limit; its checks cost nothing while nothing is wrong. */
static uint64_t check_interval_ns(const struct connection *connection)
{
    const struct grpc_limits *limits = limits_of(connection);
    uint64_t shortest_ms = limits->body_timeout_ms;
    const uint32_t others[] = {limits->write_timeout_ms, limits->keepalive_time_ms,
                               limits->keepalive_timeout_ms};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        shortest_ms = others[i] < shortest_ms ? others[i] : shortest_ms;
    }
    uint64_t interval_ns = shortest_ms * NS_PER_MS / 4;
    interval_ns = interval_ns > CHECK_NS_MAX ? CHECK_NS_MAX : interval_ns;
    return interval_ns < CHECK_NS_MIN ? CHECK_NS_MIN : interval_ns;
}

static void on_check(struct timer *timer, uint64_t now_ns)
{
    struct connection *connection =
        (struct connection *)(void *)((char *)timer - offsetof(struct connection, timer));
    if (connection->state != CONNECTION_OPEN) {
        connection->broken = true; /* the peer has had its second */
        connection_mark(connection);
        return;
    }
    connection_check(connection, now_ns);
    uint64_t due_ns = now_ns + check_interval_ns(connection);
    if (!connection->handshaken) {
        uint64_t handshake_ns = limits_of(connection)->handshake_timeout_ms * NS_PER_MS;
        uint64_t limit_ns = connection->begin_ns + handshake_ns;
        due_ns = limit_ns < due_ns && limit_ns > now_ns ? limit_ns : due_ns;
    }
    if (!timer_arm(&connection->loop->own.timers, timer, due_ns)) {
        connection_time_out(connection);
    }
}

bool care_begin(struct connection *connection)
{
    const struct grpc_limits *limits = limits_of(connection);
    uint64_t handshake_ns = limits->handshake_timeout_ms * NS_PER_MS;
    uint64_t first_ns = check_interval_ns(connection);
    rate_init(&connection->resets, RESETS_BURST, limits->resets_per_second_max);
    rate_init(&connection->glitches, GLITCHES_BURST, GLITCHES_PER_SECOND);
    connection->timer.fire = on_check;
    return timer_arm(&connection->loop->own.timers, &connection->timer,
                     connection->begin_ns + (first_ns < handshake_ns ? first_ns : handshake_ns));
}
