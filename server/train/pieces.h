/* pieces.h: a row of numbered pieces of work, taken lowest first, returned, done.
 * Thread:  under the job's lock. */
#ifndef TIDEPOOL_TRAIN_PIECES_H
#define TIDEPOOL_TRAIN_PIECES_H

#include <stdbool.h>
#include <stdint.h>

enum piece_state { PIECE_WAITING, PIECE_RUNNING, PIECE_DONE };

struct pieces {
    enum piece_state *states;
    uint32_t count, done;
    uint32_t oldest; /* all before are done */
};

int pieces_init(struct pieces *pieces, uint32_t count); /* -1: no memory */
void pieces_fini(struct pieces *pieces);
void pieces_reset(struct pieces *pieces); /* all wait */
/* The lowest waiting piece below `limit`, without taking it; false: none. */
bool pieces_find(const struct pieces *pieces, uint32_t limit, uint32_t *ret_index);
void pieces_mark(struct pieces *pieces, uint32_t index, enum piece_state state);
bool pieces_all_done(const struct pieces *pieces);

#endif
