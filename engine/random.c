#include "engine/random.h"

#include "kernels/counter.h"

uint64_t random_bits(uint64_t key, uint64_t counter)
{
    return counter_bits(key, counter);
}

uint64_t random_key(uint64_t seed, uint64_t stream)
{
    return random_bits(random_bits(seed, 0x6265727468), stream);
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
