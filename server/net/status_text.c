#include "server/net/status_text.h"

#include <stdbool.h>
#include <string.h>

#include "server/base/utf8.h"

static size_t escape_byte(unsigned char byte, bool edge, char *out)
{
    static const char digits[] = "0123456789ABCDEF";
    if (byte >= (edge ? 0x21 : 0x20) && byte <= 0x7E && byte != '%') {
        out[0] = (char)byte;
        return 1;
    }
    out[0] = '%';
    out[1] = digits[byte >> 4];
    out[2] = digits[byte & 15];
    return 3;
}

size_t status_text_encode(const char *text, char out[STATUS_TEXT_ENCODED_MAX])
{
    static const char replacement[] = "%EF%BF%BD"; /* U+FFFD */
    const unsigned char *bytes = (const unsigned char *)text;
    size_t left = strlen(text);
    size_t taken = 0, written = 0;
    while (left > 0) {
        size_t length = utf8_character_length(bytes, left);
        size_t step = length == 0 ? 1 : length;
        if (taken + step > STATUS_TEXT_BYTES_MAX) {
            break;
        }
        if (length == 0) {
            memcpy(out + written, replacement, sizeof replacement - 1);
            written += sizeof replacement - 1;
        }
        for (size_t i = 0; i < length; i++) {
            written += escape_byte(bytes[i], written == 0, out + written);
        }
        bytes += step;
        left -= step;
        taken += step;
    }
    /* A field value has no space at its ends: strict peers drop such a field. */
    if (written > 0 && out[written - 1] == ' ') {
        written += escape_byte(' ', true, out + written - 1) - 1;
    }
    return written;
}
