/* A plan file in words. */
#include "planner/explain.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/adapter.h"
#include "planner/break_even.h"
#include "planner/figure.h"
#include "planner/plan_file.h"
#include "planner/plan_reasons.h"

/* --- memory and a step --- */

/* Parts of a figure, each followed by what it is made of. */
static void add_parts(
    struct str *out, const struct json *parts, bool is_bytes, const struct terms *terms)
{
    void *cursor = NULL;
    const char *key;
    const struct json *v;
    char a[UNITS_TEXT];
    while (json_next(parts, &cursor, &key, &v)) {
        double x = json_as_num(v, 0);
        if (!(x > 0))
            continue;
        str_addf(out, "  %-26.40s %12s\n", key, is_bytes ? units_bytes(a, x) : units_seconds(a, x));
        if (terms)
            terms_describe(out, terms, key);
    }
}

static void add_memory(struct str *out, const struct plan_file *p, const struct terms *terms)
{
    const struct json *memory = json_get(p->prediction, "memory");
    char a[UNITS_TEXT], b[UNITS_TEXT];
    str_addf(out, "\nMemory of a rank: %s", units_bytes(a, (double)p->peak_bytes));
    str_addf(out, " of %s, the sum of\n", units_bytes(b, json_num(memory, "capacity_bytes", 0)));
    add_parts(out, json_get(memory, "parts"), true, terms);
    if (p->external_bytes > 0)
        str_addf(out, "  capacity is what the driver reports, %s, less %s external\n",
            units_bytes(a, (double)p->offer.gpu_memory_bytes),
            units_bytes(b, (double)p->external_bytes));
}

static void add_host(struct str *out, const struct plan_file *p, const struct terms *terms)
{
    const struct json *host = json_get(p->prediction, "host");
    char a[UNITS_TEXT];
    double have = json_num(host, "capacity_bytes", 0);
    if (!(p->host_ram_bytes > 0))
        return;
    str_addf(out, "\nHost memory of a node: %s", units_bytes(a, (double)p->host_ram_bytes));
    if (have > 0)
        str_addf(out, " of %s", units_bytes(a, have));
    str_addf(out, ", the sum of\n");
    add_parts(out, json_get(host, "parts"), true, NULL);
    if (terms && terms->n > 0)
        str_addf(out, "  of each rank:\n");
    for (int i = 0; terms && i < PART_COUNT; i++)
        terms_describe(out, terms, part_name((enum part)i));
}

static void add_step(struct str *out, const struct plan_file *p, const struct terms *work)
{
    const struct json *step = json_get(p->prediction, "step");
    char a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT];
    str_addf(out, "\nA step: %s (90 %%: %s to %s), the sum of\n", units_seconds(a, p->step_s),
        units_seconds(b, p->step_low_s), units_seconds(c, p->step_high_s));
    add_parts(out, json_get(step, "parts"), false, NULL);
    str_addf(out, "  work, each operation as if alone:\n");
    add_parts(out, json_get(step, "work"), false, work);
}

/* As explain_evidence, from what the file says. */
static void add_evidence(struct str *out, const struct json *basis)
{
    const struct json *runs = json_get(basis, "evidence"), *list = json_get(basis, "outside");
    struct str line = STR_INIT;
    if (!runs)
        return;
    const char *chip = json_str(runs, "chip", "*"), *stack = json_str(runs, "stack", "*");
    str_addf(&line, "%s the %lld runs of %s on %s behind the constants",
        json_len(list) > 0 ? "extrapolated beyond" : "no size is beyond those of",
        (long long)json_int(runs, "rows", 0), strcmp(stack, "*") == 0 ? "all software" : stack,
        strcmp(chip, "*") == 0 ? "any GPU" : chip);
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *v = json_at(list, i);
        str_addf(&line, "%s %s %.6g (%.6g to %.6g)", i ? "," : ":", json_str(v, "quantity", "?"),
            json_num(v, "value", NAN), json_num(v, "low", NAN), json_num(v, "high", NAN));
    }
    explain_wrapped(out, 2, str_text(&line));
    str_release(&line);
}

