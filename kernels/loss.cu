/* Softmax cross-entropy, its gradient in place of the logits: a block per row. */
#include "kernels/gpu_kernel.cuh"

/* Losses that wait in a lane's scratch to be summed in the order of rows. */
enum { ROWS = GPU_SCRATCH_BYTES / (int)sizeof(double) };

/* Largest of a row; NaN where one is. */
template <class T> GPU_INLINE float row_max(const T *x, int64_t n)
{
    float best = -INFINITY;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float v = gpu_load(x + i);
        best = v > best ? v : best;
    }
    return gpu_block_max(best);
}

template <class T> GPU_INLINE double row_exp_sum(const T *x, int64_t n, float max)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += (int64_t)blockDim.x * GPU_WIDE) {
        float part = 0;
        for (int64_t j = i; j < n && j < i + (int64_t)blockDim.x * GPU_WIDE; j += blockDim.x)
            part += expf(gpu_load(x + j) - max);
        sum += (double)part;
    }
    return gpu_block_sum(sum);
}

template <class T>
__global__ void cross_entropy(T *logits, double *loss, struct k_cross_entropy a, int64_t first_row)
{
    int64_t row = first_row + blockIdx.x;
    int32_t target = a.targets[row];
    T *x = logits + row * a.vocab;
    if (target < 0) {
        for (int64_t i = threadIdx.x; i < a.vocab; i += blockDim.x)
            gpu_store(x + i, 0);
        if (threadIdx.x == 0)
            loss[blockIdx.x] = 0;
        return;
    }
    float max = row_max(x, a.vocab), at_target = gpu_load(x + target);
    double sum = row_exp_sum(x, a.vocab, max);
    float scale = *a.divisor > 0 ? (float)(1 / *a.divisor) : 0;
    float factor = (float)((double)scale / sum);
    for (int64_t i = threadIdx.x; i < a.vocab; i += blockDim.x) {
        float p = expf(gpu_load(x + i) - max) * factor;
        gpu_store(x + i, i == target ? p - scale : p);
    }
    if (threadIdx.x == 0)
        loss[blockIdx.x] = log(sum) + (double)max - (double)at_target;
}

template <class T> static void run_cross_entropy(struct pool *p, const struct k_cross_entropy *a)
{
    const struct gpu_lane *lane = gpu_lane_of(p);
    double *loss = (double *)lane->scratch;
    for (int64_t row = 0; row < a->tokens; row += ROWS) {
        int64_t rows = a->tokens - row < ROWS ? a->tokens - row : (int64_t)ROWS;
        GPU_LAUNCH(cross_entropy<T>, (unsigned)rows, gpu_row_threads(a->vocab, 512), lane,
            (T *)a->logits, loss, *a, row);
        gpu_add_in_order(p, a->loss_sum, loss, rows);
    }
}

void gpu_cross_entropy(struct pool *p, const struct k_cross_entropy *a)
{
    GPU_BY_TYPE(a->type, run_cross_entropy, p, a);
}
