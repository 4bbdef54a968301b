#include "planner/explain.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/adapter.h"
#include "planner/break_even.h"
#include "planner/hardware.h"
#include "planner/plan_file.h"

/* ", tensor 8, pipeline 4": what is split beside the data. */
static int add_splits(char *buf, size_t size, const struct parallel *p)
{
    const struct {
        const char *what;
        int64_t n;
    } all[] = {{"tensor", p->tensor}, {"pipeline", p->pipeline},
        {"virtual stages", p->virtual_stages}, {"context", p->context}, {"expert", p->expert}};
    int n = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].n > 1)
            n += snprintf(buf + n, size - (size_t)n, ", %s %lld", all[i].what, (long long)all[i].n);
    return n;
}

static int add_offload(char *buf, size_t size, unsigned offload)
{
    const char *states = offload & OFFLOAD_DISK           ? ", optimizer states on NVMe"
                         : !(offload & OFFLOAD_OPTIMIZER) ? ""
                         : offload & OFFLOAD_PARAMETERS   ? ", optimizer and parameters on the host"
                                                          : ", optimizer on the host";
    bool is_alone = offload & OFFLOAD_PARAMETERS && !(offload & OFFLOAD_OPTIMIZER);
    return snprintf(buf, size, "%s%s%s", states, is_alone ? ", parameters on the host" : "",
        offload & OFFLOAD_ACTIVATIONS ? ", activations on the host" : "");
}

char *explain_strategy(const struct strategy *s, char buf[SEARCH_TEXT])
{
    const char *engine = engine_name(s->engine), *kind = strategy_kind_name(s->kind);
    bool is_said = !profile_of(s->engine)->is_bundled && strcmp(engine, kind) != 0;
    int n = snprintf(buf, SEARCH_TEXT, "%s%s%s", is_said ? engine : "", is_said ? " " : "", kind);
    if (s->kind == STRATEGY_HSDP)
        n += snprintf(
            buf + n, SEARCH_TEXT - (size_t)n, " in groups of %lld", (long long)s->shard_degree);
    n += add_splits(buf + n, SEARCH_TEXT - (size_t)n, &s->parallel);
    n += snprintf(buf + n, SEARCH_TEXT - (size_t)n, ", %s, micro batch %lld x %lld",
        precision_name(s->precision), (long long)s->micro_batch, (long long)s->grad_accum);
    if (s->recompute != RECOMPUTE_NONE)
        n += snprintf(
            buf + n, SEARCH_TEXT - (size_t)n, ", %s recompute", recompute_name(s->recompute));
    n += add_offload(buf + n, SEARCH_TEXT - (size_t)n, s->offload);
    if (s->loss_chunks > 1)
        snprintf(buf + n, SEARCH_TEXT - (size_t)n, ", loss in %d chunks", s->loss_chunks);
    return buf;
}

void explain_wrapped(struct str *out, int indent, const char *text)
{
    int column = 0;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column > 0 && column + 1 + n > 80) {
            str_addc(out, '\n');
            column = 0;
        }
        if (column == 0)
            column = indent;
        else
            column++;
        str_addf(out, "%*s%.*s", column == indent ? indent : 1, "", n, text);
        column += n;
        text += n + (text[n] == ' ');
    }
    str_addc(out, '\n');
}

/* --- one estimate --- */

static void add_phases(struct str *out, const struct estimate *x)
{
    char text[UNITS_TEXT];
    if (x->phase_bytes[PHASE_UPDATE] <= 0)
        return;
    for (int i = 0; i < PHASE_COUNT; i++)
        str_addf(out, "%s%s %s", i ? ", " : "  at most: ", phase_name((enum phase)i),
            units_bytes(text, (double)x->phase_bytes[i]));
    str_addf(out, "\n");
}

static void add_memory(struct str *out, const struct estimate *x)
{
    char a[UNITS_TEXT], b[UNITS_TEXT];
    str_addf(out, "Memory of a rank: %s of %s, fits with probability %.2f\n",
        units_bytes(a, (double)x->peak_bytes), units_bytes(b, (double)x->capacity_bytes),
        x->fit_probability);
    for (int i = 0; i < PART_COUNT; i++)
        if (x->part_bytes[i] > 0)
            str_addf(out, "  %-22s %12s\n", part_name((enum part)i),
                units_bytes(a, (double)x->part_bytes[i]));
    if (x->packing_bytes > 0)
        str_addf(out, "  %-22s %12s\n", x->is_allocated ? "allocator" : "packing",
            units_bytes(a, (double)x->packing_bytes));
    str_addf(out, "  %-22s %12s  (outside %s, not counted above)\n", "external",
        units_bytes(a, (double)x->external_bytes), x->is_allocated ? "the allocator" : "the slab");
    add_phases(out, x);
    str_addf(out, "Host memory of a node: %s", units_bytes(a, (double)x->host_ram_bytes));
    if (x->host_capacity_bytes > 0)
        str_addf(out, " of %s%s", units_bytes(b, (double)x->host_capacity_bytes),
            x->host_ram_bytes > x->host_capacity_bytes ? ": too little, it does not fit" : "");
    str_addf(out, "\n");
    for (int i = 0; i < PART_COUNT; i++)
        if (x->host_part_bytes[i] > 0)
            str_addf(out, "  %-22s %12s  (pinned)\n", part_name((enum part)i),
                units_bytes(a, (double)x->host_part_bytes[i]));
}

