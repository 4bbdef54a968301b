/* The table of kernels whose memory is a GPU's.
 *
 * Functions and arguments are those of kernels/kernels.h, with three differences: the pool is a
 * lane (below) and must be one, a call submits to it and returns, and all addresses but those of
 * the arguments themselves are the device's. A launch that fails leaves its error with the runtime,
 * which whoever submits asks after each operation.
 *
 * Results repeat exactly: sums have one order, and nothing is added atomically. They differ from
 * those of the CPU in the last bits, within the same tolerances. Where pointers and row lengths are
 * multiples of 16 bytes, memory is read and written in pieces of 16; else by element. */
#ifndef KERNELS_GPU_TABLE_H
#define KERNELS_GPU_TABLE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sums of blocks wait there to be added: of one kernel at a time, since a lane runs one. */
enum { GPU_SCRATCH_BYTES = 1 << 20 };

struct gpu_lane {
    void *stream;  /* cudaStream_t */
    void *scratch; /* GPU_SCRATCH_BYTES on the device, aligned to 256 */
};

/* Once in a process and device, before the first update: tables of codes go to the device. Returns
 * a cudaError_t, 0 when all is well. Not there when the kernels run on the CPU, which reads them.
 */
int gpu_optim_open(void);

/* All but the products, which come from a library: matmul is NULL. Nothing runs before. */
struct kernels kernels_gpu(void);

#ifdef __cplusplus
}
#endif

#endif
