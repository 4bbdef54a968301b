#include "planner/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/engine_memory.h"

static const double z90 = 1.6449;
static const double gib_in_gb = 1.0737;

struct case_of_run {
    struct evidence_row row;
    struct prepared *prepared;
    struct prepared *again; /* with all blocks computed again; NULL: the row's recompute is one */
    double allocated;       /* where there are two */
    /* the least and the most allocated over what the source leaves open, over what is assumed */
    double least, most;
};

const char *basis_name(enum basis b)
{
    static const char *const names[] = {"calibrated", "sibling", "prior"};
    return names[b];
}

/* --- what the source leaves open --- */

struct open_range {
    const struct evidence_row *row;
    double least, most;
};

static void take(struct open_range *x, const struct strategy *s)
{
    double bytes = engine_memory(&x->row->model, s).total;
    x->least = fmin(x->least, bytes);
    x->most = fmax(x->most, bytes);
}

/* States in fp32, in 16 bits, in 8; without gradients beside them where the engine offers it. */
static void take_optimizers(struct open_range *x, struct strategy s)
{
    take(x, &s);
    if (s.memory.pages_optimizer) {
        s.memory.pages_optimizer = false; /* where there is room the states stay on the GPU */
        take(x, &s);
    }
    if (!(x->row->unstated & UNSTATED_OPTIMIZER))
        return;
    int most = s.moment_bytes;
    for (s.moment_bytes = 2; s.moment_bytes < most; s.moment_bytes *= 2)
        take(x, &s);
}

/* All sequences of a rank at once, or one after the other; nobody knows how many where not even
 * the global batch is stated. */
static void take_batches(struct open_range *x, struct strategy s)
{
    take_optimizers(x, s);
    if (!(x->row->unstated & UNSTATED_BATCH))
        return;
    if (s.grad_accum * s.micro_batch == 1)
        x->most = INFINITY;
    s.grad_accum *= s.micro_batch;
    s.micro_batch = 1;
    take_optimizers(x, s);
    if (s.parallel.pipeline == 1) {
        s.micro_batch = s.grad_accum;
        s.grad_accum = 1;
    }
    take_optimizers(x, s);
}

static void take_losses(struct open_range *x, struct strategy s)
{
    take_batches(x, s);
    if (!(x->row->unstated & UNSTATED_LOSS))
        return;
    s.memory.loss = LOSS_WHOLE;
    take_batches(x, s);
}

static void find_range(struct case_of_run *c)
{
    const struct strategy *s = &c->row.strategy;
    struct open_range x = {&c->row, INFINITY, 0};
    double assumed = engine_memory(&c->row.model, s).total;
    take_losses(&x, *s);
    struct strategy other = *s;
    if (c->row.unstated & UNSTATED_RECOMPUTE)
        for (int i = RECOMPUTE_NONE; i <= RECOMPUTE_FULL; i++) {
            other.recompute = (enum recompute)i;
            if (i != RECOMPUTE_SELECTIVE_FFN)
                take_losses(&x, other);
        }
    c->least = x.least / assumed;
    c->most = x.most / assumed;
}

/* Some blocks computed again, some not: the seconds of both, by their share. */
static enum rc prepare(struct case_of_run *c, struct err *e)
{
    const struct model *m = &c->row.model;
    struct strategy s = c->row.strategy;
    if (c->row.again <= 0)
        return prepared_make(&c->prepared, m, &s, false, e);
    c->allocated = engine_memory(m, &s).total;
    s.recompute = RECOMPUTE_NONE;
    enum rc rc = prepared_make(&c->prepared, m, &s, false, e);
    s.recompute = RECOMPUTE_FULL;
    return rc ? rc : prepared_make(&c->again, m, &s, false, e);
}

enum rc case_make(struct case_of_run **out, const struct evidence_row *row, struct err *e)
{
    struct case_of_run *c = base_calloc(1, sizeof *c);
    c->row = *row;
    enum rc rc = prepare(c, e);
    if (rc) {
        case_free(c);
        return err_in(e, "%s", row->id);
    }
    c->least = c->most = 1;
    if (!profile_of(row->strategy.engine)->is_bundled)
        find_range(c);
    *out = c;
    return RC_OK;
}

