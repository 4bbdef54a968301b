#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/blocking.h"

/* --- choice of the instruction set --- */

struct variant {
    const struct kernels *table;
    const char *isa;
    bool (*runs_here)(void);
};

#if defined __x86_64__

extern const struct kernels k_table_v2, k_table_v3, k_table_v4;

static bool has_v2(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
}

static bool has_v3(void)
{
    return has_v2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_v4(void)
{
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

/* Best first. */
static const struct variant variants[] = {
    {&k_table_v4, "x86-64-v4 (AVX-512)", has_v4},
    {&k_table_v3, "x86-64-v3 (AVX2)", has_v3},
    {&k_table_v2, "x86-64-v2 (SSE4.2)", has_v2},
};

#else

extern const struct kernels k_table_base;

static bool always(void)
{
    return true;
}

static const struct variant variants[] = {{&k_table_base, "base", always}};

#endif

const struct kernels *kernels_best(void)
{
    for (size_t i = 0; i < BASE_COUNT(variants); i++)
        if (variants[i].runs_here())
            return variants[i].table;
    return variants[BASE_COUNT(variants) - 1].table;
}

const struct kernels *kernels_by_name(const char *name)
{
    for (size_t i = 0; i < BASE_COUNT(variants); i++)
        if (strcmp(variants[i].table->name, name) == 0 && variants[i].runs_here())
            return variants[i].table;
    return NULL;
}

const char *kernels_isa_name(const struct kernels *k)
{
    for (size_t i = 0; i < BASE_COUNT(variants); i++)
        if (variants[i].table == k)
            return variants[i].isa;
    return k->name;
}

/* --- workspace --- */

/* As kernels/matmul_cpu.c lays it out: a packed part of A, one of B, and a block of sums. */
size_t kernels_matmul_workspace_bytes(int64_t m, int64_t n, int64_t k)
{
    uint64_t rows = base_align_up((uint64_t)(m < MATMUL_ROWS ? m : MATMUL_ROWS), GEMM_UNIT);
    uint64_t cols = base_align_up((uint64_t)(n < MATMUL_COLS ? n : MATMUL_COLS), GEMM_UNIT);
    uint64_t steps = (uint64_t)(k < MATMUL_STEPS ? k : MATMUL_STEPS);
    uint64_t sums = k > MATMUL_STEPS ? rows * cols : 0;
    return (size_t)base_align_up(((rows + cols) * steps + sums) * sizeof(float), 256);
}

int64_t kernels_wire_bytes(int64_t elems)
{
    return (elems + 3) / 4 * 4 + (elems + K_WIRE_BLOCK - 1) / K_WIRE_BLOCK * 4;
}

/* --- rotary embedding --- */

int64_t kernels_rope_table_elems(const struct k_rope_table *r)
{
    return r->positions * r->head_dim;
}

/* Llama 3.1's rule: wavelengths above original / low_freq are slowed by factor, those below
 * original / high_freq kept, between them blended linearly in original / wavelength. */
static double llama3_frequency(const struct k_rope_table *r, double frequency)
{
    double turns = (double)r->original_positions * frequency / (2 * 3.14159265358979323846);
    if (turns < r->low_freq)
        return frequency / r->factor;
    if (turns > r->high_freq)
        return frequency;
    double keep = (turns - r->low_freq) / (r->high_freq - r->low_freq);
    return (1 - keep) * frequency / r->factor + keep * frequency;
}

static double rope_frequency(const struct k_rope_table *r, int64_t pair)
{
    double frequency = pow(r->theta, -2.0 * (double)pair / (double)r->head_dim);
    if (r->scaling == K_ROPE_LINEAR)
        return frequency / r->factor;
    if (r->scaling == K_ROPE_LLAMA3)
        return llama3_frequency(r, frequency);
    return frequency;
}

void kernels_rope_table(const struct k_rope_table *r, float *table)
{
    int64_t half = r->head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        double frequency = rope_frequency(r, i);
        for (int64_t pos = 0; pos < r->positions; pos++) {
            table[pos * r->head_dim + i] = (float)cos((double)pos * frequency);
            table[pos * r->head_dim + half + i] = (float)sin((double)pos * frequency);
        }
    }
}
