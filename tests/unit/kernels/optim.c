/* AdamW against the same formulas in double, from the same fp32 state: a step has about ten
 * operations, and the weight moves by 1e-3 of the rms at most. */
#include "kernels/both.h"
#include "tests/unit/kernels/support.h"

#define TOLERANCE 1e-6

enum { N = 9001 };

struct state {
    struct array grad, master, m, v, param, low;
};

static struct state state_new(void)
{
    struct state s = {array_random(K_FP32, N, 0, 1, 1), array_random(K_FP32, N, 0, 1, 2),
        array_random(K_FP32, N, 0, 0.1, 3), array_random(K_FP32, N, 0.5, 0.5, 4),
        array_new(K_BF16, N), array_new(K_BF16, N)};
    return s;
}

static struct state state_copy(const struct state *s)
{
    return (struct state){array_copy(&s->grad), array_copy(&s->master), array_copy(&s->m),
        array_copy(&s->v), array_copy(&s->param), array_copy(&s->low)};
}

static void state_release(struct state *s)
{
    array_free(&s->grad);
    array_free(&s->master);
    array_free(&s->m);
    array_free(&s->v);
    array_free(&s->param);
    array_free(&s->low);
}

/* A gradient of norm 4 that is made a quarter as long. */
static const double squares = 16, loss_sum = 30, targets = 10;
static const struct k_gate quarter = {.squares = &squares,
    .loss_sum = &loss_sum,
    .targets = &targets,
    .clip_norm = 0.25 * (4 + 1e-6),
    .max_norm = 100,
    .max_loss = 5};

static void a_step_counts_within_its_limits_only(void **state)
{
    (void)state;
    double clip, nan = NAN, huge = INFINITY;
    struct k_gate g = quarter;
    assert_true(k_gate_is_open(&(struct k_gate){0}, &clip) && fabs(clip - 1) < 1e-15);
    assert_true(k_gate_is_open(&g, &clip) && fabs(clip - 0.25) < 1e-15);
    g.clip_norm = 5;
    assert_true(k_gate_is_open(&g, &clip) && fabs(clip - 1) < 1e-15);
    g.max_norm = 3.9;
    assert_false(k_gate_is_open(&g, &clip));
    g.max_norm = INFINITY;
    g.max_loss = 2.9;
    assert_false(k_gate_is_open(&g, &clip));
    g.max_loss = INFINITY;
    g.squares = &huge;
    assert_false(k_gate_is_open(&g, &clip));
    g.squares = &nan;
    assert_false(k_gate_is_open(&g, &clip));
}

/* Elements first .. first + n - 1 as one call. */
static struct k_adamw range(struct state *s, int64_t first, int64_t n)
{
    return (struct k_adamw){
        .elems = n,
        .grad = (float *)s->grad.data + first,
        .m = {.fp32 = (float *)s->m.data + first},
        .v = {.fp32 = (float *)s->v.data + first},
        .weights = {.master = (float *)s->master.data + first,
            .param = (uint16_t *)s->param.data + first,
            .low = (uint16_t *)s->low.data + first,
            .key = 77,
            .first = 1000 + first},
        .lr = 1e-3,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .weight_decay = 0.1,
        .gate = quarter,
        .step = 3,
    };
}

static void assert_same_state(const struct state *a, const struct state *b)
{
    assert_same_bits(&a->master, &b->master, "master");
    assert_same_bits(&a->m, &b->m, "m");
    assert_same_bits(&a->v, &b->v, "v");
    assert_same_bits(&a->param, &b->param, "param");
    assert_same_bits(&a->low, &b->low, "low");
}

