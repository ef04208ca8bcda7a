/* random.h: random numbers that depend on the seed and on nothing else. */
#ifndef TIDEPOOL_MODELS_NATIVE_RANDOM_H
#define TIDEPOOL_MODELS_NATIVE_RANDOM_H

#include <stdint.h>

/* Scrambles 64 bits: a bijection, and a good hash of a counter. */
static inline uint64_t random_scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The `index`-th number of stream `seed`. */
static inline uint64_t random_at(uint64_t seed, uint64_t index)
{
    return random_scramble(random_scramble(seed) ^ random_scramble(~index));
}

/* In [-1, 1), from the top 24 bits: exact in float32. */
static inline float random_signed_unit(uint64_t bits)
{
    return (float)((int64_t)(bits >> 40) - (INT64_C(1) << 23)) / (float)(INT64_C(1) << 23);
}

#endif
