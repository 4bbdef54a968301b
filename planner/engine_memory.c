#include "planner/engine_memory.h"

#include <math.h>
#include <string.h>

#include "planner/adapter.h"
#include "planner/figure.h"
#include "planner/split.h"

/* Stored attention scores: two bytes before and after the softmax, and a byte of mask. */
static const double score_bytes = 5;
/* Logits computed whole in 16 bits and their gradient, all else by pieces (torchtune's
 * CEWithChunkedOutputLoss, Inductor's fused loss of torch 2.7 and later). */
static const double chunked_logit_bytes = 4;
/* Neither logits nor their gradient are ever whole (Liger: arXiv 2410.10989). */
static const double fused_logit_bytes = 0.5;

/* One rank of a pipeline stage. */
struct rank {
    const struct engine_profile *p;
    const struct strategy *s;
    struct model m;           /* its share */
    struct strategy own;      /* its share */
    double wide;              /* how much of a row of the residual stream it keeps */
    double tokens;            /* of a micro batch */
    double act;               /* bytes of an element of activations and computed parameters */
    double block, experts;    /* parameters of a block, and of its routed experts beside them */
    double table;             /* of the embedding, or of the head */
    double adapters;          /* of a block's adapters beside its frozen parameters */
    double inputs_unread;     /* widths of inputs kept for the gradient of their matrix alone */
    double low;               /* widths of what adapters keep */
    double layers, in_flight; /* blocks, and micro batches it holds */
    double tables;            /* how many of the two it has */
    bool has_loss;
};

static bool shards_parameters(const struct strategy *s)
{
    return s->kind == STRATEGY_ZERO3 || s->kind == STRATEGY_HSDP;
}

/* Micro batches in flight (arXiv 2104.04473, section 2.2): interleaved, rank i of p holds
 * 2 (p - i - 1) + (v - 1) p + 1 chunks of one v-th of its blocks. */
static double in_flight(const struct strategy *s, bool is_last)
{
    double p = (double)s->parallel.pipeline, v = (double)s->parallel.virtual_stages;
    if (!is_last)
        return split_in_flight(s);
    return v > 1 && s->grad_accum >= s->parallel.pipeline ? ((v - 1) * p + 1) / v : 1;
}

/* Frozen matrices need their input only where an adapter stands beside them. */
static void take_adapters(struct rank *r, const struct unit_layout *block)
{
    const struct model *m = &r->m;
    if (m->adapter.rank == 0)
        return;
    r->adapters = (double)model_trained_unit(m, 1, block, 1).params;
    r->low = (double)(model_adapter_count(m, block) * m->adapter.rank);
    bool qkv = false, up = false;
    for (int role = T_Q_W; role <= T_V_W; role++)
        qkv = qkv || model_adapts(m, (enum tensor_role)role);
    for (int role = T_GATE_W; role <= T_UP_W; role++)
        up = up || model_adapts(m, (enum tensor_role)role);
    r->inputs_unread =
        (double)m->width * (!qkv + !up) + (double)m->ffn * !model_adapts(m, T_DOWN_W);
}

static struct rank make_rank(const struct model *m, const struct strategy *s, bool is_last)
{
    struct rank r = {.p = profile_of(s->engine),
        .s = s,
        .m = split_model(m, s),
        .own = split_strategy(s),
        .act = (double)precision_bytes(s->precision)};
    struct unit_layout block;
    model_unit_layout(&r.m, 1, 1, &block);
    r.experts = (double)r.m.expert_params;
    r.block = (double)block.params - r.experts;
    r.table = (double)(r.m.vocab * r.m.width);
    take_adapters(&r, &block);
    r.layers = (double)r.m.layers;
    bool is_split = s->parallel.pipeline > 1;
    r.tables = is_split || m->is_tied ? 1 : 2;
    r.has_loss = is_last || !is_split;
    r.in_flight = is_split ? in_flight(s, is_last) : 1;
    r.tokens = (double)(r.own.seq * s->micro_batch);
    bool is_sequence_split = s->parallel.tensor > 1 && s->memory.has_sequence_parallel;
    r.wide = (double)r.m.width / (is_sequence_split ? (double)s->parallel.tensor : 1);
    return r;
}

/* --- activations of a block, bytes of a micro batch --- */

static double heads_width(const struct rank *r)
{
    return (double)(r->m.heads * r->m.head_dim);
}

