/* References with the C library's functions in double. fp32 tolerance: the exponential is within 2
 * units in the last place and its argument, for GELU a cubic up to about 10 where it matters,
 * within 3 * 2^-24 of itself; a handful of operations follow. */
#include "kernels/counter.h"
#include "tests/unit/kernels/support.h"

#define TOLERANCE 3e-6

enum { RUNS = 2 }; /* one thread, three threads */

/* Sizes around the widths of vectors, blocks and shares. */
static const int64_t sizes[] = {1, 3, 17, 64, 513, 4095, 9001};

/* --- SwiGLU --- */

static void expect_swiglu(
    const struct array *in, const struct array *dy, int64_t width, double *y, double *din)
{
    for (int64_t i = 0; i < dy->n; i++) {
        int64_t at = i / width * 2 * width + i % width;
        double g = array_get(in, at), u = array_get(in, at + width), d = array_get(dy, i);
        double s = 1 / (1 + exp(-g));
        y[i] = g * s * u;
        din[at] = d * u * (s + g * s * (1 - s));
        din[at + width] = d * g * s;
    }
}

static void check_swiglu(struct pool *pool, enum k_type type, int64_t rows, int64_t width)
{
    struct array in = array_random(type, rows * 2 * width, 0, 8, 1);
    struct array dy = array_random(type, rows * width, 0, 1, 2);
    double *y = doubles_new(dy.n), *din = doubles_new(in.n);
    expect_swiglu(&in, &dy, width, y, din);
    EACH_TABLE(k)
    {
        struct array out[RUNS], grad[RUNS];
        for (int r = 0; r < RUNS; r++) {
            out[r] = array_new(type, dy.n);
            grad[r] = r ? array_copy(&in) : array_new(type, in.n); /* once in place */
            k->swiglu_fwd(
                r ? pool : NULL, &(struct k_swiglu_fwd){type, rows, width, in.data, out[r].data});
            const void *from = r ? grad[r].data : in.data;
            k->swiglu_bwd(r ? pool : NULL,
                &(struct k_swiglu_bwd){type, rows, width, dy.data, from, grad[r].data});
        }
        assert_same_bits(&out[0], &out[1], "swiglu");
        assert_same_bits(&grad[0], &grad[1], "swiglu gradient");
        assert_result(&out[0], y, TOLERANCE, "swiglu");
        assert_result(&grad[0], din, TOLERANCE, "swiglu gradient");
        for (int r = 0; r < RUNS; r++) {
            array_free(&out[r]);
            array_free(&grad[r]);
        }
    }
    free(y);
    free(din);
    array_free(&in);
    array_free(&dy);
}

static void swiglu_matches_its_definition(void **state)
{
    (void)state;
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(sizes); i++)
        EACH_TYPE(type)
        {
            check_swiglu(pool, type, 1, sizes[i]);
            check_swiglu(pool, type, 5, sizes[i]);
        }
    pool_free(pool);
}

/* --- GELU --- */

static void expect_gelu(const struct array *x, const struct array *dy, double *y, double *dx)
{
    const double a = sqrt(2 / 3.14159265358979323846), b = 0.044715;
    for (int64_t i = 0; i < x->n; i++) {
        double v = array_get(x, i), t = tanh(a * (v + b * v * v * v));
        y[i] = 0.5 * v * (1 + t);
        double slope = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * a * (1 + 3 * b * v * v);
        dx[i] = slope * array_get(dy, i);
    }
}

