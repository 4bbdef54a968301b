/* The strategies that the search considers for a job on so many ranks. */
#ifndef PLANNER_SPACE_H
#define PLANNER_SPACE_H

#include <stddef.h>

#include "planner/adapter.h"
#include "planner/job.h"
#include "planner/strategy.h"

/* Ranks and how they lie on nodes; is_gpu decides whether host memory is another one. */
struct shape_of_ranks {
    int64_t ranks, ranks_per_node;
    bool is_gpu;
};

struct space {
    struct strategy *items; /* from plain to involved: earlier ones win ties */
    size_t n;
};

/* A later stage is for hardware that nothing of an earlier one fits: what saves more memory and
 * costs more time. */
enum space_stage {
    SPACE_USUAL,   /* all on the device, or the optimizer in host memory */
    SPACE_SPARING, /* activations, or optimizer and parameters in host memory */
    SPACE_DISK,    /* the optimizer's states on disk; on CPUs too */
    SPACE_STAGES
};

/* Empty when the global batch cannot be split evenly over the ranks. Release with space_release. */
void space_make(struct space *out, const struct job *j, const struct shape_of_ranks *shape,
    enum space_stage stage);
void space_release(struct space *s);
/* What the strategies of a stage offload, in order; how many there are. Sets that the job names
 * take the place of those the search would think of, and of nodes of CPUs, where what leaves the
 * device stays in the same memory unless it goes to disk. */
size_t space_offloads(
    unsigned out[OFFLOAD_SETS], const struct job *j, enum space_stage stage, bool is_gpu);

/* Trained elements of all units of a strategy: whole, of a rank's shard, and of the part for which
 * it has optimizer states; tensors of all units; and frozen parameters by the bytes of an
 * activation, 2 and 4. */
struct unit_elems {
    int64_t full, own, part, tensors;
    struct frozen_unit frozen[2];
};
struct unit_elems space_unit_elems(const struct model *m, const struct strategy *s);
/* Bytes of parameters, gradients and optimizer states of a rank on the device: a lower bound of its
 * memory, without building anything. */
int64_t space_state_bytes(const struct unit_elems *elems, const struct strategy *s);
/* Ranks that units are split over, and those that they are padded for. */
int64_t space_unit_shards(const struct strategy *s);
int64_t space_unit_parts(const struct strategy *s);

#endif
