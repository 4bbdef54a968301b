/* Lower bounds of a step. Operations of the compute lane take at least as long as they do alone,
 * and so do all collectives together, since they share the links; sections follow each other. */
#include <math.h>

#include "base/alloc.h"
#include "planner/layout.h"
#include "planner/search_cells.h"

/* A micro step of a single rank with a few blocks: its compute lane is that of any strategy, which
 * can only add to it. */
struct profile {
    struct work_class key;
    struct schedule *few, *more;
    double t;
    double live_bytes; /* beside parameters, gradients and optimizer states, at least */
};

struct bounds {
    const struct model *model;
    const struct space *space;
    struct profile *works;
    size_t n_works, works_cap;
    struct traffic_class *traffics;
    size_t n_traffics, traffics_cap;
    struct index {
        uint32_t work, traffic;
    } * index; /* per strategy */
};

static bool same_work(const struct work_class *a, const struct work_class *b)
{
    return a->precision == b->precision && a->recompute == b->recompute &&
           a->loss_chunks == b->loss_chunks && a->micro_batch == b->micro_batch;
}

static bool same_traffic(const struct traffic_class *a, const struct traffic_class *b)
{
    return a->kind == b->kind && a->precision == b->precision &&
           a->shard_degree == b->shard_degree && a->reshards == b->reshards;
}

/* --- classes --- */

static double beside_states(const struct schedule *s)
{
    int64_t live = layout_peak(s, MEMORY_DEVICE).live_bytes;
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        bool is_state =
            b->part == PART_PARAMETERS || b->part == PART_GRADIENTS || b->part == PART_OPTIMIZER;
        if (b->lifetime == LIFETIME_RUN && b->memory == MEMORY_DEVICE && is_state)
            live -= b->bytes;
    }
    return (double)live;
}

static enum rc build_work(struct bounds *b, struct profile *w, int64_t seq, struct err *e)
{
    struct strategy s = strategy_default(STRATEGY_DDP, 1, 1);
    s.precision = w->key.precision;
    s.recompute = w->key.recompute;
    s.loss_chunks = w->key.loss_chunks;
    s.micro_batch = w->key.micro_batch;
    s.seq = seq;
    struct model few = *b->model, more = *b->model;
    few.layers = 1;
    more.layers = 2;
    w->t = (double)(b->model->layers - 1);
    enum rc rc = schedule_build(&w->few, &few, &s, e);
    if (!rc)
        rc = schedule_build(&w->more, &more, &s, e);
    if (rc)
        return rc;
    /* live bytes are the largest of several straight lines in the number of blocks: convex, so the
     * line through two small numbers stays below */
    double few_bytes = beside_states(w->few), more_bytes = beside_states(w->more);
    w->live_bytes = fmax(0, few_bytes + (more_bytes - few_bytes) * w->t);
    return RC_OK;
}

static enum rc find_work(struct bounds *b, const struct strategy *s, uint32_t *out, struct err *e)
{
    struct work_class key = {s->precision, s->recompute, s->loss_chunks, s->micro_batch};
    for (size_t i = 0; i < b->n_works; i++) {
        if (same_work(&b->works[i].key, &key)) {
            *out = (uint32_t)i;
            return RC_OK;
        }
    }
    BASE_GROW(b->works, b->works_cap, b->n_works + 1);
    struct profile *w = &b->works[b->n_works];
    memset(w, 0, sizeof *w);
    w->key = key;
    *out = (uint32_t)b->n_works++;
    return build_work(b, w, s->seq, e);
}

static uint32_t find_traffic(struct bounds *b, const struct strategy *s)
{
    struct traffic_class key = {s->kind, s->precision, s->shard_degree, s->reshard_after_forward};
    for (size_t i = 0; i < b->n_traffics; i++)
        if (same_traffic(&b->traffics[i], &key))
            return (uint32_t)i;
    BASE_GROW(b->traffics, b->traffics_cap, b->n_traffics + 1);
    b->traffics[b->n_traffics] = key;
    return (uint32_t)b->n_traffics++;
}

