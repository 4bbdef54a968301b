/* RMSNorm and LayerNorm. Rows are split over threads for y and dx, columns for dw and db. */
#include <math.h>

#include "kernels/variant.h"

/* Rows that one thread handles at least. */
static int64_t rows_per_item(int64_t width)
{
    return width >= K_GRAIN ? 1 : K_GRAIN / width;
}

/* --- forward --- */

/* Mean of the row, and 1 / sqrt(mean of squared distances from it + eps). RMSNorm: mean is 0. */
K_INLINE void row_stats(
    const struct k_norm_fwd *a, const void *x, float *mean, float *rstd, enum k_type type)
{
    float buf[K_BLOCK];
    double sum = 0, squares = 0, n = (double)a->width;
    if (a->is_layernorm)
        for (int64_t i = 0; i < a->width; i += K_BLOCK) {
            int64_t len = k_min(K_BLOCK, a->width - i);
            sum += (double)k_sum(k_block(type, x, i, len, buf), len);
        }
    *mean = (float)(sum / n);
    for (int64_t i = 0; i < a->width; i += K_BLOCK) {
        int64_t len = k_min(K_BLOCK, a->width - i);
        squares += (double)k_sum_centred(k_block(type, x, i, len, buf), *mean, len);
    }
    *rstd = (float)(1 / sqrt(squares / n + (double)a->eps));
}

K_INLINE void norm_row(
    const struct k_norm_fwd *a, const void *x, void *y, float mean, float rstd, enum k_type type)
{
    float buf[K_BLOCK];
    for (int64_t i = 0; i < a->width; i += K_BLOCK) {
        int64_t len = k_min(K_BLOCK, a->width - i);
        for (int64_t j = 0; j < len; j++)
            buf[j] = (k_load(type, x, i + j) - mean) * rstd * k_load(type, a->w, i + j);
        if (a->b)
            for (int64_t j = 0; j < len; j++)
                buf[j] += k_load(type, a->b, i + j);
        for (int64_t j = 0; j < len; j++)
            k_store(type, y, i + j, buf[j]);
    }
}

K_INLINE void norm_rows(const struct k_norm_fwd *a, int64_t first, int64_t last, enum k_type type)
{
    for (int64_t row = first; row < last; row++) {
        const void *x = k_at(type, a->x, row * a->width);
        void *y = k_at_mut(type, a->y, row * a->width);
        float mean, rstd;
        row_stats(a, x, &mean, &rstd, type);
        norm_row(a, x, y, mean, rstd, type);
        if (a->is_layernorm)
            a->stats[row] = mean;
        a->stats[a->is_layernorm ? a->rows + row : row] = rstd;
    }
}

static void norm_fwd(void *arg, int64_t first, int64_t last)
{
    const struct k_norm_fwd *a = arg;
    int64_t step = rows_per_item(a->width);
    K_BY_TYPE(a->type, norm_rows, a, first * step, k_min(last * step, a->rows));
}

void K_NAME(k_norm_fwd)(struct pool *p, const struct k_norm_fwd *a)
{
    pool_run(p, k_blocks(a->rows, rows_per_item(a->width)), norm_fwd, (void *)a);
}

/* --- backward --- */

K_INLINE float row_mean(const struct k_norm_bwd *a, int64_t row)
{
    return a->is_layernorm ? a->stats[row] : 0;
}

K_INLINE float row_rstd(const struct k_norm_bwd *a, int64_t row)
{
    return a->stats[a->is_layernorm ? a->rows + row : row];
}

/* One row in terms of its normalised input h = (x - mean) rstd and g = w dy:
 * dx = rstd (g - mean(g) - h mean(g h)); without mean(g) for RMSNorm. */
K_INLINE void dx_row(const struct k_norm_bwd *a, int64_t row, enum k_type type)
{
    const void *x = k_at(type, a->x, row * a->width), *dy = k_at(type, a->dy, row * a->width);
    void *dx = k_at_mut(type, a->dx, row * a->width);
    float mean = row_mean(a, row), rstd = row_rstd(a, row);
    float g[K_BLOCK], h[K_BLOCK];
    double sum_g = 0, sum_gh = 0;
    for (int64_t i = 0; i < a->width; i += K_BLOCK) {
        int64_t len = k_min(K_BLOCK, a->width - i);
        for (int64_t j = 0; j < len; j++) {
            g[j] = k_load(type, dy, i + j) * k_load(type, a->w, i + j);
            h[j] = (k_load(type, x, i + j) - mean) * rstd;
        }
        sum_gh += (double)k_dot(g, h, len);
        if (a->is_layernorm)
            sum_g += (double)k_sum(g, len);
    }
    float mean_g = (float)(sum_g / (double)a->width), mean_gh = (float)(sum_gh / (double)a->width);
    for (int64_t i = 0; i < a->width; i += K_BLOCK) {
        int64_t len = k_min(K_BLOCK, a->width - i);
        for (int64_t j = 0; j < len; j++) {
            g[j] = k_load(type, dy, i + j) * k_load(type, a->w, i + j);
            h[j] = (k_load(type, x, i + j) - mean) * rstd;
        }
        for (int64_t j = 0; j < len; j++)
            g[j] = rstd * (g[j] - mean_g - h[j] * mean_gh);
        if (!a->overwrite_dx)
            for (int64_t j = 0; j < len; j++)
                g[j] += k_load(type, dx, i + j);
        for (int64_t j = 0; j < len; j++)
            k_store(type, dx, i + j, g[j]);
    }
}

