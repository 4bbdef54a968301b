/* One way of sharding, described by options alone, of any engine. */
#ifndef CLI_STRATEGY_OPTIONS_H
#define CLI_STRATEGY_OPTIONS_H

#include "cli/options.h"
#include "planner/strategy.h"

/* --strategy, batch, precision, recompute, offload ... and --tensor ... --expert. A command that
 * takes them takes WHAT_OPTIONS and ENGINE_OPTIONS as well. */
extern const struct option_group HOW_OPTIONS;
extern const struct option_group SPLIT_OPTIONS;

/* Checked against model and engine. stack: whose habits another engine has (engine_take). */
enum rc strategy_from_args(struct strategy *s, const struct model *m, const struct args *args,
    const char *stack, struct err *e);

#endif
