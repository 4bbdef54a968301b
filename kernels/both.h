/* Formulas that hosts and GPUs evaluate alike. */
#ifndef KERNELS_BOTH_H
#define KERNELS_BOTH_H

#include <math.h>
#include <string.h>

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
    return *g->targets > 0 && isfinite(norm) && norm <= g->max_norm && !(loss > g->max_loss);
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

/* --- moments in E4M3 --- */

/* Sizes of E4M3, of which the last code is infinity. */
K_BOTH float k_moment_e4m3(uint8_t code)
{
    uint32_t size = code & 0x7f, normal = (size << 20) + (120u << 23);
    float small = (float)(int32_t)size * 0x1p-9f, x;
    uint32_t bits;
    memcpy(&bits, &small, sizeof(bits));
    bits = size < 8 ? bits : normal;
    bits = size == 0x7f ? 0x7f800000 : bits;
    bits |= (uint32_t)(code & 0x80) << 24;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Where a number of the scale, from 0 to 448, lies among the codes of E4M3: the one below and the
 * share of the way to the next. Beyond the largest there is none. */
K_BOTH int32_t k_moment_e4m3_code(float size, float draw)
{
    uint32_t bits;
    memcpy(&bits, &size, sizeof(bits));
    float quanta = (float)(int32_t)(size * 0x1p9f); /* whole ones, where c counts those */
    int32_t is_small = -(int32_t)(bits < 121u << 23), c = (int32_t)(bits >> 20) - (120 << 3);
    float small = size * 0x1p9f - quanta, normal = (float)(int32_t)(bits & 0xfffff) * 0x1p-20f;
    int32_t is_up = (-(int32_t)(small > draw) & is_small) | (-(int32_t)(normal > draw) & ~is_small);
    c = ((int32_t)quanta & is_small) | (c & ~is_small);
    c = c < 127 ? c : 127;
    return c - (is_up & -(int32_t)(c < 126));
}

/* --- random bits --- */

/* Sixteen random bits, of a key and a counter (the finisher of MurmurHash3). */
K_BOTH uint32_t k_random16(uint32_t key, uint32_t counter)
{
    uint32_t x = key ^ counter;
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    return (x ^ x >> 16) & 0xffff;
}

#endif
