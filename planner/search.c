#include "planner/search.h"

#include <math.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/gpu.h"
#include "inventory/offer.h"
#include "planner/hardware.h"
#include "planner/search_cells.h"

enum { MAX_RANKS_PLANNED = 16384, DEFAULT_PLANS = 10, MAX_PARETO = 200 };

void search_free(struct search *s)
{
    if (!s)
        return;
    free(s->plans);
    free(s->pareto);
    free(s->rejected);
    free(s);
}

static bool is_cancelled(const struct finder *f)
{
    return f->in->is_cancelled && atomic_load(f->in->is_cancelled);
}

/* --- offers to groups --- */

static bool allows_gpu(const struct job *j, const struct offer *o)
{
    const struct gpu *g = offer_gpu(o);
    if (o->device == DEVICE_CPU)
        return job_allows(j->gpu, "cpu");
    return job_allows(j->gpu, o->gpu) || (g && job_allows(j->gpu, g->family));
}

static bool allows(const struct job *j, const struct offer *o)
{
    bool is_spot = o->market == MARKET_SPOT;
    if (is_spot ? j->spot == SPOT_NO : j->spot == SPOT_ONLY)
        return false;
    return job_allows(j->provider, o->provider) && job_allows(j->region, o->region) &&
           job_allows(j->fabric, offer_fabric_name(o->fabric)) && allows_gpu(j, o);
}

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