static void add_checkpoint(struct str *out, const struct plan_file *p)
{
    const struct json *v = json_get(p->prediction, "checkpoint");
    char a[UNITS_TEXT], b[UNITS_TEXT];
    double bytes = json_num(v, "bytes", 0), s = json_num(v, "seconds", 0);
    double trained = (double)model_trained_params(&p->job.model);
    if (!(bytes > 0 && s > 0))
        return;
    str_addf(
        out, "\nA checkpoint: %s, written in %s\n", units_bytes(a, bytes), units_seconds(b, s));
    str_addf(out, "    %.0f trained parameters x %.3g bytes, at %s/s over all nodes\n", trained,
        bytes / trained, units_bytes(a, bytes / s));
}

/* --- constants --- */

static size_t member_count(const struct json *v)
{
    void *cursor = NULL;
    const char *key;
    const struct json *member;
    size_t n = 0;
    while (json_next(v, &cursor, &key, &member))
        n++;
    return n;
}

static void add_value(struct str *out, const struct json *v)
{
    if (json_is_num(v))
        str_addf(out, "%.6g", json_as_num(v, 0));
    else
        str_addf(out, "table of %zu", json_is_obj(v) ? member_count(v) : json_len(v));
}

static bool same_source(const struct json *a, const struct json *b)
{
    return strcmp(json_str(a, "source", ""), json_str(b, "source", "")) == 0;
}

/* Was a constant with this source listed before the one called name? */
static bool is_listed(const struct json *constants, const char *name, const struct json *of)
{
    void *cursor = NULL;
    const char *key;
    const struct json *v;
    while (json_next(constants, &cursor, &key, &v) && strcmp(key, name) != 0)
        if (same_source(v, of))
            return true;
    return false;
}

/* All constants of one source, then what is known about it. */
static void add_source(struct str *out, const struct json *constants, const struct json *of)
{
    struct str line = STR_INIT;
    void *cursor = NULL;
    const char *key;
    const struct json *v;
    while (json_next(constants, &cursor, &key, &v)) {
        if (!same_source(v, of))
            continue;
        str_addf(&line, "%s%s = ", line.len ? ", " : "", key);
        add_value(&line, json_get(v, "value"));
    }
    explain_wrapped(out, 2, str_text(&line));
    str_reset(&line);
    double residual = json_num(of, "residual", NAN);
    str_addf(&line, "%s, %s", json_bool(of, "prior", true) ? "prior" : "measured",
        json_str(of, "date", "undated"));
    if (json_int(of, "rows", 0) > 0)
        str_addf(&line, ", %lld rows", (long long)json_int(of, "rows", 0));
    if (residual >= 0)
        str_addf(&line, ", residual %.0f %%", 100 * residual);
    str_addf(&line, "; %s", json_str(of, "source", "no source"));
    explain_wrapped(out, 6, str_text(&line));
    str_release(&line);
}

static void add_constants(struct str *out, const struct json *constants)
{
    void *cursor = NULL;
    const char *key;
    const struct json *v;
    while (json_next(constants, &cursor, &key, &v))
        if (!is_listed(constants, key, v))
            add_source(out, constants, v);
}

static void add_formulas(struct str *out, const struct plan_file *p)
{
    const struct model *m = &p->job.model;
    const struct strategy *s = &p->strategy;
    char a[UNITS_TEXT], b[UNITS_TEXT];
    const char *definition = estimate_flops_definition(m, s);
    double flops = estimate_model_flops(m, s);
    double tokens = (double)strategy_tokens_per_step(s);
    str_addf(out,
        "  parameters N = %lld: %lld blocks, width %lld, ffn %lld,\n    vocabulary %lld%s\n",
        (long long)model_params(m), (long long)m->layers, (long long)m->width, (long long)m->ffn,
        (long long)m->vocab, m->is_tied ? ", tied" : "");
    str_addf(out,
        "  tokens per step = %lld %sranks x %lld sequences x %lld micro steps x %lld = %s\n",
        (long long)strategy_data_ranks(s), strategy_is_data_parallel(s) ? "" : "data ",
        (long long)s->micro_batch, (long long)s->grad_accum, (long long)s->seq,
        units_count(a, tokens));
    str_addf(out, "  steps = %s tokens / %s = %lld\n", units_count(a, (double)p->job.tokens),
        units_count(b, tokens), (long long)p->steps);
    if (m->experts > 0)
        str_addf(out, "  ");
    explain_experts(out, m);
    explain_adapter(out, m);
    int formula = (int)(strstr(definition, " per ") - definition);
    str_addf(out, "  model flops per token = %.*s = %.4g\n", formula, definition, flops);
    str_addf(out, "  MFU = %.4g tokens/s per rank x %.4g / peak = %.1f %%\n",
        p->tokens_per_s_per_rank, flops, 100 * p->mfu);
    str_addf(out, "  shards: parameters %lld, gradients %lld, optimizer %lld\n",
        (long long)strategy_parameter_shards(s), (long long)strategy_gradient_shards(s),
        (long long)strategy_optimizer_shards(s));
}

