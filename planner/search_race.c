/* The best strategy of every cell: those with the least bounds first, each priced where it may
 * still win.
 *
 * Tracks are raced in the order of what they promise, so that soon little can come to be listed;
 * strategies are prepared once for all tracks of a shape. */
#include <math.h>

#include "base/alloc.h"
#include "planner/search_cells.h"

/* What is known of a strategy on a shape. */
struct known {
    bool has_bytes;
    int64_t live_bytes; /* on the device */
    struct node_bytes node;
    struct prepared *prepared; /* NULL: not yet */
};

/* The tracks of one shape with the strategies possible on it. */
struct race {
    struct finder *f;
    size_t place; /* among the races */
    struct shape_of_ranks shape;
    struct track **tracks;
    size_t n_tracks;
    enum space_stage stage;
    size_t n_space; /* strategies of the stage */
    /* of the stage, while it is open */
    bool is_open;
    struct space space;
    struct bounds *bounds; /* NULL: other engines have none */
    struct known *known;   /* by strategy */
    /* until the end of the stage */
    struct fits *fits[SPACE_STAGES]; /* of earlier stages, when asked for */
    struct need {
        enum precision precision;
        int64_t peak_bytes;
        struct node_bytes node;
    } * needs; /* of the strategies that were estimated in this stage */
    size_t n_needs, needs_cap;
};

bool cell_holds(const struct finder *f, const struct cell *c, struct node_bytes need)
{
    const struct hardware *hw = &f->groups[c->group].hw;
    return (hw->ram_bytes == 0 || need.host <= hw->ram_bytes) && need.disk <= hw->nvme_bytes;
}

double track_capacity_bytes(const struct track *t)
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

/* --- a race of a stage --- */

static enum rc open_race(struct race *r, enum space_stage stage, struct err *e)
{
    if (r->is_open)
        return RC_OK;
    r->is_open = true;
    r->stage = stage;
    space_make(&r->space, r->f->in->job, &r->shape, stage);
    r->n_space = r->space.n;
    r->known = base_calloc(r->space.n + 1, sizeof *r->known);
    return has_bounds(r->f) ? bounds_new(&r->bounds, r->f->works, &r->space, r->shape.is_gpu, e)
                            : RC_OK;
}

static void close_race(struct race *r)
{
    for (size_t i = 0; i < r->space.n; i++)
        prepared_free(r->known[i].prepared);
    free(r->known);
    r->known = NULL;
    bounds_free(r->bounds);
    r->bounds = NULL;
    space_release(&r->space);
    r->is_open = false;
}

/* --- one track --- */

/* A track that is raced on its first n_cells cells. */
struct heat {
    struct race *race;
    struct track *track;
    double *run_s; /* by strategy: at least */
    double *step_s;
    size_t *left; /* strategies not tried yet */
    size_t n_left;
    int64_t by_memory, simulated; /* candidates: strategies on cells */
};

/* A strategy is out of the race on a cell when it cannot beat, nor by its place tie with, the best
 * found so far. */
static bool can_win(const struct cell *c, double run_s, size_t index)
{
    if (!c->best || run_s < c->best_run_s)
        return true;
    return run_s <= c->best_run_s && index < c->best->index;
}

static struct finding *keep(struct heat *h, size_t i, const struct estimate *x)
{
    struct race *r = h->race;
    struct finding *found = base_alloc(sizeof *found);
    *found = (struct finding){.track = (size_t)(h->track - r->f->tracks),
        .race = r->place * SPACE_STAGES + (size_t)r->stage,
        .index = i,
        .strategy = r->space.items[i],
        .estimate = *x,
        .next = r->f->findings};
    found->is_filling = found->strategy.full_blocks == STRATEGY_FILL;
    found->strategy.full_blocks = x->full_blocks;
    r->f->findings = found;
    return found;
}

static void learn(struct race *r, size_t i, const struct estimate *x)
{
    BASE_GROW(r->needs, r->needs_cap, r->n_needs + 1);
    r->needs[r->n_needs++] = (struct need){
        r->space.items[i].precision, x->peak_bytes, {x->host_ram_bytes, x->disk_bytes}};
}

/* The quick estimate; its line through a few blocks may miss a bend that the bounds know of. */
static void estimate_strategy(struct heat *h, struct estimate *x, size_t i)
{
    struct race *r = h->race;
    prepared_estimate(x, r->known[i].prepared, &h->track->machine);
    if (!r->bounds)
        return;
    struct node_bytes node = bounds_node_bytes(r->bounds, i);
    estimate_raise_bytes(x, &h->track->machine, (int64_t)bounds_live_bytes(r->bounds, i));
    estimate_raise_step(x, isfinite(h->step_s[i]) ? h->step_s[i] : 0);
    x->host_ram_bytes = node.host > x->host_ram_bytes ? node.host : x->host_ram_bytes;
    x->disk_bytes = node.disk > x->disk_bytes ? node.disk : x->disk_bytes;
}

