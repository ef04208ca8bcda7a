/* vector.h: large vectors of float32 with a count of holders, and a pool that reuses them.
 * Rule:    a vector is written only by the one who took it from the pool, before others hold it.
 *          A thread that is given up on keeps its hold, so nothing is written or freed under it.
 * Thread:  any; hold and release are safe from every thread. */
#ifndef TIDEPOOL_TRAIN_VECTOR_H
#define TIDEPOOL_TRAIN_VECTOR_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct vector_pool;

struct vector {
    float *data; /* 64-byte aligned */
    struct vector_pool *pool;
    struct vector *next;
    _Atomic uint32_t holders;
};

/* The pool lives until its owner has destroyed it and the last vector has come back. */
struct vector_pool *vector_pool_create(size_t length); /* floats each; NULL: no memory */
void vector_pool_destroy(struct vector_pool *pool);    /* NULL is fine */

struct vector *vector_take(struct vector_pool *pool); /* contents undefined; NULL: no memory */
struct vector *vector_hold(struct vector *vector);
void vector_release(struct vector *vector); /* NULL is fine */

#endif
