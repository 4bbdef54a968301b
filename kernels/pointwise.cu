/* Element by element: activations, casts, and the arithmetic of collectives. A thread has eight
 * elements. */
#include <assert.h>

#include "kernels/gpu_kernel.cuh"

/* First of the thread's elements. */
GPU_INLINE int64_t own_first(void)
{
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * GPU_WIDE;
}

static unsigned blocks_for(int64_t elems)
{
    return gpu_blocks(elems, GPU_THREADS * GPU_WIDE);
}

/* --- SwiGLU --- */

template <class T>
__global__ void swiglu_fwd(T *y, const T *gate_up, int64_t rows, int64_t width, bool is_wide)
{
    int64_t row = blockIdx.y, i = own_first();
    if (i >= width)
        return;
    float g[GPU_WIDE], u[GPU_WIDE];
    for (; row < rows; row += gridDim.y) {
        const T *gate = gate_up + row * 2 * width + i;
        gpu_load8(g, gate, width - i, is_wide);
        gpu_load8(u, gate + width, width - i, is_wide);
        for (int j = 0; j < GPU_WIDE; j++)
            g[j] = g[j] * gpu_sigmoid(g[j]) * u[j];
        gpu_store8(y + row * width + i, g, width - i, is_wide);
    }
}

/* s = sigmoid(g): d(g s) = s + g s (1 - s) = s (1 + g (1 - s)). A thread writes where it alone has
 * read. */
template <class T>
__global__ void swiglu_bwd(
    T *dgate_up, const T *dy, const T *gate_up, int64_t rows, int64_t width, bool is_wide)
{
    int64_t row = blockIdx.y, i = own_first();
    if (i >= width)
        return;
    float g[GPU_WIDE], u[GPU_WIDE], d[GPU_WIDE];
    for (; row < rows; row += gridDim.y) {
        int64_t at = row * 2 * width + i;
        gpu_load8(g, gate_up + at, width - i, is_wide);
        gpu_load8(u, gate_up + at + width, width - i, is_wide);
        gpu_load8(d, dy + row * width + i, width - i, is_wide);
        for (int j = 0; j < GPU_WIDE; j++) {
            float s = gpu_sigmoid(g[j]), silu = g[j] * s;
            g[j] = d[j] * u[j] * (s * (1.0f + g[j] * (1.0f - s)));
            u[j] = d[j] * silu;
        }
        gpu_store8(dgate_up + at, g, width - i, is_wide);
        gpu_store8(dgate_up + at + width, u, width - i, is_wide);
    }
}

static dim3 row_grid(int64_t rows, int64_t width)
{
    return dim3(blocks_for(width), (unsigned)(rows < 65535 ? rows : 65535));
}

template <class T> static void run_swiglu_fwd(struct pool *p, const struct k_swiglu_fwd *a)
{
    GPU_LAUNCH(swiglu_fwd<T>, row_grid(a->rows, a->width), GPU_THREADS, gpu_lane_of(p), (T *)a->y,
        (const T *)a->gate_up, a->rows, a->width, gpu_is_wide(a->width, a->y, a->gate_up));
}

void gpu_swiglu_fwd(struct pool *p, const struct k_swiglu_fwd *a)
{
    if (a->rows > 0 && a->width > 0)
        GPU_BY_TYPE(a->type, run_swiglu_fwd, p, a);
}

template <class T> static void run_swiglu_bwd(struct pool *p, const struct k_swiglu_bwd *a)
{
    GPU_LAUNCH(swiglu_bwd<T>, row_grid(a->rows, a->width), GPU_THREADS, gpu_lane_of(p),
        (T *)a->dgate_up, (const T *)a->dy, (const T *)a->gate_up, a->rows, a->width,
        gpu_is_wide(a->width, a->dgate_up, a->dy, a->gate_up));
}

void gpu_swiglu_bwd(struct pool *p, const struct k_swiglu_bwd *a)
{
    if (a->rows > 0 && a->width > 0)
        GPU_BY_TYPE(a->type, run_swiglu_bwd, p, a);
}

/* --- GELU: x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) --- */

