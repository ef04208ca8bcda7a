#include "server/base/buffer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Size classes 1 KiB, 2 KiB … 128 MiB; larger blocks are made and unmade each time. Four classes
 * between two powers of two would waste less, but a body lives for milliseconds only. */
#define CLASS_SHIFT_MIN 10
#define CLASS_COUNT 18
#define MAPPED_BYTES_MIN ((size_t)64 << 10)
#define IDLE_BYTES_MAX ((size_t)256 << 20)
#define BUFFER_ALIGNMENT ((size_t)64)

struct block {
    struct buffer buffer; /* first: a buffer's address is its block's */
    _Atomic uint32_t holders;
    uint32_t class;
    struct block *next; /* in the pool's list */
};

static struct {
    pthread_mutex_t lock;
    struct block *idle[CLASS_COUNT];
    size_t idle_bytes;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t class_of(size_t capacity)
{
    uint32_t class = 0;
    while (class < CLASS_COUNT && ((size_t)1 << (class + CLASS_SHIFT_MIN)) < capacity) {
        class ++;
    }
    return class;
}

static void *mapping_create(size_t bytes)
{
    void *data;
    int fd = memfd_create("tidepool-buffer", MFD_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    data = ftruncate(fd, (off_t)bytes) < 0
               ? MAP_FAILED
               : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd); /* the mapping keeps the memory */
    return data == MAP_FAILED ? NULL : data;
}

static void block_free(struct block *block)
{
    if (block->buffer.capacity >= MAPPED_BYTES_MIN) {
        (void)munmap(block->buffer.data, block->buffer.capacity);
    } else {
        free(block->buffer.data);
    }
    free(block);
}

static struct block *block_create(uint32_t class, size_t capacity)
{
    struct block *block = calloc(1, sizeof(*block));
    if (block == NULL) {
        return NULL;
    }
    block->class = class;
    block->buffer.capacity = class < CLASS_COUNT ? (size_t)1 << (class + CLASS_SHIFT_MIN)
                                                 : (capacity + 4095) / 4096 * 4096;
    block->buffer.data = block->buffer.capacity >= MAPPED_BYTES_MIN
                             ? mapping_create(block->buffer.capacity)
                             : aligned_alloc(BUFFER_ALIGNMENT, block->buffer.capacity);
    if (block->buffer.data == NULL) {
        free(block);
        return NULL;
    }
    return block;
}

struct buffer *buffer_create(size_t capacity)
{
    struct block *block = NULL;
    uint32_t class = class_of(capacity);
    if (capacity > SIZE_MAX / 2) {
        return NULL;
    }
    if (class < CLASS_COUNT) {
        (void)pthread_mutex_lock(&pool.lock);
        block = pool.idle[class];
        if (block != NULL) {
            pool.idle[class] = block->next;
            pool.idle_bytes -= block->buffer.capacity;
        }
        (void)pthread_mutex_unlock(&pool.lock);
    }
    if (block == NULL) {
        block = block_create(class, capacity);
        if (block == NULL) {
            return NULL;
        }
    }
    block->buffer.length = 0;
    atomic_store_explicit(&block->holders, 1, memory_order_relaxed);
    return &block->buffer;
}

struct buffer *buffer_hold(struct buffer *buffer)
{
    struct block *block = (struct block *)buffer;
    atomic_fetch_add_explicit(&block->holders, 1, memory_order_relaxed);
    return buffer;
}

void buffer_release(struct buffer *buffer)
{
    struct block *block = (struct block *)buffer;
    if (block == NULL || atomic_fetch_sub_explicit(&block->holders, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (block->class < CLASS_COUNT) {
        (void)pthread_mutex_lock(&pool.lock);
        if (pool.idle_bytes + block->buffer.capacity <= IDLE_BYTES_MAX) {
            block->next = pool.idle[block->class];
            pool.idle[block->class] = block;
            pool.idle_bytes += block->buffer.capacity;
            block = NULL;
        }
        (void)pthread_mutex_unlock(&pool.lock);
    }
    if (block != NULL) {
        block_free(block);
    }
}

void buffer_pool_trim(void)
{
    struct block *all = NULL;
    (void)pthread_mutex_lock(&pool.lock);
    for (size_t class = 0; class < CLASS_COUNT; class ++) {
        while (pool.idle[class] != NULL) {
            struct block *block = pool.idle[class];
            pool.idle[class] = block->next;
            block->next = all;
            all = block;
        }
    }
    pool.idle_bytes = 0;
    (void)pthread_mutex_unlock(&pool.lock);
    while (all != NULL) {
        struct block *next = all->next;
        block_free(all);
        all = next;
    }
}
