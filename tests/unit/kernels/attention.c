/* Reference: scores, softmax and products written out in double, one query at a time. fp32
 * tolerance: scores are sums of up to 256 products, reach 20, and carry a few 2^-24 of that through
 * the exponential; up to 200 of them are summed. */
#include "tests/unit/kernels/support.h"

#define TOLERANCE 1e-5
/* bf16: an output next to a tie may be stored one step away from the reference's, which moves the
 * gradients of its query by 2^-8 p of one term in head_dim. */
#define TIE_FLIP 2e-4
/* The same where p is not small: in documents of a few tokens. */
#define TIE_FLIP_PACKED 2e-3

struct attention {
    enum k_type type;
    int64_t batch, seq, heads, kv_heads, head_dim;
    int64_t tokens, qkv_width, out_width;
    struct array qkv, dout;
    double *out, *lse, *dqkv; /* expected */
    int32_t *positions;       /* of tokens in packed documents, or NULL */
};

static double qkv_at(const struct attention *t, int64_t token, int64_t head, int64_t i)
{
    return array_get(&t->qkv, token * t->qkv_width + head * t->head_dim + i);
}

/* The backward pass is given the stored output. */
static double as_stored(enum k_type type, double x)
{
    return type == K_BF16 ? bf16_value(bf16_nearest((float)x)) : x;
}

/* Query head h of one token, at a place in its document, or sequence, which begins at first:
 * outputs, and gradients into dqkv. */
static void expect_query(struct attention *t, int64_t first, int64_t pos, int64_t h)
{
    int64_t hd = t->head_dim, kh = t->heads + h / (t->heads / t->kv_heads), vh = kh + t->kv_heads;
    int64_t token = first + pos;
    double scale = 1 / sqrt((double)hd), sum = 0;
    double *p = doubles_new(pos + 1), *out = t->out + token * t->out_width + h * hd;
    for (int64_t j = 0; j <= pos; j++) {
        for (int64_t i = 0; i < hd; i++)
            p[j] += scale * qkv_at(t, token, h, i) * qkv_at(t, first + j, kh, i);
        sum += exp(p[j]);
    }
    t->lse[token * t->heads + h] = log(sum);
    for (int64_t j = 0; j <= pos; j++) {
        p[j] = exp(p[j]) / sum;
        for (int64_t i = 0; i < hd; i++)
            out[i] += p[j] * qkv_at(t, first + j, vh, i);
    }
    double *dq = t->dqkv + token * t->qkv_width + h * hd;
    for (int64_t j = 0; j <= pos; j++) {
        double *dk = t->dqkv + (first + j) * t->qkv_width + kh * hd;
        double *dv = t->dqkv + (first + j) * t->qkv_width + vh * hd;
        double ds = 0; /* p (dout . v - dout . out) */
        for (int64_t i = 0; i < hd; i++) {
            double d = array_get(&t->dout, token * t->out_width + h * hd + i);
            ds += p[j] * d * (qkv_at(t, first + j, vh, i) - as_stored(t->type, out[i]));
            dv[i] += p[j] * d;
        }
        for (int64_t i = 0; i < hd; i++) {
            dq[i] += scale * ds * qkv_at(t, first + j, kh, i);
            dk[i] += scale * ds * qkv_at(t, token, h, i);
        }
    }
    free(p);
}

/* Documents end behind a token with a chance of 1/mean. */
static int32_t *random_positions(int64_t tokens, int64_t seq, uint64_t mean)
{
    int32_t *positions = base_calloc((size_t)tokens, sizeof(*positions));
    uint64_t bits = 42;
    for (int64_t i = 0; i < tokens; i++) {
        bits = bits * 6364136223846793005ULL + 1442695040888963407ULL;
        bool begins = i % seq == 0 || (bits >> 33) % mean == 0;
        positions[i] = begins ? 0 : positions[i - 1] + 1;
    }
    return positions;
}

