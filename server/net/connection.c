#include "server/net/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/net/call.h"
#include "server/net/care.h"
#include "server/net/server.h"
#include "server/net/session.h"

#define READS_PER_WAKEUP 8 /* then the others have their turn */
#define LINGER_NS NS_PER_S
/* Frames that nghttp2 may keep for a peer that reads too slowly, on top of two per stream. */
#define QUEUED_FRAMES_MAX 10000

static ssize_t socket_receive(struct connection *connection, void *bytes, size_t length)
{
    return recv(connection->fd, bytes, length, 0);
}

static ssize_t socket_send(struct connection *connection, const void *bytes, size_t length)
{
    return send(connection->fd, bytes, length, MSG_NOSIGNAL);
}

static const struct transport transport_plain = {socket_receive, socket_send};

void connection_mark(struct connection *connection)
{
    if (!connection->dirty) {
        connection->dirty = true;
        connection->dirty_next = connection->loop->own.dirty;
        connection->loop->own.dirty = connection;
    }
}

static void connection_unmark(struct connection *connection)
{
    struct connection **link = &connection->loop->own.dirty;
    while (connection->dirty && *link != connection) {
        link = &(*link)->dirty_next;
    }
    if (connection->dirty) {
        *link = connection->dirty_next;
        connection->dirty = false;
    }
}

static void calls_detach(struct connection *connection)
{
    while (connection->calls != NULL) {
        call_detach(connection->calls);
    }
}

void connection_free(struct connection *connection)
{
    struct loop *loop = connection->loop;
    calls_detach(connection);
    connection_unmark(connection);
    timer_disarm(&loop->own.timers, &connection->timer);
    event_del(&connection->read_event);
    event_del(&connection->write_event);
    nghttp2_session_del(connection->session);
    close(connection->fd);
    if (connection->next != NULL) {
        connection->next->previous = connection->previous;
    }
    if (connection->previous != NULL) {
        connection->previous->next = connection->next;
    } else {
        loop->own.connections = connection->next;
    }
    free(connection->rest);
    free(connection);
    atomic_fetch_sub(&loop->connection_count, 1);
    LOOP_COUNT(loop, connections_open, -1);
}

/* All is written. Unread input would make the kernel reset the connection and the peer lose what
 * was sent last, so it is read away until the peer closes, or for a second. */
static void connection_linger(struct connection *connection)
{
    struct loop *loop = connection->loop;
    calls_detach(connection);
    connection->state = CONNECTION_LINGERING;
    event_del(&connection->write_event);
    if (shutdown(connection->fd, SHUT_WR) < 0 ||
        !timer_arm(&loop->own.timers, &connection->timer, loop->own.now_ns + LINGER_NS)) {
        connection_free(connection);
    }
}

/* Reads for a connection of which nothing is wanted any more. */
static void connection_read_away(struct connection *connection)
{
    struct loop *loop = connection->loop;
    for (int i = 0; i < READS_PER_WAKEUP; i++) {
        ssize_t count =
            connection->transport->receive(connection, loop->own.scratch, SCRATCH_BYTES);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (count <= 0) {
            connection->broken = true;
            connection_mark(connection);
            return;
        }
    }
}

/* Hands bytes to nghttp2, whose callbacks note what is to be done. */
static void connection_take(struct connection *connection, const unsigned char *bytes, size_t count)
{
    struct loop *loop = connection->loop;
    LOOP_COUNT(loop, bytes_received, (int64_t)count);
    connection->read_ns = loop->own.now_ns;
    connection->keepalive_ns = 0;
    ssize_t taken = nghttp2_session_mem_recv(connection->session, bytes, count);
    if (taken < 0) {
        /* Not HTTP/2, or a flood: nghttp2 may have queued a GOAWAY. */
        connection->state = CONNECTION_CLOSING;
        return;
    }
    if (connection->unconsumed > 0) {
        nghttp2_session_consume_connection(connection->session, connection->unconsumed);
        connection->unconsumed = 0;
    }
}