K_INLINE void dx_rows(const struct k_norm_bwd *a, int64_t first, int64_t last, enum k_type type)
{
    for (int64_t row = first; row < last; row++)
        dx_row(a, row, type);
}

static void norm_bwd_dx(void *arg, int64_t first, int64_t last)
{
    const struct k_norm_bwd *a = arg;
    int64_t step = rows_per_item(a->width);
    K_BY_TYPE(a->type, dx_rows, a, first * step, k_min(last * step, a->rows));
}

enum { COLUMNS = 64, BATCH_ROWS = 64 };

/* dw = sum of dy h, db = sum of dy over n <= COLUMNS columns from col; rows in batches, so that
 * long sums lose less. */
K_INLINE void dw_columns(const struct k_norm_bwd *a, int64_t col, const int64_t n, enum k_type type)
{
    float dw[COLUMNS] = {0}, db[COLUMNS] = {0};
    for (int64_t base = 0; base < a->rows; base += BATCH_ROWS) {
        float batch_dw[COLUMNS] = {0}, batch_db[COLUMNS] = {0};
        for (int64_t row = base; row < k_min(base + BATCH_ROWS, a->rows); row++) {
            const void *x = k_at(type, a->x, row * a->width + col);
            const void *dy = k_at(type, a->dy, row * a->width + col);
            float mean = row_mean(a, row), rstd = row_rstd(a, row);
            for (int64_t j = 0; j < n; j++) {
                float d = k_load(type, dy, j);
                batch_dw[j] += d * ((k_load(type, x, j) - mean) * rstd);
                batch_db[j] += d;
            }
        }
        for (int64_t j = 0; j < n; j++) {
            dw[j] += batch_dw[j];
            db[j] += batch_db[j];
        }
    }
    for (int64_t j = 0; j < n; j++)
        a->dw[col + j] = a->accumulate_dw ? a->dw[col + j] + dw[j] : dw[j];
    if (a->db)
        for (int64_t j = 0; j < n; j++)
            a->db[col + j] = a->accumulate_dw ? a->db[col + j] + db[j] : db[j];
}

static void norm_bwd_dw(void *arg, int64_t first, int64_t last)
{
    const struct k_norm_bwd *a = arg;
    for (int64_t i = first; i < last; i++) {
        int64_t col = i * COLUMNS, n = k_min(COLUMNS, a->width - col);
        K_BY_TYPE(a->type, dw_columns, a, col, n);
    }
}

/* dw first: dx may replace dy. */
void K_NAME(k_norm_bwd)(struct pool *p, const struct k_norm_bwd *a)
{
    if (a->dw)
        pool_run(p, k_blocks(a->width, COLUMNS), norm_bwd_dw, (void *)a);
    if (a->dx)
        pool_run(p, k_blocks(a->rows, rows_per_item(a->width)), norm_bwd_dx, (void *)a);
}

/* --- gradient of a bias --- */

K_INLINE void bias_columns(
    const struct k_bias_bwd *a, int64_t col, const int64_t n, enum k_type type)
{
    float db[COLUMNS] = {0};
    for (int64_t base = 0; base < a->rows; base += BATCH_ROWS) {
        float batch[COLUMNS] = {0};
        for (int64_t row = base; row < k_min(base + BATCH_ROWS, a->rows); row++) {
            const void *dy = k_at(type, a->dy, row * a->width + col);
            for (int64_t j = 0; j < n; j++)
                batch[j] += k_load(type, dy, j);
        }
        for (int64_t j = 0; j < n; j++)
            db[j] += batch[j];
    }
    for (int64_t j = 0; j < n; j++)
        a->db[col + j] = a->accumulate ? a->db[col + j] + db[j] : db[j];
}

static void bias_bwd(void *arg, int64_t first, int64_t last)
{
    const struct k_bias_bwd *a = arg;
    for (int64_t i = first; i < last; i++) {
        int64_t col = i * COLUMNS, n = k_min(COLUMNS, a->width - col);
        K_BY_TYPE(a->type, bias_columns, a, col, n);
    }
}

void K_NAME(k_bias_bwd)(struct pool *p, const struct k_bias_bwd *a)
{
    pool_run(p, k_blocks(a->width, COLUMNS), bias_bwd, (void *)a);
}
