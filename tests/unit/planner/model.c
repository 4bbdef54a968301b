#include "planner/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"

/* Parameter counts from model cards and checkpoints (safetensors totals); for Llama also
 * arXiv 2307.09288 and 2407.21783 to three digits. */
static const struct {
    const char *name;
    int64_t params;
} published[] = {
    {"gpt2", 124439808},
    {"gpt2-medium", 354823168},
    {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},
    {"smollm2-135m", 134515008},
    {"smollm2-360m", 361821120},
    {"smollm2-1.7b", 1711376384},
    {"tinyllama-1.1b", 1100048384},
    {"llama-2-7b", 6738415616},
    {"llama-2-13b", 13015864320},
    {"llama-2-70b", 68976648192},
    {"llama-3-8b", 8030261248},
    {"llama-3.1-8b", 8030261248},
    {"llama-3.1-70b", 70553706496},
    {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},
    {"llama-3.2-3b", 3212749824},
    {"mistral-7b", 7248023552},
    {"mistral-7b-v0.1", 7241732096},
    {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688},
    {"qwen2.5-7b", 7615616512},
    {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352},
    {"qwen2.5-72b", 72706203648},
    {"qwen3-0.6b", 596049920},
    {"qwen3-1.7b", 1720574976},
    {"qwen3-4b", 4022468096},
    {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},
    {"qwen3-32b", 32762123264},
};

static void counts_parameters_as_published(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < BASE_COUNT(published); i++) {
        struct model m;
        assert_int_equal(model_find(&m, published[i].name, &e), RC_OK);
        if (model_params(&m) != published[i].params)
            fail_msg("%s has %lld parameters, published are %lld", m.name,
                (long long)model_params(&m), (long long)published[i].params);
    }
}

static void every_preset_passes_its_own_check(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    int n = 0;
    for (const char *name; (name = model_preset_name(n)) != NULL; n++) {
        struct model m;
        assert_int_equal(model_find(&m, name, &e), RC_OK);
        assert_int_equal(model_check(&m, &e), RC_OK);
    }
    assert_true(n > 30);
}

static void finds_aliases_in_any_case_and_suggests_the_nearest(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(model_find(&m, "Llama3.1-8B", &e), RC_OK);
    assert_string_equal(m.name, "llama-3.1-8b");
    assert_int_equal(model_find(&m, "gpt2-1.5b", &e), RC_OK);
    assert_string_equal(m.name, "gpt2-xl");
    assert_int_equal(model_find(&m, "lama-3.1-8b", &e), RC_USAGE);
    assert_non_null(strstr(e.msg, "did you mean 'llama-3.1-8b'"));
    assert_int_equal(model_find(&m, "something quite different", &e), RC_USAGE);
    assert_null(strstr(e.msg, "did you mean"));
}

/* Rules of planner/model.h, checked tensor by tensor. */
static void check_unit(const struct model *m, int unit, int64_t shards)
{
    struct unit_layout u;
    model_unit_layout(m, unit, shards, &u);
    int64_t end = 0, params = 0;
    for (int i = 0; i < u.n; i++) {
        const struct tensor *t = &u.tensor[i];
        bool follows = t->role == T_K_W || t->role == T_V_W || t->role == T_K_B ||
                       t->role == T_V_B || (t->role == T_UP_W && m->family == MODEL_LLAMA);
        if (follows)
            assert_int_equal(t->offset, end);
        else
            assert_int_equal(t->offset % MODEL_ALIGN, 0);
        assert_true(t->offset >= end && t->offset - end < MODEL_ALIGN);
        end = t->offset + t->rows * t->cols;
        params += t->rows * t->cols;
    }
    assert_int_equal(u.params, params);
    assert_int_equal(u.elems % (shards * MODEL_ALIGN), 0);
    assert_true(u.elems >= end && u.elems - end < shards * MODEL_ALIGN);
    assert_int_equal(u.shard_elems * shards, u.elems);
}

static void lays_units_out_aligned_and_fused_parts_without_gaps(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (int i = 0; model_preset_name(i); i++) {
        struct model m;
        assert_int_equal(model_find(&m, model_preset_name(i), &e), RC_OK);
        if (m.experts > 0) /* only what a token passes through has tensors */
            continue;
        for (int64_t shards = 1; shards <= 24; shards += 7)
            for (int unit = 0; unit < model_units(&m); unit++)
                check_unit(&m, unit, shards);
    }
}

