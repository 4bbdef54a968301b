/* What the kernels of one instruction set share: names, types, vectors, sums, the exponential.
 *
 * Included by *_cpu.c only, each of which is compiled once per variant. Floating-point contraction
 * is off in the whole build (two products in one expression could be fused differently in the body
 * and in the tail of a vectorised loop, and results would depend on where a thread's share ends);
 * products are fused only where k_fma says so. */
#ifndef KERNELS_VARIANT_H
#define KERNELS_VARIANT_H

#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/parallel.h"

#if defined __x86_64__
#include <immintrin.h>
#elif defined __aarch64__
#include <arm_neon.h>
#endif

#define K_JOIN_(name, variant) name##_##variant
#define K_JOIN(name, variant)  K_JOIN_(name, variant)
#define K_NAME(name)           K_JOIN(name, K_VARIANT)
#define K_INLINE               static inline __attribute__((always_inline, unused))

/* Calls a body once with the type as a constant, so that its inlined loads and stores specialise.
 */
#define K_BY_TYPE(type, call, ...)                                                                 \
    do {                                                                                           \
        if ((type) == K_BF16)                                                                      \
            call(__VA_ARGS__, K_BF16);                                                             \
        else                                                                                       \
            call(__VA_ARGS__, K_FP32);                                                             \
    } while (0)

#if defined __AVX512F__
#define K_LANES 16
#elif defined __AVX2__
#define K_LANES 8
#else
#define K_LANES 4
#endif

/* Elements converted at once into a buffer on the stack. */
enum { K_BLOCK = 512 };
/* Elements of a pointwise job that one thread handles at least. */
enum { K_GRAIN = 4096 };

typedef float k_vec __attribute__((vector_size(4 * K_LANES)));
typedef float k_vec_any __attribute__((vector_size(4 * K_LANES), aligned(4), may_alias));

K_INLINE int64_t k_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

