/* The most a core can do with an instruction set: independent multiply-adds that stay in registers.
 */
#ifndef TESTS_BENCH_PEAK_H
#define TESTS_BENCH_PEAK_H

#include <stdint.h>

#include "base/clock.h"

#if defined __x86_64__
#include <immintrin.h>
#endif

#define CHAINS 12

#define PEAK_FUNCTION(name, attributes, bytes)                                                     \
    attributes static double name(int64_t times)                                                   \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(bytes)));                                     \
        vec x[CHAINS], a = {0}, b = {0};                                                           \
        a += 0.999f;                                                                               \
        b += 0.001f;                                                                               \
        for (int i = 0; i < CHAINS; i++)                                                           \
            x[i] = a;                                                                              \
        for (int64_t t = 0; t < times; t++)                                                        \
            _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++) x[i] =                       \
                MULTIPLY_ADD(x[i], a, b);                                                          \
        for (int i = 1; i < CHAINS; i++)                                                           \
            x[0] += x[i];                                                                          \
        volatile float keep = x[0][0];                                                             \
        (void)keep;                                                                                \
        return (double)times * CHAINS * 2 * (bytes) / 4;                                           \
    }

#if defined __x86_64__
#define MULTIPLY_ADD(x, a, b) _mm512_fmadd_ps(x, a, b)
PEAK_FUNCTION(peak_v4, __attribute__((target("avx512f"))), 64)
#undef MULTIPLY_ADD
#define MULTIPLY_ADD(x, a, b) _mm256_fmadd_ps(x, a, b)
PEAK_FUNCTION(peak_v3, __attribute__((target("avx2,fma"))), 32)
#undef MULTIPLY_ADD
#endif
#define MULTIPLY_ADD(x, a, b) ((x) * (a) + (b))
PEAK_FUNCTION(peak_v2, , 16)

static double run_peak(const char *name, int64_t times)
{
#if defined __x86_64__
    if (strcmp(name, "v4") == 0)
        return peak_v4(times);
    if (strcmp(name, "v3") == 0)
        return peak_v3(times);
#endif
    return peak_v2(times);
}

static double peak_flops(const char *name)
{
    double start = clock_now_s();
    double flops = run_peak(name, 2000000);
    return flops / (clock_now_s() - start);
}

#endif
