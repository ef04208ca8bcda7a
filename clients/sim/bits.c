/* bits.c: one bit a member, 64 in a word. */
#include "clients/sim/bits.h"

#include <stdlib.h>

int bits_init(struct bits *bits, uint32_t size)
{
    *bits = (struct bits){.size = size};
    bits->words = calloc(size / 64 + 1, sizeof *bits->words);
    return bits->words != NULL ? 0 : -1;
}

void bits_fini(struct bits *bits)
{
    free(bits->words);
    *bits = (struct bits){0};
}

bool bits_has(const struct bits *bits, uint32_t member)
{
    return (bits->words[member / 64] >> (member % 64)) & 1;
}

void bits_set(struct bits *bits, uint32_t member, bool in)
{
    if (bits_has(bits, member) == in) {
        return;
    }
    bits->words[member / 64] ^= UINT64_C(1) << (member % 64);
    bits->count += in ? 1 : UINT32_MAX;
    if (in && member / 64 < bits->low) {
        bits->low = member / 64;
    }
}

uint32_t bits_first(struct bits *bits)
{
    if (bits->count == 0) {
        return BITS_NONE;
    }
    while (bits->words[bits->low] == 0) {
        bits->low++;
    }
    return bits->low * 64 + (uint32_t)__builtin_ctzll(bits->words[bits->low]);
}

uint32_t bits_first_of_both(const struct bits *a, const struct bits *b)
{
    if (a->count == 0 || b->count == 0) {
        return BITS_NONE;
    }
    for (uint32_t word = a->low; word <= a->size / 64; word++) {
        uint64_t both = a->words[word] & b->words[word];
        if (both != 0) {
            return word * 64 + (uint32_t)__builtin_ctzll(both);
        }
    }
    return BITS_NONE;
}
