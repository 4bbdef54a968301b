/* Moments of optimizers in whatever form, a piece at a time: shared by the *_cpu.c files that
 * update. */
#ifndef KERNELS_MOMENT_PIECE_H
#define KERNELS_MOMENT_PIECE_H

#include <math.h>

#include "kernels/moment_codes.h"
#include "kernels/variant.h"

/* Sixteen random bits, of a key and a counter (the finisher of MurmurHash3). */
K_INLINE uint32_t k_random16(uint32_t key, uint32_t counter)
{
    uint32_t x = key ^ counter;
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    return (x ^ x >> 16) & 0xffff;
}

/* Of n elements from number first on, below 2^32 of them; the key holds what does not fit into the
 * counter. */
K_INLINE void k_random_of(uint32_t *out, uint64_t key, uint64_t first, int64_t n)
{
    uint32_t mixed[2], low = (uint32_t)first;
    for (uint32_t k = 0; k < 2; k++)
        mixed[k] = (uint32_t)key ^ (uint32_t)(key >> 32) * ((uint32_t)(first >> 32) + k);
    for (int64_t i = 0; i < n; i++) {
        uint32_t counter = low + (uint32_t)i;
        out[i] = k_random16(mixed[counter < low], counter);
    }
}

/* Elements from the last border of blocks to the first one. */
K_INLINE int64_t k_moment_offset(const struct k_moment *m)
{
    return m->form == K_MOMENT_BLOCKS ? m->first % K_MOMENT_BLOCK : 0;
}

/* Where the piece ends that begins at: pieces have one scale. */
K_INLINE int64_t k_moment_piece_end(const struct k_moment *m, int64_t at, int64_t end)
{
    if (m->form != K_MOMENT_BLOCKS)
        return k_min(at + K_BLOCK, end);
    int64_t offset = k_moment_offset(m);
    return k_min(((at + offset) / K_MOMENT_BLOCK + 1) * K_MOMENT_BLOCK - offset, end);
}

K_INLINE float *k_moment_scale(const struct k_moment *m, int64_t at)
{
    return m->scale + (m->form == K_MOMENT_BLOCKS ? (at + k_moment_offset(m)) / K_MOMENT_BLOCK : 0);
}

/* Elements at .. at + n - 1 of one piece: the memory itself, or buf filled. */
K_INLINE float *k_moment_load(const struct k_moment *m, int64_t at, int64_t n, float *buf)
{
    if (m->form == K_MOMENT_FP32)
        return m->fp32 + at;
    const float *value = k_moment_codes(m)->value;
    const uint8_t *code = m->code + at;
    float scale = *k_moment_scale(m, at);
    for (int64_t i = 0; i < n; i++)
        buf[i] = value[code[i]] * scale;
    for (int64_t i = 0; i < n && m->is_square; i++)
        buf[i] = buf[i] * buf[i];
    return buf;
}

K_INLINE float k_largest(const float *x, int64_t n)
{
    uint32_t largest = 0; /* bits of floats that are not negative have their order */
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    float out;
    memcpy(&out, &largest, sizeof(out));
    return out;
}

/* The code of a number of the scale, from 0 to 1 or to 448: one of its neighbours, the upper one
 * when the share of the way there is above u. */
K_INLINE int32_t k_moment_code(const struct k_moment_codes *t, float size, float u)
{
    uint32_t bits;
    memcpy(&bits, &size, sizeof(bits));
    int32_t cell = (int32_t)(bits >> 16) - K_MOMENT_LOW_CELL;
    cell = cell > 0 ? cell : 0;
    int32_t c = t->start[cell < K_MOMENT_CELLS ? cell : K_MOMENT_CELLS - 1]; /* infinity too */
    c += t->size[c + 1] <= size;
    return c + ((size - t->size[c]) * t->per_gap[c] > u);
}

/* Numbers of one piece become codes. Of a root only nothing becomes nothing: what is divided by it
 * would be without bounds. */
K_INLINE void k_moment_encode(
    const struct k_moment *m, int64_t at, int64_t n, const float *x, float scale, bool is_random)
{
    const struct k_moment_codes *t = k_moment_codes(m);
    uint8_t *code = m->code + at;
    uint32_t random[K_BLOCK];
    int32_t c[K_BLOCK];
    float divisor = scale > 0 ? scale : 1; /* all is zero then */
    if (is_random)
        k_random_of(random, m->key, (uint64_t)(m->first + at), n);
    for (int64_t i = 0; i < n; i++) {
        float u = is_random ? ((float)(int32_t)random[i] + 0.5f) * 0x1p-16f : 0.5f;
        c[i] = k_moment_code(t, fabsf(x[i]) / divisor, u);
    }
    if (m->is_square)
        for (int64_t i = 0; i < n; i++)
            code[i] = (uint8_t)(c[i] == 0 && x[i] > 0 ? 1 : c[i]);
    else
        for (int64_t i = 0; i < n; i++)
            code[i] = (uint8_t)(c[i] | (c[i] > 0 && x[i] < 0 ? 128 : 0));
}

/* Elements of one piece go back where they are kept; x is changed. scale: fp8's. */
K_INLINE void k_moment_store(
    const struct k_moment *m, int64_t at, int64_t n, float *x, float scale, bool is_random)
{
    if (m->form == K_MOMENT_FP32)
        return;
    for (int64_t i = 0; i < n && m->is_square; i++)
        x[i] = sqrtf(x[i]);
    if (m->form == K_MOMENT_BLOCKS) {
        scale = k_largest(x, n);
        *k_moment_scale(m, at) = scale;
    }
    k_moment_encode(m, at, n, x, scale, is_random);
}

#endif
