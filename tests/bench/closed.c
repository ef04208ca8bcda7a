/* closed.c: one request sent again and again, with so many in flight: a saturating client.
 *     closed ADDRESS BODY IN_FLIGHT
 * BODY is a file with an encoded ModelInferRequest. Reads lines "<seconds>" from standard input and
 * answers each with "<requests> <failed> <wall ns>". */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "clients/common/grpc_client.h"
#include "server/base/clock.h"

#define PATH "/inference.GRPCInferenceService/ModelInfer"

struct closed {
    struct grpc_client *client;
    unsigned char *body;
    size_t body_length;
    unsigned in_flight;
    uint64_t done, failed, end_ns;
    char failure[256]; /* the first one */
};

static void die(const char *what, const struct error *error)
{
    fprintf(stderr, "closed: %s: %s\n", what, error->text);
    exit(1);
}

static void start_call(struct closed *closed);

static void on_end(void *context, enum error_code status, const char *text)
{
    struct closed *closed = context;
    closed->done++;
    if (status != ERROR_NONE && closed->failed++ == 0) {
        snprintf(closed->failure, sizeof(closed->failure), "%s", text);
    }
    if (clock_now_ns() < closed->end_ns) {
        start_call(closed);
    }
}

static const struct grpc_client_handler handler = {.on_end = on_end};

static void start_call(struct closed *closed)
{
    struct error error;
    int32_t call;
    if (grpc_client_start(closed->client, PATH, closed->body, closed->body_length, UINT64_MAX,
                          &handler, closed, &call, &error) < 0) {
        die("start", &error);
    }
}

static void process_once(struct closed *closed)
{
    struct error error;
    struct pollfd poller = {.fd = grpc_client_fd(closed->client),
                            .events = grpc_client_events(closed->client)};
    poll(&poller, 1, 1000);
    if (grpc_client_process(closed->client, clock_now_ns(), &error) < 0) {
        die("connection", &error);
    }
}

static void run_for(struct closed *closed, uint64_t duration_ns)
{
    uint64_t begin_ns = clock_now_ns();
    closed->done = closed->failed = 0;
    closed->end_ns = begin_ns + duration_ns;
    for (unsigned i = 0; i < closed->in_flight; i++) {
        start_call(closed);
    }
    while (grpc_client_calls_open(closed->client) > 0) {
        process_once(closed);
    }
    printf("%llu %llu %llu\n", (unsigned long long)closed->done, (unsigned long long)closed->failed,
           (unsigned long long)(clock_now_ns() - begin_ns));
    if (closed->failed > 0) {
        printf("%s\n", closed->failure);
    }
    fflush(stdout);
}

static void read_body(struct closed *closed, const char *path)
{
    FILE *file = fopen(path, "rb");
    long size = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        size = ftell(file);
        rewind(file);
    }
    closed->body = size < 0 ? NULL : malloc((size_t)size + 1);
    if (closed->body == NULL ||
        (closed->body_length = fread(closed->body, 1, (size_t)size, file)) != (size_t)size) {
        perror(path);
        exit(1);
    }
    fclose(file);
}

int main(int argc, char **argv)
{
    struct closed closed = {0};
    struct error error;
    char line[64];
    if (argc != 4 || (closed.in_flight = (unsigned)atoi(argv[3])) == 0) {
        fprintf(stderr, "usage: closed ADDRESS BODY IN_FLIGHT\n");
        return 2;
    }
    read_body(&closed, argv[2]);
    struct grpc_client_options options = {.address = argv[1]};
    if (grpc_client_create(&options, &closed.client, &error) < 0) {
        die(argv[1], &error);
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        run_for(&closed, (uint64_t)(atof(line) * (double)NS_PER_S));
    }
    grpc_client_destroy(closed.client);
    free(closed.body);
    return 0;
}
