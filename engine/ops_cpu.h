/* Operations of a schedule on the CPU: from an operation and its arguments to a kernel call. */
#ifndef ENGINE_OPS_CPU_H
#define ENGINE_OPS_CPU_H

#include "base/err.h"
#include "engine/comm.h"
#include "engine/device.h"

struct pool;

/* Run one operation to its end on the calling thread and its pool. Only collectives can fail. */
enum rc ops_cpu_run(const struct op_context *x, const struct op *op, void *const *arg,
    struct pool *pool, struct err *e);

#endif
