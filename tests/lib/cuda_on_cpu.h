/* Runs CUDA kernels on the CPU, for tests: what kernels/gpu_kernel.cuh includes where nvcc does not
 * compile.
 *
 * A launch runs its blocks one after the other on the calling thread; each CUDA thread is a fiber,
 * and barriers and warp operations are meetings of fibers. Ended with a message: a barrier that
 * some thread never reaches, a mask that leaves the caller out or names lanes that do not exist,
 * lanes of a warp in different operations, a lane read that the mask does not hold. Shared memory
 * is NaN at the start of each block. CUDA_ON_CPU_SEED shuffles the order in which fibers run.
 *
 * Under the thread sanitizer every CUDA thread is a thread of its own, ordered by __syncthreads,
 * __syncwarp and atomics alone, as CUDA has it: accesses to shared and global memory that race
 * within a block are found. Not looked for: races between blocks, bank conflicts, weak memory. */
#ifndef TESTS_LIB_CUDA_ON_CPU_H
#define TESTS_LIB_CUDA_ON_CPU_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/gpu_table.h"

/* The lane of the calling thread; its scratch is filled with NaN at the start. Threads launch one
 * after the other. */
const struct gpu_lane *cuda_on_cpu_lane(void);

/* --- the language --- */

#define __global__
#define __device__
#define __host__

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};

static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{x, y, z, w};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4{x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return uint2{x, y};
}

/* Of cuda_on_cpu.cc, which no sanitizer of threads instruments. */
namespace on_cpu {
enum warp_op { SHUFFLE, SYNC };
const dim3 &thread_index();
const dim3 &block_index();
const dim3 &block_size();
const dim3 &grid_size();
unsigned lane_index();
void launch(dim3 grid, dim3 block, void (*body)(const void *), const void *arg);
void barrier();
uint64_t meet_warp(unsigned mask, uint64_t value, unsigned source, enum warp_op op);
/* Shared memory: as nothing before the block's first use of it. */
void fresh(void *p, size_t bytes);

template <class Body> void launch_body(dim3 grid, dim3 block, const Body &body)
{
    launch(
        grid, block, [](const void *b) { (*(const Body *)b)(); }, &body);
}

template <class T> T shuffle(unsigned mask, T value, unsigned source)
{
    uint64_t bits = 0;
    static_assert(sizeof(T) <= sizeof(bits), "a shuffle moves eight bytes at most");
    memcpy(&bits, &value, sizeof(value));
    bits = meet_warp(mask, bits, source, SHUFFLE);
    memcpy(&value, &bits, sizeof(value));
    return value;
}
} // namespace on_cpu

#define threadIdx (on_cpu::thread_index())
#define blockIdx  (on_cpu::block_index())
#define blockDim  (on_cpu::block_size())
#define gridDim   (on_cpu::grid_size())

#define GPU_LAUNCH(kernel, grid, block, lane, ...)                                                 \
    ((void)(lane), on_cpu::launch_body(grid, block, [=] { kernel(__VA_ARGS__); }))
/* Plain static rather than of a thread, so that the address sanitizer watches its borders. */
#define GPU_SHARED(type, name, n)                                                                  \
    static type name[n];                                                                           \
    on_cpu::fresh(name, sizeof(name))

static inline void __syncthreads()
{
    on_cpu::barrier();
}
static inline void __syncwarp(unsigned mask = ~0u)
{
    on_cpu::meet_warp(mask, 0, 32, on_cpu::SYNC);
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int source)
{
    return on_cpu::shuffle(mask, value, (unsigned)source & 31);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits)
{
    return on_cpu::shuffle(mask, value, on_cpu::lane_index() ^ (unsigned)bits);
}

template <class T> static inline T atomicMax(T *p, T value)
{
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (old < value &&
           !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return old;
}
template <class T> static inline T atomicMin(T *p, T value)
{
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (value < old &&
           !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return old;
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}
static inline float __uint_as_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}
static inline long long __double_as_longlong(double x)
{
    long long u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

/* --- the runtime --- */

typedef void *cudaStream_t;
enum cudaMemcpyKind { cudaMemcpyDefault };

static inline int cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t)
{
    memset(p, value, bytes);
    return 0;
}
static inline int cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, enum cudaMemcpyKind, cudaStream_t)
{
    memcpy(to, from, bytes);
    return 0;
}

#endif
