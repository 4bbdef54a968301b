/* Random numbers by counters: element i of a stream depends on its key and i alone, so that neither
 * sharding nor threads change it. */
#ifndef KERNELS_COUNTER_H
#define KERNELS_COUNTER_H

#include <math.h>
#include <stdint.h>

#define COUNTER_TWO_PI (2 * 3.14159265358979323846)

static inline uint64_t counter_bits(uint64_t key, uint64_t counter)
{
    uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

/* Normal(0, 1) (Box and Muller 1958), as the C library computes it. */
static inline double counter_normal(uint64_t key, uint64_t counter)
{
    /* in (0, 1], so that the logarithm is finite */
    double u = ((double)(counter_bits(key, 2 * counter) >> 11) + 1) * 0x1p-53;
    double v = (double)(counter_bits(key, 2 * counter + 1) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(COUNTER_TWO_PI * v);
}

#endif
