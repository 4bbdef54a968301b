/* Products of eight-bit numbers in blocks, and gradients kept in eight bits: the casts, and the
 * largest magnitudes of weights and gradients, which may be split over ranks. */
#include "base/alloc.h"
#include "planner/schedule_builder.h"

int schedule_linear_of(enum tensor_role role)
{
    static const struct {
        enum tensor_role first, last;
    } linears[SCHEDULE_LINEARS] = {
        {T_Q_W, T_V_W}, {T_O_W, T_O_W}, {T_GATE_W, T_UP_W}, {T_DOWN_W, T_DOWN_W}};
    for (int i = 0; i < SCHEDULE_LINEARS; i++)
        if (role >= linears[i].first && role <= linears[i].last)
            return i;
    return -1;
}

int64_t schedule_fp8_unit_at(int64_t elems)
{
    return (int64_t)base_align_up((uint64_t)elems, BUFFER_ALIGN);
}

bool has_fp8_products(const struct builder *b, int unit)
{
    return b->s->strategy.precision == PRECISION_FP8 && b->profile->is_bundled && unit > 0 &&
           unit < b->s->n_units - 1;
}

/* --- largest magnitudes --- */

enum { AMAX_BYTES = SCHEDULE_LINEARS * sizeof(double) };

/* As many bytes for each unit as a buffer is aligned to, so that few blocks tell of many. */
static int32_t amax_buffer(struct builder *b, const char *what, int units)
{
    return builder_buffer(b, what, PART_SCRATCH, -1, units * (int64_t)BUFFER_ALIGN);
}

void make_amax(struct builder *b)
{
    int units = b->s->n_units;
    b->weight_amax = has_fp8_products(b, 1) ? amax_buffer(b, "weight_amax", units - 2) : -1;
    b->grad_amax = b->s->strategy.fp8_gradients ? amax_buffer(b, "grad_amax", units) : -1;
}

/* So many doubles; nothing where a rank has all. */
static void emit_max(struct builder *b, int unit, int32_t buffer, int64_t offset, int64_t count)
{
    int64_t bytes = count * (int64_t)sizeof(double);
    struct op *op = builder_op(b, OP_MAX, LANE_COMPUTE, unit);
    op->group = GROUP_SHARD;
    op->dim[0] = count;
    op_arg_part(op, ACCESS_BOTH, buffer, offset, bytes);
    op_arg(b, op, ACCESS_WRITE, b->reduce_scratch);
    op->bytes = (double)bytes;
}

/* Whoever has the parameters takes them: the host, where they lie there. */
void emit_unit_amax(struct builder *b, int unit)
{
    const struct trained_unit *t = &b->trained[unit];
    if (!has_fp8_products(b, unit))
        return;
    bool is_streamed = strategy_streams_parameters(&b->s->strategy);
    int32_t param = is_streamed ? b->param_host[unit] : b->s->state[unit].param;
    bool is_on_host = b->s->buffers[param].memory == MEMORY_HOST;
    struct op *op = builder_op(b, OP_WEIGHT_AMAX, is_on_host ? LANE_HOST : LANE_COMPUTE, unit);
    op->dim[0] = shards_parameters(b) ? t->shard_elems : t->elems;
    op_arg(b, op, ACCESS_READ, param);
    op_arg_part(op, ACCESS_WRITE, b->weight_amax, (unit - 1) * (int64_t)AMAX_BYTES, AMAX_BYTES);
}

void emit_amax_over_shards(struct builder *b, int first, int last)
{
    int64_t units = last - first + 1;
    if (!has_fp8_products(b, first) || strategy_parameter_shards(&b->s->strategy) == 1)
        return;
    emit_max(b, first, b->weight_amax, (first - 1) * (int64_t)AMAX_BYTES,
        units * (int64_t)SCHEDULE_LINEARS);
}

void emit_weight_amax(struct builder *b)
{
    int last = b->s->n_units - 2;
    for (int u = 1; u <= last; u++)
        emit_unit_amax(b, u);
    emit_amax_over_shards(b, 1, last);
}

/* --- casts --- */

static int32_t fp8_buffer(
    struct builder *b, const char *what, enum part part, int unit, int64_t elems)
{
    return builder_unit_buffer(b, what, part, unit, schedule_fp8_unit_at(elems) + BUFFER_ALIGN);
}

