/* Tensors of eight-bit numbers: the largest magnitude, casts with a unit, and back. */
#include "kernels/fp8.h"
#include "kernels/gpu_kernel.cuh"

/* Blocks that share a large tensor. */
enum { MOST_BLOCKS = 1024 };

static unsigned few_blocks(int64_t n)
{
    unsigned blocks = gpu_blocks(n, GPU_THREADS * GPU_WIDE);
    return blocks < MOST_BLOCKS ? blocks : (unsigned)MOST_BLOCKS;
}

/* --- largest magnitude --- */

/* Magnitudes are ordered as their bits are, NaN above all, and so are those of doubles: the largest
 * is the same in whatever order it is found. */
GPU_INLINE uint32_t warp_most(uint32_t x)
{
    for (int offset = GPU_WARP / 2; offset > 0; offset /= 2) {
        uint32_t y = __shfl_xor_sync(~0u, x, offset);
        x = y > x ? y : x;
    }
    return x;
}

template <class T> __global__ void amax(const T *x, int64_t n, double *out, bool is_wide)
{
    uint32_t most = 0;
    float v[GPU_WIDE];
    int64_t step = (int64_t)gridDim.x * blockDim.x * GPU_WIDE;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * GPU_WIDE; i < n;
         i += step) {
        gpu_load8(v, x + i, n - i, is_wide && n - i >= GPU_WIDE);
        for (int j = 0; j < GPU_WIDE; j++) {
            uint32_t a = __float_as_uint(v[j]) & 0x7fffffff;
            most = a > most ? a : most;
        }
    }
    most = warp_most(most);
    if (threadIdx.x % GPU_WARP == 0 && most > 0)
        atomicMax((unsigned long long *)out,
            (unsigned long long)__double_as_longlong((double)__uint_as_float(most)));
}

template <class T> static void run_amax(struct pool *p, const void *x, int64_t n, double *out)
{
    GPU_LAUNCH(amax<T>, few_blocks(n), GPU_THREADS, gpu_lane_of(p), (const T *)x, n, out,
        gpu_is_wide(0, x));
}

void gpu_amax(struct pool *p, enum k_type type, const void *x, int64_t n, double *out)
{
    if (n > 0)
        GPU_BY_TYPE(type, run_amax, p, x, n, out);
}

/* --- casts --- */

/* Eight of them, the first in the lowest byte. */
GPU_INLINE uint64_t round8(enum k_type f, const float *v, float inverse)
{
    uint64_t q = 0;
    for (int j = 0; j < GPU_WIDE; j++)
        q |= (uint64_t)fp8_round(f, v[j] * inverse) << 8 * j;
    return q;
}

GPU_INLINE void store_bytes(uint8_t *to, uint64_t q, int64_t left)
{
    if ((uintptr_t)to % 8 == 0 && left >= 8)
        *(uint64_t *)to = q;
    else
        for (int j = 0; j < 8 && j < left; j++)
            to[j] = (uint8_t)(q >> 8 * j);
}

/* The thread that is first of all writes the unit down. */
GPU_INLINE float inverse_unit(const struct k_quantise &a)
{
    float unit = k_fp8_unit(a.format, (float)*a.amax);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0)
        for (int i = 0; i < 2; i++)
            if (a.unit[i])
                *a.unit[i] = unit;
    return 1 / unit;
}

template <class T> __global__ void cast_rows(const T *x, struct k_quantise a, bool is_wide)
{
    float v[GPU_WIDE], inverse = inverse_unit(a);
    int64_t n = a.rows * a.cols, step = (int64_t)gridDim.x * blockDim.x * GPU_WIDE;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * GPU_WIDE; i < n;
         i += step) {
        gpu_load8(v, x + i, n - i, is_wide && n - i >= GPU_WIDE);
        store_bytes(a.q + i, round8(a.format, v, inverse), n - i);
    }
}

/* A square of so many rows and columns a block, turned in shared memory: each thread reads eight
 * elements of a row and writes eight of a column. */
enum { SQUARE = 64, PITCH = SQUARE + 4 };

template <class T> __global__ void cast_turned(const T *x, struct k_quantise a, bool is_wide)
{
    GPU_SHARED(uint8_t, square, SQUARE * PITCH);
    float v[GPU_WIDE], inverse = inverse_unit(a);
    int64_t row0 = (int64_t)blockIdx.x * SQUARE, col0 = (int64_t)blockIdx.y * SQUARE;
    for (int i = threadIdx.x; i < SQUARE * SQUARE / GPU_WIDE; i += blockDim.x) {
        int r = i / (SQUARE / GPU_WIDE), c = i % (SQUARE / GPU_WIDE) * GPU_WIDE;
        int64_t left = a.cols - col0 - c, at = (row0 + r) * a.cols + col0 + c;
        if (row0 + r >= a.rows || left <= 0)
            continue;
        gpu_load8(v, x + at, left, is_wide);
        uint64_t q = round8(a.format, v, inverse);
        for (int j = 0; j < GPU_WIDE; j++)
            square[r * PITCH + c + j] = (uint8_t)(q >> 8 * j);
        if (a.q)
            store_bytes(a.q + at, q, left);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SQUARE * SQUARE / GPU_WIDE; i += blockDim.x) {
        int c = i / (SQUARE / GPU_WIDE), r = i % (SQUARE / GPU_WIDE) * GPU_WIDE;
        int64_t left = a.rows - row0 - r;
        if (col0 + c >= a.cols || left <= 0)
            continue;
        uint64_t q = 0;
        for (int j = 0; j < GPU_WIDE && j < left; j++)
            q |= (uint64_t)square[(r + j) * PITCH + c] << 8 * j;
        store_bytes(a.transposed + (col0 + c) * a.rows + row0 + r, q, left);
    }
}

template <class T> static void run_quantise(struct pool *p, const struct k_quantise *a)
{
    const struct gpu_lane *lane = gpu_lane_of(p);
    const T *x = (const T *)a->x;
    if (a->transposed)
        GPU_LAUNCH(cast_turned<T>, dim3(gpu_blocks(a->rows, SQUARE), gpu_blocks(a->cols, SQUARE)),
            GPU_THREADS, lane, x, *a, gpu_is_wide(a->cols, x));
    else
        GPU_LAUNCH(cast_rows<T>, few_blocks(a->rows * a->cols), GPU_THREADS, lane, x, *a,
            gpu_is_wide(0, x));
}

void gpu_quantise(struct pool *p, const struct k_quantise *a)
{
    if (a->rows > 0 && a->cols > 0)
        GPU_BY_TYPE(a->type, run_quantise, p, a);
}

/* --- back --- */

__global__ void widen_all(
    float *dst, const uint8_t *src, enum k_type format, const double *amax, int64_t n)
{
    float unit = k_fp8_unit(format, (float)*amax);
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        dst[i] = fp8_widen(format, src[i]) * unit;
}

void gpu_fp8_to_fp32(struct pool *p, enum k_type format, float *dst, const uint8_t *src,
    const double *amax, int64_t n)
{
    if (n > 0)
        GPU_LAUNCH(
            widen_all, few_blocks(n), GPU_THREADS, gpu_lane_of(p), dst, src, format, amax, n);
}
