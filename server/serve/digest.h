/* digest.h: SHA-256 of files and texts as hexadecimal digits, to know a model again.
 * Thread: any; no shared state. */
#ifndef TIDEPOOL_SERVE_DIGEST_H
#define TIDEPOOL_SERVE_DIGEST_H

#include "server/base/error.h"

#define DIGEST_TEXT_SIZE 65

/* Of the file's bytes (`path` NULL: none) followed by the text's. */
int digest_compute(const char *path, const char *text, char ret_digest[DIGEST_TEXT_SIZE],
                   struct error *error);

#endif
