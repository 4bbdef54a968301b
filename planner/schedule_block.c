/* The model's own operations: embedding, blocks, head; forward and backward. */
#include "base/alloc.h"
#include "planner/schedule_builder.h"

int32_t builder_act(struct builder *b, const char *what, int unit, int64_t columns)
{
    return builder_unit_buffer(b, what, PART_ACTIVATIONS, unit, b->tokens * columns * b->act_bytes);
}

static int32_t fp32_act(struct builder *b, const char *what, int unit, int64_t columns)
{
    return builder_unit_buffer(b, what, PART_ACTIVATIONS, unit, b->tokens * columns * 4);
}

static bool is_layernorm(const struct builder *b)
{
    return b->s->model.family == MODEL_GPT2;
}

int32_t builder_stats(struct builder *b, const char *what, int unit)
{
    return fp32_act(b, what, unit, is_layernorm(b) ? 2 : 1);
}

static int64_t rows_of(
    const struct builder *b, int unit, enum tensor_role first, enum tensor_role last)
{
    int64_t rows = 0;
    for (int r = (int)first; r <= (int)last; r++) {
        const struct tensor *t = unit_tensor(&b->s->unit[unit], (enum tensor_role)r);
        rows += t ? t->rows : 0;
    }
    return rows;
}

struct op *emit_matmul(
    struct builder *b, int unit, enum matmul_form form, int64_t m, int64_t n, int64_t k)
{
    struct op *op = builder_op(b, OP_MATMUL, LANE_COMPUTE, unit);
    op->dim[0] = m;
    op->dim[1] = n;
    op->dim[2] = k;
    op->dim[3] = (int64_t)form;
    op->flops = 2.0 * (double)m * (double)n * (double)k;
    return op;
}

/* --- linear layers and norms --- */

void emit_linear(struct builder *b, int unit, enum tensor_role w_first, enum tensor_role w_last,
    int bias_first, int bias_last, int32_t x, int32_t residual, int32_t y)
{
    int64_t n = rows_of(b, unit, w_first, w_last);
    int64_t k = unit_tensor(&b->s->unit[unit], w_first)->cols;
    bool is_fp8 = has_fp8_products(b, unit);
    int32_t w = -1;
    if (is_fp8) {
        struct matrix in = {x, b->tokens, k};
        x = emit_fp8_act(b, unit, in, FP8_E4M3, FP8_PLAIN).plain;
        w = emit_fp8_weight(b, unit, w_first, w_last, FP8_PLAIN);
    }
    struct op *op = emit_matmul(b, unit, is_fp8 ? MATMUL_FP8 : MATMUL_NT, b->tokens, n, k);
    op_arg(b, op, ACCESS_READ, x);
    if (is_fp8)
        op_arg(b, op, ACCESS_READ, w);
    else
        op_param(b, op, unit, w_first, w_last);
    op_arg(b, op, ACCESS_WRITE, y);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
    if (bias_first >= 0 && unit_has(b, unit, (enum tensor_role)bias_first)) {
        op->flags |= OP_BIAS;
        op_param(b, op, unit, (enum tensor_role)bias_first, (enum tensor_role)bias_last);
    }
    if (residual >= 0) {
        op->flags |= OP_RESIDUAL;
        op_arg(b, op, ACCESS_READ, residual);
    }
    emit_adapters(b, unit, w_first, w_last, x, y);
}

/* Gradient of the matrix. */
static void emit_weight_bwd(struct builder *b, int unit, enum tensor_role w_first,
    enum tensor_role w_last, enum matmul_form form, int32_t dy, int32_t x)
{
    int64_t n = rows_of(b, unit, w_first, w_last);
    int64_t k = unit_tensor(&b->s->unit[unit], w_first)->cols;
    struct op *op = emit_matmul(b, unit, form, n, k, b->tokens);
    op->flags |= OP_OUT_FP32;
    op_arg(b, op, ACCESS_READ, dy);
    op_arg(b, op, ACCESS_READ, x);
    op_grad(b, op, unit, w_first, w_last);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
}

