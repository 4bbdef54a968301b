#include "engine/random.h"

#include <math.h>

uint64_t random_bits(uint64_t key, uint64_t counter)
{
    uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

uint64_t random_key(uint64_t seed, uint64_t stream)
{
    return random_bits(random_bits(seed, 0x6265727468), stream);
}

double random_normal(uint64_t key, uint64_t counter)
{
    const double pi = 3.14159265358979323846;
    /* in (0, 1], so that the logarithm is finite */
    double u = ((double)(random_bits(key, 2 * counter) >> 11) + 1) * 0x1p-53;
    double v = (double)(random_bits(key, 2 * counter + 1) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * pi * v);
}

static int half_bits(uint64_t n)
{
    int bits = 1;
    while (bits < 32 && (n - 1) >> (2 * bits))
        bits++;
    return bits;
}

uint64_t random_permute(uint64_t key, uint64_t i, uint64_t n)
{
    int half = half_bits(n);
    uint64_t mask = (1ULL << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (random_bits(key, (round << 32) | right) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