static void add_intervals(struct str *out, const struct json *prediction)
{
    const struct json *checkpoint = json_get(prediction, "checkpoint");
    char a[UNITS_TEXT];
    double best = json_num(checkpoint, "optimal_interval_seconds", NAN);
    double interval = json_num(checkpoint, "interval_seconds", NAN);
    if (!(interval > 0 && best > 0))
        return;
    str_addf(out, "  %-26s %12s", "between checkpoints", units_seconds(a, interval));
    if (fabs(interval - best) > 1)
        str_addf(out, "  (%s would waste the least)", units_seconds(a, best));
    str_addf(out, "\n");
}

static void add_money(struct str *out, const struct plan_file *p)
{
    char a[UNITS_TEXT], b[UNITS_TEXT];
    const struct json *hours = json_get(p->prediction, "hours");
    const struct json *cost = json_get(p->prediction, "cost_usd");
    void *cursor = NULL;
    const char *key;
    const struct json *v;
    while (json_next(json_get(hours, "lines"), &cursor, &key, &v))
        if (json_num(v, "mid", 0) > 0)
            str_addf(out, "  %-26.40s %12s\n", key, units_seconds(a, 3600 * json_num(v, "mid", 0)));
    str_addf(out, "  %-26s %12s  (%s to ", "run", units_seconds(a, p->run_s),
        units_seconds(b, 3600 * json_num(hours, "low", 0)));
    str_addf(out, "%s)\n", units_seconds(a, 3600 * json_num(hours, "high", 0)));
    add_intervals(out, p->prediction);
    if (!cost) {
        str_addf(out, "  the offer has no price\n");
        return;
    }
    str_addf(out, "  %-26s %12s  (up to %s)\n", "cost", units_usd(a, p->cost_micro_usd),
        units_usd(b, p->cost_high_micro_usd));
}

static void add_file_disk(struct str *out, const struct json *disk)
{
    char a[UNITS_TEXT], b[UNITS_TEXT];
    double bytes = json_num(disk, "nvme_bytes", 0),
           per_day = json_num(disk, "drive_writes_per_day", 0);
    if (!(bytes > 0))
        return;
    str_addf(out, "Disk of a node: %s; the run writes %s", units_bytes(a, bytes),
        units_bytes(b, json_num(disk, "written_bytes", 0)));
    if (per_day > 0)
        str_addf(out, ", the whole of it %.2g times a day%s", per_day,
            per_day > WEAR_RATED_PER_DAY ? ": more than drives for mostly reading are rated for"
                                         : "");
    str_addf(out, "\n");
}

static void add_where(struct str *out, const struct plan_file *p)
{
    const struct offer *o = &p->offer;
    char a[UNITS_TEXT];
    str_addf(out, "  %s %s", o->provider, o->id);
    if (o->region[0])
        str_addf(out, " in %s", o->region);
    str_addf(out, ": %lld node%s of %lld %s, %s each\n", (long long)p->nodes,
        p->nodes == 1 ? "" : "s", (long long)o->gpus_per_node,
        o->device == DEVICE_CPU ? "CPU ranks" : o->gpu,
        units_bytes(a, (double)o->gpu_memory_bytes));
    if (o->price_usd_micro_per_hour >= 0)
        str_addf(out, "  %s per node and hour%s%s\n", units_usd(a, o->price_usd_micro_per_hour),
            o->fetched_at[0] ? ", as of " : "", o->fetched_at);
    if (p->nodes > 1)
        str_addf(out, "  %s, %.0f Gbit/s per node\n", offer_fabric_name(o->fabric),
            o->inter_gbps_per_node);
}

/* --- other ways on the same nodes --- */

