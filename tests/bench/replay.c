/* replay: a client that saturates a gRPC server: one unary request, encoded once, sent again and
 * again on CONNECTIONS connections with STREAMS calls in flight on each. Its own HTTP/2, so that
 * it costs less than the server it measures.
 *     replay HOST:PORT /package.Service/Method BODY_FILE CONNECTIONS STREAMS
 * BODY_FILE holds the encoded message without prefix. Reads lines "<seconds>" or "#<requests>" from
 * standard input and answers each with one line of JSON. Connections stay open between lines.
 * Header blocks: the first request of a connection puts its headers into the table, the others are
 * indexes only. Answers: a block of indexes that was understood once is known by its bytes. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/base/clock.h"

#define CONNECTIONS_MAX 64
#define STREAMS_MAX 1024
#define SLOT_TABLE 8192
#define FRAME_BYTES_MAX 16384
#define INPUT_BYTES (1 << 20)
#define SAMPLES_MAX (1 << 22)
#define WINDOW_MAX 0x7FFFFFFF
#define KNOWN_BLOCK_MAX 64
#define NO_SLOT 0xFFFF

struct slot {
    uint32_t stream_id; /* 0: idle */
    size_t sent;        /* of the framed message */
    int64_t window;
    uint64_t begin_ns;
    int status; /* -1: not known yet */
};

struct known_block {
    unsigned char bytes[KNOWN_BLOCK_MAX];
    size_t length;
    int status; /* grpc-status in it, -1: none */
};

struct connection {
    int fd;
    nghttp2_hd_inflater *inflater;
    struct slot slots[STREAMS_MAX];
    uint16_t slot_of[SLOT_TABLE];
    uint32_t next_id;
    int64_t window, stream_window;
    uint64_t received; /* not given back to the server's window yet */
    bool warm;         /* the headers are in the table */
    struct known_block known[4];
    size_t known_next;
    unsigned char *input, *output;
    size_t input_length, output_length, output_capacity;
};

static struct {
    unsigned char cold[1024], warm[64];
    size_t cold_length, warm_length;
    unsigned char *body; /* with its prefix */
    size_t body_length;
    unsigned connections, streams;
    bool stopping;
    uint64_t requests_left; /* may still be started */
    uint64_t done, failed, in_flight, now_ns;
    uint32_t *samples;
    size_t sample_count;
    char failure[256];
} load;

