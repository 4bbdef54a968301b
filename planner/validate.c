#include "planner/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/json.h"
#include "planner/calibrate.h"

/* --- one row --- */

static bool is_measured(const struct validated *v, enum measured what)
{
    if (!v->is_predicted || v->row->is_oom)
        return false;
    return what == MEASURED_THROUGHPUT ? v->row->tokens_per_s > 0 : v->row->peak_bytes > 0;
}

struct compared {
    const char *group;
    double error; /* signed, relative */
    bool is_inside;
    double half_width;
};

static struct compared compare(const struct validated *v, enum measured what)
{
    enum mem_kind k = v->row->mem_kind;
    bool is_tokens = what == MEASURED_THROUGHPUT;
    double measured = is_tokens ? v->row->tokens_per_s : v->row->peak_bytes;
    double middle = is_tokens ? v->p.tokens_per_s : v->p.peak_bytes[k];
    double low = is_tokens ? v->p.tokens_low : v->p.peak_low[k];
    double high = is_tokens ? v->p.tokens_high : v->p.peak_high[k];
    return (struct compared){.group = v->row->group,
        .error = middle / measured - 1,
        .is_inside = low <= measured && measured <= high,
        .half_width = (high - low) / 2 / middle};
}

/* --- groups --- */

static int by_group(const void *a, const void *b)
{
    return strcmp(((const struct compared *)a)->group, ((const struct compared *)b)->group);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *x, size_t n, double q)
{
    if (n == 0)
        return NAN;
    qsort(x, n, sizeof *x, ascending);
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? x[i] + (at - (double)i) * (x[i + 1] - x[i]) : x[n - 1];
}

/* One vote: means over the rows of a group. */
struct vote {
    double error, absolute, inside, half_width;
};

static size_t count_votes(struct vote *votes, struct compared *rows, size_t n, bool by_row)
{
    size_t n_votes = 0;
    if (!by_row && n > 0)
        qsort(rows, n, sizeof *rows, by_group);
    for (size_t i = 0; i < n;) {
        struct vote v = {0};
        size_t end = i;
        for (; end < n && (end == i || (!by_row && strcmp(rows[end].group, rows[i].group) == 0));
             end++) {
            v.error += rows[end].error;
            v.absolute += fabs(rows[end].error);
            v.inside += rows[end].is_inside;
            v.half_width += rows[end].half_width;
        }
        double size = (double)(end - i);
        votes[n_votes++] =
            (struct vote){v.error / size, v.absolute / size, v.inside / size, v.half_width / size};
        i = end;
    }
    return n_votes;
}

struct score score_rows(const struct validated *v, size_t n, enum measured what, bool by_row,
    score_filter *filter, void *arg)
{
    struct compared *rows = base_calloc(n + 1, sizeof *rows);
    struct vote *votes = base_calloc(n + 1, sizeof *votes);
    double *absolute = base_calloc(n + 1, sizeof *absolute);
    double *widths = base_calloc(n + 1, sizeof *widths);
    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        if (is_measured(&v[i], what) && (!filter || filter(&v[i], arg)))
            rows[used++] = compare(&v[i], what);
    struct score s = {.rows = used, .groups = count_votes(votes, rows, used, by_row)};
    for (size_t i = 0; i < s.groups; i++) {
        s.mean += votes[i].absolute / (double)s.groups;
        s.bias += votes[i].error / (double)s.groups;
        s.coverage += votes[i].inside / (double)s.groups;
        absolute[i] = votes[i].absolute;
        widths[i] = votes[i].half_width;
    }
    s.median = quantile(absolute, s.groups, 0.5);
    s.p90 = quantile(absolute, s.groups, 0.9);
    s.half_width = quantile(widths, s.groups, 0.5);
    if (s.groups == 0)
        s.mean = s.bias = s.coverage = NAN;
    free(rows);
    free(votes);
    free(absolute);
    free(widths);
    return s;
}

bool is_memory_stated(const struct validated *v, void *arg)
{
    (void)arg;
    return (v->row->unstated & UNSTATED_FOR_MEMORY) == 0;
}

