#include "clients/cli/follow.h"

#include <errno.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "server/base/clock.h"

#define AWAY_NS (60 * NS_PER_S) /* a server that starts again is back by then */
#define AWAY_LOOK_MS 200

static bool write_all(int fd, const unsigned char *data, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, data, length);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        if (written > 0) {
            data += written;
            length -= (size_t)written;
        }
    }
    return true;
}

static bool on_chunk(void *context, const ProtobufCMessage *message)
{
    struct follow *follow = context;
    const Tidepool__V1__LogChunk *chunk = (const Tidepool__V1__LogChunk *)message;
    follow->run = chunk->run;
    follow->offset = chunk->offset + chunk->data.len;
    follow->reader_gone = !write_all(follow->fd, chunk->data.data, chunk->data.len);
    return !follow->reader_gone;
}

static int follow_once(struct cli *cli, struct follow *follow, uint64_t timeout_ns,
                       struct error *error)
{
    Tidepool__V1__GetLogsRequest request = TIDEPOOL__V1__GET_LOGS_REQUEST__INIT;
    int result = cli_connect(cli, error);
    if (result < 0) {
        return result;
    }
    request.job = (char *)(uintptr_t)follow->job; /* only read */
    request.follow = follow->to_the_end;
    request.run = follow->run;
    request.offset = follow->offset;
    request.tail_bytes = follow->run == 0 ? follow->tail_bytes : 0;
    return grpc_client_stream(cli->client, "/tidepool.v1.Control/GetLogs", &request.base,
                              &tidepool__v1__log_chunk__descriptor, timeout_ns, on_chunk, follow,
                              error);
}

/* The signal that woke us; 0: none did. */
static int signal_take(const struct cli *cli)
{
    struct signalfd_siginfo info;
    return cli->signal_fd >= 0 && read(cli->signal_fd, &info, sizeof(info)) == sizeof(info)
               ? (int)info.ssi_signo
               : 0;
}

/* A signal came, or the server went. True: go on. */
static bool follow_on(struct cli *cli, struct follow *follow, int result, uint64_t *away_since_ns)
{
    struct pollfd woken = {.fd = cli->signal_fd, .events = POLLIN};
    int signal = signal_take(cli);
    if (signal != 0) {
        return follow->on_signal != NULL && follow->on_signal(follow->context, signal);
    }
    if (result != -(int)ERROR_UNAVAILABLE || !follow->to_the_end) {
        return false;
    }
    if (*away_since_ns == 0) {
        *away_since_ns = clock_now_ns();
        fprintf(stderr, "tidepool %s: the server is away; job %s goes on\n", cli->command,
                follow->job);
    }
    grpc_client_destroy(cli->client);
    cli->client = NULL;
    (void)poll(&woken, 1, AWAY_LOOK_MS);
    return clock_now_ns() - *away_since_ns < AWAY_NS;
}

int cli_follow(struct cli *cli, struct follow *follow, struct error *error)
{
    uint64_t timeout_ns = (uint64_t)(cli->options.timeout_s * 1e9); /* 0: none */
    uint64_t deadline_ns = timeout_ns == 0 ? 0 : clock_now_ns() + timeout_ns;
    uint64_t away_since_ns = 0;
    int result;
    do {
        uint64_t now_ns = clock_now_ns();
        uint32_t run = follow->run;
        uint64_t offset = follow->offset;
        if (deadline_ns != 0 && now_ns >= deadline_ns) {
            return error_set(error, ERROR_DEADLINE_EXCEEDED, "time is up");
        }
        result = follow_once(cli, follow, deadline_ns == 0 ? 0 : deadline_ns - now_ns, error);
        if (run != follow->run || offset != follow->offset) {
            away_since_ns = 0; /* it was there in between */
        }
    } while (result < 0 && !follow->reader_gone && follow_on(cli, follow, result, &away_since_ns));
    return result;
}
