/* Element by element: activations, casts, and the arithmetic of collectives. Threads share blocks
 * of K_GRAIN elements; every element's result depends on that element alone. */
#include "kernels/variant.h"

struct range {
    int64_t first, last;
};

/* Elements of the blocks first .. last-1. */
static struct range elements(int64_t first, int64_t last, int64_t n)
{
    return (struct range){first * K_GRAIN, k_min(last * K_GRAIN, n)};
}

/* Rows that make up about K_GRAIN elements. */
static int64_t rows_per_item(int64_t width)
{
    return width >= K_GRAIN ? 1 : K_GRAIN / width;
}

/* --- SwiGLU --- */

K_INLINE void swiglu_row(const void *restrict gate, const void *restrict up, void *restrict y,
    int64_t n, enum k_type type)
{
    for (int64_t i = 0; i < n; i++) {
        float g = k_load(type, gate, i);
        k_store(type, y, i, g * k_sigmoid(g) * k_load(type, up, i));
    }
}

static void swiglu_fwd(void *arg, int64_t first, int64_t last)
{
    const struct k_swiglu_fwd *a = arg;
    int64_t step = rows_per_item(a->width);
    for (int64_t row = first * step; row < k_min(last * step, a->rows); row++) {
        const void *gate = k_at(a->type, a->gate_up, row * 2 * a->width);
        const void *up = k_at(a->type, gate, a->width);
        void *y = k_at_mut(a->type, a->y, row * a->width);
        K_BY_TYPE(a->type, swiglu_row, gate, up, y, a->width);
    }
}

void K_NAME(k_swiglu_fwd)(struct pool *p, const struct k_swiglu_fwd *a)
{
    pool_run(p, k_blocks(a->rows, rows_per_item(a->width)), swiglu_fwd, (void *)a);
}

/* s = sigmoid(g): d(g s) = s + g s (1 - s) = s (1 + g (1 - s)). Outputs may be the inputs. */
K_INLINE void swiglu_bwd_row(const void *restrict dy, const void *gate, const void *up, void *dgate,
    void *dup, int64_t n, enum k_type type)
{
    float g[K_BLOCK], u[K_BLOCK];
    for (int64_t i = 0; i < n; i += K_BLOCK) {
        int64_t len = k_min(K_BLOCK, n - i);
        for (int64_t j = 0; j < len; j++) {
            g[j] = k_load(type, gate, i + j);
            u[j] = k_load(type, up, i + j);
        }
        for (int64_t j = 0; j < len; j++) {
            float s = k_sigmoid(g[j]), d = k_load(type, dy, i + j);
            float silu = g[j] * s;
            g[j] = d * u[j] * (s * (1.0f + g[j] * (1.0f - s)));
            u[j] = d * silu;
        }
        for (int64_t j = 0; j < len; j++) {
            k_store(type, dgate, i + j, g[j]);
            k_store(type, dup, i + j, u[j]);
        }
    }
}

static void swiglu_bwd(void *arg, int64_t first, int64_t last)
{
    const struct k_swiglu_bwd *a = arg;
    int64_t step = rows_per_item(a->width);
    for (int64_t row = first * step; row < k_min(last * step, a->rows); row++) {
        const void *dy = k_at(a->type, a->dy, row * a->width);
        const void *gate = k_at(a->type, a->gate_up, row * 2 * a->width);
        void *dgate = k_at_mut(a->type, a->dgate_up, row * 2 * a->width);
        K_BY_TYPE(a->type, swiglu_bwd_row, dy, gate, k_at(a->type, gate, a->width), dgate,
            k_at_mut(a->type, dgate, a->width), a->width);
    }
}

void K_NAME(k_swiglu_bwd)(struct pool *p, const struct k_swiglu_bwd *a)
{
    pool_run(p, k_blocks(a->rows, rows_per_item(a->width)), swiglu_bwd, (void *)a);
}

/* --- GELU: x (1 + tanh(u)) / 2 = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) --- */

#define GELU_2A 1.5957691216f /* 2 sqrt(2/pi) */
#define GELU_B  0.044715f

