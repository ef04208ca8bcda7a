#include "server/train/pieces.h"

#include <stdlib.h>
#include <string.h>

int pieces_init(struct pieces *pieces, uint32_t count)
{
    *pieces = (struct pieces){.count = count};
    pieces->states = calloc(count > 0 ? count : 1, sizeof(*pieces->states));
    return pieces->states != NULL ? 0 : -1;
}

void pieces_fini(struct pieces *pieces)
{
    free(pieces->states);
    *pieces = (struct pieces){0};
}

void pieces_reset(struct pieces *pieces)
{
    memset(pieces->states, 0, pieces->count * sizeof(*pieces->states));
    pieces->done = pieces->oldest = 0;
}

bool pieces_find(const struct pieces *pieces, uint32_t limit, uint32_t *ret_index)
{
    uint32_t end = limit < pieces->count ? limit : pieces->count;
    for (uint32_t i = pieces->oldest; i < end; i++) {
        if (pieces->states[i] == PIECE_WAITING) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

void pieces_mark(struct pieces *pieces, uint32_t index, enum piece_state state)
{
    pieces->done += state == PIECE_DONE && pieces->states[index] != PIECE_DONE;
    pieces->states[index] = state;
    while (pieces->oldest < pieces->count && pieces->states[pieces->oldest] == PIECE_DONE) {
        pieces->oldest++;
    }
}

bool pieces_all_done(const struct pieces *pieces)
{
    return pieces->done == pieces->count;
}
