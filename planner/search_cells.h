/* Shared by the files of the search (search*.c); not for others. */
#ifndef PLANNER_SEARCH_CELLS_H
#define PLANNER_SEARCH_CELLS_H

#include "base/index.h"
#include "planner/search.h"
#include "planner/space.h"

/* Distinct hardware and the offers that are it. */
struct group {
    struct hardware hw; /* of one node */
    int64_t max_nodes;  /* over its offers */
    double least_usd;   /* an hour and node of the cheapest offer; INFINITY: none has a price */
    size_t *offers;
    size_t n_offers, cap;
    size_t first_cell, n_cells;
};

/* What a strategy needs of a node. */
struct node_bytes {
    int64_t host, disk;
};

/* No strategy that may fit the device does better on a track, in any of these; INFINITY when none
 * may. */
struct least {
    double step_s;
    struct save_s save;
    struct node_bytes node;
};

/* Seconds of the compute lane in a micro step: until the head's gradients are complete, before
 * which nothing can be reduced, and after it. */
struct compute_s {
    double before, after;
};

/* What decides seconds: hardware without what only limits the host's memory, times a number of
 * nodes. Cells of a track differ in nothing but that limit. */
struct track {
    struct machine machine;
    char *problem;             /* why it cannot be planned, NULL when it can */
    const struct offer *offer; /* any of its cells: run seconds do not depend on its price */
    size_t *cells;             /* those that are raced first */
    size_t n_cells, n_all, cap;
    struct compute_s *compute_s; /* by work class, of those priced so far */
    size_t n_compute;
    struct least least;
    const struct thrifty *disk_of; /* that disk_share is of; NULL: not asked for yet */
    double disk_share;             /* of a step that waits for states on disk */
};

/* The estimate of a strategy on a track. */
struct finding {
    size_t track, race, index; /* the strategy is the index-th of the race's space */
    struct strategy strategy;
    bool is_filling;          /* its blocks in full are those that the machine asks for */
    struct estimate estimate; /* without a limit of host memory */
    struct estimate *whole;   /* the same of the whole schedule, NULL: not made yet */
    struct finding *next;
};

/* A group times a number of nodes. */
struct cell {
    size_t group, track;
    int64_t nodes;
    bool is_done;    /* something of a stage of the space fits: later ones are not for it */
    unsigned doubts; /* stages (bits) in which no list could come to hold it: it was not raced, and
                        whether anything fits is not known */
    bool is_in;      /* the strategy at hand may still win */
    bool is_refused; /* only states on disk fit, which take too much of a step */
    double best_run_s;
    struct finding *best; /* NULL: none yet */
};
struct ranking;
struct works;
struct thrifts;

struct finder {
    const struct search_input *in;
    struct group *groups;
    size_t n_groups, groups_cap;
    struct index group_index;
    struct track *tracks;
    size_t n_tracks, tracks_cap;
    struct index track_index;
    struct cell *cells;
    size_t n_cells, cells_cap;
    struct finding *findings; /* all, newest first */
    struct whole *wholes;     /* schedules of strategies in full, so far */
    size_t n_wholes, wholes_cap;
    struct works *works;
    struct thrifts *thrifts;
    struct search *out;
    size_t rejected_cap;
    struct index rejected_index;
    struct ranking *ranking;
};
bool finder_is_cancelled(const struct finder *f);
struct hardware cell_hardware(const struct finder *f, const struct cell *c);
/* A node has that, or its host memory is unknown; the disk must be known. */
bool cell_holds(const struct finder *f, const struct cell *c, struct node_bytes need);
/* Of the device, for the slab. */
double track_capacity_bytes(const struct track *t);
/* Of the best strategy, which must be there, under the cell's limit of host memory: from a few
 * blocks, or of the whole schedule, made when first asked for. */
struct estimate cell_estimate(const struct finder *f, const struct cell *c);
enum rc cell_whole_estimate(
    struct estimate *out, struct finder *f, const struct cell *c, struct err *e);

/* --- search_race.c --- */

/* Most of a step that may be spent waiting for states on disk, where anything else fits. */
#define SEARCH_MOST_ON_DISK 0.5

/* Find the best strategy of every cell that matters and rank it. RC_CANCELLED when told to stop. */
enum rc race_all(struct finder *f, struct err *e);

/* --- search_work.c: computing and memory that no way of sharding changes --- */

/* Classes of strategies that are alike in both, of a model and a sequence, shared by the spaces of
 * all shapes. */