static void adamw_step_follows_its_formulas(void **state)
{
    (void)state;
    struct state start = state_new();
    double *w = doubles_of(&start.master), *m = doubles_of(&start.m), *v = doubles_of(&start.v);
    for (int i = 0; i < N; i++) {
        double g = 0.25 * array_get(&start.grad, i);
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.95 * v[i] + 0.05 * g * g;
        double m_hat = m[i] / (1 - 0.9 * 0.9 * 0.9), v_hat = v[i] / (1 - 0.95 * 0.95 * 0.95);
        w[i] = w[i] - 1e-3 * 0.1 * w[i] - 1e-3 * m_hat / (sqrt(v_hat) + 1e-8);
    }
    EACH_TABLE(k)
    {
        struct state s = state_copy(&start);
        struct k_adamw a = range(&s, 0, N);
        k->adamw(NULL, &a);
        assert_result(&s.master, w, TOLERANCE, "master");
        assert_result(&s.m, m, TOLERANCE, "m");
        assert_result(&s.v, v, TOLERANCE, "v");
        for (int i = 0; i < N; i++)
            assert_int_equal(
                ((uint16_t *)s.param.data)[i], bf16_nearest((float)array_get(&s.master, i)));
        state_release(&s);
    }
    free(w);
    free(m);
    free(v);
    state_release(&start);
}

/* m = mu m + (clip g + wd w); w -= lr m. */
static void sgd_step_follows_its_formulas(void **state)
{
    (void)state;
    struct state start = state_new();
    double *w = doubles_of(&start.master), *m = doubles_of(&start.m);
    for (int i = 0; i < N; i++) {
        m[i] = 0.9 * m[i] + (0.25 * array_get(&start.grad, i) + 0.1 * w[i]);
        w[i] -= 1e-2 * m[i];
    }
    EACH_TABLE(k)
    {
        struct state s = state_copy(&start);
        struct k_sgd a = {.elems = N,
            .grad = s.grad.data,
            .m = {.fp32 = s.m.data},
            .weights = range(&s, 0, N).weights,
            .lr = 1e-2,
            .momentum = 0.9,
            .weight_decay = 0.1,
            .gate = quarter};
        k->sgd(NULL, &a);
        assert_result(&s.master, w, TOLERANCE, "master");
        assert_result(&s.m, m, TOLERANCE, "m");
        for (int i = 0; i < N; i++)
            assert_int_equal(
                ((uint16_t *)s.param.data)[i], bf16_nearest((float)array_get(&s.master, i)));
        struct state before = state_copy(&s);
        a.skip = true;
        k->sgd(NULL, &a);
        assert_same_state(&s, &before);
        state_release(&before);
        state_release(&s);
    }
    free(w);
    free(m);
    state_release(&start);
}

/* Every lower half at the borders of exponents and around zero, both signs. */
static void a_split_weight_loses_nothing(void **state)
{
    (void)state;
    static const uint32_t upper[] = {
        0, 1, 0x7f, 0x80, 0x81, 0x3f7f, 0x3f80, 0x3fff, 0x4000, 0x7eff, 0x7f00, 0x7f7e};
    enum { LOWS = 1 << 16 };
    struct array in = array_new(K_FP32, LOWS), out = array_new(K_FP32, LOWS);
    struct array param = array_new(K_BF16, LOWS), low = array_new(K_BF16, LOWS);
    struct k_weights w = {.form = K_WEIGHTS_SPLIT, .param = param.data, .low = low.data};
    EACH_TABLE(k)
    for (size_t i = 0; i < 2 * BASE_COUNT(upper); i++) {
        uint32_t high = upper[i / 2] | (i % 2 ? 0x8000 : 0);
        for (uint32_t l = 0; l < LOWS; l++)
            ((uint32_t *)in.data)[l] = high << 16 | l;
        k->weights_write(NULL, &w, in.data, LOWS);
        k->weights_read(NULL, out.data, &w, LOWS);
        assert_same_bits(&in, &out, "weights");
        for (uint32_t l = 0; l < LOWS; l++) /* to nearest; ties away from zero */
            assert_int_equal(((uint16_t *)param.data)[l], high + (l >= 0x8000));
    }
    array_free(&in);
    array_free(&out);
    array_free(&param);
    array_free(&low);
}

