/* Vectors in blocks of few bits, as they travel between ranks: a warp per block, eight elements a
 * lane. The bits are those of kernels/wire_cpu.c. */
#include <assert.h>

#include "kernels/fp8.h"
#include "kernels/gpu_kernel.cuh"

enum { WARPS = 8 };
static_assert((int)K_WIRE_BLOCK == GPU_WARP * GPU_WIDE, "a warp has a block");

GPU_INLINE int64_t own_block(void)
{
    return (int64_t)blockIdx.x * WARPS + threadIdx.y;
}

static unsigned grid_for(int64_t elems)
{
    return gpu_blocks(elems, WARPS * K_WIRE_BLOCK);
}

GPU_INLINE int64_t scales_at(int64_t elems)
{
    return (elems + 3) / 4 * 4;
}

GPU_INLINE float scale_in(const void *wire, int64_t elems, int64_t block)
{
    return ((const float *)((const char *)wire + scales_at(elems)))[block];
}

/* --- there --- */

/* Largest magnitude of the warp's numbers; one that is not finite when an element is. */
GPU_INLINE float warp_largest(const float *v)
{
    uint32_t most = 0;
    for (int j = 0; j < GPU_WIDE; j++) {
        uint32_t a = __float_as_uint(v[j]) & 0x7fffffff;
        most = a > most ? a : most;
    }
    for (int offset = GPU_WARP / 2; offset > 0; offset /= 2) {
        uint32_t a = __shfl_xor_sync(~0u, most, offset);
        most = a > most ? a : most;
    }
    return __uint_as_float(most);
}

/* The block's scale; *inverse is what its numbers are multiplied with. */
GPU_INLINE float scale_of(enum k_wire format, float amax, float *inverse)
{
    float scale = format == K_WIRE_FP8 ? k_fp8_unit(K_E4M3, amax) : k_wire_int8_scale(amax);
    *inverse = format == K_WIRE_FP8 ? 1 / scale : 127 / amax;
    return scale;
}

GPU_INLINE uint8_t code_of(enum k_wire format, float x, float scale, float inverse)
{
    if (format == K_WIRE_FP8)
        return fp8_round(K_E4M3, x * inverse);
    return scale > 0 ? (uint8_t)__float_as_uint(x * inverse + K_ROUNDING) : 0;
}

template <class T>
__global__ void encode(uint8_t *wire, const T *x, int64_t elems, enum k_wire format, bool is_wide)
{
    int64_t block = own_block(), at = block * K_WIRE_BLOCK + threadIdx.x * GPU_WIDE;
    float v[GPU_WIDE], inverse;
    if (block * K_WIRE_BLOCK >= elems)
        return;
    gpu_load8(v, x + at, elems - at, is_wide && elems - at >= GPU_WIDE);
    float scale = scale_of(format, warp_largest(v), &inverse);
    for (int j = 0; j < GPU_WIDE && at + j < elems; j++)
        wire[at + j] = code_of(format, v[j], scale, inverse);
    if (threadIdx.x == 0)
        ((float *)((char *)wire + scales_at(elems)))[block] = scale;
}

template <class T> static void run_encode(struct pool *p, const struct k_encode *a)
{
    GPU_LAUNCH(encode<T>, grid_for(a->elems), dim3(GPU_WARP, WARPS), gpu_lane_of(p),
        (uint8_t *)a->wire, (const T *)a->x, a->elems, a->format, gpu_is_wide(0, a->x));
}

void gpu_encode(struct pool *p, const struct k_encode *a)
{
    if (a->elems > 0)
        GPU_BY_TYPE(a->type, run_encode, p, a);
}

/* --- and back --- */

GPU_INLINE float decoded(enum k_wire format, uint8_t code, float scale)
{
    return (format == K_WIRE_FP8 ? fp8_widen(K_E4M3, code) : (float)(int8_t)code) * scale;
}

template <class T>
__global__ void decode(T *x, const uint8_t *wire, int64_t elems, enum k_wire format, bool is_wide)
{
    int64_t block = own_block(), at = block * K_WIRE_BLOCK + threadIdx.x * GPU_WIDE;
    float v[GPU_WIDE];
    if (at >= elems)
        return;
    float scale = scale_in(wire, elems, block);
    for (int j = 0; j < GPU_WIDE; j++)
        v[j] = at + j < elems ? decoded(format, wire[at + j], scale) : 0;
    gpu_store8(x + at, v, elems - at, is_wide && elems - at >= GPU_WIDE);
}

template <class T> static void run_decode(struct pool *p, const struct k_decode *a)
{
    GPU_LAUNCH(decode<T>, grid_for(a->elems), dim3(GPU_WARP, WARPS), gpu_lane_of(p), (T *)a->x,
        (const uint8_t *)a->wire, a->elems, a->format, gpu_is_wide(0, a->x));
}

void gpu_decode(struct pool *p, const struct k_decode *a)
{
    if (a->elems > 0)
        GPU_BY_TYPE(a->type, run_decode, p, a);
}

/* --- sums of several --- */

enum { RANKS = 256 };
struct wires {
    const uint8_t *wire[RANKS];
    int count;
    enum k_wire format;
};

__global__ void sum_wires(float *y, struct wires w, int64_t elems, bool accumulate, bool is_wide)
{
    int64_t block = own_block(), at = block * K_WIRE_BLOCK + threadIdx.x * GPU_WIDE;
    float sum[GPU_WIDE], v[GPU_WIDE];
    if (at >= elems)
        return;
    is_wide = is_wide && elems - at >= GPU_WIDE;
    for (int k = 0; k < w.count; k++) {
        float scale = scale_in(w.wire[k], elems, block);
        for (int j = 0; j < GPU_WIDE; j++) {
            float x = at + j < elems ? decoded(w.format, w.wire[k][at + j], scale) : 0;
            sum[j] = k == 0 ? x : sum[j] + x;
        }
    }
    if (accumulate) {
        gpu_load8(v, y + at, elems - at, is_wide);
        for (int j = 0; j < GPU_WIDE; j++)
            sum[j] = v[j] + sum[j];
    }
    gpu_store8(y + at, sum, elems - at, is_wide);
}

void gpu_sum_wires(struct pool *p, const struct k_sum_wires *a)
{
    struct wires w = {{nullptr}, a->count, a->format};
    assert(a->count <= RANKS);
    for (int i = 0; i < a->count; i++)
        w.wire[i] = (const uint8_t *)a->wire[i];
    if (a->elems > 0)
        GPU_LAUNCH(sum_wires, grid_for(a->elems), dim3(GPU_WARP, WARPS), gpu_lane_of(p), a->y, w,
            a->elems, a->accumulate, gpu_is_wide(0, a->y));
}
