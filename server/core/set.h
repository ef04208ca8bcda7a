/* set.h: a set of slots: one bit each, walked in the order of the slots. A walk sees what is added
 * ahead of it and not what is taken away. Words of 64 make a walk over 16384 devices 256 reads. */
#ifndef TIDEPOOL_CORE_SET_H
#define TIDEPOOL_CORE_SET_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define SLOT_NONE UINT32_MAX

struct set {
    uint64_t *words;
    uint32_t word_count;
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
    uint64_t bit = UINT64_C(1) << (slot % 64);
    uint64_t *word = &set->words[slot / 64];
    if (in != ((*word & bit) != 0)) {
        *word ^= bit;
        set->count += in ? 1 : UINT32_MAX;
    }
}

/* The first slot in the set from this one on, or SLOT_NONE. */
static inline uint32_t core_set_next(const struct set *set, uint32_t from)
{
    uint32_t index = from / 64;
    if (set->count == 0 || index >= set->word_count) {
        return SLOT_NONE;
    }
    uint64_t word = set->words[index] & UINT64_MAX << (from % 64);
    while (word == 0 && ++index < set->word_count) {
        word = set->words[index];
    }
    return word != 0 ? index * 64 + (uint32_t)__builtin_ctzll(word) : SLOT_NONE;
}

/* The same of the slots that are in both, of one size. */
static inline uint32_t core_set_next_in_both(const struct set *a, const struct set *b,
                                             uint32_t from)
{
    uint32_t index = from / 64;
    if (a->count == 0 || b->count == 0 || index >= a->word_count) {
        return SLOT_NONE;
    }
    uint64_t word = a->words[index] & b->words[index] & UINT64_MAX << (from % 64);
    while (word == 0 && ++index < a->word_count) {
        word = a->words[index] & b->words[index];
    }
    return word != 0 ? index * 64 + (uint32_t)__builtin_ctzll(word) : SLOT_NONE;
}

#define SET_EACH_IN_BOTH(a, b, slot)                                                               \
    for (uint32_t slot = core_set_next_in_both(a, b, 0); slot != SLOT_NONE;                        \
         slot = core_set_next_in_both(a, b, slot + 1))

/* Some slot is in both. */
static inline bool core_set_meets(const struct set *a, const struct set *b)
{
    uint32_t words = a->word_count < b->word_count ? a->word_count : b->word_count;
    bool meets = false;
    for (uint32_t i = 0; i < words && a->count > 0 && b->count > 0 && !meets; i++) {
        meets = (a->words[i] & b->words[i]) != 0;
    }
    return meets;
}

#define SET_EACH(set, slot)                                                                        \
    for (uint32_t slot = core_set_next(set, 0); slot != SLOT_NONE;                                 \
         slot = core_set_next(set, slot + 1))

#endif
