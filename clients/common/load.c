#include "clients/common/load.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "clients/common/grpc_client.h"
#include "clients/common/infer_message.h"
#include "server/base/clock.h"

#define IN_FLIGHT_MAX 100000
#define DRAIN_NS (30 * NS_PER_S)
#define RECONNECT_NS (100 * NS_PER_MS)
#define SLOT_NS NS_PER_S
#define SENDS_PER_TURN 256 /* then answers are read again, however far behind the sends are */

struct load_call {
    struct load_call *next;     /* in the list of idle ones */
    struct load_call *next_all; /* in the list of all: for destroy */
    struct load *load;
    uint64_t meant_ns;
};

struct load_connection {
    struct grpc_client *client; /* NULL: lost */
    uint64_t reconnect_ns;
};

struct load {
    struct load_options options;
    char address[256], token[256];
    struct { /* the load thread's */
        struct load_connection connections[LOAD_CONNECTIONS_MAX];
        unsigned connection; /* of the next send */
        struct load_call *idle, *all;
        uint64_t start_ns, next_ns, in_flight, cpu_start_ns;
        bool ended; /* nothing more to send */
        struct load_result *result;
        struct load_slot slot;
    } own;
    int wake_fd;
    struct {
        pthread_mutex_t lock;
        struct load_snapshot snapshot;
        struct histogram window[LOAD_WINDOW_SLOTS];
        unsigned window_next;
    } shared; /* written once a second */
};

/* ---- counting
 * -------------------------------------------------------------------------------------- */

static void counts_add(struct load_counts *counts, const struct load_counts *other)
{
    counts->sent += other->sent;
    counts->ok += other->ok;
    counts->failed += other->failed;
    counts->late += other->late;
    for (size_t i = 0; i < LOAD_CODES; i++) {
        counts->by_code[i] += other->by_code[i];
    }
}

static void load_count(struct load *load, enum error_code status, uint64_t latency_ns)
{
    struct load_counts *counts = &load->own.slot.counts;
    counts->by_code[status]++;
    if (status != ERROR_NONE) {
        counts->failed++;
        return;
    }
    counts->ok++;
    counts->late += latency_ns > load->options.slo_ns;
    histogram_record(&load->own.slot.latency, latency_ns);
}

/* Ends the second that runs, publishes it and begins the next one. */
static void slot_close(struct load *load, uint64_t now_ns)
{
    struct load_slot *slot = &load->own.slot;
    struct load_snapshot *snapshot = &load->shared.snapshot;
    slot->end_ns = now_ns - load->own.start_ns;
    counts_add(&load->own.result->total, &slot->counts);
    histogram_add(&load->own.result->latency, &slot->latency);
    pthread_mutex_lock(&load->shared.lock);
    load->shared.window[load->shared.window_next] = slot->latency;
    load->shared.window_next = (load->shared.window_next + 1) % LOAD_WINDOW_SLOTS;
    snapshot->elapsed_ns = slot->end_ns;
    snapshot->cpu_ns = clock_thread_cpu_ns() - load->own.cpu_start_ns;
    snapshot->total = load->own.result->total;
    snapshot->rate_per_s =
        slot->end_ns == slot->start_ns
            ? 0
            : (double)slot->counts.sent * 1e9 / (double)(slot->end_ns - slot->start_ns);
    pthread_mutex_unlock(&load->shared.lock);
    if (load->options.on_slot != NULL) {
        load->options.on_slot(load->options.slot_context, slot);
    }
    memset(&slot->counts, 0, sizeof(slot->counts));
    histogram_init(&slot->latency);
    slot->start_ns = slot->end_ns;
}

void load_snapshot(struct load *load, struct load_snapshot *ret_snapshot)
{
    static _Thread_local struct histogram window;
    histogram_init(&window);
    pthread_mutex_lock(&load->shared.lock);
    *ret_snapshot = load->shared.snapshot;
    for (size_t i = 0; i < LOAD_WINDOW_SLOTS; i++) {
        histogram_add(&window, &load->shared.window[i]);
    }
    pthread_mutex_unlock(&load->shared.lock);
    ret_snapshot->p50_ns = histogram_quantile(&window, 0.5);
    ret_snapshot->p99_ns = histogram_quantile(&window, 0.99);
}

/* ---- sending
 * ----------------------------------------------------------------------------------------- */

