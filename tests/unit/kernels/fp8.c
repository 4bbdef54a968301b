/* Casts to eight bits and back, bit by bit: against PyTorch's (tests/golden/fp8.txt), and against a
 * search for the nearest of all values in double. Products: against sums in double of what was cast
 * in that way. */
#include <float.h>
#include <stdio.h>

#include "kernels/both.h"
#include "tests/unit/kernels/support.h"

static const enum k_type FORMATS[] = {K_E4M3, K_E5M2};
static const char *const NAMES[] = {"e4m3", "e5m2"};
static const double LARGEST[] = {448, 57344};

#define EACH_FORMAT(f) for (int f = 0; f < 2; f++)

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* --- the values, written out from the definition of the formats --- */

/* NaN and infinity included. */
static double value_of(int f, int code)
{
    int fraction_bits = f == 0 ? 3 : 2, bias = f == 0 ? 7 : 15;
    int exponent = (code & 0x7f) >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
    double sign = code & 0x80 ? -1 : 1;
    if (f == 0 ? (code & 0x7f) == 0x7f : exponent == 31 && fraction)
        return NAN;
    if (f == 1 && exponent == 31)
        return sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

/* The nearest finite value, the one with an even code of two that are as near. */
static int nearest(int f, double x)
{
    int best = 0;
    if (isnan(x))
        return 0x7f;
    x = fmin(fabs(x), LARGEST[f]);
    for (int code = 1; isfinite(value_of(f, code)); code++) {
        double to_best = fabs(x - value_of(f, best)), to = fabs(x - value_of(f, code));
        if (to < to_best || (to <= to_best && code % 2 == 0))
            best = code;
    }
    return best;
}

/* A magnitude with which numbers are cast as they are. */
static const double *unit_one(enum k_type format)
{
    return &LARGEST[format == K_E5M2];
}

static uint8_t cast(const struct kernels *k, enum k_type format, float x)
{
    uint8_t q = 0xa5;
    k->quantise(NULL,
        &(struct k_quantise){
            .format = format, .rows = 1, .cols = 1, .amax = unit_one(format), .x = &x, .q = &q});
    return q;
}

static float widen(const struct kernels *k, enum k_type format, int code)
{
    uint8_t q = (uint8_t)code;
    float x = 0;
    k->fp8_to_fp32(NULL, format, &x, &q, unit_one(format), 1);
    return x;
}

/* --- casts --- */

static void every_code_has_its_value_and_comes_back(void **state)
{
    (void)state;
    EACH_TABLE(k)
    EACH_FORMAT(f)
    for (int code = 0; code < 256; code++) {
        double want = value_of(f, code);
        float got = widen(k, FORMATS[f], code);
        if (isnan(want) ? !isnan(got) : (double)got < want || (double)got > want)
            fail_msg("%s %s %02x: got %g, want %g", k->name, NAMES[f], code, (double)got, want);
        assert_int_equal(signbit(got) != 0, code >= 0x80);
        if (isfinite(want))
            assert_int_equal(cast(k, FORMATS[f], got), code);
    }
}

/* One line of the golden file: both sides of a cast in hexadecimal. */
static void check_line(const struct kernels *k, const char *line, int counts[2])
{
    char format[8], what[8], from[16], to[16];
    assert_int_equal(sscanf(line, "%7s %7s %15s %15s", format, what, from, to), 4);
    int f = strcmp(format, NAMES[1]) == 0;
    uint32_t a = (uint32_t)strtoul(from, NULL, 16), b = (uint32_t)strtoul(to, NULL, 16);
    bool is_cast = strcmp(what, "cast") == 0;
    counts[f] += is_cast;
    if (!is_cast && strcmp(to, "nan") != 0)
        assert_int_equal(bits_of(widen(k, FORMATS[f], (int)a)), b);
    for (uint32_t sign = 0; is_cast && sign < 2; sign++) {
        int got = cast(k, FORMATS[f], float_of(a | sign << 31));
        if (got != (int)(b | sign << 7))
            fail_msg("%s %s %08x: got %02x, PyTorch has %02x", k->name, format, a | sign << 31, got,
                b | sign << 7);
    }
}

static void casts_are_pytorchs_at_every_border(void **state)
{
    (void)state;
    EACH_TABLE(k)
    {
        int counts[2] = {0, 0};
        char line[64];
        FILE *file = fopen("tests/golden/fp8.txt", "re");
        assert_non_null(file);
        while (fgets(line, sizeof(line), file))
            check_line(k, line, counts);
        fclose(file);
        /* three inputs about each of 126 and 123 values above zero, and about each middle */
        assert_true(counts[0] > 126 * 6 && counts[1] > 123 * 6);
    }
}

/* All numbers in bf16, and some in fp32 of every magnitude. */
static void casts_find_the_nearest_value(void **state)
{
    (void)state;
    enum { N = 1 << 16, SOME = 1 << 14 };
    uint16_t *all = base_alloc(N * sizeof(*all));
    float *some = base_alloc(SOME * sizeof(*some));
    uint8_t *q = base_alloc(N);
    uint64_t seed = 7;
    for (int i = 0; i < N; i++)
        all[i] = (uint16_t)i;
    for (int i = 0; i < SOME; i++)
        some[i] = (float)ldexp(next_random(&seed), i % 40 - 20);
    EACH_TABLE(k)
    EACH_FORMAT(f)
    {
        struct k_quantise a = {.type = K_BF16,
            .format = FORMATS[f],
            .rows = 1,
            .cols = N,
            .amax = &LARGEST[f],
            .x = all,
            .q = q};
        k->quantise(NULL, &a);
        for (int i = 0; i < N; i++)
            assert_int_equal(q[i] & 0x7f, nearest(f, bf16_value((uint16_t)i)));
        for (int i = 0; i < N; i++)
            assert_int_equal(q[i] >> 7, i >> 15);
        a.type = K_FP32;
        a.x = some;
        a.cols = SOME;
        k->quantise(NULL, &a);
        for (int i = 0; i < SOME; i++)
            assert_int_equal(q[i] & 0x7f, nearest(f, (double)some[i]));
    }
    free(all);
    free(some);
    free(q);
}

/* --- units --- */

static void a_unit_is_the_least_power_of_two_that_holds_all(void **state)
{
    (void)state;
    uint64_t seed = 3;
    EACH_FORMAT(f)
    for (int i = 0; i < 20000; i++) {
        int exponent;
        float amax = (float)ldexp(fabs(next_random(&seed)) + 1e-3, i % 220 - 100);
        float unit = k_fp8_unit(FORMATS[f], amax);
        assert_true(frexp((double)unit, &exponent) <= 0.5);
        assert_true((double)amax / (double)unit <= LARGEST[f]);
        assert_true((double)amax / (double)unit * 2 > LARGEST[f]);
    }
    EACH_FORMAT(f)
    {
        assert_true(k_fp8_unit(FORMATS[f], (float)LARGEST[f]) <= 1);
        assert_true(k_fp8_unit(FORMATS[f], (float)LARGEST[f]) >= 1);
        assert_true(k_fp8_unit(FORMATS[f], nextafterf((float)LARGEST[f], INFINITY)) >= 2);
        assert_true(k_fp8_unit(FORMATS[f], 0) >= 1 && k_fp8_unit(FORMATS[f], 0) <= 1);
        assert_true(isnan(k_fp8_unit(FORMATS[f], INFINITY)));
        assert_true(isnan(k_fp8_unit(FORMATS[f], NAN)));
        assert_true(k_fp8_unit(FORMATS[f], 0x1p-149f) >= 0x1p-126f);
        assert_true(isfinite(1 / k_fp8_unit(FORMATS[f], FLT_MAX)));
    }
}

static void the_largest_magnitude_is_found_wherever_it_is(void **state)
{
    (void)state;
    enum { N = 200003 };
    static const int64_t places[] = {0, 1, 65535, 65536, 131071, N - 1};
    struct pool *pool = pool_new(3);
    EACH_TYPE(type)
    {
        struct array x = array_random(type, N, 0, 1, 11);
        for (size_t i = 0; i < BASE_COUNT(places); i++)
            EACH_TABLE(k)
            {
                double amax = 0, more = 100;
                double before = array_get(&x, places[i]);
                array_set(&x, places[i], -3.5);
                k->amax(pool, type, x.data, N, &amax);
                assert_true(amax >= 3.5 && amax <= 3.5);
                k->amax(NULL, type, x.data, N, &more);
                assert_true(more >= 100 && more <= 100);
                array_set(&x, places[i], NAN);
                k->amax(pool, type, x.data, N, &amax);
                assert_true(isnan(amax));
                array_set(&x, places[i], before);
            }
        array_free(&x);
    }
    pool_free(pool);
}

/* --- tensors --- */

static void a_tensor_is_cast_with_its_unit_and_turned(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {3, 200}, {64, 64}, {65, 127}, {200, 3}};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        EACH_TYPE(type)
    EACH_FORMAT(f)
    EACH_TABLE(k)
    {
        int64_t rows = shapes[i][0], cols = shapes[i][1];
        struct array x = array_random(type, rows * cols, 0, 1e-3, i + 1);
        uint8_t *q = base_alloc((size_t)(rows * cols)), *t = base_alloc((size_t)(rows * cols));
        uint8_t *alone = base_alloc((size_t)(rows * cols));
        double amax = 0;
        float unit[2] = {-1, -1};
        k->amax(NULL, type, x.data, rows * cols, &amax);
        float want_unit = k_fp8_unit(FORMATS[f], (float)amax);
        struct k_quantise a = {.type = type,
            .format = FORMATS[f],
            .rows = rows,
            .cols = cols,
            .amax = &amax,
            .unit = {&unit[0], &unit[1]},
            .x = x.data,
            .q = q,
            .transposed = t};
        k->quantise(pool, &a);
        assert_memory_equal(&unit[0], &want_unit, sizeof(float));
        assert_memory_equal(&unit[1], &want_unit, sizeof(float));
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) {
                double at = array_get(&x, r * cols + c);
                int want = nearest(f, at / (double)want_unit) | (signbit(at) ? 0x80 : 0);
                assert_int_equal(q[r * cols + c], want);
                assert_int_equal(t[c * rows + r], want);
            }
        a.q = alone;
        a.transposed = NULL;
        k->quantise(NULL, &a);
        assert_memory_equal(alone, q, (size_t)(rows * cols));
        free(q);
        free(t);
        free(alone);
        array_free(&x);
    }
    pool_free(pool);
}