/* b: NULL without a run. */
static void add_disk(struct str *out, const struct estimate *x, const struct bill *b)
{
    char a[UNITS_TEXT], c[UNITS_TEXT];
    if (x->disk_bytes == 0)
        return;
    str_addf(out, "Disk of a node: %s", units_bytes(a, (double)x->disk_bytes));
    if (x->disk_capacity_bytes > 0)
        str_addf(out, " of %s", units_bytes(a, (double)x->disk_capacity_bytes));
    str_addf(out, ", with two checkpoints; a step writes %s\n",
        units_bytes(a, (double)x->disk_written_bytes));
    if (!b)
        return;
    struct wear w = wear_make(x, b);
    str_addf(out, "  the run writes %s", units_bytes(c, w.written_bytes));
    if (isfinite(w.drive_writes))
        str_addf(
            out, ": the whole disk %.3g times, %.2g a day", w.drive_writes, w.drive_writes_per_day);
    str_addf(out, "\n");
    if (w.drive_writes_per_day > WEAR_RATED_PER_DAY)
        str_addf(out,
            "  which wears it out early: drives for mostly reading are rated for %.0f a day over "
            "five years\n",
            WEAR_RATED_PER_DAY);
}

static void add_share(struct str *out, const char *what, double s, double step_s)
{
    char a[UNITS_TEXT];
    if (s > 0.0005 * step_s)
        str_addf(out, "  %-22s %12s  %5.1f %%\n", what, units_seconds(a, s), 100 * s / step_s);
}

static void add_step(struct str *out, const struct estimate *x)
{
    static const char *const exposed[LANE_COUNT] = {NULL, "waiting for gathers",
        "waiting for reductions", "waiting for copies down", "waiting for copies up",
        "waiting for the host", "waiting for the disk"};
    const struct simulation *s = &x->simulation;
    char a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT];
    str_addf(out, "A step: %s (90 %%: %s to %s), %.0f tokens/s per rank, MFU %.1f %%\n",
        units_seconds(a, x->step_s), units_seconds(b, x->step_low_s),
        units_seconds(c, x->step_high_s), x->tokens_per_s_per_rank, 100 * x->mfu);
    add_share(out, "computing", s->busy_s[LANE_COMPUTE], x->step_s);
    double rest = s->step_s - s->busy_s[LANE_COMPUTE];
    for (int l = LANE_COMPUTE + 1; l < LANE_COUNT; l++) {
        add_share(out, exposed[l], s->exposed_s[l], x->step_s);
        rest -= s->exposed_s[l];
    }
    add_share(out, "overhead, stragglers", rest, x->step_s);
}

static void add_basis(struct str *out, const struct machine *mc)
{
    static const char *const close[] = {"fitted to published runs on this GPU",
        "fitted to published runs on other GPUs", "judged: nobody has measured it"};
    int priors = 0;
    if (strcmp(mc->stack, profile_of(ENGINE_BERTH)->stack) != 0) {
        str_addf(out, "Constants of %s, %s\n", mc->stack, close[mc->basis]);
        return;
    }
    for (int i = 0; i < mc->n_constants; i++)
        priors += mc->constant[i].entry->is_prior;
    const char *chip = mc->hw.is_gpu ? mc->hw.gpu : "this CPU";
    if (priors > 0 && mc->basis == BASIS_PRIOR)
        str_addf(out, "%d of %d constants are priors: nobody has measured this engine on '%s'\n",
            priors, mc->n_constants, chip);
    else if (priors > 0)
        str_addf(out, "%d of %d constants are priors, the others were measured on '%s'\n", priors,
            mc->n_constants, chip);
}

/* What is trained of a model, where not all of it is. */
static void explain_adapter(struct str *out, const struct model *m)
{
    char n[UNITS_TEXT];
    if (m->adapter.rank == 0)
        return;
    str_addf(out, "trained: adapters of rank %lld beside ", (long long)m->adapter.rank);
    adapter_targets_text(out, m->adapter.targets);
    str_addf(out, ", %s parameters; frozen: all else, blocks in %d bits\n",
        units_count(n, (double)model_trained_params(m)), m->adapter.base_bits);
}

