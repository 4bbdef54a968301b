#include "planner/engine_memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "planner/model.h"

static const double gib = 1073741824.0;

static struct model find(const char *name)
{
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(model_find(&m, name, &e), RC_OK);
    m.max_positions = 1 << 20;
    return m;
}

static struct strategy strategy_of(enum engine g, enum strategy_kind kind, int64_t ranks)
{
    struct strategy s = strategy_default(kind, ranks, ranks < 8 ? ranks : 8);
    s.engine = g;
    s.seq = 1;
    return s;
}

/* --- states, bytes per parameter --- */

static double states(const struct engine_memory *x)
{
    return x->part[PART_PARAMETERS] + x->part[PART_GRADIENTS] + x->part[PART_OPTIMIZER];
}

static double states_of(const struct model *m, const struct strategy *s)
{
    struct engine_memory x = engine_memory(m, s);
    return states(&x);
}

static void states_are_those_of_the_engines(void **state)
{
    (void)state;
    struct model m = find("llama-3-8b");
    double n = (double)model_params(&m);
    const struct {
        enum engine engine;
        enum strategy_kind kind;
        int64_t ranks;
        double bytes; /* per parameter and rank */
    } want[] = {
        /* Megatron-LM, theoretical_memory_usage.py: 18 alone, 6 + 12 / dp */
        {ENGINE_MEGATRON, STRATEGY_DDP, 1, 18},
        {ENGINE_MEGATRON, STRATEGY_ZERO1, 8, 6 + 12.0 / 8},
        /* FSDP: 4 of parameters, 4 of gradients and 8 of moments, all sharded */
        {ENGINE_FSDP1, STRATEGY_ZERO3, 8, 16.0 / 8},
        {ENGINE_FSDP2, STRATEGY_ZERO3, 128, 16.0 / 128},
        /* DeepSpeed: ZeRO's 16 / N, 2 + 14 / N and 4 + 12 / N; below ZeRO-3 an fp32 copy of a
         * rank's gradients */
        {ENGINE_DEEPSPEED, STRATEGY_ZERO3, 8, 16.0 / 8},
        {ENGINE_DEEPSPEED, STRATEGY_ZERO2, 8, 2 + (14.0 + 4) / 8},
        {ENGINE_MEGATRON_DEEPSPEED, STRATEGY_ZERO1, 8, 4 + (12.0 + 4) / 8},
    };
    for (size_t i = 0; i < BASE_COUNT(want); i++) {
        struct strategy s = strategy_of(want[i].engine, want[i].kind, want[i].ranks);
        struct engine_memory x = engine_memory(&m, &s);
        assert_true(fabs(states(&x) / n / want[i].bytes - 1) < 1e-6);
    }
}

static void sixteen_bits_alone_are_eight_bytes(void **state)
{
    (void)state;
    struct model m = find("llama-3-8b");
    struct strategy s = strategy_of(ENGINE_FSDP2, STRATEGY_DDP, 1);
    s.master_bytes = 0;
    s.moment_bytes = 4;
    s.grad_accum = 2;
    struct engine_memory x = engine_memory(&m, &s);
    assert_true(fabs(states(&x) / (double)model_params(&m) / 8 - 1) < 1e-6);
    s.offload = OFFLOAD_OPTIMIZER;
    x = engine_memory(&m, &s);
    assert_true(x.part[PART_OPTIMIZER] == 0);
}

/* DeepSpeed's buckets of 5e8 elements are whole where no pipeline reduces at its end. */
static void buckets_of_a_pipeline_are_smaller(void **state)
{
    (void)state;
    struct model m = find("llama-3-8b");
    struct strategy s = strategy_of(ENGINE_MEGATRON_DEEPSPEED, STRATEGY_ZERO1, 8);
    assert_true(engine_memory(&m, &s).part[PART_SCRATCH] == 3e9);
    s.parallel.pipeline = 2;
    s.shard_degree = 4;
    assert_true(engine_memory(&m, &s).part[PART_SCRATCH] == 1e9);
}

/* Mixtral's way: 8 experts of a block on 8 of 16 ranks, or split by 8 tensor ranks; either way a
 * rank holds an eighth, and with the distributed optimizer shares its states with one other. */
