#include "planner/range.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/str.h"
#include "planner/estimate.h"

static void a_size_beyond_all_runs_is_named(void **state)
{
    (void)state;
    struct ranges r = {0};
    const struct sizes runs[] = {{{1e9, 2048, 2048, 8192, 8, 1}}, {{7e9, 4096, 4096, 4096, 64, 8}}};
    const struct sizes inside = {{2e9, 4096, 2048, 8192, 32, 4}};
    const struct sizes beyond = {{2e9, 8192, 1024, 8192, 128, 8}};
    assert_int_equal(ranges_outside(&r, &beyond), 0); /* nothing is known */
    ranges_add(&r, &runs[0]);
    ranges_add(&r, &runs[1]);
    assert_int_equal(ranges_outside(&r, &inside), 0);
    unsigned outside = ranges_outside(&r, &beyond);
    assert_int_equal(outside, 1u << RANGE_WIDTH | 1u << RANGE_SEQ | 1u << RANGE_RANKS);
    struct str s = STR_INIT;
    ranges_describe(&s, &r, &beyond, outside);
    assert_string_equal(str_text(&s),
        "width 8192 (2048 to 4096), sequence 1024 (2048 to 4096), ranks 128 (8 to 64)");
    str_release(&s);
    /* a doubling of width, one of the sequence and one of ranks */
    double wanted = sqrt(0.15 * 0.15 + 0.08 * 0.08 + 0.07 * 0.07);
    assert_true(fabs(ranges_log_sd(&r, &beyond, outside) - wanted) < 1e-12);
    assert_true(ranges_log_sd(&r, &inside, 0) <= 0);
}

static void ranges_survive_a_file_and_half_ones_are_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct ranges r = {0}, back;
    const struct sizes run = {{1e9, 2048, 2048, 8192, 8, 1}};
    ranges_add(&r, &run);
    struct json *v = ranges_json(&r), *half = NULL;
    assert_int_equal(ranges_from_json(&back, v, &e), RC_OK);
    assert_memory_equal(&back, &r, sizeof r);
    assert_int_equal(json_parse(&half, "{\"parameters\": [2, 1]}", 22, &e), RC_OK);
    assert_int_equal(ranges_from_json(&back, half, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "'parameters'"));
    assert_int_equal(ranges_from_json(&back, NULL, &e), RC_OK);
    assert_false(ranges_are_known(&back));
    json_free(v);
    json_free(half);
}

static struct estimate estimate_of(const char *stack, int64_t nodes, int64_t seq)
{
    struct err e = ERR_INIT;
    struct rates *rates = NULL;
    struct model m;
    struct machine mc;
    struct estimate x;
    struct hardware hw = {.is_gpu = true,
        .gpu = "h100-sxm",
        .nodes = nodes,
        .ranks_per_node = 8,
        .peak_flops = {67e12, 989.5e12},
        .measured_flops = 794.5e12,
        .memory_bytes_per_s = 3.35e12,
        .memory_bytes = 81559LL << 20,
        .link_bytes_per_s = 450e9,
        .pcie_bytes_per_s = 63e9,
        .fabric_bytes_per_s = 400e9,
        .is_fabric_rdma = true};
    struct strategy s = strategy_default(STRATEGY_ZERO3, 8 * nodes, 8);
    s.engine = ENGINE_FSDP1;
    s.seq = seq;
    if (rates_builtin(&rates, &e) || model_find(&m, "llama-3.1-8b", &e) ||
        machine_make(&mc, rates, &hw, stack, &e) || estimate_quick(&x, &m, &s, &mc, &e))
        fail_msg("%s", e.msg);
    assert_ptr_equal(x.evidence, mc.evidence);
    assert_string_equal(mc.evidence->stack, strcmp(stack, "berth") == 0 ? "*" : stack);
    x.evidence = NULL; /* of the rates */
    rates_free(rates);
    return x;
}

/* MosaicML's H100 runs had 8 to 512 GPUs and sequences of 512 to 65,536 tokens. */
static void an_estimate_is_held_against_the_runs_of_its_chip_and_stack(void **state)
{
    (void)state;
    struct estimate inside = estimate_of("fsdp1-composer", 1, 4096);
    assert_false(inside.is_extrapolated);
    struct estimate beyond = estimate_of("fsdp1-composer", 512, 131072);
    assert_true(beyond.is_extrapolated);
    assert_true(beyond.outside & 1u << RANGE_RANKS && beyond.outside & 1u << RANGE_SEQ);
    assert_false(beyond.outside & 1u << RANGE_WIDTH);
    /* 8 times as many ranks, twice the sequence, 4/3 of the tokens of a micro batch */
    double more = sqrt(9 * 0.07 * 0.07 + 0.08 * 0.08 + pow(0.11 * log2(4 / 3.0), 2));
    double log_sd = log(inside.step_high_s / inside.step_s) / 1.6449;
    double beyond_sd = log(beyond.step_high_s / beyond.step_s) / 1.6449;
    assert_true(fabs(beyond_sd - hypot(log_sd, more)) < 1e-6);
    assert_false(estimate_of("berth", 8, 4096).is_extrapolated); /* those of any software */
}

int test_range(void);
int test_range(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_beyond_all_runs_is_named),
        cmocka_unit_test(ranges_survive_a_file_and_half_ones_are_refused),
        cmocka_unit_test(an_estimate_is_held_against_the_runs_of_its_chip_and_stack),
    };
    return cmocka_run_group_tests_name("range", tests, NULL, NULL);
}
