/* One optimizer step of small models on one rank: as a share of the rate that its own matrix
 * products have alone, of the processor's peak, and against PyTorch on the same processor, in
 * turns. FLOPs: 6 per matrix parameter and token, plus causal attention. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "tests/bench/lib_bench.h"
#include "tests/bench/peak.h"

enum { ROUNDS = 7 };

struct workload {
    const char *model;
    int64_t micro_batch, seq;
    enum precision precision;
    bool has_peer;
};

/* --- the products of a step, alone --- */

struct products {
    struct k_matmul *call;
    size_t n, cap;
    double flops;
};

static void add_product(struct products *p, const struct op *op, enum k_type type)
{
    BASE_GROW(p->call, p->cap, p->n + 1);
    p->call[p->n++] = (struct k_matmul){.type = type,
        .form = (enum k_form)op->dim[3],
        .accumulate = (op->flags & OP_ACCUMULATE) != 0,
        .out_fp32 = (op->flags & OP_OUT_FP32) != 0,
        .m = op->dim[0],
        .n = op->dim[1],
        .k = op->dim[2]};
    p->flops += 2.0 * (double)op->dim[0] * (double)op->dim[1] * (double)op->dim[2];
}

static char *huge_pages(size_t bytes)
{
    size_t rounded = base_align_up(bytes, 2 << 20);
    char *p = aligned_alloc(2 << 20, rounded);
    madvise(p, rounded, MADV_HUGEPAGE);
    memset(p, 0, rounded);
    return p;
}

/* Each with operands of its own size at the front of three shared arrays. */
static void products_of(struct products *p, const struct schedule *s)
{
    size_t most = 0, workspace = 0;
    *p = (struct products){0};
    for (int32_t i = 0; i < s->section[0].n_ops; i++)
        if (s->ops[s->section[0].first_op + i].kind == OP_MATMUL)
            add_product(p, &s->ops[s->section[0].first_op + i],
                s->strategy.precision == PRECISION_FP32 ? K_FP32 : K_BF16);
    for (size_t i = 0; i < p->n; i++) {
        const struct k_matmul *c = &p->call[i];
        size_t elems = (size_t)fmax((double)(c->m * c->n), (double)((c->m + c->n) * c->k));
        size_t scratch = kernels_matmul_workspace_bytes(c->m, c->n, c->k);
        most = elems > most ? elems : most;
        workspace = scratch > workspace ? scratch : workspace;
    }
    char *a = huge_pages(4 * most), *b = huge_pages(4 * most), *c = huge_pages(4 * most);
    char *scratch = huge_pages(workspace);
    for (size_t i = 0; i < p->n; i++) {
        p->call[i].a = a;
        p->call[i].b = b;
        p->call[i].c = c;
        p->call[i].workspace = scratch;
    }
}

static void products_free(struct products *p)
{
    free((void *)(uintptr_t)p->call[0].a);
    free((void *)(uintptr_t)p->call[0].b);
    free(p->call[0].c);
    free(p->call[0].workspace);
    free(p->call);
}

static double products_s(const struct products *p, struct pool *pool)
{
    double start = clock_now_s();
    for (size_t i = 0; i < p->n; i++)
        kernels_best()->matmul(pool, &p->call[i]);
    return clock_now_s() - start;
}

/* --- report --- */

static double step_flops(const struct schedule *s)
{
    const struct model *m = &s->model;
    double tokens = strategy_tokens_per_step(&s->strategy), flops = 0;
    for (int u = 0; u < model_units(m); u++)
        for (int i = 0; i < s->unit[u].n; i++) {
            const struct tensor *t = &s->unit[u].tensor[i];
            bool is_product = !t->is_vector && t->role != T_POSITION_EMBED &&
                              (t->role != T_TOKEN_EMBED || m->is_tied);
            if (is_product)
                flops += 6.0 * (double)(t->rows * t->cols) * tokens;
        }
    double width = (double)(m->heads * m->head_dim), seq = (double)s->strategy.seq;
    return flops + 6.0 * (double)m->layers * tokens * seq * width;
}

