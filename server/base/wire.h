/* wire.h: reads protobuf's wire format in place, without copies or allocation.
 * Rules:   as the official parsers: tags and lengths of at most 5 bytes, varints of at most 10,
 *          field number 0 refused. Groups (wire types 3 and 4) are refused altogether.
 * Errors:  false; the reader then stands anywhere. */
#ifndef TIDEPOOL_BASE_WIRE_H
#define TIDEPOOL_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire_reader {
    const unsigned char *at, *end;
};

/* Bytes within the message. */
struct wire_text {
    const unsigned char *data;
    size_t length;
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;         /* VARINT, FIXED64, FIXED32 */
    struct wire_text bytes; /* BYTES */
};

static inline struct wire_reader wire_reader_of(struct wire_text text)
{
    return (struct wire_reader){text.data, text.data + text.length};
}

static inline bool wire_varint_slow(struct wire_reader *reader, unsigned bytes_max,
                                    uint64_t *ret_value)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes_max && reader->at < reader->end; i++) {
        unsigned char byte = *reader->at++;
        value |= (uint64_t)(byte & 0x7F) << (7 * i); /* bits beyond the 64th are dropped */
        if (byte < 0x80) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

static inline bool wire_varint(struct wire_reader *reader, unsigned bytes_max, uint64_t *ret_value)
{
    if (reader->at < reader->end && *reader->at < 0x80) {
        *ret_value = *reader->at++;
        return true;
    }
    return wire_varint_slow(reader, bytes_max, ret_value);
}

static inline bool wire_fixed(struct wire_reader *reader, size_t width, uint64_t *ret_value)
{
    uint64_t value = 0;
    if ((size_t)(reader->end - reader->at) < width) {
        return false;
    }
    for (size_t i = 0; i < width; i++) {
        value |= (uint64_t)reader->at[i] << (8 * i);
    }
    reader->at += width;
    *ret_value = value;
    return true;
}

static inline bool wire_bytes(struct wire_reader *reader, struct wire_text *ret_bytes)
{
    uint64_t length;
    if (!wire_varint(reader, 5, &length) || length > (uint64_t)(reader->end - reader->at)) {
        return false;
    }
    *ret_bytes = (struct wire_text){reader->at, (size_t)length};
    reader->at += length;
    return true;
}

/* The next field; call while reader->at < reader->end. */
static inline bool wire_next(struct wire_reader *reader, struct wire_field *ret_field)
{
    uint64_t tag;
    if (!wire_varint(reader, 5, &tag)) {
        return false;
    }
    ret_field->number = (uint32_t)tag >> 3;
    ret_field->type = (enum wire_type)(tag & 7);
    if (ret_field->number == 0) {
        return false;
    }
    switch (ret_field->type) {
    case WIRE_VARINT:
        return wire_varint(reader, 10, &ret_field->value);
    case WIRE_FIXED64:
        return wire_fixed(reader, 8, &ret_field->value);
    case WIRE_BYTES:
        return wire_bytes(reader, &ret_field->bytes);
    case WIRE_FIXED32:
        return wire_fixed(reader, 4, &ret_field->value);
    default:
        return false;
    }
}

static inline bool wire_text_is(struct wire_text text, const char *other, size_t length)
{
    return text.length == length && (length == 0 || memcmp(text.data, other, length) == 0);
}

#endif
