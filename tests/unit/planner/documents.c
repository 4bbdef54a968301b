/* Attention over packed documents, against documents drawn at random and against the schedule. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "planner/estimate.h"
#include "planner/schedule.h"

static struct strategy packed(int64_t seq, int64_t mean)
{
    struct strategy s = strategy_default(STRATEGY_DDP, 1, 1);
    s.seq = seq;
    s.doc_tokens = mean;
    return s;
}

static void ends_are_right(void **state)
{
    (void)state;
    struct strategy s = packed(4096, 0);
    assert_true(fabs(strategy_mean_document(&s) - 4096) < 1e-9);
    s = packed(4096, 1);
    assert_true(fabs(strategy_mean_document(&s) - 1) < 1e-9);
    s = packed(1, 5);
    assert_true(fabs(strategy_mean_document(&s) - 1) < 1e-9);
    /* far shorter than a sequence: the mean of squares over the mean, 2 D - 1 */
    s = packed(1 << 24, 100);
    assert_true(fabs(strategy_mean_document(&s) / 199 - 1) < 1e-4);
    s = packed(4096, INT32_MAX);
    assert_true(fabs(strategy_mean_document(&s) / 4096 - 1) < 1e-5);
}

/* The sum over all pairs of tokens, one by one. */
static void is_the_sum_over_pairs(void **state)
{
    (void)state;
    static const int64_t seqs[] = {2, 7, 128, 1000}, means[] = {1, 2, 3, 50, 400, 5000, 2000000};
    for (size_t i = 0; i < BASE_COUNT(seqs); i++)
        for (size_t k = 0; k < BASE_COUNT(means); k++) {
            struct strategy s = packed(seqs[i], means[k]);
            double sum = 0, q = 1 - 1 / (double)means[k];
            for (int64_t d = -seqs[i] + 1; d < seqs[i]; d++)
                sum += (double)(seqs[i] - llabs(d)) * pow(q, (double)llabs(d));
            assert_true(fabs(strategy_mean_document(&s) / (sum / (double)seqs[i]) - 1) < 1e-6);
        }
}

/* Texts that end after a token with probability 1/D, one after the other, cut into sequences. */
static void is_the_mean_over_random_documents(void **state)
{
    (void)state;
    enum { SEQ = 2048, MEAN = 600, SEQUENCES = 20000 };
    uint64_t seed = 1;
    double squares = 0;
    for (int i = 0; i < SEQUENCES; i++) {
        int64_t length = 0;
        for (int t = 0; t < SEQ; t++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            length++;
            if ((seed >> 33) % MEAN == 0 || t == SEQ - 1) {
                squares += (double)(length * length);
                length = 0;
            }
        }
    }
    struct strategy s = packed(SEQ, MEAN);
    double mean = squares / SEQUENCES / SEQ;
    assert_true(fabs(strategy_mean_document(&s) / mean - 1) < 0.01);
}

static double attention(const struct model *m, const struct strategy *s)
{
    struct err e = ERR_INIT;
    struct schedule *x = NULL;
    double flops = 0;
    assert_int_equal(schedule_build(&x, m, s, &e), RC_OK);
    for (int32_t i = 0; i < x->n_ops; i++)
        if (x->ops[i].kind == OP_ATTN_FWD)
            flops += x->ops[i].flops;
    schedule_free(x);
    return flops;
}

static void attention_is_within_documents(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(model_find(&m, "llama-3.2-1b", &e), RC_OK);
    struct strategy whole = packed(8192, 0), s = packed(8192, 500);
    double share = strategy_mean_document(&s) / 8192;
    assert_true(fabs(attention(&m, &s) / attention(&m, &whole) / share - 1) < 1e-9);
    double products = 6 * (double)model_params(&m);
    double of_attention = 12.0 * (double)(m.layers * m.heads * m.head_dim);
    double keys = strategy_mean_document(&s);
    assert_true(fabs(estimate_model_flops(&m, &s) / (products + of_attention * keys) - 1) < 1e-12);
    /* scores that are stored are stored whole */
    s.engine = whole.engine = ENGINE_FSDP1;
    s.has_plain_attention = whole.has_plain_attention = true;
    assert_true(fabs(attention(&m, &s) / attention(&m, &whole) - 1) < 1e-12);
}

int test_documents(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_right),
        cmocka_unit_test(is_the_sum_over_pairs),
        cmocka_unit_test(is_the_mean_over_random_documents),
        cmocka_unit_test(attention_is_within_documents),
    };
    return cmocka_run_group_tests_name("planner/documents", tests, NULL, NULL);
}
