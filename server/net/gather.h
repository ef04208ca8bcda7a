/* gather.h: bytes on their way to a socket, gathered so that one wakeup makes one write. */
#ifndef TIDEPOOL_NET_GATHER_H
#define TIDEPOOL_NET_GATHER_H

#include <stdbool.h>
#include <stddef.h>

/* About as much as one write takes: a frame that begins below it still goes in. */
#define GATHER_BYTES_MAX ((size_t)256 * 1024)

struct gather {
    unsigned char *data;
    size_t length, capacity;
    bool full; /* a frame did not fit any more: send, then go on */
};

bool gather_init(struct gather *gather);
void gather_fini(struct gather *gather);
bool gather_reserve(struct gather *gather, size_t length); /* false: no memory */
bool gather_add(struct gather *gather, const void *bytes, size_t length);

#endif
