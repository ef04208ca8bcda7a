/* terminal.h: text for people on a terminal or in a pipe: lines cut to the width, colours that can
 * be left out, figures with units, and the terminal's own state.
 * Thread:  plain values; the terminal's state: one thread. */
#ifndef TIDEPOOL_CLIENTS_TERMINAL_H
#define TIDEPOOL_CLIENTS_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct terminal_size {
    unsigned columns, rows;
};

/* Of the descriptor; 100 × 30 where it is no terminal. */
struct terminal_size terminal_size(int fd);
/* A terminal that shows colours: not "dumb", and NO_COLOR is not set. */
bool terminal_has_colour(int fd);

/* One key at a time without echo on standard input, cursor hidden, other screen: until leave. False
 * when standard input or output is no terminal; nothing is changed then. */
bool terminal_enter(void);
void terminal_leave(void); /* may be called at any time, also from a signal handler */
int terminal_key(void);    /* a key that was pressed, or -1; never blocks */

/* Writes at most `columns` columns of the UTF-8 text (control bytes become '?'), returns how many.
 */
unsigned text_write(FILE *out, const char *text, unsigned columns);
/* The same, then spaces up to `columns`. */
void text_pad(FILE *out, const char *text, unsigned columns);

struct text_small {
    char text[32];
};
const char *text_duration(struct text_small *buffer, uint64_t ns); /* "3.2 s", "4 min 10 s" */
const char *text_bytes(struct text_small *buffer, uint64_t bytes); /* "1.5 GiB" */
const char *text_figure(struct text_small *buffer, double value, int digits); /* "-" when NaN */
const char *text_wall(struct text_small *buffer, uint64_t wall_ns); /* local "14:03:22.125" */

#endif
