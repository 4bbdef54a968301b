/* Normal numbers by counters in vectors: logarithm and cosine by polynomials to a few units in the
 * last place of a double, which decides the fp32 nearest to nearly all; where a border lies within
 * the error, the C library is asked. So the bits are those of (float)(scale * counter_normal()). */
#include "kernels/counter.h"
#include "kernels/variant.h"

enum { NORMALS = 64 };

/* Of what is computed here, relative to the radius; seen: below 1e-15. */
#define NORMAL_ERROR 4e-15

K_INLINE double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

K_INLINE uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* Exact for n < 2^52; instruction sets before AVX-512 convert no 64-bit integers. */
K_INLINE double small_integer(uint64_t n)
{
    return double_of(n | 0x4330000000000000) - 0x1p52;
}

/* The upper 53 bits, exact. */
K_INLINE double upper_bits(uint64_t x)
{
    return small_integer(x >> 43) * 0x1p32 + small_integer(x >> 11 & 0xffffffff);
}

/* Of u = 2^e m with m within sqrt(2) of 1: e log 2 + 2 artanh((m - 1) / (m + 1)). */
K_INLINE double log_of(double u)
{
    const uint64_t half_root = 0x3fe6a09e00000000, bias = 1024;
    uint64_t bits = bits_of(u), e = (bits - half_root + (bias << 52)) >> 52;
    double m = double_of(bits - ((e - bias) << 52));
    double s = (m - 1) / (m + 1), z = s * s, p = 1.0 / 23;
#pragma GCC unroll 16
    for (int odd = 21; odd > 0; odd -= 2)
        p = p * z + 1.0 / odd;
    return (small_integer(e) - (double)bias) * 0.69314718055994530942 + 2 * s * p;
}

/* Of 0 <= t <= 2 pi, from the nearest multiple of pi / 2. */
K_INLINE double cos_of(double t)
{
    const double half_pi = 0x1.921fb544p+0, rest = 0x1.0b4611a626331p-34, magic = 0x1.8p52;
    double shifted = t * 0.63661977236758134308 + magic, n = shifted - magic;
    uint64_t quarter = bits_of(shifted);
    double x = (t - n * half_pi) - n * rest, z = x * x, even = 1, odd = 1;
#pragma GCC unroll 16
    for (int k = 16; k > 0; k -= 2) {
        even = 1 - even * z * (1.0 / (k * (k - 1)));
        odd = 1 - odd * z * (1.0 / (k * (k + 1)));
    }
    uint64_t is_odd = 0 - (quarter & 1), sign = (quarter + 1) << 62 & 0x8000000000000000;
    uint64_t size = (bits_of(odd * x) & is_odd) | (bits_of(even) & ~is_odd);
    return double_of(size ^ sign);
}

/* NORMALS at a time; *is_close says that one of them needs another look. */
static bool some_normals(float *to, const struct k_normal *a, uint64_t first)
{
    int close = 0;
    for (int i = 0; i < NORMALS; i++) {
        uint64_t at = 2 * (first + (uint64_t)i);
        double u = (upper_bits(counter_bits(a->key, at)) + 1) * 0x1p-53;
        double v = upper_bits(counter_bits(a->key, at + 1)) * 0x1p-53;
        double radius = __builtin_sqrt(-2 * log_of(u));
        double x = a->scale * (radius * cos_of(COUNTER_TWO_PI * v));
        double off = a->scale * radius * NORMAL_ERROR;
        float low = (float)(x - off), high = (float)(x + off);
        close |= low != high;
        to[i] = low == high ? low : NAN;
    }
    return close;
}

static void normals(void *arg, int64_t first, int64_t last)
{
    const struct k_normal *a = arg;
    float some[NORMALS];
    int64_t end = k_min(last * K_GRAIN, a->n);
    for (int64_t at = first * K_GRAIN; at < end; at += NORMALS) {
        int64_t n = k_min(NORMALS, end - at);
        uint64_t counter = a->first + (uint64_t)at;
        if (some_normals(some, a, counter))
            for (int64_t i = 0; i < n; i++)
                if (isnan(some[i]))
                    some[i] = (float)(a->scale * counter_normal(a->key, counter + (uint64_t)i));
        memcpy(a->dst + at, some, (size_t)n * sizeof(float));
    }
}

void K_NAME(k_normal)(struct pool *p, const struct k_normal *a)
{
    struct k_normal copy = *a;
    pool_run(p, k_blocks(a->n, K_GRAIN), normals, &copy);
}