/* So training with halves is training with the whole. */
static void updates_of_a_split_master_are_those_of_a_whole_one(void **state)
{
    (void)state;
    struct state start = state_new();
    EACH_TABLE(k)
    {
        struct state whole = state_copy(&start), halves = state_copy(&start);
        struct k_adamw a = range(&whole, 0, N), b = range(&halves, 0, N);
        b.weights.form = K_WEIGHTS_SPLIT;
        k->weights_write(NULL, &b.weights, start.master.data, N);
        b.weights.master = NULL;
        for (int step = 1; step <= 5; step++) {
            a.step = b.step = step;
            k->adamw(NULL, &a);
            k->adamw(NULL, &b);
        }
        k->weights_read(NULL, halves.master.data, &b.weights, N);
        assert_same_bits(&whole.master, &halves.master, "master");
        assert_same_bits(&whole.v, &halves.v, "v");
        state_release(&whole);
        state_release(&halves);
    }
    state_release(&start);
}

/* Weights that an update of nothing rounds: what lies between two neighbours goes up as often as
 * its distance says, what is one of them stays. Five standard deviations of a binomial. */
static void pure_weights_are_rounded_at_random_and_on_average_not_at_all(void **state)
{
    (void)state;
    enum { MANY = 40000 };
    static const double at[] = {0, 0.015625, 0.25, 0.5, 0.9375};
    struct array grad = array_new(K_FP32, MANY), m = array_new(K_FP32, MANY);
    struct array v = array_new(K_FP32, MANY), param = array_new(K_BF16, MANY);
    EACH_TABLE(k)
    for (size_t i = 0; i < BASE_COUNT(at); i++) {
        /* 1 - lr wd = 1 + at / 128: of weights that are 1, a neighbour is 1 + 1 / 128 away */
        struct k_adamw a = {.elems = MANY,
            .grad = grad.data,
            .m = {.fp32 = m.data},
            .v = {.fp32 = v.data},
            .lr = 1,
            .weight_decay = -at[i] / 128,
            .eps = 1,
            .step = 1,
            .weights = {.form = K_WEIGHTS_PURE, .param = param.data, .key = 5 + i}};
        int up = 0;
        for (int j = 0; j < MANY; j++)
            ((uint16_t *)param.data)[j] = j % 2 ? 0xbf80 : 0x3f80;
        k->adamw(NULL, &a);
        for (int j = 0; j < MANY; j++) {
            uint16_t got = ((uint16_t *)param.data)[j] & 0x7fff;
            assert_true(got == 0x3f80 || got == 0x3f81);
            up += got == 0x3f81;
        }
        double sigma = sqrt(MANY * at[i] * (1 - at[i]));
        assert_true(fabs(up - MANY * at[i]) <= 5 * sigma);
    }
    array_free(&grad);
    array_free(&m);
    array_free(&v);
    array_free(&param);
}

/* What sharding relies on. */
static void any_split_and_any_threads_give_the_same_bits_of(enum k_weights_form form)
{
    static const int64_t cuts[] = {0, 1, 128, 130, 4097, 8192, N};
    struct state start = state_new();
    struct pool *pool = pool_new(3);
    EACH_TABLE(k)
    {
        struct state whole = state_copy(&start), parts = state_copy(&start);
        struct k_adamw a = range(&whole, 0, N);
        a.weights.form = form;
        k->adamw(pool, &a);
        for (size_t i = 0; i + 1 < BASE_COUNT(cuts); i++) {
            a = range(&parts, cuts[i], cuts[i + 1] - cuts[i]);
            a.weights.form = form;
            k->adamw(NULL, &a);
        }
        assert_same_state(&whole, &parts);
        if (form != K_WEIGHTS_MASTER) {
            state_release(&whole);
            state_release(&parts);
            continue;
        }
        struct state plain = state_copy(&start); /* without the bf16 copy */
        a = range(&plain, 0, N);
        a.weights.param = NULL;
        k->adamw(pool, &a);
        assert_same_bits(&whole.master, &plain.master, "master without param");
        state_release(&plain);
        state_release(&whole);
        state_release(&parts);
    }
    pool_free(pool);
    state_release(&start);
}

