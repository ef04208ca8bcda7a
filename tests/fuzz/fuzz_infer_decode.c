/* The hand-written decoder of ModelInferRequest against protobuf-c's, on mutated messages.
 *
 *     fuzz_infer_decode [COUNT [SEED]]     (100000, 1); a failure prints the seed that repeats it
 *
 * Expected: what protobuf-c takes, ours takes too and reads the same, and the other way round, but
 *   - ours refuses what the official parsers refuse and protobuf-c does not: field number 0, text
 *     that is not UTF-8, and what is over a bound;
 *   - protobuf-c refuses what the official parsers pass over: a known field of another wire type;
 *   - of a parameter's value that comes twice protobuf-c keeps the first where the second is 0,
 *     and the official parsers the second, and it ends keys at a zero byte: such parameters are
 *     not compared.
 * All are found by a walk of its own over the message, so that neither can hide a fault. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inference/inference.pb-c.h"
#include "server/rpc/infer_message.h"

typedef Inference__ModelInferRequest Request;
typedef Inference__ModelInferRequest__InferInputTensor Input;
typedef Inference__InferTensorContents Contents;
typedef Inference__InferParameter Parameter;

static uint64_t random_state;

static uint32_t random_next(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

/* ---- seeds ------------------------------------------------------------------------------------
 */

#define MESSAGE_MAX 4096

struct message {
    unsigned char bytes[MESSAGE_MAX];
    size_t length;
};

static void put(struct message *message, const void *bytes, size_t length)
{
    if (message->length + length <= MESSAGE_MAX) {
        memcpy(message->bytes + message->length, bytes, length);
        message->length += length;
    }
}