static void consider(struct heat *h, size_t i)
{
    struct finder *f = h->race->f;
    struct track *t = h->track;
    struct estimate x;
    struct finding *found = NULL;
    estimate_strategy(h, &x, i);
    double run_s = bill_run_s(f->in->job, t->offer, x.step_s, estimate_saves(&x));
    struct node_bytes need = {x.host_ram_bytes, x.disk_bytes};
    bool fits_device = x.peak_bytes <= x.capacity_bytes;
    learn(h->race, i, &x);
    for (size_t k = 0; k < t->n_cells; k++) {
        struct cell *c = &f->cells[t->cells[k]];
        h->simulated += c->is_in;
        if (!c->is_in || !fits_device || !cell_holds(f, c, need) || !can_win(c, run_s, i))
            continue;
        found = found ? found : keep(h, i, &x);
        c->best = found;
        c->best_run_s = run_s;
    }
}

/* The cells on which the strategy may still win; how many. */
static size_t enter_cells(struct heat *h, size_t i)
{
    struct finder *f = h->race->f;
    const struct track *t = h->track;
    bool computes = machine_computes(&t->machine, h->race->space.items[i].precision);
    size_t in = 0;
    for (size_t k = 0; k < t->n_cells; k++) {
        struct cell *c = &f->cells[t->cells[k]];
        c->is_in = computes && (tries_everything(f) || can_win(c, h->run_s[i], i));
        in += c->is_in;
    }
    return in;
}

/* Drop cells that such a strategy does not fit; how many are left. */
static size_t drop_cells(struct heat *h, double device_bytes, struct node_bytes need)
{
    struct finder *f = h->race->f;
    const struct track *t = h->track;
    bool fits_device = device_bytes <= track_capacity_bytes(t);
    size_t in = 0;
    for (size_t k = 0; k < t->n_cells; k++) {
        struct cell *c = &f->cells[t->cells[k]];
        bool was_in = c->is_in;
        c->is_in = was_in && (tries_everything(f) || (fits_device && cell_holds(f, c, need)));
        in += c->is_in;
        h->by_memory += was_in && !c->is_in;
    }
    return in;
}

/* Built, and its bytes known: not finished. */
static enum rc begin_strategy(struct race *r, struct prepared **out, size_t i, struct err *e)
{
    const struct model *m = &r->f->in->job->model;
    const struct strategy *s = &r->space.items[i];
    double checkpoint_bytes = estimate_checkpoint_bytes(m, s);
    enum rc rc = prepared_begin(out, m, s, false, e);
    if (rc)
        return rc;
    struct live_bytes live = prepared_live_bytes(*out);
    r->known[i] = (struct known){.has_bytes = true,
        .live_bytes = live.of[MEMORY_DEVICE],
        .node = {estimate_host_ram_bytes(&live, estimate_snapshot_bytes(m, s), s, r->shape.is_gpu),
            estimate_disk_bytes(&live, checkpoint_bytes, s)}};
    return RC_OK;
}

/* Live bytes alone often rule a strategy out: it is finished where they do not. */
static enum rc prepare(struct heat *h, size_t i, struct err *e)
{
    struct race *r = h->race;
    struct known *k = &r->known[i];
    struct prepared *begun = NULL;
    enum rc rc = k->has_bytes ? RC_OK : begin_strategy(r, &begun, i, e);
    if (!rc && drop_cells(h, (double)k->live_bytes, k->node) && !k->prepared) {
        rc = begun ? RC_OK : begin_strategy(r, &begun, i, e);
        if (rc)
            return rc;
        prepared_finish(begun);
        k->prepared = begun;
        return RC_OK;
    }
    prepared_free(begun);
    return rc;
}

static bool has_cells_in(const struct heat *h)
{
    for (size_t k = 0; k < h->track->n_cells; k++)
        if (h->race->f->cells[h->track->cells[k]].is_in)
            return true;
    return false;
}

static enum rc try_strategy(struct heat *h, size_t i, struct err *e)
{
    const struct race *r = h->race;
    if (r->bounds &&
        !drop_cells(h, bounds_live_bytes(r->bounds, i), bounds_node_bytes(r->bounds, i)))
        return RC_OK;
    enum rc rc = prepare(h, i, e);
    if (!rc && has_cells_in(h))
        consider(h, i);
    return rc;
}

