/* What a rank computes and holds in a micro step whatever the strategy shards: that of a single
 * rank, built with one block and with two and continued to all of them. */
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

struct work_item {
    struct work_class key;
    struct term {
        int32_t price;
        double before, after; /* times, see struct compute_s */
    } * terms;                /* of the compute lane */
    size_t n_terms;
    size_t like; /* a class with the same terms: itself, unless only memory differs */
    struct live_beside live;
};

struct works {
    const struct model *model;
    int64_t seq;
    struct prices prices;
    struct work_item *items;
    size_t n, cap;
};

static bool same_work(const struct work_class *a, const struct work_class *b)
{
    return a->precision == b->precision && a->recompute == b->recompute &&
           a->loss_chunks == b->loss_chunks && a->micro_batch == b->micro_batch &&
           a->doc_tokens == b->doc_tokens && a->offload == b->offload;
}

/* Last operation of the head in the micro step: before it no gradient of a unit is complete. */
static int32_t last_of_head(const struct schedule *s)
{
    const struct section *micro = &s->section[0];
    int32_t i = micro->first_op + micro->n_ops - 1;
    while (
        i > micro->first_op && (s->ops[i].unit != s->n_units - 1 || s->ops[i].lane != LANE_COMPUTE))
        i--;
    return i;
}

/* --- operations --- */

/* How often each operation of the compute lane occurs, by price. */
struct counts {
    struct term *terms;
    size_t cap;
};

/* Add those of a micro step, times weight. */
static void count_operations(
    struct works *w, struct counts *all, const struct schedule *s, double weight)
{
    const struct section *micro = &s->section[0];
    int32_t head = last_of_head(s);
    for (int32_t i = micro->first_op; i < micro->first_op + micro->n_ops; i++) {
        /* the largest magnitudes of weights: once a step, of the own shard */
        if (s->ops[i].lane != LANE_COMPUTE || s->ops[i].kind == OP_WEIGHT_AMAX)
            continue;
        size_t id = (size_t)prices_add(&w->prices, s, &s->ops[i]), before = all->cap;
        BASE_GROW(all->terms, all->cap, id + 1);
        for (size_t k = before; k < all->cap; k++)
            all->terms[k] = (struct term){.price = (int32_t)k};
        *(i <= head ? &all->terms[id].before : &all->terms[id].after) += weight;
    }
}

static bool is_there(const struct term *t)
{
    return fabs(t->before) > 0 || fabs(t->after) > 0;
}

static void keep_terms(struct work_item *out, const struct counts *all)
{
    out->terms = base_alloc((all->cap + 1) * sizeof *out->terms);
    for (size_t i = 0; i < all->cap; i++)
        if (is_there(&all->terms[i]))
            out->terms[out->n_terms++] = all->terms[i];
}

/* --- memory --- */

static bool is_state(const struct buffer *b)
{
    return b->part == PART_PARAMETERS || b->part == PART_GRADIENTS || b->part == PART_OPTIMIZER;
}

/* Bytes on the device that live as long as the run, beside states. */
static int64_t lasting_beside_states(const struct schedule *s)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        if (b->lifetime == LIFETIME_RUN && b->memory == MEMORY_DEVICE && !is_state(b))
            bytes += b->bytes;
    }
    return bytes;
}

/* By operation of the micro step: how many bytes more of its buffers are live than before. Caller
 * frees. */
static int64_t *changes_of(const struct schedule *s)
{
    const struct section *micro = &s->section[0];
    int64_t *change = base_calloc((size_t)micro->n_ops + 2, sizeof *change);
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        if (b->section != 0 || b->memory != MEMORY_DEVICE)
            continue;
        change[b->first_op - micro->first_op] += b->bytes;
        change[b->last_op - micro->first_op + 1] -= b->bytes;
    }
    return change;
}

