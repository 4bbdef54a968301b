/* The best strategy of every cell: strategies in the order of their bounds, each priced where it
 * may still win. */
#include <math.h>

#include "base/alloc.h"
#include "planner/search_cells.h"

/* The tracks of one shape with the strategies possible on it. */
struct race {
    struct finder *f;
    size_t place; /* among the races */
    struct shape_of_ranks shape;
    enum space_stage stage;
    struct space space; /* of the stage */
    double checkpoint_bytes;
    struct bounds *bounds;
    struct fits *fits[SPACE_STAGES]; /* of earlier stages, when asked for */
    struct need {
        enum precision precision;
        int64_t peak_bytes;
        struct node_bytes node;
    } * needs; /* of the strategies that were estimated in this stage */
    size_t n_needs, needs_cap;
    struct track **tracks; /* those that are raced first */
    size_t n_tracks, n_all;
};

/* A strategy is out of the race on a cell when it cannot beat, nor by its place tie with, the best
 * found so far. */
static bool can_win(const struct cell *c, double run_s, size_t index)
{
    if (!c->best || run_s < c->best_run_s)
        return true;
    return run_s <= c->best_run_s && index < c->best->index;
}

bool cell_holds(const struct finder *f, const struct cell *c, struct node_bytes need)
{
    const struct hardware *hw = &f->groups[c->group].hw;
    return (hw->ram_bytes == 0 || need.host <= hw->ram_bytes) && need.disk <= hw->nvme_bytes;
}

static struct finding *keep(
    struct race *r, const struct track *t, size_t i, const struct estimate *x)
{
    struct finding *found = base_alloc(sizeof *found);
    *found = (struct finding){.track = (size_t)(t - r->f->tracks),
        .race = r->place * SPACE_STAGES + (size_t)r->stage,
        .index = i,
        .strategy = r->space.items[i],
        .estimate = *x,
        .next = r->f->findings};
    r->f->findings = found;
    return found;
}

static void learn(struct race *r, size_t i, const struct estimate *x)
{
    BASE_GROW(r->needs, r->needs_cap, r->n_needs + 1);
    r->needs[r->n_needs++] = (struct need){
        r->space.items[i].precision, x->peak_bytes, {x->host_ram_bytes, x->disk_bytes}};
}

