#include "server/net/compression.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <zlib.h>

#define GROWTH_FIRST 4 /* times the compressed size: most data shrinks by less */
#define CAPACITY_MIN 256

static const struct {
    const char *name;
    int window_bits; /* 15: zlib's format, + 16: gzip's */
} codings[COMPRESSION_COUNT] = {
    [COMPRESSION_IDENTITY] = {"identity", 0},
    [COMPRESSION_DEFLATE] = {"deflate", MAX_WBITS},
    [COMPRESSION_GZIP] = {"gzip", MAX_WBITS + 16},
};

enum compression compression_parse(const char *name, size_t length)
{
    for (int i = 0; i < COMPRESSION_COUNT; i++) {
        if (strlen(codings[i].name) == length && memcmp(codings[i].name, name, length) == 0) {
            return (enum compression)i;
        }
    }
    return COMPRESSION_UNKNOWN;
}

const char *compression_name(enum compression compression)
{
    return codings[compression].name;
}

enum compression compression_choose(const char *list, size_t length)
{
    enum compression best = COMPRESSION_IDENTITY;
    size_t start = 0;
    for (size_t i = 0; i <= length; i++) {
        if (i < length && list[i] != ',') {
            continue;
        }
        size_t end = i;
        while (start < end && list[start] == ' ') {
            start++;
        }
        while (end > start && list[end - 1] == ' ') {
            end--;
        }
        enum compression found = compression_parse(list + start, end - start);
        if (found != COMPRESSION_UNKNOWN && found > best) {
            best = found;
        }
        start = i + 1;
    }
    return best;
}

/* Four times the capacity, or all that is allowed when that is near: what was outgrown and what is
 * in use together stay well under twice the limit. */
static size_t capacity_next(size_t capacity, size_t limit)
{
    return capacity > limit / 8 ? limit : capacity * 4;
}

/* The bytes move over to a larger buffer. */
static int buffer_grow(struct buffer **buffer, size_t used, size_t capacity)
{
    struct buffer *larger = buffer_create(capacity);
    if (larger == NULL) {
        return -ERROR_RESOURCE_EXHAUSTED;
    }
    memcpy(larger->data, (*buffer)->data, used);
    buffer_release(*buffer);
    *buffer = larger;
    return 0;
}

static int inflate_error(int code, const z_stream *stream, uint32_t length_max, bool full,
                         struct error *error)
{
    if (full) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "message inflates to more than the limit of %u bytes; send less at once "
                         "or raise the server's message limit",
                         length_max);
    }
    if (code == Z_MEM_ERROR) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory to inflate a message");
    }
    return error_set(error, ERROR_INTERNAL, "compressed message is broken: %s",
                     stream->msg != NULL ? stream->msg : "it is cut short or has bytes after it");
}

/* Inflates into *buffer, growing it; the caller owns both whatever happens. */
static int inflate_all(z_stream *stream, uint32_t length_max, struct buffer **buffer,
                       struct error *error)
{
    size_t limit = (size_t)length_max + 1; /* one more byte tells "over" from "just full" */
    for (;;) {
        size_t capacity = (*buffer)->capacity < limit ? (*buffer)->capacity : limit;
        stream->next_out = (*buffer)->data + stream->total_out;
        stream->avail_out = (uInt)(capacity - stream->total_out);
        int code = inflate(stream, Z_NO_FLUSH);
        if (stream->total_out > length_max) {
            return inflate_error(code, stream, length_max, true, error);
        }
        if (code == Z_STREAM_END && stream->avail_in == 0) {
            (*buffer)->length = stream->total_out;
            return 0;
        }
        if (code != Z_OK || stream->avail_out > 0) {
            return inflate_error(code, stream, length_max, false, error);
        }
        if (buffer_grow(buffer, stream->total_out, capacity_next(capacity, limit)) < 0) {
            return inflate_error(Z_MEM_ERROR, stream, length_max, false, error);
        }
    }
}

int compression_inflate(enum compression compression, const unsigned char *data, size_t length,
                        uint32_t length_max, struct buffer **ret_buffer, struct error *error)
{
    if (compression == COMPRESSION_UNKNOWN) {
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "message is compressed with an unknown coding; known are %s",
                         COMPRESSION_ACCEPTED);
    }
    if (compression == COMPRESSION_IDENTITY) {
        return error_set(error, ERROR_INTERNAL,
                         "message is flagged compressed, but grpc-encoding names no coding");
    }
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)length};
    if (length > UINT_MAX || inflateInit2(&stream, codings[compression].window_bits) != Z_OK) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory to inflate a message");
    }
    size_t wanted = length * GROWTH_FIRST;
    wanted = wanted < CAPACITY_MIN ? CAPACITY_MIN : wanted;
    wanted = wanted > (size_t)length_max + 1 ? (size_t)length_max + 1 : wanted;
    int result = -ERROR_RESOURCE_EXHAUSTED;
    struct buffer *buffer = buffer_create(wanted);
    if (buffer == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory to inflate a message");
        goto out;
    }
    result = inflate_all(&stream, length_max, &buffer, error);
    if (result == 0) {
        *ret_buffer = buffer;
        buffer = NULL;
    }
out:
    buffer_release(buffer);
    inflateEnd(&stream);
    return result;
}

int compression_deflate(enum compression compression, const unsigned char *data, size_t length,
                        size_t offset, struct buffer **ret_buffer)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)length};
    if (length > UINT_MAX ||
        deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, codings[compression].window_bits,
                     MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK) {
        return -ERROR_RESOURCE_EXHAUSTED;
    }
    int result = -ERROR_RESOURCE_EXHAUSTED;
    size_t bound = deflateBound(&stream, length);
    struct buffer *buffer = bound <= UINT_MAX ? buffer_create(offset + bound) : NULL;
    if (buffer != NULL) {
        stream.next_out = buffer->data + offset;
        stream.avail_out = (uInt)bound;
        if (deflate(&stream, Z_FINISH) == Z_STREAM_END) {
            buffer->length = offset + stream.total_out;
            *ret_buffer = buffer;
            buffer = NULL;
            result = 0;
        }
    }
    buffer_release(buffer);
    deflateEnd(&stream);
    return result;
}
