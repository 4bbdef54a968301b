/* Square sums of gradients, weights in three forms, moments in three, AdamW and SGD. A warp has 128
 * elements, four a lane: the ones that share a scale where moments are kept in blocks. */
#include "kernels/both.h"
#include "kernels/gpu_kernel.cuh"
#include "kernels/moment_codes.h"

enum { EACH = 4, PIECE = GPU_WARP * EACH, WARPS = 8 };
static_assert((int)PIECE == (int)K_MOMENT_BLOCK, "a warp has what shares a scale");

/* --- square sum: in the CPU's order, for the same bits --- */

enum { SUM_LANES = 16 };

/* Sixteen lanes a block of K_NORM_BLOCK, each with every sixteenth element. */
__global__ void square_sums(const float *grad, int64_t n, int64_t blocks, double *out)
{
    int lane = threadIdx.x % SUM_LANES;
    int64_t block = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / SUM_LANES;
    int64_t at = block * K_NORM_BLOCK, end = at + K_NORM_BLOCK < n ? at + K_NORM_BLOCK : n;
    double sum = 0;
    for (int64_t i = at + lane; i < end; i += SUM_LANES)
        sum += (double)grad[i] * (double)grad[i];
    for (int half = SUM_LANES / 2; half > 0; half /= 2)
        sum += __shfl_xor_sync(~0u, sum, half);
    if (lane == 0 && block < blocks)
        out[block] = sum;
}

/* *total = ((*total + part[0]) + part[1]) + ... */
__global__ void add_parts(double *total, const double *part, int64_t n)
{
    GPU_SHARED(double, some, GPU_THREADS);
    double sum = *total;
    for (int64_t first = 0; first < n; first += GPU_THREADS) {
        int64_t left = n - first;
        __syncthreads();
        some[threadIdx.x] = threadIdx.x < left ? part[first + threadIdx.x] : 0;
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < GPU_THREADS && i < left; i++)
            sum += some[i];
    }
    if (threadIdx.x == 0)
        *total = sum;
}

void gpu_add_in_order(struct pool *p, double *total, const double *part, int64_t n)
{
    GPU_LAUNCH(add_parts, 1, GPU_THREADS, gpu_lane_of(p), total, part, n);
}

void gpu_grad_norm(struct pool *p, const float *grad, int64_t n, double *square_sum)
{
    const struct gpu_lane *lane = gpu_lane_of(p);
    double *part = (double *)lane->scratch;
    const int64_t most = GPU_SCRATCH_BYTES / (int64_t)sizeof(*part) * K_NORM_BLOCK;
    for (int64_t at = 0; at < n; at += most) {
        int64_t len = n - at < most ? n - at : most;
        int64_t blocks = (len + K_NORM_BLOCK - 1) / K_NORM_BLOCK;
        GPU_LAUNCH(square_sums, gpu_blocks(blocks * SUM_LANES, GPU_THREADS), GPU_THREADS, lane,
            grad + at, len, blocks, part);
        gpu_add_in_order(p, square_sum, part, blocks);
    }
}

/* --- a lane's elements --- */

/* Of the elements at .. at + n - 1 of a range the first n are the lane's; n may be 0. */
struct own {
    int64_t at;
    int n;
};

/* offset: of the range's first element in its block. */
GPU_INLINE struct own own_elements(int64_t offset, int64_t elems, int64_t *piece)
{
    *piece = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    int64_t begin = *piece * PIECE - offset + threadIdx.x * EACH, end = begin + EACH;
    begin = begin < 0 ? 0 : begin;
    end = end > elems ? elems : end;
    struct own o = {begin, end > begin ? (int)(end - begin) : 0};
    return o;
}

GPU_INLINE void take4(float *v, const float *p, struct own o)
{
    if (o.n == EACH && (uintptr_t)(p + o.at) % 16 == 0) {
        float4 u = *(const float4 *)(p + o.at);
        v[0] = u.x, v[1] = u.y, v[2] = u.z, v[3] = u.w;
        return;
    }
    for (int j = 0; j < EACH; j++)
        v[j] = j < o.n ? p[o.at + j] : 0;
}

GPU_INLINE void put4(float *p, const float *v, struct own o)
{
    if (o.n == EACH && (uintptr_t)(p + o.at) % 16 == 0)
        *(float4 *)(p + o.at) = make_float4(v[0], v[1], v[2], v[3]);
    else
        for (int j = 0; j < EACH; j++)
            if (j < o.n)
                p[o.at + j] = v[j];
}

