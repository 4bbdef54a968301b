#include "planner/strategy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "planner/model.h"

static struct model tiny(void)
{
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(model_find(&m, "tiny-llama", &e), RC_OK);
    return m;
}

static struct strategy zero3_of_16(void)
{
    struct strategy s = strategy_default(STRATEGY_ZERO3, 16, 8);
    s.seq = 128;
    s.micro_batch = 2;
    s.grad_accum = 3;
    return s;
}

/* ZeRO paper (arXiv 1910.02054) table 1: what each stage divides. */
static void divides_states_as_the_zero_paper_says(void **state)
{
    (void)state;
    const struct {
        enum strategy_kind kind;
        int64_t parameters, gradients, optimizer;
    } want[] = {
        {STRATEGY_DDP, 1, 1, 1},
        {STRATEGY_ZERO1, 1, 1, 16},
        {STRATEGY_ZERO2, 1, 16, 16},
        {STRATEGY_ZERO3, 16, 16, 16},
        {STRATEGY_HSDP, 8, 8, 8},
    };
    for (size_t i = 0; i < BASE_COUNT(want); i++) {
        struct strategy s = strategy_default(want[i].kind, 16, 8);
        assert_int_equal(strategy_parameter_shards(&s), want[i].parameters);
        assert_int_equal(strategy_gradient_shards(&s), want[i].gradients);
        assert_int_equal(strategy_optimizer_shards(&s), want[i].optimizer);
    }
    struct strategy s = strategy_default(STRATEGY_HSDP, 16, 8);
    s.splits_over_replicas = true;
    assert_int_equal(strategy_parameter_shards(&s), 8);
    assert_int_equal(strategy_gradient_shards(&s), 8);
    assert_int_equal(strategy_optimizer_shards(&s), 16);
}

static void counts_tokens_of_a_step(void **state)
{
    (void)state;
    struct strategy s = zero3_of_16();
    assert_int_equal(strategy_tokens_per_step(&s), 16 * 2 * 3 * 128);
}

static void accepts_defaults_of_every_kind(void **state)
{
    (void)state;
    struct model m = tiny();
    for (int k = STRATEGY_DDP; k <= STRATEGY_HSDP; k++) {
        struct err e = ERR_INIT;
        struct strategy s = strategy_default((enum strategy_kind)k, 16, 8);
        assert_int_equal(strategy_check(&s, &m, &e), RC_OK);
    }
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    struct model m = tiny();
    struct strategy bad[19];
    for (size_t i = 0; i < BASE_COUNT(bad); i++)
        bad[i] = zero3_of_16();
    bad[0].ranks_per_node = 5;
    bad[1].shard_degree = 4;
    bad[2].seq = 513; /* tiny-llama has 512 positions */
    bad[3].micro_batch = 0;
    bad[4].grad_accum = -1;
    bad[5].prefetch = 0;
    bad[6].loss_chunks = 257; /* more than tokens */
    bad[7].kind = STRATEGY_HSDP;
    bad[7].shard_degree = 3;
    bad[8].kind = STRATEGY_DDP;
    bad[9].ranks = (int64_t)1 << 40;
    bad[10].splits_over_replicas = true; /* zero3 has no replicas */
    bad[11].bucket_bytes = 1 << 24;      /* nor buckets */
    bad[12].full_blocks = 2;             /* tiny-llama has two blocks: all of them is full */
    bad[13].full_blocks = 1;
    bad[13].recompute = RECOMPUTE_FULL;
    bad[14].reshard_above_bytes = -1;
    bad[15].kind = STRATEGY_HSDP;
    bad[15].shard_degree = 8;
    bad[15].splits_over_replicas = true;
    bad[15].offload = OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS;
    bad[16].engine = ENGINE_FSDP2;
    bad[16].recompute = RECOMPUTE_SELECTIVE_FFN;
    bad[17].kind = STRATEGY_ZERO2;
    bad[17].gather_format = WIRE_INT8; /* parameters are whole */
    bad[18].engine = ENGINE_FSDP2;
    bad[18].reduce_format = WIRE_INT8;
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        struct err e = ERR_INIT;
        assert_int_not_equal(strategy_check(&bad[i], &m, &e), RC_OK);
        assert_true(e.msg[0] != '\0');
    }
}

