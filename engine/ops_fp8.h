/* Casts to eight bits and back, and the largest magnitudes they follow, on the CPU. */
#ifndef ENGINE_OPS_FP8_H
#define ENGINE_OPS_FP8_H

#include "engine/device.h"

struct pool;

/* cast_fp8, weight_amax, grad_amax, grad_to_fp8 and grad_from_fp8, with arguments as
 * planner/schedule.h has them. */
void ops_fp8_run(
    const struct op_context *x, const struct op *op, void *const *arg, struct pool *pool);

#endif