void explain_estimate(struct str *out, const struct estimate *x, const struct model *m,
    const struct strategy *s, const struct machine *mc)
{
    char text[SEARCH_TEXT], a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT];
    str_addf(out, "%s, %s parameters, sequences of %lld tokens\n", m->name,
        units_count(a, (double)model_params(m)), (long long)s->seq);
    explain_adapter(out, m);
    if (s->doc_tokens > 0)
        str_addf(out, "packed documents of %lld tokens on average\n", (long long)s->doc_tokens);
    str_addf(out, "%s\n", hardware_text(&mc->hw, text));
    str_addf(out, "%s\n\n", explain_strategy(s, text));
    add_memory(out, x);
    add_disk(out, x, NULL);
    str_addf(out, "\n");
    add_step(out, x);
    str_addf(out, "MFU: %s\n", x->flops_definition);
    str_addf(out, "\nA checkpoint: %s, written in %s, for which training waits %s at most\n",
        units_bytes(a, (double)x->checkpoint_bytes), units_seconds(b, x->checkpoint_s),
        units_seconds(c, x->checkpoint_stall_s));
    add_basis(out, mc);
}

/* --- a search --- */

static void add_hours(struct str *out, const char *name, const double s[BILL_CASES])
{
    char text[UNITS_TEXT];
    str_addf(out, "  %-22s", name);
    for (int c = 0; c < BILL_CASES; c++)
        str_addf(out, " %11s", units_seconds(text, s[c]));
    str_addf(out, "\n");
}

static void add_dollars(struct str *out, const char *name, const int64_t micro[BILL_CASES])
{
    char text[UNITS_TEXT];
    str_addf(out, "  %-22s", name);
    for (int c = 0; c < BILL_CASES; c++)
        str_addf(out, " %11s", units_usd(text, micro[c]));
    str_addf(out, "\n");
}

static void add_bill(struct str *out, const struct bill *b)
{
    str_addf(out, "  %-22s %11s %11s %11s\n", "", "low", "mid", "high");
    for (int l = 0; l < BILL_LINES; l++) {
        const double s[] = {b->line_s[0][l], b->line_s[1][l], b->line_s[2][l]};
        if (s[BILL_HIGH] > 0)
            add_hours(out, bill_line_name((enum bill_line)l), s);
    }
    add_hours(out, "run", b->run_s);
    add_hours(out, "billed", b->billed_s);
    if (!b->is_priced)
        return;
    str_addf(out, "\n");
    for (int l = 0; l < COST_LINES; l++) {
        const int64_t micro[] = {
            b->line_micro_usd[0][l], b->line_micro_usd[1][l], b->line_micro_usd[2][l]};
        if (micro[BILL_HIGH] > 0)
            add_dollars(out, cost_line_name((enum cost_line)l), micro);
    }
    add_dollars(out, "cost", b->total_micro_usd);
}

/* How often it saves and stops. */
static void add_stops(struct str *out, const struct bill *b)
{
    char a[UNITS_TEXT], c[UNITS_TEXT];
    bool is_best = fabs(b->interval_s - b->optimal_interval_s) <= 1;
    str_addf(out, "  a checkpoint every %s", units_seconds(a, b->interval_s));
    if (!is_best)
        str_addf(out, "; every %s would waste the least", units_seconds(a, b->optimal_interval_s));
    str_addf(out, "\n  a stop is to be expected every %s, and %s to restart\n",
        units_seconds(a, b->between_stops_s), units_seconds(c, b->restart_s));
}

void explain_winner(struct str *out, const struct search *s, const struct offers *offers)
{
    const struct plan *p = &s->plans[0];
    const struct offer *o = offers_at(offers, p->offer);
    char text[SEARCH_TEXT];
    str_addf(out, "Plan 1: %s %s, %lld node%s, %s\n", o->provider, o->id, (long long)p->nodes,
        p->nodes == 1 ? "" : "s", hardware_text(&p->hw, text));
    str_addf(out, "  %s\n", explain_strategy(&p->strategy, text));
    str_addf(out, "  why: %s\n", p->why);
    str_addf(out, "  %s\n", p->limits);
    if (p->knows_network)
        network_needs_describe(out, &p->network);
    str_addf(out, "\n");
    add_memory(out, &p->estimate);
    add_disk(out, &p->estimate, &p->bill);
    str_addf(out, "\n");
    add_step(out, &p->estimate);
    str_addf(out, "\nHours and cost:\n");
    add_bill(out, &p->bill);
    add_stops(out, &p->bill);
    if (o->fetched_at[0])
        str_addf(out, "  price as of %s\n", o->fetched_at);
}