GPU_INLINE void take4(uint16_t *v, const uint16_t *p, struct own o)
{
    if (o.n == EACH && (uintptr_t)(p + o.at) % 8 == 0) {
        uint2 u = *(const uint2 *)(p + o.at);
        v[0] = (uint16_t)u.x, v[1] = (uint16_t)(u.x >> 16);
        v[2] = (uint16_t)u.y, v[3] = (uint16_t)(u.y >> 16);
        return;
    }
    for (int j = 0; j < EACH; j++)
        v[j] = j < o.n ? p[o.at + j] : 0;
}

GPU_INLINE void put4(uint16_t *p, const uint16_t *v, struct own o)
{
    if (o.n == EACH && (uintptr_t)(p + o.at) % 8 == 0)
        *(uint2 *)(p + o.at) = make_uint2(v[0] | (uint32_t)v[1] << 16, v[2] | (uint32_t)v[3] << 16);
    else
        for (int j = 0; j < EACH; j++)
            if (j < o.n)
                p[o.at + j] = v[j];
}

/* --- weights --- */

GPU_INLINE uint32_t random_of(uint64_t key, uint64_t number)
{
    uint32_t mixed = (uint32_t)key ^ (uint32_t)(key >> 32) * (uint32_t)(number >> 32);
    return k_random16(mixed, (uint32_t)number);
}

/* Up with the probability of the distance to the lower neighbour; nothing becomes infinite. */
GPU_INLINE uint16_t round_randomly(float x, uint32_t random16)
{
    uint32_t u = __float_as_uint(x);
    return (uint16_t)((u & 0x7f800000) >= 0x7f000000 ? gpu_round(x) : (u + random16) >> 16);
}

GPU_INLINE void load_weights(float *v, const struct k_weights &w, struct own o)
{
    uint16_t param[EACH], low[EACH] = {0};
    if (w.form == K_WEIGHTS_MASTER) {
        take4(v, w.master, o);
        return;
    }
    take4(param, w.param, o);
    if (w.form == K_WEIGHTS_SPLIT)
        take4(low, w.low, o);
    for (int j = 0; j < EACH; j++)
        v[j] = __uint_as_float((uint32_t)(uint16_t)(param[j] - (low[j] >> 15)) << 16 | low[j]);
}

/* A copy, or halves, or rounded at random (is_exact: to nearest). */
GPU_INLINE void store_weights(
    const struct k_weights &w, const float *v, struct own o, bool is_exact)
{
    uint16_t param[EACH], low[EACH];
    for (int j = 0; j < EACH; j++) {
        uint32_t u = __float_as_uint(v[j]);
        low[j] = (uint16_t)u;
        if (w.form == K_WEIGHTS_SPLIT)
            param[j] = (uint16_t)((u >> 16) + (u >> 15 & 1));
        else if (w.form == K_WEIGHTS_PURE && !is_exact)
            param[j] = round_randomly(v[j], random_of(w.key, (uint64_t)(w.first + o.at + j)));
        else
            param[j] = (uint16_t)gpu_round(v[j]);
    }
    if (w.form == K_WEIGHTS_MASTER)
        put4(w.master, v, o);
    if (w.form == K_WEIGHTS_SPLIT)
        put4(w.low, low, o);
    if (w.param)
        put4(w.param, param, o);
}

/* --- moments --- */

#ifdef __CUDACC__
__device__ struct k_moment_codes codes[2]; /* signed, unsigned */

int gpu_optim_open(void)
{
    cudaError_t rc = cudaSuccess;
    for (int k = 0; k < 2 && rc == cudaSuccess; k++) {
        struct k_moment m = {};
        m.form = K_MOMENT_BLOCKS;
        m.is_square = k == 1;
        rc = cudaMemcpyToSymbol(
            codes, k_moment_codes(&m), sizeof(codes[0]), (size_t)k * sizeof(codes[0]));
    }
    return (int)rc;
}

GPU_INLINE const struct k_moment_codes *codes_of(const struct k_moment &m)
{
    return &codes[m.is_square];
}
#else
GPU_INLINE const struct k_moment_codes *codes_of(const struct k_moment &m)
{
    return k_moment_codes(&m);
}
#endif

GPU_INLINE int64_t offset_of(const struct k_moment &m)
{
    return m.form == K_MOMENT_BLOCKS ? m.first % K_MOMENT_BLOCK : 0;
}

