/* The core of every matrix product: packed panels and a register-tiled micro kernel.
 *
 * A panel of A holds GEMM_MR rows, a panel of B GEMM_NR columns, both as fp32, all lanes of one k
 * next to each other, padded with zeros. The micro kernel multiplies one panel of each; the lanes
 * of its GEMM_MR x GEMM_NR tile stay in registers for the whole length of k. The shape leaves
 * registers for one row of B and needs fewer loads than multiply-adds per k. */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H

#include "kernels/blocking.h"
#include "kernels/fp8.h"
#include "kernels/variant.h"

#if K_LANES == 16
#define GEMM_MR      12
#define GEMM_NR_VECS 2
#elif K_LANES == 8
#define GEMM_MR      4
#define GEMM_NR_VECS 3
#elif defined __aarch64__
#define GEMM_MR      8
#define GEMM_NR_VECS 2
#else
#define GEMM_MR      4
#define GEMM_NR_VECS 2
#endif
#define GEMM_NR (GEMM_NR_VECS * K_LANES)

_Static_assert(GEMM_UNIT % GEMM_MR == 0 && GEMM_UNIT % GEMM_NR == 0, "whole tiles");

#if defined __x86_64__
/* As fp8_widen, of four bytes that follow each other. */
K_INLINE __m128 fp8_widen4(enum k_type f, const uint8_t *p)
{
    const int shift = 23 - fp8_fraction(f);
    int32_t bytes;
    memcpy(&bytes, p, sizeof(bytes));
    __m128i b = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes));
    __m128i m = _mm_and_si128(b, _mm_set1_epi32(0x7f)), shifted = _mm_slli_epi32(m, shift);
    __m128i normal = _mm_add_epi32(shifted, _mm_set1_epi32((127 - fp8_bias(f)) << 23));
    __m128 small = _mm_mul_ps(_mm_cvtepi32_ps(m), _mm_set1_ps(fp8_quantum(f)));
    __m128i is_small = _mm_cmplt_epi32(m, _mm_set1_epi32(1 << fp8_fraction(f)));
    __m128i u = _mm_blendv_epi8(normal, _mm_castps_si128(small), is_small);
    __m128i is_special = _mm_cmpgt_epi32(m, _mm_set1_epi32((f == K_E4M3 ? 0x7f : 0x7c) - 1));
    __m128i special = _mm_or_si128(shifted, _mm_set1_epi32(0x7f800000));
    u = _mm_blendv_epi8(u, special, is_special);
    __m128i sign = _mm_slli_epi32(_mm_and_si128(b, _mm_set1_epi32(0x80)), 24);
    return _mm_castsi128_ps(_mm_or_si128(u, sign));
}
#endif

K_INLINE int64_t gemm_pad(int64_t n)
{
    return k_blocks(n, GEMM_UNIT) * GEMM_UNIT;
}

/* --- packing --- */

/* Numbers of eight bits are packed as they are: what they count is for the sums. */
K_INLINE float gemm_load(enum k_type type, const void *p, int64_t i)
{
    return type > K_BF16 ? fp8_widen(type, ((const uint8_t *)p)[i]) : k_load(type, p, i);
}

K_INLINE const void *gemm_at(enum k_type type, const void *p, int64_t i)
{
    return type > K_BF16 ? (const uint8_t *)p + i : k_at(type, p, i);
}

#if defined __x86_64__
K_INLINE __m128 gemm_load4(enum k_type type, const void *p, int64_t i)
{
    if (type > K_BF16)
        return fp8_widen4(type, (const uint8_t *)p + i);
    if (type == K_FP32)
        return _mm_loadu_ps((const float *)p + i);
    __m128i h = _mm_loadl_epi64((const __m128i *)(const void *)((const uint16_t *)p + i));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), h));
}

/* dst[kk * width + i] = src[i * ld + kk] for 4 rows and as many columns as come in fours; returns
 * how many. */
K_INLINE int64_t gemm_transpose4(
    enum k_type type, float *dst, int64_t width, const void *src, int64_t ld, int64_t k)
{
    int64_t kk = 0;
    for (; kk + 4 <= k; kk += 4) {
        __m128 r0 = gemm_load4(type, src, kk);
        __m128 r1 = gemm_load4(type, src, ld + kk);
        __m128 r2 = gemm_load4(type, src, 2 * ld + kk);
        __m128 r3 = gemm_load4(type, src, 3 * ld + kk);
        _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
        _mm_storeu_ps(dst + kk * width, r0);
        _mm_storeu_ps(dst + (kk + 1) * width, r1);
        _mm_storeu_ps(dst + (kk + 2) * width, r2);
        _mm_storeu_ps(dst + (kk + 3) * width, r3);
    }
    return kk;
}
#else
K_INLINE int64_t gemm_transpose4(
    enum k_type type, float *dst, int64_t width, const void *src, int64_t ld, int64_t k)
{
    return 0;
}
#endif

