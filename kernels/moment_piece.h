/* Moments of optimizers in whatever form, a piece at a time: shared by the *_cpu.c files that
 * update. */
#ifndef KERNELS_MOMENT_PIECE_H
#define KERNELS_MOMENT_PIECE_H

#include <math.h>

#include "kernels/both.h"
#include "kernels/moment_codes.h"
#include "kernels/variant.h"

/* Of n elements from number first on, below 2^32 of them; the key holds what does not fit into the
 * counter. */
K_INLINE void k_random_of(uint32_t *out, uint64_t key, uint64_t first, int64_t n)
{
    uint32_t mixed[2], low = (uint32_t)first;
    for (uint32_t k = 0; k < 2; k++)
        mixed[k] = (uint32_t)key ^ (uint32_t)(key >> 32) * ((uint32_t)(first >> 32) + k);
    for (int64_t i = 0; i < n; i++) {
        uint32_t counter = low + (uint32_t)i;
        out[i] = k_random16(counter < low ? mixed[1] : mixed[0], counter);
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

/* Elements at .. at + n - 1 of one piece, of a square the roots: the memory itself, or buf filled.
 */
K_INLINE float *k_moment_load_root(const struct k_moment *m, int64_t at, int64_t n, float *buf)
{
    if (m->form == K_MOMENT_FP32)
        return m->fp32 + at;
    const uint8_t *code = m->code + at;
    float scale = *k_moment_scale(m, at);
    if (m->form == K_MOMENT_FP8) {
        for (int64_t i = 0; i < n; i++)
            buf[i] = k_moment_e4m3(code[i]) * scale;
        return buf;
    }
    const float *value = k_moment_codes(m)->value;
    for (int64_t i = 0; i < n; i++)
        buf[i] = value[code[i]];
    for (int64_t i = 0; i < n; i++)
        buf[i] *= scale;
    return buf;
}

/* The same, as they are computed with. */
K_INLINE float *k_moment_load(const struct k_moment *m, int64_t at, int64_t n, float *buf)
{
    float *x = k_moment_load_root(m, at, n, buf);
    for (int64_t i = 0; i < n && x == buf && m->is_square; i++)
        buf[i] = buf[i] * buf[i];
    return x;
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

/* What decides between two neighbours, from 0 to 1: the upper one is taken when the share of the
 * way to it is above. */
K_INLINE void k_moment_draws(
    float *draw, const struct k_moment *m, int64_t at, int64_t n, bool is_random)
{
    uint32_t random[K_BLOCK];
    if (is_random)
        k_random_of(random, m->key, (uint64_t)(m->first + at), n);
    for (int64_t i = 0; i < n && is_random; i++)
        draw[i] = ((float)(int32_t)random[i] + 0.5f) * 0x1p-16f;
    for (int64_t i = 0; i < n && !is_random; i++)
        draw[i] = 0.5f;
}

/* Of the other forms, by tables: loads between loops that have none, which are done for several
 * numbers at once. */
K_INLINE void k_moment_table_codes(const struct k_moment_codes *t, int32_t *restrict c,
    const float *restrict size, const float *restrict draw, int64_t n)
{
    float next[K_BLOCK], low[K_BLOCK], per_gap[K_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, size + i, sizeof(bits));
        int32_t cell = (int32_t)(bits >> 16) - K_MOMENT_LOW_CELL;
        cell = cell > 0 ? cell : 0;
        c[i] = cell < K_MOMENT_CELLS ? cell : K_MOMENT_CELLS - 1;
    }
    for (int64_t i = 0; i < n; i++) {
        struct k_moment_cell at = t->cell[c[i]];
        c[i] = at.code;
        next[i] = at.next;
    }
    for (int64_t i = 0; i < n; i++)
        c[i] += next[i] <= size[i];
    for (int64_t i = 0; i < n; i++) {
        struct k_moment_step at = t->step[c[i]];
        low[i] = at.size;
        per_gap[i] = at.per_gap;
    }
    for (int64_t i = 0; i < n; i++)
        c[i] += (size[i] - low[i]) * per_gap[i] > draw[i];
}

/* Numbers of one piece become codes. Of a root only nothing becomes nothing: what is divided by it
 * would be without bounds. */
K_INLINE void k_moment_encode(const struct k_moment *m, int64_t at, int64_t n,
    const float *restrict x, float scale, bool is_random)
{
    uint8_t *restrict code = m->code + at;
    int32_t c[K_BLOCK];
    float draw[K_BLOCK], size[K_BLOCK], divisor = scale > 0 ? scale : 1; /* all is zero then */
    k_moment_draws(draw, m, at, n, is_random);
    for (int64_t i = 0; i < n; i++)
        size[i] = fabsf(x[i]) / divisor;
    if (m->form == K_MOMENT_BLOCKS)
        k_moment_table_codes(k_moment_codes(m), c, size, draw, n);
    else
        for (int64_t i = 0; i < n; i++)
            c[i] = k_moment_e4m3_code(size[i], draw[i]);
    if (m->is_square)
        for (int64_t i = 0; i < n; i++)
            c[i] += c[i] == 0 && x[i] > 0;
    else
        for (int64_t i = 0; i < n; i++)
            c[i] |= c[i] > 0 && x[i] < 0 ? 128 : 0;
    for (int64_t i = 0; i < n; i++)
        code[i] = (uint8_t)c[i];
}

/* Elements of one piece, of a square the roots, go back where they are kept. scale: fp8's. */
K_INLINE void k_moment_store(
    const struct k_moment *m, int64_t at, int64_t n, const float *x, float scale, bool is_random)
{
    if (m->form == K_MOMENT_FP32)
        return;
    if (m->form == K_MOMENT_BLOCKS) {
        scale = k_largest(x, n);
        *k_moment_scale(m, at) = scale;
    }
    k_moment_encode(m, at, n, x, scale, is_random);
}

#endif