K_INLINE void gelu_fwd_block(const void *x, void *y, int64_t n, enum k_type type)
{
    float v[K_BLOCK];
    for (int64_t i = 0; i < n; i++)
        v[i] = k_load(type, x, i);
    for (int64_t i = 0; i < n; i++)
        v[i] *= k_sigmoid(GELU_2A * (v[i] + GELU_B * v[i] * v[i] * v[i]));
    for (int64_t i = 0; i < n; i++)
        k_store(type, y, i, v[i]);
}

static void gelu_fwd(void *arg, int64_t first, int64_t last)
{
    const struct k_gelu_fwd *a = arg;
    struct range r = elements(first, last, a->elems);
    for (int64_t i = r.first; i < r.last; i += K_BLOCK) {
        const void *x = k_at(a->type, a->x, i);
        void *y = k_at_mut(a->type, a->y, i);
        K_BY_TYPE(a->type, gelu_fwd_block, x, y, k_min(K_BLOCK, r.last - i));
    }
}

void K_NAME(k_gelu_fwd)(struct pool *p, const struct k_gelu_fwd *a)
{
    pool_run(p, k_blocks(a->elems, K_GRAIN), gelu_fwd, (void *)a);
}

/* s = sigmoid(2u): d(x s) = s + x s (1 - s) d(2u). */
K_INLINE void gelu_bwd_block(const void *dy, const void *x, void *dx, int64_t n, enum k_type type)
{
    float v[K_BLOCK], d[K_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        v[i] = k_load(type, x, i);
        d[i] = k_load(type, dy, i);
    }
    for (int64_t i = 0; i < n; i++) {
        float s = k_sigmoid(GELU_2A * (v[i] + GELU_B * v[i] * v[i] * v[i]));
        float slope = GELU_2A * (1.0f + 3.0f * GELU_B * v[i] * v[i]);
        d[i] *= s + v[i] * s * (1.0f - s) * slope;
    }
    for (int64_t i = 0; i < n; i++)
        k_store(type, dx, i, d[i]);
}

static void gelu_bwd(void *arg, int64_t first, int64_t last)
{
    const struct k_gelu_bwd *a = arg;
    struct range r = elements(first, last, a->elems);
    for (int64_t i = r.first; i < r.last; i += K_BLOCK) {
        const void *dy = k_at(a->type, a->dy, i), *x = k_at(a->type, a->x, i);
        void *dx = k_at_mut(a->type, a->dx, i);
        K_BY_TYPE(a->type, gelu_bwd_block, dy, x, dx, k_min(K_BLOCK, r.last - i));
    }
}

void K_NAME(k_gelu_bwd)(struct pool *p, const struct k_gelu_bwd *a)
{
    pool_run(p, k_blocks(a->elems, K_GRAIN), gelu_bwd, (void *)a);
}

/* --- casts --- */

struct cast {
    void *dst;
    const void *src;
    int64_t n;
};

static void narrow(void *arg, int64_t first, int64_t last)
{
    const struct cast *c = arg;
    uint16_t *restrict dst = c->dst;
    const float *restrict src = c->src;
    struct range r = elements(first, last, c->n);
    for (int64_t i = r.first; i < r.last; i++)
        dst[i] = k_round(src[i]);
}

void K_NAME(k_fp32_to_bf16)(struct pool *p, uint16_t *dst, const float *src, int64_t n)
{
    struct cast c = {dst, src, n};
    pool_run(p, k_blocks(n, K_GRAIN), narrow, &c);
}

static void widen(void *arg, int64_t first, int64_t last)
{
    const struct cast *c = arg;
    float *restrict dst = c->dst;
    const uint16_t *restrict src = c->src;
    struct range r = elements(first, last, c->n);
    for (int64_t i = r.first; i < r.last; i++)
        dst[i] = k_widen(src[i]);
}

void K_NAME(k_bf16_to_fp32)(struct pool *p, float *dst, const uint16_t *src, int64_t n)
{
    struct cast c = {dst, src, n};
    pool_run(p, k_blocks(n, K_GRAIN), widen, &c);
}

