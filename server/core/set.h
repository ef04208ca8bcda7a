/* set.h: a set of slots: one bit each, walked in the order of the slots. A walk sees what is added
 * ahead of it and not what is taken away. A second layer has a bit for each word that is not zero:
 * a walk costs what is in the set and 4 reads for each 16384 slots. */
#ifndef TIDEPOOL_CORE_SET_H
#define TIDEPOOL_CORE_SET_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define SLOT_NONE UINT32_MAX

struct set {
    uint64_t *words;
    uint64_t *filled; /* words that are not zero, a bit each */
    uint32_t word_count, filled_count;
    uint32_t count; /* slots in it */
};

int core_set_reserve(struct set *set, uint32_t slots); /* -1: no memory, nothing lost */
void core_set_fini(struct set *set);
void core_set_clear(struct set *set);
void core_set_copy(struct set *to, const struct set *from); /* both of one size, here and below */
void core_set_join(struct set *to, const struct set *from);
uint32_t core_set_unused(const struct set *set); /* the lowest slot not in it */

static inline bool core_set_has(const struct set *set, uint32_t slot)
{
    return set->words[slot / 64] >> (slot % 64) & 1;
}

static inline void core_set_put(struct set *set, uint32_t slot, bool in)
{
    assert(slot / 64 < set->word_count);
    uint32_t index = slot / 64;
    uint64_t bit = UINT64_C(1) << (slot % 64), filled = UINT64_C(1) << (index % 64);
    uint64_t *word = &set->words[index];
    if (in != ((*word & bit) != 0)) {
        *word ^= bit;
        set->count += in ? 1 : UINT32_MAX;
        set->filled[index / 64] =
            *word != 0 ? set->filled[index / 64] | filled : set->filled[index / 64] & ~filled;
    }
}

/* The first word from this one on that is not zero in all of both sets, or word_count. */
static inline uint32_t core_set_word(const struct set *a, const struct set *b, uint32_t index)
{
    for (uint32_t i = index / 64; i < a->filled_count; i++) {
        uint64_t filled = a->filled[i] & b->filled[i];
        filled &= i == index / 64 ? UINT64_MAX << (index % 64) : UINT64_MAX;
        if (filled != 0) {
            return i * 64 + (uint32_t)__builtin_ctzll(filled);
        }
    }
    return a->word_count;
}

/* The first slot from this one on that is in both sets, of one size, or SLOT_NONE. */
static inline uint32_t core_set_next_in_both(const struct set *a, const struct set *b,
                                             uint32_t from)
{
    uint32_t index = from / 64;
    if (a->count == 0 || b->count == 0 || index >= a->word_count) {
        return SLOT_NONE;
    }
    uint64_t word = a->words[index] & b->words[index] & UINT64_MAX << (from % 64);
    while (word == 0) {
        index = core_set_word(a, b, index + 1);
        if (index == a->word_count) {
            return SLOT_NONE;
        }
        word = a->words[index] & b->words[index];
    }
    return index * 64 + (uint32_t)__builtin_ctzll(word);
}

/* The same of one set. */
static inline uint32_t core_set_next(const struct set *set, uint32_t from)
{
    return core_set_next_in_both(set, set, from);
}

#define SET_EACH_IN_BOTH(a, b, slot)                                                               \
    for (uint32_t slot = core_set_next_in_both(a, b, 0); slot != SLOT_NONE;                        \
         slot = core_set_next_in_both(a, b, slot + 1))

/* Some slot is in both, which may be of two sizes. */
static inline bool core_set_meets(const struct set *a, const struct set *b)
{
    const struct set *short_one = a->word_count < b->word_count ? a : b;
    return core_set_next_in_both(short_one, short_one == a ? b : a, 0) != SLOT_NONE;
}

#define SET_EACH(set, slot)                                                                        \
    for (uint32_t slot = core_set_next(set, 0); slot != SLOT_NONE;                                 \
         slot = core_set_next(set, slot + 1))

#endif