#define GELU_2A 1.5957691216f /* 2 sqrt(2/pi) */
#define GELU_B  0.044715f

template <class T> __global__ void gelu_fwd(T *y, const T *x, int64_t n, bool is_wide)
{
    int64_t i = own_first();
    float v[GPU_WIDE];
    if (i >= n)
        return;
    is_wide = is_wide && n - i >= GPU_WIDE;
    gpu_load8(v, x + i, n - i, is_wide);
    for (int j = 0; j < GPU_WIDE; j++)
        v[j] *= gpu_sigmoid(GELU_2A * (v[j] + GELU_B * v[j] * v[j] * v[j]));
    gpu_store8(y + i, v, n - i, is_wide);
}

/* s = sigmoid(2u): d(x s) = s + x s (1 - s) d(2u). */
template <class T> __global__ void gelu_bwd(T *dx, const T *dy, const T *x, int64_t n, bool is_wide)
{
    int64_t i = own_first();
    float v[GPU_WIDE], d[GPU_WIDE];
    if (i >= n)
        return;
    is_wide = is_wide && n - i >= GPU_WIDE;
    gpu_load8(v, x + i, n - i, is_wide);
    gpu_load8(d, dy + i, n - i, is_wide);
    for (int j = 0; j < GPU_WIDE; j++) {
        float s = gpu_sigmoid(GELU_2A * (v[j] + GELU_B * v[j] * v[j] * v[j]));
        float slope = GELU_2A * (1.0f + 3.0f * GELU_B * v[j] * v[j]);
        d[j] *= s + v[j] * s * (1.0f - s) * slope;
    }
    gpu_store8(dx + i, d, n - i, is_wide);
}

template <class T> static void run_gelu_fwd(struct pool *p, const struct k_gelu_fwd *a)
{
    GPU_LAUNCH(gelu_fwd<T>, blocks_for(a->elems), GPU_THREADS, gpu_lane_of(p), (T *)a->y,
        (const T *)a->x, a->elems, gpu_is_wide(0, a->y, a->x));
}

void gpu_gelu_fwd(struct pool *p, const struct k_gelu_fwd *a)
{
    if (a->elems > 0)
        GPU_BY_TYPE(a->type, run_gelu_fwd, p, a);
}

template <class T> static void run_gelu_bwd(struct pool *p, const struct k_gelu_bwd *a)
{
    GPU_LAUNCH(gelu_bwd<T>, blocks_for(a->elems), GPU_THREADS, gpu_lane_of(p), (T *)a->dx,
        (const T *)a->dy, (const T *)a->x, a->elems, gpu_is_wide(0, a->dx, a->dy, a->x));
}

void gpu_gelu_bwd(struct pool *p, const struct k_gelu_bwd *a)
{
    if (a->elems > 0)
        GPU_BY_TYPE(a->type, run_gelu_bwd, p, a);
}

/* --- casts, sums, factors --- */

template <class To, class From>
__global__ void cast(To *dst, const From *src, int64_t n, bool is_wide)
{
    int64_t i = own_first();
    float v[GPU_WIDE];
    if (i >= n)
        return;
    is_wide = is_wide && n - i >= GPU_WIDE;
    gpu_load8(v, src + i, n - i, is_wide);
    gpu_store8(dst + i, v, n - i, is_wide);
}

void gpu_fp32_to_bf16(struct pool *p, uint16_t *dst, const float *src, int64_t n)
{
    if (n > 0)
        GPU_LAUNCH((cast<uint16_t, float>), blocks_for(n), GPU_THREADS, gpu_lane_of(p), dst, src, n,
            gpu_is_wide(0, dst, src));
}

void gpu_bf16_to_fp32(struct pool *p, float *dst, const uint16_t *src, int64_t n)
{
    if (n > 0)
        GPU_LAUNCH((cast<float, uint16_t>), blocks_for(n), GPU_THREADS, gpu_lane_of(p), dst, src, n,
            gpu_is_wide(0, dst, src));
}