static struct connection *all;

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("replay: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static void literal_add(const char *name, const char *value)
{
    unsigned char *out = load.cold + load.cold_length;
    size_t name_length = strlen(name), value_length = strlen(value);
    if (name_length > 126 || value_length > 126) {
        die("header %s is too long", name);
    }
    *out++ = 0x40; /* literal, into the table, new name */
    *out++ = (unsigned char)name_length;
    memcpy(out, name, name_length);
    out += name_length;
    *out++ = (unsigned char)value_length;
    memcpy(out, value, value_length);
    load.cold_length += 3 + name_length + value_length;
}

static void blocks_make(const char *authority, const char *path)
{
    static const unsigned char fixed[] = {0x83, 0x86}; /* :method POST, :scheme http */
    const char *const fields[][2] = {{":path", path},
                                     {":authority", authority},
                                     {"te", "trailers"},
                                     {"content-type", "application/grpc"},
                                     {"user-agent", "replay/1"}};
    const size_t count = sizeof fields / sizeof fields[0];
    memcpy(load.cold, fixed, sizeof fixed);
    memcpy(load.warm, fixed, sizeof fixed);
    load.cold_length = load.warm_length = sizeof fixed;
    for (size_t i = 0; i < count; i++) {
        literal_add(fields[i][0], fields[i][1]);
        load.warm[load.warm_length++] = (unsigned char)(0x80 | (62 + count - 1 - i));
    }
}

static unsigned char *output_reserve(struct connection *connection, size_t length)
{
    if (connection->output_capacity - connection->output_length < length) {
        connection->output_capacity = connection->output_capacity * 2 + length;
        connection->output = realloc(connection->output, connection->output_capacity);
        if (connection->output == NULL) {
            die("no memory");
        }
    }
    unsigned char *place = connection->output + connection->output_length;
    connection->output_length += length;
    return place;
}

static void frame_add(struct connection *connection, uint8_t type, uint8_t flags,
                      uint32_t stream_id, const void *payload, size_t length)
{
    unsigned char *out = output_reserve(connection, 9 + length);
    const unsigned char header[9] = {(unsigned char)(length >> 16),
                                     (unsigned char)(length >> 8),
                                     (unsigned char)length,
                                     type,
                                     flags,
                                     (unsigned char)(stream_id >> 24),
                                     (unsigned char)(stream_id >> 16),
                                     (unsigned char)(stream_id >> 8),
                                     (unsigned char)stream_id};
    memcpy(out, header, sizeof header);
    if (length > 0) {
        memcpy(out + sizeof header, payload, length);
    }
}

static void window_open(struct connection *connection, uint32_t bytes)
{
    const unsigned char payload[4] = {(unsigned char)(bytes >> 24), (unsigned char)(bytes >> 16),
                                      (unsigned char)(bytes >> 8), (unsigned char)bytes};
    frame_add(connection, NGHTTP2_WINDOW_UPDATE, 0, 0, payload, sizeof payload);
}

/* As much of the body as the windows let out. */
static void body_add(struct connection *connection, struct slot *slot)
{
    while (slot->sent < load.body_length && connection->window > 0 && slot->window > 0) {
        int64_t count = (int64_t)(load.body_length - slot->sent);
        count = count < FRAME_BYTES_MAX ? count : FRAME_BYTES_MAX;
        count = count < connection->window ? count : connection->window;
        count = count < slot->window ? count : slot->window;
        bool last = slot->sent + (size_t)count == load.body_length;
        frame_add(connection, NGHTTP2_DATA, last ? NGHTTP2_FLAG_END_STREAM : 0, slot->stream_id,
                  load.body + slot->sent, (size_t)count);
        slot->sent += (size_t)count;
        slot->window -= count;
        connection->window -= count;
    }
}

static void call_start(struct connection *connection, struct slot *slot)
{
    if (load.stopping || load.requests_left == 0) {
        return;
    }
    load.requests_left--;
    while (connection->slot_of[connection->next_id / 2 % SLOT_TABLE] != NO_SLOT) {
        connection->next_id += 2;
    }
    const unsigned char *block = connection->warm ? load.warm : load.cold;
    size_t length = connection->warm ? load.warm_length : load.cold_length;
    slot->stream_id = connection->next_id;
    slot->sent = 0;
    slot->window = connection->stream_window;
    slot->begin_ns = load.now_ns;
    slot->status = -1;
    connection->slot_of[slot->stream_id / 2 % SLOT_TABLE] = (uint16_t)(slot - connection->slots);
    connection->next_id += 2;
    connection->warm = true;
    load.in_flight++;
    frame_add(connection, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, slot->stream_id, block,
              length);
    body_add(connection, slot);
}

/* ---- what comes back ------------------------------------------------------------------------- */

static struct slot *slot_find(struct connection *connection, uint32_t stream_id)
{
    uint16_t index = connection->slot_of[stream_id / 2 % SLOT_TABLE];
    if (index == NO_SLOT || connection->slots[index].stream_id != stream_id) {
        return NULL;
    }
    return &connection->slots[index];
}

static void call_end(struct connection *connection, struct slot *slot)
{
    uint64_t took_ns = load.now_ns - slot->begin_ns;
    load.done++;
    load.in_flight--;
    if (slot->status != 0) {
        load.failed++;
    }
    if (load.sample_count < SAMPLES_MAX) {
        load.samples[load.sample_count++] = took_ns < UINT32_MAX ? (uint32_t)took_ns : UINT32_MAX;
    }
    connection->slot_of[slot->stream_id / 2 % SLOT_TABLE] = NO_SLOT;
    slot->stream_id = 0;
    call_start(connection, slot);
}

static bool block_is_indexes(const unsigned char *block, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (block[i] < 0x80 || block[i] == 0xFF) {
            return false;
        }
    }
    return length <= KNOWN_BLOCK_MAX;
}

