#include "engine/ops_cpu.h"

#include <math.h>
#include <string.h>

#include "engine/disk.h"
#include "engine/ops_fp8.h"
#include "engine/ops_wire.h"
#include "engine/update_cpu.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

/* One operation being run; a function per kind reads its arguments in the order the table in
 * planner/schedule.h gives. */
struct run {
    const struct op_context *x;
    const struct op *op;
    void *const *arg;
    struct pool *pool;
    enum k_type type;
    struct err *e;
};

typedef enum rc run_fn(const struct run *r);

static const struct model *model_of(const struct run *r)
{
    return &r->x->schedule->model;
}

static bool has(const struct run *r, enum op_flag flag)
{
    return r->op->flags & flag;
}

/* The argument behind the first n, where documents are packed: places of tokens in them. */
static const int32_t *positions_behind(const struct run *r, int n)
{
    return r->op->n_args > n ? r->arg[n] : NULL;
}

/* --- model operations --- */

static enum rc embed_fwd(const struct run *r)
{
    bool has_wpe = r->op->n_args > 3;
    struct k_embed_fwd a = {.type = r->type,
        .tokens = r->op->dim[0],
        .width = r->op->dim[1],
        .seq = r->op->dim[2],
        .ids = r->arg[0],
        .wte = r->arg[1],
        .wpe = has_wpe ? r->arg[2] : NULL,
        .positions = positions_behind(r, 4),
        .x = r->arg[has_wpe ? 3 : 2]};
    r->x->kernels->embed_fwd(r->pool, &a);
    return RC_OK;
}

static enum rc embed_bwd(const struct run *r)
{
    struct k_embed_bwd a = {.type = r->type,
        .tokens = r->op->dim[0],
        .width = r->op->dim[1],
        .seq = r->op->dim[2],
        .vocab = model_of(r)->vocab,
        .accumulate = has(r, OP_ACCUMULATE),
        .dx = r->arg[0],
        .ids = r->arg[1],
        .dwte = r->arg[2]};
    r->x->kernels->embed_bwd(r->pool, &a);
    return RC_OK;
}

static enum rc position_bwd(const struct run *r)
{
    struct k_embed_bwd a = {.type = r->type,
        .tokens = r->op->dim[0],
        .width = r->op->dim[1],
        .seq = r->op->dim[2],
        .position_rows = model_of(r)->max_positions,
        .accumulate = has(r, OP_ACCUMULATE),
        .dx = r->arg[0],
        .positions = positions_behind(r, 2),
        .dwpe = r->arg[1]};
    r->x->kernels->embed_bwd(r->pool, &a);
    return RC_OK;
}

static enum rc norm_fwd(const struct run *r)
{
    int after = has(r, OP_LAYERNORM) ? 3 : 2;
    struct k_norm_fwd a = {.type = r->type,
        .is_layernorm = has(r, OP_LAYERNORM),
        .rows = r->op->dim[0],
        .width = r->op->dim[1],
        .eps = (float)model_of(r)->norm_eps,
        .x = r->arg[0],
        .w = r->arg[1],
        .b = has(r, OP_LAYERNORM) ? r->arg[2] : NULL,
        .y = r->arg[after],
        .stats = r->arg[after + 1]};
    r->x->kernels->norm_fwd(r->pool, &a);
    return RC_OK;
}

static enum rc norm_bwd(const struct run *r)
{
    struct k_norm_bwd a = {.type = r->type,
        .is_layernorm = has(r, OP_LAYERNORM),
        .overwrite_dx = has(r, OP_OVERWRITE),
        .accumulate_dw = has(r, OP_ACCUMULATE),
        .rows = r->op->dim[0],
        .width = r->op->dim[1],
        .dy = r->arg[0],
        .x = r->arg[1],
        .w = r->arg[2],
        .stats = r->arg[3],
        .dx = r->arg[4],
        .dw = r->arg[5],
        .db = has(r, OP_LAYERNORM) ? r->arg[6] : NULL};
    r->x->kernels->norm_bwd(r->pool, &a);
    return RC_OK;
}

