#include "planner/probe.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "planner/price.h"
#include "planner/simulate.h"

/* Beside more work than that an operation is not as fast as it can be. */
#define ALONE 0.05
/* Least spread of a prediction: the same step differs that much from hour to hour. */
#define MIN_LOG_SD 0.04

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

static double mean_of(const struct mean *a)
{
    return exp(a->log_sum / a->weight);
}

/* --- products --- */

static double product_s(const struct sample *x, double half_k)
{
    struct machine m = *x->m;
    enum precision p = x->run->schedule->strategy.precision;
    m.matmul_efficiency[p] = 1;
    m.matmul_half_k = half_k;
    return machine_matmul_s(&m, p, x->op->dim[0], x->op->dim[1], x->op->dim[2]);
}

/* Sum of squared logarithms with the best efficiency for this half_k, which goes to *efficiency. */
static double product_error(
    double *efficiency, const struct samples *all, enum precision p, double half_k)
{
    struct mean ratio = {0};
    double squares = 0;
    for (size_t i = 0; i < all->n; i++)
        if (all->v[i].op->kind == OP_MATMUL && all->v[i].run->schedule->strategy.precision == p)
            mean_add(&ratio, product_s(&all->v[i], half_k) / all->v[i].seconds, all->v[i].weight);
    if (!(ratio.weight > 0))
        return NAN;
    *efficiency = mean_of(&ratio);
    for (size_t i = 0; i < all->n; i++) {
        const struct sample *x = &all->v[i];
        if (x->op->kind != OP_MATMUL || x->run->schedule->strategy.precision != p)
            continue;
        double off = log(product_s(x, half_k) / (*efficiency * x->seconds));
        squares += x->weight * off * off;
    }
    return squares;
}

/* Precisions of the runs share half_k; searched on a grid of its logarithm. A precision that no run
 * had is as far from what was expected as the others are. */
static void fit_products(struct json *values, const struct samples *all)
{
    static const char *const names[PRECISION_KINDS] = {
        [PRECISION_FP32] = "matmul_fp32_of_peak", [PRECISION_BF16] = "matmul_of_peak"};
    double best = INFINITY, best_half_k = NAN, efficiency[PRECISION_KINDS];
    for (double half_k = 1; half_k < 600; half_k *= 1.05) {
        double error = 0, unused;
        bool is_any = false;
        for (int p = 0; p < PRECISION_KINDS; p++) {
            double of = names[p] ? product_error(&unused, all, (enum precision)p, half_k) : NAN;
            is_any |= isfinite(of);
            error += isfinite(of) ? of : 0;
        }
        if (is_any && error < best) {
            best = error;
            best_half_k = half_k;
        }
    }
    if (!isfinite(best))
        return;
    const struct machine *before = all->v[0].m;
    double changed = 1;
    bool is_seen[PRECISION_KINDS];
    for (int p = 0; p < PRECISION_KINDS; p++) {
        is_seen[p] = names[p] &&
                     isfinite(product_error(&efficiency[p], all, (enum precision)p, best_half_k));
        if (is_seen[p])
            changed = efficiency[p] / before->matmul_efficiency[p];
    }
    json_add_num(values, "matmul_half_k", best_half_k);
    for (int p = 0; p < PRECISION_KINDS; p++)
        if (names[p])
            json_add_num(values, names[p],
                is_seen[p] ? efficiency[p] : changed * before->matmul_efficiency[p]);
}

/* --- attention and elementwise work --- */

static void fit_attention(struct json *values, const struct samples *all)
{
    static const char *const names[] = {"attention_efficiency", "attention_backward_efficiency"};
    for (int is_backward = 0; is_backward < 2; is_backward++) {
        struct mean ratio = {0};
        for (size_t i = 0; i < all->n; i++) {
            const struct sample *x = &all->v[i];
            struct machine m = *x->m;
            m.attention_efficiency = m.attention_backward_efficiency = 1;
            if (x->op->kind == (is_backward ? OP_ATTN_BWD : OP_ATTN_FWD))
                mean_add(&ratio,
                    machine_attention_s(
                        &m, x->run->schedule->strategy.precision, x->op->flops, is_backward) /
                        x->seconds,
                    x->weight);
        }
        if (ratio.weight > 0)
            json_add_num(values, names[is_backward], mean_of(&ratio));
    }
}

