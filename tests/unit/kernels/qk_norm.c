/* References: definitions in double, the backward pass by the textbook Jacobian. fp32 tolerance: a
 * head is summed in fp32 in one piece of at most 256; gradients of weights add up 40 tokens. */
#include "tests/unit/kernels/support.h"

#define TOLERANCE 4e-6

struct qk {
    enum k_type type;
    int64_t tokens, heads, kv_heads, n;
    struct array x, wq, wk, dy, dwq, dwk;
};

static const double eps = 1e-5;

static int64_t width_of(const struct qk *t)
{
    return (t->heads + 2 * t->kv_heads) * t->n;
}

static struct qk qk_new(
    enum k_type type, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t n)
{
    struct qk t = {type, tokens, heads, kv_heads, n, .x = {.n = 0}};
    t.x = array_random(type, tokens * width_of(&t), 0.2, 2, 1);
    t.wq = array_random(type, n, 1, 0.5, 2);
    t.wk = array_random(type, n, 0.5, 1, 3);
    t.dy = array_random(type, tokens * width_of(&t), 0, 1, 4);
    t.dwq = array_random(K_FP32, n, 0, 1, 5);
    t.dwk = array_random(K_FP32, n, 0, 1, 6);
    return t;
}

static void qk_release(struct qk *t)
{
    struct array *all[] = {&t->x, &t->wq, &t->wk, &t->dy, &t->dwq, &t->dwk};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        array_free(all[i]);
}

/* One head, from its first element in a row-major qkv. */
struct head {
    int64_t at;
    const struct array *w;
    double rstd;
};

static struct head head_of(const struct qk *t, int64_t token, int64_t h)
{
    struct head out = {token * width_of(t) + h * t->n, h < t->heads ? &t->wq : &t->wk, 0};
    double squares = 0;
    for (int64_t i = 0; i < t->n; i++)
        squares += pow(array_get(&t->x, out.at + i), 2);
    out.rstd = 1 / sqrt(squares / (double)t->n + eps);
    return out;
}

/* --- forward --- */

static double *expected_y(const struct qk *t)
{
    double *y = doubles_of(&t->x); /* values stay */
    for (int64_t token = 0; token < t->tokens; token++)
        for (int64_t h = 0; h < t->heads + t->kv_heads; h++) {
            struct head d = head_of(t, token, h);
            for (int64_t i = 0; i < t->n; i++)
                y[d.at + i] *= d.rstd * array_get(d.w, i);
        }
    return y;
}

static struct k_qk_norm_fwd forward_args(const struct qk *t, void *qkv, float *stats)
{
    return (struct k_qk_norm_fwd){.type = t->type,
        .tokens = t->tokens,
        .heads = t->heads,
        .kv_heads = t->kv_heads,
        .head_dim = t->n,
        .eps = (float)eps,
        .x = t->x.data,
        .wq = t->wq.data,
        .wk = t->wk.data,
        .qkv = qkv,
        .stats = stats};
}

static void check_forward(struct pool *pool, const struct qk *t, const char *what)
{
    double *want = expected_y(t);
    EACH_TABLE(k)
    {
        struct array y = array_new(t->type, t->x.n), y3 = array_copy(&t->x);
        struct array stats = array_new(K_FP32, t->tokens * (t->heads + t->kv_heads));
        struct k_qk_norm_fwd a = forward_args(t, y.data, stats.data);
        k->qk_norm_fwd(NULL, &a);
        a.x = a.qkv = y3.data; /* three threads, in place */
        k->qk_norm_fwd(pool, &a);
        assert_same_bits(&y, &y3, what);
        assert_result(&y, want, TOLERANCE, what);
        for (int64_t i = 0; i < stats.n; i++) {
            struct head d = head_of(t, i / (t->heads + t->kv_heads), i % (t->heads + t->kv_heads));
            assert_true(fabs(array_get(&stats, i) - d.rstd) <= TOLERANCE * d.rstd);
        }
        array_free(&y);
        array_free(&y3);
        array_free(&stats);
    }
    free(want);
}

/* --- backward --- */

/* dx[i] = sum over j of dy[j] w[j] rstd ([i == j] - h[i] h[j] / n). */
static void expected_head(const struct qk *t, const struct head *d, double *dx, double *dw)
{
    for (int64_t i = 0; i < t->n; i++) {
        double hi = array_get(&t->x, d->at + i) * d->rstd, sum = 0;
        for (int64_t j = 0; j < t->n; j++) {
            double hj = array_get(&t->x, d->at + j) * d->rstd;
            sum += array_get(&t->dy, d->at + j) * array_get(d->w, j) * d->rstd *
                   ((i == j) - hi * hj / (double)t->n);
        }
        dx[d->at + i] = sum;
        dw[i] += array_get(&t->dy, d->at + i) * hi;
    }
}

struct gradients {
    struct array dqkv, dwq, dwk;
};

