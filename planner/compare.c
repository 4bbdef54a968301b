#include "planner/compare.h"

#include "base/alloc.h"
#include "base/str.h"
#include "inventory/offer.h"
#include "planner/engine_use.h"
#include "planner/hardware.h"

/* The best over the ways of sharding: fastest that fits, else nearest to fitting. */
static const struct alternative *best_of(const struct alternative all[ALTERNATIVES])
{
    const struct alternative *best = NULL;
    for (int k = 0; k < ALTERNATIVES; k++) {
        const struct alternative *a = &all[k];
        bool is_better =
            a->exists && (!best || (a->fits && !best->fits) ||
                             (a->fits == best->fits && (a->fits ? a->run_s < best->run_s
                                                                : a->short_by < best->short_by)));
        if (is_better)
            best = a;
    }
    return best;
}

/* The bundled engine has many variants more, which save memory and no time. */
static bool is_usual(const struct strategy *s)
{
    bool is_bundled = profile_of(s->engine)->is_bundled;
    return !is_bundled || (s->prefetch == 1 && s->reshard_after_forward);
}

/* Of the fastest step with the optimizer where the best strategy does not have it; 0: none fits. */
static enum rc find_other(double *out, const struct compared *x, const struct job *j, struct err *e)
{
    const struct hardware *hw = &x->machine.hw;
    const struct shape_of_ranks shape = {
        hw->nodes * hw->ranks_per_node, hw->ranks_per_node, hw->is_gpu};
    struct space space;
    enum rc rc = RC_OK;
    *out = 0;
    space_make(&space, j, &shape, SPACE_USUAL);
    for (size_t i = 0; !rc && i < space.n; i++) {
        struct estimate at;
        if (space.items[i].offload == x->strategy.offload || !is_usual(&space.items[i]))
            continue;
        rc = estimate_quick(&at, &j->model, &space.items[i], &x->machine, e);
        if (!rc && estimate_fits(&at) && !(*out > 0 && at.step_s >= *out))
            *out = at.step_s;
    }
    space_release(&space);
    return rc;
}

static enum rc take_best(
    struct compared *x, const struct alternative *best, const struct job *j, struct err *e)
{
    x->exists = best != NULL;
    if (!best)
        return RC_OK;
    x->fits = best->fits;
    x->strategy = best->strategy;
    x->estimate = best->estimate;
    x->short_by = best->short_by;
    x->where = best->where;
    if (!x->fits)
        return RC_OK;
    enum rc rc = estimate_make(&x->estimate, &j->model, &x->strategy, &x->machine, e);
    bool is_plain = x->strategy.offload == OFFLOAD_NONE;
    *(is_plain ? &x->plain_step_s : &x->offloaded_step_s) = x->estimate.step_s;
    if (!rc && x->machine.hw.is_gpu && engine_offloads(x->engine))
        rc = find_other(is_plain ? &x->offloaded_step_s : &x->plain_step_s, x, j, e);
    return rc;
}

enum rc compare_engine(struct compared *out, enum engine g, const struct job *j,
    const struct offer *o, int64_t nodes, const struct rates *rates, struct err *e)
{
    struct job of = *j; /* borrows what j owns */
    struct alternative all[ALTERNATIVES];
    struct hardware hw;
    struct offer there = *o; /* as many nodes as are meant */
    struct compared x = {.engine = g};
    there.max_nodes_one_fabric = there.nodes_available = nodes;
    engine_stack(x.stack, rates, g);
    of.engine = g;
    of.objective = OBJECTIVE_TIME; /* there may be no price */
    str_copy(of.stack, sizeof of.stack, x.stack);
    enum rc rc = hardware_from_offer(&hw, o, nodes, e);
    if (!rc)
        rc = engine_check_device(g, hw.is_gpu, e);
    if (!rc)
        rc = machine_make(&x.machine, rates, &hw, x.stack, e);
    if (!rc)
        rc = search_alternatives(all, &of, &there, nodes, rates, e);
    if (!rc)
        rc = take_best(&x, best_of(all), &of, e);
    if (rc)
        return err_in(e, "%s", engine_name(g));
    *out = x;
    return RC_OK;
}

static int by_speed(const void *pa, const void *pb)
{
    const struct compared *a = pa, *b = pb;
    if (a->exists != b->exists || a->fits != b->fits)
        return (b->exists + b->fits) - (a->exists + a->fits);
    if (a->fits &&
        (a->estimate.step_s < b->estimate.step_s || b->estimate.step_s < a->estimate.step_s))
        return a->estimate.step_s < b->estimate.step_s ? -1 : 1;
    if (!a->fits && a->short_by != b->short_by)
        return a->short_by < b->short_by ? -1 : 1;
    return (a->engine > b->engine) - (a->engine < b->engine);
}

void compare_sort(struct compared *all, size_t n)
{
    if (n > 0)
        qsort(all, n, sizeof *all, by_speed);
}

bool compare_is_open(const struct compared *a, const struct compared *b)
{
    return a->estimate.step_low_s <= b->estimate.step_high_s &&
           b->estimate.step_low_s <= a->estimate.step_high_s;
}
