/* Square sums of gradients, weights in three forms, AdamW and SGD. */
#include <math.h>

#include "kernels/variant.h"

/* --- square sum --- */

enum { SUM_LANES = 16, SUM_BATCH = 1024 };

/* Sixteen sums, one per lane, whatever the width of the vectors: the same bits on every variant. */
static double square_sum_block(const float *g, int64_t n)
{
    double lane[SUM_LANES] = {0};
    int64_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
        for (int j = 0; j < SUM_LANES; j++)
            lane[j] += (double)g[i + j] * (double)g[i + j];
    for (; i < n; i++)
        lane[i % SUM_LANES] += (double)g[i] * (double)g[i];
    for (int half = SUM_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

struct square_sum {
    const float *g;
    int64_t n;
    double block[SUM_BATCH];
};

static void square_sum(void *arg, int64_t first, int64_t last)
{
    struct square_sum *s = arg;
    for (int64_t i = first; i < last; i++) {
        int64_t at = i * K_NORM_BLOCK;
        s->block[i] = square_sum_block(s->g + at, k_min(K_NORM_BLOCK, s->n - at));
    }
}

void K_NAME(k_grad_norm)(struct pool *p, const float *grad, int64_t n, double *out)
{
    struct square_sum s;
    const int64_t batch = (int64_t)SUM_BATCH * K_NORM_BLOCK;
    for (int64_t at = 0; at < n; at += batch) {
        s.g = grad + at;
        s.n = k_min(batch, n - at);
        int64_t blocks = k_blocks(s.n, K_NORM_BLOCK);
        pool_run(p, blocks, square_sum, &s);
        for (int64_t i = 0; i < blocks; i++)
            *out += s.block[i];
    }
}

/* --- weights --- */

/* The fp32 value of a split weight: param is its upper half rounded, half away from zero, so that
 * low alone tells which way. */
K_INLINE float k_join(uint16_t param, uint16_t low)
{
    uint32_t u = (uint32_t)(param - (low >> 15)) << 16 | low;
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

K_INLINE void k_split(float x, uint16_t *param, uint16_t *low)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    *low = (uint16_t)u;
    *param = (uint16_t)((u >> 16) + (u >> 15 & 1));
}

/* Sixteen random bits, of a key and a counter (the finisher of MurmurHash3). */
K_INLINE uint32_t k_random16(uint32_t key, uint32_t counter)
{
    uint32_t x = key ^ counter;
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    return (x ^ x >> 16) & 0xffff;
}

/* Up with the probability of the distance to the lower neighbour; nothing becomes infinite. */
K_INLINE uint16_t k_round_random(float x, uint32_t random16)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    uint32_t up = (u + random16) >> 16, is_top = (u & 0x7f800000) >= 0x7f000000;
    return is_top ? k_round(x) : (uint16_t)up;
}

/* Elements at .. at + n - 1 as fp32: the master itself, or buf filled. */
static float *weights_load(const struct k_weights *w, int64_t at, int64_t n, float *buf)
{
    if (w->form == K_WEIGHTS_MASTER)
        return w->master + at;
    const uint16_t *param = w->param + at;
    const uint16_t *low = w->form == K_WEIGHTS_SPLIT ? w->low + at : NULL;
    for (int64_t i = 0; i < n; i++)
        buf[i] = low ? k_join(param[i], low[i]) : k_widen(param[i]);
    return buf;
}

/* The key holds what of an element's number does not fit into the counter. */
static void round_randomly(const struct k_weights *w, int64_t at, int64_t n, const float *x)
{
    uint64_t number = (uint64_t)(w->first + at);
    for (int64_t i = 0; i < n; i++) {
        uint64_t element = number + (uint64_t)i;
        uint32_t key = (uint32_t)w->key ^ (uint32_t)(w->key >> 32) * (uint32_t)(element >> 32);
        w->param[at + i] = k_round_random(x[i], k_random16(key, (uint32_t)element));
    }
}

static void weights_store(const struct k_weights *w, int64_t at, int64_t n, const float *x)
{
    uint16_t *param = w->param ? w->param + at : NULL;
    if (w->form == K_WEIGHTS_PURE)
        round_randomly(w, at, n, x);
    else if (w->form == K_WEIGHTS_SPLIT)
        for (int64_t i = 0; i < n; i++)
            k_split(x[i], &param[i], &w->low[at + i]);
    else if (param)
        for (int64_t i = 0; i < n; i++)
            param[i] = k_round(x[i]);
}

/* A skipped update leaves weights alone, but a copy is written. */
static void weights_keep(struct pool *p, const struct k_weights *w, int64_t elems)
{
    if (w->form == K_WEIGHTS_MASTER && w->param)
        K_NAME(k_fp32_to_bf16)(p, w->param, w->master, elems);
}

/* --- AdamW --- */

/* The step as constants: w = w * decay - rate * m / (sqrt(v) * inv_root + eps). */
struct adamw {
    const struct k_adamw *a;
    float clip, beta1, one_less_beta1, beta2, one_less_beta2, decay, rate, inv_root, eps;
};

static void adamw_block(const struct adamw *s, int64_t at, int64_t n)
{
    const struct adamw c = *s;
    float buf[K_BLOCK];
    float *restrict w = weights_load(&s->a->weights, at, n, buf);
    const float *restrict grad = s->a->grad + at;
    float *restrict m = s->a->m + at, *restrict v = s->a->v + at;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * c.clip;
        m[i] = c.beta1 * m[i] + c.one_less_beta1 * g;
        v[i] = c.beta2 * v[i] + c.one_less_beta2 * g * g;
        w[i] = w[i] * c.decay - c.rate * m[i] / (sqrtf(v[i]) * c.inv_root + c.eps);
    }
    weights_store(&s->a->weights, at, n, w);
}