static void check_gelu(struct pool *pool, enum k_type type, int64_t n)
{
    struct array x = array_random(type, n, 0, 6, 1), dy = array_random(type, n, 0, 1, 2);
    double *y = doubles_new(n), *dx = doubles_new(n);
    expect_gelu(&x, &dy, y, dx);
    EACH_TABLE(k)
    {
        struct array out = array_new(type, n), grad = array_new(type, n);
        struct array out3 = array_copy(&x), grad3 = array_copy(&dy); /* in place */
        k->gelu_fwd(NULL, &(struct k_gelu_fwd){type, n, x.data, out.data});
        k->gelu_bwd(NULL, &(struct k_gelu_bwd){type, n, dy.data, x.data, grad.data});
        k->gelu_fwd(pool, &(struct k_gelu_fwd){type, n, out3.data, out3.data});
        k->gelu_bwd(pool, &(struct k_gelu_bwd){type, n, grad3.data, x.data, grad3.data});
        assert_same_bits(&out, &out3, "gelu");
        assert_same_bits(&grad, &grad3, "gelu gradient");
        assert_result(&out, y, TOLERANCE, "gelu");
        assert_result(&grad, dx, TOLERANCE, "gelu gradient");
        array_free(&out);
        array_free(&out3);
        array_free(&grad);
        array_free(&grad3);
    }
    free(y);
    free(dx);
    array_free(&x);
    array_free(&dy);
}

static void gelu_matches_its_definition(void **state)
{
    (void)state;
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(sizes); i++)
        EACH_TYPE(type)
    check_gelu(pool, type, sizes[i]);
    pool_free(pool);
}

static void extreme_activations_stay_finite_and_nan_stays_nan(void **state)
{
    (void)state;
    float x[] = {-1e4f, -100, -0.0f, 0, 100, 1e4f, NAN}, dy[] = {1, 1, 1, 1, 1, 1, 1};
    const float y_want[] = {0, 0, 0, 0, 100, 1e4f}, dx_want[] = {0, 0, 0.5f, 0.5f, 1, 1};
    EACH_TABLE(k)
    {
        float y[7], dx[7];
        k->gelu_fwd(NULL, &(struct k_gelu_fwd){K_FP32, 7, x, y});
        k->gelu_bwd(NULL, &(struct k_gelu_bwd){K_FP32, 7, dy, x, dx});
        for (int i = 0; i < 6; i++) {
            assert_true(fabsf(y[i] - y_want[i]) < 1e-30f);
            assert_true(fabsf(dx[i] - dx_want[i]) < 1e-30f);
        }
        assert_true(isnan(y[6]) && isnan(dx[6]));
    }
}

/* --- casts --- */

/* Every bf16 value, and fp32 values around each: itself, the tie, and one step to either side of
 * both.
 */
static void casts_are_bit_exact_over_all_of_bf16(void **state)
{
    (void)state;
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    enum { EACH = 6, ALL = 65536 * EACH };
    float *x = base_alloc(ALL * sizeof(*x));
    uint16_t *h = base_alloc(ALL * sizeof(*h));
    float *back = base_alloc(ALL * sizeof(*back));
    for (uint32_t i = 0; i < ALL; i++) {
        uint32_t bits = i / EACH << 16 | low[i % EACH];
        memcpy(&x[i], &bits, sizeof(bits));
    }
    struct pool *pool = pool_new(3);
    EACH_TABLE(k)
    {
        k->fp32_to_bf16(pool, h, x, ALL);
        k->bf16_to_fp32(pool, back, h, ALL);
        for (int i = 0; i < ALL; i++) {
            if (isnan(x[i])) {
                assert_true(isnan(back[i]));
                continue;
            }
            uint16_t want = isinf(x[i]) ? (x[i] > 0 ? 0x7f80 : 0xff80) : bf16_nearest(x[i]);
            assert_int_equal(h[i], want);
            uint32_t bits;
            memcpy(&bits, &back[i], sizeof(bits));
            assert_int_equal(bits, (uint32_t)want << 16);
        }
    }
    pool_free(pool);
    free(x);
    free(h);
    free(back);
}

/* --- first values --- */

static void draws_normal_numbers_to_the_bit_of_the_c_library(void **state)
{
    (void)state;
    enum { N = 300007 };
    float *want = malloc(N * sizeof(*want)), *got = malloc(N * sizeof(*got));
    struct pool *pool = pool_new(3);
    for (uint64_t key = 1; key < 4; key++) {
        struct k_normal a = {got, N, key * 0x9E3779B97F4A7C15, key * 977, 0.02 / (double)key};
        for (int64_t i = 0; i < N; i++)
            want[i] = (float)(a.scale * counter_normal(a.key, a.first + (uint64_t)i));
        EACH_TABLE(k)
        {
            if (!k->normal)
                continue;
            memset(got, 0, N * sizeof(*got));
            k->normal(pool, &a);
            assert_memory_equal(got, want, N * sizeof(*got));
        }
    }
    pool_free(pool);
    free(want);
    free(got);
}

