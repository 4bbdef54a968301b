/* Vectors on the way between ranks: codes against definitions in double, errors within their bound,
 * sums in the order of the ranks. */
#include "support.h"

static const int64_t SIZES[] = {1, 3, 255, 256, 257, 1000, 4096, 3 * 4096 + 77};

#define EACH_FORMAT(f) for (enum k_wire f = K_WIRE_INT8; f <= K_WIRE_FP8; f++)

struct wire {
    enum k_wire format;
    int64_t elems;
    char *bytes;
};

static struct wire wire_new(enum k_wire format, int64_t elems)
{
    size_t n = (size_t)kernels_wire_bytes(elems);
    struct wire w = {format, elems, base_alloc(n)};
    memset(w.bytes, 0xa5, n);
    return w;
}

static struct wire encoded(
    const struct kernels *k, struct pool *p, enum k_wire format, const struct array *x)
{
    struct wire w = wire_new(format, x->n);
    struct k_encode a = {
        .format = format, .type = x->type, .elems = x->n, .x = x->data, .wire = w.bytes};
    k->encode(p, &a);
    return w;
}

static struct array decoded(
    const struct kernels *k, struct pool *p, enum k_type type, const struct wire *w)
{
    struct array x = array_new(type, w->elems);
    struct k_decode a = {
        .format = w->format, .type = type, .elems = w->elems, .wire = w->bytes, .x = x.data};
    k->decode(p, &a);
    return x;
}

static float scale_of(const struct wire *w, int64_t block)
{
    float scale;
    memcpy(&scale, w->bytes + (w->elems + 3) / 4 * 4 + block * 4, sizeof(scale));
    return scale;
}

static double amax_of(const struct array *x, int64_t block)
{
    double amax = 0;
    for (int64_t i = block * K_WIRE_BLOCK; i < x->n && i < (block + 1) * K_WIRE_BLOCK; i++)
        amax = fmax(amax, fabs(array_get(x, i)));
    return amax;
}

/* Values of many sizes, so that blocks differ. */
static struct array some(enum k_type type, int64_t n, uint64_t seed)
{
    struct array x = array_random(type, n, 0, 1, seed);
    for (int64_t i = 0; i < n; i++)
        array_set(&x, i, array_get(&x, i) * exp2((double)(i / 100 % 40) - 20));
    return x;
}

static void a_vector_takes_a_byte_an_element_and_a_scale_a_block(void **state)
{
    (void)state;
    assert_int_equal(kernels_wire_bytes(0), 0);
    assert_int_equal(kernels_wire_bytes(1), 4 + 4);
    assert_int_equal(kernels_wire_bytes(256), 256 + 4);
    assert_int_equal(kernels_wire_bytes(257), 260 + 8);
    assert_int_equal(kernels_wire_bytes(1 << 20), (1 << 20) + (1 << 12) * 4);
}

/* Of a block in int8: the scale is amax / 127, a code the nearest integer of x / scale, and what
 * comes back is within half a scale of x. */
static void codes_are_the_nearest_and_errors_within_half_a_scale(void **state)
{
    (void)state;
    EACH_TABLE(k)
    EACH_TYPE(type)
    for (size_t s = 0; s < BASE_COUNT(SIZES); s++) {
        struct array x = some(type, SIZES[s], s + 1);
        struct wire w = encoded(k, NULL, K_WIRE_INT8, &x);
        struct array y = decoded(k, NULL, K_FP32, &w), rounded = decoded(k, NULL, K_BF16, &w);
        for (int64_t i = 0; i < x.n; i++) {
            double amax = amax_of(&x, i / K_WIRE_BLOCK), got = array_get(&y, i);
            float scale = scale_of(&w, i / K_WIRE_BLOCK);
            assert_true(fabs((double)scale - amax / 127) <= amax / 127 * 0x1p-23);
            int code = (int8_t)w.bytes[i];
            double exact = array_get(&x, i) * 127 / amax;
            assert_true(fabs(code - exact) <= 0.5 + 1e-4 && code >= -127 && code <= 127);
            assert_true(got == (double)((float)code * scale));
            assert_true(fabs(got - array_get(&x, i)) <= amax / 254 * (1 + 1e-4));
            assert_int_equal(((uint16_t *)rounded.data)[i], bf16_nearest((float)got));
        }
        array_free(&x);
        array_free(&y);
        array_free(&rounded);
        free(w.bytes);
    }
}