/* Inflates a header block; returns the grpc-status in it, or -1. */
static int block_read(struct connection *connection, const unsigned char *block, size_t length)
{
    int status = -1;
    int flags = 0;
    const unsigned char *position = block;
    size_t left = length;
    while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
        nghttp2_nv field;
        ssize_t used =
            nghttp2_hd_inflate_hd2(connection->inflater, &field, &flags, position, left, 1);
        if (used < 0) {
            die("header block does not inflate: %s", nghttp2_strerror((int)used));
        }
        position += used;
        left -= (size_t)used;
        if (!(flags & NGHTTP2_HD_INFLATE_EMIT)) {
            continue;
        }
        if (field.namelen == 11 && memcmp(field.name, "grpc-status", 11) == 0) {
            status = atoi((const char *)field.value);
        } else if (field.namelen == 12 && memcmp(field.name, "grpc-message", 12) == 0 &&
                   load.failure[0] == '\0') {
            snprintf(load.failure, sizeof load.failure, "%s", (const char *)field.value);
        }
    }
    nghttp2_hd_inflate_end_headers(connection->inflater);
    return status;
}

static int block_status(struct connection *connection, const unsigned char *block, size_t length)
{
    for (size_t i = 0; i < 4; i++) {
        const struct known_block *known = &connection->known[i];
        if (known->length == length && memcmp(known->bytes, block, length) == 0) {
            return known->status; /* indexes only: reading it again would change nothing */
        }
    }
    int status = block_read(connection, block, length);
    if (!block_is_indexes(block, length)) {
        memset(connection->known, 0, sizeof connection->known); /* indexes may have moved */
        return status;
    }
    struct known_block *known = &connection->known[connection->known_next++ % 4];
    memcpy(known->bytes, block, length);
    known->length = length;
    known->status = status;
    return status;
}

static void headers_take(struct connection *connection, uint32_t stream_id, uint8_t flags,
                         const unsigned char *payload, size_t length)
{
    struct slot *slot = slot_find(connection, stream_id);
    if (!(flags & NGHTTP2_FLAG_END_HEADERS) ||
        flags & (NGHTTP2_FLAG_PADDED | NGHTTP2_FLAG_PRIORITY)) {
        die("a header block in parts, padded or with a priority");
    }
    int status = block_status(connection, payload, length);
    if (slot != NULL && status >= 0) {
        slot->status = status;
    }
    if (slot != NULL && flags & NGHTTP2_FLAG_END_STREAM) {
        call_end(connection, slot);
    }
}

