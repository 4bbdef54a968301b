#include "planner/checkpoint_room.h"

#include "base/alloc.h"
#include "planner/schedule.h"

/* Of a file's header, for each tensor and state of it: 160 of its name (CKPT_NAME of the engine),
 * and type, count and two places of at most 20 digits. */
enum { ENTRY_BYTES = 256, FRAME_BYTES = 4096 };

int64_t checkpoint_file_room(
    int64_t part_elems, int64_t tensors, const struct strategy *s, bool is_copied)
{
    int64_t entries = tensors * (1 + strategy_moments(s));
    int64_t bytes = FRAME_BYTES + entries * ENTRY_BYTES + part_elems * strategy_saved_bytes(s);
    if (!is_copied)
        return CHECKPOINT_WINDOW_BYTES;
    return (int64_t)base_align_up((uint64_t)bytes, FRAME_BYTES);
}

int64_t checkpoint_room_of(const struct schedule *s, bool is_copied)
{
    int64_t elems = 0, tensors = 0;
    for (int u = 0; u < s->n_units; u++) {
        elems += schedule_part_elems(s, u);
        tensors += s->unit[u].n;
    }
    return checkpoint_file_room(elems, tensors, &s->strategy, is_copied);
}

bool checkpoint_can_copy(const struct strategy *s)
{
    return !(s->offload & OFFLOAD_DISK);
}
