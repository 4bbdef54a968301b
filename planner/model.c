#include "planner/model.h"

#include <assert.h>
#include <math.h>

#include "base/alloc.h"
#include "planner/adapter.h"

/* --- checking --- */

/* Largest model worth planning: overflow cannot happen below these. */
static const double max_params = 2e14;

struct dimension {
    const char *name;
    size_t offset;
    int64_t max;
};
#define DIMENSION(field, max)                                                                      \
    {                                                                                              \
#field, offsetof(struct model, field), (max)                                               \
    }
static const struct dimension dimensions[] = {
    DIMENSION(layers, 1024), /* the deepest known has 1,000: arXiv 2203.00555 */
    DIMENSION(width, 1 << 20),
    DIMENSION(heads, 1 << 14),
    DIMENSION(kv_heads, 1 << 14),
    DIMENSION(head_dim, 1 << 14),
    DIMENSION(ffn, 1 << 23),
    DIMENSION(vocab, 1 << 24),
    DIMENSION(max_positions, 1 << 28),
};

static int64_t dimension_of(const struct model *m, const struct dimension *d)
{
    return *(const int64_t *)((const char *)m + d->offset);
}

static enum rc check_dimensions(const struct model *m, struct err *e)
{
    for (size_t i = 0; i < BASE_COUNT(dimensions); i++) {
        int64_t v = dimension_of(m, &dimensions[i]);
        if (v < 1 || v > dimensions[i].max)
            return err_set(e, RC_INVALID, "model '%s' has %s %lld; it must lie in 1 to %lld",
                m->name, dimensions[i].name, (long long)v, (long long)dimensions[i].max);
    }
    return RC_OK;
}

static enum rc check_heads(const struct model *m, struct err *e)
{
    if (m->heads % m->kv_heads != 0)
        return err_set(e, RC_INVALID,
            "model '%s' has %lld heads, which %lld kv_heads do not divide", m->name,
            (long long)m->heads, (long long)m->kv_heads);
    if (m->family == MODEL_LLAMA && m->head_dim % 2 != 0)
        return err_set(e, RC_INVALID,
            "model '%s' has head_dim %lld; rotary embeddings need an even one", m->name,
            (long long)m->head_dim);
    if (m->family == MODEL_GPT2 && (m->kv_heads != m->heads || m->heads * m->head_dim != m->width))
        return err_set(e, RC_INVALID,
            "model '%s' is GPT-2, whose heads x head_dim must be its width %lld", m->name,
            (long long)m->width);
    return RC_OK;
}

static enum rc check_numbers(const struct model *m, struct err *e)
{
    if (!(m->norm_eps > 0 && m->norm_eps < 1))
        return err_set(e, RC_INVALID, "model '%s' has norm_eps %g; it must lie between 0 and 1",
            m->name, m->norm_eps);
    if (m->family != MODEL_LLAMA)
        return RC_OK;
    if (!(m->rope_theta > 1 && m->rope_theta < 1e12))
        return err_set(e, RC_INVALID, "model '%s' has rope_theta %g; it must lie in 1 to 10^12",
            m->name, m->rope_theta);
    if (m->rope != ROPE_PLAIN && !(m->rope_factor >= 1 && m->rope_factor <= 1e4))
        return err_set(e, RC_INVALID, "model '%s' has rope factor %g; it must lie in 1 to 10000",
            m->name, m->rope_factor);
    if (m->rope == ROPE_LLAMA3 && !(m->rope_low_freq > 0 && m->rope_high_freq > m->rope_low_freq &&
                                      m->rope_high_freq < 1e6 && m->rope_original_positions > 0))
        return err_set(e, RC_INVALID,
            "model '%s' has rope scaling llama3 without sensible low and high frequency factors "
            "and original positions",
            m->name);
    return RC_OK;
}

enum rc model_check_seq(const struct model *m, int64_t seq, struct err *e)
{
    if (seq <= m->max_positions)
        return RC_OK;
    return err_set(e, RC_INVALID, "model '%s' takes sequences of up to %lld tokens%s, not %lld",
        m->name, (long long)m->max_positions,
        m->is_windowed ? ", the length of its 'sliding_window'" : "", (long long)seq);
}

/* Of the MLP that a token passes through. */
static double mlp_params(const struct model *m)
{
    return (double)m->width * (double)m->ffn *
           (m->has_plain_mlp || m->family == MODEL_GPT2 ? 2 : 3);
}

static enum rc check_experts(const struct model *m, struct err *e)
{
    if (m->expert_params == 0 && m->experts == 0 && m->expert_top == 0)
        return RC_OK;
    if (m->expert_params < 0 || (double)m->expert_params < mlp_params(m))
        return err_set(e, RC_INVALID,
            "model '%s' has %lld expert_params; those of a token alone, of width %lld, are %.0f",
            m->name, (long long)m->expert_params, (long long)m->ffn, mlp_params(m));
    if (m->expert_top < 1 || m->experts < 0 || m->experts > MODEL_MAX_EXPERTS ||
        (m->experts > 0 && m->expert_top > m->experts))
        return err_set(e, RC_INVALID,
            "model '%s' has %lld experts, of which a token passes through %lld", m->name,
            (long long)m->experts, (long long)m->expert_top);
    if (m->family != MODEL_LLAMA)
        return err_set(e, RC_INVALID, "model '%s': only llama may have experts", m->name);
    return RC_OK;
}