static void on_load_end(void *context, enum error_code status, const char *text)
{
    struct load_call *call = context;
    struct load *load = call->load;
    (void)text;
    load->own.in_flight--;
    load_count(load, status, clock_now_ns() - call->meant_ns);
    call->next = load->own.idle;
    load->own.idle = call;
}

static int connection_open(struct load *load, struct load_connection *connection,
                           struct error *error)
{
    struct grpc_client_options options = {.address = load->address, .token = load->token};
    return grpc_client_create(&options, &connection->client, error);
}

static void connection_close(struct load_connection *connection, uint64_t now_ns)
{
    grpc_client_destroy(connection->client);
    connection->client = NULL;
    connection->reconnect_ns = now_ns + RECONNECT_NS;
}

/* The next connection in turn that is not lost; NULL: none. */
static struct grpc_client *connection_choose(struct load *load)
{
    for (unsigned i = 0; i < load->options.connections; i++) {
        struct load_connection *connection = &load->own.connections[load->own.connection];
        load->own.connection = (load->own.connection + 1) % load->options.connections;
        if (connection->client != NULL) {
            return connection->client;
        }
    }
    return NULL;
}

static void load_send(struct load *load, uint64_t meant_ns, uint64_t now_ns)
{
    static const struct grpc_client_handler handler = {NULL, on_load_end};
    struct grpc_client *client = connection_choose(load);
    struct load_call *call = load->own.idle;
    load->own.slot.counts.sent++;
    histogram_record(&load->own.result->send_lateness, now_ns - meant_ns);
    if (client == NULL) {
        load_count(load, ERROR_UNAVAILABLE, 0);
        return;
    }
    if (call == NULL && load->own.in_flight < load->options.in_flight_max) {
        call = calloc(1, sizeof(*call));
        if (call != NULL) {
            call->next_all = load->own.all;
            load->own.all = call;
        }
    } else if (call != NULL) {
        load->own.idle = call->next;
    }
    if (call == NULL) {
        load_count(load, ERROR_RESOURCE_EXHAUSTED, 0);
        return;
    }
    uint64_t deadline_ns = load->options.deadline_ns == 0
                               ? UINT64_MAX
                               : clock_add_ns(now_ns, load->options.deadline_ns);
    call->load = load;
    call->meant_ns = meant_ns;
    load->own.in_flight++;
    if (grpc_client_start(client, INFER_PATH, load->options.body, load->options.body_length,
                          deadline_ns, &handler, call, NULL, NULL) < 0) {
        on_load_end(call, ERROR_UNAVAILABLE, "");
    }
}

static void next_advance(struct load *load)
{
    uint64_t offset_ns = 0;
    if (load->options.next(load->options.next_context, &offset_ns)) {
        load->own.next_ns = clock_add_ns(load->own.start_ns, offset_ns);
    } else {
        load->own.ended = true;
        load->own.next_ns = UINT64_MAX;
    }
}

static void load_send_due(struct load *load, uint64_t now_ns)
{
    for (unsigned i = 0; i < SENDS_PER_TURN && load->own.next_ns <= now_ns; i++) {
        load_send(load, load->own.next_ns, now_ns);
        next_advance(load);
    }
}

/* ---- the loop
 * ------------------------------------------------------------------------------------------ */

static void load_process(struct load *load, uint64_t now_ns)
{
    for (unsigned i = 0; i < load->options.connections; i++) {
        struct load_connection *connection = &load->own.connections[i];
        if (connection->client == NULL) {
            if (now_ns >= connection->reconnect_ns && connection_open(load, connection, NULL) < 0) {
                connection->reconnect_ns = now_ns + RECONNECT_NS;
            }
        } else if (grpc_client_process(connection->client, now_ns, NULL) < 0) {
            connection_close(connection, now_ns);
        }
    }
}

