/* Matrix products of any form and type.
 *
 * Blocks of MATMUL_ROWS x MATMUL_COLS of C, pieces of MATMUL_STEPS of k: both operands' parts are
 * packed by all threads, then the tiles are multiplied by all threads. A tile's partial sum stays
 * in C itself when C is fp32, else in the workspace until the last piece of k, so that bf16 results
 * are rounded once. */
#include "kernels/gemm.h"

/* Tiles are handed out in blocks of this many rows and columns. */
enum { BLOCK_ROWS = GEMM_UNIT, BLOCK_COLS = GEMM_UNIT };

struct product {
    const struct k_matmul *a;
    int64_t row, rows, col, cols, step, steps; /* the current block of C and piece of k */
    float *panels_a, *panels_b, *partial;
    int64_t partial_ld;
    bool is_first, is_last; /* piece of k */
};

/* --- packing --- */

/* Lanes packed by one thread at a time: rows of A or columns of B. */
enum { PACK_LANES = GEMM_UNIT };

K_INLINE void pack_a(const struct product *p, int64_t lane, enum k_type type)
{
    const struct k_matmul *a = p->a;
    int64_t row = p->row + lane, lanes = k_min(PACK_LANES, p->rows - lane);
    bool by_lane = a->form != K_TN;
    const void *src = gemm_at(type, a->a, by_lane ? row * a->k + p->step : p->step * a->m + row);
    gemm_pack(type, p->panels_a + lane * p->steps, GEMM_MR, src, by_lane ? a->k : a->m, by_lane,
        lanes, p->steps);
}

K_INLINE void pack_b(const struct product *p, int64_t lane, enum k_type type)
{
    const struct k_matmul *a = p->a;
    int64_t col = p->col + lane, lanes = k_min(PACK_LANES, p->cols - lane);
    bool by_lane = a->form == K_NT;
    const void *src = gemm_at(type, a->b, by_lane ? col * a->k + p->step : p->step * a->n + col);
    gemm_pack(type, p->panels_b + lane * p->steps, GEMM_NR, src, by_lane ? a->k : a->n, by_lane,
        lanes, p->steps);
}

/* Items: the lanes of A, then those of B. */
K_INLINE void pack_items(
    const struct product *p, int64_t first, int64_t last, enum k_type type_a, enum k_type type_b)
{
    int64_t of_a = k_blocks(p->rows, PACK_LANES);
    for (int64_t i = first; i < last; i++) {
        if (i < of_a)
            pack_a(p, i * PACK_LANES, type_a);
        else
            pack_b(p, (i - of_a) * PACK_LANES, type_b);
    }
}

static void pack(void *arg, int64_t first, int64_t last)
{
    const struct product *p = arg;
    if (p->a->is_fp8 && p->a->a_format == K_E5M2)
        pack_items(p, first, last, K_E5M2, K_E4M3);
    else if (p->a->is_fp8)
        pack_items(p, first, last, K_E4M3, K_E4M3);
    else if (p->a->type == K_BF16)
        pack_items(p, first, last, K_BF16, K_BF16);
    else
        pack_items(p, first, last, K_FP32, K_FP32);
}

/* --- multiplying --- */

/* A row of n sums for C at (row, col) is complete but for what is added to it. */
K_INLINE void finish_row(const struct k_matmul *a, const float *restrict sum, int64_t row,
    int64_t col, const int64_t n, enum k_type type, enum k_type out)
{
    int64_t at = row * a->n + col;
    float x[GEMM_NR];
    for (int64_t j = 0; j < n; j++)
        x[j] = sum[j];
    if (a->bias)
        for (int64_t j = 0; j < n; j++)
            x[j] += k_load(type, a->bias, col + j);
    if (a->residual)
        for (int64_t j = 0; j < n; j++)
            x[j] += k_load(type, a->residual, at + j);
    if (a->accumulate)
        for (int64_t j = 0; j < n; j++)
            x[j] += k_load(out, a->c, at + j);
    for (int64_t j = 0; j < n; j++)
        k_store(out, a->c, at + j, x[j]);
}

K_INLINE void finish_tile(const struct k_matmul *a, const float *tile, int64_t row, int64_t col,
    int64_t m, const int64_t n, enum k_type type, enum k_type out)
{
    for (int64_t i = 0; i < m; i++)
        finish_row(a, tile + i * GEMM_NR, row + i, col, n, type, out);
}