static uint32_t number_read(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void bodies_go_on(struct connection *connection)
{
    for (unsigned i = 0; i < load.streams; i++) {
        struct slot *slot = &connection->slots[i];
        if (slot->stream_id != 0 && slot->sent < load.body_length) {
            body_add(connection, slot);
        }
    }
}

static void settings_take(struct connection *connection, uint8_t flags,
                          const unsigned char *payload, size_t length)
{
    if (flags & NGHTTP2_FLAG_ACK) {
        return;
    }
    for (size_t i = 0; i + 6 <= length; i += 6) {
        if (payload[i] == 0 && payload[i + 1] == NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE) {
            int64_t window = number_read(payload + i + 2);
            for (unsigned j = 0; j < load.streams; j++) {
                connection->slots[j].window += window - connection->stream_window;
            }
            connection->stream_window = window;
        }
    }
    frame_add(connection, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
    bodies_go_on(connection);
}

static void window_take(struct connection *connection, uint32_t stream_id,
                        const unsigned char *payload)
{
    uint32_t bytes = number_read(payload);
    if (stream_id == 0) {
        connection->window += bytes;
        bodies_go_on(connection);
        return;
    }
    struct slot *slot = slot_find(connection, stream_id);
    if (slot != NULL) {
        slot->window += bytes;
        body_add(connection, slot);
    }
}

static void frame_take(struct connection *connection, const unsigned char *frame, size_t length)
{
    uint8_t type = frame[3], flags = frame[4];
    uint32_t stream_id = number_read(frame + 5) & WINDOW_MAX;
    const unsigned char *payload = frame + 9;
    struct slot *slot;
    switch (type) {
    case NGHTTP2_HEADERS:
        headers_take(connection, stream_id, flags, payload, length);
        break;
    case NGHTTP2_DATA:
        connection->received += length;
        break;
    case NGHTTP2_SETTINGS:
        settings_take(connection, flags, payload, length);
        break;
    case NGHTTP2_PING:
        if (!(flags & NGHTTP2_FLAG_ACK)) {
            frame_add(connection, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, payload, length);
        }
        break;
    case NGHTTP2_WINDOW_UPDATE:
        window_take(connection, stream_id, payload);
        break;
    case NGHTTP2_RST_STREAM:
        slot = slot_find(connection, stream_id);
        if (slot != NULL) {
            slot->status = -1;
            call_end(connection, slot);
        }
        break;
    case NGHTTP2_GOAWAY:
        die("the server ends the connection with code %u", number_read(payload + 4));
    default:
        break;
    }
}

static void frames_take(struct connection *connection)
{
    size_t at = 0;
    while (connection->input_length - at >= 9) {
        const unsigned char *frame = connection->input + at;
        size_t length = (size_t)frame[0] << 16 | (size_t)frame[1] << 8 | frame[2];
        if (connection->input_length - at < 9 + length) {
            break;
        }
        frame_take(connection, frame, length);
        at += 9 + length;
    }
    memmove(connection->input, connection->input + at, connection->input_length - at);
    connection->input_length -= at;
    if (connection->received > WINDOW_MAX / 2) {
        window_open(connection, (uint32_t)connection->received);
        connection->received = 0;
    }
}

/* ---- sockets --------------------------------------------------------------------------------- */

static void connection_open(struct connection *connection, const char *host, uint16_t port)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    static const unsigned char settings[6] = {
        0, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7F, 0xFF, 0xFF, 0xFF};
    const int on = 1;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0 || inet_pton(AF_INET, host, &name.sin_addr) != 1 ||
        connect(connection->fd, (struct sockaddr *)&name, sizeof name) < 0) {
        die("connect to %s:%u: %s", host, port, strerror(errno));
    }
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connection->next_id = 1;
    connection->window = connection->stream_window = 65535;
    connection->input = malloc(INPUT_BYTES);
    memset(connection->slot_of, 0xFF, sizeof connection->slot_of);
    if (connection->input == NULL || nghttp2_hd_inflate_new(&connection->inflater) != 0) {
        die("no memory");
    }
    memcpy(output_reserve(connection, sizeof preface - 1), preface, sizeof preface - 1);
    frame_add(connection, NGHTTP2_SETTINGS, 0, 0, settings, sizeof settings);
    window_open(connection, WINDOW_MAX - 65535);
}

static void connection_read(struct connection *connection)
{
    ssize_t count = recv(connection->fd, connection->input + connection->input_length,
                         INPUT_BYTES - connection->input_length, MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) {
        return;
    }
    if (count <= 0) {
        die("the server closed the connection");
    }
    load.now_ns = clock_now_ns();
    connection->input_length += (size_t)count;
    frames_take(connection);
}

/* Never waits for the server to read: it may be waiting for us to. */
static void connection_write(struct connection *connection)
{
    size_t sent = 0;
    while (sent < connection->output_length) {
        ssize_t count = send(connection->fd, connection->output + sent,
                             connection->output_length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno != EAGAIN) {
            die("send: %s", strerror(errno));
        }
        if (count < 0) {
            break;
        }
        sent += (size_t)count;
    }
    memmove(connection->output, connection->output + sent, connection->output_length - sent);
    connection->output_length -= sent;
}

