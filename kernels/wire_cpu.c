/* Vectors in blocks of few bits, as they travel between ranks: codes and a scale for each block. */
#include <math.h>

#include "kernels/fp8.h"
#include "kernels/variant.h"

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

static float encode_int8(void *to, const float *x, int64_t n, float amax)
{
    int8_t *code = to;
    float scale = k_wire_int8_scale(amax);
    if (!(scale > 0)) {
        memset(code, 0, (size_t)n);
        return scale;
    }
    float inverse = 127 / amax;
    for (int64_t i = 0; i < n; i++) {
        float shifted = x[i] * inverse + K_ROUNDING;
        int32_t bits;
        memcpy(&bits, &shifted, sizeof(bits));
        code[i] = (int8_t)bits;
    }
    return scale;
}

/* A unit that is a power of two divides exactly; one that is NaN makes all codes that. */
static float encode_fp8(void *to, const float *x, int64_t n, float amax)
{
    uint8_t *code = to;
    float unit = k_fp8_unit(K_E4M3, amax), inverse = 1 / unit;
    for (int64_t i = 0; i < n; i++)
        code[i] = fp8_round(K_E4M3, x[i] * inverse);
    return unit;
}

static float encode_block(enum k_wire format, void *code, const float *x, int64_t n)
{
    float amax = largest(x, n);
    return format == K_WIRE_FP8 ? encode_fp8(code, x, n, amax) : encode_int8(code, x, n, amax);
}

K_INLINE float decoded(enum k_wire format, const void *code, int64_t i, float scale)
{
    float x = format == K_WIRE_FP8 ? fp8_widen(K_E4M3, ((const uint8_t *)code)[i])
                                   : (float)((const int8_t *)code)[i];
    return x * scale;
}

static void decode_block(
    enum k_wire format, float *restrict y, const void *restrict code, float scale, int64_t n)
{
    if (format == K_WIRE_FP8)
        for (int64_t i = 0; i < n; i++)
            y[i] = decoded(K_WIRE_FP8, code, i, scale);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = decoded(K_WIRE_INT8, code, i, scale);
}

static void add_block(
    enum k_wire format, float *restrict y, const void *restrict code, float scale, int64_t n)
{
    if (format == K_WIRE_FP8)
        for (int64_t i = 0; i < n; i++)
            y[i] += decoded(K_WIRE_FP8, code, i, scale);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] += decoded(K_WIRE_INT8, code, i, scale);
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
        scale[b] = encode_block(a->format, (char *)a->wire + at, x, n);
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
        const char *code = (const char *)a->wire + at;
        float buf[K_WIRE_BLOCK];
        if (type == K_FP32) {
            decode_block(a->format, (float *)a->x + at, code, scale[b], n);
            continue;
        }
        decode_block(a->format, buf, code, scale[b], n);
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
        const char *code = (const char *)a->wire[k] + at;
        float scale = scales_in(a->wire[k], a->elems)[b];
        if (k == 0)
            decode_block(a->format, sum, code, scale, n);
        else
            add_block(a->format, sum, code, scale, n);
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
