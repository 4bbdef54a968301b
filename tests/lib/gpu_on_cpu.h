/* The kernels of GPUs, run on the CPU (tests/lib/cuda_on_cpu.h); products are those of the CPU, and
 * one kernel runs at a time. Lives as long as the program. */
#ifndef TESTS_LIB_GPU_ON_CPU_H
#define TESTS_LIB_GPU_ON_CPU_H

struct kernels;

const struct kernels *gpu_table_on_cpu(void);

#endif
