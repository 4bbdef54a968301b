/* The best strategy of every cell: strategies in the order of their bounds, each priced where it
 * may still win. */
#include <math.h>

#include "base/alloc.h"
#include "planner/search_cells.h"

/* The tracks of one shape with the strategies possible on it. */
struct race {
    struct finder *f;
    size_t number;
    struct shape_of_ranks shape;
    struct space space;
    double checkpoint_bytes;
    struct bounds *bounds;
    struct track **tracks;
    size_t n_tracks;
};

/* A strategy is out of the race on a cell when it cannot beat, nor by its place tie with, the best
 * found so far. */
static bool can_win(const struct cell *c, double run_s, size_t index)
{
    if (!c->best || run_s < c->best_run_s)
        return true;
    return run_s <= c->best_run_s && index < c->best->index;
}

/* A node's memory, where it is known. */
static bool fits_host(const struct finder *f, const struct cell *c, int64_t host_bytes)
{
    int64_t ram = f->groups[c->group].hw.ram_bytes;
    return ram == 0 || host_bytes <= ram;
}

static struct finding *keep(
    struct race *r, const struct track *t, size_t i, const struct estimate *x)
{
    struct finding *found = base_alloc(sizeof *found);
    *found = (struct finding){.track = (size_t)(t - r->f->tracks),
        .race = r->number,
        .index = i,
        .strategy = r->space.items[i],
        .estimate = *x,
        .next = r->f->findings};
    r->f->findings = found;
    return found;
}

static void consider(struct race *r, struct track *t, const struct prepared *p, size_t i)
{
    struct estimate x;
    struct finding *found = NULL;
    prepared_estimate(&x, p, &t->machine);
    double run_s =
        bill_run_s(r->f->in->job, t->offer, x.step_s, x.checkpoint_stall_s, x.checkpoint_s);
    bool fits_device = estimate_fits(&x);
    for (size_t k = 0; k < t->n_cells; k++) {
        struct cell *c = &r->f->cells[t->cells[k]];
        r->f->out->searched.simulated += c->is_in;
        if (!c->is_in || !fits_device || !fits_host(r->f, c, x.host_ram_bytes) ||
            !can_win(c, run_s, i))
            continue;
        found = found ? found : keep(r, t, i, &x);
        c->best = found;
        c->best_run_s = run_s;
    }
}

static double capacity(const struct track *t)
{
    return (double)t->machine.hw.memory_bytes - t->machine.external_bytes;
}

/* Bounds are those of the bundled engine's schedules; others have smaller spaces, tried whole. */
static bool has_bounds(const struct finder *f)
{
    return profile_of(f->in->job->engine)->is_bundled;
}

static bool tries_everything(const struct finder *f)
{
    return f->in->tries_everything || !has_bounds(f);
}

static bool may_fit_device(const struct race *r, const struct track *t, size_t i)
{
    return tries_everything(r->f) || bounds_live_bytes(r->bounds, i) <= capacity(t);
}

/* Drop the cells of a track where the bound or the memory rules the strategy out; how many are
 * left. */
static size_t drop_cells_by_bound(struct race *r, struct track *t, size_t i)
{
    double run_s = t->run_s ? t->run_s[i] : 0;
    size_t in = 0;
    for (size_t n = 0; n < t->n_cells; n++) {
        struct cell *c = &r->f->cells[t->cells[n]];
        c->is_in = tries_everything(r->f) || can_win(c, run_s, i);
        in += c->is_in;
    }
    return in;
}

static size_t drop_by_bound(struct race *r, size_t i)
{
    struct searched *said = &r->f->out->searched;
    size_t left = 0;
    for (size_t k = 0; k < r->n_tracks; k++) {
        struct track *t = r->tracks[k];
        size_t in = 0;
        if (!may_fit_device(r, t, i)) {
            said->pruned_by_memory += (int64_t)t->n_cells;
        } else {
            if (machine_computes(&t->machine, r->space.items[i].precision))
                in = drop_cells_by_bound(r, t, i);
            said->pruned_by_bound += (int64_t)(t->n_cells - in);
        }
        t->is_in = in > 0;
        left += in;
    }
    return left;
}

