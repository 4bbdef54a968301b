/* Lookups are exact but for the one addition of positions; gradients are sums in the order of
 * tokens, so fp32 ones are compared with the same sum, rounded step by step, bit for bit. Rotary
 * embedding: two products and a sum per element. */
#include "tests/unit/kernels/support.h"

#define TOLERANCE 5e-7

enum { VOCAB = 11, SEQ = 5, TOKENS = 15 };

static const int32_t ids[TOKENS] = {3, 3, 10, 0, 7, 3, 0, 0, 9, 10, 1, 3, 3, 3, 2};
static const int64_t widths[] = {1, 24, 65, 200};

/* Of tokens in packed documents, or NULL: a sequence is one. */
static const int32_t packed[TOKENS] = {0, 1, 0, 1, 2, 0, 0, 0, 1, 2, 0, 1, 2, 3, 0};
static const int32_t *const placings[] = {NULL, packed};

static int64_t place_of(const int32_t *positions, int64_t token)
{
    return positions ? positions[token] : token % SEQ;
}

static void check_lookup(struct pool *pool, enum k_type type, int64_t width, bool has_positions,
    const int32_t *positions)
{
    struct array wte = array_random(type, VOCAB * width, 0, 1, 1);
    struct array wpe = array_random(type, SEQ * width, 0, 1, 2);
    double *want = doubles_new(TOKENS * width);
    for (int64_t i = 0; i < TOKENS * width; i++) {
        want[i] = array_get(&wte, ids[i / width] * width + i % width);
        if (has_positions)
            want[i] += array_get(&wpe, place_of(positions, i / width) * width + i % width);
    }
    EACH_TABLE(k)
    {
        struct array x = array_new(type, TOKENS * width), x3 = array_new(type, TOKENS * width);
        struct k_embed_fwd a = {.type = type, .tokens = TOKENS, .width = width, .seq = SEQ};
        a.ids = ids;
        a.positions = positions;
        a.wte = wte.data;
        a.wpe = has_positions ? wpe.data : NULL;
        a.x = x.data;
        k->embed_fwd(NULL, &a);
        a.x = x3.data;
        k->embed_fwd(pool, &a);
        assert_same_bits(&x, &x3, "embed");
        assert_result(&x, want, TOLERANCE, "embed");
        array_free(&x);
        array_free(&x3);
    }
    free(want);
    array_free(&wte);
    array_free(&wpe);
}

static void looks_up_tokens_and_positions(void **state)
{
    (void)state;
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(widths); i++)
        EACH_TYPE(type)
        {
            check_lookup(pool, type, widths[i], false, NULL);
            check_lookup(pool, type, widths[i], true, NULL);
            check_lookup(pool, type, widths[i], true, packed);
        }
    pool_free(pool);
}

static void check_scatter(
    struct pool *pool, enum k_type type, int64_t width, bool accumulate, const int32_t *positions)
{
    struct array dx = array_random(type, TOKENS * width, 0, 1, 1);
    struct array dwte = array_random(K_FP32, VOCAB * width, 0, 1, 2);
    struct array dwpe = array_random(K_FP32, SEQ * width, 0, 1, 3);
    float *token = base_calloc((size_t)(VOCAB * width), sizeof(float));
    float *position = base_calloc((size_t)(SEQ * width), sizeof(float));
    if (accumulate) {
        memcpy(token, dwte.data, array_bytes(&dwte));
        memcpy(position, dwpe.data, array_bytes(&dwpe));
    }
    for (int64_t i = 0; i < TOKENS * width; i++) {
        token[ids[i / width] * width + i % width] += (float)array_get(&dx, i);
        position[place_of(positions, i / width) * width + i % width] += (float)array_get(&dx, i);
    }
    EACH_TABLE(k)
    for (int r = 0; r < 2; r++) {
        struct array got = array_copy(&dwte), got_pos = array_copy(&dwpe);
        struct k_embed_bwd a = {.type = type, .tokens = TOKENS, .width = width, .seq = SEQ};
        a.vocab = VOCAB;
        a.position_rows = SEQ;
        a.accumulate = accumulate;
        a.dx = dx.data;
        a.ids = ids;
        a.positions = positions;
        a.dwte = got.data;
        a.dwpe = got_pos.data;
        k->embed_bwd(r ? pool : NULL, &a);
        assert_memory_equal(got.data, token, array_bytes(&got));
        assert_memory_equal(got_pos.data, position, array_bytes(&got_pos));
        array_free(&got);
        array_free(&got_pos);
    }
    free(token);
    free(position);
    array_free(&dx);
    array_free(&dwte);
    array_free(&dwpe);
}

static void gradient_adds_tokens_in_order(void **state)
{
    (void)state;
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(widths); i++)
        EACH_TYPE(type)
        {
            check_scatter(pool, type, widths[i], false, NULL);
            check_scatter(pool, type, widths[i], true, NULL);
            check_scatter(pool, type, widths[i], true, packed);
        }
    pool_free(pool);
}

