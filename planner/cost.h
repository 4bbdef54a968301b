/* Hours and dollars of a whole run on an offer, line by line, low, mid and high.
 *
 * Nodes fail and spot nodes are taken away. A run with W seconds of steps that saves every t
 * seconds and stops once in M on average takes 1 + d/t + (t/2 + R)/M times W, where d is what
 * training waits for a save and R what a restart takes (arXiv 2410.18124, first order in t/M). d/t
 * is the line of checkpoints, the rest that of failures. M is that of a node over the number of
 * nodes, and holds failures, judged from a published run, and the interruptions per hour that the
 * offer states. When a save fits into the notice of an interruption, it costs the save instead of
 * t/2. Until a replacement is there all nodes are paid. What people take to rent it is not counted.
 *
 * Validations are forward passes: a third of what training on as many tokens takes. Weights to
 * start from and tokenising on the nodes count where the job states them.
 *
 * Kept checkpoints are billed as storage, bringing the last one home as egress, where the offer
 * prices them. Checkpoints are taken to outlive the node that wrote them. */
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
    X(BILL_WEIGHTS, "weights_upload")                                                              \
    X(BILL_TOKENISING, "tokenising")                                                               \
    X(BILL_WARM_UP, "warm_up")                                                                     \
    X(BILL_STEPS, "steps")                                                                         \
    X(BILL_EVALUATION, "evaluation")                                                               \
    X(BILL_CHECKPOINTS, "checkpoints")                                                             \
    X(BILL_FAILURES, "failures_and_restarts")                                                      \
    X(BILL_REPLACEMENTS, "replacement_nodes")

enum bill_line {
#define X(name, word) name,
    BILL_MAP(X)
#undef X
        BILL_LINES
};

/* Where the money goes. Training is warm-up, steps, checkpoints and what is billed beyond them
 * (whole units, a minimum): what is billed beyond shrinks when the rest grows, so that alone it
 * could be dearer in the low case than in the high one. Evaluation, failures (work lost and
 * restarts) and replacements (all nodes wait until one is there, and its set-up fee) count as far
 * as they raise what is billed. */
#define COST_MAP(X)                                                                                \
    X(COST_BOOT, "boot_and_image")                                                                 \
    X(COST_STAGING, "staging")                                                                     \
    X(COST_DATA, "data_upload")                                                                    \
    X(COST_WEIGHTS, "weights_upload")                                                              \
    X(COST_TOKENISING, "tokenising")                                                               \
    X(COST_TRAINING, "training")                                                                   \
    X(COST_EVALUATION, "evaluation")                                                               \
    X(COST_FAILURES, "failures_and_restarts")                                                      \
    X(COST_REPLACEMENTS, "replacement_nodes")                                                      \
    X(COST_SETUP, "setup_fee")                                                                     \
    X(COST_STORAGE, "checkpoint_storage")                                                          \
    X(COST_EGRESS, "egress")

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
    double interval_s; /* between checkpoints: the job's, else the optimal one, at most 2 h */
    double optimal_interval_s; /* at least 10 min, a step and a save; 0: by bill_make_least */
    double between_stops_s;    /* mean, of the whole job, mid; INFINITY: never */
    double restart_s;          /* from a stop until training goes on, mid */
    double stops[BILL_CASES];  /* expected in the whole run */
    bool saves_in_notice;      /* a save fits into the notice of an interruption */
    bool never_ends;           /* stops so often that nothing of the above holds */
    bool is_priced;
    int64_t line_micro_usd[BILL_CASES][COST_LINES];
    int64_t total_micro_usd[BILL_CASES];
};

/* Is the run so long or so dear that figures would say nothing? */
bool bill_is_absurd(const struct bill *b);

/* nodes of the offer, for the whole job. Unknown billing rules count as by the second. */
void bill_make(struct bill *out, const struct job *j, const struct offer *o, int64_t nodes,
    const struct estimate *x);
/* At most that of any estimate whose step and save take at least as long: nothing fails, and
 * nothing is saved midway unless the job says how often. */
void bill_make_least(struct bill *out, const struct job *j, const struct offer *o, int64_t nodes,
    const struct estimate *x);
/* run_s[BILL_MID] of bill_make_least: what strategies are compared by. */
double bill_run_s(const struct job *j, const struct offer *o, double step_s, struct save_s save);

/* Seconds between checkpoints that waste the least time: d + sqrt(2 (M + R) d + d^2). */
double bill_optimal_interval_s(double stall_s, double between_stops_s, double restart_s);

/* May the offer be taken away, nobody knows how often? Then interruptions are not billed. */
bool bill_ignores_interruptions(const struct offer *o);

/* What states on disk do to the drives of a node. */
struct wear {
    double written_bytes;        /* over the run, mid, without checkpoints */
    double drive_writes;         /* of the whole disk; NAN: its size is unknown */
    double drive_writes_per_day; /* of the run */
};
struct wear wear_make(const struct estimate *x, const struct bill *b);
/* Whole writes a day over five years that drives for mostly reading are rated for (HPE's class of
 * read-intensive SSDs; DWPD as blocksandfiles.com/2022/04/24/dwpd explains it). Drives of
 * workstations have about a third. */
#define WEAR_RATED_PER_DAY 1.0

const char *bill_line_name(enum bill_line l);
const char *cost_line_name(enum cost_line l);
/* {low, mid, high, lines:{name:{low, mid, high}}}, hours with billed:{low, mid, high}; null for the
 * cost when unpriced. */
struct json *bill_hours_json(const struct bill *b);
struct json *bill_cost_json(const struct bill *b);
/* {expected:{low, mid, high}, mean_seconds_between, restart_seconds, saved_in_notice}. */
struct json *bill_stops_json(const struct bill *b);

#endif
