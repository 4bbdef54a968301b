/* Finding a model: a preset's name, or Hugging Face's config.json. */
#include <math.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "planner/model.h"
#include "planner/model_experts.h"
#include "planner/model_presets.h"

enum { CONFIG_MAX_BYTES = 1 << 20 };

/* What each model_type of a config.json means for the Llama family, and what holds there for what a
 * file leaves out (the config classes of transformers 4.51). */
struct config_type {
    const char *name;
    bool has_qkv_bias, has_qk_norm;
    bool has_window; /* sliding_window applies unless use_sliding_window is false (Qwen: absent) */
    int64_t positions, window;
    int64_t head_dim;       /* 0: hidden_size / num_attention_heads */
    bool has_one_kv_a_head; /* else their number must be said */
};
static const struct config_type config_types[] = {
    {"llama", false, false, true, 2048, 0, 0, true},
    {"mistral", false, false, true, 131072, 4096, 0, false},
    {"qwen2", true, false, false, 32768, 4096, 0, false},
    {"qwen3", false, true, false, 32768, 4096, 128, false},
};

static enum rc need(const struct json *c, const char *key, int64_t *out, struct err *e)
{
    return json_need_int(c, key, 1, INT32_MAX, out, e);
}

/* Optional positive integer: absent or null leaves *out, which holds the default. */
static enum rc maybe(const struct json *c, const char *key, int64_t *out, struct err *e)
{
    return json_get(c, key) ? need(c, key, out, e) : RC_OK;
}

static enum rc maybe_num(const struct json *c, const char *key, double *out, struct err *e)
{
    return json_get(c, key) ? json_need_num(c, key, out, e) : RC_OK;
}

/* Also true of null. */
static bool has_key(const struct json *c, const char *key)
{
    void *cursor = NULL;
    const char *name;
    const struct json *value;
    while (json_next(c, &cursor, &name, &value))
        if (strcmp(name, key) == 0)
            return true;
    return false;
}

/* --- what would be another model --- */

/* Parts that some model has and ours have not. At this value, or null, the part is not there. */
static const struct {
    const char *key;
    double neutral; /* of a number, or of true and false as 1 and 0 */
} other_parts[] = {
    {"attention_bias", 0},
    {"mlp_bias", 0},
    {"scale_attn_weights", 1},
    {"scale_attn_by_inverse_layer_idx", 0},
    {"add_cross_attention", 0},
    {"is_encoder_decoder", 0},
    {"partial_rotary_factor", 1},
    {"rotary_pct", 1},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"logits_scaling", 1},
    {"logit_scale", 1},
    {"attention_multiplier", NAN},
    {"query_pre_attn_scalar", NAN},
    {"clip_qkv", NAN},
    {"no_rope_layers", NAN},
    {"use_qk_norm", 0},
    {"qk_layernorm", 0},
    {"alibi", 0},
    {"quantization_config", NAN},
};

static bool is_neutral(const struct json *v, double neutral)
{
    double x = json_is_bool(v) ? (json_as_bool(v, false) ? 1 : 0) : json_as_num(v, NAN);
    return fabs(x - neutral) < 1e-9;
}

static enum rc refuse_experts(const struct json *c, struct err *e)
{
    static const char *const names[] = {
        "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"};
    for (size_t i = 0; i < BASE_COUNT(names); i++) {
        const struct json *v = json_get(c, names[i]);
        if (v && !(json_as_num(v, NAN) <= 1))
            return err_set(e, RC_INVALID,
                "'%s' is set: mixtures of experts of this model type are not supported", names[i]);
    }
    return RC_OK;
}

/* Which of the layers have a window is not told apart: see apply_window. */
static enum rc refuse_layer_types(const struct json *c, struct err *e)
{
    const struct json *types = json_get(c, "layer_types");
    if (types && !json_is_arr(types))
        return err_set(e, RC_INVALID, "'layer_types' must be a list");
    for (size_t i = 0; i < json_len(types); i++) {
        const char *word = json_as_str(json_at(types, i), "not a text");
        if (strcmp(word, "full_attention") != 0 && strcmp(word, "sliding_attention") != 0)
            return err_set(e, RC_INVALID, "'layer_types' has '%s', which is not supported", word);
    }
    return RC_OK;
}

/* What we would compute differently from the original: refused by name. Dropout is not: it is a
 * choice of training, and this training makes another. */
