#include "server/net/server.h"

#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/net/call.h"
#include "server/net/session.h"

#define SERVICES_MAX 64 /* bits of a service mask */
#define THREADS_MAX 256

const struct grpc_limits grpc_limits_default = {
    .message_bytes_max = 64u << 20,
    .send_bytes_max = 64u << 20,
    .header_list_bytes_max = 16u << 10,
    .concurrent_streams_max = 1000,
    .connections_max = 1024,
    .window_bytes = 4u << 20,
    .ping_interval_min_ms = 5000,
    .handshake_timeout_ms = 10 * 1000,
    .body_timeout_ms = 60 * 1000,
    .write_timeout_ms = 60 * 1000,
    .resets_per_second_max = 200,
    .output_bytes_max = UINT64_C(256) << 20,
    .decoded_bytes_max = UINT64_C(256) << 20,
    .request_bytes_max = UINT64_C(4) << 30,
    .calls_max = 65536,
    .keepalive_time_ms = 2 * 60 * 60 * 1000,
    .keepalive_timeout_ms = 20 * 1000,
    .compress_responses_over_bytes = 0,
};

static int limits_check(const struct grpc_limits *limits, struct error *error)
{
    if (limits->window_bytes < 65535 || limits->window_bytes > INT32_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "window_bytes is %u; it must be 65535 to 2147483647",
                         limits->window_bytes);
    }
    if (limits->message_bytes_max > INT32_MAX || limits->send_bytes_max > INT32_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "message limits of %u and %u bytes; they must be under 2147483648",
                         limits->message_bytes_max, limits->send_bytes_max);
    }
    return 0;
}

static bool loops_create(struct grpc_server *server, unsigned threads)
{
    server->loops = calloc(threads, sizeof *server->loops);
    if (server->loops == NULL) {
        return false;
    }
    for (; server->loop_count < threads; server->loop_count++) {
        struct loop *loop = &server->loops[server->loop_count];
        if (!loop_init(loop, server, server->loop_count)) {
            loop_fini(loop);
            return false;
        }
    }
    return true;
}

struct grpc_server *grpc_server_create(unsigned threads, const struct grpc_limits *limits,
                                       const struct grpc_service *services, size_t service_count,
                                       struct error *error)
{
    if (threads < 1 || threads > THREADS_MAX || service_count > SERVICES_MAX) {
        error_set(error, ERROR_INVALID_ARGUMENT,
                  "%u network threads and %zu services; 1 to %d threads and at most %d services",
                  threads, service_count, THREADS_MAX, SERVICES_MAX);
        return NULL;
    }
    if (limits_check(limits, error) < 0) {
        return NULL;
    }
    struct grpc_server *server = calloc(1, sizeof *server);
    if (server == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the gRPC server");
        return NULL;
    }
    server->limits = *limits;
    pthread_mutex_init(&server->shared.lock, NULL);
    pthread_cond_init(&server->shared.changed, NULL);
    server->callbacks = session_callbacks_create();
    server->option = session_option_create(limits);
    if (server->callbacks == NULL || server->option == NULL ||
        !routes_init(&server->routes, services, service_count) || !loops_create(server, threads)) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED,
                  "no memory or descriptors for the gRPC server's %u threads", threads);
        grpc_server_destroy(server);
        return NULL;
    }
    return server;
}

int grpc_server_listen(struct grpc_server *server, const char *address, uint64_t service_mask,
                       uint16_t *ret_port, struct error *error)
{
    if (server->started) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "listen on '%s': the server already runs", address);
    }
    struct error local;
    struct error *told = error != NULL ? error : &local;
    struct listener *listener = listener_create(server, address, service_mask, told);
    if (listener == NULL) {
        return -(int)told->code;
    }
    listener->next = server->listeners;
    server->listeners = listener;
    if (ret_port != NULL) {
        *ret_port = listener->listening.port;
    }
    return 0;
}

int grpc_server_start(struct grpc_server *server, struct error *error)
{
    for (struct listener *each = server->listeners; each != NULL; each = each->next) {
        if (listener_start(each) < 0) {
            return error_set(error, ERROR_INTERNAL, "the event base takes no listening socket");
        }
    }
    server->started = true;
    for (unsigned i = 0; i < server->loop_count; i++) {
        int failure = loop_start(&server->loops[i]);
        if (failure != 0) {
            return error_set_errno(error, failure, "start network thread %u", i);
        }
    }
    return 0;
}

void server_loop_drained(struct grpc_server *server)
{
    pthread_mutex_lock(&server->shared.lock);
    server->shared.loops_drained++;
    pthread_cond_broadcast(&server->shared.changed);
    pthread_mutex_unlock(&server->shared.lock);
}

void grpc_server_drain(struct grpc_server *server, uint64_t timeout_ms)
{
    unsigned running = 0;
    bool again = server->draining;
    server->draining = true;
    for (unsigned i = 0; i < server->loop_count; i++) {
        struct loop *loop = &server->loops[i];
        running += loop->started ? 1 : 0;
        if (loop->started && !again) {
            loop->own.drain_timeout_ms = timeout_ms; /* read only after the note has come */
            mailbox_send(loop->mailbox, &loop->drain_note.letter);
        }
    }
    pthread_mutex_lock(&server->shared.lock);
    while (server->shared.loops_drained < running) {
        pthread_cond_wait(&server->shared.changed, &server->shared.lock);
    }
    pthread_mutex_unlock(&server->shared.lock);
}

void grpc_server_destroy(struct grpc_server *server)
{
    if (server == NULL) {
        return;
    }
    for (unsigned i = 0; i < server->loop_count; i++) {
        loop_fini(&server->loops[i]);
    }
    free(server->loops);
    while (server->listeners != NULL) {
        struct listener *listener = server->listeners;
        server->listeners = listener->next;
        address_close(&listener->listening);
        free(listener);
    }
    routes_fini(&server->routes);
    nghttp2_session_callbacks_del(server->callbacks);
    nghttp2_option_del(server->option);
    pthread_cond_destroy(&server->shared.changed);
    pthread_mutex_destroy(&server->shared.lock);
    free(server);
}

void grpc_server_counters(struct grpc_server *server, struct grpc_counters *ret_counters)
{
    uint64_t totals[sizeof *ret_counters / sizeof(uint64_t)] = {0};
    for (unsigned i = 0; i < server->loop_count; i++) {
        for (size_t j = 0; j < sizeof totals / sizeof totals[0]; j++) {
            totals[j] += atomic_load_explicit(&server->loops[i].counters[j], memory_order_relaxed);
        }
    }
    memcpy(ret_counters, totals, sizeof totals);
    ret_counters->request_bytes_held = atomic_load(&server->request_bytes);
}