static void infinity_makes_all_of_a_tensor_nan(void **state)
{
    (void)state;
    float x[] = {1, -INFINITY, 0, 2};
    uint8_t q[4];
    float back[4];
    double amax = 0;
    EACH_TABLE(k)
    {
        k->amax(NULL, K_FP32, x, 4, &amax);
        struct k_quantise a = {.format = K_E5M2, .rows = 1, .cols = 4, .x = x, .q = q};
        a.amax = &amax;
        k->quantise(NULL, &a);
        k->fp8_to_fp32(NULL, K_E5M2, back, q, &amax, 4);
        for (int i = 0; i < 4; i++)
            assert_true(isnan(back[i]));
    }
}

/* --- products --- */

/* Values of one to three bits times powers of two: 2e-6 as for other products. */
#define TOLERANCE 2e-6
/* Of products with operands cast from anywhere, against those of the same casts in double. */
#define FROBENIUS 2e-3

struct operand {
    int f;
    int64_t rows, cols;
    float unit;
    uint8_t *q;
    double *value; /* what the numbers stand for */
};

/* Cast from bf16, by the definition and not by the kernel. */
static struct operand operand_new(int f, int64_t rows, int64_t cols, double scale, uint64_t seed)
{
    struct operand o = {f, rows, cols, 1, NULL, doubles_new(rows * cols)};
    struct array x = array_random(K_BF16, rows * cols, 0, scale, seed);
    double amax = 0;
    for (int64_t i = 0; i < rows * cols; i++)
        amax = fmax(amax, fabs(array_get(&x, i)));
    o.unit = (float)exp2(ceil(log2(amax / LARGEST[f])));
    o.q = base_alloc((size_t)(rows * cols));
    for (int64_t i = 0; i < rows * cols; i++) {
        double at = array_get(&x, i);
        int code = nearest(f, at / (double)o.unit) | (signbit(at) ? 0x80 : 0);
        o.q[i] = (uint8_t)code;
        o.value[i] = value_of(f, code) * (double)o.unit;
    }
    array_free(&x);
    return o;
}