static void adamw(void *arg, int64_t first, int64_t last)
{
    const struct adamw *s = arg;
    int64_t to = k_min(last * K_GRAIN, s->a->elems);
    for (int64_t at = first * K_GRAIN; at < to; at += K_BLOCK)
        adamw_block(s, at, k_min(K_BLOCK, to - at));
}

void K_NAME(k_adamw)(struct pool *p, const struct k_adamw *a)
{
    if (a->skip) {
        weights_keep(p, &a->weights, a->elems);
        return;
    }
    double correction1 = 1 - pow(a->beta1, (double)a->step);
    double correction2 = 1 - pow(a->beta2, (double)a->step);
    struct adamw s = {
        .a = a,
        .clip = (float)a->clip,
        .beta1 = (float)a->beta1,
        .one_less_beta1 = (float)(1 - a->beta1),
        .beta2 = (float)a->beta2,
        .one_less_beta2 = (float)(1 - a->beta2),
        .decay = (float)(1 - a->lr * a->weight_decay),
        .rate = (float)(a->lr / correction1),
        .inv_root = (float)(1 / sqrt(correction2)),
        .eps = (float)a->eps,
    };
    pool_run(p, k_blocks(a->elems, K_GRAIN), adamw, &s);
}

/* --- SGD --- */

struct sgd {
    const struct k_sgd *a;
    float clip, momentum, decay, rate;
};

static void sgd_block(const struct sgd *s, int64_t at, int64_t n)
{
    const struct sgd c = *s;
    float buf[K_BLOCK];
    float *restrict w = weights_load(&s->a->weights, at, n, buf);
    const float *restrict grad = s->a->grad + at;
    float *restrict m = s->a->m + at;
    for (int64_t i = 0; i < n; i++) {
        m[i] = c.momentum * m[i] + (grad[i] * c.clip + c.decay * w[i]);
        w[i] = w[i] - c.rate * m[i];
    }
    weights_store(&s->a->weights, at, n, w);
}

static void sgd(void *arg, int64_t first, int64_t last)
{
    const struct sgd *s = arg;
    int64_t to = k_min(last * K_GRAIN, s->a->elems);
    for (int64_t at = first * K_GRAIN; at < to; at += K_BLOCK)
        sgd_block(s, at, k_min(K_BLOCK, to - at));
}

void K_NAME(k_sgd)(struct pool *p, const struct k_sgd *a)
{
    struct sgd s = {
        .a = a,
        .clip = (float)a->clip,
        .momentum = (float)a->momentum,
        .decay = (float)a->weight_decay,
        .rate = (float)a->lr,
    };
    if (a->skip)
        weights_keep(p, &a->weights, a->elems);
    else
        pool_run(p, k_blocks(a->elems, K_GRAIN), sgd, &s);
}

/* --- between forms --- */

struct forms {
    const struct k_weights *w;
    float *out;
    const float *in;
    int64_t elems;
};

static void read_weights(void *arg, int64_t first, int64_t last)
{
    const struct forms *f = arg;
    int64_t to = k_min(last * K_GRAIN, f->elems);
    for (int64_t at = first * K_GRAIN; at < to; at += K_BLOCK) {
        int64_t n = k_min(K_BLOCK, to - at);
        const float *x = weights_load(f->w, at, n, f->out + at);
        if (x != f->out + at)
            memcpy(f->out + at, x, (size_t)n * sizeof(*x));
    }
}

void K_NAME(k_weights_read)(struct pool *p, float *dst, const struct k_weights *w, int64_t n)
{
    struct forms f = {.w = w, .out = dst, .elems = n};
    pool_run(p, k_blocks(n, K_GRAIN), read_weights, &f);
}

static void write_weights(void *arg, int64_t first, int64_t last)
{
    const struct forms *f = arg;
    int64_t to = k_min(last * K_GRAIN, f->elems);
    for (int64_t at = first * K_GRAIN; at < to; at++) {
        float x = f->in[at];
        if (f->w->form == K_WEIGHTS_SPLIT)
            k_split(x, &f->w->param[at], &f->w->low[at]);
        else if (f->w->param)
            f->w->param[at] = k_round(x);
        if (f->w->form == K_WEIGHTS_MASTER)
            f->w->master[at] = x;
    }
}

void K_NAME(k_weights_write)(struct pool *p, const struct k_weights *w, const float *src, int64_t n)
{
    struct forms f = {.w = w, .in = src, .elems = n};
    pool_run(p, k_blocks(n, K_GRAIN), write_weights, &f);
}