static void forms_of_weights_and_moments_have_words(void **state)
{
    (void)state;
    static const char *const words[] = {"fp32", "split", "pure"};
    static const int bytes[] = {MASTER_FP32, MASTER_SPLIT, MASTER_NONE};
    struct model m = tiny();
    struct err e = ERR_INIT;
    for (size_t i = 0; i < BASE_COUNT(words); i++) {
        struct strategy a = zero3_of_16(), b;
        assert_int_equal(strategy_parse_master(&a, words[i], &e), RC_OK);
        assert_int_equal(a.master_bytes, bytes[i]);
        assert_int_equal(strategy_check(&a, &m, &e), RC_OK);
        struct json *v = strategy_to_json(&a);
        assert_int_equal(strategy_from_json(&b, v, &e), RC_OK);
        assert_int_equal(b.master_bytes, bytes[i]);
        json_free(v);
        a.offload = OFFLOAD_OPTIMIZER;
        assert_int_equal(strategy_check(&a, &m, &e), i ? RC_INVALID : RC_OK);
        a.offload = OFFLOAD_NONE;
        a.precision = PRECISION_FP32;
        assert_int_equal(strategy_check(&a, &m, &e), i ? RC_INVALID : RC_OK);
    }
    for (int f = MOMENT_FP32; f <= MOMENT_FP8; f++) {
        struct strategy a = zero3_of_16(), b;
        strategy_take_optimizer(&a, OPTIMIZER_SGD);
        strategy_take_moments(&a, (enum moment_form)f);
        assert_int_equal(strategy_check(&a, &m, &e), RC_OK);
        struct json *v = strategy_to_json(&a);
        assert_int_equal(strategy_from_json(&b, v, &e), RC_OK);
        assert_int_equal(b.moment_form, f);
        assert_int_equal(b.moment_bytes, f == MOMENT_FP32 ? 4 : 1);
        json_free(v);
        a.moment_bytes = 3;
        assert_int_equal(strategy_check(&a, &m, &e), RC_INVALID);
    }
    struct strategy any;
    assert_int_equal(strategy_parse_master(&any, "bf16", &e), RC_USAGE);
}

static void gradients_in_fp8_are_written_once(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m = tiny();
    struct strategy good = strategy_default(STRATEGY_ZERO3, 16, 8), back;
    good.seq = 128;
    assert_int_equal(strategy_parse_gradients(&good, "fp8", &e), RC_OK);
    assert_int_equal(strategy_check(&good, &m, &e), RC_OK);
    struct json *v = strategy_to_json(&good);
    assert_int_equal(strategy_from_json(&back, v, &e), RC_OK);
    assert_true(back.fp8_gradients);
    json_free(v);
    struct strategy bad[5] = {good, good, good, good, strategy_default(STRATEGY_ZERO1, 16, 8)};
    static const char *const words[] = {"one micro step, not 2", "on the device", "without buckets",
        "bundled engine", "zero1 writes"};
    bad[0].grad_accum = 2;
    bad[1].offload = OFFLOAD_OPTIMIZER;
    bad[2].kind = STRATEGY_ZERO2;
    bad[2].bucket_bytes = STRATEGY_LEAST_BUCKET;
    bad[3].engine = ENGINE_FSDP2;
    bad[4].fp8_gradients = true;
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        assert_int_equal(strategy_check(&bad[i], &m, &e), RC_INVALID);
        if (!strstr(e.msg, words[i]))
            fail_msg("case %zu: '%s' lacks '%s'", i, e.msg, words[i]);
    }
    assert_int_equal(strategy_parse_gradients(&good, "fp4", &e), RC_USAGE);
}

static void survives_a_round_trip_through_json(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct strategy a = zero3_of_16(), b;
    a.recompute = RECOMPUTE_SELECTIVE;
    a.offload = OFFLOAD_OPTIMIZER;
    a.precision = PRECISION_FP32;
    a.prefetch = 2;
    a.reshard_after_forward = false;
    a.loss_chunks = 4;
    strategy_take_optimizer(&a, OPTIMIZER_SGD);
    struct json *v = strategy_to_json(&a);
    assert_int_equal(strategy_from_json(&b, v, &e), RC_OK);
    assert_int_equal(b.kind, a.kind);
    assert_int_equal(b.recompute, a.recompute);
    assert_int_equal(b.offload, a.offload);
    assert_int_equal(b.precision, a.precision);
    assert_int_equal(b.ranks, a.ranks);
    assert_int_equal(b.ranks_per_node, a.ranks_per_node);
    assert_int_equal(b.shard_degree, a.shard_degree);
    assert_int_equal(b.seq, a.seq);
    assert_int_equal(b.micro_batch, a.micro_batch);
    assert_int_equal(b.grad_accum, a.grad_accum);
    assert_int_equal(b.prefetch, a.prefetch);
    assert_int_equal(b.reshard_after_forward, a.reshard_after_forward);
    assert_int_equal(b.loss_chunks, a.loss_chunks);
    assert_int_equal(b.optimizer, a.optimizer);
    assert_int_equal(b.moment_bytes, 4);
    assert_int_equal(b.master_bytes, MASTER_FP32);
    json_free(v);
}

