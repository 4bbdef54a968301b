/* RMSNorm of every query and key head, ahead of the rotary embedding. Rows are split over threads;
 * gradients of the weights are summed in pieces whose bounds depend on the number of tokens alone.
 */
#include <math.h>

#include "kernels/variant.h"

/* --- forward --- */

K_INLINE void head_fwd(const struct k_qk_norm_fwd *a, const void *x, const void *w, void *y,
    float *rstd, enum k_type type)
{
    float buf[K_MAX_HEAD_DIM];
    const float *v = k_block(type, x, 0, a->head_dim, buf);
    double squares = (double)k_sum_centred(v, 0, a->head_dim);
    float scale = (float)(1 / sqrt(squares / (double)a->head_dim + (double)a->eps));
    for (int64_t j = 0; j < a->head_dim; j++)
        k_store(type, y, j, v[j] * scale * k_load(type, w, j));
    *rstd = scale;
}

K_INLINE void rows_fwd(const struct k_qk_norm_fwd *a, int64_t first, int64_t last, enum k_type type)
{
    int64_t normed = a->heads + a->kv_heads, width = (normed + a->kv_heads) * a->head_dim;
    size_t v_bytes = (size_t)(a->kv_heads * a->head_dim) * (type == K_BF16 ? 2 : 4);
    for (int64_t row = first; row < last; row++) {
        for (int64_t h = 0; h < normed; h++) {
            int64_t at = row * width + h * a->head_dim;
            head_fwd(a, k_at(type, a->x, at), h < a->heads ? a->wq : a->wk,
                k_at_mut(type, a->qkv, at), &a->stats[row * normed + h], type);
        }
        int64_t v = row * width + normed * a->head_dim;
        memcpy(k_at_mut(type, a->qkv, v), k_at(type, a->x, v), v_bytes);
    }
}

static int64_t rows_per_item(const struct k_qk_norm_fwd *a)
{
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_dim;
    return width >= K_GRAIN ? 1 : K_GRAIN / width;
}

static void qk_norm_fwd(void *arg, int64_t first, int64_t last)
{
    const struct k_qk_norm_fwd *a = arg;
    int64_t step = rows_per_item(a);
    K_BY_TYPE(a->type, rows_fwd, a, first * step, k_min(last * step, a->tokens));
}

void K_NAME(k_qk_norm_fwd)(struct pool *p, const struct k_qk_norm_fwd *a)
{
    pool_run(p, k_blocks(a->tokens, rows_per_item(a)), qk_norm_fwd, (void *)a);
}

/* --- backward --- */

/* With h = x rstd and g = w dy: dx = rstd (g - h mean(g h)), dw += dy h. dx replaces dy. */
K_INLINE void head_bwd(const struct k_qk_norm_bwd *a, const void *x, const void *w, void *dy,
    float rstd, float *dw, enum k_type type)
{
    float g[K_MAX_HEAD_DIM], h[K_MAX_HEAD_DIM];
    int64_t n = a->head_dim;
    for (int64_t j = 0; j < n; j++) {
        float d = k_load(type, dy, j);
        h[j] = k_load(type, x, j) * rstd;
        g[j] = d * k_load(type, w, j);
        dw[j] += d * h[j];
    }
    float mean_gh = (float)((double)k_dot(g, h, n) / (double)n);
    for (int64_t j = 0; j < n; j++)
        k_store(type, dy, j, rstd * (g[j] - h[j] * mean_gh));
}

/* Sums of a token's heads first, so that long sums lose less. */
K_INLINE void rows_bwd(
    const struct k_qk_norm_bwd *a, int64_t first, int64_t last, float *sums, enum k_type type)
{
    int64_t normed = a->heads + a->kv_heads, n = a->head_dim, width = (normed + a->kv_heads) * n;
    for (int64_t row = first; row < last; row++) {
        float dw[2][K_MAX_HEAD_DIM] = {{0}};
        for (int64_t h = 0; h < normed; h++) {
            int64_t at = row * width + h * n;
            bool is_key = h >= a->heads;
            head_bwd(a, k_at(type, a->x, at), is_key ? a->wk : a->wq, k_at_mut(type, a->dqkv, at),
                a->stats[row * normed + h], dw[is_key], type);
        }
        for (int64_t j = 0; j < n; j++) {
            sums[j] += dw[0][j];
            sums[n + j] += dw[1][j];
        }
    }
}

static int64_t rows_of_piece(const struct k_qk_norm_bwd *a)
{
    return k_blocks(a->tokens, K_QK_NORM_PIECES);
}

static void qk_norm_bwd(void *arg, int64_t first, int64_t last)
{
    const struct k_qk_norm_bwd *a = arg;
    int64_t rows = rows_of_piece(a);
    for (int64_t i = first; i < last; i++) {
        float *sums = a->scratch + i * 2 * a->head_dim;
        memset(sums, 0, (size_t)(2 * a->head_dim) * sizeof(*sums));
        K_BY_TYPE(a->type, rows_bwd, a, i * rows, k_min((i + 1) * rows, a->tokens), sums);
    }
}

static void add_pieces(const struct k_qk_norm_bwd *a, int64_t pieces, const float *sums, float *dw)
{
    for (int64_t j = 0; j < a->head_dim; j++) {
        float sum = 0;
        for (int64_t i = 0; i < pieces; i++)
            sum += sums[i * 2 * a->head_dim + j];
        dw[j] = a->accumulate_dw ? dw[j] + sum : sum;
    }
}

void K_NAME(k_qk_norm_bwd)(struct pool *p, const struct k_qk_norm_bwd *a)
{
    int64_t pieces = a->tokens > 0 ? k_blocks(a->tokens, rows_of_piece(a)) : 0;
    pool_run(p, pieces, qk_norm_bwd, (void *)a);
    if (!a->dwq)
        return;
    add_pieces(a, pieces, a->scratch, a->dwq);
    add_pieces(a, pieces, a->scratch + a->head_dim, a->dwk);
}
