/* Plans as configuration of other software. That whole files load is checked against the targets'
 * own parsers by hand (planner/export.h names the versions); here is what could break them. */
#include "planner/export.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"

static const char hostile[] = "a\"b\\c\nd'e$(f)`g`#h\x7f\xc3\xa9\xf0\x9f\x98\x80\x01";

static void quotes_leave_no_character_that_ends_a_string(void **state)
{
    (void)state;
    struct str s = STR_INIT;
    export_quote(&s, hostile);
    assert_string_equal(
        str_text(&s), "\"a\\\"b\\\\c\\u000ad'e$(f)`g`#h\\u007f\\u00e9\\U0001f600\\u0001\"");
    str_reset(&s);
    str_add_shell_quoted(&s, "a'b\nc$(d)");
    assert_string_equal(str_text(&s), "'a'\\''b\nc$(d)'");
    str_reset(&s);
    export_plain(&s, "a\nb\xc3\xa9");
    assert_string_equal(str_text(&s), "a?b??");
    str_release(&s);
}

static struct training usual(int64_t steps)
{
    struct training t;
    assert_int_equal(training_from_json(&t, NULL, steps, NULL), RC_OK);
    return t;
}

/* Every target for every engine's every strategy writes something or says why not; no line of it
 * begins with text of the user's, and none is longer than the user's. */
static void every_strategy_is_written_or_refused(void **state)
{
    (void)state;
    struct model m;
    assert_int_equal(model_find(&m, "llama-3.1-8b", NULL), RC_OK);
    snprintf(m.name, sizeof m.name, "%s", hostile);
    struct training t = usual(1000);
    for (int i = 0; i < EXPORT_COUNT * ENGINE_COUNT * (STRATEGY_HSDP + 1); i++) {
        struct strategy s = strategy_default((enum strategy_kind)(i % (STRATEGY_HSDP + 1)), 16, 8);
        s.engine = (enum engine)(i / (STRATEGY_HSDP + 1) % ENGINE_COUNT);
        s.seq = 4096;
        struct export_input in = {.model = &m,
            .strategy = &s,
            .training = &t,
            .steps = 1000,
            .is_gpu = true,
            .data = hostile};
        struct str out = STR_INIT, left_out = STR_INIT;
        struct err e = ERR_INIT;
        enum rc rc = export_make(&out, &left_out, (enum export_target)(i % EXPORT_COUNT), &in, &e);
        assert_true(rc == RC_OK || rc == RC_INVALID);
        assert_int_equal(rc == RC_OK, out.len > 0);
        assert_int_equal(rc == RC_OK, e.msg[0] == '\0');
        assert_null(strstr(str_text(&out), "\nd'e"));
        str_release(&out);
        str_release(&left_out);
    }
}

/* deepspeed.ai/docs/config-json: train_batch_size is the product of the other two and the ranks. */
static void deepspeed_batches_multiply(void **state)
{
    (void)state;
    struct model m;
    assert_int_equal(model_find(&m, "gpt2", NULL), RC_OK);
    struct strategy s = strategy_default(STRATEGY_HSDP, 32, 8);
    s.engine = ENGINE_DEEPSPEED;
    s.micro_batch = 3;
    s.grad_accum = 5;
    s.offload = OFFLOAD_OPTIMIZER;
    struct training t = usual(77);
    struct export_input in = {.model = &m, .strategy = &s, .training = &t, .steps = 77};
    struct str out = STR_INIT, left_out = STR_INIT;
    struct json *v = NULL;
    assert_int_equal(export_make(&out, &left_out, EXPORT_DEEPSPEED, &in, NULL), RC_OK);
    assert_int_equal(json_parse(&v, str_text(&out), out.len, NULL), RC_OK);
    const struct json *zero = json_get(v, "zero_optimization");
    assert_int_equal(json_int(v, "train_batch_size", 0), 32 * 3 * 5);
    assert_int_equal(json_int(zero, "stage", -1), 3);
    assert_int_equal(json_int(zero, "mics_shard_size", -1), 8);
    assert_string_equal(json_str(json_get(zero, "offload_optimizer"), "device", ""), "cpu");
    assert_non_null(strstr(str_text(&left_out), "MiCS_Init"));
    json_free(v);
    str_release(&out);
    str_release(&left_out);
}

/* deepspeed.ai/docs/config-json: optimizers of torch.optim by name; ZeRO takes those it was not
 * tested with, and its step on the host others than its own Adam, when told to. */
static void deepspeed_takes_sgd_from_torch(void **state)
{
    (void)state;
    struct model m;
    assert_int_equal(model_find(&m, "gpt2", NULL), RC_OK);
    struct strategy s = strategy_default(STRATEGY_ZERO2, 8, 8);
    strategy_take_optimizer(&s, OPTIMIZER_SGD);
    s.offload = OFFLOAD_OPTIMIZER;
    struct training t = usual(77);
    t.optimizer = OPTIMIZER_SGD;
    t.momentum = 0.8;
    struct export_input in = {.model = &m, .strategy = &s, .training = &t, .steps = 77};
    struct str out = STR_INIT, left_out = STR_INIT;
    struct json *v = NULL;
    assert_int_equal(export_make(&out, &left_out, EXPORT_DEEPSPEED, &in, NULL), RC_OK);
    assert_int_equal(json_parse(&v, str_text(&out), out.len, NULL), RC_OK);
    const struct json *optimizer = json_get(v, "optimizer");
    assert_string_equal(json_str(optimizer, "type", ""), "SGD");
    assert_true(fabs(json_num(json_get(optimizer, "params"), "momentum", 0) - 0.8) < 1e-12);
    assert_true(json_bool(v, "zero_allow_untested_optimizer", false));
    assert_false(json_bool(v, "zero_force_ds_cpu_optimizer", true));
    str_reset(&out);
    str_reset(&left_out);
    s.kind = STRATEGY_ZERO3;
    s.offload = OFFLOAD_NONE;
    assert_int_equal(export_make(&out, &left_out, EXPORT_TORCHTITAN, &in, NULL), RC_OK);
    assert_null(strstr(str_text(&out), "[optimizer]"));
    assert_non_null(strstr(str_text(&left_out), "optimizer sgd"));
    json_free(v);
    str_release(&out);
    str_release(&left_out);
}

