/* Embeddings: lookup, and its gradient without atomic sums. */
#include "kernels/gpu_kernel.cuh"

GPU_INLINE int64_t position_of(const int32_t *positions, int64_t token, int64_t seq)
{
    return positions ? positions[token] : token % seq;
}

/* --- lookup: a block per token --- */

template <class T>
__global__ void embed_fwd(T *x, const T *wte, const T *wpe, struct k_embed_fwd a, bool is_wide)
{
    int64_t t = blockIdx.x;
    const T *token = wte + (int64_t)a.ids[t] * a.width;
    const T *place = wpe ? wpe + position_of(a.positions, t, a.seq) * a.width : nullptr;
    float v[GPU_WIDE], w[GPU_WIDE];
    for (int64_t i = threadIdx.x * GPU_WIDE; i < a.width; i += blockDim.x * GPU_WIDE) {
        gpu_load8(v, token + i, a.width - i, is_wide);
        if (place) {
            gpu_load8(w, place + i, a.width - i, is_wide);
            for (int j = 0; j < GPU_WIDE; j++)
                v[j] += w[j];
        }
        gpu_store8(x + t * a.width + i, v, a.width - i, is_wide);
    }
}

template <class T> static void run_embed_fwd(struct pool *p, const struct k_embed_fwd *a)
{
    GPU_LAUNCH(embed_fwd<T>, (unsigned)a->tokens, gpu_row_threads(a->width), gpu_lane_of(p),
        (T *)a->x, (const T *)a->wte, (const T *)a->wpe, *a,
        gpu_is_wide(a->width, a->x, a->wte, a->wpe));
}

void gpu_embed_fwd(struct pool *p, const struct k_embed_fwd *a)
{
    if (a->tokens > 0)
        GPU_BY_TYPE(a->type, run_embed_fwd, p, a);
}

/* --- gradient --- */

/* The row that token t looked up. */
struct lookup {
    const int32_t *ids; /* NULL: positions */
    const int32_t *positions;
    int64_t seq;
};

GPU_INLINE int64_t row_of(struct lookup l, int64_t t)
{
    return l.ids ? l.ids[t] : position_of(l.positions, t, l.seq);
}

/* Of tokens begin .. end - 1, spread over the block: the first that looked up row, or end. */
GPU_INLINE int64_t first_match(struct lookup l, int64_t row, int64_t begin, int64_t end)
{
    GPU_SHARED(unsigned, found, 1);
    for (int64_t base = begin; base < end; base += blockDim.x) {
        int64_t t = base + threadIdx.x;
        if (threadIdx.x == 0)
            found[0] = ~0u;
        __syncthreads();
        if (t < end && row_of(l, t) == row)
            atomicMin(found, threadIdx.x);
        __syncthreads();
        unsigned at = found[0];
        __syncthreads();
        if (at != ~0u)
            return base + at;
    }
    return end;
}

/* A block per token; that of the first token of a row adds the gradients of all of them, in their
 * order: drow += sum of dx. */
template <class T>
__global__ void embed_bwd(
    float *drows, const T *dx, struct lookup l, int64_t tokens, int64_t width, bool is_wide)
{
    int64_t own = blockIdx.x, row = row_of(l, own);
    float sum[GPU_WIDE], v[GPU_WIDE];
    if (first_match(l, row, 0, own) < own)
        return;
    for (int64_t t = own; t < tokens; t = first_match(l, row, t + 1, tokens))
        for (int64_t i = threadIdx.x * GPU_WIDE; i < width; i += blockDim.x * GPU_WIDE) {
            float *to = drows + row * width + i;
            gpu_load8(sum, to, width - i, is_wide);
            gpu_load8(v, dx + t * width + i, width - i, is_wide);
            for (int j = 0; j < GPU_WIDE; j++)
                sum[j] += v[j];
            gpu_store8(to, sum, width - i, is_wide);
        }
}

template <class T>
static void add_rows(struct pool *p, const struct k_embed_bwd *a, float *drows, bool is_position)
{
    struct lookup l = {is_position ? nullptr : a->ids, a->positions, a->seq};
    GPU_LAUNCH(embed_bwd<T>, (unsigned)a->tokens, gpu_row_threads(a->width), gpu_lane_of(p), drows,
        (const T *)a->dx, l, a->tokens, a->width, gpu_is_wide(a->width, drows, a->dx));
}

static void run_embed_bwd(
    struct pool *p, const struct k_embed_bwd *a, float *drows, int64_t rows, bool is_position)
{
    if (!a->accumulate)
        gpu_zero(p, drows, rows * a->width * (int64_t)sizeof(*drows));
    if (a->tokens > 0)
        GPU_BY_TYPE(a->type, add_rows, p, a, drows, is_position);
}

void gpu_embed_bwd(struct pool *p, const struct k_embed_bwd *a)
{
    if (a->dwte)
        run_embed_bwd(p, a, a->dwte, a->vocab, false);
    if (a->dwpe)
        run_embed_bwd(p, a, a->dwpe, a->position_rows, true);
}