K_INLINE int64_t k_blocks(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* --- types --- */

K_INLINE float k_widen(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

/* To nearest even; a NaN keeps its upper bits and becomes quiet (rounding could make it infinite).
 */
K_INLINE uint16_t k_round(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    uint32_t quiet = u >> 16 | 0x40;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

K_INLINE float k_load(enum k_type type, const void *p, int64_t i)
{
    return type == K_BF16 ? k_widen(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

K_INLINE void k_store(enum k_type type, void *p, int64_t i, float x)
{
    if (type == K_BF16)
        ((uint16_t *)p)[i] = k_round(x);
    else
        ((float *)p)[i] = x;
}

/* Address of element i. */
K_INLINE const void *k_at(enum k_type type, const void *p, int64_t i)
{
    return (const char *)p + i * (type == K_BF16 ? 2 : 4);
}

K_INLINE void *k_at_mut(enum k_type type, void *p, int64_t i)
{
    return (char *)p + i * (type == K_BF16 ? 2 : 4);
}

/* n <= K_BLOCK elements as fp32: the memory itself, or buf filled. */
K_INLINE const float *k_block(enum k_type type, const void *p, int64_t i, int64_t n, float *buf)
{
    if (type == K_FP32)
        return (const float *)p + i;
    const uint16_t *h = (const uint16_t *)p + i;
    for (int64_t j = 0; j < n; j++)
        buf[j] = k_widen(h[j]);
    return buf;
}

/* --- vectors --- */

K_INLINE k_vec k_splat(float x)
{
#if K_LANES == 16
    return _mm512_set1_ps(x);
#elif K_LANES == 8
    return _mm256_set1_ps(x);
#else
    return (k_vec){x, x, x, x};
#endif
}

K_INLINE k_vec k_vec_load(const float *p)
{
    return *(const k_vec_any *)p;
}

K_INLINE void k_vec_store(float *p, k_vec v)
{
    *(k_vec_any *)p = v;
}

/* To an address of whole vectors, past the caches where there is such a store: what is read soon
 * keeps its place in them, and dst is not fetched before it is overwritten. Others may look after
 * k_stream_end. */
K_INLINE void k_vec_stream(float *p, k_vec v)
{
#if K_LANES == 16
    _mm512_stream_ps(p, v);
#elif K_LANES == 8
    _mm256_stream_ps(p, v);
#elif defined __x86_64__
    _mm_stream_ps(p, v);
#else
    k_vec_store(p, v);
#endif
}

K_INLINE void k_stream_end(void)
{
#if defined __x86_64__
    _mm_sfence();
#endif
}

/* First n < K_LANES elements, zero (or `fill`) behind. */
K_INLINE k_vec k_vec_part(const float *p, int64_t n, float fill)
{
    k_vec v = k_splat(fill);
    memcpy(&v, p, (size_t)n * sizeof(float));
    return v;
}

/* a * b + c, rounded once where the instruction set can. */
K_INLINE float k_fmaf(float a, float b, float c)
{
#if defined __FMA__ || defined __aarch64__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

K_INLINE k_vec k_fma(k_vec a, k_vec b, k_vec c)
{
#if K_LANES == 16
    return _mm512_fmadd_ps(a, b, c);
#elif K_LANES == 8 && defined __FMA__
    return _mm256_fmadd_ps(a, b, c);
#elif defined __aarch64__
    return (k_vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

K_INLINE float k_vec_sum(k_vec v)
{
    float x[K_LANES];
    k_vec_store(x, v);
    for (int half = K_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

/* --- sums over a piece of a row, in one fixed order each --- */

/* The order: four interleaved vectors, then single vectors, then a tail padded with zeros. */
#define K_REDUCE(n, term, term_tail)                                                               \
    k_vec s0 = k_splat(0), s1 = s0, s2 = s0, s3 = s0;                                              \
    int64_t i = 0;                                                                                 \
    for (; i + 4 * K_LANES <= (n); i += 4 * K_LANES) {                                             \
        s0 = term(s0, i);                                                                          \
        s1 = term(s1, i + K_LANES);                                                                \
        s2 = term(s2, i + 2 * K_LANES);                                                            \
        s3 = term(s3, i + 3 * K_LANES);                                                            \
    }                                                                                              \
    for (; i + K_LANES <= (n); i += K_LANES)                                                       \
        s0 = term(s0, i);                                                                          \
    if (i < (n))                                                                                   \
        s1 = term_tail(s1, i, (n)-i);                                                              \
    return k_vec_sum((s0 + s1) + (s2 + s3))

K_INLINE float k_sum(const float *x, int64_t n)
{
#define TERM(s, i)    ((s) + k_vec_load(x + (i)))
#define TAIL(s, i, n) ((s) + k_vec_part(x + (i), n, 0))
    K_REDUCE(n, TERM, TAIL);
#undef TERM
#undef TAIL
}

K_INLINE float k_dot(const float *x, const float *y, int64_t n)
{
#define TERM(s, i)    k_fma(k_vec_load(x + (i)), k_vec_load(y + (i)), s)
#define TAIL(s, i, n) k_fma(k_vec_part(x + (i), n, 0), k_vec_part(y + (i), n, 0), s)
    K_REDUCE(n, TERM, TAIL);
#undef TERM
#undef TAIL
}

/* Sum of (x - mean)^2. */
K_INLINE float k_sum_centred(const float *x, float mean, int64_t n)
{
    k_vec mu = k_splat(mean);
#define TERM(s, i)    k_fma(k_vec_load(x + (i)) - mu, k_vec_load(x + (i)) - mu, s)
#define TAIL(s, i, n) k_fma(k_vec_part(x + (i), n, mean) - mu, k_vec_part(x + (i), n, mean) - mu, s)
    K_REDUCE(n, TERM, TAIL);
#undef TERM
#undef TAIL
}

/* Largest element; a NaN among them gives an unspecified element. */
K_INLINE float k_max(const float *x, int64_t n)
{
    float best[K_LANES];
    int64_t i = 0;
    for (int j = 0; j < K_LANES; j++)
        best[j] = x[0];
    for (; i + K_LANES <= n; i += K_LANES)
        for (int j = 0; j < K_LANES; j++)
            best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
    for (; i < n; i++)
        best[0] = x[i] > best[0] ? x[i] : best[0];
    for (int j = 1; j < K_LANES; j++)
        best[0] = best[j] > best[0] ? best[j] : best[0];
    return best[0];
}

/* --- exponential --- */

/* e^x by reduction to |r| <= ln(2)/2 and a polynomial (Taylor to r^7, remainder below 4e-9); within
 * 2 units in the last place. Below -87.3 (results under the normal range) 0; above 88.3 the value
 * there; NaN stays NaN. Plain arithmetic without branches, so that loops over it vectorise and give
 * the same bits in body and tail. */
K_INLINE float k_exp(float x)
{
    const float low = -87.3f, high = 88.3f;
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float c = x > high ? high : x;
    c = c < low ? low : c;
    float shifted = k_fmaf(c, 1.44269504f, magic);
    float n = shifted - magic;
    float r = k_fmaf(n, -0.693359375f, c); /* exact: the constant has 9 bits */
    r = k_fmaf(n, 2.12194440e-4f, r);
    float p = 1.0f / 5040;
    p = k_fmaf(p, r, 1.0f / 720);
    p = k_fmaf(p, r, 1.0f / 120);
    p = k_fmaf(p, r, 1.0f / 24);
    p = k_fmaf(p, r, 1.0f / 6);
    p = k_fmaf(p, r, 0.5f);
    p = k_fmaf(p, r * r, r) + 1.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    uint32_t power = ((uint32_t)bits + 127u) << 23; /* low bits of magic's mantissa are zero */
    float scale;
    memcpy(&scale, &power, sizeof(scale));
    return x < low ? 0.0f : p * scale;
}

/* By e^-|x|, which cannot overflow: small results keep their relative accuracy, and vanish. */
K_INLINE float k_sigmoid(float x)
{
    float e = k_exp(x < 0 ? x : -x);
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/* --- the functions of this variant, and its table --- */

void K_NAME(k_embed_fwd)(struct pool *p, const struct k_embed_fwd *a);
void K_NAME(k_embed_bwd)(struct pool *p, const struct k_embed_bwd *a);
void K_NAME(k_norm_fwd)(struct pool *p, const struct k_norm_fwd *a);
void K_NAME(k_norm_bwd)(struct pool *p, const struct k_norm_bwd *a);
void K_NAME(k_qk_norm_fwd)(struct pool *p, const struct k_qk_norm_fwd *a);
void K_NAME(k_qk_norm_bwd)(struct pool *p, const struct k_qk_norm_bwd *a);
void K_NAME(k_matmul)(struct pool *p, const struct k_matmul *a);
void K_NAME(k_bias_bwd)(struct pool *p, const struct k_bias_bwd *a);
void K_NAME(k_rope_fwd)(struct pool *p, const struct k_rope *a);
void K_NAME(k_rope_bwd)(struct pool *p, const struct k_rope *a);
void K_NAME(k_attn_fwd)(struct pool *p, const struct k_attn_fwd *a);
void K_NAME(k_attn_bwd)(struct pool *p, const struct k_attn_bwd *a);
void K_NAME(k_swiglu_fwd)(struct pool *p, const struct k_swiglu_fwd *a);
void K_NAME(k_swiglu_bwd)(struct pool *p, const struct k_swiglu_bwd *a);
void K_NAME(k_gelu_fwd)(struct pool *p, const struct k_gelu_fwd *a);
void K_NAME(k_gelu_bwd)(struct pool *p, const struct k_gelu_bwd *a);
void K_NAME(k_cross_entropy)(struct pool *p, const struct k_cross_entropy *a);
void K_NAME(k_grad_norm)(struct pool *p, const float *grad, int64_t n, double *square_sum);
void K_NAME(k_adamw)(struct pool *p, const struct k_adamw *a);
void K_NAME(k_sgd)(struct pool *p, const struct k_sgd *a);
void K_NAME(k_weights_read)(struct pool *p, float *dst, const struct k_weights *w, int64_t n);
void K_NAME(k_weights_write)(
    struct pool *p, const struct k_weights *w, const float *src, int64_t n);
void K_NAME(k_moment_read)(struct pool *p, float *dst, const struct k_moment *m, int64_t n);
void K_NAME(k_moment_write)(struct pool *p, const struct k_moment_range *to, const float *src);
void K_NAME(k_fp32_to_bf16)(struct pool *p, uint16_t *dst, const float *src, int64_t n);
void K_NAME(k_bf16_to_fp32)(struct pool *p, float *dst, const uint16_t *src, int64_t n);
void K_NAME(k_amax)(struct pool *p, enum k_type type, const void *x, int64_t n, double *amax);
void K_NAME(k_quantise)(struct pool *p, const struct k_quantise *a);
void K_NAME(k_fp8_to_fp32)(struct pool *p, enum k_type format, float *dst, const uint8_t *src,
    const double *amax, int64_t n);
void K_NAME(k_normal)(struct pool *p, const struct k_normal *a);
void K_NAME(k_sum_f32)(struct pool *p, float *dst, const float *src, int64_t n);
void K_NAME(k_scale_f32)(struct pool *p, float *dst, float factor, int64_t n);
void K_NAME(k_sum_ranks_f32)(
    struct pool *p, float *dst, const float *const *src, int count, int64_t n, enum k_sum_way way);
void K_NAME(k_zero)(struct pool *p, void *x, int64_t bytes);
void K_NAME(k_copy)(struct pool *p, void *dst, const void *src, int64_t bytes);
void K_NAME(k_encode)(struct pool *p, const struct k_encode *a);
void K_NAME(k_decode)(struct pool *p, const struct k_decode *a);
void K_NAME(k_sum_wires)(struct pool *p, const struct k_sum_wires *a);

extern const struct kernels K_NAME(k_table);

#endif