static void operand_free(struct operand *o)
{
    free(o->q);
    free(o->value);
}

static double *product_of(const struct operand *a, const struct operand *b)
{
    double *want = doubles_new(a->rows * b->rows);
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < b->rows; j++)
            for (int64_t l = 0; l < a->cols; l++)
                want[i * b->rows + j] += a->value[i * a->cols + l] * b->value[j * b->cols + l];
    return want;
}

static double distance(const struct array *got, const double *want)
{
    double off = 0, norm = 0;
    for (int64_t i = 0; i < got->n; i++) {
        off += pow(array_get(got, i) - want[i], 2);
        norm += want[i] * want[i];
    }
    return sqrt(off / norm);
}

static void check_product(
    struct pool *pool, const struct operand *a, const struct operand *b, bool is_fp32)
{
    double *want = product_of(a, b);
    void *workspace = aligned_alloc(256, kernels_matmul_workspace_bytes(a->rows, b->rows, a->cols));
    EACH_TABLE(k)
    {
        struct array c[2];
        for (int i = 0; i < 2; i++) {
            c[i] = array_new(is_fp32 ? K_FP32 : K_BF16, a->rows * b->rows);
            struct k_matmul p = {.type = K_BF16,
                .form = K_NT,
                .is_fp8 = true,
                .a_format = FORMATS[a->f],
                .a_unit = &a->unit,
                .b_unit = &b->unit,
                .out_fp32 = is_fp32,
                .m = a->rows,
                .n = b->rows,
                .k = a->cols,
                .a = a->q,
                .b = b->q,
                .c = c[i].data,
                .workspace = workspace};
            k->matmul(i ? pool : NULL, &p);
        }
        assert_same_bits(&c[0], &c[1], "fp8 product");
        assert_result(&c[0], want, TOLERANCE, "fp8 product");
        assert_true(distance(&c[0], want) <= FROBENIUS);
        array_free(&c[0]);
        array_free(&c[1]);
    }
    free(workspace);
    free(want);
}

static void products_are_those_of_what_the_numbers_stand_for(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {97, 101, 255}, {31, 130, 700}};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        EACH_FORMAT(f)
        {
            struct operand a = operand_new(f, shapes[i][0], shapes[i][2], 1e-4, i + 1);
            struct operand b = operand_new(0, shapes[i][1], shapes[i][2], 30, i + 9);
            check_product(pool, &a, &b, false);
            check_product(pool, &a, &b, true);
            operand_free(&a);
            operand_free(&b);
        }
    pool_free(pool);
}

int test_fp8(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_value_and_comes_back),
        cmocka_unit_test(casts_are_pytorchs_at_every_border),
        cmocka_unit_test(casts_find_the_nearest_value),
        cmocka_unit_test(a_unit_is_the_least_power_of_two_that_holds_all),
        cmocka_unit_test(the_largest_magnitude_is_found_wherever_it_is),
        cmocka_unit_test(a_tensor_is_cast_with_its_unit_and_turned),
        cmocka_unit_test(infinity_makes_all_of_a_tensor_nan),
        cmocka_unit_test(products_are_those_of_what_the_numbers_stand_for),
    };
    return cmocka_run_group_tests_name("kernels/fp8", tests, NULL, NULL);
}
