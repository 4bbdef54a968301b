#include "planner/search.h"

#include <math.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/hardware.h"
#include "planner/limits.h"
#include "planner/search_cells.h"

void search_free(struct search *s)
{
    if (!s)
        return;
    free(s->plans);
    free(s->pareto);
    free(s->rejected);
    free(s);
}

bool finder_is_cancelled(const struct finder *f)
{
    return f->in->is_cancelled && atomic_load(f->in->is_cancelled);
}

/* --- offers to groups --- */

static struct group *group_for(struct finder *f, const struct hardware *hw)
{
    for (size_t i = 0; i < f->n_groups; i++)
        if (hardware_same(&f->groups[i].hw, hw))
            return &f->groups[i];
    BASE_GROW(f->groups, f->groups_cap, f->n_groups + 1);
    struct group *g = &f->groups[f->n_groups++];
    memset(g, 0, sizeof *g);
    g->hw = *hw;
    return g;
}

static void offer_name(const struct offer *o, char buf[SEARCH_TEXT])
{
    snprintf(buf, SEARCH_TEXT, "%s %s", o->provider, o->id);
}

/* A precision that the job allows and the machine computes in. */
static enum rc check_precisions(const struct job *j, const struct machine *mc, struct err *e)
{
    if (j->allow_fp32)
        return RC_OK;
    return machine_check_precision(mc, PRECISION_BF16, e);
}

static void add_offer(struct finder *f, size_t i)
{
    const struct offer *o = offers_at(f->in->offers, i);
    struct err e = ERR_INIT;
    struct hardware hw;
    struct machine mc;
    if (!limits_allow(f->in->job, o))
        return;
    f->out->searched.offers++;
    if (hardware_from_offer(&hw, o, 1, &e) || machine_make(&mc, f->in->rates, &hw, "berth", &e) ||
        check_precisions(f->in->job, &mc, &e)) {
        char name[SEARCH_TEXT];
        offer_name(o, name);
        reject(f, name, e.msg);
        return;
    }
    struct group *g = group_for(f, &hw);
    BASE_GROW(g->offers, g->cap, g->n_offers + 1);
    g->offers[g->n_offers++] = i;
    int64_t max = hardware_max_nodes(o);
    g->max_nodes = max > g->max_nodes ? max : g->max_nodes;
}

/* --- groups to cells --- */

static void add_cell(struct finder *f, size_t group, int64_t nodes)
{
    struct group *g = &f->groups[group];
    struct hardware hw = g->hw;
    hw.nodes = nodes;
    BASE_GROW(f->cells, f->cells_cap, f->n_cells + 1);
    struct cell *c = &f->cells[f->n_cells];
    memset(c, 0, sizeof *c);
    c->group = group;
    c->nodes = nodes;
    c->offer = offers_at(f->in->offers, g->offers[0]);
    if (machine_make(&c->machine, f->in->rates, &hw, "berth", NULL))
        return;
    f->n_cells++;
    g->n_cells++;
}

static void reject_batch(struct finder *f, const struct group *g)
{
    const struct job *j = f->in->job;
    int64_t ranks = g->hw.ranks_per_node, sequences = job_step_sequences(j);
    char what[64], why[SEARCH_TEXT];
    snprintf(why, sizeof why,
        "a global batch of %lld sequence%s cannot be split evenly over %lld ranks",
        (long long)sequences, sequences == 1 ? "" : "s", (long long)ranks);
    struct rejection *r = reject(f, hardware_text(&g->hw, what), why);
    r->offers += g->n_offers - 1;
    int64_t near = (sequences + ranks - 1) / ranks * ranks;
    snprintf(r->nearest_change, sizeof r->nearest_change, "a global batch of %lld tokens",
        (long long)(near * j->seq));
}

static void reject_count(struct finder *f, const struct group *g)
{
    char what[64], why[SEARCH_TEXT];
    snprintf(why, sizeof why, "a node has more ranks than the limit of %lld",
        (long long)f->in->job->max_gpus);
    struct rejection *r = reject(f, hardware_text(&g->hw, what), why);
    r->offers += g->n_offers - 1;
    snprintf(r->nearest_change, sizeof r->nearest_change, "a limit of %lld",
        (long long)g->hw.ranks_per_node);
}

