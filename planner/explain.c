#include "planner/explain.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/adapter.h"
#include "planner/hardware.h"

/* ", tensor 8, pipeline 4": what is split beside the data. */
static void add_splits(struct str *out, const struct parallel *p)
{
    const struct {
        const char *what;
        int64_t n;
    } all[] = {{"tensor", p->tensor}, {"pipeline", p->pipeline},
        {"virtual stages", p->virtual_stages}, {"context", p->context}, {"expert", p->expert}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].n > 1)
            str_addf(out, ", %s %lld", all[i].what, (long long)all[i].n);
}

static void add_offload(struct str *out, unsigned offload)
{
    bool has_params = offload & OFFLOAD_PARAMETERS;
    const char *states = !(offload & OFFLOAD_OPTIMIZER) ? ""
                         : offload & OFFLOAD_DISK
                             ? has_params ? ", optimizer states and parameters on NVMe"
                                          : ", optimizer states on NVMe"
                         : has_params ? ", optimizer and parameters on the host"
                                      : ", optimizer on the host";
    bool is_alone = has_params && !(offload & OFFLOAD_OPTIMIZER);
    str_addf(out, "%s%s%s", states, is_alone ? ", parameters on the host" : "",
        offload & OFFLOAD_ACTIVATIONS ? ", activations on the host" : "");
}

static void add_recompute(struct str *out, const struct strategy *s)
{
    const char *name = recompute_name(s->recompute);
    if (s->full_blocks > 0)
        str_addf(out, ", full recompute of %d blocks, %s of the others", s->full_blocks, name);
    else if (s->recompute != RECOMPUTE_NONE)
        str_addf(out, ", %s recompute", name);
}

/* When parameters are freed and gradients reduced, where that is not as usual. */
static void add_moves(struct str *out, const struct strategy *s)
{
    bool is_gathered = s->kind == STRATEGY_ZERO3 || s->kind == STRATEGY_HSDP;
    char bytes[UNITS_TEXT];
    if (is_gathered && s->reshard_after_forward && s->reshard_above_bytes > 0)
        str_addf(out, ", units above %s freed after forward",
            units_bytes(bytes, (double)s->reshard_above_bytes));
    if (s->bucket_bytes == INT64_MAX)
        str_add(out, ", gradients reduced at once");
    else if (s->bucket_bytes > 0)
        str_addf(out, ", gradients reduced by %s", units_bytes(bytes, (double)s->bucket_bytes));
    if (s->gather_format != WIRE_PLAIN)
        str_addf(out, ", parameters gathered in %s", wire_name(s->gather_format));
    if (s->reduce_format != WIRE_PLAIN)
        str_addf(out, ", gradients reduced in %s", wire_name(s->reduce_format));
}

char *explain_strategy(const struct strategy *s, char buf[SEARCH_TEXT])
{
    const char *engine = engine_name(s->engine), *kind = strategy_kind_name(s->kind);
    bool is_said = !profile_of(s->engine)->is_bundled && strcmp(engine, kind) != 0;
    struct str out = STR_INIT;
    str_addf(&out, "%s%s%s", is_said ? engine : "", is_said ? " " : "", kind);
    if (s->kind == STRATEGY_HSDP)
        str_addf(&out, " in groups of %lld%s", (long long)s->shard_degree,
            s->splits_over_replicas ? ", optimizer states over all ranks" : "");
    add_splits(&out, &s->parallel);
    str_addf(&out, ", %s, micro batch %lld x %lld", precision_name(s->precision),
        (long long)s->micro_batch, (long long)s->grad_accum);
    if (s->optimizer != OPTIMIZER_ADAMW)
        str_addf(&out, ", %s", optimizer_name(s->optimizer));
    if (strategy_converts_master(s))
        str_addf(&out, ", %s master weights", strategy_master_name(s));
    if (s->fp8_gradients)
        str_addf(&out, ", gradients in fp8");
    if (s->moment_form != MOMENT_FP32)
        str_addf(&out, ", %s moments", moment_form_name(s->moment_form));
    add_recompute(&out, s);
    add_moves(&out, s);
    add_offload(&out, s->offload);
    if (s->loss_chunks > 1)
        str_addf(&out, ", loss in %d chunks", s->loss_chunks);
    str_copy(buf, SEARCH_TEXT, str_text(&out));
    str_release(&out);
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
    if (s->flush_s > 0)
        str_addf(out, "  the host's update, %s by itself, runs beside the next forward pass\n",
            units_seconds(a, s->flush_s));
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

/* "49 runs of fsdp1-composer on h100-sxm" */
static void add_runs(struct str *out, const struct rates_entry *en)
{
    bool is_any_stack = strcmp(en->stack, "*") == 0, is_any_chip = strcmp(en->chip, "*") == 0;
    str_addf(out, "%lld run%s of %s on %s", (long long)en->rows, en->rows == 1 ? "" : "s",
        is_any_stack ? "all software" : en->stack, is_any_chip ? "any GPU" : en->chip);
}

void explain_evidence(struct str *out, int indent, const struct estimate *x)
{
    struct str line = STR_INIT;
    if (!x->evidence)
        return;
    if (x->outside) {
        str_addf(&line, "extrapolated beyond the ");
        add_runs(&line, x->evidence);
        str_addf(&line, " behind the constants: ");
        ranges_describe(&line, &x->evidence->ranges, &x->sizes, x->outside);
        str_addf(&line, "; the band is wider for it");
    } else {
        str_addf(&line, "no size is beyond those of the ");
        add_runs(&line, x->evidence);
        str_addf(&line, " behind the constants");
    }
    explain_wrapped(out, indent, str_text(&line));
    str_release(&line);
}

void explain_experts(struct str *out, const struct model *m)
{
    char active[UNITS_TEXT];
    if (m->experts > 0)
        str_addf(out, "experts: %lld in a block, of which a token passes through %lld: %s active\n",
            (long long)m->experts, (long long)m->expert_top,
            units_count(active, (double)model_active_params(m)));
}

void explain_adapter(struct str *out, const struct model *m)
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
    explain_experts(out, m);
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
    explain_evidence(out, 0, x);
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
    explain_evidence(out, 2, &p->estimate);
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
