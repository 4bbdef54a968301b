/* What the *.cu files share: launching, 16-byte access, sums over a block.
 *
 * The files are compiled by nvcc for GPUs, and by a C++ compiler against tests/lib/cuda_on_cpu.h to
 * be tested without one; the three macros below are all they need for that. As on the CPU, products
 * are fused only where fmaf says so (--fmad=false), so that encodings have the same bits there. */
#ifndef KERNELS_GPU_KERNEL_CUH
#define KERNELS_GPU_KERNEL_CUH

#include <stdint.h>

#include "kernels/gpu_table.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define GPU_LAUNCH(kernel, grid, block, lane, ...)                                                 \
    kernel<<<(grid), (block), 0, (cudaStream_t)(lane)->stream>>>(__VA_ARGS__)
#define GPU_SHARED(type, name, n) __shared__ type name[n]
#else
#include "tests/lib/cuda_on_cpu.h"
#endif

#define GPU_INLINE __device__ static inline

/* Threads of a block for element-wise work, and elements of 16 bytes of bf16. */
enum { GPU_THREADS = 256, GPU_WARP = 32, GPU_WIDE = 8 };

/* The pool of a call. */
static inline const struct gpu_lane *gpu_lane_of(struct pool *p)
{
#ifdef __CUDACC__
    return (const struct gpu_lane *)(const void *)p;
#else
    (void)p; /* there is one lane, and callers pass pools */
    return cuda_on_cpu_lane();
#endif
}

static inline unsigned gpu_blocks(int64_t n, int64_t size)
{
    return (unsigned)((n + size - 1) / size);
}

/* Calls a template with the type of activations, an int or the like as bf16: uint16_t. */
#define GPU_BY_TYPE(k, call, ...)                                                                  \
    do {                                                                                           \
        if ((k) == K_BF16)                                                                         \
            call<uint16_t>(__VA_ARGS__);                                                           \
        else                                                                                       \
            call<float>(__VA_ARGS__);                                                              \
    } while (0)

/* --- numbers --- */

GPU_INLINE float gpu_load(const float *p)
{
    return *p;
}

GPU_INLINE float gpu_widen(uint32_t h)
{
    return __uint_as_float(h << 16);
}

GPU_INLINE float gpu_load(const uint16_t *p)
{
    return gpu_widen(*p);
}

/* To nearest even; a NaN keeps its upper bits and becomes quiet. */
GPU_INLINE uint32_t gpu_round(float x)
{
    uint32_t u = __float_as_uint(x);
    uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (u & 0x7fffffff) > 0x7f800000 ? (u >> 16 | 0x40) : rounded;
}

GPU_INLINE void gpu_store(float *p, float x)
{
    *p = x;
}

GPU_INLINE void gpu_store(uint16_t *p, float x)
{
    *p = (uint16_t)gpu_round(x);
}

