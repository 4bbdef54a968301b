/* Causal attention without tensor cores: the reference on GPUs, and what runs where the library has
 * none (FlashAttention's order of things: Dao et al. 2022, 2023).
 *
 * A warp has a row or two: queries, or in the last kernel keys. The other side comes in tiles of 32
 * tokens of one head through shared memory, one a lane for scores and one after the other for sums.
 * Nothing is added by two blocks, so results repeat. Documents of a sequence are spans of it: what
 * a query sees begins at the first token of its document. */
#include "kernels/gpu_kernel.cuh"

enum {
    WARPS = 4,
    TILE = GPU_WARP,
    PITCH = K_MAX_HEAD_DIM + 1, /* lanes that read one column of a tile meet no bank twice */
    PER_LANE = K_MAX_HEAD_DIM / GPU_WARP,
    QUERIES = 2, /* of a warp */
    BLOCK_QUERIES = WARPS * QUERIES
};

struct shape {
    int64_t tokens, seq, heads, kv_heads, head_dim, qkv_width;
    const int32_t *positions;
    float scale;
};

static struct shape shape_of(int64_t tokens, int64_t seq, int64_t heads, int64_t kv_heads,
    int64_t head_dim, const int32_t *positions)
{
    struct shape s = {tokens, seq, heads, kv_heads, head_dim, (heads + 2 * kv_heads) * head_dim,
        positions, (float)(1 / sqrt((double)head_dim))};
    return s;
}

/* First token of the sequence that token t of it sees; base: the sequence's first. */
GPU_INLINE int64_t first_seen(const struct shape &s, int64_t base, int64_t t)
{
    return s.positions ? t - s.positions[base + t] : 0;
}

/* n rows of head_dim from rows that are width apart; those behind the last become zero. All threads
 * of the block call it, with a barrier before and after. */
template <class T>
GPU_INLINE void load_rows(
    float *to, int64_t pitch, const T *from, int64_t width, int64_t n, int64_t rows, int64_t dim)
{
    for (int64_t i = threadIdx.y * GPU_WARP + threadIdx.x; i < rows * dim; i += WARPS * GPU_WARP) {
        int64_t r = i / dim, c = i % dim;
        to[r * pitch + c] = r < n ? gpu_load(from + r * width + c) : 0;
    }
}

template <class T>
GPU_INLINE void load_tile(float *tile, const T *from, int64_t width, int64_t n, int64_t dim)
{
    __syncthreads();
    load_rows(tile, PITCH, from, width, n, TILE, dim);
    __syncthreads();
}

/* Of the lane's row of the tile with a vector that all lanes share. */
GPU_INLINE float dot(const float *tile, const float *x, int64_t dim)
{
    const float *row = tile + threadIdx.x * PITCH;
    float sum = 0;
    for (int64_t i = 0; i < dim; i++)
        sum = fmaf(row[i], x[i], sum);
    return sum;
}

/* Of a head's elements the lane has every 32nd. */
GPU_INLINE int own_column(int i)
{
    return (int)threadIdx.x + i * GPU_WARP;
}

/* acc += sum of factor times the tile's rows, factors a lane each. */
GPU_INLINE void add_rows(float *acc, float factor, const float *tile, int64_t dim)
{
    for (int j = 0; j < TILE; j++) {
        float f = __shfl_sync(~0u, factor, j);
        for (int i = 0; i < PER_LANE; i++)
            if (own_column(i) < dim)
                acc[i] = fmaf(f, tile[j * PITCH + own_column(i)], acc[i]);
    }
}

template <class T> GPU_INLINE void put_row(T *to, const float *acc, float factor, int64_t dim)
{
    for (int i = 0; i < PER_LANE; i++)
        if (own_column(i) < dim)
            gpu_store(to + own_column(i), acc[i] * factor);
}

/* --- forward: a block per BLOCK_QUERIES queries, head and sequence --- */

struct running {
    float max, sum, p;
    float acc[PER_LANE];
};

/* Takes the lane's score; p becomes what its value counts. */
GPU_INLINE void take_score(struct running *r, float score)
{
    float top = gpu_warp_max(score), shrink = 1;
    top = top > r->max ? top : r->max;
    r->p = 0;
    if (top > -INFINITY) {
        shrink = expf(r->max - top);
        r->p = expf(score - top);
    }
    r->max = top;
    r->sum = r->sum * shrink + gpu_warp_sum(r->p);
    for (int i = 0; i < PER_LANE; i++)
        r->acc[i] *= shrink;
}