static struct live_beside beside_states(const struct schedule *s)
{
    const struct section *micro = &s->section[0];
    int64_t *change = changes_of(s), live = lasting_beside_states(s);
    int32_t head = last_of_head(s);
    struct live_beside most = {(double)live, (double)live, (double)live};
    for (int32_t i = micro->first_op; i < micro->first_op + micro->n_ops; i++) {
        const struct op *op = &s->ops[i];
        live += change[i - micro->first_op];
        most.any = fmax(most.any, (double)live);
        if (op->lane != LANE_COMPUTE)
            continue;
        if (op->unit == s->n_units - 1)
            most.head = fmax(most.head, (double)live);
        else if (i > head && op->unit == s->n_units - 2)
            most.block = fmax(most.block, (double)live);
    }
    free(change);
    return most;
}

/* Live bytes are the largest of several straight lines in the number of blocks: convex, so the line
 * through two small numbers stays below. */
static double continue_bytes(double few, double more, double t)
{
    return fmax(0, few + (more - few) * t);
}

static struct live_beside continue_live(
    const struct live_beside *few, const struct live_beside *more, double t)
{
    return (struct live_beside){continue_bytes(few->any, more->any, t),
        continue_bytes(few->head, more->head, t), continue_bytes(few->block, more->block, t)};
}

/* --- classes --- */

static struct strategy single_rank(const struct works *w, const struct work_class *key)
{
    struct strategy s = strategy_default(STRATEGY_DDP, 1, 1);
    s.precision = key->precision;
    s.recompute = key->recompute;
    s.loss_chunks = key->loss_chunks;
    s.micro_batch = key->micro_batch;
    s.doc_tokens = key->doc_tokens;
    s.seq = w->seq;
    s.offload = key->offload;
    return s;
}

static void fill_item(struct works *w, struct work_item *out, const struct schedule *few,
    const struct schedule *more, double t)
{
    struct live_beside few_live = beside_states(few), more_live = beside_states(more);
    /* they level off where blocks leave the device */
    out->live = out->key.offload ? few_live : continue_live(&few_live, &more_live, t);
    if (&w->items[out->like] != out)
        return;
    struct counts all = {0};
    count_operations(w, &all, few, 1 - t);
    count_operations(w, &all, more, t);
    keep_terms(out, &all);
    free(all.terms);
}

static enum rc build_item(struct works *w, struct work_item *out, struct err *e)
{
    struct strategy s = single_rank(w, &out->key);
    struct model one = *w->model, two = *w->model;
    struct schedule *few = NULL, *more = NULL;
    one.layers = 1;
    two.layers = 2;
    enum rc rc = schedule_build(&few, &one, &s, e);
    if (!rc)
        rc = schedule_build(&more, &two, &s, e);
    if (!rc)
        fill_item(w, out, few, more, (double)(w->model->layers - 1));
    schedule_free(few);
    schedule_free(more);
    return rc;
}

struct works *works_new(const struct model *m, int64_t seq)
{
    struct works *w = base_calloc(1, sizeof *w);
    w->model = m;
    w->seq = seq;
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

const struct model *works_model(const struct works *w)
{
    return w->model;
}

static size_t find_class(const struct works *w, const struct work_class *key)
{
    size_t i = 0;
    while (i < w->n && !same_work(&w->items[i].key, key))
        i++;
    return i;
}

enum rc works_find(uint32_t *out, struct works *w, const struct strategy *s, struct err *e)
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
    return build_item(w, item, e);
}

struct live_beside works_live(const struct works *w, uint32_t i)
{
    return w->items[i].live;
}

static struct compute_s price_item(const struct work_item *item, const double *price)
{
    struct compute_s sum = {0, 0};
    for (size_t k = 0; k < item->n_terms; k++) {
        sum.before += price[item->terms[k].price] * item->terms[k].before;
        sum.after += price[item->terms[k].price] * item->terms[k].after;
    }
    return sum;
}

void works_price(const struct works *w, struct track *t)
{
    if (t->n_compute == w->n)
        return;
    double *price = base_alloc(((size_t)w->prices.n + 1) * sizeof *price);
    prices_fill(price, &w->prices, &t->machine);
    t->compute_s = base_realloc(t->compute_s, (w->n + 1) * sizeof *t->compute_s);
    for (size_t i = t->n_compute; i < w->n; i++) {
        const struct work_item *item = &w->items[i];
        t->compute_s[i] = item->like < i ? t->compute_s[item->like] : price_item(item, price);
    }
    t->n_compute = w->n;
    free(price);
}