static enum rc refuse_unknown_parts(const struct json *c, struct err *e)
{
    for (size_t i = 0; i < BASE_COUNT(other_parts); i++) {
        const struct json *v = json_get(c, other_parts[i].key);
        if (v && !is_neutral(v, other_parts[i].neutral)) {
            char *text = json_print(v, false);
            enum rc rc = err_set(
                e, RC_INVALID, "'%s' is %.60s, which is not supported", other_parts[i].key, text);
            free(text);
            return rc;
        }
    }
    bool is_mixture = model_experts_like(json_str(c, "model_type", "")) != NULL;
    enum rc rc = is_mixture ? RC_OK : refuse_experts(c, e);
    return rc ? rc : refuse_layer_types(c, e);
}

static enum rc need_activation(
    const struct json *c, const char *key, const char *wanted, const char *other, struct err *e)
{
    const struct json *v = json_get(c, key);
    const char *have = v ? json_as_str(v, "not a text") : wanted;
    if (strcmp(have, wanted) != 0 && strcmp(have, other) != 0)
        return err_set(e, RC_INVALID, "'%s' is '%s'; only '%s' is supported", key, have, wanted);
    return RC_OK;
}

/* --- Llama family --- */

/* Also of rotary embeddings that are not scaled. */
static enum rc refuse_rope_parts(const struct json *r, const char *where, struct err *e)
{
    static const char *const known[] = {"rope_type", "type", "rope_theta", "factor",
        "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
    void *cursor = NULL;
    const char *name;
    const struct json *value;
    while (json_next(r, &cursor, &name, &value)) {
        bool is_known = !json_get(r, name) ||
                        (strcmp(name, "partial_rotary_factor") == 0 && is_neutral(value, 1));
        for (size_t i = 0; i < BASE_COUNT(known); i++)
            is_known |= strcmp(name, known[i]) == 0;
        if (!is_known)
            return err_set(e, RC_INVALID, "'%s' has '%s', which is not supported", where, name);
    }
    return RC_OK;
}

/* The object and its type: rope_parameters in newer files, where the type may be left out, or
 * rope_scaling with rope_type or type. *type is "default" without any. */
static enum rc find_rope(
    const struct json *c, const struct json **out, const char **type, struct err *e)
{
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    *type = "default";
    *out = NULL;
    for (size_t i = 0; i < BASE_COUNT(names); i++) {
        const struct json *r = json_get(c, names[i]), *have;
        if (!r)
            continue;
        if (!json_is_obj(r))
            return err_set(e, RC_INVALID, "'%s' must be an object or null", names[i]);
        have = json_get(r, "rope_type") ? json_get(r, "rope_type") : json_get(r, "type");
        if (!have && i == 0) {
            if (refuse_rope_parts(r, names[i], e))
                return e->code;
            continue;
        }
        if (!json_is_str(have))
            return err_set(e, RC_INVALID, "'%s' needs a text 'rope_type'", names[i]);
        *out = r;
        *type = json_as_str(have, "");
        if (strcmp(*type, "default") != 0 && strcmp(*type, "linear") != 0 &&
            strcmp(*type, "llama3") != 0)
            return err_set(e, RC_INVALID,
                "'%s' is '%s', which is not supported (linear and llama3 are)", names[i], *type);
        return refuse_rope_parts(r, names[i], e);
    }
    return RC_OK;
}

static enum rc read_rope(struct model *m, const struct json *c, struct err *e)
{
    const struct json *r;
    const char *type;
    m->rope_theta = 10000;
    enum rc rc = find_rope(c, &r, &type, e);
    if (!rc)
        rc = maybe_num(c, "rope_theta", &m->rope_theta, e);
    if (!rc)
        rc = maybe_num(json_get(c, "rope_parameters"), "rope_theta", &m->rope_theta, e);
    if (rc || strcmp(type, "default") == 0)
        return rc;
    rc = json_need_num(r, "factor", &m->rope_factor, e);
    m->rope = ROPE_LINEAR;
    if (rc || type[1] == 'i')
        return rc;
    m->rope = ROPE_LLAMA3;
    rc = json_need_num(r, "low_freq_factor", &m->rope_low_freq, e);
    if (!rc)
        rc = json_need_num(r, "high_freq_factor", &m->rope_high_freq, e);
    if (!rc)
        rc = need(r, "original_max_position_embeddings", &m->rope_original_positions, e);
    return rc;
}

/* A sliding window is the same model up to its length, so that is as far as it is planned. */
static enum rc apply_window(
    struct model *m, const struct config_type *t, const struct json *c, struct err *e)
{
    int64_t window = m->max_positions;
    if (!json_bool(c, "use_sliding_window", t->has_window))
        return RC_OK;
    if (t->window > 0 && !has_key(c, "sliding_window"))
        window = t->window;
    enum rc rc = maybe(c, "sliding_window", &window, e);
    m->is_windowed = window < m->max_positions;
    if (m->is_windowed)
        m->max_positions = window;
    return rc;
}

static enum rc read_llama_sizes(
    struct model *m, const struct config_type *t, const struct json *c, struct err *e)
{
    enum rc rc = need(c, "num_hidden_layers", &m->layers, e);
    if (!rc)
        rc = need(c, "hidden_size", &m->width, e);
    if (!rc)
        rc = need(c, "num_attention_heads", &m->heads, e);
    if (!rc)
        rc = need(c, "intermediate_size", &m->ffn, e);
    if (!rc)
        rc = need(c, "vocab_size", &m->vocab, e);
    if (rc)
        return rc;
    m->max_positions = t->positions;
    m->kv_heads = m->heads;
    rc = maybe(c, "max_position_embeddings", &m->max_positions, e);
    if (!rc)
        rc = t->has_one_kv_a_head ? maybe(c, "num_key_value_heads", &m->kv_heads, e)
                                  : need(c, "num_key_value_heads", &m->kv_heads, e);
    if (rc)
        return rc;
    m->head_dim = t->head_dim;
    if (json_get(c, "head_dim") || t->head_dim > 0)
        return maybe(c, "head_dim", &m->head_dim, e);
    if (m->width % m->heads != 0)
        return err_set(e, RC_INVALID,
            "'hidden_size' %lld is not a multiple of 'num_attention_heads' %lld, and 'head_dim' "
            "is not given",
            (long long)m->width, (long long)m->heads);
    m->head_dim = m->width / m->heads;
    return RC_OK;
}

static enum rc read_llama(
    struct model *m, const struct config_type *t, const struct json *c, struct err *e)
{
    m->family = MODEL_LLAMA;
    m->has_qkv_bias = t->has_qkv_bias;
    m->has_qk_norm = t->has_qk_norm;
    m->is_tied = json_bool(c, "tie_word_embeddings", false);
    m->norm_eps = 1e-6;
    enum rc rc = read_llama_sizes(m, t, c, e);
    if (!rc)
        rc = apply_window(m, t, c, e);
    if (!rc)
        rc = need_activation(c, "hidden_act", "silu", "swish", e);
    if (!rc)
        rc = maybe_num(c, "rms_norm_eps", &m->norm_eps, e);
    if (!rc)
        rc = read_rope(m, c, e);
    return rc;
}

/* --- GPT-2 --- */

static enum rc read_gpt2(struct model *m, const struct json *c, struct err *e)
{
    m->family = MODEL_GPT2;
    m->is_tied = json_bool(c, "tie_word_embeddings", true);
    m->norm_eps = 1e-5;
    enum rc rc = need(c, "n_layer", &m->layers, e);
    if (!rc)
        rc = need(c, "n_embd", &m->width, e);
    if (!rc)
        rc = need(c, "n_head", &m->heads, e);
    if (!rc)
        rc = need(c, "vocab_size", &m->vocab, e);
    if (!rc)
        rc = need(c, json_get(c, "n_positions") ? "n_positions" : "n_ctx", &m->max_positions, e);
    if (rc)
        return rc;
    if (m->width % m->heads != 0)
        return err_set(e, RC_INVALID, "'n_embd' %lld is not a multiple of 'n_head' %lld",
            (long long)m->width, (long long)m->heads);
    m->kv_heads = m->heads;
    m->head_dim = m->width / m->heads;
    m->ffn = 4 * m->width;
    rc = maybe(c, "n_inner", &m->ffn, e);
    if (!rc)
        rc = need_activation(c, "activation_function", "gelu_new", "gelu_pytorch_tanh", e);
    if (!rc)
        rc = maybe_num(c, "layer_norm_epsilon", &m->norm_eps, e);
    return rc;
}

/* --- a whole config --- */

/* Last component, with what a name may not hold replaced. */
static void name_from(char out[MODEL_NAME], const char *text)
{
    const char *slash = strrchr(text, '/');
    str_copy(out, MODEL_NAME, slash ? slash + 1 : text);
    for (char *p = out; *p; p++)
        if (!((*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') ||
                strchr("._-+", *p)))
            *p = '_';
}

static enum rc read_family(struct model *m, const struct json *config, struct err *e)
{
    const char *type;
    enum rc rc = json_need_str(config, "model_type", &type, e);
    if (rc)
        return rc;
    if (strcmp(type, "gpt2") == 0)
        return read_gpt2(m, config, e);
    const char *like = model_experts_like(type);
    for (size_t i = 0; i < BASE_COUNT(config_types); i++) {
        if (strcmp(config_types[i].name, like ? like : type) != 0)
            continue;
        rc = read_llama(m, &config_types[i], config, e);
        return rc || !like ? rc : model_read_experts(m, config, e);
    }
    return err_set(e, RC_INVALID,
        "model type '%s' is not supported (llama, mistral, qwen2, qwen3, gpt2, and with experts "
        "mixtral, qwen2_moe, qwen3_moe and deepseek are)",
        type);
}

enum rc model_from_config(struct model *out, const struct json *config, struct err *e)
{
    struct model m = {.name = ""};
    name_from(m.name, json_str(config, "_name_or_path", ""));
    if (m.name[0] == '\0')
        str_copy(m.name, sizeof m.name, "config");
    if (!json_is_obj(config))
        return err_set(e, RC_INVALID, "a model config must be a JSON object");
    enum rc rc = refuse_unknown_parts(config, e);
    if (!rc)
        rc = read_family(&m, config, e);
    if (!rc)
        rc = model_check(&m, e);
    if (!rc)
        *out = m;
    return rc;
}

/* Name of a config without one: its folder's, else its own. */
static void name_from_path(char out[MODEL_NAME], const char *path)
{
    char *copy = base_strdup(path);
    char *slash = strrchr(copy, '/');
    if (slash && slash != copy && strcmp(slash + 1, "config.json") == 0)
        *slash = '\0';
    name_from(out, copy);
    if (str_ends(out, ".json"))
        out[strlen(out) - strlen(".json")] = '\0';
    free(copy);
}

/* "organisation/Name", as models are called elsewhere: perhaps a preset is meant. */
static enum rc no_such_file(const char *path, struct err *e)
{
    const char *name = strrchr(path, '/') + 1;
    char near[MODEL_NAME];
    if (model_preset_nearest(name, near))
        return err_set(e, RC_USAGE,
            "there is no file '%s'; did you mean the preset '%s'? Else give the path of the "
            "model's config.json",
            path, near);
    return err_set(e, RC_USAGE,
        "there is no file '%s'; give a preset (berth help models) or the path of the model's "
        "config.json",
        path);
}

static enum rc read_config_file(struct model *out, const char *path, struct err *e)
{
    struct json *config = NULL;
    if (strchr(path, '/') && !str_ends(path, ".json") && !file_exists(path))
        return no_such_file(path, e);
    enum rc rc = err_input(e, json_read(&config, path, CONFIG_MAX_BYTES, e));
    if (rc)
        return rc;
    rc = json_get(config, "family") ? model_from_json(out, config, e)
                                    : model_from_config(out, config, e);
    if (rc)
        err_in(e, "model '%s'", path);
    else if (strcmp(out->name, "config") == 0)
        name_from_path(out->name, path);
    json_free(config);
    return rc;
}

static bool looks_like_path(const char *name)
{
    return strchr(name, '/') || str_ends(name, ".json") || strcmp(name, "-") == 0;
}

enum rc model_find(struct model *out, const char *name_or_path, struct err *e)
{
    if (model_preset_find(out, name_or_path))
        return RC_OK;
    if (looks_like_path(name_or_path))
        return read_config_file(out, name_or_path, e);
    char near[MODEL_NAME];
    if (model_preset_nearest(name_or_path, near))
        return err_set(e, RC_USAGE, "unknown model '%s'; did you mean '%s'?", name_or_path, near);
    return err_set(e, RC_USAGE,
        "unknown model '%s'; give a preset (berth help models) or the path of a config.json",
        name_or_path);
}
