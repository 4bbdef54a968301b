/* Lower bounds of a step. Operations of the compute lane take at least as long as they do alone,
 * and so do all collectives together, since they share the links; sections follow each other. */
#include <math.h>

#include "base/alloc.h"
#include "planner/layout.h"
#include "planner/price.h"
#include "planner/search_cells.h"

/* Work of a micro step on the compute lane depends on these alone. */
struct work_class {
    enum precision precision;
    enum recompute recompute;
    int loss_chunks;
    int64_t micro_batch, doc_tokens;
    unsigned offload; /* activations or none */
};

/* Seconds of collectives depend on these alone. */
struct traffic_class {
    enum strategy_kind kind;
    enum precision precision;
    int64_t shard_degree;
    bool reshards;
};
/* Seconds of all collectives in a micro step, more in the last one, in the boundary; what of it no
 * strategy can hide; norms and updates of the boundary. */
struct traffic {
    double micro_s, last_s, boundary_s;
    double micro_exposed_s, last_exposed_s, boundary_exposed_s;
    double norm_s, update_s;
};

/* A micro step of a single rank: its compute lane is that of any strategy, which can only add to
 * it. */
struct work_item {
    struct work_class key;
    struct term {
        int32_t price;
        double times;
    } * terms; /* of the compute lane */
    size_t n_terms;
    size_t like;       /* a class with the same terms: itself, unless only memory differs */
    double live_bytes; /* beside parameters, gradients and optimizer states, at least */
};

struct works {
    const struct model *model;
    int64_t seq;
    double trained, checkpoint_bytes;
    struct prices prices;
    struct work_item *items;
    size_t n, cap;
};

/* A traffic class of a space. */
struct traffic_kind {
    struct traffic_class key;
    struct unit_kind {
        double elems, shard_elems, times;
        double frozen_bytes; /* gathered beside them */
    } units[3];              /* embedding, blocks, head */
    struct unit_elems elems;
};

struct bounds {
    struct works *works;
    const struct space *space;
    struct traffic_kind *traffics;
    size_t n_traffics, traffics_cap;
    struct place {
        uint32_t work, traffic;
        double live_bytes;
        int64_t host_bytes, disk_bytes; /* of a node */
    } * places;                         /* per strategy */
    double doublings;                   /* of 8 ranks */
};

static bool same_work(const struct work_class *a, const struct work_class *b)
{
    return a->precision == b->precision && a->recompute == b->recompute &&
           a->loss_chunks == b->loss_chunks && a->micro_batch == b->micro_batch &&
           a->doc_tokens == b->doc_tokens && a->offload == b->offload;
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

/* Add how often each operation of the compute lane occurs in a micro step, times weight. */
static void count_operations(
    struct works *w, double **times, size_t *cap, const struct schedule *s, double weight)
{
    const struct section *micro = &s->section[0];
    for (int32_t i = micro->first_op; i < micro->first_op + micro->n_ops; i++) {
        if (s->ops[i].lane != LANE_COMPUTE)
            continue;
        size_t id = (size_t)prices_add(&w->prices, s, &s->ops[i]), before = *cap;
        BASE_GROW(*times, *cap, id + 1);
        for (size_t k = before; k < *cap; k++)
            (*times)[k] = 0;
        (*times)[id] += weight;
    }
}

static void keep_terms(struct work_item *out, const double *times, size_t n)
{
    out->terms = base_alloc((n + 1) * sizeof *out->terms);
    for (size_t i = 0; i < n; i++)
        if (times[i] > 0 || times[i] < 0)
            out->terms[out->n_terms++] = (struct term){(int32_t)i, times[i]};
}

/* With one block and with two, continued to all of them. */
static enum rc build_work(struct works *w, struct work_item *out, struct err *e)
{
    struct strategy s = strategy_default(STRATEGY_DDP, 1, 1);
    s.precision = out->key.precision;
    s.recompute = out->key.recompute;
    s.loss_chunks = out->key.loss_chunks;
    s.micro_batch = out->key.micro_batch;
    s.doc_tokens = out->key.doc_tokens;
    s.seq = w->seq;
    s.offload = out->key.offload;
    struct model one = *w->model, two = *w->model;
    one.layers = 1;
    two.layers = 2;
    double t = (double)(w->model->layers - 1), *times = NULL;
    size_t n_times = 0;
    struct schedule *few = NULL, *more = NULL;
    enum rc rc = schedule_build(&few, &one, &s, e);
    if (!rc)
        rc = schedule_build(&more, &two, &s, e);
    if (rc)
        goto out;
    if (&w->items[out->like] == out) {
        count_operations(w, &times, &n_times, few, 1 - t);
        count_operations(w, &times, &n_times, more, t);
        keep_terms(out, times, n_times);
    }
    /* live bytes are the largest of several straight lines in the number of blocks: convex, so the
     * line through two small numbers stays below */
    double few_bytes = beside_states(few), more_bytes = beside_states(more);
    out->live_bytes = fmax(0, few_bytes + (more_bytes - few_bytes) * t);
    if (s.offload) /* but they level off where blocks leave the device */
        out->live_bytes = fmax(0, few_bytes);
out:
    schedule_free(few);
    schedule_free(more);
    free(times);
    return rc;
}

struct works *works_new(const struct model *m, int64_t seq)
{
    struct works *w = base_calloc(1, sizeof *w);
    w->model = m;
    w->seq = seq;
    w->trained = (double)model_trained_params(m);
    w->checkpoint_bytes = estimate_checkpoint_bytes(m);
    return w;
}

void works_free(struct works *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n; i++)
        free(w->items[i].terms);
    free(w->items);
    prices_release(&w->prices);
    free(w);
}

