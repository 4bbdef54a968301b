#include "engine/ops_fp8.h"

#include <string.h>

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

static void put_unit(uint8_t *q, int64_t elems, float unit)
{
    if (q)
        memcpy(q + schedule_fp8_unit_at(elems), &unit, sizeof(unit));
}

static void cast_fp8(const struct cast *c)
{
    int64_t elems = c->op->dim[0] * c->op->dim[1], orders = c->op->dim[3];
    float amax = 0;
    int next = 1;
    struct k_quantise a = {.type = c->type,
        .format = c->op->dim[2] == FP8_E5M2 ? K_E5M2 : K_E4M3,
        .rows = c->op->dim[0],
        .cols = c->op->dim[1],
        .x = c->arg[0]};
    if (orders & FP8_KNOWN_AMAX)
        amax = (float)*(const double *)c->arg[next++];
    else
        c->x->kernels->amax(c->pool, c->type, a.x, elems, &amax);
    a.unit = kernels_fp8_unit(a.format, amax);
    if (orders & FP8_PLAIN)
        a.q = c->arg[next++];
    if (orders & FP8_TRANSPOSED)
        a.transposed = c->arg[next];
    c->x->kernels->quantise(c->pool, &a);
    put_unit(a.q, elems, a.unit);
    put_unit(a.transposed, elems, a.unit);
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
    float amax[SCHEDULE_LINEARS] = {0};
    double *out = c->arg[1];
    for (int i = 0; i < u->n; i++) {
        struct held h = held_of(c, &u->tensor[i]);
        int linear = schedule_linear_of(u->tensor[i].role);
        if (linear >= 0 && h.n > 0)
            c->x->kernels->amax(c->pool, c->type, (const char *)c->arg[0] + (size_t)h.at * size,
                h.n, &amax[linear]);
    }
    for (int i = 0; i < SCHEDULE_LINEARS; i++)
        out[i] = (double)amax[i];
}

/* --- gradients --- */

static void grad_amax(const struct cast *c)
{
    const struct unit_layout *u = unit_of(c);
    const float *grad = c->arg[0];
    double *out = c->arg[1];
    for (int i = 0; i < u->n; i++) {
        struct held h = held_of(c, &u->tensor[i]);
        float amax = 0;
        if (h.n > 0)
            c->x->kernels->amax(c->pool, K_FP32, grad + h.at, h.n, &amax);
        out[i] = (double)amax;
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
        memset(q + at, 0, (size_t)(h.at - at));
        struct k_quantise a = {.format = K_E4M3,
            .rows = 1,
            .cols = h.n,
            .unit = kernels_fp8_unit(K_E4M3, (float)amax[i]),
            .x = grad + h.at,
            .q = q + h.at};
        c->x->kernels->quantise(c->pool, &a);
        at = h.at + h.n;
    }
    memset(q + at, 0, (size_t)(c->op->dim[0] - at));
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
        memset(grad + at, 0, (size_t)(h.at - at) * sizeof(*grad));
        c->x->kernels->fp8_to_fp32(
            c->pool, K_E4M3, grad + h.at, q + h.at, kernels_fp8_unit(K_E4M3, (float)amax[i]), h.n);
        at = h.at + h.n;
    }
    memset(grad + at, 0, (size_t)(c->op->dim[0] - at) * sizeof(*grad));
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
