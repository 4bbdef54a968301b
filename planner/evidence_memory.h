/* What published runs do with memory that no column says: from their words, from their stack's
 * defaults, and from the fact that they ran. Used by planner/evidence.c only. Pure. */
#ifndef PLANNER_EVIDENCE_MEMORY_H
#define PLANNER_EVIDENCE_MEMORY_H

#include "planner/evidence.h"

/* Cells of a row; never NULL. */
struct memory_words {
    int64_t year;
    const char *compile, *notes;
};

/* Sets the row's strategy.memory, and master_bytes where weights are kept in 16 bits only. The
 * stack, the hardware and the states have been read. */
void evidence_memory_options(struct evidence_row *o, const struct memory_words *w);

/* A run that was measured fitted. Where the source is silent on what spares memory, and without it
 * the run would not have, it did so: recompute of as few blocks as it takes, smaller micro batches,
 * a loss in pieces, sharding; is_inferred is set. Nothing that the source says is changed, and no
 * run that ended out of memory. */
void evidence_assume_fit(struct evidence_row *o);

#endif
