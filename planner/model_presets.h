/* Models known by name. Dimensions are those of the published config.json of each. */
#ifndef PLANNER_MODEL_PRESETS_H
#define PLANNER_MODEL_PRESETS_H

#include "planner/model.h"

/* By name or alias, case-insensitive. Returns false, *out untouched, when there is none. */
bool model_preset_find(struct model *out, const char *name);
/* Name or alias nearest to what was typed, copied into buf; NULL when nothing is near. */
const char *model_preset_nearest(const char *name, char buf[MODEL_NAME]);

#endif