static size_t find_class(const struct works *w, const struct work_class *key)
{
    size_t i = 0;
    while (i < w->n && !same_work(&w->items[i].key, key))
        i++;
    return i;
}

static enum rc find_work(struct works *w, const struct strategy *s, uint32_t *out, struct err *e)
{
    struct work_class key = {s->precision, s->recompute, s->loss_chunks, s->micro_batch,
        s->doc_tokens, s->offload & OFFLOAD_ACTIVATIONS};
    struct work_class plain = key;
    plain.offload = OFFLOAD_NONE;
    size_t at = find_class(w, &key), like = find_class(w, &plain);
    *out = (uint32_t)at;
    if (at < w->n)
        return RC_OK;
    BASE_GROW(w->items, w->cap, w->n + 1);
    struct work_item *item = &w->items[w->n++];
    *item = (struct work_item){.key = key, .like = like < at ? like : at};
    return build_work(w, item, e);
}

static void unit_kinds(
    const struct model *m, int64_t shards, enum precision p, struct unit_kind out[3])
{
    const int units[] = {0, 1, model_units(m) - 1};
    for (int i = 0; i < 3; i++) {
        struct unit_layout u;
        model_unit_layout(m, units[i], shards, &u);
        struct trained_unit t = model_trained_unit(m, units[i], &u, shards);
        struct frozen_unit frozen = model_frozen_unit(m, units[i], &u, precision_bytes(p));
        out[i] = (struct unit_kind){(double)t.elems, (double)t.shard_elems,
            i == 1 ? (double)m->layers : 1, (double)frozen.bytes};
    }
}

static uint32_t find_traffic(struct bounds *b, const struct strategy *s)
{
    struct traffic_class key = {s->kind, s->precision, s->shard_degree, s->reshard_after_forward};
    for (size_t i = 0; i < b->n_traffics; i++)
        if (same_traffic(&b->traffics[i].key, &key))
            return (uint32_t)i;
    BASE_GROW(b->traffics, b->traffics_cap, b->n_traffics + 1);
    struct traffic_kind *k = &b->traffics[b->n_traffics];
    *k = (struct traffic_kind){
        .key = key, .elems = space_unit_elems(b->works->model, space_unit_shards(s))};
    unit_kinds(b->works->model, space_unit_shards(s), s->precision, k->units);
    return (uint32_t)b->n_traffics++;
}

static int64_t optimizer_elems(const struct unit_elems *elems, const struct strategy *s)
{
    return strategy_optimizer_shards(s) > 1 ? elems->own : elems->full;
}

/* Master copy and moments, in host memory or on disk; parameters in fp32 are their own master copy
 * where the host updates them. */
static int64_t state_elem_bytes(const struct strategy *s)
{
    bool is_own_master = strategy_parks_parameters(s) && s->precision == PRECISION_FP32;
    return !(s->offload & OFFLOAD_OPTIMIZER) ? 0 : is_own_master ? 8 : 12;
}

static int64_t least_host_elem_bytes(const struct strategy *s)
{
    int64_t params = strategy_parks_parameters(s) ? precision_bytes(s->precision) : 0;
    int64_t grads = strategy_parks_gradients(s) ? 4 : 0;
    return params + grads + (s->offload & OFFLOAD_DISK ? 0 : state_elem_bytes(s));
}

