/* shrink.c: see shrink.h. */
#include "tests/sim/shrink.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/player.h"

#define TRIAL_SECONDS 20
#define SHRINK_SECONDS 120 /* then it is as short as it is */

struct shrinker {
    struct script *script;
    char reason[TRIAL_TEXT_MAX];
    struct trial_end end;
    time_t end_s;
};

static bool in_time(const struct shrinker *shrinker)
{
    return time(NULL) < shrinker->end_s;
}

static void run(void *context)
{
    player_run(context, "shrunk", NULL);
}

static bool fails(struct shrinker *shrinker, struct script *script)
{
    struct trial trial = trial_begin(run, script, TRIAL_SECONDS);
    trial_wait(&trial, &shrinker->end);
    return shrinker->end.failed &&
           (*shrinker->reason == 0 || strcmp(shrinker->end.reason, shrinker->reason) == 0);
}

/* Takes out lines [at, at + count) if it still fails without them. */
static bool without(struct shrinker *shrinker, size_t at, size_t count)
{
    struct script *script = shrinker->script;
    struct script shorter = *script;
    shorter.count = script->count - count;
    shorter.lines = malloc((shorter.count + 1) * sizeof *shorter.lines);
    assert_non_null(shorter.lines);
    memcpy(shorter.lines, script->lines, at * sizeof *shorter.lines);
    memcpy(shorter.lines + at, script->lines + at + count,
           (shorter.count - at) * sizeof *shorter.lines);
    bool still = fails(shrinker, &shorter);
    for (size_t i = at; i < at + count && still; i++) {
        free(script->lines[i].text);
    }
    if (still) {
        memcpy(script->lines, shorter.lines, shorter.count * sizeof *shorter.lines);
        script->count = shorter.count;
    }
    free(shorter.lines);
    return still;
}

/* True: something went. */
static bool pass(struct shrinker *shrinker, size_t size)
{
    bool any = false;
    for (size_t end = shrinker->script->count; end > 0 && in_time(shrinker);) {
        size_t count = size < end ? size : end;
        any |= without(shrinker, end - count, count);
        end -= count;
    }
    return any;
}

bool shrink(struct script *script, struct trial_end *ret_end)
{
    struct shrinker shrinker = {.script = script, .end_s = time(NULL) + SHRINK_SECONDS};
    if (!fails(&shrinker, script)) {
        return false;
    }
    memcpy(shrinker.reason, shrinker.end.reason, sizeof shrinker.reason);
    for (size_t size = script->count / 2; size > 1; size /= 2) {
        pass(&shrinker, size);
    }
    while (pass(&shrinker, 1) && in_time(&shrinker)) {
    }
    fails(&shrinker, script);
    *ret_end = shrinker.end;
    return true;
}