static void make_cells(struct finder *f, size_t group)
{
    struct group *g = &f->groups[group];
    const struct job *j = f->in->job;
    int64_t rpn = g->hw.ranks_per_node;
    int64_t wanted = j->max_gpus > 0 ? j->max_gpus : INT64_MAX;
    int64_t limit = wanted < SEARCH_MAX_RANKS ? wanted : SEARCH_MAX_RANKS;
    g->first_cell = f->n_cells;
    for (size_t k = 0; limit < wanted && k < g->n_offers; k++)
        f->out->searched.beyond_max_ranks +=
            hardware_max_nodes(offers_at(f->in->offers, g->offers[k])) > limit / rpn;
    for (int64_t n = 1; n <= g->max_nodes && n <= limit / rpn; n++)
        if (job_step_sequences(j) % (n * rpn) == 0)
            add_cell(f, group, n);
    if (rpn > limit)
        reject_count(f, g);
    else if (g->n_cells == 0)
        reject_batch(f, g);
}

/* --- the best strategy of every cell --- */

static bool has_shape(const struct finder *f, const struct cell *c, const struct shape_of_ranks *s)
{
    const struct hardware *hw = &f->groups[c->group].hw;
    return c->nodes * hw->ranks_per_node == s->ranks && hw->ranks_per_node == s->ranks_per_node &&
           hw->is_gpu == s->is_gpu;
}

/* A strategy is out of the race on a cell when it cannot beat, nor by its place tie with, the best
 * found so far. */
static bool can_win(const struct cell *c, double run_s, size_t index)
{
    if (!c->has_best || run_s < c->best_run_s)
        return true;
    return run_s <= c->best_run_s && index < c->best_index;
}

static double run_seconds(const struct finder *f, const struct cell *c, const struct estimate *x)
{
    return bill_run_s(f->in->job, c->offer, x->step_s, x->checkpoint_stall_s, x->checkpoint_s);
}

static void consider(
    struct finder *f, struct cell *c, const struct prepared *p, const struct strategy *s, size_t i)
{
    struct estimate x;
    prepared_estimate(&x, p, &c->machine);
    f->out->searched.simulated++;
    double run_s = run_seconds(f, c, &x);
    if (!estimate_fits(&x) || !can_win(c, run_s, i))
        return;
    c->has_best = true;
    c->best_index = i;
    c->best_run_s = run_s;
    c->best = *s;
    c->best_estimate = x;
}

/* The cells of one shape with the strategies possible on it. */
struct race {
    struct finder *f;
    struct space space;
    struct bounds *bounds;
    struct cell **cells;
    size_t n_cells;
    bool *is_in; /* per cell: the strategy at hand may still win there */
};

static double capacity(const struct cell *c)
{
    return (double)c->machine.hw.memory_bytes - c->machine.external_bytes;
}

/* At most the seconds of the run: short ones are mostly the last checkpoint. */
static double least_run_s(const struct race *r, const struct cell *c, size_t i)
{
    const struct job *j = r->f->in->job;
    struct save_s save = estimate_save_s(&j->model, &r->space.items[i], &c->machine);
    return bill_run_s(j, c->offer, bounds_step_s(r->bounds, c, i), save.stall, save.write);
}

/* Drop the cells where the bound or the memory rules the strategy out; how many are left. */
static size_t drop_by_bound(struct race *r, size_t i)
{
    size_t left = 0;
    for (size_t k = 0; k < r->n_cells; k++) {
        struct cell *c = r->cells[k];
        double run_s = least_run_s(r, c, i);
        r->is_in[k] = machine_computes(&c->machine, r->space.items[i].precision) &&
                      (r->f->in->tries_everything || can_win(c, run_s, i));
        left += r->is_in[k];
        r->f->out->searched.pruned_by_bound += !r->is_in[k];
    }
    return left;
}

static size_t drop_by_memory(struct race *r, double bytes)
{
    size_t left = 0;
    for (size_t k = 0; k < r->n_cells; k++) {
        if (!r->is_in[k])
            continue;
        r->is_in[k] = r->f->in->tries_everything || bytes <= capacity(r->cells[k]);
        left += r->is_in[k];
        r->f->out->searched.pruned_by_memory += !r->is_in[k];
    }
    return left;
}

