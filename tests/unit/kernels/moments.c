/* Moments in 8 bits against doubles: which numbers codes are, that nearest is nearest, that random
 * rounding is right on average, and that updates are those of what codes stand for. */
#include "support.h"

enum { N = 5000, FIRST = 300 }; /* the first block of a range is not whole */

/* Kinds of moments: form, and whether it is AdamW's second. */
static const struct kind {
    enum k_moment_form form;
    bool is_square;
} KINDS[] = {
    {K_MOMENT_BLOCKS, false}, {K_MOMENT_BLOCKS, true}, {K_MOMENT_FP8, false}, {K_MOMENT_FP8, true}};

static struct k_moment moment_new(struct kind kind, int64_t n)
{
    return (struct k_moment){.form = kind.form,
        .is_square = kind.is_square,
        .code = base_calloc((size_t)n, 1),
        .scale = base_calloc((size_t)(n / K_MOMENT_BLOCK + 2), sizeof(float)),
        .first = FIRST,
        .key = 99};
}

static void moment_free(struct k_moment *m)
{
    free(m->code);
    free(m->scale);
}

static double scale_at(const struct k_moment *m, int64_t i)
{
    bool is_blocks = m->form == K_MOMENT_BLOCKS;
    return (double)m->scale[is_blocks ? (FIRST % K_MOMENT_BLOCK + i) / K_MOMENT_BLOCK : 0];
}

