/* client.h: a small HTTP/2 client for tests, on nghttp2 and a blocking socket. */
#ifndef TIDEPOOL_TESTS_NET_CLIENT_H
#define TIDEPOOL_TESTS_NET_CLIENT_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLIENT_STREAMS_MAX 4096

struct client_reply {
    char http_status[8];
    int grpc_status; /* -1: none came */
    char text[4096]; /* grpc-message as it was on the wire */
    char accept_encoding[64];
    char encoding[32];
    char echoed[512]; /* header or trailer x-echo */
    char retry_pushback[32];
    unsigned char *data;
    size_t length, capacity;
    unsigned header_blocks;
    bool ended_by_headers;
    bool closed;
    uint32_t close_code;
};

struct client_header {
    const char *name, *value;
};

/* What to send; zero and NULL mean the usual. */
struct client_request {
    const char *path;
    const struct client_header *headers; /* besides the usual ones */
    size_t header_count;
    const char *method, *content_type, *timeout;
    const unsigned char *body; /* with its prefix; must live until the call ends */
    size_t length;
    size_t chunk;   /* bytes per DATA frame at most; 0: as they come */
    bool keep_open; /* no END_STREAM after the body */
    bool no_body;   /* END_STREAM on the HEADERS */
};

struct client {
    int fd;
    nghttp2_session *session;
    struct client_reply replies[CLIENT_STREAMS_MAX];
    struct client_request requests[CLIENT_STREAMS_MAX];
    size_t sent[CLIENT_STREAMS_MAX];
    bool goaway;
    uint32_t goaway_code;
    int32_t goaway_last;
    char goaway_debug[64];
    unsigned ping_acks;
    bool eof;
};

struct client *client_connect(uint16_t port);
struct client *client_connect_fd(int fd, int32_t window); /* window 0: nghttp2's own */
void client_close(struct client *client);
/* Queues a call; index for client_reply. */
int32_t client_call(struct client *client, const struct client_request *request);
struct client_reply *client_reply(struct client *client, int32_t stream_id);
void client_flush(struct client *client);
/* Reads once, waiting at most `ms`. False: nothing came. */
bool client_read(struct client *client, int ms);
/* Goes on until the stream is closed; fails the test after 10 s. */
struct client_reply *client_wait(struct client *client, int32_t stream_id);
void client_wait_data(struct client *client, int32_t stream_id, size_t length);
void client_wait_end(struct client *client); /* until the server has closed the connection */
void client_body(struct client *client, int32_t stream_id, const unsigned char *body, size_t length,
                 bool end);
/* call + wait of a small message. */
struct client_reply *client_echo(struct client *client, const char *path, const char *text);
/* A prefix and `length` bytes of 'x'; malloc'ed. */
unsigned char *client_message(size_t length, size_t *ret_length);

#endif
