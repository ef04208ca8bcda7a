/* fuzz_progress.c: lines of the progress socket that were damaged on the way.
 *     fuzz_progress [ROUNDS [SEED]]
 * A line that is accepted must keep what the rest of the server relies on, and what is said about
 * one that is not must be a line of JSON itself. */
#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/random.h"
#include "server/progress/line.h"

#define TEXT_MAX 1024

static const char *const seeds[] = {
    "{\"hello\":{\"rank\":3,\"ranks\":4,\"pid\":77,\"can\":[\"pause\",\"notice\",\"resize\"]}}",
    "{\"progress\":{\"step\":12,\"checkpointed_step\":10,\"waiting_s\":0.4,\"step_s\":0.05,"
    "\"metrics\":{\"loss\":1.2,\"norm\":null}}}",
    "{\"stopped\":{\"request\":7,\"step\":14}}",
    "{\"late\":{\"request\":7,\"step\":14}}",
    "{\"extend\":{\"notice\":3,\"seconds\":20}}",
    "{\"acknowledged\":{\"notice\":3}}",
};

static const char *const pieces[] = {
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "-1",
    "1e308",
    "0",
    "\\",
    "\\u",
    "\n",
    "\xc3",
    "\xff",
    "null",
    "9007199254740992",
    "{\"step\":",
    "\"metrics\":{\"a\":1,",
    "\"can\":[",
    "true",
    "4096",
};

/* Puts a piece at a random place, over or between what is there, or takes some away. */
static size_t text_damage(char *text, size_t length, uint64_t *state)
{
    const char *piece = pieces[random_next(state) % (sizeof(pieces) / sizeof(pieces[0]))];
    size_t size = strlen(piece);
    size_t at = random_next(state) % (length + 1);
    size_t out = random_next(state) % 3 == 0 ? random_next(state) % (length - at + 1) : 0;
    memmove(text + at, text + at + out, length - at - out);
    length -= out;
    if (out == 0 && length + size <= TEXT_MAX) {
        memmove(text + at + size, text + at, length - at);
        memcpy(text + at, piece, size);
        length += size;
    }
    if (random_next(state) % 8 == 0 && length > 0) {
        text[random_next(state) % length] = (char)random_next(state);
    }
    return length;
}

static void message_check(const struct progress_message *message)
{
    assert(message->kind <= PROGRESS_EXTEND);
    assert(message->rank >= 0 && message->rank < PROGRESS_RANKS_MAX);
    assert(message->ranks >= 0 && message->ranks <= PROGRESS_RANKS_MAX);
    assert(message->ranks == 0 || message->rank < message->ranks);
    assert(message->step >= 0 && (double)message->step <= PROGRESS_STEP_MAX);
    assert(message->checkpointed_step >= -1 && message->request >= 0 && message->notice >= 0);
    assert(isnan(message->waiting_s) || message->waiting_s >= 0);
    assert(isnan(message->step_s) || (message->step_s >= 0 && isfinite(message->step_s)));
    assert(message->metric_count <= PROGRESS_METRICS_MAX);
    for (size_t i = 0; i < message->metric_count; i++) {
        assert(memchr(message->metrics[i].name, '\0', PROGRESS_NAME_MAX) != NULL);
    }
}

static void answer_check(const char *line, size_t length, const char *text)
{
    json_error_t problem;
    char *answer = progress_line_error(line, length, text);
    assert(answer != NULL && strchr(answer, '\n') == answer + strlen(answer) - 1);
    json_t *root = json_loads(answer, 0, &problem);
    assert(root != NULL);
    json_decref(root);
    free(answer);
}

/* From memory of exactly that size, so that the sanitizer sees one byte too many. */
static bool line_try(const char *text, size_t length)
{
    struct progress_message message;
    struct error error = {0};
    char *exact = malloc(length > 0 ? length : 1);
    assert(exact != NULL);
    memcpy(exact, text, length);
    int result = progress_line_read(exact, length, &message, &error);
    if (result == 0) {
        message_check(&message);
    } else {
        assert(result == -(int)error.code && error.text[0] != '\0');
        answer_check(exact, length, error.text);
    }
    free(exact);
    return result == 0;
}

int main(int count, char **arguments)
{
    uint64_t rounds = count > 1 ? strtoull(arguments[1], NULL, 10) : 50000;
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    uint64_t state = seed, accepted = 0, tried = 0;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        for (size_t cut = 0; cut <= strlen(seeds[i]); cut++, tried++) {
            accepted += line_try(seeds[i], cut);
        }
    }
    assert(accepted == sizeof(seeds) / sizeof(seeds[0])); /* no part of a line is one */
    for (uint64_t round = 0; round < rounds; round++, tried++) {
        char text[TEXT_MAX];
        const char *from = seeds[random_next(&state) % (sizeof(seeds) / sizeof(seeds[0]))];
        size_t length = strlen(from);
        memcpy(text, from, length);
        for (uint64_t changes = 1 + random_next(&state) % 4; changes > 0; changes--) {
            length = text_damage(text, length, &state);
        }
        accepted += line_try(text, length);
    }
    (void)printf("fuzz_progress: %" PRIu64 " lines, %" PRIu64 " accepted, seed %" PRIu64 "\n",
                 tried, accepted, seed);
    return accepted < tried ? 0 : 1;
}