static void names_tensors_as_checkpoints_do(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    char buf[128];
    assert_int_equal(model_find(&m, "llama-3.1-8b", &e), RC_OK);
    assert_string_equal(
        model_tensor_name(&m, 4, T_Q_W, buf), "model.layers.3.self_attn.q_proj.weight");
    assert_string_equal(model_tensor_name(&m, 0, T_TOKEN_EMBED, buf), "model.embed_tokens.weight");
    assert_string_equal(model_tensor_name(&m, 33, T_HEAD_W, buf), "lm_head.weight");
    assert_int_equal(model_find(&m, "gpt2", &e), RC_OK);
    assert_string_equal(model_tensor_name(&m, 1, T_NORM2_B, buf), "transformer.h.0.ln_2.bias");
    assert_string_equal(model_tensor_name(&m, 13, T_FINAL_NORM_W, buf), "transformer.ln_f.weight");
}

static void survives_a_round_trip_through_json(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (int i = 0; model_preset_name(i); i++) {
        struct model a, b;
        assert_int_equal(model_find(&a, model_preset_name(i), &e), RC_OK);
        struct json *v = model_to_json(&a);
        assert_int_equal(model_from_json(&b, v, &e), RC_OK);
        struct json *w = model_to_json(&b);
        char *one = json_print(v, false), *two = json_print(w, false);
        assert_string_equal(one, two);
        free(one);
        free(two);
        json_free(v);
        json_free(w);
    }
}

/* --- config.json --- */

static enum rc read_config(struct model *m, const char *text, struct err *e)
{
    struct json *v = NULL;
    enum rc rc = json_parse(&v, text, strlen(text), e);
    if (!rc)
        rc = model_from_config(m, v, e);
    json_free(v);
    return rc;
}

/* The published config.json of Qwen/Qwen3-0.6B, shortened. */
static const char qwen3_06b[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": false, \"head_dim\": 128,"
    "\"hidden_act\": \"silu\", \"hidden_size\": 1024, \"intermediate_size\": 3072,"
    "\"max_position_embeddings\": 40960, \"max_window_layers\": 28, \"model_type\": \"qwen3\","
    "\"num_attention_heads\": 16, \"num_hidden_layers\": 28, \"num_key_value_heads\": 8,"
    "\"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 1000000,"
    "\"sliding_window\": null, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\","
    "\"use_sliding_window\": false, \"vocab_size\": 151936}";

static const char llama31_8b[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 14336,"
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
    "\"vocab_size\": 128256, \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5,"
    "\"rope_theta\": 500000.0, \"tie_word_embeddings\": false, \"rope_scaling\": {"
    "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,"
    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}}";

static void reads_published_configs(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(read_config(&m, qwen3_06b, &e), RC_OK);
    assert_int_equal(model_params(&m), 596049920);
    assert_true(m.has_qk_norm && m.is_tied && !m.has_qkv_bias);
    assert_int_equal(read_config(&m, llama31_8b, &e), RC_OK);
    assert_int_equal(model_params(&m), 8030261248);
    assert_int_equal(m.rope, ROPE_LLAMA3);
    assert_int_equal(m.rope_original_positions, 8192);
    assert_int_equal(read_config(&m,
                         "{\"model_type\": \"gpt2\", \"n_embd\": 768, \"n_head\": 12, \"n_layer\":"
                         "12, \"n_positions\": 1024, \"n_inner\": null, \"vocab_size\": 50257}",
                         &e),
        RC_OK);
    assert_int_equal(model_params(&m), 124439808);
}

static void plans_a_sliding_window_only_up_to_its_length(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(
        read_config(&m,
            "{\"model_type\": \"mistral\", \"hidden_size\": 4096, \"intermediate_size\": 14336,"
            "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
            "\"vocab_size\": 32000, \"max_position_embeddings\": 32768, \"sliding_window\": 4096}",
            &e),
        RC_OK);
    assert_int_equal(m.max_positions, 4096);
}

