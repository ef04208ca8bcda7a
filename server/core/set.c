/* set.c: see set.h. */
#include "server/core/set.h"

#include <stdlib.h>
#include <string.h>

int core_set_reserve(struct set *set, uint32_t slots)
{
    uint32_t wanted = (slots + 63) / 64;
    if (wanted <= set->word_count) {
        return 0;
    }
    uint64_t *grown = realloc(set->words, wanted * sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    memset(&grown[set->word_count], 0, (wanted - set->word_count) * sizeof *grown);
    set->words = grown;
    set->word_count = wanted;
    return 0;
}

void core_set_fini(struct set *set)
{
    free(set->words);
    *set = (struct set){0};
}

void core_set_clear(struct set *set)
{
    if (set->count > 0) {
        memset(set->words, 0, set->word_count * sizeof *set->words);
        set->count = 0;
    }
}

void core_set_copy(struct set *to, const struct set *from)
{
    assert(to->word_count == from->word_count);
    if (to->count > 0 || from->count > 0) {
        memcpy(to->words, from->words, from->word_count * sizeof *from->words);
        to->count = from->count;
    }
}

void core_set_join(struct set *to, const struct set *from)
{
    assert(to->word_count == from->word_count);
    for (uint32_t i = 0; i < from->word_count && from->count > 0; i++) {
        for (uint64_t fresh = from->words[i] & ~to->words[i]; fresh != 0; fresh &= fresh - 1) {
            to->count++;
        }
        to->words[i] |= from->words[i];
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
