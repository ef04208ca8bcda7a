/* random.h: random numbers that depend on their seed and on nothing else.
 * splitmix64: small, and good enough for the times and sizes of a workload. */
#ifndef TIDEPOOL_BASE_RANDOM_H
#define TIDEPOOL_BASE_RANDOM_H

#include <stdint.h>

/* The state is the seed; it moves on with every number. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* In (0, 1], so that its logarithm is finite. */
static inline double random_unit(uint64_t *state)
{
    return (double)((random_next(state) >> 11) + 1) * 0x1p-53;
}

#endif
