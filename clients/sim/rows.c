#include "clients/sim/rows.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define BUFFER_BYTES (256 * 1024)
#define SHOWN_BYTES 48

struct rows {
    char *path;
    const struct row_table *table;
    gzFile file;
    uint64_t line;   /* of the row just read, from 1 */
    size_t at, fill; /* what is not yet read of the buffer */
    bool ended;
    char text[ROWS_LINE_BYTES_MAX + 1];
    char buffer[BUFFER_BYTES];
};

/* What stands in a field, fit to be shown: strange bytes as '?', cut to some length. */
static const char *text_show(const char *text, char shown[SHOWN_BYTES + 4])
{
    size_t length = 0;
    for (; text[length] != '\0' && length < SHOWN_BYTES; length++) {
        shown[length] = text[length] >= ' ' && text[length] <= '~' ? text[length] : '?';
    }
    strcpy(shown + length, text[length] != '\0' ? "..." : "");
    return shown;
}

int rows_refuse(const struct rows *rows, struct error *error, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return error_set(error, ERROR_INVALID_ARGUMENT, "'%.200s' line %llu: %s", rows->path,
                     (unsigned long long)rows->line, text);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int buffer_fill(struct rows *rows, struct error *error)
{
    int count = gzread(rows->file, rows->buffer, sizeof(rows->buffer));
    int number = Z_OK;
    const char *reason = gzerror(rows->file, &number);
    /* A file cut short reads as far as it goes and then gives Z_BUF_ERROR. */
    if (count < 0 || number < 0) {
        if (number == Z_ERRNO) {
            return error_set_errno(error, errno, "read '%.200s'", rows->path);
        }
        return error_set(error, ERROR_DATA_LOSS, "'%.200s' after line %llu: damaged gzip data: %s",
                         rows->path, (unsigned long long)rows->line, reason);
    }
    rows->at = 0;
    rows->fill = (size_t)count;
    rows->ended = count == 0;
    return 0;
}

/* Adds what the buffer holds of the line. 1: the line is whole. */
static int line_extend(struct rows *rows, size_t *length, struct error *error)
{
    const char *start = rows->buffer + rows->at;
    size_t left = rows->fill - rows->at;
    const char *end = memchr(start, '\n', left);
    size_t count = end != NULL ? (size_t)(end - start) : left;
    if (*length + count > ROWS_LINE_BYTES_MAX) {
        return rows_refuse(rows, error, "longer than %d bytes", ROWS_LINE_BYTES_MAX);
    }
    if (memchr(start, '\0', count) != NULL) {
        return rows_refuse(rows, error, "has a NUL byte: this is no CSV file");
    }
    memcpy(rows->text + *length, start, count);
    *length += count;
    rows->at += count + (end != NULL ? 1 : 0);
    return end != NULL;
}

/* 1: rows->text is the next line, without its end; 0: there is none. */
static int line_read(struct rows *rows, struct error *error)
{
    size_t length = 0;
    int result = 0;
    rows->line++;
    while (result == 0 && !rows->ended) {
        if (rows->at == rows->fill) {
            result = buffer_fill(rows, error);
        } else {
            result = line_extend(rows, &length, error);
        }
    }
    if (result < 0) {
        return result;
    }
    if (length > 0 && rows->text[length - 1] == '\r') {
        length--;
    }
    rows->text[length] = '\0';
    return result == 1 || length > 0; /* the last line may lack its end */
}

/* ---- fields ---------------------------------------------------------------------------------- */

bool seconds_parse(const char *text, double maximum, uint64_t *ret_ns)
{
    uint64_t whole = 0, fraction = 0, unit = 1000000000;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && whole <= (uint64_t)ROWS_SECONDS_MAX; at++) {
        whole = 10 * whole + (uint64_t)(*at - '0');
    }
    if (at == text) {
        return false;
    }
    if (*at == '.') {
        for (at++; *at >= '0' && *at <= '9' && (unit > 1 || *at == '0'); at++) {
            unit = unit > 1 ? unit / 10 : unit;
            fraction += unit * (uint64_t)(*at - '0');
        }
    }
    if (*at != '\0' || (double)whole + (double)fraction * 1e-9 > maximum) {
        return false;
    }
    *ret_ns = whole * 1000000000 + fraction;
    return true;
}

static bool count_parse(const char *text, const struct column *column, uint64_t *ret_count)
{
    uint64_t count = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && at - text < 19; at++) {
        count = 10 * count + (uint64_t)(*at - '0');
    }
    *ret_count = count;
    return at > text && *at == '\0' && (double)count >= column->minimum &&
           (double)count <= column->maximum;
}

static bool number_parse(const char *text, const struct column *column, double *ret_number)
{
    char *end;
    if (*text == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0') {
        return false; /* also keeps out what strtod likes beside numbers: inf, nan, hexadecimal */
    }
    *ret_number = strtod(text, &end);
    return *end == '\0' && isfinite(*ret_number) && *ret_number >= column->minimum &&
           *ret_number <= column->maximum;
}

static bool name_parse(const char *text, const char **ret_name)
{
    size_t length = 0;
    while (text[length] > ' ' && text[length] <= '~') {
        length++;
    }
    *ret_name = text;
    return length > 0 && length <= ROWS_NAME_BYTES_MAX && text[length] == '\0';
}