template <class T> __global__ void attn_fwd(T *out, float *lse, const T *qkv, struct shape s)
{
    GPU_SHARED(float, tile, TILE *PITCH);
    GPU_SHARED(float, query, BLOCK_QUERIES *K_MAX_HEAD_DIM);
    int64_t first = (int64_t)blockIdx.x * BLOCK_QUERIES, head = blockIdx.y;
    int64_t base = (int64_t)blockIdx.z * s.seq, kv = head / (s.heads / s.kv_heads);
    int64_t last = first + BLOCK_QUERIES < s.seq ? first + BLOCK_QUERIES : s.seq;
    const T *keys = qkv + base * s.qkv_width + (s.heads + kv) * s.head_dim;
    const T *values = keys + s.kv_heads * s.head_dim;
    struct running r[QUERIES];
    for (int q = 0; q < QUERIES; q++) {
        r[q].max = -INFINITY;
        r[q].sum = r[q].p = 0;
        for (int i = 0; i < PER_LANE; i++)
            r[q].acc[i] = 0;
    }
    load_rows(query, K_MAX_HEAD_DIM, qkv + (base + first) * s.qkv_width + head * s.head_dim,
        s.qkv_width, last - first, BLOCK_QUERIES, s.head_dim);
    for (int64_t at = first_seen(s, base, first); at < last; at += TILE) {
        load_tile(tile, keys + at * s.qkv_width, s.qkv_width, last - at, s.head_dim);
        for (int q = 0; q < QUERIES; q++) {
            int64_t row = threadIdx.y * QUERIES + q, t = first + row, key = at + threadIdx.x;
            float score = -INFINITY;
            if (t < last && key <= t && key >= first_seen(s, base, t))
                score = dot(tile, query + row * K_MAX_HEAD_DIM, s.head_dim) * s.scale;
            __syncwarp();
            take_score(&r[q], score);
        }
        load_tile(tile, values + at * s.qkv_width, s.qkv_width, last - at, s.head_dim);
        for (int q = 0; q < QUERIES; q++)
            add_rows(r[q].acc, r[q].p, tile, s.head_dim);
    }
    for (int q = 0; q < QUERIES; q++) {
        int64_t t = first + threadIdx.y * QUERIES + q;
        if (t >= last)
            continue;
        put_row(
            out + ((base + t) * s.heads + head) * s.head_dim, r[q].acc, 1 / r[q].sum, s.head_dim);
        if (threadIdx.x == 0)
            lse[(base + t) * s.heads + head] = r[q].max + logf(r[q].sum);
    }
}

template <class T> static void run_attn_fwd(struct pool *p, const struct k_attn_fwd *a)
{
    struct shape s = shape_of(a->tokens, a->seq, a->heads, a->kv_heads, a->head_dim, a->positions);
    dim3 grid(
        gpu_blocks(a->seq, BLOCK_QUERIES), (unsigned)a->heads, (unsigned)(a->tokens / a->seq));
    GPU_LAUNCH(attn_fwd<T>, grid, dim3(GPU_WARP, WARPS), gpu_lane_of(p), (T *)a->out, a->lse,
        (const T *)a->qkv, s);
}

void gpu_attn_fwd(struct pool *p, const struct k_attn_fwd *a)
{
    if (a->tokens > 0)
        GPU_BY_TYPE(a->type, run_attn_fwd, p, a);
}

/* --- backward: P = exp(S - lse), dP = dO V^T, dS = P (dP - delta) scale --- */

/* delta = sum of dO O over a head: a warp each. */
template <class T>
__global__ void attn_delta(float *delta, const T *dout, const T *out, int64_t rows, int64_t dim)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    float sum = 0;
    if (row >= rows)
        return;
    for (int64_t i = threadIdx.x; i < dim; i += GPU_WARP)
        sum = fmaf(gpu_load(dout + row * dim + i), gpu_load(out + row * dim + i), sum);
    sum = gpu_warp_sum(sum);
    if (threadIdx.x == 0)
        delta[row] = sum;
}

/* dQ: as forward. */
template <class T>
__global__ void attn_dq(
    T *dqkv, const T *dout, const T *qkv, const float *lse, const float *delta, struct shape s)
{
    GPU_SHARED(float, tile, TILE *PITCH);
    GPU_SHARED(float, query, WARPS *K_MAX_HEAD_DIM);
    GPU_SHARED(float, dquery, WARPS *K_MAX_HEAD_DIM);
    int64_t first = (int64_t)blockIdx.x * WARPS, head = blockIdx.y;
    int64_t base = (int64_t)blockIdx.z * s.seq, kv = head / (s.heads / s.kv_heads);
    int64_t last = first + WARPS < s.seq ? first + WARPS : s.seq, t = first + threadIdx.y;
    int64_t row = (base + (t < last ? t : first)) * s.heads + head;
    const T *keys = qkv + base * s.qkv_width + (s.heads + kv) * s.head_dim;
    const T *values = keys + s.kv_heads * s.head_dim;
    const float *own = query + threadIdx.y * K_MAX_HEAD_DIM;
    const float *down = dquery + threadIdx.y * K_MAX_HEAD_DIM;
    float acc[PER_LANE] = {0};
    load_rows(query, K_MAX_HEAD_DIM, qkv + (base + first) * s.qkv_width + head * s.head_dim,
        s.qkv_width, last - first, WARPS, s.head_dim);
    load_rows(dquery, K_MAX_HEAD_DIM, dout + ((base + first) * s.heads + head) * s.head_dim,
        s.heads * s.head_dim, last - first, WARPS, s.head_dim);
    for (int64_t at = first_seen(s, base, first); at < last; at += TILE) {
        int64_t key = at + threadIdx.x;
        bool is_seen = t < last && key <= t && key >= first_seen(s, base, t);
        load_tile(tile, keys + at * s.qkv_width, s.qkv_width, last - at, s.head_dim);
        float p = is_seen ? expf(dot(tile, own, s.head_dim) * s.scale - lse[row]) : 0;
        load_tile(tile, values + at * s.qkv_width, s.qkv_width, last - at, s.head_dim);
        float ds = is_seen ? p * (dot(tile, down, s.head_dim) - delta[row]) * s.scale : 0;
        load_tile(tile, keys + at * s.qkv_width, s.qkv_width, last - at, s.head_dim);
        add_rows(acc, ds, tile, s.head_dim);
    }
    if (t < last)
        put_row(dqkv + (base + t) * s.qkv_width + head * s.head_dim, acc, 1, s.head_dim);
}