static void emit_bias_bwd(struct builder *b, int unit, int first, int last, int64_t n, int32_t dy)
{
    if (first < 0 || !unit_has(b, unit, (enum tensor_role)first))
        return;
    struct op *op = builder_op(b, OP_BIAS_BWD, LANE_COMPUTE, unit);
    op->dim[0] = b->tokens;
    op->dim[1] = n;
    op_arg(b, op, ACCESS_READ, dy);
    op_grad(b, op, unit, (enum tensor_role)first, (enum tensor_role)last);
}

/* Both gradients of a product of fp8 tensors, each along the rows of both operands. */
static void emit_fp8_bwd(struct builder *b, int unit, enum tensor_role w_first,
    enum tensor_role w_last, int32_t dy, int32_t x, int32_t dx)
{
    int64_t n = rows_of(b, unit, w_first, w_last);
    int64_t k = unit_tensor(&b->s->unit[unit], w_first)->cols;
    struct matrix grad = {dy, b->tokens, n}, in = {x, b->tokens, k};
    struct fp8_tensor d =
        emit_fp8_act(b, unit, grad, FP8_E5M2, FP8_TRANSPOSED | (dx >= 0 ? FP8_PLAIN : 0));
    int32_t xt = emit_fp8_act(b, unit, in, FP8_E4M3, FP8_TRANSPOSED).transposed;
    emit_weight_bwd(b, unit, w_first, w_last, MATMUL_FP8_GRAD, d.transposed, xt);
    if (dx < 0)
        return;
    int32_t wt = emit_fp8_weight(b, unit, w_first, w_last, FP8_TRANSPOSED);
    struct op *op = emit_matmul(b, unit, MATMUL_FP8_GRAD, b->tokens, k, n);
    op_arg(b, op, ACCESS_READ, d.plain);
    op_arg(b, op, ACCESS_READ, wt);
    op_arg(b, op, ACCESS_WRITE, dx);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
}

void emit_linear_bwd(struct builder *b, int unit, enum tensor_role w_first, enum tensor_role w_last,
    int bias_first, int bias_last, int32_t dy, int32_t x, int32_t dx)
{
    int64_t n = rows_of(b, unit, w_first, w_last);
    int64_t k = unit_tensor(&b->s->unit[unit], w_first)->cols;
    if (has_fp8_products(b, unit)) {
        emit_fp8_bwd(b, unit, w_first, w_last, dy, x, dx);
        emit_bias_bwd(b, unit, bias_first, bias_last, n, dy);
        return;
    }
    if (trains_all(b)) {
        emit_weight_bwd(b, unit, w_first, w_last, MATMUL_TN, dy, x);
        emit_bias_bwd(b, unit, bias_first, bias_last, n, dy);
    }
    if (dx < 0)
        return;
    struct op *op = emit_matmul(b, unit, MATMUL_NN, b->tokens, k, n);
    op_arg(b, op, ACCESS_READ, dy);
    op_param(b, op, unit, w_first, w_last);
    op_arg(b, op, ACCESS_WRITE, dx);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
    emit_adapters_bwd(b, unit, w_first, w_last, dy, x, dx);
}

void emit_norm(struct builder *b, int unit, enum tensor_role w, enum tensor_role bias, int32_t x,
    int32_t y, int32_t stats)
{
    struct op *op = builder_op(b, OP_NORM_FWD, LANE_COMPUTE, unit);
    op->dim[0] = b->tokens;
    op->dim[1] = b->s->model.width;
    op_arg(b, op, ACCESS_READ, x);
    op_param(b, op, unit, w, w);
    if (is_layernorm(b)) {
        op->flags |= OP_LAYERNORM;
        op_param(b, op, unit, bias, bias);
    }
    op_arg(b, op, ACCESS_WRITE, y);
    op_arg(b, op, ACCESS_WRITE, stats);
    op->flops = 8.0 * (double)(b->tokens * b->s->model.width);
}

