/* The constants that a calibration/1 document may hold, by name. */
#ifndef PLANNER_CONSTANTS_H
#define PLANNER_CONSTANTS_H

#include "base/err.h"

struct json;

/* One constant: the i-th, NULL name at the end. */
struct constant {
    const char *name, *help;
};
const struct constant *constant_at(int i);

/* Every value of an entry must have such a name, or it would be ignored: RC_INVALID with the name
 * and the one it resembles. */
enum rc constants_check(const struct json *values, struct err *e);

#endif