void explain_rejected(struct str *out, const struct search *s, size_t max)
{
    for (size_t i = 0; i < s->n_rejected && i < max; i++) {
        const struct rejection *r = &s->rejected[i];
        str_addf(out, "  %s", r->what);
        if (r->offers > 1)
            str_addf(out, " (%zu offers)", r->offers);
        str_addf(out, ": %s\n", r->why);
        if (r->nearest_change[0])
            str_addf(out, "    would do: %s\n", r->nearest_change);
    }
    if (s->n_rejected > max)
        str_addf(out, "  and %zu more; --json lists all\n", s->n_rejected - max);
}

/* --- a plan file --- */

static void add_parts(struct str *out, const struct json *parts, bool is_bytes)
{
    void *cursor = NULL;
    const char *key;
    const struct json *v;
    char a[UNITS_TEXT];
    while (json_next(parts, &cursor, &key, &v)) {
        double x = json_as_num(v, 0);
        if (x > 0)
            str_addf(
                out, "  %-26.40s %12s\n", key, is_bytes ? units_bytes(a, x) : units_seconds(a, x));
    }
}

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
    str_addf(out, "  parameters N = %lld (%lld blocks, width %lld, ffn %lld, vocabulary %lld)\n",
        (long long)model_params(m), (long long)m->layers, (long long)m->width, (long long)m->ffn,
        (long long)m->vocab);
    str_addf(out,
        "  tokens per step = %lld %sranks x %lld sequences x %lld micro steps x %lld = %s\n",
        (long long)strategy_data_ranks(s), strategy_is_data_parallel(s) ? "" : "data ",
        (long long)s->micro_batch, (long long)s->grad_accum, (long long)s->seq,
        units_count(a, tokens));
    str_addf(out, "  steps = %s tokens / %s = %lld\n", units_count(a, (double)p->job.tokens),
        units_count(b, tokens), (long long)p->steps);
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
    char text[SEARCH_TEXT], b[UNITS_TEXT];
    if (!a->exists)
        return;
    explain_strategy(&a->strategy, text);
    if (!a->fits) {
        str_addf(out, "  %s: %s %s even with\n      %s\n", strategy_kind_name(a->kind),
            units_bytes(b, (double)a->short_by),
            a->where == MEMORY_DEVICE ? "too much for a rank"
            : a->where == MEMORY_HOST ? "of host memory missing"
                                      : "of disk missing",
            text);
        return;
    }
    double slower = a->estimate.step_s / p->step_s - 1;
    str_addf(out, "  %s: a step of %s", strategy_kind_name(a->kind),
        units_seconds(b, a->estimate.step_s));
    if (a->kind == p->strategy.kind)
        str_addf(out, ", the plan\n");
    else
        str_addf(out, ", %+.1f %%, with\n      %s\n", 100 * slower, text);
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

void explain_plan_file(struct str *out, const struct plan_file *p, const struct alternative *all,
    const struct network_needs *network)
{
    char text[SEARCH_TEXT], a[UNITS_TEXT], hex[HASH128_HEX];
    const struct json *memory = json_get(p->prediction, "memory");
    const struct json *step = json_get(p->prediction, "step");
    str_addf(out, "Job\n  %s on %s tokens, sequences of %lld, for %s\n", p->job.model.name,
        units_count(a, (double)p->job.tokens), (long long)p->job.seq,
        objective_name(p->job.objective));
    str_addf(out, "\nWhere\n");
    add_where(out, p);
    hash128_hex(p->schedule_hash, hex);
    str_addf(out, "\nHow\n  %s\n  schedule %s, planned by berth %s\n",
        explain_strategy(&p->strategy, text), hex, p->program);
    str_addf(out, "  launchable: %s%s%s\n", p->is_launchable ? "yes" : "no",
        p->is_launchable ? "" : ": ", p->not_launchable);
    str_addf(out, "\nReasoning\n");
    add_formulas(out, p);
    str_addf(out, "\nMemory of a rank: %s", units_bytes(a, (double)p->peak_bytes));
    str_addf(out, " of %s\n", units_bytes(a, json_num(memory, "capacity_bytes", 0)));
    add_parts(out, json_get(memory, "parts"), true);
    add_file_disk(out, json_get(p->prediction, "disk"));
    str_addf(out, "\nA step: %s\n", units_seconds(a, p->step_s));
    add_parts(out, json_get(step, "parts"), false);
    str_addf(out, "  work, each operation as if alone:\n");
    add_parts(out, json_get(step, "work"), false);
    if (network)
        network_needs_describe(out, network);
    if (all)
        add_alternatives(out, p, all);
    str_addf(out, "\nHours and cost\n");
    add_money(out, p);
    add_break_even(out, p);
    str_addf(out, "\nConstants\n");
    add_constants(out, p->constants);
}