/* Takes the strategy with the least bound, the first of several, out of those that are left. */
static size_t take_next(struct heat *h)
{
    size_t best = 0;
    for (size_t k = 1; k < h->n_left; k++) {
        double mine = h->run_s[h->left[k]], least = h->run_s[h->left[best]];
        if (mine < least || (mine <= least && h->left[k] < h->left[best]))
            best = k;
    }
    size_t i = h->left[best];
    h->left[best] = h->left[--h->n_left];
    return i;
}

/* In the order of bounds: when one cannot win anywhere no later one can. */
static enum rc run_heat(struct heat *h, struct err *e)
{
    struct finder *f = h->race->f;
    enum rc rc = RC_OK;
    while (!rc && h->n_left > 0) {
        size_t i = take_next(h);
        if (finder_is_cancelled(f))
            return err_set(e, RC_CANCELLED, "planning was cancelled");
        if (enter_cells(h, i))
            rc = try_strategy(h, i, e);
        else if (!tries_everything(f))
            break;
    }
    return rc;
}

static bool saves_alike(const struct strategy *a, const struct strategy *b)
{
    return a->kind == b->kind && a->offload == b->offload && a->shard_degree == b->shard_degree &&
           a->splits_over_replicas == b->splits_over_replicas;
}

/* Seconds of saves, of strategies in the order of the space: mostly those of the one before. */
struct saves {
    size_t of;
    bool is_known;
    struct save_s save;
};

static struct save_s save_of(struct saves *last, const struct race *r, struct track *t, size_t i)
{
    const struct strategy *items = r->space.items;
    if (!last->is_known || !saves_alike(&items[i], &items[last->of]))
        *last = (struct saves){i, true, bounds_save_s(r->bounds, t, i)};
    return last->save;
}

/* Strategies that memory alone rules out are not raced. */
static void fill_bounds(struct heat *h)
{
    struct race *r = h->race;
    struct saves last = {0};
    if (r->bounds)
        bounds_step_s(r->bounds, h->track, h->step_s);
    for (size_t i = 0; i < r->space.n; i++) {
        bool is_ruled_out = r->bounds && !isfinite(h->step_s[i]);
        h->run_s[i] = is_ruled_out ? INFINITY : 0;
        if (is_ruled_out && !tries_everything(r->f)) {
            h->by_memory += (int64_t)h->track->n_cells;
            continue;
        }
        h->left[h->n_left++] = i;
        if (is_ruled_out || !r->bounds)
            continue;
        struct save_s save = save_of(&last, r, h->track, i);
        h->run_s[i] = bill_run_s(r->f->in->job, h->track->offer, h->step_s[i], save);
    }
}

static enum rc race_cells(struct race *r, struct track *t, struct err *e)
{
    struct searched *said = &r->f->out->searched;
    size_t n = r->space.n;
    struct heat h = {.race = r, .track = t};
    h.run_s = base_alloc((n + 1) * sizeof *h.run_s);
    h.step_s = base_alloc((n + 1) * sizeof *h.step_s);
    h.left = base_alloc((n + 1) * sizeof *h.left);
    fill_bounds(&h);
    enum rc rc = run_heat(&h, e);
    said->pruned_by_memory += h.by_memory;
    said->simulated += h.simulated;
    said->pruned_by_bound += (int64_t)(n * t->n_cells) - h.by_memory - h.simulated;
    free(h.run_s);
    free(h.step_s);
    free(h.left);
    return rc;
}

/* --- what tracks promise --- */

static double least_of(double a, double b)
{
    return a < b ? a : b;
}

/* No strategy that may fit does better. Short runs are mostly the last checkpoint. */
static void price_track(struct race *r, struct track *t, double *step_s)
{
    struct saves last = {0};
    struct least *least = &t->least;
    *least = (struct least){INFINITY, {INFINITY, INFINITY, 0}, {INT64_MAX, INT64_MAX}};
    bounds_step_s(r->bounds, t, step_s);
    for (size_t i = 0; i < r->space.n; i++) {
        if (!isfinite(step_s[i]))
            continue;
        struct save_s save = save_of(&last, r, t, i);
        struct node_bytes node = bounds_node_bytes(r->bounds, i);
        least->step_s = least_of(least->step_s, step_s[i]);
        least->save.write = least_of(least->save.write, save.write);
        least->save.stall = least_of(least->save.stall, save.stall);
        least->node.host = node.host < least->node.host ? node.host : least->node.host;
        least->node.disk = node.disk < least->node.disk ? node.disk : least->node.disk;
    }
}

/* What the objective compares, of the cheapest offer of the cell, at least and about. */
static double promise_of(const struct finder *f, const struct track *t, const struct cell *c)
{
    const struct job *j = f->in->job;
    double run_s = bill_run_s(j, t->offer, t->least.step_s, t->least.save);
    if (j->objective == OBJECTIVE_TIME)
        return run_s;
    double usd = run_s * (double)c->nodes * f->groups[c->group].least_usd;
    return j->objective == OBJECTIVE_COST ? usd : usd * run_s;
}