static void put_varint(struct message *message, uint64_t value)
{
    do {
        unsigned char byte = (unsigned char)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        put(message, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_bytes(struct message *message, uint32_t number, const void *bytes, size_t length)
{
    put_varint(message, number << 3 | WIRE_BYTES);
    put_varint(message, length);
    put(message, bytes, length);
}

static void put_message(struct message *message, uint32_t number, const struct message *inner)
{
    put_bytes(message, number, inner->bytes, inner->length);
}

static void put_text(struct message *message, uint32_t number)
{
    static const char *const texts[] = {"",         "model", "INPUT",    "FP32",
                                        "\xC3\xA9", "\xFF",  "a\xE2\x82"};
    uint32_t kinds = random_next(8) == 0 ? 7 : 5; /* seldom one that is no UTF-8 */
    const char *text = texts[random_next(kinds)];
    put_bytes(message, number, text, strlen(text));
}

static uint64_t random_number(void)
{
    static const uint64_t numbers[] = {0, 1, 127, 128, 300, UINT32_MAX, UINT64_MAX, 1 << 20};
    return numbers[random_next(8)];
}

static void put_number(struct message *message, uint32_t number, enum wire_type type)
{
    uint64_t value = random_number();
    put_varint(message, number << 3 | (uint32_t)type);
    if (type == WIRE_VARINT) {
        put_varint(message, value);
    } else {
        put(message, &value, type == WIRE_FIXED32 ? 4 : 8);
    }
}

static void put_parameter(struct message *message, uint32_t number)
{
    static const enum wire_type types[] = {0,          WIRE_VARINT,  WIRE_VARINT,
                                           WIRE_BYTES, WIRE_FIXED64, WIRE_VARINT};
    struct message entry = {0};
    for (uint32_t i = random_next(3); i > 0; i--) {
        struct message value = {0};
        uint32_t kind = 1 + random_next(5);
        put_text(&entry, 1);
        if (types[kind] == WIRE_BYTES) {
            put_text(&value, kind);
        } else {
            put_number(&value, kind, types[kind]);
        }
        put_message(&entry, 2, &value);
    }
    put_message(message, number, &entry);
}

static void put_contents(struct message *message)
{
    static const enum wire_type types[] = {0,           WIRE_VARINT, WIRE_VARINT,  WIRE_VARINT,
                                           WIRE_VARINT, WIRE_VARINT, WIRE_FIXED32, WIRE_FIXED64,
                                           WIRE_BYTES};
    struct message contents = {0};
    for (uint32_t i = random_next(4); i > 0; i--) {
        uint32_t field = 1 + random_next(8);
        if (types[field] == WIRE_BYTES) {
            put_text(&contents, field);
        } else if (random_next(2) == 0) {
            put_number(&contents, field, types[field]);
        } else {
            struct message packed = {0};
            for (uint32_t j = random_next(5); j > 0; j--) {
                uint64_t value = random_number();
                if (types[field] == WIRE_VARINT) {
                    put_varint(&packed, value);
                } else {
                    put(&packed, &value, types[field] == WIRE_FIXED32 ? 4 : 8);
                }
            }
            put_message(&contents, field, &packed);
        }
    }
    put_message(message, 5, &contents);
}

static void put_input(struct message *message)
{
    struct message input = {0};
    put_text(&input, 1);
    put_text(&input, 2);
    for (uint32_t i = random_next(4); i > 0; i--) {
        switch (random_next(4)) {
        case 0:
            put_number(&input, 3, WIRE_VARINT);
            break;
        case 1: {
            struct message packed = {0};
            put_varint(&packed, random_number());
            put_varint(&packed, random_number());
            put_message(&input, 3, &packed);
            break;
        }
        case 2:
            put_parameter(&input, 4);
            break;
        default:
            put_contents(&input);
        }
    }
    put_message(message, 5, &input);
}

static void message_make(struct message *message)
{
    message->length = 0;
    for (uint32_t i = 1 + random_next(10); i > 0; i--) {
        uint32_t field = 1 + random_next(8);
        struct message output = {0};
        switch (field) {
        case 4:
            put_parameter(message, 4);
            break;
        case 5:
            put_input(message);
            break;
        case 6:
            put_text(&output, 1);
            put_parameter(&output, 2);
            put_message(message, 6, &output);
            break;
        case 8:
            put_number(message, 8 + random_next(100), WIRE_FIXED64); /* unknown */
            break;
        default:
            put_text(message, field);
        }
    }
}

static void message_mutate(struct message *message)
{
    for (uint32_t i = random_next(4); i > 0 && message->length > 0; i--) {
        uint32_t at = random_next((uint32_t)message->length);
        switch (random_next(4)) {
        case 0:
            message->bytes[at] ^= (unsigned char)(1u << random_next(8));
            break;
        case 1:
            message->bytes[at] = (unsigned char)random_next(256);
            break;
        case 2:
            message->length = at;
            break;
        default:
            memmove(message->bytes + at, message->bytes + at + 1, message->length - at - 1);
            message->length--;
        }
    }
}

/* ---- why the two may differ -------------------------------------------------------------------
 */

struct oddity {
    bool field_zero, wrong_type, no_utf8, value_twice, key_cut;
};

/* What each field of each message is: 0 unknown, else its wire type + 1, and what lies within. */
enum level {
    OF_REQUEST,
    OF_ENTRY,
    OF_VALUE,
    OF_INPUT,
    OF_CONTENTS,
    OF_OUTPUT,
    OF_NOTHING,
    OF_TEXT
};
static const struct rule {
    unsigned char type; /* wire type + 1 */
    bool packs;
    enum level inside;
} rules[][9] = {
    [OF_REQUEST] = {{0},
                    {3, 0, OF_TEXT},
                    {3, 0, OF_TEXT},
                    {3, 0, OF_TEXT},
                    {3, 0, OF_ENTRY},
                    {3, 0, OF_INPUT},
                    {3, 0, OF_OUTPUT},
                    {3, 0, OF_NOTHING}},
    [OF_ENTRY] = {{0}, {3, 0, OF_TEXT}, {3, 0, OF_VALUE}},
    [OF_VALUE] = {{0},
                  {1, 0, OF_NOTHING},
                  {1, 0, OF_NOTHING},
                  {3, 0, OF_TEXT},
                  {2, 0, OF_NOTHING},
                  {1, 0, OF_NOTHING}},
    [OF_INPUT] = {{0},
                  {3, 0, OF_TEXT},
                  {3, 0, OF_TEXT},
                  {1, 1, OF_NOTHING},
                  {3, 0, OF_ENTRY},
                  {3, 0, OF_CONTENTS}},
    [OF_CONTENTS] = {{0},
                     {1, 1, OF_NOTHING},
                     {1, 1, OF_NOTHING},
                     {1, 1, OF_NOTHING},
                     {1, 1, OF_NOTHING},
                     {1, 1, OF_NOTHING},
                     {6, 1, OF_NOTHING},
                     {2, 1, OF_NOTHING},
                     {3, 0, OF_NOTHING}},
    [OF_OUTPUT] = {{0}, {3, 0, OF_TEXT}, {3, 0, OF_ENTRY}},
};

/* Where the walk cannot go on, both decoders must refuse: no oddity. */
static void oddities_find(const unsigned char *at, const unsigned char *end, enum level level,
                          struct oddity *odd)
{
    unsigned values = 0;
    while (at < end) {
        uint64_t tag = 0, length = 0;
        unsigned shift = 0;
        do {
            tag |= (uint64_t)(*at & 0x7F) << shift;
            shift += 7;
        } while ((*at++ & 0x80) != 0 && at < end && shift < 35);
        uint32_t number = (uint32_t)tag >> 3, type = tag & 7;
        odd->field_zero |= number == 0;
        values += level == OF_ENTRY && number == 2;
        odd->value_twice |= values > 1;
        const struct rule *rule = number < 9 ? &rules[level][number] : &rules[0][0];
        if (rule->type != 0 && rule->type != type + 1 && !(rule->packs && type == WIRE_BYTES)) {
            odd->wrong_type = true;
        }
        if (type == WIRE_VARINT) {
            while (at < end && (*at++ & 0x80) != 0) {
            }
        } else if (type == WIRE_FIXED32 || type == WIRE_FIXED64) {
            size_t width = type == WIRE_FIXED32 ? 4 : 8;
            at = (size_t)(end - at) < width ? end : at + width;
        } else if (type == WIRE_BYTES) {
            for (shift = 0; at < end && shift < 63; shift += 7) {
                length |= (uint64_t)(*at & 0x7F) << shift;
                if ((*at++ & 0x80) == 0) {
                    break;
                }
            }
            if (length > (uint64_t)(end - at)) {
                return;
            }
            if (rule->type == 3 && rule->inside == OF_TEXT) {
                odd->no_utf8 |= !utf8_is_valid((struct wire_text){at, length});
                odd->key_cut |= level == OF_ENTRY && memchr(at, 0, length) != NULL;
            } else if (rule->type == 3 && rule->inside != OF_NOTHING) {
                oddities_find(at, at + length, rule->inside, odd);
            }
            at += length;
        } else {
            return;
        }
    }
}

/* ---- the same values --------------------------------------------------------------------------
 */

#define SAME(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "differs: %s (line %d)\n", #condition, __LINE__);                      \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

/* protobuf-c's texts end at the first zero byte. */
static bool text_same(struct wire_text ours, const char *theirs)
{
    return strlen(theirs) <= ours.length &&
           (ours.length == 0 || memcmp(ours.data, theirs, strlen(theirs)) == 0) &&
           (strlen(theirs) == ours.length || ours.data[strlen(theirs)] == 0);
}

static bool value_same(const struct infer_parameter *ours, const Parameter *theirs)
{
    uint64_t bits;
    SAME(ours->kind == (theirs == NULL ? 0 : (enum parameter_kind)theirs->parameter_choice_case));
    switch (ours->kind) {
    case PARAMETER_BOOL:
        SAME((ours->bits != 0) == (theirs->bool_param != 0));
        break;
    case PARAMETER_INT64:
        SAME((int64_t)ours->bits == theirs->int64_param);
        break;
    case PARAMETER_UINT64:
        SAME(ours->bits == theirs->uint64_param);
        break;
    case PARAMETER_DOUBLE:
        memcpy(&bits, &theirs->double_param, sizeof(bits));
        SAME(ours->bits == bits);
        break;
    case PARAMETER_TEXT:
        SAME(text_same(ours->text, theirs->string_param));
        break;
    case PARAMETER_UNSET:
        break;
    }
    return true;
}

struct pair {
    const char *key;
    const Parameter *value;
};

/* Of a repeated key the last one counts: ours are unique, theirs are all there. */
static bool parameters_same(const struct infer_message *message, int owner,
                            const struct pair *pairs, size_t count)
{
    for (uint32_t i = 0; i < message->parameter_count; i++) {
        const struct infer_parameter *ours = &message->parameters[i];
        const struct pair *last = NULL;
        if (ours->owner != owner) {
            continue;
        }
        for (size_t j = 0; j < count; j++) {
            if (text_same(ours->key, pairs[j].key) && strlen(pairs[j].key) == ours->key.length) {
                last = &pairs[j];
            }
        }
        if (last == NULL) {
            SAME(memchr(ours->key.data, 0, ours->key.length) != NULL); /* their key is cut */
        } else {
            SAME(value_same(ours, last->value));
        }
    }
    return true;
}

#define PAIRS(list, count)                                                                         \
    struct pair pairs[INFER_PARAMETERS_MAX];                                                       \
    for (size_t p = 0; p < (count) && p < INFER_PARAMETERS_MAX; p++) {                             \
        pairs[p] = (struct pair){(list)[p]->key, (list)[p]->value};                                \
    }

static bool contents_same(const struct infer_input *ours, const Contents *theirs)
{
    SAME(ours->has_contents == (theirs != NULL));
    if (theirs == NULL) {
        return true;
    }
    SAME(ours->elements[CONTENTS_BOOL] == theirs->n_bool_contents);
    SAME(ours->elements[CONTENTS_INT] == theirs->n_int_contents);
    SAME(ours->elements[CONTENTS_INT64] == theirs->n_int64_contents);
    SAME(ours->elements[CONTENTS_UINT] == theirs->n_uint_contents);
    SAME(ours->elements[CONTENTS_UINT64] == theirs->n_uint64_contents);
    SAME(ours->elements[CONTENTS_FP32] == theirs->n_fp32_contents);
    SAME(ours->elements[CONTENTS_FP64] == theirs->n_fp64_contents);
    SAME(ours->elements[CONTENTS_BYTES] == theirs->n_bytes_contents);
    unsigned char raw[8 * MESSAGE_MAX];
    contents_raw_write(ours, DATATYPE_INT32, raw);
    SAME(theirs->n_int_contents == 0 ||
         memcmp(raw, theirs->int_contents, 4 * theirs->n_int_contents) == 0);
    contents_raw_write(ours, DATATYPE_UINT64, raw);
    SAME(theirs->n_uint64_contents == 0 ||
         memcmp(raw, theirs->uint64_contents, 8 * theirs->n_uint64_contents) == 0);
    contents_raw_write(ours, DATATYPE_FP32, raw);
    SAME(theirs->n_fp32_contents == 0 ||
         memcmp(raw, theirs->fp32_contents, 4 * theirs->n_fp32_contents) == 0);
    contents_raw_write(ours, DATATYPE_FP64, raw);
    SAME(theirs->n_fp64_contents == 0 ||
         memcmp(raw, theirs->fp64_contents, 8 * theirs->n_fp64_contents) == 0);
    contents_raw_write(ours, DATATYPE_UINT8, raw);
    for (size_t i = 0; i < theirs->n_uint_contents; i++) {
        SAME(raw[i] == (unsigned char)theirs->uint_contents[i]);
    }
    contents_raw_write(ours, DATATYPE_BOOL, raw);
    for (size_t i = 0; i < theirs->n_bool_contents; i++) {
        SAME(raw[i] == (theirs->bool_contents[i] != 0));
    }
    contents_raw_write(ours, DATATYPE_BYTES, raw);
    const unsigned char *at = raw;
    for (size_t i = 0; i < theirs->n_bytes_contents; i++) {
        const ProtobufCBinaryData *element = &theirs->bytes_contents[i];
        SAME(at[0] == (element->len & 0xFF) && at[1] == (element->len >> 8));
        SAME(element->len == 0 || memcmp(at + 4, element->data, element->len) == 0);
        at += 4 + element->len;
    }
    return true;
}

static bool input_same(const struct infer_message *message, uint32_t index, const Input *theirs)
{
    const struct infer_input *ours = &message->inputs[index];
    SAME(text_same(ours->name, theirs->name));
    SAME(text_same(ours->datatype, theirs->datatype));
    SAME(ours->rank == theirs->n_shape);
    for (uint32_t d = 0; d < ours->rank && d < TENSOR_RANK_MAX; d++) {
        SAME(ours->dims[d] == theirs->shape[d]);
    }
    PAIRS(theirs->parameters, theirs->n_parameters);
    SAME(parameters_same(message, (int)index, pairs, theirs->n_parameters));
    return contents_same(ours, theirs->contents);
}

static bool message_same(const struct infer_message *ours, const Request *theirs)
{
    SAME(text_same(ours->model_name, theirs->model_name));
    SAME(text_same(ours->model_version, theirs->model_version));
    SAME(text_same(ours->id, theirs->id));
    SAME(ours->input_count == theirs->n_inputs);
    SAME(ours->output_count == theirs->n_outputs);
    SAME(ours->raw_count == theirs->n_raw_input_contents);
    for (uint32_t i = 0; i < ours->input_count; i++) {
        SAME(input_same(ours, i, theirs->inputs[i]));
    }
    for (uint32_t i = 0; i < ours->output_count; i++) {
        PAIRS(theirs->outputs[i]->parameters, theirs->outputs[i]->n_parameters);
        SAME(text_same(ours->outputs[i].name, theirs->outputs[i]->name));
        SAME(parameters_same(ours, INFER_TENSORS_MAX + (int)i, pairs,
                             theirs->outputs[i]->n_parameters));
    }
    for (uint32_t i = 0; i < ours->raw_count; i++) {
        SAME(ours->raw[i].length == theirs->raw_input_contents[i].len);
        SAME(ours->raw[i].length == 0 ||
             memcmp(ours->raw[i].data, theirs->raw_input_contents[i].data, ours->raw[i].length) ==
                 0);
    }
    PAIRS(theirs->parameters, theirs->n_parameters);
    return parameters_same(ours, PARAMETER_OF_REQUEST, pairs, theirs->n_parameters);
}

/* ---- one round --------------------------------------------------------------------------------
 */

static struct infer_message decoded;

/* On one message: false says what differs. */
static bool round_run(const struct message *message, uint64_t *ret_accepted)
{
    /* The exact size on the heap, so that a sanitizer sees a read past the end. */
    unsigned char *bytes = malloc(message->length > 0 ? message->length : 1);
    struct oddity odd = {0};
    struct error error = {0};
    assert(bytes != NULL);
    memcpy(bytes, message->bytes, message->length);
    int result = infer_message_decode(bytes, message->length, &decoded, &error);
    Request *theirs = inference__model_infer_request__unpack(NULL, message->length, bytes);
    oddities_find(bytes, bytes + message->length, OF_REQUEST, &odd);
    bool good = true;
    if (result == 0 && theirs != NULL) {
        decoded.parameter_count = odd.value_twice || odd.key_cut ? 0 : decoded.parameter_count;
        good = message_same(&decoded, theirs);
        ++*ret_accepted;
    } else if (result == 0 && !odd.wrong_type) {
        fprintf(stderr, "ours took what protobuf-c refuses\n");
        good = false;
    } else if (result < 0 && theirs != NULL && !odd.field_zero && !odd.no_utf8) {
        fprintf(stderr, "ours refused what protobuf-c takes: %s\n", error.text);
        good = false;
    }
    if (theirs != NULL) {
        inference__model_infer_request__free_unpacked(theirs, NULL);
    }
    free(bytes);
    return good;
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, accepted = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct message message;
        random_state = seed + i;
        (void)random_next(2);
        message_make(&message);
        message_mutate(&message);
        if (!round_run(&message, &accepted)) {
            fprintf(stderr, "repeat it with: %s 1 %" PRIu64 "\n", argv[0], seed + i);
            return 1;
        }
    }
    printf("%" PRIu64 " messages, %" PRIu64 " accepted by both and equal\n", count, accepted);
    if (count >= 1000 && accepted < count / 10) {
        fprintf(stderr, "too few were accepted to prove anything\n");
        return 1;
    }
    return 0;
}
