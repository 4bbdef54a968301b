#include "planner/evidence.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/str.h"
#include "planner/engine_memory.h"
#include "planner/evidence_check.h"
#include "planner/predict.h"

/* --- tables of one run --- */

struct cell {
    const char *column, *value;
};

/* A complete row: torchtitan, docs/performance.md, Llama 3.1 8B on 8 H100. */
static const struct cell complete[] = {
    {"id", "titan-001"},
    {"year", "2024"},
    {"framework", "torchtitan FSDP2"},
    {"model", "llama3-8b"},
    {"n_layers", "32"},
    {"d_model", "4096"},
    {"n_heads", "32"},
    {"n_kv_heads", "8"},
    {"d_ff", "14336"},
    {"mlp", "swiglu"},
    {"vocab", "128256"},
    {"tied_embeddings", "no"},
    {"params", "8030261248"},
    {"active_params", ""},
    {"seq_len", "8192"},
    {"n_gpus", "8"},
    {"gpu", "h100-sxm"},
    {"gpus_per_node", "8"},
    {"intra", "nvswitch"},
    {"strategy", "zero3"},
    {"tp", "1"},
    {"pp", "1"},
    {"cp", "1"},
    {"ep", ""},
    {"micro_batch", "1"},
    {"grad_accum", "1"},
    {"global_batch_seqs", "8"},
    {"precision", "bf16"},
    {"opt_states", "fp32"},
    {"act_ckpt", "selective"},
    {"offload", "none"},
    {"compile", "yes"},
    {"flash_attn", "yes"},
    {"tokens_per_s_per_gpu", "6000"},
    {"step_time_s", ""},
    {"peak_mem_gib", "47.65"},
    {"mem_kind", "reserved"},
    {"train_type", "full"},
    {"row_kind", "table"},
    {"status", "ok"},
    {"notes", ""},
};

static bool is_changed(const struct cell *change, const char *column, const char **value)
{
    for (; change && change->column; change++)
        if (strcmp(change->column, column) == 0) {
            *value = change->value;
            return true;
        }
    return false;
}

/* The complete row with some cells changed. */
static struct evidence read(const struct cell *change)
{
    struct str text = STR_INIT;
    for (size_t i = 0; i < BASE_COUNT(complete); i++)
        str_addf(&text, "%s%s", i ? "," : "", complete[i].column);
    str_add(&text, "\n");
    for (size_t i = 0; i < BASE_COUNT(complete); i++) {
        const char *value = complete[i].value;
        is_changed(change, complete[i].column, &value);
        str_addf(&text, "%s\"%s\"", i ? "," : "", value);
    }
    str_add(&text, "\n");
    struct err e = ERR_INIT;
    struct csv table;
    struct evidence v;
    assert_int_equal(csv_parse(&table, str_text(&text), text.len, &e), RC_OK);
    assert_int_equal(evidence_read(&v, &table, &e), RC_OK);
    csv_release(&table);
    str_release(&text);
    return v;
}

static struct evidence_row read_row(const struct cell *change)
{
    struct evidence v = read(change);
    if (v.n_rows != 1)
        fail_msg("skipped: %s", skip_word(v.skipped[0].why));
    struct evidence_row row = v.rows[0];
    evidence_release(&v);
    return row;
}

/* --- what a row says --- */

static void numbers_are_those_that_tables_write(void **state)
{
    (void)state;
    static const char *const good[] = {"8", "0", "1.5", "1e3", "2.5E-3", "+4", "7e15"};
    static const char *const bad[] = {"", "0x10", "nan", "inf", "-1", "8 GiB", "1,000", "8x",
        "1e400", "4e-320", "e", ".", "1.2.3", " 8"};
    double x;
    for (size_t i = 0; i < BASE_COUNT(good); i++)
        if (!evidence_number(good[i], &x))
            fail_msg("'%s' is refused", good[i]);
    for (size_t i = 0; i < BASE_COUNT(bad); i++)
        if (evidence_number(bad[i], &x))
            fail_msg("'%s' is taken", bad[i]);
}

static enum skip skipped(const char *column, const char *value)
{
    const struct cell change[] = {{column, value}, {NULL, NULL}};
    struct evidence v = read(change);
    if (v.n_skipped != 1)
        fail_msg("%s = %s is taken", column, value);
    enum skip why = v.skipped[0].why;
    evidence_release(&v);
    return why;
}