static void load_wait(struct load *load, uint64_t until_ns)
{
    struct pollfd entries[LOAD_CONNECTIONS_MAX + 1];
    nfds_t count = 0;
    entries[count++] = (struct pollfd){.fd = load->wake_fd, .events = POLLIN};
    for (unsigned i = 0; i < load->options.connections; i++) {
        const struct load_connection *connection = &load->own.connections[i];
        uint64_t deadline_ns = connection->reconnect_ns;
        if (connection->client != NULL) {
            entries[count++] = (struct pollfd){.fd = grpc_client_fd(connection->client),
                                               .events = grpc_client_events(connection->client)};
            deadline_ns = grpc_client_deadline_ns(connection->client);
        }
        until_ns = deadline_ns < until_ns ? deadline_ns : until_ns;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec time = {.tv_sec = (time_t)(left_ns / NS_PER_S),
                            .tv_nsec = (long)(left_ns % NS_PER_S)};
    if (ppoll(entries, count, &time, NULL) > 0 && entries[0].revents != 0) {
        uint64_t value;
        ssize_t taken = read(load->wake_fd, &value, sizeof(value));
        (void)taken; /* asked to stop; a second wake says nothing new */
        load->own.ended = true;
        load->own.next_ns = UINT64_MAX;
    }
}

void load_run(struct load *load, struct load_result *ret_result)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t drain_end_ns = UINT64_MAX;
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* sends on time, not 50 µs after it */
    memset(ret_result, 0, sizeof(*ret_result));
    histogram_init(&ret_result->latency);
    histogram_init(&ret_result->send_lateness);
    load->own.result = ret_result;
    load->own.start_ns = now_ns;
    load->own.cpu_start_ns = clock_thread_cpu_ns();
    next_advance(load);
    while (!load->own.ended || load->own.in_flight > 0) {
        now_ns = clock_now_ns();
        load_send_due(load, now_ns);
        load_process(load, now_ns);
        if (load->own.ended && drain_end_ns == UINT64_MAX) {
            drain_end_ns = now_ns + load->options.drain_ns;
        }
        if (now_ns >= drain_end_ns) {
            break;
        }
        uint64_t slot_end_ns = load->own.start_ns + load->own.slot.start_ns + SLOT_NS;
        if (now_ns >= slot_end_ns) {
            slot_close(load, now_ns);
            slot_end_ns = now_ns + SLOT_NS;
        }
        if (!load->own.ended || load->own.in_flight > 0) {
            uint64_t until_ns = load->own.next_ns < slot_end_ns ? load->own.next_ns : slot_end_ns;
            load_wait(load, until_ns < drain_end_ns ? until_ns : drain_end_ns);
        }
    }
    for (; load->own.in_flight > 0; load->own.in_flight--) { /* without an answer until now */
        load_count(load, ERROR_DEADLINE_EXCEEDED, 0);
    }
    slot_close(load, clock_now_ns());
    ret_result->elapsed_ns = clock_now_ns() - load->own.start_ns;
    ret_result->cpu_ns = clock_thread_cpu_ns() - load->own.cpu_start_ns;
}

void load_stop(struct load *load)
{
    uint64_t one = 1;
    ssize_t written = write(load->wake_fd, &one, sizeof(one));
    (void)written; /* full means that it has been asked already */
}

int load_create(const struct load_options *options, struct load **ret_load, struct error *error)
{
    int result = 0;
    struct load *load = calloc(1, sizeof(*load));
    if (load == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a load");
    }
    load->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&load->shared.lock, NULL);
    for (size_t i = 0; i < LOAD_WINDOW_SLOTS; i++) {
        histogram_init(&load->shared.window[i]);
    }
    histogram_init(&load->own.slot.latency);
    load->options = *options;
    load->options.in_flight_max =
        options->in_flight_max != 0 ? options->in_flight_max : IN_FLIGHT_MAX;
    load->options.drain_ns = options->drain_ns != 0 ? options->drain_ns : DRAIN_NS;
    snprintf(load->address, sizeof(load->address), "%s", options->address);
    snprintf(load->token, sizeof(load->token), "%s", options->token == NULL ? "" : options->token);
    if (load->wake_fd < 0 || options->connections == 0 ||
        options->connections > LOAD_CONNECTIONS_MAX) {
        result = error_set(error, ERROR_INVALID_ARGUMENT, "load: 1 to %d connections, not %u",
                           LOAD_CONNECTIONS_MAX, options->connections);
    }
    for (unsigned i = 0; i < options->connections && result == 0; i++) {
        result = connection_open(load, &load->own.connections[i], error);
    }
    if (result == 0) {
        *ret_load = load;
        load = NULL;
    }
    load_destroy(load);
    return result;
}

void load_destroy(struct load *load)
{
    if (load == NULL) {
        return;
    }
    for (unsigned i = 0; i < LOAD_CONNECTIONS_MAX; i++) {
        grpc_client_destroy(load->own.connections[i].client);
    }
    while (load->own.all != NULL) {
        struct load_call *call = load->own.all;
        load->own.all = call->next_all;
        free(call);
    }
    if (load->wake_fd >= 0) {
        close(load->wake_fd);
    }
    pthread_mutex_destroy(&load->shared.lock);
    free(load);
}
