#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/evidence_load.h"
#include "cli/output.h"
#include "cli/table.h"
#include "planner/validate.h"

static const struct option OPTIONS[] = {
    {.name = "rows",
        .kind = OPTION_FLAG,
        .help = "list every run with what was measured and predicted"},
    {.name = "folds",
        .kind = OPTION_COUNT,
        .argument = "N",
        .help = "predict each group with constants fitted to the other N-1 parts",
        .detail = "Groups of runs (source, model and GPU) are dealt to N parts; the runs of each "
                  "part are predicted with constants that never saw it; IN_SAMPLE beside is the "
                  "mean with those in use. Takes minutes.",
        .example = "--folds 5"},
    {.name = "calibration",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .help = "predict with these constants on top of the built-in ones",
        .example = "--calibration mine.json"},
    {0},
};
static const struct option_group SHOW_OPTIONS = {"What to show", OPTIONS};

static const struct table_column SCORE_COLUMNS[] = {
    {.name = "OF"},
    {.name = "GROUPS", .align = TABLE_RIGHT},
    {.name = "ROWS", .align = TABLE_RIGHT},
    {.name = "MEAN", .align = TABLE_RIGHT},
    {.name = "MEDIAN", .align = TABLE_RIGHT},
    {.name = "P90", .align = TABLE_RIGHT},
    {.name = "BIAS", .align = TABLE_RIGHT},
    {.name = "IN_BAND", .align = TABLE_RIGHT},
    {.name = "BAND", .align = TABLE_RIGHT},
    {.name = "IN_SAMPLE", .align = TABLE_RIGHT},
    {0},
};

static const double GIB = 1073741824;

static const struct table_column ROW_COLUMNS[] = {
    {.name = "ID", .is_elastic = true},
    {.name = "STACK", .is_elastic = true},
    {.name = "BASIS", .drop = 1},
    {.name = "TOK/S", .align = TABLE_RIGHT},
    {.name = "PREDICTED", .align = TABLE_RIGHT},
    {.name = "ERROR", .align = TABLE_RIGHT},
    {.name = "GIB", .align = TABLE_RIGHT},
    {.name = "GIB_PREDICTED", .align = TABLE_RIGHT},
    {.name = "GIB_ERROR", .align = TABLE_RIGHT},
    {.name = "FITS", .align = TABLE_RIGHT, .drop = 2},
    {0},
};

/* 0: not measured. */
static void figure(struct table *t, const char *fmt, double x)
{
    char text[32];
    snprintf(text, sizeof text, fmt, x);
    table_cell(t, x > 0 ? text : NULL);
}

static void percent(struct table *t, double x)
{
    if (isfinite(x))
        table_cellf(t, "%.1f%%", 100 * x);
    else
        table_cell(t, NULL);
}

static void score_row(struct table *t, const char *of, struct score s)
{
    table_cell(t, of);
    table_cellf(t, "%zu", s.groups);
    table_cellf(t, "%zu", s.rows);
    percent(t, s.mean);
    percent(t, s.median);
    percent(t, s.p90);
    percent(t, s.bias);
    percent(t, s.coverage);
    percent(t, s.half_width);
}

/* in_sample: the same rows predicted by constants that saw them, beside; NULL without folds. */
static void print_scores(const struct validated *v, const struct validated *in_sample,
    const struct evidence *ev, const struct args *args, struct out *out)
{
    struct table_column columns[BASE_COUNT(SCORE_COLUMNS)];
    memcpy(columns, SCORE_COLUMNS, sizeof columns);
    if (!in_sample) /* the last one ends the list */
        columns[BASE_COUNT(columns) - 2] = (struct table_column){0};
    struct table *t = table_new(columns);
    size_t n = ev->n_rows;
    for (size_t i = 0; i < SCORE_CLASS_COUNT; i++) {
        const struct score_class *c = &SCORE_CLASSES[i];
        score_row(t, c->name, score_of_class(v, n, c));
        if (in_sample)
            percent(t, score_of_class(in_sample, n, c).mean);
    }
    out_table(out, t, args);
    struct fit_score f = score_fit(v, n);
    if (f.rows + f.oom_rows > 0)
        out_printf(out,
            "fits: %zu of %zu rows that ran are said not to fit, %zu of %zu out of memory are "
            "said to fit; Brier score %.3f\n"
            "inferred: of %zu rows that ran, something unstated is taken as it must have been to "
            "fit\n",
            f.false_oom, f.rows, f.false_fit, f.oom_rows, f.brier, f.inferred);
    size_t missed = 0;
    for (size_t i = 0; i < ev->n_skipped; i++)
        missed += ev->skipped[i].is_full_and_ok;
    out_printf(out, "skipped: %zu of %zu rows of full training\n", missed, ev->n_full_and_ok);
}

/* In --plain and --csv nothing but rows of the table is printed. */
static void print_skipped(const struct evidence *ev, struct out *out)
{
    if (ev->n_skipped == 0 || out_is_plain(out))
        return;
    out_printf(out, "\nNot predicted (`berth help evidence` says what the reasons mean):\n");
    for (size_t i = 0; i < ev->n_skipped; i++)
        out_printf(out, "  line %zu  %-28s  %s\n", ev->skipped[i].line,
            ev->skipped[i].id[0] ? ev->skipped[i].id : "(no id)", skip_word(ev->skipped[i].why));
}