/* dK and dV: a warp per key of a key head; the queries of all heads of its group in order. */
template <class T>
__global__ void attn_dkv(
    T *dqkv, const T *dout, const T *qkv, const float *lse, const float *delta, struct shape s)
{
    GPU_SHARED(float, tile, TILE *PITCH);
    GPU_SHARED(float, keys, WARPS *K_MAX_HEAD_DIM);
    GPU_SHARED(float, values, WARPS *K_MAX_HEAD_DIM);
    int64_t first = (int64_t)blockIdx.x * WARPS, kv = blockIdx.y, group = s.heads / s.kv_heads;
    int64_t base = (int64_t)blockIdx.z * s.seq, key = first + threadIdx.y;
    int64_t last = first + WARPS < s.seq ? first + WARPS : s.seq;
    const T *from = qkv + (base + first) * s.qkv_width + (s.heads + kv) * s.head_dim;
    const float *own = keys + threadIdx.y * K_MAX_HEAD_DIM;
    const float *value = values + threadIdx.y * K_MAX_HEAD_DIM;
    float dk[PER_LANE] = {0}, dv[PER_LANE] = {0};
    load_rows(keys, K_MAX_HEAD_DIM, from, s.qkv_width, last - first, WARPS, s.head_dim);
    load_rows(values, K_MAX_HEAD_DIM, from + s.kv_heads * s.head_dim, s.qkv_width, last - first,
        WARPS, s.head_dim);
    for (int64_t head = kv * group; head < (kv + 1) * group; head++)
        for (int64_t at = first; at < s.seq && first_seen(s, base, at) < last; at += TILE) {
            int64_t t = at + threadIdx.x, row = (base + t) * s.heads + head;
            bool sees = t < s.seq && key < last && key <= t && key >= first_seen(s, base, t);
            const T *queries = qkv + (base + at) * s.qkv_width + head * s.head_dim;
            load_tile(tile, queries, s.qkv_width, s.seq - at, s.head_dim);
            float p = sees ? expf(dot(tile, own, s.head_dim) * s.scale - lse[row]) : 0;
            load_tile(tile, dout + ((base + at) * s.heads + head) * s.head_dim,
                s.heads * s.head_dim, s.seq - at, s.head_dim);
            float ds = sees ? p * (dot(tile, value, s.head_dim) - delta[row]) * s.scale : 0;
            __syncwarp();
            add_rows(dv, p, tile, s.head_dim);
            load_tile(tile, queries, s.qkv_width, s.seq - at, s.head_dim);
            add_rows(dk, ds, tile, s.head_dim);
        }
    if (key >= last)
        return;
    T *to = dqkv + (base + key) * s.qkv_width + (s.heads + kv) * s.head_dim;
    put_row(to, dk, 1, s.head_dim);
    put_row(to + s.kv_heads * s.head_dim, dv, 1, s.head_dim);
}

template <class T> static void run_attn_bwd(struct pool *p, const struct k_attn_bwd *a)
{
    const struct gpu_lane *lane = gpu_lane_of(p);
    struct shape s = shape_of(a->tokens, a->seq, a->heads, a->kv_heads, a->head_dim, a->positions);
    const T *dout = (const T *)a->dout, *qkv = (const T *)a->qkv;
    unsigned rows = gpu_blocks(a->seq, WARPS), batch = (unsigned)(a->tokens / a->seq);
    dim3 block(GPU_WARP, WARPS);
    GPU_LAUNCH(attn_delta<T>, gpu_blocks(a->tokens * a->heads, WARPS), block, lane, a->scratch,
        dout, (const T *)a->out, a->tokens * a->heads, a->head_dim);
    GPU_LAUNCH(attn_dq<T>, dim3(rows, (unsigned)a->heads, batch), block, lane, (T *)a->dqkv, dout,
        qkv, a->lse, a->scratch, s);
    GPU_LAUNCH(attn_dkv<T>, dim3(rows, (unsigned)a->kv_heads, batch), block, lane, (T *)a->dqkv,
        dout, qkv, a->lse, a->scratch, s);
}

void gpu_attn_bwd(struct pool *p, const struct k_attn_bwd *a)
{
    if (a->tokens > 0)
        GPU_BY_TYPE(a->type, run_attn_bwd, p, a);
}
