#include "engine/bench_parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/disk.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "planner/schedule.h"

/* A part is repeated until it has about so many FLOPs or bytes, and is cut where one would have
 * more than the most, or take longer than the most of one thread. */
#define ENOUGH_FLOPS 0.3e9
#define MOST_FLOPS   4e9
#define MOST_S       0.1
enum {
    ROUNDS = 3,
    MAX_SHAPES = 6,
    MEMORY_ELEMS = 4 << 20, /* of each of three arrays: beyond caches */
    OPTIMIZER_ELEMS = 2 << 20,
    DISK_BYTES = 64 << 20,
    GRAIN = 1 << 14
};
static const int64_t USUAL[MAX_SHAPES][3] = {{512, 2304, 768}, {512, 3072, 768}, {512, 768, 3072},
    {1024, 1024, 1024}, {256, 256, 256}, {128, 4096, 512}};

/* What all copies run, and where their times go. */
struct work {
    const struct kernels *kernels;
    struct bench_part *part; /* without threads, at_once and seconds */
    size_t n;
    pthread_barrier_t *barrier;
};

struct copy {
    const struct work *work;
    struct pool *pool;
    char *memory; /* what the largest part needs */
    char *workspace;
    double *seconds; /* by part */
};

/* --- what is timed --- */

static size_t bytes_of(const struct bench_part *p)
{
    const int64_t *s = p->size;
    if (p->what == BENCH_PRODUCT)
        return (size_t)(s[0] * s[2] + s[1] * s[2] + s[0] * s[1]) * 4 + 256;
    if (p->what == BENCH_MEMORY)
        return (size_t)s[0];
    return (size_t)s[0] * 18 + (size_t)(s[0] / K_MOMENT_BLOCK + 1) * 8;
}

static int repeats_of(const struct bench_part *p)
{
    double flops = 2.0 * (double)p->size[0] * (double)p->size[1] * (double)p->size[2];
    if (p->what != BENCH_PRODUCT)
        return 2;
    return flops < ENOUGH_FLOPS ? (int)(ENOUGH_FLOPS / flops) + 1 : 1;
}

static void run_product(const struct copy *c, const struct bench_part *p)
{
    static const float unit = 1;
    const int64_t *s = p->size;
    bool is_fp8 = strcmp(p->form, "fp8") == 0, is_bf16 = strcmp(p->form, "bf16") == 0;
    size_t elem = is_fp8 ? 1 : is_bf16 ? 2 : 4;
    size_t a_bytes = base_align_up((size_t)(s[0] * s[2]) * elem, 64);
    size_t b_bytes = base_align_up((size_t)(s[1] * s[2]) * elem, 64);
    struct k_matmul m = {.type = is_fp8 || is_bf16 ? K_BF16 : K_FP32,
        .form = K_NT,
        .is_fp8 = is_fp8,
        .a_format = K_E4M3,
        .a_unit = &unit,
        .b_unit = &unit,
        .m = s[0],
        .n = s[1],
        .k = s[2],
        .a = c->memory,
        .b = c->memory + a_bytes,
        .c = c->memory + a_bytes + b_bytes,
        .workspace = c->workspace};
    c->work->kernels->matmul(c->pool, &m);
}

static void triad(void *arg, int64_t first, int64_t last)
{
    float *restrict to = arg;
    const float *restrict x = (float *)arg + MEMORY_ELEMS, *restrict y = x + MEMORY_ELEMS;
    for (int64_t i = first * GRAIN; i < last * GRAIN; i++)
        to[i] = x[i] + 0.5f * y[i];
}

static void run_update(const struct copy *c, const struct bench_part *p)
{
    int64_t n = p->size[0];
    float *x = (float *)(void *)c->memory; /* weights, gradients, moments */
    struct k_adamw a = {.elems = n,
        .grad = x + n,
        .weights.master = x,
        .lr = 1e-9,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .step = 1};
    bool is_fp32 = strcmp(p->form, "fp32") == 0;
    for (int i = 0; i < 2; i++) {
        struct k_moment *m = i ? &a.v : &a.m;
        m->is_square = i;
        m->form = is_fp32                        ? K_MOMENT_FP32
                  : strcmp(p->form, "8bit") == 0 ? K_MOMENT_BLOCKS
                                                 : K_MOMENT_FP8;
        m->fp32 = x + (2 + i) * n;
        m->code = (uint8_t *)(x + 2 * n) + i * n;
        m->scale = x + 4 * n + i * (n / K_MOMENT_BLOCK + 1);
    }
    c->work->kernels->adamw(c->pool, &a);
}

