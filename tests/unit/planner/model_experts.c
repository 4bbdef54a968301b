#include "planner/model_experts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "planner/estimate.h"
#include "planner/launchable.h"
#include "planner/split.h"

static enum rc read_config(struct model *m, const char *text, struct err *e)
{
    struct json *v = NULL;
    enum rc rc = json_parse(&v, text, strlen(text), e);
    if (!rc)
        rc = model_from_config(m, v, e);
    json_free(v);
    return rc;
}

/* Published configurations, shortened, and what their authors say of the sizes: mistral.ai
 * (arXiv 2401.04088: 47B, 13B active; safetensors 46,702,792,704), Qwen's cards (30.5B and 3.3B;
 * 14.3B and 2.7B), arXiv 2401.06066 (16.4B and 2.8B). within: of the rounding of the latter. */
static const struct {
    const char *config;
    double params, active, within;
} published[] = {
    {"{\"model_type\": \"mixtral\", \"hidden_size\": 4096, \"intermediate_size\": 14336,"
     "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
     "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"vocab_size\": 32000,"
     "\"max_position_embeddings\": 32768, \"sliding_window\": null, \"rope_theta\": 1e6,"
     "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false}",
        46702792704, 12.9e9, 0.002},
    {"{\"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, \"intermediate_size\": 6144,"
     "\"moe_intermediate_size\": 768, \"num_hidden_layers\": 48, \"num_attention_heads\": 32,"
     "\"num_key_value_heads\": 4, \"head_dim\": 128, \"num_experts\": 128,"
     "\"num_experts_per_tok\": 8, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [],"
     "\"vocab_size\": 151936, \"max_position_embeddings\": 40960, \"tie_word_embeddings\": false}",
        30532122624, 3.3e9, 0.02},
    {"{\"model_type\": \"qwen2_moe\", \"hidden_size\": 2048, \"intermediate_size\": 5632,"
     "\"moe_intermediate_size\": 1408, \"shared_expert_intermediate_size\": 5632,"
     "\"num_hidden_layers\": 24, \"num_attention_heads\": 16, \"num_key_value_heads\": 16,"
     "\"num_experts\": 60, \"num_experts_per_tok\": 4, \"vocab_size\": 151936,"
     "\"tie_word_embeddings\": false}",
        14315784192, 2.7e9, 0.02},
    {"{\"model_type\": \"deepseek\", \"hidden_size\": 2048, \"intermediate_size\": 10944,"
     "\"moe_intermediate_size\": 1408, \"num_hidden_layers\": 28, \"num_attention_heads\": 16,"
     "\"num_key_value_heads\": 16, \"n_routed_experts\": 64, \"n_shared_experts\": 2,"
     "\"num_experts_per_tok\": 6, \"first_k_dense_replace\": 1, \"moe_layer_freq\": 1,"
     "\"vocab_size\": 102400}",
        16375728128, 2.8e9, 0.02},
};

static void counts_total_and_active_parameters_as_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < BASE_COUNT(published); i++) {
        struct err e = ERR_INIT;
        struct model m;
        if (read_config(&m, published[i].config, &e))
            fail_msg("case %zu: %s", i, e.msg);
        /* blocks without experts are spread over the others, to the integer */
        double off = fabs((double)model_params(&m) - published[i].params);
        if (off > (double)m.layers)
            fail_msg("case %zu: %lld parameters", i, (long long)model_params(&m));
        double active = (double)model_active_params(&m) / published[i].active;
        if (fabs(active - 1) > published[i].within)
            fail_msg("case %zu: %lld active", i, (long long)model_active_params(&m));
    }
}

static void presets_are_the_published_configs(void **state)
{
    (void)state;
    static const char *const names[] = {"mixtral-8x7b", "qwen3-30b-a3b"};
    for (int i = 0; i < 2; i++) {
        struct err e = ERR_INIT;
        struct model preset, config;
        assert_int_equal(model_find(&preset, names[i], &e), RC_OK);
        assert_int_equal(read_config(&config, published[i].config, &e), RC_OK);
        assert_int_equal(model_params(&preset), model_params(&config));
        assert_int_equal(preset.experts, config.experts);
        assert_int_equal(preset.expert_top, config.expert_top);
        assert_int_equal(preset.ffn, config.ffn);
        assert_int_equal(model_check(&preset, &e), RC_OK);
    }
}

static const struct {
    const char *fields; /* behind those of a small mixture */
    const char *word;
} bad[] = {
    {"\"num_experts_per_tok\": 2", "num_local_experts"},
    {"\"num_local_experts\": 8", "num_experts_per_tok"},
    {"\"num_local_experts\": 8, \"num_experts_per_tok\": 9", "passes through 9 experts"},
    {"\"num_local_experts\": 0, \"num_experts_per_tok\": 1", "num_local_experts"},
    {"\"num_local_experts\": \"many\", \"num_experts_per_tok\": 1", "num_local_experts"},
    {"\"num_local_experts\": 99999, \"num_experts_per_tok\": 1", "up to 65536"},
    {"\"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": -1",
        "moe_intermediate_size"},
    {"\"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 2147483647",
        "has ffn 4294967294"},
    {"\"num_experts\": 65536, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 2000000000",
        "trillion"},
    {"\"num_experts\": 8, \"num_experts_per_tok\": 2, \"first_k_dense_replace\": 2",
        "no layer has experts"},
    {"\"num_experts\": 8, \"num_experts_per_tok\": 2, \"decoder_sparse_step\": 0",
        "no layer has experts"},
    {"\"num_experts\": 8, \"num_experts_per_tok\": 2, \"kv_lora_rank\": 512", "kv_lora_rank"},
};

