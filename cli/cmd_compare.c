/* `berth compare`: training engines side by side for one job and cluster; claims of others. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "cli/adapter_options.h"
#include "cli/bits_options.h"
#include "cli/command.h"
#include "cli/evidence_load.h"
#include "cli/help.h"
#include "cli/job_options.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/what_options.h"
#include "inventory/offer.h"
#include "planner/claims.h"
#include "planner/compare.h"
#include "planner/explain.h"
#include "planner/hardware.h"

static const struct option OPTIONS[] = {
    {.name = "engine",
        .kind = OPTION_TEXT,
        .is_repeatable = true,
        .argument = "LIST",
        .help = "only these engines, separated by commas; default all",
        .example = "--engine berth,fsdp2,deepspeed"},
    {.name = "global-batch-tokens",
        .kind = OPTION_COUNT,
        .is_setting = true,
        .help = "tokens of an optimizer step; default by the size of the model",
        .example = "--global-batch-tokens 4194304"},
    {.name = "precision",
        .kind = OPTION_CHOICE,
        .is_setting = true,
        .choices = "bf16|fp32",
        .help = "of parameters in use and activations; default bf16",
        .example = "--precision fp32"},
    {.name = "tokens",
        .kind = OPTION_COUNT,
        .def = "1B",
        .help = "tokens that the cost is for",
        .example = "--tokens 10B"},
    {.name = "price-usd-per-gpu-hour",
        .kind = OPTION_USD,
        .help = "price of a GPU, for the cost",
        .example = "--price-usd-per-gpu-hour 2.49"},
    {.name = "measured",
        .kind = OPTION_FILE,
        .help = "a table of runs: those like these setups are shown beside",
        .detail = "Columns as `berth validate` reads them.",
        .example = "--measured runs.csv"},
    {.name = "calibration",
        .kind = OPTION_FILE,
        .help = "constants of your own (berth calibrate) over the built-in ones",
        .example = "--calibration mine.json"},
    {.name = "claims",
        .kind = OPTION_FLAG,
        .help = "list what others claim about engines, and whether it holds"},
    {.name = "columns",
        .kind = OPTION_TEXT,
        .argument = "LIST",
        .help = "columns to show, separated by commas",
        .detail = "Known are engine, source, strategy, memory, fit, step, band, tokens/s (of a "
                  "GPU), mfu, cost, stack; with --claims id, verdict, claim, found, source.",
        .example = "--columns engine,memory,tokens/s"},
    {0},
};
static const struct option_group COMPARE_OPTIONS = {"Options", OPTIONS};

enum { CLAIM_COLUMN = 2 };

/* What a run of the command holds on to. */
struct comparison {
    struct job job;
    struct offer offer;
    int64_t nodes;
    struct rates *rates;
    struct claims claims;
    struct evidence evidence;
    struct compared all[ENGINE_COUNT];
    size_t n;
    int64_t price_micro_usd; /* of a GPU and hour; negative: unknown */
};

static void release(struct comparison *c)
{
    evidence_release(&c->evidence);
    claims_release(&c->claims);
    rates_free(c->rates);
    job_release(&c->job);
}

/* --- figures ---------------------------------------------------------------------------------- */

static double cost_usd(const struct comparison *c, double tokens_per_s_per_gpu)
{
    if (c->price_micro_usd < 0)
        return NAN;
    double gpu_hours = (double)c->job.tokens / tokens_per_s_per_gpu / 3600;
    return gpu_hours * (double)c->price_micro_usd / (double)USD_MICRO;
}

/* The fastest measured run of the engine on as many such GPUs with a model of the same size. */
static const struct evidence_row *measured_run(const struct comparison *c, enum engine g)
{
    const struct evidence_row *best = NULL;
    const struct hardware *hw = &c->all[0].machine.hw;
    double params = (double)model_params(&c->job.model);
    for (size_t i = 0; i < c->evidence.n_rows; i++) {
        const struct evidence_row *r = &c->evidence.rows[i];
        bool is_alike = r->strategy.engine == g && strcmp(r->hw.gpu, hw->gpu) == 0 &&
                        r->strategy.ranks == hw->nodes * hw->ranks_per_node && !r->is_oom &&
                        fabs((double)model_params(&r->model) / params - 1) < 0.05 &&
                        r->strategy.seq == c->job.seq && r->tokens_per_s > 0 &&
                        r->strategy.precision == c->job.precision;
        if (is_alike && (!best || r->tokens_per_s > best->tokens_per_s))
            best = r;
    }
    return best;
}