static void connection_read(struct connection *connection)
{
    struct loop *loop = connection->loop;
    for (int i = 0; i < READS_PER_WAKEUP && connection->state == CONNECTION_OPEN; i++) {
        ssize_t count =
            connection->transport->receive(connection, loop->own.scratch, SCRATCH_BYTES);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (count <= 0) {
            connection->broken = true; /* the client has gone: so have its calls */
            return;
        }
        connection_take(connection, loop->own.scratch, (size_t)count);
        if ((size_t)count < SCRATCH_BYTES) {
            return; /* more would most likely be EAGAIN */
        }
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct connection *connection = arg;
    struct loop *loop = connection->loop;
    (void)fd;
    (void)what;
    loop_wake(loop);
    if (connection->state == CONNECTION_OPEN) {
        connection_read(connection);
        connection_mark(connection);
    } else {
        connection_read_away(connection);
    }
    loop_settle(loop);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct connection *connection = arg;
    struct loop *loop = connection->loop;
    (void)fd;
    (void)what;
    loop_wake(loop);
    connection_mark(connection);
    loop_settle(loop);
}

static void connection_progress(struct connection *connection, size_t count)
{
    connection->progress_ns = connection->loop->own.now_ns;
    LOOP_COUNT(connection->loop, bytes_sent, (int64_t)count);
    LOOP_COUNT(connection->loop, writes, 1);
}

/* Sends what was left over last time. True: it is out, and more may follow. */
static bool connection_send_rest(struct connection *connection)
{
    if (connection->rest == NULL) {
        return true;
    }
    size_t left = connection->rest_length - connection->rest_sent;
    ssize_t count =
        connection->transport->send(connection, connection->rest + connection->rest_sent, left);
    if (count < 0) {
        connection->broken = errno != EAGAIN && errno != EINTR;
        return false;
    }
    connection_progress(connection, (size_t)count);
    connection->rest_sent += (size_t)count;
    if (connection->rest_sent < connection->rest_length) {
        return false;
    }
    free(connection->rest);
    connection->rest = NULL;
    event_del(&connection->write_event);
    return true;
}

static void connection_keep_rest(struct connection *connection, const unsigned char *bytes,
                                 size_t length)
{
    connection->rest = malloc(length);
    if (connection->rest == NULL || event_add(&connection->write_event, NULL) < 0) {
        connection->broken = true;
        return;
    }
    memcpy(connection->rest, bytes, length);
    connection->rest_length = length;
    connection->rest_sent = 0;
}

/* Frames up to about GATHER_BYTES_MAX. True: there may be more. */
static bool connection_gather(struct connection *connection)
{
    struct gather *gather = &connection->loop->own.gather;
    gather->length = 0;
    gather->full = false;
    while (gather->length < GATHER_BYTES_MAX) {
        const uint8_t *bytes;
        ssize_t count = nghttp2_session_mem_send(connection->session, &bytes);
        if (count < 0 || (count > 0 && !gather_add(gather, bytes, (size_t)count))) {
            connection->broken = true;
            return false;
        }
        if (count == 0) {
            return gather->full;
        }
    }
    return true;
}

/* True: all that there was is with the kernel. */
static bool connection_write(struct connection *connection)
{
    struct gather *gather = &connection->loop->own.gather;
    bool more = true;
    while (more && !connection->broken) {
        more = connection_gather(connection);
        if (gather->length == 0 || connection->broken) {
            break;
        }
        ssize_t count = connection->transport->send(connection, gather->data, gather->length);
        if (count < 0 && errno != EAGAIN && errno != EINTR) {
            connection->broken = true;
            break;
        }
        size_t sent = count < 0 ? 0 : (size_t)count;
        connection_progress(connection, sent);
        if (sent < gather->length) {
            connection_keep_rest(connection, gather->data + sent, gather->length - sent);
            return false;
        }
    }
    return true;
}

void connection_flush(struct connection *connection)
{
    if (connection->state == CONNECTION_LINGERING || connection->broken) {
        if (connection->broken) {
            connection_free(connection);
        }
        return;
    }
    size_t queued_max =
        QUEUED_FRAMES_MAX + 2 * connection->loop->server->limits.concurrent_streams_max;
    if (nghttp2_session_get_outbound_queue_size(connection->session) > queued_max) {
        connection->broken = true;
    }
    bool done = connection_send_rest(connection) && connection_write(connection);
    if (connection->broken) {
        connection_free(connection);
        return;
    }
    bool over = connection->state == CONNECTION_CLOSING ||
                (!nghttp2_session_want_read(connection->session) &&
                 !nghttp2_session_want_write(connection->session));
    if (done && over) {
        connection_linger(connection);
    }
}

static void connection_link(struct connection *connection)
{
    struct loop *loop = connection->loop;
    connection->next = loop->own.connections;
    if (connection->next != NULL) {
        connection->next->previous = connection;
    }
    loop->own.connections = connection;
}

void connection_open(struct loop *loop, const struct arrival *arrival)
{
    struct connection *connection = NULL;
    if (!loop->own.draining) {
        connection = calloc(1, sizeof *connection);
    }
    if (connection == NULL) {
        LOOP_COUNT(loop, connections_refused, 1);
        atomic_fetch_sub(&loop->connection_count, 1);
        close(arrival->fd);
        return;
    }
    connection->loop = loop;
    connection->fd = arrival->fd;
    connection->transport = &transport_plain;
    connection->service_mask = arrival->service_mask;
    connection->has_peer = arrival->has_peer;
    connection->uid = arrival->uid;
    connection->pid = arrival->pid;
    connection->begin_ns = connection->read_ns = connection->progress_ns = loop->own.now_ns;
    connection_link(connection);
    LOOP_COUNT(loop, connections_accepted, 1);
    LOOP_COUNT(loop, connections_open, 1);
    event_assign(&connection->read_event, loop->own.base, connection->fd, EV_READ | EV_PERSIST,
                 on_readable, connection);
    event_assign(&connection->write_event, loop->own.base, connection->fd, EV_WRITE | EV_PERSIST,
                 on_writable, connection);
    connection->session = session_create(connection);
    connection->broken = connection->session == NULL || !care_begin(connection) ||
                         event_add(&connection->read_event, NULL) < 0;
    connection_mark(connection);
}
