/* An offset for every buffer before the run starts: one slab per memory. */
#ifndef PLANNER_LAYOUT_H
#define PLANNER_LAYOUT_H

#include "planner/schedule.h"

/* Assign offsets and slab sizes. Persistent buffers lie first; buffers of a section may share
 * addresses when their lifetimes in list order do not overlap. Pure and deterministic. */
void layout_assign(struct schedule *s);

/* Bytes live at the worst moment of a memory by part (they sum to the peak), and the slab beside:
 * the difference is what packing loses. */
struct layout_peak {
    int64_t part_bytes[PART_COUNT];
    int64_t live_bytes;
    int64_t slab_bytes;
    int32_t op; /* list index of the worst moment, -1 for an empty list */
};
struct layout_peak layout_peak(const struct schedule *s, enum memory memory);

#endif