static void run_part(const struct copy *c, const struct bench_part *p)
{
    if (p->what == BENCH_PRODUCT)
        run_product(c, p);
    else if (p->what == BENCH_MEMORY)
        pool_run(c->pool, MEMORY_ELEMS / GRAIN, triad, c->memory);
    else
        run_update(c, p);
}

/* --- copies at once --- */

/* One copy, in a thread of its own. */
static void time_all(void *arg, int64_t first, int64_t last)
{
    struct copy *c = (struct copy *)arg + first;
    (void)last;
    for (size_t i = 0; i < c->work->n; i++) {
        const struct bench_part *p = &c->work->part[i];
        int repeats = repeats_of(p);
        memset(c->memory, 0, bytes_of(p));
        run_part(c, p);
        pthread_barrier_wait(c->work->barrier);
        double start = clock_now_s();
        for (int k = 0; k < repeats; k++)
            run_part(c, p);
        c->seconds[i] = (clock_now_s() - start) / repeats;
        pthread_barrier_wait(c->work->barrier); /* nobody is alone for a part of it */
    }
}

static bool copy_make(struct copy *c, const struct work *w, int threads)
{
    size_t most = 64;
    for (size_t i = 0; i < w->n; i++)
        most = bytes_of(&w->part[i]) > most ? bytes_of(&w->part[i]) : most;
    *c = (struct copy){.work = w,
        .pool = pool_new(threads),
        .memory = aligned_alloc(64, base_align_up(most, 64)),
        .workspace = aligned_alloc(64, KERNELS_MATMUL_WORKSPACE_MAX),
        .seconds = base_calloc(w->n + 1, sizeof(double))};
    return c->pool && c->memory && c->workspace;
}

static void copy_release(struct copy *c)
{
    pool_free(c->pool);
    free(c->memory);
    free(c->workspace);
    free(c->seconds);
}

/* Means of the copies, to seconds. */
static enum rc run_copies(
    double *seconds, const struct work *work, int threads, int at_once, struct err *e)
{
    struct copy *c = base_calloc((size_t)at_once, sizeof *c);
    struct pool *drivers = pool_new(at_once);
    struct work with = *work;
    pthread_barrier_t barrier;
    bool is_good = drivers;
    with.barrier = &barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)at_once);
    for (int i = 0; i < at_once; i++)
        is_good = copy_make(&c[i], &with, threads) && is_good;
    if (is_good)
        pool_run(drivers, at_once, time_all, c);
    for (int i = 0; i < at_once; i++) {
        for (size_t k = 0; k < work->n; k++)
            seconds[k] += c[i].seconds[k] / at_once;
        copy_release(&c[i]);
    }
    pthread_barrier_destroy(&barrier);
    pool_free(drivers);
    free(c);
    return is_good ? RC_OK
                   : err_set(e, RC_LIMIT, "no memory or threads for %d copies of %d thread(s)",
                         at_once, threads);
}

/* --- which --- */

static struct bench_part *add(struct work *w, enum bench_what what, const char *form)
{
    w->part = base_realloc(w->part, (w->n + 1) * sizeof *w->part);
    w->part[w->n] = (struct bench_part){.what = what};
    snprintf(w->part[w->n].form, sizeof w->part->form, "%s", form);
    return &w->part[w->n++];
}

static double flops_of(const int64_t *s)
{
    return 2.0 * (double)s[0] * (double)s[1] * (double)s[2];
}

static int larger_first(const void *a, const void *b)
{
    double x = flops_of(a), y = flops_of(b);
    return (x < y) - (x > y);
}

/* What this thread does in the time there is for a product. */
static double most_flops(const struct kernels *k)
{
    struct bench_part p = {.what = BENCH_PRODUCT, .form = "fp32", .size = {128, 256, 256}};
    struct work w = {.kernels = k};
    struct copy c = {.work = &w,
        .memory = aligned_alloc(64, base_align_up(bytes_of(&p), 64)),
        .workspace = aligned_alloc(64, KERNELS_MATMUL_WORKSPACE_MAX)};
    double flops = 0;
    if (c.memory && c.workspace) {
        memset(c.memory, 0, bytes_of(&p));
        run_product(&c, &p);
        double start = clock_now_s();
        run_product(&c, &p);
        flops = flops_of(p.size) * MOST_S / (clock_now_s() - start + 1e-9);
    }
    free(c.memory);
    free(c.workspace);
    return flops < MOST_FLOPS ? flops : MOST_FLOPS;
}