/* --- sums and factors --- */

struct scaling {
    float *x;
    float factor;
    int64_t n;
};

static void scale(void *arg, int64_t first, int64_t last)
{
    const struct scaling *s = arg;
    struct range r = elements(first, last, s->n);
    for (int64_t i = r.first; i < r.last; i++)
        s->x[i] *= s->factor;
}

void K_NAME(k_scale_f32)(struct pool *p, float *dst, float factor, int64_t n)
{
    struct scaling s = {dst, factor, n};
    pool_run(p, k_blocks(n, K_GRAIN), scale, &s);
}

struct rank_sum {
    float *dst;
    const float *const *src;
    int count;
    int64_t n;
    bool accumulate, streams;
};

/* Vectors summed at once, so that loads of many are under way. */
enum { SUM_VECTORS = 4, SUM_BLOCK = SUM_VECTORS * K_LANES };

/* All elements are read before the first is written, so that dst may be any of the sources. */
K_INLINE void sum_block(const struct rank_sum *s, int64_t at, bool streams)
{
    k_vec total[SUM_VECTORS];
    for (int v = 0; v < SUM_VECTORS; v++)
        total[v] = k_vec_load(s->src[0] + at + v * K_LANES);
    for (int r = 1; r < s->count; r++)
        for (int v = 0; v < SUM_VECTORS; v++)
            total[v] += k_vec_load(s->src[r] + at + v * K_LANES);
    if (s->accumulate)
        for (int v = 0; v < SUM_VECTORS; v++)
            total[v] = k_vec_load(s->dst + at + v * K_LANES) + total[v];
    for (int v = 0; v < SUM_VECTORS; v++)
        if (streams)
            k_vec_stream(s->dst + at + v * K_LANES, total[v]);
        else
            k_vec_store(s->dst + at + v * K_LANES, total[v]);
}

static void sum_element(const struct rank_sum *s, int64_t at)
{
    float total = s->src[0][at];
    for (int r = 1; r < s->count; r++)
        total += s->src[r][at];
    s->dst[at] = s->accumulate ? s->dst[at] + total : total;
}

static void sum_ranks(void *arg, int64_t first, int64_t last)
{
    const struct rank_sum *s = arg;
    struct range r = elements(first, last, s->n);
    int64_t at = r.first;
    if (s->streams) {
        for (; at + SUM_BLOCK <= r.last; at += SUM_BLOCK)
            sum_block(s, at, true);
        k_stream_end();
    }
    for (; at + SUM_BLOCK <= r.last; at += SUM_BLOCK)
        sum_block(s, at, false);
    for (; at < r.last; at++)
        sum_element(s, at);
}

/* Past the caches, unless dst is read as well and so in them. */
static bool may_stream(float *dst, const float *const *src, int count)
{
    bool is_read = (uintptr_t)dst % sizeof(k_vec) != 0;
    for (int r = 0; r < count; r++)
        is_read = is_read || src[r] == dst;
    return !is_read;
}

void K_NAME(k_sum_ranks_f32)(
    struct pool *p, float *dst, const float *const *src, int count, int64_t n, enum k_sum_way way)
{
    bool adds = way == K_SUM_ADD;
    struct rank_sum s = {
        dst, src, count, n, adds, way == K_SUM_PAST_CACHE && may_stream(dst, src, count)};
    pool_run(p, k_blocks(n, K_GRAIN), sum_ranks, &s);
}

void K_NAME(k_sum_f32)(struct pool *p, float *dst, const float *src, int64_t n)
{
    K_NAME(k_sum_ranks_f32)(p, dst, &src, 1, n, K_SUM_ADD);
}

/* --- bytes --- */

void K_NAME(k_zero)(struct pool *p, void *x, int64_t bytes)
{
    (void)p;
    memset(x, 0, (size_t)bytes);
}

void K_NAME(k_copy)(struct pool *p, void *dst, const void *src, int64_t bytes)
{
    (void)p;
    memcpy(dst, src, (size_t)bytes);
}
