/* bytes.c: see bytes.h. */
#include "server/record/bytes.h"

#include <stdlib.h>
#include <string.h>

void record_bytes_fini(struct record_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct record_bytes){0};
}

static bool reserve(struct record_bytes *bytes, size_t more)
{
    if (bytes->length + more > bytes->capacity) {
        size_t capacity = (bytes->length + more) * 2;
        unsigned char *data = realloc(bytes->data, capacity);
        if (data == NULL) {
            bytes->failed = true;
            return false;
        }
        bytes->data = data;
        bytes->capacity = capacity;
    }
    return true;
}

void record_put_number(struct record_bytes *bytes, uint64_t value)
{
    if (!reserve(bytes, RECORD_NUMBER_MAX)) {
        return;
    }
    while (value >= 0x80) {
        bytes->data[bytes->length++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    bytes->data[bytes->length++] = (unsigned char)value;
}

void record_put_signed(struct record_bytes *bytes, int64_t value)
{
    uint64_t twice = (uint64_t)value << 1;
    record_put_number(bytes, value < 0 ? ~twice : twice);
}

void record_put_text(struct record_bytes *bytes, const char *text)
{
    size_t length = strlen(text);
    record_put_number(bytes, length);
    if (reserve(bytes, length)) {
        memcpy(bytes->data + bytes->length, text, length);
        bytes->length += length;
    }
}

bool record_get_signed(struct wire_reader *reader, int64_t *ret_value)
{
    uint64_t twice;
    if (!wire_varint(reader, RECORD_NUMBER_MAX, &twice)) {
        return false;
    }
    *ret_value = (int64_t)(twice & 1 ? ~(twice >> 1) : twice >> 1);
    return true;
}

bool record_get_text(struct wire_reader *reader, char *text, size_t size)
{
    uint64_t length;
    if (!wire_varint(reader, RECORD_NUMBER_MAX, &length) || length >= size ||
        length > (uint64_t)(reader->end - reader->at)) {
        return false;
    }
    memcpy(text, reader->at, length);
    text[length] = 0;
    reader->at += length;
    return true;
}