GPU_INLINE float gpu_sigmoid(float x)
{
    float e = expf(x < 0 ? x : -x);
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/* --- eight elements at once --- */

/* Whether rows of width elements can be taken in pieces of 16 bytes; addresses not given are NULL.
 */
static inline bool gpu_is_wide(int64_t width, const void *a, const void *b = nullptr,
    const void *c = nullptr, const void *d = nullptr)
{
    uintptr_t bits = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d;
    return bits % 16 == 0 && width % GPU_WIDE == 0;
}

/* left: elements there are from p on; behind them v is zero. */
GPU_INLINE void gpu_load8(float *v, const float *p, int64_t left, bool is_wide)
{
    if (is_wide) {
        float4 a = ((const float4 *)p)[0], b = ((const float4 *)p)[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        return;
    }
    for (int i = 0; i < GPU_WIDE; i++)
        v[i] = i < left ? p[i] : 0;
}

GPU_INLINE void gpu_load8(float *v, const uint16_t *p, int64_t left, bool is_wide)
{
    if (is_wide) {
        uint4 u = *(const uint4 *)p;
        uint32_t pair[4] = {u.x, u.y, u.z, u.w};
        for (int i = 0; i < 4; i++) {
            v[2 * i] = gpu_widen(pair[i] & 0xffff);
            v[2 * i + 1] = gpu_widen(pair[i] >> 16);
        }
        return;
    }
    for (int i = 0; i < GPU_WIDE; i++)
        v[i] = i < left ? gpu_load(p + i) : 0;
}

GPU_INLINE void gpu_store8(float *p, const float *v, int64_t left, bool is_wide)
{
    if (is_wide) {
        ((float4 *)p)[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4 *)p)[1] = make_float4(v[4], v[5], v[6], v[7]);
        return;
    }
    for (int i = 0; i < GPU_WIDE; i++)
        if (i < left)
            p[i] = v[i];
}

GPU_INLINE void gpu_store8(uint16_t *p, const float *v, int64_t left, bool is_wide)
{
    if (is_wide) {
        uint32_t pair[4];
        for (int i = 0; i < 4; i++)
            pair[i] = gpu_round(v[2 * i]) | gpu_round(v[2 * i + 1]) << 16;
        *(uint4 *)p = make_uint4(pair[0], pair[1], pair[2], pair[3]);
        return;
    }
    for (int i = 0; i < GPU_WIDE; i++)
        if (i < left)
            gpu_store(p + i, v[i]);
}

/* --- sums, in one order; every thread gets the result --- */

template <class T> GPU_INLINE T gpu_warp_sum(T x)
{
    for (int offset = GPU_WARP / 2; offset > 0; offset /= 2)
        x += __shfl_xor_sync(~0u, x, offset);
    return x;
}

GPU_INLINE float gpu_warp_max(float x)
{
    for (int offset = GPU_WARP / 2; offset > 0; offset /= 2) {
        float y = __shfl_xor_sync(~0u, x, offset);
        x = y > x ? y : x;
    }
    return x;
}

/* All threads of the block call it; a block is whole warps. */
template <class T> GPU_INLINE T gpu_block_sum(T x)
{
    GPU_SHARED(T, part, GPU_WARP);
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    x = gpu_warp_sum(x);
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    x = gpu_warp_sum(lane < blockDim.x / GPU_WARP ? part[lane] : T(0));
    __syncthreads(); /* part is used again by the next call */
    return x;
}

GPU_INLINE float gpu_block_max(float x)
{
    GPU_SHARED(float, part, GPU_WARP);
    unsigned lane = threadIdx.x % GPU_WARP, warp = threadIdx.x / GPU_WARP;
    x = gpu_warp_max(x);
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    x = gpu_warp_max(part[lane < blockDim.x / GPU_WARP ? lane : 0]);
    __syncthreads();
    return x;
}

/* Threads for a row of width elements, eight each: whole warps, at most most. */
static inline unsigned gpu_row_threads(int64_t width, int64_t most = GPU_THREADS)
{
    int64_t n = (width + GPU_WIDE * GPU_WARP - 1) / (GPU_WIDE * GPU_WARP) * GPU_WARP;
    n = n < GPU_WARP ? (int64_t)GPU_WARP : n;
    return (unsigned)(n > most ? most : n);
}

/* *total = ((*total + part[0]) + part[1]) + ... */
void gpu_add_in_order(struct pool *p, double *total, const double *part, int64_t n);

/* --- what one file has and table_gpu.cu lists --- */

void gpu_embed_fwd(struct pool *p, const struct k_embed_fwd *a);
void gpu_embed_bwd(struct pool *p, const struct k_embed_bwd *a);
void gpu_norm_fwd(struct pool *p, const struct k_norm_fwd *a);
void gpu_norm_bwd(struct pool *p, const struct k_norm_bwd *a);
void gpu_qk_norm_fwd(struct pool *p, const struct k_qk_norm_fwd *a);
void gpu_qk_norm_bwd(struct pool *p, const struct k_qk_norm_bwd *a);
void gpu_bias_bwd(struct pool *p, const struct k_bias_bwd *a);
void gpu_rope_fwd(struct pool *p, const struct k_rope *a);
void gpu_rope_bwd(struct pool *p, const struct k_rope *a);
void gpu_attn_fwd(struct pool *p, const struct k_attn_fwd *a);
void gpu_attn_bwd(struct pool *p, const struct k_attn_bwd *a);
void gpu_swiglu_fwd(struct pool *p, const struct k_swiglu_fwd *a);
void gpu_swiglu_bwd(struct pool *p, const struct k_swiglu_bwd *a);
void gpu_gelu_fwd(struct pool *p, const struct k_gelu_fwd *a);
void gpu_gelu_bwd(struct pool *p, const struct k_gelu_bwd *a);
void gpu_cross_entropy(struct pool *p, const struct k_cross_entropy *a);
void gpu_grad_norm(struct pool *p, const float *grad, int64_t n, double *square_sum);
void gpu_adamw(struct pool *p, const struct k_adamw *a);
void gpu_sgd(struct pool *p, const struct k_sgd *a);
void gpu_weights_read(struct pool *p, float *dst, const struct k_weights *w, int64_t n);
void gpu_weights_write(struct pool *p, const struct k_weights *w, const float *src, int64_t n);
void gpu_moment_read(struct pool *p, float *dst, const struct k_moment *m, int64_t n);
void gpu_moment_write(struct pool *p, const struct k_moment_range *to, const float *src);
void gpu_fp32_to_bf16(struct pool *p, uint16_t *dst, const float *src, int64_t n);
void gpu_bf16_to_fp32(struct pool *p, float *dst, const uint16_t *src, int64_t n);
void gpu_amax(struct pool *p, enum k_type type, const void *x, int64_t n, double *amax);
void gpu_quantise(struct pool *p, const struct k_quantise *a);
void gpu_fp8_to_fp32(struct pool *p, enum k_type format, float *dst, const uint8_t *src,
    const double *amax, int64_t n);
void gpu_sum_f32(struct pool *p, float *dst, const float *src, int64_t n);
void gpu_scale_f32(struct pool *p, float *dst, float factor, int64_t n);
void gpu_sum_ranks_f32(
    struct pool *p, float *dst, const float *const *src, int count, int64_t n, enum k_sum_way way);
void gpu_zero(struct pool *p, void *x, int64_t bytes);
void gpu_copy(struct pool *p, void *dst, const void *src, int64_t bytes);
void gpu_encode(struct pool *p, const struct k_encode *a);
void gpu_decode(struct pool *p, const struct k_decode *a);
void gpu_sum_wires(struct pool *p, const struct k_sum_wires *a);

#endif
