/* What the planner says about a published run, in the terms its source uses: tokens per second,
 * and memory as each kind of meter shows it. Pure. */
#ifndef PLANNER_PREDICT_H
#define PLANNER_PREDICT_H

#include "planner/estimate.h"
#include "planner/evidence.h"

/* Value type. low and high: 90 % band. */
struct prediction {
    double tokens_per_s, tokens_low, tokens_high; /* per GPU */
    double peak_bytes[MEM_KINDS];                 /* MEM_UNSAID: as MEM_RESERVED */
    double peak_low[MEM_KINDS], peak_high[MEM_KINDS];
    double fit_probability;
    enum basis basis;
};

/* A run ready to be priced with any constants: its schedule is built once. */
struct case_of_run;
enum rc case_make(struct case_of_run **out, const struct evidence_row *row, struct err *e);
void case_free(struct case_of_run *c);
/* With the constants as looked up for its hardware and stack. */
enum rc case_machine(
    struct machine *out, const struct case_of_run *c, const struct rates *r, struct err *e);
void case_predict(struct prediction *out, const struct case_of_run *c, const struct machine *m);

const char *basis_name(enum basis b);

#endif
