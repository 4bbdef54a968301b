/* Hours and dollars of a whole run on an offer, line by line, low, mid and high. */
#ifndef PLANNER_COST_H
#define PLANNER_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "planner/estimate.h"
#include "planner/job.h"

struct json;
struct offer;

/* Where the time goes. */
#define BILL_MAP(X)                                                                                \
    X(BILL_BOOT, "boot_and_image")                                                                 \
    X(BILL_STAGING, "staging")                                                                     \
    X(BILL_DATA, "data_upload")                                                                    \
    X(BILL_WARM_UP, "warm_up")                                                                     \
    X(BILL_STEPS, "steps")                                                                         \
    X(BILL_CHECKPOINTS, "checkpoints")

enum bill_line {
#define X(name, word) name,
    BILL_MAP(X)
#undef X
        BILL_LINES
};

/* Where the money goes. Training is warm-up, steps, checkpoints and what is billed beyond them
 * (whole units, a minimum): what is billed beyond shrinks when the rest grows, so that alone it
 * could be dearer in the low case than in the high one. */
#define COST_MAP(X)                                                                                \
    X(COST_BOOT, "boot_and_image")                                                                 \
    X(COST_STAGING, "staging")                                                                     \
    X(COST_DATA, "data_upload")                                                                    \
    X(COST_TRAINING, "training")                                                                   \
    X(COST_SETUP, "setup_fee")

enum cost_line {
#define X(name, word) name,
    COST_MAP(X)
#undef X
        COST_LINES
};
enum bill_case { BILL_LOW, BILL_MID, BILL_HIGH, BILL_CASES };

/* Beyond these nothing is planned: a trillion dollars, ten thousand years. */
#define BILL_MAX_MICRO_USD (1000000000000LL * USD_MICRO)
#define BILL_MAX_S         3.15e11

/* Value type. Every line rises from low to high; lines sum exactly to their total. */
struct bill {
    double line_s[BILL_CASES][BILL_LINES];
    double run_s[BILL_CASES];    /* from renting to the last checkpoint */
    double billed_s[BILL_CASES]; /* paid for: whole billing units, at least the minimum */
    bool is_priced;
    int64_t line_micro_usd[BILL_CASES][COST_LINES];
    int64_t total_micro_usd[BILL_CASES];
};

/* Is the run so long or so dear that figures would say nothing? */
bool bill_is_absurd(const struct bill *b);

/* nodes of the offer, for the whole job. Unknown billing rules count as by the second. */
void bill_make(struct bill *out, const struct job *j, const struct offer *o, int64_t nodes,
    const struct estimate *x);
/* Seconds of the run when steps and checkpoints take these: bill_make's run_s[BILL_MID], and what
 * bounds are compared with. */
double bill_run_s(
    const struct job *j, const struct offer *o, double step_s, double stall_s, double write_s);

/* May the offer be taken away? The bill is that of an undisturbed run. */
bool bill_ignores_interruptions(const struct offer *o);

const char *bill_line_name(enum bill_line l);
const char *cost_line_name(enum cost_line l);
/* {low, mid, high, lines:{name:{low, mid, high}}}, hours with billed:{low, mid, high}; null for the
 * cost when unpriced. */
struct json *bill_hours_json(const struct bill *b);
struct json *bill_cost_json(const struct bill *b);

#endif