static const float *fp8_unit(const void *q, int64_t elems)
{
    return (const float *)(const void *)((const char *)q + schedule_fp8_unit_at(elems));
}

/* Products of fp8 tensors are NT. */
static void take_fp8(struct k_matmul *a, enum matmul_form form)
{
    a->is_fp8 = form >= MATMUL_FP8;
    if (!a->is_fp8)
        return;
    a->form = K_NT;
    a->a_format = form == MATMUL_FP8_GRAD ? K_E5M2 : K_E4M3;
    a->a_unit = fp8_unit(a->a, a->m * a->k);
    a->b_unit = fp8_unit(a->b, a->n * a->k);
}

static enum rc matmul(const struct run *r)
{
    int next = 4;
    struct k_matmul a = {.type = r->type,
        .form = (enum k_form)r->op->dim[3],
        .accumulate = has(r, OP_ACCUMULATE),
        .out_fp32 = has(r, OP_OUT_FP32),
        .m = r->op->dim[0],
        .n = r->op->dim[1],
        .k = r->op->dim[2],
        .a = r->arg[0],
        .b = r->arg[1],
        .c = r->arg[2],
        .workspace = r->arg[3]};
    if (has(r, OP_BIAS))
        a.bias = r->arg[next++];
    if (has(r, OP_RESIDUAL))
        a.residual = r->arg[next++];
    take_fp8(&a, (enum matmul_form)r->op->dim[3]);
    r->x->kernels->matmul(r->pool, &a);
    return RC_OK;
}

static enum rc cast_fp8(const struct run *r)
{
    ops_fp8_run(r->x, r->op, r->arg, r->pool);
    return RC_OK;
}

static enum rc bias_bwd(const struct run *r)
{
    struct k_bias_bwd a = {.type = r->type,
        .rows = r->op->dim[0],
        .width = r->op->dim[1],
        .accumulate = has(r, OP_ACCUMULATE),
        .dy = r->arg[0],
        .db = r->arg[1]};
    r->x->kernels->bias_bwd(r->pool, &a);
    return RC_OK;
}

static enum rc rope(const struct run *r)
{
    const struct model *m = model_of(r);
    struct k_rope a = {.type = r->type,
        .tokens = r->op->dim[0],
        .seq = r->op->dim[1],
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .head_dim = m->head_dim,
        .table = r->arg[1],
        .positions = positions_behind(r, 2),
        .qkv = r->arg[0]};
    if (r->op->kind == OP_ROPE_FWD)
        r->x->kernels->rope_fwd(r->pool, &a);
    else
        r->x->kernels->rope_bwd(r->pool, &a);
    return RC_OK;
}

static enum rc qk_norm_fwd(const struct run *r)
{
    const struct model *m = model_of(r);
    struct k_qk_norm_fwd a = {.type = r->type,
        .tokens = r->op->dim[0],
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .head_dim = m->head_dim,
        .eps = (float)m->norm_eps,
        .x = r->arg[0],
        .wq = r->arg[1],
        .wk = r->arg[2],
        .qkv = r->arg[3],
        .stats = r->arg[4]};
    r->x->kernels->qk_norm_fwd(r->pool, &a);
    return RC_OK;
}

static enum rc qk_norm_bwd(const struct run *r)
{
    const struct model *m = model_of(r);
    struct k_qk_norm_bwd a = {.type = r->type,
        .accumulate_dw = has(r, OP_ACCUMULATE),
        .tokens = r->op->dim[0],
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .head_dim = m->head_dim,
        .x = r->arg[1],
        .wq = r->arg[2],
        .wk = r->arg[3],
        .stats = r->arg[4],
        .dqkv = r->arg[0],
        .dwq = r->arg[6],
        .dwk = r->arg[7],
        .scratch = r->arg[5]};
    r->x->kernels->qk_norm_bwd(r->pool, &a);
    return RC_OK;
}

