/* A device executes operations on lanes. Two kinds implement this table: the CPU (lanes are
 * threads) and CUDA (lanes are streams).
 *
 * Submitting never blocks for long; tasks of one lane run in the order of submission, a task starts
 * when the tasks it waits for are done. After the first failure the remaining tasks are dropped and
 * sync returns the failure. All calls from one thread. */
#ifndef ENGINE_DEVICE_H
#define ENGINE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/schedule.h"

struct comm;
struct disk;
struct kernels;
struct device;

/* Called by a lane just before it changes the optimizer's state of a unit. */
typedef void update_fn(void *arg, int unit);

/* What operations need beside their arguments; constant during a step. */
struct op_context {
    const struct schedule *schedule;
    const struct kernels *kernels;
    struct comm *comm;
    struct disk *disk; /* NULL: nothing is kept there */
    /* optimizer step: of the last boundary, and of the updates that follow it */
    double lr, beta1, beta2, eps, momentum, weight_decay;
    double clip_norm;               /* 0: no clipping */
    double max_loss, max_grad_norm; /* above them there is no update */
    int64_t step;                   /* of this update, from 1 */
    uint64_t seed;                  /* of what is rounded at random */
    bool is_warm_up;                /* run everything, update nothing */
    update_fn *before_update;       /* or NULL */
    void *update_arg;
};

struct device_options {
    int threads;            /* CPU: of the compute lane; the host lane gets as many */
    bool is_poisoning;      /* CPU: an operation may touch only its arguments (sanitizer builds) */
    int64_t slab_cap_bytes; /* refuse a device slab larger than this; 0: no cap */
};

/* One operation ready to go: index is its place in the schedule's list. */
struct task {
    const struct op *op;
    int32_t index;
    bool is_idle; /* it takes its turn, waits and is awaited, and does nothing */
    void *arg[OP_MAX_ARGS];
};

/* What the device did: written by the lane that ran the operation, after it ran. */
struct task_log {
    int32_t index; /* of the operation in the schedule's list; -1: none ran */
    int32_t order; /* counts the operations the device finished since the last sync */
    uint8_t kind, lane;
    double start_s, end_s; /* of the monotonic clock */
};

struct device_ops {
    const char *name;
    enum rc (*open)(struct device **out, const struct device_options *o,
        const struct op_context *context, struct err *e);
    /* One zeroed slab per memory but the disk, once; *base stays valid until close. */
    enum rc (*slab)(
        struct device *d, enum memory memory, int64_t bytes, void **base, struct err *e);
    void (*submit)(struct device *d, const struct task *t);
    /* Wait until every lane is idle; log gets what ran since the last sync, lane after lane in the
     * order in which each lane ran it, *n_log how many. It has room for a whole section. */
    enum rc (*sync)(struct device *d, struct task_log *log, int32_t *n_log, struct err *e);
    void (*close)(struct device *d);
};

extern const struct device_ops device_cpu;

#endif