enum rc bounds_new(
    struct bounds **out, const struct model *m, const struct space *space, struct err *e)
{
    struct bounds *b = base_calloc(1, sizeof *b);
    b->model = m;
    b->space = space;
    b->index = base_calloc(space->n + 1, sizeof *b->index);
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < space->n; i++) {
        b->index[i].traffic = find_traffic(b, &space->items[i]);
        rc = find_work(b, &space->items[i], &b->index[i].work, e);
    }
    if (rc) {
        bounds_free(b);
        return rc;
    }
    *out = b;
    return RC_OK;
}

void bounds_free(struct bounds *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->n_works; i++) {
        schedule_free(b->works[i].few);
        schedule_free(b->works[i].more);
    }
    free(b->works);
    free(b->traffics);
    free(b->index);
    free(b);
}

/* --- pricing --- */

static double compute_lane_s(const struct schedule *s, const struct machine *m)
{
    double total = 0;
    const struct section *micro = &s->section[0];
    for (int32_t i = micro->first_op; i < micro->first_op + micro->n_ops; i++)
        if (s->ops[i].lane == LANE_COMPUTE)
            total += simulate_op_s(s, m, &s->ops[i]);
    return total;
}

/* Bytes of the units of a model on so many shards, with how often each kind occurs. */
struct unit_kind {
    double elems, shard_elems, times;
};

static void unit_kinds(const struct model *m, int64_t shards, struct unit_kind out[3])
{
    const int units[] = {0, 1, model_units(m) - 1};
    for (int i = 0; i < 3; i++) {
        struct unit_layout u;
        model_unit_layout(m, units[i], shards, &u);
        out[i] = (struct unit_kind){
            (double)u.elems, (double)u.shard_elems, i == 1 ? (double)m->layers : 1};
    }
}

/* Seconds of the collectives and of the optimizer for one unit. */
struct unit_s {
    double gather, reduce, all_reduce, replica_reduce, update, norm;
};

static struct unit_s price_unit(const struct traffic_class *k, const struct cell *c,
    const struct strategy *s, const struct unit_kind *u)
{
    const struct machine *mc = &c->machine;
    struct rank_group shard = machine_shard_group(s);
    double element = (double)precision_bytes(k->precision);
    double own = k->kind == STRATEGY_DDP ? u->elems : u->shard_elems;
    /* gradient read; states read and written; the parameter written */
    double update = k->precision == PRECISION_FP32 ? 4 + 24 : 4 + 24 + element;
    return (struct unit_s){
        .gather = machine_collective_s(mc, COLLECTIVE_ALL_GATHER, shard, u->elems * element),
        .reduce = machine_collective_s(mc, COLLECTIVE_REDUCE_SCATTER, shard, u->elems * 4),
        .all_reduce =
            machine_collective_s(mc, COLLECTIVE_ALL_REDUCE, machine_world(s), u->elems * 4),
        .replica_reduce = machine_collective_s(
            mc, COLLECTIVE_ALL_REDUCE, machine_replica_group(s), u->shard_elems * 4),
        .update = machine_stream_s(mc, own * update),
        .norm = machine_stream_s(mc, u->shard_elems * 4),
    };
}

/* Unit 0 begins and ends a micro step: its gather before, its reduction after all computing. */
static void add_unit(struct traffic *t, const struct traffic_class *k, const struct unit_s *u,
    int unit, double times)
{
    bool is_gathered = k->kind == STRATEGY_ZERO3 || k->kind == STRATEGY_HSDP;
    /* all blocks but the last, whose backward follows at once, are gathered a second time */
    double gathers = times + (unit == 1 && k->reshards ? times - 1 : 0);
    double reduce = k->kind >= STRATEGY_ZERO2 ? u->reduce : 0;
    double last = k->kind == STRATEGY_DDP     ? u->all_reduce
                  : k->kind == STRATEGY_ZERO1 ? u->reduce
                  : k->kind == STRATEGY_HSDP  ? u->replica_reduce
                                              : 0;
    t->micro_s += (is_gathered ? gathers * u->gather : 0) + times * reduce;
    t->last_s += times * last;
    t->update_s += times * u->update;
    t->norm_s += times * u->norm;
    if (unit == 0) {
        t->micro_exposed_s = (is_gathered ? u->gather : 0) + reduce;
        t->last_exposed_s = last;
    }
    if (k->kind == STRATEGY_ZERO1 || k->kind == STRATEGY_ZERO2) {
        t->boundary_s += times * u->gather;
        t->boundary_exposed_s = u->gather;
    }
}