static void experts_are_shared_out(void **state)
{
    (void)state;
    struct model m = find("llama-3-8b");
    struct strategy s = strategy_of(ENGINE_MEGATRON, STRATEGY_ZERO1, 16);
    s.parallel.tensor = 8;
    s.shard_degree = 2;
    double dense = states_of(&m, &s);
    m.expert_params = 8LL * 3 * m.width * m.ffn;
    m.expert_top = 1;
    double block = (double)(m.expert_params - 3 * m.width * m.ffn) / 8 * (double)m.layers;
    double split = states_of(&m, &s) - dense;
    assert_true(fabs(split / block / (6 + 12.0 / 2) - 1) < 1e-6);
    s.parallel.expert = 8;
    double whole = states_of(&m, &s) - dense;
    assert_true(fabs(whole / split - 1) < 1e-6);
    /* both: two groups of experts that 4 tensor ranks split; no other rank holds the same */
    s.parallel.tensor = 4;
    s.parallel.expert = 4;
    s.shard_degree = 4;
    s.parallel.splits_experts = true;
    m.expert_params = 0;
    m.expert_top = 0;
    dense = states_of(&m, &s);
    m.expert_params = 8LL * 3 * m.width * m.ffn;
    m.expert_top = 1;
    double all = (double)m.expert_params / 16 * (6 + 12), mlp = 3.0 * (double)(m.width * m.ffn) / 4;
    double both = states_of(&m, &s) - dense;
    assert_true(fabs(both / ((all - mlp * (6 + 12.0 / 4)) * (double)m.layers) - 1) < 1e-6);
}

/* --- activations of a block, bytes per token over the width --- */

/* arXiv 2205.05198, equation 2, without its dropout masks of 2 per width: 32 with fused attention,
 * 5 a s more with stored scores; equations 4 and 5: what tensor ranks split, with and without
 * sequence parallelism. */
static void a_block_keeps_what_the_paper_says(void **state)
{
    (void)state;
    struct model m = find("gpt2");
    m.heads = m.kv_heads = 16;
    m.width = 1024;
    m.head_dim = 64;
    m.ffn = 4096;
    struct strategy s = strategy_of(ENGINE_DDP, STRATEGY_DDP, 8);
    double lse = 4.0 * 16 / 1024;
    s.seq = 512;
    s.memory.is_fused = true;
    double per = 512.0 * 1024;
    assert_true(fabs(engine_block_bytes(&m, &s) / per - (32 + lse)) < 1e-9);
    s.has_plain_attention = true;
    assert_true(fabs(engine_block_bytes(&m, &s) / per - (32 + lse + 5.0 * 16 * 512 / 1024)) < 1e-9);
    s.has_plain_attention = false;
    s.parallel.tensor = 8;
    assert_true(fabs(engine_block_bytes(&m, &s) / per - (8 + (24 + lse) / 8)) < 1e-9);
    s.memory.has_sequence_parallel = true;
    assert_true(fabs(engine_block_bytes(&m, &s) / per - (32 + lse) / 8) < 1e-9);
    s.recompute = RECOMPUTE_FULL;
    assert_true(fabs(engine_block_bytes(&m, &s) / per - 2.0 / 8) < 1e-9);
}

/* torchtitan saves every second product: 2 d (6 + g) + 2 f of Llama-3-8B, 15.5 widths. */
static void torchtitan_keeps_every_second_product(void **state)
{
    (void)state;
    struct model m = find("llama-3-8b");
    struct strategy s = strategy_of(ENGINE_FSDP2, STRATEGY_ZERO3, 8);
    s.seq = 8192;
    s.recompute = RECOMPUTE_SELECTIVE;
    double widths = engine_block_bytes(&m, &s) / 8192 / 4096;
    assert_true(fabs(widths - 15.5) < 0.05);
}

static void stages_hold_as_many_micro_batches_as_follow(void **state)
{
    (void)state;
    struct model m = find("llama-3-8b");
    struct strategy s = strategy_of(ENGINE_MEGATRON, STRATEGY_ZERO1, 8);
    s.seq = 8192;
    s.shard_degree = 2;
    s.parallel.pipeline = 4;
    s.grad_accum = 2;
    double two = engine_memory(&m, &s).part[PART_ACTIVATIONS];
    s.grad_accum = 16;
    double four = engine_memory(&m, &s).part[PART_ACTIVATIONS];
    s.parallel.virtual_stages = 2;
    double interleaved = engine_memory(&m, &s).part[PART_ACTIVATIONS];
    double block = engine_block_bytes(&m, &s);
    assert_true(fabs((four - two) / (2 * 8 * block) - 1) < 1e-9);
    /* arXiv 2104.04473, section 2.2: 1 + (p - 1) / (p v) as many */
    assert_true(fabs((interleaved - four) / (4 * 8 * block * 3 / 8) - 1) < 1e-9);
}

