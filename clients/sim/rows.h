/* rows.h: CSV files whose header lines are known: plain or gzip, one row at a time into a struct.
 * Form:    a header line of exactly the names of one of the given tables, then rows of as many
 *          fields with commas between them; no quotes; line ends "\n" or "\r\n".
 * Units:   COLUMN_TIME is written in seconds and read into nanoseconds, exactly.
 * Trust:   none: a wrong field is an error that names file, line, column, its limits and what
 *          stands there. Memory: one line of ROWS_LINE_BYTES_MAX.
 * Owner:   texts of a row stay valid until the next one is read.
 * Errors:  0 or a negative enum error_code.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_CLIENTS_SIM_ROWS_H
#define TIDEPOOL_CLIENTS_SIM_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

#define ROWS_LINE_BYTES_MAX 4096
#define ROWS_COLUMNS_MAX 16
#define ROWS_NAME_BYTES_MAX 63
#define ROWS_SECONDS_MAX 1e9 /* 31 years: in nanoseconds they fit in 64 bits with room to add */

enum column_kind {
    COLUMN_TIME,   /* uint64_t: nanoseconds of at most `maximum` seconds, up to 9 decimals */
    COLUMN_COUNT,  /* uint64_t */
    COLUMN_NUMBER, /* double */
    COLUMN_NAME,   /* const char *: 1 to ROWS_NAME_BYTES_MAX printable ASCII characters */
};

struct column {
    const char *name;
    enum column_kind kind;
    size_t offset; /* of the field in the row's struct */
    double minimum, maximum;
    bool may_be_empty; /* then read as 0 or "" */
};

struct row_table {
    const char *what; /* what a file with this header holds, for messages */
    const struct column *columns;
    size_t column_count;
};

struct rows; /* opaque */

/* Opens the file and reads its header: `ret_table` is the index of the table it belongs to. The
 * tables must outlive the rows. */
int rows_open(const char *path, const struct row_table *tables, size_t table_count,
              struct rows **ret_rows, size_t *ret_table, struct error *error);
void rows_close(struct rows *rows); /* NULL is fine */

/* 1: `row` (of the file's table) is filled; 0: the file has ended; negative: an error. */
int rows_next(struct rows *rows, void *row, struct error *error);

/* An error about the row just read, beginning with file and line. */
int rows_refuse(const struct rows *rows, struct error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Seconds as decimal text into nanoseconds; false: no such number, below 0, more than 9 decimals
 * that are not 0, or over the maximum. */
bool seconds_parse(const char *text, double maximum, uint64_t *ret_ns);

#endif