static void add_offer(struct finder *f, size_t i)
{
    const struct offer *o = offers_at(f->in->offers, i);
    struct err e = ERR_INIT;
    struct hardware hw;
    struct machine mc;
    if (!allows(f->in->job, o))
        return;
    f->out->searched.offers++;
    if (hardware_from_offer(&hw, o, 1, &e) || machine_make(&mc, f->in->rates, &hw, "berth", &e)) {
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
    int64_t limit =
        j->max_gpus > 0 && j->max_gpus < MAX_RANKS_PLANNED ? j->max_gpus : MAX_RANKS_PLANNED;
    g->first_cell = f->n_cells;
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

/* Drop the cells where the bound or the memory rules the strategy out; how many are left. */
static size_t drop_by_bound(struct race *r, size_t i)
{
    size_t left = 0;
    for (size_t k = 0; k < r->n_cells; k++) {
        struct cell *c = r->cells[k];
        double run_s = bill_run_s(r->f->in->job, c->offer, bounds_step_s(r->bounds, c, i), 0, 0);
        r->is_in[k] = r->f->in->tries_everything || can_win(c, run_s, i);
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
    double step_s;
    size_t index;
};

static int by_bound(const void *pa, const void *pb)
{
    const struct ordered *a = pa, *b = pb;
    if (a->step_s < b->step_s || a->step_s > b->step_s)
        return a->step_s < b->step_s ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Strategies by their bound on the first cell: the winner comes early and ends the race. */
static enum rc run_in_order(struct race *r, struct err *e)
{
    struct ordered *order = base_alloc((r->space.n + 1) * sizeof *order);
    for (size_t i = 0; i < r->space.n; i++)
        order[i] = (struct ordered){bounds_step_s(r->bounds, r->cells[0], i), i};
    qsort(order, r->space.n, sizeof *order, by_bound);
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < r->space.n; i++) {
        if (is_cancelled(r->f))
            rc = err_set(e, RC_CANCELLED, "planning was cancelled");
        else
            rc = try_strategy(r, order[i].index, e);
    }
    free(order);
    return rc;
}

static enum rc race_shape(struct finder *f, const struct shape_of_ranks *shape, struct err *e)
{
    struct race r = {.f = f};
    r.cells = base_alloc((f->n_cells + 1) * sizeof *r.cells);
    r.is_in = base_calloc(f->n_cells + 1, sizeof *r.is_in);
    for (size_t i = 0; i < f->n_cells; i++)
        if (has_shape(f, &f->cells[i], shape))
            r.cells[r.n_cells++] = &f->cells[i];
    space_make(&r.space, f->in->job, shape);
    f->out->searched.space += (int64_t)(r.space.n * r.n_cells);
    enum rc rc = bounds_new(&r.bounds, &f->in->job->model, &r.space, e);
    for (size_t k = 0; !rc && k < r.n_cells; k++)
        bounds_price(r.bounds, r.cells[k]);
    if (!rc)
        rc = run_in_order(&r, e);
    for (size_t k = 0; k < r.n_cells; k++)
        bounds_clear(r.cells[k]);
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

/* --- cells times offers: candidates --- */

struct candidate {
    size_t cell, offer;
    struct bill bill;
    bool is_allowed; /* budget and deadline */
};

struct candidates {
    struct candidate *items;
    size_t n, cap;
    const struct finder *f;
};

static bool within_limits(const struct job *j, const struct bill *b)
{
    if (j->deadline_s > 0 && b->run_s[BILL_MID] > j->deadline_s)
        return false;
    if (j->budget_micro_usd <= 0)
        return true;
    return b->is_priced && b->total_micro_usd[BILL_MID] <= j->budget_micro_usd;
}

static void add_candidates(struct candidates *all, const struct finder *f)
{
    for (size_t i = 0; i < f->n_cells; i++) {
        const struct cell *c = &f->cells[i];
        const struct group *g = &f->groups[c->group];
        for (size_t k = 0; c->has_best && k < g->n_offers; k++) {
            const struct offer *o = offers_at(f->in->offers, g->offers[k]);
            if (hardware_max_nodes(o) < c->nodes)
                continue;
            BASE_GROW(all->items, all->cap, all->n + 1);
            struct candidate *x = &all->items[all->n++];
            x->cell = i;
            x->offer = g->offers[k];
            bill_make(&x->bill, f->in->job, o, c->nodes, &c->best_estimate);
            x->is_allowed = within_limits(f->in->job, &x->bill);
        }
    }
}

/* What a job's objective compares; unpriced offers come last unless only time counts. */
static double merit(const struct job *j, const struct bill *b)
{
    double usd = (double)b->total_micro_usd[BILL_MID], s = b->run_s[BILL_MID];
    if (j->objective == OBJECTIVE_TIME)
        return s;
    if (!b->is_priced)
        return INFINITY;
    return j->objective == OBJECTIVE_COST ? usd : usd * s;
}

static int compare_num(double a, double b)
{
    return (a > b) - (a < b);
}

/* By the objective, then money, time, number of ranks, and place in the list: a total order. */
static int compare_candidates(
    const struct finder *f, const struct candidate *a, const struct candidate *b)
{
    const struct job *j = f->in->job;
    int d = compare_num(merit(j, &a->bill), merit(j, &b->bill));
    if (!d)
        d = (a->bill.is_priced ? 0 : 1) - (b->bill.is_priced ? 0 : 1);
    if (!d)
        d = compare_num(
            (double)a->bill.total_micro_usd[BILL_MID], (double)b->bill.total_micro_usd[BILL_MID]);
    if (!d)
        d = compare_num(a->bill.run_s[BILL_MID], b->bill.run_s[BILL_MID]);
    if (!d)
        d = compare_num((double)f->cells[a->cell].nodes, (double)f->cells[b->cell].nodes);
    if (!d)
        d = (a->offer > b->offer) - (a->offer < b->offer);
    return d;
}

static int by_merit(const void *a, const void *b, void *f)
{
    return compare_candidates(f, a, b);
}

static int by_cost(const void *pa, const void *pb, void *f)
{
    const struct candidate *a = pa, *b = pb;
    int d = compare_num(
        (double)a->bill.total_micro_usd[BILL_MID], (double)b->bill.total_micro_usd[BILL_MID]);
    if (!d)
        d = compare_num(a->bill.run_s[BILL_MID], b->bill.run_s[BILL_MID]);
    return d ? d : compare_candidates(f, a, b);
}

/* --- results --- */

static void add_pareto(struct finder *f, struct candidates *all)
{
    struct search *s = f->out;
    s->pareto = base_calloc(MAX_PARETO, sizeof *s->pareto);
    qsort_r(all->items, all->n, sizeof *all->items, by_cost, f);
    double fastest = INFINITY;
    for (size_t i = 0; i < all->n && s->n_pareto < MAX_PARETO; i++) {
        const struct candidate *x = &all->items[i];
        if (!x->is_allowed || !x->bill.is_priced || !(x->bill.run_s[BILL_MID] < fastest))
            continue;
        fastest = x->bill.run_s[BILL_MID];
        const struct cell *c = &f->cells[x->cell];
        s->pareto[s->n_pareto++] = (struct pareto_point){
            x->offer, c->nodes, c->best, fastest, x->bill.total_micro_usd[BILL_MID], -1};
    }
}

static bool has_plan_of(const struct search *s, size_t offer)
{
    for (size_t i = 0; i < s->n_plans; i++)
        if (s->plans[i].offer == offer)
            return true;
    return false;
}

static enum rc add_plan(struct finder *f, const struct candidate *x, struct err *e)
{
    const struct cell *c = &f->cells[x->cell];
    const struct model *m = &f->in->job->model;
    struct plan *p = &f->out->plans[f->out->n_plans];
    memset(p, 0, sizeof *p);
    p->hw = c->machine.hw;
    p->offer = x->offer;
    p->nodes = c->nodes;
    p->strategy = c->best;
    enum rc rc = estimate_make(&p->estimate, m, &c->best, &c->machine, e);
    if (rc)
        return rc;
    bill_make(&p->bill, f->in->job, offers_at(f->in->offers, x->offer), c->nodes, &p->estimate);
    p->is_launchable = search_is_launchable(m, &c->best, p->not_launchable);
    search_describe_limits(&p->estimate, &p->strategy, p->limits);
    f->out->n_plans++;
    return RC_OK;
}

/* The best candidate of each offer, best offers first. */
static enum rc add_plans(struct finder *f, struct candidates *all, struct err *e)
{
    size_t max = f->in->max_plans ? f->in->max_plans : DEFAULT_PLANS;
    f->out->plans = base_calloc(max, sizeof *f->out->plans);
    qsort_r(all->items, all->n, sizeof *all->items, by_merit, f);
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < all->n && f->out->n_plans < max; i++) {
        if (is_cancelled(f))
            rc = err_set(e, RC_CANCELLED, "planning was cancelled");
        else if (all->items[i].is_allowed && !has_plan_of(f->out, all->items[i].offer))
            rc = add_plan(f, &all->items[i], e);
    }
    return rc;
}

static void link_pareto(struct search *s)
{
    for (size_t i = 0; i < s->n_pareto; i++)
        for (size_t k = 0; k < s->n_plans; k++)
            if (s->plans[k].offer == s->pareto[i].offer && s->plans[k].nodes == s->pareto[i].nodes)
                s->pareto[i].plan = (int)k;
}

/* --- reasons --- */

static const char *const best_words[] = {"cheapest", "fastest", "best product of cost and time"};
static const char *const worse_words[][2] = {
    {"dear", "dearer"}, {"slow", "slower"}, {"bad", "worse in cost times time"}};

/* The first plan against the runner-up. */
static void explain_first(char *why, const struct job *j, double mine, double next)
{
    const char *word = best_words[j->objective];
    double margin = 100 * (next / mine - 1);
    if (isnan(next))
        snprintf(why, SEARCH_TEXT, "the only plan there is");
    else if (isinf(next))
        snprintf(why, SEARCH_TEXT, "%s; the runner-up has no price", word);
    else if (!(margin >= 0.05))
        snprintf(why, SEARCH_TEXT, "%s; the runner-up comes to the same", word);
    else if (margin >= 100)
        snprintf(
            why, SEARCH_TEXT, "%s; the runner-up comes to %.1f times as much", word, next / mine);
    else
        snprintf(why, SEARCH_TEXT, "%s, by %.1f %% before the runner-up", word, margin);
}

static void explain_later(char *why, const struct job *j, double mine, double first)
{
    double margin = 100 * (mine / first - 1);
    if (!(first > 0))
        snprintf(why, SEARCH_TEXT, "the first costs nothing");
    else if (!(margin >= 0.05))
        snprintf(why, SEARCH_TEXT, "comes to the same as the first");
    else if (margin >= 100)
        snprintf(why, SEARCH_TEXT, "%.1f times as %s as the first", mine / first,
            worse_words[j->objective][0]);
    else
        snprintf(
            why, SEARCH_TEXT, "%.1f %% %s than the first", margin, worse_words[j->objective][1]);
}

static void warn_of_limits(char *why, const struct job *j, const struct bill *b)
{
    size_t n = strlen(why);
    if (j->budget_micro_usd > 0 && b->total_micro_usd[BILL_HIGH] > j->budget_micro_usd)
        snprintf(why + n, SEARCH_TEXT - n, "; the high estimate is over the budget");
    else if (j->deadline_s > 0 && b->run_s[BILL_HIGH] > j->deadline_s)
        snprintf(why + n, SEARCH_TEXT - n, "; the high estimate misses the deadline");
}

static void explain_rank(struct finder *f, size_t i)
{
    struct search *s = f->out;
    struct plan *p = &s->plans[i];
    const struct job *j = f->in->job;
    double mine = merit(j, &p->bill);
    if (isinf(mine))
        snprintf(p->why, sizeof p->why, "no price is known, so it cannot be compared");
    else if (i == 0)
        explain_first(p->why, j, mine, s->n_plans > 1 ? merit(j, &s->plans[1].bill) : NAN);
    else
        explain_later(p->why, j, mine, merit(j, &s->plans[0].bill));
    warn_of_limits(p->why, j, &p->bill);
}

/* Groups whose every candidate breaks the budget or the deadline: the one that misses least. */
static void reject_for_limits(struct finder *f, const struct candidates *all, size_t group)
{
    const struct job *j = f->in->job;
    const struct candidate *best = NULL;
    double best_over = INFINITY;
    bool is_late = false;
    for (size_t i = 0; i < all->n; i++) {
        const struct candidate *x = &all->items[i];
        if (f->cells[x->cell].group != group)
            continue;
        if (x->is_allowed)
            return;
        double late = j->deadline_s > 0 ? x->bill.run_s[BILL_MID] / j->deadline_s : 0;
        double dear = j->budget_micro_usd > 0 && x->bill.is_priced
                          ? (double)x->bill.total_micro_usd[BILL_MID] / (double)j->budget_micro_usd
                          : 0;
        if (fmax(late, dear) < best_over) {
            best_over = fmax(late, dear);
            best = x;
            is_late = late >= dear;
        }
    }
    if (!best)
        return;
    struct hardware hw = f->groups[group].hw;
    hw.nodes = f->cells[best->cell].nodes;
    char what[64], miss[UNITS_TEXT], whole[UNITS_TEXT], why[SEARCH_TEXT];
    double over = is_late ? best->bill.run_s[BILL_MID] - j->deadline_s
                          : (double)(best->bill.total_micro_usd[BILL_MID] - j->budget_micro_usd);
    if (best->bill.is_priced || is_late)
        snprintf(why, sizeof why, "%s by %s", is_late ? "misses the deadline" : "over the budget",
            is_late ? units_seconds(miss, over) : units_usd(miss, (int64_t)over));
    else
        snprintf(why, sizeof why, "has no price, so no budget can be promised");
    struct rejection *r = reject(f, hardware_text(&hw, what), why);
    r->offers += f->groups[group].n_offers - 1;
    if (!best->bill.is_priced && !is_late)
        return;
    r->shortage = is_late ? SHORT_SECONDS : SHORT_USD;
    r->short_by = is_late ? over : over / (double)USD_MICRO;
    snprintf(r->nearest_change, sizeof r->nearest_change, "a %s of %s",
        is_late ? "deadline" : "budget",
        is_late ? units_seconds(whole, best->bill.run_s[BILL_MID])
                : units_usd(whole, best->bill.total_micro_usd[BILL_MID]));
}

static void reject_groups(struct finder *f, const struct candidates *all)
{
    for (size_t i = 0; i < f->n_groups; i++) {
        const struct group *g = &f->groups[i];
        bool fits = false;
        for (size_t k = 0; k < g->n_cells; k++)
            fits = fits || f->cells[g->first_cell + k].has_best;
        if (g->n_cells > 0 && !fits)
            reject_for_memory(f, g);
        else if (fits)
            reject_for_limits(f, all, i);
    }
}

bool search_is_launchable(const struct model *m, const struct strategy *s, char buf[SEARCH_TEXT])
{
    (void)s;
    buf[0] = '\0';
    if (m->has_qk_norm)
        snprintf(buf, SEARCH_TEXT,
            "the bundled engine does not have the q and k norms of this model yet");
    return buf[0] == '\0';
}

/* --- what bounds the speed --- */

void search_describe_limits(
    const struct estimate *x, const struct strategy *s, char buf[SEARCH_TEXT])
{
    const struct simulation *sim = &x->simulation;
    double compute = sim->busy_s[LANE_COMPUTE];
    double wire = sim->exposed_s[LANE_GATHER] + sim->exposed_s[LANE_REDUCE];
    double host =
        sim->exposed_s[LANE_COPY_DOWN] + sim->exposed_s[LANE_COPY_UP] + sim->exposed_s[LANE_HOST];
    const struct {
        const char *what;
        double s;
    } shares[] = {
        {"computing", compute},
        {s->ranks > s->ranks_per_node ? "waiting for the network" : "waiting for other ranks",
            wire},
        {"waiting for the optimizer on the host", host},
        {"fixed overhead", sim->step_s - compute - wire - host},
    };
    size_t most = 0;
    for (size_t i = 1; i < BASE_COUNT(shares); i++)
        if (shares[i].s > shares[most].s)
            most = i;
    snprintf(buf, SEARCH_TEXT, "%s takes %.0f %% of a step; memory is %.0f %% full",
        shares[most].what, 100 * shares[most].s / sim->step_s,
        100.0 * (double)x->peak_bytes / (double)x->capacity_bytes);
}

/* --- all of it --- */

static void finder_release(struct finder *f)
{
    for (size_t i = 0; i < f->n_groups; i++)
        free(f->groups[i].offers);
    free(f->groups);
    free(f->cells);
}

static enum rc run(struct finder *f, struct err *e)
{
    struct candidates all = {.f = f};
    for (size_t i = 0; i < offers_count(f->in->offers); i++)
        add_offer(f, i);
    f->out->searched.hardware = (int64_t)f->n_groups;
    for (size_t i = 0; i < f->n_groups; i++)
        make_cells(f, i);
    enum rc rc = race_all(f, e);
    if (!rc) {
        add_candidates(&all, f);
        add_pareto(f, &all);
        rc = add_plans(f, &all, e);
    }
    if (!rc) {
        link_pareto(f->out);
        for (size_t i = 0; i < f->out->n_plans; i++)
            explain_rank(f, i);
        reject_groups(f, &all);
    }
    free(all.items);
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
