/* json_message_read.c: JSON into a protobuf message, by its descriptor. Memory is taken as
 * protobuf_c_message_free_unpacked gives it back, so that half a message is freed like a whole. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/json_message.h"
#include "server/base/json_names.h"
#include "server/base/options.h"

#define DEPTH_MAX 32

struct reading {
    struct error *error;
    char where[200]; /* "changeEndpoint.terms" */
    unsigned depth;
};

static int read_message(struct reading *reading, const json_t *value,
                        const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret_message);

/* ---- what is wrong ---- */

static int no_memory(struct reading *reading)
{
    return error_set(reading->error, ERROR_RESOURCE_EXHAUSTED, "read JSON: no memory");
}

static int wrong(struct reading *reading, const char *wanted)
{
    return error_set(reading->error, ERROR_INVALID_ARGUMENT, "%s: must be %s",
                     reading->where[0] != '\0' ? reading->where : "the message", wanted);
}

/* Adds ".name" or "[index]" to the place; where it does not fit it is cut. Returns what to put
 * back. */
static size_t step_into(struct reading *reading, const char *name, size_t index)
{
    size_t length = strlen(reading->where);
    size_t room = sizeof reading->where - length;
    if (name != NULL) {
        snprintf(reading->where + length, room, "%s%s", length > 0 ? "." : "", name);
    } else {
        snprintf(reading->where + length, room, "[%zu]", index);
    }
    return length;
}

static void step_out(struct reading *reading, size_t length)
{
    reading->where[length] = '\0';
}

/* ---- numbers ---- */

/* A whole number as JSON's or as a text: its sign and magnitude. */
static bool read_whole(const json_t *value, bool *ret_negative, uint64_t *ret_magnitude)
{
    char text[32];
    if (json_is_integer(value)) {
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) { /* 1e3 is one; beyond 2^53 it would be a guess */
        double number = json_real_value(value);
        if (number != floor(number) || fabs(number) > 9007199254740992.0) {
            return false;
        }
        snprintf(text, sizeof text, "%.0f", number);
    } else if (json_is_string(value) && json_string_length(value) < sizeof text) {
        strcpy(text, json_string_value(value));
    } else {
        return false;
    }
    const char *digits = text[0] == '-' ? text + 1 : text;
    size_t length = strspn(digits, "0123456789");
    if (length == 0 || digits[length] != '\0') {
        return false;
    }
    errno = 0;
    *ret_magnitude = strtoull(digits, NULL, 10);
    *ret_negative = text[0] == '-' && *ret_magnitude != 0;
    return errno == 0;
}

static int read_unsigned(struct reading *reading, const json_t *value, uint64_t most,
                         uint64_t *ret_number)
{
    bool negative = false;
    if (!read_whole(value, &negative, ret_number) || negative || *ret_number > most) {
        return wrong(reading, most == UINT32_MAX ? "a whole number from 0 to 4294967295"
                                                 : "a whole number from 0 to 2^64 - 1");
    }
    return 0;
}

static int read_signed(struct reading *reading, const json_t *value, uint64_t most,
                       int64_t *ret_number)
{
    bool negative = false;
    uint64_t magnitude = 0;
    if (!read_whole(value, &negative, &magnitude) || magnitude > most + (negative ? 1 : 0)) {
        return wrong(reading, most == INT32_MAX ? "a whole number of 32 bits with its sign"
                                                : "a whole number of 64 bits with its sign");
    }
    *ret_number = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return 0;
}

static int read_real(struct reading *reading, const json_t *value, double *ret_number)
{
    const char *text = json_string_value(value);
    char *end = NULL;
    if (json_is_number(value)) {
        *ret_number = json_number_value(value);
        return 0;
    }
    if (text != NULL && strcmp(text, "NaN") == 0) {
        *ret_number = (double)NAN;
        return 0;
    }
    if (text != NULL && (strcmp(text, "Infinity") == 0 || strcmp(text, "-Infinity") == 0)) {
        *ret_number = text[0] == '-' ? -(double)INFINITY : (double)INFINITY;
        return 0;
    }
    /* Digits, sign, point and exponent alone: strtod takes more than JSON does. */
    if (text != NULL && text[0] != '\0' && text[strspn(text, "0123456789+-.eE")] == '\0') {
        *ret_number = strtod(text, &end);
    }
    return end != NULL && *end == '\0' ? 0 : wrong(reading, "a number");
}

