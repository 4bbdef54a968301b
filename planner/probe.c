#include "planner/probe.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "planner/price.h"
#include "planner/probe_parts.h"
#include "planner/simulate.h"

/* Beside more work than that an operation is not as fast as it can be. */
#define ALONE 0.05
/* Spread of a prediction: the same step differs from hour to hour; and models, sequences and
 * numbers of ranks differ from those that were run, the more the fewer these were: judged. */
#define HOUR_LOG_SD   0.04
#define UNSEEN_LOG_SD 0.10
/* Of a collective that was timed by itself, as if it were that share of a step. */
#define TIMED_WEIGHT 0.02

/* An operation as it was timed. */
struct sample {
    const struct probe_run *run;
    const struct machine *m; /* as predicted before */
    const struct op *op;
    double seconds;
    double weight; /* share of its step */
};

struct samples {
    struct sample *v;
    size_t n, cap;
};

/* What is found; NaN: not seen. */
struct found {
    double products[PRECISION_KINDS], half_k; /* efficiencies of the peak */
    double thread_loss;                       /* of products, by doubling of threads */
    double attention[2];                      /* forward, backward */
    double elementwise[OP_KIND_COUNT];        /* shares of the memory's rate */
    double link_bytes_per_s, link_hop_s;
    double stream_bytes_per_s, stream_hop_s; /* of a connection */
    double external_bytes;
    double log_sd;
};

/* --- what was timed --- */

static void take_run(struct samples *out, const struct probe_run *r, const struct machine *m)
{
    const struct schedule *s = r->schedule;
    for (int k = 0; k < s->n_sections; k++) {
        for (int32_t i = 0; i < s->section[k].n_ops; i++) {
            int32_t at = s->section[k].first_op + i;
            double seconds = r->op_s[at];
            if (!(seconds > 0) || r->op_shared[at] > ALONE)
                continue;
            BASE_GROW(out->v, out->cap, out->n + 1);
            out->v[out->n++] = (struct sample){.run = r,
                .m = m,
                .op = &s->ops[at],
                .seconds = seconds,
                .weight = seconds * (double)s->section[k].repeat / r->step_s};
        }
    }
}

/* Weighted mean of logarithms, as a factor. */
struct mean {
    double log_sum, weight;
};

static void mean_add(struct mean *a, double ratio, double weight)
{
    if (!(ratio > 0) || !isfinite(ratio))
        return;
    a->log_sum += weight * log(ratio);
    a->weight += weight;
}

/* NaN of nothing. */
static double mean_of(const struct mean *a)
{
    return a->weight > 0 ? exp(a->log_sum / a->weight) : NAN;
}

/* --- products --- */

static bool is_product(const struct sample *x, enum precision p)
{
    return x->op->kind == OP_MATMUL && price_precision(x->run->schedule, x->op) == p;
}

static double product_s(const struct sample *x, double half_k, double loss)
{
    struct machine m = *x->m;
    enum precision p = price_precision(x->run->schedule, x->op);
    m.matmul_efficiency[p] = 1 / (1 + loss * machine_thread_doublings(&m));
    m.matmul_half_k = half_k;
    return machine_matmul_s(&m, p, x->op->dim[0], x->op->dim[1], x->op->dim[2]);
}

/* Sum of squared logarithms with the best efficiency for this half_k, which goes to *efficiency. */
static double product_error(
    double *efficiency, const struct samples *all, enum precision p, double half_k, double loss)
{
    struct mean ratio = {0};
    double squares = 0;
    for (size_t i = 0; i < all->n; i++)
        if (is_product(&all->v[i], p))
            mean_add(
                &ratio, product_s(&all->v[i], half_k, loss) / all->v[i].seconds, all->v[i].weight);
    if (!(ratio.weight > 0))
        return NAN;
    *efficiency = mean_of(&ratio);
    for (size_t i = 0; i < all->n; i++) {
        const struct sample *x = &all->v[i];
        if (!is_product(x, p))
            continue;
        double off = log(product_s(x, half_k, loss) / (*efficiency * x->seconds));
        squares += x->weight * off * off;
    }
    return squares;
}

/* Precisions that share half_k, with the best efficiencies for it. */
static double products_error(struct found *f, const struct samples *all, double half_k, double loss)
{
    double error = NAN;
    for (int p = 0; p < PRECISION_KINDS; p++) {
        double of = product_error(&f->products[p], all, (enum precision)p, half_k, loss);
        if (isfinite(of))
            error = isfinite(error) ? error + of : of;
        else
            f->products[p] = NAN;
    }
    f->half_k = half_k;
    f->thread_loss = loss;
    return error;
}

