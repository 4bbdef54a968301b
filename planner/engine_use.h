/* Using an engine of the table (planner/profile.h): what it can be asked for, the constants that
 * stand for it, and the strategies it has for a job. Pure. */
#ifndef PLANNER_ENGINE_USE_H
#define PLANNER_ENGINE_USE_H

#include "planner/rates.h"
#include "planner/space.h"

/* The stack whose constants speak for an engine: of the calibrated ones that are the engine's, the
 * one with most rows; without any the engine's own name. Stacks of unfused attention are only taken
 * when named. */
void engine_stack(char out[RATES_NAME], const struct rates *r, enum engine g);
/* RC_USAGE naming those there are when nothing was measured under the name. */
enum rc engine_check_stack(const struct rates *r, enum engine g, const char *stack, struct err *e);
/* The engine that a stack belongs to; ENGINE_COUNT for none of them. */
enum engine engine_of_stack(const char *stack);

/* s becomes a strategy of the engine, with the habits of the stack: fused elementwise work and the
 * like. The bundled engine changes nothing. */
void engine_take(struct strategy *s, enum engine g, const char *stack);
/* What the engine shards when nothing is said. */
enum strategy_kind engine_default_kind(enum engine g);
/* The engine has the way of sharding, offloading and splitting; RC_INVALID says which it lacks. */
enum rc engine_check(const struct strategy *s, struct err *e);

/* It has the optimizer; RC_INVALID where not. Part of engine_check. */
enum rc engine_check_optimizer(enum engine g, enum optimizer o, struct err *e);
/* Others than the bundled one are known on GPUs only: RC_INVALID. */
enum rc engine_check_device(enum engine g, bool is_gpu, struct err *e);

/* As space_make, for an engine that is not the bundled one: j->engine. */
void engine_space(struct space *out, const struct job *j, const struct shape_of_ranks *shape,
    enum space_stage stage);
/* Can it keep the optimizer alone in host memory? */
bool engine_offloads(enum engine g);
/* The target of `berth export` that writes the engine's configuration; NULL for none. */
const char *engine_export(enum engine g);

#endif
