#include "engine/update_cpu.h"

#include "engine/comm.h"
#include "engine/moment.h"
#include "engine/random.h"
#include "kernels/kernels.h"

/* What an operation updates: elements first .. first + elems of a unit. Pointers are to the first.
 */
struct update {
    const struct op_context *x;
    struct pool *pool;
    bool is_sgd;
    int unit;
    int64_t first, elems;
    const float *grad;
    char *m, *v; /* v: AdamW's */
    struct k_weights weights;
    void *copy; /* parameters in use, where they are beside the weights; NULL */
    struct k_gate gate;
    uint64_t key; /* of what is rounded at random in the unit and step */
};

/* A range of it that has one weight decay and one scale of moments, or blocks that follow. */
struct run {
    int64_t at, elems; /* from the first element on */
    struct k_moment m, v;
    double weight_decay;
};

/* The same on every rank: loss and norm are sums over all of them by now. */
static struct k_gate gate_of(const struct op_context *x, const double *scalars)
{
    return (struct k_gate){.squares = &scalars[SCALAR_SQUARES],
        .loss_sum = &scalars[SCALAR_LOSS_SUM],
        .targets = &scalars[SCALAR_TARGETS],
        .clip_norm = x->clip_norm,
        .max_norm = x->max_grad_norm,
        .max_loss = x->max_loss};
}

/* Runs of one weight decay inside [first, first + elems) of the unit: matrices decay, vectors do
 * not, gaps hold zeros and may do either. */
static int64_t decay_run(const struct unit_layout *u, int64_t from, int64_t end, bool *is_decayed)
{
    *is_decayed = false;
    int64_t stop = end;
    for (int i = 0; i < u->n; i++) {
        const struct tensor *t = &u->tensor[i];
        int64_t t_end = t->offset + t->rows * t->cols;
        if (from >= t->offset && from < t_end) {
            *is_decayed = t->is_decayed;
            return t_end < end ? t_end : end;
        }
        if (t->offset > from && t->offset < stop)
            stop = t->offset;
    }
    return stop;
}

static struct k_weights weights_from(const struct update *p, int64_t at)
{
    struct k_weights w = p->weights;
    w.master = w.master ? w.master + at : NULL;
    w.param = w.param ? w.param + at : NULL;
    w.low = w.low ? w.low + at : NULL;
    w.first += at;
    return w;
}

static void run_adamw(const struct update *p, const struct run *r)
{
    const struct op_context *x = p->x;
    struct k_adamw a = {.elems = r->elems,
        .grad = p->grad + r->at,
        .m = r->m,
        .v = r->v,
        .weights = weights_from(p, r->at),
        .lr = x->lr,
        .beta1 = x->beta1,
        .beta2 = x->beta2,
        .eps = x->eps,
        .weight_decay = r->weight_decay,
        .gate = p->gate,
        .step = x->step,
        .skip = x->is_warm_up};
    x->kernels->adamw(p->pool, &a);
}

static void run_sgd(const struct update *p, const struct run *r)
{
    const struct op_context *x = p->x;
    struct k_sgd a = {.elems = r->elems,
        .grad = p->grad + r->at,
        .m = r->m,
        .weights = weights_from(p, r->at),
        .lr = x->lr,
        .momentum = x->momentum,
        .weight_decay = r->weight_decay,
        .gate = p->gate,
        .skip = x->is_warm_up};
    x->kernels->sgd(p->pool, &a);
}

/* A moment of elements of the unit from at on; returns where they end. */
static int64_t take_moment(
    struct k_moment *out, const struct update *p, bool is_square, int64_t at, int64_t end)
{
    char *base = is_square ? p->v : p->m;
    if (p->x->schedule->strategy.moment_form == MOMENT_FP32) {
        *out = (struct k_moment){.fp32 = (float *)(void *)base + (at - p->first)};
        return end;
    }
    struct moment_place place = {.schedule = p->x->schedule,
        .unit = p->unit,
        .is_square = is_square,
        .first = p->first,
        .elems = p->elems,
        .base = base,
        .key = random_bits(p->key, is_square ? 2 : 1)};
    return moment_run(out, &place, at, end);
}

/* In the gaps between tensors everything is zero and stays so. */
static int64_t update_from(const struct update *p, int64_t at)
{
    const struct unit_layout *u = &p->x->schedule->unit[p->unit];
    bool is_decayed;
    struct run r = {.at = at - p->first};
    int64_t end = decay_run(u, at, p->first + p->elems, &is_decayed);
    end = take_moment(&r.m, p, false, at, end);
    if (!p->is_sgd)
        take_moment(&r.v, p, true, at, end);
    r.elems = end - at;
    r.weight_decay = is_decayed ? p->x->weight_decay : 0;
    if (r.m.fp32 || r.m.code)
        (p->is_sgd ? run_sgd : run_adamw)(p, &r);
    return end;
}

/* held: the argument in the place of the master copy. */
static struct k_weights weights_of(const struct update *p, void *held)
{
    const struct strategy *s = &p->x->schedule->strategy;
    struct k_weights w = {.first = p->first};
    void *copy = p->copy;
    if (s->precision == PRECISION_FP32 || s->master_bytes == MASTER_FP32) {
        w.master = held;
        w.param = s->precision != PRECISION_FP32 ? copy : NULL;
    } else if (s->master_bytes == MASTER_SPLIT) {
        w.form = K_WEIGHTS_SPLIT;
        w.low = held;
        w.param = copy;
    } else {
        w.form = K_WEIGHTS_PURE;
        w.param = held;
        w.key = p->key;
    }
    return w;
}

/* The arguments in their order. */
static struct update take_arguments(
    const struct op_context *x, const struct op *op, void *const *arg, struct pool *pool)
{
    struct update p = {.x = x,
        .pool = pool,
        .is_sgd = x->schedule->strategy.optimizer == OPTIMIZER_SGD,
        .elems = op->dim[0],
        .grad = *arg++};
    p.unit = op->unit;
    void *held = *arg++;
    p.m = *arg++;
    p.v = p.is_sgd ? NULL : *arg++;
    const double *scalars = *arg++;
    p.gate = gate_of(x, scalars);
    bool is_whole = op->dim[0] == x->schedule->unit[op->unit].elems;
    if (!is_whole)
        p.first = schedule_part_of(x->schedule, comm_rank(x->comm)) * op->dim[0];
    p.copy = op->n_args > (p.is_sgd ? 4 : 5) ? *arg : NULL;
    p.key = random_bits(random_bits(x->seed, (uint64_t)x->step), (uint64_t)op->unit);
    p.weights = weights_of(&p, held);
    return p;
}

void update_cpu(
    const struct op_context *x, const struct op *op, void *const *arg, struct pool *pool)
{
    struct update p = take_arguments(x, op, arg, pool);
    for (int64_t at = p.first, end = p.first + p.elems; at < end;)
        at = update_from(&p, at);
    if (p.copy && !p.weights.param)
        x->kernels->copy(pool, p.copy, p.weights.master, p.elems * (int64_t)sizeof(float));
}
