/* connection.h: one connection of a rank: bytes in, lines out, and the other way.
 * Bounds:  a line has at most PROGRESS_LINE_MAX bytes, a longer one is told once and passed over;
 *          what waits to be sent has at most CONNECTION_OUTPUT_MAX bytes, more ends the connection.
 * Memory:  none for lines that arrive whole; the rest of a cut one is kept until it is whole.
 * Thread:  one at a time; never blocks. */
#ifndef TIDEPOOL_PROGRESS_CONNECTION_H
#define TIDEPOOL_PROGRESS_CONNECTION_H

#include <sys/types.h>

#include "server/progress/line.h"

#define CONNECTION_READ_BYTES 4096u /* at a turn: some ms for a whole turn at most */
#define CONNECTION_OUTPUT_MAX (4 * PROGRESS_LINE_MAX)

struct connection {
    int fd;
    pid_t pid;    /* as the kernel says */
    bool greeted; /* said hello: rank and can hold */
    bool ended;   /* nothing more goes in or out; the listener takes it away */
    uint32_t rank;
    unsigned can;
    unsigned bad_lines;    /* in a row */
    uint64_t acknowledged; /* the notice; 0: none */
    bool skipping;         /* the rest of a line that is too long */
    char *input;           /* a cut line */
    size_t input_length;
    char *output; /* what the socket did not take */
    size_t output_length;
    struct connection *next, *previous; /* the listener's list */
};

/* A whole line without its newline; NULL: one that is too long. May send and end the connection. */
typedef void (*connection_line)(void *arg, struct connection *connection, const char *line,
                                size_t length);

struct connection *progress_connection_create(int fd,
                                              pid_t pid); /* takes over `fd`; NULL: no memory */
void progress_connection_destroy(struct connection *connection); /* NULL is fine */

/* Reads once and hands out the lines. At the end of the stream a last line without newline too. */
void progress_connection_read(struct connection *connection, connection_line on_line, void *arg);
void progress_connection_send(struct connection *connection, const char *line);
void progress_connection_flush(struct connection *connection);
/* Both sides are told; the socket reads as ended from now on. */
void progress_connection_end(struct connection *connection);

#endif