static void fit_elementwise(struct json *values, const struct samples *all)
{
    struct json *shares = json_obj();
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        struct mean share = {0};
        enum work work = op_work((enum op_kind)k);
        if (work != WORK_ELEMENTWISE && work != WORK_OPTIMIZER)
            continue;
        for (size_t i = 0; i < all->n; i++) {
            const struct sample *x = &all->v[i];
            if (x->op->kind == k && x->op->lane == LANE_COMPUTE)
                mean_add(&share, x->op->bytes / x->m->memory_bytes_per_s / x->seconds, x->weight);
        }
        if (share.weight > 0)
            json_add_num(shares, op_kind_name((enum op_kind)k), mean_of(&share));
    }
    json_add(values, "elementwise_of_memory", shares);
}

/* --- collectives --- */

/* seconds - floor = passes ((n-1)/n bytes / rate + (n-1) hop): normal equations of relative errors.
 */
struct line {
    double xx, xh, hh, x, h;
};

static void line_add(struct line *l, const struct sample *g)
{
    bool is_twice = g->op->kind == OP_ALL_REDUCE || g->op->kind == OP_SCALARS;
    const struct strategy *s = &g->run->schedule->strategy;
    struct rank_group group = g->op->group == GROUP_SHARD     ? machine_shard_group(s)
                              : g->op->group == GROUP_REPLICA ? machine_replica_group(s)
                                                              : machine_world(s);
    double n = (double)group.ranks, passes = is_twice ? 2 : 1;
    double seconds = fmax(g->seconds - g->m->op_floor_s, g->seconds / 10);
    double x = passes * (n - 1) / n * g->op->bytes / seconds, h = passes * (n - 1) / seconds;
    l->xx += g->weight * x * x;
    l->xh += g->weight * x * h;
    l->hh += g->weight * h * h;
    l->x += g->weight * x;
    l->h += g->weight * h;
}

static void fit_collectives(struct json *values, const struct samples *all)
{
    struct line l = {0};
    double cores = 1;
    for (size_t i = 0; i < all->n; i++) {
        const struct sample *g = &all->v[i];
        if (op_work((enum op_kind)g->op->kind) != WORK_COLLECTIVES || g->run->hw.ranks_per_node < 2)
            continue;
        cores = (double)g->run->hw.vcpus / (double)g->run->hw.ranks_per_node;
        line_add(&l, g);
    }
    double determinant = l.xx * l.hh - l.xh * l.xh;
    if (!(l.xx > 0))
        return;
    double per_byte = l.x / l.xx, hop = 0;
    if (determinant > 1e-9 * l.xx * l.hh) {
        double both = (l.x * l.hh - l.h * l.xh) / determinant;
        double hop_both = (l.h * l.xx - l.x * l.xh) / determinant;
        if (both > 0 && hop_both > 0) {
            per_byte = both;
            hop = hop_both;
        }
    }
    struct json *flat = json_arr(), *point = json_arr();
    json_push_num(point, 1);
    json_push_num(point, 1);
    json_push(flat, point);
    json_add_num(values, "link_bytes_per_s", 1 / (per_byte * fmin(1, cores)));
    json_add_num(values, "link_hop_s", fmax(hop, 1e-7));
    json_add(values, "link_ramp", flat); /* the hop says it all */
}

/* --- the step --- */