static void turn(void)
{
    struct pollfd waiting[CONNECTIONS_MAX];
    for (unsigned i = 0; i < load.connections; i++) {
        connection_write(&all[i]);
        short events = all[i].output_length > 0 ? POLLIN | POLLOUT : POLLIN;
        waiting[i] = (struct pollfd){.fd = all[i].fd, .events = events};
    }
    if (poll(waiting, load.connections, 10000) == 0) {
        die("no answer for 10 s with %lu calls in flight", (unsigned long)load.in_flight);
    }
    for (unsigned i = 0; i < load.connections; i++) {
        if (waiting[i].revents & (POLLIN | POLLHUP | POLLERR)) {
            connection_read(&all[i]);
        }
    }
}

static int sample_compare(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static double quantile_us(double quantile)
{
    if (load.sample_count == 0) {
        return 0;
    }
    return load.samples[(size_t)(quantile * (double)(load.sample_count - 1))] / 1e3;
}

static void round_run(double seconds, uint64_t requests)
{
    uint64_t begin_ns = clock_now_ns();
    uint64_t end_ns = begin_ns + (uint64_t)(seconds * 1e9);
    load.done = load.failed = load.sample_count = 0;
    load.stopping = false;
    load.requests_left = requests;
    load.failure[0] = '\0';
    load.now_ns = begin_ns;
    for (unsigned i = 0; i < load.connections; i++) {
        for (unsigned j = 0; j < load.streams; j++) {
            call_start(&all[i], &all[i].slots[j]);
        }
    }
    while (load.now_ns < end_ns && load.in_flight > 0) {
        turn();
    }
    uint64_t took_ns = load.now_ns - begin_ns, done = load.done;
    load.stopping = true;
    while (load.in_flight > 0) {
        turn();
    }
    qsort(load.samples, load.sample_count, sizeof *load.samples, sample_compare);
    printf("{\"requests\": %lu, \"failed\": %lu, \"seconds\": %.6f, \"per_second\": %.1f, "
           "\"all_requests\": %lu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"failure\": \"%s\"}\n",
           (unsigned long)done, (unsigned long)load.failed, (double)took_ns / 1e9,
           (double)done * 1e9 / (double)took_ns, (unsigned long)load.done, quantile_us(0.5),
           quantile_us(0.99), load.failure);
    fflush(stdout);
}

static void body_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        die("read '%s': %s", path, strerror(errno));
    }
    size_t length = (size_t)ftell(file);
    rewind(file);
    load.body_length = length + 5;
    load.body = malloc(load.body_length);
    if (load.body == NULL || fread(load.body + 5, 1, length, file) != length) {
        die("read '%s': %s", path, strerror(errno));
    }
    load.body[0] = 0;
    for (int i = 0; i < 4; i++) {
        load.body[1 + i] = (unsigned char)(length >> (24 - 8 * i));
    }
    fclose(file);
}

int main(int count, char **arguments)
{
    char host[64], line[64];
    unsigned port;
    if (count != 6 || sscanf(arguments[1], "%63[^:]:%u", host, &port) != 2) {
        die("usage: replay HOST:PORT /package.Service/Method BODY_FILE CONNECTIONS STREAMS");
    }
    load.connections = (unsigned)strtoul(arguments[4], NULL, 10);
    load.streams = (unsigned)strtoul(arguments[5], NULL, 10);
    if (load.connections < 1 || load.connections > CONNECTIONS_MAX || load.streams < 1 ||
        load.streams > STREAMS_MAX) {
        die("1 to %d connections and 1 to %d streams", CONNECTIONS_MAX, STREAMS_MAX);
    }
    body_read(arguments[3]);
    blocks_make(arguments[1], arguments[2]);
    all = calloc(load.connections, sizeof *all);
    load.samples = malloc(SAMPLES_MAX * sizeof *load.samples);
    if (all == NULL || load.samples == NULL) {
        die("no memory");
    }
    for (unsigned i = 0; i < load.connections; i++) {
        connection_open(&all[i], host, (uint16_t)port);
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        bool counted = line[0] == '#';
        round_run(counted ? 3600 : strtod(line, NULL),
                  counted ? strtoull(line + 1, NULL, 10) : UINT64_MAX);
    }
    return 0;
}
