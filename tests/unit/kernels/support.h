/* What the tests of kernels share: arrays of either type, numbers, comparisons.
 *
 * References work on doubles that hold exactly what the kernel's inputs hold. Arrays are allocated
 * at exactly their size, so the sanitizer build sees any access outside an argument. */
#ifndef TESTS_KERNELS_SUPPORT_H
#define TESTS_KERNELS_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "tests/lib/gpu_on_cpu.h"

#define UNUSED_OK static inline __attribute__((unused))

/* --- numbers --- */

/* Deterministic, uniform in -1 .. 1 (splitmix64). */
UNUSED_OK double next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1;
}

UNUSED_OK double bf16_value(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, sizeof(x));
    return (double)x;
}

/* Nearest bf16, ties to even, found by comparing neighbours rather than by adding bits. */
UNUSED_OK uint16_t bf16_nearest(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    uint16_t down = (uint16_t)(u >> 16), up = (uint16_t)(down + 1);
    double to_down = fabs((double)x - bf16_value(down));
    double beyond = (up & 0x7fff) == 0x7f80 ? 0x1p128 : fabs(bf16_value(up)); /* as if unbounded */
    double to_up = fabs(beyond - fabs((double)x));
    if (to_down != to_up)
        return to_down < to_up ? down : up;
    return down & 1 ? up : down;
}

/* --- arrays --- */

struct array {
    enum k_type type;
    int64_t n;
    void *data;
};

UNUSED_OK size_t array_bytes(const struct array *a)
{
    return (size_t)a->n * (a->type == K_BF16 ? 2 : 4);
}

/* Filled with a pattern that is no sensible number. */
UNUSED_OK struct array array_new(enum k_type type, int64_t n)
{
    struct array a = {type, n, NULL};
    a.data = base_alloc(array_bytes(&a));
    memset(a.data, 0xa5, array_bytes(&a));
    return a;
}

UNUSED_OK double array_get(const struct array *a, int64_t i)
{
    return a->type == K_BF16 ? bf16_value(((uint16_t *)a->data)[i]) : (double)((float *)a->data)[i];
}

UNUSED_OK void array_set(struct array *a, int64_t i, double x)
{
    if (a->type == K_BF16)
        ((uint16_t *)a->data)[i] = bf16_nearest((float)x);
    else
        ((float *)a->data)[i] = (float)x;
}

/* offset + scale * uniform(-1, 1) */
UNUSED_OK struct array array_random(
    enum k_type type, int64_t n, double offset, double scale, uint64_t seed)
{
    struct array a = array_new(type, n);
    for (int64_t i = 0; i < n; i++)
        array_set(&a, i, offset + scale * next_random(&seed));
    return a;
}

UNUSED_OK struct array array_copy(const struct array *a)
{
    struct array b = array_new(a->type, a->n);
    memcpy(b.data, a->data, array_bytes(a));
    return b;
}

UNUSED_OK void array_free(struct array *a)
{
    free(a->data);
    a->data = NULL;
}

UNUSED_OK double *doubles_of(const struct array *a)
{
    double *x = base_alloc((size_t)a->n * sizeof(*x) + 1);
    for (int64_t i = 0; i < a->n; i++)
        x[i] = array_get(a, i);
    return x;
}

UNUSED_OK double *doubles_new(int64_t n)
{
    return base_calloc((size_t)n + 1, sizeof(double));
}

/* --- comparing --- */

UNUSED_OK void assert_same_bits(const struct array *a, const struct array *b, const char *what)
{
    if (memcmp(a->data, b->data, array_bytes(a)) != 0)
        fail_msg("%s: bits differ between one thread and three", what);
}

/* |got - want| <= rel |want| + abs rms(want). */
UNUSED_OK void assert_near(
    const struct array *got, const double *want, double rel, double abs, const char *what)
{
    double squares = 0;
    for (int64_t i = 0; i < got->n; i++)
        squares += want[i] * want[i];
    double rms = sqrt(squares / (double)(got->n ? got->n : 1));
    for (int64_t i = 0; i < got->n; i++) {
        double x = array_get(got, i), off = fabs(x - want[i]);
        if (!(off <= rel * fabs(want[i]) + abs * rms))
            fail_msg(
                "%s[%lld]: got %.9g, want %.9g (rms %.3g)", what, (long long)i, x, want[i], rms);
    }
}

/* Rounding to bf16 moves a result by at most 2^-9 of it; the kernel's fp32 error can push it over a
 * tie, which costs as much again. */
#define BF16_REL 0x1p-8

UNUSED_OK void assert_result(
    const struct array *got, const double *want, double fp32_tolerance, const char *what)
{
    double rel = got->type == K_BF16 ? BF16_REL : fp32_tolerance;
    assert_near(got, want, rel, fp32_tolerance, what);
}

/* --- every table this machine runs --- */

/* The next after k, the first after NULL, NULL after the last. */
UNUSED_OK const struct kernels *table_after(const struct kernels *k)
{
    static const char *const names[] = {"v2", "v3", "v4", "base"};
    bool passed = !k;
    for (size_t i = 0; i < BASE_COUNT(names); i++) {
        const struct kernels *t = kernels_by_name(names[i]);
        if (t && passed)
            return t;
        passed = passed || t == k;
    }
    return k && k != gpu_table_on_cpu() ? gpu_table_on_cpu() : NULL;
}

#define EACH_TABLE(k)   for (const struct kernels *k = table_after(NULL); k; k = table_after(k))
#define EACH_TYPE(type) for (enum k_type type = K_FP32; type <= K_BF16; type++)

#endif