/* Parameters in floating point, so that absurd products are seen instead of overflowing. */
static double rough_params(const struct model *m)
{
    double q = (double)m->heads * (double)m->head_dim,
           kv = (double)m->kv_heads * (double)m->head_dim;
    double mlp = fmax(3 * (double)m->width * (double)m->ffn, (double)m->expert_params);
    double block = (double)m->width * (2 * q + 2 * kv) + mlp;
    return (double)m->layers * block +
           (double)m->width * (2 * (double)m->vocab + (double)m->max_positions);
}

enum rc model_check(const struct model *m, struct err *e)
{
    if ((int)m->family < 0 || m->family >= MODEL_FAMILIES || (int)m->rope < 0 ||
        m->rope >= ROPE_KINDS)
        return err_set(e, RC_INVALID, "model '%s' is of no known family", m->name);
    enum rc rc = check_dimensions(m, e);
    if (!rc)
        rc = check_heads(m, e);
    if (!rc)
        rc = check_numbers(m, e);
    if (!rc)
        rc = check_experts(m, e);
    if (!rc && m->family == MODEL_LLAMA) {
        struct model without_positions = *m;
        without_positions.max_positions = 0;
        if (rough_params(&without_positions) > max_params)
            rc =
                err_set(e, RC_INVALID, "model '%s' has more than 200 trillion parameters", m->name);
    } else if (!rc && rough_params(m) > max_params) {
        rc = err_set(e, RC_INVALID, "model '%s' has more than 200 trillion parameters", m->name);
    }
    return rc ? rc : adapter_check(m, e);
}

/* --- layout of units --- */

/* Adds tensors to a unit one after the other. */
struct placer {
    struct unit_layout *u;
    int64_t next; /* first free element */
};

static void place_at(struct placer *p, enum tensor_role role, int64_t rows, int64_t cols)
{
    assert(p->u->n < MODEL_MAX_TENSORS);
    struct tensor *t = &p->u->tensor[p->u->n++];
    *t = (struct tensor){.role = role, .rows = rows, .cols = cols, .offset = p->next};
    t->is_vector = cols == 1;
    t->is_decayed = !t->is_vector;
    p->next += rows * cols;
    p->u->params += rows * cols;
}

/* At the next aligned element. */
static void place(struct placer *p, enum tensor_role role, int64_t rows, int64_t cols)
{
    p->next = (int64_t)base_align_up((uint64_t)p->next, MODEL_ALIGN);
    place_at(p, role, rows, cols);
}

static void place_norm(
    struct placer *p, const struct model *m, enum tensor_role weight, enum tensor_role bias)
{
    place(p, weight, m->width, 1);
    if (m->family == MODEL_GPT2)
        place(p, bias, m->width, 1);
}

static void place_attention(struct placer *p, const struct model *m)
{
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    place(p, T_Q_W, q, m->width);
    place_at(p, T_K_W, kv, m->width);
    place_at(p, T_V_W, kv, m->width);
    if (m->family == MODEL_GPT2 || m->has_qkv_bias) {
        place(p, T_Q_B, q, 1);
        place_at(p, T_K_B, kv, 1);
        place_at(p, T_V_B, kv, 1);
    }
    if (m->has_qk_norm) {
        place(p, T_Q_NORM_W, m->head_dim, 1);
        place(p, T_K_NORM_W, m->head_dim, 1);
    }
    place(p, T_O_W, m->width, q);
    if (m->family == MODEL_GPT2)
        place(p, T_O_B, m->width, 1);
}

static void place_mlp(struct placer *p, const struct model *m)
{
    if (m->family == MODEL_GPT2) {
        place(p, T_UP_W, m->ffn, m->width);
        place(p, T_UP_B, m->ffn, 1);
        place(p, T_DOWN_W, m->width, m->ffn);
        place(p, T_DOWN_B, m->width, 1);
        return;
    }
    if (!m->has_plain_mlp)
        place(p, T_GATE_W, m->ffn, m->width);
    place_at(p, T_UP_W, m->ffn, m->width);
    place(p, T_DOWN_W, m->width, m->ffn);
}

/* The MLP of the layout is what a token passes through; all experts are stored. Each is sharded
 * over the ranks that hold the same ones. */
static void add_experts(const struct model *m, int64_t shards, struct unit_layout *out)
{
    int64_t active = m->ffn * m->width * (m->has_plain_mlp ? 2 : 3);
    int64_t holders = m->expert_ranks > 1 && shards > m->expert_ranks ? shards / m->expert_ranks
                      : m->expert_ranks > 1                           ? 1
                                                                      : shards;
    int64_t dense_shard = (out->elems - active) / shards;
    out->params += m->expert_params - active;
    out->elems += m->expert_params - active;
    out->shard_elems = dense_shard + m->expert_params / holders;
}

