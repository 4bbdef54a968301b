/* Vectors in blocks of few bits, as they travel between ranks: codes and a scale for each block. */
#include <math.h>

#include "kernels/variant.h"

/* Below it a block counts as zeros: the inverse of its scale might not be finite. */
#define LEAST_AMAX 0x1p-100f
/* Adding it rounds to an integer, to even, which the low bits then hold. */
#define ROUNDING 12582912.0f

/* Blocks that one thread handles at least. */
enum { GRAIN = K_GRAIN / K_WIRE_BLOCK };

static float *scales_of(void *wire, int64_t elems)
{
    return (float *)(void *)((char *)wire + k_blocks(elems, 4) * 4);
}

static const float *scales_in(const void *wire, int64_t elems)
{
    return (const float *)(const void *)((const char *)wire + k_blocks(elems, 4) * 4);
}

/* Largest magnitude; one that is not finite when an element is. Bits of magnitudes are in the order
 * of these, with what is not a number on top. */
static float largest(const float *x, int64_t n)
{
    int32_t most = 0;
    float amax;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof(bits));
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    memcpy(&amax, &most, sizeof(amax));
    return amax;
}

static float encode_int8(int8_t *code, const float *x, int64_t n)
{
    float amax = largest(x, n);
    if (!(amax >= LEAST_AMAX && amax < INFINITY)) {
        memset(code, 0, (size_t)n);
        return amax < LEAST_AMAX ? 0 : NAN;
    }
    float inverse = 127 / amax;
    for (int64_t i = 0; i < n; i++) {
        float shifted = x[i] * inverse + ROUNDING;
        int32_t bits;
        memcpy(&bits, &shifted, sizeof(bits));
        code[i] = (int8_t)bits;
    }
    return amax / 127;
}

static void decode_int8(float *y, const int8_t *code, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)code[i] * scale;
}

/* --- there --- */

static void encode(void *arg, int64_t first, int64_t last)
{
    const struct k_encode *a = arg;
    float buf[K_WIRE_BLOCK], *scale = scales_of(a->wire, a->elems);
    int64_t end = k_min(last * GRAIN, k_blocks(a->elems, K_WIRE_BLOCK));
    for (int64_t b = first * GRAIN; b < end; b++) {
        int64_t at = b * K_WIRE_BLOCK, n = k_min(K_WIRE_BLOCK, a->elems - at);
        const float *x = a->type == K_BF16 ? k_block(K_BF16, a->x, at, n, buf)
                                           : k_block(K_FP32, a->x, at, n, buf);
        scale[b] = encode_int8((int8_t *)a->wire + at, x, n);
    }
}

void K_NAME(k_encode)(struct pool *p, const struct k_encode *a)
{
    pool_run(p, k_blocks(a->elems, K_GRAIN), encode, (void *)(uintptr_t)a);
}

/* --- and back --- */

K_INLINE void decode_as(const struct k_decode *a, int64_t first, int64_t last, enum k_type type)
{
    const float *scale = scales_in(a->wire, a->elems);
    for (int64_t b = first; b < last; b++) {
        int64_t at = b * K_WIRE_BLOCK, n = k_min(K_WIRE_BLOCK, a->elems - at);
        const int8_t *code = (const int8_t *)a->wire + at;
        float buf[K_WIRE_BLOCK];
        if (type == K_FP32) {
            decode_int8((float *)a->x + at, code, scale[b], n);
            continue;
        }
        decode_int8(buf, code, scale[b], n);
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)a->x)[at + i] = k_round(buf[i]);
    }
}

static void decode(void *arg, int64_t first, int64_t last)
{
    const struct k_decode *a = arg;
    int64_t end = k_min(last * GRAIN, k_blocks(a->elems, K_WIRE_BLOCK));
    K_BY_TYPE(a->type, decode_as, a, first * GRAIN, end);
}

void K_NAME(k_decode)(struct pool *p, const struct k_decode *a)
{
    pool_run(p, k_blocks(a->elems, K_GRAIN), decode, (void *)(uintptr_t)a);
}

/* --- sums of several --- */

static void sum_block(const struct k_sum_wires *a, int64_t b)
{
    int64_t at = b * K_WIRE_BLOCK, n = k_min(K_WIRE_BLOCK, a->elems - at);
    float sum[K_WIRE_BLOCK], *y = a->y + at;
    for (int k = 0; k < a->count; k++) {
        const int8_t *code = (const int8_t *)a->wire[k] + at;
        float scale = scales_in(a->wire[k], a->elems)[b];
        if (k == 0) {
            decode_int8(sum, code, scale, n);
            continue;
        }
        for (int64_t i = 0; i < n; i++)
            sum[i] += (float)code[i] * scale;
    }
    if (!a->accumulate)
        memcpy(y, sum, (size_t)n * sizeof(*y));
    for (int64_t i = 0; i < n && a->accumulate; i++)
        y[i] += sum[i];
}

static void sum_wires(void *arg, int64_t first, int64_t last)
{
    const struct k_sum_wires *a = arg;
    int64_t end = k_min(last * GRAIN, k_blocks(a->elems, K_WIRE_BLOCK));
    for (int64_t b = first * GRAIN; b < end; b++)
        sum_block(a, b);
}

void K_NAME(k_sum_wires)(struct pool *p, const struct k_sum_wires *a)
{
    pool_run(p, k_blocks(a->elems, K_GRAIN), sum_wires, (void *)(uintptr_t)a);
}
