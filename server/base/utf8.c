#include "server/base/utf8.h"

#include <stdint.h>
#include <string.h>

size_t utf8_character_length(const unsigned char *at, size_t left)
{
    unsigned char first = at[0];
    if (first < 0x80) {
        return 1;
    }
    size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (length == 0 || length > left) {
        return 0;
    }
    unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < low || at[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return length;
}

bool utf8_is_valid(struct wire_text text)
{
    const unsigned char *at = text.data;
    size_t left = text.length;
    while (left > 0) {
        uint64_t word;
        if (left >= sizeof(word)) {
            memcpy(&word, at, sizeof(word));
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof(word);
                left -= sizeof(word);
                continue;
            }
        }
        size_t length = utf8_character_length(at, left);
        if (length == 0) {
            return false;
        }
        at += length;
        left -= length;
    }
    return true;
}