static void what_contradicts_itself_or_the_hardware_is_skipped(void **state)
{
    (void)state;
    assert_int_equal(skipped("peak_mem_gib", "100"), SKIP_CONTRADICTION);
    /* 6 x 8e9 flops a token: 60,000 tokens/s are three times an H100's peak */
    assert_int_equal(skipped("tokens_per_s_per_gpu", "60000"), SKIP_CONTRADICTION);
    assert_int_equal(skipped("n_kv_heads", "7"), SKIP_CONTRADICTION);
    assert_int_equal(skipped("n_kv_heads", "64"), SKIP_CONTRADICTION);
    assert_int_equal(skipped("d_model", "268435456"), SKIP_LAYOUT);
}

static void a_complete_row_is_read_as_it_stands(void **state)
{
    (void)state;
    struct evidence_row r = read_row(NULL);
    assert_string_equal(r.id, "titan-001");
    assert_string_equal(r.group, "titan|llama3-8b|h100-sxm");
    assert_string_equal(r.stack, "fsdp2-torchtitan+compile");
    assert_int_equal(r.line, 2);
    assert_int_equal(r.unstated, 0);
    assert_false(r.is_inferred);
    assert_int_equal(model_params(&r.model), 8030261248);
    assert_int_equal(r.strategy.engine, ENGINE_FSDP2);
    assert_int_equal(r.strategy.kind, STRATEGY_ZERO3);
    assert_int_equal(r.strategy.shard_degree, 8);
    assert_int_equal(r.strategy.recompute, RECOMPUTE_SELECTIVE);
    assert_true(r.strategy.memory.is_fused);
    assert_true(r.tokens_per_s == 6000);
    assert_true(fabs(r.peak_bytes / (47.65 * 1073741824.0) - 1) < 1e-12);
    assert_int_equal(r.mem_kind, MEM_RESERVED);
    assert_int_equal(r.hw.ranks_per_node, 8);
}

static void rows_of_a_source_share_a_group(void **state)
{
    (void)state;
    static const struct {
        const char *id, *group;
    } want[] = {
        {"titan-001", "titan|llama3-8b|h100-sxm"},
        {"nv-mb-012", "nv-mb|llama3-8b|h100-sxm"},
        {"nv-mb-012b", "nv-mb|llama3-8b|h100-sxm"},
        {"bs-1b3-003", "bs-1b3|llama3-8b|h100-sxm"},
        {"alone", "alone|llama3-8b|h100-sxm"},
        {"7", "|llama3-8b|h100-sxm"},
    };
    for (size_t i = 0; i < BASE_COUNT(want); i++) {
        struct evidence_row r = read_row((struct cell[]){{"id", want[i].id}, {0}});
        assert_string_equal(r.group, want[i].group);
    }
}

static void frameworks_become_engines_and_stacks(void **state)
{
    (void)state;
    static const struct {
        const char *framework, *strategy, *stack;
        enum engine engine;
    } want[] = {
        {"llm-foundry/Composer FSDP1", "zero3", "fsdp1-composer", ENGINE_FSDP1},
        {"torchtune", "zero3", "fsdp2-torchtune", ENGINE_FSDP2},
        {"Megatron-DeepSpeed", "zero1", "megatron-deepspeed", ENGINE_MEGATRON_DEEPSPEED},
        {"Megatron-LM", "zero1", "megatron-lm", ENGINE_MEGATRON},
        {"NeMo / Megatron-Core", "zero3", "megatron-nemo", ENGINE_FSDP2},
        {"InternEvo", "zero1", "internevo", ENGINE_MEGATRON},
        {"InternEvo", "zero3", "internevo", ENGINE_DEEPSPEED},
        {"DeepSpeed", "zero2", "deepspeed", ENGINE_DEEPSPEED},
        {"Accelerate DeepSpeed ZeRO-3", "zero3", "deepspeed-accelerate", ENGINE_ACCELERATE_ZERO3},
        {"nobody's", "ddp", "other", ENGINE_DDP},
    };
    for (size_t i = 0; i < BASE_COUNT(want); i++) {
        struct evidence_row r = read_row((struct cell[]){{"framework", want[i].framework},
            {"strategy", want[i].strategy}, {"compile", "no"}, {"act_ckpt", "full"}, {0}});
        assert_string_equal(r.stack, want[i].stack);
        assert_int_equal(r.strategy.engine, want[i].engine);
    }
}

/* --- what it leaves out --- */