/* C, fp32 or not, from the sums of one tile; whole tiles get loops of constant length. */
static void finish(
    const struct k_matmul *a, const float *tile, int64_t row, int64_t col, int64_t m, int64_t n)
{
    bool whole = n == GEMM_NR;
    if (a->type == K_FP32 && whole)
        finish_tile(a, tile, row, col, m, GEMM_NR, K_FP32, K_FP32);
    else if (a->type == K_FP32)
        finish_tile(a, tile, row, col, m, n, K_FP32, K_FP32);
    else if (a->out_fp32)
        finish_tile(a, tile, row, col, m, n, K_BF16, K_FP32);
    else if (whole)
        finish_tile(a, tile, row, col, m, GEMM_NR, K_BF16, K_BF16);
    else
        finish_tile(a, tile, row, col, m, n, K_BF16, K_BF16);
}

static void add_rows(float *dst, int64_t dst_ld, const float *src, int64_t ld, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            dst[i * dst_ld + j] += src[i * ld + j];
}

/* In two steps, as the product of the units may not be a number. */
static void scale_tile(float *tile, float a_unit, float b_unit)
{
    for (int64_t i = 0; i < GEMM_MR * GEMM_NR; i++)
        tile[i] = tile[i] * a_unit * b_unit;
}

/* A tile's sums over the current piece of k, at (i, j) of the current block. fp32: C is finished
 * with the first piece and later ones are added to it. bf16: finished with the last piece. */
static void settle(const struct product *p, float *tile, int64_t i, int64_t j)
{
    const struct k_matmul *a = p->a;
    int64_t m = k_min(GEMM_MR, p->rows - i), n = k_min(GEMM_NR, p->cols - j);
    int64_t row = p->row + i, col = p->col + j;
    if (a->is_fp8)
        scale_tile(tile, *a->a_unit, *a->b_unit);
    if (a->type == K_FP32 || a->out_fp32) {
        if (p->is_first)
            finish(a, tile, row, col, m, n);
        else
            add_rows((float *)a->c + row * a->n + col, a->n, tile, GEMM_NR, m, n);
        return;
    }
    float *partial = p->partial + i * p->partial_ld + j;
    if (!p->is_first)
        add_rows(tile, GEMM_NR, partial, p->partial_ld, m, n);
    if (p->is_last)
        finish(a, tile, row, col, m, n);
    else
        for (int64_t r = 0; r < m; r++)
            memcpy(partial + r * p->partial_ld, tile + r * GEMM_NR, (size_t)n * sizeof(float));
}

static void multiply_block(const struct product *p, int64_t row, int64_t col)
{
    _Alignas(64) float tile[GEMM_MR * GEMM_NR];
    int64_t rows_end = k_min(row + BLOCK_ROWS, p->rows);
    int64_t cols_end = k_min(col + BLOCK_COLS, p->cols);
    for (int64_t j = col; j < cols_end; j += GEMM_NR)
        for (int64_t i = row; i < rows_end; i += GEMM_MR) {
            gemm_micro(p->steps, p->panels_a + i * p->steps, p->panels_b + j * p->steps, tile,
                GEMM_NR, false);
            settle(p, tile, i, j);
        }
}

/* Items: blocks of tiles, along the columns first. */
static void multiply(void *arg, int64_t first, int64_t last)
{
    const struct product *p = arg;
    int64_t across = k_blocks(p->cols, BLOCK_COLS);
    for (int64_t i = first; i < last; i++)
        multiply_block(p, i / across * BLOCK_ROWS, i % across * BLOCK_COLS);
}

static void multiply_piece(struct pool *pool, struct product *p, int64_t step)
{
    p->step = step;
    p->steps = k_min(MATMUL_STEPS, p->a->k - step);
    p->is_first = step == 0;
    p->is_last = step + p->steps >= p->a->k;
    pool_run(pool, k_blocks(p->rows, PACK_LANES) + k_blocks(p->cols, PACK_LANES), pack, p);
    pool_run(pool, k_blocks(p->rows, BLOCK_ROWS) * k_blocks(p->cols, BLOCK_COLS), multiply, p);
}

void K_NAME(k_matmul)(struct pool *pool, const struct k_matmul *a)
{
    struct product p = {.a = a};
    int64_t rows = gemm_pad(k_min(a->m, MATMUL_ROWS)), cols = gemm_pad(k_min(a->n, MATMUL_COLS));
    int64_t steps = k_min(a->k, MATMUL_STEPS);
    p.panels_a = a->workspace;
    p.panels_b = p.panels_a + rows * steps;
    p.partial = p.panels_b + cols * steps;
    p.partial_ld = cols;
    for (p.col = 0; p.col < a->n; p.col += MATMUL_COLS)
        for (p.row = 0; p.row < a->m; p.row += MATMUL_ROWS) {
            p.rows = k_min(MATMUL_ROWS, a->m - p.row);
            p.cols = k_min(MATMUL_COLS, a->n - p.col);
            int64_t step = 0;
            do
                multiply_piece(pool, &p, step);
            while ((step += MATMUL_STEPS) < a->k);
        }
}