static enum rc try_strategy(struct race *r, size_t i, struct err *e)
{
    const struct model *m = &r->f->in->job->model;
    const struct strategy *s = &r->space.items[i];
    int64_t live = 0;
    struct prepared *p = NULL;
    if (!drop_by_bound(r, i) || !drop_by_memory(r, bounds_live_bytes(r->bounds, i)))
        return RC_OK;
    enum rc rc = estimate_live_bytes(&live, m, s, e);
    if (rc || !drop_by_memory(r, (double)live))
        return rc;
    rc = prepared_make(&p, m, s, e);
    for (size_t k = 0; !rc && k < r->n_cells; k++)
        if (r->is_in[k])
            consider(r->f, r->cells[k], p, s, i);
    prepared_free(p);
    return rc;
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

/* Strategies by their bound on the first cell: the winner comes early and ends the race. */
static enum rc run_in_order(struct race *r, struct err *e)
{
    struct ordered *order = base_alloc((r->space.n + 1) * sizeof *order);
    for (size_t i = 0; i < r->space.n; i++)
        order[i] = (struct ordered){least_run_s(r, r->cells[0], i), i};
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

/* At most the seconds of a step and of a save with any strategies that may fit; INFINITY when none
 * may. */
static struct least least_of_cell(const struct race *r, const struct cell *c)
{
    struct least l = {INFINITY, {INFINITY, INFINITY}};
    for (size_t i = 0; i < r->space.n; i++) {
        if (bounds_live_bytes(r->bounds, i) > capacity(c))
            continue;
        struct save_s save =
            estimate_save_s(&r->f->in->job->model, &r->space.items[i], &c->machine);
        l.step_s = fmin(l.step_s, bounds_step_s(r->bounds, c, i));
        l.save.write = fmin(l.save.write, save.write);
        l.save.stall = fmin(l.save.stall, save.stall);
    }
    return l;
}

/* Leave out the cells that no list can come to hold, whatever their best strategy. */
static void drop_cells(struct race *r)
{
    size_t kept = 0;
    for (size_t k = 0; k < r->n_cells; k++) {
        struct cell *c = r->cells[k];
        bounds_price(r->bounds, c);
        struct least least = least_of_cell(r, c);
        c->is_dropped = !r->f->in->tries_everything && isfinite(least.step_s) &&
                        !ranking_can_matter(r->f->ranking, c, &least);
        if (c->is_dropped) {
            r->f->out->searched.pruned_by_bound += (int64_t)r->space.n;
            bounds_clear(c);
        } else {
            r->cells[kept++] = c;
        }
    }
    r->n_cells = kept;
}

static void gather_cells(struct race *r, const struct shape_of_ranks *shape)
{
    for (size_t i = 0; i < r->f->n_cells; i++)
        if (has_shape(r->f, &r->f->cells[i], shape))
            r->cells[r->n_cells++] = &r->f->cells[i];
}

static enum rc race_shape(struct finder *f, const struct shape_of_ranks *shape, struct err *e)
{
    struct race r = {.f = f};
    r.cells = base_alloc((f->n_cells + 1) * sizeof *r.cells);
    r.is_in = base_calloc(f->n_cells + 1, sizeof *r.is_in);
    gather_cells(&r, shape);
    space_make(&r.space, f->in->job, shape);
    f->out->searched.space += (int64_t)(r.space.n * r.n_cells);
    enum rc rc = bounds_new(&r.bounds, &f->in->job->model, &r.space, e);
    if (!rc)
        drop_cells(&r);
    if (!rc && r.n_cells > 0)
        rc = run_in_order(&r, e);
    for (size_t k = 0; !rc && k < r.n_cells; k++) {
        bounds_clear(r.cells[k]);
        ranking_add(f->ranking, r.cells[k]);
    }
    ranking_update(f->ranking);
    bounds_free(r.bounds);
    space_release(&r.space);
    free(r.cells);
    free(r.is_in);
    return rc;
}

static enum rc race_all(struct finder *f, struct err *e)
{
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < f->n_cells; i++) {
        const struct hardware *hw = &f->groups[f->cells[i].group].hw;
        struct shape_of_ranks shape = {
            f->cells[i].nodes * hw->ranks_per_node, hw->ranks_per_node, hw->is_gpu};
        bool is_done = false;
        for (size_t k = 0; k < i && !is_done; k++)
            is_done = has_shape(f, &f->cells[k], &shape);
        if (!is_done)
            rc = race_shape(f, &shape, e);
    }
    return rc;
}

/* --- all of it --- */

static void finder_release(struct finder *f)
{
    for (size_t i = 0; i < f->n_groups; i++)
        free(f->groups[i].offers);
    for (size_t i = 0; i < f->n_cells; i++)
        bounds_clear(&f->cells[i]);
    free(f->groups);
    free(f->cells);
    ranking_free(f->ranking);
}

static void reject_all_offers(struct finder *f)
{
    struct str why = STR_INIT;
    limits_describe(&why, f->in->job, f->in->offers);
    struct rejection *r = reject(f, "all offers", str_text(&why));
    r->offers = offers_count(f->in->offers);
    str_release(&why);
}

static enum rc run(struct finder *f, struct err *e)
{
    for (size_t i = 0; i < offers_count(f->in->offers); i++)
        add_offer(f, i);
    if (f->out->searched.offers == 0 && offers_count(f->in->offers) > 0)
        reject_all_offers(f);
    f->out->searched.hardware = (int64_t)f->n_groups;
    for (size_t i = 0; i < f->n_groups; i++)
        make_cells(f, i);
    f->ranking = ranking_new(f);
    enum rc rc = race_all(f, e);
    if (!rc)
        rc = ranking_finish(f->ranking, e);
    for (size_t i = 0; !rc && i < f->n_groups; i++)
        reject_group(f, i);
    return rc;
}

enum rc search_run(struct search **out, const struct search_input *in, struct err *e)
{
    struct finder f = {.in = in, .out = base_calloc(1, sizeof *f.out)};
    enum rc rc = run(&f, e);
    finder_release(&f);
    if (rc) {
        search_free(f.out);
        return rc;
    }
    *out = f.out;
    return RC_OK;
}

/* --- alternatives on the same nodes --- */

/* A finder with the one cell; everything else is empty. */
static enum rc finder_of_cell(
    struct finder *f, const struct search_input *in, int64_t nodes, struct err *e)
{
    struct hardware hw;
    struct machine mc;
    enum rc rc = hardware_from_offer(&hw, offers_at(in->offers, 0), nodes, e);
    if (!rc)
        rc = machine_make(&mc, in->rates, &hw, "berth", e);
    if (rc)
        return rc;
    *f = (struct finder){.in = in, .out = base_calloc(1, sizeof *f->out)};
    struct group *g = group_for(f, &hw);
    g->max_nodes = nodes;
    BASE_GROW(g->offers, g->cap, 1);
    g->offers[g->n_offers++] = 0;
    f->ranking = ranking_new(f);
    add_cell(f, 0, nodes);
    return RC_OK;
}

static void take_best(struct alternative *a, const struct cell *c)
{
    a->exists = a->fits = true;
    a->strategy = c->best;
    a->estimate = c->best_estimate;
    a->run_s = c->best_run_s;
}

static void take_thriftiest(struct alternative *a, const struct job *j, const struct cell *c)
{
    const struct hardware *hw = &c->machine.hw;
    struct shape_of_ranks shape = {c->nodes * hw->ranks_per_node, hw->ranks_per_node, hw->is_gpu};
    struct thrift t = thriftiest(j, &shape, &c->machine);
    a->exists = t.short_by < INT64_MAX;
    a->strategy = t.strategy;
    a->estimate = t.estimate;
    a->short_by = t.short_by;
    a->is_host = t.is_host;
}

static enum rc find_alternative(
    struct alternative *a, const struct search_input *in, int64_t nodes, struct err *e)
{
    struct finder f;
    enum rc rc = finder_of_cell(&f, in, nodes, e);
    if (rc)
        return rc;
    const struct cell *c = &f.cells[0];
    struct shape_of_ranks shape = {
        nodes * c->machine.hw.ranks_per_node, c->machine.hw.ranks_per_node, c->machine.hw.is_gpu};
    rc = race_shape(&f, &shape, e);
    if (!rc && c->has_best)
        take_best(a, c);
    else if (!rc)
        take_thriftiest(a, in->job, c);
    search_free(f.out);
    finder_release(&f);
    return rc;
}

enum rc search_alternatives(struct alternative out[ALTERNATIVES], const struct job *j,
    const struct offer *o, int64_t nodes, const struct rates *rates, struct err *e)
{
    struct job one = *j; /* borrows what j owns */
    struct offers *list = offers_new();
    struct search_input in = {.job = &one, .offers = list, .rates = rates};
    enum rc rc = offers_add(list, o, e);
    for (int k = 0; !rc && k < ALTERNATIVES; k++) {
        out[k] = (struct alternative){.kind = (enum strategy_kind)k};
        str_copy(one.strategy, sizeof one.strategy, strategy_kind_name(out[k].kind));
        rc = find_alternative(&out[k], &in, nodes, e);
    }
    offers_free(list);
    return rc;
}