/* The values of E4M3 by their definition (arXiv 2209.05433): 4 bits of exponent with bias 7, 3 of
 * fraction; the last is 448. */
static double e4m3(int code)
{
    int exponent = code >> 3 & 15, fraction = code & 7;
    double size = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return code & 0x80 ? -size : size;
}

/* None is nearer; of two that are as near the even one is taken. */
static void assert_nearest(int code, double exact)
{
    double off = fabs(e4m3(code) - exact);
    assert_true((code & 0x7f) < 0x7f);
    for (int other = 0; other < 0x7f; other++) {
        double of_other = fabs(e4m3(other) - fabs(exact));
        assert_true(off <= of_other);
        if (other != (code & 0x7f) && off >= of_other)
            assert_int_equal(code % 2, 0);
    }
}

/* Of a block in fp8: the scale is the least power of two with which all fit, a code the nearest
 * value of x / scale, and x is off by a sixteenth of it or 1/1024 of the scale. */
static void fp8_codes_are_the_nearest_with_the_least_power_of_two(void **state)
{
    (void)state;
    EACH_TABLE(k)
    EACH_TYPE(type)
    for (size_t s = 0; s < BASE_COUNT(SIZES); s++) {
        struct array x = some(type, SIZES[s], s + 1);
        struct wire w = encoded(k, NULL, K_WIRE_FP8, &x);
        struct array y = decoded(k, NULL, K_FP32, &w), rounded = decoded(k, NULL, K_BF16, &w);
        for (int64_t i = 0; i < x.n; i++) {
            double amax = amax_of(&x, i / K_WIRE_BLOCK), got = array_get(&y, i);
            double scale = (double)scale_of(&w, i / K_WIRE_BLOCK), exact = array_get(&x, i);
            int exponent, code = (uint8_t)w.bytes[i];
            assert_true(frexp(scale, &exponent) <= 0.5 && amax <= 448 * scale);
            assert_true(amax > 224 * scale);
            assert_nearest(code, exact / scale);
            double want = e4m3(code) * scale;
            assert_true(got <= want && got >= want);
            assert_true(fabs(got - exact) <= fmax(fabs(exact) / 16, scale / 1024));
            assert_int_equal(((uint16_t *)rounded.data)[i], bf16_nearest((float)got));
        }
        array_free(&x);
        array_free(&y);
        array_free(&rounded);
        free(w.bytes);
    }
}

static void tables_and_threads_give_the_same_bits(void **state)
{
    (void)state;
    struct pool *pool = pool_new(3);
    struct array x = some(K_FP32, 3 * 4096 + 77, 5);
    EACH_FORMAT(f)
    {
        struct wire want = encoded(table_after(NULL), NULL, f, &x);
        struct array back = decoded(table_after(NULL), NULL, K_BF16, &want);
        EACH_TABLE(k)
        {
            struct wire got = encoded(k, pool, f, &x);
            assert_memory_equal(got.bytes, want.bytes, (size_t)kernels_wire_bytes(x.n));
            struct array y = decoded(k, pool, K_BF16, &got);
            assert_same_bits(&y, &back, "decoded");
            array_free(&y);
            free(got.bytes);
        }
        array_free(&back);
        free(want.bytes);
    }
    array_free(&x);
    pool_free(pool);
}

