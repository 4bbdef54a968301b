/* Jobs that only nodes of two offers together could run: said, with the reason why it is not done.
 *
 * Nodes of one plan come from one offer and its fabric. Ranks hold equal shares and wait for each
 * other in every collective, so of unequal GPUs the smaller memory bounds the shares and the slower
 * GPU sets the pace; no network is known between nodes of two offers. */
#include <math.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/hardware.h"
#include "planner/search_cells.h"

/* Offers with the most memory are looked at, and so many pairs of node counts in all. */
enum { MOST_SIDES = 8, MOST_MIXES = 64 };

/* Nodes of one offer. */
struct side {
    const struct group *group;
    const struct offer *offer;
    const struct machine *machine;
    int64_t nodes;
    double memory_bytes; /* of all its nodes */
};

struct mix {
    const struct side *a, *b; /* a has the more memory */
    int64_t a_nodes, b_nodes;
    double pace;  /* of the slower GPU, over that of the faster one */
    bool is_late; /* it is time that neither has, else memory */
};

static double pace_of(const struct finder *f, const struct side *s)
{
    enum precision p = f->in->job->precision;
    return s->machine->peak_flops[p] * s->machine->matmul_efficiency[p];
}

static int by_memory(const void *pa, const void *pb)
{
    const struct side *a = pa, *b = pb;
    if (a->memory_bytes < b->memory_bytes || a->memory_bytes > b->memory_bytes)
        return a->memory_bytes > b->memory_bytes ? -1 : 1;
    return (a->offer > b->offer) - (a->offer < b->offer);
}

/* Each offer of a group that has cells. Caller frees. */
static struct side *sides_of(const struct finder *f, size_t *n)
{
    struct side *all = base_calloc(offers_count(f->in->offers) + 1, sizeof *all);
    *n = 0;
    for (size_t i = 0; i < f->n_groups; i++) {
        const struct group *g = &f->groups[i];
        for (size_t k = 0; g->n_cells > 0 && k < g->n_offers; k++) {
            const struct offer *o = offers_at(f->in->offers, g->offers[k]);
            int64_t nodes = hardware_max_nodes(o);
            const struct track *t = &f->tracks[f->cells[g->first_cell].track];
            double memory = (double)(nodes * g->hw.ranks_per_node) * (double)g->hw.memory_bytes;
            all[(*n)++] = (struct side){g, o, &t->machine, nodes, memory};
        }
    }
    if (*n > 0)
        qsort(all, *n, sizeof *all, by_memory);
    *n = *n < MOST_SIDES ? *n : MOST_SIDES;
    return all;
}

static int64_t ranks_of(const struct mix *x)
{
    return x->a_nodes * x->a->group->hw.ranks_per_node +
           x->b_nodes * x->b->group->hw.ranks_per_node;
}

static bool is_allowed(const struct finder *f, const struct mix *x)
{
    int64_t ranks = ranks_of(x), most = f->in->job->max_gpus;
    return ranks <= SEARCH_MAX_RANKS && (most <= 0 || ranks <= most) &&
           job_step_sequences(f->in->job) % ranks == 0;
}

/* Equal shares on the smaller GPU's memory and the smaller node's. */
static bool would_hold(struct finder *f, const struct mix *x)
{
    const struct hardware *a = &x->a->group->hw, *b = &x->b->group->hw;
    const struct side *less = a->memory_bytes <= b->memory_bytes ? x->a : x->b;
    int64_t per_node =
        a->ranks_per_node < b->ranks_per_node ? a->ranks_per_node : b->ranks_per_node;
    int64_t ranks = ranks_of(x);
    struct node_bytes have = {a->ram_bytes < b->ram_bytes ? a->ram_bytes : b->ram_bytes,
        a->nvme_bytes < b->nvme_bytes ? a->nvme_bytes : b->nvme_bytes};
    struct shape_of_ranks shape = {ranks, per_node, a->is_gpu};
    if (ranks % per_node != 0)
        return false;
    return thrifty_fits(f, f->in->job, &shape, less->machine, have);
}

