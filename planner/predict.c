#include "planner/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const double z90 = 1.6449;

struct case_of_run {
    struct evidence_row row;
    struct prepared *prepared;
};

const char *basis_name(enum basis b)
{
    static const char *const names[] = {"calibrated", "sibling", "prior"};
    return names[b];
}

enum rc case_make(struct case_of_run **out, const struct evidence_row *row, struct err *e)
{
    struct case_of_run *c = base_calloc(1, sizeof *c);
    c->row = *row;
    enum rc rc = prepared_make(&c->prepared, &row->model, &row->strategy, e);
    if (rc) {
        free(c);
        return err_in(e, "%s", row->id);
    }
    *out = c;
    return RC_OK;
}

void case_free(struct case_of_run *c)
{
    if (!c)
        return;
    prepared_free(c->prepared);
    free(c);
}

enum rc case_machine(
    struct machine *out, const struct case_of_run *c, const struct rates *r, struct err *e)
{
    return machine_make(out, r, &c->row.hw, c->row.stack, e);
}

static void set_memory(struct prediction *p, enum mem_kind k, double bytes, double log_sd)
{
    p->peak_bytes[k] = bytes;
    p->peak_low[k] = bytes * exp(-z90 * log_sd);
    p->peak_high[k] = bytes * exp(z90 * log_sd);
}

void case_predict(struct prediction *out, const struct case_of_run *c, const struct machine *m)
{
    struct estimate x;
    prepared_estimate(&x, c->prepared, m);
    memset(out, 0, sizeof *out);
    out->tokens_per_s = x.tokens_per_s_per_rank;
    out->tokens_low = out->tokens_per_s * x.step_s / x.step_high_s;
    out->tokens_high = out->tokens_per_s * x.step_s / x.step_low_s;
    double allocated = (double)(x.peak_bytes - x.packing_bytes);
    double reserved = allocated * m->reserved_of_allocated;
    set_memory(out, MEM_ALLOCATED, allocated, m->memory_log_sd);
    set_memory(out, MEM_ACTIVE, allocated, m->memory_log_sd);
    set_memory(out, MEM_RESERVED, reserved, m->memory_log_sd);
    set_memory(out, MEM_UNSAID, reserved, m->memory_log_sd);
    set_memory(out, MEM_NVIDIA_SMI, reserved + m->external_bytes, m->memory_log_sd);
    double room = (double)m->hw.memory_bytes - m->external_bytes;
    out->fit_probability =
        room > 0 ? 0.5 * erfc(-(log(room / allocated) / m->memory_log_sd) / sqrt(2)) : 0;
    out->basis = (enum basis)m->basis;
}
