#include "planner/model.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/json.h"

/* --- checking --- */

static const char *const family_names[] = {"llama", "gpt2"};
static const char *const rope_names[] = {"none", "linear", "llama3"};

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
    DIMENSION(layers, 10000),
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
        return err_set(e, RC_INVALID, "model '%s' has rope_theta %g; it must be above 1", m->name,
            m->rope_theta);
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

/* Parameters in floating point, so that absurd products are seen instead of overflowing. */
static double rough_params(const struct model *m)
{
    double q = (double)m->heads * (double)m->head_dim,
           kv = (double)m->kv_heads * (double)m->head_dim;
    double block = (double)m->width * (2 * q + 2 * kv + 3 * (double)m->ffn);
    return (double)m->layers * block +
           (double)m->width * (2 * (double)m->vocab + (double)m->max_positions);
}

enum rc model_check(const struct model *m, struct err *e)
{
    if ((int)m->family < 0 || (size_t)m->family >= BASE_COUNT(family_names) || (int)m->rope < 0 ||
        (size_t)m->rope >= BASE_COUNT(rope_names))
        return err_set(e, RC_INVALID, "model '%s' is of no known family", m->name);
    enum rc rc = check_dimensions(m, e);
    if (!rc)
        rc = check_heads(m, e);
    if (!rc)
        rc = check_numbers(m, e);
    if (!rc && m->family == MODEL_LLAMA) {
        struct model without_positions = *m;
        without_positions.max_positions = 0;
        if (rough_params(&without_positions) > max_params)
            rc =
                err_set(e, RC_INVALID, "model '%s' has more than 200 trillion parameters", m->name);
    } else if (!rc && rough_params(m) > max_params) {
        rc = err_set(e, RC_INVALID, "model '%s' has more than 200 trillion parameters", m->name);
    }
    return rc;
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
    place(p, T_GATE_W, m->ffn, m->width);
    place_at(p, T_UP_W, m->ffn, m->width);
    place(p, T_DOWN_W, m->width, m->ffn);
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

/* --- JSON --- */

struct json *model_to_json(const struct model *m)
{
    struct json *v = json_obj();
    json_add_str(v, "name", m->name);
    json_add_str(v, "family", family_names[m->family]);
    for (size_t i = 0; i < BASE_COUNT(dimensions); i++)
        json_add_int(v, dimensions[i].name, dimension_of(m, &dimensions[i]));
    json_add_bool(v, "is_tied", m->is_tied);
    json_add_bool(v, "has_qkv_bias", m->has_qkv_bias);
    json_add_bool(v, "has_qk_norm", m->has_qk_norm);
    json_add_num(v, "norm_eps", m->norm_eps);
    if (m->family == MODEL_LLAMA) {
        json_add_num(v, "rope_theta", m->rope_theta);
        json_add_str(v, "rope_scaling", rope_names[m->rope]);
    }
    if (m->rope != ROPE_PLAIN)
        json_add_num(v, "rope_factor", m->rope_factor);
    if (m->rope == ROPE_LLAMA3) {
        json_add_num(v, "rope_low_freq", m->rope_low_freq);
        json_add_num(v, "rope_high_freq", m->rope_high_freq);
        json_add_int(v, "rope_original_positions", m->rope_original_positions);
    }
    return v;
}

/* Index of a word in a table, -1 when it is not there. */
static int find_word(const char *const *words, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (word && strcmp(words[i], word) == 0)
            return (int)i;
    return -1;
}

enum rc model_from_json(struct model *out, const struct json *v, struct err *e)
{
    struct model m = {.name = "unnamed"};
    const char *name = json_str(v, "name", NULL);
    if (name)
        snprintf(m.name, sizeof m.name, "%s", name);
    int family = find_word(family_names, BASE_COUNT(family_names), json_str(v, "family", NULL));
    int rope = find_word(rope_names, BASE_COUNT(rope_names), json_str(v, "rope_scaling", "none"));
    if (family < 0)
        return err_set(e, RC_INVALID, "model '%s' needs a family, llama or gpt2", m.name);
    if (rope < 0)
        return err_set(
            e, RC_INVALID, "model '%s': rope_scaling must be none, linear or llama3", m.name);
    m.family = (enum model_family)family;
    m.rope = (enum rope_scaling)rope;
    for (size_t i = 0; i < BASE_COUNT(dimensions); i++) {
        const struct dimension *d = &dimensions[i];
        int64_t *field = (int64_t *)((char *)&m + d->offset);
        if (json_need_int(v, d->name, 1, d->max, field, e))
            return err_in(e, "model '%s'", m.name);
    }
    m.is_tied = json_bool(v, "is_tied", false);
    m.has_qkv_bias = json_bool(v, "has_qkv_bias", false);
    m.has_qk_norm = json_bool(v, "has_qk_norm", false);
    m.norm_eps = json_num(v, "norm_eps", 1e-5);
    m.rope_theta = json_num(v, "rope_theta", family == MODEL_LLAMA ? 1e4 : 0);
    m.rope_factor = json_num(v, "rope_factor", 0);
    m.rope_low_freq = json_num(v, "rope_low_freq", 0);
    m.rope_high_freq = json_num(v, "rope_high_freq", 0);
    m.rope_original_positions = json_int(v, "rope_original_positions", 0);
    enum rc rc = model_check(&m, e);
    if (!rc)
        *out = m;
    return rc;
}
