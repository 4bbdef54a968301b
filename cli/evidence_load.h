/* Tables of measured runs, and the constants to predict them with, as commands are given them. */
#ifndef CLI_EVIDENCE_LOAD_H
#define CLI_EVIDENCE_LOAD_H

#include "base/err.h"
#include "base/file.h"
#include "planner/evidence.h"

struct args;

/* RC_INVALID names file and line. Release with evidence_release. */
enum rc evidence_load(struct evidence *out, const char *path, struct err *e);
/* From --calibration, else the built-in ones. Release with rates_free. */
enum rc rates_load(struct rates **out, const struct args *args, struct err *e);

#endif
