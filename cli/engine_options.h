/* Which engine is predicted, and with whose constants: options that planning commands share. */
#ifndef CLI_ENGINE_OPTIONS_H
#define CLI_ENGINE_OPTIONS_H

#include "cli/options.h"
#include "planner/rates.h"

/* --engine, --stack, --calibration. */
extern const struct option_group ENGINE_OPTIONS;

/* --engine, berth without it. */
enum engine engine_from_args(const struct args *args);
/* The stack for an engine: --stack, else the most measured one. */
enum rc engine_stack_from_args(char out[RATES_NAME], const struct rates *r, enum engine g,
    const struct args *args, struct err *e);

#endif