/* All 256 numbers, of scale 1; roots as they are. */
static void read_codes(const struct kernels *k, struct kind kind, double value[256])
{
    float scale[3] = {1, 1, 1}, out[256];
    uint8_t code[256];
    for (int c = 0; c < 256; c++)
        code[c] = (uint8_t)c;
    struct k_moment m = {.form = kind.form, .code = code, .scale = scale};
    m.is_square = kind.is_square;
    k->moment_read(NULL, out, &m, 256);
    for (int c = 0; c < 256; c++)
        value[c] = kind.is_square ? sqrt((double)out[c]) : (double)out[c];
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

/* bitsandbytes 0.45, functional.create_dynamic_map(signed=True) and (signed=False), whose lists
 * begin and end so; the last but one of the signed is 0.9930 there, which is 1 here, on both sides.
 * E4M3: OCP 8-bit floating point specification, table 1. */
static void codes_are_the_published_numbers(void **state)
{
    (void)state;
    static const double low_signed[] = {
        0, 5.5e-7, 3.25e-6, 7.75e-6, 2.125e-5, 4.375e-5, 6.625e-5, 8.875e-5};
    static const double low_unsigned[] = {
        0, 3.25e-7, 7.75e-7, 2.125e-6, 4.375e-6, 6.625e-6, 8.875e-6};
    EACH_TABLE(k)
    {
        double v[256];
        read_codes(k, KINDS[0], v);
        for (size_t i = 0; i < BASE_COUNT(low_signed); i++)
            assert_true(near(v[i], low_signed[i]) && near(v[128 + i], -low_signed[i]));
        assert_true(near(v[126], 0.97890625) && near(v[127], 1) && near(v[255], -1));
        read_codes(k, KINDS[1], v);
        for (size_t i = 0; i < BASE_COUNT(low_unsigned); i++)
            assert_true(near(v[i], low_unsigned[i]));
        assert_true(near(v[253], 0.98945312) && near(v[254], 0.99648438) && near(v[255], 1));
        read_codes(k, KINDS[2], v);
        assert_true(near(v[0], 0) && near(v[1], 0x1p-9) && near(v[7], 7 * 0x1p-9));
        assert_true(near(v[8], 0x1p-6) && near(v[0x38], 1) && near(v[0x7e], 448));
        assert_true(near(v[0xb9], -1.125) && near(v[0xfe], -448));
    }
}

/* Of all sizes, with signs where there are any, and a block of nothing. */
static struct array numbers(struct kind kind, uint64_t seed)
{
    struct array a = array_new(K_FP32, N);
    for (int64_t i = 0; i < N; i++) {
        double x = next_random(&seed) * pow(10, 4 * next_random(&seed) - 6);
        array_set(&a, i, i >= 1000 && i < 1300 ? 0 : kind.is_square ? x * x : x);
    }
    return a;
}

static void what_is_written_is_the_nearest_and_stays(void **state)
{
    (void)state;
    EACH_TABLE(k)
    for (size_t j = 0; j < BASE_COUNT(KINDS); j++) {
        double value[256];
        struct array in = numbers(KINDS[j], 7 + j), out = array_new(K_FP32, N);
        struct k_moment m = moment_new(KINDS[j], N), again = moment_new(KINDS[j], N);
        read_codes(k, KINDS[j], value);
        k->moment_write(NULL, &(struct k_moment_range){m, N, 0, N}, in.data);
        k->moment_read(NULL, out.data, &m, N);
        for (int64_t i = 0; i < N; i++) {
            double x = array_get(&in, i), y = array_get(&out, i), least = INFINITY;
            x = KINDS[j].is_square ? sqrt(x) : x;
            y = KINDS[j].is_square ? sqrt(y) : y;
            for (int c = 0; c < 256; c++)
                if (!isinf(value[c]))
                    least = fmin(least, fabs(x - value[c] * scale_at(&m, i)));
            bool is_root_of_little = KINDS[j].is_square && m.code[i] == 1;
            assert_true(fabs(x - y) <= least + 1e-6 * fabs(x) || is_root_of_little);
            assert_true(!KINDS[j].is_square || (m.code[i] == 0) == !(x > 0));
        }
        /* in two goes, of which the second needs a larger scale or not */
        for (int64_t cut = 84; cut < N; cut += 1536) {
            memset(again.code, 0, N);
            memset(again.scale, 0, (N / K_MOMENT_BLOCK + 2) * sizeof(float));
            k->moment_write(NULL, &(struct k_moment_range){again, N, 0, cut}, out.data);
            k->moment_write(NULL, &(struct k_moment_range){again, N, cut, N - cut},
                (const float *)out.data + cut);
            struct array same = array_new(K_FP32, N);
            k->moment_read(NULL, same.data, &again, N);
            assert_same_bits(&out, &same, "what was read");
            array_free(&same);
        }
        moment_free(&m);
        moment_free(&again);
        array_free(&in);
        array_free(&out);
    }
}

/* A moment that becomes x, where the largest of its scale is 1: a share of the codes is the one
 * above, so that the mean is x. Five standard deviations. */
static void rounding_at_random_is_right_on_average(void **state)
{
    (void)state;
    enum { MANY = 128 * 300 };
    static const double at[] = {0.513, 0.0731, 3.3e-3, 2.2e-5, -0.31};
    EACH_TABLE(k)
    for (size_t j = 0; j < 2 * BASE_COUNT(at); j++) {
        double x = at[j / 2], value[256], mean = 0, low = -INFINITY, high = INFINITY;
        struct kind kind = KINDS[j % 2 * 2];
        struct k_moment m = moment_new(kind, MANY);
        float *grad = base_calloc(MANY, sizeof(float)), *w = base_calloc(MANY, sizeof(float));
        float *out = base_calloc(MANY, sizeof(float));
        m.first = 0;
        for (int64_t i = 0; i < MANY; i++)
            grad[i] = i % K_MOMENT_BLOCK == 0 ? 1 : (float)x;
        struct k_sgd a = {.elems = MANY, .grad = grad, .m = m, .momentum = 0.5};
        a.weights.master = w;
        k->sgd(NULL, &a);
        k->moment_read(NULL, out, &m, MANY);
        read_codes(k, kind, value);
        double scale = kind.form == K_MOMENT_FP8 ? 0x1p-8 : 1;
        for (int c = 0; c < 256; c++) {
            low = value[c] * scale <= x ? fmax(low, value[c] * scale) : low;
            high = value[c] * scale > x ? fmin(high, value[c] * scale) : high;
        }
        for (int64_t i = 0; i < MANY; i++) {
            bool is_neighbour = near((double)out[i], low) || near((double)out[i], high);
            assert_true(i % K_MOMENT_BLOCK == 0 ? near((double)out[i], 1) : is_neighbour);
            mean += i % K_MOMENT_BLOCK ? (double)out[i] / (MANY - MANY / K_MOMENT_BLOCK) : 0;
        }
        double share = (x - low) / (high - low), n = MANY - MANY / K_MOMENT_BLOCK;
        assert_true(fabs(mean - x) <= 5 * (high - low) * sqrt(share * (1 - share) / n) + 1e-6);
        moment_free(&m);
        free(grad);
        free(w);
        free(out);
    }
}

struct adam {
    struct array grad, master;
    struct k_moment m, v;
};

static struct adam adam_new(enum k_moment_form form)
{
    struct adam s = {array_random(K_FP32, N, 0, 1e-3, 1), array_random(K_FP32, N, 0, 1, 2),
        moment_new((struct kind){form, false}, N), moment_new((struct kind){form, true}, N)};
    return s;
}

static void adam_free(struct adam *s)
{
    array_free(&s->grad);
    array_free(&s->master);
    moment_free(&s->m);
    moment_free(&s->v);
}

static struct k_adamw step_of(struct adam *s, int64_t at, int64_t n, int64_t step)
{
    struct k_adamw a = {.elems = n,
        .grad = (float *)s->grad.data + at,
        .m = s->m,
        .v = s->v,
        .weights = {.master = (float *)s->master.data + at},
        .lr = 1e-2,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .weight_decay = 0.1,
        .step = step};
    for (int i = 0; i < 2; i++) {
        struct k_moment *m = i ? &a.v : &a.m;
        m->code += at;
        if (m->form == K_MOMENT_BLOCKS)
            m->scale += (FIRST % K_MOMENT_BLOCK + at) / K_MOMENT_BLOCK;
        m->first += at;
    }
    return a;
}

/* From what the codes stand for, by the formulas of kernels.h. */
static void a_step_is_that_of_what_the_codes_stand_for(void **state)
{
    (void)state;
    EACH_TABLE(k)
    for (int form = K_MOMENT_BLOCKS; form <= K_MOMENT_FP8; form++) {
        struct adam s = adam_new((enum k_moment_form)form);
        struct array m = array_new(K_FP32, N), v = array_new(K_FP32, N);
        for (int step = 1; step <= 4; step++) {
            double *w = doubles_of(&s.master);
            k->moment_read(NULL, m.data, &s.m, N);
            k->moment_read(NULL, v.data, &s.v, N);
            for (int64_t i = 0; i < N; i++) {
                double g = array_get(&s.grad, i), x = 0.9 * array_get(&m, i) + 0.1 * g;
                double y = 0.95 * array_get(&v, i) + 0.05 * g * g;
                x /= 1 - pow(0.9, step);
                y /= 1 - pow(0.95, step);
                w[i] = w[i] * (1 - 1e-2 * 0.1) - 1e-2 * x / (sqrt(y) + 1e-8);
            }
            struct k_adamw a = step_of(&s, 0, N, step);
            k->adamw(NULL, &a);
            assert_result(&s.master, w, 4e-6, "master");
            free(w);
        }
        array_free(&m);
        array_free(&v);
        adam_free(&s);
    }
}

/* Ranges that end where blocks do, and threads. */
static void splits_and_threads_give_the_same_codes(void **state)
{
    (void)state;
    enum { OFF = FIRST % K_MOMENT_BLOCK };
    static const int64_t cuts[] = {0, 128 - OFF, 1280 - OFF, 4096 - OFF, 4224 - OFF, N};
    struct pool *pool = pool_new(3);
    EACH_TABLE(k)
    for (int form = K_MOMENT_BLOCKS; form <= K_MOMENT_FP8; form++) {
        struct adam whole = adam_new((enum k_moment_form)form);
        struct adam parts = adam_new((enum k_moment_form)form);
        for (int step = 1; step <= 3; step++) {
            struct k_adamw a = step_of(&whole, 0, N, step);
            k->adamw(pool, &a);
            bool is_cut = form == K_MOMENT_BLOCKS;
            for (size_t i = 0; i + 1 < BASE_COUNT(cuts) && is_cut; i++) {
                a = step_of(&parts, cuts[i], cuts[i + 1] - cuts[i], step);
                k->adamw(NULL, &a);
            }
            a = step_of(&parts, 0, N, step);
            if (!is_cut)
                k->adamw(NULL, &a);
        }
        assert_same_bits(&whole.master, &parts.master, "master");
        assert_memory_equal(whole.m.code, parts.m.code, N);
        assert_memory_equal(whole.v.code, parts.v.code, N);
        assert_memory_equal(whole.m.scale, parts.m.scale, sizeof(float));
        adam_free(&whole);
        adam_free(&parts);
    }
    pool_free(pool);
}

int test_moments(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_the_published_numbers),
        cmocka_unit_test(what_is_written_is_the_nearest_and_stays),
        cmocka_unit_test(rounding_at_random_is_right_on_average),
        cmocka_unit_test(a_step_is_that_of_what_the_codes_stand_for),
        cmocka_unit_test(splits_and_threads_give_the_same_codes),
    };
    return cmocka_run_group_tests_name("moments", tests, NULL, NULL);
}
