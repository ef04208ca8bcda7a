/* fuzz_pbtxt.c: model configurations that were damaged on the way, whole and cut at every byte.
 *     fuzz_pbtxt [ROUNDS [SEED]]
 * A configuration that is accepted must keep what the rest of the server relies on. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/serve/model_config.h"
#include "server/serve/pbtxt.h"

#define TEXT_MAX 4096

static const char *const seeds[] = {
    "name: \"m\" platform: \"onnxruntime_onnx\" max_batch_size: 8\n"
    "input [ { name: \"X\" data_type: TYPE_FP32 dims: [ -1, 4 ] format: FORMAT_NONE } ]\n"
    "output { name: \"Y\" data_type: TYPE_STRING dims: 2 }\n"
    "dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }\n"
    "instance_group [ { kind: KIND_CPU count: 2 } ] # end\n",
    "parameters: { key: \"a\\x41\\u00e9\\\"\" value: { string_value: 'b' \"c\" } };\n"
    "version_policy < latest < num_versions: 0x1 > >, default_model_filename: \"net.onnx\"\n",
};

static const char *const pieces[] = {
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ":",
    ";",
    ",",
    "#",
    "\"",
    "'",
    "\\",
    "\\x",
    "\\u12",
    "\\777",
    "\n",
    "input { ",
    "dims: [",
    "-9223372036854775808",
    "99999999999999999999",
    "0x",
    "name: ",
    "preferred_batch_size: 4096 ",
    "a { a { a { a { a { a { ",
    "\xff",
    "TYPE_",
    "max_batch_size: 0 ",
};

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Puts `piece` at a random place, over or between what is there. */
static size_t text_damage(char *text, size_t length, uint64_t *state)
{
    const char *piece = pieces[random_next(state) % (sizeof(pieces) / sizeof(pieces[0]))];
    size_t size = strlen(piece);
    size_t at = length == 0 ? 0 : random_next(state) % length;
    switch (random_next(state) % 4) {
    case 0: /* between */
        if (length + size <= TEXT_MAX) {
            memmove(text + at + size, text + at, length - at);
            memcpy(text + at, piece, size);
            length += size;
        }
        break;
    case 1: /* over */
        memcpy(text + at, piece, size < length - at ? size : length - at);
        break;
    case 2: /* any byte, NUL too */
        if (length > 0) {
            text[at] = (char)random_next(state);
        }
        break;
    default: { /* a part is taken out */
        size_t out = length == 0 ? 0 : random_next(state) % (length - at + 1);
        memmove(text + at, text + at + out, length - at - out);
        length -= out;
        break;
    }
    }
    return length;
}

static void config_check(const struct model_config *config)
{
    const struct model_signature *configured = &config->configured;
    assert(model_name_valid(config->filename, strlen(config->filename)));
    assert(config->batch_max <= MODEL_BATCH_LIMIT || config->batch_max == MODEL_BATCH_AUTO);
    assert(config->preferred_count <= MODEL_PREFERRED_MAX);
    for (uint32_t i = 1; i < config->preferred_count; i++) {
        assert(config->preferred[i - 1] <= config->preferred[i]);
    }
    for (size_t i = 0; i < configured->input_count; i++) {
        assert(configured->inputs[i].name != NULL && configured->inputs[i].name[0] != '\0');
        assert(configured->inputs[i].rank < TENSOR_RANK_MAX);
        assert(configured->inputs[i].datatype != DATATYPE_INVALID);
    }
}

/* From memory of exactly that size, so that the sanitizer sees one byte too many. */
static bool text_try(const char *text, size_t length)
{
    char ignored[64];
    struct model_config config;
    struct error error = {0};
    char *exact = malloc(length > 0 ? length : 1);
    assert(exact != NULL);
    memcpy(exact, text, length);
    model_config_init(&config, "m");
    int result =
        model_config_read_pbtxt(&config, exact, length, "fuzz", ignored, sizeof(ignored), &error);
    assert(memchr(ignored, '\0', sizeof(ignored)) != NULL);
    assert(result == 0 || (result == -(int)error.code && error.text[0] != '\0'));
    if (result == 0) {
        config_check(&config);
    }
    model_config_fini(&config);
    free(exact);
    return result == 0;
}

int main(int count, char **arguments)
{
    uint64_t rounds = count > 1 ? strtoull(arguments[1], NULL, 10) : 20000;
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    uint64_t accepted = 0, tried = 0;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        for (size_t cut = 0; cut <= strlen(seeds[i]); cut++, tried++) {
            accepted += text_try(seeds[i], cut);
        }
    }
    for (uint64_t round = 0; round < rounds; round++, tried++) {
        char text[TEXT_MAX];
        const char *from = seeds[random_next(&state) % (sizeof(seeds) / sizeof(seeds[0]))];
        size_t length = strlen(from);
        memcpy(text, from, length);
        for (uint64_t changes = 1 + random_next(&state) % 6; changes > 0; changes--) {
            length = text_damage(text, length, &state);
        }
        accepted += text_try(text, length);
    }
    (void)printf("fuzz_pbtxt: %" PRIu64 " texts, %" PRIu64 " accepted, seed %" PRIu64 "\n", tried,
                 accepted, seed);
    return accepted > 0 && accepted < tried ? 0 : 1;
}
