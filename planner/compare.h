/* Engines side by side: for one job on given nodes, the best that each can do. Pure. */
#ifndef PLANNER_COMPARE_H
#define PLANNER_COMPARE_H

#include "planner/search.h"

/* The fastest strategy of an engine that fits; value type, borrows from the rates. */
struct compared {
    enum engine engine;
    char stack[RATES_NAME]; /* whose constants predict it */
    bool exists;            /* it has any strategy for the job on these nodes */
    bool fits;
    struct strategy strategy; /* not fitting: the one that comes nearest */
    struct machine machine;
    struct estimate estimate; /* of the whole; not fitting: memory only */
    int64_t short_by;         /* bytes of a rank, or of a node's host memory */
    enum memory where;
    /* of a step at its fastest, optimizer on the device and on the host; 0: does not fit, or the
     * engine has no such thing. Without the former offload is needed. */
    double plain_step_s, offloaded_step_s;
};

/* The job must be finished; its engine and stack are ignored: the most measured stack speaks for
 * each engine. */
enum rc compare_engine(struct compared *out, enum engine g, const struct job *j,
    const struct offer *o, int64_t nodes, const struct rates *rates, struct err *e);
/* Fastest first, those that do not fit last, by what they lack. */
void compare_sort(struct compared *all, size_t n);
/* Do the bands of both steps overlap so far that nobody can say which is faster? */
bool compare_is_open(const struct compared *a, const struct compared *b);

#endif