static void what_is_left_out_is_remembered(void **state)
{
    (void)state;
    static const struct {
        const char *column;
        unsigned bit;
    } want[] = {
        {"act_ckpt", UNSTATED_RECOMPUTE},
        {"precision", UNSTATED_PRECISION},
        {"opt_states", UNSTATED_OPTIMIZER},
        {"n_heads", UNSTATED_MODEL},
        {"d_ff", UNSTATED_MODEL},
        {"strategy", UNSTATED_STRATEGY},
        {"mem_kind", UNSTATED_MEMORY_KIND},
        {"flash_attn", UNSTATED_ATTENTION},
        {"micro_batch", UNSTATED_BATCH},
    };
    for (size_t i = 0; i < BASE_COUNT(want); i++) {
        struct evidence_row r = read_row((struct cell[]){{want[i].column, ""}, {0}});
        assert_int_equal(r.unstated, want[i].bit);
    }
}

static void the_batch_comes_from_any_two_figures(void **state)
{
    (void)state;
    static const struct {
        const char *micro, *accum, *global;
        int64_t want_micro, want_accum;
    } want[] = {
        {"2", "4", "", 2, 4},
        {"2", "", "64", 2, 4},
        {"", "4", "64", 2, 4},
        {"", "", "64", 8, 1},   /* few sequences of a rank: all at once */
        {"", "", "512", 1, 64}, /* many: one after the other */
        {"", "", "", 1, 1},
    };
    for (size_t i = 0; i < BASE_COUNT(want); i++) {
        struct evidence_row r = read_row((struct cell[]){{"micro_batch", want[i].micro},
            {"grad_accum", want[i].accum}, {"global_batch_seqs", want[i].global},
            {"act_ckpt", "full"}, {"seq_len", "1024"}, {0}});
        assert_int_equal(r.strategy.micro_batch, want[i].want_micro);
        assert_int_equal(r.strategy.grad_accum, want[i].want_accum);
    }
}

/* Some 50 Tflop a micro step, as 7B runs have with one short sequence: GPT-2 of 124M takes 64 of
 * 1,024 tokens, as llm.c's recipe does. */
static void small_models_take_many_sequences_where_nothing_is_said(void **state)
{
    (void)state;
    struct evidence_row r = read_row((struct cell[]){{"n_layers", "12"}, {"d_model", "768"},
        {"n_heads", "12"}, {"n_kv_heads", "12"}, {"d_ff", "3072"}, {"vocab", "50257"},
        {"mlp", "gelu"}, {"tied_embeddings", "yes"}, {"seq_len", "1024"}, {"micro_batch", ""},
        {"grad_accum", ""}, {"global_batch_seqs", ""}, {"act_ckpt", "full"}, {0}});
    assert_int_equal(r.strategy.micro_batch, 64);
    assert_int_equal(r.strategy.grad_accum, 1);
    assert_true(r.unstated & UNSTATED_BATCH);
}

/* torchtitan: as many micro batches as stages, unless told otherwise. */
static void torchtitan_splits_a_batch_over_its_stages(void **state)
{
    (void)state;
    struct evidence_row r =
        read_row((struct cell[]){{"pp", "2"}, {"micro_batch", ""}, {"grad_accum", ""},
            {"global_batch_seqs", "32"}, {"act_ckpt", "full"}, {"seq_len", "1024"}, {0}});
    assert_int_equal(r.strategy.grad_accum, 2);
    assert_int_equal(r.strategy.micro_batch, 4);
}

static void words_of_the_notes_spare_memory(void **state)
{
    (void)state;
    const char *tune = "torchtune";
    struct evidence_row r = read_row((struct cell[]){
        {"notes", "8-bit paged optimizer with optimizer-in-backward"}, {"framework", tune}, {0}});
    assert_true(r.strategy.memory.pages_optimizer);
    assert_true(r.strategy.memory.frees_gradients);
    assert_int_equal(r.strategy.memory.loss, LOSS_CHUNKED);
    assert_true(r.unstated & UNSTATED_LOSS); /* by default: the row does not say so */
    assert_int_equal(r.strategy.master_bytes, 0);
    r = read_row((struct cell[]){{"notes", "+chunked cross entropy"}, {"framework", tune}, {0}});
    assert_int_equal(r.strategy.memory.loss, LOSS_CHUNKED);
    assert_false(r.unstated & UNSTATED_LOSS);
    r = read_row((struct cell[]){{"notes", "FA3, Liger kernels"}, {0}});
    assert_int_equal(r.strategy.memory.loss, LOSS_FUSED);
    r = read_row((struct cell[]){{"notes", "no Liger"}, {0}});
    assert_int_equal(r.strategy.memory.loss, LOSS_WHOLE);
    r = read_row((struct cell[]){{"notes", "weights in BF16"}, {0}});
    assert_int_equal(r.strategy.master_bytes, 0);
    r = read_row((struct cell[]){{"offload", "param+optimizer-cpu"}, {0}});
    assert_int_equal(r.strategy.offload, OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS);
    r = read_row((struct cell[]){{"offload", "activation-cpu"}, {0}});
    assert_int_equal(r.strategy.offload, OFFLOAD_ACTIVATIONS);
}

