#include "server/progress/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct connection *progress_connection_create(int fd, pid_t pid)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL) {
        (void)close(fd);
        return NULL;
    }
    connection->fd = fd;
    connection->pid = pid;
    return connection;
}

void progress_connection_destroy(struct connection *connection)
{
    if (connection != NULL) {
        (void)close(connection->fd);
        free(connection->input);
        free(connection->output);
        free(connection);
    }
}

void progress_connection_end(struct connection *connection)
{
    connection->ended = true;
    (void)shutdown(connection->fd, SHUT_RDWR);
}

/* ---- in --------------------------------------------------------------------------------- */

static void input_drop(struct connection *connection)
{
    free(connection->input);
    connection->input = NULL;
    connection->input_length = 0;
}

/* Keeps what may become a line, unless that would be too long. */
static void input_keep(struct connection *connection, const char *bytes, size_t length,
                       connection_line on_line, void *arg)
{
    size_t total = connection->input_length + length;
    char *input;
    if (length == 0 || connection->skipping) {
        return;
    }
    if (total >= PROGRESS_LINE_MAX) {
        input_drop(connection);
        connection->skipping = true;
        on_line(arg, connection, NULL, 0);
        return;
    }
    input = realloc(connection->input, total);
    if (input == NULL) {
        progress_connection_end(connection);
        return;
    }
    memcpy(input + connection->input_length, bytes, length);
    connection->input = input;
    connection->input_length = total;
}

/* The end of a line: with what was kept of it, it is whole. */
static void line_finish(struct connection *connection, const char *bytes, size_t length,
                        connection_line on_line, void *arg)
{
    if (connection->input_length > 0) {
        input_keep(connection, bytes, length, on_line, arg);
        bytes = connection->input;
        length = connection->input_length;
    }
    if (!connection->skipping && !connection->ended) {
        on_line(arg, connection, bytes, length);
    }
    connection->skipping = false;
    input_drop(connection);
}

static void input_take(struct connection *connection, const char *bytes, size_t length,
                       connection_line on_line, void *arg)
{
    const char *end = bytes + length;
    while (!connection->ended) {
        const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
        if (newline == NULL) {
            input_keep(connection, bytes, (size_t)(end - bytes), on_line, arg);
            return;
        }
        line_finish(connection, bytes, (size_t)(newline - bytes), on_line, arg);
        bytes = newline + 1;
    }
}

void progress_connection_read(struct connection *connection, connection_line on_line, void *arg)
{
    char bytes[CONNECTION_READ_BYTES];
    ssize_t length = recv(connection->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (length > 0) {
        input_take(connection, bytes, (size_t)length, on_line, arg);
        return;
    }
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (connection->input_length > 0 && !connection->ended) {
        line_finish(connection, NULL, 0, on_line, arg);
    }
    progress_connection_end(connection);
}

/* ---- out -------------------------------------------------------------------------------- */

static void output_keep(struct connection *connection, const char *bytes, size_t length)
{
    size_t total = connection->output_length + length;
    char *output = total > CONNECTION_OUTPUT_MAX ? NULL : realloc(connection->output, total);
    if (output == NULL) {
        progress_connection_end(connection); /* it does not read */
        return;
    }
    memcpy(output + connection->output_length, bytes, length);
    connection->output = output;
    connection->output_length = total;
}

/* How much of it went; an error ends the connection. */
static size_t output_write(struct connection *connection, const char *bytes, size_t length)
{
    ssize_t sent = send(connection->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS) {
        progress_connection_end(connection);
        return length;
    }
    return sent < 0 ? 0 : (size_t)sent;
}

void progress_connection_send(struct connection *connection, const char *line)
{
    size_t length = strlen(line);
    size_t sent = 0;
    if (connection->ended) {
        return;
    }
    if (connection->output_length == 0) {
        sent = output_write(connection, line, length);
    }
    if (sent < length) {
        output_keep(connection, line + sent, length - sent);
    }
}

void progress_connection_flush(struct connection *connection)
{
    size_t sent;
    if (connection->ended || connection->output_length == 0) {
        return;
    }
    sent = output_write(connection, connection->output, connection->output_length);
    connection->output_length -= sent;
    memmove(connection->output, connection->output + sent, connection->output_length);
    if (connection->output_length == 0) {
        free(connection->output);
        connection->output = NULL;
    }
}