GPU_INLINE void load_moment(float *v, const struct k_moment &m, struct own o, int64_t piece)
{
    if (m.form == K_MOMENT_FP32) {
        take4(v, m.fp32, o);
        return;
    }
    float scale = o.n > 0 ? m.scale[m.form == K_MOMENT_BLOCKS ? piece : 0] : 0;
    for (int j = 0; j < EACH; j++) {
        uint8_t code = j < o.n ? m.code[o.at + j] : 0;
        v[j] = (m.form == K_MOMENT_FP8 ? k_moment_e4m3(code) : codes_of(m)->value[code]) * scale;
        v[j] = m.is_square ? v[j] * v[j] : v[j];
    }
}

/* The code of a number of the scale: one of its neighbours, the upper one when the share of the way
 * there is above draw. */
GPU_INLINE int32_t code_of(const struct k_moment_codes *t, float size, float draw)
{
    int32_t cell = (int32_t)(__float_as_uint(size) >> 16) - K_MOMENT_LOW_CELL;
    cell = cell > 0 ? cell : 0;
    struct k_moment_cell at = t->cell[cell < K_MOMENT_CELLS ? cell : K_MOMENT_CELLS - 1];
    int32_t c = at.code + (at.next <= size);
    return c + ((size - t->step[c].size) * t->step[c].per_gap > draw);
}

/* scale: fp8's. All lanes of a warp call it. */
GPU_INLINE void store_moment(const struct k_moment &m, const float *v, struct own o, int64_t piece,
    float scale, bool is_random)
{
    if (m.form == K_MOMENT_FP32) {
        put4(m.fp32, v, o);
        return;
    }
    float x[EACH], largest = 0;
    for (int j = 0; j < EACH; j++) {
        x[j] = j < o.n ? (m.is_square ? sqrtf(v[j]) : v[j]) : 0;
        largest = fmaxf(largest, fabsf(x[j]));
    }
    if (m.form == K_MOMENT_BLOCKS) {
        scale = gpu_warp_max(largest);
        __syncwarp(); /* all have read the old one */
        if (threadIdx.x == 0)
            m.scale[piece] = scale;
    }
    float divisor = scale > 0 ? scale : 1;
    for (int j = 0; j < EACH; j++) {
        float u = 0.5f;
        if (j >= o.n)
            continue;
        if (is_random)
            u = ((float)random_of(m.key, (uint64_t)(m.first + o.at + j)) + 0.5f) * 0x1p-16f;
        float size = fabsf(x[j]) / divisor;
        int32_t c =
            m.form == K_MOMENT_FP8 ? k_moment_e4m3_code(size, u) : code_of(codes_of(m), size, u);
        if (m.is_square) /* of a root only nothing becomes nothing */
            c = c == 0 && x[j] > 0 ? 1 : c;
        else
            c |= c > 0 && x[j] < 0 ? 128 : 0;
        m.code[o.at + j] = (uint8_t)c;
    }
}

/* --- updates --- */

/* A step as constants. AdamW: w = w decay - rate m / (sqrt(v) inv_root + eps). */
struct update {
    bool is_sgd;
    int64_t elems;
    const float *grad;
    struct k_moment m, v;
    struct k_weights weights;
    struct k_gate gate;
    float beta1, one_less_beta1, beta2, one_less_beta2, decay, rate, inv_root, eps;
    float momentum;    /* SGD */
    uint32_t *largest; /* of fp8 moments: bits of the new values */
};

GPU_INLINE void next_moments(
    const struct update &c, float clip, float grad, float w, float *m, float *v)
{
    float g = grad * clip;
    if (c.is_sgd) {
        *m = c.momentum * *m + (g + c.decay * w);
        return;
    }
    *m = c.beta1 * *m + c.one_less_beta1 * g;
    *v = c.beta2 * *v + c.one_less_beta2 * g * g;
}

GPU_INLINE float next_weight(const struct update &c, float w, float m, float v)
{
    if (c.is_sgd)
        return w - c.rate * m;
    return w * c.decay - c.rate * m / (sqrtf(v) * c.inv_root + c.eps);
}

GPU_INLINE float fp8_scale(const struct k_moment &m, uint32_t largest)
{
    float x = __uint_as_float(largest);
    return m.form == K_MOMENT_FP8 ? k_moment_fp8_scale(m.is_square ? sqrtf(x) : x) : 0;
}

GPU_INLINE void raise_to_warp_max(uint32_t *largest, const float *v, int n)
{
    float most = 0;
    for (int j = 0; j < EACH; j++)
        most = j < n ? fmaxf(most, fabsf(v[j])) : most;
    most = gpu_warp_max(most);
    if (threadIdx.x == 0)
        atomicMax(largest, __float_as_uint(most));
}

