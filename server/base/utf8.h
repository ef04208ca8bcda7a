/* utf8.h: which bytes are UTF-8. Overlong forms, surrogates and what is beyond U+10FFFF are not. */
#ifndef TIDEPOOL_BASE_UTF8_H
#define TIDEPOOL_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "server/base/wire.h"

/* Bytes of the character at `at`, of which `left` (at least 1) may be read; 0: none begins here,
 * or it is cut. */
size_t utf8_character_length(const unsigned char *at, size_t left);
bool utf8_is_valid(struct wire_text text);

#endif