static int read_bool(struct reading *reading, const json_t *value, protobuf_c_boolean *ret_on)
{
    const char *text = json_string_value(value);
    bool on = json_is_true(value) || (text != NULL && strcmp(text, "true") == 0);
    *ret_on = on;
    return on || json_is_false(value) || (text != NULL && strcmp(text, "false") == 0)
               ? 0
               : wrong(reading, "true or false");
}

static int read_enum(struct reading *reading, const json_t *value,
                     const ProtobufCEnumDescriptor *type, int *ret_number)
{
    char all[160] = "one of";
    if (json_is_integer(value) && json_integer_value(value) >= INT32_MIN &&
        json_integer_value(value) <= INT32_MAX) {
        *ret_number = (int)json_integer_value(value);
        return 0;
    }
    const ProtobufCEnumValue *found =
        json_is_string(value)
            ? protobuf_c_enum_descriptor_get_value_by_name(type, json_string_value(value))
            : NULL;
    if (found != NULL) {
        *ret_number = found->value;
        return 0;
    }
    for (unsigned i = 0; i < type->n_values; i++) {
        size_t length = strlen(all);
        snprintf(all + length, sizeof all - length, "%s %s", i > 0 ? "," : "",
                 type->values[i].name);
    }
    return wrong(reading, all);
}

/* ---- texts and bytes ---- */

static int read_text(struct reading *reading, const json_t *value, char **ret_text)
{
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value)) {
        return wrong(reading, "a text without NUL characters");
    }
    *ret_text = strdup(json_string_value(value));
    return *ret_text != NULL ? 0 : no_memory(reading);
}

/* Both alphabets; -1: none of them. */
static int base64_digit(char digit)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    const char *found = digit != '\0' ? strchr(digits, digit) : NULL;
    return found != NULL                  ? (int)(found - digits)
           : digit == '+' || digit == '-' ? 62
           : digit == '/' || digit == '_' ? 63
                                          : -1;
}

static int read_bytes(struct reading *reading, const json_t *value, ProtobufCBinaryData *ret_data)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "*";
    size_t length = json_is_string(value) ? json_string_length(value) : 1;
    uint32_t bits = 0;
    while (length > 0 && text[length - 1] == '=') {
        length--;
    }
    uint8_t *data = length > 0 ? malloc(length) : NULL;
    size_t count = 0;
    if (length > 0 && data == NULL) {
        return no_memory(reading);
    }
    for (size_t i = 0; i < length; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0 || length % 4 == 1) {
            free(data);
            return wrong(reading, "bytes as base64");
        }
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 != 0) {
            data[count++] = (uint8_t)(bits >> (6 - i % 4 * 2));
        }
    }
    *ret_data = (ProtobufCBinaryData){count, data};
    return 0;
}

/* ---- fields ---- */

static int read_value(struct reading *reading, const json_t *value,
                      const ProtobufCFieldDescriptor *field, void *target)
{
    uint64_t positive = 0;
    int64_t number = 0;
    double real = 0;
    int result;
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        result = read_signed(reading, value, INT32_MAX, &number);
        *(int32_t *)target = (int32_t)number;
        return result;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return read_signed(reading, value, INT64_MAX, target);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        result = read_unsigned(reading, value, UINT32_MAX, &positive);
        *(uint32_t *)target = (uint32_t)positive;
        return result;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return read_unsigned(reading, value, UINT64_MAX, target);
    case PROTOBUF_C_TYPE_FLOAT:
        result = read_real(reading, value, &real);
        *(float *)target = (float)real;
        return result;
    case PROTOBUF_C_TYPE_DOUBLE:
        return read_real(reading, value, target);
    case PROTOBUF_C_TYPE_BOOL:
        return read_bool(reading, value, target);
    case PROTOBUF_C_TYPE_ENUM:
        return read_enum(reading, value, field->descriptor, target);
    case PROTOBUF_C_TYPE_STRING:
        return read_text(reading, value, target);
    case PROTOBUF_C_TYPE_BYTES:
        return read_bytes(reading, value, target);
    case PROTOBUF_C_TYPE_MESSAGE:
        return read_message(reading, value, field->descriptor, target);
    }
    return wrong(reading, "of another type");
}