static double scores(const struct rank *r)
{
    if (!r->s->has_plain_attention)
        return 0;
    return score_bytes * r->tokens * (double)r->s->seq * (double)r->m.heads;
}

/* Everything that backward reads: block input, two norm outputs, the sum after attention, queries,
 * keys and values, what the heads see and its log-sum-exp, and the MLP before and after its
 * activation function. Inputs of 8-bit products are kept in 8 bits by some. */
static double kept_whole(const struct rank *r)
{
    bool is_gated = r->m.family == MODEL_LLAMA && !r->m.has_plain_mlp;
    bool is_8bit = r->p->keeps_8bit_inputs && r->s->precision >= PRECISION_FP8;
    double input = is_8bit ? 1 : r->act, ffn = (double)r->m.ffn;
    double norms = 2 * r->act * r->wide + 2 * input * r->wide;
    double attention = r->act * (double)((r->m.heads + 2 * r->m.kv_heads) * r->m.head_dim) +
                       r->act * heads_width(r) + 4 * (double)r->m.heads;
    double mlp = (is_gated ? 2 : 1) * r->act * ffn + input * ffn;
    double routed = r->m.expert_params > 0 ? r->act * (double)(r->m.expert_top * r->m.width) : 0;
    double unread = input * (r->low - r->inputs_unread);
    return r->tokens * (norms + attention + mlp + routed + unread);
}

/* torchtitan's per-operation mode: block input, queries, values, attention, the gate and the MLP's
 * output; every second product and everything cheap is computed again. */
static double kept_half(const struct rank *r)
{
    double attention = r->act * (double)((2 * r->m.heads + r->m.kv_heads) * r->m.head_dim) +
                       4 * (double)r->m.heads;
    return r->tokens * (2 * r->act * r->wide + attention + r->act * (double)r->m.ffn);
}

static double factor(const struct rank *r)
{
    return r->s->memory.is_fused ? r->p->fused_factor : r->p->activation_factor;
}

static double kept_selected(const struct rank *r)
{
    double whole = r->s->memory.whole_blocks;
    if (whole > 0)
        return whole * kept_whole(r) * factor(r) + (1 - whole) * r->tokens * r->act * r->wide;
    double ffn = (double)r->m.ffn;
    switch (r->p->selective) {
    case SELECTIVE_MATMULS:
        return kept_half(r);
    case SELECTIVE_ATTENTION:
        return kept_whole(r) * factor(r);
    default:
        return kept_whole(r) * factor(r) - r->tokens * r->act * (2 * r->wide + ffn);
    }
}

static double kept(const struct rank *r)
{
    switch (r->s->recompute) {
    case RECOMPUTE_FULL:
        return r->tokens * r->act * r->wide;
    case RECOMPUTE_SELECTIVE:
        return kept_selected(r);
    default:
        return kept_whole(r) * factor(r) + scores(r);
    }
}

/* With sequence parallelism, the input of a product as it is gathered: as much is its gradient. */
static double inputs(const struct rank *r)
{
    bool is_split = r->wide < (double)r->m.width;
    return is_split ? r->tokens * r->act * (double)r->m.width : 0;
}

/* What the backward of one block needs beside what all keep: the rest of it, computed again, and
 * gradients of what the MLP's last product and the block read. */
static double block_live(const struct rank *r)
{
    double whole = kept_whole(r) * factor(r) + scores(r);
    double again = fmax(0, whole - kept(r));
    double gradients = r->act * ((double)r->m.ffn + 2 * r->wide);
    return again + r->tokens * gradients + 2 * inputs(r);
}

/* --- states --- */

struct states {
    double param, grad, optimizer;
};

/* Experts are split over the ranks that hold the same ones, where anything is split at all. */
static double over(const struct rank *r, double shards)
{
    const struct parallel *p = &r->s->parallel;
    double dense = r->layers * r->block + r->tables * r->table;
    double whole = p->splits_experts ? 1 : (double)p->tensor;
    double holders = shards * whole / (double)p->expert;
    bool is_split = shards > 1 && p->expert > 1;
    return dense / shards + r->layers * r->experts / (is_split ? fmax(1, holders) : shards);
}

/* Parameters over shards, of adapters alone. */
static double adapters_over(const struct rank *r, double shards)
{
    return r->layers * r->adapters / shards;
}

