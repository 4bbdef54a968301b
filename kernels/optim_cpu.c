/* Square sums of gradients, and AdamW. */
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

/* --- AdamW --- */

/* The step as constants: master = master * decay - rate * m / (sqrt(v) * inv_root + eps). */
struct adamw {
    const struct k_adamw *a;
    float clip, beta1, one_less_beta1, beta2, one_less_beta2, decay, rate, inv_root, eps;
};

static void adamw_fp32(const struct adamw *s, int64_t first, int64_t last)
{
    const struct adamw c = *s;
    const float *restrict grad = s->a->grad;
    float *restrict w = s->a->master, *restrict m = s->a->m, *restrict v = s->a->v;
    for (int64_t i = first; i < last; i++) {
        float g = grad[i] * c.clip;
        m[i] = c.beta1 * m[i] + c.one_less_beta1 * g;
        v[i] = c.beta2 * v[i] + c.one_less_beta2 * g * g;
        w[i] = w[i] * c.decay - c.rate * m[i] / (sqrtf(v[i]) * c.inv_root + c.eps);
    }
}

static void adamw_bf16(const struct adamw *s, int64_t first, int64_t last)
{
    const struct adamw c = *s;
    const float *restrict grad = s->a->grad;
    float *restrict w = s->a->master, *restrict m = s->a->m, *restrict v = s->a->v;
    uint16_t *restrict param = s->a->param;
    for (int64_t i = first; i < last; i++) {
        float g = grad[i] * c.clip;
        m[i] = c.beta1 * m[i] + c.one_less_beta1 * g;
        v[i] = c.beta2 * v[i] + c.one_less_beta2 * g * g;
        w[i] = w[i] * c.decay - c.rate * m[i] / (sqrtf(v[i]) * c.inv_root + c.eps);
        param[i] = k_round(w[i]);
    }
}

static void adamw(void *arg, int64_t first, int64_t last)
{
    const struct adamw *s = arg;
    int64_t from = first * K_GRAIN, to = k_min(last * K_GRAIN, s->a->elems);
    if (s->a->param)
        adamw_bf16(s, from, to);
    else
        adamw_fp32(s, from, to);
}

void K_NAME(k_adamw)(struct pool *p, const struct k_adamw *a)
{
    if (a->skip) {
        if (a->param)
            K_NAME(k_fp32_to_bf16)(p, a->param, a->master, a->elems);
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
