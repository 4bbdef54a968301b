/* Hours and dollars of a whole run on an offer, line by line, low, mid and high. */
#ifndef PLANNER_COST_H
#define PLANNER_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/estimate.h"
#include "planner/job.h"

struct json;
struct offer;

#define BILL_MAP(X)                                                                                \
    X(BILL_BOOT, "boot_and_image")                                                                 \
    X(BILL_STAGING, "staging")                                                                     \
    X(BILL_DATA, "data_upload")                                                                    \
    X(BILL_WARM_UP, "warm_up")                                                                     \
    X(BILL_STEPS, "steps")                                                                         \
    X(BILL_CHECKPOINTS, "checkpoints")                                                             \
    X(BILL_SETUP, "setup_fee")                                                                     \
    X(BILL_ROUNDING, "billing_granularity_and_minimum")

enum bill_line {
#define X(name, word) name,
    BILL_MAP(X)
#undef X
        BILL_LINES
};
enum bill_case { BILL_LOW, BILL_MID, BILL_HIGH, BILL_CASES };

/* Money that does not fit; far beyond any budget. */
#define BILL_HUGE_MICRO_USD (INT64_MAX / 4)

/* Value type. Lines sum exactly to the totals. Seconds of the last two lines are not part of the
 * run: the fee takes none, rounding is paid for and not used. */
struct bill {
    double line_s[BILL_CASES][BILL_LINES];
    double run_s[BILL_CASES]; /* from renting to the last checkpoint */
    bool is_priced;
    int64_t line_micro_usd[BILL_CASES][BILL_LINES];
    int64_t total_micro_usd[BILL_CASES];
};

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
/* {low, mid, high, lines:{name:{low, mid, high}}}; null for the cost when unpriced. */
struct json *bill_hours_json(const struct bill *b);
struct json *bill_cost_json(const struct bill *b);

#endif
