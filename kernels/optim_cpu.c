/* Square sums of gradients, weights in three forms, AdamW and SGD. */
#include <math.h>

#include "kernels/both.h"
#include "kernels/moment_piece.h"
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

static void round_randomly(const struct k_weights *w, int64_t at, int64_t n, const float *x)
{
    uint32_t random[K_BLOCK];
    k_random_of(random, w->key, (uint64_t)(w->first + at), n);
    for (int64_t i = 0; i < n; i++)
        w->param[at + i] = k_round_random(x[i], random[i]);
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

/* --- updates --- */

/* Shares of a range for threads begin and end where pieces do. */
static int64_t shares(const struct k_moment *m, int64_t elems)
{
    return k_blocks(elems + k_moment_offset(m), K_GRAIN);
}

static int64_t share_begin(const struct k_moment *m, int64_t share)
{
    int64_t at = share * K_GRAIN - k_moment_offset(m);
    return at > 0 ? at : 0;
}

/* Of a moment in fp8, the largest of the new values, from all threads: bits of floats that are not
 * negative have their order. */
static void raise(uint32_t *largest, float x)
{
    uint32_t bits, seen = __atomic_load_n(largest, __ATOMIC_RELAXED);
    memcpy(&bits, &x, sizeof(bits));
    while (bits > seen && !__atomic_compare_exchange_n(
                              largest, &seen, bits, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

static float scale_of(uint32_t largest, bool is_square)
{
    float x;
    memcpy(&x, &largest, sizeof(x));
    return k_moment_fp8_scale(is_square ? sqrtf(x) : x);
}

/* --- AdamW --- */

/* The step as constants: w = w * decay - rate * m / (sqrt(v) * inv_root + eps). */
struct adamw {
    const struct k_adamw *a;
    float clip, beta1, one_less_beta1, beta2, one_less_beta2, decay, rate, inv_root, eps;
    float m_scale, v_scale; /* new ones of fp8 */
    uint32_t m_largest, v_largest;
};

K_INLINE float next_m(const struct adamw *c, float m, float g)
{
    return c->beta1 * m + c->one_less_beta1 * g;
}

K_INLINE float next_v(const struct adamw *c, float v, float g)
{
    return c->beta2 * v + c->one_less_beta2 * g * g;
}

static void adamw_piece(const struct adamw *s, int64_t at, int64_t n)
{
    const struct adamw c = *s;
    const struct k_adamw *a = s->a;
    float buf[K_BLOCK], m_buf[K_BLOCK], v_buf[K_BLOCK];
    float *restrict w = weights_load(&a->weights, at, n, buf);
    float *restrict m = k_moment_load(&a->m, at, n, m_buf);
    float *restrict v = k_moment_load(&a->v, at, n, v_buf);
    const float *restrict grad = a->grad + at;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * c.clip;
        m[i] = next_m(&c, m[i], g);
        v[i] = next_v(&c, v[i], g);
        w[i] = w[i] * c.decay - c.rate * m[i] / (sqrtf(v[i]) * c.inv_root + c.eps);
    }
    for (int64_t i = 0; i < n && v == v_buf; i++)
        v[i] = sqrtf(v[i]);
    weights_store(&a->weights, at, n, w);
    k_moment_store(&a->m, at, n, m, c.m_scale, true);
    k_moment_store(&a->v, at, n, v, c.v_scale, true);
}

static void adamw(void *arg, int64_t first, int64_t last)
{
    const struct adamw *s = arg;
    const struct k_moment *m = &s->a->m;
    int64_t end = k_min(share_begin(m, last), s->a->elems);
    for (int64_t at = share_begin(m, first), next; at < end; at = next) {
        next = k_moment_piece_end(m, at, end);
        adamw_piece(s, at, next - at);
    }
}

static void adamw_largest(void *arg, int64_t first, int64_t last)
{
    struct adamw *s = arg;
    const struct k_adamw *a = s->a;
    int64_t end = k_min(share_begin(&a->m, last), a->elems);
    float m_largest = 0, v_largest = 0, m[K_BLOCK], v[K_BLOCK];
    for (int64_t at = share_begin(&a->m, first), n; at < end; at += n) {
        n = k_moment_piece_end(&a->m, at, end) - at;
        k_moment_load(&a->m, at, n, m);
        k_moment_load(&a->v, at, n, v);
        for (int64_t i = 0; i < n; i++) {
            float g = a->grad[at + i] * s->clip;
            m[i] = next_m(s, m[i], g);
            v[i] = next_v(s, v[i], g);
        }
        m_largest = fmaxf(m_largest, k_largest(m, n));
        v_largest = fmaxf(v_largest, k_largest(v, n));
    }
    raise(&s->m_largest, m_largest);
    raise(&s->v_largest, v_largest);
}

void K_NAME(k_adamw)(struct pool *p, const struct k_adamw *a)
{
    double clip;
    if (!k_gate_is_open(&a->gate, &clip) || a->skip) {
        weights_keep(p, &a->weights, a->elems);
        return;
    }
    double correction1 = 1 - pow(a->beta1, (double)a->step);
    double correction2 = 1 - pow(a->beta2, (double)a->step);
    struct adamw s = {
        .a = a,
        .clip = (float)clip,
        .beta1 = (float)a->beta1,
        .one_less_beta1 = (float)(1 - a->beta1),
        .beta2 = (float)a->beta2,
        .one_less_beta2 = (float)(1 - a->beta2),
        .decay = (float)(1 - a->lr * a->weight_decay),
        .rate = (float)(a->lr / correction1),
        .inv_root = (float)(1 / sqrt(correction2)),
        .eps = (float)a->eps,
    };
    bool is_fp8 = a->m.form == K_MOMENT_FP8;
    int64_t n = shares(&a->m, a->elems);
    if (is_fp8) {
        pool_run(p, n, adamw_largest, &s);
        s.m_scale = scale_of(s.m_largest, false);
        s.v_scale = scale_of(s.v_largest, true);
    }
    pool_run(p, n, adamw, &s);
    if (is_fp8) {
        *a->m.scale = s.m_scale;
        *a->v.scale = s.v_scale;
    }
}

/* --- SGD --- */

struct sgd {
    const struct k_sgd *a;
    float clip, momentum, decay, rate;
    float m_scale; /* the new one of fp8 */
    uint32_t m_largest;
};

static void sgd_piece(const struct sgd *s, int64_t at, int64_t n)
{
    const struct sgd c = *s;
    float buf[K_BLOCK], m_buf[K_BLOCK];
    float *restrict w = weights_load(&s->a->weights, at, n, buf);
    float *restrict m = k_moment_load(&s->a->m, at, n, m_buf);
    const float *restrict grad = s->a->grad + at;
    for (int64_t i = 0; i < n; i++) {
        m[i] = c.momentum * m[i] + (grad[i] * c.clip + c.decay * w[i]);
        w[i] = w[i] - c.rate * m[i];
    }
    weights_store(&s->a->weights, at, n, w);
    k_moment_store(&s->a->m, at, n, m, c.m_scale, true);
}

static void sgd(void *arg, int64_t first, int64_t last)
{
    const struct sgd *s = arg;
    const struct k_moment *m = &s->a->m;
    int64_t end = k_min(share_begin(m, last), s->a->elems);
    for (int64_t at = share_begin(m, first), next; at < end; at = next) {
        next = k_moment_piece_end(m, at, end);
        sgd_piece(s, at, next - at);
    }
}

static void sgd_largest(void *arg, int64_t first, int64_t last)
{
    struct sgd *s = arg;
    const struct k_sgd *a = s->a;
    int64_t end = k_min(share_begin(&a->m, last), a->elems);
    float largest = 0, m[K_BLOCK], buf[K_BLOCK];
    for (int64_t at = share_begin(&a->m, first), n; at < end; at += n) {
        n = k_moment_piece_end(&a->m, at, end) - at;
        const float *w = weights_load(&a->weights, at, n, buf);
        k_moment_load(&a->m, at, n, m);
        for (int64_t i = 0; i < n; i++)
            m[i] = s->momentum * m[i] + (a->grad[at + i] * s->clip + s->decay * w[i]);
        largest = fmaxf(largest, k_largest(m, n));
    }
    raise(&s->m_largest, largest);
}

void K_NAME(k_sgd)(struct pool *p, const struct k_sgd *a)
{
    double clip;
    if (!k_gate_is_open(&a->gate, &clip) || a->skip) {
        weights_keep(p, &a->weights, a->elems);
        return;
    }
    struct sgd s = {
        .a = a,
        .clip = (float)clip,
        .momentum = (float)a->momentum,
        .decay = (float)a->weight_decay,
        .rate = (float)a->lr,
    };
    int64_t n = shares(&a->m, a->elems);
    if (a->m.form == K_MOMENT_FP8) {
        pool_run(p, n, sgd_largest, &s);
        s.m_scale = scale_of(s.m_largest, false);
    }
    pool_run(p, n, sgd, &s);
    if (a->m.form == K_MOMENT_FP8)
        *a->m.scale = s.m_scale;
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

struct moments {
    const struct k_moment *m;
    float *out;
    int64_t elems;
};

static void read_moments(void *arg, int64_t first, int64_t last)
{
    const struct moments *f = arg;
    int64_t end = k_min(share_begin(f->m, last), f->elems);
    for (int64_t at = share_begin(f->m, first), next; at < end; at = next) {
        next = k_moment_piece_end(f->m, at, end);
        k_moment_load(f->m, at, next - at, f->out + at);
    }
}

void K_NAME(k_moment_read)(struct pool *p, float *dst, const struct k_moment *m, int64_t n)
{
    struct moments f = {m, dst, n};
    pool_run(p, shares(m, n), read_moments, &f);
}

/* Codes of the old scale become those of the new one. */
static void grow_scale(const struct k_moment_range *to, float scale)
{
    const struct k_moment *m = &to->moment;
    float buf[K_BLOCK];
    for (int64_t at = 0, n; at<to->elems && * m->scale> 0; at += n) {
        n = k_moment_piece_end(m, at, to->elems) - at;
        k_moment_load_root(m, at, n, buf);
        k_moment_store(m, at, n, buf, scale, false);
    }
    *m->scale = scale;
}

void K_NAME(k_moment_write)(struct pool *p, const struct k_moment_range *to, const float *src)
{
    const struct k_moment *m = &to->moment;
    float buf[K_BLOCK], largest = k_largest(src, to->n);
    float scale = k_moment_fp8_scale(m->is_square ? sqrtf(largest) : largest);
    (void)p;
    if (m->form == K_MOMENT_FP8 && scale > *m->scale)
        grow_scale(to, scale);
    for (int64_t at = to->at, end = to->at + to->n, n; at < end; at += n, src += n) {
        n = k_moment_piece_end(m, at, end) - at;
        for (int64_t i = 0; i < n; i++)
            buf[i] = m->is_square ? sqrtf(src[i]) : src[i];
        k_moment_store(m, at, n, buf, *m->scale, false);
    }
}
