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

/* --- no memory --- */

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
    struct unit_elems elems = space_unit_elems(&j->model, &least);
    strategy_take_optimizer(&least, job_optimizer(j));
    least.master_bytes = j->master_bytes;
    strategy_take_moments(&least, j->moment_form);
    bool is_bundled = profile_of(j->engine)->is_bundled;
    if (g->hw.is_gpu)
        least.offload = OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS;
    if (is_bundled && space_state_bytes(&elems, &least) > g->hw.memory_bytes)
        return false;
    return thrifty_fits(f, j, &shape, machine_for(f, g), node_of(g));
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
    if (!j->allow_bf16 && !j->allow_fp8 && would_fit(f, g, &changed, nodes)) {
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
    if (track->disk_of != t->of)
        track->disk_share = thrifty_disk_share(t->of, &f->in->job->model, &track->machine);
    track->disk_of = t->of;
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
        "refused: it fits only with the optimizer's states%s on NVMe, for which a step waits %.0f "
        "%% of its time, more than half, and other offers do without",
        t->strategy.offload & OFFLOAD_PARAMETERS ? " and parameters" : "", 100 * share);
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
