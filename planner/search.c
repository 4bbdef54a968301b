#include "planner/search.h"

#include <math.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/engine_use.h"
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

struct hardware cell_hardware(const struct finder *f, const struct cell *c)
{
    struct hardware hw = f->groups[c->group].hw;
    hw.nodes = c->nodes;
    return hw;
}

/* --- offers to groups --- */

static bool same_group(const void *groups, size_t i, const void *hw)
{
    return hardware_same(&((const struct group *)groups)[i].hw, hw);
}

static struct group *group_for(struct finder *f, const struct hardware *hw)
{
    uint64_t hash = hardware_hash(hw);
    ptrdiff_t at = index_find(&f->group_index, hash, same_group, f->groups, hw);
    if (at != INDEX_NONE)
        return &f->groups[at];
    BASE_GROW(f->groups, f->groups_cap, f->n_groups + 1);
    index_add(&f->group_index, hash, f->n_groups);
    struct group *g = &f->groups[f->n_groups++];
    memset(g, 0, sizeof *g);
    g->hw = *hw;
    g->least_usd = INFINITY;
    return g;
}

static bool same_track(const void *tracks, size_t i, const void *key)
{
    const struct hardware *a = &((const struct track *)tracks)[i].machine.hw, *b = key;
    return a->nodes == b->nodes && hardware_same(a, b);
}

/* A precision that the job allows and the machine computes in. */
static enum rc check_precisions(const struct job *j, const struct machine *mc, struct err *e)
{
    if (j->allow_fp32)
        return RC_OK;
    return machine_check_precision(mc, j->allow_bf16 ? PRECISION_BF16 : j->precision, e);
}

/* Index of the track of so many nodes of hardware. */
static size_t track_for(struct finder *f, const struct hardware *of, int64_t nodes)
{
    struct err e = ERR_INIT;
    struct hardware hw = machine_pace(of);
    hw.nodes = nodes;
    uint64_t hash = index_hash_word(hardware_hash(&hw), (uint64_t)nodes);
    ptrdiff_t at = index_find(&f->track_index, hash, same_track, f->tracks, &hw);
    if (at != INDEX_NONE)
        return (size_t)at;
    BASE_GROW(f->tracks, f->tracks_cap, f->n_tracks + 1);
    index_add(&f->track_index, hash, f->n_tracks);
    struct track *t = &f->tracks[f->n_tracks];
    memset(t, 0, sizeof *t);
    if (engine_check_device(f->in->job->engine, hw.is_gpu, &e) ||
        machine_make(&t->machine, f->in->rates, &hw, job_stack(f->in->job), &e) ||
        check_precisions(f->in->job, &t->machine, &e)) {
        t->problem = base_strdup(e.msg);
        t->machine.hw = hw;
    }
    return f->n_tracks++;
}

static void reject_offer(struct finder *f, const struct offer *o, const char *why)
{
    char name[SEARCH_TEXT];
    snprintf(name, sizeof name, "%s %s", o->provider, o->id);
    reject(f, name, why);
}

static void add_offer(struct finder *f, size_t i)
{
    const struct offer *o = offers_at(f->in->offers, i);
    struct err e = ERR_INIT;
    struct hardware hw;
    if (!limits_allow(f->in->job, o))
        return;
    f->out->searched.offers++;
    if (hardware_from_offer(&hw, o, 1, &e)) {
        reject_offer(f, o, e.msg);
        return;
    }
    size_t track = track_for(f, &hw, 1); /* may move the tracks */
    const char *problem = f->tracks[track].problem;
    if (problem) {
        reject_offer(f, o, problem);
        return;
    }
    struct group *g = group_for(f, &hw);
    BASE_GROW(g->offers, g->cap, g->n_offers + 1);
    g->offers[g->n_offers++] = i;
    int64_t max = hardware_max_nodes(o);
    g->max_nodes = max > g->max_nodes ? max : g->max_nodes;
    if (o->price_usd_micro_per_hour >= 0)
        g->least_usd = fmin(g->least_usd, (double)o->price_usd_micro_per_hour / USD_MICRO);
}

