/* reader.c: reads what log.h describes: names of the log matched to ours, damage as an end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "server/record/fields.h"
#include "server/record/log.h"

#define NAME_MAX_LENGTH 64
#define KINDS_MAX 256
#define FIELDS_MAX 128

/* A field as the log has it: which of ours it is. */
struct column {
    const struct record_field *field; /* NULL: we have none of this name */
    uint32_t count;
    bool is_signed;
};

struct row {
    int kind; /* ours; -1: we have none of this name */
    char name[NAME_MAX_LENGTH];
    struct column *columns;
    size_t count;
};

struct record_reader {
    char *path; /* of the file that is read now */
    FILE *file;
    uint64_t size, torn;
    struct record_head head;    /* of the first file */
    struct record_head current; /* of this one */
    bool rebuilds;              /* a RESTART block is read: the first file begins with one */
    bool restarting;            /* the block is one */
    uint64_t events;            /* of the run, up to here */
    struct row *rows;
    size_t row_count;
    unsigned char *block;
    struct wire_reader cursor; /* in the block */
    uint64_t before_ns;
    bool ended;
};

static bool get_number(struct wire_reader *cursor, uint64_t *ret_value)
{
    return wire_varint(cursor, RECORD_NUMBER_MAX, ret_value);
}

/* ---- blocks ---- */

