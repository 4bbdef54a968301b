/* RMSNorm, LayerNorm and sums over rows. A block per row where a row is reduced; a block per 32
 * columns, in which 32 strands go through the rows, where a column is. */
#include "kernels/gpu_kernel.cuh"

enum { COLUMNS = 32, STRANDS = 32 };

/* --- forward --- */

template <class T>
__global__ void norm_fwd(
    T *y, float *stats, const T *x, const T *w, const T *b, struct k_norm_fwd a, bool is_wide)
{
    int64_t row = blockIdx.x, at = row * a.width;
    float v[GPU_WIDE], g[GPU_WIDE], sum = 0, squares = 0, mean = 0;
    if (a.is_layernorm) {
        for (int64_t i = threadIdx.x * GPU_WIDE; i < a.width; i += blockDim.x * GPU_WIDE) {
            gpu_load8(v, x + at + i, a.width - i, is_wide);
            for (int j = 0; j < GPU_WIDE; j++)
                sum += v[j];
        }
        mean = (float)(gpu_block_sum((double)sum) / (double)a.width);
    }
    for (int64_t i = threadIdx.x * GPU_WIDE; i < a.width; i += blockDim.x * GPU_WIDE) {
        gpu_load8(v, x + at + i, a.width - i, is_wide);
        for (int j = 0; j < GPU_WIDE; j++)
            squares += i + j < a.width ? (v[j] - mean) * (v[j] - mean) : 0;
    }
    double variance = gpu_block_sum((double)squares) / (double)a.width;
    float rstd = (float)(1 / sqrt(variance + (double)a.eps));
    for (int64_t i = threadIdx.x * GPU_WIDE; i < a.width; i += blockDim.x * GPU_WIDE) {
        gpu_load8(v, x + at + i, a.width - i, is_wide);
        gpu_load8(g, w + i, a.width - i, is_wide);
        for (int j = 0; j < GPU_WIDE; j++)
            v[j] = (v[j] - mean) * rstd * g[j];
        if (b) {
            gpu_load8(g, b + i, a.width - i, is_wide);
            for (int j = 0; j < GPU_WIDE; j++)
                v[j] += g[j];
        }
        gpu_store8(y + at + i, v, a.width - i, is_wide);
    }
    if (threadIdx.x == 0) {
        if (a.is_layernorm)
            stats[row] = mean;
        stats[a.is_layernorm ? a.rows + row : row] = rstd;
    }
}

template <class T> static void run_norm_fwd(struct pool *p, const struct k_norm_fwd *a)
{
    bool is_wide = gpu_is_wide(a->width, a->x, a->y, a->w, a->b);
    GPU_LAUNCH(norm_fwd<T>, (unsigned)a->rows, gpu_row_threads(a->width), gpu_lane_of(p), (T *)a->y,
        a->stats, (const T *)a->x, (const T *)a->w, (const T *)a->b, *a, is_wide);
}

void gpu_norm_fwd(struct pool *p, const struct k_norm_fwd *a)
{
    if (a->rows > 0)
        GPU_BY_TYPE(a->type, run_norm_fwd, p, a);
}

/* --- backward: with h = (x - mean) rstd and g = w dy --- */

/* dx (+)= rstd (g - mean(g) - h mean(g h)); without mean(g) for RMSNorm. A thread writes what it
 * alone has read, so dx may be dy. */
template <class T>
__global__ void norm_bwd_dx(
    T *dx, const T *dy, const T *x, const T *w, struct k_norm_bwd a, bool is_wide)
{
    int64_t row = blockIdx.x, at = row * a.width;
    float mean = a.is_layernorm ? a.stats[row] : 0;
    float rstd = a.stats[a.is_layernorm ? a.rows + row : row];
    float h[GPU_WIDE], g[GPU_WIDE], v[GPU_WIDE], sum_g = 0, sum_gh = 0;
    for (int64_t i = threadIdx.x * GPU_WIDE; i < a.width; i += blockDim.x * GPU_WIDE) {
        gpu_load8(h, x + at + i, a.width - i, is_wide);
        gpu_load8(g, dy + at + i, a.width - i, is_wide);
        gpu_load8(v, w + i, a.width - i, is_wide);
        for (int j = 0; j < GPU_WIDE; j++) {
            sum_g += g[j] * v[j];
            sum_gh += g[j] * v[j] * ((h[j] - mean) * rstd);
        }
    }
    float mean_g = 0, mean_gh = (float)(gpu_block_sum((double)sum_gh) / (double)a.width);
    if (a.is_layernorm)
        mean_g = (float)(gpu_block_sum((double)sum_g) / (double)a.width);
    for (int64_t i = threadIdx.x * GPU_WIDE; i < a.width; i += blockDim.x * GPU_WIDE) {
        gpu_load8(h, x + at + i, a.width - i, is_wide);
        gpu_load8(g, dy + at + i, a.width - i, is_wide);
        gpu_load8(v, w + i, a.width - i, is_wide);
        for (int j = 0; j < GPU_WIDE; j++)
            g[j] = rstd * (g[j] * v[j] - mean_g - (h[j] - mean) * rstd * mean_gh);
        if (!a.overwrite_dx) {
            gpu_load8(v, dx + at + i, a.width - i, is_wide);
            for (int j = 0; j < GPU_WIDE; j++)
                g[j] += v[j];
        }
        gpu_store8(dx + at + i, g, a.width - i, is_wide);
    }
}

