#include "server/net/texts.h"

#include <string.h>

static int field_check(const ProtobufCFieldDescriptor *descriptor, struct wire_text bytes,
                       struct error *error)
{
    if (descriptor->type == PROTOBUF_C_TYPE_MESSAGE) {
        return texts_check(descriptor->descriptor, bytes, error);
    }
    if (descriptor->type == PROTOBUF_C_TYPE_STRING && memchr(bytes.data, 0, bytes.length) != NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "field '%s' has a NUL byte in its text",
                         descriptor->name);
    }
    return 0;
}

int texts_check(const ProtobufCMessageDescriptor *descriptor, struct wire_text message,
                struct error *error)
{
    struct wire_reader reader = wire_reader_of(message);
    int result = 0;
    while (reader.at < reader.end && result == 0) {
        struct wire_field field;
        if (!wire_next(&reader, &field)) {
            return error_set(error, ERROR_INTERNAL, "request does not parse as a %s",
                             descriptor->name);
        }
        const ProtobufCFieldDescriptor *known =
            field.type == WIRE_BYTES
                ? protobuf_c_message_descriptor_get_field(descriptor, field.number)
                : NULL;
        if (known != NULL) {
            result = field_check(known, field.bytes, error);
        }
    }
    return result;
}