/* mean: of tokens in packed documents; 0: none are packed. */
static struct attention attention_new(enum k_type type, const int64_t *shape, uint64_t mean)
{
    struct attention t = {type, shape[0], shape[1], shape[2], shape[3], shape[4], .lse = NULL};
    t.tokens = t.batch * t.seq;
    t.out_width = t.heads * t.head_dim;
    t.qkv_width = (t.heads + 2 * t.kv_heads) * t.head_dim;
    t.qkv = array_random(type, t.tokens * t.qkv_width, 0, 1.5, 1);
    t.dout = array_random(type, t.tokens * t.out_width, 0, 1, 2);
    t.out = doubles_new(t.tokens * t.out_width);
    t.lse = doubles_new(t.tokens * t.heads);
    t.dqkv = doubles_new(t.tokens * t.qkv_width);
    t.positions = mean ? random_positions(t.tokens, t.seq, mean) : NULL;
    for (int64_t token = 0; token < t.tokens; token++) {
        int64_t pos = mean ? t.positions[token] : token % t.seq;
        for (int64_t h = 0; h < t.heads; h++)
            expect_query(&t, token - pos, pos, h);
    }
    return t;
}

static void attention_release(struct attention *t)
{
    array_free(&t->qkv);
    array_free(&t->dout);
    free(t->positions);
    free(t->out);
    free(t->lse);
    free(t->dqkv);
}

struct results {
    struct array out, lse, dqkv;
};

static struct results run(const struct kernels *k, struct pool *pool, const struct attention *t)
{
    struct results r = {array_new(t->type, t->tokens * t->out_width),
        array_new(K_FP32, t->tokens * t->heads), array_new(t->type, t->tokens * t->qkv_width)};
    struct array scratch = array_new(K_FP32, t->tokens * t->heads);
    k->attn_fwd(pool, &(struct k_attn_fwd){
                          .type = t->type,
                          .tokens = t->tokens,
                          .seq = t->seq,
                          .heads = t->heads,
                          .kv_heads = t->kv_heads,
                          .head_dim = t->head_dim,
                          .qkv = t->qkv.data,
                          .positions = t->positions,
                          .out = r.out.data,
                          .lse = r.lse.data,
                      });
    k->attn_bwd(pool, &(struct k_attn_bwd){
                          .type = t->type,
                          .tokens = t->tokens,
                          .seq = t->seq,
                          .heads = t->heads,
                          .kv_heads = t->kv_heads,
                          .head_dim = t->head_dim,
                          .dout = t->dout.data,
                          .qkv = t->qkv.data,
                          .positions = t->positions,
                          .out = r.out.data,
                          .lse = r.lse.data,
                          .dqkv = r.dqkv.data,
                          .scratch = scratch.data,
                      });
    array_free(&scratch);
    return r;
}

static void results_release(struct results *r)
{
    array_free(&r->out);
    array_free(&r->lse);
    array_free(&r->dqkv);
}

static void check(struct pool *pool, const struct attention *t)
{
    EACH_TABLE(k)
    {
        struct results one = run(k, NULL, t), three = run(k, pool, t);
        char what[96];
        snprintf(what, sizeof(what), "%s type %d batch %lld seq %lld heads %lld/%lld of %lld",
            k->name, t->type, (long long)t->batch, (long long)t->seq, (long long)t->heads,
            (long long)t->kv_heads, (long long)t->head_dim);
        assert_same_bits(&one.out, &three.out, what);
        assert_same_bits(&one.lse, &three.lse, what);
        assert_same_bits(&one.dqkv, &three.dqkv, what);
        assert_result(&one.out, t->out, TOLERANCE, what);
        assert_near(&one.lse, t->lse, TOLERANCE, TOLERANCE, what);
        assert_near(&one.dqkv, t->dqkv, t->type == K_BF16 ? BF16_REL : TOLERANCE,
            t->type != K_BF16 ? TOLERANCE
            : t->positions    ? TIE_FLIP_PACKED
                              : TIE_FLIP,
            what);
        results_release(&one);
        results_release(&three);
    }
}

