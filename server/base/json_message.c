#include "server/base/json_message.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/json_names.h"

void json_name_of(const char *field, struct json_name *ret_name)
{
    size_t length = 0;
    for (; *field != '\0' && length + 1 < sizeof ret_name->text; field++) {
        if (*field == '_' && field[1] >= 'a' && field[1] <= 'z') {
            ret_name->text[length++] = (char)(*++field - 'a' + 'A');
        } else if (*field != '_') {
            ret_name->text[length++] = *field;
        }
    }
    ret_name->text[length] = '\0';
}

json_t *json_from_double(double number)
{
    if (isnan(number)) {
        return json_string("NaN");
    }
    if (isinf(number)) {
        return json_string(number > 0 ? "Infinity" : "-Infinity");
    }
    return json_real(number);
}

json_t *json_from_text(const char *text)
{
    json_t *value = json_string(text == NULL ? "" : text);
    return value != NULL ? value : json_string("(not valid UTF-8)");
}

static json_t *json_from_bytes(const ProtobufCBinaryData *data)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((data->len + 2) / 3 * 4 + 1);
    if (text == NULL) {
        return NULL;
    }
    size_t length = 0;
    for (size_t i = 0; i < data->len; i += 3) {
        size_t left = data->len - i;
        uint32_t bits = (uint32_t)data->data[i] << 16;
        bits |= left > 1 ? (uint32_t)data->data[i + 1] << 8 : 0;
        bits |= left > 2 ? data->data[i + 2] : 0;
        text[length++] = digits[bits >> 18];
        text[length++] = digits[bits >> 12 & 63];
        text[length++] = left > 1 ? digits[bits >> 6 & 63] : '=';
        text[length++] = left > 2 ? digits[bits & 63] : '=';
    }
    json_t *value = json_stringn(text, length);
    free(text);
    return value;
}

static json_t *json_from_u64(uint64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, number);
    return json_string(text);
}

static json_t *json_from_i64(int64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    return json_string(text);
}

static json_t *json_from_enum(const ProtobufCEnumDescriptor *type, int32_t number)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(type, number);
    return value != NULL ? json_string(value->name) : json_integer(number);
}

static json_t *json_from_value(const ProtobufCFieldDescriptor *field, const void *value)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return json_integer(*(const int32_t *)value);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return json_from_i64(*(const int64_t *)value);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return json_integer(*(const uint32_t *)value);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return json_from_u64(*(const uint64_t *)value);
    case PROTOBUF_C_TYPE_FLOAT:
        return json_from_double((double)*(const float *)value);
    case PROTOBUF_C_TYPE_DOUBLE:
        return json_from_double(*(const double *)value);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)value);
    case PROTOBUF_C_TYPE_ENUM:
        return json_from_enum(field->descriptor, *(const int32_t *)value);
    case PROTOBUF_C_TYPE_STRING:
        return json_from_text(*(char *const *)value);
    case PROTOBUF_C_TYPE_BYTES:
        return json_from_bytes(value);
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessage *message = *(ProtobufCMessage *const *)value;
        return message == NULL ? json_null() : json_from_message(message);
    }
    }
    return NULL;
}

size_t json_value_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4;
    }
}

static json_t *json_from_list(const ProtobufCFieldDescriptor *field, const char *base)
{
    json_t *list = json_array();
    size_t count = *(const size_t *)(base + field->quantifier_offset);
    const char *values = *(char *const *)(base + field->offset);
    for (size_t i = 0; i < count && list != NULL; i++) {
        if (json_array_append_new(
                list, json_from_value(field, values + i * json_value_size(field->type))) < 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

json_t *json_from_message(const ProtobufCMessage *message)
{
    const char *base = (const char *)message;
    json_t *object = json_object();
    for (unsigned i = 0; i < message->descriptor->n_fields && object != NULL; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        struct json_name name;
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
            *(const uint32_t *)(base + field->quantifier_offset) != field->id) {
            continue;
        }
        json_name_of(field->name, &name);
        json_t *value = field->label == PROTOBUF_C_LABEL_REPEATED
                            ? json_from_list(field, base)
                            : json_from_value(field, base + field->offset);
        if (json_object_set_new(object, name.text, value) < 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}
