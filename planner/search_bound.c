/* Lower bounds of a strategy's seconds and bytes. Operations of the compute lane take at least as
 * long as they do alone, and so do all collectives together, since they share the links; sections
 * follow each other. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/price.h"
#include "planner/search_cells.h"

/* Seconds of collectives depend on these alone. */
struct traffic_class {
    enum strategy_kind kind;
    enum precision precision;
    int64_t shard_degree;
    bool reshards; /* blocks are freed after their forward */
    bool splits_over_replicas;
    bool is_bucketed; /* how many reductions there are, and of which sizes, is not looked at */
    enum op_kind update;
    int64_t update_bytes; /* that the update of a parameter moves */
    enum wire gather_format, reduce_format;
    int prefetch;
};
/* Seconds of collectives beside a section's computing. */
struct wires {
    double gather, reduce;
    double gather_exposed, reduce_exposed; /* of them: nothing can run beside */
    double forward, again; /* of gathers: done when the head is; none of which can be done then */
};

/* In a micro step and in the last one; gathers of the boundary, its norms and updates. */
struct traffic {
    struct wires micro, last, boundary;
    double norm_s, update_s;
    double first_elems; /* of the unit that is updated first, whole */
};

enum { UNIT_EMBEDDING, UNIT_BLOCK, UNIT_HEAD, UNIT_KINDS };

/* A traffic class of a space. */
struct traffic_kind {
    struct traffic_class key;
    struct unit_kind {
        double elems, shard_elems, part_elems, times;
        double gathered_bytes; /* whole, with frozen parameters */
    } units[UNIT_KINDS];
    struct unit_elems elems;
    struct live_beside beside; /* units whole on the device, at least */
};

struct bounds {
    const struct model *model;
    struct works *works;
    double trained;
    const struct space *space;
    struct traffic_kind *traffics;
    size_t n_traffics, traffics_cap;
    struct place {
        uint32_t work, traffic;
        double live_bytes;
        int64_t host_bytes, disk_bytes; /* of a node */
        /* where the machine decides how many blocks recompute in full: the class with all of them,
         * and live bytes in the head with none and with all */
        uint32_t full_work;
        double head_bytes, full_head_bytes;
    } * places;       /* per strategy */
    double doublings; /* of 8 ranks */
};

static bool same_traffic(const struct traffic_class *a, const struct traffic_class *b)
{
    return a->kind == b->kind && a->precision == b->precision &&
           a->shard_degree == b->shard_degree && a->reshards == b->reshards &&
           a->splits_over_replicas == b->splits_over_replicas && a->is_bucketed == b->is_bucketed &&
           a->update == b->update && a->update_bytes == b->update_bytes &&
           a->gather_format == b->gather_format && a->reduce_format == b->reduce_format &&
           a->prefetch == b->prefetch;
}

/* --- classes --- */

static bool is_gathered(const struct traffic_class *k)
{
    return k->kind == STRATEGY_ZERO3 || k->kind == STRATEGY_HSDP;
}

static void fill_units(struct traffic_kind *k, const struct model *m, const struct strategy *s)
{
    const int units[UNIT_KINDS] = {0, 1, model_units(m) - 1};
    int64_t element = precision_bytes(s->precision), parts = space_unit_parts(s);
    for (int i = 0; i < UNIT_KINDS; i++) {
        struct unit_layout u;
        struct trained_unit t = model_split_unit(m, units[i], space_unit_shards(s), parts, &u);
        struct frozen_unit frozen = model_frozen_unit(m, units[i], &u, element);
        int64_t beside = is_gathered(&k->key) ? frozen.bytes : 0;
        k->units[i] = (struct unit_kind){.elems = (double)t.elems,
            .shard_elems = (double)t.shard_elems,
            .part_elems = (double)(t.elems / parts),
            .times = i == UNIT_BLOCK ? (double)m->layers : 1,
            .gathered_bytes = (double)(t.elems * element + beside)};
    }
}