/* --- which cells a stage is for --- */

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
    int64_t n = (int64_t)r->n_space;
    enum rc rc = RC_OK;
    *is_in = !c->is_done;
    said->space += *is_in ? n : 0;
    if (!*is_in || tries_everything(r->f))
        return RC_OK;
    if (!isfinite(t->least.step_s) || !cell_holds(r->f, c, t->least.node)) {
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
static enum rc choose_cells(struct race *r, struct track *t, struct err *e)
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
    for (size_t k = 0; k < r->n_tracks; k++) {
        const struct track *t = r->tracks[k];
        for (size_t n = t->n_cells; n < t->n_all; n++) {
            struct cell *c = &r->f->cells[t->cells[n]];
            if (c->doubts & 1u << r->stage)
                settle_by_needs(r, t, c);
        }
    }
}

/* --- a stage --- */

/* A track that a stage is for. */
struct entry {
    struct race *race;
    struct track *track;
    double promise; /* the least of its cells */
};

struct entries {
    struct entry *items;
    size_t n, cap;
};

static int by_promise(const void *pa, const void *pb)
{
    const struct entry *a = pa, *b = pb;
    if (a->promise < b->promise || a->promise > b->promise)
        return a->promise < b->promise ? -1 : 1;
    return (a->track > b->track) - (a->track < b->track);
}

static void enter_track(struct entries *all, struct race *r, struct track *t, double *step_s)
{
    const struct finder *f = r->f;
    struct entry entry = {r, t, INFINITY};
    size_t open = 0;
    t->n_cells = 0;
    for (size_t k = 0; k < t->n_all; k++)
        open += !f->cells[t->cells[k]].is_done;
    if (open == 0)
        return;
    if (r->bounds)
        price_track(r, t, step_s);
    for (size_t k = 0; k < t->n_all && r->bounds; k++)
        entry.promise = least_of(entry.promise, promise_of(f, t, &f->cells[t->cells[k]]));
    BASE_GROW(all->items, all->cap, all->n + 1);
    all->items[all->n++] = entry;
}

/* Of races that are opened only to see what they promise. */
static enum rc enter_tracks(
    struct entries *all, struct race *r, enum space_stage stage, struct err *e)
{
    enum rc rc = open_race(r, stage, e);
    double *step_s = base_alloc((r->space.n + 1) * sizeof *step_s);
    for (size_t k = 0; !rc && k < r->n_tracks; k++)
        enter_track(all, r, r->tracks[k], step_s);
    free(step_s);
    close_race(r);
    return rc;
}

static enum rc race_track(struct race *r, struct track *t, struct err *e)
{
    struct finder *f = r->f;
    if (finder_is_cancelled(f))
        return err_set(e, RC_CANCELLED, "planning was cancelled");
    enum rc rc = choose_cells(r, t, e);
    if (!rc && t->n_cells > 0)
        rc = open_race(r, r->stage, e);
    if (!rc && t->n_cells > 0)
        rc = race_cells(r, t, e);
    for (size_t k = 0; !rc && k < t->n_cells; k++) {
        struct cell *c = &f->cells[t->cells[k]];
        c->is_done = c->best != NULL;
        if (r->stage != SPACE_DISK) /* ranked when all is known */
            ranking_add(f->ranking, c);
    }
    ranking_update(f->ranking);
    return rc;
}

static void end_stage(struct race *r)
{
    settle_dropped(r);
    for (int i = 0; i < SPACE_STAGES; i++) {
        fits_free(r->fits[i]);
        r->fits[i] = NULL;
    }
    free(r->needs);
    r->needs = NULL;
    r->n_needs = r->needs_cap = 0;
    close_race(r);
}

/* Races in the order in which cells come to need them. */
struct races {
    struct race *items;
    size_t n, cap;
};

static enum rc run_stage(struct races *all, enum space_stage stage, struct err *e)
{
    struct entries entries = {0};
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < all->n; i++)
        rc = enter_tracks(&entries, &all->items[i], stage, e);
    if (entries.n > 0)
        qsort(entries.items, entries.n, sizeof *entries.items, by_promise);
    for (size_t i = 0; !rc && i < entries.n; i++)
        rc = race_track(entries.items[i].race, entries.items[i].track, e);
    for (size_t i = 0; i < all->n; i++)
        end_stage(&all->items[i]);
    free(entries.items);
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
    all->items[i].tracks[all->items[i].n_tracks++] = t;
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
        rc = rc ? rc : run_stage(&all, (enum space_stage)stage, e);
    for (size_t i = 0; i < all.n; i++)
        free(all.items[i].tracks);
    free(all.items);
    if (!rc)
        rank_disks(f);
    return rc;
}
