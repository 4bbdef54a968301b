/* Causal attention in tiles that stay in the cache, as FlashAttention does (Dao et al. 2022, 2023):
 * scores are never stored, only the log of each row's sum of exponentials.
 *
 * Forward: one item per sequence, query head and tile of queries; its keys in order, the running
 * maximum and sum rescaled as they grow. Backward computes the scores twice instead of adding from
 * several threads: dq per tile of queries, then dk and dv per tile of keys, over the query heads of
 * the group and the tiles of queries in order.
 *
 * Documents of a sequence are spans of it, so what a query sees are the keys from the first of its
 * document up to itself: tiles before that, and after a key's document, are left out. */
#include <math.h>

#include "kernels/gemm.h"

/* A tile has TILE tokens, half of that for head dimensions above 128: buffers fit the stack. A
 * buffer of HEAD_SPAN holds one tile of one head, tokens or head_dim rounded up to GEMM_NR. */
enum { TILE = 96, HALF_TILE = 48, HALF_FROM = 128, HEAD_SPAN = 80 * K_MAX_HEAD_DIM };
_Static_assert(
    TILE % GEMM_NR == 0 && HALF_TILE % GEMM_MR == 0, "squares of scores hold whole tiles");
_Static_assert((HALF_TILE + GEMM_NR) * K_MAX_HEAD_DIM <= HEAD_SPAN, "tokens rounded up");
_Static_assert(TILE *(HALF_FROM + GEMM_NR) <= HEAD_SPAN, "head_dim rounded up");

/* Shapes common to forward and backward; dimensions in elements. */
struct shape {
    enum k_type type;
    int64_t seq, heads, kv_heads, head_dim;
    int64_t batch, group; /* sequences; query heads per key head */
    int64_t tile, tiles;  /* tokens per tile, tiles per sequence */
    int64_t span;         /* head_dim rounded up to whole tiles of the product */
    int64_t qkv_width, out_width;
    const int32_t *positions; /* of tokens in their documents, or NULL */
    float scale;
};

static struct shape shape_of(enum k_type type, int64_t tokens, int64_t seq, int64_t heads,
    int64_t kv_heads, int64_t head_dim)
{
    struct shape s = {.type = type, .seq = seq, .heads = heads, .kv_heads = kv_heads};
    s.head_dim = head_dim;
    s.batch = tokens / seq;
    s.group = heads / kv_heads;
    s.tile = head_dim <= HALF_FROM ? TILE : HALF_TILE;
    s.tiles = k_blocks(seq, s.tile);
    s.span = k_blocks(head_dim, GEMM_NR) * GEMM_NR;
    s.qkv_width = (heads + 2 * kv_heads) * head_dim;
    s.out_width = heads * head_dim;
    s.scale = (float)(1 / sqrt((double)head_dim));
    return s;
}

/* Tokens first .. first + count - 1 of a sequence. */
struct span {
    int64_t token; /* counted over the batch */
    int64_t count;
};

static struct span tile_span(const struct shape *s, int64_t sequence, int64_t tile)
{
    int64_t first = tile * s->tile;
    return (struct span){sequence * s->seq + first, k_min(s->tile, s->seq - first)};
}

/* The first token that token t sees: of its document. */
static int64_t first_seen(const struct shape *s, int64_t t)
{
    return t - (s->positions ? s->positions[t] : t % s->seq);
}

/* Keys of a tile that the query sees: from `from` up to `end`, none where they cross. */
struct seen {
    int64_t from, end;
};

static struct seen keys_seen(const struct shape *s, int64_t query, struct span keys)
{
    int64_t first = first_seen(s, query) - keys.token, end = query + 1 - keys.token;
    return (struct seen){first > 0 ? first : 0, k_min(end, keys.count)};
}

/* The tile of the sequence with the first key that any query of a tile sees. */
static int64_t first_tile(const struct shape *s, int64_t sequence, struct span queries)
{
    return (first_seen(s, queries.token) - sequence * s->seq) / s->tile;
}

/* Column of a head in a row of qkv, in elements. */
static int64_t q_column(const struct shape *s, int64_t head)
{
    return head * s->head_dim;
}

static int64_t k_column(const struct shape *s, int64_t kv_head)
{
    return (s->heads + kv_head) * s->head_dim;
}

