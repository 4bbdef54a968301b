/* Shared by the files of the search (search*.c); not for others. */
#ifndef PLANNER_SEARCH_CELLS_H
#define PLANNER_SEARCH_CELLS_H

#include "planner/search.h"
#include "planner/space.h"

/* Distinct hardware and the offers that are it. */
struct group {
    struct hardware hw; /* of one node */
    int64_t max_nodes;  /* over its offers */
    size_t *offers;
    size_t n_offers, cap;
    size_t first_cell, n_cells;
};

/* Hardware times a number of nodes. */
struct cell {
    size_t group;
    int64_t nodes;
    struct machine machine;
    const struct offer *offer; /* any of the group: run seconds do not depend on its price */
    double *compute_s;         /* by work class */
    struct traffic *traffic;   /* by traffic class */
    bool is_dropped;           /* no list can come to hold it: not raced */
    bool has_best;
    size_t best_index; /* in the space, for ties */
    double best_run_s;
    struct strategy best;
    struct estimate best_estimate;
};

/* Work of a micro step on the compute lane depends on these alone. */
struct work_class {
    enum precision precision;
    enum recompute recompute;
    int loss_chunks;
    int64_t micro_batch;
};

/* Seconds of collectives depend on these alone. */
struct traffic_class {
    enum strategy_kind kind;
    enum precision precision;
    int64_t shard_degree;
    bool reshards;
};
/* Seconds of all collectives in a micro step, more in the last one, in the boundary; what of it no
 * strategy can hide; norms and updates of the boundary. */
struct traffic {
    double micro_s, last_s, boundary_s;
    double micro_exposed_s, last_exposed_s, boundary_exposed_s;
    double norm_s, update_s;
};

struct ranking;

struct finder {
    const struct search_input *in;
    struct group *groups;
    size_t n_groups, groups_cap;
    struct cell *cells;
    size_t n_cells, cells_cap;
    struct search *out;
    size_t rejected_cap;
    struct ranking *ranking;
};
bool finder_is_cancelled(const struct finder *f);

/* --- search_bound.c: seconds that no strategy can go below --- */

/* Classes of the strategies of a space, with a schedule for each work class. */
struct bounds;
enum rc bounds_new(
    struct bounds **out, const struct model *m, const struct space *space, struct err *e);
void bounds_free(struct bounds *b);
/* Fill the cell's tables; release with bounds_clear. */
void bounds_price(const struct bounds *b, struct cell *c);
void bounds_clear(struct cell *c);
/* At most the seconds of a step of the i-th strategy on the cell. */
double bounds_step_s(const struct bounds *b, const struct cell *c, size_t i);
/* At most the live bytes of the i-th strategy. */
double bounds_live_bytes(const struct bounds *b, size_t i);

/* --- search_rank.c: offers with the best strategy of their cells, ranked --- */

struct ranking *ranking_new(struct finder *f);
void ranking_free(struct ranking *r);
/* The offers of a cell whose best strategy is found; the cell must stay where it is. */
void ranking_add(struct ranking *r, const struct cell *c);
/* Take what was added into account for ranking_can_matter. */
void ranking_update(struct ranking *r);
/* No strategy does better on a cell, in any of these. */
struct least {
    double step_s;
    struct save_s save;
};
/* Can a cell with these bounds still be a plan, a point of the front, or the nearest
 * miss of its group? */
bool ranking_can_matter(const struct ranking *r, const struct cell *c, const struct least *least);
/* Write plans and Pareto front. */
enum rc ranking_finish(struct ranking *r, struct err *e);
/* Say so when all of a group breaks the budget or the deadline. */
void reject_for_limits(struct finder *f, size_t group);

/* --- search_reject.c --- */

struct rejection *reject(struct finder *f, const char *what, const char *why);
/* Of the strategies that save most, the one that comes nearest to fitting; short_by is INT64_MAX
 * when the shape allows none. */
struct thrift {
    int64_t peak_bytes;
    int64_t short_by;
    bool is_host;
    struct strategy strategy;
    struct estimate estimate; /* memory only */
};
struct thrift thriftiest(
    const struct job *j, const struct shape_of_ranks *shape, const struct machine *mc);
/* Say why the group has no plan, if it has none for memory or limits. */
void reject_group(struct finder *f, size_t group);

#endif
