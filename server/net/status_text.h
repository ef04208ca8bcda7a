/* status_text.h: what a status text looks like in the grpc-message trailer. */
#ifndef TIDEPOOL_NET_STATUS_TEXT_H
#define TIDEPOOL_NET_STATUS_TEXT_H

#include <stddef.h>

#define STATUS_TEXT_BYTES_MAX 1024
/* Each byte may become %XX, an invalid one the three escapes of U+FFFD. */
#define STATUS_TEXT_ENCODED_MAX (STATUS_TEXT_BYTES_MAX * 9)

/* Percent-encodes at most STATUS_TEXT_BYTES_MAX bytes of `text`, cut at a whole character; bytes
 * that are not UTF-8 become U+FFFD. Returns the length written to `out` (no zero at the end). */
size_t status_text_encode(const char *text, char out[STATUS_TEXT_ENCODED_MAX]);

#endif
