/* set.c: see set.h. */
#include "server/core/set.h"

#include <stdlib.h>
#include <string.h>

static int words_grow(uint64_t **words, uint32_t *count, uint32_t wanted)
{
    if (wanted <= *count) {
        return 0;
    }
    uint64_t *grown = realloc(*words, wanted * sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    memset(&grown[*count], 0, (wanted - *count) * sizeof *grown);
    *words = grown;
    *count = wanted;
    return 0;
}

int core_set_reserve(struct set *set, uint32_t slots)
{
    uint32_t wanted = (slots + 63) / 64;
    if (words_grow(&set->filled, &set->filled_count, (wanted + 63) / 64) < 0) {
        return -1;
    }
    return words_grow(&set->words, &set->word_count, wanted);
}

void core_set_fini(struct set *set)
{
    free(set->words);
    free(set->filled);
    *set = (struct set){0};
}

void core_set_clear(struct set *set)
{
    for (uint32_t i = 0; i < set->filled_count && set->count > 0; i++) {
        for (; set->filled[i] != 0; set->filled[i] &= set->filled[i] - 1) {
            set->words[i * 64 + (uint32_t)__builtin_ctzll(set->filled[i])] = 0;
        }
    }
    set->count = 0;
}

void core_set_copy(struct set *to, const struct set *from)
{
    core_set_clear(to);
    core_set_join(to, from);
}

void core_set_join(struct set *to, const struct set *from)
{
    assert(to->word_count == from->word_count);
    for (uint32_t i = core_set_word(from, from, 0); i < from->word_count;
         i = core_set_word(from, from, i + 1)) {
        for (uint64_t fresh = from->words[i] & ~to->words[i]; fresh != 0; fresh &= fresh - 1) {
            to->count++;
        }
        to->words[i] |= from->words[i];
        to->filled[i / 64] |= UINT64_C(1) << (i % 64);
    }
}

uint32_t core_set_unused(const struct set *set)
{
    for (uint32_t i = 0; i < set->word_count; i++) {
        if (set->words[i] != UINT64_MAX) {
            return i * 64 + (uint32_t)__builtin_ctzll(~set->words[i]);
        }
    }
    return set->word_count * 64;
}
