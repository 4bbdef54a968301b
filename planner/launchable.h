/* What the training engine of this build can run; plans that it cannot are listed with the reason.
 */
#ifndef PLANNER_LAUNCHABLE_H
#define PLANNER_LAUNCHABLE_H

#include <stdbool.h>

#include "planner/profile.h"

struct model;

enum { LAUNCHABLE_TEXT = 240 };

/* The devices in engine/device.h: CPU always. */
bool engine_has_device(bool is_gpu);
/* Whether the engine is ours and can train the model on such nodes; why not in buf otherwise. */
bool is_launchable(enum engine g, const struct model *m, bool is_gpu, char buf[LAUNCHABLE_TEXT]);

#endif
