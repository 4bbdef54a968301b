/* The least that a job can do with: of the strategies that save most, the one that comes nearest to
 * fitting, and whether any fits. */
#include <math.h>

#include "base/alloc.h"
#include "planner/search_cells.h"

/* The strategies that save most of what jobs alike have on a shape, and their bytes as far as
 * anybody asked. */
struct thrifty {
    struct strategy strategy;
    size_t place; /* in the space */
    int64_t state_bytes;
    double least_bytes; /* of the device; 0: no bound is known */
    struct node_bytes least_node;
    enum { BYTES_UNKNOWN, BYTES_KNOWN, BYTES_NEVER } known;
    struct live_bytes live;
    struct node_bytes node;
    struct prepared *prepared; /* NULL: no seconds were asked for */
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
        for (size_t i = 0; i < t->n; i++)
            prepared_free(t->items[i].prepared);
        free(t->items);
        free(t);
        t = next;
    }
}

/* Where the job leaves the search a choice. */
static bool is_thrifty(const struct strategy *s, const struct job *j)
{
    bool is_freed = j->reshard[0] || (s->reshard_after_forward && s->reshard_above_bytes == 0);
    bool is_spare = s->prefetch == 1 && is_freed && (s->loss_chunks > 1 || s->seq < 8);
    return s->micro_batch == 1 && (j->recompute[0] || s->recompute == RECOMPUTE_FULL) &&
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

/* Of other engines nothing is known. */
static void bound_thrifty(
    struct thrifty *t, const struct bounds *b, size_t i, const struct model *m)
{
    struct unit_elems elems = space_unit_elems(m, &t->strategy);
    t->state_bytes = space_state_bytes(&elems, &t->strategy);
    t->least_bytes = bounds_live_bytes(b, i);
    t->least_node = bounds_node_bytes(b, i);
}

static void keep_thrifty(struct space *space, const struct job *j)
{
    size_t n = 0;
    for (size_t i = 0; i < space->n; i++)
        if (is_thrifty(&space->items[i], j))
            space->items[n++] = space->items[i];
    space->n = n;
}

static void add_thrifty(struct thrifts *t, const struct job *j, struct works *works, int stage)
{
    struct space space;
    struct bounds *bounds = NULL;
    space_make(&space, j, &t->shape, (enum space_stage)stage);
    keep_thrifty(&space, j);
    if (profile_of(j->engine)->is_bundled &&
        bounds_new(&bounds, works, &space, t->shape.is_gpu, NULL))
        bounds = NULL;
    t->items = base_realloc(t->items, (t->n + space.n + 1) * sizeof *t->items);
    for (size_t i = 0; i < space.n; i++) {
        t->items[t->n] =
            (struct thrifty){.strategy = estimate_least(&space.items[i], &j->model), .place = t->n};
        if (bounds)
            bound_thrifty(&t->items[t->n], bounds, i, &j->model);
        t->n++;
    }
    bounds_free(bounds);
    space_release(&space);
}

/* Those with the smallest states first: they mostly are the thriftiest, and rule the others out.
 * States on disk come last, since they are for where nothing else fits. */
static struct thrifts *thrifts_new(
    struct finder *f, const struct job *j, const struct shape_of_ranks *shape)
{
    struct thrifts *t = base_calloc(1, sizeof *t);
    bool is_other = j->seq != f->in->job->seq;
    struct works *works = is_other ? works_new(&j->model, j->seq) : f->works;
    *t = (struct thrifts){.shape = *shape, .seq = j->seq, .allow_bf16 = j->allow_bf16};
    for (int stage = SPACE_USUAL; stage < SPACE_STAGES; stage++)
        add_thrifty(t, j, works, stage);
    if (t->n > 0)
        qsort(t->items, t->n, sizeof *t->items, by_state_bytes);
    if (is_other)
        works_free(works);
    return t;
}

static struct thrifts *thrifts_for(
    struct finder *f, const struct job *j, const struct shape_of_ranks *shape)
{
    for (struct thrifts *t = f->thrifts; t; t = t->next)
        if (t->shape.ranks == shape->ranks && t->shape.ranks_per_node == shape->ranks_per_node &&
            t->shape.is_gpu == shape->is_gpu && t->seq == j->seq && t->allow_bf16 == j->allow_bf16)
            return t;
    struct thrifts *t = thrifts_new(f, j, shape);
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
            int64_t needed = estimate_needed_bytes(&x, mc), least = (int64_t)t->least_bytes;
            t->live.of[MEMORY_DEVICE] = needed > least ? needed : least;
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
        /* surely misses by as much as the best so far */
        double least = t->least_bytes + mc->external_bytes - (double)mc->hw.memory_bytes;
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
        best = (struct thrift){t->live.of[MEMORY_DEVICE], missing, where, t->strategy, t->live, t};
        best_share = share;
    }
    return best;
}

static bool may_hold(const struct thrifty *t, const struct machine *mc, struct node_bytes have)
{
    return t->least_bytes <= (double)capacity_of(mc, have, MEMORY_DEVICE) &&
           (have.host == 0 || t->least_node.host <= have.host) && t->least_node.disk <= have.disk &&
           machine_computes(mc, t->strategy.precision);
}

bool thrifty_fits(struct finder *f, const struct job *j, const struct shape_of_ranks *shape,
    const struct machine *mc, struct node_bytes have)
{
    struct thrifts *all = thrifts_for(f, j, shape);
    enum memory where;
    for (size_t i = 0; i < all->n; i++) {
        struct thrifty *t = &all->items[i];
        if (may_hold(t, mc, have) && know_bytes(t, j, mc) && short_by(t, mc, have, &where) == 0)
            return true;
    }
    return false;
}

/* Prepared once for all machines of the shape. */
double thrifty_disk_share(struct thrifty *t, const struct model *m, const struct machine *mc)
{
    struct estimate x;
    if (!t->prepared && prepared_make(&t->prepared, m, &t->strategy, false, NULL))
        return 0;
    prepared_estimate(&x, t->prepared, mc);
    return estimate_disk_share(&x);
}