static enum rc attn_fwd(const struct run *r)
{
    const struct model *m = model_of(r);
    struct k_attn_fwd a = {.type = r->type,
        .tokens = r->op->dim[0],
        .seq = r->op->dim[1],
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .head_dim = m->head_dim,
        .qkv = r->arg[0],
        .positions = positions_behind(r, 4),
        .out = r->arg[1],
        .lse = r->arg[2]};
    r->x->kernels->attn_fwd(r->pool, &a);
    return RC_OK;
}

static enum rc attn_bwd(const struct run *r)
{
    const struct model *m = model_of(r);
    struct k_attn_bwd a = {.type = r->type,
        .tokens = r->op->dim[0],
        .seq = r->op->dim[1],
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .head_dim = m->head_dim,
        .dout = r->arg[0],
        .qkv = r->arg[1],
        .positions = positions_behind(r, 7),
        .out = r->arg[2],
        .lse = r->arg[3],
        .dqkv = r->arg[4],
        .scratch = r->arg[5]};
    r->x->kernels->attn_bwd(r->pool, &a);
    return RC_OK;
}

static enum rc swiglu_fwd(const struct run *r)
{
    struct k_swiglu_fwd a = {.type = r->type,
        .rows = r->op->dim[0],
        .width = r->op->dim[1],
        .gate_up = r->arg[0],
        .y = r->arg[1]};
    r->x->kernels->swiglu_fwd(r->pool, &a);
    return RC_OK;
}

static enum rc swiglu_bwd(const struct run *r)
{
    struct k_swiglu_bwd a = {.type = r->type,
        .rows = r->op->dim[0],
        .width = r->op->dim[1],
        .dy = r->arg[0],
        .gate_up = r->arg[1],
        .dgate_up = r->arg[2]};
    r->x->kernels->swiglu_bwd(r->pool, &a);
    return RC_OK;
}

static enum rc gelu_fwd(const struct run *r)
{
    struct k_gelu_fwd a = {
        .type = r->type, .elems = r->op->dim[0] * r->op->dim[1], .x = r->arg[0], .y = r->arg[1]};
    r->x->kernels->gelu_fwd(r->pool, &a);
    return RC_OK;
}

static enum rc gelu_bwd(const struct run *r)
{
    struct k_gelu_bwd a = {.type = r->type,
        .elems = r->op->dim[0] * r->op->dim[1],
        .dy = r->arg[0],
        .x = r->arg[1],
        .dx = r->arg[2]};
    r->x->kernels->gelu_bwd(r->pool, &a);
    return RC_OK;
}

static enum rc cross_entropy(const struct run *r)
{
    double *scalars = r->arg[2];
    struct k_cross_entropy a = {.type = r->type,
        .tokens = r->op->dim[0],
        .vocab = r->op->dim[1],
        .divisor = &scalars[SCALAR_TARGETS],
        .logits = r->arg[0],
        .targets = r->arg[1],
        .loss_sum = &scalars[SCALAR_LOSS_SUM]};
    r->x->kernels->cross_entropy(r->pool, &a);
    return RC_OK;
}

static enum rc zero_gaps(const struct run *r)
{
    const struct unit_layout *u = &r->x->schedule->unit[r->op->unit];
    float *grad = r->arg[0];
    int64_t at = 0;
    for (int i = 0; i < u->n; i++) {
        const struct tensor *t = &u->tensor[i];
        memset(grad + at, 0, (size_t)(t->offset - at) * sizeof(*grad));
        at = t->offset + t->rows * t->cols;
    }
    memset(grad + at, 0, (size_t)(u->elems - at) * sizeof(*grad));
    return RC_OK;
}

/* --- collectives and copies --- */