bool is_memory_open(const struct validated *v, void *arg)
{
    return !is_memory_stated(v, arg);
}

struct fit_score score_fit(const struct validated *v, size_t n)
{
    struct fit_score s = {0};
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        if (!v[i].is_predicted)
            continue;
        bool says_fits = v[i].p.fit_probability >= 0.5;
        double truth = v[i].row->is_oom ? 0 : 1;
        s.rows += !v[i].row->is_oom;
        s.inferred += v[i].row->is_inferred;
        s.oom_rows += v[i].row->is_oom;
        s.false_oom += !v[i].row->is_oom && !says_fits;
        s.false_fit += v[i].row->is_oom && says_fits;
        squares += pow(v[i].p.fit_probability - truth, 2);
    }
    size_t all = s.rows + s.oom_rows;
    s.brier = all ? squares / (double)all : NAN;
    return s;
}

/* --- all rows --- */

enum rc validate_rows(struct validated *out, const struct evidence *evidence,
    const struct rates *rates, struct err *e)
{
    for (size_t i = 0; i < evidence->n_rows; i++) {
        struct validated *v = &out[i];
        struct case_of_run *c = NULL;
        struct machine m;
        memset(v, 0, sizeof *v);
        v->row = &evidence->rows[i];
        enum rc rc = case_make(&c, v->row, e);
        if (!rc)
            rc = case_machine(&m, c, rates, e);
        if (!rc)
            case_predict(&v->p, c, &m);
        case_free(c);
        if (rc)
            return rc;
        v->is_seen_in_fit = rates_have_seen(rates, v->row->id);
        v->is_predicted = isfinite(v->p.tokens_per_s) && v->p.tokens_per_s > 0;
    }
    return RC_OK;
}

static int fold_of(const struct evidence_row *r, int n)
{
    return (int)(hash128(r->group, strlen(r->group)).lo % (uint64_t)n);
}

enum rc validate_folds(struct validated *out, const struct evidence *evidence,
    const struct rates *base, int n, struct err *e)
{
    bool *is_used = base_calloc(evidence->n_rows + 1, sizeof *is_used);
    struct validated *all = base_calloc(evidence->n_rows + 1, sizeof *all);
    enum rc rc = RC_OK;
    for (int fold = 0; !rc && fold < n; fold++) {
        struct calibrate_result fitted = {0};
        for (size_t i = 0; i < evidence->n_rows; i++)
            is_used[i] = fold_of(&evidence->rows[i], n) != fold;
        struct calibrate_input in = {
            .evidence = evidence, .base = base, .is_used = is_used, .source = "fold", .date = ""};
        rc = calibrate_fit(&fitted, &in, e);
        if (!rc)
            rc = validate_rows(all, evidence, fitted.rates, e);
        for (size_t i = 0; !rc && i < evidence->n_rows; i++)
            if (!is_used[i])
                out[i] = all[i];
        calibrate_release(&fitted);
    }
    free(is_used);
    free(all);
    return rc;
}

/* --- JSON --- */

static struct json *score_json(struct score s)
{
    struct json *v = json_obj();
    json_add_int(v, "groups", (int64_t)s.groups);
    json_add_int(v, "rows", (int64_t)s.rows);
    json_add_num(v, "mean_abs_rel_error", s.mean);
    json_add_num(v, "median_abs_rel_error", s.median);
    json_add_num(v, "p90_abs_rel_error", s.p90);
    json_add_num(v, "bias", s.bias);
    json_add_num(v, "band_coverage", s.coverage);
    json_add_num(v, "band_half_width", s.half_width);
    return v;
}

/* Rows of one value of a dimension. */
typedef const char *dimension_value(const struct evidence_row *r);

static const char *gpu_of(const struct evidence_row *r)
{
    return r->hw.gpu;
}

static const char *stack_of(const struct evidence_row *r)
{
    return r->stack;
}

static const char *strategy_of(const struct evidence_row *r)
{
    return strategy_is_data_parallel(&r->strategy) ? strategy_kind_name(r->strategy.kind)
                                                   : "model-parallel";
}

