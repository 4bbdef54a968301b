/* RMSNorm of every query and key head: a warp per head. Gradients of the weights are summed in
 * K_QK_NORM_PIECES pieces of tokens, whose bounds depend on the number of tokens alone. */
#include "kernels/gpu_kernel.cuh"

enum { PER_LANE = K_MAX_HEAD_DIM / GPU_WARP, WARPS = 8 };

/* Of a head's elements the lane has every 32nd. */
#define EACH_OWN(j, c, dim)                                                                        \
    for (int j = 0, c = (int)threadIdx.x; j < PER_LANE; j++, c += GPU_WARP)                        \
        if (c < (dim))

template <class T>
__global__ void qk_norm_fwd(T *qkv, const T *x, const T *wq, const T *wk, struct k_qk_norm_fwd a)
{
    int64_t normed = a.heads + a.kv_heads, all = normed + a.kv_heads;
    int64_t head = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (head >= a.tokens * all)
        return;
    int64_t row = head / all, h = head % all, at = head * a.head_dim;
    float v[PER_LANE] = {0}, squares = 0;
    EACH_OWN(j, i, a.head_dim)
    {
        v[j] = gpu_load(x + at + i);
        squares += v[j] * v[j];
    }
    const T *w = h < a.heads ? wq : wk;
    double mean = (double)gpu_warp_sum(squares) / (double)a.head_dim;
    float rstd = (float)(1 / sqrt(mean + (double)a.eps));
    EACH_OWN(j, i, a.head_dim)
    gpu_store(qkv + at + i, h < normed ? v[j] * rstd * gpu_load(w + i) : v[j]);
    if (threadIdx.x == 0 && h < normed)
        a.stats[row * normed + h] = rstd;
}

template <class T> static void run_qk_norm_fwd(struct pool *p, const struct k_qk_norm_fwd *a)
{
    int64_t heads = a->tokens * (a->heads + 2 * a->kv_heads);
    if (heads > 0)
        GPU_LAUNCH(qk_norm_fwd<T>, gpu_blocks(heads, WARPS), dim3(GPU_WARP, WARPS), gpu_lane_of(p),
            (T *)a->qkv, (const T *)a->x, (const T *)a->wq, (const T *)a->wk, *a);
}

void gpu_qk_norm_fwd(struct pool *p, const struct k_qk_norm_fwd *a)
{
    GPU_BY_TYPE(a->type, run_qk_norm_fwd, p, a);
}

/* With h = x rstd and g = w dy: dx = rstd (g - h mean(g h)), dw += dy h; dx replaces dy. A block
 * per piece: its warps share the heads of a token, then their sums are added in order. */
template <class T>
__global__ void qk_norm_bwd(T *dqkv, const T *x, const T *wq, const T *wk, struct k_qk_norm_bwd a)
{
    GPU_SHARED(float, sums, WARPS * 2 * K_MAX_HEAD_DIM);
    int64_t normed = a.heads + a.kv_heads, all = normed + a.kv_heads, n = a.head_dim;
    int64_t rows = (a.tokens + K_QK_NORM_PIECES - 1) / K_QK_NORM_PIECES;
    int64_t first = blockIdx.x * rows, last = first + rows < a.tokens ? first + rows : a.tokens;
    float dw[2][PER_LANE] = {{0}};
    for (int64_t i = first * normed + threadIdx.y; i < last * normed; i += WARPS) {
        int64_t row = i / normed, h = i % normed, at = (row * all + h) * n;
        bool is_key = h >= a.heads;
        const T *w = is_key ? wk : wq;
        float rstd = a.stats[i], g[PER_LANE], hat[PER_LANE], gh = 0;
        EACH_OWN(j, c, n)
        {
            float d = gpu_load(dqkv + at + c);
            hat[j] = gpu_load(x + at + c) * rstd;
            g[j] = d * gpu_load(w + c);
            dw[0][j] += is_key ? 0 : d * hat[j];
            dw[1][j] += is_key ? d * hat[j] : 0;
            gh += g[j] * hat[j];
        }
        float mean_gh = (float)((double)gpu_warp_sum(gh) / (double)n);
        EACH_OWN(j, c, n)
        gpu_store(dqkv + at + c, rstd * (g[j] - hat[j] * mean_gh));
    }
    for (int k = 0; k < 2; k++)
        EACH_OWN(j, c, n)
    sums[(threadIdx.y * 2 + k) * K_MAX_HEAD_DIM + c] = dw[k][j];
    __syncthreads();
    for (int64_t c = threadIdx.y * GPU_WARP + threadIdx.x; c < 2 * n; c += GPU_WARP * WARPS) {
        float sum = 0;
        for (int i = 0; i < WARPS; i++)
            sum += sums[(i * 2 + c / n) * K_MAX_HEAD_DIM + c % n];
        a.scratch[blockIdx.x * 2 * n + c] = sum;
    }
}

__global__ void qk_norm_add(struct k_qk_norm_bwd a, int64_t pieces)
{
    int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, n = a.head_dim;
    if (c >= 2 * n)
        return;
    float sum = 0, *dw = c < n ? a.dwq + c : a.dwk + (c - n);
    for (int64_t i = 0; i < pieces; i++)
        sum += a.scratch[i * 2 * n + c];
    *dw = a.accumulate_dw ? *dw + sum : sum;
}

template <class T> static void run_qk_norm_bwd(struct pool *p, const struct k_qk_norm_bwd *a)
{
    int64_t rows = (a->tokens + K_QK_NORM_PIECES - 1) / K_QK_NORM_PIECES;
    int64_t pieces = a->tokens > 0 ? (a->tokens + rows - 1) / rows : 0;
    if (pieces > 0)
        GPU_LAUNCH(qk_norm_bwd<T>, (unsigned)pieces, dim3(GPU_WARP, WARPS), gpu_lane_of(p),
            (T *)a->dqkv, (const T *)a->x, (const T *)a->wq, (const T *)a->wk, *a);
    if (a->dwq)
        GPU_LAUNCH(qk_norm_add, gpu_blocks(2 * a->head_dim, GPU_WARP), GPU_WARP, gpu_lane_of(p), *a,
            pieces);
}

void gpu_qk_norm_bwd(struct pool *p, const struct k_qk_norm_bwd *a)
{
    GPU_BY_TYPE(a->type, run_qk_norm_bwd, p, a);
}