void case_free(struct case_of_run *c)
{
    if (!c)
        return;
    prepared_free(c->prepared);
    prepared_free(c->again);
    free(c);
}

enum rc case_machine(
    struct machine *out, const struct case_of_run *c, const struct rates *r, struct err *e)
{
    return machine_make(out, r, &c->row.hw, c->row.stack, e);
}

/* --- prediction --- */

/* What a kind of meter shows of allocated tensors. */
static double shown(const struct machine *m, enum mem_kind k, double allocated)
{
    double reserved = allocated * m->reserved_of_allocated;
    return k == MEM_ALLOCATED || k == MEM_ACTIVE ? allocated
           : k == MEM_NVIDIA_SMI                 ? reserved + m->external_bytes
                                                 : reserved;
}

/* The band spans what is left open, and around that the spread of what is not; no meter shows more
 * than the card has. One that is not named may be any, and in either GB or GiB. */
static void set_memory(struct prediction *p, enum mem_kind k, const struct case_of_run *c,
    const struct machine *m, double allocated)
{
    bool is_unsaid = k == MEM_UNSAID;
    double card = (double)m->hw.memory_bytes * (is_unsaid ? gib_in_gb : 1),
           spread = exp(z90 * m->memory_log_sd);
    double low = shown(m, is_unsaid ? MEM_ALLOCATED : k, allocated * c->least);
    double high = shown(m, is_unsaid ? MEM_NVIDIA_SMI : k, allocated * c->most);
    p->peak_bytes[k] = shown(m, k, allocated);
    p->peak_low[k] = fmin(low / spread, p->peak_bytes[k]);
    p->peak_high[k] = fmax(fmin(high * spread, card), p->peak_bytes[k]);
}

/* Seconds hang on what a source leaves open, too. So much wider is the spread around groups of runs
 * left out of the fit where it is open than where it is stated; 178 groups. */
static double open_log_sd(unsigned unstated)
{
    static const struct {
        unsigned bit;
        double log_sd;
    } open[] = {{UNSTATED_RECOMPUTE, 0.12}, {UNSTATED_BATCH, 0.16}, {UNSTATED_MODEL, 0.20}};
    double square = 0;
    for (size_t i = 0; i < BASE_COUNT(open); i++)
        square += unstated & open[i].bit ? open[i].log_sd * open[i].log_sd : 0;
    return sqrt(square);
}

static void widen(struct prediction *p, double log_sd)
{
    double low = log(p->tokens_per_s / p->tokens_low), high = log(p->tokens_high / p->tokens_per_s);
    p->tokens_low = p->tokens_per_s * exp(-hypot(low, z90 * log_sd));
    p->tokens_high = p->tokens_per_s * exp(hypot(high, z90 * log_sd));
}

void case_predict(struct prediction *out, const struct case_of_run *c, const struct machine *m)
{
    struct estimate x, again;
    prepared_estimate(&x, c->prepared, m);
    memset(out, 0, sizeof *out);
    out->tokens_per_s = x.tokens_per_s_per_rank;
    if (c->again) {
        prepared_estimate(&again, c->again, m);
        double share = c->row.again;
        out->tokens_per_s /= 1 + share * (again.step_s / x.step_s - 1);
    }
    out->tokens_low = out->tokens_per_s * x.step_s / x.step_high_s;
    out->tokens_high = out->tokens_per_s * x.step_s / x.step_low_s;
    if (out->tokens_per_s > 0)
        widen(out, open_log_sd(c->row.unstated));
    double allocated = c->again ? c->allocated : (double)(x.peak_bytes - x.packing_bytes);
    for (int k = 0; k < MEM_KINDS; k++)
        set_memory(out, (enum mem_kind)k, c, m, allocated);
    /* an allocator that runs short gives back what it can: half of what it held, say */
    double needed = allocated * sqrt(m->reserved_of_allocated);
    double room = (double)m->hw.memory_bytes - m->external_bytes;
    out->fit_probability =
        room > 0 ? 0.5 * erfc(-(log(room / needed) / m->memory_log_sd) / sqrt(2)) : 0;
    out->basis = (enum basis)m->basis;
}
