/* What cannot be used: why, by how much, and the nearest change that would do. */
#include <math.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/hardware.h"
#include "planner/search_cells.h"

static bool same_rejection(const void *rejected, size_t i, const void *key)
{
    const struct rejection *a = &((const struct rejection *)rejected)[i], *b = key;
    return strcmp(a->what, b->what) == 0 && strcmp(a->why, b->why) == 0;
}

struct rejection *reject(struct finder *f, const char *what, const char *why)
{
    struct search *s = f->out;
    struct rejection key = {.offers = 1};
    str_copy(key.what, sizeof key.what, what);
    str_copy(key.why, sizeof key.why, why);
    uint64_t hash = index_hash_text(index_hash_text(0, key.what), key.why);
    ptrdiff_t at = index_find(&f->rejected_index, hash, same_rejection, s->rejected, &key);
    if (at != INDEX_NONE) {
        s->rejected[at].offers++;
        return &s->rejected[at];
    }
    BASE_GROW(s->rejected, f->rejected_cap, s->n_rejected + 1);
    index_add(&f->rejected_index, hash, s->n_rejected);
    s->rejected[s->n_rejected] = key;
    return &s->rejected[s->n_rejected++];
}

const char *shortage_unit(enum shortage s)
{
    static const char *const units[] = {NULL, "bytes", "bytes", "usd", "seconds"};
    return units[s];
}

/* --- the least that the job can do with --- */

/* The strategies that save most of what jobs alike have on a shape, and their bytes as far as
 * anybody asked. */
struct thrifty {
    struct strategy strategy;
    size_t place;        /* in the space */
    int64_t state_bytes; /* at least */
    enum { BYTES_UNKNOWN, BYTES_KNOWN, BYTES_NEVER } known;
    struct live_bytes live;
    int64_t host_ram_bytes; /* of a node */
};
struct thrifts {
    struct shape_of_ranks shape;
    int64_t seq;
    bool allow_bf16;
    struct thrifty *items;
    size_t n;
    struct thrifts *next;
};

void thrifts_free(struct thrifts *t)
{
    while (t) {
        struct thrifts *next = t->next;
        free(t->items);
        free(t);
        t = next;
    }
}

static bool is_thrifty(const struct strategy *s)
{
    bool is_spare =
        s->prefetch == 1 && s->reshard_after_forward && (s->loss_chunks > 1 || s->seq < 8);
    return s->micro_batch == 1 && s->recompute == RECOMPUTE_FULL &&
           (is_spare || !profile_of(s->engine)->is_bundled);
}