/* Seconds of each kind of operation since the last report. */
struct shares {
    double s[OP_KIND_COUNT];
};

static void add_shares(
    void *arg, const struct section *sec, int64_t micro, const struct task_log *log, int32_t n)
{
    struct shares *x = arg;
    for (int32_t i = 0; i < n; i++)
        x->s[log[i].kind] += log[i].end_s - log[i].start_s;
}

static void print_shares(const struct shares *x, double total_s)
{
    printf("   ");
    for (int k = 0; k < OP_KIND_COUNT; k++)
        if (x->s[k] > 0.01 * total_s)
            printf(" %s %.0f%%", op_kind_name((enum op_kind)k), 100 * x->s[k] / total_s);
    printf("\n");
    fflush(stdout);
}

static bool open_peer(struct peer *p, const struct workload *w, int threads)
{
    char batch[24], seq[24], count[24];
    snprintf(batch, sizeof(batch), "%lld", (long long)w->micro_batch);
    snprintf(seq, sizeof(seq), "%lld", (long long)w->seq);
    snprintf(count, sizeof(count), "%d", threads);
    const char *args[] = {batch, seq, count, precision_name(w->precision)};
    return peer_open(p, "torch==2.2.2 'numpy<2'", "step_peer.py", args);
}

static void bench(const struct workload *w, int threads)
{
    struct trainer t;
    struct shares shares = {{0}};
    struct products products;
    struct peer peer = {0};
    struct pool *pool = pool_new(threads);
    struct trainer_options o = {.model = w->model,
        .strategy = strategy_default(STRATEGY_DDP, 1, 1),
        .threads = threads,
        .observe = add_shares,
        .observe_arg = &shares};
    o.strategy.seq = w->seq;
    o.strategy.micro_batch = w->micro_batch;
    o.strategy.precision = w->precision;
    trainer_open(&t, &o);
    products_of(&products, t.schedule);
    bool has_peer = w->has_peer && open_peer(&peer, w, threads);
    double s[ROUNDS], of_products[ROUNDS], of_peer[ROUNDS], of_peak[ROUNDS], total = 0, theirs;
    double flops = step_flops(t.schedule);
    trainer_step(&t);
    memset(&shares, 0, sizeof(shares));
    for (int i = 0; i < ROUNDS; i++) {
        double alone = products_s(&products, pool), peak = peak_flops(kernels_best()->name);
        s[i] = trainer_step(&t);
        total += s[i];
        of_products[i] = flops / s[i] / (products.flops / alone);
        of_peak[i] = flops / s[i] / peak / threads;
        has_peer = has_peer && peer_round(&peer, &theirs, 1);
        of_peer[i] = has_peer ? theirs / s[i] : 0;
    }
    double each = median(s, ROUNDS), tokens = (double)(w->micro_batch * w->seq);
    printf("%s %s, %lld x %lld tokens, %d thread(s): %.0f tokens/s, %.0f GFLOP/s, %.2f of its "
           "products "
           "alone, %.2f of peak",
        w->model, precision_name(w->precision), (long long)w->micro_batch, (long long)w->seq,
        threads, tokens / each, flops / each / 1e9, median(of_products, ROUNDS),
        median(of_peak, ROUNDS));
    if (has_peer)
        printf(", %.2f times PyTorch's tokens/s", median(of_peer, ROUNDS));
    printf("\n");
    print_shares(&shares, total);
    peer_close(&peer);
    products_free(&products);
    pool_free(pool);
    trainer_close(&t);
}

int main(void)
{
    static const struct workload workloads[] = {{"gpt2", 4, 64, PRECISION_FP32, true},
        {"gpt2", 4, 256, PRECISION_FP32, true}, {"gpt2", 4, 64, PRECISION_BF16, true},
        {"smollm2-135m", 4, 64, PRECISION_FP32, false}};
    for (size_t i = 0; i < BASE_COUNT(workloads); i++)
        for (int threads = 2; threads >= 1; threads--)
            if (threads <= sysconf(_SC_NPROCESSORS_ONLN) && (i == 0 || threads == 2))
                bench(&workloads[i], threads);
    return 0;
}