struct value_filter {
    dimension_value *of;
    const char *value;
};

static bool has_value(const struct validated *v, void *arg)
{
    const struct value_filter *f = arg;
    return strcmp(f->of(v->row), f->value) == 0;
}

static struct json *by_dimension(const struct validated *v, size_t n, dimension_value *of)
{
    struct json *all = json_obj();
    for (size_t i = 0; i < n; i++) {
        struct value_filter f = {of, of(v[i].row)};
        if (json_get(all, f.value))
            continue;
        struct json *both = json_obj();
        json_add(both, "throughput",
            score_json(score_rows(v, n, MEASURED_THROUGHPUT, false, has_value, &f)));
        json_add(
            both, "memory", score_json(score_rows(v, n, MEASURED_MEMORY, false, has_value, &f)));
        json_add(all, f.value, both);
    }
    return all;
}

static void add_range(struct json *v, double measured, double predicted, double low, double high)
{
    json_add_num(v, "measured", measured > 0 ? measured : NAN);
    json_add_num(v, "predicted", predicted);
    json_add_num(v, "low", low);
    json_add_num(v, "high", high);
}

static bool is_dense_of(const struct validated *v, void *basis)
{
    return v->row->model.expert_params == 0 && strategy_is_data_parallel(&v->row->strategy) &&
           v->p.basis == *(const enum basis *)basis;
}

static bool is_model_parallel(const struct validated *v, void *arg)
{
    return v->row->model.expert_params > 0 || !strategy_is_data_parallel(&v->row->strategy);
}

const struct score_class SCORE_CLASSES[] = {
    {"throughput", "all", MEASURED_THROUGHPUT, NULL, 0},
    {"data-parallel, calibrated", "dense_calibrated", MEASURED_THROUGHPUT, is_dense_of,
        BASIS_CALIBRATED},
    {"data-parallel, sibling", "dense_sibling", MEASURED_THROUGHPUT, is_dense_of, BASIS_SIBLING},
    {"data-parallel, prior", "dense_prior", MEASURED_THROUGHPUT, is_dense_of, BASIS_PRIOR},
    {"tensor, pipeline, experts", "model_parallel", MEASURED_THROUGHPUT, is_model_parallel, 0},
    {"memory, all stated", "memory_stated", MEASURED_MEMORY, is_memory_stated, 0},
    {"memory, something open", "memory_open", MEASURED_MEMORY, is_memory_open, 0},
};

struct score score_of_class(const struct validated *v, size_t n, const struct score_class *c)
{
    enum basis basis = c->basis;
    return score_rows(v, n, c->what, false, c->filter, &basis);
}

struct json *validate_classes_json(const struct validated *v, size_t n)
{
    struct json *o = json_obj();
    for (size_t i = 0; i < SCORE_CLASS_COUNT; i++)
        json_add(o, SCORE_CLASSES[i].key, score_json(score_of_class(v, n, &SCORE_CLASSES[i])));
    return o;
}

static struct json *unstated_json(unsigned unstated)
{
    static const struct {
        unsigned bit;
        const char *word;
    } words[] = {
#define X(name, bit, word) {bit, word},
        UNSTATED_MAP(X)
#undef X
    };
    struct json *all = json_arr();
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        if (unstated & words[i].bit)
            json_push_str(all, words[i].word);
    return all;
}

static struct json *row_json(const struct validated *v)
{
    struct json *o = json_obj(), *tokens = json_obj(), *peak = json_obj();
    enum mem_kind k = v->row->mem_kind;
    json_add_str(o, "id", v->row->id);
    json_add_str(o, "group", v->row->group);
    json_add_str(o, "stack", v->row->stack);
    json_add_str(o, "strategy", strategy_of(v->row));
    json_add_str(o, "calibrated", v->p.basis == BASIS_CALIBRATED ? "yes" : basis_name(v->p.basis));
    add_range(tokens, v->row->tokens_per_s, v->p.tokens_per_s, v->p.tokens_low, v->p.tokens_high);
    json_add(o, "tokens_per_second_per_gpu", tokens);
    json_add_str(peak, "kind", mem_kind_name(k));
    add_range(peak, v->row->peak_bytes, v->p.peak_bytes[k], v->p.peak_low[k], v->p.peak_high[k]);
    json_add(o, "peak_bytes", peak);
    json_add_num(o, "fit_probability", v->p.fit_probability);
    json_add(o, "unstated", unstated_json(v->row->unstated));
    json_add_bool(o, "inferred", v->row->is_inferred);
    json_add_bool(o, "seen_in_fit", v->is_seen_in_fit);
    return o;
}