static size_t drop_by_memory(struct race *r, double device_bytes, int64_t host_bytes)
{
    size_t left = 0;
    for (size_t k = 0; k < r->n_tracks; k++) {
        struct track *t = r->tracks[k];
        bool fits_device = tries_everything(r->f) || device_bytes <= capacity(t);
        size_t in = 0;
        for (size_t n = 0; t->is_in && n < t->n_cells; n++) {
            struct cell *c = &r->f->cells[t->cells[n]];
            bool was_in = c->is_in;
            c->is_in =
                was_in && fits_device && (tries_everything(r->f) || fits_host(r->f, c, host_bytes));
            in += c->is_in;
            r->f->out->searched.pruned_by_memory += was_in && !c->is_in;
        }
        t->is_in = in > 0;
        left += in;
    }
    return left;
}

static enum rc try_strategy(struct race *r, size_t i, struct err *e)
{
    struct prepared *p = NULL;
    double least = r->bounds ? bounds_live_bytes(r->bounds, i) : 0;
    int64_t least_host = r->bounds ? bounds_host_bytes(r->bounds, i) : 0;
    if (!drop_by_bound(r, i) || !drop_by_memory(r, least, least_host))
        return RC_OK;
    enum rc rc = prepared_begin(&p, &r->f->in->job->model, &r->space.items[i], false, e);
    if (rc)
        return rc;
    struct live_bytes live = prepared_live_bytes(p);
    int64_t host_bytes =
        estimate_host_ram_bytes(&live, r->checkpoint_bytes, &r->space.items[i], r->shape.is_gpu);
    if (drop_by_memory(r, (double)live.of[MEMORY_DEVICE], host_bytes)) {
        prepared_finish(p);
        for (size_t k = 0; k < r->n_tracks; k++)
            if (r->tracks[k]->is_in)
                consider(r, r->tracks[k], p, i);
    }
    prepared_free(p);
    return RC_OK;
}

struct ordered {
    double run_s;
    size_t index;
};

static int by_bound(const void *pa, const void *pb)
{
    const struct ordered *a = pa, *b = pb;
    if (a->run_s < b->run_s || a->run_s > b->run_s)
        return a->run_s < b->run_s ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Strategies by their bound on the first track: the winner comes early and ends the race. */
static enum rc run_in_order(struct race *r, struct err *e)
{
    const double *first = r->tracks[0]->run_s;
    struct ordered *order = base_alloc((r->space.n + 1) * sizeof *order);
    for (size_t i = 0; i < r->space.n; i++)
        order[i] = (struct ordered){first ? first[i] : 0, i};
    qsort(order, r->space.n, sizeof *order, by_bound);
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < r->space.n; i++) {
        if (finder_is_cancelled(r->f))
            rc = err_set(e, RC_CANCELLED, "planning was cancelled");
        else
            rc = try_strategy(r, order[i].index, e);
    }
    free(order);
    return rc;
}

static bool saves_alike(const struct strategy *a, const struct strategy *b)
{
    return a->kind == b->kind && a->offload == b->offload && a->shard_degree == b->shard_degree;
}

/* Bounds of every strategy and of all that may fit. Short runs are mostly the last checkpoint. */
static void price_track(struct race *r, struct track *t)
{
    const struct strategy *items = r->space.items;
    struct save_s save = {0, 0};
    t->run_s = base_alloc((r->space.n + 1) * sizeof *t->run_s);
    t->least = (struct least){INFINITY, {INFINITY, INFINITY}};
    bounds_step_s(r->bounds, t, t->run_s);
    for (size_t i = 0; i < r->space.n; i++) {
        double step_s = t->run_s[i];
        if (i == 0 || !saves_alike(&items[i], &items[i - 1]))
            save = bounds_save_s(r->bounds, t, i);
        if (bounds_live_bytes(r->bounds, i) > capacity(t))
            continue;
        t->run_s[i] = bill_run_s(r->f->in->job, t->offer, step_s, save.stall, save.write);
        t->least.step_s = step_s < t->least.step_s ? step_s : t->least.step_s;
        t->least.save.write = fmin(t->least.save.write, save.write);
        t->least.save.stall = fmin(t->least.save.stall, save.stall);
    }
}

