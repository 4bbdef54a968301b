/* Memory of one rank under an engine other than the bundled one, by closed forms.
 *
 * Such an engine allocates as it goes, so there is no schedule to lay out. The peak is the largest
 * of two moments, over the first and the last pipeline stage: when the loss is computed (all
 * activations of the last stage and the logits), and in the backward pass (all activations, what
 * recomputing one block brings back, and gradients). Bytes per token of a block are those of arXiv
 * 2205.05198, section 4, with grouped queries and gated MLPs; states are those of arXiv 1910.02054;
 * what each engine adds stands in its profile. Checked against published runs, each beside its
 * figure, in tests/unit/planner/engine_memory.c. */
#ifndef PLANNER_ENGINE_MEMORY_H
#define PLANNER_ENGINE_MEMORY_H

#include "planner/schedule.h"

struct terms;

/* Value type; bytes. */
struct engine_memory {
    double part[PART_COUNT]; /* live at the peak */
    double total;            /* all of them */
};

/* m and s are whole, not yet split. Allocated tensors only: neither what an allocator holds beyond
 * them nor the CUDA context. */
struct engine_memory engine_memory(const struct model *m, const struct strategy *s);
/* The products that its parts are the sums of. */
void engine_memory_terms(struct terms *out, const struct model *m, const struct strategy *s);
/* Bytes that a block keeps for backward of one micro batch of a rank, under the strategy's
 * recompute. */
double engine_block_bytes(const struct model *m, const struct strategy *s);

#endif