/* --- printing --------------------------------------------------------------------------------- */

static const struct table_column COLUMNS[] = {
    {.name = "ENGINE"},
    {.name = "SOURCE"},
    {.name = "STRATEGY", .drop = 2, .is_elastic = true, .least = 14},
    {.name = "MEMORY", .align = TABLE_RIGHT},
    {.name = "FIT", .align = TABLE_RIGHT, .drop = 4},
    {.name = "STEP", .align = TABLE_RIGHT, .drop = 3},
    {.name = "TOKENS/S", .align = TABLE_RIGHT},
    {.name = "BAND", .align = TABLE_RIGHT},
    {.name = "COST", .align = TABLE_RIGHT},
    {.name = "MFU", .align = TABLE_RIGHT, .is_extra = true},
    {.name = "STACK", .is_extra = true},
    {0},
};
static const struct table_column CLAIM_COLUMNS[] = {
    {.name = "ID"},
    {.name = "VERDICT"},
    {.name = "CLAIM", .is_elastic = true},
    {.name = "FOUND", .is_elastic = true, .drop = 2},
    {.name = "SOURCE", .is_elastic = true, .drop = 1},
    {0},
};

static void usd_cell(struct table *t, double usd)
{
    char text[UNITS_TEXT];
    table_cell(
        t, isfinite(usd) && usd < 1e12 ? units_usd(text, (int64_t)ceil(usd * USD_MICRO)) : NULL);
}

static void dashes(struct table *t, int n)
{
    while (n-- > 0)
        table_cell(t, NULL);
}

static void add_derived(struct table *t, const struct comparison *c, const struct compared *x)
{
    char text[SEARCH_TEXT];
    const struct estimate *at = &x->estimate;
    table_cell(t, engine_name(x->engine));
    table_cell(t, "derived");
    if (!x->exists) {
        dashes(t, 9);
        return;
    }
    /* the engine has its own column */
    explain_strategy(&x->strategy, text);
    const char *engine = engine_name(x->engine);
    size_t n = strlen(engine);
    bool repeats = strncmp(text, engine, n) == 0 && text[n] == ' ';
    table_cell(t, repeats ? text + n + 1 : text);
    table_cell(t, units_bytes(text, (double)at->peak_bytes));
    if (!x->fits) {
        table_cell(t, "no");
        dashes(t, 5);
        table_cell(t, x->stack);
        return;
    }
    table_cellf(t, "%.2f", at->fit_probability);
    table_cell(t, units_seconds(text, at->step_s));
    table_cellf(t, "%.0f", at->tokens_per_s_per_rank);
    table_cellf(t, "%.0f-%.0f", at->tokens_per_s_per_rank * at->step_s / at->step_high_s,
        at->tokens_per_s_per_rank * at->step_s / at->step_low_s);
    usd_cell(t, cost_usd(c, at->tokens_per_s_per_rank));
    table_cellf(t, "%.1f%%", 100 * at->mfu);
    table_cell(t, x->stack);
}

static void add_measured(
    struct table *t, const struct comparison *c, enum engine g, const struct evidence_row *r)
{
    char text[SEARCH_TEXT];
    table_cell(t, engine_name(g));
    table_cell(t, "measured");
    table_cellf(t, "%s (%s)", strategy_kind_name(r->strategy.kind), r->id);
    table_cell(t, r->peak_bytes > 0 ? units_bytes(text, r->peak_bytes) : NULL);
    dashes(t, 2);
    table_cellf(t, "%.0f", r->tokens_per_s);
    table_cell(t, NULL);
    usd_cell(t, cost_usd(c, r->tokens_per_s));
    table_cell(t, NULL);
    table_cell(t, r->stack);
}

