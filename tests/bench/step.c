/* One optimizer step of small models on one rank, as a share of the processor's peak, and where the
 * time goes by kind of operation. FLOPs: 6 per matrix parameter and token, plus causal attention.
 */
#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/comm.h"
#include "engine/executor.h"
#include "engine/init.h"
#include "kernels/kernels.h"
#include "tests/bench/peak.h"

enum { STEPS = 2 };

struct workload {
    const char *model;
    int64_t micro_batch, seq;
    enum precision precision;
};

static void need(enum rc rc, const struct err *e)
{
    if (!rc)
        return;
    fprintf(stderr, "step: %s\n", e->msg);
    exit(1);
}

/* --- a run --- */

struct run {
    struct schedule *schedule;
    struct comm *comm;
    struct executor *executor;
    FILE *trace;
    char *trace_text;
    size_t trace_bytes;
};

static enum rc fill(void *arg, int64_t micro, const struct micro_data *out, struct err *e)
{
    const struct schedule *s = arg;
    int64_t n = s->strategy.seq * s->strategy.micro_batch;
    for (int64_t i = 0; i < n; i++) {
        out->tokens[i] = (int32_t)(i * 7919 % s->model.vocab);
        out->targets[i] = (int32_t)((i + 1) * 7919 % s->model.vocab);
    }
    return RC_OK;
}

static void run_open(struct run *r, const struct workload *w, int threads)
{
    struct err e = ERR_INIT;
    struct model m;
    struct strategy s = strategy_default(STRATEGY_DDP, 1, 1);
    s.seq = w->seq;
    s.micro_batch = w->micro_batch;
    s.grad_accum = 1;
    s.precision = w->precision;
    need(model_find(&m, w->model, &e), &e);
    need(schedule_make(&r->schedule, &m, &s, &e), &e);
    struct comm_options co = {.ranks = 1, .shard_degree = 1, .deadline_s = 60};
    co.kernels = kernels_best();
    int port;
    need(comm_listen(&co.listen_fd, &port, &e), &e);
    need(comm_open(&r->comm, &co, &e), &e);
    r->trace = open_memstream(&r->trace_text, &r->trace_bytes);
    struct executor_options xo = {.device = &device_cpu,
        .kernels = kernels_best(),
        .comm = r->comm,
        .observe = executor_write_trace,
        .observe_arg = r->trace};
    xo.device_options.threads = threads;
    need(executor_open(&r->executor, r->schedule, &xo, &e), &e);
    need(init_state(r->executor, 1, &e), &e);
}

static void run_close(struct run *r)
{
    executor_close(r->executor);
    comm_close(r->comm);
    schedule_free(r->schedule);
    fclose(r->trace);
    free(r->trace_text);
}

static double step_s(struct run *r, int64_t step)
{
    struct err e = ERR_INIT;
    const struct strategy *s = &r->schedule->strategy;
    struct step_params p = {.step = step, .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    p.weight_decay = 0.1;
    p.clip_norm = 1;
    p.local_targets = (double)(s->seq * s->micro_batch);
    struct step_result out;
    need(executor_step(r->executor, &p, fill, r->schedule, &out, &e), &e);
    return out.step_s;
}

/* --- report --- */

static double step_flops(const struct run *r)
{
    const struct model *m = &r->schedule->model;
    double tokens = strategy_tokens_per_step(&r->schedule->strategy), flops = 0;
    for (int u = 0; u < model_units(m); u++)
        for (int i = 0; i < r->schedule->unit[u].n; i++) {
            const struct tensor *t = &r->schedule->unit[u].tensor[i];
            bool is_product = !t->is_vector && t->role != T_POSITION_EMBED &&
                              (t->role != T_TOKEN_EMBED || m->is_tied);
            if (is_product)
                flops += 6.0 * (double)(t->rows * t->cols) * tokens;
        }
    double width = (double)(m->heads * m->head_dim), seq = (double)r->schedule->strategy.seq;
    return flops + 6.0 * (double)m->layers * tokens * seq * width;
}

/* Seconds of each kind in the last step, from the trace written since `from`. */
static void print_shares(struct run *r, size_t from, double total_s)
{
    fflush(r->trace);
    double s[OP_KIND_COUNT] = {0};
    for (const char *line = r->trace_text + from; *line; line = strchr(line, '\n') + 1) {
        const char *kind = strstr(line, "\"kind\":\""), *start = strstr(line, "\"start_s\":");
        const char *end = strstr(line, "\"end_s\":");
        for (int k = 0; k < OP_KIND_COUNT && kind && start && end; k++) {
            size_t n = strlen(op_kind_name((enum op_kind)k));
            if (strncmp(kind + 8, op_kind_name((enum op_kind)k), n) == 0 && kind[8 + n] == '"')
                s[k] += strtod(end + 8, NULL) - strtod(start + 10, NULL);
        }
    }
    printf("   ");
    for (int k = 0; k < OP_KIND_COUNT; k++)
        if (s[k] > 0.01 * total_s)
            printf(" %s %.0f%%", op_kind_name((enum op_kind)k), 100 * s[k] / total_s);
    printf("\n");
    fflush(stdout);
}

static void bench(const struct workload *w, int threads)
{
    struct run r;
    run_open(&r, w, threads);
    step_s(&r, 1);
    double best = INFINITY, peak = 0;
    size_t mark = 0;
    for (int i = 0; i < STEPS; i++) {
        peak = fmax(peak, peak_flops(kernels_best()->name));
        fflush(r.trace);
        mark = r.trace_bytes;
        best = fmin(best, step_s(&r, i + 2));
    }
    double tokens = (double)(w->micro_batch * w->seq), rate = step_flops(&r) / best;
    printf(
        "step %s %s, %lld x %lld tokens, %d thread(s): %.0f tokens/s, %.0f GFLOP/s, %.2f of peak\n",
        w->model, precision_name(w->precision), (long long)w->micro_batch, (long long)w->seq,
        threads, tokens / best, rate / 1e9, rate / peak / threads);
    print_shares(&r, mark, best);
    run_close(&r);
}

int main(void)
{
    static const struct workload workloads[] = {{"gpt2", 4, 64, PRECISION_FP32},
        {"gpt2", 4, 64, PRECISION_BF16}, {"smollm2-135m", 4, 64, PRECISION_FP32}};
    for (size_t i = 0; i < BASE_COUNT(workloads); i++)
        for (int threads = 1; threads <= 2 && threads <= sysconf(_SC_NPROCESSORS_ONLN); threads++)
            bench(&workloads[i], threads);
    return 0;
}