static enum comm_channel channel_of(const struct op *op)
{
    return op->lane == LANE_GATHER   ? CHANNEL_GATHER
           : op->lane == LANE_REDUCE ? CHANNEL_REDUCE
                                     : CHANNEL_COMPUTE;
}

static enum rc all_gather(const struct run *r)
{
    size_t element = r->op->dim[2] ? (size_t)r->op->dim[2] : r->type == K_BF16 ? 2 : 4;
    size_t shard_bytes = (size_t)r->op->dim[1] * element;
    enum op_group g = (enum op_group)r->op->group;
    char *full = has(r, OP_IN_PLACE) ? r->arg[0] : r->arg[1];
    const void *shard = has(r, OP_IN_PLACE)
                            ? full + (size_t)comm_group_rank(r->x->comm, g) * shard_bytes
                            : r->arg[0];
    return comm_all_gather(r->x->comm, channel_of(r->op), g, shard, full, shard_bytes, r->e);
}

static enum rc reduce_one(const struct run *r, const float *full, float *shard, int64_t shard_elems)
{
    return comm_reduce_scatter(r->x->comm, channel_of(r->op), (enum op_group)r->op->group, full,
        shard, shard_elems, has(r, OP_ACCUMULATE), r->arg[2], r->e);
}

/* Units that follow each other, in one go; each is split by itself. */
static enum rc reduce_scatter(const struct run *r)
{
    const struct unit_layout *u = &r->x->schedule->unit[r->op->unit];
    const float *full = r->arg[0];
    float *shard = r->arg[1];
    int64_t me = comm_group_rank(r->x->comm, (enum op_group)r->op->group);
    enum rc rc = RC_OK;
    if (r->op->dim[2] == 0)
        return reduce_one(r, full, shard, r->op->dim[1]);
    for (int64_t i = 0; i < r->op->dim[2] && !rc; i++, u++) {
        bool stays = has(r, OP_IN_PLACE);
        rc = reduce_one(r, full, stays ? shard + me * u->shard_elems : shard, u->shard_elems);
        full += u->elems;
        shard += stays ? u->elems : u->shard_elems;
    }
    return rc;
}

static enum rc all_reduce(const struct run *r)
{
    return comm_all_reduce(r->x->comm, channel_of(r->op), (enum op_group)r->op->group, r->arg[0],
        r->op->dim[0], r->arg[1], r->e);
}

static enum rc all_to_all(const struct run *r)
{
    return comm_all_to_all(r->x->comm, channel_of(r->op), (enum op_group)r->op->group, r->arg[0],
        r->arg[1], (size_t)r->op->dim[1], r->e);
}

static enum rc wire(const struct run *r)
{
    struct wire_op w = {r->x, r->op, r->arg, r->pool, has(r, OP_OUT_FP32) ? K_FP32 : r->type};
    wire_run(&w);
    return RC_OK;
}

static enum rc scalars(const struct run *r)
{
    double *x = r->arg[0];
    return comm_sum(r->x->comm, channel_of(r->op), (enum op_group)r->op->group, x + r->op->dim[0],
        (int)r->op->dim[1], r->e);
}

/* NaN stays. */
static enum rc max(const struct run *r)
{
    enum op_group g = (enum op_group)r->op->group;
    int64_t n = r->op->dim[0];
    double *x = r->arg[0];
    const double *all = r->arg[1];
    enum rc rc = comm_all_gather(
        r->x->comm, channel_of(r->op), g, x, r->arg[1], (size_t)n * sizeof(*x), r->e);
    for (int64_t i = 0; i < n * comm_group_size(r->x->comm, g) && !rc; i++)
        if (isnan(all[i]) || all[i] > x[i % n])
            x[i % n] = all[i];
    return rc;
}

static enum rc copy(const struct run *r)
{
    memcpy(r->arg[1], r->arg[0], (size_t)(r->op->dim[0] * r->op->dim[1]));
    return RC_OK;
}

/* --- disk --- */