/* --- groups to cells --- */

static void add_cell(struct finder *f, size_t group, int64_t nodes)
{
    struct group *g = &f->groups[group];
    size_t at = track_for(f, &g->hw, nodes);
    struct track *t = &f->tracks[at];
    if (t->problem)
        return;
    if (t->n_cells == 0)
        t->offer = offers_at(f->in->offers, g->offers[0]);
    BASE_GROW(t->cells, t->cap, t->n_cells + 1);
    t->cells[t->n_cells++] = f->n_cells;
    BASE_GROW(f->cells, f->cells_cap, f->n_cells + 1);
    f->cells[f->n_cells++] = (struct cell){.group = group, .track = at, .nodes = nodes};
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

/* --- estimates of cells --- */

static void limit_node(struct estimate *x, const struct hardware *hw)
{
    x->host_capacity_bytes = hw->ram_bytes;
    x->disk_capacity_bytes = hw->nvme_bytes;
}

struct estimate cell_estimate(const struct finder *f, const struct cell *c)
{
    struct estimate x = c->best->estimate;
    limit_node(&x, &f->groups[c->group].hw);
    return x;
}

/* The schedule of a strategy in full; findings on other tracks may be of the same. */
struct whole {
    size_t race, index;
    int full_blocks;
    struct prepared *prepared;
};

static enum rc whole_of(
    const struct prepared **out, struct finder *f, const struct finding *found, struct err *e)
{
    for (size_t i = 0; i < f->n_wholes; i++) {
        const struct whole *w = &f->wholes[i];
        if (w->race != found->race || w->index != found->index ||
            w->full_blocks != found->strategy.full_blocks)
            continue;
        *out = f->wholes[i].prepared;
        return RC_OK;
    }
    struct whole w = {
        .race = found->race, .index = found->index, .full_blocks = found->strategy.full_blocks};
    enum rc rc = prepared_make(&w.prepared, &f->in->job->model, &found->strategy, true, e);
    if (rc)
        return rc;
    BASE_GROW(f->wholes, f->wholes_cap, f->n_wholes + 1);
    f->wholes[f->n_wholes++] = w;
    *out = w.prepared;
    return RC_OK;
}

/* What fills the memory by a few blocks may not quite fit as a whole: then with more in full. */
static enum rc make_whole(struct finder *f, struct finding *found, struct err *e)
{
    const struct machine *mc = &f->tracks[found->track].machine;
    int most = (int)f->in->job->model.layers - 1;
    const struct prepared *whole = NULL;
    struct estimate x;
    for (;;) {
        enum rc rc = whole_of(&whole, f, found, e);
        if (rc)
            return rc;
        prepared_estimate(&x, whole, mc);
        if (!found->is_filling || estimate_fits(&x) || found->strategy.full_blocks == most)
            break;
        found->strategy.full_blocks++;
    }
    found->whole = base_alloc(sizeof *found->whole);
    *found->whole = x;
    return RC_OK;
}

enum rc cell_whole_estimate(
    struct estimate *out, struct finder *f, const struct cell *c, struct err *e)
{
    struct finding *found = c->best;
    enum rc rc = found->whole ? RC_OK : make_whole(f, found, e);
    if (rc)
        return rc;
    *out = *found->whole;
    limit_node(out, &f->groups[c->group].hw);
    return RC_OK;
}

/* --- all of it --- */

static void finder_init(struct finder *f, const struct search_input *in)
{
    *f = (struct finder){.in = in, .out = base_calloc(1, sizeof *f->out)};
    f->works = works_new(&in->job->model, in->job->seq);
    f->ranking = ranking_new(f);
}

static void findings_free(struct finding *all)
{
    while (all) {
        struct finding *next = all->next;
        free(all->whole);
        free(all);
        all = next;
    }
}

static void finder_release(struct finder *f)
{
    for (size_t i = 0; i < f->n_groups; i++)
        free(f->groups[i].offers);
    for (size_t i = 0; i < f->n_tracks; i++) {
        free(f->tracks[i].cells);
        free(f->tracks[i].compute_s);
        free(f->tracks[i].problem);
    }
    for (size_t i = 0; i < f->n_wholes; i++)
        prepared_free(f->wholes[i].prepared);
    findings_free(f->findings);
    free(f->groups);
    free(f->tracks);
    free(f->cells);
    free(f->wholes);
    index_release(&f->group_index);
    index_release(&f->track_index);
    index_release(&f->rejected_index);
    works_free(f->works);
    thrifts_free(f->thrifts);
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
    enum rc rc = race_all(f, e);
    if (!rc)
        rc = ranking_finish(f->ranking, e);
    if (!rc && f->out->n_plans == 0)
        reject_for_mixing(f);
    for (size_t i = 0; !rc && i < f->n_groups; i++)
        reject_group(f, i);
    return rc;
}

enum rc search_run(struct search **out, const struct search_input *in, struct err *e)
{
    struct finder f;
    finder_init(&f, in);
    enum rc rc = run(&f, e);
    finder_release(&f);
    if (rc) {
        search_free(f.out);
        return rc;
    }
    *out = f.out;
    return RC_OK;
}

enum rc search_find_network(struct search *s, const struct search_input *in, struct err *e)
{
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < s->n_plans; i++) {
        struct plan *p = &s->plans[i];
        rc = network_needs_make(
            &p->network, &in->job->model, &p->strategy, &p->hw, p->stack, in->rates, e);
        p->knows_network = !rc;
    }
    return rc;
}

