/* Block sizes of matrix products, one set for all instruction sets: the workspace is laid out by
 * matmul_cpu.c and its size told by kernels.c. */
#ifndef KERNELS_BLOCKING_H
#define KERNELS_BLOCKING_H

enum {
    GEMM_UNIT = 96, /* a multiple of every variant's tile height and width */
    MATMUL_ROWS = 12 * GEMM_UNIT,
    MATMUL_COLS = 12 * GEMM_UNIT,
    MATMUL_STEPS = 256 /* of k: a piece of B's panel stays in the first-level cache */
};

#endif