/* Precisions that no run had: as they compare with one that was, timed by themselves, or else as
 * far from what was expected as the others are. */
static void fill_precisions(
    struct found *f, const struct machine *before, const struct probe_input *in)
{
    double changed = NAN;
    int known = -1;
    for (int p = 0; p < PRECISION_KINDS; p++)
        if (isfinite(f->products[p])) {
            changed = f->products[p] / before->matmul_efficiency[p];
            known = p;
        }
    for (int p = 0; p < PRECISION_KINDS && known >= 0; p++) {
        if (isfinite(f->products[p]) || !(before->matmul_efficiency[p] > 0))
            continue;
        double speedup = probe_parts_speedup(in, (enum precision)p, (enum precision)known) *
                         before->peak_flops[known] / before->peak_flops[p];
        f->products[p] = isfinite(speedup) ? f->products[known] * speedup
                                           : changed * before->matmul_efficiency[p];
    }
}

/* Searched on a grid of half_k's logarithm and, where threads were not timed by themselves, of the
 * loss: a small plan's products say little of what large ones lose, and a slow minute is taken for
 * it. */
static void fit_products(struct found *f, const struct samples *all, const struct probe_input *in)
{
    double best = INFINITY, best_half_k = NAN, best_loss = NAN;
    double timed = probe_parts_thread_loss(in), end = isfinite(timed) ? timed + 0.01 : 1;
    for (double half_k = 1; half_k < 600; half_k *= 1.1) {
        for (double loss = isfinite(timed) ? timed : 1e-6; loss < end; loss += 0.02) {
            double error = products_error(f, all, half_k, loss);
            if (isfinite(error) && error < best * (1 - 1e-9)) {
                best = error;
                best_half_k = half_k;
                best_loss = loss;
            }
        }
    }
    f->thread_loss = NAN;
    f->half_k = NAN;
    if (!isfinite(best))
        return;
    products_error(f, all, best_half_k, best_loss);
    fill_precisions(f, all->v[0].m, in);
}

/* --- attention and elementwise work --- */

static void fit_attention(struct found *f, const struct samples *all)
{
    for (int is_backward = 0; is_backward < 2; is_backward++) {
        struct mean ratio = {0};
        for (size_t i = 0; i < all->n; i++) {
            const struct sample *x = &all->v[i];
            struct machine m = *x->m;
            enum precision p = x->run->schedule->strategy.precision;
            m.attention_efficiency = m.attention_backward_efficiency = 1;
            if (x->op->kind == (is_backward ? OP_ATTN_BWD : OP_ATTN_FWD))
                mean_add(&ratio, machine_attention_s(&m, p, x->op->flops, is_backward) / x->seconds,
                    x->weight);
        }
        f->attention[is_backward] = mean_of(&ratio);
    }
}

static void fit_elementwise(struct found *f, const struct samples *all)
{
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        struct mean share = {0};
        enum work work = op_work((enum op_kind)k);
        if (work != WORK_ELEMENTWISE && work != WORK_OPTIMIZER)
            continue;
        for (size_t i = 0; i < all->n; i++) {
            const struct sample *x = &all->v[i];
            bool is_beside = x->op->lane == LANE_GATHER || x->op->lane == LANE_REDUCE;
            double rate = is_beside ? x->m->lane_bytes_per_s : x->m->memory_bytes_per_s;
            if (x->op->kind == k && (is_beside || x->op->lane == LANE_COMPUTE))
                mean_add(&share, x->op->bytes / rate / x->seconds, x->weight);
        }
        f->elementwise[k] = mean_of(&share);
    }
}

/* --- collectives --- */

/* seconds - floor = passes ((n-1)/n bytes / (rate share) + (n-1) hop), share: of a core for each
 * rank, at most one: normal equations of relative errors. */
struct line {
    double xx, xh, hh, x, h;
};

struct timed {
    double ranks, passes, bytes, seconds, share;
};

static void line_add(struct line *l, const struct timed *t, double floor_s, double weight)
{
    double n = t->ranks, seconds = fmax(t->seconds - floor_s, t->seconds / 10);
    double x = t->passes * (n - 1) / n * t->bytes / t->share / seconds;
    double h = t->passes * (n - 1) / seconds;
    l->xx += weight * x * x;
    l->xh += weight * x * h;
    l->hh += weight * h * h;
    l->x += weight * x;
    l->h += weight * h;
}

