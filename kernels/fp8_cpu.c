/* Tensors of eight-bit numbers: the largest magnitude, casts with a unit, and back. */
#include "kernels/fp8.h"
#include "kernels/variant.h"

/* --- largest magnitude --- */

enum { AMAX_BLOCK = 1 << 16, AMAX_BATCH = 256 };

/* Magnitudes are ordered as their bits are, NaN above all. */
K_INLINE uint32_t amax_fp32(const uint32_t *x, int64_t n)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t a = x[i] & 0x7fffffff;
        most = a > most ? a : most;
    }
    return most;
}

K_INLINE uint32_t amax_bf16(const uint16_t *x, int64_t n)
{
    uint16_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t a = x[i] & 0x7fff;
        most = a > most ? a : most;
    }
    return (uint32_t)most << 16;
}

struct amax {
    enum k_type type;
    const void *x;
    int64_t n;
    uint32_t block[AMAX_BATCH];
};

static void amax(void *arg, int64_t first, int64_t last)
{
    struct amax *s = arg;
    for (int64_t i = first; i < last; i++) {
        int64_t at = i * AMAX_BLOCK, n = k_min(AMAX_BLOCK, s->n - at);
        const void *x = k_at(s->type, s->x, at);
        s->block[i] = s->type == K_BF16 ? amax_bf16(x, n) : amax_fp32(x, n);
    }
}

void K_NAME(k_amax)(struct pool *p, enum k_type type, const void *x, int64_t n, double *out)
{
    struct amax s = {.type = type};
    const int64_t batch = (int64_t)AMAX_BATCH * AMAX_BLOCK;
    uint32_t most = fp8_to_bits((float)*out);
    for (int64_t at = 0; at < n; at += batch) {
        s.x = k_at(type, x, at);
        s.n = k_min(batch, n - at);
        int64_t blocks = k_blocks(s.n, AMAX_BLOCK);
        pool_run(p, blocks, amax, &s);
        for (int64_t i = 0; i < blocks; i++)
            most = s.block[i] > most ? s.block[i] : most;
    }
    *out = (double)fp8_from_bits(most);
}

/* --- casts --- */

/* What is turned is cast in squares, which the cache holds. */
enum { SQUARE = 64 };

K_INLINE void cast_row(const void *restrict x, uint8_t *restrict q, float inverse, int64_t n,
    enum k_type type, enum k_type format)
{
    for (int64_t i = 0; i < n; i++)
        q[i] = fp8_round(format, k_load(type, x, i) * inverse);
}

K_INLINE void turn(
    const uint8_t *restrict square, int64_t rows, int64_t cols, uint8_t *restrict out, int64_t ld)
{
    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = 0; r < rows; r++)
            out[c * ld + r] = square[r * SQUARE + c];
}

K_INLINE void cast_square(const struct k_quantise *a, int64_t row, int64_t col, float inverse,
    enum k_type type, enum k_type format)
{
    uint8_t square[SQUARE * SQUARE];
    int64_t rows = k_min(SQUARE, a->rows - row), cols = k_min(SQUARE, a->cols - col);
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = (row + r) * a->cols + col;
        uint8_t *line = square + r * SQUARE;
        cast_row(k_at(type, a->x, at), line, inverse, cols, type, format);
        if (a->q)
            memcpy(a->q + at, line, (size_t)cols);
    }
    uint8_t *out = a->transposed + col * a->rows + row;
    if (rows == SQUARE && cols == SQUARE)
        turn(square, SQUARE, SQUARE, out, a->rows);
    else
        turn(square, rows, cols, out, a->rows);
}

/* A strip of rows where the result is turned too, else a piece of all elements. */
K_INLINE void cast_item(
    const struct k_quantise *a, int64_t i, float inverse, enum k_type format, enum k_type type)
{
    int64_t at = i * K_GRAIN;
    if (a->transposed)
        for (int64_t col = 0; col < a->cols; col += SQUARE)
            cast_square(a, i * SQUARE, col, inverse, type, format);
    else
        cast_row(k_at(type, a->x, at), a->q + at, inverse, k_min(K_GRAIN, a->rows * a->cols - at),
            type, format);
}

#define CAST_BY_TYPE(a, i, inverse, format) K_BY_TYPE((a)->type, cast_item, a, i, inverse, format)

static void quantise(void *arg, int64_t first, int64_t last)
{
    const struct k_quantise *a = arg;
    float inverse = 1 / k_fp8_unit(a->format, (float)*a->amax);
    for (int64_t i = first; i < last; i++)
        FP8_BY_FORMAT(a->format, CAST_BY_TYPE, a, i, inverse);
}

void K_NAME(k_quantise)(struct pool *p, const struct k_quantise *a)
{
    bool is_turned = a->transposed;
    pool_run(p, is_turned ? k_blocks(a->rows, SQUARE) : k_blocks(a->rows * a->cols, K_GRAIN),
        quantise, (void *)a);
    for (int i = 0; i < 2; i++)
        if (a->unit[i])
            *a->unit[i] = k_fp8_unit(a->format, (float)*a->amax);
}

/* --- back --- */

struct widen {
    enum k_type format;
    float *dst;
    const uint8_t *src;
    float unit;
    int64_t n;
};

K_INLINE void widen_range(const struct widen *w, int64_t first, int64_t last, enum k_type format)
{
    float *restrict dst = w->dst;
    const uint8_t *restrict src = w->src;
    float unit = w->unit;
    for (int64_t i = first; i < last; i++)
        dst[i] = fp8_widen(format, src[i]) * unit;
}

static void widen(void *arg, int64_t first, int64_t last)
{
    const struct widen *w = arg;
    FP8_BY_FORMAT(w->format, widen_range, w, first * K_GRAIN, k_min(last * K_GRAIN, w->n));
}

void K_NAME(k_fp8_to_fp32)(struct pool *p, enum k_type format, float *dst, const uint8_t *src,
    const double *amax, int64_t n)
{
    struct widen w = {format, dst, src, k_fp8_unit(format, (float)*amax), n};
    pool_run(p, k_blocks(n, K_GRAIN), widen, &w);
}