static int64_t least_disk_bytes(
    const struct bounds *b, const struct strategy *s, const struct place *p)
{
    const struct unit_elems *elems = &b->traffics[p->traffic].elems;
    struct live_bytes live = {
        .of = {[MEMORY_DISK] = state_elem_bytes(s) * optimizer_elems(elems, s)}};
    return estimate_disk_bytes(&live, b->works->checkpoint_bytes, s);
}

/* States that are offloaded, and what every node needs beside them. */
static int64_t least_host_bytes(
    const struct bounds *b, const struct strategy *s, const struct place *p, bool is_gpu)
{
    const struct unit_elems *elems = &b->traffics[p->traffic].elems;
    struct live_bytes live = {.of = {[MEMORY_DEVICE] = (int64_t)p->live_bytes}};
    live.of[MEMORY_HOST] = least_host_elem_bytes(s) * optimizer_elems(elems, s);
    return estimate_host_ram_bytes(&live, b->works->checkpoint_bytes, s, is_gpu);
}

enum rc bounds_new(
    struct bounds **out, struct works *works, const struct space *space, bool is_gpu, struct err *e)
{
    struct bounds *b = base_calloc(1, sizeof *b);
    b->works = works;
    b->space = space;
    b->places = base_calloc(space->n + 1, sizeof *b->places);
    b->doublings = space->n > 0 ? fmax(0, log2((double)space->items[0].ranks / 8)) : 0;
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < space->n; i++) {
        const struct strategy *s = &space->items[i];
        struct place *p = &b->places[i];
        p->traffic = find_traffic(b, s);
        rc = find_work(works, s, &p->work, e);
        p->live_bytes = (double)space_state_bytes(&b->traffics[p->traffic].elems, s) +
                        works->items[p->work].live_bytes;
        p->host_bytes = least_host_bytes(b, s, p, is_gpu);
        p->disk_bytes = least_disk_bytes(b, s, p);
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
    free(b->traffics);
    free(b->places);
    free(b);
}

/* --- pricing --- */

/* Seconds of the collectives and of the optimizer for one unit. */
struct unit_s {
    double gather, reduce, all_reduce, replica_reduce, update, norm;
};