void emit_norm_bwd(struct builder *b, int unit, enum tensor_role w, enum tensor_role bias,
    int32_t dy, int32_t x, int32_t stats, int32_t dx, bool is_overwrite)
{
    struct op *op = builder_op(b, OP_NORM_BWD, LANE_COMPUTE, unit);
    op->dim[0] = b->tokens;
    op->dim[1] = b->s->model.width;
    if (is_overwrite)
        op->flags |= OP_OVERWRITE;
    op_arg(b, op, ACCESS_READ, dy);
    op_arg(b, op, ACCESS_READ, x);
    op_param(b, op, unit, w, w);
    op_arg(b, op, ACCESS_READ, stats);
    op_arg(b, op, is_overwrite ? ACCESS_WRITE : ACCESS_BOTH, dx);
    if (trains_all(b))
        op_grad(b, op, unit, w, w);
    if (is_layernorm(b)) {
        op->flags |= OP_LAYERNORM;
        if (trains_all(b))
            op_grad(b, op, unit, bias, bias);
    }
    op->flops = 14.0 * (double)(b->tokens * b->s->model.width);
}

/* The places of tokens in packed documents, last of all arguments. */
static void arg_positions(struct builder *b, struct op *op)
{
    if (b->s->positions >= 0)
        op_arg(b, op, ACCESS_READ, b->s->positions);
}

/* --- embedding --- */

static void embed_dims(struct builder *b, struct op *op)
{
    op->dim[0] = b->tokens;
    op->dim[1] = b->s->model.width;
    op->dim[2] = b->s->strategy.seq;
}

void emit_embed_fwd(struct builder *b)
{
    int32_t x = builder_act(b, "embedded", 0, b->s->model.width);
    struct op *op = builder_op(b, OP_EMBED_FWD, LANE_COMPUTE, 0);
    embed_dims(b, op);
    op_arg(b, op, ACCESS_READ, b->s->tokens);
    op_param(b, op, 0, T_TOKEN_EMBED, T_TOKEN_EMBED);
    if (unit_has(b, 0, T_POSITION_EMBED))
        op_param(b, op, 0, T_POSITION_EMBED, T_POSITION_EMBED);
    op_arg(b, op, ACCESS_WRITE, x);
    if (unit_has(b, 0, T_POSITION_EMBED))
        arg_positions(b, op);
    /* the table is not read as a whole */
    op->bytes = 2.0 * (double)(b->tokens * b->s->model.width * b->act_bytes);
    b->x = x;
}

void emit_embed_bwd(struct builder *b)
{
    if (!trains_all(b))
        return;
    struct op *op = builder_op(b, OP_EMBED_BWD, LANE_COMPUTE, 0);
    embed_dims(b, op);
    op_arg(b, op, ACCESS_READ, b->dx);
    op_arg(b, op, ACCESS_READ, b->s->tokens);
    op_grad(b, op, 0, T_TOKEN_EMBED, T_TOKEN_EMBED);
    if (!unit_has(b, 0, T_POSITION_EMBED))
        return;
    op = builder_op(b, OP_POSITION_BWD, LANE_COMPUTE, 0);
    embed_dims(b, op);
    op_arg(b, op, ACCESS_READ, b->dx);
    op_grad(b, op, 0, T_POSITION_EMBED, T_POSITION_EMBED);
    arg_positions(b, op);
}

/* --- blocks --- */

static void emit_rope(struct builder *b, int unit, enum op_kind kind, int32_t qkv)
{
    if (b->s->rope < 0)
        return;
    const struct model *m = &b->s->model;
    struct op *op = builder_op(b, kind, LANE_COMPUTE, unit);
    op->dim[0] = b->tokens;
    op->dim[1] = b->s->strategy.seq;
    op_arg(b, op, ACCESS_BOTH, qkv);
    op_arg(b, op, ACCESS_READ, b->s->rope);
    arg_positions(b, op);
    op->flops = 3.0 * (double)(b->tokens * (m->heads + m->kv_heads) * m->head_dim);
}

/* Keys that a token may look at: those of the other context ranks too. */
static int64_t context_tokens(const struct builder *b)
{
    return b->s->strategy.seq * b->s->strategy.parallel.context;
}

/* Causal attention: half of the 4 s h hd multiply-adds per token; stored scores are whole, also of
 * tokens in other documents. */
static double attention_flops(const struct builder *b)
{
    const struct model *m = &b->s->model;
    struct strategy whole = b->s->strategy;
    bool is_plain = whole.has_plain_attention;
    whole.seq = context_tokens(b);
    double keys = is_plain ? (double)whole.seq : strategy_mean_document(&whole);
    return (is_plain ? 4 : 2) * (double)b->tokens * keys * (double)(m->heads * m->head_dim);
}