/* Llama and Mistral use a window that is there, Qwen one that is switched on. */
static void a_window_counts_when_it_is_active(void **state)
{
    (void)state;
    static const struct {
        const char *type, *more;
        int64_t positions;
    } cases[] = {
        {"llama", "\"sliding_window\": 512", 512},
        {"llama", "\"sliding_window\": 512, \"use_sliding_window\": false", 2048},
        {"llama", "\"sliding_window\": null", 2048},
        {"llama", "\"sliding_window\": 4096", 2048},
        {"mistral", "\"sliding_window\": 512", 512},
        {"mistral", "\"rope_theta\": 1e6", 4096}, /* what its class takes then */
        {"mistral", "\"sliding_window\": null", 131072},
        {"qwen2", "\"sliding_window\": 512", 32768},
        {"qwen2", "\"sliding_window\": 512, \"use_sliding_window\": true", 512},
        {"qwen3", "\"use_sliding_window\": true", 4096},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        struct err e = ERR_INIT;
        struct model m;
        char *text = base_printf("{\"model_type\": \"%s\", \"num_hidden_layers\": 2,"
                                 "\"hidden_size\": 64, \"num_attention_heads\": 4,"
                                 "\"num_key_value_heads\": 4,"
                                 "\"intermediate_size\": 64, \"vocab_size\": 9, %s}",
            cases[i].type, cases[i].more);
        if (read_config(&m, text, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(m.max_positions, cases[i].positions);
        bool is_short = cases[i].positions == 512 || cases[i].positions == 4096;
        assert_int_equal(m.is_windowed, is_short);
        assert_int_equal(model_check_seq(&m, cases[i].positions + 1, &e), RC_INVALID);
        assert_int_equal(model_check_seq(&m, cases[i].positions, &e), RC_OK);
        if (is_short)
            assert_non_null(strstr(e.msg, "'sliding_window'"));
        free(text);
    }
}

static void an_object_with_unknown_fields_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *more, *word;
    } bad[] = {
        {"\"sliding_window\": 512", "'sliding_window'"},
        {"\"rope_scaling\": {\"type\": \"yarn\"}", "'rope_scaling' must be given as none, linear"},
        {"\"is_tyed\": true", "did you mean 'is_tied'"},
        {"\"is_tied\": 1", "'is_tied' must be given as true or false"},
        {"\"norm_eps\": \"small\"", "'norm_eps' must be given as number"},
    };
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        struct err e = ERR_INIT;
        struct json *v = NULL;
        struct model m;
        char *text =
            base_printf("{\"family\": \"llama\", \"layers\": 2, \"width\": 64, \"heads\": 4,"
                        "\"kv_heads\": 4, \"head_dim\": 16, \"ffn\": 64, \"vocab\": 9,"
                        "\"max_positions\": 64, %s}",
                bad[i].more);
        assert_int_equal(json_parse(&v, text, strlen(text), &e), RC_OK);
        assert_int_equal(model_from_json(&m, v, &e), RC_INVALID);
        if (!strstr(e.msg, bad[i].word))
            fail_msg("case %zu: '%s' lacks '%s'", i, e.msg, bad[i].word);
        json_free(v);
        free(text);
    }
}

/* A config of three fields replaced, and the word the sentence must hold. */
static const struct {
    const char *config, *word;
} bad_configs[] = {
    {"[]", "object"},
    {"{}", "model_type"},
    {"{\"model_type\": \"bert\"}", "bert"},
    {"{\"model_type\": 7}", "model_type"},
    {"{\"model_type\": \"llama\"}", "num_hidden_layers"},
    {"{\"model_type\": \"gpt2\", \"n_embd\": 770, \"n_head\": 12, \"n_layer\": 12, \"n_positions\":"
     "1024, \"vocab_size\": 50257}",
        "n_head"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 0, \"hidden_size\": 8}",
        "num_hidden_layers"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 1e30}", "num_hidden_layers"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": -3}", "num_hidden_layers"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64,"
     "\"num_attention_heads\": 5, \"intermediate_size\": 64, \"vocab_size\": 9}",
        "head_dim"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64,"
     "\"num_attention_heads\": 4, \"num_key_value_heads\": 3, \"intermediate_size\": 64,"
     "\"vocab_size\": 9}",
        "kv_heads"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 999, \"hidden_size\": 1000000,"
     "\"num_attention_heads\": 1000, \"intermediate_size\": 8000000, \"vocab_size\": 9}",
        "trillion"},
    {"{\"model_type\": \"llama\", \"num_local_experts\": 8}", "num_local_experts"},
    {"{\"model_type\": \"llama\", \"attention_bias\": true}", "attention_bias"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
     "\"num_attention_heads\": 4,"
     "\"intermediate_size\": 64, \"vocab_size\": 9, \"rope_scaling\": {\"type\": \"yarn\", "
     "\"factor\": 4}}",
        "'rope_scaling' is 'yarn'"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
     "\"num_attention_heads\": 4,"
     "\"intermediate_size\": 64, \"vocab_size\": 9, \"rope_scaling\": {\"factor\": 8}}",
        "'rope_scaling' needs a text 'rope_type'"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
     "\"num_attention_heads\": 4,"
     "\"intermediate_size\": 64, \"vocab_size\": 9, \"rope_scaling\": \"linear\"}",
        "'rope_scaling' must be an object"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
     "\"num_attention_heads\": 4,"
     "\"intermediate_size\": 64, \"vocab_size\": 9, \"rope_scaling\": {\"rope_type\": 5}}",
        "'rope_scaling' needs a text"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
     "\"num_attention_heads\": 4,"
     "\"intermediate_size\": 64, \"vocab_size\": 9, \"rope_parameters\": {\"rope_type\": "
     "\"longrope\"}}",
        "'rope_parameters' is 'longrope'"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
     "\"num_attention_heads\": 4,"
     "\"intermediate_size\": 64, \"vocab_size\": 9, \"rope_parameters\": {\"rope_theta\": 1e6}, "
     "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
        "'rope_scaling' is 'dynamic'"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
     "\"num_attention_heads\": 4,"
     "\"intermediate_size\": 64, \"vocab_size\": 9, \"hidden_act\": 7}",
        "'hidden_act'"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
     "\"num_attention_heads\": 4,"
     "\"intermediate_size\": 64, \"vocab_size\": 9, \"sliding_window\": \"all\"}",
        "'sliding_window'"},
};

