/* tidepool report: a line to the progress socket from a job that is no Python (docs/jobs.md). */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clients/cli/commands_outside.h"
#include "server/base/options.h"

#define ANSWER_BYTES 8192

/* ---- the lines ---------------------------------------------------------------------------- */

static int metrics_read(const struct cli *cli, json_t *metrics, struct error *error)
{
    for (size_t i = 0; i < cli->options.metrics.count; i++) {
        char name[64];
        const char *text = cli->options.metrics.values[i];
        const char *equals = strchr(text, '=');
        size_t length = equals == NULL ? 0 : (size_t)(equals - text);
        char *end = NULL;
        double number = equals == NULL ? 0 : strtod(equals + 1, &end);
        if (length == 0 || length >= sizeof(name) || end == equals + 1 || *end != '\0') {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "--metric wants NAME=NUMBER, for example loss=0.3, not '%s'", text);
        }
        memcpy(name, text, length);
        name[length] = '\0';
        (void)json_object_set_new(metrics, name,
                                  isfinite(number) ? json_real(number) : json_null());
    }
    return 0;
}

static json_t *progress_line(const struct cli *cli, struct error *error)
{
    const struct cli_options *options = &cli->options;
    json_t *progress = json_object(), *metrics = json_object();
    int64_t step = options->step >= 0 ? options->step : options->checkpointed_step;
    (void)json_object_set_new(progress, "step", json_integer(step));
    if (options->checkpointed_step >= 0) {
        (void)json_object_set_new(progress, "checkpointed_step",
                                  json_integer(options->checkpointed_step));
    }
    if (options->waiting_s >= 0) {
        (void)json_object_set_new(progress, "waiting_s", json_real(options->waiting_s));
    }
    (void)json_object_set_new(progress, "metrics", metrics);
    if (metrics_read(cli, metrics, error) < 0) {
        json_decref(progress);
        return NULL;
    }
    return json_pack("{s:o}", "progress", progress);
}

/* The number of the notice in the file; 0: none stands. */
static json_int_t notice_number(void)
{
    const char *path = getenv("TIDEPOOL_NOTICE_FILE");
    json_t *record = path == NULL ? NULL : options_parse_file(path, NULL);
    json_int_t number = json_integer_value(json_object_get(record, "notice"));
    json_decref(record);
    return number;
}

static void notice_lines(const struct cli *cli, json_t *lines)
{
    json_int_t notice = notice_number();
    if (notice == 0) {
        return; /* nothing is asked: there is nothing to answer */
    }
    if (cli->options.acknowledge) {
        (void)json_array_append_new(lines,
                                    json_pack("{s:{s:I}}", "acknowledged", "notice", notice));
    }
    if (cli->options.extend_s > 0) {
        (void)json_array_append_new(lines, json_pack("{s:{s:I,s:f}}", "extend", "notice", notice,
                                                     "seconds", cli->options.extend_s));
    }
}

static json_t *lines_make(const struct cli *cli, struct error *error)
{
    const char *rank = getenv("RANK");
    json_t *lines = json_array();
    (void)json_array_append_new(lines,
                                json_pack("{s:{s:i,s:i}}", "hello", "rank",
                                          rank == NULL ? 0 : atoi(rank), "pid", (int)getppid()));
    if (cli->options.step >= 0 || cli->options.checkpointed_step >= 0) {
        json_t *line = progress_line(cli, error);
        if (line == NULL) {
            json_decref(lines);
            return NULL;
        }
        (void)json_array_append_new(lines, line);
    }
    notice_lines(cli, lines);
    return lines;
}

/* ---- the socket --------------------------------------------------------------------------- */

/* By its folder's descriptor: a path of any length fits into an address then. */
static int socket_connect(const char *path, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[PATH_MAX], name[PATH_MAX];
    int result = 0;
    (void)snprintf(folder, sizeof(folder), "%s", path);
    (void)snprintf(name, sizeof(name), "%s", path);
    int directory = open(dirname(folder), O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%.64s", directory,
                   basename(name));
    if (directory < 0 || fd < 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        result = error_set(error, ERROR_UNAVAILABLE, "connect to the progress socket '%s': %s",
                           path, strerror(errno));
    }
    if (directory >= 0) {
        close(directory);
    }
    if (result < 0 && fd >= 0) {
        close(fd);
    }
    return result < 0 ? result : fd;
}

static int lines_send(int fd, const json_t *lines, struct error *error)
{
    size_t index;
    json_t *line;
    json_array_foreach(lines, index, line)
    {
        char *text = json_dumps(line, JSON_COMPACT);
        size_t length = text == NULL ? 0 : strlen(text);
        if (text == NULL || send(fd, text, length, MSG_NOSIGNAL) != (ssize_t)length ||
            send(fd, "\n", 1, MSG_NOSIGNAL) != 1) {
            free(text);
            return error_set(error, ERROR_UNAVAILABLE, "the server hung up");
        }
        free(text);
    }
    return 0;
}

/* Until the server has read all and hung up: what it says against a line is the answer. */
static int answer_read(const struct cli *cli, int fd, struct error *error)
{
    char text[ANSWER_BYTES];
    size_t length = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int timeout_ms = (int)(cli_timeout_ns(cli) / 1000000);
    ssize_t got = 0;
    (void)shutdown(fd, SHUT_WR);
    while (length < sizeof(text) && poll(&ready, 1, timeout_ms) > 0 &&
           (got = recv(fd, text + length, sizeof(text) - length, 0)) > 0) {
        length += (size_t)got;
    }
    if (got < 0 || (length < sizeof(text) && (ready.revents & POLLIN) == 0)) {
        return error_set(error, ERROR_DEADLINE_EXCEEDED, "the server does not read the progress");
    }
    json_t *answer = length == 0 ? NULL : json_loadb(text, length, JSON_DISABLE_EOF_CHECK, NULL);
    const char *reason =
        json_string_value(json_object_get(json_object_get(answer, "error"), "text"));
    int result =
        reason == NULL ? 0 : error_set(error, ERROR_INVALID_ARGUMENT, "the server: %s", reason);
    json_decref(answer);
    return result;
}

static int lines_deliver(const struct cli *cli, const char *path, const json_t *lines,
                         struct error *error)
{
    int fd = socket_connect(path, error);
    if (fd < 0) {
        return fd;
    }
    int result = lines_send(fd, lines, error);
    if (result == 0) {
        result = answer_read(cli, fd, error);
    }
    close(fd);
    return result;
}

int cli_report(struct cli *cli)
{
    struct error error = {0};
    const char *path = getenv("TIDEPOOL_PROGRESS_SOCKET");
    const struct cli_options *options = &cli->options;
    if (options->step < 0 && options->checkpointed_step < 0 && !options->acknowledge &&
        options->extend_s <= 0) {
        return cli_fail_usage(cli, "wants --step, --checkpointed-step, --acknowledge or --extend");
    }
    json_t *lines = lines_make(cli, &error);
    if (lines == NULL) {
        return cli_fail_usage(cli, "%s", error.text);
    }
    int result = 0;
    if (path != NULL) { /* outside of a job a script that reports runs all the same */
        result = lines_deliver(cli, path, lines, &error);
    } else if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "tidepool report: this is no job of Tidepool; nothing is told\n");
    }
    json_decref(lines);
    if (result < 0) {
        return cli_fail(cli, &error);
    }
    return cli->options.json ? cli_write_json(cli, json_pack("{s:b}", "told", path != NULL))
                             : EXIT_OK;
}