/* --- what other ways of splitting add; nothing in the bundled engine --- */

static void emit_split(struct builder *b, int unit, enum op_kind kind, enum op_group group,
    int64_t ranks, double bytes)
{
    if (ranks <= 1)
        return;
    struct op *op = builder_op(b, kind, LANE_COMPUTE, unit);
    op->group = (uint8_t)group;
    op->bytes = bytes;
}

/* Sums the outputs of a product whose inner dimension is split: an all-reduce, or the
 * reduce-scatter and all-gather of sequence parallelism, which move as much (arXiv 2205.05198). */
static void emit_tensor_sum(struct builder *b, int unit)
{
    emit_split(b, unit, OP_ALL_REDUCE, GROUP_TENSOR, b->s->strategy.parallel.tensor,
        (double)(b->tokens * b->s->model.width * b->act_bytes));
}

/* Keys and values of the whole sequence, passed around as attention goes on. */
static void emit_context_exchange(struct builder *b, int unit)
{
    const struct model *m = &b->s->model;
    int64_t ranks = b->s->strategy.parallel.context;
    emit_split(b, unit, OP_ALL_GATHER, GROUP_CONTEXT, ranks,
        (double)(b->tokens * ranks * 2 * m->kv_heads * m->head_dim * b->act_bytes));
}

/* Every token goes to the ranks of its experts, and back: of each tensor rank its part of the
 * sequence. Where these split experts, they bring together what came for them (or sum what they
 * made of it and keep a part, which moves as much). */
static void emit_expert_exchange(struct builder *b, int unit)
{
    const struct model *m = &b->s->model;
    const struct parallel *p = &b->s->strategy.parallel;
    double bytes = (double)(b->tokens * m->expert_top * m->width * b->act_bytes);
    emit_split(b, unit, OP_ALL_TO_ALL, GROUP_EXPERT, p->expert, bytes / (double)p->tensor);
    if (p->expert > 1 && p->splits_experts)
        emit_split(b, unit, OP_ALL_GATHER, GROUP_TENSOR, p->tensor, bytes);
}

/* Experts that are spread out leave every rank its part of the sequence: nothing is to be summed.
 */
static void emit_mlp_sum(struct builder *b, int unit)
{
    if (b->s->strategy.parallel.expert == 1)
        emit_tensor_sum(b, unit);
}

/* Stored scores: two bytes before and after the softmax, and a byte of mask (arXiv 2205.05198). */
enum { SCORE_BYTES = 5 };

static void emit_scores(struct builder *b, int unit, int32_t scores, double passes)
{
    struct op *op = builder_op(b, OP_SCORES, LANE_COMPUTE, unit);
    op_arg(b, op, ACCESS_WRITE, scores);
    op->bytes = passes * (double)b->s->buffers[scores].bytes;
}

static void fwd_norm1(struct builder *b, int unit, struct block_acts *a)
{
    a->xn1 = builder_act(b, "norm1", unit, b->s->model.width);
    if (a->st1 < 0)
        a->st1 = builder_stats(b, "norm1_stats", unit);
    emit_norm(b, unit, T_NORM1_W, T_NORM1_B, a->x_in, a->xn1, a->st1);
}

/* From the queries, keys and values to what the heads see. */
static void fwd_attention_core(struct builder *b, int unit, struct block_acts *a)
{
    const struct model *m = &b->s->model;
    a->att = builder_act(b, "attention", unit, m->heads * m->head_dim);
    a->lse = fp32_act(b, "lse", unit, m->heads);
    struct op *op = builder_op(b, OP_ATTN_FWD, LANE_COMPUTE, unit);
    op->dim[0] = b->tokens;
    op->dim[1] = b->s->strategy.seq;
    op_arg(b, op, ACCESS_READ, a->qkv);
    op_arg(b, op, ACCESS_WRITE, a->att);
    op_arg(b, op, ACCESS_WRITE, a->lse);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
    arg_positions(b, op);
    op->flops = attention_flops(b);
    emit_context_exchange(b, unit);
    if (b->s->strategy.has_plain_attention) {
        a->scores = builder_unit_buffer(b, "scores", PART_ACTIVATIONS, unit,
            b->tokens * context_tokens(b) * m->heads * SCORE_BYTES);
        emit_scores(b, unit, a->scores, 2);
    }
}