static void refuses_bad_configs_in_one_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < BASE_COUNT(bad_configs); i++) {
        struct err e = ERR_INIT;
        struct model m = {.layers = 77};
        assert_int_not_equal(read_config(&m, bad_configs[i].config, &e), RC_OK);
        if (!strstr(e.msg, bad_configs[i].word))
            fail_msg("case %zu: '%s' lacks '%s'", i, e.msg, bad_configs[i].word);
        assert_int_equal(m.layers, 77);
    }
}

/* Fields of models that ours are not: refused where they say so, taken where they say nothing. */
static void parts_that_would_change_the_arithmetic_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *more, *word; /* NULL: taken */
    } cases[] = {
        {"\"mlp_bias\": true", "'mlp_bias' is true"},
        {"\"mlp_bias\": \"yes\"", "'mlp_bias' is \"yes\""}, {"\"mlp_bias\": false", NULL},
        {"\"attention_bias\": true", "'attention_bias' is true"},
        {"\"attention_bias\": null", NULL},
        {"\"partial_rotary_factor\": 0.5", "'partial_rotary_factor' is 0.5"},
        {"\"partial_rotary_factor\": 1.0", NULL},
        {"\"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}",
            "'rope_parameters' has 'partial_rotary_factor'"},
        {"\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e4}}",
            "'rope_parameters' has 'full_attention'"},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"attention_factor\": 2}",
            "'rope_scaling' has 'attention_factor'"},
        {"\"final_logit_softcapping\": 30.0", "'final_logit_softcapping' is 30"},
        {"\"attn_logit_softcapping\": null", NULL},
        {"\"attention_multiplier\": 0.015625", "'attention_multiplier'"},
        {"\"residual_multiplier\": 0.22", "'residual_multiplier'"},
        {"\"residual_multiplier\": 1", NULL},
        {"\"layer_types\": [\"full_attention\", \"chunked_attention\"]", "chunked_attention"},
        {"\"layer_types\": [\"full_attention\"]", NULL},
        {"\"num_experts\": 8", "mixtures of experts"},
        {"\"num_experts\": \"8\"", "mixtures of experts"}, {"\"num_experts\": 0", NULL},
        {"\"quantization_config\": {\"quant_method\": \"fp8\"}", "'quantization_config' is {"},
        {"\"hidden_act\": \"gelu\"", "'hidden_act' is 'gelu'"},
        {"\"attention_dropout\": 0.1", NULL}, /* of its training, not of ours */
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        struct err e = ERR_INIT;
        struct model m;
        char *text = base_printf("{\"model_type\": \"llama\", \"num_hidden_layers\": 2,"
                                 "\"hidden_size\": 64, \"num_attention_heads\": 4,"
                                 "\"intermediate_size\": 64, \"vocab_size\": 9, %s}",
            cases[i].more);
        enum rc rc = read_config(&m, text, &e);
        if (rc != (cases[i].word ? RC_INVALID : RC_OK))
            fail_msg("%s: %s", cases[i].more, rc ? e.msg : "taken");
        if (rc && !strstr(e.msg, cases[i].word))
            fail_msg("%s: '%s' lacks '%s'", cases[i].more, e.msg, cases[i].word);
        free(text);
    }
}

