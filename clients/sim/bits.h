/* bits.h: sets of small numbers: which devices are idle, which jobs wait.
 * Capacity: fixed at init; members are 0 .. size - 1. Thread: plain values. */
#ifndef TIDEPOOL_CLIENTS_SIM_BITS_H
#define TIDEPOOL_CLIENTS_SIM_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITS_NONE UINT32_MAX

struct bits {
    uint64_t *words;
    uint32_t size, count;
    uint32_t low; /* no member is in a word before this one */
};

int bits_init(struct bits *bits, uint32_t size); /* empty; -1: no memory */
void bits_fini(struct bits *bits);
void bits_set(struct bits *bits, uint32_t member, bool in);
bool bits_has(const struct bits *bits, uint32_t member);
uint32_t bits_first(struct bits *bits); /* the lowest, or BITS_NONE */
/* The lowest that is in both; the sets have the same size. */
uint32_t bits_first_of_both(const struct bits *a, const struct bits *b);

#endif