/* --- what a run must have done --- */

/* Four sequences of 4,096 tokens keep 75 GiB without recompute: beside states and logits more than
 * the card has. */
static void a_run_that_ran_recomputed_if_it_had_to(void **state)
{
    (void)state;
    struct evidence_row r = read_row((struct cell[]){{"act_ckpt", ""}, {"micro_batch", "4"},
        {"global_batch_seqs", "32"}, {"seq_len", "4096"}, {0}});
    assert_true(r.is_inferred);
    assert_true(r.strategy.recompute != RECOMPUTE_NONE);
    assert_true(r.unstated & UNSTATED_RECOMPUTE);
    /* with room there is no reason to */
    r = read_row((struct cell[]){{"act_ckpt", ""}, {"seq_len", "2048"}, {0}});
    assert_false(r.is_inferred);
    assert_int_equal(r.strategy.recompute, RECOMPUTE_NONE);
}

static double predicted_tokens(const struct evidence_row *row)
{
    struct rates *rates;
    struct case_of_run *c;
    struct machine m;
    struct prediction p;
    assert_int_equal(rates_builtin(&rates, NULL), RC_OK);
    assert_int_equal(case_make(&c, row, NULL), RC_OK);
    assert_int_equal(case_machine(&m, c, rates, NULL), RC_OK);
    case_predict(&p, c, &m);
    case_free(c);
    rates_free(rates);
    return p.tokens_per_s;
}

/* NVIDIA's Llama 3 70B on 64 GB200, fully sharded: 80 blocks do not fit with all they keep. As many
 * as do keep it, which lies between the runs that say none and full, in memory and in seconds. */
static void no_more_blocks_are_computed_again_than_it_takes(void **state)
{
    (void)state;
    struct cell row[] = {{"act_ckpt", ""}, {"framework", "Megatron-Bridge / Megatron-Core"},
        {"n_layers", "80"}, {"d_model", "8192"}, {"n_heads", "64"}, {"d_ff", "28672"},
        {"params", "70553706496"}, {"n_gpus", "64"}, {"gpu", "gb200"}, {"micro_batch", "2"},
        {"grad_accum", "1"}, {"global_batch_seqs", "128"}, {"compile", ""}, {"peak_mem_gib", ""},
        {"tokens_per_s_per_gpu", "4000"}, {0}};
    struct evidence_row some = read_row(row);
    row[0].value = "none";
    struct evidence_row none = read_row(row);
    row[0].value = "full";
    struct evidence_row full = read_row(row);
    assert_true(some.is_inferred && 0 < some.again && some.again < 1);
    assert_true(none.again == 0 && full.again == 0);
    double room = 0.95 * ((double)some.hw.memory_bytes - 2e9);
    double bytes = engine_memory(&some.model, &some.strategy).total;
    assert_true(bytes <= room && bytes > 0.98 * room);
    assert_true(engine_memory(&none.model, &none.strategy).total > room);
    double slow = 1 / predicted_tokens(&full), fast = 1 / predicted_tokens(&none);
    double want = 1 / (fast + some.again * (slow - fast));
    assert_true(fabs(predicted_tokens(&some) / want - 1) < 1e-9);
}

static void experts_of_automodel_are_spread_over_all_ranks(void **state)
{
    (void)state;
    struct cell row[] = {{"framework", "NeMo AutoModel (FSDP2)"}, {"params", "20900000000"},
        {"active_params", "3600000000"}, {"mlp", "moe"}, {"ep", ""}, {0}};
    assert_int_equal(read_row(row).strategy.parallel.expert, 8);
    row[4].value = "4";
    assert_int_equal(read_row(row).strategy.parallel.expert, 4);
    row[0].value = "torchtitan FSDP2";
    row[4].value = "";
    assert_int_equal(read_row(row).strategy.parallel.expert, 1);
}