static void blocks_of_nothing_and_of_next_to_nothing_come_back_as_zeros(void **state)
{
    (void)state;
    EACH_FORMAT(f)
    EACH_TABLE(k)
    {
        struct array x = array_random(K_FP32, 600, 0, 1, 9);
        for (int i = 0; i < 256; i++)
            ((float *)x.data)[i] = 0;
        for (int i = 256; i < 512; i++)
            ((float *)x.data)[i] = i % 2 ? 1e-42f : -1e-45f;
        struct wire w = encoded(k, NULL, f, &x);
        struct array y = decoded(k, NULL, K_FP32, &w);
        for (int i = 0; i < 512; i++)
            assert_true(array_get(&y, i) == 0);
        assert_true(array_get(&y, 520) != 0);
        array_free(&x);
        array_free(&y);
        free(w.bytes);
    }
}

/* A gradient that is not finite must not look as if it were: the norm is to see it. */
static void what_is_not_finite_makes_its_block_nan_and_no_other(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 2 * BASE_COUNT(bad); i++)
        EACH_TABLE(k)
        {
            struct array x = array_random(K_FP32, 1000, 0, 1, 3);
            ((float *)x.data)[300] = bad[i / 2];
            struct wire w = encoded(k, NULL, i % 2 ? K_WIRE_FP8 : K_WIRE_INT8, &x);
            struct array y = decoded(k, NULL, K_FP32, &w);
            for (int64_t j = 0; j < x.n; j++)
                assert_int_equal(isnan(array_get(&y, j)) != 0, j / K_WIRE_BLOCK == 1);
            array_free(&x);
            array_free(&y);
            free(w.bytes);
        }
}

static void sums_are_those_of_decoded_vectors_in_order(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    struct pool *pool = pool_new(3);
    EACH_FORMAT(f)
    EACH_TABLE(k)
    for (size_t s = 0; s < BASE_COUNT(SIZES); s++) {
        struct wire w[RANKS];
        struct array part[RANKS], y = array_random(K_FP32, SIZES[s], 0, 1, 77);
        struct array before = array_copy(&y);
        const void *wires[RANKS];
        for (int r = 0; r < RANKS; r++) {
            struct array x = some(K_FP32, SIZES[s], (uint64_t)r + 10);
            w[r] = encoded(k, NULL, f, &x);
            part[r] = decoded(k, NULL, K_FP32, &w[r]);
            wires[r] = w[r].bytes;
            array_free(&x);
        }
        struct k_sum_wires a = {.format = f,
            .elems = SIZES[s],
            .count = RANKS,
            .wire = wires,
            .y = y.data,
            .accumulate = true};
        k->sum_wires(NULL, &a);
        for (int again = 0; again < 2; again++) {
            for (int64_t i = 0; i < y.n; i++) {
                float sum = ((float *)part[0].data)[i] + ((float *)part[1].data)[i];
                sum += ((float *)part[2].data)[i];
                float want = again ? sum : ((float *)before.data)[i] + sum;
                assert_memory_equal(&want, (float *)y.data + i, sizeof(want));
            }
            a.accumulate = false;
            k->sum_wires(pool, &a);
        }
        for (int r = 0; r < RANKS; r++) {
            free(w[r].bytes);
            array_free(&part[r]);
        }
        array_free(&y);
        array_free(&before);
    }
    pool_free(pool);
}

int test_wire(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vector_takes_a_byte_an_element_and_a_scale_a_block),
        cmocka_unit_test(codes_are_the_nearest_and_errors_within_half_a_scale),
        cmocka_unit_test(fp8_codes_are_the_nearest_with_the_least_power_of_two),
        cmocka_unit_test(tables_and_threads_give_the_same_bits),
        cmocka_unit_test(blocks_of_nothing_and_of_next_to_nothing_come_back_as_zeros),
        cmocka_unit_test(what_is_not_finite_makes_its_block_nan_and_no_other),
        cmocka_unit_test(sums_are_those_of_decoded_vectors_in_order),
    };
    return cmocka_run_group_tests_name("kernels/wire", tests, NULL, NULL);
}
