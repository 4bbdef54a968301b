/* Formulas that hosts and GPUs evaluate alike. */
#ifndef KERNELS_BOTH_H
#define KERNELS_BOTH_H

#include <math.h>

#include "kernels/kernels.h"

#ifdef __CUDACC__
#define K_BOTH __host__ __device__ static inline
#else
#define K_BOTH static inline __attribute__((always_inline, unused))
#endif

/* Adding it to a number between -2^22 and 2^22 rounds to an integer, to even, which the low bits
 * then hold. */
#define K_ROUNDING 12582912.0f

/* Whether the gate is open; *clip gets the factor. */
K_BOTH bool k_gate_is_open(const struct k_gate *g, double *clip)
{
    *clip = 1;
    if (!g->squares)
        return true;
    double norm = sqrt(*g->squares), loss = *g->loss_sum / *g->targets;
    if (g->clip_norm > 0 && norm > g->clip_norm)
        *clip = g->clip_norm / (norm + 1e-6);
    return isfinite(norm) && norm <= g->max_norm && !(loss > g->max_loss);
}

/* What one stands for in a tensor whose largest magnitude is amax: the least power of two with
 * which amax does not exceed the format's largest number (1.75 times 2^8 or 2^15), from 2^-126 to
 * 2^126; 1 for a tensor of zeros, NaN where amax is not finite, which makes all of it NaN. */
K_BOTH float k_fp8_unit(enum k_type format, float amax)
{
    int exponent, top = format == K_E4M3 ? 8 : 15;
    if (!isfinite(amax))
        return NAN;
    if (!(amax > 0))
        return 1;
    double fraction = 2 * frexp((double)amax, &exponent); /* 1 to 2, times 2^(exponent - 1) */
    exponent += (fraction > 1.75) - 1 - top;
    return (float)ldexp(1.0, exponent < -126 ? -126 : exponent > 126 ? 126 : exponent);
}

/* Of a block of int8; 0 where the inverse might not be finite, NaN where amax is not. */
K_BOTH float k_wire_int8_scale(float amax)
{
    if (amax < 0x1p-100f)
        return 0;
    return isfinite(amax) ? amax / 127 : NAN;
}

/* The least power of two of which 448, the largest number of E4M3, is as much; 0 of 0. */
K_BOTH float k_moment_fp8_scale(float largest)
{
    int exponent;
    if (!(largest > 0))
        return 0;
    float fraction = frexpf(largest / 448, &exponent);
    return ldexpf(1.0f, fraction > 0.5f ? exponent : exponent - 1);
}

/* Sixteen random bits, of a key and a counter (the finisher of MurmurHash3). */
K_BOTH uint32_t k_random16(uint32_t key, uint32_t counter)
{
    uint32_t x = key ^ counter;
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    return (x ^ x >> 16) & 0xffff;
}

#endif
