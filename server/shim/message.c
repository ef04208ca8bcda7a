#include "server/shim/message.h"

#include <assert.h>
#include <string.h>

enum kind { ABSENT, NUMBER, STRING, BYTES };

static const unsigned char kinds[FIELD_COUNT] = {
    [FIELD_JOB] = STRING,
    [FIELD_LEASE] = STRING,
    [FIELD_DEVICES] = STRING,
    [FIELD_EPOCH] = NUMBER,
    [FIELD_GENERATION] = NUMBER,
    [FIELD_TOKEN] = BYTES,
    [FIELD_NOTICE_DEADLINE] = NUMBER,
    [FIELD_KILL_DEADLINE] = NUMBER,
    [FIELD_DIRECTORY] = STRING,
    [FIELD_ARGUMENTS] = BYTES,
    [FIELD_ENVIRONMENT] = BYTES,
    [FIELD_WORKING_DIRECTORY] = STRING,
    [FIELD_OUTPUT] = STRING,
    [FIELD_UID] = NUMBER,
    [FIELD_GID] = NUMBER,
    [FIELD_GROUPS] = BYTES,
    [FIELD_UMASK] = NUMBER,
    [FIELD_LIMITS] = BYTES,
    [FIELD_NICE] = NUMBER,
    [FIELD_CPUS] = STRING,
    [FIELD_HAS_STDIN] = NUMBER,
    [FIELD_LOG_BYTES] = NUMBER,
    [FIELD_CGROUP_MODE] = NUMBER,
    [FIELD_OOM_SCORE] = NUMBER,
    [FIELD_GRACE_MS] = NUMBER,
    [FIELD_LINGER_MS] = NUMBER,
    [FIELD_SECRET] = BYTES,
    [FIELD_TAG] = STRING,
    [FIELD_BOOT] = STRING,
    [FIELD_SHIM_PID] = NUMBER,
    [FIELD_SHIM_START] = NUMBER,
    [FIELD_LEADER_PID] = NUMBER,
    [FIELD_LEADER_START] = NUMBER,
    [FIELD_CGROUP_KIND] = NUMBER,
    [FIELD_CGROUP_PATH] = STRING,
    [FIELD_STATE] = NUMBER,
    [FIELD_EXIT_CODE] = NUMBER,
    [FIELD_EXIT_SIGNAL] = NUMBER,
    [FIELD_STEP] = NUMBER,
    [FIELD_ERRNO] = NUMBER,
    [FIELD_TEXT] = STRING,
    [FIELD_USER_NS] = NUMBER,
    [FIELD_SYSTEM_NS] = NUMBER,
    [FIELD_RSS_BYTES] = NUMBER,
    [FIELD_LOG_WRITTEN] = NUMBER,
    [FIELD_LOG_DROPPED] = NUMBER,
    [FIELD_LOG_LOST] = NUMBER,
    [FIELD_BOUND_MS] = NUMBER,
    [FIELD_SIGNAL] = NUMBER,
    [FIELD_LEADER_ONLY] = NUMBER,
    [FIELD_ERROR] = NUMBER,
    [FIELD_EMPTY] = NUMBER,
    [FIELD_PROCESSES] = NUMBER,
    [FIELD_TOOK_NS] = NUMBER,
    [FIELD_FROZEN] = NUMBER,
    [FIELD_STIRRED] = NUMBER,
    [FIELD_OWNER] = NUMBER,
};
_Static_assert(FIELD_COUNT <= 64, "`present` has a bit for each field");

void message_init(struct message *message, enum message_type type, uint64_t id)
{
    *message = (struct message){.version = MESSAGE_VERSION, .type = (uint16_t)type, .id = id};
}

static void field_mark(struct message *message, enum message_field field, enum kind kind)
{
    assert(field > 0 && field < FIELD_COUNT && kinds[field] == kind);
    message->present |= UINT64_C(1) << field;
}

void message_put(struct message *message, enum message_field field, uint64_t number)
{
    field_mark(message, field, NUMBER);
    message->numbers[field] = number;
}

void message_put_bytes(struct message *message, enum message_field field, const void *data,
                       size_t length)
{
    field_mark(message, field, BYTES);
    message->texts[field] = (struct wire_text){data, length};
}

void message_put_string(struct message *message, enum message_field field, const char *string)
{
    field_mark(message, field, STRING);
    message->texts[field] = (struct wire_text){(const unsigned char *)string, strlen(string) + 1};
}

bool message_has(const struct message *message, enum message_field field)
{
    return message->present >> field & 1;
}