static void print_rows(
    const struct validated *v, const struct evidence *ev, const struct args *args, struct out *out)
{
    struct table *t = table_new(ROW_COLUMNS);
    for (size_t i = 0; i < ev->n_rows; i++) {
        const struct evidence_row *r = v[i].row;
        enum mem_kind k = r->mem_kind;
        table_cell(t, r->id);
        table_cell(t, r->stack);
        table_cell(t, basis_name(v[i].p.basis));
        figure(t, "%.0f", r->tokens_per_s);
        figure(t, "%.0f", v[i].p.tokens_per_s);
        percent(t, r->tokens_per_s > 0 ? v[i].p.tokens_per_s / r->tokens_per_s - 1 : NAN);
        figure(t, "%.1f", r->peak_bytes / GIB);
        figure(t, "%.1f", r->peak_bytes > 0 ? v[i].p.peak_bytes[k] / GIB : 0);
        percent(t, r->peak_bytes > 0 ? v[i].p.peak_bytes[k] / r->peak_bytes - 1 : NAN);
        figure(t, "%.2f", v[i].p.fit_probability);
    }
    out_table(out, t, args);
    print_skipped(ev, out);
}

/* Rows of adapters beside a frozen model: no constant was fitted to them, and they count in no
 * figure of full training. */
struct adapted {
    struct evidence ev;
    struct validated *v;
};

static void print_adapted(const struct adapted *a, struct out *out)
{
    struct score s = score_rows(a->v, a->ev.n_rows, MEASURED_THROUGHPUT, false, NULL, NULL);
    struct score m = score_rows(a->v, a->ev.n_rows, MEASURED_MEMORY, false, NULL, NULL);
    if (a->ev.n_full_and_ok == 0)
        return;
    out_printf(out, "adapters, not among the above: %zu of %zu rows predicted", a->ev.n_rows,
        a->ev.n_full_and_ok);
    if (s.groups > 0)
        out_printf(out, "; throughput off by %.1f%% (%zu groups)", 100 * s.mean, s.groups);
    if (m.groups > 0)
        out_printf(out, "; memory off by %.1f%% (%zu groups)", 100 * m.mean, m.groups);
    out_printf(out, "\n");
}

/* in_sample: NULL without folds. */
static void print(const struct validated *v, const struct validated *in_sample,
    const struct evidence *ev, const struct adapted *a, const struct args *args, struct out *out)
{
    if (out_is_json(out)) {
        struct json *doc = validate_to_json(v, ev, args_has(args, "rows"));
        if (in_sample) {
            json_add_int(doc, "folds", args_int(args, "folds", 0));
            json_add(doc, "in_sample", validate_classes_json(in_sample, ev->n_rows));
        } else {
            json_add_null(doc, "folds");
        }
        json_add(doc, "adapters", validate_adapted_json(a->v, &a->ev));
        out_json(out, doc);
    } else if (args_has(args, "rows")) {
        print_rows(v, ev, args, out);
    } else {
        print_scores(v, in_sample, ev, args, out);
        print_adapted(a, out);
    }
}

static enum rc predict_adapted(struct adapted *a, const struct args *args, struct err *e)
{
    struct rates *rates = NULL;
    a->v = base_calloc(a->ev.n_rows + 1, sizeof *a->v);
    enum rc rc = rates_load(&rates, args, e);
    if (!rc)
        rc = validate_rows(a->v, &a->ev, rates, e);
    rates_free(rates);
    return rc;
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct evidence ev = {0};
    struct rates *rates = NULL;
    struct validated *v = NULL, *in_sample = NULL;
    int folds = (int)args_int(args, "folds", 0);
    if (args_has(args, "folds") && (folds < 2 || folds > 1000))
        return err_set(e, RC_USAGE, "--folds must lie in 2 to 1000");
    struct adapted adapted = {{0}, NULL};
    enum rc rc = evidence_load_both(&ev, &adapted.ev, args_operand(args, 0), e);
    if (!rc)
        rc = predict_adapted(&adapted, args, e);
    if (!rc)
        rc = rates_load(&rates, args, e);
    if (!rc) {
        v = base_calloc(ev.n_rows + 1, sizeof *v);
        rc = validate_rows(v, &ev, rates, e);
    }
    if (!rc && folds > 0) {
        in_sample = v;
        v = base_calloc(ev.n_rows + 1, sizeof *v);
        rates_free(rates);
        rates = NULL;
        rc = rates_judged(&rates, e);
    }
    if (!rc && folds > 0)
        rc = validate_folds(v, &ev, rates, folds, e);
    if (!rc)
        print(v, in_sample, &ev, &adapted, args, out);
    free(v);
    free(in_sample);
    free(adapted.v);
    rates_free(rates);
    evidence_release(&ev);
    evidence_release(&adapted.ev);
    return rc;
}

const struct command CMD_VALIDATE = {
    .name = "validate",
    .topic = COMMAND_PLAN,
    .summary = "compare predictions with measured training runs",
    .operands = "FILE.csv",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "Predicts every run of a table and says how far off the predictions are: of throughput "
        "and memory, over groups of runs of one source, model and GPU, which have one vote each; "
        "memory is scored apart where all it hangs on is stated. IN_BAND is the share of "
        "measurements inside their 90 % band, BAND half its width. Runs that cannot be predicted "
        "are counted, and listed with the reason in JSON (skipped). A run that was measured "
        "fitted: where its source is silent on what spares memory, and without it the run would "
        "not have, it is taken to have done so (inferred). Runs of adapters beside a frozen model "
        "(LoRA, QLoRA) are predicted apart: they count in no other figure, and no constant was "
        "fitted to them. `berth help evidence` lists the columns.",
    .examples = (const char *const[]){"berth validate runs.csv",
        "berth validate runs.csv --rows --json", NULL},
    .groups = (const struct option_group *const[]){&SHOW_OPTIONS, NULL},
    .run = run,
};