static int32_t qkv_act(struct builder *b, const char *what, int unit)
{
    const struct model *m = &b->s->model;
    return builder_act(b, what, unit, (m->heads + 2 * m->kv_heads) * m->head_dim);
}

static void qk_norm_common(struct builder *b, struct op *op, double flops_per_element)
{
    const struct model *m = &b->s->model;
    op->dim[0] = b->tokens;
    op->flops = flops_per_element * (double)(b->tokens * (m->heads + m->kv_heads) * m->head_dim);
}

/* From what the product gave, which backward needs, to what attention reads. */
static void fwd_qk_norm(struct builder *b, int unit, struct block_acts *a)
{
    const struct model *m = &b->s->model;
    a->qkv = qkv_act(b, "qkv", unit);
    a->st_qk = fp32_act(b, "qk_stats", unit, m->heads + m->kv_heads);
    struct op *op = builder_op(b, OP_QK_NORM_FWD, LANE_COMPUTE, unit);
    qk_norm_common(b, op, 8);
    op_arg(b, op, ACCESS_READ, a->raw);
    op_param(b, op, unit, T_Q_NORM_W, T_Q_NORM_W);
    op_param(b, op, unit, T_K_NORM_W, T_K_NORM_W);
    op_arg(b, op, ACCESS_WRITE, a->qkv);
    op_arg(b, op, ACCESS_WRITE, a->st_qk);
    emit_rope(b, unit, OP_ROPE_FWD, a->qkv);
}

static void bwd_qk_norm(struct builder *b, int unit, const struct block_acts *a, int32_t dqkv)
{
    struct op *op = builder_op(b, OP_QK_NORM_BWD, LANE_COMPUTE, unit);
    qk_norm_common(b, op, 14);
    op_arg(b, op, ACCESS_BOTH, dqkv);
    op_arg(b, op, ACCESS_READ, a->raw);
    op_param(b, op, unit, T_Q_NORM_W, T_Q_NORM_W);
    op_param(b, op, unit, T_K_NORM_W, T_K_NORM_W);
    op_arg(b, op, ACCESS_READ, a->st_qk);
    op_arg_part(op, ACCESS_WRITE, b->workspace, 0, SCHEDULE_QK_NORM_SCRATCH * b->s->model.head_dim);
    if (!trains_all(b))
        return;
    op_grad(b, op, unit, T_Q_NORM_W, T_Q_NORM_W);
    op_grad(b, op, unit, T_K_NORM_W, T_K_NORM_W);
}

static void fwd_qkv(struct builder *b, int unit, struct block_acts *a)
{
    bool has_norm = unit_has(b, unit, T_Q_NORM_W);
    int32_t product = qkv_act(b, has_norm ? "qkv_raw" : "qkv", unit);
    emit_linear(b, unit, T_Q_W, T_V_W, T_Q_B, T_V_B, a->xn1, -1, product);
    if (has_norm) {
        a->raw = product;
        fwd_qk_norm(b, unit, a);
    } else {
        a->qkv = product;
        emit_rope(b, unit, OP_ROPE_FWD, a->qkv);
    }
}

static void fwd_attention(struct builder *b, int unit, struct block_acts *a)
{
    fwd_qkv(b, unit, a);
    fwd_attention_core(b, unit, a);
    a->mid = builder_act(b, "mid", unit, b->s->model.width);
    emit_linear(b, unit, T_O_W, T_O_W, T_O_B, T_O_B, a->att, a->x_in, a->mid);
    emit_tensor_sum(b, unit);
}

static void fwd_norm2(struct builder *b, int unit, struct block_acts *a)
{
    a->xn2 = builder_act(b, "norm2", unit, b->s->model.width);
    if (a->st2 < 0)
        a->st2 = builder_stats(b, "norm2_stats", unit);
    emit_norm(b, unit, T_NORM2_W, T_NORM2_B, a->mid, a->xn2, a->st2);
}

static void fwd_up(struct builder *b, int unit, struct block_acts *a)
{
    bool is_gated = unit_has(b, unit, T_GATE_W);
    emit_expert_exchange(b, unit);
    a->up = builder_act(b, "up", unit, b->s->model.ffn * (is_gated ? 2 : 1));
    emit_linear(b, unit, is_gated ? T_GATE_W : T_UP_W, T_UP_W, T_UP_B, T_UP_B, a->xn2, -1, a->up);
}

