/* Runs a linked schedule on a machine that exists only as rates: how long a step takes, what
 * overlaps, what is exposed.
 *
 * Each lane works on one operation at a time, in list order, when the operations it waits for are
 * done. Operations that run side by side share resources: collectives on different lanes share the
 * links, products slow down a little while a collective runs, and on a CPU all lanes of a rank
 * share its cores; each then progresses in proportion. Sections repeat exactly (lanes drain in
 * between), so a step is the sum of its sections. */
#ifndef PLANNER_SIMULATE_H
#define PLANNER_SIMULATE_H

#include "planner/rates.h"
#include "planner/schedule.h"

/* What an operation's seconds count as in a report. */
#define WORK_MAP(X)                                                                                \
    X(WORK_PRODUCTS, "matrix_products")                                                            \
    X(WORK_ATTENTION, "attention")                                                                 \
    X(WORK_ELEMENTWISE, "elementwise")                                                             \
    X(WORK_OPTIMIZER, "optimizer")                                                                 \
    X(WORK_COLLECTIVES, "collectives")                                                             \
    X(WORK_COPIES, "copies")

enum work {
#define X(name, word) name,
    WORK_MAP(X)
#undef X
        WORK_COUNT
};

/* Seconds of one optimizer step. */
struct simulation {
    double step_s;
    double section_s[SCHEDULE_MAX_SECTIONS]; /* one execution of each section */
    double busy_s[LANE_COUNT];               /* a lane has an operation running */
    double exposed_s[LANE_COUNT];            /* the compute lane idles while this lane works; shared
                                                evenly when several do. compute: always 0 */
    double work_s[WORK_COUNT];               /* as if each operation ran alone */
};

/* Start and end of an operation, seconds from the start of its section. */
struct op_span {
    double start_s, end_s;
};

/* spans: NULL, or room for schedule->n_ops. */
void simulate(struct simulation *out, const struct schedule *s, const struct machine *m,
    struct op_span *spans);

/* Seconds of one operation running alone. */
double simulate_op_s(const struct schedule *s, const struct machine *m, const struct op *op);
enum work op_work(enum op_kind kind);
const char *work_name(enum work w);

#endif