static void gpt2_without_scaled_scores_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(read_config(&m,
                         "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_head\": 2, \"n_layer\": 1,"
                         "\"n_positions\": 8, \"vocab_size\": 9, \"scale_attn_weights\": false}",
                         &e),
        RC_INVALID);
    assert_non_null(strstr(e.msg, "'scale_attn_weights' is false"));
}

/* Qwen3's class has heads of 128 and Mistral's another number of key heads, where nothing is said.
 */
static void what_a_config_leaves_out_is_what_its_class_takes(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    const char *form =
        "{\"model_type\": \"%s\", \"num_hidden_layers\": 2, \"hidden_size\": 64,"
        "\"num_attention_heads\": 4, \"intermediate_size\": 64, \"vocab_size\": 9%s}";
    char *text = base_printf(form, "qwen3", ", \"num_key_value_heads\": 2");
    assert_int_equal(read_config(&m, text, &e), RC_OK);
    assert_int_equal(m.head_dim, 128);
    free(text);
    text = base_printf(form, "mistral", "");
    assert_int_equal(read_config(&m, text, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "num_key_value_heads"));
    free(text);
}

static void presets_survive_as_config_json(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (int i = 0; model_preset_name(i); i++) {
        struct model a, b;
        struct json *config;
        assert_int_equal(model_find(&a, model_preset_name(i), &e), RC_OK);
        if (a.experts > 0) { /* only planned: no weights are ever written */
            assert_int_equal(model_to_config(&config, &a, "bfloat16", &e), RC_INVALID);
            continue;
        }
        assert_int_equal(model_to_config(&config, &a, "bfloat16", &e), RC_OK);
        assert_int_equal(model_from_config(&b, config, &e), RC_OK);
        snprintf(b.name, sizeof b.name, "%s", a.name);
        struct json *v = model_to_json(&a), *w = model_to_json(&b);
        char *one = json_print(v, false), *two = json_print(w, false);
        assert_string_equal(one, two);
        free(one);
        free(two);
        json_free(v);
        json_free(w);
        json_free(config);
    }
}

static void a_model_without_a_class_has_no_config(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct json *config;
    struct model m;
    assert_int_equal(model_find(&m, "tiny-qwen3", &e), RC_OK);
    m.has_qkv_bias = true;
    assert_int_equal(model_to_config(&config, &m, "float32", &e), RC_INVALID);
    assert_null(config);
}

static void refuses_every_truncation_of_a_config(void **state)
{
    (void)state;
    for (size_t n = 0; n < strlen(llama31_8b); n++) {
        char *cut = base_strndup(llama31_8b, n);
        struct err e = ERR_INIT;
        struct model m;
        assert_int_not_equal(read_config(&m, cut, &e), RC_OK);
        assert_true(e.msg[0] != '\0');
        free(cut);
    }
}

/* It comes from files of others, and goes into scripts and onto terminals. */
static void a_name_cannot_steer_a_terminal(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m, back;
    assert_int_equal(model_find(&m, "gpt2", &e), RC_OK);
    snprintf(m.name, sizeof m.name, "%s", "a\033[31mb\nc");
    struct json *v = model_to_json(&m);
    assert_int_equal(model_from_json(&back, v, &e), RC_OK);
    assert_string_equal(back.name, "a?[31mb?c");
    json_free(v);
}

int test_model(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_parameters_as_published),
        cmocka_unit_test(every_preset_passes_its_own_check),
        cmocka_unit_test(finds_aliases_in_any_case_and_suggests_the_nearest),
        cmocka_unit_test(lays_units_out_aligned_and_fused_parts_without_gaps),
        cmocka_unit_test(names_tensors_as_checkpoints_do),
        cmocka_unit_test(survives_a_round_trip_through_json),
        cmocka_unit_test(a_name_cannot_steer_a_terminal),
        cmocka_unit_test(reads_published_configs),
        cmocka_unit_test(plans_a_sliding_window_only_up_to_its_length),
        cmocka_unit_test(a_window_counts_when_it_is_active),
        cmocka_unit_test(an_object_with_unknown_fields_is_refused),
        cmocka_unit_test(refuses_bad_configs_in_one_sentence),
        cmocka_unit_test(parts_that_would_change_the_arithmetic_are_refused_by_name),
        cmocka_unit_test(gpt2_without_scaled_scores_is_refused),
        cmocka_unit_test(what_a_config_leaves_out_is_what_its_class_takes),
        cmocka_unit_test(presets_survive_as_config_json),
        cmocka_unit_test(a_model_without_a_class_has_no_config),
        cmocka_unit_test(refuses_every_truncation_of_a_config),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
