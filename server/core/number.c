/* number.c: arithmetic that cannot overflow, averages, hashes and secrets. */
#include "server/core/state.h"

uint64_t core_scale_u64(uint64_t value, uint64_t times, uint64_t by)
{
    assert(by > 0);
    uint64_t product;
    if (!__builtin_mul_overflow(value, times, &product)) {
        return product / by; /* a division of wide numbers takes much longer */
    }
    return core_sum_clip((core_sum_ns)value * times / by);
}

core_sum_ns core_scale_sum(core_sum_ns sum, uint64_t part, uint64_t whole)
{
    assert(part <= whole && whole > 0);
    return sum / whole * part + sum % whole * part / whole;
}

uint64_t core_sum_clip(core_sum_ns sum)
{
    return sum > UINT64_MAX ? UINT64_MAX : (uint64_t)sum;
}

uint64_t core_multiply_u64(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t core_add_u64(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t core_average_u64(uint64_t average, uint64_t sample, uint64_t weight, uint64_t window)
{
    if (weight >= window) {
        return sample;
    }
    if (sample >= average) {
        return average + core_scale_u64(sample - average, weight, window);
    }
    /* Rounded away from the old value, so that an average of zeros ends at zero. */
    uint64_t step = core_scale_u64(average - sample, weight, window);
    return average - (step < average - sample ? step + 1 : step);
}

/* Halved for every half-life of age; between these in a straight line. */
uint64_t core_decay_u64(uint64_t value, uint64_t age, uint64_t half_life)
{
    uint64_t halvings = age / half_life;
    value = halvings < 64 ? value >> halvings : 0;
    return value - core_scale_u64(value, age % half_life, 2 * half_life);
}

/* As FNV-1a does with bytes, by words; the shift lets high bits reach low ones. */
uint64_t core_hash_u64(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static void sip_rounds(uint64_t v[4], int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[0] = rotate(v[0], 32);
        v[2] += v[3];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

/* SipHash-2-4 of (epoch, generation) under the seed: knowing some tokens tells nothing about the
 * others, and a replay draws the same ones. */
uint64_t core_secret(const uint64_t seed[2], uint64_t epoch, uint64_t generation)
{
    const uint64_t words[3] = {epoch, generation, UINT64_C(16) << 56};
    uint64_t v[4] = {
        seed[0] ^ UINT64_C(0x736f6d6570736575),
        seed[1] ^ UINT64_C(0x646f72616e646f6d),
        seed[0] ^ UINT64_C(0x6c7967656e657261),
        seed[1] ^ UINT64_C(0x7465646279746573),
    };
    for (int i = 0; i < 3; i++) {
        v[3] ^= words[i];
        sip_rounds(v, 2);
        v[0] ^= words[i];
    }
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
