#include "server/train/order.h"

#include "models/native/random.h"

#define ROUNDS 6

/* A Feistel network over the smallest even number of bits that holds `count`; values outside the
 * range walk on along their cycle until they are inside, which keeps it a bijection. */
uint64_t order_row(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t count)
{
    unsigned half = 1;
    uint64_t key = random_at(seed, epoch);
    while (half < 32 && (UINT64_C(1) << (2 * half)) < count) {
        half++;
    }
    do {
        uint64_t mask = (UINT64_C(1) << half) - 1;
        uint64_t left = index >> half, right = index & mask;
        for (unsigned round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (random_scramble(key + right + ((uint64_t)round << 40)) & mask);
            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}
