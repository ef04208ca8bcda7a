/* message.h: the 5-byte prefix and its message, out of any split of bytes.
 * Memory:  a message's buffer is reserved once, of the exact size, after the size was checked. */
#ifndef TIDEPOOL_NET_MESSAGE_H
#define TIDEPOOL_NET_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/buffer.h"
#include "server/base/error.h"

#define MESSAGE_PREFIX_BYTES 5

struct message_reader {
    unsigned char prefix[MESSAGE_PREFIX_BYTES];
    uint32_t prefix_length; /* bytes of the prefix seen */
    uint32_t length;        /* announced, once the prefix is whole */
    struct buffer *buffer;  /* NULL until the prefix is whole */
};

enum message_progress { MESSAGE_PARTIAL, MESSAGE_WHOLE };

/* Takes what it can of *data, moving it and *length on. MESSAGE_WHOLE: one message is complete,
 * message_take gives it. Negative: RESOURCE_EXHAUSTED over `length_max`, INTERNAL for a flag byte
 * other than 0 and 1. */
int message_feed(struct message_reader *reader, uint32_t length_max, const unsigned char **data,
                 size_t *length, struct error *error);
/* The message, which is now the caller's; the reader starts anew. */
struct buffer *message_take(struct message_reader *reader, bool *ret_compressed);
/* True between messages: nothing of the next one has come. */
bool message_is_between(const struct message_reader *reader);
void message_reader_fini(struct message_reader *reader);
void message_prefix_write(unsigned char *prefix, bool compressed, uint32_t length);

#endif
