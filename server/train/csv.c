#include "server/train/csv.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/train/file.h"

#define LINE_BYTES_MAX (64 * 1024 * 1024)

struct reader {
    const char *path;
    const char *label_column;
    uint32_t inputs, classes;
    uint32_t label_at; /* column of the labels */
    uint64_t line;
    uint64_t capacity; /* rows that there is room for */
    struct csv_table table;
};

/* Ends the field at `*at` with a NUL and returns it without blanks and quotes around it. */
static char *field_take(char **at)
{
    char *field = *at;
    char *end = field + strcspn(field, ",");
    *at = *end == ',' ? end + 1 : NULL;
    while (isspace((unsigned char)*field) || (*field == '"' && field < end)) {
        field++;
    }
    while (end > field && (isspace((unsigned char)end[-1]) || end[-1] == '"')) {
        end--;
    }
    *end = '\0';
    return field;
}

static bool number_parse(const char *field, double *ret_value)
{
    char *end;
    *ret_value = strtod(field, &end);
    return end != field && *end == '\0' && isfinite(*ret_value);
}

static bool line_is_header(const char *line)
{
    char *copy = strdup(line);
    char *at = copy;
    bool header = false;
    double value;
    while (at != NULL && !header) {
        header = !number_parse(field_take(&at), &value);
    }
    free(copy);
    return header;
}

static bool label_number_parse(const char *text, uint32_t columns, uint32_t *ret_column)
{
    char *end;
    unsigned long column = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || column >= columns) {
        return false;
    }
    *ret_column = (uint32_t)column;
    return true;
}

/* Finds the labels' column by name in the header, else as a number. */
static int label_find(struct reader *reader, const char *header, struct error *error)
{
    char *copy = header != NULL ? strdup(header) : NULL;
    char *at = copy;
    bool found = false;
    for (uint32_t column = 0; at != NULL && !found; column++) {
        found = strcmp(field_take(&at), reader->label_column) == 0;
        reader->label_at = column;
    }
    free(copy);
    if (found && reader->label_at > reader->inputs) { /* such a row would be too long */
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "'%s': '%.100s' is column %u; the model's %u inputs and the label are %u",
                         reader->path, reader->label_column, reader->label_at + 1, reader->inputs,
                         reader->inputs + 1);
    }
    if (!found &&
        !label_number_parse(reader->label_column, reader->inputs + 1, &reader->label_at)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "'%s': has no column '%.100s' for the labels%s", reader->path,
                         reader->label_column, header == NULL ? " (it has no header line)" : "");
    }
    return 0;
}

static int room_make(struct reader *reader, struct error *error)
{
    uint64_t capacity = reader->capacity > 0 ? 2 * reader->capacity : 1024;
    float *inputs;
    uint32_t *labels;
    if (reader->table.rows < reader->capacity) {
        return 0;
    }
    inputs = reallocarray(reader->table.inputs, capacity, (size_t)reader->inputs * sizeof(*inputs));
    reader->table.inputs = inputs != NULL ? inputs : reader->table.inputs;
    labels = reallocarray(reader->table.labels, capacity, sizeof(*labels));
    reader->table.labels = labels != NULL ? labels : reader->table.labels;
    if (inputs == NULL || labels == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "'%s': no memory at line %llu",
                         reader->path, (unsigned long long)reader->line);
    }
    reader->capacity = capacity;
    return 0;
}

static int field_read(struct reader *reader, const char *field, uint32_t column,
                      struct error *error)
{
    double value;
    uint64_t row = reader->table.rows;
    if (!number_parse(field, &value)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "'%s': line %llu, column %u: '%.40s' is not a finite number", reader->path,
                         (unsigned long long)reader->line, column + 1, field);
    }
    if (column == reader->label_at) {
        if (value < 0 || value >= reader->classes || value != floor(value)) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "'%s': line %llu, column %u: label '%.40s' is not a whole number from "
                             "0 to %u",
                             reader->path, (unsigned long long)reader->line, column + 1, field,
                             reader->classes - 1);
        }
        reader->table.labels[row] = (uint32_t)value;
    } else {
        uint32_t input = column - (column > reader->label_at);
        reader->table.inputs[row * reader->inputs + input] = (float)value;
    }
    return 0;
}

static int row_read(struct reader *reader, char *line, struct error *error)
{
    uint32_t column = 0;
    char *at = line;
    int result = room_make(reader, error);
    for (; result == 0 && at != NULL && column <= reader->inputs; column++) {
        result = field_read(reader, field_take(&at), column, error);
    }
    if (result == 0 && (at != NULL || column != reader->inputs + 1)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "'%s': line %llu has %s than %u columns (%u inputs of the model and the "
                         "label)",
                         reader->path, (unsigned long long)reader->line,
                         at != NULL ? "more" : "fewer", reader->inputs + 1, reader->inputs);
    }
    reader->table.rows += result == 0;
    return result;
}

static int line_read(struct reader *reader, char *line, struct error *error)
{
    reader->line++;
    line[strcspn(line, "\r\n")] = '\0';
    if (line[strspn(line, " \t")] == '\0') {
        return 0; /* an empty line, as at the end */
    }
    if (reader->line == 1) {
        bool header = line_is_header(line);
        int result = label_find(reader, header ? line : NULL, error);
        if (result < 0 || header) {
            return result;
        }
    }
    return row_read(reader, line, error);
}

static int lines_read(struct reader *reader, FILE *file, struct error *error)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    int result = 0;
    errno = 0;
    while (result == 0 && (length = getline(&line, &size, file)) >= 0) {
        if (length > LINE_BYTES_MAX || memchr(line, '\0', (size_t)length) != NULL) {
            result = error_set(error, ERROR_INVALID_ARGUMENT,
                               "'%s': line %llu is no line of text of at most %d bytes",
                               reader->path, (unsigned long long)reader->line + 1, LINE_BYTES_MAX);
        } else {
            result = line_read(reader, line, error);
        }
    }
    if (result == 0 && (ferror(file) || errno == ENOMEM)) {
        result = error_set_errno(error, errno, "read '%s'", reader->path);
    }
    free(line);
    return result;
}

int csv_read(const char *path, const char *label_column, uint32_t inputs, uint32_t classes,
             struct csv_table *ret_table, struct error *error)
{
    struct reader reader = {
        .path = path, .label_column = label_column, .inputs = inputs, .classes = classes};
    int fd = file_open(path, error);
    int result = fd < 0 ? fd : 0;
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (result == 0 && file == NULL) {
        (void)close(fd);
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "'%s': no memory", path);
    }
    if (result < 0) {
        return result;
    }
    result = lines_read(&reader, file, error);
    (void)fclose(file);
    if (result < 0) {
        csv_free(&reader.table);
        return result;
    }
    *ret_table = reader.table;
    return 0;
}

void csv_free(struct csv_table *table)
{
    free(table->inputs);
    free(table->labels);
    *table = (struct csv_table){0};
}