static uint32_t get_word(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static bool block_unpack(struct record_reader *reader, const unsigned char *head,
                         const unsigned char *stored)
{
    uLongf length = get_word(head + 8);
    if ((uint32_t)crc32(0, stored, get_word(head + 4)) != get_word(head + 12)) {
        return false;
    }
    free(reader->block);
    reader->block = malloc(length > 0 ? length : 1);
    if (reader->block == NULL ||
        uncompress(reader->block, &length, stored, get_word(head + 4)) != Z_OK ||
        length != get_word(head + 8)) {
        return false;
    }
    reader->cursor = (struct wire_reader){reader->block, reader->block + length};
    return true;
}

/* False: there is no further whole block. */
static bool block_read(struct record_reader *reader, uint32_t *ret_kind)
{
    unsigned char head[RECORD_BLOCK_HEAD];
    long began = ftell(reader->file);
    bool whole = false;
    if (fread(head, 1, sizeof head, reader->file) == sizeof head &&
        get_word(head + 4) <= RECORD_BLOCK_MAX && get_word(head + 8) <= RECORD_BLOCK_MAX) {
        unsigned char *stored = malloc((size_t)get_word(head + 4) + 1);
        size_t length = get_word(head + 4);
        whole = stored != NULL && fread(stored, 1, length, reader->file) == length &&
                block_unpack(reader, head, stored);
        free(stored);
    }
    *ret_kind = get_word(head);
    reader->torn = whole || began < 0 ? 0 : reader->size - (uint64_t)began;
    return whole;
}

/* ---- the head ---- */

static const struct record_field *field_named(const struct record_fields *fields, const char *name,
                                              uint64_t count, bool is_signed)
{
    for (size_t i = 0; fields != NULL && i < fields->count; i++) {
        const struct record_field *field = &fields->fields[i];
        if (strcmp(field->name, name) == 0 && field->count >= count &&
            (field->meaning == RECORD_SIGNED) == is_signed) {
            return field;
        }
    }
    return NULL;
}

static int kind_named(const char *name)
{
    for (int kind = 0; kind < CORE_EVENT_COUNT; kind++) {
        if (strcmp(record_event_fields((enum core_event_kind)kind)->name, name) == 0) {
            return kind;
        }
    }
    return -1;
}

static bool columns_read(struct wire_reader *cursor, struct row *row,
                         const struct record_fields *ours)
{
    char name[NAME_MAX_LENGTH];
    for (size_t i = 0; i < row->count; i++) {
        uint64_t count, is_signed;
        if (!record_get_text(cursor, name, sizeof name) || !get_number(cursor, &count) ||
            !get_number(cursor, &is_signed) || count == 0 || count > UINT8_MAX) {
            return false;
        }
        row->columns[i] = (struct column){.field = field_named(ours, name, count, is_signed != 0),
                                          .count = (uint32_t)count,
                                          .is_signed = is_signed != 0};
    }
    return true;
}

static bool row_read(struct wire_reader *cursor, struct row *row, bool is_config)
{
    uint64_t count;
    if (!record_get_text(cursor, row->name, sizeof row->name) || !get_number(cursor, &count) ||
        count > FIELDS_MAX) {
        return false;
    }
    row->columns = calloc(count + 1, sizeof *row->columns);
    row->count = row->columns != NULL ? count : 0;
    row->kind = is_config ? 0 : kind_named(row->name);
    const struct record_fields *ours = is_config ? record_config_fields()
                                       : row->kind < 0
                                           ? NULL
                                           : record_event_fields((enum core_event_kind)row->kind);
    return row->columns != NULL && columns_read(cursor, row, ours);
}

/* False: the bytes end, or `ret_strange` names a value that has no place here. */
static bool values_read(struct wire_reader *cursor, const struct row *row, void *object,
                        bool *ret_strange)
{
    for (size_t i = 0; i < row->count; i++) {
        const struct column *column = &row->columns[i];
        for (uint32_t element = 0; element < column->count; element++) {
            uint64_t value = 0;
            int64_t both = 0;
            if (!(column->is_signed ? record_get_signed(cursor, &both)
                                    : get_number(cursor, &value))) {
                return false;
            }
            value = column->is_signed ? (uint64_t)both : value;
            if (column->field != NULL && record_field_fits(column->field, value)) {
                record_field_write(object, column->field, element, value);
            } else if (value != 0) {
                *ret_strange = true;
            }
        }
    }
    return true;
}

static void names_free(struct record_reader *reader)
{
    for (size_t i = 0; i < reader->row_count; i++) {
        free(reader->rows[i].columns);
    }
    free(reader->rows);
    reader->rows = NULL;
    reader->row_count = 0;
}

static bool names_read(struct record_reader *reader)
{
    uint64_t count;
    names_free(reader);
    if (!get_number(&reader->cursor, &count) || count > KINDS_MAX) {
        return false;
    }
    reader->rows = calloc(count + 1, sizeof *reader->rows);
    reader->row_count = reader->rows != NULL ? count : 0;
    for (size_t i = 0; i < reader->row_count; i++) {
        if (!row_read(&reader->cursor, &reader->rows[i], false)) {
            return false;
        }
    }
    return reader->rows != NULL;
}

static bool config_read(struct record_reader *reader, bool *ret_strange)
{
    struct row row = {0};
    core_config_init(&reader->current.config); /* for settings that the log does not know */
    bool right = row_read(&reader->cursor, &row, true) &&
                 values_read(&reader->cursor, &row, &reader->current.config, ret_strange);
    free(row.columns);
    return right;
}

static int head_read(struct record_reader *reader, struct error *error)
{
    const char *path = reader->path;
    uint32_t kind;
    uint64_t version = 0;
    bool strange = false;
    if (!block_read(reader, &kind) || kind != RECORD_BLOCK_HEADER ||
        !get_number(&reader->cursor, &version)) {
        return error_set(error, ERROR_DATA_LOSS, "'%s' is no log of events, or its head is damaged",
                         path);
    }
    if (version != RECORD_VERSION) {
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "'%s' is a log of version %llu; this program reads version %d", path,
                         (unsigned long long)version, RECORD_VERSION);
    }
    if (!get_number(&reader->cursor, &reader->current.wall_ns) ||
        !get_number(&reader->cursor, &reader->current.part) ||
        !get_number(&reader->cursor, &reader->current.events) || !config_read(reader, &strange) ||
        !names_read(reader)) {
        return error_set(error, ERROR_DATA_LOSS, "the head of '%s' is damaged", path);
    }
    if (strange) {
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "'%s' has a setting that this program does not know", path);
    }
    reader->cursor.at = reader->cursor.end;
    return 0;
}

/* ---- files ---- */

static void file_close(struct record_reader *reader)
{
    if (reader->file != NULL) {
        fclose(reader->file);
        reader->file = NULL;
    }
    free(reader->path);
    reader->path = NULL;
}

/* Takes the path over. */
static int file_open(struct record_reader *reader, char *path, struct error *error)
{
    file_close(reader);
    reader->path = path;
    reader->file = path != NULL ? fopen(path, "rb") : NULL;
    if (path == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "open a log of events: no memory");
    }
    if (reader->file == NULL) {
        return error_set_errno(error, errno, "open '%s'", path);
    }
    fseek(reader->file, 0, SEEK_END);
    long size = ftell(reader->file);
    reader->size = size > 0 ? (uint64_t)size : 0;
    rewind(reader->file);
    return head_read(reader, error);
}