/* NaN of nothing. */
static void line_solve(const struct line *l, double *bytes_per_s, double *hop_s)
{
    double determinant = l->xx * l->hh - l->xh * l->xh;
    *bytes_per_s = *hop_s = NAN;
    if (!(l->xx > 0))
        return;
    double per_byte = l->x / l->xx, hop = 0;
    if (determinant > 1e-9 * l->xx * l->hh) {
        double both = (l->x * l->hh - l->h * l->xh) / determinant;
        double hop_both = (l->h * l->xx - l->x * l->xh) / determinant;
        if (both > 0 && hop_both > 0) {
            per_byte = both;
            hop = hop_both;
        }
    }
    *bytes_per_s = 1 / per_byte;
    *hop_s = fmax(hop, 1e-7);
}

static double share_of_core(const struct hardware *hw, double ranks)
{
    return hw->vcpus > 0 && ranks > 0 ? fmin(1, (double)hw->vcpus / ranks) : 1;
}

static struct timed timed_in_step(const struct sample *g)
{
    bool is_twice = g->op->kind == OP_ALL_REDUCE || g->op->kind == OP_SCALARS;
    const struct strategy *s = &g->run->schedule->strategy;
    struct rank_group group = g->op->group == GROUP_SHARD     ? machine_shard_group(s)
                              : g->op->group == GROUP_REPLICA ? machine_replica_group(s)
                                                              : machine_world(s);
    return (struct timed){.ranks = (double)group.ranks,
        .passes = is_twice ? 2 : 1,
        .bytes = g->op->bytes,
        .seconds = g->seconds,
        .share = share_of_core(&g->run->hw, (double)g->run->hw.ranks_per_node)};
}

static void fit_collectives(
    struct found *f, const struct samples *all, const struct probe_input *in)
{
    struct line link = {0}, stream = {0};
    for (size_t i = 0; i < all->n; i++) {
        const struct sample *g = &all->v[i];
        if (op_work((enum op_kind)g->op->kind) != WORK_COLLECTIVES || g->run->hw.ranks_per_node < 2)
            continue;
        struct timed t = timed_in_step(g);
        line_add(&link, &t, g->m->op_floor_s, g->weight);
    }
    for (size_t i = 0; i < in->n_collectives; i++) {
        const struct probe_collective *c = &in->collectives[i];
        struct timed t = {.ranks = (double)c->ranks,
            .passes = c->kind == COLLECTIVE_ALL_REDUCE ? 2 : 1,
            .bytes = c->bytes,
            .seconds = c->seconds,
            .share = share_of_core(&in->runs[0].hw, (double)c->ranks)};
        /* ranks that share a core say nothing of connections between nodes */
        if (!c->is_tcp || t.share >= 1)
            line_add(c->is_tcp ? &stream : &link, &t, all->v[0].m->op_floor_s, TIMED_WEIGHT);
    }
    line_solve(&link, &f->link_bytes_per_s, &f->link_hop_s);
    line_solve(&stream, &f->stream_bytes_per_s, &f->stream_hop_s);
}

/* --- as a document --- */

static void add_known(struct json *values, const char *name, double x)
{
    if (isfinite(x))
        json_add_num(values, name, x);
}

/* Of any size: the hop says it all. */
static void add_flat_ramp(struct json *v, const char *name)
{
    struct json *flat = json_arr(), *point = json_arr();
    json_push_num(point, 1);
    json_push_num(point, 1);
    json_push(flat, point);
    json_add(v, name, flat);
}

/* A network between the nodes takes time of its own. */
static void add_stream(struct json *v, const struct found *f, const struct probe_input *in)
{
    const struct hardware *hw = &in->runs[0].hw;
    double usual = rates_number(in->base, "cpu", hw->isa, in->stack, "fabric_tcp_hop_s");
    if (hw->is_gpu || !isfinite(f->stream_bytes_per_s))
        return;
    json_add_num(v, "fabric_stream_bytes_per_s", f->stream_bytes_per_s);
    json_add_num(
        v, "fabric_tcp_hop_s", fmax(usual, f->stream_hop_s)); /* or the one that is known */
    add_flat_ramp(v, "fabric_ramp");
}