static void any_split_and_any_threads_give_the_same_bits(void **state)
{
    (void)state;
    for (int form = K_WEIGHTS_MASTER; form <= K_WEIGHTS_PURE; form++)
        any_split_and_any_threads_give_the_same_bits_of((enum k_weights_form)form);
}

static void skipped_step_only_writes_the_copy(void **state)
{
    (void)state;
    EACH_TABLE(k)
    {
        struct state s = state_new(), before = state_copy(&s);
        struct k_adamw a = range(&s, 0, N);
        a.skip = true;
        k->adamw(NULL, &a);
        assert_same_bits(&s.master, &before.master, "master");
        assert_same_bits(&s.m, &before.m, "m");
        assert_same_bits(&s.v, &before.v, "v");
        for (int i = 0; i < N; i++)
            assert_int_equal(
                ((uint16_t *)s.param.data)[i], bf16_nearest((float)array_get(&s.master, i)));
        state_release(&s);
        state_release(&before);
    }
}

/* --- square sums --- */

static void square_sum_is_taken_in_blocks_and_in_double(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 15, 4096, 4097, 3 * 4096 + 5, 1100 * 4096 + 77};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(sizes); i++) {
        struct array g = array_random(K_FP32, sizes[i], 0.1, 1, i);
        long double want = 1.5L;
        for (int64_t j = 0; j < g.n; j++)
            want += (long double)array_get(&g, j) * (long double)array_get(&g, j);
        EACH_TABLE(k)
        {
            double one = 1.5, three = 1.5, blocks = 1.5;
            k->grad_norm(NULL, g.data, g.n, &one);
            k->grad_norm(pool, g.data, g.n, &three);
            for (int64_t at = 0; at < g.n; at += K_NORM_BLOCK) {
                int64_t n = g.n - at < K_NORM_BLOCK ? g.n - at : K_NORM_BLOCK;
                double block = 0;
                k->grad_norm(NULL, (float *)g.data + at, n, &block);
                blocks += block;
            }
            assert_memory_equal(&one, &three, sizeof(double));
            assert_memory_equal(&one, &blocks, sizeof(double));
            assert_true(fabs(one - (double)want) <= 1e-13 * (double)want);
        }
        array_free(&g);
    }
    pool_free(pool);
}

static void square_sum_shows_what_is_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < BASE_COUNT(bad); i++)
        EACH_TABLE(k)
        {
            struct array g = array_random(K_FP32, 5000, 0, 1, 1);
            ((float *)g.data)[4321] = bad[i];
            double sum = 0;
            k->grad_norm(NULL, g.data, g.n, &sum);
            assert_false(isfinite(sum));
            array_free(&g);
        }
}

int test_optim(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_counts_within_its_limits_only),
        cmocka_unit_test(adamw_step_follows_its_formulas),
        cmocka_unit_test(sgd_step_follows_its_formulas),
        cmocka_unit_test(a_split_weight_loses_nothing),
        cmocka_unit_test(updates_of_a_split_master_are_those_of_a_whole_one),
        cmocka_unit_test(pure_weights_are_rounded_at_random_and_on_average_not_at_all),
        cmocka_unit_test(any_split_and_any_threads_give_the_same_bits),
        cmocka_unit_test(skipped_step_only_writes_the_copy),
        cmocka_unit_test(square_sum_is_taken_in_blocks_and_in_double),
        cmocka_unit_test(square_sum_shows_what_is_not_finite),
    };
    return cmocka_run_group_tests_name("kernels/optim", tests, NULL, NULL);
}