/* --- published peaks --- */

struct published {
    const char *source;
    const char *model;
    double measured_gib, within; /* relative, of the allocated peak times reserved */
    double reserved;             /* over allocated, where the source shows reserved */
    struct strategy s;
};

static struct strategy torchtitan(int64_t ranks, int64_t batch, int64_t seq, enum recompute r)
{
    struct strategy s = strategy_of(ENGINE_FSDP2, STRATEGY_ZERO3, ranks);
    s.micro_batch = batch;
    s.seq = seq;
    s.recompute = r;
    s.memory.has_sequence_parallel = true;
    return s;
}

static struct strategy fused(struct strategy s)
{
    s.memory.is_fused = true;
    return s;
}

static struct strategy torchtune(bool has_chunks, bool is_fused, enum recompute r)
{
    struct strategy s = strategy_of(ENGINE_FSDP2, STRATEGY_DDP, 1);
    s.micro_batch = 2;
    s.seq = 4096;
    s.master_bytes = 0;
    s.moment_bytes = 4;
    s.recompute = r;
    s.memory.is_fused = is_fused;
    s.memory.loss = has_chunks ? LOSS_CHUNKED : LOSS_WHOLE;
    return s;
}

static struct strategy long_context(int64_t seq)
{
    struct strategy s = strategy_of(ENGINE_DEEPSPEED, STRATEGY_ZERO3, 8);
    s.seq = seq;
    s.recompute = RECOMPUTE_FULL;
    s.offload = OFFLOAD_OPTIMIZER;
    s.memory.loss = LOSS_FUSED;
    return s;
}

static void peaks_are_close_to_published_ones(void **state)
{
    (void)state;
    const char *titan = "torchtitan, docs/performance.md: 8 x H100, Llama 3.1 8B";
    const char *tune = "torchtune, README: optimization flags, Llama 3.2 3B on an A100";
    const char *bekman = "stas00/ml-engineering: 8 x H200, Llama 3 8B, ZeRO-3, CPU Adam, Liger";
    struct strategy frees = torchtune(true, true, RECOMPUTE_FULL);
    frees.memory.frees_gradients = true;
    const struct published all[] = {
        {titan, "llama-3-8b", 82.4, 0.03, 1.03, torchtitan(8, 2, 8192, RECOMPUTE_SELECTIVE)},
        {titan, "llama-3-8b", 77.0, 0.04, 1.03, fused(torchtitan(8, 2, 8192, RECOMPUTE_SELECTIVE))},
        {titan, "llama-3-8b", 62.0, 0.06, 1.03,
            fused(torchtitan(128, 2, 8192, RECOMPUTE_SELECTIVE))},
        {titan, "llama-3-8b", 83.9, 0.03, 1.03, fused(torchtitan(8, 1, 32768, RECOMPUTE_FULL))},
        {tune, "llama-3.2-3b", 60.0, 0.06, 1, torchtune(false, false, RECOMPUTE_NONE)},
        {tune, "llama-3.2-3b", 51.0, 0.06, 1, torchtune(false, true, RECOMPUTE_NONE)},
        {tune, "llama-3.2-3b", 42.9, 0.03, 1, torchtune(true, true, RECOMPUTE_NONE)},
        {tune, "llama-3.2-3b", 24.9, 0.03, 1, torchtune(true, true, RECOMPUTE_FULL)},
        {tune, "llama-3.2-3b", 23.1, 0.03, 1, frees},
        {bekman, "llama-3-8b", 66.5, 0.10, 1.03, long_context(131072)},
        {bekman, "llama-3-8b", 124.5, 0.10, 1.03, long_context(262144)},
    };
    for (size_t i = 0; i < BASE_COUNT(all); i++) {
        const struct published *p = &all[i];
        struct model m = find(p->model);
        double peak = engine_memory(&m, &p->s).total * p->reserved / gib;
        if (fabs(peak / p->measured_gib - 1) >= p->within)
            fail_msg("%s: %.1f GiB, predicted %.1f", p->source, p->measured_gib, peak);
    }
}