static enum recompute recompute_of(const struct builder *b, int unit)
{
    const struct strategy *s = &b->s->strategy;
    return unit <= s->full_blocks ? RECOMPUTE_FULL : s->recompute;
}

static bool keeps_half(const struct builder *b)
{
    return b->s->strategy.recompute == RECOMPUTE_SELECTIVE &&
           b->profile->selective == SELECTIVE_MATMULS;
}

static void fwd_activation(struct builder *b, int unit, struct block_acts *a)
{
    bool is_gated = unit_has(b, unit, T_GATE_W);
    a->act = builder_act(b, "activated", unit, b->s->model.ffn);
    struct op *op = builder_op(b, is_gated ? OP_SWIGLU_FWD : OP_GELU_FWD, LANE_COMPUTE, unit);
    op->dim[0] = b->tokens;
    op->dim[1] = b->s->model.ffn;
    op_arg(b, op, ACCESS_READ, a->up);
    op_arg(b, op, ACCESS_WRITE, a->act);
    if (keeps_half(b) && is_gated && a->half < 0) {
        a->half = builder_act(b, "up_half", unit, b->s->model.ffn);
        op_arg(b, op, ACCESS_WRITE, a->half);
    }
    op->flops = 8.0 * (double)(b->tokens * b->s->model.ffn);
}

static void keep_selected(const struct builder *b, int unit, struct block_acts *a)
{
    enum selective what = b->profile->selective;
    a->scores = -1;
    if (what == SELECTIVE_ATTENTION)
        return;
    a->xn1 = a->xn2 = a->act = -1;
    if (a->raw >= 0)
        a->qkv = a->st_qk = -1;
    if (a->half >= 0 || recompute_of(b, unit) == RECOMPUTE_SELECTIVE_FFN)
        a->up = -1;
}

/* A frozen matrix needs its input for nothing. */
static void drop_unread(const struct builder *b, int unit, struct block_acts *a)
{
    if (!needs_input(b, unit, T_Q_W, T_V_W))
        a->xn1 = -1;
    if (!needs_input(b, unit, T_GATE_W, T_UP_W))
        a->xn2 = -1;
    if (!needs_input(b, unit, T_DOWN_W, T_DOWN_W))
        a->act = -1;
}