static void add_claimed(struct table *t, const struct claim *x)
{
    char text[UNITS_TEXT];
    table_cell(t, engine_name(x->engine));
    table_cell(t, "claimed");
    table_cellf(t, "%s (%s)", claim_verdict_name(x->verdict), x->id);
    table_cell(t, units_bytes(text, x->peak_bytes));
    dashes(t, 7);
}

static enum rc print_table(
    const struct comparison *c, const struct args *args, struct out *out, struct err *e)
{
    struct table_column columns[BASE_COUNT(COLUMNS)];
    memcpy(columns, COLUMNS, sizeof columns);
    for (size_t i = 0; columns[i].name; i++) /* nothing but dashes without a price */
        if (strcmp(columns[i].name, "COST") == 0 && !out_is_plain(out))
            columns[i].is_extra = c->price_micro_usd < 0;
    struct table *t = table_new(columns);
    double params = (double)model_params(&c->job.model);
    enum rc rc = table_select_args(t, args, e);
    if (rc) {
        table_free(t);
        return rc;
    }
    for (size_t i = 0; i < c->n; i++) {
        enum engine g = c->all[i].engine;
        const struct evidence_row *r = measured_run(c, g);
        add_derived(t, c, &c->all[i]);
        if (r)
            add_measured(t, c, g, r);
        for (size_t k = 0; k < c->claims.n; k++)
            if (claim_concerns(&c->claims.items[k], g, params, &c->all[i].machine.hw))
                add_claimed(t, &c->claims.items[k]);
    }
    out_table(out, t, args);
    return RC_OK;
}

static void print_head(const struct comparison *c, struct out *out)
{
    char hw[64], batch[UNITS_TEXT], params[UNITS_TEXT];
    out_printf(out, "%s, %s parameters, on %s, sequences of %lld tokens, %s tokens a step\n\n",
        c->job.model.name, units_count(params, (double)model_params(&c->job.model)),
        hardware_text(&c->all[0].machine.hw, hw), (long long)c->job.seq,
        units_count(batch, (double)c->job.global_batch_tokens));
}

/* Who is fastest, if anybody can say. */
static void print_best(const struct comparison *c, struct out *out)
{
    if (c->n < 2 || !c->all[1].fits)
        return;
    const struct compared *a = &c->all[0], *b = &c->all[1];
    const char *first = engine_name(a->engine), *second = engine_name(b->engine);
    double margin = 100 * (b->estimate.step_s / a->estimate.step_s - 1);
    out_printf(out, "\n%s is predicted %.0f %% faster than %s%s\n", first, margin, second,
        compare_is_open(a, b) ? ";\ntheir bands overlap, so it may be the other way round."
                              : ", beyond both bands.");
}

/* What the other place of the optimizer would do, beside the row shown. */
static void print_offload_of(const struct compared *x, struct out *out)
{
    bool is_plain = x->strategy.offload == OFFLOAD_NONE;
    double shown = is_plain ? x->plain_step_s : x->offloaded_step_s;
    double other = is_plain ? x->offloaded_step_s : x->plain_step_s;
    const char *name = engine_name(x->engine);
    char takes[48];
    snprintf(takes, sizeof takes, "takes %.2f times as long", other / shown);
    if (fabs(other / shown - 1) < 0.005)
        str_copy(takes, sizeof takes, "takes about as long");
    if (is_plain && other > 0)
        out_printf(out, "%s fits without offload; with the optimizer on the host a step\n%s.\n",
            name, takes);
    else if (other > 0)
        out_printf(out,
            "%s fits without offload too; a step then %s as\n"
            "with the optimizer on the host, as shown.\n",
            name, takes);
    else if (!is_plain)
        out_printf(out, "%s needs %s on the host.\n", name,
            x->strategy.offload == OFFLOAD_OPTIMIZER ? "the optimizer" : "some of its states");
}

static void print_offload(const struct comparison *c, struct out *out)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->all[i].exists && c->all[i].fits)
            print_offload_of(&c->all[i], out);
}

static void print_evidence(const struct comparison *c, struct out *out)
{
    struct str s = STR_INIT;
    for (size_t i = 0; i < c->n; i++) {
        const struct compared *x = &c->all[i];
        if (!x->exists || !x->fits || !x->estimate.outside)
            continue;
        str_addf(&s, "%s:\n", engine_name(x->engine));
        explain_evidence(&s, 2, &x->estimate);
    }
    out_lines(out, str_text(&s));
    str_release(&s);
}