static void consider(struct race *r, struct track *t, const struct prepared *p, size_t i)
{
    struct estimate x;
    struct finding *found = NULL;
    prepared_estimate(&x, p, &t->machine);
    double run_s =
        bill_run_s(r->f->in->job, t->offer, x.step_s, x.checkpoint_stall_s, x.checkpoint_s);
    struct node_bytes need = {x.host_ram_bytes, x.disk_bytes};
    learn(r, i, &x);
    bool fits_device = x.peak_bytes <= x.capacity_bytes;
    for (size_t k = 0; k < t->n_cells; k++) {
        struct cell *c = &r->f->cells[t->cells[k]];
        r->f->out->searched.simulated += c->is_in;
        if (!c->is_in || !fits_device || !cell_holds(r->f, c, need) || !can_win(c, run_s, i))
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

static size_t drop_by_memory(struct race *r, double device_bytes, struct node_bytes need)
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
                was_in && fits_device && (tries_everything(r->f) || cell_holds(r->f, c, need));
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
    struct node_bytes least_node = {0, 0};
    if (r->bounds)
        least_node = bounds_node_bytes(r->bounds, i);
    if (!drop_by_bound(r, i) || !drop_by_memory(r, least, least_node))
        return RC_OK;
    enum rc rc = prepared_begin(&p, &r->f->in->job->model, &r->space.items[i], false, e);
    if (rc)
        return rc;
    struct live_bytes live = prepared_live_bytes(p);
    const struct strategy *s = &r->space.items[i];
    struct node_bytes need = {
        estimate_host_ram_bytes(&live, r->checkpoint_bytes, s, r->shape.is_gpu),
        estimate_disk_bytes(&live, r->checkpoint_bytes, s)};
    if (drop_by_memory(r, (double)live.of[MEMORY_DEVICE], need)) {
        prepared_finish(p);
        size_t learned = r->n_needs;
        for (size_t k = 0; k < r->n_tracks; k++)
            if (r->tracks[k]->is_in)
                consider(r, r->tracks[k], p, i);
        r->n_needs = learned < r->n_needs ? learned + 1 : learned; /* they are all alike */
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
    t->least_node = (struct node_bytes){INT64_MAX, INT64_MAX};
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
        struct node_bytes node = bounds_node_bytes(r->bounds, i);
        t->least_node.host = node.host < t->least_node.host ? node.host : t->least_node.host;
        t->least_node.disk = node.disk < t->least_node.disk ? node.disk : t->least_node.disk;
    }
}

/* --- which cells a stage is for --- */

static void clear_track(struct track *t)
{
    free(t->run_s);
    t->run_s = NULL;
}

/* Did anything fit in an earlier stage, in which the cell was left out unseen? */
static enum rc settle_doubts(struct race *r, const struct track *t, struct cell *c, struct err *e)
{
    enum rc rc = RC_OK;
    for (int stage = SPACE_USUAL; !rc && !c->is_done && stage < (int)r->stage; stage++) {
        if (!(c->doubts & 1u << stage))
            continue;
        if (!r->fits[stage])
            rc = fits_new(&r->fits[stage], r->f, &r->shape, (enum space_stage)stage, e);
        if (!rc)
            rc = fits_any(&c->is_done, r->fits[stage], r->f, t, c, e);
    }
    c->doubts = 0;
    return rc;
}

/* Cells that no list can come to hold, whatever their best strategy, are left out. */
static enum rc choose(
    bool *is_in, struct race *r, const struct track *t, struct cell *c, struct err *e)
{
    struct searched *said = &r->f->out->searched;
    int64_t n = (int64_t)r->space.n;
    enum rc rc = RC_OK;
    *is_in = !c->is_done;
    said->space += *is_in ? n : 0;
    if (!*is_in || tries_everything(r->f))
        return RC_OK;
    if (!isfinite(t->least.step_s) || !cell_holds(r->f, c, t->least_node)) {
        *is_in = false;
        said->pruned_by_memory += n;
        return RC_OK;
    }
    *is_in = ranking_can_matter(r->f->ranking, c, &t->least);
    if (!*is_in)
        c->doubts |= 1u << r->stage;
    else if (c->doubts)
        rc = settle_doubts(r, t, c, e);
    *is_in = *is_in && !c->is_done;
    said->pruned_by_bound += *is_in ? 0 : n;
    return rc;
}

/* Cells to be raced first, each part in the order that it had. */
static enum rc choose_cells_of(struct race *r, struct track *t, struct err *e)
{
    size_t *cells = base_alloc((t->n_all + 1) * sizeof *cells), in = 0, out = 0;
    enum rc rc = RC_OK;
    for (size_t k = 0; k < t->n_all; k++) {
        bool is_in = false;
        rc = rc ? rc : choose(&is_in, r, t, &r->f->cells[t->cells[k]], e);
        if (is_in)
            t->cells[in++] = t->cells[k];
        else
            cells[out++] = t->cells[k];
    }
    for (size_t k = 0; k < out; k++)
        t->cells[in + k] = cells[k];
    free(cells);
    t->n_cells = in;
    return rc;
}

static bool has_open_cells(const struct race *r, const struct track *t)
{
    for (size_t k = 0; k < t->n_all; k++)
        if (!r->f->cells[t->cells[k]].is_done)
            return true;
    return false;
}

static enum rc choose_cells(struct race *r, struct err *e)
{
    enum rc rc = RC_OK;
    r->n_tracks = 0;
    for (size_t k = 0; !rc && k < r->n_all; k++) {
        struct track *t = r->tracks[k];
        t->n_cells = 0;
        if (!has_open_cells(r, t))
            continue;
        if (r->bounds)
            price_track(r, t);
        rc = choose_cells_of(r, t, e);
        if (t->n_cells == 0) {
            clear_track(t);
            continue;
        }
        r->tracks[k] = r->tracks[r->n_tracks];
        r->tracks[r->n_tracks++] = t;
    }
    return rc;
}

/* What fits only with states on disk is ranked when all is known. */
/* What was estimated for other cells settles most doubts. */
static void settle_by_needs(const struct race *r, const struct track *t, struct cell *c)
{
    int64_t capacity_bytes = t->machine.hw.memory_bytes - (int64_t)t->machine.external_bytes;
    for (size_t i = 0; i < r->n_needs && !c->is_done; i++)
        c->is_done = r->needs[i].peak_bytes <= capacity_bytes &&
                     cell_holds(r->f, c, r->needs[i].node) &&
                     machine_computes(&t->machine, r->needs[i].precision);
}

static void settle_dropped(const struct race *r)
{
    for (size_t k = 0; k < r->n_all; k++) {
        const struct track *t = r->tracks[k];
        for (size_t n = t->n_cells; n < t->n_all; n++) {
            struct cell *c = &r->f->cells[t->cells[n]];
            if (c->doubts & 1u << r->stage)
                settle_by_needs(r, t, c);
        }
    }
}

static void end_race(struct race *r)
{
    for (size_t k = 0; k < r->n_tracks; k++) {
        struct track *t = r->tracks[k];
        for (size_t n = 0; n < t->n_cells; n++) {
            struct cell *c = &r->f->cells[t->cells[n]];
            c->is_done = c->best != NULL;
            if (r->stage != SPACE_DISK)
                ranking_add(r->f->ranking, c);
        }
    }
    ranking_update(r->f->ranking);
    settle_dropped(r);
}

static void clear_race(struct race *r)
{
    for (size_t k = 0; k < r->n_all; k++)
        clear_track(r->tracks[k]);
    for (int i = 0; i < SPACE_STAGES; i++) {
        fits_free(r->fits[i]);
        r->fits[i] = NULL;
    }
    free(r->needs);
    r->needs = NULL;
    r->n_needs = r->needs_cap = 0;
    bounds_free(r->bounds);
    r->bounds = NULL;
    space_release(&r->space);
}

static bool has_open_tracks(const struct race *r)
{
    for (size_t k = 0; k < r->n_all; k++)
        if (has_open_cells(r, r->tracks[k]))
            return true;
    return false;
}

static enum rc run_race(struct race *r, enum space_stage stage, struct err *e)
{
    struct finder *f = r->f;
    enum rc rc = RC_OK;
    if (finder_is_cancelled(f))
        return err_set(e, RC_CANCELLED, "planning was cancelled");
    if (!has_open_tracks(r))
        return RC_OK;
    r->stage = stage;
    space_make(&r->space, f->in->job, &r->shape, stage);
    r->checkpoint_bytes = estimate_checkpoint_bytes(&f->in->job->model);
    if (has_bounds(f))
        rc = bounds_new(&r->bounds, f->works, &r->space, r->shape.is_gpu, e);
    if (!rc)
        rc = choose_cells(r, e);
    if (!rc && r->n_tracks > 0)
        rc = run_in_order(r, e);
    if (!rc)
        end_race(r);
    clear_race(r);
    return rc;
}

/* --- states on disk --- */

static bool is_on_disk(const struct cell *c)
{
    return c->best && (c->best->strategy.offload & OFFLOAD_DISK);
}

static bool is_slow(const struct cell *c)
{
    return estimate_disk_share(&c->best->estimate) > SEARCH_MOST_ON_DISK;
}

static void rank_disks(struct finder *f)
{
    bool has_other = !ranking_is_empty(f->ranking);
    for (size_t i = 0; i < f->n_cells && !has_other; i++)
        has_other = is_on_disk(&f->cells[i]) && !is_slow(&f->cells[i]);
    for (size_t i = 0; i < f->n_cells; i++) {
        struct cell *c = &f->cells[i];
        if (!is_on_disk(c))
            continue;
        c->is_refused = has_other && is_slow(c);
        if (!c->is_refused)
            ranking_add(f->ranking, c);
    }
    ranking_update(f->ranking);
}

/* --- all of them --- */

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
        all->items[i] = (struct race){.f = f, .place = i, .shape = shape};
        all->items[i].tracks = base_alloc((f->n_tracks + 1) * sizeof(struct track *));
        all->n++;
    }
    all->items[i].tracks[all->items[i].n_all++] = t;
    t->n_all = t->n_cells;
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
    for (int stage = SPACE_USUAL; stage < SPACE_STAGES; stage++)
        for (size_t i = 0; !rc && i < all.n; i++)
            rc = run_race(&all.items[i], (enum space_stage)stage, e);
    for (size_t i = 0; i < all.n; i++)
        free(all.items[i].tracks);
    free(all.items);
    if (!rc)
        rank_disks(f);
    return rc;
}
