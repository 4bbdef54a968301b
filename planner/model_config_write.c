/* A model as the config.json that transformers reads, in the fields it has had for long. */
#include "base/alloc.h"
#include "base/json.h"
#include "planner/model.h"

struct hf_class {
    const char *type, *architecture;
};

static const struct hf_class *class_of(const struct model *m)
{
    static const struct hf_class gpt2 = {"gpt2", "GPT2LMHeadModel"},
                                 llama = {"llama", "LlamaForCausalLM"},
                                 qwen2 = {"qwen2", "Qwen2ForCausalLM"},
                                 qwen3 = {"qwen3", "Qwen3ForCausalLM"};
    if (m->has_plain_mlp || m->expert_params > 0 || m->adapter.rank > 0)
        return NULL;
    if (m->family == MODEL_GPT2)
        return &gpt2;
    if (m->has_qk_norm)
        return m->has_qkv_bias ? NULL : &qwen3;
    return m->has_qkv_bias ? &qwen2 : &llama;
}

static void add_gpt2(struct json *v, const struct model *m)
{
    json_add_str(v, "activation_function", "gelu_new");
    json_add_int(v, "n_layer", m->layers);
    json_add_int(v, "n_embd", m->width);
    json_add_int(v, "n_head", m->heads);
    json_add_int(v, "n_inner", m->ffn);
    json_add_int(v, "n_positions", m->max_positions);
    json_add_num(v, "layer_norm_epsilon", m->norm_eps);
    /* its class would train with dropout otherwise, which was not done here */
    json_add_num(v, "attn_pdrop", 0);
    json_add_num(v, "embd_pdrop", 0);
    json_add_num(v, "resid_pdrop", 0);
}

static void add_rope(struct json *v, const struct model *m)
{
    json_add_num(v, "rope_theta", m->rope_theta);
    if (m->rope == ROPE_PLAIN) {
        json_add_null(v, "rope_scaling");
        return;
    }
    struct json *r = json_obj();
    json_add_str(r, "rope_type", m->rope == ROPE_LINEAR ? "linear" : "llama3");
    json_add_num(r, "factor", m->rope_factor);
    if (m->rope == ROPE_LLAMA3) {
        json_add_num(r, "low_freq_factor", m->rope_low_freq);
        json_add_num(r, "high_freq_factor", m->rope_high_freq);
        json_add_int(r, "original_max_position_embeddings", m->rope_original_positions);
    }
    json_add(v, "rope_scaling", r);
}

static void add_llama(struct json *v, const struct model *m)
{
    json_add_str(v, "hidden_act", "silu");
    json_add_int(v, "num_hidden_layers", m->layers);
    json_add_int(v, "hidden_size", m->width);
    json_add_int(v, "num_attention_heads", m->heads);
    json_add_int(v, "num_key_value_heads", m->kv_heads);
    json_add_int(v, "head_dim", m->head_dim);
    json_add_int(v, "intermediate_size", m->ffn);
    json_add_int(v, "max_position_embeddings", m->max_positions);
    json_add_num(v, "rms_norm_eps", m->norm_eps);
    json_add_bool(v, "attention_bias", false);
    json_add_bool(v, "use_sliding_window", false);
    add_rope(v, m);
}

enum rc model_to_config(
    struct json **out, const struct model *m, const char *torch_dtype, struct err *e)
{
    const struct hf_class *c = m->expert_params > 0 ? NULL : class_of(m);
    *out = NULL;
    if (!c)
        return err_set(
            e, RC_INVALID, "model '%s' is none that a config.json can describe", m->name);
    struct json *v = json_obj(), *architectures = json_arr();
    json_push_str(architectures, c->architecture);
    json_add(v, "architectures", architectures);
    json_add_str(v, "model_type", c->type);
    json_add_str(v, "torch_dtype", torch_dtype);
    json_add_int(v, "vocab_size", m->vocab);
    json_add_bool(v, "tie_word_embeddings", m->is_tied);
    if (m->family == MODEL_GPT2)
        add_gpt2(v, m);
    else
        add_llama(v, m);
    json_add_null(v, "bos_token_id"); /* the tokenizer knows; the classes' own would be wrong */
    json_add_null(v, "eos_token_id");
    *out = v;
    return RC_OK;
}