/* What not every strategy has is left out, so that older plans stay readable. */
static void survives_a_round_trip_with_all_its_options(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct strategy a = strategy_default(STRATEGY_HSDP, 16, 8), b;
    struct json *plain = strategy_to_json(&a);
    static const char *const left_out[] = {"full_blocks", "other_blocks", "reshard_above_bytes",
        "optimizer_over_replicas", "bucket_bytes", "gather_format", "reduce_format"};
    for (size_t i = 0; i < BASE_COUNT(left_out); i++)
        assert_null(json_get(plain, left_out[i]));
    json_free(plain);
    a.recompute = RECOMPUTE_SELECTIVE_FFN;
    a.full_blocks = 7;
    a.reshard_above_bytes = (int64_t)1 << 40;
    a.splits_over_replicas = true;
    a.bucket_bytes = 1 << 24;
    a.gather_format = a.reduce_format = WIRE_INT8;
    struct json *v = strategy_to_json(&a);
    assert_string_equal(json_str(v, "recompute", ""), "mixed");
    assert_int_equal(strategy_from_json(&b, v, &e), RC_OK);
    assert_int_equal(b.recompute, a.recompute);
    assert_int_equal(b.full_blocks, 7);
    assert_int_equal(b.reshard_above_bytes, a.reshard_above_bytes);
    assert_true(b.splits_over_replicas);
    assert_int_equal(b.bucket_bytes, a.bucket_bytes);
    assert_int_equal(b.gather_format, WIRE_INT8);
    assert_int_equal(b.reduce_format, WIRE_INT8);
    json_add_str(v, "optimizer_over_replicas", "yes");
    assert_int_equal(strategy_from_json(&b, v, &e), RC_INVALID);
    json_add_bool(v, "optimizer_over_replicas", true);
    json_add_str(v, "reduce_format", "int3");
    assert_int_equal(strategy_from_json(&b, v, &e), RC_USAGE);
    assert_non_null(strstr(e.msg, "unknown format 'int3'"));
    json_free(v);
}

static void refuses_json_with_a_field_missing_or_wrong(void **state)
{
    (void)state;
    struct strategy a = zero3_of_16(), b;
    struct json *good = strategy_to_json(&a);
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    while (json_next(good, &cursor, &key, &value)) {
        struct json *without = json_obj(), *wrong = json_clone(good);
        void *inner = NULL;
        const char *k;
        const struct json *v;
        while (json_next(good, &inner, &k, &v))
            if (strcmp(k, key) != 0)
                json_add(without, k, json_clone(v));
        json_add(wrong, key, json_arr());
        struct err e = ERR_INIT;
        assert_int_not_equal(strategy_from_json(&b, without, &e), RC_OK);
        assert_int_not_equal(strategy_from_json(&b, wrong, &e), RC_OK);
        json_free(without);
        json_free(wrong);
    }
    json_free(good);
}

static void lists_the_words_it_knows(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    enum strategy_kind k;
    assert_int_equal(strategy_kind_parse("zero4", &k, &e), RC_USAGE);
    assert_non_null(strstr(e.msg, "ddp, zero1, zero2, zero3, hsdp"));
    assert_int_equal(strategy_kind_parse("hsdp", &k, &e), RC_OK);
    assert_int_equal(k, STRATEGY_HSDP);
}

int test_strategy(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divides_states_as_the_zero_paper_says),
        cmocka_unit_test(counts_tokens_of_a_step),
        cmocka_unit_test(accepts_defaults_of_every_kind),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(forms_of_weights_and_moments_have_words),
        cmocka_unit_test(gradients_in_fp8_are_written_once),
        cmocka_unit_test(survives_a_round_trip_through_json),
        cmocka_unit_test(survives_a_round_trip_with_all_its_options),
        cmocka_unit_test(refuses_json_with_a_field_missing_or_wrong),
        cmocka_unit_test(lists_the_words_it_knows),
    };
    return cmocka_run_group_tests_name("strategy", tests, NULL, NULL);
}
