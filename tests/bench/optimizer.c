/* The optimizer in memory, beside a loop that does nothing but stream its arrays; and on disk,
 * beside reads and writes of the same bytes with nothing in between. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/disk.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "tests/bench/lib_bench.h"

enum { ROUNDS = 9, MIB = 1 << 20 };

/* --- in memory --- */

enum { PARAMS = 100000000, GRAIN = 1 << 16 };

static float *floats(float value)
{
    float *x = aligned_alloc(2 << 20, base_align_up(sizeof(*x) * PARAMS, 2 << 20));
    for (int64_t i = 0; x && i < PARAMS; i++)
        x[i] = value;
    return x;
}

/* Reads four arrays and writes three, as AdamW does. */
#if defined __x86_64__
__attribute__((target("avx2"), optimize("O3")))
#endif
static void
stream(void *arg, int64_t first, int64_t last)
{
    const struct k_adamw *a = arg;
    const float *restrict g = a->grad;
    float *restrict w = a->weights.master, *restrict m = a->m.fp32, *restrict v = a->v.fp32;
    int64_t end = last * GRAIN < a->elems ? last * GRAIN : a->elems;
    for (int64_t i = first * GRAIN; i < end; i++) {
        w[i] += g[i];
        m[i] += g[i];
        v[i] += g[i];
    }
}