/* Over bf16; NaN where neither a run nor a part of one had it. */
static double fp8_speedup(const struct found *f, const struct probe_input *in)
{
    const struct hardware *hw = &in->runs[0].hw;
    double peaks = hw->is_gpu ? hw->peak_flops[PRECISION_FP8] / hw->peak_flops[PRECISION_BF16] : 1;
    bool is_known = isfinite(probe_parts_speedup(in, PRECISION_FP8, PRECISION_FP8));
    for (size_t i = 0; i < in->n; i++)
        is_known = is_known || in->runs[i].schedule->strategy.precision == PRECISION_FP8;
    return is_known ? peaks * f->products[PRECISION_FP8] / f->products[PRECISION_BF16] : NAN;
}

static struct json *values_of(const struct found *f, const struct probe_input *in)
{
    struct json *v = json_obj(), *shares = json_obj();
    add_known(v, "matmul_fp32_of_peak", f->products[PRECISION_FP32]);
    add_known(v, "matmul_of_peak", f->products[PRECISION_BF16]);
    add_known(v, "matmul_fp8_speedup", fp8_speedup(f, in));
    add_known(v, "matmul_half_k", f->half_k);
    add_known(v, "matmul_thread_loss", f->thread_loss);
    add_known(v, "attention_efficiency", f->attention[0]);
    add_known(v, "attention_backward_efficiency", f->attention[1]);
    for (int k = 0; k < OP_KIND_COUNT; k++)
        add_known(shares, op_kind_name((enum op_kind)k), f->elementwise[k]);
    json_add(v, "elementwise_of_memory", shares);
    if (isfinite(f->link_bytes_per_s)) {
        json_add_num(v, "link_bytes_per_s", f->link_bytes_per_s);
        json_add_num(v, "link_hop_s", f->link_hop_s);
        add_flat_ramp(v, "link_ramp");
    }
    add_stream(v, f, in);
    if (isfinite(f->external_bytes)) { /* other sizes need other stacks */
        json_add_num(v, "external_bytes", f->external_bytes * 1.5);
        json_add_num(v, "external_sd_bytes", f->external_bytes * 0.25);
    }
    add_known(v, "time_log_sd", f->log_sd);
    probe_parts_values(v, in);
    return v;
}

static struct json *document_of(
    const struct probe_input *in, const struct found *f, double residual)
{
    const struct hardware *hw = &in->runs[0].hw;
    struct json *v = json_obj(), *entries = json_arr(), *entry = json_obj();
    struct ranges ranges = {0};
    for (size_t i = 0; i < in->n; i++) {
        const struct schedule *s = in->runs[i].schedule;
        struct sizes sizes = sizes_of(&s->model, (double)model_params(&s->model), &s->strategy);
        ranges_add(&ranges, &sizes);
    }
    json_add_str(v, "schema", "calibration/1");
    json_add_str(entry, "device", hw->is_gpu ? "gpu" : "cpu");
    json_add_str(entry, "chip", hw->is_gpu ? hw->gpu : hw->cpu[0] ? hw->cpu : hw->isa);
    json_add_str(entry, "stack", in->stack);
    json_add_str(entry, "source", in->source);
    json_add_str(entry, "date", in->date);
    json_add_int(entry, "rows", (int64_t)in->n);
    json_add_num(entry, "residual", residual);
    json_add_bool(entry, "prior", false);
    json_add(entry, "ranges", ranges_json(&ranges));
    json_add(entry, "values", values_of(f, in));
    json_push(entries, entry);
    json_add(v, "entries", entries);
    return v;
}

/* --- the step --- */

/* Simulated seconds of every run with what is found so far, without a step's overhead; *overhead_s:
 * what that was before. */
static enum rc simulate_runs(double *seconds, double *overhead_s, const struct probe_input *in,
    const struct found *f, struct err *e)
{
    struct rates *rates = NULL;
    struct json *document = document_of(in, f, NAN);
    enum rc rc = rates_with(&rates, in->base, document, e);
    for (size_t i = 0; i < in->n && !rc; i++) {
        struct machine m;
        struct simulation sim;
        rc = machine_make(&m, rates, &in->runs[i].hw, in->stack, e);
        if (rc)
            break;
        *overhead_s = m.step_overhead_s;
        m.step_overhead_s = 0;
        simulate(&sim, in->runs[i].schedule, &m, NULL);
        seconds[i] = sim.step_s;
    }
    json_free(document);
    rates_free(rates);
    return rc;
}

/* step = slow * simulated + overhead, least squares of relative errors. What happens once a step is
 * taken to be as usual: on a noisy machine runs of three sizes find tenths of a second in it, and
 * small steps are then predicted far too slow. */