static struct op *begin_cast(
    struct builder *b, int unit, int64_t rows, int64_t cols, enum fp8_format format)
{
    struct op *op = builder_op(b, OP_CAST_FP8, LANE_COMPUTE, unit);
    op->dim[0] = rows;
    op->dim[1] = cols;
    op->dim[2] = format;
    return op;
}

struct fp8_tensor emit_fp8_act(
    struct builder *b, int unit, struct matrix x, enum fp8_format format, unsigned orders)
{
    struct fp8_tensor out = {-1, -1};
    if (orders & FP8_PLAIN)
        out.plain = fp8_buffer(b, "x_fp8", PART_ACTIVATIONS, unit, x.rows * x.cols);
    if (orders & FP8_TRANSPOSED)
        out.transposed = fp8_buffer(b, "xt_fp8", PART_ACTIVATIONS, unit, x.rows * x.cols);
    struct op *op = begin_cast(b, unit, x.rows, x.cols, format);
    op->dim[3] = orders;
    op_arg(b, op, ACCESS_READ, x.buffer);
    if (out.plain >= 0)
        op_arg(b, op, ACCESS_WRITE, out.plain);
    if (out.transposed >= 0)
        op_arg(b, op, ACCESS_WRITE, out.transposed);
    /* read for the largest magnitude first */
    int64_t written = x.rows * x.cols * ((out.plain >= 0) + (out.transposed >= 0));
    op->bytes = (double)(2 * x.rows * x.cols * b->act_bytes + written);
    return out;
}

int32_t emit_fp8_weight(struct builder *b, int unit, enum tensor_role first, enum tensor_role last,
    enum fp8_order order)
{
    const struct tensor *t = unit_tensor(&b->s->unit[unit], first);
    const struct tensor *end = unit_tensor(&b->s->unit[unit], last);
    int64_t cols = t->cols, rows = (end->offset - t->offset) / cols + end->rows;
    int32_t q = fp8_buffer(b, "w_fp8", PART_SCRATCH, unit, rows * cols);
    struct op *op = begin_cast(b, unit, rows, cols, FP8_E4M3);
    op->dim[3] = order | FP8_KNOWN_AMAX;
    op_param(b, op, unit, first, last);
    op_arg_part(op, ACCESS_READ, b->weight_amax,
        (unit - 1) * (int64_t)AMAX_BYTES + schedule_linear_of(first) * (int64_t)sizeof(double),
        sizeof(double));
    op_arg(b, op, ACCESS_WRITE, q);
    return q;
}

/* --- gradients --- */

_Static_assert(MODEL_MAX_TENSORS * sizeof(double) <= BUFFER_ALIGN, "room for a unit's tensors");

static void arg_grad_amax(struct builder *b, struct op *op, enum access access, int unit)
{
    op_arg_part(op, access, b->grad_amax, unit * (int64_t)BUFFER_ALIGN, BUFFER_ALIGN);
}

static struct op *grad_op(struct builder *b, enum op_kind kind, int unit)
{
    struct op *op = builder_op(b, kind, LANE_COMPUTE, unit);
    op->dim[0] = own_elems(b, unit);
    return op;
}

void emit_grad_to_fp8(struct builder *b, int unit, int32_t grad)
{
    emit_grad_norm(b, unit, grad);
    struct op *op = grad_op(b, OP_GRAD_AMAX, unit);
    op_arg(b, op, ACCESS_READ, grad);
    arg_grad_amax(b, op, ACCESS_WRITE, unit);
    if (b->s->shards > 1)
        emit_max(b, unit, b->grad_amax, unit * (int64_t)BUFFER_ALIGN, b->s->unit[unit].n);
    op = grad_op(b, OP_GRAD_TO_FP8, unit);
    op_arg(b, op, ACCESS_READ, grad);
    arg_grad_amax(b, op, ACCESS_READ, unit);
    op_arg(b, op, ACCESS_WRITE, b->s->state[unit].grad);
}

int32_t emit_grad_from_fp8(struct builder *b, int unit)
{
    int32_t grad = builder_unit_buffer(
        b, "shard_grad", PART_GRADIENTS, unit, own_elems(b, unit) * b->grad_bytes);
    struct op *op = grad_op(b, OP_GRAD_FROM_FP8, unit);
    op_arg(b, op, ACCESS_READ, b->s->state[unit].grad);
    arg_grad_amax(b, op, ACCESS_READ, unit);
    op_arg(b, op, ACCESS_WRITE, grad);
    return grad;
}