/* Gradients of whole units before they are reduced: of the head until the last block's backward is
 * over, of a tied embedding from the head on. */
static void add_unit_gradients(struct live_beside *x, const struct traffic_kind *k, bool is_tied)
{
    const struct unit_kind *u = k->units;
    if (k->key.kind < STRATEGY_ZERO2)
        return;
    double head = 4 * (u[UNIT_HEAD].elems + (is_tied ? u[UNIT_EMBEDDING].elems : 0));
    x->head += head;
    x->block += head + 4 * u[UNIT_BLOCK].elems;
}

/* Units that are gathered: the last block stays around the head, the one before it is gathered
 * while the last one's backward runs; all blocks stay where none is dropped after its forward. One
 * of few bits is given up as soon as products can read it. */
static void add_gathered(struct live_beside *x, const struct traffic_kind *k, const struct model *m)
{
    const struct unit_kind *u = k->units;
    double block = u[UNIT_BLOCK].gathered_bytes, blocks = u[UNIT_BLOCK].times;
    if (!is_gathered(&k->key))
        return;
    double head = u[UNIT_HEAD].gathered_bytes + (m->is_tied ? u[UNIT_EMBEDDING].gathered_bytes : 0);
    double in_block = k->key.reshards ? fmin(2, blocks) : blocks;
    x->head += head + block * (k->key.reshards ? 1 : blocks);
    x->block += block * (in_block - (model_is_quantised(m, 1) ? 1 : 0));
}

static bool frees_blocks(const struct model *m, const struct strategy *s)
{
    struct traffic_kind k = {.key = {.kind = s->kind, .precision = s->precision}};
    if (s->reshard_above_bytes == 0)
        return s->reshard_after_forward;
    fill_units(&k, m, s);
    return strategy_reshards(s, (int64_t)k.units[UNIT_BLOCK].gathered_bytes);
}

/* The gradient is read, states are read and written; so is the parameter where it is its own master
 * or half of it, else it is written. */
static int64_t update_bytes(const struct strategy *s)
{
    bool is_copy = s->precision != PRECISION_FP32 && s->master_bytes == MASTER_FP32;
    return 4 + 2 * strategy_state_bytes(s) + precision_bytes(s->precision) * (is_copy ? 1 : 2);
}

static uint32_t find_traffic(struct bounds *b, const struct strategy *s)
{
    struct traffic_class key = {.kind = s->kind,
        .precision = s->precision,
        .shard_degree = s->shard_degree,
        .reshards = frees_blocks(b->model, s),
        .splits_over_replicas = s->splits_over_replicas,
        .is_bucketed = s->bucket_bytes > 0,
        .update = op_of_update(s),
        .update_bytes = update_bytes(s),
        .gather_format = s->gather_format,
        .reduce_format = s->reduce_format,
        .prefetch = s->prefetch};
    for (size_t i = 0; i < b->n_traffics; i++)
        if (same_traffic(&b->traffics[i].key, &key))
            return (uint32_t)i;
    BASE_GROW(b->traffics, b->traffics_cap, b->n_traffics + 1);
    struct traffic_kind *k = &b->traffics[b->n_traffics];
    *k = (struct traffic_kind){.key = key, .elems = space_unit_elems(b->model, s)};
    fill_units(k, b->model, s);
    add_unit_gradients(&k->beside, k, b->model->is_tied);
    add_gathered(&k->beside, k, b->model);
    return (uint32_t)b->n_traffics++;
}

static int64_t optimizer_elems(const struct unit_elems *elems, const struct strategy *s)
{
    return strategy_optimizer_shards(s) > 1 ? elems->part : elems->full;
}

/* Master copy and moments, in host memory or on disk; parameters in fp32 are their own master copy
 * where the host updates them. */
static int64_t state_elem_bytes(const struct strategy *s)
{
    bool is_own_master = strategy_parks_parameters(s) && s->precision == PRECISION_FP32;
    int64_t master = is_own_master ? 0 : s->master_bytes;
    return s->offload & OFFLOAD_OPTIMIZER ? master + s->moment_bytes : 0;
}