static struct json *document_of(
    const struct probe_input *in, const struct json *values, double residual)
{
    const struct hardware *hw = &in->runs[0].hw;
    struct json *v = json_obj(), *entries = json_arr(), *entry = json_obj();
    json_add_str(v, "schema", "calibration/1");
    json_add_str(entry, "device", hw->is_gpu ? "gpu" : "cpu");
    json_add_str(entry, "chip", hw->is_gpu ? hw->gpu : hw->cpu[0] ? hw->cpu : hw->isa);
    json_add_str(entry, "stack", in->stack);
    json_add_str(entry, "source", in->source);
    json_add_str(entry, "date", in->date);
    json_add_int(entry, "rows", (int64_t)in->n);
    json_add_num(entry, "residual", residual);
    json_add_bool(entry, "prior", false);
    json_add(entry, "values", json_clone(values));
    json_push(entries, entry);
    json_add(v, "entries", entries);
    return v;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Simulated seconds of every run with the values so far, without a step's overhead. */
static enum rc simulate_runs(
    double *seconds, const struct probe_input *in, const struct json *values, struct err *e)
{
    struct rates *rates = NULL;
    struct json *document = document_of(in, values, NAN);
    enum rc rc = rates_with(&rates, in->base, document, e);
    for (size_t i = 0; i < in->n && !rc; i++) {
        struct machine m;
        struct simulation sim;
        rc = machine_make(&m, rates, &in->runs[i].hw, in->stack, e);
        if (rc)
            break;
        m.step_overhead_s = 0;
        simulate(&sim, in->runs[i].schedule, &m, NULL);
        seconds[i] = sim.step_s;
    }
    json_free(document);
    rates_free(rates);
    return rc;
}

/* Overhead and spread, from the runs as a whole; *residual: mean absolute relative error. */
static enum rc fit_step(
    struct json *values, double *residual, const struct probe_input *in, struct err *e)
{
    double *seconds = base_calloc(in->n, sizeof *seconds);
    double *over = base_calloc(in->n, sizeof *over);
    enum rc rc = simulate_runs(seconds, in, values, e);
    for (size_t i = 0; i < in->n && !rc; i++)
        over[i] = in->runs[i].step_s - seconds[i];
    if (!rc) {
        double squares = 0, sum = 0;
        qsort(over, in->n, sizeof *over, by_size);
        double overhead = fmax(over[in->n / 2], 1e-5);
        for (size_t i = 0; i < in->n; i++) {
            double off = log((seconds[i] + overhead) / in->runs[i].step_s);
            squares += off * off / (double)in->n;
            sum += fabs(off) / (double)in->n;
        }
        json_add_num(values, "step_overhead_s", overhead);
        json_add_num(values, "time_log_sd", sqrt(MIN_LOG_SD * MIN_LOG_SD + squares));
        *residual = sum;
    }
    free(over);
    free(seconds);
    return rc;
}

static void fit_external(struct json *values, const struct probe_input *in)
{
    double most = 0;
    for (size_t i = 0; i < in->n; i++)
        if (in->runs[i].external_bytes > most)
            most = in->runs[i].external_bytes;
    if (most <= 0)
        return;
    json_add_num(values, "external_bytes", most * 1.5); /* other sizes need other stacks */
    json_add_num(values, "external_sd_bytes", most * 0.25);
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

enum rc probe_fit(struct json **out, const struct probe_input *in, struct err *e)
{
    struct samples all = {0};
    struct json *values = json_obj();
    struct machine *machines = base_calloc(in->n + 1, sizeof *machines);
    double residual = NAN;
    enum rc rc = in->n > 0 ? check(in, e) : err_set(e, RC_INVALID, "no runs");
    for (size_t i = 0; i < in->n && !rc; i++) {
        rc = machine_make(&machines[i], in->base, &in->runs[i].hw, in->stack, e);
        if (!rc)
            take_run(&all, &in->runs[i], &machines[i]);
    }
    if (!rc && all.n == 0)
        rc = err_set(e, RC_INVALID, "no operation was timed");
    if (!rc) {
        fit_products(values, &all);
        fit_attention(values, &all);
        fit_elementwise(values, &all);
        fit_collectives(values, &all);
        fit_external(values, in);
        rc = fit_step(values, &residual, in, e);
    }
    if (!rc)
        *out = document_of(in, values, residual);
    json_free(values);
    free(machines);
    free(all.v);
    return rc;
}
