#include "engine/ops_fp8.h"

#include "engine/comm.h"
#include "kernels/kernels.h"

struct cast {
    const struct op_context *x;
    const struct op *op;
    void *const *arg;
    struct pool *pool;
    enum k_type type; /* of activations and parameters */
};

/* --- activations and weights --- */

/* Behind the bytes of an fp8 tensor. */
static float *unit_of_tensor(uint8_t *q, int64_t elems)
{
    return q ? (float *)(void *)(q + schedule_fp8_unit_at(elems)) : NULL;
}

/* The room behind its unit, for a magnitude that is needed until the cast is done. */
static double *amax_of_tensor(uint8_t *q, int64_t elems)
{
    return (double *)(void *)(q + schedule_fp8_unit_at(elems)) + 1;
}

static const double *find_amax(const struct cast *c, const void *x, int64_t elems, uint8_t *q)
{
    double *amax = amax_of_tensor(q, elems);
    c->x->kernels->zero(c->pool, amax, sizeof(*amax));
    c->x->kernels->amax(c->pool, c->type, x, elems, amax);
    return amax;
}

static void cast_fp8(const struct cast *c)
{
    int64_t elems = c->op->dim[0] * c->op->dim[1], orders = c->op->dim[3];
    double *known = NULL;
    int next = 1;
    struct k_quantise a = {.type = c->type,
        .format = c->op->dim[2] == FP8_E5M2 ? K_E5M2 : K_E4M3,
        .rows = c->op->dim[0],
        .cols = c->op->dim[1],
        .x = c->arg[0]};
    if (orders & FP8_KNOWN_AMAX)
        known = c->arg[next++];
    if (orders & FP8_PLAIN)
        a.q = c->arg[next++];
    if (orders & FP8_TRANSPOSED)
        a.transposed = c->arg[next];
    a.amax = known ? known : find_amax(c, a.x, elems, a.q ? a.q : a.transposed);
    a.unit[0] = unit_of_tensor(a.q, elems);
    a.unit[1] = unit_of_tensor(a.transposed, elems);
    c->x->kernels->quantise(c->pool, &a);
}

/* --- what a rank holds of a unit --- */

/* Of a tensor: where it begins in the rank's elements, and how many it has there. */
struct held {
    int64_t at, n;
};

static const struct unit_layout *unit_of(const struct cast *c)
{
    return &c->x->schedule->unit[c->op->unit];
}

/* dim[0] elements: the whole unit or the own shard. */
static struct held held_of(const struct cast *c, const struct tensor *t)
{
    int64_t elems = c->op->dim[0], end = t->offset + t->rows * t->cols;
    bool is_whole = elems == unit_of(c)->elems;
    int64_t first = is_whole ? 0 : elems * comm_group_rank(c->x->comm, GROUP_SHARD);
    int64_t from = t->offset > first ? t->offset : first;
    int64_t to = end < first + elems ? end : first + elems;
    return (struct held){from - first, to > from ? to - from : 0};
}

static void weight_amax(const struct cast *c)
{
    const struct unit_layout *u = unit_of(c);
    size_t size = c->type == K_BF16 ? 2 : 4;
    double *out = c->arg[1];
    c->x->kernels->zero(c->pool, out, SCHEDULE_LINEARS * (int64_t)sizeof(*out));
    for (int i = 0; i < u->n; i++) {
        struct held h = held_of(c, &u->tensor[i]);
        int linear = schedule_linear_of(u->tensor[i].role);
        if (linear >= 0 && h.n > 0)
            c->x->kernels->amax(
                c->pool, c->type, (const char *)c->arg[0] + (size_t)h.at * size, h.n, &out[linear]);
    }
}

/* --- gradients --- */

static void grad_amax(const struct cast *c)
{
    const struct unit_layout *u = unit_of(c);
    const float *grad = c->arg[0];
    double *out = c->arg[1];
    c->x->kernels->zero(c->pool, out, u->n * (int64_t)sizeof(*out));
    for (int i = 0; i < u->n; i++) {
        struct held h = held_of(c, &u->tensor[i]);
        if (h.n > 0)
            c->x->kernels->amax(c->pool, K_FP32, grad + h.at, h.n, &out[i]);
    }
}

/* Gaps between tensors are zeros in either form. */
static void grad_to_fp8(const struct cast *c)
{
    const struct unit_layout *u = unit_of(c);
    const float *grad = c->arg[0];
    const double *amax = c->arg[1];
    uint8_t *q = c->arg[2];
    int64_t at = 0;
    for (int i = 0; i < u->n; i++) {
        struct held h = held_of(c, &u->tensor[i]);
        if (h.n == 0)
            continue;
        c->x->kernels->zero(c->pool, q + at, h.at - at);
        struct k_quantise a = {.format = K_E4M3,
            .rows = 1,
            .cols = h.n,
            .amax = &amax[i],
            .x = grad + h.at,
            .q = q + h.at};
        c->x->kernels->quantise(c->pool, &a);
        at = h.at + h.n;
    }
    c->x->kernels->zero(c->pool, q + at, c->op->dim[0] - at);
}

static void grad_from_fp8(const struct cast *c)
{
    const struct unit_layout *u = unit_of(c);
    const uint8_t *q = c->arg[0];
    const double *amax = c->arg[1];
    float *grad = c->arg[2];
    int64_t at = 0;
    for (int i = 0; i < u->n; i++) {
        struct held h = held_of(c, &u->tensor[i]);
        if (h.n == 0)
            continue;
        c->x->kernels->zero(c->pool, grad + at, (h.at - at) * (int64_t)sizeof(*grad));
        c->x->kernels->fp8_to_fp32(c->pool, K_E4M3, grad + h.at, q + h.at, &amax[i], h.n);
        at = h.at + h.n;
    }
    c->x->kernels->zero(c->pool, grad + at, (c->op->dim[0] - at) * (int64_t)sizeof(*grad));
}

void ops_fp8_run(
    const struct op_context *x, const struct op *op, void *const *arg, struct pool *pool)
{
    static void (*const run[OP_KIND_COUNT])(const struct cast *) = {
        [OP_CAST_FP8] = cast_fp8,
        [OP_WEIGHT_AMAX] = weight_amax,
        [OP_GRAD_AMAX] = grad_amax,
        [OP_GRAD_TO_FP8] = grad_to_fp8,
        [OP_GRAD_FROM_FP8] = grad_from_fp8,
    };
    bool is_fp32 = x->schedule->strategy.precision == PRECISION_FP32;
    struct cast c = {x, op, arg, pool, is_fp32 ? K_FP32 : K_BF16};
    run[op->kind](&c);
}
