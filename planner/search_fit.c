/* Whether anything of a stage of the space fits a cell, without racing it: the strategies with the
 * least live bytes first, which mostly settles it. */
#include "base/alloc.h"
#include "planner/search_cells.h"

struct fits {
    const struct model *model;
    struct space space;
    struct bounds *bounds;
    struct need {
        bool is_known;
        int64_t peak_bytes;
        struct node_bytes node;
    } * needs; /* by strategy */
    struct candidate {
        size_t index;
        double live_bytes; /* at least */
    } * order;             /* by live bytes */
};

static int by_live_bytes(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;
    if (a->live_bytes < b->live_bytes || a->live_bytes > b->live_bytes)
        return a->live_bytes < b->live_bytes ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

void fits_free(struct fits *x)
{
    if (!x)
        return;
    bounds_free(x->bounds);
    space_release(&x->space);
    free(x->needs);
    free(x->order);
    free(x);
}

enum rc fits_new(struct fits **out, struct finder *f, const struct shape_of_ranks *shape,
    enum space_stage stage, struct err *e)
{
    struct fits *x = base_calloc(1, sizeof *x);
    x->model = &f->in->job->model;
    space_make(&x->space, f->in->job, shape, stage);
    enum rc rc = bounds_new(&x->bounds, f->works, &x->space, shape->is_gpu, e);
    size_t n = x->space.n;
    if (rc) {
        fits_free(x);
        return rc;
    }
    x->needs = base_calloc(n + 1, sizeof *x->needs);
    x->order = base_alloc((n + 1) * sizeof *x->order);
    for (size_t i = 0; i < n; i++)
        x->order[i] = (struct candidate){i, bounds_live_bytes(x->bounds, i)};
    if (n > 0)
        qsort(x->order, n, sizeof *x->order, by_live_bytes);
    *out = x;
    return RC_OK;
}

/* What it needs is the same on all machines of the shape. */
static enum rc know(struct fits *x, size_t i, const struct machine *mc, struct err *e)
{
    struct estimate at;
    enum rc rc = estimate_bytes(&at, x->model, &x->space.items[i], mc, e);
    if (!rc)
        x->needs[i] = (struct need){true, at.peak_bytes, {at.host_ram_bytes, at.disk_bytes}};
    return rc;
}

static bool fits(const struct fits *x, size_t i, const struct finder *f, const struct machine *mc,
    const struct cell *c)
{
    int64_t capacity = mc->hw.memory_bytes - (int64_t)mc->external_bytes;
    const struct need *n = &x->needs[i];
    return n->is_known && n->peak_bytes <= capacity && cell_holds(f, c, n->node) &&
           machine_computes(mc, x->space.items[i].precision);
}

enum rc fits_any(bool *out, struct fits *x, const struct finder *f, const struct track *t,
    const struct cell *c, struct err *e)
{
    const struct machine *mc = &t->machine;
    double capacity = (double)mc->hw.memory_bytes - mc->external_bytes;
    enum rc rc = RC_OK;
    *out = false;
    for (size_t i = 0; !*out && i < x->space.n; i++)
        *out = fits(x, i, f, mc, c);
    for (size_t k = 0; !rc && !*out && k < x->space.n; k++) {
        size_t i = x->order[k].index;
        if (x->order[k].live_bytes > capacity)
            break;
        if (x->needs[i].is_known || !machine_computes(mc, x->space.items[i].precision) ||
            !cell_holds(f, c, bounds_node_bytes(x->bounds, i)))
            continue;
        rc = know(x, i, mc, e);
        *out = !rc && fits(x, i, f, mc, c);
    }
    return rc;
}