static int by_state_bytes(const void *pa, const void *pb)
{
    const struct thrifty *a = pa, *b = pb;
    if (a->state_bytes != b->state_bytes)
        return a->state_bytes < b->state_bytes ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* Those with the smallest states first: they mostly are the thriftiest, and rule the others out. */
static struct thrifts *thrifts_new(const struct job *j, const struct shape_of_ranks *shape)
{
    struct thrifts *t = base_calloc(1, sizeof *t);
    struct space space;
    space_make(&space, j, shape);
    *t = (struct thrifts){.shape = *shape, .seq = j->seq, .allow_bf16 = j->allow_bf16};
    t->items = base_calloc(space.n + 1, sizeof *t->items);
    for (size_t i = 0; i < space.n; i++) {
        const struct strategy *s = &space.items[i];
        if (!is_thrifty(s))
            continue;
        struct unit_elems elems = space_unit_elems(&j->model, space_unit_shards(s));
        bool is_bundled = profile_of(s->engine)->is_bundled;
        t->items[t->n++] = (struct thrifty){.strategy = *s,
            .place = i,
            .state_bytes = is_bundled ? space_state_bytes(&elems, s) : 0};
    }
    if (t->n > 0)
        qsort(t->items, t->n, sizeof *t->items, by_state_bytes);
    space_release(&space);
    return t;
}

static struct thrifts *thrifts_for(
    struct finder *f, const struct job *j, const struct shape_of_ranks *shape)
{
    for (struct thrifts *t = f->thrifts; t; t = t->next)
        if (t->shape.ranks == shape->ranks && t->shape.ranks_per_node == shape->ranks_per_node &&
            t->shape.is_gpu == shape->is_gpu && t->seq == j->seq && t->allow_bf16 == j->allow_bf16)
            return t;
    struct thrifts *t = thrifts_new(j, shape);
    t->next = f->thrifts;
    f->thrifts = t;
    return t;
}

static bool know_bytes(struct thrifty *t, const struct job *j, const struct machine *mc)
{
    struct estimate x;
    if (t->known == BYTES_UNKNOWN) {
        bool is_known = !estimate_live_bytes(&t->live, &j->model, &t->strategy, NULL);
        t->known = is_known ? BYTES_KNOWN : BYTES_NEVER;
        if (is_known) {
            estimate_memory(&x, &t->live, &j->model, &t->strategy, mc);
            t->host_ram_bytes = x.host_ram_bytes;
            t->live.of[MEMORY_DEVICE] = estimate_needed_bytes(&x, mc);
        }
    }
    return t->known == BYTES_KNOWN;
}

/* As estimate_short_by. */
static int64_t short_by(
    const struct thrifty *t, const struct machine *mc, int64_t ram_bytes, bool *is_host)
{
    int64_t capacity = mc->hw.memory_bytes - (int64_t)mc->external_bytes;
    *is_host = t->live.of[MEMORY_DEVICE] <= capacity;
    if (!*is_host)
        return t->live.of[MEMORY_DEVICE] - capacity;
    return ram_bytes > 0 && t->host_ram_bytes > ram_bytes ? t->host_ram_bytes - ram_bytes : 0;
}

struct thrift thriftiest(struct finder *f, const struct job *j, const struct shape_of_ranks *shape,
    const struct machine *mc, int64_t ram_bytes)
{
    struct thrift best = {.short_by = INT64_MAX};
    struct thrifts *all = thrifts_for(f, j, shape);
    for (size_t i = 0; i < all->n && best.short_by > 0; i++) {
        struct thrifty *t = &all->items[i];
        /* states alone already miss by as much as the best so far */
        double least = (double)t->state_bytes + mc->external_bytes - (double)mc->hw.memory_bytes;
        if (!machine_computes(mc, t->strategy.precision) || least >= (double)best.short_by ||
            !know_bytes(t, j, mc))
            continue;
        bool is_host;
        int64_t missing = short_by(t, mc, ram_bytes, &is_host);
        if (missing < best.short_by)
            best =
                (struct thrift){t->live.of[MEMORY_DEVICE], missing, is_host, t->strategy, t->live};
    }
    return best;
}

/* Of a cell of the group, whose memory is the same on any number of nodes. */
static const struct machine *machine_for(const struct finder *f, const struct group *g)
{
    return &f->tracks[f->cells[g->first_cell + g->n_cells - 1].track].machine;
}

static bool would_fit(struct finder *f, const struct group *g, const struct job *j, int64_t nodes)
{
    int64_t ranks = nodes * g->hw.ranks_per_node;
    struct shape_of_ranks shape = {ranks, g->hw.ranks_per_node, g->hw.is_gpu};
    if (job_step_sequences(j) % ranks != 0)
        return false;
    struct strategy least = strategy_default(STRATEGY_ZERO3, ranks, shape.ranks_per_node);
    least.offload = g->hw.is_gpu ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE;
    struct unit_elems elems = space_unit_elems(&j->model, ranks);
    bool is_bundled = profile_of(j->engine)->is_bundled;
    if (is_bundled && space_state_bytes(&elems, &least) > g->hw.memory_bytes)
        return false;
    return thriftiest(f, j, &shape, machine_for(f, g), g->hw.ram_bytes).short_by == 0;
}

/* Doubling the nodes, else halving the sequence, else bf16, else a larger memory. */
static void suggest(struct finder *f, const struct group *g, int64_t nodes, const struct thrift *t,
    char out[SEARCH_TEXT])
{
    const struct job *j = f->in->job;
    for (int64_t n = 2 * nodes; n <= 64 * nodes && n <= 4096; n *= 2) {
        if (!would_fit(f, g, j, n))
            continue;
        snprintf(out, SEARCH_TEXT, "%lld nodes on one fabric instead of %lld", (long long)n,
            (long long)nodes);
        return;
    }
    struct job changed = *j;
    for (int64_t seq = j->seq / 2; seq >= 256 && seq % 2 == 0; seq /= 2) {
        changed.seq = seq;
        if (!would_fit(f, g, &changed, nodes))
            continue;
        snprintf(out, SEARCH_TEXT, "sequences of %lld tokens instead of %lld", (long long)seq,
            (long long)j->seq);
        return;
    }
    changed = *j;
    changed.allow_bf16 = true;
    if (!j->allow_bf16 && would_fit(f, g, &changed, nodes)) {
        snprintf(out, SEARCH_TEXT, "bf16 instead of fp32");
        return;
    }
    char bytes[UNITS_TEXT];
    int64_t have = t->is_host ? g->hw.ram_bytes : g->hw.memory_bytes;
    snprintf(out, SEARCH_TEXT, "%s of %s per %s",
        units_bytes_up(bytes, (double)(have + t->short_by)), t->is_host ? "host memory" : "memory",
        t->is_host     ? "node"
        : g->hw.is_gpu ? "GPU"
                       : "rank");
}

/* The engine has none of the strategies that the job allows, on these ranks. */
static void reject_for_want(struct finder *f, const struct group *g, int64_t nodes)
{
    const struct job *j = f->in->job;
    struct hardware hw = g->hw;
    hw.nodes = nodes;
    int64_t ranks = nodes * hw.ranks_per_node;
    char what[64], why[SEARCH_TEXT];
    snprintf(why, sizeof why, "engine %s has no %.60s for %lld rank%s", engine_name(j->engine),
        j->strategy[0] ? j->strategy : "strategy", (long long)ranks, ranks == 1 ? "" : "s");
    struct rejection *r = reject(f, hardware_text(&hw, what), why);
    r->offers += g->n_offers - 1;
}

/* No strategy of the group fits: by how much on most nodes, and what would. */
static void reject_for_memory(struct finder *f, const struct group *g)
{
    const struct cell *last = &f->cells[g->first_cell + g->n_cells - 1];
    int64_t ranks = last->nodes * g->hw.ranks_per_node;
    struct shape_of_ranks shape = {ranks, g->hw.ranks_per_node, g->hw.is_gpu};
    struct thrift t = thriftiest(f, f->in->job, &shape, machine_for(f, g), g->hw.ram_bytes);
    if (t.short_by == INT64_MAX) {
        reject_for_want(f, g, last->nodes);
        return;
    }
    if (t.short_by == 0)
        return; /* it fits, but was not worth trying */
    struct hardware hw = g->hw;
    hw.nodes = last->nodes;
    char what[64], why[SEARCH_TEXT], need[UNITS_TEXT], miss[UNITS_TEXT];
    snprintf(why, sizeof why, "does not fit: the thriftiest strategy (%s) needs %s per %s, %s %s",
        strategy_kind_name(t.strategy.kind), units_bytes(need, (double)t.peak_bytes),
        g->hw.is_gpu ? "GPU" : "rank", units_bytes(miss, (double)t.short_by),
        t.is_host ? "more host memory than a node has" : "too much");
    struct rejection *r = reject(f, hardware_text(&hw, what), why);
    r->offers += g->n_offers - 1;
    r->shortage = t.is_host ? SHORT_HOST_BYTES : SHORT_BYTES;
    r->short_by = (double)t.short_by;
    suggest(f, g, last->nodes, &t, r->nearest_change);
}

void reject_group(struct finder *f, size_t group)
{
    const struct group *g = &f->groups[group];
    bool has_best = false;
    for (size_t k = 0; k < g->n_cells; k++)
        has_best = has_best || f->cells[g->first_cell + k].best;
    if (has_best)
        reject_for_stops(f, group);
    if (has_best)
        reject_for_limits(f, group);
    else if (g->n_cells > 0)
        reject_for_memory(f, g);
}