static double fit_slow(const double *seconds, double overhead_s, const struct probe_input *in)
{
    double xx = 0, x = 0;
    for (size_t i = 0; i < in->n; i++) {
        double t = in->runs[i].step_s;
        xx += seconds[i] / t * seconds[i] / t;
        x += seconds[i] / t * fmax(0.1, 1 - overhead_s / t);
    }
    return x / xx;
}

/* All rates so many times as slow. */
static void slow_down(struct found *f, double slow)
{
    for (int p = 0; p < PRECISION_KINDS; p++)
        f->products[p] /= slow;
    for (int k = 0; k < OP_KIND_COUNT; k++)
        f->elementwise[k] /= slow;
    f->attention[0] /= slow;
    f->attention[1] /= slow;
    f->link_bytes_per_s /= slow;
    f->link_hop_s *= slow;
    f->stream_bytes_per_s /= slow;
    f->stream_hop_s *= slow;
}

/* Overhead and spread, from the runs as a whole; *residual: mean absolute relative error. */
static enum rc fit_step(
    struct found *f, double *residual, const struct probe_input *in, struct err *e)
{
    double *seconds = base_calloc(in->n, sizeof *seconds), usual_s = 0;
    enum rc rc = simulate_runs(seconds, &usual_s, in, f, e);
    if (!rc) {
        double slow = fit_slow(seconds, usual_s, in);
        double squares = 0, sum = 0;
        for (size_t i = 0; i < in->n; i++) {
            double off = log((slow * seconds[i] + usual_s) / in->runs[i].step_s);
            squares += off * off / (double)in->n;
            sum += fabs(off) / (double)in->n;
        }
        slow_down(f, slow);
        f->log_sd = sqrt(
            HOUR_LOG_SD * HOUR_LOG_SD + UNSEEN_LOG_SD * UNSEEN_LOG_SD / (double)in->n + squares);
        *residual = sum;
    }
    free(seconds);
    return rc;
}

static void fit_external(struct found *f, const struct probe_input *in)
{
    for (size_t i = 0; i < in->n; i++)
        f->external_bytes = fmax(f->external_bytes, in->runs[i].external_bytes); /* or NaN */
}

static struct found nothing(void)
{
    struct found f;
    double *x = (double *)(void *)&f;
    for (size_t i = 0; i < sizeof f / sizeof *x; i++)
        x[i] = NAN;
    return f;
}

static enum rc check(const struct probe_input *in, struct err *e)
{
    const struct hardware *first = &in->runs[0].hw;
    for (size_t i = 0; i < in->n; i++) {
        const struct hardware *hw = &in->runs[i].hw;
        if (hw->is_gpu != first->is_gpu || strcmp(hw->gpu, first->gpu) != 0 ||
            strcmp(hw->cpu, first->cpu) != 0 || strcmp(hw->isa, first->isa) != 0)
            return err_set(
                e, RC_INVALID, "the plans are for different hardware; probe one at a time");
        if (!(in->runs[i].step_s > 0))
            return err_set(e, RC_INVALID, "a run has no step that was timed");
    }
    return RC_OK;
}

/* What was expected, but for memory where that was timed: the rest is shares of it. */
static enum rc expected(struct rates **out, const struct probe_input *in, struct err *e)
{
    struct found f = nothing();
    struct json *document = document_of(in, &f, NAN);
    enum rc rc = rates_with(out, in->base, document, e);
    json_free(document);
    return rc;
}

enum rc probe_fit(struct json **out, const struct probe_input *in, struct err *e)
{
    struct samples all = {0};
    struct found f = nothing();
    struct machine *machines = base_calloc(in->n + 1, sizeof *machines);
    struct rates *rates = NULL;
    double residual = NAN;
    enum rc rc = in->n > 0 ? check(in, e) : err_set(e, RC_INVALID, "no runs");
    if (!rc)
        rc = expected(&rates, in, e);
    for (size_t i = 0; i < in->n && !rc; i++) {
        rc = machine_make(&machines[i], rates, &in->runs[i].hw, in->stack, e);
        if (!rc)
            take_run(&all, &in->runs[i], &machines[i]);
    }
    if (!rc && all.n == 0)
        rc = err_set(e, RC_INVALID, "no operation was timed");
    if (!rc) {
        fit_products(&f, &all, in);
        fit_attention(&f, &all);
        fit_elementwise(&f, &all);
        fit_collectives(&f, &all, in);
        fit_external(&f, in);
        rc = fit_step(&f, &residual, in, e);
    }
    if (!rc)
        *out = document_of(in, &f, residual);
    rates_free(rates);
    free(machines);
    free(all.v);
    return rc;
}
