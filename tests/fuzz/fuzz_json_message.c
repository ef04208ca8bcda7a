/* fuzz_json_message.c: JSON for requests of the control API that was damaged on the way, whole and
 * cut at every byte.
 *     fuzz_json_message [ROUNDS [SEED]]
 * What is accepted must be a whole message: it goes through the wire's form and JSON and comes back
 * the same. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/json_message.h"
#include "server/base/options.h"
#include "tidepool/v1/control.pb-c.h"

#define TEXT_MAX 2048

static const struct seed {
    const ProtobufCMessageDescriptor *type;
    const char *text;
} seeds[] = {
    {&tidepool__v1__dry_run_request__descriptor,
     "{\"changeEndpoint\":{\"name\":\"digits\",\"sloMs\":12.5,\"devicesMin\":1,\"devicesMax\":"
     "\"4\","
     "\"priority\":-3},\"horizonS\":\"Infinity\"}"},
    {&tidepool__v1__dry_run_request__descriptor, "{\"submitJob\":{\"spec_json\":\"{\\\"a\\\":1}\","
                                                 "\"requestId\":\"\\u00e9\"},\"horizon_s\":1e2}"},
    {&tidepool__v1__timeline__descriptor,
     "{\"slotMs\":100,\"firstSlot\":\"18446744073709551615\",\"devices\":[{\"device\":\"cpu:0\","
     "\"serving\":\"AP8B\",\"training\":\"_-8\"},{}]}"},
    {&tidepool__v1__change__descriptor,
     "{\"revision\":7,\"job\":{\"number\":\"3\",\"state\":\"JOB_STATE_RUNNING\",\"devices\":[\"a\","
     "\"b\"],\"lossLast\":\"NaN\",\"warning\":null}}"},
};
#define SEEDS (sizeof seeds / sizeof seeds[0])

static const char *const pieces[] = {
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "null",
    "true",
    "-1",
    "1e999",
    "\"NaN\"",
    "\"-0\"",
    "4294967296",
    "\\u0000",
    "\"\"",
    "{}",
    "[]",
    "[[[[[[[[",
    "\xff",
    "\"AA==\"",
    "9223372036854775808",
    "\"9223372036854775808\"",
    "\"devices\":",
    "\"job\":{}",
    "\"synced\":{},",
    "\"state\":77",
    "\"=\"",
    "\"horizonS\":2,",
};

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Puts a piece between or over what is there, changes a byte, or takes a part out. */
static size_t text_damage(char *text, size_t length, uint64_t *state)
{
    const char *piece = pieces[random_next(state) % (sizeof pieces / sizeof pieces[0])];
    size_t size = strlen(piece);
    size_t at = length == 0 ? 0 : random_next(state) % length;
    size_t out = length == 0 ? 0 : random_next(state) % (length - at + 1);
    switch (random_next(state) % 4) {
    case 0:
        if (length + size <= TEXT_MAX) {
            memmove(text + at + size, text + at, length - at);
            memcpy(text + at, piece, size);
            length += size;
        }
        break;
    case 1:
        memcpy(text + at, piece, size < length - at ? size : length - at);
        break;
    case 2:
        if (length > 0) {
            text[at] = (char)random_next(state);
        }
        break;
    default:
        memmove(text + at, text + at + out, length - at - out);
        length -= out;
        break;
    }
    return length;
}

static uint8_t *pack(const ProtobufCMessage *message, size_t *ret_size)
{
    *ret_size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(*ret_size + 1);
    assert(bytes != NULL && protobuf_c_message_pack(message, bytes) == *ret_size);
    return bytes;
}

/* Through the wire's form, then JSON, then back. */
static void message_check(const ProtobufCMessage *message)
{
    size_t size = 0, size_again = 0;
    uint8_t *bytes = pack(message, &size);
    ProtobufCMessage *whole = protobuf_c_message_unpack(message->descriptor, NULL, size, bytes);
    ProtobufCMessage *again = NULL;
    struct error error = {0};
    assert(whole != NULL);
    json_t *value = json_from_message(whole);
    assert(value != NULL);
    if (json_to_message(value, message->descriptor, &again, &error) < 0) {
        (void)fprintf(stderr, "not read again: %s\n", error.text);
        abort();
    }
    uint8_t *bytes_again = pack(again, &size_again);
    assert(size == size_again && memcmp(bytes, bytes_again, size) == 0);
    protobuf_c_message_free_unpacked(whole, NULL);
    protobuf_c_message_free_unpacked(again, NULL);
    json_decref(value);
    free(bytes);
    free(bytes_again);
}

/* From memory of exactly that size, so that the sanitizer sees one byte too many. */
static bool text_try(const ProtobufCMessageDescriptor *type, const char *text, size_t length)
{
    struct error error = {0};
    ProtobufCMessage *message = NULL;
    char *exact = malloc(length > 0 ? length : 1);
    assert(exact != NULL);
    memcpy(exact, text, length);
    json_t *value = options_parse_text(exact, length, "fuzz", &error);
    int result = value != NULL ? json_to_message(value, type, &message, &error) : -1;
    assert(result == 0 || (error.text[0] != '\0' && message == NULL));
    if (result == 0) {
        message_check(message);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    json_decref(value);
    free(exact);
    return result == 0;
}

int main(int count, char **arguments)
{
    uint64_t rounds = count > 1 ? strtoull(arguments[1], NULL, 10) : 20000;
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    uint64_t accepted = 0, tried = 0;
    for (size_t i = 0; i < SEEDS; i++) {
        for (size_t cut = 0; cut <= strlen(seeds[i].text); cut++, tried++) {
            accepted += text_try(seeds[i].type, seeds[i].text, cut);
        }
    }
    for (uint64_t round = 0; round < rounds; round++, tried++) {
        const struct seed *from = &seeds[random_next(&state) % SEEDS];
        char text[TEXT_MAX];
        size_t length = strlen(from->text);
        memcpy(text, from->text, length);
        for (uint64_t changes = 1 + random_next(&state) % 3; changes > 0; changes--) {
            length = text_damage(text, length, &state);
        }
        accepted += text_try(from->type, text, length);
    }
    (void)printf("fuzz_json_message: %" PRIu64 " texts, %" PRIu64 " accepted, seed %" PRIu64 "\n",
                 tried, accepted, seed);
    return accepted > SEEDS && accepted < tried ? 0 : 1;
}
