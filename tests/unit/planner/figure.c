#include "planner/figure.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/str.h"
#include "planner/adapter.h"
#include "planner/engine_memory.h"
#include "planner/estimate.h"
#include "planner/layout.h"

static struct model find(const char *name)
{
    struct err e = ERR_INIT;
    struct model m;
    if (model_find(&m, name, &e))
        fail_msg("%s", e.msg);
    return m;
}

static struct terms terms_of(const struct model *m, const struct strategy *s, enum memory memory)
{
    struct err e = ERR_INIT;
    struct terms t = {0};
    if (figure_memory(&t, m, s, memory, &e))
        fail_msg("%s", e.msg);
    return t;
}

static double sum_of(const struct terms *t, const char *part)
{
    double sum = 0;
    for (size_t i = 0; i < t->n; i++)
        sum += strcmp(t->all[i].part, part) == 0 ? t->all[i].total : 0;
    return sum;
}

/* Products say what is there, but for padding; only sizes that the schedule sets are bytes alone.
 */
static void check_products(const struct terms *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct term *x = &t->all[i];
        double product = term_product(x);
        assert_true(product <= x->total * (1 + 1e-9));
        assert_true(x->total - product <= fmax(0.03 * x->total, 64 << 10));
        bool is_bytes = x->n == 1 || (x->n == 2 && strcmp(x->factor[0].word, "buffers") == 0);
        if (is_bytes && strcmp(x->part, "scratch") != 0 && strcmp(x->part, "data") != 0)
            fail_msg("%s of %s is not taken apart", x->what, x->part);
    }
}

static void terms_of_a_schedule_sum_to_its_parts(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt2", "llama-3.2-1b", "qwen3-0.6b"};
    for (int k = STRATEGY_DDP; k <= STRATEGY_HSDP; k++) {
        struct model m = find(models[k % 3]);
        struct strategy s = strategy_default((enum strategy_kind)k, 8, 8);
        if (k == STRATEGY_HSDP)
            s.shard_degree = 4;
        s.seq = 512;
        s.micro_batch = 2;
        s.grad_accum = 1 + k % 3;
        s.recompute = k % 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        s.loss_chunks = 1 + k % 2 * 3;
        s.precision = k == STRATEGY_ZERO1   ? PRECISION_FP32
                      : k == STRATEGY_ZERO3 ? PRECISION_FP8
                                            : PRECISION_BF16;
        s.master_bytes = 4;
        s.offload = k == STRATEGY_ZERO2 ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE;
        struct err e = ERR_INIT;
        struct schedule *list = NULL;
        if (schedule_make(&list, &m, &s, &e))
            fail_msg("%s", e.msg);
        for (int memory = MEMORY_DEVICE; memory <= MEMORY_HOST; memory++) {
            struct layout_peak peak = layout_peak(list, (enum memory)memory);
            struct terms t = terms_of(&m, &s, (enum memory)memory);
            for (int p = 0; p < PART_COUNT; p++)
                assert_true(sum_of(&t, part_name((enum part)p)) == (double)peak.part_bytes[p]);
            check_products(&t);
            terms_release(&t);
        }
        schedule_free(list);
    }
}

/* Llama 3.2 1B: 16 blocks of 2048, 1,235,814,400 parameters. */
static void a_term_names_the_numbers_of_the_model(void **state)
{
    (void)state;
    struct model m = find("llama-3.2-1b");
    struct strategy s = strategy_default(STRATEGY_ZERO3, 16, 8);
    s.seq = 2048;
    s.micro_batch = 8;
    struct terms t = terms_of(&m, &s, MEMORY_DEVICE);
    struct str text = STR_INIT;
    terms_describe(&text, &t, "parameters");
    terms_describe(&text, &t, "activations");
    assert_non_null(strstr(str_text(&text), "1235814400 parameters / 16 ranks x 2 bytes"));
    assert_non_null(
        strstr(str_text(&text), "block outputs: 16 blocks x 16384 tokens x 2048 width x 2 bytes"));
    str_release(&text);
    terms_release(&t);
}

static void terms_of_other_engines_sum_to_their_closed_forms(void **state)
{
    (void)state;
    for (int g = ENGINE_FSDP1; g < ENGINE_COUNT; g++) {
        for (int variant = 0; variant < 4; variant++) {
            struct model m = find("llama-3-8b");
            struct strategy s = strategy_default(
                g == ENGINE_MEGATRON || g == ENGINE_DDP ? STRATEGY_ZERO1 : STRATEGY_ZERO3, 16, 8);
            s.engine = (enum engine)g;
            s.seq = 4096;
            s.grad_accum = 1 + variant;
            s.recompute = variant == 1 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
            s.offload = variant == 2 ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE;
            if (variant == 3)
                m.adapter = (struct adapter){.rank = 16, .targets = ADAPT_ALL, .base_bits = 4};
            struct engine_memory x = engine_memory(&m, &s);
            struct terms t = {0};
            engine_memory_terms(&t, &m, &s);
            for (int p = 0; p < PART_COUNT; p++) {
                double sum = sum_of(&t, part_name((enum part)p));
                assert_true(fabs(sum - x.part[p]) <= 1e-9 * x.total);
            }
            for (size_t i = 0; i < t.n; i++)
                assert_true(fabs(term_product(&t.all[i]) - t.all[i].total) <= 1e-9 * x.total);
            terms_release(&t);
        }
    }
}

/* A GPT-2 block of width d and a head of v words take 6 flop a token and parameter of a matrix. */
static void work_is_counted_over_the_whole_step(void **state)
{
    (void)state;
    struct model m = find("gpt2");
    struct strategy s = strategy_default(STRATEGY_DDP, 1, 1);
    double work_s[WORK_COUNT] = {[WORK_PRODUCTS] = 2}, d = 768, v = 50257, tokens = 5 * 512;
    struct err e = ERR_INIT;
    struct terms t = {0};
    s.seq = 512;
    s.grad_accum = 5;
    if (figure_work(&t, &m, &s, work_s, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(t.n, 1);
    double flops = t.all[0].factor[0].value * t.all[0].factor[1].value;
    double wanted = 6 * tokens * (12 * 12 * d * d + d * v);
    assert_true(fabs(flops / wanted - 1) < 1e-9);
    assert_true(fabs(t.all[0].over.value - wanted / 2) < 1e-6 * wanted);
    terms_release(&t);
}

int test_figure(void);
int test_figure(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_of_a_schedule_sum_to_its_parts),
        cmocka_unit_test(a_term_names_the_numbers_of_the_model),
        cmocka_unit_test(terms_of_other_engines_sum_to_their_closed_forms),
        cmocka_unit_test(work_is_counted_over_the_whole_step),
    };
    return cmocka_run_group_tests_name("figure", tests, NULL, NULL);
}