static int64_t v_column(const struct shape *s, int64_t kv_head)
{
    return (s->heads + s->kv_heads + kv_head) * s->head_dim;
}

/* --- packing of a tile of one head; x has rows of ld elements --- */

K_INLINE void pack_any(enum k_type type, float *dst, int64_t width, const void *x, int64_t ld,
    bool by_lane, int64_t lanes, int64_t steps)
{
    if (type == K_BF16)
        gemm_pack(K_BF16, dst, width, x, ld, by_lane, lanes, steps);
    else
        gemm_pack(K_FP32, dst, width, x, ld, by_lane, lanes, steps);
}

/* Left factor: tokens x head_dim. */
static void pack_left(
    const struct shape *s, float *dst, const void *x, int64_t ld, struct span t, int64_t column)
{
    const void *from = k_at(s->type, x, t.token * ld + column);
    pack_any(s->type, dst, GEMM_MR, from, ld, true, t.count, s->head_dim);
}

/* Right factor transposed: head_dim x tokens. */
static void pack_right_transposed(
    const struct shape *s, float *dst, const void *x, int64_t ld, struct span t, int64_t column)
{
    const void *from = k_at(s->type, x, t.token * ld + column);
    pack_any(s->type, dst, GEMM_NR, from, ld, true, t.count, s->head_dim);
}

/* Right factor: tokens x head_dim. */
static void pack_right(
    const struct shape *s, float *dst, const void *x, int64_t ld, struct span t, int64_t column)
{
    const void *from = k_at(s->type, x, t.token * ld + column);
    pack_any(s->type, dst, GEMM_NR, from, ld, false, s->head_dim, t.count);
}

/* Left factor from a square of scores: rows x columns. */
static void pack_scores(float *dst, const float *scores, int64_t rows, int64_t columns)
{
    gemm_pack(K_FP32, dst, GEMM_MR, scores, TILE, true, rows, columns);
}

/* rows x head_dim results into one head of x. */
K_INLINE void store_rows(enum k_type type, void *x, int64_t ld, const float *from, int64_t from_ld,
    int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++)
            k_store(type, x, i * ld + j, from[i * from_ld + j]);
}

static void store_tile(
    const struct shape *s, void *x, int64_t ld, struct span t, int64_t column, const float *from)
{
    void *to = k_at_mut(s->type, x, t.token * ld + column);
    if (s->type == K_BF16)
        store_rows(K_BF16, to, ld, from, s->span, t.count, s->head_dim);
    else
        store_rows(K_FP32, to, ld, from, s->span, t.count, s->head_dim);
}

/* Zero a sum over tiles, with the rows that the product rounds up to. */
static void clear(const struct shape *s, float *sum, struct span t)
{
    memset(sum, 0, (size_t)(k_blocks(t.count, GEMM_MR) * GEMM_MR * s->span) * sizeof(float));
}

/* --- forward --- */

struct forward {
    const struct k_attn_fwd *a;
    struct shape s;
};

struct forward_tile {
    _Alignas(64) float q[HEAD_SPAN]; /* packed */
    float k[HEAD_SPAN], v[HEAD_SPAN], p[TILE * TILE];
    float scores[TILE * TILE];
    float out[HEAD_SPAN];
    float max[TILE], sum[TILE];
};

static void clear_unseen(float *row, struct seen seen, int64_t keys)
{
    for (int64_t j = 0; j < k_min(seen.from, keys); j++)
        row[j] = 0;
    for (int64_t j = seen.end > 0 ? seen.end : 0; j < keys; j++)
        row[j] = 0;
}

/* Scores of one row become probabilities relative to the running maximum; what was summed under the
 * old maximum shrinks. */
static void softmax_row(
    const struct shape *s, struct forward_tile *w, int64_t row, struct seen seen, int64_t keys)
{
    float *x = w->scores + row * TILE;
    clear_unseen(x, seen, keys);
    if (seen.from >= seen.end)
        return;
    x += seen.from;
    int64_t visible = seen.end - seen.from;
    for (int64_t j = 0; j < visible; j++)
        x[j] *= s->scale;
    float max = k_max(x, visible);
    max = w->max[row] > max ? w->max[row] : max;
    float shrink = k_exp(w->max[row] - max);
    for (int64_t j = 0; j < visible; j++)
        x[j] = k_exp(x[j] - max);
    w->sum[row] = w->sum[row] * shrink + k_sum(x, visible);
    w->max[row] = max;
    float *out = w->out + row * s->span;
    for (int64_t j = 0; j < s->head_dim; j++)
        out[j] *= shrink;
}

