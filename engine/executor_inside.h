/* Shared by executor.c and executor_state.c; not for others. */
#ifndef ENGINE_EXECUTOR_INSIDE_H
#define ENGINE_EXECUTOR_INSIDE_H

#include "engine/executor.h"

struct executor {
    const struct schedule *s;
    struct executor_options o;
    struct op_context context;
    struct device *device;
    char *slab[MEMORY_COUNT];
    int shard_rank, replica_rank; /* places in the groups */
    struct task_log *log;         /* of one section */
    int32_t n_log;
    int64_t micro; /* running, for the observer */
    double disk_bytes_per_s;
    int32_t fetched; /* buffer on disk whose contents are in its unit's swap buffer, -1 */
    bool is_pending; /* the update of the last step is still to be made */
};

/* Address of an argument of an operation. */
void *executor_address(struct executor *x, const struct ref *r);

#endif
