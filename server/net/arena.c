#include "server/net/arena.h"

#include <stdint.h>
#include <string.h>

#include "server/base/buffer.h"

#define ALIGNMENT 16
#define CHUNK_BYTES_MIN 8192
#define CHUNK_BYTES_STEP_MAX (size_t)(1024 * 1024)

/* At the start of its own buffer. */
struct arena_chunk {
    struct arena_chunk *next;
    struct buffer *buffer;
};

static void *arena_take(void *arena, size_t size)
{
    return arena_allocate(arena, size);
}

static void arena_keep(void *arena, void *pointer)
{
    (void)arena;
    (void)pointer; /* all is given back together */
}

void arena_init(struct arena *arena, void *first, size_t first_size, size_t limit)
{
    uintptr_t start = ((uintptr_t)first + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1);
    arena->position = (char *)start;
    arena->end = (char *)first + first_size;
    arena->chunks = NULL;
    arena->used = 0;
    arena->limit = limit;
    arena->exhausted = false;
    arena->allocator = (ProtobufCAllocator){arena_take, arena_keep, arena};
}

static void chunks_release(struct arena *arena, struct arena_chunk *until)
{
    while (arena->chunks != until) {
        struct arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        buffer_release(chunk->buffer);
    }
}

void arena_fini(struct arena *arena)
{
    chunks_release(arena, NULL);
}

/* A buffer that holds at least `size` more bytes becomes the one to take from. */
static bool arena_grow(struct arena *arena, size_t size)
{
    size_t header = (sizeof(struct arena_chunk) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    size_t wanted = arena->used < CHUNK_BYTES_MIN ? CHUNK_BYTES_MIN : arena->used;
    wanted = wanted > CHUNK_BYTES_STEP_MAX ? CHUNK_BYTES_STEP_MAX : wanted;
    wanted = wanted < size + header ? size + header : wanted;
    if (size > arena->limit || wanted > arena->limit - arena->used) {
        return false;
    }
    struct buffer *buffer = buffer_create(wanted);
    if (buffer == NULL) {
        return false;
    }
    struct arena_chunk *chunk = (struct arena_chunk *)(void *)buffer->data;
    chunk->buffer = buffer;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->used += wanted;
    arena->position = (char *)buffer->data + header;
    arena->end = (char *)buffer->data + wanted;
    return true;
}

void *arena_allocate(struct arena *arena, size_t size)
{
    if (size > SIZE_MAX - 2 * ALIGNMENT - sizeof(struct arena_chunk)) {
        arena->exhausted = true;
        return NULL;
    }
    size_t rounded = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (rounded > (size_t)(arena->end - arena->position) && !arena_grow(arena, rounded)) {
        arena->exhausted = true;
        return NULL;
    }
    void *result = arena->position;
    arena->position += rounded;
    return result;
}

char *arena_copy(struct arena *arena, const char *bytes, size_t length)
{
    char *copy = arena_allocate(arena, length + 1);
    if (copy != NULL) {
        memcpy(copy, bytes, length);
        copy[length] = '\0';
    }
    return copy;
}

struct arena_mark arena_mark(const struct arena *arena)
{
    return (struct arena_mark){arena->position, arena->end, arena->chunks, arena->used};
}

void arena_reset(struct arena *arena, const struct arena_mark *mark)
{
    chunks_release(arena, mark->chunks);
    arena->position = mark->position;
    arena->end = mark->end;
    arena->used = mark->used;
    arena->exhausted = false;
}