static void assert_says(enum export_target target, const struct strategy *s, const char *in_file,
    const char *in_left_out)
{
    struct model m;
    assert_int_equal(model_find(&m, "llama-3.1-8b", NULL), RC_OK);
    struct export_input in = {.model = &m, .strategy = s, .is_gpu = true};
    struct str out = STR_INIT, left_out = STR_INIT;
    assert_int_equal(export_make(&out, &left_out, target, &in, NULL), RC_OK);
    if (!strstr(str_text(&out), in_file))
        fail_msg("'%s' is not in:\n%s", in_file, str_text(&out));
    if (in_left_out && !strstr(str_text(&left_out), in_left_out))
        fail_msg("'%s' is not in:\n%s", in_left_out, str_text(&left_out));
    if (!in_left_out)
        assert_null(strstr(str_text(&left_out), "recompute"));
    str_release(&out);
    str_release(&left_out);
}

static void what_a_file_cannot_say_is_named(void **state)
{
    (void)state;
    struct strategy s = strategy_default(STRATEGY_ZERO3, 16, 8);
    s.engine = ENGINE_FSDP2;
    s.recompute = RECOMPUTE_FULL;
    assert_says(EXPORT_FSDP2, &s, "fsdp_activation_checkpointing: true", NULL);
    assert_says(EXPORT_TORCHTITAN, &s, "mode = \"full\"", NULL);
    assert_says(EXPORT_DEEPSPEED, &s, "\"stage\": 3", "full recompute");
    s.recompute = RECOMPUTE_SELECTIVE;
    assert_says(EXPORT_FSDP2, &s, "fsdp_activation_checkpointing: false", "selective recompute");
    assert_says(EXPORT_TORCHTITAN, &s, "selective_ac_option = \"op\"", NULL);
    s.reshard_after_forward = false;
    assert_says(EXPORT_FSDP2, &s, "fsdp_reshard_after_forward: false", "micro batch of 1");
    assert_says(EXPORT_DEEPSPEED, &s, "\"stage\": 3", "parameters kept");
    s = strategy_default(STRATEGY_HSDP, 16, 8);
    assert_says(EXPORT_TORCHTITAN, &s,
        "data_parallel_replicate_degree = 2\n"
        "data_parallel_shard_degree = 8",
        NULL);
    assert_says(EXPORT_ACCELERATE, &s, "parallelism_config_dp_shard_size: 8", "micro batch");
}

/* Names: deepspeed.ai/docs/config-json (offload_param, nvme, cpu_checkpointing), accelerate's
 * DeepSpeed plugin and FSDP plugin, torchtitan's [training]. */
static void what_leaves_the_gpu_is_written_or_named(void **state)
{
    (void)state;
    struct strategy s = strategy_default(STRATEGY_ZERO3, 16, 8);
    s.offload = OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS;
    assert_says(EXPORT_DEEPSPEED, &s, "offload_param", NULL);
    assert_says(EXPORT_FSDP2, &s, "fsdp_offload_params: true", NULL);
    assert_says(EXPORT_ACCELERATE, &s, "fsdp_offload_params: true", NULL);
    assert_says(EXPORT_TORCHTITAN, &s, "enable_cpu_offload = true", NULL);
    s.offload = OFFLOAD_OPTIMIZER | OFFLOAD_DISK;
    assert_says(EXPORT_DEEPSPEED, &s, "\"nvme_path\"", NULL);
    assert_says(EXPORT_ACCELERATE, &s, "offload_optimizer_device: \"nvme\"", NULL);
    s.kind = STRATEGY_ZERO2;
    assert_says(EXPORT_DEEPSPEED, &s, "\"cpu\"", "NVMe, which take stage 3");
    s.kind = STRATEGY_ZERO3;
    assert_says(EXPORT_TORCHTITAN, &s, "[training]", "states on NVMe");
    s.offload = OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK;
    assert_says(EXPORT_DEEPSPEED, &s, "\"buffer_size\"", NULL);
    assert_says(EXPORT_ACCELERATE, &s, "offload_param_device: \"nvme\"", NULL);
    assert_says(EXPORT_FSDP2, &s, "fsdp_offload_params: false", "states on NVMe");
    s.offload = OFFLOAD_ACTIVATIONS;
    assert_says(EXPORT_DEEPSPEED, &s, "\"cpu_checkpointing\"", NULL);
    assert_says(EXPORT_FSDP2, &s, "fsdp_offload_params: false", "activations in host memory");
}

int test_export(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotes_leave_no_character_that_ends_a_string),
        cmocka_unit_test(every_strategy_is_written_or_refused),
        cmocka_unit_test(deepspeed_batches_multiply),
        cmocka_unit_test(deepspeed_takes_sgd_from_torch),
        cmocka_unit_test(what_a_file_cannot_say_is_named),
        cmocka_unit_test(what_leaves_the_gpu_is_written_or_named),
    };
    return cmocka_run_group_tests_name("planner/export", tests, NULL, NULL);
}
