/* Speed of the kernels as ratios, every pair measured in alternation within this run: matrix
 * products against multiply-adds that never leave the registers, AdamW against an in-place scale of
 * the same bytes. Reported, never asserted: the machine is shared. */
#include "kernels/kernels.h"

#include <sys/mman.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/parallel.h"
#include "tests/bench/lib_bench.h"
#include "tests/bench/peak.h"

enum { ROUNDS = 7 };

/* As the engine's memory is: in huge pages where the system gives them. */
static void *buffer(size_t bytes)
{
    enum { HUGE_PAGE = 2 << 20 };
    size_t rounded = base_align_up(bytes, HUGE_PAGE);
    void *p = aligned_alloc(HUGE_PAGE, rounded);
    madvise(p, rounded, MADV_HUGEPAGE);
    return p;
}

static float *filled(int64_t n)
{
    float *x = buffer((size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i % 17) * 0.01f - 0.08f;
    return x;
}

/* --- matrix products --- */

struct shape {
    const char *what;
    enum k_form form;
    int64_t m, n, k;
};

static double matmul_flops(const struct kernels *k, struct pool *pool, struct k_matmul *a)
{
    double start = clock_now_s();
    int times = 1 + (int)(2e8 / (2.0 * (double)a->m * (double)a->n * (double)a->k));
    for (int i = 0; i < times; i++)
        k->matmul(pool, a);
    return times * 2.0 * (double)a->m * (double)a->n * (double)a->k / (clock_now_s() - start);
}

static void bench_matmul(const struct kernels *k, const struct shape *s, enum k_type type)
{
    struct k_matmul a = {.type = type, .form = s->form, .m = s->m, .n = s->n, .k = s->k};
    a.a = filled(s->m * s->k);
    a.b = filled(s->n * s->k);
    a.c = filled(s->m * s->n);
    a.workspace = buffer(kernels_matmul_workspace_bytes(s->m, s->n, s->k));
    struct pool *two = pool_new(2);
    double peak[ROUNDS], rate[ROUNDS], rate_two[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        peak[i] = peak_flops(k->name);
        rate[i] = matmul_flops(k, NULL, &a);
        rate_two[i] = matmul_flops(k, two, &a);
    }
    pool_free(two);
    double p = median(peak, ROUNDS), r = median(rate, ROUNDS);
    printf("matmul %s %s %-18s %5lldx%5lldx%5lld %6.1f of %6.1f GFLOP/s = %.2f; 2 threads %.2fx\n",
        k->name, type == K_BF16 ? "bf16" : "fp32", s->what, (long long)s->m, (long long)s->n,
        (long long)s->k, r / 1e9, p / 1e9, r / p, median(rate_two, ROUNDS) / r);
    free((void *)a.a);
    free((void *)a.b);
    free(a.c);
    free(a.workspace);
}

static void bench_matmuls(const struct kernels *k)
{
    static const struct shape shapes[] = {
        {"square", K_NN, 1024, 1024, 1024},
        {"forward", K_NT, 256, 3072, 768},
        {"input gradient", K_NN, 256, 768, 3072},
        {"weight gradient", K_TN, 3072, 768, 256},
        {"forward, 64 tokens", K_NT, 64, 768, 768},
    };
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        for (enum k_type type = K_FP32; type <= K_BF16; type++)
            bench_matmul(k, &shapes[i], type);
}

/* --- products of eight bits --- */

/* Beside the same product in bf16, and the cast of its left operand, both ways round, of its time.
 */
static void bench_fp8(const struct kernels *k, const struct shape *s)
{
    struct k_matmul wide = {.type = K_BF16, .form = K_NT, .m = s->m, .n = s->n, .k = s->k};
    wide.a = filled(s->m * s->k);
    wide.b = filled(s->n * s->k);
    wide.c = filled(s->m * s->n);
    wide.workspace = buffer(kernels_matmul_workspace_bytes(s->m, s->n, s->k));
    struct k_matmul narrow = wide;
    narrow.is_fp8 = true;
    narrow.a_format = K_E5M2;
    float one = 1;
    double amax = 57344;
    narrow.a_unit = narrow.b_unit = &one;
    struct k_quantise cast = {
        .type = K_BF16, .format = K_E5M2, .rows = s->m, .cols = s->k, .amax = &amax};
    cast.x = wide.a;
    cast.q = buffer((size_t)(s->m * s->k));
    cast.transposed = buffer((size_t)(s->m * s->k));
    narrow.a = cast.q;
    narrow.b = buffer((size_t)(s->n * s->k));
    memset((void *)narrow.b, 0x3a, (size_t)(s->n * s->k));
    double ratio[ROUNDS], share[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double start = clock_now_s();
        amax = 0;
        k->amax(NULL, K_BF16, cast.x, s->m * s->k, &amax);
        k->quantise(NULL, &cast);
        double cast_s = clock_now_s() - start, rate = matmul_flops(k, NULL, &narrow);
        ratio[i] = rate / matmul_flops(k, NULL, &wide);
        share[i] = cast_s * rate / (2.0 * (double)s->m * (double)s->n * (double)s->k);
    }
    printf("matmul %s fp8  %-18s %5lldx%5lldx%5lld %.2f of bf16; cast %.3f of its time\n", k->name,
        s->what, (long long)s->m, (long long)s->n, (long long)s->k, median(ratio, ROUNDS),
        median(share, ROUNDS));
    void *all[] = {(void *)wide.a, (void *)wide.b, wide.c, wide.workspace, cast.q, cast.transposed,
        (void *)narrow.b};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        free(all[i]);
}

static void bench_fp8s(const struct kernels *k)
{
    static const struct shape shapes[] = {{"square", K_NT, 1024, 1024, 1024},
        {"forward", K_NT, 256, 3072, 768}, {"input gradient", K_NT, 256, 768, 3072},
        {"weight gradient", K_NT, 3072, 768, 256}, {"forward, 64 tokens", K_NT, 64, 768, 768}};
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        bench_fp8(k, &shapes[i]);
}

/* --- attention --- */

enum { TOKENS = 1024, HEADS = 12, HEAD_DIM = 64, WIDTH = HEADS * HEAD_DIM };

/* What a causal model needs: half of the square; backward counts its five products. */
static void bench_attention(const struct kernels *k, int64_t seq)
{
    float *qkv = filled(3 * WIDTH * TOKENS), *out = filled(WIDTH * TOKENS);
    float *dout = filled(WIDTH * TOKENS), *dqkv = filled(3 * WIDTH * TOKENS);
    float *lse = filled(HEADS * TOKENS), *scratch = filled(HEADS * TOKENS);
    struct k_attn_fwd forward = {K_FP32, TOKENS, seq, HEADS, HEADS, HEAD_DIM, qkv, NULL, out, lse};
    struct k_attn_bwd backward = {
        K_FP32, TOKENS, seq, HEADS, HEADS, HEAD_DIM, dout, qkv, out, NULL, lse, dqkv, scratch};
    double peak[ROUNDS], forward_rate[ROUNDS], backward_rate[ROUNDS];
    double flops = 2.0 * TOKENS * (double)seq * WIDTH;
    for (int i = 0; i < ROUNDS; i++) {
        peak[i] = peak_flops(k->name);
        double start = clock_now_s();
        k->attn_fwd(NULL, &forward);
        double middle = clock_now_s();
        k->attn_bwd(NULL, &backward);
        forward_rate[i] = flops / (middle - start);
        backward_rate[i] = 2.5 * flops / (clock_now_s() - middle);
    }
    double p = median(peak, ROUNDS);
    printf("attention %s fp32, sequences of %lld: forward %.2f, backward %.2f of peak\n", k->name,
        (long long)seq, median(forward_rate, ROUNDS) / p, median(backward_rate, ROUNDS) / p);
    float *all[] = {qkv, out, dout, dqkv, lse, scratch};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        free(all[i]);
}

/* --- AdamW --- */

enum { PARAMS = 24 << 20 };

static double adamw_s(const struct kernels *k, struct pool *pool, struct k_adamw *a)
{
    double start = clock_now_s();
    a->step++;
    k->adamw(pool, a);
    return clock_now_s() - start;
}

/* The same 28 bytes an element: 7 reads and writes of 4. */
static double scale_s(const struct kernels *k, struct pool *pool, float *x)
{
    double start = clock_now_s();
    k->scale_f32(pool, x, 1.0001f, (int64_t)PARAMS * 7 / 2);
    return clock_now_s() - start;
}

static void bench_adamw(const struct kernels *k, int threads)
{
    struct pool *pool = pool_new(threads);
    float *scaled = filled((int64_t)PARAMS * 7 / 2);
    struct k_adamw a = {.elems = PARAMS, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    a.weight_decay = 0.1;
    a.grad = filled(PARAMS);
    a.weights.master = filled(PARAMS);
    a.m.fp32 = filled(PARAMS);
    a.v.fp32 = buffer((size_t)PARAMS * sizeof(float));
    memset(a.v.fp32, 0, (size_t)PARAMS * sizeof(float));
    double update[ROUNDS], scale[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        update[i] = adamw_s(k, pool, &a);
        scale[i] = scale_s(k, pool, scaled);
    }
    double u = median(update, ROUNDS), s = median(scale, ROUNDS);
    printf("adamw  %s fp32 %d thread(s)  %.2f Gparam/s, of an in-place scale of the same bytes: "
           "%.2f\n",
        k->name, threads, PARAMS / u / 1e9, s / u);
    free(scaled);
    free((void *)a.grad);
    free(a.weights.master);
    free(a.m.fp32);
    free(a.v.fp32);
    pool_free(pool);
}

int main(void)
{
    static const char *const names[] = {"v4", "v3", "v2", "base"};
    for (size_t i = 0; i < BASE_COUNT(names); i++) {
        const struct kernels *k = kernels_by_name(names[i]);
        if (!k)
            continue;
        bench_matmuls(k);
        bench_fp8s(k);
        bench_attention(k, 64);
        bench_attention(k, 1024);
    }
    bench_adamw(kernels_best(), 1);
    bench_adamw(kernels_best(), 2);
    return 0;
}