/* As many groups of experts as GPUs over tensor ranks: Megatron's default. Many small ones are left
 * whole, as are those that could not be split as well. */
static void experts_of_megatron_are_split_by_tensor_ranks(void **state)
{
    (void)state;
    struct cell row[] = {{"framework", "NeMo / Megatron-Core"}, {"params", "20900000000"},
        {"active_params", "3600000000"}, {"mlp", "moe"}, {"tp", "4"}, {"ep", "2"},
        {"global_batch_seqs", "2"}, {0}};
    assert_true(read_row(row).strategy.parallel.splits_experts);
    row[5].value = "8";
    assert_false(read_row(row).strategy.parallel.splits_experts);
    row[5].value = "2";
    row[0].value = "torchtitan FSDP2";
    assert_false(read_row(row).strategy.parallel.splits_experts);
}

static void what_a_source_says_is_never_changed(void **state)
{
    (void)state;
    struct evidence_row r = read_row((struct cell[]){
        {"act_ckpt", "none"}, {"micro_batch", "4"}, {"global_batch_seqs", "32"}, {0}});
    assert_int_equal(r.strategy.recompute, RECOMPUTE_NONE);
    assert_int_equal(r.strategy.micro_batch, 4);
    assert_int_equal(r.strategy.kind, STRATEGY_ZERO3);
}

/* bigscience, experiments/gpt2.md: 52B on 64 V100 with "ddp" in no other sense than that no stage
 * is named; its script is that of ZeRO-3, which also keeps checkpoints on the host. */
static void replicas_larger_than_the_card_were_sharded(void **state)
{
    (void)state;
    const struct cell row[] = {{"framework", "Megatron-DeepSpeed"}, {"n_layers", "64"},
        {"d_model", "8192"}, {"n_heads", "64"}, {"n_kv_heads", "64"}, {"d_ff", "32768"},
        {"mlp", "gelu"}, {"vocab", "50257"}, {"tied_embeddings", "yes"}, {"seq_len", "1024"},
        {"n_gpus", "64"}, {"gpu", "v100-32"}, {"gpus_per_node", "4"}, {"strategy", "ddp"},
        {"micro_batch", "16"}, {"global_batch_seqs", "1024"}, {"precision", "fp16"},
        {"act_ckpt", "full"}, {"compile", "no"}, {"flash_attn", "no"}, {"peak_mem_gib", ""},
        {"tokens_per_s_per_gpu", "150"}, {0}};
    struct evidence_row r = read_row(row);
    assert_int_equal(r.strategy.kind, STRATEGY_ZERO3);
    assert_int_equal(r.strategy.shard_degree, 64);
    assert_true(r.strategy.offload & OFFLOAD_ACTIVATIONS);
    assert_true(r.unstated & UNSTATED_STRATEGY);
    assert_true(r.is_inferred);
    /* one that fits unsharded is what it says */
    r = read_row((struct cell[]){{"strategy", "ddp"}, {"n_layers", "2"}, {0}});
    assert_int_equal(r.strategy.kind, STRATEGY_DDP);
    assert_false(r.is_inferred);
}

static void a_run_out_of_memory_tells_nothing(void **state)
{
    (void)state;
    struct evidence_row r = read_row((struct cell[]){{"act_ckpt", ""}, {"micro_batch", "4"},
        {"global_batch_seqs", "32"}, {"status", "oom"}, {"peak_mem_gib", ""}, {0}});
    assert_true(r.is_oom);
    assert_false(r.is_inferred);
    assert_int_equal(r.strategy.recompute, RECOMPUTE_NONE);
}

/* --- what is not predicted --- */

