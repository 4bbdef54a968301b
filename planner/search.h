/* From offers to ranked plans.
 *
 * Offers collapse to distinct hardware; for each hardware and number of nodes the fastest strategy
 * that fits is found, by bounds that never discard it; with the prices of the offers this gives
 * plans, their Pareto front of dollars against hours, and what was rejected and why. The outcome
 * equals trying everything (tests/unit/planner/search.c). Pure and deterministic: same input, same
 * output. Runs on any thread; nothing is shared. */
#ifndef PLANNER_SEARCH_H
#define PLANNER_SEARCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/cost.h"
#include "planner/estimate.h"
#include "planner/job.h"
#include "planner/launchable.h"
#include "planner/network_need.h"
#include "planner/rates.h"

struct offer;
struct offers;

enum { SEARCH_TEXT = 240, SEARCH_MAX_RANKS = 16384, SEARCH_PLANS = 10 };

/* All borrowed for the call. The job must be finished (job_finish), the offers settled. */
struct search_input {
    const struct job *job;
    const struct offers *offers;
    const struct rates *rates;
    size_t max_plans;                /* at most so many, 0: SEARCH_PLANS */
    const atomic_bool *is_cancelled; /* polled; NULL: never */
    bool tries_everything;           /* no bounds: for tests */
};

/* One way to run the job: the best strategy on so many nodes of one offer. */
struct plan {
    struct hardware hw;
    char stack[RATES_NAME]; /* whose constants predict it */
    size_t offer;           /* index into the offers */
    int64_t nodes;
    struct strategy strategy;
    struct estimate estimate; /* of the whole schedule */
    struct bill bill;
    bool ignores_interruptions; /* the offer may be taken away, nobody knows how often */
    bool is_launchable;
    char not_launchable[LAUNCHABLE_TEXT]; /* why */
    char why[SEARCH_TEXT];                /* why it has this rank */
    char limits[SEARCH_TEXT];             /* what bounds its speed, and how full memory is */
    bool knows_network;                   /* by search_find_network, for it takes as long again */
    struct network_needs network;
};

/* A point of the Pareto front, by rising cost and falling time. */
struct pareto_point {
    size_t offer;
    int64_t nodes;
    struct strategy strategy;
    double run_s;
    int64_t micro_usd;
    int plan; /* index into plans, -1 when it is not among them */
};

enum shortage {
    SHORT_NONE,
    SHORT_BYTES,
    SHORT_HOST_BYTES,
    SHORT_DISK_BYTES,
    SHORT_USD,
    SHORT_SECONDS
};

/* Hardware, or one offer of it, that cannot be used. */
struct rejection {
    char what[SEARCH_TEXT];
    char why[SEARCH_TEXT];
    enum shortage shortage;
    double short_by;                  /* bytes, dollars or seconds */
    char nearest_change[SEARCH_TEXT]; /* the single change that would do; "" when none is known */
    size_t offers;                    /* so many offers share this fate */
};

/* space = pruned_by_memory + pruned_by_bound + simulated. */
struct searched {
    int64_t offers;   /* that the limits of the job allow */
    int64_t hardware; /* distinct among them */
    int64_t space;    /* strategies on hardware and node counts */
    int64_t pruned_by_memory, pruned_by_bound, simulated;
    int64_t beyond_max_ranks; /* offers of more than SEARCH_MAX_RANKS, searched up to that */
};

struct search {
    struct plan *plans; /* best first */
    size_t n_plans;
    struct pareto_point *pareto;
    size_t n_pareto;
    struct rejection *rejected;
    size_t n_rejected;
    struct searched searched;
};

/* RC_OK also when there is no plan. RC_CANCELLED leaves *out untouched. On success release with
 * search_free. */
enum rc search_run(struct search **out, const struct search_input *in, struct err *e);
void search_free(struct search *s);

/* How fast the wires of each plan must be: network of its plans. */
enum rc search_find_network(struct search *s, const struct search_input *in, struct err *e);

/* The best that each way of sharding can do on the same nodes. */
struct alternative {
    enum strategy_kind kind;
    bool exists; /* the space holds any (hsdp needs ranks to group) */
    bool fits;
    struct strategy strategy; /* fastest that fits; else the one that comes nearest to fitting */
    struct estimate estimate; /* not fitting: memory only */
    double run_s;
    int64_t short_by; /* bytes per rank, or of a node's host memory or disk */
    enum memory where;
};
enum { ALTERNATIVES = STRATEGY_HSDP + 1 };

/* One entry for each kind, whatever strategies the job names. RC_INVALID when the offer cannot be
 * planned. */
enum rc search_alternatives(struct alternative out[ALTERNATIVES], const struct job *j,
    const struct offer *o, int64_t nodes, const struct rates *rates, struct err *e);

/* What bounds the speed of a step, in words. */
void search_describe_limits(
    const struct estimate *x, const struct strategy *s, char buf[SEARCH_TEXT]);

/* The shortage of so much memory, and its words: "memory", "host memory", "disk". */
enum shortage shortage_of(enum memory where);
const char *shortage_word(enum memory where);
const char *shortage_unit(enum shortage s); /* "bytes", "usd", "seconds", NULL for none */

#endif
