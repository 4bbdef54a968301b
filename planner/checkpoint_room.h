/* Memory that checkpoints take of a rank from the start of a run to its end, beside the slabs: the
 * engine takes what this says, the planner counts it as host memory. */
#ifndef PLANNER_CHECKPOINT_ROOM_H
#define PLANNER_CHECKPOINT_ROOM_H

#include <stdbool.h>
#include <stdint.h>

struct schedule;
struct strategy;

/* For what arrives from other hosts, on every rank; and a window that moves over a file. */
enum { CHECKPOINT_TRANSFER_BYTES = 4 << 20, CHECKPOINT_WINDOW_BYTES = 4 << 20 };

/* What a rank's file is written from: with is_copied a copy of all of it, so that training goes on
 * meanwhile, else a window. part_elems: elements of the rank's part, of all units; tensors: of all
 * units. Only ranks that write (schedule_part_of) have it. */
int64_t checkpoint_file_room(
    int64_t part_elems, int64_t tensors, const struct strategy *s, bool is_copied);
/* Of the ranks that run a schedule. */
int64_t checkpoint_room_of(const struct schedule *s, bool is_copied);
/* States on disk are never copied. */
bool checkpoint_can_copy(const struct strategy *s);

#endif