static struct gradients run_backward(
    const struct kernels *k, struct pool *pool, const struct qk *t, bool accumulates)
{
    struct gradients g = {array_copy(&t->dy), array_copy(&t->dwq), array_copy(&t->dwk)};
    struct array y = array_new(t->type, t->x.n);
    struct array stats = array_new(K_FP32, t->tokens * (t->heads + t->kv_heads));
    struct array scratch = array_new(K_FP32, K_QK_NORM_PIECES * 2 * t->n);
    struct k_qk_norm_fwd f = forward_args(t, y.data, stats.data);
    k->qk_norm_fwd(NULL, &f);
    struct k_qk_norm_bwd a = {.type = t->type,
        .accumulate_dw = accumulates,
        .tokens = t->tokens,
        .heads = t->heads,
        .kv_heads = t->kv_heads,
        .head_dim = t->n,
        .x = t->x.data,
        .wq = t->wq.data,
        .wk = t->wk.data,
        .stats = stats.data,
        .dqkv = g.dqkv.data,
        .dwq = g.dwq.data,
        .dwk = g.dwk.data,
        .scratch = scratch.data};
    k->qk_norm_bwd(pool, &a);
    array_free(&y);
    array_free(&stats);
    array_free(&scratch);
    return g;
}

static void gradients_release(struct gradients *g)
{
    array_free(&g->dqkv);
    array_free(&g->dwq);
    array_free(&g->dwk);
}

static void check_backward(
    struct pool *pool, const struct qk *t, bool accumulates, const char *what)
{
    double *dx = doubles_of(&t->dy); /* of values: as it came */
    double *dw[2] = {accumulates ? doubles_of(&t->dwq) : doubles_new(t->n),
        accumulates ? doubles_of(&t->dwk) : doubles_new(t->n)};
    for (int64_t token = 0; token < t->tokens; token++)
        for (int64_t h = 0; h < t->heads + t->kv_heads; h++) {
            struct head d = head_of(t, token, h);
            expected_head(t, &d, dx, dw[h >= t->heads]);
        }
    EACH_TABLE(k)
    {
        struct gradients one = run_backward(k, NULL, t, accumulates);
        struct gradients three = run_backward(k, pool, t, accumulates);
        assert_same_bits(&one.dqkv, &three.dqkv, what);
        assert_same_bits(&one.dwq, &three.dwq, what);
        assert_same_bits(&one.dwk, &three.dwk, what);
        assert_result(&one.dqkv, dx, TOLERANCE, what);
        assert_near(&one.dwq, dw[0], TOLERANCE, TOLERANCE, what);
        assert_near(&one.dwk, dw[1], TOLERANCE, TOLERANCE, what);
        gradients_release(&one);
        gradients_release(&three);
    }
    free(dx);
    free(dw[0]);
    free(dw[1]);
}

/* --- tests --- */

static const struct {
    int64_t tokens, heads, kv_heads, n;
} SHAPES[] = {{1, 1, 1, 2}, {3, 3, 1, 10}, {40, 4, 2, 33}, {5, 2, 2, 128}, {2, 3, 3, 256},
    {70, 1, 1, 8}, {200, 2, 1, 12}};

static void each_shape(void (*check)(struct pool *pool, const struct qk *t, const char *what))
{
    struct pool *pool = pool_new(3);
    EACH_TYPE(type)
    for (size_t i = 0; i < BASE_COUNT(SHAPES); i++) {
        char what[64];
        struct qk t =
            qk_new(type, SHAPES[i].tokens, SHAPES[i].heads, SHAPES[i].kv_heads, SHAPES[i].n);
        snprintf(what, sizeof(what), "type %d, shape %zu", type, i);
        check(pool, &t, what);
        qk_release(&t);
    }
    pool_free(pool);
}

static void forward_normalises_heads_of_queries_and_keys(void **state)
{
    (void)state;
    each_shape(check_forward);
}

static void backward_both(struct pool *pool, const struct qk *t, const char *what)
{
    check_backward(pool, t, false, what);
    check_backward(pool, t, true, what);
}

static void backward_is_the_derivative(void **state)
{
    (void)state;
    each_shape(backward_both);
}

static void no_tokens_leave_no_gradient(void **state)
{
    (void)state;
    EACH_TABLE(k)
    {
        struct qk t = qk_new(K_FP32, 0, 2, 1, 8);
        struct gradients g = run_backward(k, NULL, &t, false);
        for (int64_t i = 0; i < t.n; i++)
            assert_true(array_get(&g.dwq, i) == 0 && array_get(&g.dwk, i) == 0);
        gradients_release(&g);
        qk_release(&t);
    }
}

int test_qk_norm(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_normalises_heads_of_queries_and_keys),
        cmocka_unit_test(backward_is_the_derivative),
        cmocka_unit_test(no_tokens_leave_no_gradient),
    };
    return cmocka_run_group_tests_name("kernels/qk_norm", tests, NULL, NULL);
}
