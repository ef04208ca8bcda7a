/* Typed contents in raw form. The lists were walked once when the message was decoded, so they are
 * known to be well-formed here. */
#include <assert.h>

#include "server/rpc/infer_message.h"

enum contents_field contents_field_of(enum datatype datatype)
{
    switch (datatype) {
    case DATATYPE_BOOL:
        return CONTENTS_BOOL;
    case DATATYPE_INT8:
    case DATATYPE_INT16:
    case DATATYPE_INT32:
        return CONTENTS_INT;
    case DATATYPE_INT64:
        return CONTENTS_INT64;
    case DATATYPE_UINT8:
    case DATATYPE_UINT16:
    case DATATYPE_UINT32:
        return CONTENTS_UINT;
    case DATATYPE_UINT64:
        return CONTENTS_UINT64;
    case DATATYPE_FP32:
        return CONTENTS_FP32;
    case DATATYPE_FP64:
        return CONTENTS_FP64;
    case DATATYPE_BYTES:
        return CONTENTS_BYTES;
    case DATATYPE_INVALID:
    case DATATYPE_FP16:
    case DATATYPE_BF16:
        break;
    }
    return (enum contents_field)0;
}

const char *contents_field_name(enum contents_field field)
{
    static const char *const names[CONTENTS_FIELDS] = {
        "none",           "bool_contents", "int_contents",
        "int64_contents", "uint_contents", "uint64_contents",
        "fp32_contents",  "fp64_contents", "bytes_contents",
    };
    return names[field];
}

uint64_t contents_raw_bytes(const struct infer_input *input, enum datatype datatype)
{
    enum contents_field field = contents_field_of(datatype);
    if (field == CONTENTS_BYTES) {
        return input->elements[field] * UINT64_C(4) + input->element_bytes;
    }
    return input->elements[field] * (uint64_t)datatype_bytes(datatype);
}

static unsigned char *number_write(unsigned char *out, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        out[i] = (unsigned char)(value >> (8 * i));
    }
    return out + width;
}

static unsigned char *packed_write(unsigned char *out, struct wire_text bytes,
                                   enum contents_field field, size_t width)
{
    struct wire_reader reader = wire_reader_of(bytes);
    uint64_t value = 0;
    if (field == CONTENTS_FP32 || field == CONTENTS_FP64) {
        memcpy(out, bytes.data, bytes.length); /* the same bytes on the wire and raw */
        return out + bytes.length;
    }
    while (reader.at < reader.end && wire_varint(&reader, 10, &value)) {
        out = number_write(out, field == CONTENTS_BOOL ? value != 0 : value, width);
    }
    return out;
}

static unsigned char *element_write(unsigned char *out, struct wire_text bytes)
{
    out = number_write(out, bytes.length, 4);
    if (bytes.length > 0) {
        memcpy(out, bytes.data, bytes.length);
    }
    return out + bytes.length;
}

static unsigned char *list_write(unsigned char *out, struct wire_text contents,
                                 enum contents_field wanted, size_t width)
{
    struct wire_reader reader = wire_reader_of(contents);
    struct wire_field field = {0};
    while (reader.at < reader.end && wire_next(&reader, &field)) {
        if (field.number != (uint32_t)wanted) {
            continue;
        }
        if (wanted == CONTENTS_BYTES) {
            out = field.type == WIRE_BYTES ? element_write(out, field.bytes) : out;
        } else if (field.type == WIRE_BYTES) {
            out = packed_write(out, field.bytes, wanted, width);
        } else if (field.type == (wanted == CONTENTS_FP32   ? WIRE_FIXED32
                                  : wanted == CONTENTS_FP64 ? WIRE_FIXED64
                                                            : WIRE_VARINT)) {
            uint64_t value = wanted == CONTENTS_BOOL ? field.value != 0 : field.value;
            out = number_write(out, value, width);
        }
    }
    return out;
}

void contents_raw_write(const struct infer_input *input, enum datatype datatype, unsigned char *out)
{
    struct wire_reader reader = wire_reader_of(input->message);
    const unsigned char *end = out + contents_raw_bytes(input, datatype);
    struct wire_field field = {0};
    while (reader.at < reader.end && wire_next(&reader, &field)) {
        if (field.number == 5 && field.type == WIRE_BYTES) {
            out =
                list_write(out, field.bytes, contents_field_of(datatype), datatype_bytes(datatype));
        }
    }
    assert(out == end);
    (void)end;
}
