/* log.c: writes what log.h describes. */
#include "server/record/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "server/record/fields.h"

static void fields_write(struct record_bytes *bytes, const struct record_fields *fields)
{
    record_put_text(bytes, fields->name);
    record_put_number(bytes, fields->count);
    for (size_t i = 0; i < fields->count; i++) {
        record_put_text(bytes, fields->fields[i].name);
        record_put_number(bytes, fields->fields[i].count);
        record_put_number(bytes, fields->fields[i].meaning == RECORD_SIGNED);
    }
}

static void values_write(struct record_bytes *bytes, const struct record_fields *fields,
                         const void *object)
{
    for (size_t i = 0; i < fields->count; i++) {
        const struct record_field *field = &fields->fields[i];
        for (size_t element = 0; element < field->count; element++) {
            uint64_t value = record_field_read(object, field, element);
            if (field->meaning == RECORD_SIGNED) {
                record_put_signed(bytes, (int64_t)value);
            } else {
                record_put_number(bytes, value);
            }
        }
    }
}

void record_head_write(struct record_bytes *bytes, const struct record_head *head)
{
    record_put_number(bytes, RECORD_VERSION);
    record_put_number(bytes, head->wall_ns);
    record_put_number(bytes, head->part);
    record_put_number(bytes, head->events);
    fields_write(bytes, record_config_fields());
    values_write(bytes, record_config_fields(), &head->config);
    record_put_number(bytes, CORE_EVENT_COUNT);
    for (int kind = 0; kind < CORE_EVENT_COUNT; kind++) {
        fields_write(bytes, record_event_fields((enum core_event_kind)kind));
    }
}

void record_event_write(struct record_bytes *bytes, const struct core_event *event,
                        uint64_t *before_ns)
{
    record_put_number(bytes, (uint64_t)event->kind + 1);
    record_put_signed(bytes, (int64_t)(event->time_ns - *before_ns));
    *before_ns = event->time_ns;
    values_write(bytes, record_event_fields(event->kind), event);
}

void record_hash_write(struct record_bytes *bytes, uint64_t hash)
{
    record_put_number(bytes, 0); /* no kind of event */
    record_put_number(bytes, hash);
}

static void put_word(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

bool record_block_pack(enum record_block kind, const struct record_bytes *contents,
                       struct record_bytes *ret_block)
{
    uLongf stored = compressBound(contents->length);
    unsigned char *data = malloc(RECORD_BLOCK_HEAD + stored);
    bool packed = data != NULL && !contents->failed &&
                  compress2(data + RECORD_BLOCK_HEAD, &stored, contents->data, contents->length,
                            Z_BEST_SPEED) == Z_OK;
    if (!packed) {
        free(data);
        return false;
    }
    put_word(data, kind);
    put_word(data + 4, (uint32_t)stored);
    put_word(data + 8, (uint32_t)contents->length);
    put_word(data + 12, (uint32_t)crc32(0, data + RECORD_BLOCK_HEAD, (uInt)stored));
    *ret_block = (struct record_bytes){
        .data = data, .length = RECORD_BLOCK_HEAD + stored, .capacity = RECORD_BLOCK_HEAD + stored};
    return true;
}

void record_name_print(char name[RECORD_NAME_SIZE], uint64_t epoch, uint64_t part)
{
    snprintf(name, RECORD_NAME_SIZE, "events-%08" PRIu64 "-%06" PRIu64 ".log", epoch, part);
}
