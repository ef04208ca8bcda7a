#include "server/progress/pause.h"

#include <stdlib.h>

/* Of a rank that was late: the step that runs, and one more until all have heard. */
#define AHEAD 2
#define MOVES_MAX 40
/* Each rank, and once more after it has started again. */
#define ASKED_MAX ((size_t)2 * PROGRESS_RANKS_MAX)

void pause_fini(struct pause *pause)
{
    free(pause->asked);
    *pause = (struct pause){0};
}

void pause_begin(struct pause *pause, uint64_t request, int64_t step)
{
    pause->request = request;
    pause->step = step;
    pause->moves = 0;
    pause->count = 0;
}

void pause_end(struct pause *pause)
{
    pause->request = 0;
    pause->count = 0;
}

static struct asked *asked_find(const struct pause *pause, uint32_t rank, pid_t pid)
{
    for (size_t i = 0; i < pause->count; i++) {
        if (pause->asked[i].rank == rank && pause->asked[i].pid == pid) {
            return &pause->asked[i];
        }
    }
    return NULL;
}

int pause_ask(struct pause *pause, uint32_t rank, pid_t pid)
{
    struct asked *found = asked_find(pause, rank, pid);
    if (found != NULL) {
        found->stands = false; /* it says so again */
        return 0;
    }
    if (pause->count == ASKED_MAX) {
        return -(int)ERROR_RESOURCE_EXHAUSTED;
    }
    if (pause->count == pause->capacity) {
        size_t capacity = pause->capacity == 0 ? 8 : pause->capacity * 2;
        struct asked *asked = realloc(pause->asked, capacity * sizeof(*asked));
        if (asked == NULL) {
            return -(int)ERROR_RESOURCE_EXHAUSTED;
        }
        pause->asked = asked;
        pause->capacity = capacity;
    }
    pause->asked[pause->count++] = (struct asked){.rank = rank, .pid = pid};
    return 0;
}

bool pause_stands(struct pause *pause, const struct progress_message *message, uint32_t rank,
                  pid_t pid)
{
    struct asked *found = asked_find(pause, rank, pid);
    if (found == NULL || pause->request == 0 || (uint64_t)message->request != pause->request ||
        message->step < pause->step) {
        return false;
    }
    found->stands = true;
    return true;
}

bool pause_late(struct pause *pause, uint64_t request, int64_t step)
{
    if (pause->request == 0 || request != pause->request || step < pause->step) {
        return false; /* of an earlier step, which has moved on since */
    }
    /* Ever further ahead: steps are quicker than the word of them. */
    pause->step = step + AHEAD + (INT64_C(1) << pause->moves);
    pause->moves += pause->moves < MOVES_MAX;
    for (size_t i = 0; i < pause->count; i++) {
        pause->asked[i].stands = false;
    }
    return true;
}

bool pause_complete(const struct pause *pause)
{
    for (size_t i = 0; i < pause->count; i++) {
        if (!pause->asked[i].stands) {
            return false;
        }
    }
    return pause->request != 0 && pause->count > 0;
}
