/* The optimizer's operations (OP_ADAMW, OP_SGD, OP_UPDATE_8BIT) on the rank's part of a unit. */
#ifndef ENGINE_UPDATE_CPU_H
#define ENGINE_UPDATE_CPU_H

#include "engine/device.h"

struct pool;

/* Arguments as planner/schedule.h says. Without an update of weights and states when the step is
 * not accepted, alike on every rank. */
void update_cpu(
    const struct op_context *x, const struct op *op, void *const *arg, struct pool *pool);

#endif
