/* What cannot be used: why, by how much, and the nearest change that would do. */
#include <math.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/hardware.h"
#include "planner/search_cells.h"

struct rejection *reject(struct finder *f, const char *what, const char *why)
{
    struct search *s = f->out;
    for (size_t i = 0; i < s->n_rejected; i++) {
        struct rejection *r = &s->rejected[i];
        if (strcmp(r->what, what) == 0 && strcmp(r->why, why) == 0) {
            r->offers++;
            return r;
        }
    }
    BASE_GROW(s->rejected, f->rejected_cap, s->n_rejected + 1);
    struct rejection *r = &s->rejected[s->n_rejected++];
    memset(r, 0, sizeof *r);
    str_copy(r->what, sizeof r->what, what);
    str_copy(r->why, sizeof r->why, why);
    r->offers = 1;
    return r;
}

const char *shortage_unit(enum shortage s)
{
    static const char *const units[] = {NULL, "bytes", "bytes", "usd", "seconds"};
    return units[s];
}

/* --- the least that the job can do with --- */

struct thrift thriftiest(
    const struct job *j, const struct shape_of_ranks *shape, const struct machine *mc)
{
    struct thrift best = {.short_by = INT64_MAX};
    struct space space;
    space_make(&space, j, shape);
    for (size_t i = 0; i < space.n; i++) {
        const struct strategy *s = &space.items[i];
        bool is_thrifty = s->micro_batch == 1 && s->recompute == RECOMPUTE_FULL &&
                          s->prefetch == 1 && s->reshard_after_forward &&
                          (s->loss_chunks > 1 || s->seq < 8);
        /* states alone already miss by as much as the best so far */
        double least = (double)space_state_bytes(&j->model, s) + mc->external_bytes -
                       (double)mc->hw.memory_bytes;
        struct estimate x;
        if (!is_thrifty || !machine_computes(mc, s->precision) || least >= (double)best.short_by ||
            estimate_memory(&x, &j->model, s, mc, NULL))
            continue;
        bool is_host;
        int64_t missing = estimate_short_by(&x, &is_host);
        if (missing < best.short_by)
            best = (struct thrift){x.peak_bytes, missing, is_host, *s, x};
    }
    space_release(&space);
    return best;
}

static enum rc machine_for(
    struct machine *out, const struct finder *f, const struct group *g, int64_t nodes)
{
    struct hardware hw = g->hw;
    hw.nodes = nodes;
    if (nodes > 1 && hw.fabric_bytes_per_s <= 0)
        hw.fabric_bytes_per_s = 1e9;
    return machine_make(out, f->in->rates, &hw, "berth", NULL);
}

static bool would_fit(
    const struct finder *f, const struct group *g, const struct job *j, int64_t nodes)
{
    struct machine mc;
    int64_t ranks = nodes * g->hw.ranks_per_node;
    struct shape_of_ranks shape = {ranks, g->hw.ranks_per_node, g->hw.is_gpu};
    if (job_step_sequences(j) % ranks != 0 || machine_for(&mc, f, g, nodes))
        return false;
    struct strategy least = strategy_default(STRATEGY_ZERO3, ranks, shape.ranks_per_node);
    least.offload = g->hw.is_gpu ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE;
    if (space_state_bytes(&j->model, &least) > g->hw.memory_bytes)
        return false;
    return thriftiest(j, &shape, &mc).short_by == 0;
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

/* No strategy of the group fits: by how much on most nodes, and what would. */
static void reject_for_memory(struct finder *f, const struct group *g)
{
    const struct cell *last = &f->cells[g->first_cell + g->n_cells - 1];
    int64_t ranks = last->nodes * g->hw.ranks_per_node;
    struct shape_of_ranks shape = {ranks, g->hw.ranks_per_node, g->hw.is_gpu};
    struct thrift t = thriftiest(f->in->job, &shape, &last->machine);
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
        has_best = has_best || f->cells[g->first_cell + k].has_best;
    if (has_best)
        reject_for_limits(f, group);
    else if (g->n_cells > 0)
        reject_for_memory(f, g);
}
