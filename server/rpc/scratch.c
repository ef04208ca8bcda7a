#include "server/rpc/scratch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)8192)
#define ALIGNMENT ((size_t)16)

struct scratch_block {
    struct scratch_block *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

void *scratch_take(struct scratch *scratch, size_t count, size_t size)
{
    struct scratch_block *block = scratch->blocks;
    size_t bytes;
    void *taken;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        scratch->failed = true;
        return NULL;
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (block == NULL || block->size - block->used < bytes) {
        size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = calloc(1, sizeof(*block) + room);
        if (block == NULL) {
            scratch->failed = true;
            return NULL;
        }
        block->size = room;
        block->next = scratch->blocks;
        scratch->blocks = block;
    }
    taken = block->bytes + block->used;
    block->used += bytes;
    return taken;
}

char *scratch_text(struct scratch *scratch, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = scratch_take(scratch, size, 1);
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

void scratch_free(struct scratch *scratch)
{
    while (scratch->blocks != NULL) {
        struct scratch_block *next = scratch->blocks->next;
        free(scratch->blocks);
        scratch->blocks = next;
    }
}
