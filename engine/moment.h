/* Where moments of a unit lie that are kept in 8 bits (planner/schedule.h, schedule_moment_scales).
 */
#ifndef ENGINE_MOMENT_H
#define ENGINE_MOMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "planner/schedule.h"

/* One moment of elements first .. first + elems of a unit: whole parts. */
struct moment_place {
    const struct schedule *schedule;
    int unit;
    bool is_square; /* AdamW's second */
    int64_t first, elems;
    char *base;
    uint64_t key; /* of what is rounded at random */
};

/* Elements from at on that have one scale or follow each other in blocks: of one tensor and part.
 * Returns where they end, or where a gap between tensors does; *moment is theirs, with no codes in
 * a gap. end: at most. */
int64_t moment_run(struct k_moment *moment, const struct moment_place *p, int64_t at, int64_t end);
/* Where the run begins that has at in it: of its tensor and part. */
int64_t moment_run_begin(const struct moment_place *p, int64_t at);
/* Bytes of all of it. */
int64_t moment_bytes(const struct moment_place *p);

#endif