void model_unit_layout(const struct model *m, int unit, int64_t shards, struct unit_layout *out)
{
    assert(unit >= 0 && unit < model_units(m) && shards >= 1);
    memset(out, 0, sizeof *out);
    struct placer p = {.u = out};
    if (unit == 0) {
        place(&p, T_TOKEN_EMBED, m->vocab, m->width);
        if (m->family == MODEL_GPT2)
            place(&p, T_POSITION_EMBED, m->max_positions, m->width);
    } else if (unit <= m->layers) {
        place_norm(&p, m, T_NORM1_W, T_NORM1_B);
        place_attention(&p, m);
        place_norm(&p, m, T_NORM2_W, T_NORM2_B);
        place_mlp(&p, m);
    } else {
        place_norm(&p, m, T_FINAL_NORM_W, T_FINAL_NORM_B);
        if (!m->is_tied)
            place(&p, T_HEAD_W, m->vocab, m->width);
    }
    out->elems = (int64_t)base_align_up((uint64_t)p.next, (uint64_t)shards * MODEL_ALIGN);
    out->shard_elems = out->elems / shards;
    if (m->expert_params > 0 && unit > 0 && unit <= m->layers)
        add_experts(m, shards, out);
}

const struct tensor *unit_tensor(const struct unit_layout *u, enum tensor_role role)
{
    for (int i = 0; i < u->n; i++)
        if (u->tensor[i].role == role)
            return &u->tensor[i];
    return NULL;
}

int model_units(const struct model *m)
{
    return (int)m->layers + 2;
}

int64_t model_params(const struct model *m)
{
    struct unit_layout embed, block, head;
    model_unit_layout(m, 0, 1, &embed);
    model_unit_layout(m, 1, 1, &block);
    model_unit_layout(m, model_units(m) - 1, 1, &head);
    return embed.params + m->layers * block.params + head.params;
}

int64_t model_active_params(const struct model *m)
{
    int64_t per_column = m->has_plain_mlp ? 2 : 3;
    int64_t idle = m->expert_params > 0 ? m->expert_params - m->ffn * m->width * per_column : 0;
    return model_params(m) - m->layers * idle;
}

/* --- names of Hugging Face checkpoints --- */

struct tensor_word {
    const char *llama, *gpt2; /* NULL: the family has no such tensor of its own */
};
static const struct tensor_word tensor_words[T_ROLE_COUNT] = {
    [T_TOKEN_EMBED] = {"model.embed_tokens.weight", "transformer.wte.weight"},
    [T_POSITION_EMBED] = {NULL, "transformer.wpe.weight"},
    [T_NORM1_W] = {"input_layernorm.weight", "ln_1.weight"},
    [T_NORM1_B] = {NULL, "ln_1.bias"},
    /* GPT-2 keeps q, k and v in one tensor */
    [T_Q_W] = {"self_attn.q_proj.weight", "attn.c_attn.weight"},
    [T_K_W] = {"self_attn.k_proj.weight", "attn.c_attn.weight"},
    [T_V_W] = {"self_attn.v_proj.weight", "attn.c_attn.weight"},
    [T_Q_B] = {"self_attn.q_proj.bias", "attn.c_attn.bias"},
    [T_K_B] = {"self_attn.k_proj.bias", "attn.c_attn.bias"},
    [T_V_B] = {"self_attn.v_proj.bias", "attn.c_attn.bias"},
    [T_Q_NORM_W] = {"self_attn.q_norm.weight", NULL},
    [T_K_NORM_W] = {"self_attn.k_norm.weight", NULL},
    [T_O_W] = {"self_attn.o_proj.weight", "attn.c_proj.weight"},
    [T_O_B] = {NULL, "attn.c_proj.bias"},
    [T_NORM2_W] = {"post_attention_layernorm.weight", "ln_2.weight"},
    [T_NORM2_B] = {NULL, "ln_2.bias"},
    [T_GATE_W] = {"mlp.gate_proj.weight", NULL},
    [T_UP_W] = {"mlp.up_proj.weight", "mlp.c_fc.weight"},
    [T_UP_B] = {NULL, "mlp.c_fc.bias"},
    [T_DOWN_W] = {"mlp.down_proj.weight", "mlp.c_proj.weight"},
    [T_DOWN_B] = {NULL, "mlp.c_proj.bias"},
    [T_FINAL_NORM_W] = {"model.norm.weight", "transformer.ln_f.weight"},
    [T_FINAL_NORM_B] = {NULL, "transformer.ln_f.bias"},
    [T_HEAD_W] = {"lm_head.weight", "lm_head.weight"},
};

char *model_tensor_name(const struct model *m, int unit, enum tensor_role role, char buf[128])
{
    const struct tensor_word *w = &tensor_words[role];
    const char *word = m->family == MODEL_GPT2 ? w->gpt2 : w->llama;
    const char *prefix = m->family == MODEL_GPT2 ? "transformer.h" : "model.layers";
    assert(word);
    if (unit == 0 || unit > m->layers)
        snprintf(buf, 128, "%s", word);
    else
        snprintf(buf, 128, "%s.%d.%s", prefix, unit - 1, word);
    return buf;
}