/* The largest shapes, each once. */
static int shapes_of(int64_t out[MAX_SHAPES][3], const struct schedule *s, double most)
{
    int64_t(*all)[3] = base_calloc((size_t)s->n_ops + 1, sizeof *all);
    int n = 0, kept = 0;
    for (int32_t i = 0; i < s->n_ops; i++)
        if (s->ops[i].kind == OP_MATMUL)
            memcpy(all[n++], s->ops[i].dim, sizeof *all);
    qsort(all, (size_t)n, sizeof *all, larger_first);
    for (int i = 0; i < n && kept < MAX_SHAPES; i++) {
        bool is_known = false;
        for (; flops_of(all[i]) > most && all[i][0] > 64;)
            all[i][0] /= 2;
        for (int k = 0; k < kept && !is_known; k++)
            is_known = memcmp(out[k], all[i], sizeof *all) == 0;
        if (!is_known)
            memcpy(out[kept++], all[i], sizeof *all);
    }
    free(all);
    return kept;
}

static void add_products(struct work *w, const struct schedule *s)
{
    static const char *const precisions[] = {"fp32", "bf16", "fp8"};
    int64_t shape[MAX_SHAPES][3];
    int n = MAX_SHAPES;
    memcpy(shape, USUAL, sizeof shape);
    if (s)
        n = shapes_of(shape, s, most_flops(w->kernels));
    for (int i = 0; i < n; i++)
        for (size_t p = 0; p < BASE_COUNT(precisions); p++)
            memcpy(add(w, BENCH_PRODUCT, precisions[p])->size, shape[i], sizeof shape[i]);
}

static void choose(struct work *w, unsigned what, const struct schedule *products)
{
    static const char *const moments[] = {"fp32", "8bit", "fp8"};
    if (what & BENCH_DO_PRODUCTS)
        add_products(w, products);
    if (what & BENCH_DO_MEMORY)
        add(w, BENCH_MEMORY, "triad")->size[0] = 3LL * MEMORY_ELEMS * 4;
    for (size_t i = 0; i < BASE_COUNT(moments) && what & BENCH_DO_OPTIMIZER; i++)
        add(w, BENCH_OPTIMIZER, moments[i])->size[0] = OPTIMIZER_ELEMS;
}

static void append(struct bench *out, const struct work *w, int threads, int at_once,
    const double *seconds) /* by round, part */
{
    out->parts = base_realloc(out->parts, (out->n_parts + w->n) * sizeof *out->parts);
    for (size_t i = 0; i < w->n; i++) {
        double of_part[ROUNDS];
        for (int r = 0; r < ROUNDS; r++)
            of_part[r] = seconds[(size_t)r * w->n + i];
        struct bench_part *p = &out->parts[out->n_parts++];
        *p = w->part[i];
        p->threads = threads;
        p->at_once = at_once;
        p->seconds = bench_median(of_part, ROUNDS);
    }
}

enum rc bench_parts(
    struct bench *out, unsigned what, int threads, const struct schedule *products, struct err *e)
{
    enum { MAX_COUNTS = 16 };
    struct work w = {.kernels = kernels_best()};
    int counts[MAX_COUNTS], n = 0;
    choose(&w, what, products);
    for (int t = 1; t < threads && n < MAX_COUNTS - 1; t *= 2)
        counts[n++] = t;
    counts[n++] = threads;
    double *seconds = base_calloc((size_t)(n * ROUNDS) * w.n + 1, sizeof *seconds);
    enum rc rc = RC_OK;
    for (int r = 0; r < ROUNDS && !rc; r++)
        for (int i = 0; i < n && !rc; i++)
            rc = run_copies(
                seconds + (size_t)(i * ROUNDS + r) * w.n, &w, counts[i], threads / counts[i], e);
    for (int i = 0; i < n && !rc; i++)
        append(out, &w, counts[i], threads / counts[i], seconds + (size_t)(i * ROUNDS) * w.n);
    free(seconds);
    free(w.part);
    return rc;
}

/* --- disk --- */

enum rc bench_disk(struct bench *out, const char *const *folders, int n, struct err *e)
{
    enum { ROOM = 16 << 20 };
    struct disk_options o = {.dirs = folders, .n_dirs = n, .bytes = DISK_BYTES};
    struct disk *d = NULL;
    double rate = 0;
    char *memory = aligned_alloc(2 << 20, ROOM);
    enum rc rc = memory ? disk_open(&d, &o, e) : err_set(e, RC_LIMIT, "no memory for 16 MiB");
    if (!rc)
        memset(memory, 0, ROOM);
    if (!rc)
        rc = disk_measure(d, memory, ROOM, &rate, e);
    if (!rc) {
        out->parts = base_realloc(out->parts, (out->n_parts + 1) * sizeof *out->parts);
        out->parts[out->n_parts++] = (struct bench_part){.what = BENCH_DISK,
            .form = "mixed",
            .size = {DISK_BYTES, 0, 0},
            .threads = 1,
            .at_once = 1,
            .seconds = DISK_BYTES / rate};
    }
    disk_close(d);
    free(memory);
    return rc;
}