/* The path of the part after this one; NULL: the file's name is none of a part, or no memory. */
static char *path_next(const struct record_reader *reader)
{
    char name[RECORD_NAME_SIZE], next[RECORD_NAME_SIZE], *path = NULL;
    const char *slash = strrchr(reader->path, '/');
    const char *own = slash != NULL ? slash + 1 : reader->path;
    record_name_print(name, reader->current.config.store_epoch, reader->current.part);
    record_name_print(next, reader->current.config.store_epoch, reader->current.part + 1);
    if (strcmp(own, name) != 0 ||
        asprintf(&path, "%.*s%s", (int)(own - reader->path), reader->path, next) < 0) {
        return NULL;
    }
    return path;
}

/* False: there is none that continues this one. A file that has ended by damage has none. */
static bool file_next(struct record_reader *reader)
{
    struct error error;
    struct record_head before = reader->current;
    char *path = reader->torn == 0 ? path_next(reader) : NULL;
    if (path == NULL || access(path, R_OK) != 0) {
        free(path);
        return false;
    }
    bool follows = file_open(reader, path, &error) == 0 &&
                   reader->current.part == before.part + 1 &&
                   reader->current.events == reader->events &&
                   reader->current.config.store_epoch == before.config.store_epoch;
    reader->torn = follows ? 0 : reader->size;
    return follows;
}

/* ---- life ---- */

struct record_reader *record_open(const char *path, struct error *error)
{
    struct record_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "open '%s': no memory", path);
        return NULL;
    }
    if (file_open(reader, strdup(path), error) < 0) {
        record_close(reader);
        return NULL;
    }
    reader->head = reader->current;
    reader->rebuilds = reader->head.part > 0;
    reader->events = reader->head.events;
    return reader;
}

void record_close(struct record_reader *reader)
{
    if (reader != NULL) {
        names_free(reader);
        file_close(reader);
        free(reader->block);
        free(reader);
    }
}

const struct record_head *record_reader_head(const struct record_reader *reader)
{
    return &reader->head;
}

uint64_t record_torn(const struct record_reader *reader)
{
    return reader->torn;
}

/* ---- items ---- */

static int damaged(struct error *error)
{
    return error_set(error, ERROR_DATA_LOSS, "a block with a right sum has wrong contents");
}

static int event_read(struct record_reader *reader, uint64_t number, struct record_item *item,
                      struct error *error)
{
    const struct row *row = &reader->rows[number];
    int64_t passed;
    bool strange = false;
    if (row->kind < 0) {
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "this program does not know events of kind '%s'", row->name);
    }
    item->kind = RECORD_EVENT;
    item->restart = reader->restarting;
    item->event.kind = (enum core_event_kind)row->kind;
    if (!record_get_signed(&reader->cursor, &passed) ||
        !values_read(&reader->cursor, row, &item->event, &strange)) {
        return damaged(error);
    }
    if (strange) {
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "an event '%s' says what this program does not know", row->name);
    }
    reader->events += reader->restarting ? 0 : 1;
    reader->before_ns += (uint64_t)passed;
    item->event.time_ns = reader->before_ns;
    return 0;
}

/* The next block with events, in this file or the next; false: there is none. */
static bool events_find(struct record_reader *reader)
{
    uint32_t kind = RECORD_BLOCK_EVENTS;
    reader->before_ns = 0;
    while (!block_read(reader, &kind)) {
        if (!file_next(reader)) {
            return false;
        }
        reader->rebuilds = false; /* what came before has brought the core there */
    }
    reader->restarting = kind == RECORD_BLOCK_RESTART;
    if (reader->restarting && !reader->rebuilds) {
        reader->cursor.at = reader->cursor.end;
    }
    return reader->restarting || kind == RECORD_BLOCK_EVENTS;
}

int record_next(struct record_reader *reader, struct record_item *ret_item, struct error *error)
{
    uint64_t number;
    memset(ret_item, 0, sizeof *ret_item);
    while (reader->cursor.at == reader->cursor.end) {
        reader->ended = reader->ended || !events_find(reader);
        if (reader->ended) {
            ret_item->kind = RECORD_END;
            return 0;
        }
    }
    if (!get_number(&reader->cursor, &number) || number > reader->row_count) {
        return damaged(error);
    }
    if (number > 0) {
        return event_read(reader, number - 1, ret_item, error);
    }
    ret_item->kind = RECORD_HASH;
    return get_number(&reader->cursor, &ret_item->hash) ? 0 : damaged(error);
}