static void rows_that_cannot_be_predicted_say_why(void **state)
{
    (void)state;
    static const struct {
        struct cell change[4];
        enum skip why;
        bool is_counted; /* among the rows that should have been predicted */
    } want[] = {
        {{{"train_type", "lora"}}, SKIP_NOT_FULL, false},
        {{{"status", "anomalous"}}, SKIP_STATUS, false},
        {{{"row_kind", "chart"}}, SKIP_CHART, false},
        {{{"tokens_per_s_per_gpu", ""}, {"peak_mem_gib", ""}}, SKIP_NOTHING_MEASURED, true},
        {{{"vocab", ""}}, SKIP_NO_MODEL, true},
        {{{"n_layers", ""}}, SKIP_NO_MODEL, true},
        {{{"gpu", ""}}, SKIP_NO_GPU, true},
        {{{"gpu", "abacus-9000"}}, SKIP_NO_GPU, true},
        {{{"n_gpus", ""}}, SKIP_NO_GPUS, true},
        {{{"seq_len", ""}}, SKIP_NO_SEQ, true},
        {{{"notes", "the maximum; samples may be shorter"}}, SKIP_NO_SEQ, true},
        {{{"tp", "3"}}, SKIP_LAYOUT, true},
        {{{"tp", "4"}, {"pp", "4"}}, SKIP_LAYOUT, true},
        {{{"micro_batch", "2"}, {"grad_accum", "2"}}, SKIP_CONTRADICTION, true},
        {{{"precision", "fp8"}, {"gpu", "a100-80-sxm"}}, SKIP_CONTRADICTION, true},
        {{{"d_ff", "wide"}}, SKIP_BAD_CELL, true},
        {{{"micro_batch", "1.5"}}, SKIP_BAD_CELL, true},
        {{{"peak_mem_gib", "-3"}}, SKIP_BAD_CELL, true},
        {{{"strategy", "zero++"}}, SKIP_UNSUPPORTED, true},
    };
    for (size_t i = 0; i < BASE_COUNT(want); i++) {
        struct evidence v = read(want[i].change);
        assert_int_equal(v.n_rows, 0);
        assert_int_equal(v.n_skipped, 1);
        if (v.skipped[0].why != want[i].why)
            fail_msg("%s: %s instead of %s", want[i].change[0].column, skip_word(v.skipped[0].why),
                skip_word(want[i].why));
        assert_string_equal(v.skipped[0].id, "titan-001");
        assert_int_equal(v.skipped[0].line, 2);
        assert_int_equal(v.skipped[0].is_full_and_ok, want[i].is_counted);
        assert_int_equal(v.n_full_and_ok, want[i].is_counted);
        evidence_release(&v);
    }
}

static void every_reason_has_a_word_and_a_sentence(void **state)
{
    (void)state;
    for (int i = 0; i < SKIP_COUNT; i++) {
        assert_true(strlen(skip_word((enum skip)i)) > 0);
        assert_true(strlen(skip_help((enum skip)i)) > 0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(skip_word((enum skip)i), skip_word((enum skip)j));
    }
    for (int k = 0; k < MEM_KINDS; k++)
        assert_true(strlen(mem_kind_name((enum mem_kind)k)) > 0);
}

static void a_table_needs_the_columns_that_all_hangs_on(void **state)
{
    (void)state;
    static const char text[] = "id,gpu,n_gpus,n_layers\nx,h100-sxm,8,32\n";
    struct err e = ERR_INIT;
    struct csv table;
    struct evidence v;
    assert_int_equal(csv_parse(&table, text, sizeof text - 1, &e), RC_OK);
    assert_int_equal(evidence_read(&v, &table, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "'d_model'"));
    csv_release(&table);
}

int test_evidence(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_that_tables_write),
        cmocka_unit_test(what_contradicts_itself_or_the_hardware_is_skipped),
        cmocka_unit_test(a_complete_row_is_read_as_it_stands),
        cmocka_unit_test(rows_of_a_source_share_a_group),
        cmocka_unit_test(frameworks_become_engines_and_stacks),
        cmocka_unit_test(what_is_left_out_is_remembered),
        cmocka_unit_test(the_batch_comes_from_any_two_figures),
        cmocka_unit_test(small_models_take_many_sequences_where_nothing_is_said),
        cmocka_unit_test(torchtitan_splits_a_batch_over_its_stages),
        cmocka_unit_test(words_of_the_notes_spare_memory),
        cmocka_unit_test(a_run_that_ran_recomputed_if_it_had_to),
        cmocka_unit_test(no_more_blocks_are_computed_again_than_it_takes),
        cmocka_unit_test(experts_of_automodel_are_spread_over_all_ranks),
        cmocka_unit_test(experts_of_megatron_are_split_by_tensor_ranks),
        cmocka_unit_test(what_a_source_says_is_never_changed),
        cmocka_unit_test(replicas_larger_than_the_card_were_sharded),
        cmocka_unit_test(a_run_out_of_memory_tells_nothing),
        cmocka_unit_test(rows_that_cannot_be_predicted_say_why),
        cmocka_unit_test(every_reason_has_a_word_and_a_sentence),
        cmocka_unit_test(a_table_needs_the_columns_that_all_hangs_on),
    };
    return cmocka_run_group_tests_name("planner/evidence", tests, NULL, NULL);
}