/* A closed gate leaves all as it is, but a copy is written. */
GPU_INLINE void keep(const struct update &c, struct own o)
{
    float w[EACH];
    if (c.weights.form != K_WEIGHTS_MASTER || !c.weights.param)
        return;
    load_weights(w, c.weights, o);
    store_weights(c.weights, w, o, true);
}

/* is_first: of the two passes that moments in fp8 need, the one that finds the scales. */
__global__ void update(struct update c, bool is_skipped, bool is_first)
{
    int64_t piece;
    struct own o = own_elements(offset_of(c.m), c.elems, &piece);
    float w[EACH], g[EACH], m[EACH], v[EACH];
    double clip;
    if (!k_gate_is_open(&c.gate, &clip) || is_skipped) {
        if (!is_first)
            keep(c, o);
        return;
    }
    if (piece * PIECE - offset_of(c.m) >= c.elems)
        return;
    load_weights(w, c.weights, o);
    take4(g, c.grad, o);
    load_moment(m, c.m, o, piece);
    if (!c.is_sgd)
        load_moment(v, c.v, o, piece);
    for (int j = 0; j < EACH; j++)
        next_moments(c, (float)clip, g[j], w[j], &m[j], &v[j]);
    if (is_first) {
        raise_to_warp_max(&c.largest[0], m, o.n);
        if (!c.is_sgd)
            raise_to_warp_max(&c.largest[1], v, o.n);
        return;
    }
    for (int j = 0; j < EACH; j++)
        w[j] = next_weight(c, w[j], m[j], v[j]);
    store_weights(c.weights, w, o, false);
    store_moment(c.m, m, o, piece, fp8_scale(c.m, c.largest[0]), true);
    if (!c.is_sgd)
        store_moment(c.v, v, o, piece, fp8_scale(c.v, c.largest[1]), true);
}

__global__ void set_scales(struct update c, bool is_skipped)
{
    double clip;
    if (!k_gate_is_open(&c.gate, &clip) || is_skipped)
        return;
    *c.m.scale = fp8_scale(c.m, c.largest[0]);
    if (!c.is_sgd)
        *c.v.scale = fp8_scale(c.v, c.largest[1]);
}

static void run_update(struct pool *p, struct update *c, bool is_skipped)
{
    const struct gpu_lane *lane = gpu_lane_of(p);
    int64_t offset = c->m.form == K_MOMENT_BLOCKS ? c->m.first % K_MOMENT_BLOCK : 0;
    unsigned grid = gpu_blocks(c->elems + offset, PIECE * WARPS);
    dim3 block(GPU_WARP, WARPS);
    c->largest = (uint32_t *)lane->scratch;
    if (c->elems <= 0)
        return;
    if (c->m.form == K_MOMENT_FP8) {
        gpu_zero(p, c->largest, 2 * (int64_t)sizeof(*c->largest));
        GPU_LAUNCH(update, grid, block, lane, *c, is_skipped, true);
    }
    GPU_LAUNCH(update, grid, block, lane, *c, is_skipped, false);
    if (c->m.form == K_MOMENT_FP8)
        GPU_LAUNCH(set_scales, 1, 1, lane, *c, is_skipped);
}

void gpu_adamw(struct pool *p, const struct k_adamw *a)
{
    double correction1 = 1 - pow(a->beta1, (double)a->step);
    double correction2 = 1 - pow(a->beta2, (double)a->step);
    struct update c = {false, a->elems, a->grad, a->m, a->v, a->weights, a->gate};
    c.beta1 = (float)a->beta1;
    c.one_less_beta1 = (float)(1 - a->beta1);
    c.beta2 = (float)a->beta2;
    c.one_less_beta2 = (float)(1 - a->beta2);
    c.decay = (float)(1 - a->lr * a->weight_decay);
    c.rate = (float)(a->lr / correction1);
    c.inv_root = (float)(1 / sqrt(correction2));
    c.eps = (float)a->eps;
    run_update(p, &c, a->skip);
}

void gpu_sgd(struct pool *p, const struct k_sgd *a)
{
    struct update c = {true, a->elems, a->grad, a->m, a->m, a->weights, a->gate};
    c.momentum = (float)a->momentum;
    c.decay = (float)a->weight_decay;
    c.rate = (float)a->lr;
    run_update(p, &c, a->skip);
}

/* --- between forms --- */

