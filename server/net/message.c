#include "server/net/message.h"

#include <string.h>

static uint32_t length_read(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

void message_prefix_write(unsigned char *prefix, bool compressed, uint32_t length)
{
    prefix[0] = compressed ? 1 : 0;
    prefix[1] = (unsigned char)(length >> 24);
    prefix[2] = (unsigned char)(length >> 16);
    prefix[3] = (unsigned char)(length >> 8);
    prefix[4] = (unsigned char)length;
}

/* The prefix is whole: checks it, then reserves the message. */
static int message_begin(struct message_reader *reader, uint32_t length_max, struct error *error)
{
    reader->length = length_read(reader->prefix + 1);
    if (reader->prefix[0] > 1) {
        return error_set(error, ERROR_INTERNAL,
                         "message flag is %u; only 0 (plain) and 1 (compressed) exist",
                         reader->prefix[0]);
    }
    if (reader->length > length_max) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "message of %u bytes is over the limit of %u bytes; send less at once or "
                         "raise the server's message limit",
                         reader->length, length_max);
    }
    reader->buffer = buffer_create(reader->length > 0 ? reader->length : 1);
    if (reader->buffer == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "no memory for a message of %u bytes; try again later", reader->length);
    }
    return 0;
}

static size_t bytes_copy(unsigned char *target, size_t wanted, const unsigned char **data,
                         size_t *length)
{
    size_t count = wanted < *length ? wanted : *length;
    memcpy(target, *data, count);
    *data += count;
    *length -= count;
    return count;
}

int message_feed(struct message_reader *reader, uint32_t length_max, const unsigned char **data,
                 size_t *length, struct error *error)
{
    if (reader->buffer == NULL) {
        reader->prefix_length +=
            (uint32_t)bytes_copy(reader->prefix + reader->prefix_length,
                                 MESSAGE_PREFIX_BYTES - reader->prefix_length, data, length);
        if (reader->prefix_length < MESSAGE_PREFIX_BYTES) {
            return MESSAGE_PARTIAL;
        }
        int result = message_begin(reader, length_max, error);
        if (result < 0) {
            return result;
        }
    }
    struct buffer *buffer = reader->buffer;
    buffer->length +=
        bytes_copy(buffer->data + buffer->length, reader->length - buffer->length, data, length);
    return buffer->length == reader->length ? MESSAGE_WHOLE : MESSAGE_PARTIAL;
}

struct buffer *message_take(struct message_reader *reader, bool *ret_compressed)
{
    struct buffer *buffer = reader->buffer;
    *ret_compressed = reader->prefix[0] == 1;
    reader->buffer = NULL;
    reader->prefix_length = 0;
    return buffer;
}

bool message_is_between(const struct message_reader *reader)
{
    return reader->prefix_length == 0;
}

void message_reader_fini(struct message_reader *reader)
{
    buffer_release(reader->buffer);
    *reader = (struct message_reader){0};
}