/* --- collectives' arithmetic --- */

static void sums_ranks_in_rank_order(void **state)
{
    (void)state;
    enum { N = 9001, RANKS = 5 };
    struct array rank[RANKS];
    const float *src[RANKS];
    for (int r = 0; r < RANKS; r++) {
        rank[r] = array_random(K_FP32, N, 0, pow(10, r), (uint64_t)r);
        src[r] = rank[r].data;
    }
    struct array old = array_random(K_FP32, N, 0, 1, 9);
    struct pool *pool = pool_new(3);
    EACH_TABLE(k)
    {
        struct array fresh = array_new(K_FP32, N), added = array_copy(&old);
        struct array streamed = array_new(K_FP32, N), shifted = array_new(K_FP32, N + 1);
        float *odd = (float *)shifted.data + 1;
        k->sum_ranks_f32(pool, fresh.data, src, RANKS, N, K_SUM_STORE);
        k->sum_ranks_f32(pool, streamed.data, src, RANKS, N, K_SUM_PAST_CACHE);
        k->sum_ranks_f32(pool, odd, src, RANKS, N, K_SUM_PAST_CACHE);
        k->sum_ranks_f32(NULL, added.data, src, RANKS, N, K_SUM_ADD);
        for (int i = 0; i < N; i++) {
            volatile float sum = src[0][i]; /* rounded after every addition */
            for (int r = 1; r < RANKS; r++)
                sum = sum + src[r][i];
            assert_true(((float *)fresh.data)[i] == sum);
            assert_true(((float *)streamed.data)[i] == sum);
            assert_true(odd[i] == sum);
            volatile float with_old = ((float *)old.data)[i] + sum;
            assert_true(((float *)added.data)[i] == with_old);
        }
        array_free(&fresh);
        array_free(&added);
        array_free(&streamed);
        array_free(&shifted);
    }
    struct array one = array_copy(&rank[1]); /* into one of the sources */
    const float *again[] = {src[0], one.data};
    kernels_best()->sum_ranks_f32(pool, one.data, again, 2, N, K_SUM_PAST_CACHE);
    for (int i = 0; i < N; i++)
        assert_true(((float *)one.data)[i] == src[0][i] + src[1][i]);
    array_free(&one);
    array_free(&old);
    for (int r = 0; r < RANKS; r++)
        array_free(&rank[r]);
    pool_free(pool);
}

static void adds_and_scales(void **state)
{
    (void)state;
    enum { N = 4999 };
    struct array x = array_random(K_FP32, N, 0, 1, 1), y = array_random(K_FP32, N, 0, 1, 2);
    struct pool *pool = pool_new(3);
    EACH_TABLE(k)
    {
        struct array z = array_copy(&x);
        k->sum_f32(pool, z.data, y.data, N);
        k->scale_f32(pool, z.data, 0.3f, N);
        for (int i = 0; i < N; i++) {
            volatile float want = ((float *)x.data)[i] + ((float *)y.data)[i];
            want = want * 0.3f;
            assert_true(((float *)z.data)[i] == want);
        }
        array_free(&z);
    }
    pool_free(pool);
    array_free(&x);
    array_free(&y);
}

int test_pointwise(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swiglu_matches_its_definition),
        cmocka_unit_test(gelu_matches_its_definition),
        cmocka_unit_test(extreme_activations_stay_finite_and_nan_stays_nan),
        cmocka_unit_test(casts_are_bit_exact_over_all_of_bf16),
        cmocka_unit_test(draws_normal_numbers_to_the_bit_of_the_c_library),
        cmocka_unit_test(sums_ranks_in_rank_order),
        cmocka_unit_test(adds_and_scales),
    };
    return cmocka_run_group_tests_name("kernels/pointwise", tests, NULL, NULL);
}