__global__ void read_weights(float *dst, struct k_weights w, int64_t n)
{
    int64_t piece;
    struct own o = own_elements(0, n, &piece);
    float v[EACH];
    load_weights(v, w, o);
    put4(dst, v, o);
}

__global__ void write_weights(struct k_weights w, const float *src, int64_t n)
{
    int64_t piece;
    struct own o = own_elements(0, n, &piece);
    float v[EACH];
    take4(v, src, o);
    store_weights(w, v, o, true);
}

void gpu_weights_read(struct pool *p, float *dst, const struct k_weights *w, int64_t n)
{
    if (n > 0)
        GPU_LAUNCH(read_weights, gpu_blocks(n, PIECE * WARPS), dim3(GPU_WARP, WARPS),
            gpu_lane_of(p), dst, *w, n);
}

void gpu_weights_write(struct pool *p, const struct k_weights *w, const float *src, int64_t n)
{
    if (n > 0)
        GPU_LAUNCH(write_weights, gpu_blocks(n, PIECE * WARPS), dim3(GPU_WARP, WARPS),
            gpu_lane_of(p), *w, src, n);
}

__global__ void read_moment(float *dst, struct k_moment m, int64_t n)
{
    int64_t piece;
    struct own o = own_elements(offset_of(m), n, &piece);
    float v[EACH];
    if (piece * PIECE - offset_of(m) >= n)
        return;
    load_moment(v, m, o, piece);
    put4(dst, v, o);
}

void gpu_moment_read(struct pool *p, float *dst, const struct k_moment *m, int64_t n)
{
    int64_t offset = m->form == K_MOMENT_BLOCKS ? m->first % K_MOMENT_BLOCK : 0;
    if (n > 0)
        GPU_LAUNCH(read_moment, gpu_blocks(n + offset, PIECE * WARPS), dim3(GPU_WARP, WARPS),
            gpu_lane_of(p), dst, *m, n);
}

/* Of fp8: the largest of what is written. */
__global__ void find_largest(const float *src, int64_t n, uint32_t *largest)
{
    int64_t piece;
    struct own o = own_elements(0, n, &piece);
    float v[EACH];
    take4(v, src, o);
    raise_to_warp_max(largest, v, o.n);
}

/* Codes of the old scale become those of a larger one. */
__global__ void grow_codes(struct k_moment m, int64_t elems, const uint32_t *largest)
{
    int64_t piece;
    struct own o = own_elements(0, elems, &piece);
    float v[EACH], scale = fp8_scale(m, *largest);
    if (!(scale > *m.scale) || !(*m.scale > 0))
        return;
    load_moment(v, m, o, piece);
    store_moment(m, v, o, piece, scale, false);
}

__global__ void grow_scale(struct k_moment m, const uint32_t *largest)
{
    float scale = fp8_scale(m, *largest);
    if (scale > *m.scale)
        *m.scale = scale;
}

__global__ void write_moment(struct k_moment m, const float *src, int64_t n)
{
    int64_t piece;
    struct own o = own_elements(offset_of(m), n, &piece);
    float v[EACH];
    if (piece * PIECE - offset_of(m) >= n)
        return;
    take4(v, src, o);
    store_moment(m, v, o, piece, m.form == K_MOMENT_FP8 ? *m.scale : 0, false);
}

void gpu_moment_write(struct pool *p, const struct k_moment_range *to, const float *src)
{
    const struct gpu_lane *lane = gpu_lane_of(p);
    struct k_moment m = to->moment;
    uint32_t *largest = (uint32_t *)lane->scratch;
    dim3 block(GPU_WARP, WARPS);
    if (to->n <= 0)
        return;
    if (m.form == K_MOMENT_FP8) {
        gpu_zero(p, largest, sizeof(*largest));
        GPU_LAUNCH(
            find_largest, gpu_blocks(to->n, PIECE * WARPS), block, lane, src, to->n, largest);
        GPU_LAUNCH(
            grow_codes, gpu_blocks(to->elems, PIECE * WARPS), block, lane, m, to->elems, largest);
        GPU_LAUNCH(grow_scale, 1, 1, lane, m, largest);
    } else {
        int64_t offset = m.first % K_MOMENT_BLOCK;
        m.scale += (to->at + offset) / K_MOMENT_BLOCK;
    }
    m.first += to->at;
    m.code += to->at;
    GPU_LAUNCH(write_moment, gpu_blocks(to->n + m.first % K_MOMENT_BLOCK, PIECE * WARPS), block,
        lane, m, src, to->n);
}