static void attend_keys(const struct forward *f, struct forward_tile *w, struct span queries,
    struct span keys, int64_t kv_head)
{
    const struct shape *s = &f->s;
    pack_right_transposed(s, w->k, f->a->qkv, s->qkv_width, keys, k_column(s, kv_head));
    pack_right(s, w->v, f->a->qkv, s->qkv_width, keys, v_column(s, kv_head));
    gemm_panels(queries.count, keys.count, s->head_dim, w->q, w->k, w->scores, TILE, false);
    for (int64_t i = 0; i < queries.count; i++)
        softmax_row(s, w, i, keys_seen(s, queries.token + i, keys), keys.count);
    pack_scores(w->p, w->scores, queries.count, keys.count);
    gemm_panels(queries.count, s->head_dim, keys.count, w->p, w->v, w->out, s->span, true);
}

static void attend_tile(
    const struct forward *f, struct forward_tile *w, int64_t sequence, int64_t head, int64_t tile)
{
    const struct shape *s = &f->s;
    struct span queries = tile_span(s, sequence, tile);
    pack_left(s, w->q, f->a->qkv, s->qkv_width, queries, q_column(s, head));
    clear(s, w->out, queries);
    for (int64_t i = 0; i < queries.count; i++) {
        w->max[i] = -INFINITY;
        w->sum[i] = 0;
    }
    for (int64_t t = first_tile(s, sequence, queries); t <= tile; t++)
        attend_keys(f, w, queries, tile_span(s, sequence, t), head / s->group);
    for (int64_t i = 0; i < queries.count; i++) {
        float *out = w->out + i * s->span, inverse = 1 / w->sum[i];
        for (int64_t j = 0; j < s->head_dim; j++)
            out[j] *= inverse;
        f->a->lse[(queries.token + i) * s->heads + head] = w->max[i] + logf(w->sum[i]);
    }
    store_tile(s, f->a->out, s->out_width, queries, q_column(s, head), w->out);
}

static void attn_fwd(void *arg, int64_t first, int64_t last)
{
    const struct forward *f = arg;
    struct forward_tile w;
    for (int64_t i = first; i < last; i++) {
        int64_t tile = i % f->s.tiles, head = i / f->s.tiles % f->s.heads;
        attend_tile(f, &w, i / f->s.tiles / f->s.heads, head, tile);
    }
}

void K_NAME(k_attn_fwd)(struct pool *p, const struct k_attn_fwd *a)
{
    struct forward f = {.a = a};
    f.s = shape_of(a->type, a->tokens, a->seq, a->heads, a->kv_heads, a->head_dim);
    f.s.positions = a->positions;
    pool_run(p, f.s.batch * f.s.heads * f.s.tiles, attn_fwd, &f);
}

/* --- backward ---
 * With p = softmax(s), s = scale q k^T, out = p v:  dv = p^T dout,  dp = dout v^T,
 * ds = p (dp - sum(dout out)),  dq = scale ds k,  dk = scale ds^T q. */

struct backward {
    const struct k_attn_bwd *a;
    struct shape s;
};

/* scratch = sum over head_dim of dout * out. Items: tokens. */
K_INLINE void dot_token(const struct backward *b, int64_t token, enum k_type type)
{
    const struct k_attn_bwd *a = b->a;
    float x[K_MAX_HEAD_DIM], y[K_MAX_HEAD_DIM];
    int64_t hd = b->s.head_dim;
    for (int64_t h = 0; h < b->s.heads; h++) {
        int64_t at = token * b->s.out_width + h * hd;
        a->scratch[token * b->s.heads + h] =
            k_dot(k_block(type, a->dout, at, hd, x), k_block(type, a->out, at, hd, y), hd);
    }
}

static void attn_bwd_dot(void *arg, int64_t first, int64_t last)
{
    const struct backward *b = arg;
    for (int64_t t = first; t < last; t++)
        K_BY_TYPE(b->s.type, dot_token, b, t);
}

/* Per token of a tile: log-sum-exp, and sum of dout * out. */
struct row_terms {
    float lse[TILE], dot[TILE];
};

