/* Numbers of eight bits as fp32 (OCP OFP8, arXiv 2209.05433), on hosts and GPUs.
 *
 * Both formats are a sign, an exponent with a bias and a fraction, with numbers below the normal
 * range; a number of either is exact in fp32, and in bf16. */
#ifndef KERNELS_FP8_H
#define KERNELS_FP8_H

#include <string.h>

#include "kernels/both.h"

#define FP8_BY_FORMAT(format, call, ...)                                                           \
    do {                                                                                           \
        if ((format) == K_E5M2)                                                                    \
            call(__VA_ARGS__, K_E5M2);                                                             \
        else                                                                                       \
            call(__VA_ARGS__, K_E4M3);                                                             \
    } while (0)

/* Bits of the fraction, and the exponent's bias. */
K_BOTH int fp8_fraction(enum k_type f)
{
    return f == K_E4M3 ? 3 : 2;
}

K_BOTH int fp8_bias(enum k_type f)
{
    return f == K_E4M3 ? 7 : 15;
}

K_BOTH float fp8_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

K_BOTH uint32_t fp8_to_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

/* The least number above zero. */
K_BOTH float fp8_quantum(enum k_type f)
{
    return f == K_E4M3 ? 0x1p-9f : 0x1p-16f;
}

/* The largest one, as fp32. */
K_BOTH uint32_t fp8_largest(enum k_type f)
{
    return f == K_E4M3 ? 0x43e00000 : 0x47600000;
}

/* E5M2 has an infinity and NaN in its last exponent, E4M3 a NaN alone. */
K_BOTH float fp8_widen(enum k_type f, uint8_t b)
{
    const int shift = 23 - fp8_fraction(f);
    const uint32_t special = f == K_E4M3 ? 0x7f : 0x7c;
    uint32_t m = b & 0x7f;
    uint32_t normal = (m << shift) + ((uint32_t)(127 - fp8_bias(f)) << 23);
    uint32_t small = fp8_to_bits((float)(int32_t)m * fp8_quantum(f));
    uint32_t u = m < 1u << fp8_fraction(f) ? small : normal;
    u = m >= special ? 0x7f800000 | m << shift : u;
    return fp8_from_bits(u | (uint32_t)(b & 0x80) << 24);
}

/* To nearest even; beyond the largest number the largest. Below the normal range adding a power of
 * two rounds to a multiple of the quantum, which the lowest bits of the sum then count. */
K_BOTH uint8_t fp8_round(enum k_type f, float x)
{
    const int shift = 23 - fp8_fraction(f);
    const float magic = fp8_quantum(f) * 0x1p23f;
    const uint32_t least_normal = (uint32_t)(128 - fp8_bias(f)) << 23;
    uint32_t u = fp8_to_bits(x), a = u & 0x7fffffff, sign = u >> 24 & 0x80;
    uint32_t c = a > fp8_largest(f) ? fp8_largest(f) : a;
    uint32_t normal = (c + ((1u << (shift - 1)) - 1) + (c >> shift & 1)) >> shift;
    normal -= (uint32_t)(127 - fp8_bias(f)) << fp8_fraction(f);
    uint32_t small = fp8_to_bits(fp8_from_bits(c) + magic) - fp8_to_bits(magic);
    uint32_t q = c < least_normal ? small : normal;
    q = a > 0x7f800000 ? 0x7f : q;
    return (uint8_t)(q | sign);
}

#endif