/* The least of b beside all of a, or the least of a beside all of b, that would do. */
static bool find_nodes(struct finder *f, struct mix *x, int *tries)
{
    for (int swap = 0; swap < 2; swap++) {
        int64_t most = swap ? x->a->nodes : x->b->nodes;
        for (int64_t n = 1; n <= most && *tries < MOST_MIXES; n++) {
            x->a_nodes = swap ? n : x->a->nodes;
            x->b_nodes = swap ? x->b->nodes : n;
            if (!is_allowed(f, x))
                continue;
            ++*tries;
            if (would_hold(f, x))
                return true;
        }
    }
    return false;
}

/* Seconds that all nodes of both would take at best: the steps of the slower one, shared by all. */
static double seconds_together(const struct finder *f, const struct mix *x)
{
    const struct side *slow = pace_of(f, x->a) <= pace_of(f, x->b) ? x->a : x->b;
    struct bill b;
    int64_t ranks;
    if (!ranking_fastest(f->ranking, slow->offer, &b, &ranks))
        return INFINITY;
    double steps_s = b.line_s[BILL_MID][BILL_STEPS];
    return b.run_s[BILL_MID] - steps_s + steps_s * (double)ranks / (double)ranks_of(x);
}

static bool would_be_in_time(const struct finder *f, struct mix *x)
{
    x->a_nodes = x->a->nodes;
    x->b_nodes = x->b->nodes;
    return is_allowed(f, x) && seconds_together(f, x) <= f->in->job->deadline_s;
}

static bool is_better(const struct mix *x, const struct mix *best)
{
    if (!best->a || x->pace > best->pace)
        return true;
    return x->pace >= best->pace && ranks_of(x) < ranks_of(best);
}

static void add_nodes(struct str *out, const struct side *s, int64_t nodes)
{
    const struct hardware *hw = &s->group->hw;
    str_addf(out, "%lld x %lld %s", (long long)nodes, (long long)hw->ranks_per_node,
        hw->is_gpu ? hw->gpu : "CPU ranks");
}

static void say(struct finder *f, const struct mix *x)
{
    const struct hardware *a = &x->a->group->hw, *b = &x->b->group->hw;
    const char *fast = pace_of(f, x->a) >= pace_of(f, x->b) ? a->gpu : b->gpu;
    struct str what = STR_INIT, why = STR_INIT;
    str_addf(&what, "%s %s with %s %s", x->a->offer->provider, x->a->offer->id,
        x->b->offer->provider, x->b->offer->id);
    add_nodes(&why, x->a, x->a_nodes);
    str_add(&why, " and ");
    add_nodes(&why, x->b, x->b_nodes);
    str_addf(&why, " together would %s, but ", x->is_late ? "be in time at best" : "hold it");
    if (a->is_gpu && strcmp(a->gpu, b->gpu) != 0)
        str_addf(&why,
            "unequal GPUs are not mixed: the slowest sets the pace, %.0f %% of what %s "
            "can",
            100 * x->pace, fast);
    else
        str_add(&why, "nodes of one plan come from one offer and its fabric");
    reject(f, str_text(&what), str_text(&why));
    str_release(&what);
    str_release(&why);
}

/* Neither is in time alone, nor is anything else: there is no plan. */
static bool is_late_alone(const struct finder *f, const struct side *s)
{
    struct bill b;
    double deadline_s = f->in->job->deadline_s;
    return !ranking_fastest(f->ranking, s->offer, &b, NULL) ||
           (deadline_s > 0 && b.run_s[BILL_MID] > deadline_s);
}

static bool would_do(struct finder *f, struct mix *x, int *tries)
{
    if (!x->is_late)
        return find_nodes(f, x, tries);
    return is_late_alone(f, x->a) && is_late_alone(f, x->b) && would_be_in_time(f, x);
}

void reject_for_mixing(struct finder *f)
{
    size_t n;
    struct side *all = sides_of(f, &n);
    struct mix best = {0};
    int tries = 0;
    bool fits = false; /* something does: then what is missing is time, or money */
    for (size_t i = 0; i < f->n_cells; i++)
        fits = fits || f->cells[i].best;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++) {
            struct mix x = {.a = &all[i], .b = &all[k], .is_late = fits};
            double pa = pace_of(f, x.a), pb = pace_of(f, x.b);
            if (x.a->group->hw.is_gpu != x.b->group->hw.is_gpu || !(pa > 0 && pb > 0))
                continue;
            x.pace = fmin(pa, pb) / fmax(pa, pb);
            if (would_do(f, &x, &tries) && is_better(&x, &best))
                best = x;
        }
    }
    if (best.a)
        say(f, &best);
    free(all);
}
