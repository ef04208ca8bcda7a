/* arena.h: memory that is taken in small pieces and given back at once: one call's headers and
 * its decoded request. Its first bytes lie in the call's own block, more come from buffers.
 * Bound:   `limit` bytes in all; over it allocations give NULL and `exhausted` is set.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_NET_ARENA_H
#define TIDEPOOL_NET_ARENA_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct arena_chunk;

struct arena {
    char *position, *end;
    struct arena_chunk *chunks; /* newest first */
    size_t used;                /* bytes of buffers taken */
    size_t limit;
    bool exhausted;
    ProtobufCAllocator allocator; /* hands this arena to protobuf-c; its free does nothing */
};

/* A point to go back to with arena_reset. */
struct arena_mark {
    char *position, *end;
    struct arena_chunk *chunks;
    size_t used;
};

void arena_init(struct arena *arena, void *first, size_t first_size, size_t limit);
void arena_fini(struct arena *arena);
void *arena_allocate(struct arena *arena, size_t size); /* 16-byte aligned; NULL: over the limit */
/* A copy with a zero at the end. */
char *arena_copy(struct arena *arena, const char *bytes, size_t length);
struct arena_mark arena_mark(const struct arena *arena);
void arena_reset(struct arena *arena, const struct arena_mark *mark);

#endif