static bool field_parse(const struct column *column, const char *text, void *field)
{
    if (*text == '\0' && column->may_be_empty && column->kind == COLUMN_NAME) {
        *(const char **)field = text;
        return true;
    }
    if (*text == '\0' && column->may_be_empty) {
        text = "0";
    }
    switch (column->kind) {
    case COLUMN_TIME:
        return seconds_parse(text, column->maximum, field);
    case COLUMN_COUNT:
        return count_parse(text, column, field);
    case COLUMN_NUMBER:
        return number_parse(text, column, field);
    case COLUMN_NAME:
        return name_parse(text, field);
    }
    return false;
}

static int field_refuse(const struct rows *rows, size_t index, const char *text,
                        struct error *error)
{
    const struct column *column = &rows->table->columns[index];
    char shown[SHOWN_BYTES + 4], wanted[96];
    static const char *const kinds[] = {
        [COLUMN_TIME] = "seconds, at most 9 decimals",
        [COLUMN_COUNT] = "a whole number",
        [COLUMN_NUMBER] = "a number",
    };
    if (column->kind == COLUMN_NAME) {
        (void)snprintf(wanted, sizeof(wanted), "a name of 1 to %d printable characters",
                       ROWS_NAME_BYTES_MAX);
    } else {
        (void)snprintf(wanted, sizeof(wanted), "%s, %.10g to %.10g", kinds[column->kind],
                       column->minimum, column->maximum);
    }
    return rows_refuse(rows, error, "column %zu (%s): '%s' is not %s", index + 1, column->name,
                       text_show(text, shown), wanted);
}

/* Ends the field at `*at` with a NUL and moves on; NULL after the last. */
static char *field_take(char **at)
{
    char *field = *at;
    char *comma = strchr(field, ',');
    *at = comma != NULL ? comma + 1 : NULL;
    if (comma != NULL) {
        *comma = '\0';
    }
    return field;
}

static int row_parse(struct rows *rows, void *row, struct error *error)
{
    char *at = rows->text;
    for (size_t i = 0; i < rows->table->column_count; i++) {
        if (at == NULL) {
            return rows_refuse(rows, error, "has %zu fields, not the header's %zu", i,
                               rows->table->column_count);
        }
        const char *text = field_take(&at);
        if (!field_parse(&rows->table->columns[i], text,
                         (char *)row + rows->table->columns[i].offset)) {
            return field_refuse(rows, i, text, error);
        }
    }
    return at == NULL ? 0
                      : rows_refuse(rows, error, "has more fields than the header's %zu",
                                    rows->table->column_count);
}

int rows_next(struct rows *rows, void *row, struct error *error)
{
    int result = line_read(rows, error);
    if (result == 1) {
        result = row_parse(rows, row, error);
        return result < 0 ? result : 1;
    }
    return result;
}

/* ---- the header ------------------------------------------------------------------------------ */

static bool header_matches(const char *header, const struct row_table *table)
{
    const char *at = header;
    for (size_t i = 0; i < table->column_count; i++) {
        size_t length = strlen(table->columns[i].name);
        const char end = i + 1 < table->column_count ? ',' : '\0';
        if (strncmp(at, table->columns[i].name, length) != 0 || at[length] != end) {
            return false;
        }
        at += length + 1;
    }
    return true;
}

static int header_read(struct rows *rows, const struct row_table *tables, size_t table_count,
                       size_t *ret_table, struct error *error)
{
    char shown[SHOWN_BYTES + 4], known[256] = "";
    int result = line_read(rows, error);
    if (result < 0) {
        return result;
    }
    if (result == 0) {
        return rows_refuse(rows, error, "is empty; a header line is missing");
    }
    for (size_t i = 0; i < table_count; i++) {
        if (header_matches(rows->text, &tables[i])) {
            rows->table = &tables[i];
            *ret_table = i;
            return 0;
        }
        size_t length = strlen(known);
        (void)snprintf(known + length, sizeof(known) - length, "%s%s", i > 0 ? ", " : "",
                       tables[i].what);
    }
    return rows_refuse(rows, error, "unknown header '%s'; known are those of %s",
                       text_show(rows->text, shown), known);
}

int rows_open(const char *path, const struct row_table *tables, size_t table_count,
              struct rows **ret_rows, size_t *ret_table, struct error *error)
{
    int result;
    struct rows *rows = calloc(1, sizeof(*rows));
    if (rows == NULL || (rows->path = strdup(path)) == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "read '%.200s': no memory", path);
        goto out;
    }
    errno = 0;
    rows->file = gzopen(path, "rbe");
    if (rows->file == NULL) {
        result = error_set_errno(error, errno != 0 ? errno : ENOMEM, "open '%.200s'", path);
        goto out;
    }
    result = header_read(rows, tables, table_count, ret_table, error);
    if (result == 0) {
        *ret_rows = rows;
        rows = NULL; /* now the caller's */
    }
out:
    rows_close(rows);
    return result;
}

void rows_close(struct rows *rows)
{
    if (rows != NULL) {
        if (rows->file != NULL) {
            (void)gzclose(rows->file);
        }
        free(rows->path);
        free(rows);
    }
}
