#include "server/train/vector.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct vector_pool {
    size_t length;
    struct {
        pthread_mutex_t lock;
        struct vector *idle;
        size_t out; /* vectors that somebody holds */
        bool closed;
    } shared;
};

struct vector_pool *vector_pool_create(size_t length)
{
    struct vector_pool *pool = calloc(1, sizeof(*pool));
    if (pool != NULL) {
        pool->length = length;
        (void)pthread_mutex_init(&pool->shared.lock, NULL);
    }
    return pool;
}

static void vector_free(struct vector *vector)
{
    free(vector->data);
    free(vector);
}

static void pool_free(struct vector_pool *pool)
{
    while (pool->shared.idle != NULL) {
        struct vector *vector = pool->shared.idle;
        pool->shared.idle = vector->next;
        vector_free(vector);
    }
    (void)pthread_mutex_destroy(&pool->shared.lock);
    free(pool);
}

void vector_pool_destroy(struct vector_pool *pool)
{
    bool last;
    if (pool == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&pool->shared.lock);
    pool->shared.closed = true;
    last = pool->shared.out == 0;
    (void)pthread_mutex_unlock(&pool->shared.lock);
    if (last) {
        pool_free(pool);
    }
}

static struct vector *vector_create(struct vector_pool *pool)
{
    void *data = NULL;
    struct vector *vector = calloc(1, sizeof(*vector));
    if (vector == NULL || posix_memalign(&data, 64, pool->length * sizeof(float)) != 0) {
        free(vector);
        return NULL;
    }
    vector->data = data;
    vector->pool = pool;
    return vector;
}

struct vector *vector_take(struct vector_pool *pool)
{
    struct vector *vector;
    (void)pthread_mutex_lock(&pool->shared.lock);
    vector = pool->shared.idle;
    if (vector != NULL) {
        pool->shared.idle = vector->next;
    }
    pool->shared.out++;
    (void)pthread_mutex_unlock(&pool->shared.lock);
    if (vector == NULL) {
        vector = vector_create(pool);
    }
    if (vector == NULL) {
        (void)pthread_mutex_lock(&pool->shared.lock);
        pool->shared.out--; /* the pool's owner is the caller, so it cannot be closed yet */
        (void)pthread_mutex_unlock(&pool->shared.lock);
        return NULL;
    }
    atomic_store(&vector->holders, 1);
    return vector;
}

struct vector *vector_hold(struct vector *vector)
{
    atomic_fetch_add(&vector->holders, 1);
    return vector;
}

void vector_release(struct vector *vector)
{
    struct vector_pool *pool;
    bool last;
    if (vector == NULL || atomic_fetch_sub(&vector->holders, 1) != 1) {
        return;
    }
    pool = vector->pool;
    (void)pthread_mutex_lock(&pool->shared.lock);
    vector->next = pool->shared.idle;
    pool->shared.idle = vector;
    pool->shared.out--;
    last = pool->shared.closed && pool->shared.out == 0;
    (void)pthread_mutex_unlock(&pool->shared.lock);
    if (last) {
        pool_free(pool);
    }
}