static struct json *fit_json(struct fit_score s)
{
    struct json *v = json_obj();
    json_add_int(v, "rows", (int64_t)s.rows);
    json_add_int(v, "false_oom", (int64_t)s.false_oom);
    json_add_int(v, "inferred", (int64_t)s.inferred);
    json_add_int(v, "oom_rows", (int64_t)s.oom_rows);
    json_add_int(v, "false_fit", (int64_t)s.false_fit);
    json_add_num(v, "brier", s.brier);
    return v;
}

static struct json *skipped_json(const struct evidence *evidence)
{
    struct json *all = json_arr();
    for (size_t i = 0; i < evidence->n_skipped; i++) {
        struct json *o = json_obj();
        json_add_str(o, "id", evidence->skipped[i].id);
        json_add_int(o, "line", (int64_t)evidence->skipped[i].line);
        json_add_str(o, "why", skip_word(evidence->skipped[i].why));
        json_add_bool(o, "full_and_ok", evidence->skipped[i].is_full_and_ok);
        json_push(all, o);
    }
    return all;
}

struct json *validate_to_json(
    const struct validated *v, const struct evidence *evidence, bool with_rows)
{
    size_t n = evidence->n_rows;
    static const struct {
        const char *name;
        enum measured what;
        bool by_row;
        score_filter *filter;
    } scores[] = {
        {"throughput", MEASURED_THROUGHPUT, false, NULL},
        {"memory", MEASURED_MEMORY, false, NULL},
        {"memory_stated", MEASURED_MEMORY, false, is_memory_stated},
        {"memory_open", MEASURED_MEMORY, false, is_memory_open},
        {"throughput_rows", MEASURED_THROUGHPUT, true, NULL},
        {"memory_rows", MEASURED_MEMORY, true, NULL},
    };
    struct json *o = json_obj(), *by = json_obj();
    json_add_str(o, "schema", "validate/1");
    for (size_t i = 0; i < BASE_COUNT(scores); i++)
        json_add(o, scores[i].name,
            score_json(score_rows(v, n, scores[i].what, scores[i].by_row, scores[i].filter, NULL)));
    json_add(o, "classes", validate_classes_json(v, n));
    json_add(o, "fit", fit_json(score_fit(v, n)));
    json_add(by, "gpu", by_dimension(v, n, gpu_of));
    json_add(by, "stack", by_dimension(v, n, stack_of));
    json_add(by, "strategy", by_dimension(v, n, strategy_of));
    json_add(o, "by", by);
    json_add(o, "skipped", skipped_json(evidence));
    if (with_rows) {
        struct json *rows = json_arr();
        for (size_t i = 0; i < n; i++)
            json_push(rows, row_json(&v[i]));
        json_add(o, "rows", rows);
    }
    return o;
}

struct json *validate_adapted_json(const struct validated *v, const struct evidence *adapted)
{
    size_t n = adapted->n_rows;
    struct json *o = json_obj(), *rows = json_arr();
    json_add(o, "throughput", score_json(score_rows(v, n, MEASURED_THROUGHPUT, false, NULL, NULL)));
    json_add(o, "memory", score_json(score_rows(v, n, MEASURED_MEMORY, false, NULL, NULL)));
    for (size_t i = 0; i < n; i++)
        json_push(rows, row_json(&v[i]));
    json_add(o, "rows", rows);
    json_add_int(o, "rows_of_adapters", (int64_t)adapted->n_full_and_ok);
    return o;
}