static void load_terms(
    const struct backward *b, struct row_terms *r, struct span queries, int64_t head)
{
    for (int64_t i = 0; i < queries.count; i++) {
        r->lse[i] = b->a->lse[(queries.token + i) * b->s.heads + head];
        r->dot[i] = b->a->scratch[(queries.token + i) * b->s.heads + head];
    }
}

struct dq_tile {
    _Alignas(64) float q[HEAD_SPAN]; /* packed */
    float dout[HEAD_SPAN], k[HEAD_SPAN], v[HEAD_SPAN], ds[TILE * TILE];
    float scores[TILE * TILE], dp[TILE * TILE];
    float dq[HEAD_SPAN];
    struct row_terms terms;
};

/* dp of a row becomes scale * ds. */
static void ds_row(
    const struct shape *s, struct dq_tile *w, int64_t row, struct seen seen, int64_t keys)
{
    const float *restrict x = w->scores + row * TILE;
    float *restrict dp = w->dp + row * TILE;
    float lse = w->terms.lse[row], dot = w->terms.dot[row], scale = s->scale;
    for (int64_t j = seen.from; j < seen.end; j++)
        dp[j] = k_exp(x[j] * scale - lse) * (dp[j] - dot) * scale;
    clear_unseen(dp, seen, keys);
}

static void dq_keys(const struct backward *b, struct dq_tile *w, struct span queries,
    struct span keys, int64_t kv_head)
{
    const struct shape *s = &b->s;
    const void *qkv = b->a->qkv;
    pack_right_transposed(s, w->k, qkv, s->qkv_width, keys, k_column(s, kv_head));
    pack_right_transposed(s, w->v, qkv, s->qkv_width, keys, v_column(s, kv_head));
    gemm_panels(queries.count, keys.count, s->head_dim, w->q, w->k, w->scores, TILE, false);
    gemm_panels(queries.count, keys.count, s->head_dim, w->dout, w->v, w->dp, TILE, false);
    for (int64_t i = 0; i < queries.count; i++)
        ds_row(s, w, i, keys_seen(s, queries.token + i, keys), keys.count);
    pack_scores(w->ds, w->dp, queries.count, keys.count);
    pack_right(s, w->k, qkv, s->qkv_width, keys, k_column(s, kv_head));
    gemm_panels(queries.count, s->head_dim, keys.count, w->ds, w->k, w->dq, s->span, true);
}

static void attn_bwd_dq(void *arg, int64_t first, int64_t last)
{
    const struct backward *b = arg;
    const struct shape *s = &b->s;
    struct dq_tile w;
    for (int64_t i = first; i < last; i++) {
        int64_t tile = i % s->tiles, head = i / s->tiles % s->heads;
        int64_t sequence = i / s->tiles / s->heads;
        struct span queries = tile_span(s, sequence, tile);
        pack_left(s, w.q, b->a->qkv, s->qkv_width, queries, q_column(s, head));
        pack_left(s, w.dout, b->a->dout, s->out_width, queries, q_column(s, head));
        load_terms(b, &w.terms, queries, head);
        clear(s, w.dq, queries);
        for (int64_t t = first_tile(s, sequence, queries); t <= tile; t++)
            dq_keys(b, &w, queries, tile_span(s, sequence, t), head / s->group);
        store_tile(s, b->a->dqkv, s->qkv_width, queries, q_column(s, head), w.dq);
    }
}

struct dkv_tile {
    _Alignas(64) float k[HEAD_SPAN]; /* packed */
    float v[HEAD_SPAN], q[HEAD_SPAN], dout[HEAD_SPAN], left[TILE * TILE];
    float scores[TILE * TILE], dp[TILE * TILE];
    float dk[HEAD_SPAN], dv[HEAD_SPAN];
    struct row_terms terms;
};

/* Queries of a tile that see the key: from itself to the last of its document. */
static struct seen queries_seeing(const struct shape *s, int64_t key, struct span queries)
{
    struct seen seen = {key - queries.token, queries.count};
    while (seen.end > 0 && first_seen(s, queries.token + seen.end - 1) > key)
        seen.end--;
    seen.from = seen.from > 0 ? seen.from : 0;
    return seen;
}

