/* buffer.h: pooled blocks of memory with a count of holders, for message bodies and tensors.
 * Why:     a fresh 600 kB malloc per request costs more than the copy into it (page faults);
 *          blocks go back to a pool of their size class instead, up to a bound per process.
 * Layout:  `data` is 64-byte aligned; blocks of 64 KiB and more come from memfd mappings so that
 *          a worker in another process can map them later.
 * Thread:  any; create, hold and release are safe from every thread. */
#ifndef TIDEPOOL_BASE_BUFFER_H
#define TIDEPOOL_BASE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct buffer {
    unsigned char *data;
    size_t length;   /* bytes in use, for the holder to set */
    size_t capacity; /* at least what was asked for */
};

struct buffer *buffer_create(size_t capacity);     /* length 0; NULL: no memory */
struct buffer *buffer_hold(struct buffer *buffer); /* one more holder; returns `buffer` */
void buffer_release(struct buffer *buffer);        /* NULL is fine; last one returns it */
void buffer_pool_trim(void);                       /* gives the pool's idle blocks back */

#endif