/* Frozen ones in the type they are kept in. */
static double frozen_over(const struct rank *r, double shards)
{
    double block = adapter_base_bytes(&r->m.adapter, (int64_t)r->act);
    double blocks = r->layers * (r->block + r->experts);
    return (block * blocks + r->act * r->tables * r->table) / shards;
}

/* Of a trained parameter. Adapters are in the type of activations, as copies of fp32 ones or as
 * such. */
static struct states element_bytes(const struct rank *r)
{
    const struct strategy *s = r->s;
    bool is_mixed = s->master_bytes > 0 && s->precision != PRECISION_FP32;
    bool is_on_host = s->offload & OFFLOAD_OPTIMIZER, is_whole = r->m.adapter.rank == 0;
    struct states b = {.param = is_mixed && r->p->has_fp32_shard ? 4 : r->act,
        .grad = is_mixed ? r->p->grad_bytes : r->act,
        .optimizer = s->moment_bytes};
    if (is_mixed && !r->p->has_fp32_shard)
        b.optimizer += s->master_bytes;
    if (is_whole && s->memory.reduces_in_16bit)
        b.grad = r->act;
    bool has_accumulator = is_mixed && r->p->bf16_accumulator_bytes > 0 &&
                           s->precision != PRECISION_FP16 && s->parallel.pipeline > 1;
    if (is_whole && has_accumulator)
        b.grad += r->p->bf16_accumulator_bytes;
    else if (is_whole && is_mixed && !shards_parameters(s)) /* ZeRO-3 copies a group, later */
        b.optimizer += r->p->step_grad_bytes;
    if (s->offload & OFFLOAD_PARAMETERS)
        b.param = 0;
    if (is_on_host || s->memory.pages_optimizer)
        b.optimizer = 0;
    if (is_whole && is_on_host && s->kind >= STRATEGY_ZERO2)
        b.grad = 0; /* a bucket at a time */
    return b;
}

static struct states make_states(const struct rank *r)
{
    const struct states b = element_bytes(r);
    double param = (double)strategy_parameter_shards(&r->own);
    double grad = (double)strategy_gradient_shards(&r->own);
    double optimizer = (double)strategy_optimizer_shards(&r->own);
    if (r->m.adapter.rank == 0)
        return (struct states){
            b.param * over(r, param), b.grad * over(r, grad), b.optimizer * over(r, optimizer)};
    double frozen = r->s->offload & OFFLOAD_PARAMETERS ? 0 : frozen_over(r, param);
    return (struct states){b.param * adapters_over(r, param) + frozen,
        b.grad * adapters_over(r, grad), b.optimizer * adapters_over(r, optimizer)};
}

/* --- whole parameters and gradients that the strategy brings together --- */

/* Units gathered ahead and the one in use, their buffer beside them where parameters are copied out
 * of it, and the embedding and the head where they are gathered for the whole step. */
static double gathered(const struct rank *r)
{
    double block = r->block + r->experts, tables = r->tables * r->table;
    /* few bits become many matrix by matrix; the largest is a table's or the MLP's */
    if (!shards_parameters(r->s) && model_is_quantised(&r->m, 1))
        return r->act * (double)(r->m.ffn * r->m.width);
    if (!shards_parameters(r->s))
        return 0;
    if (r->m.adapter.rank >
        0) /* as gathered, in few bits; what is seen of it in many is one more */
        block *= adapter_base_bytes(&r->m.adapter, (int64_t)r->act) / r->act;
    if (r->p->live_params > 0)
        return r->act *
               fmax(fmin(r->layers * block + tables, r->p->live_params), fmax(block, r->table));
    /* a pipeline gathers once for all its micro batches */
    double blocks = r->s->parallel.pipeline > 1 ? r->layers : fmin(1 + r->p->prefetch, r->layers);
    double copied = (r->p->gathered_copies - 1) * block;
    if (r->s->memory.shards_tables)
        return r->act * fmax(blocks * block + copied, r->table + fmax(copied, block));
    return r->act * (blocks * block + copied + tables);
}

static double unit_gradients(const struct rank *r)
{
    double block = r->block + r->experts;
    bool is_mixed = r->s->master_bytes > 0;
    if (!shards_parameters(r->s))
        return 0;
    if (r->m.adapter.rank > 0)
        return (is_mixed ? r->p->unit_grad_bytes : r->act) * r->adapters;
    /* and reduces once, after its last micro batch: until then gradients are whole */
    if (r->s->parallel.pipeline > 1 && r->p->live_params <= 0)
        return 4 * (r->layers * block + r->table);
    double tables = r->s->memory.shards_tables ? 0 : r->tables * r->table;
    return (is_mixed ? r->p->unit_grad_bytes : r->act) * block + r->act * tables;
}