/* States one after the other, to or from the swap buffer that holds them all. */
static enum rc move_states(const struct run *r, int first_state, char *swap, bool is_write)
{
    struct disk_part part[OP_MAX_ARGS];
    int n = r->op->n_args - 1;
    for (int i = 0; i < n; i++) {
        int64_t bytes = r->op->arg[first_state + i].bytes;
        part[i] = (struct disk_part){r->arg[first_state + i], swap, bytes, is_write};
        swap += bytes;
    }
    return disk_move(r->x->disk, part, n, r->e);
}

static enum rc disk_read(const struct run *r)
{
    return move_states(r, 0, r->arg[r->op->n_args - 1], false);
}

static enum rc disk_write(const struct run *r)
{
    return move_states(r, 1, r->arg[0], true);
}

/* --- optimizer --- */

static enum rc grad_norm(const struct run *r)
{
    double *s = r->arg[1];
    r->x->kernels->grad_norm(r->pool, r->arg[0], r->op->dim[0], &s[SCALAR_SQUARES]);
    return RC_OK;
}

static enum rc update(const struct run *r)
{
    update_cpu(r->x, r->op, r->arg, r->pool);
    return RC_OK;
}

/* --- dispatch --- */

static run_fn *const RUN[OP_KIND_COUNT] = {
    [OP_EMBED_FWD] = embed_fwd,
    [OP_NORM_FWD] = norm_fwd,
    [OP_MATMUL] = matmul,
    [OP_BIAS_BWD] = bias_bwd,
    [OP_ROPE_FWD] = rope,
    [OP_ROPE_BWD] = rope,
    [OP_QK_NORM_FWD] = qk_norm_fwd,
    [OP_QK_NORM_BWD] = qk_norm_bwd,
    [OP_ATTN_FWD] = attn_fwd,
    [OP_ATTN_BWD] = attn_bwd,
    [OP_SWIGLU_FWD] = swiglu_fwd,
    [OP_SWIGLU_BWD] = swiglu_bwd,
    [OP_GELU_FWD] = gelu_fwd,
    [OP_GELU_BWD] = gelu_bwd,
    [OP_NORM_BWD] = norm_bwd,
    [OP_CROSS_ENTROPY] = cross_entropy,
    [OP_EMBED_BWD] = embed_bwd,
    [OP_POSITION_BWD] = position_bwd,
    [OP_ZERO_GAPS] = zero_gaps,
    [OP_ALL_GATHER] = all_gather,
    [OP_REDUCE_SCATTER] = reduce_scatter,
    [OP_ALL_REDUCE] = all_reduce,
    [OP_SCALARS] = scalars,
    [OP_GRAD_NORM] = grad_norm,
    [OP_ADAMW] = update,
    [OP_SGD] = update,
    [OP_UPDATE_8BIT] = update,
    [OP_COPY_DOWN] = copy,
    [OP_COPY_UP] = copy,
    [OP_DISK_READ] = disk_read,
    [OP_DISK_WRITE] = disk_write,
    [OP_ALL_TO_ALL] = all_to_all,
    [OP_QUANTISE] = wire,
    [OP_DEQUANTISE] = wire,
    [OP_SUM_PIECES] = wire,
    [OP_CAST_FP8] = cast_fp8,
    [OP_WEIGHT_AMAX] = cast_fp8,
    [OP_GRAD_AMAX] = cast_fp8,
    [OP_GRAD_TO_FP8] = cast_fp8,
    [OP_GRAD_FROM_FP8] = cast_fp8,
    [OP_MAX] = max,
};

enum rc ops_cpu_run(const struct op_context *x, const struct op *op, void *const *arg,
    struct pool *pool, struct err *e)
{
    if (op_is_update((enum op_kind)op->kind) && x->before_update)
        x->before_update(x->update_arg, op->unit);
    struct run r = {
        x, op, arg, pool, x->schedule->strategy.precision == PRECISION_FP32 ? K_FP32 : K_BF16, e};
    return RUN[op->kind](&r);
}