static int64_t least_host_elem_bytes(const struct strategy *s)
{
    bool is_held = strategy_parks_parameters(s) && !strategy_streams_parameters(s);
    int64_t params = is_held ? precision_bytes(s->precision) : 0;
    int64_t grads = strategy_parks_gradients(s) ? 4 : 0;
    return params + grads + (s->offload & OFFLOAD_DISK ? 0 : state_elem_bytes(s));
}

static int64_t disk_elem_bytes(const struct strategy *s)
{
    return state_elem_bytes(s) +
           (strategy_streams_parameters(s) ? precision_bytes(s->precision) : 0);
}

/* Counting a model's parameters takes long: once. */
static double checkpoint_bytes(const struct bounds *b, const struct strategy *s)
{
    return (double)strategy_saved_bytes(s) * b->trained;
}

static int64_t least_disk_bytes(
    const struct bounds *b, const struct strategy *s, const struct place *p)
{
    const struct unit_elems *elems = &b->traffics[p->traffic].elems;
    struct live_bytes live = {
        .of = {[MEMORY_DISK] = disk_elem_bytes(s) * optimizer_elems(elems, s)}};
    return estimate_disk_bytes(&live, checkpoint_bytes(b, s), s);
}

/* States that are offloaded, and what every node needs beside them. */
static int64_t least_host_bytes(
    const struct bounds *b, const struct strategy *s, const struct place *p, bool is_gpu)
{
    const struct unit_elems *elems = &b->traffics[p->traffic].elems;
    struct live_bytes live = {.of = {[MEMORY_DEVICE] = (int64_t)p->live_bytes}};
    live.of[MEMORY_HOST] = least_host_elem_bytes(s) * optimizer_elems(elems, s);
    double snapshot = estimate_snapshot_of(elems, checkpoint_bytes(b, s), s);
    return estimate_host_ram_bytes(&live, snapshot, s, is_gpu);
}

/* States, and the worst of a few moments beside them. */
static double least_live_bytes(
    const struct bounds *b, const struct strategy *s, const struct place *p, uint32_t of_work)
{
    const struct traffic_kind *k = &b->traffics[p->traffic];
    struct live_beside work = works_live(b->works, of_work);
    double head = work.head + k->beside.head, block = work.block + k->beside.block;
    return (double)space_state_bytes(&k->elems, s) + fmax(work.any, fmax(head, block));
}

/* However many blocks recompute in full, it is no less than with all of them. */
static enum rc fill_live_bytes(
    const struct bounds *b, const struct strategy *s, struct place *p, struct err *e)
{
    const struct traffic_kind *k = &b->traffics[p->traffic];
    double beside = (double)space_state_bytes(&k->elems, s) + k->beside.head;
    struct strategy full = *s;
    p->full_work = p->work;
    full.recompute = RECOMPUTE_FULL;
    enum rc rc = s->full_blocks ? works_find(&p->full_work, b->works, &full, e) : RC_OK;
    if (rc)
        return rc;
    p->live_bytes = least_live_bytes(b, s, p, p->full_work);
    p->head_bytes = beside + works_live(b->works, p->work).head;
    p->full_head_bytes = beside + works_live(b->works, p->full_work).head;
    return RC_OK;
}