static struct traffic price_traffic(
    const struct model *m, const struct traffic_class *k, const struct cell *c)
{
    int64_t rpn = c->machine.hw.ranks_per_node, ranks = c->nodes * rpn;
    struct strategy s = strategy_default(k->kind, ranks, rpn);
    s.shard_degree = k->shard_degree;
    struct unit_kind units[3];
    unit_kinds(m, k->kind == STRATEGY_HSDP ? k->shard_degree : ranks, units);
    struct traffic t = {0};
    for (int i = 0; i < 3; i++) {
        struct unit_s u = price_unit(k, c, &s, &units[i]);
        add_unit(&t, k, &u, i, units[i].times);
    }
    return t;
}

void bounds_price(const struct bounds *b, struct cell *c)
{
    c->compute_s = base_calloc(b->n_works + 1, sizeof *c->compute_s);
    c->traffic = base_calloc(b->n_traffics + 1, sizeof *c->traffic);
    for (size_t i = 0; i < b->n_works; i++) {
        double few = compute_lane_s(b->works[i].few, &c->machine);
        double more = compute_lane_s(b->works[i].more, &c->machine);
        c->compute_s[i] = few + (more - few) * b->works[i].t;
    }
    for (size_t i = 0; i < b->n_traffics; i++)
        c->traffic[i] = price_traffic(b->model, &b->traffics[i], c);
}

void bounds_clear(struct cell *c)
{
    free(c->compute_s);
    free(c->traffic);
    c->compute_s = NULL;
    c->traffic = NULL;
}

/* The boundary: norms first, then updates, each followed by the gather of its unit. */
static double boundary_s(
    const struct bounds *b, const struct cell *c, const struct traffic *t, const struct strategy *s)
{
    double update = t->update_s;
    if (s->offload == OFFLOAD_OPTIMIZER) {
        double own = (double)model_params(b->model) / (double)strategy_optimizer_shards(s);
        update = machine_host_adam_s(&c->machine, own);
    }
    return t->norm_s + fmax(t->boundary_s, update + t->boundary_exposed_s);
}

/* Seconds of a section with so much computing and so many collectives, of which some cannot be
 * hidden. Computing beside a collective takes slowdown times as long, so even a hidden second of
 * collectives costs 1 - 1/slowdown. */
static double section_s(double compute, double collectives, double exposed, double slowdown)
{
    double hidden = fmax(0, collectives - exposed);
    return fmax(compute + exposed + hidden * (1 - 1 / slowdown), collectives);
}

double bounds_step_s(const struct bounds *b, const struct cell *c, size_t i)
{
    const struct strategy *s = &b->space->items[i];
    const struct traffic *t = &c->traffic[b->index[i].traffic];
    if (!machine_computes(&c->machine, s->precision))
        return INFINITY;
    double compute = c->compute_s[b->index[i].work], slow = c->machine.overlap_slowdown;
    double micro = section_s(compute, t->micro_s, t->micro_exposed_s, slow);
    double last =
        section_s(compute, t->micro_s + t->last_s, t->micro_exposed_s + t->last_exposed_s, slow);
    double step = (double)(s->grad_accum - 1) * micro + last + boundary_s(b, c, t, s) +
                  c->machine.step_overhead_s;
    double doublings = log2((double)s->ranks / 8);
    step *= 1 + c->machine.jitter_per_doubling * fmax(0, doublings);
    return step * (1 - 1e-9);
}

double bounds_live_bytes(const struct bounds *b, size_t i)
{
    const struct strategy *s = &b->space->items[i];
    return (double)space_state_bytes(b->model, s) + b->works[b->index[i].work].live_bytes;
}
