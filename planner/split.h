/* What one rank of a job sees that is split by tensor, pipeline, context or experts: the model and
 * the strategy of its share, from which its schedule is built as if it were data-parallel.
 *
 * Ranks are numbered as Megatron does: tensor first, then context and data, pipeline last. For
 * prediction only; without any of these splits both functions return what they were given. */
#ifndef PLANNER_SPLIT_H
#define PLANNER_SPLIT_H

#include "base/err.h"
#include "planner/model.h"
#include "planner/strategy.h"

/* The splits divide the model and the ranks; one sentence otherwise. */
enum rc split_check(const struct model *m, const struct strategy *s, struct err *e);
/* The stage that does most: its blocks, heads, MLP columns, vocabulary and experts, with the head.
 */
struct model split_model(const struct model *m, const struct strategy *s);
/* Of the ranks that share a stage's gradients, so many lie between two that hold the same experts:
 * 1 when each holds all that a rank can. */
int64_t split_expert_copies_apart(const struct parallel *p);
/* Ranks become those that share a stage's gradients, tokens those of the rank. */
struct strategy split_strategy(const struct strategy *s);
/* Micro batches whose activations the first pipeline stage holds at once (1F1B; interleaved:
 * arXiv 2104.04473, section 2.2). */
double split_in_flight(const struct strategy *s);
/* Micro steps that the pipeline stands idle, beside those it works. */
double split_bubble(const struct strategy *s);

#endif