/* Scores of one key, over the queries that see it, become p; dp becomes scale * ds. */
static void p_ds_row(
    const struct shape *s, struct dkv_tile *w, int64_t row, struct seen seen, int64_t queries)
{
    float *restrict x = w->scores + row * TILE, *restrict dp = w->dp + row * TILE;
    const float *restrict lse = w->terms.lse, *restrict dot = w->terms.dot;
    for (int64_t j = seen.from; j < seen.end; j++) {
        float p = k_exp(x[j] * s->scale - lse[j]);
        x[j] = p;
        dp[j] = p * (dp[j] - dot[j]) * s->scale;
    }
    clear_unseen(x, seen, queries);
    clear_unseen(dp, seen, queries);
}

static void dkv_queries(const struct backward *b, struct dkv_tile *w, struct span keys,
    struct span queries, int64_t head)
{
    const struct shape *s = &b->s;
    const struct k_attn_bwd *a = b->a;
    int64_t column = q_column(s, head);
    load_terms(b, &w->terms, queries, head);
    pack_right_transposed(s, w->q, a->qkv, s->qkv_width, queries, column);
    pack_right_transposed(s, w->dout, a->dout, s->out_width, queries, column);
    gemm_panels(keys.count, queries.count, s->head_dim, w->k, w->q, w->scores, TILE, false);
    gemm_panels(keys.count, queries.count, s->head_dim, w->v, w->dout, w->dp, TILE, false);
    for (int64_t i = 0; i < keys.count; i++)
        p_ds_row(s, w, i, queries_seeing(s, keys.token + i, queries), queries.count);
    pack_right(s, w->q, a->qkv, s->qkv_width, queries, column);
    pack_right(s, w->dout, a->dout, s->out_width, queries, column);
    pack_scores(w->left, w->scores, keys.count, queries.count);
    gemm_panels(keys.count, s->head_dim, queries.count, w->left, w->dout, w->dv, s->span, true);
    pack_scores(w->left, w->dp, keys.count, queries.count);
    gemm_panels(keys.count, s->head_dim, queries.count, w->left, w->q, w->dk, s->span, true);
}

/* The tile of the sequence with the last query that sees any key of a tile: the next document
 * begins behind it. */
static int64_t last_tile(const struct shape *s, int64_t sequence, struct span keys)
{
    int64_t end = (sequence + 1) * s->seq, last = keys.token + keys.count - 1;
    if (!s->positions)
        return s->tiles - 1;
    while (last + 1 < end && s->positions[last + 1] > 0)
        last++;
    return (last - sequence * s->seq) / s->tile;
}

static void attn_bwd_dkv(void *arg, int64_t first, int64_t last)
{
    const struct backward *b = arg;
    const struct shape *s = &b->s;
    struct dkv_tile w;
    for (int64_t i = first; i < last; i++) {
        int64_t tile = i % s->tiles, kv_head = i / s->tiles % s->kv_heads;
        int64_t sequence = i / s->tiles / s->kv_heads;
        struct span keys = tile_span(s, sequence, tile);
        pack_left(s, w.k, b->a->qkv, s->qkv_width, keys, k_column(s, kv_head));
        pack_left(s, w.v, b->a->qkv, s->qkv_width, keys, v_column(s, kv_head));
        clear(s, w.dk, keys);
        clear(s, w.dv, keys);
        for (int64_t h = kv_head * s->group; h < (kv_head + 1) * s->group; h++)
            for (int64_t t = tile; t <= last_tile(s, sequence, keys); t++)
                dkv_queries(b, &w, keys, tile_span(s, sequence, t), h);
        store_tile(s, b->a->dqkv, s->qkv_width, keys, k_column(s, kv_head), w.dk);
        store_tile(s, b->a->dqkv, s->qkv_width, keys, v_column(s, kv_head), w.dv);
    }
}

void K_NAME(k_attn_bwd)(struct pool *p, const struct k_attn_bwd *a)
{
    struct backward b = {.a = a};
    b.s = shape_of(a->type, a->tokens, a->seq, a->heads, a->kv_heads, a->head_dim);
    b.s.positions = a->positions;
    pool_run(p, a->tokens, attn_bwd_dot, &b);
    pool_run(p, b.s.batch * b.s.heads * b.s.tiles, attn_bwd_dq, &b);
    pool_run(p, b.s.batch * b.s.kv_heads * b.s.tiles, attn_bwd_dkv, &b);
}
