/* Runs a linked schedule on a machine that exists only as rates: how long a step takes, what
 * overlaps, what is exposed.
 *
 * Each lane works on one operation at a time, in list order, when the operations it waits for are
 * done. Operations that run side by side share resources: collectives on different lanes share the
 * links, products slow down a little while a collective runs, and on a CPU all lanes of a rank
 * share its cores; each then progresses in proportion. Sections repeat exactly (lanes drain in
 * between), so a step is the sum of its sections. What runs is segments of a timeline: operations
 * between which no lane can start or stop. */
#ifndef PLANNER_SIMULATE_H
#define PLANNER_SIMULATE_H

#include "planner/price.h"
#include "planner/rates.h"
#include "planner/schedule.h"

struct timeline;

/* Seconds of one optimizer step. */
struct simulation {
    double step_s;
    double section_s[SCHEDULE_MAX_SECTIONS]; /* one execution of each section */
    double flush_s;                          /* of it, updates that no step follows; 0: none */
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

/* The same of a timeline. price: seconds of its operations on the machine, by prices_fill. spans:
 * NULL, or room for the operations of its schedule, which must not be merged then. */
void simulate_timeline(struct simulation *out, const struct timeline *t, const double *price,
    const struct prices *prices, const struct machine *m, struct op_span *spans);

/* By how much a step is longer for its slowest rank. */
double simulate_jitter(const struct machine *m, const struct strategy *s);

#endif