static void clear_track(struct track *t)
{
    free(t->run_s);
    t->run_s = NULL;
}

/* Leave out the cells that no list can come to hold, whatever their best strategy. */
static void drop_cells_of(struct race *r, struct track *t)
{
    bool may_drop = !tries_everything(r->f) && isfinite(t->least.step_s);
    size_t kept = 0;
    for (size_t k = 0; k < t->n_cells; k++) {
        struct cell *c = &r->f->cells[t->cells[k]];
        c->is_dropped = may_drop && !ranking_can_matter(r->f->ranking, c, &t->least);
        if (!c->is_dropped)
            t->cells[kept++] = t->cells[k];
    }
    r->f->out->searched.pruned_by_bound += (int64_t)(r->space.n * (t->n_cells - kept));
    t->n_cells = kept;
}

static void drop_cells(struct race *r)
{
    size_t kept = 0;
    for (size_t k = 0; k < r->n_tracks; k++) {
        price_track(r, r->tracks[k]);
        drop_cells_of(r, r->tracks[k]);
        if (r->tracks[k]->n_cells > 0)
            r->tracks[kept++] = r->tracks[k];
        else
            clear_track(r->tracks[k]);
    }
    r->n_tracks = kept;
}

static void end_race(struct race *r)
{
    for (size_t k = 0; k < r->n_tracks; k++) {
        struct track *t = r->tracks[k];
        clear_track(t);
        for (size_t n = 0; n < t->n_cells; n++)
            ranking_add(r->f->ranking, &r->f->cells[t->cells[n]]);
    }
    ranking_update(r->f->ranking);
}

static enum rc run_race(struct race *r, struct err *e)
{
    struct finder *f = r->f;
    enum rc rc = RC_OK;
    space_make(&r->space, f->in->job, &r->shape);
    r->checkpoint_bytes = estimate_checkpoint_bytes(&f->in->job->model);
    for (size_t k = 0; k < r->n_tracks; k++)
        f->out->searched.space += (int64_t)(r->space.n * r->tracks[k]->n_cells);
    if (has_bounds(f))
        rc = bounds_new(&r->bounds, f->works, &r->space, r->shape.is_gpu, e);
    if (r->bounds)
        drop_cells(r);
    if (!rc && r->n_tracks > 0)
        rc = run_in_order(r, e);
    if (!rc)
        end_race(r);
    for (size_t k = 0; k < r->n_tracks; k++)
        clear_track(r->tracks[k]);
    bounds_free(r->bounds);
    space_release(&r->space);
    return rc;
}

static bool same_shape(const struct shape_of_ranks *a, const struct shape_of_ranks *b)
{
    return a->ranks == b->ranks && a->ranks_per_node == b->ranks_per_node && a->is_gpu == b->is_gpu;
}

/* Races in the order in which cells come to need them. */
struct races {
    struct race *items;
    size_t n, cap;
};

static void join_race(struct races *all, struct finder *f, struct track *t)
{
    const struct hardware *hw = &t->machine.hw;
    struct shape_of_ranks shape = {hw->nodes * hw->ranks_per_node, hw->ranks_per_node, hw->is_gpu};
    size_t i = 0;
    while (i < all->n && !same_shape(&all->items[i].shape, &shape))
        i++;
    BASE_GROW(all->items, all->cap, i + 1);
    if (i == all->n) {
        all->items[i] = (struct race){.f = f, .number = i, .shape = shape};
        all->items[i].tracks = base_alloc((f->n_tracks + 1) * sizeof(struct track *));
        all->n++;
    }
    all->items[i].tracks[all->items[i].n_tracks++] = t;
}

enum rc race_all(struct finder *f, struct err *e)
{
    struct races all = {0};
    for (size_t i = 0; i < f->n_cells; i++) {
        struct track *t = &f->tracks[f->cells[i].track];
        if (t->cells[0] == i)
            join_race(&all, f, t);
    }
    enum rc rc = RC_OK;
    for (size_t i = 0; i < all.n; i++) {
        rc = rc ? rc : run_race(&all.items[i], e);
        free(all.items[i].tracks);
    }
    free(all.items);
    return rc;
}