/* SimuMax, its B200 validation runs: Megatron-LM, 12 blocks of Llama-3-70B, allocated. */
static void megatron_splits_are_close_to_published_peaks(void **state)
{
    (void)state;
    const struct {
        int64_t tensor, pipeline, context, seq;
        double gib;
    } want[] = {
        {1, 2, 1, 4096, 66.552},
        {2, 1, 1, 4096, 60.680},
        {4, 1, 1, 4096, 39.072},
        {8, 1, 1, 4096, 28.286},
        {2, 1, 4, 32768, 68.428},
        {1, 1, 8, 32768, 104.509},
        {1, 1, 8, 131072, 147.988},
    };
    struct model m = find("llama-3-70b");
    m.layers = 12;
    for (size_t i = 0; i < BASE_COUNT(want); i++) {
        struct strategy s = strategy_of(ENGINE_MEGATRON, STRATEGY_ZERO1, 8);
        s.parallel =
            (struct parallel){want[i].tensor, want[i].pipeline, want[i].context, 1, 1, false};
        s.shard_degree = 8 / (want[i].tensor * want[i].pipeline);
        s.seq = want[i].seq;
        s.grad_accum = 4;
        s.memory.has_sequence_parallel = true;
        s.memory.is_fused = true;
        double peak = engine_memory(&m, &s).total / gib;
        if (fabs(peak / want[i].gib - 1) >= 0.04)
            fail_msg("%.1f GiB, predicted %.1f", want[i].gib, peak);
    }
}

/* --- what spares memory spares it --- */

static void every_option_needs_no_more(void **state)
{
    (void)state;
    struct model m = find("llama-3-8b");
    for (int g = ENGINE_FSDP1; g < ENGINE_COUNT; g++) {
        for (int kind = STRATEGY_DDP; kind <= STRATEGY_ZERO3; kind++) {
            struct strategy s = strategy_of((enum engine)g, (enum strategy_kind)kind, 8);
            s.seq = 4096;
            double plain = engine_memory(&m, &s).total;
            struct strategy t[8] = {s, s, s, s, s, s, s, s};
            t[0].memory.loss = LOSS_CHUNKED;
            t[1].memory.loss = LOSS_FUSED;
            t[2].memory.is_fused = true;
            t[3].memory.frees_gradients = true;
            t[4].memory.pages_optimizer = true;
            t[5].offload = OFFLOAD_PARAMETERS;
            t[6].offload = OFFLOAD_ACTIVATIONS;
            t[7].offload = OFFLOAD_OPTIMIZER;
            for (size_t i = 0; i < BASE_COUNT(t); i++)
                assert_true(engine_memory(&m, &t[i]).total <= plain);
            double before = plain;
            for (int r = RECOMPUTE_SELECTIVE; r <= RECOMPUTE_FULL; r += 2) {
                s.recompute = (enum recompute)r;
                double now = engine_memory(&m, &s).total;
                assert_true(now <= before);
                before = now;
            }
        }
    }
}

static void parts_add_up(void **state)
{
    (void)state;
    struct model m = find("llama-3-8b");
    struct strategy s = torchtitan(8, 1, 4096, RECOMPUTE_NONE);
    struct engine_memory x = engine_memory(&m, &s);
    double sum = 0;
    for (int i = 0; i < PART_COUNT; i++)
        sum += x.part[i];
    assert_true(sum == x.total);
}

int test_engine_memory(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_those_of_the_engines),
        cmocka_unit_test(sixteen_bits_alone_are_eight_bytes),
        cmocka_unit_test(buckets_of_a_pipeline_are_smaller),
        cmocka_unit_test(experts_are_shared_out),
        cmocka_unit_test(a_block_keeps_what_the_paper_says),
        cmocka_unit_test(torchtitan_keeps_every_second_product),
        cmocka_unit_test(stages_hold_as_many_micro_batches_as_follow),
        cmocka_unit_test(peaks_are_close_to_published_ones),
        cmocka_unit_test(megatron_splits_are_close_to_published_peaks),
        cmocka_unit_test(every_option_needs_no_more),
        cmocka_unit_test(parts_add_up),
    };
    return cmocka_run_group_tests_name("planner/engine_memory", tests, NULL, NULL);
}
