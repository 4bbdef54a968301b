/* Operations of adapters beside a frozen model, and of bringing its matrices to full width. For
 * prediction only. */
#include "planner/schedule_builder.h"

bool trains_all(const struct builder *b)
{
    return b->s->model.adapter.rank == 0;
}

bool adapts_any(const struct builder *b, int unit, enum tensor_role first, enum tensor_role last)
{
    for (int r = (int)first; !trains_all(b) && r <= (int)last; r++)
        if (model_adapts(&b->s->model, (enum tensor_role)r) &&
            unit_has(b, unit, (enum tensor_role)r))
            return true;
    return false;
}

bool needs_input(const struct builder *b, int unit, enum tensor_role first, enum tensor_role last)
{
    return trains_all(b) || adapts_any(b, unit, first, last);
}

/* Codes are looked up and scaled a few at a time: over its traffic alone, 3.1 on A100 (torchtune's
 * memory table, Llama 3.2 3B), 3.8 on A100 (LitGPT's, Llama 2 7B), 10 on RTX 4090 (torchtune's
 * README, Llama 3 8B): how much slower 4 bits are than 16 where all else is equal. */
static const double dequantise_passes = 4;

void emit_dequantise(struct builder *b, int unit)
{
    b->dense = -1;
    if (!model_is_quantised(&b->s->model, unit))
        return;
    const struct unit_layout *u = &b->s->unit[unit];
    int32_t dense =
        builder_unit_buffer(b, "dequantised", PART_GATHERED, unit, u->elems * b->param_bytes);
    struct op *op = builder_op(b, OP_DEQUANTISE, LANE_COMPUTE, unit);
    op->dim[0] = u->elems;
    int32_t kept = b->gathered[unit] >= 0 ? b->gathered[unit] : b->s->state[unit].param;
    op_arg_part(op, ACCESS_READ, kept, 0, b->frozen[unit].bytes);
    op_arg(b, op, ACCESS_WRITE, dense);
    op->bytes = dequantise_passes * (double)(b->frozen[unit].bytes + b->s->buffers[dense].bytes);
    b->dense = dense;
}

int32_t builder_low(struct builder *b, int unit)
{
    int64_t n = model_adapter_count(&b->s->model, &b->s->unit[unit]);
    return n > 0 ? builder_act(b, "adapter_low", unit, n * b->s->model.adapter.rank) : -1;
}

/* An adapted matrix: its dimensions, and where its A lies among a unit's adapters; B follows. */
struct adapted {
    int64_t in, out, rank, offset;
    int64_t low; /* bytes from the start of block_acts.low */
};

/* False when the matrix has no adapter. */
static bool find_adapted(
    struct adapted *x, const struct builder *b, int unit, enum tensor_role role)
{
    const struct model *m = &b->s->model;
    const struct unit_layout *u = &b->s->unit[unit];
    const struct tensor *t = unit_tensor(u, role);
    if (!t || !model_adapts(m, role))
        return false;
    int64_t rank = m->adapter.rank;
    *x = (struct adapted){.in = t->cols, .out = t->rows, .rank = rank};
    x->low = model_adapter_index(m, u, role) * rank * b->tokens * b->act_bytes;
    for (int i = 0; i < u->n && u->tensor[i].role != role; i++)
        if (model_adapts(m, u->tensor[i].role))
            x->offset += rank * (u->tensor[i].rows + u->tensor[i].cols);
    return true;
}

/* The columns of an activation that the matrix reads or writes. */
static void arg_columns(
    const struct builder *b, struct op *op, enum access access, int32_t buffer, int64_t columns)
{
    op_arg_part(op, access, buffer, 0, b->tokens * columns * b->act_bytes);
}

static void arg_low(
    const struct builder *b, struct op *op, enum access access, const struct adapted *x)
{
    op_arg_part(op, access, b->low, x->low, b->tokens * x->rank * b->act_bytes);
}

static void emit_low(struct builder *b, int unit, const struct adapted *x, int32_t input)
{
    struct op *op = emit_matmul(b, unit, MATMUL_NT, b->tokens, x->rank, x->in);
    arg_columns(b, op, ACCESS_READ, input, x->in);
    op_adapter(b, op, unit, x->offset, x->rank * x->in);
    arg_low(b, op, ACCESS_WRITE, x);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
}

void emit_adapter_low(struct builder *b, int unit, enum tensor_role role, int32_t input)
{
    struct adapted x;
    if (find_adapted(&x, b, unit, role))
        emit_low(b, unit, &x, input);
}

void emit_adapters(struct builder *b, int unit, enum tensor_role first, enum tensor_role last,
    int32_t input, int32_t y)
{
    for (int r = (int)first; !trains_all(b) && r <= (int)last; r++) {
        struct adapted x;
        if (!find_adapted(&x, b, unit, (enum tensor_role)r))
            continue;
        emit_low(b, unit, &x, input);
        struct op *op = emit_matmul(b, unit, MATMUL_NT, b->tokens, x.out, x.rank);
        op->flags |= OP_ACCUMULATE;
        arg_low(b, op, ACCESS_READ, &x);
        op_adapter(b, op, unit, x.offset + x.rank * x.in, x.rank * x.out);
        arg_columns(b, op, ACCESS_BOTH, y, x.out);
        op_arg(b, op, ACCESS_WRITE, b->workspace);
    }
}

static void emit_adapter_bwd(
    struct builder *b, int unit, const struct adapted *x, int32_t dy, int32_t input, int32_t dx)
{
    int64_t b_at = x->offset + x->rank * x->in;
    int32_t dlow = builder_act(b, "d_low", unit, x->rank);
    struct op *op = emit_matmul(b, unit, MATMUL_NN, b->tokens, x->rank, x->out);
    arg_columns(b, op, ACCESS_READ, dy, x->out);
    op_adapter(b, op, unit, b_at, x->rank * x->out);
    op_arg(b, op, ACCESS_WRITE, dlow);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
    op = emit_matmul(b, unit, MATMUL_TN, x->out, x->rank, b->tokens);
    op->flags |= OP_OUT_FP32;
    arg_columns(b, op, ACCESS_READ, dy, x->out);
    arg_low(b, op, ACCESS_READ, x);
    op_adapter_grad(b, op, unit, b_at, x->rank * x->out);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
    op = emit_matmul(b, unit, MATMUL_TN, x->rank, x->in, b->tokens);
    op->flags |= OP_OUT_FP32;
    op_arg(b, op, ACCESS_READ, dlow);
    arg_columns(b, op, ACCESS_READ, input, x->in);
    op_adapter_grad(b, op, unit, x->offset, x->rank * x->in);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
    op = emit_matmul(b, unit, MATMUL_NN, b->tokens, x->in, x->rank);
    op->flags |= OP_ACCUMULATE;
    op_arg(b, op, ACCESS_READ, dlow);
    op_adapter(b, op, unit, x->offset, x->rank * x->in);
    op_arg(b, op, ACCESS_BOTH, dx);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
}

void emit_adapters_bwd(struct builder *b, int unit, enum tensor_role first, enum tensor_role last,
    int32_t dy, int32_t input, int32_t dx)
{
    for (int r = (int)first; !trains_all(b) && r <= (int)last; r++) {
        struct adapted x;
        if (find_adapted(&x, b, unit, (enum tensor_role)r))
            emit_adapter_bwd(b, unit, &x, dy, input, dx);
    }
}