static void forward_and_backward_over_odd_shapes(void **state)
{
    (void)state;
    /* batch, seq, heads, kv_heads, head_dim */
    static const int64_t shapes[][5] = {{1, 1, 1, 1, 2}, {2, 1, 3, 1, 24}, {1, 5, 3, 3, 24},
        {2, 7, 4, 2, 64}, {1, 96, 2, 1, 80}, {1, 97, 1, 1, 128}, {2, 200, 3, 1, 16},
        {1, 100, 2, 2, 256}, {1, 49, 1, 1, 130}, {1, 48, 6, 2, 7}};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        EACH_TYPE(type)
        {
            struct attention t = attention_new(type, shapes[i], 0);
            check(pool, &t);
            attention_release(&t);
        }
    pool_free(pool);
}

/* Documents within tiles, over several of them, and of one token. */
static void documents_see_themselves_alone(void **state)
{
    (void)state;
    static const int64_t shapes[][5] = {
        {2, 7, 4, 2, 64}, {2, 200, 3, 1, 16}, {1, 500, 2, 1, 24}, {1, 130, 1, 1, 130}};
    static const uint64_t means[] = {1, 3, 40, 150};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        for (size_t m = 0; m < BASE_COUNT(means); m++)
            EACH_TYPE(type)
            {
                struct attention t = attention_new(type, shapes[i], means[m]);
                check(pool, &t);
                attention_release(&t);
            }
    pool_free(pool);
}

/* Where every sequence is one document, to the bit. */
static void one_document_is_a_sequence(void **state)
{
    (void)state;
    static const int64_t shape[] = {2, 200, 2, 1, 32};
    struct attention t = attention_new(K_FP32, shape, 1 << 30);
    struct results packed = run(kernels_best(), NULL, &t);
    int32_t *positions = t.positions;
    for (int64_t i = 0; i < t.tokens; i++)
        assert_int_equal(positions[i], i % t.seq);
    t.positions = NULL;
    struct results whole = run(kernels_best(), NULL, &t);
    t.positions = positions;
    assert_same_bits(&packed.out, &whole.out, "outputs");
    assert_same_bits(&packed.dqkv, &whole.dqkv, "gradients");
    results_release(&packed);
    results_release(&whole);
    attention_release(&t);
}

/* Scores of several hundred: e^score alone would overflow. */
static void large_scores_stay_finite(void **state)
{
    (void)state;
    static const int64_t shape[] = {1, 130, 1, 1, 64};
    struct attention t = attention_new(K_FP32, shape, 0);
    for (int64_t i = 0; i < t.qkv.n; i++)
        array_set(&t.qkv, i, 10 * array_get(&t.qkv, i));
    EACH_TABLE(k)
    {
        struct results r = run(k, NULL, &t);
        for (int64_t i = 0; i < r.out.n; i++)
            assert_true(fabs(array_get(&r.out, i)) <= 15.001); /* a mean of values up to 15 */
        for (int64_t i = 0; i < r.dqkv.n; i++)
            assert_true(isfinite(array_get(&r.dqkv, i)));
        results_release(&r);
    }
    attention_release(&t);
}

static void later_tokens_do_not_change_earlier_ones(void **state)
{
    (void)state;
    static const int64_t shape[] = {1, 150, 2, 1, 32};
    struct attention t = attention_new(K_FP32, shape, 0);
    struct results before = run(kernels_best(), NULL, &t);
    for (int64_t i = 140 * t.qkv_width; i < t.qkv.n; i++)
        array_set(&t.qkv, i, 3);
    struct results after = run(kernels_best(), NULL, &t);
    assert_memory_equal(before.out.data, after.out.data, 140 * (size_t)t.out_width * sizeof(float));
    results_release(&before);
    results_release(&after);
    attention_release(&t);
}

int test_attention(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_and_backward_over_odd_shapes),
        cmocka_unit_test(documents_see_themselves_alone),
        cmocka_unit_test(one_document_is_a_sequence),
        cmocka_unit_test(large_scores_stay_finite),
        cmocka_unit_test(later_tokens_do_not_change_earlier_ones),
    };
    return cmocka_run_group_tests_name("kernels/attention", tests, NULL, NULL);
}
