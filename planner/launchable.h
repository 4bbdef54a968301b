/* What the training engine of this build can run; plans that it cannot are listed with the reason.
 */
#ifndef PLANNER_LAUNCHABLE_H
#define PLANNER_LAUNCHABLE_H

#include <stdbool.h>

struct model;
struct strategy;

enum { LAUNCHABLE_TEXT = 240 };

/* The devices in engine/device.h: CPU always. */
bool engine_has_device(bool is_gpu);
/* Whether the strategy's engine is ours and can train the model on such nodes; why not in buf
 * otherwise. */
bool is_launchable(
    const struct strategy *s, const struct model *m, bool is_gpu, char buf[LAUNCHABLE_TEXT]);

#endif