static void bench_memory(int threads)
{
    const struct kernels *k = kernels_best();
    struct pool *pool = pool_new(threads);
    struct k_adamw a = {.elems = PARAMS, .lr = 1e-9, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    float *grad = floats(1e-3F);
    a.grad = grad;
    a.weights.master = floats(1);
    a.m.fp32 = floats(0);
    a.v.fp32 = floats(0);
    double ratio[ROUNDS], rate[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double start = clock_now_s();
        pool_run(pool, (PARAMS + GRAIN - 1) / GRAIN, stream, &a);
        double middle = clock_now_s();
        a.step++;
        k->adamw(pool, &a);
        double end = clock_now_s();
        ratio[i] = (middle - start) / (end - middle);
        rate[i] = PARAMS / (end - middle);
    }
    double share = median(ratio, ROUNDS);
    printf("adamw  %s fp32, 100M parameters, %d thread(s): %.2f Gparam/s; of a loop that reads "
           "four and "
           "writes three of its arrays: %.2f (%.2f to %.2f)\n",
        k->name, threads, median(rate, ROUNDS) / 1e9, share, ratio[0], ratio[ROUNDS - 1]);
    free(grad);
    free(a.weights.master);
    free(a.m.fp32);
    free(a.v.fp32);
    pool_free(pool);
}

/* --- with moments in 8 bits --- */

/* Reads and writes what such an update does: gradient, weights, and a byte of each moment. */
#if defined __x86_64__
__attribute__((target("avx2"), optimize("O3")))
#endif
static void
stream_8bit(void *arg, int64_t first, int64_t last)
{
    const struct k_adamw *a = arg;
    const float *restrict g = a->grad;
    float *restrict w = a->weights.master;
    uint8_t *restrict m = a->m.code, *restrict v = a->v.code;
    int64_t end = last * GRAIN < a->elems ? last * GRAIN : a->elems;
    for (int64_t i = first * GRAIN; i < end; i++)
        w[i] += g[i];
    for (int64_t i = first * GRAIN; i < end; i++) {
        m[i]++;
        v[i]++;
    }
}

static void bench_8bit(enum k_moment_form form, int threads)
{
    const struct kernels *k = kernels_best();
    struct pool *pool = pool_new(threads);
    struct k_adamw a = {.elems = PARAMS, .lr = 1e-9, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    struct k_moment *moments[] = {&a.m, &a.v};
    float *grad = floats(1e-3F);
    for (int i = 0; i < 2; i++)
        *moments[i] = (struct k_moment){.form = form,
            .is_square = i,
            .code = base_calloc(PARAMS, 1),
            .scale = base_calloc(PARAMS / K_MOMENT_BLOCK + 1, sizeof(float))};
    a.grad = grad;
    a.weights.master = floats(1);
    double ratio[ROUNDS], each[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double start = clock_now_s();
        pool_run(pool, (PARAMS + GRAIN - 1) / GRAIN, stream_8bit, &a);
        double middle = clock_now_s();
        a.step++;
        k->adamw(pool, &a);
        double end = clock_now_s();
        ratio[i] = (end - middle) / (middle - start);
        each[i] = (end - middle) / PARAMS;
    }
    double times = median(ratio, ROUNDS);
    printf(
        "adamw  %s, moments in %s, 100M parameters, %d thread(s): %.1f ns a parameter; of a loop "
        "that moves its bytes, as long: %.1f times (%.1f to %.1f)\n",
        k->name, form == K_MOMENT_FP8 ? "fp8" : "blocks of 8 bits", threads,
        median(each, ROUNDS) * 1e9, times, ratio[0], ratio[ROUNDS - 1]);
    for (int i = 0; i < 2; i++) {
        free(moments[i]->code);
        free(moments[i]->scale);
    }
    free(grad);
    free(a.weights.master);
    pool_free(pool);
}

/* --- on disk --- */

/* The disk lane of the boundary, from its first read to its last write. */
struct span {
    double first_s, last_s;
};

static void watch(
    void *arg, const struct section *sec, int64_t micro, const struct task_log *log, int32_t n)
{
    struct span *s = arg;
    for (int32_t i = 0; i < n; i++) {
        if (log[i].lane != LANE_DISK)
            continue;
        s->first_s = s->first_s > 0 ? s->first_s : log[i].start_s;
        s->last_s = log[i].end_s;
    }
}

/* All of the slab once read and once written, a stripe each in turn, all in one go. */
static double raw_s(struct disk *d, int64_t bytes, char *memory)
{
    struct err e = ERR_INIT;
    int64_t stripes = bytes / DISK_STRIPE_BYTES, half = stripes / 2;
    struct disk_part *part = base_calloc((size_t)stripes + 1, sizeof(*part));
    double start = clock_now_s();
    for (int pass = 0; pass < 2; pass++) {
        int n = 0;
        for (int64_t i = 0; i < half; i++)
            for (int k = 0; k < 2; k++)
                part[n++] =
                    (struct disk_part){disk_base(d) + ((k ^ pass) * half + i) * DISK_STRIPE_BYTES,
                        memory + (i % 8 * 2 + k) * DISK_STRIPE_BYTES, DISK_STRIPE_BYTES, k == 1};
        need(disk_move(d, part, n, &e), &e);
    }
    double seconds = clock_now_s() - start;
    free(part);
    return seconds;
}

static void bench_disk(const char *dir)
{
    struct span span;
    struct trainer t;
    struct trainer_options o = {.model = "gpt2",
        .strategy = strategy_default(STRATEGY_DDP, 1, 1),
        .threads = 2,
        .disk_dir = dir,
        .observe = watch,
        .observe_arg = &span};
    o.strategy.seq = 16;
    o.strategy.precision = PRECISION_FP32;
    o.strategy.offload = OFFLOAD_OPTIMIZER | OFFLOAD_DISK;
    trainer_open(&t, &o);
    const int64_t slab = t.schedule->slab_bytes[MEMORY_DISK];
    double ratio[ROUNDS], took[ROUNDS], rate, bytes = (double)slab;
    struct disk *d = executor_disk(t.x, &rate);
    char *memory = aligned_alloc(2 << 20, 16 * MIB);
    memset(memory, 0, 16 * MIB);
    for (int i = 0; i < ROUNDS; i++) {
        span = (struct span){0, 0};
        trainer_step(&t);
        took[i] = span.last_s - span.first_s;
        ratio[i] = raw_s(d, slab, memory) / took[i];
    }
    double each = median(took, ROUNDS), share = median(ratio, ROUNDS);
    printf("on disk, GPT-2 124M, %s: %.2f GB read and as much written in %.2f s, %.2f GB/s, %.0f "
           "Mparam/s; of reading and writing alone: %.2f (%.2f to %.2f)\n",
        disk_way(d), bytes / 1e9, each, 2 * bytes / each / 1e9, bytes / 12 / each / 1e6, share,
        ratio[0], ratio[ROUNDS - 1]);
    free(memory);
    trainer_close(&t);
}

int main(int argc, char **argv)
{
    bench_memory(1);
    bench_memory(2);
    for (int threads = 1; threads <= 2; threads++) {
        bench_8bit(K_MOMENT_BLOCKS, threads);
        bench_8bit(K_MOMENT_FP8, threads);
    }
    bench_disk(argc > 1 ? argv[1] : "/var/tmp");
    return 0;
}