uint64_t message_number(const struct message *message, enum message_field field, uint64_t absent)
{
    assert(kinds[field] == NUMBER);
    return message_has(message, field) ? message->numbers[field] : absent;
}

const char *message_string(const struct message *message, enum message_field field)
{
    assert(kinds[field] == STRING);
    return message_has(message, field) ? (const char *)message->texts[field].data : "";
}

struct wire_text message_bytes(const struct message *message, enum message_field field)
{
    assert(kinds[field] == BYTES);
    return message_has(message, field) ? message->texts[field] : (struct wire_text){NULL, 0};
}

static unsigned char *put_varint(unsigned char *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        *at++ = (unsigned char)(value | 0x80);
    }
    *at++ = (unsigned char)value;
    return at;
}

static size_t varint_size(uint64_t value)
{
    unsigned char bytes[10];
    return (size_t)(put_varint(bytes, value) - bytes);
}

static uint64_t field_tag(unsigned field)
{
    return (uint64_t)field << 3 | (kinds[field] == NUMBER ? WIRE_VARINT : WIRE_BYTES);
}

size_t message_size(const struct message *message)
{
    size_t size = MESSAGE_HEAD;
    for (unsigned field = 1; field < FIELD_COUNT; field++) {
        if (!message_has(message, field)) {
            continue;
        }
        size += varint_size(field_tag(field));
        size += kinds[field] == NUMBER
                    ? varint_size(message->numbers[field])
                    : varint_size(message->texts[field].length) + message->texts[field].length;
    }
    return size;
}

static unsigned char *put_fixed(unsigned char *at, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++) {
        *at++ = (unsigned char)(value >> (8 * i));
    }
    return at;
}

void message_encode(const struct message *message, unsigned char *bytes)
{
    unsigned char *at = put_fixed(bytes, message_size(message), 4);
    at = put_fixed(at, message->version, 2);
    at = put_fixed(at, message->type, 2);
    at = put_fixed(at, message->id, 8);
    for (unsigned field = 1; field < FIELD_COUNT; field++) {
        const struct wire_text *text = &message->texts[field];
        if (!message_has(message, field)) {
            continue;
        }
        at = put_varint(at, field_tag(field));
        if (kinds[field] == NUMBER) {
            at = put_varint(at, message->numbers[field]);
            continue;
        }
        at = put_varint(at, text->length);
        if (text->length > 0) {
            memcpy(at, text->data, text->length);
        }
        at += text->length;
    }
}

static bool string_whole(struct wire_text text)
{
    return text.length > 0 && memchr(text.data, 0, text.length) == text.data + text.length - 1;
}

static int field_take(struct message *message, const struct wire_field *field, struct error *error)
{
    unsigned number = field->number;
    if (number >= FIELD_COUNT || kinds[number] == ABSENT) {
        return 0; /* of a later version */
    }
    if ((kinds[number] == NUMBER) != (field->type == WIRE_VARINT) ||
        (kinds[number] != NUMBER && field->type != WIRE_BYTES)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "shim message: field %u has type %d",
                         number, (int)field->type);
    }
    if (kinds[number] == STRING && !string_whole(field->bytes)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "shim message: the string of field %u does not end with its only NUL",
                         number);
    }
    message->present |= UINT64_C(1) << number;
    message->numbers[number] = field->value;
    message->texts[number] = field->bytes;
    return 0;
}

static int head_decode(struct wire_reader *reader, size_t length, struct message *message,
                       struct error *error)
{
    uint64_t size, version, type, id;
    if (!wire_fixed(reader, 4, &size) || !wire_fixed(reader, 2, &version) ||
        !wire_fixed(reader, 2, &type) || !wire_fixed(reader, 8, &id) || size != length) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "shim message: %zu bytes are not a whole message", length);
    }
    if (version < MESSAGE_VERSION_MIN || version > MESSAGE_VERSION) {
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "shim message: version %u is not spoken here; %d to %d are",
                         (unsigned)version, MESSAGE_VERSION_MIN, MESSAGE_VERSION);
    }
    message_init(message, (enum message_type)type, id);
    message->version = (uint16_t)version;
    return 0;
}

int message_decode(const void *bytes, size_t length, struct message *message, struct error *error)
{
    struct wire_reader reader = {bytes, (const unsigned char *)bytes + length};
    int result = head_decode(&reader, length, message, error);
    while (result == 0 && reader.at < reader.end) {
        struct wire_field field = {0};
        if (!wire_next(&reader, &field)) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "shim message: damaged field at byte %zu",
                             (size_t)(reader.at - (const unsigned char *)bytes));
        }
        result = field_take(message, &field, error);
    }
    return result;
}
