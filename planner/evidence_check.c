#include "planner/evidence_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Step times are given to one or two digits. */
static const double rounding = 1.25;
/* GB and GiB are mixed up. */
static const double memory_slack = 1.1;
/* Clocks above the nominal ones, and embeddings that take part in no product. */
static const double flops_slack = 1.25;

static bool differ(double a, double b)
{
    return a > 0 && b > 0 && (a / b > rounding || b / a > rounding);
}

bool evidence_contradicts(const struct evidence_row *row, const struct stated *s)
{
    const struct strategy *st = &row->strategy;
    double tokens = s->batch * (double)st->seq;
    if (differ(s->tokens_per_s * s->step_s * (double)st->ranks, tokens))
        return true;
    if (row->peak_bytes > memory_slack * (double)row->hw.memory_bytes)
        return true;
    /* of experts a token passes through a few, which the model's MLP stands for */
    struct model dense = row->model;
    dense.expert_params = 0;
    double products = (dense.adapter.rank > 0 ? 4.0 : 6.0) * (double)model_params(&dense);
    double peak = row->hw.peak_flops[st->precision];
    return row->tokens_per_s * products > flops_slack * peak;
}

bool evidence_number(const char *text, double *out)
{
    char *end;
    size_t n = strspn(text, "0123456789.eE+-");
    double x = strtod(text, &end);
    *out = x;
    return n > 0 && text[n] == '\0' && *end == '\0' && isfinite(x) && x >= 0 &&
           !(x > 0 && x < 1e-9);
}