/* Of 32 strands a column's sum, in their order; strand 0 has it. */
GPU_INLINE float strands_sum(float x)
{
    GPU_SHARED(float, part, STRANDS *(COLUMNS + 1));
    part[threadIdx.y * (COLUMNS + 1) + threadIdx.x] = x;
    __syncthreads();
    float sum = 0;
    if (threadIdx.y == 0)
        for (int i = 0; i < STRANDS; i++)
            sum += part[i * (COLUMNS + 1) + threadIdx.x];
    __syncthreads();
    return sum;
}

GPU_INLINE void put_sum(float *to, int64_t col, int64_t width, float sum, bool accumulate)
{
    if (threadIdx.y == 0 && col < width)
        to[col] = accumulate ? to[col] + sum : sum;
}

/* dw (+)= sum of dy h, db (+)= sum of dy. */
template <class T> __global__ void norm_bwd_dw(const T *dy, const T *x, struct k_norm_bwd a)
{
    int64_t col = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    float dw = 0, db = 0;
    for (int64_t row = threadIdx.y; row < a.rows && col < a.width; row += STRANDS) {
        float mean = a.is_layernorm ? a.stats[row] : 0;
        float rstd = a.stats[a.is_layernorm ? a.rows + row : row];
        float d = gpu_load(dy + row * a.width + col);
        dw += d * ((gpu_load(x + row * a.width + col) - mean) * rstd);
        db += d;
    }
    put_sum(a.dw, col, a.width, strands_sum(dw), a.accumulate_dw);
    db = strands_sum(db);
    if (a.db)
        put_sum(a.db, col, a.width, db, a.accumulate_dw);
}

template <class T> static void run_norm_bwd(struct pool *p, const struct k_norm_bwd *a)
{
    const struct gpu_lane *lane = gpu_lane_of(p);
    const T *dy = (const T *)a->dy, *x = (const T *)a->x;
    bool is_wide = gpu_is_wide(a->width, a->x, a->dy, a->w, a->dx);
    if (a->dw) /* first: dx may be dy */
        GPU_LAUNCH(
            norm_bwd_dw<T>, gpu_blocks(a->width, COLUMNS), dim3(COLUMNS, STRANDS), lane, dy, x, *a);
    if (a->dx && a->rows > 0)
        GPU_LAUNCH(norm_bwd_dx<T>, (unsigned)a->rows, gpu_row_threads(a->width), lane, (T *)a->dx,
            dy, x, (const T *)a->w, *a, is_wide);
}

void gpu_norm_bwd(struct pool *p, const struct k_norm_bwd *a)
{
    GPU_BY_TYPE(a->type, run_norm_bwd, p, a);
}

/* --- bias --- */

template <class T>
__global__ void bias_bwd(float *db, const T *dy, int64_t rows, int64_t width, bool accumulate)
{
    int64_t col = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0;
    for (int64_t row = threadIdx.y; row < rows && col < width; row += STRANDS)
        sum += gpu_load(dy + row * width + col);
    put_sum(db, col, width, strands_sum(sum), accumulate);
}

template <class T> static void run_bias_bwd(struct pool *p, const struct k_bias_bwd *a)
{
    GPU_LAUNCH(bias_bwd<T>, gpu_blocks(a->width, COLUMNS), dim3(COLUMNS, STRANDS), gpu_lane_of(p),
        a->db, (const T *)a->dy, a->rows, a->width, a->accumulate);
}

void gpu_bias_bwd(struct pool *p, const struct k_bias_bwd *a)
{
    GPU_BY_TYPE(a->type, run_bias_bwd, p, a);
}