static double buckets(const struct rank *r)
{
    bool is_unpiped = r->s->parallel.pipeline == 1 && !shards_parameters(r->s);
    double unpiped = is_unpiped ? r->p->unpiped_bytes : 0;
    return r->s->ranks > 1 ? r->p->bucket_bytes + unpiped : 0;
}

static double logits(const struct rank *r)
{
    bool is_whole = r->s->parallel.tensor == 1 || r->p->fuses_split_loss;
    bool is_fused = r->s->memory.is_fused && is_whole;
    double whole = is_fused ? r->p->fused_logit_bytes : r->p->logit_bytes;
    double bytes = r->s->memory.loss == LOSS_FUSED     ? fused_logit_bytes
                   : r->s->memory.loss == LOSS_CHUNKED ? fmin(whole, chunked_logit_bytes)
                                                       : whole;
    return bytes * r->tokens * (double)r->m.vocab;
}

/* --- the peak --- */

static void add_up(struct engine_memory *x)
{
    x->total = 0;
    for (int i = 0; i < PART_COUNT; i++)
        x->total += x->part[i];
}

/* A gradient that is handed to the optimizer and freed at once: the largest is that of a table. */
static double one_gradient(const struct rank *r)
{
    if (r->m.adapter.rank > 0)
        return r->act * r->adapters;
    return r->act * fmax(r->table, (double)(r->m.ffn * r->m.width));
}

/* A moment that may be the worst: what is live, and of the activations what blocks keep. */
struct moment {
    struct engine_memory memory;
    double kept;
};

static struct moment peak_of(const struct rank *r)
{
    struct states st = make_states(r);
    /* kept between micro batches, or for good; else they come as backward goes and activations go
     */
    bool is_lasting = r->s->grad_accum > 1 || r->s->kind != STRATEGY_DDP || r->p->keeps_gradients;
    double grad = r->s->memory.frees_gradients ? one_gradient(r) : st.grad;
    double block = kept(r), micro = r->layers * block;
    if (r->s->parallel.pipeline > 1)
        micro += r->p->stage_outputs * r->tokens * r->act * r->wide;
    double acts = micro * r->in_flight;
    if (r->s->offload & OFFLOAD_ACTIVATIONS)
        acts = fmin(acts, 2 * block);
    struct moment base = {.kept = acts};
    base.memory.part[PART_PARAMETERS] = st.param;
    base.memory.part[PART_OPTIMIZER] = st.optimizer;
    base.memory.part[PART_GRADIENTS] = is_lasting ? grad : 0;
    base.memory.part[PART_GATHERED] = gathered(r);
    base.memory.part[PART_SCRATCH] = buckets(r);

    struct moment loss = base, first = base, last = base;
    loss.memory.part[PART_ACTIVATIONS] = acts + 3 * r->tokens * r->act * r->wide + 2 * inputs(r);
    loss.memory.part[PART_LOGITS] = r->has_loss ? logits(r) : 0;
    first.memory.part[PART_ACTIVATIONS] = acts + block_live(r);
    first.memory.part[PART_UNIT_GRADIENTS] = unit_gradients(r);
    last.kept = acts - micro + fmin(micro, block);
    last.memory.part[PART_ACTIVATIONS] = last.kept + block_live(r);
    last.memory.part[PART_UNIT_GRADIENTS] = unit_gradients(r);
    last.memory.part[PART_GRADIENTS] = grad;
    add_up(&loss.memory);
    add_up(&first.memory);
    add_up(&last.memory);
    struct moment *most = loss.memory.total > first.memory.total ? &loss : &first;
    return most->memory.total > last.memory.total ? *most : last;
}

/* Of the first pipeline stage and the last, the fuller one. */
static struct moment worst(struct rank *r, const struct model *m, const struct strategy *s)
{
    *r = make_rank(m, s, false);
    struct moment first = peak_of(r);
    if (s->parallel.pipeline <= 1)
        return first;
    struct rank end = make_rank(m, s, true);
    struct moment last = peak_of(&end);
    if (first.memory.total > last.memory.total)
        return first;
    *r = end;
    return last;
}

double engine_block_bytes(const struct model *m, const struct strategy *s)
{
    struct rank r = make_rank(m, s, false);
    return kept(&r);
}