/* One panel of `count` lanes, padded to width: lane i, step kk is element i * ld + kk of src. */
K_INLINE void gemm_pack_rows(enum k_type type, float *restrict dst, int64_t width,
    const void *restrict src, int64_t ld, int64_t count, int64_t k)
{
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const void *rows = gemm_at(type, src, i * ld);
        int64_t done = gemm_transpose4(type, dst + i, width, rows, ld, k);
        for (int64_t lane = 0; lane < 4; lane++)
            for (int64_t kk = done; kk < k; kk++)
                dst[kk * width + i + lane] = gemm_load(type, rows, lane * ld + kk);
    }
    for (; i < count; i++)
        for (int64_t kk = 0; kk < k; kk++)
            dst[kk * width + i] = gemm_load(type, src, i * ld + kk);
    for (; i < width; i++)
        for (int64_t kk = 0; kk < k; kk++)
            dst[kk * width + i] = 0;
}

/* Panels for `lanes` lanes where lane i, step kk is element kk * ld + i of src. All panels of a
 * step at once: steps often lie a power of two apart and would evict each other's cache lines
 * before the next panel needs the rest of them. */
K_INLINE void gemm_pack_cols(enum k_type type, float *restrict dst, const int64_t width,
    const void *restrict src, int64_t ld, int64_t lanes, int64_t k)
{
    int64_t whole = lanes / width * width;
    for (int64_t kk = 0; kk < k; kk++) {
        for (int64_t base = 0; base < whole; base += width)
            for (int64_t i = 0; i < width; i++)
                dst[base * k + kk * width + i] = gemm_load(type, src, kk * ld + base + i);
        for (int64_t i = whole; i < lanes; i++)
            dst[whole * k + kk * width + i - whole] = gemm_load(type, src, kk * ld + i);
        for (int64_t i = lanes; i < k_blocks(lanes, width) * width; i++)
            dst[whole * k + kk * width + i - whole] = 0;
    }
}

/* Panels of `width` lanes for `lanes` lanes over k steps, one after the other. by_lane: the steps
 * of a lane follow each other in memory (pack_rows), else the lanes of a step (pack_cols). */
K_INLINE void gemm_pack(enum k_type type, float *dst, const int64_t width, const void *src,
    int64_t ld, bool by_lane, int64_t lanes, int64_t k)
{
    if (!by_lane) {
        gemm_pack_cols(type, dst, width, src, ld, lanes, k);
        return;
    }
    for (int64_t i = 0; i < lanes; i += width)
        gemm_pack_rows(
            type, dst + i * k, width, gemm_at(type, src, i * ld), ld, k_min(width, lanes - i), k);
}

/* --- multiplying --- */

/* tile = sum over k of (column of the A panel) x (row of the B panel), in the order of k; tile rows
 * are ld apart. accumulate: added to what tile holds. */
K_INLINE void gemm_micro(
    int64_t k, const float *a, const float *b, float *tile, int64_t ld, bool accumulate)
{
    k_vec acc[GEMM_MR][GEMM_NR_VECS];
#pragma GCC unroll 16
    for (int i = 0; i < GEMM_MR; i++)
#pragma GCC unroll 4
        for (int j = 0; j < GEMM_NR_VECS; j++)
            acc[i][j] = k_splat(0);
    for (int64_t kk = 0; kk < k; kk++) {
        k_vec row[GEMM_NR_VECS];
#pragma GCC unroll 4
        for (int j = 0; j < GEMM_NR_VECS; j++)
            row[j] = k_vec_load(b + kk * GEMM_NR + j * K_LANES);
#pragma GCC unroll 16
        for (int i = 0; i < GEMM_MR; i++) {
            k_vec x = k_splat(a[kk * GEMM_MR + i]);
#pragma GCC unroll 4
            for (int j = 0; j < GEMM_NR_VECS; j++)
                acc[i][j] = k_fma(x, row[j], acc[i][j]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < GEMM_MR; i++)
#pragma GCC unroll 4
        for (int j = 0; j < GEMM_NR_VECS; j++) {
            float *out = tile + i * ld + j * K_LANES;
            k_vec_store(out, accumulate ? acc[i][j] + k_vec_load(out) : acc[i][j]);
        }
}

/* C (+)= A B of packed panels. C has room for whole tiles: gemm_pad(m) rows of ld >= gemm_pad(n).
 */
static inline __attribute__((unused)) void gemm_panels(int64_t m, int64_t n, int64_t k,
    const float *a, const float *b, float *c, int64_t ld, bool accumulate)
{
    for (int64_t j = 0; j < n; j += GEMM_NR)
        for (int64_t i = 0; i < m; i += GEMM_MR)
            gemm_micro(k, a + i * k, b + j * k, c + i * ld + j, ld, accumulate);
}

#endif