/* --- alternatives on the same nodes --- */

/* The one cell of so many nodes of the offer. */
static enum rc add_only_cell(struct finder *f, int64_t nodes, struct err *e)
{
    struct hardware hw;
    struct machine mc;
    enum rc rc = hardware_from_offer(&hw, offers_at(f->in->offers, 0), nodes, e);
    if (!rc)
        rc = machine_make(&mc, f->in->rates, &hw, job_stack(f->in->job), e);
    if (rc)
        return rc;
    struct group *g = group_for(f, &hw);
    g->max_nodes = nodes;
    BASE_GROW(g->offers, g->cap, 1);
    g->offers[g->n_offers++] = 0;
    add_cell(f, 0, nodes);
    return RC_OK;
}

static void take_best(struct alternative *a, const struct finder *f, const struct cell *c)
{
    a->exists = a->fits = true;
    a->strategy = c->best->strategy;
    a->estimate = cell_estimate(f, c);
    struct bill b;
    bill_make(&b, f->in->job, offers_at(f->in->offers, 0), c->nodes, &a->estimate);
    a->run_s = b.run_s[BILL_MID];
}

static void take_thriftiest(struct alternative *a, struct finder *f, const struct hardware *hw)
{
    struct shape_of_ranks shape = {hw->nodes * hw->ranks_per_node, hw->ranks_per_node, hw->is_gpu};
    struct machine mc = f->tracks[0].machine;
    struct node_bytes have = {hw->ram_bytes, hw->nvme_bytes};
    struct thrift t = thriftiest(f, f->in->job, &shape, &mc, have);
    mc.hw = *hw;
    a->exists = t.short_by < INT64_MAX;
    a->strategy = t.strategy;
    if (a->exists)
        estimate_memory(&a->estimate, &t.live, &f->in->job->model, &t.strategy, &mc);
    a->short_by = t.short_by;
    a->where = t.where;
}

static enum rc find_alternative(
    struct alternative *a, const struct search_input *in, int64_t nodes, struct err *e)
{
    struct finder f;
    finder_init(&f, in);
    enum rc rc = add_only_cell(&f, nodes, e);
    if (!rc)
        rc = race_all(&f, e);
    if (!rc && f.n_cells > 0 && f.cells[0].best)
        take_best(a, &f, &f.cells[0]);
    else if (!rc) {
        struct hardware hw = f.groups[0].hw;
        hw.nodes = nodes;
        take_thriftiest(a, &f, &hw);
    }
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