enum rc bounds_new(
    struct bounds **out, struct works *works, const struct space *space, bool is_gpu, struct err *e)
{
    const struct model *m = works_model(works);
    struct bounds *b = base_calloc(1, sizeof *b);
    b->model = m;
    b->works = works;
    b->trained = (double)model_trained_params(m);
    b->space = space;
    b->places = base_calloc(space->n + 1, sizeof *b->places);
    b->doublings = space->n > 0 ? fmax(0, log2((double)space->items[0].ranks / 8)) : 0;
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < space->n; i++) {
        const struct strategy *s = &space->items[i];
        struct place *p = &b->places[i];
        p->traffic = find_traffic(b, s);
        rc = works_find(&p->work, works, s, e);
        if (!rc)
            rc = fill_live_bytes(b, s, p, e);
        if (rc)
            break;
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

/* Seconds of the collectives and of the optimizer for one unit; 0 for those that the kind of
 * strategy has not. */
struct unit_s {
    double gather, reduce, last_reduce; /* the latter in the last micro step alone */
    double publish;                     /* gathers after the update */
    double update, norm;
};

/* A reduction of so many elements; in blocks what is moved alone, of a byte and more each. */
static double reduction_s(const struct machine *mc, const struct traffic_class *k,
    enum collective kind, struct rank_group group, double elems)
{
    if (k->reduce_format == WIRE_PLAIN)
        return machine_collective_s(mc, kind, group, elems * 4);
    double seconds = machine_collective_s(mc, COLLECTIVE_ALL_TO_ALL, group, elems);
    if (kind == COLLECTIVE_ALL_REDUCE)
        seconds += machine_collective_s(mc, COLLECTIVE_ALL_GATHER, group, elems);
    return seconds;
}

static void price_collectives(struct unit_s *out, const struct traffic_class *k,
    const struct machine *mc, const struct strategy *s, const struct unit_kind *u)
{
    struct rank_group shard = machine_shard_group(s);
    double gathered = k->gather_format == WIRE_PLAIN ? u->gathered_bytes : u->elems;
    if (k->kind != STRATEGY_DDP)
        out->gather = machine_collective_s(mc, COLLECTIVE_ALL_GATHER, shard, gathered);
    double scatter = k->kind == STRATEGY_DDP
                         ? 0
                         : reduction_s(mc, k, COLLECTIVE_REDUCE_SCATTER, shard, u->elems);
    *(k->kind == STRATEGY_ZERO1 ? &out->last_reduce : &out->reduce) = scatter;
    if (k->kind == STRATEGY_DDP)
        out->last_reduce = reduction_s(mc, k, COLLECTIVE_ALL_REDUCE, machine_world(s), u->elems);
    if (k->kind == STRATEGY_HSDP)
        out->last_reduce = reduction_s(mc, k,
            k->splits_over_replicas ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE,
            machine_replica_group(s), u->shard_elems);
    double published = k->gather_format == WIRE_PLAIN ? precision_bytes(k->precision) : 1;
    if (k->splits_over_replicas)
        out->publish = machine_collective_s(
            mc, COLLECTIVE_ALL_GATHER, machine_replica_group(s), u->shard_elems * published);
    else if (!is_gathered(k))
        out->publish = out->gather;
    if (k->is_bucketed)
        out->reduce = out->last_reduce = 0;
}

static struct unit_s price_unit(const struct traffic_class *k, const struct machine *mc,
    const struct strategy *s, const struct unit_kind *u)
{
    struct unit_s out = {0};
    double own = k->kind == STRATEGY_DDP ? u->elems : u->part_elems;
    price_collectives(&out, k, mc, s, u);
    if (!(u->elems > 0)) /* frozen: gathered for use, never reduced nor updated */
        return (struct unit_s){.gather = is_gathered(k) ? out.gather : 0};
    out.update = machine_stream_s(mc, k->update, own * (double)k->update_bytes);
    out.norm = machine_stream_s(mc, OP_GRAD_NORM, u->part_elems * 4);
    return out;
}

/* The embedding begins and ends a micro step: its gather before, its reduction after all computing.
 * The head is the last to be updated. */
static void add_unit(struct traffic *t, const struct traffic_class *k, const struct unit_s *u,
    int unit, double times)
{
    /* all blocks but the last, whose backward follows at once, are gathered a second time */
    double gathers = times + (unit == UNIT_BLOCK && k->reshards ? times - 1 : 0);
    double exposed = unit == UNIT_EMBEDDING ? 1 : 0;
    double ahead = 2 + k->prefetch; /* of the head: its last operations may wait for others */
    if (is_gathered(k)) {
        t->micro.gather += gathers * u->gather;
        t->micro.forward += times * u->gather;
        t->micro.again += fmax(0, gathers - times - ahead) * u->gather;
        t->micro.gather_exposed += exposed * u->gather;
    }
    t->boundary.reduce += times * u->publish; /* after updates, as reductions after backward */
    t->boundary.reduce_exposed += unit == UNIT_HEAD ? u->publish : 0;
    t->micro.reduce += times * u->reduce;
    t->micro.reduce_exposed += exposed * u->reduce;
    t->last.reduce += times * u->last_reduce;
    t->last.reduce_exposed += exposed * u->last_reduce;
    t->update_s += times * u->update;
    t->norm_s += times * u->norm;
}

static struct traffic price_traffic(const struct traffic_kind *k, const struct machine *mc)
{
    int64_t rpn = mc->hw.ranks_per_node;
    struct strategy s = strategy_default(k->key.kind, mc->hw.nodes * rpn, rpn);
    s.shard_degree = k->key.shard_degree;
    s.splits_over_replicas = k->key.splits_over_replicas;
    struct traffic t;
    memset(&t, 0, sizeof t);
    for (int i = 0; i < UNIT_KINDS; i++) {
        struct unit_s u = price_unit(&k->key, mc, &s, &k->units[i]);
        add_unit(&t, &k->key, &u, i, k->units[i].times);
    }
    t.first_elems = k->units[UNIT_EMBEDDING].elems;
    t.last.gather = t.micro.gather;
    t.last.forward = t.micro.forward;
    t.last.again = t.micro.again;
    t.last.gather_exposed = t.micro.gather_exposed;
    t.last.reduce += t.micro.reduce;
    t.last.reduce_exposed += t.micro.reduce_exposed;
    return t;
}

static double less_of(double a, double b)
{
    return a < b ? a : b;
}

/* Computing, and collectives beside it, of which so many seconds can be hidden. While one runs
 * computing is slower, and a share of what is hidden costs its time all the same, so even a hidden
 * second costs a part of one. */
static double beside_s(const struct machine *mc, double compute, double wires, double hidden)
{
    double gain = 1 / mc->overlap_slowdown - mc->unhidden;
    return compute + wires - (hidden > 0 && gain > 0 ? hidden * gain : 0);
}

/* Seconds of a section. Links are shared, so a collective is hidden only while there is computing
 * to hide it: reductions behind what follows the head, gathers behind all of it. And what is
 * gathered up to the head has to be there before it, and little else can be. */
static double section_s(
    const struct machine *mc, const struct compute_s *compute, const struct wires *w)
{
    double before = mc->overlap_slowdown * compute->before;
    double after = mc->overlap_slowdown * compute->after;
    double reduce = w->reduce - w->reduce_exposed;
    double wires = w->gather + w->reduce, hidden = wires - w->gather_exposed - w->reduce_exposed;
    double behind = after + less_of(before, w->gather - w->gather_exposed);
    double whole = beside_s(mc, compute->before + compute->after, wires, less_of(hidden, behind));
    double up_to_head =
        beside_s(mc, compute->before, w->forward, less_of(before, w->forward - w->gather_exposed));
    double behind_it =
        beside_s(mc, compute->after, w->again + w->reduce, less_of(after, w->again + reduce));
    return fmax(whole, up_to_head + behind_it);
}

/* The boundary: norms first, then updates, each followed by the gather of its unit; those of the
 * host come with the next forward. */
static double boundary_s(
    const struct machine *mc, const struct traffic *t, const struct strategy *s)
{
    struct compute_s update = {0, t->update_s};
    double norm_s = strategy_takes_norms_early(s) ? 0 : t->norm_s; /* or during the backward pass */
    if (!(s->offload & OFFLOAD_OPTIMIZER))
        return norm_s + section_s(mc, &update, &t->boundary);
    return norm_s;
}

/* The first micro step: each unit is updated before its forward, so nothing comes before the first
 * one's update, and backward comes after all of them, and after all reading for them. */
static double first_s(const struct bounds *b, const struct machine *mc,
    const struct compute_s *compute, const struct traffic *t, const struct strategy *s)
{
    struct wires wires = s->grad_accum > 1 ? t->micro : t->last;
    if (!(s->offload & OFFLOAD_OPTIMIZER))
        return section_s(mc, compute, &wires);
    double shards = (double)strategy_optimizer_shards(s), own = b->trained / shards;
    double first = machine_host_adam_s(mc, t->first_elems / shards * price_host_share(s));
    double update = machine_host_adam_s(mc, own * price_host_share(s)) + compute->after;
    wires.gather += t->boundary.reduce;
    wires.forward += t->boundary.reduce;
    double least = fmax(first + section_s(mc, compute, &wires), update);
    if (!(s->offload & OFFLOAD_DISK))
        return least;
    double read = machine_disk_s(mc, (double)state_elem_bytes(s) * own);
    double written = machine_disk_s(mc, (double)disk_elem_bytes(s) * own);
    return fmax(least, fmax(read + written, read + compute->after));
}

/* Computing of a micro step: where blocks are of two kinds, with as few in full as memory allows in
 * the head, where each saves the same. */
static struct compute_s compute_of(const struct bounds *b, const struct track *t, size_t i)
{
    const struct place *p = &b->places[i];
    struct compute_s none = t->compute_s[p->work], full = t->compute_s[p->full_work];
    if (p->full_work == p->work)
        return none;
    double saved = p->head_bytes - p->full_head_bytes, layers = (double)b->model->layers;
    double share = saved > 0 ? (p->head_bytes - track_capacity_bytes(t)) / saved : 0;
    share = fmin(1, fmax(1 / layers, share));
    return (struct compute_s){none.before + share * (full.before - none.before),
        none.after + share * (full.after - none.after)};
}

static double step_s(
    const struct bounds *b, const struct track *t, const struct traffic *traffics, size_t i)
{
    const struct strategy *s = &b->space->items[i];
    const struct machine *mc = &t->machine;
    const struct traffic *wires = &traffics[b->places[i].traffic];
    struct compute_s compute = compute_of(b, t, i);
    if (b->places[i].live_bytes > track_capacity_bytes(t) || !machine_computes(mc, s->precision))
        return INFINITY;
    double step = first_s(b, mc, &compute, wires, s) + boundary_s(mc, wires, s);
    if (s->grad_accum > 1)
        step += section_s(mc, &compute, &wires->last);
    if (s->grad_accum > 2)
        step += (double)(s->grad_accum - 2) * section_s(mc, &compute, &wires->micro);
    step += mc->step_overhead_s;
    return step * (1 + mc->jitter_per_doubling * b->doublings) * (1 - 1e-9);
}

void bounds_step_s(const struct bounds *b, struct track *t, double *seconds)
{
    struct traffic *traffics = base_alloc((b->n_traffics + 1) * sizeof *traffics);
    works_price(b->works, t);
    for (size_t i = 0; i < b->n_traffics; i++)
        traffics[i] = price_traffic(&b->traffics[i], &t->machine);
    for (size_t i = 0; i < b->space->n; i++)
        seconds[i] = step_s(b, t, traffics, i);
    free(traffics);
}

struct save_s bounds_save_s(const struct bounds *b, const struct track *t, size_t i)
{
    const struct strategy *s = &b->space->items[i];
    return estimate_save_s(checkpoint_bytes(b, s), s, &t->machine);
}

double bounds_live_bytes(const struct bounds *b, size_t i)
{
    return b->places[i].live_bytes;
}

struct node_bytes bounds_node_bytes(const struct bounds *b, size_t i)
{
    return (struct node_bytes){b->places[i].host_bytes, b->places[i].disk_bytes};
}
