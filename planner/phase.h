/* Parts of an optimizer step by which memory is told apart, and what is live in each. */
#ifndef PLANNER_PHASE_H
#define PLANNER_PHASE_H

#include <stdint.h>

#include "planner/schedule.h"

/* Loss: while logits are live, forward and backward. Update: norm, clip, optimizer, gathering of
 * new parameters; what lies there between steps is never more. */
#define PHASE_MAP(X)                                                                               \
    X(PHASE_FORWARD, "forward")                                                                    \
    X(PHASE_LOSS, "loss")                                                                          \
    X(PHASE_BACKWARD, "backward")                                                                  \
    X(PHASE_UPDATE, "update")

enum phase {
#define X(name, word) name,
    PHASE_MAP(X)
#undef X
        PHASE_COUNT
};

const char *phase_name(enum phase p);

/* Most bytes of a memory that are live in each phase, over all sections; their maximum is
 * layout_peak's. */
void phase_peaks(int64_t bytes[PHASE_COUNT], const struct schedule *s, enum memory memory);

#endif
