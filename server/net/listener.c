#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/net/server.h"

#define ACCEPTS_PER_WAKEUP 16
#define PAUSE_NS (100 * NS_PER_MS)

static void on_pause_end(struct timer *timer, uint64_t now_ns)
{
    struct listener *listener =
        (struct listener *)(void *)((char *)timer - offsetof(struct listener, pause_timer));
    (void)now_ns;
    event_add(&listener->accept_event, NULL);
}

/* Out of descriptors or memory: the connection stays in the kernel's queue meanwhile. */
static void listener_pause(struct listener *listener, int number)
{
    struct loop *loop = &listener->server->loops[0];
    log_write(LOG_WARN, "net", "accept pauses", "errno=%d pause_ms=%d", number,
              (int)(PAUSE_NS / NS_PER_MS));
    event_del(&listener->accept_event);
    timer_arm(&loop->own.timers, &listener->pause_timer, loop->own.now_ns + PAUSE_NS);
}

static struct loop *loop_idlest(struct grpc_server *server, uint32_t *ret_total)
{
    struct loop *best = &server->loops[0];
    uint32_t best_count = UINT32_MAX;
    *ret_total = 0;
    for (unsigned i = 0; i < server->loop_count; i++) {
        uint32_t count = atomic_load(&server->loops[i].connection_count);
        *ret_total += count;
        if (count < best_count) {
            best_count = count;
            best = &server->loops[i];
        }
    }
    return best;
}

static void peer_read(struct arrival *arrival)
{
    struct ucred credentials;
    socklen_t length = sizeof credentials;
    if (getsockopt(arrival->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0) {
        arrival->has_peer = true;
        arrival->uid = credentials.uid;
        arrival->pid = (uint32_t)credentials.pid;
    }
}

static void connection_hand_on(struct listener *listener, int fd)
{
    struct loop *home = &listener->server->loops[0];
    uint32_t total = 0;
    struct loop *loop = loop_idlest(listener->server, &total);
    struct arrival *arrival = NULL;
    if (total < listener->server->limits.connections_max) {
        arrival = calloc(1, sizeof *arrival);
    }
    if (arrival == NULL) {
        LOOP_COUNT(home, connections_refused, 1);
        close(fd);
        return;
    }
    arrival->note.kind = NOTE_CONNECTION;
    arrival->fd = fd;
    arrival->service_mask = listener->service_mask;
    if (listener->listening.local) {
        peer_read(arrival);
    } else {
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    atomic_fetch_add(&loop->connection_count, 1);
    loop_post(loop, &arrival->note);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    struct listener *listener = arg;
    struct loop *loop = &listener->server->loops[0];
    (void)what;
    loop_wake(loop);
    for (int i = 0; i < ACCEPTS_PER_WAKEUP; i++) {
        int accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (accepted >= 0) {
            connection_hand_on(listener, accepted);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            listener_pause(listener, errno);
        }
        break; /* EAGAIN, or a client that has gone again */
    }
    loop_settle(loop);
}

struct listener *listener_create(struct grpc_server *server, const char *address,
                                 uint64_t service_mask, struct error *error)
{
    struct listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "listen on '%s': no memory", address);
        return NULL;
    }
    listener->server = server;
    listener->service_mask = service_mask;
    listener->pause_timer.fire = on_pause_end;
    listener->listening.fd = -1;
    if (address_listen(address, &listener->listening, error) < 0) {
        free(listener);
        return NULL;
    }
    event_assign(&listener->accept_event, server->loops[0].own.base, listener->listening.fd,
                 EV_READ | EV_PERSIST, on_accept, listener);
    return listener;
}

int listener_start(struct listener *listener)
{
    return event_add(&listener->accept_event, NULL);
}

void listener_stop(struct listener *listener)
{
    if (listener->listening.fd >= 0) {
        event_del(&listener->accept_event);
        timer_disarm(&listener->server->loops[0].own.timers, &listener->pause_timer);
        address_close(&listener->listening);
    }
}

void listener_destroy(struct listener *listener)
{
    listener_stop(listener);
    free(listener);
}
