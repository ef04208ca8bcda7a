/* pbtxt.h: protocol buffers' text format, read into a tree without knowing the message.
 * Bounds:  PBTXT_BYTES_MAX of text, PBTXT_DEPTH_MAX levels, PBTXT_FIELDS_MAX fields in all.
 * Lists:   `dims: [1, 2]` is the same as `dims: 1 dims: 2`.
 * Owner:   the tree is the caller's; pbtxt_free frees it.
 * Thread:  any; no shared state. */
#ifndef TIDEPOOL_SERVE_PBTXT_H
#define TIDEPOOL_SERVE_PBTXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

#define PBTXT_BYTES_MAX ((size_t)1 << 20)
#define PBTXT_DEPTH_MAX 32
#define PBTXT_FIELDS_MAX 65536

enum pbtxt_kind {
    PBTXT_WORD,    /* a number, true, TYPE_FP32: as it stands in the text */
    PBTXT_STRING,  /* quoted: without quotes and escapes */
    PBTXT_MESSAGE, /* { … } */
};

struct pbtxt_field {
    char *name;
    enum pbtxt_kind kind;
    char *text; /* NUL at the end; a NUL inside a string is refused */
    unsigned line;
    struct pbtxt_field *first, *next; /* a message's fields; the next of the same message */
};

/* NULL with an error that names line and column. The root is a message without a name; an empty
 * text gives one without fields. */
struct pbtxt_field *pbtxt_parse(const char *text, size_t length, const char *where,
                                struct error *error);
void pbtxt_free(struct pbtxt_field *field); /* with all that follows it; NULL is fine */

/* -1: not a whole number between the bounds. Decimal, 0x… and octal, as protocol buffers read. */
int pbtxt_integer(const struct pbtxt_field *field, int64_t minimum, int64_t maximum,
                  int64_t *ret_value);

#endif
