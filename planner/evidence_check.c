#include "planner/evidence_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/index.h"

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

/* --- rows with the same id --- */

struct ids {
    const struct csv *table;
    int column;
};

static bool same_id(const void *array, size_t i, const void *key)
{
    const struct ids *ids = array;
    return strcmp(csv_cell(ids->table, i, ids->column), key) == 0;
}

static bool same_cells(const struct csv *t, size_t a, size_t b)
{
    for (size_t c = 0; c < t->columns; c++)
        if (strcmp(csv_cell(t, a, (int)c), csv_cell(t, b, (int)c)) != 0)
            return false;
    return true;
}

unsigned char *evidence_twins(const struct csv *table, int id_column)
{
    unsigned char *twin = base_calloc(table->rows + 1, 1);
    size_t *first = base_calloc(table->rows + 1, sizeof *first);
    const struct ids ids = {table, id_column};
    struct index x = {0};
    for (size_t i = 0; i < table->rows; i++) {
        const char *id = csv_cell(table, i, id_column);
        uint64_t hash = index_hash_text(0, id);
        ptrdiff_t at = *id ? index_find(&x, hash, same_id, &ids, id) : INDEX_NONE;
        first[i] = at == INDEX_NONE ? i : (size_t)at;
        if (at == INDEX_NONE)
            index_add(&x, hash, i);
        else if (same_cells(table, i, (size_t)at))
            twin[i] = TWIN_REPEATS;
        else
            twin[at] = TWIN_CONTRADICTS;
    }
    for (size_t i = 0; i < table->rows; i++)
        if (twin[first[i]] == TWIN_CONTRADICTS)
            twin[i] = TWIN_CONTRADICTS;
    index_release(&x);
    free(first);
    return twin;
}