static void add_alternative(struct str *out, const struct plan_file *p, const struct alternative *a)
{
    static const char *const missing[MEMORY_COUNT] = {
        "too much for a rank", "of host memory missing", "of disk missing"};
    char text[SEARCH_TEXT], b[UNITS_TEXT];
    if (!a->exists)
        return;
    if (!a->fits) {
        str_addf(out, "  %s: %s %s even with\n", strategy_kind_name(a->kind),
            units_bytes(b, (double)a->short_by), missing[a->where]);
        explain_wrapped(out, 6, explain_strategy(&a->strategy, text));
        return;
    }
    double slower = a->estimate.step_s / p->step_s - 1;
    str_addf(out, "  %s: a step of %s", strategy_kind_name(a->kind),
        units_seconds(b, a->estimate.step_s));
    if (a->kind == p->strategy.kind) {
        str_addf(out, ", the plan\n");
        return;
    }
    str_addf(out, ", %+.1f %%, with\n", 100 * slower);
    explain_wrapped(out, 6, explain_strategy(&a->strategy, text));
}

static void add_alternatives(
    struct str *out, const struct plan_file *p, const struct alternative *all)
{
    str_addf(out, "\nOther ways on the same nodes, each at its best\n");
    for (int i = 0; i < ALTERNATIVES; i++)
        add_alternative(out, p, &all[i]);
}

struct json *explain_alternatives_json(const struct alternative all[ALTERNATIVES])
{
    struct json *list = json_arr();
    for (int i = 0; i < ALTERNATIVES; i++) {
        const struct alternative *a = &all[i];
        if (!a->exists)
            continue;
        struct json *v = json_obj();
        json_add(v, "strategy", strategy_to_json(&a->strategy));
        json_add_bool(v, "fits", a->fits);
        json_add_num(v, "step_seconds", a->fits ? a->estimate.step_s : NAN);
        json_add_num(v, "hours", a->fits ? a->run_s / 3600 : NAN);
        json_add_int(v, "peak_bytes", a->estimate.peak_bytes);
        if (a->fits)
            json_add_null(v, "short_by_bytes");
        else
            json_add_int(v, "short_by_bytes", a->short_by);
        json_push(list, v);
    }
    return list;
}

static void add_break_even(struct str *out, const struct plan_file *p)
{
    if (json_len(p->break_even) == 0)
        return;
    str_addf(out, "\nBreak-even prices\n");
    break_even_describe(out, p->break_even, json_len(p->break_even));
}

static void add_how(struct str *out, const struct plan_file *p)
{
    char text[SEARCH_TEXT], hex[HASH128_HEX];
    hash128_hex(p->schedule_hash, hex);
    str_add(out, "\nHow\n");
    explain_wrapped(out, 2, explain_strategy(&p->strategy, text));
    str_addf(out, "  schedule %s, planned by berth %s\n", hex, p->program);
    str_addf(out, "  launchable: %s%s%s\n", p->is_launchable ? "yes" : "no",
        p->is_launchable ? "" : ": ", p->not_launchable);
}

void explain_plan_file(
    struct str *out, const struct plan_file *p, const struct plan_findings *found)
{
    static const struct plan_findings nothing = {0};
    const struct plan_findings *f = found ? found : &nothing;
    char a[UNITS_TEXT];
    str_addf(out, "Job\n  %s on %s tokens, sequences of %lld, for %s\n", p->job.model.name,
        units_count(a, (double)p->job.tokens), (long long)p->job.seq,
        objective_name(p->job.objective));
    str_addf(out, "\nWhere\n");
    add_where(out, p);
    add_how(out, p);
    str_addf(out, "\nReasoning\n");
    add_formulas(out, p);
    add_memory(out, p, f->memory);
    add_host(out, p, f->host);
    add_file_disk(out, json_get(p->prediction, "disk"));
    add_step(out, p, f->work);
    add_evidence(out, json_get(p->prediction, "basis"));
    if (f->network)
        network_needs_describe(out, f->network);
    add_checkpoint(out, p);
    plan_reasons_describe(out, p->reasons);
    if (f->alternatives)
        add_alternatives(out, p, f->alternatives);
    str_addf(out, "\nHours and cost\n");
    add_money(out, p);
    add_break_even(out, p);
    str_addf(out, "\nConstants\n");
    add_constants(out, p->constants);
}