static int read_list(struct reading *reading, const json_t *value,
                     const ProtobufCFieldDescriptor *field, char *base)
{
    size_t count = json_array_size(value);
    size_t size = json_value_size(field->type);
    size_t *ret_count = (size_t *)(base + field->quantifier_offset);
    int result = 0;
    if (!json_is_array(value)) {
        return wrong(reading, "a list");
    }
    char *list = count > 0 ? calloc(count, size) : NULL;
    if (count > 0 && list == NULL) {
        return no_memory(reading);
    }
    *(char **)(base + field->offset) = list;
    for (size_t i = 0; i < count && result == 0; i++) {
        size_t length = step_into(reading, NULL, i);
        result = read_value(reading, json_array_get(value, i), field, list + i * size);
        /* What was not read is not there: a list has no empty places when it is freed. */
        *ret_count = result == 0 ? i + 1 : i;
        step_out(reading, length);
    }
    if (*ret_count == 0) { /* protobuf-c frees a list only if it has members */
        free(list);
        *(char **)(base + field->offset) = NULL;
    }
    return result;
}

static int read_field(struct reading *reading, const json_t *value,
                      const ProtobufCFieldDescriptor *field, char *base)
{
    bool chosen = (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0;
    uint32_t *which = chosen ? (uint32_t *)(base + field->quantifier_offset) : NULL;
    if (json_is_null(value)) {
        return 0;
    }
    if (chosen && *which != 0) {
        return wrong(reading, "left out: another of the same choice is there already");
    }
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        return read_list(reading, value, field, base);
    }
    int result = read_value(reading, value, field, base + field->offset);
    if (chosen && result == 0) {
        *which = field->id;
    }
    return result;
}

/* ---- messages ---- */

static int unknown_key(struct reading *reading, const ProtobufCMessageDescriptor *type,
                       const char *key)
{
    struct json_name names[64];
    const char *list[64];
    unsigned count = type->n_fields < 64 ? type->n_fields : 64;
    for (unsigned i = 0; i < count; i++) {
        json_name_of(type->fields[i].name, &names[i]);
        list[i] = names[i].text;
    }
    const char *nearest = options_nearest(key, list, count);
    return error_set(reading->error, ERROR_INVALID_ARGUMENT, "%s%sunknown key '%.64s'%s%s%s",
                     reading->where, reading->where[0] != '\0' ? ": " : "", key,
                     nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
                     nearest != NULL ? "'?" : "");
}

static const ProtobufCFieldDescriptor *field_find(const ProtobufCMessageDescriptor *type,
                                                  const char *key)
{
    for (unsigned i = 0; i < type->n_fields; i++) {
        struct json_name name;
        json_name_of(type->fields[i].name, &name);
        if (strcmp(name.text, key) == 0 || strcmp(type->fields[i].name, key) == 0) {
            return &type->fields[i];
        }
    }
    return NULL;
}

/* Both of a field's names are there. */
static bool is_twice(const json_t *object, const ProtobufCFieldDescriptor *field)
{
    struct json_name name;
    json_name_of(field->name, &name);
    return strcmp(name.text, field->name) != 0 && json_object_get(object, name.text) != NULL &&
           json_object_get(object, field->name) != NULL;
}

static int read_fields(struct reading *reading, const json_t *object, ProtobufCMessage *message)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const ProtobufCFieldDescriptor *field = field_find(message->descriptor, key);
        if (field == NULL) {
            return unknown_key(reading, message->descriptor, key);
        }
        size_t length = step_into(reading, key, 0);
        int result = is_twice(object, field)
                         ? wrong(reading, "given once: it is there by its other name, too")
                         : read_field(reading, value, field, (char *)message);
        if (result < 0) {
            return result;
        }
        step_out(reading, length);
    }
    return 0;
}

static int read_message(struct reading *reading, const json_t *value,
                        const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret_message)
{
    if (!json_is_object(value)) {
        return wrong(reading, "an object");
    }
    if (reading->depth >= DEPTH_MAX) {
        return wrong(reading, "less deep");
    }
    ProtobufCMessage *message = malloc(type->sizeof_message);
    if (message == NULL) {
        return no_memory(reading);
    }
    protobuf_c_message_init(type, message);
    reading->depth++;
    int result = read_fields(reading, value, message);
    reading->depth--;
    if (result < 0) {
        protobuf_c_message_free_unpacked(message, NULL);
        return result;
    }
    *ret_message = message;
    return 0;
}

int json_to_message(const json_t *value, const ProtobufCMessageDescriptor *type,
                    ProtobufCMessage **ret_message, struct error *error)
{
    struct reading reading = {.error = error};
    return read_message(&reading, value, type, ret_message);
}
