#include "engine/update_cpu.h"

#include <math.h>
#include <string.h>

#include "engine/comm.h"
#include "engine/random.h"
#include "kernels/kernels.h"

/* What an operation updates: elements first .. first + elems of a unit. Pointers are to the first.
 */
struct update {
    const struct op_context *x;
    struct pool *pool;
    bool is_sgd;
    int64_t first, elems;
    const float *grad;
    float *m, *v; /* v: AdamW's */
    struct k_weights weights;
    void *copy; /* parameters in use, where they are beside the weights; NULL */
    double clip;
    bool skip;
};

static double clip_factor(const struct op_context *x, double norm)
{
    return x->clip_norm > 0 && norm > x->clip_norm ? x->clip_norm / (norm + 1e-6) : 1;
}

/* The same on every rank: loss and norm are sums over all of them by now. */
static bool is_accepted(const struct op_context *x, const double *scalars)
{
    double norm = sqrt(scalars[SCALAR_SQUARES]);
    double loss = scalars[SCALAR_LOSS_SUM] / scalars[SCALAR_TARGETS];
    return isfinite(norm) && norm <= x->max_grad_norm && !(loss > x->max_loss);
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

static void run_adamw(const struct update *p, int64_t at, int64_t elems, double weight_decay)
{
    const struct op_context *x = p->x;
    struct k_adamw a = {.elems = elems,
        .grad = p->grad + at,
        .m = p->m + at,
        .v = p->v + at,
        .weights = weights_from(p, at),
        .lr = x->lr,
        .beta1 = x->beta1,
        .beta2 = x->beta2,
        .eps = x->eps,
        .weight_decay = weight_decay,
        .clip = p->clip,
        .step = x->step,
        .skip = p->skip};
    x->kernels->adamw(p->pool, &a);
}

static void run_sgd(const struct update *p, int64_t at, int64_t elems, double weight_decay)
{
    const struct op_context *x = p->x;
    struct k_sgd a = {.elems = elems,
        .grad = p->grad + at,
        .m = p->m + at,
        .weights = weights_from(p, at),
        .lr = x->lr,
        .momentum = x->momentum,
        .weight_decay = weight_decay,
        .clip = p->clip,
        .skip = p->skip};
    x->kernels->sgd(p->pool, &a);
}

/* held: the argument in the place of the master copy; copy: the last one, NULL without. */
static struct k_weights weights_of(
    const struct op_context *x, int unit, int64_t first, void *held, void *copy)
{
    const struct strategy *s = &x->schedule->strategy;
    struct k_weights w = {.first = first};
    if (s->precision == PRECISION_FP32 || s->master_bytes == MASTER_FP32) {
        w.master = held;
        w.param = s->precision == PRECISION_BF16 ? copy : NULL;
    } else if (s->master_bytes == MASTER_SPLIT) {
        w.form = K_WEIGHTS_SPLIT;
        w.low = held;
        w.param = copy;
    } else {
        w.form = K_WEIGHTS_PURE;
        w.param = held;
        w.key = random_bits(random_bits(x->seed, (uint64_t)x->step), (uint64_t)unit);
    }
    return w;
}

/* The arguments in their order. */
static struct update take_arguments(
    const struct op_context *x, const struct op *op, void *const *arg, struct pool *pool)
{
    struct update p = {
        .x = x, .pool = pool, .is_sgd = op->kind == OP_SGD, .elems = op->dim[0], .grad = *arg++};
    void *held = *arg++;
    p.m = *arg++;
    p.v = p.is_sgd ? NULL : *arg++;
    const double *scalars = *arg++;
    p.clip = clip_factor(x, sqrt(scalars[SCALAR_SQUARES]));
    p.skip = x->is_warm_up || !is_accepted(x, scalars);
    bool is_whole = op->dim[0] == x->schedule->unit[op->unit].elems;
    if (!is_whole)
        p.first = schedule_part_of(x->schedule, comm_rank(x->comm)) * op->dim[0];
    p.copy = op->n_args > (p.is_sgd ? 4 : 5) ? *arg : NULL;
    p.weights = weights_of(x, op->unit, p.first, held, p.copy);
    return p;
}

void update_cpu(
    const struct op_context *x, const struct op *op, void *const *arg, struct pool *pool)
{
    const struct unit_layout *u = &x->schedule->unit[op->unit];
    struct update p = take_arguments(x, op, arg, pool);
    for (int64_t at = p.first, end = p.first + p.elems; at < end;) {
        bool is_decayed;
        int64_t stop = decay_run(u, at, end, &is_decayed);
        double decay = is_decayed ? x->weight_decay : 0;
        (p.is_sgd ? run_sgd : run_adamw)(&p, at - p.first, stop - at, decay);
        at = stop;
    }
    if (p.copy && !p.weights.param)
        memcpy(p.copy, p.weights.master, (size_t)p.elems * sizeof(float));
}