void emit_block_fwd(struct builder *b, int unit)
{
    const struct block_acts nothing = {
        b->x, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    struct block_acts a = nothing;
    b->low = a.low = builder_low(b, unit);
    fwd_norm1(b, unit, &a);
    fwd_attention(b, unit, &a);
    fwd_norm2(b, unit, &a);
    fwd_up(b, unit, &a);
    fwd_activation(b, unit, &a);
    int32_t out = builder_act(b, "out", unit, b->s->model.width);
    emit_linear(b, unit, T_DOWN_W, T_DOWN_W, T_DOWN_B, T_DOWN_B, a.act, a.mid, out);
    emit_expert_exchange(b, unit);
    emit_mlp_sum(b, unit);
    if (recompute_of(b, unit) == RECOMPUTE_FULL)
        a = nothing;
    else if (recompute_of(b, unit) != RECOMPUTE_NONE)
        keep_selected(b, unit, &a);
    if (!trains_all(b))
        drop_unread(b, unit, &a);
    b->acts[unit] = a;
    b->x = out;
}

/* Bring back what was not kept. The statistics of kept norms are written again, to the same bits.
 */
static void recompute(struct builder *b, int unit, struct block_acts *a)
{
    int32_t first = b->s->n_ops;
    bool has_low = a->low >= 0, kept_mid = a->mid >= 0;
    b->low = has_low ? a->low : builder_low(b, unit);
    if (a->xn1 < 0 && (a->mid < 0 || needs_input(b, unit, T_Q_W, T_V_W)))
        fwd_norm1(b, unit, a);
    if (a->mid < 0)
        fwd_attention(b, unit, a);
    else if (a->qkv < 0)
        fwd_qk_norm(b, unit, a);
    if (kept_mid && a->scores < 0 && b->s->strategy.has_plain_attention)
        fwd_attention_core(b, unit, a);
    if (a->xn2 < 0 && (a->up < 0 || needs_input(b, unit, T_GATE_W, T_UP_W)))
        fwd_norm2(b, unit, a);
    if (a->up < 0)
        fwd_up(b, unit, a);
    if (a->act < 0 && needs_input(b, unit, T_DOWN_W, T_DOWN_W))
        fwd_activation(b, unit, a);
    if (!has_low && adapts_any(b, unit, T_DOWN_W, T_DOWN_W))
        emit_adapter_low(b, unit, T_DOWN_W, a->act);
    for (int32_t i = first; i < b->s->n_ops; i++)
        b->s->ops[i].flags |= OP_RECOMPUTED;
}

static void bwd_mlp(struct builder *b, int unit, const struct block_acts *a)
{
    const struct model *m = &b->s->model;
    bool is_gated = unit_has(b, unit, T_GATE_W);
    emit_expert_exchange(b, unit);
    int32_t dact = builder_act(b, "d_activated", unit, m->ffn);
    emit_linear_bwd(b, unit, T_DOWN_W, T_DOWN_W, T_DOWN_B, T_DOWN_B, b->dx, a->act, dact);
    int32_t dup = builder_act(b, "d_up", unit, m->ffn * (is_gated ? 2 : 1));
    struct op *op = builder_op(b, is_gated ? OP_SWIGLU_BWD : OP_GELU_BWD, LANE_COMPUTE, unit);
    op->dim[0] = b->tokens;
    op->dim[1] = m->ffn;
    op_arg(b, op, ACCESS_READ, dact);
    op_arg(b, op, ACCESS_READ, a->up);
    op_arg(b, op, ACCESS_WRITE, dup);
    if (a->half >= 0)
        op_arg(b, op, ACCESS_READ, a->half);
    op->flops = 16.0 * (double)(b->tokens * m->ffn);
    int32_t dxn = builder_act(b, "d_norm2", unit, m->width);
    emit_linear_bwd(
        b, unit, is_gated ? T_GATE_W : T_UP_W, T_UP_W, T_UP_B, T_UP_B, dup, a->xn2, dxn);
    emit_expert_exchange(b, unit);
    emit_mlp_sum(b, unit);
    emit_norm_bwd(b, unit, T_NORM2_W, T_NORM2_B, dxn, a->mid, a->st2, b->dx, false);
}

static void bwd_attention(struct builder *b, int unit, const struct block_acts *a)
{
    const struct model *m = &b->s->model;
    int32_t datt = builder_act(b, "d_attention", unit, m->heads * m->head_dim);
    emit_linear_bwd(b, unit, T_O_W, T_O_W, T_O_B, T_O_B, b->dx, a->att, datt);
    int32_t dqkv = builder_act(b, "d_qkv", unit, (m->heads + 2 * m->kv_heads) * m->head_dim);
    int32_t scratch = fp32_act(b, "d_lse", unit, m->heads);
    struct op *op = builder_op(b, OP_ATTN_BWD, LANE_COMPUTE, unit);
    op->dim[0] = b->tokens;
    op->dim[1] = b->s->strategy.seq;
    op_arg(b, op, ACCESS_READ, datt);
    op_arg(b, op, ACCESS_READ, a->qkv);
    op_arg(b, op, ACCESS_READ, a->att);
    op_arg(b, op, ACCESS_READ, a->lse);
    op_arg(b, op, ACCESS_WRITE, dqkv);
    op_arg(b, op, ACCESS_WRITE, scratch);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
    arg_positions(b, op);
    op->flops = (a->scores < 0 ? 2.5 : 2.0) * attention_flops(b);
    emit_context_exchange(b, unit);
    emit_context_exchange(b, unit);
    if (a->scores >= 0)
        emit_scores(b, unit, a->scores, 3);
    emit_rope(b, unit, OP_ROPE_BWD, dqkv);
    if (a->raw >= 0)
        bwd_qk_norm(b, unit, a, dqkv);
    int32_t dxn = builder_act(b, "d_norm1", unit, m->width);
    emit_linear_bwd(b, unit, T_Q_W, T_V_W, T_Q_B, T_V_B, dqkv, a->xn1, dxn);
    emit_tensor_sum(b, unit);
    emit_norm_bwd(b, unit, T_NORM1_W, T_NORM1_B, dxn, a->x_in, a->st1, b->dx, false);
}

void emit_block_bwd(struct builder *b, int unit)
{
    struct block_acts *a = &b->acts[unit];
    recompute(b, unit, a);
    bwd_mlp(b, unit, a);
    bwd_attention(b, unit, a);
}

/* --- head --- */

struct chunk {
    int64_t first, rows;
};

static void piece(const struct builder *b, struct op *op, enum access access, int32_t buffer,
    struct chunk c, int64_t columns)
{
    int64_t row = columns * b->act_bytes;
    op_arg_part(op, access, buffer, c.first * row, c.rows * row);
}

/* dxn -1: the loss alone is wanted. */
static void emit_loss_chunk(struct builder *b, struct chunk c, int32_t xn, int32_t dxn)
{
    const struct model *m = &b->s->model;
    int unit = m->is_tied ? 0 : b->s->n_units - 1;
    enum tensor_role w = m->is_tied ? T_TOKEN_EMBED : T_HEAD_W;
    int32_t logits = builder_buffer(b, "logits", PART_LOGITS, -1, c.rows * m->vocab * b->act_bytes);
    struct op *op = emit_matmul(b, unit, MATMUL_NT, c.rows, m->vocab, m->width);
    piece(b, op, ACCESS_READ, xn, c, m->width);
    op_param(b, op, unit, w, w);
    op_arg(b, op, ACCESS_WRITE, logits);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
    op = builder_op(b, OP_CROSS_ENTROPY, LANE_COMPUTE, -1);
    op->dim[0] = c.rows;
    op->dim[1] = m->vocab;
    op_arg(b, op, ACCESS_BOTH, logits);
    op_arg_part(op, ACCESS_READ, b->s->targets, c.first * 4, c.rows * 4);
    op_arg(b, op, ACCESS_BOTH, b->s->scalars);
    if (b->profile->logit_bytes > b->act_bytes)
        op_arg(b, op, ACCESS_WRITE,
            builder_buffer(b, "logit_copies", PART_LOGITS, -1,
                c.rows * m->vocab * (b->profile->logit_bytes - b->act_bytes)));
    op->flops = 6.0 * (double)(c.rows * m->vocab);
    if (dxn < 0)
        return;
    if (trains_all(b)) {
        op = emit_matmul(b, unit, MATMUL_TN, m->vocab, m->width, c.rows);
        op->flags |= OP_OUT_FP32;
        op_arg(b, op, ACCESS_READ, logits);
        piece(b, op, ACCESS_READ, xn, c, m->width);
        op_grad(b, op, unit, w, w);
        op_arg(b, op, ACCESS_WRITE, b->workspace);
    }
    op = emit_matmul(b, unit, MATMUL_NN, c.rows, m->width, m->vocab);
    op_arg(b, op, ACCESS_READ, logits);
    op_param(b, op, unit, w, w);
    piece(b, op, ACCESS_WRITE, dxn, c, m->width);
    op_arg(b, op, ACCESS_WRITE, b->workspace);
}

void emit_head(struct builder *b)
{
    const struct model *m = &b->s->model;
    int unit = b->s->n_units - 1;
    int32_t xn = builder_act(b, "final_norm", unit, m->width);
    int32_t stats = builder_stats(b, "final_stats", unit);
    emit_norm(b, unit, T_FINAL_NORM_W, T_FINAL_NORM_B, b->x, xn, stats);
    bool is_training = b->kind != SECTION_EVALUATION;
    int32_t dxn = is_training ? builder_act(b, "d_final_norm", unit, m->width) : -1;
    int64_t chunks = b->s->strategy.loss_chunks;
    int64_t rows = (b->tokens + chunks - 1) / chunks;
    for (int64_t first = 0; first < b->tokens; first += rows)
        emit_loss_chunk(b,
            (struct chunk){first, first + rows <= b->tokens ? rows : b->tokens - first}, xn, dxn);
    if (!is_training)
        return;
    b->dx = builder_act(b, "d_residual", unit, m->width);
    emit_norm_bwd(b, unit, T_FINAL_NORM_W, T_FINAL_NORM_B, dxn, b->x, stats, b->dx, true);
}