/* --- rotary embedding --- */

/* Llama 3.1's published rule (factor 8, low 1, high 4, original 8192), by wavelength; theta 500000.
 */
static double llama3_frequency(double frequency)
{
    double wavelength = 2 * acos(-1.0) / frequency;
    if (wavelength < 8192.0 / 4)
        return frequency;
    if (wavelength > 8192.0 / 1)
        return frequency / 8;
    double smooth = (8192 / wavelength - 1) / (4 - 1);
    return (1 - smooth) * frequency / 8 + smooth * frequency;
}

static double frequency_of(enum k_rope_scaling scaling, int64_t pair, int64_t head_dim)
{
    double frequency = 1 / pow(500000.0, 2.0 * (double)pair / (double)head_dim);
    if (scaling == K_ROPE_LINEAR)
        return frequency / 8;
    return scaling == K_ROPE_LLAMA3 ? llama3_frequency(frequency) : frequency;
}

static float *table_for(enum k_rope_scaling scaling, int64_t positions, int64_t head_dim)
{
    struct k_rope_table r = {.scaling = scaling, .positions = positions, .head_dim = head_dim};
    r.theta = 500000;
    r.factor = 8;
    r.low_freq = 1;
    r.high_freq = 4;
    r.original_positions = 8192;
    float *table = base_alloc((size_t)kernels_rope_table_elems(&r) * sizeof(float));
    kernels_rope_table(&r, table);
    return table;
}

static void table_follows_each_scaling(void **state)
{
    (void)state;
    enum { POSITIONS = 3000, HEAD_DIM = 128, HALF = HEAD_DIM / 2 };
    for (enum k_rope_scaling s = K_ROPE_PLAIN; s <= K_ROPE_LLAMA3; s++) {
        float *table = table_for(s, POSITIONS, HEAD_DIM);
        for (int64_t pos = 0; pos < POSITIONS; pos += 7)
            for (int64_t i = 0; i < HALF; i++) {
                double angle = (double)pos * frequency_of(s, i, HEAD_DIM);
                assert_true(fabs((double)table[pos * HEAD_DIM + i] - cos(angle)) < 1e-7);
                assert_true(fabs((double)table[pos * HEAD_DIM + HALF + i] - sin(angle)) < 1e-7);
            }
        free(table);
    }
}

/* Query and key heads as complex numbers times e^(i angle); value heads unchanged. */
static double *expect_rotated(
    const struct array *qkv, const int64_t *shape, int sign, const int32_t *positions)
{
    int64_t heads = shape[0], kv_heads = shape[1], head_dim = shape[2];
    int64_t width = (heads + 2 * kv_heads) * head_dim, half = head_dim / 2;
    double *want = doubles_of(qkv);
    for (int64_t t = 0; t < qkv->n / width; t++)
        for (int64_t h = 0; h < heads + kv_heads; h++)
            for (int64_t i = 0; i < half; i++) {
                int64_t at = t * width + h * head_dim + i;
                double place = (double)place_of(positions, t);
                double angle = place * frequency_of(K_ROPE_PLAIN, i, head_dim) * sign;
                double x = array_get(qkv, at), y = array_get(qkv, at + half);
                want[at] = x * cos(angle) - y * sin(angle);
                want[at + half] = x * sin(angle) + y * cos(angle);
            }
    return want;
}

static void rotates_heads_forth_and_back(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 2}, {3, 1, 24}, {4, 2, 64}, {5, 5, 80}, {2, 1, 128}};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        EACH_TYPE(type)
    for (int sign = -1, p = 0; p<2; p += sign> 0, sign = -sign) {
        int64_t heads = shapes[i][0], kv = shapes[i][1], hd = shapes[i][2];
        float *table = table_for(K_ROPE_PLAIN, SEQ, hd);
        struct array qkv = array_random(type, TOKENS * (heads + 2 * kv) * hd, 0, 1, 1);
        double *want = expect_rotated(&qkv, shapes[i], sign, placings[p]);
        EACH_TABLE(k)
        {
            struct array one = array_copy(&qkv), three = array_copy(&qkv);
            struct k_rope a = {type, TOKENS, SEQ, heads, kv, hd, table, placings[p], one.data};
            (sign > 0 ? k->rope_fwd : k->rope_bwd)(NULL, &a);
            a.qkv = three.data;
            (sign > 0 ? k->rope_fwd : k->rope_bwd)(pool, &a);
            assert_same_bits(&one, &three, "rope");
            assert_result(&one, want, TOLERANCE, "rope");
            array_free(&one);
            array_free(&three);
        }
        free(want);
        free(table);
        array_free(&qkv);
    }
    pool_free(pool);
}

int test_embed(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_up_tokens_and_positions),
        cmocka_unit_test(gradient_adds_tokens_in_order),
        cmocka_unit_test(table_follows_each_scaling),
        cmocka_unit_test(rotates_heads_forth_and_back),
    };
    return cmocka_run_group_tests_name("kernels/embed", tests, NULL, NULL);
}