struct engine_memory engine_memory(const struct model *m, const struct strategy *s)
{
    struct rank r;
    return worst(&r, m, s).memory;
}

/* --- what the peak is made of --- */

static void add_params(struct terms *out, enum part part, const char *what, double params,
    struct factor shards, double bytes)
{
    if (!(params * bytes > 0))
        return;
    struct term *t = terms_add(out, part_name(part), what);
    term_times(t, params, "parameters");
    if (shards.value > 1)
        term_over(t, shards.value, shards.word);
    term_times(t, bytes, "bytes");
    t->total = term_product(t);
}

/* States of a rank: dense parameters, experts, adapters, whatever there is. */
static void add_states(
    struct terms *out, const struct rank *r, enum part part, double shards, double bytes)
{
    struct factor ranks = {shards, "ranks"};
    double dense = r->layers * r->block + r->tables * r->table, experts = r->layers * r->experts;
    if (r->m.adapter.rank > 0) {
        add_params(out, part, "adapters", r->layers * r->adapters, ranks, bytes);
        return;
    }
    add_params(out, part, "of a stage", dense, ranks, bytes);
    double each = over(r, shards) - dense / shards; /* of a rank */
    if (experts > 0)
        add_params(out, part, "experts", experts, (struct factor){experts / each, "ranks"}, bytes);
}

static void add_frozen(struct terms *out, const struct rank *r, double shards)
{
    struct factor ranks = {shards, "ranks"};
    if (r->m.adapter.rank == 0 || (r->s->offload & OFFLOAD_PARAMETERS))
        return;
    add_params(out, PART_PARAMETERS, "frozen, of blocks", r->layers * (r->block + r->experts),
        ranks, adapter_base_bytes(&r->m.adapter, (int64_t)r->act));
    add_params(out, PART_PARAMETERS, "frozen, of tables", r->tables * r->table, ranks, r->act);
}

/* bytes of a token: what is left of the total. */
static void add_tokens(struct terms *out, const struct rank *r, enum part part, const char *what,
    struct factor times, double total)
{
    if (!(total > 0))
        return;
    struct term *t = terms_add(out, part_name(part), what);
    if (times.value > 0)
        term_times(t, times.value, times.word);
    double rest = total / fmax(times.value, 1) / r->tokens;
    term_times(t, r->tokens, "tokens");
    term_times(t, rest, "bytes");
    t->total = total;
}

void engine_memory_terms(struct terms *out, const struct model *m, const struct strategy *s)
{
    struct rank r;
    struct moment x = worst(&r, m, s);
    const struct states b = element_bytes(&r);
    const double *part = x.memory.part;
    const struct factor none = {0, NULL}, vocab = {(double)r.m.vocab, "vocabulary"};
    double parameters = (double)strategy_parameter_shards(&r.own), block = kept(&r);
    add_states(out, &r, PART_PARAMETERS, parameters, b.param);
    add_frozen(out, &r, parameters);
    if (s->memory.frees_gradients)
        add_params(out, PART_GRADIENTS, "one at a time", part[PART_GRADIENTS] / r.act, none, r.act);
    else if (part[PART_GRADIENTS] > 0)
        add_states(out, &r, PART_GRADIENTS, (double)strategy_gradient_shards(&r.own), b.grad);
    add_states(out, &r, PART_OPTIMIZER, (double)strategy_optimizer_shards(&r.own), b.optimizer);
    add_params(out, PART_GATHERED, "gathered at once", part[PART_GATHERED] / r.act, none, r.act);
    add_params(out, PART_UNIT_GRADIENTS, "before they are reduced",
        part[PART_UNIT_GRADIENTS] / r.act, none, r.act);
    add_tokens(out, &r, PART_ACTIVATIONS, "kept by blocks",
        (struct factor){x.kept / block, "blocks"}, x.kept);
    add_tokens(out, &r, PART_ACTIVATIONS, "where backward or the loss is", none,
        part[PART_ACTIVATIONS] - x.kept);
    add_tokens(out, &r, PART_LOGITS, "logits and their copies", vocab, part[PART_LOGITS]);
    if (part[PART_SCRATCH] > 0) {
        struct term *t = terms_add(out, part_name(PART_SCRATCH), "buckets");
        term_times(t, part[PART_SCRATCH], "bytes");
        t->total = part[PART_SCRATCH];
    }
}