static void print_misses(const struct comparison *c, struct out *out)
{
    char text[UNITS_TEXT];
    for (size_t i = 0; i < c->n; i++) {
        const struct compared *x = &c->all[i];
        if (!x->exists)
            out_printf(out, "%s has no way to split this batch over these GPUs.\n",
                engine_name(x->engine));
        else if (!x->fits)
            out_printf(out, "%s does not fit: it lacks %s of %s.\n", engine_name(x->engine),
                units_bytes(text, (double)x->short_by),
                x->where == MEMORY_DEVICE ? "memory per GPU"
                : x->where == MEMORY_HOST ? "host memory per node"
                                          : "disk per node");
    }
}

static enum rc print_text(
    const struct comparison *c, const struct args *args, struct out *out, struct err *e)
{
    if (!out_is_plain(out))
        print_head(c, out);
    enum rc rc = print_table(c, args, out, e);
    if (rc || out_is_plain(out))
        return rc;
    print_best(c, out);
    print_offload(c, out);
    print_misses(c, out);
    print_evidence(c, out);
    return RC_OK;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static struct json *derived_json(const struct comparison *c, const struct compared *x)
{
    struct json *v = json_obj();
    json_add_str(v, "engine", engine_name(x->engine));
    json_add_str(v, "source", "derived");
    json_add_bool(v, "fits", x->exists && x->fits);
    if (!x->exists)
        return v;
    json_add(v, "strategy", strategy_to_json(&x->strategy));
    if (!x->fits) {
        json_add_int(v, "peak_bytes", x->estimate.peak_bytes);
        json_add_int(v, "short_by_bytes", x->short_by);
        json_add_bool(v, "short_of_host_memory", x->where == MEMORY_HOST);
        json_add_bool(v, "short_of_disk", x->where == MEMORY_DISK);
        return v;
    }
    json_add_members(v, estimate_to_json(&x->estimate, &x->machine));
    json_add_bool(v, "needs_offload", !(x->plain_step_s > 0));
    json_add_num(v, "plain_step_seconds", x->plain_step_s > 0 ? x->plain_step_s : NAN);
    json_add_num(v, "offloaded_step_seconds", x->offloaded_step_s > 0 ? x->offloaded_step_s : NAN);
    json_add_num(v, "cost_usd", cost_usd(c, x->estimate.tokens_per_s_per_rank));
    return v;
}

static struct json *measured_json(
    const struct comparison *c, enum engine g, const struct evidence_row *r)
{
    struct json *v = json_obj();
    json_add_str(v, "engine", engine_name(g));
    json_add_str(v, "source", "measured");
    json_add_str(v, "id", r->id);
    json_add_str(v, "stack", r->stack);
    json_add(v, "strategy", strategy_to_json(&r->strategy));
    json_add_num(v, "tokens_per_second_per_gpu", r->tokens_per_s);
    json_add_num(v, "peak_bytes", r->peak_bytes > 0 ? r->peak_bytes : NAN);
    json_add_str(v, "mem_kind", mem_kind_name(r->mem_kind));
    json_add_num(v, "cost_usd", cost_usd(c, r->tokens_per_s));
    return v;
}

static void print_json(const struct comparison *c, struct out *out)
{
    struct json *doc = out_document(out, "compare/1"), *derived = json_arr();
    struct json *measured = json_arr(), *claimed = json_arr();
    double params = (double)model_params(&c->job.model);
    json_add(doc, "job", job_to_json(&c->job));
    json_add_int(doc, "parameters", model_params(&c->job.model));
    json_add_str(doc, "gpu", c->all[0].machine.hw.gpu);
    json_add_int(doc, "gpus", c->nodes * c->offer.gpus_per_node);
    for (size_t i = 0; i < c->n; i++) {
        enum engine g = c->all[i].engine;
        const struct evidence_row *r = measured_run(c, g);
        json_push(derived, derived_json(c, &c->all[i]));
        if (r)
            json_push(measured, measured_json(c, g, r));
        for (size_t k = 0; k < c->claims.n; k++)
            if (claim_concerns(&c->claims.items[k], g, params, &c->all[i].machine.hw))
                json_push(claimed, claim_to_json(&c->claims.items[k]));
    }
    json_add(doc, "engines", derived);
    json_add(doc, "measured", measured);
    json_add(doc, "claimed", claimed);
    out_json(out, doc);
}

/* --- claims ----------------------------------------------------------------------------------- */

static void print_claims_json(const struct claims *all, struct out *out)
{
    struct json *doc = out_document(out, "claims/1"), *list = json_arr();
    for (size_t i = 0; i < all->n; i++)
        json_push(list, claim_to_json(&all->items[i]));
    json_add(doc, "claims", list);
    out_json(out, doc);
}

static enum rc print_claims_table(
    const struct claims *all, const struct args *args, struct out *out, struct err *e)
{
    struct table *t = table_new(CLAIM_COLUMNS);
    enum rc rc = table_select_args(t, args, e);
    for (size_t i = 0; !rc && i < all->n; i++) {
        const struct claim *c = &all->items[i];
        table_cell(t, c->id);
        table_cell(t, claim_verdict_name(c->verdict));
        table_cell(t, c->claim);
        table_cell(t, c->finding);
        table_cell(t, c->source);
    }
    if (rc)
        table_free(t);
    else
        out_table(out, t, args);
    return rc;
}

/* Claims are sentences: a table would cut them. */
static void print_claims_text(const struct claims *all, struct out *out)
{
    struct str s = STR_INIT;
    for (size_t i = 0; i < all->n; i++) {
        const struct claim *c = &all->items[i];
        const char *const parts[][2] = {
            {"claim:  ", c->claim}, {"found:  ", c->finding}, {"source: ", c->source}};
        str_addf(&s, "%s%s: %s\n", i ? "\n" : "", c->id, claim_verdict_name(c->verdict));
        for (size_t k = 0; k < BASE_COUNT(parts); k++) {
            struct str line = STR_INIT;
            str_addf(&line, "%s%s", parts[k][0], parts[k][1]);
            help_fold(&s, str_text(&line), CLAIM_COLUMN);
            str_release(&line);
        }
    }
    out_lines(out, str_text(&s));
    str_release(&s);
}

static enum rc print_claims(const struct args *args, struct out *out, struct err *e)
{
    struct claims all = {0};
    enum rc rc = table_check_args(CLAIM_COLUMNS, args, e);
    if (!rc)
        rc = claims_builtin(&all, e);
    if (!rc && out_is_json(out))
        print_claims_json(&all, out);
    else if (!rc && !out_is_plain(out) && !args_has(args, "columns"))
        print_claims_text(&all, out);
    else if (!rc)
        rc = print_claims_table(&all, args, out, e);
    claims_release(&all);
    return rc;
}

/* --- doing it --------------------------------------------------------------------------------- */

/* Each once, in the order of the table of engines. */
static enum rc read_engines(bool wanted[ENGINE_COUNT], const struct args *args, struct err *e)
{
    bool has_any = args_times(args, "engine") > 0;
    bool is_cpu = strcasecmp(args_text(args, "gpu"), "cpu") == 0;
    for (int g = 0; g < ENGINE_COUNT; g++)
        wanted[g] = !has_any && (!is_cpu || profile_of((enum engine)g)->is_bundled);
    for (size_t i = 0; i < args_times(args, "engine"); i++) {
        const char *p = args_nth(args, "engine", i);
        do {
            enum engine g;
            size_t n = strcspn(p, ",");
            char *word = base_strndup(p, n);
            enum rc rc = engine_parse(word, &g, e);
            free(word);
            if (rc)
                return rc;
            wanted[g] = true;
            p += n;
        } while (*p++ == ',');
    }
    return RC_OK;
}

static enum rc read_job(struct job *j, const struct args *args, struct err *e)
{
    if (!args_has(args, "model"))
        return err_set(e, RC_USAGE, "which model? give --model NAME");
    enum rc rc = model_find(&j->model, args_text(args, "model"), e);
    j->has_model = rc == RC_OK;
    j->tokens = args_int(args, "tokens", 0);
    j->seq = args_int(args, "seq", 0);
    j->global_batch_tokens = args_int(args, "global-batch-tokens", 0);
    if (!rc && args_has(args, "precision"))
        rc = precision_parse(args_text(args, "precision"), &j->precision, e);
    if (!rc)
        rc = adapter_from_args(&j->lora, args, e);
    if (!rc)
        rc = doc_tokens_from_args(&j->doc_tokens, args, e);
    if (!rc)
        rc = job_take_bits(j, args, e);
    return rc ? rc : job_finish(j, e);
}

static enum rc read_cluster(struct comparison *c, const struct args *args, struct err *e)
{
    struct gpu_counts counts;
    enum rc rc = gpu_counts_from_args(&counts, args, e);
    if (!rc)
        rc = offer_from_args(&c->offer, args, &counts, e);
    if (rc)
        return rc;
    c->nodes = counts.gpus / counts.per_node;
    int64_t sequences = job_step_sequences(&c->job);
    int64_t near = (sequences + counts.gpus - 1) / counts.gpus * counts.gpus;
    if (sequences % counts.gpus != 0)
        return err_set(e, RC_USAGE,
            "a batch of %lld sequences cannot be split evenly over %lld GPUs; "
            "--global-batch-tokens %lld can",
            (long long)sequences, (long long)counts.gpus, (long long)(near * c->job.seq));
    return RC_OK;
}

static enum rc find(struct comparison *c, const struct args *args, struct err *e)
{
    bool wanted[ENGINE_COUNT];
    enum rc rc = read_engines(wanted, args, e);
    if (!rc)
        rc = read_job(&c->job, args, e);
    if (!rc)
        rc = read_cluster(c, args, e);
    if (!rc)
        rc = rates_load(&c->rates, args, e);
    if (!rc)
        rc = claims_builtin(&c->claims, e);
    if (!rc && args_text(args, "measured"))
        rc = evidence_load(&c->evidence, args_text(args, "measured"), e);
    c->price_micro_usd = args_int(args, "price-usd-per-gpu-hour", -1);
    for (int g = 0; !rc && g < ENGINE_COUNT; g++)
        if (wanted[g])
            rc = compare_engine(
                &c->all[c->n++], (enum engine)g, &c->job, &c->offer, c->nodes, c->rates, e);
    return rc;
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct comparison c;
    memset(&c, 0, sizeof c);
    job_init(&c.job);
    if (args_flag(args, "claims"))
        return print_claims(args, out, e);
    enum rc rc = table_check_args(COLUMNS, args, e);
    if (!rc)
        rc = find(&c, args, e);
    if (!rc) {
        compare_sort(c.all, c.n);
        if (out_is_json(out))
            print_json(&c, out);
        else
            rc = print_text(&c, args, out, e);
    }
    bool any_fits = c.n > 0 && c.all[0].fits;
    if (!rc && !any_fits) {
        e->code = RC_NO_FIT;
        rc = RC_NO_FIT;
    }
    release(&c);
    return rc;
}

const struct command CMD_COMPARE = {
    .name = "compare",
    .topic = COMMAND_PLAN,
    .summary = "put training engines side by side for one job and cluster",
    .about =
        "For each engine the fastest of its strategies that fits, as predicted (derived), "
        "with the 90 % band of its tokens per second and GPU. How weights and moments are kept and "
        "what is "
        "sent in few bits is chosen for the bundled engine alone. Figures of runs (measured) and "
        "of others (claimed) are shown beside and marked as such; a claim that was refuted "
        "is never shown beside results. Exit code 3 means that nothing fits.",
    .examples = (const char *const[]){"berth compare --model llama-3.1-8b --gpus 32",
        "berth compare --model llama-3.1-70b --gpus 64 --engine fsdp2,deepspeed,megatron",
        "berth compare --claims --columns id,verdict,found", NULL},
    .groups = (const struct option_group *const[]){&WHAT_OPTIONS, &COMPARE_OPTIONS,
        &ADAPTER_OPTIONS, &BITS_OPTIONS, NULL},
    .run = run,
};
