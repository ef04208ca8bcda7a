/* bytes.h: bytes that grow, and numbers in them: as protobuf writes them (base/wire.h reads them).
 */
#ifndef TIDEPOOL_RECORD_BYTES_H
#define TIDEPOOL_RECORD_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/wire.h"

#define RECORD_NUMBER_MAX 10 /* bytes of one */

struct record_bytes {
    unsigned char *data;
    size_t length, capacity;
    bool failed; /* no memory: what is here is not whole */
};

void record_bytes_fini(struct record_bytes *bytes);
void record_put_number(struct record_bytes *bytes, uint64_t value);
void record_put_signed(struct record_bytes *bytes, int64_t value); /* small ones of both signs */
void record_put_text(struct record_bytes *bytes, const char *text);

/* Reading: a number is wire_varint(reader, RECORD_NUMBER_MAX, …). */
bool record_get_signed(struct wire_reader *reader, int64_t *ret_value);
/* At most size - 1 bytes, ended by 0. */
bool record_get_text(struct wire_reader *reader, char *text, size_t size);

#endif