__global__ void scale_f32(float *x, float factor, int64_t n, bool is_wide)
{
    int64_t i = own_first();
    float v[GPU_WIDE];
    if (i >= n)
        return;
    is_wide = is_wide && n - i >= GPU_WIDE;
    gpu_load8(v, x + i, n - i, is_wide);
    for (int j = 0; j < GPU_WIDE; j++)
        v[j] *= factor;
    gpu_store8(x + i, v, n - i, is_wide);
}

void gpu_scale_f32(struct pool *p, float *dst, float factor, int64_t n)
{
    if (n > 0)
        GPU_LAUNCH(scale_f32, blocks_for(n), GPU_THREADS, gpu_lane_of(p), dst, factor, n,
            gpu_is_wide(0, dst));
}

/* Vectors of ranks, as many as a launch takes. */
enum { RANKS = 256 };
struct ranks {
    const float *x[RANKS];
    int count;
};

/* dst (+)= ((x[0] + x[1]) + x[2]) + ... */
__global__ void sum_ranks(float *dst, struct ranks r, int64_t n, bool accumulate, bool is_wide)
{
    int64_t i = own_first();
    float sum[GPU_WIDE], v[GPU_WIDE];
    if (i >= n)
        return;
    is_wide = is_wide && n - i >= GPU_WIDE;
    gpu_load8(sum, r.x[0] + i, n - i, is_wide);
    for (int k = 1; k < r.count; k++) {
        gpu_load8(v, r.x[k] + i, n - i, is_wide);
        for (int j = 0; j < GPU_WIDE; j++)
            sum[j] += v[j];
    }
    if (accumulate) {
        gpu_load8(v, dst + i, n - i, is_wide);
        for (int j = 0; j < GPU_WIDE; j++)
            sum[j] = v[j] + sum[j];
    }
    gpu_store8(dst + i, sum, n - i, is_wide);
}

void gpu_sum_ranks_f32(
    struct pool *p, float *dst, const float *const *src, int count, int64_t n, enum k_sum_way way)
{
    struct ranks r = {{nullptr}, count};
    bool is_wide = gpu_is_wide(0, dst);
    assert(count <= RANKS);
    for (int i = 0; i < count; i++) {
        r.x[i] = src[i];
        is_wide = is_wide && gpu_is_wide(0, src[i]);
    }
    if (n > 0)
        GPU_LAUNCH(sum_ranks, blocks_for(n), GPU_THREADS, gpu_lane_of(p), dst, r, n,
            way == K_SUM_ADD, is_wide);
}

void gpu_sum_f32(struct pool *p, float *dst, const float *src, int64_t n)
{
    gpu_sum_ranks_f32(p, dst, &src, 1, n, K_SUM_ADD);
}

/* --- rotary embedding: element i of a head with i + head_dim / 2; a thread per pair --- */

template <class T> __global__ void rope(T *qkv, struct k_rope a, float direction)
{
    int64_t half = a.head_dim / 2, rotated = (a.heads + a.kv_heads) * half;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.tokens * rotated)
        return;
    int64_t t = i / rotated, head = i % rotated / half, pair = i % half;
    const float *angle = a.table + (a.positions ? a.positions[t] : t % a.seq) * a.head_dim + pair;
    float c = angle[0], s = angle[half] * direction;
    T *x = qkv + (t * (a.heads + 2 * a.kv_heads) + head) * a.head_dim + pair;
    float low = gpu_load(x), high = gpu_load(x + half);
    gpu_store(x, low * c - high * s);
    gpu_store(x + half, high * c + low * s);
}

template <class T> static void run_rope(struct pool *p, const struct k_rope *a, float direction)
{
    int64_t pairs = a->tokens * (a->heads + a->kv_heads) * (a->head_dim / 2);
    if (pairs > 0)
        GPU_LAUNCH(rope<T>, gpu_blocks(pairs, GPU_THREADS), GPU_THREADS, gpu_lane_of(p),
            (T *)a->qkv, *a, direction);
}

void gpu_rope_fwd(struct pool *p, const struct k_rope *a)
{
    GPU_BY_TYPE(a->type, run_rope, p, a, 1.0f);
}

void gpu_rope_bwd(struct pool *p, const struct k_rope *a)
{
    GPU_BY_TYPE(a->type, run_rope, p, a, -1.0f);
}
