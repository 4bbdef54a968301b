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
    static const char *const units[] = {NULL, "bytes", "bytes", "bytes", "usd", "seconds"};
    return units[s];
}

enum shortage shortage_of(enum memory where)
{
    static const enum shortage all[MEMORY_COUNT] = {
        SHORT_BYTES, SHORT_HOST_BYTES, SHORT_DISK_BYTES};
    return all[where];
}

const char *shortage_word(enum memory where)
{
    static const char *const words[MEMORY_COUNT] = {"memory", "host memory", "disk"};
    return words[where];
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
    struct node_bytes node;
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
    int disk =
        (a->strategy.offload & OFFLOAD_DISK ? 1 : 0) - (b->strategy.offload & OFFLOAD_DISK ? 1 : 0);
    if (disk)
        return disk;
    if (a->state_bytes != b->state_bytes)
        return a->state_bytes < b->state_bytes ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* Those with the smallest states first: they mostly are the thriftiest, and rule the others out.
 * States on disk come last, since they are for where nothing else fits. */
static void add_thrifty(
    struct thrifts *t, const struct job *j, const struct shape_of_ranks *shape, int stage)
{
    struct space space;
    space_make(&space, j, shape, (enum space_stage)stage);
    t->items = base_realloc(t->items, (t->n + space.n + 1) * sizeof *t->items);
    for (size_t i = 0; i < space.n; i++) {
        const struct strategy *s = &space.items[i];
        if (!is_thrifty(s))
            continue;
        struct unit_elems elems = space_unit_elems(&j->model, space_unit_shards(s));
        bool is_bundled = profile_of(s->engine)->is_bundled;
        t->items[t->n] = (struct thrifty){.strategy = *s,
            .place = t->n,
            .state_bytes = is_bundled ? space_state_bytes(&elems, s) : 0};
        t->n++;
    }
    space_release(&space);
}

static struct thrifts *thrifts_new(const struct job *j, const struct shape_of_ranks *shape)
{
    struct thrifts *t = base_calloc(1, sizeof *t);
    *t = (struct thrifts){.shape = *shape, .seq = j->seq, .allow_bf16 = j->allow_bf16};
    for (int stage = SPACE_USUAL; stage < SPACE_STAGES; stage++)
        add_thrifty(t, j, shape, stage);
    if (t->n > 0)
        qsort(t->items, t->n, sizeof *t->items, by_state_bytes);
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
            t->node = (struct node_bytes){x.host_ram_bytes, x.disk_bytes};
            t->live.of[MEMORY_DEVICE] = estimate_needed_bytes(&x, mc);
        }
    }
    return t->known == BYTES_KNOWN;
}

/* What there is of each memory: of a rank, and of a node. */
static int64_t capacity_of(const struct machine *mc, struct node_bytes have, enum memory where)
{
    return where == MEMORY_DEVICE ? mc->hw.memory_bytes - (int64_t)mc->external_bytes
           : where == MEMORY_HOST ? have.host
                                  : have.disk;
}

/* Misses of different memories compare as shares of what there is: a node lacks a little host
 * memory for what its GPUs are far too small for. */
static double share_missing(
    const struct machine *mc, struct node_bytes have, enum memory where, double missing)
{
    double capacity = (double)capacity_of(mc, have, where);
    return missing <= 0 ? 0 : capacity > 0 ? missing / capacity : INFINITY;
}

/* As estimate_short_by. */
static int64_t short_by(
    const struct thrifty *t, const struct machine *mc, struct node_bytes have, enum memory *where)
{
    int64_t capacity = capacity_of(mc, have, MEMORY_DEVICE);
    *where = MEMORY_DEVICE;
    if (t->live.of[MEMORY_DEVICE] > capacity)
        return t->live.of[MEMORY_DEVICE] - capacity;
    *where = MEMORY_HOST;
    if (have.host > 0 && t->node.host > have.host)
        return t->node.host - have.host;
    *where = MEMORY_DISK;
    return t->node.disk > have.disk ? t->node.disk - have.disk : 0;
}

struct thrift thriftiest(struct finder *f, const struct job *j, const struct shape_of_ranks *shape,
    const struct machine *mc, struct node_bytes have)
{
    struct thrift best = {.short_by = INT64_MAX};
    double best_share = INFINITY;
    struct thrifts *all = thrifts_for(f, j, shape);
    for (size_t i = 0; i < all->n && best.short_by > 0; i++) {
        struct thrifty *t = &all->items[i];
        /* states alone already miss by as much as the best so far */
        double least = (double)t->state_bytes + mc->external_bytes - (double)mc->hw.memory_bytes;
        if (!machine_computes(mc, t->strategy.precision) ||
            (best.short_by < INT64_MAX &&
                share_missing(mc, have, MEMORY_DEVICE, least) >= best_share) ||
            !know_bytes(t, j, mc))
            continue;
        enum memory where;
        int64_t missing = short_by(t, mc, have, &where);
        double share = share_missing(mc, have, where, (double)missing);
        if (share >= best_share && best.short_by < INT64_MAX)
            continue;
        best = (struct thrift){
            t->live.of[MEMORY_DEVICE], missing, where, t->strategy, t->live, t->place};
        best_share = share;
    }
    return best;
}

/* Of a cell of the group, whose memory is the same on any number of nodes. */
static const struct machine *machine_for(const struct finder *f, const struct group *g)
{
    return &f->tracks[f->cells[g->first_cell + g->n_cells - 1].track].machine;
}

