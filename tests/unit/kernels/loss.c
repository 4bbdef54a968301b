/* Reference: softmax in double. fp32 tolerance: probabilities carry the exponential's 2 units in
 * the last place and the rounding of logit - max. */
#include "tests/unit/kernels/support.h"

#define TOLERANCE 2e-6

struct loss {
    enum k_type type;
    int64_t tokens, vocab;
    double scale;
    struct array logits;
    int32_t *targets;
};

/* Every third target is to be ignored. */
static struct loss loss_new(enum k_type type, int64_t tokens, int64_t vocab, double spread)
{
    struct loss t = {.type = type, .tokens = tokens, .vocab = vocab, .scale = 0.125};
    t.logits = array_random(type, tokens * vocab, 2, spread, 1);
    t.targets = base_alloc((size_t)tokens * sizeof(*t.targets));
    for (int64_t i = 0; i < tokens; i++)
        t.targets[i] = i % 3 == 2 ? -100 : (int32_t)((i * 7919 + vocab - 1) % vocab);
    return t;
}

static void loss_release(struct loss *t)
{
    array_free(&t->logits);
    free(t->targets);
}

static double *expected(const struct loss *t, double *sum)
{
    double *want = doubles_new(t->tokens * t->vocab);
    for (int64_t row = 0; row < t->tokens; row++) {
        int64_t at = row * t->vocab;
        if (t->targets[row] < 0)
            continue;
        double max = -INFINITY, total = 0;
        for (int64_t i = 0; i < t->vocab; i++)
            max = fmax(max, array_get(&t->logits, at + i));
        for (int64_t i = 0; i < t->vocab; i++)
            total += exp(array_get(&t->logits, at + i) - max);
        for (int64_t i = 0; i < t->vocab; i++) {
            double p = exp(array_get(&t->logits, at + i) - max) / total;
            want[at + i] = t->scale * (p - (i == t->targets[row]));
        }
        *sum += log(total) + max - array_get(&t->logits, at + t->targets[row]);
    }
    return want;
}

struct result {
    struct array gradient;
    double sum;
};

static struct result run(const struct kernels *k, struct pool *pool, const struct loss *t)
{
    struct result r = {array_copy(&t->logits), 5}; /* added to what is there */
    double divisor = 1 / t->scale;
    k->cross_entropy(pool, &(struct k_cross_entropy){
                               .type = t->type,
                               .tokens = t->tokens,
                               .vocab = t->vocab,
                               .divisor = &divisor,
                               .logits = r.gradient.data,
                               .targets = t->targets,
                               .loss_sum = &r.sum,
                           });
    return r;
}

static void check(struct pool *pool, const struct loss *t)
{
    double sum = 5, *want = expected(t, &sum);
    EACH_TABLE(k)
    {
        struct result one = run(k, NULL, t), three = run(k, pool, t);
        assert_same_bits(&one.gradient, &three.gradient, "cross entropy");
        assert_memory_equal(&one.sum, &three.sum, sizeof(double));
        assert_true(fabs(one.sum - sum) <= 1e-6 * fabs(sum));
        /* most elements are tiny beside those at the targets; near p = 1 they are differences of
         * numbers near scale */
        assert_near(&one.gradient, want, t->type == K_BF16 ? BF16_REL : TOLERANCE, TOLERANCE * 100,
            "cross entropy");
        array_free(&one.gradient);
        array_free(&three.gradient);
    }
    free(want);
}

static void loss_and_gradient_over_odd_vocabularies(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {1, 2}, {7, 33}, {300, 65}, {3, 513}, {4, 50257}};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        EACH_TYPE(type)
        {
            struct loss t = loss_new(type, shapes[i][0], shapes[i][1], 4);
            check(pool, &t);
            loss_release(&t);
        }
    pool_free(pool);
}

/* Logits of thousands: the exponential alone would overflow; probabilities become 0 and 1. */
static void stays_finite_with_huge_logits(void **state)
{
    (void)state;
    struct pool *pool = pool_new(3);
    struct loss t = loss_new(K_FP32, 5, 1500, 20000);
    check(pool, &t);
    loss_release(&t);
    pool_free(pool);
}

static void reports_nan_and_infinity_as_non_finite_loss(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY};
    for (size_t i = 0; i < BASE_COUNT(bad); i++)
        EACH_TABLE(k)
        {
            struct loss t = loss_new(K_FP32, 4, 40, 1);
            array_set(&t.logits, 57, (double)bad[i]);
            struct result r = run(k, NULL, &t);
            assert_false(isfinite(r.sum));
            array_free(&r.gradient);
            loss_release(&t);
        }
}

int test_loss(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradient_over_odd_vocabularies),
        cmocka_unit_test(stays_finite_with_huge_logits),
        cmocka_unit_test(reports_nan_and_infinity_as_non_finite_loss),
    };
    return cmocka_run_group_tests_name("kernels/loss", tests, NULL, NULL);
}