struct works *works_new(const struct model *m, int64_t seq);
void works_free(struct works *w);
const struct model *works_model(const struct works *w);
/* The class of a strategy. */
enum rc works_find(uint32_t *out, struct works *w, const struct strategy *s, struct err *e);
/* Bytes on the device beside parameters, gradients and optimizer states, at least: in the head, in
 * the last block's backward, and at any time. */
struct live_beside {
    double any, head, block;
};
struct live_beside works_live(const struct works *w, uint32_t i);
/* Fill the track's compute_s, as far as it is not. */
void works_price(const struct works *w, struct track *t);

/* --- search_bound.c: what no strategy can go below --- */

struct bounds;
enum rc bounds_new(struct bounds **out, struct works *works, const struct space *space, bool is_gpu,
    struct err *e);
void bounds_free(struct bounds *b);
/* At most the seconds of a step of each strategy on the track, INFINITY where it cannot be: its
 * live bytes alone are too many, or the machine has not its precision. seconds: room for all. */
void bounds_step_s(const struct bounds *b, struct track *t, double *seconds);
/* Seconds of its saves. */
struct save_s bounds_save_s(const struct bounds *b, const struct track *t, size_t i);
/* At most the live bytes of the i-th strategy. */
double bounds_live_bytes(const struct bounds *b, size_t i);
/* At most what a node needs for it. */
struct node_bytes bounds_node_bytes(const struct bounds *b, size_t i);

/* --- search_fit.c: does anything fit? --- */

/* The strategies of a stage on a shape, and the memory of those that anybody asked about. */
struct fits;
enum rc fits_new(struct fits **out, struct finder *f, const struct shape_of_ranks *shape,
    enum space_stage stage, struct err *e);
void fits_free(struct fits *x);
/* Does any of them fit a cell of the track, by estimate_quick? */
enum rc fits_any(bool *out, struct fits *x, const struct finder *f, const struct track *t,
    const struct cell *c, struct err *e);

/* --- search_rank.c: offers with the best strategy of their cells, ranked --- */

struct ranking *ranking_new(struct finder *f);
void ranking_free(struct ranking *r);
/* The offers of a cell whose best strategy is found; the cell must stay where it is. */
void ranking_add(struct ranking *r, const struct cell *c);
bool ranking_is_empty(const struct ranking *r);
/* Take what was added into account for ranking_can_matter. */
void ranking_update(struct ranking *r);
/* Can a cell with these bounds still be a plan, a point of the front, or the nearest
 * miss of its group? */
bool ranking_can_matter(const struct ranking *r, const struct cell *c, const struct least *least);
/* Write plans and Pareto front. */
enum rc ranking_finish(struct ranking *r, struct err *e);
/* The shortest run on an offer, whatever limit it breaks, and its ranks (NULL: not wanted); false
 * when nothing fits there. After ranking_finish. */
bool ranking_fastest(
    const struct ranking *r, const struct offer *o, struct bill *bill, int64_t *ranks);
/* Say so when all of a group breaks the budget or the deadline. */
void reject_for_limits(struct finder *f, size_t group);
/* Say so for each of its offers that stops too often ever to finish, or is gone before. */
void reject_for_stops(struct finder *f, size_t group);

/* --- search_thrift.c: the least that a job can do with --- */

/* Of the strategies that save most, the one that comes nearest to fitting hardware of the machine's
 * kind with so much host memory (0: unknown) and disk (0: none); short_by is INT64_MAX when the
 * shape allows none. */
struct thrifty;
struct thrift {
    int64_t peak_bytes;
    int64_t short_by;
    enum memory where;
    struct strategy strategy;
    struct live_bytes live;
    struct thrifty *of; /* valid as long as the search */
};
struct thrift thriftiest(struct finder *f, const struct job *j, const struct shape_of_ranks *shape,
    const struct machine *mc, struct node_bytes have);
/* Would any of them fit? */
bool thrifty_fits(struct finder *f, const struct job *j, const struct shape_of_ranks *shape,
    const struct machine *mc, struct node_bytes have);
/* Share of a step in which nothing but the disk, the host and copies between them work. */
double thrifty_disk_share(struct thrifty *t, const struct model *m, const struct machine *mc);
void thrifts_free(struct thrifts *t);
/* --- search_reject.c --- */

struct rejection *reject(struct finder *f, const char *what, const char *why);
/* Say why the group has no plan, if it has none for memory or limits. */
void reject_group(struct finder *f, size_t group);

/* --- search_mix.c --- */

/* Without any plan: say so when nodes of two offers together would do, and why that is none. */
void reject_for_mixing(struct finder *f);

#endif