static struct node_bytes node_of(const struct group *g)
{
    return (struct node_bytes){g->hw.ram_bytes, g->hw.nvme_bytes};
}

static bool would_fit(struct finder *f, const struct group *g, const struct job *j, int64_t nodes)
{
    int64_t ranks = nodes * g->hw.ranks_per_node;
    struct shape_of_ranks shape = {ranks, g->hw.ranks_per_node, g->hw.is_gpu};
    if (job_step_sequences(j) % ranks != 0)
        return false;
    struct strategy least = strategy_default(STRATEGY_ZERO3, ranks, shape.ranks_per_node);
    struct unit_elems elems = space_unit_elems(&j->model, ranks);
    bool is_bundled = profile_of(j->engine)->is_bundled;
    if (g->hw.is_gpu)
        least.offload = OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS;
    if (is_bundled && space_state_bytes(&elems, &least) > g->hw.memory_bytes)
        return false;
    return thriftiest(f, j, &shape, machine_for(f, g), node_of(g)).short_by == 0;
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
    const int64_t have[MEMORY_COUNT] = {g->hw.memory_bytes, g->hw.ram_bytes, g->hw.nvme_bytes};
    const char *per = t->where != MEMORY_DEVICE ? "node" : g->hw.is_gpu ? "GPU" : "rank";
    snprintf(out, SEARCH_TEXT, "%s of %s per %s",
        units_bytes_up(bytes, (double)(have[t->where] + t->short_by)), shortage_word(t->where),
        per);
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

/* What fits has the optimizer's states on disk, and other hardware does without: a step of the
 * thriftiest strategy, in which computing takes longest, says whether that is too slow. */
static double disk_share(struct finder *f, struct track *track, const struct thrift *t)
{
    struct estimate x;
    if (track->disk_share > 0 && track->disk_place == t->place)
        return track->disk_share;
    if (estimate_quick(&x, &f->in->job->model, &t->strategy, &track->machine, NULL))
        return 0;
    track->disk_place = t->place;
    track->disk_share = estimate_disk_share(&x);
    return track->disk_share;
}

static void reject_for_disk(struct finder *f, const struct group *g, const struct thrift *t)
{
    const struct cell *last = &f->cells[g->first_cell + g->n_cells - 1];
    struct hardware hw = cell_hardware(f, last);
    char what[64], why[SEARCH_TEXT];
    if (!(t->strategy.offload & OFFLOAD_DISK))
        return;
    double share = disk_share(f, &f->tracks[last->track], t);
    if (share <= SEARCH_MOST_ON_DISK)
        return;
    snprintf(why, sizeof why,
        "refused: it fits only with the optimizer's states on NVMe, for which a step waits %.0f %% "
        "of its time, more than half, and other offers do without",
        100 * share);
    struct rejection *r = reject(f, hardware_text(&hw, what), why);
    r->offers += g->n_offers - 1;
}

/* No strategy of the group fits: by how much on most nodes, and what would. */
static void reject_for_memory(struct finder *f, const struct group *g)
{
    const struct cell *last = &f->cells[g->first_cell + g->n_cells - 1];
    int64_t ranks = last->nodes * g->hw.ranks_per_node;
    struct shape_of_ranks shape = {ranks, g->hw.ranks_per_node, g->hw.is_gpu};
    struct thrift t = thriftiest(f, f->in->job, &shape, machine_for(f, g), node_of(g));
    if (t.short_by == INT64_MAX) {
        reject_for_want(f, g, last->nodes);
        return;
    }
    if (t.short_by == 0) { /* it fits, but was not worth trying */
        reject_for_disk(f, g, &t);
        return;
    }
    struct hardware hw = g->hw;
    hw.nodes = last->nodes;
    char what[64], why[SEARCH_TEXT], need[UNITS_TEXT], miss[UNITS_TEXT];
    static const char *const than[MEMORY_COUNT] = {
        "too much", "more than it has", "more than it has"};
    static const char *const of[MEMORY_COUNT] = {"", " of host memory", " of disk"};
    const int64_t has[MEMORY_COUNT] = {
        t.peak_bytes - t.short_by, g->hw.ram_bytes, g->hw.nvme_bytes};
    bool is_moved = t.strategy.offload != OFFLOAD_NONE;
    snprintf(why, sizeof why,
        "does not fit: the thriftiest strategy (%s%s%s) needs %s%s per %s, %s %s",
        strategy_kind_name(t.strategy.kind), is_moved ? ", offload " : "",
        is_moved ? offload_name(t.strategy.offload) : "",
        units_bytes(need, (double)(has[t.where] + t.short_by)), of[t.where],
        t.where != MEMORY_DEVICE ? "node"
        : g->hw.is_gpu           ? "GPU"
                                 : "rank",
        units_bytes(miss, (double)t.short_by), than[t.where]);
    struct rejection *r = reject(f, hardware_text(&hw, what), why);
    r->offers += g->n_offers - 1;
    r->shortage = shortage_of(t.where);
    r->short_by = (double)t.short_by;
    suggest(f, g, last->nodes, &t, r->nearest_change);
}

void reject_group(struct finder *f, size_t group)
{
    const struct group *g = &f->groups[group];
    bool has_best = false;
    for (size_t k = 0; k < g->n_cells; k++) {
        const struct cell *c = &f->cells[g->first_cell + k];
        has_best = has_best || (c->best && !c->is_refused);
    }
    if (has_best)
        reject_for_stops(f, group);
    if (has_best)
        reject_for_limits(f, group);
    else if (g->n_cells > 0)
        reject_for_memory(f, g);
}
