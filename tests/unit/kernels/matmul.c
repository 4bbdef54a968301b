/* Reference: the sum over k in double. fp32 tolerance: k products are summed in fp32 in pieces of
 * 256; 2^-24 per addition, growing like its square root for random signs, stays under 2e-6 of the
 * rms for the lengths here. */
#include "tests/unit/kernels/support.h"

#define TOLERANCE 2e-6

enum { WITH_BIAS = 1, WITH_RESIDUAL = 2, WITH_ACCUMULATE = 4, WITH_FP32 = 8 };

struct product {
    enum k_type type;
    enum k_form form;
    int64_t m, n, k;
    int flags;
    struct array a, b, bias, residual, c;
};

static struct product product_new(
    enum k_type type, enum k_form form, int64_t m, int64_t n, int64_t k, int flags)
{
    struct product p = {type, form, m, n, k, flags, .c = {.n = 0}};
    p.a = array_random(type, m * k, 0, 1, 1);
    p.b = array_random(type, n * k, 0, 1, 2);
    p.bias = array_random(type, n, 0, 1, 3);
    p.residual = array_random(type, m * n, 0, 1, 4);
    p.c = array_random(flags & WITH_FP32 ? K_FP32 : type, m * n, 0, 1, 5);
    return p;
}

static void product_release(struct product *p)
{
    array_free(&p->a);
    array_free(&p->b);
    array_free(&p->bias);
    array_free(&p->residual);
    array_free(&p->c);
}

static double *expected(const struct product *p)
{
    double *a = doubles_of(&p->a), *b = doubles_of(&p->b), *want = doubles_new(p->m * p->n);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < p->k; l++) {
                double x = p->form == K_TN ? a[l * p->m + i] : a[i * p->k + l];
                double y = p->form == K_NT ? b[j * p->k + l] : b[l * p->n + j];
                sum += x * y;
            }
            if (p->flags & WITH_BIAS)
                sum += array_get(&p->bias, j);
            if (p->flags & WITH_RESIDUAL)
                sum += array_get(&p->residual, i * p->n + j);
            if (p->flags & WITH_ACCUMULATE)
                sum += array_get(&p->c, i * p->n + j);
            want[i * p->n + j] = sum;
        }
    free(a);
    free(b);
    return want;
}

/* in_place: the residual is C itself. */
static struct array multiply(
    const struct kernels *k, struct pool *pool, const struct product *p, bool in_place)
{
    struct array c = array_copy(in_place ? &p->residual : &p->c);
    size_t bytes = kernels_matmul_workspace_bytes(p->m, p->n, p->k);
    void *workspace = aligned_alloc(256, bytes ? bytes : 256);
    k->matmul(pool, &(struct k_matmul){
                        .type = p->type,
                        .form = p->form,
                        .accumulate = p->flags & WITH_ACCUMULATE,
                        .out_fp32 = p->flags & WITH_FP32,
                        .m = p->m,
                        .n = p->n,
                        .k = p->k,
                        .a = p->a.data,
                        .b = p->b.data,
                        .bias = p->flags & WITH_BIAS ? p->bias.data : NULL,
                        .residual = !(p->flags & WITH_RESIDUAL) ? NULL
                                    : in_place                  ? c.data
                                                                : p->residual.data,
                        .c = c.data,
                        .workspace = workspace,
                    });
    free(workspace);
    return c;
}

static void check(
    struct pool *pool, enum k_type type, enum k_form form, const int64_t *d, int flags)
{
    struct product p = product_new(type, form, d[0], d[1], d[2], flags);
    double *want = expected(&p);
    EACH_TABLE(k)
    {
        struct array one = multiply(k, NULL, &p, false), three = multiply(k, pool, &p, false);
        char what[96];
        snprintf(what, sizeof(what), "%s type %d form %d flags %d %lldx%lldx%lld", k->name, type,
            form, flags, (long long)d[0], (long long)d[1], (long long)d[2]);
        assert_same_bits(&one, &three, what);
        assert_result(&one, want, TOLERANCE, what);
        if (flags == WITH_RESIDUAL) {
            struct array same = multiply(k, pool, &p, true);
            assert_same_bits(&one, &same, what);
            array_free(&same);
        }
        array_free(&one);
        array_free(&three);
    }
    free(want);
    product_release(&p);
}

static void every_form_and_type_over_odd_shapes(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1}, {1, 97, 64}, {3, 5, 7}, {13, 33, 24},
        {97, 101, 255}, {64, 96, 256}, {31, 130, 257}, {100, 40, 700}};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        EACH_TYPE(type)
    for (enum k_form form = K_NT; form <= K_TN; form++)
        check(pool, type, form, shapes[i], 0);
    pool_free(pool);
}

static void adds_bias_residual_and_old_value(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{7, 70, 33}, {50, 33, 600}};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        for (int flags = 1; flags < 16; flags++)
            EACH_TYPE(type)
    check(pool, type, K_NT, shapes[i], flags);
    pool_free(pool);
}

/* More rows and columns than one block of C. */
static void crosses_blocks(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1153, 3, 5}, {5, 1160, 260}};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        EACH_TYPE(type)
    check(pool, type, K_NN, shapes[i], 0);
    pool_free(pool);
}

static void empty_sum_is_zero(void **state)
{
    (void)state;
    static const int64_t shape[] = {4, 5, 0};
    EACH_TYPE(type)
    check(NULL, type, K_TN, shape, WITH_FP32);
}

static void workspace_stays_below_its_maximum(void **state)
{
    (void)state;
    size_t most = kernels_matmul_workspace_bytes(1 << 20, 1 << 20, 1 << 20);
    assert_true(most <= KERNELS_MATMUL_WORKSPACE_MAX);
    assert_true(kernels_matmul_workspace_bytes(1, 1, 1) <= 4096);
}

int test_matmul(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_and_type_over_odd_shapes),
        cmocka_unit_test(adds_bias_residual_and_old_value),
        cmocka_unit_test(crosses_blocks),
        cmocka_unit_test(empty_sum_is_zero),
        cmocka_unit_test(workspace_stays_below_its_maximum),
    };
    return cmocka_run_group_tests_name("kernels/matmul", tests, NULL, NULL);
}
