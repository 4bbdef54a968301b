/* Kernels with one fault each, chosen by FAULT, that tests/lib/cuda_on_cpu.h must find; FAULT 0 has
 * none. */
#include <stdio.h>

#include "kernels/gpu_kernel.cuh"

enum { N = 100, THREADS = 128 };

__global__ void sum(float *out, const float *x, int n)
{
    GPU_SHARED(float, part, THREADS / GPU_WARP);
    float v = 0;
#if FAULT == 1 /* reads one element too many */
    for (int i = (int)threadIdx.x; i <= n; i += (int)blockDim.x)
#else
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
#endif
        v += x[i];
#if FAULT == 3 /* a mask that leaves lanes out */
    v += __shfl_xor_sync(0xffff, v, 1);
#endif
    v = gpu_warp_sum(v);
#if FAULT == 2 /* a barrier that one warp never reaches */
    if (threadIdx.x >= THREADS - GPU_WARP)
        return;
#endif
    if (threadIdx.x % GPU_WARP == 0)
        part[threadIdx.x / GPU_WARP] = v;
#if FAULT == 4 /* writes behind shared memory */
    if (threadIdx.x == 0)
        part[THREADS / GPU_WARP] = v;
#endif
#if FAULT != 5 /* 5: reads before all have written */
    __syncthreads();
#endif
    if (threadIdx.x == 0) {
        v = 0;
        for (int i = 0; i < THREADS / GPU_WARP; i++)
            v += part[i];
        *out = v;
    }
}

int main(void)
{
    float *x = new float[N], sums[1] = {0}, *out = sums;
    for (int i = 0; i < N; i++)
        x[i] = 1;
#if FAULT == 6 /* more threads than a block has */
    GPU_LAUNCH(sum, 1, 2048, gpu_lane_of(nullptr), out, x, N);
#else
    GPU_LAUNCH(sum, 1, THREADS, gpu_lane_of(nullptr), out, x, N);
#endif
    delete[] x;
    printf("%g\n", (double)*out);
    return *out > N - 1 && *out < N + 1 ? 0 : 1;
}
