/* scratch.h: memory for one answer that is built from messages and then encoded: taken in pieces,
 * given back at once.
 * Errors:  NULL and `failed`: check once, before the answer is sent. */
#ifndef TIDEPOOL_RPC_SCRATCH_H
#define TIDEPOOL_RPC_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

struct scratch_block;
struct scratch {
    struct scratch_block *blocks;
    bool failed;
};

void *scratch_take(struct scratch *scratch, size_t count, size_t size); /* zeroed */
char *scratch_text(struct scratch *scratch, const char *text);          /* a copy */
void scratch_free(struct scratch *scratch);

#endif