static struct unit_s price_unit(const struct traffic_class *k, const struct machine *mc,
    const struct strategy *s, const struct unit_kind *u)
{
    struct rank_group shard = machine_shard_group(s);
    double element = (double)precision_bytes(k->precision);
    double own = k->kind == STRATEGY_DDP ? u->elems : u->shard_elems;
    /* gradient read; states read and written; the parameter written */
    double update = k->precision == PRECISION_FP32 ? 4 + 24 : 4 + 24 + element;
    bool is_gathered = k->kind == STRATEGY_ZERO3 || k->kind == STRATEGY_HSDP;
    double gathered = u->elems * element + (is_gathered ? u->frozen_bytes : 0);
    double gather = machine_collective_s(mc, COLLECTIVE_ALL_GATHER, shard, gathered);
    if (!(u->elems > 0)) /* frozen: gathered for use, never reduced nor updated */
        return (struct unit_s){.gather = is_gathered ? gather : 0};
    return (struct unit_s){
        .gather = gather,
        .reduce = machine_collective_s(mc, COLLECTIVE_REDUCE_SCATTER, shard, u->elems * 4),
        .all_reduce =
            machine_collective_s(mc, COLLECTIVE_ALL_REDUCE, machine_world(s), u->elems * 4),
        .replica_reduce = machine_collective_s(
            mc, COLLECTIVE_ALL_REDUCE, machine_replica_group(s), u->shard_elems * 4),
        .update = machine_stream_s(mc, OP_ADAMW, own * update),
        .norm = machine_stream_s(mc, OP_GRAD_NORM, u->shard_elems * 4),
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

static struct traffic price_traffic(const struct traffic_kind *k, const struct machine *mc)
{
    int64_t rpn = mc->hw.ranks_per_node;
    struct strategy s = strategy_default(k->key.kind, mc->hw.nodes * rpn, rpn);
    s.shard_degree = k->key.shard_degree;
    struct traffic t = {0};
    for (int i = 0; i < 3; i++) {
        struct unit_s u = price_unit(&k->key, mc, &s, &k->units[i]);
        add_unit(&t, &k->key, &u, i, k->units[i].times);
    }
    return t;
}

/* Seconds of a section with so much computing and so many collectives, of which some cannot be
 * hidden: neither those that nothing runs beside, nor those that all computing cannot cover. While
 * a collective runs computing is slower, and a share of what is hidden costs its time all the same,
 * so even a hidden second costs a part of one. */
static double section_s(
    const struct machine *mc, double compute, double collectives, double exposed)
{
    double shown = fmax(exposed, collectives - mc->overlap_slowdown * compute);
    double hidden = fmax(0, collectives - shown);
    return compute + shown + hidden * fmin(1, 1 - 1 / mc->overlap_slowdown + mc->unhidden);
}

/* The boundary: norms first, then updates, each followed by the gather of its unit. */
static double boundary_s(const struct bounds *b, const struct machine *mc, const struct traffic *t,
    const struct strategy *s)
{
    double gathers = t->boundary_s, exposed = t->boundary_exposed_s;
    if (!(s->offload & OFFLOAD_OPTIMIZER))
        return t->norm_s + section_s(mc, t->update_s, gathers, exposed);
    double own = b->works->trained / (double)strategy_optimizer_shards(s);
    double least = fmax(gathers, machine_host_adam_s(mc, own) + exposed);
    if (s->offload & OFFLOAD_DISK) /* all is read and written */
        least = fmax(least, machine_disk_s(mc, 2.0 * (double)state_elem_bytes(s) * own));
    /* norms of gradients that leave the device are taken during the backward pass */
    return strategy_parks_gradients(s) ? least : t->norm_s + least;
}

/* What the strategies of a space take on a machine, by class. */
struct priced {
    const double *compute_s; /* by work class; of the track */
    struct traffic *traffic; /* by traffic class */
};

/* Later stages of the space mostly have the classes of the first one. */
static void price_works(const struct works *w, struct track *t)
{
    if (t->n_compute == w->n)
        return;
    double *price = base_alloc(((size_t)w->prices.n + 1) * sizeof *price);
    prices_fill(price, &w->prices, &t->machine);
    t->compute_s = base_realloc(t->compute_s, (w->n + 1) * sizeof *t->compute_s);
    for (size_t i = t->n_compute; i < w->n; i++) {
        t->compute_s[i] = 0;
        for (size_t k = 0; k < w->items[i].n_terms; k++)
            t->compute_s[i] += price[w->items[i].terms[k].price] * w->items[i].terms[k].times;
    }
    t->n_compute = w->n;
    free(price);
}

static struct priced price_classes(const struct bounds *b, struct track *t)
{
    struct priced out = {NULL, base_calloc(b->n_traffics + 1, sizeof *out.traffic)};
    price_works(b->works, t);
    out.compute_s = t->compute_s;
    for (size_t i = 0; i < b->n_traffics; i++)
        out.traffic[i] = price_traffic(&b->traffics[i], &t->machine);
    return out;
}

static double step_s(
    const struct bounds *b, const struct machine *mc, const struct priced *priced, size_t i)
{
    const struct strategy *s = &b->space->items[i];
    const struct traffic *t = &priced->traffic[b->places[i].traffic];
    if (!machine_computes(mc, s->precision))
        return INFINITY;
    double compute = priced->compute_s[b->works->items[b->places[i].work].like];
    double micro = section_s(mc, compute, t->micro_s, t->micro_exposed_s);
    double last =
        section_s(mc, compute, t->micro_s + t->last_s, t->micro_exposed_s + t->last_exposed_s);
    double step =
        (double)(s->grad_accum - 1) * micro + last + boundary_s(b, mc, t, s) + mc->step_overhead_s;
    step *= 1 + mc->jitter_per_doubling * b->doublings;
    return step * (1 - 1e-9);
}

void bounds_step_s(const struct bounds *b, struct track *t, double *seconds)
{
    struct priced priced = price_classes(b, t);
    for (size_t i = 0; i < b->space->n; i++)
        seconds[i] = step_s(b, &t->machine, &priced, i);
    free(priced.traffic);
}

struct save_s bounds_save_s(const struct bounds *b, const struct track *t, size_t i)
{
    return estimate_save_s(b->works->checkpoint_bytes, &b->space->items[i], &t->machine);
}

double bounds_live_bytes(const struct bounds *b, size_t i)
{
    return b->places[i].live_bytes;
}

struct node_bytes bounds_node_bytes(const struct bounds *b, size_t i)
{
    return (struct node_bytes){b->places[i].host_bytes, b->places[i].disk_bytes};
}