static void refuses_bad_mixtures_in_one_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        char text[512];
        struct err e = ERR_INIT;
        struct model m = {.layers = 77};
        snprintf(text, sizeof text,
            "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 2, \"hidden_size\": 64,"
            "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"intermediate_size\": 128,"
            "\"max_position_embeddings\": 2048, \"vocab_size\": 9, %s}",
            bad[i].fields);
        assert_int_not_equal(read_config(&m, text, &e), RC_OK);
        if (!strstr(e.msg, bad[i].word))
            fail_msg("case %zu: '%s' lacks '%s'", i, e.msg, bad[i].word);
        assert_int_equal(m.layers, 77);
    }
}

static void survives_a_round_trip_through_json(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m, back;
    assert_int_equal(model_find(&m, "mixtral-8x7b", &e), RC_OK);
    struct json *v = model_to_json(&m);
    assert_int_equal(model_from_json(&back, v, &e), RC_OK);
    assert_int_equal(model_params(&back), model_params(&m));
    assert_int_equal(back.experts, 8);
    assert_int_equal(back.expert_top, 2);
    json_free(v);
    m.expert_params = 5;
    assert_int_equal(model_check(&m, &e), RC_INVALID);
}

static void experts_are_split_by_degrees_that_divide_them(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    char why[LAUNCHABLE_TEXT];
    assert_int_equal(model_find(&m, "mixtral-8x7b", &e), RC_OK);
    struct strategy s = strategy_default(STRATEGY_ZERO1, 64, 8);
    assert_false(is_launchable(&s, &m, false, why));
    assert_non_null(strstr(why, "mixtures of experts are only planned"));
    s.engine = ENGINE_MEGATRON;
    s.seq = 4096;
    s.parallel.expert = 16;
    assert_int_equal(split_check(&m, &s, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "does not divide the 8 experts"));
    s.parallel.expert = 8;
    assert_int_equal(split_check(&m, &s, &e), RC_OK);
    /* a rank holds one of eight */
    assert_int_equal(split_model(&m, &s).expert_params, m.expert_params / 8);
    /* 6 flops of 12.9B active parameters, and attention */
    double flops = estimate_model_flops(&m, &s), attention = 12.0 * 32 * 4096 * 4096;
    assert_true(fabs((flops - attention) / (6 * 12.88e9) - 1) < 0.001);
}

/* Megatron Core's dispatcher: each of 4 tensor ranks sends its quarter of the sequence, twice
 * forward and twice backward, and where these split experts they gather what came for them, of all
 * tensor ranks; the MLP has no sum of its own. */
static void tokens_travel_to_their_experts(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(model_find(&m, "mixtral-8x7b", &e), RC_OK);
    struct strategy s = strategy_default(STRATEGY_ZERO1, 64, 8);
    s.engine = ENGINE_MEGATRON;
    s.precision = PRECISION_BF16;
    s.seq = 4096;
    s.parallel.tensor = 4;
    s.parallel.expert = 8;
    s.shard_degree = 16;
    for (int splits = 0; splits < 2; splits++) {
        struct schedule *x = NULL;
        int exchanges = 0, gathers = 0, sums = 0;
        double routed = 4096.0 * 2 * 4096 * 2; /* two experts a token, two bytes */
        s.parallel.splits_experts = splits;
        assert_int_equal(schedule_build(&x, &m, &s, &e), RC_OK);
        for (int32_t i = 0; i < x->n_ops; i++) {
            const struct op *op = &x->ops[i];
            bool is_block = op->unit > 0 && op->unit <= m.layers;
            bool is_exchange = op->kind == OP_ALL_TO_ALL && op->group == GROUP_EXPERT;
            bool is_gather = op->kind == OP_ALL_GATHER && op->group == GROUP_TENSOR;
            sums += is_block && op->kind == OP_ALL_REDUCE && op->group == GROUP_TENSOR;
            exchanges += is_exchange;
            gathers += is_gather;
            if (is_exchange || is_gather)
                assert_true(fabs(op->bytes / routed - (is_exchange ? 0.25 : 1)) < 1e-12);
        }
        assert_int_equal(exchanges, 4 * m.layers);
        assert_int_equal(gathers, splits ? 4 * m.layers : 0);
        assert_int_equal(sums, 2 * m.layers); /* of attention */
        assert_int_equal(split_model(&m, &s).expert_params, m.expert_params / (splits ? 32 : 8));
        schedule_free(x);
    }
}

int test_model_experts(void);
int test_model_experts(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_total_and_active_parameters_as_published),
        cmocka_unit_test(presets_are_the_published_configs),
        cmocka_unit_test(refuses_bad_mixtures_in_one_sentence),
        cmocka_unit_test(survives_a_round_trip_through_json),
        cmocka_unit_test(experts_are_split_by_degrees_that_divide_them),
        cmocka_unit_test(tokens_travel_to_their_experts),
    };
    return cmocka_run_group_tests_name("model_experts", tests, NULL, NULL);
}
