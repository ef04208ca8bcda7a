/* compression.h: gzip and deflate (zlib's format) of single messages, by zlib.
 * Bound:   inflating stops at the limit, so that a bomb costs at most the limit. */
#ifndef TIDEPOOL_NET_COMPRESSION_H
#define TIDEPOOL_NET_COMPRESSION_H

#include <stddef.h>
#include <stdint.h>

#include "server/base/buffer.h"
#include "server/base/error.h"

enum compression {
    COMPRESSION_IDENTITY,
    COMPRESSION_DEFLATE,
    COMPRESSION_GZIP,
    COMPRESSION_COUNT,
    COMPRESSION_UNKNOWN = COMPRESSION_COUNT,
};
#define COMPRESSION_ACCEPTED "identity,deflate,gzip"

enum compression compression_parse(const char *name, size_t length);
const char *compression_name(enum compression compression);
/* The best of a grpc-accept-encoding list, IDENTITY when there is none that we know. */
enum compression compression_choose(const char *list, size_t length);

/* A new buffer with the whole inflated message. RESOURCE_EXHAUSTED over `length_max`, INTERNAL
 * for broken, cut or trailing bytes, UNIMPLEMENTED for an unknown coding. */
int compression_inflate(enum compression compression, const unsigned char *data, size_t length,
                        uint32_t length_max, struct buffer **ret_buffer, struct error *error);
/* A new buffer whose bytes from `offset` on are the compressed message. */
int compression_deflate(enum compression compression, const unsigned char *data, size_t length,
                        size_t offset, struct buffer **ret_buffer);

#endif
