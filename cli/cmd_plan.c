/* `berth plan`: job and offers in, ranked plans or the nearest misses out. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "cli/adapter_options.h"
#include "cli/bits_options.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/evidence_load.h"
#include "cli/job_options.h"
#include "cli/offers_load.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/what_if_options.h"
#include "inventory/offer.h"
#include "planner/break_even.h"
#include "planner/engine_use.h"
#include "planner/explain.h"
#include "planner/limits.h"
#include "planner/plan_file.h"
#include "planner/plan_json.h"
#include "planner/plan_reasons.h"

enum { SHOWN_REJECTIONS = 4, SHOWN_BREAK_EVENS = 1 };

static const struct option OPTIONS[] = {
    {.name = "output",
        .letter = 'o',
        .kind = OPTION_FILE,
        .help = "write a plan to this file, for launch and explain",
        .detail = "With - it goes to standard output, in place of the list.",
        .example = "-o plan.json"},
    {.name = "pick",
        .kind = OPTION_COUNT,
        .def = "1",
        .help = "the rank of the plan that --output writes",
        .example = "--pick 2"},
    {.name = "top",
        .kind = OPTION_COUNT,
        .def = "10",
        .help = "how many plans to list, at most one for each offer",
        .example = "--top 3"},
    {.name = "data-kind",
        .kind = OPTION_CHOICE,
        .argument = "KIND",
        .choices = DATA_KIND_CHOICES,
        .help = "how the job's data file holds tokens, for launch",
        .detail = "`berth help formats` says what the kinds are.",
        .example = "--data-kind uint16"},
    {.name = "columns",
        .kind = OPTION_TEXT,
        .argument = "LIST",
        .help = "columns to show, separated by commas",
        .detail = "Known are rank, offer, hardware (nodes x GPUs of each), strategy, time, cost, "
                  "high (upper end of the cost), gpus, step, mfu, memory, fit, tokens/s.",
        .example = "--columns rank,offer,cost,mfu"},
    {0},
};
static const struct option_group PLAN_OPTIONS = {"Options", OPTIONS};

/* What a run of the command holds on to. */
struct planning {
    struct job job;
    struct offers *offers;
    struct rates *rates;
    struct search_input in;
    struct search *search;
    double seconds;
    struct what_ifs what_ifs;
    struct json *break_even; /* against the plan picked; NULL without one */
};

static void release(struct planning *p)
{
    job_release(&p->job);
    offers_free(p->offers);
    rates_free(p->rates);
    search_free(p->search);
    what_ifs_release(&p->what_ifs);
    json_free(p->break_even);
}

/* Of the job as it is. */
static const struct plan *first_plan(const struct planning *p)
{
    return p->search->n_plans > 0 ? &p->search->plans[0] : NULL;
}

/* --- printing --------------------------------------------------------------------------------- */

static const struct table_column COLUMNS[] = {
    {.name = "RANK", .align = TABLE_RIGHT},
    {.name = "OFFER", .is_elastic = true},
    {.name = "HARDWARE", .drop = 2},
    {.name = "STRATEGY", .drop = 3},
    {.name = "TIME", .align = TABLE_RIGHT, .drop = 1},
    {.name = "COST", .align = TABLE_RIGHT},
    {.name = "HIGH", .align = TABLE_RIGHT, .drop = 4},
    {.name = "GPUS", .align = TABLE_RIGHT, .is_extra = true},
    {.name = "STEP", .align = TABLE_RIGHT, .is_extra = true},
    {.name = "MFU", .align = TABLE_RIGHT, .is_extra = true},
    {.name = "MEMORY", .align = TABLE_RIGHT, .is_extra = true},
    {.name = "FIT", .align = TABLE_RIGHT, .is_extra = true},
    {.name = "TOKENS/S", .align = TABLE_RIGHT, .is_extra = true},
    {0},
};

/* Whole dollars from 100 on, rounded up. */
static void cell_usd(struct table *t, const struct bill *b, enum bill_case c)
{
    char text[UNITS_TEXT];
    int64_t micro = b->total_micro_usd[c];
    if (!b->is_priced) {
        table_cell(t, NULL);
        return;
    }
    bool is_large = micro >= 100 * USD_MICRO;
    if (is_large)
        micro = (micro + USD_MICRO - 1) / USD_MICRO * USD_MICRO;
    units_usd(text, micro);
    if (is_large && str_ends(text, ".00"))
        text[strlen(text) - strlen(".00")] = '\0';
    table_cell(t, text);
}

static void cell_strategy(struct table *t, const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    if (s->kind == STRATEGY_HSDP)
        table_cellf(t, "hsdp/%lld", (long long)s->shard_degree);
    else if (p->tensor * p->pipeline > 1)
        table_cellf(t, "%s tp%lld pp%lld", strategy_kind_name(s->kind), (long long)p->tensor,
            (long long)p->pipeline);
    else
        table_cell(t, strategy_kind_name(s->kind));
}

static void add_row(struct table *t, const struct plan *p, size_t rank, const struct offer *o)
{
    char text[UNITS_TEXT];
    table_cellf(t, "%zu", rank);
    table_cellf(t, "%s %s", o->provider, o->id);
    table_cellf(t, "%lld x %lld %s", (long long)p->nodes, (long long)p->hw.ranks_per_node,
        p->hw.is_gpu ? p->hw.gpu : "cpu");
    cell_strategy(t, &p->strategy);
    table_cell(t, units_seconds(text, p->bill.run_s[BILL_MID]));
    cell_usd(t, &p->bill, BILL_MID);
    cell_usd(t, &p->bill, BILL_HIGH);
    table_cellf(t, "%lld", (long long)p->strategy.ranks);
    table_cell(t, units_seconds(text, p->estimate.step_s));
    table_cellf(t, "%.1f%%", 100 * p->estimate.mfu);
    table_cell(t, units_bytes(text, (double)p->estimate.peak_bytes));
    table_cellf(t, "%.2f", p->estimate.fit_probability);
    table_cellf(t, "%.0f", p->estimate.tokens_per_s_per_rank * (double)p->strategy.ranks);
}

static enum rc print_table(
    const struct planning *p, const struct args *args, struct out *out, struct err *e)
{
    struct table *t = table_new(COLUMNS);
    enum rc rc = table_select_args(t, args, e);
    if (rc) {
        table_free(t);
        return rc;
    }
    for (size_t i = 0; i < p->search->n_plans; i++)
        add_row(t, &p->search->plans[i], i + 1, offers_at(p->offers, p->search->plans[i].offer));
    out_table(out, t, args);
    return RC_OK;
}

/* Said before anybody rents. */
static void note_launchable(const struct planning *p, struct out *out)
{
    const struct plan *first = &p->search->plans[0];
    if (!first->is_launchable)
        out_note(out, "to compare, not to launch: %s", first->not_launchable);
}

static void note_cap(const struct planning *p, struct out *out)
{
    int64_t n = p->search->searched.beyond_max_ranks;
    if (n > 0)
        out_note(out, "%lld offer%s could be more than %d ranks, which is where the search ends",
            (long long)n, n == 1 ? "" : "s", SEARCH_MAX_RANKS);
}

static void print_searched(const struct planning *p, struct out *out)
{
    const struct searched *s = &p->search->searched;
    out_printf(out,
        "\nSearched %lld offers, %lld kinds of hardware, %lld combinations: %lld too large,\n"
        "%lld provably slower, %lld simulated.\n",
        (long long)s->offers, (long long)s->hardware, (long long)s->space,
        (long long)s->pruned_by_memory, (long long)s->pruned_by_bound, (long long)s->simulated);
}

static void print_pareto(const struct planning *p, struct out *out)
{
    const struct search *s = p->search;
    char a[UNITS_TEXT], b[UNITS_TEXT];
    if (s->n_pareto < 2)
        return;
    out_printf(out, "\nFaster for more money:\n");
    for (size_t i = 0; i < s->n_pareto; i++) {
        const struct offer *o = offers_at(p->offers, s->pareto[i].offer);
        out_printf(out, "  %10s  %10s  ", units_seconds(a, s->pareto[i].run_s),
            units_usd(b, s->pareto[i].micro_usd));
        out_printf(out, "%lld x %s %s\n", (long long)s->pareto[i].nodes, o->provider, o->id);
    }
}

/* A misspelt word would otherwise be a limit that nobody sees. */
static void warn_of_words(const struct planning *p, struct out *out)
{
    struct str s = STR_INIT;
    limits_unmatched(&s, &p->job, p->offers);
    if (s.len)
        out_warn(out, "no offer has %s", str_text(&s));
    str_release(&s);
}

static void print_block(struct out *out, const char *title, struct str *s)
{
    if (s->len) {
        out_printf(out, "\n%s:\n", title);
        out_lines(out, str_text(s));
    }
    str_reset(s);
}

static void print_what_ifs(const struct planning *p, struct out *out)
{
    struct str s = STR_INIT;
    what_ifs_describe(&s, &p->what_ifs, first_plan(p), &p->in);
    print_block(out, "What if", &s);
    str_release(&s);
}

static enum rc print_text(
    const struct planning *p, const struct args *args, struct out *out, struct err *e)
{
    struct str s = STR_INIT;
    enum rc rc = print_table(p, args, out, e);
    if (rc || out_is_plain(out))
        return rc;
    out_printf(out, "\n");
    explain_winner(&s, p->search, p->offers);
    out_lines(out, str_text(&s));
    str_reset(&s);
    print_pareto(p, out);
    break_even_describe(&s, p->break_even, SHOWN_BREAK_EVENS);
    print_block(
        out, args_int(args, "pick", 1) > 1 ? "Break-even with the plan picked" : "Break-even", &s);
    print_what_ifs(p, out);
    explain_rejected(&s, p->search, SHOWN_REJECTIONS);
    print_block(out, "Rejected", &s);
    print_searched(p, out);
    str_release(&s);
    return RC_OK;
}

static void print_json(const struct planning *p, const struct args *args, struct out *out)
{
    struct json *doc = out_document(out, "plan-list/1");
    double seconds = out_is_reproducible(out) ? -1 : p->seconds;
    plan_list_fill(doc, p->search, &p->job, p->offers, p->rates, seconds);
    json_add(doc, "break_even", p->break_even ? json_clone(p->break_even) : json_arr());
    json_add_int(doc, "break_even_with_rank", args_int(args, "pick", 1));
    json_add(doc, "what_if", what_ifs_json(&p->what_ifs, first_plan(p), &p->in));
    out_json(out, doc);
}

/* --- nothing fits ----------------------------------------------------------------------------- */

/* Exit code 3: under --json the list without plans is the answer, else the nearest misses are. */
static enum rc print_nothing(
    const struct planning *p, const struct args *args, struct out *out, struct err *e)
{
    struct str s = STR_INIT;
    if (out_is_json(out)) {
        print_json(p, args, out);
        e->code = RC_NO_FIT;
        return RC_NO_FIT;
    }
    if (offers_count(p->offers) == 0)
        return err_set(e, RC_NO_FIT, "the list of offers is empty");
    if (p->search->searched.offers == 0)
        return err_set(
            e, RC_NO_FIT, "no offer passes the job's limits: %s", p->search->rejected[0].why);
    explain_rejected(&s, p->search, 3 * SHOWN_REJECTIONS);
    if (s.len) {
        out_printf(out, "Rejected:\n");
        out_lines(out, str_text(&s));
    }
    str_release(&s);
    print_what_ifs(p, out);
    return err_set(e, RC_NO_FIT, "no plan satisfies memory, budget and deadline");
}

/* --- doing it --------------------------------------------------------------------------------- */

static bool is_stdout(const struct args *args)
{
    const char *path = args_text(args, "output");
    return path && strcmp(path, "-") == 0;
}

static enum rc write_plan(
    const struct planning *p, const struct args *args, struct out *out, struct err *e)
{
    char now[CLOCK_TEXT];
    const char *path = args_text(args, "output");
    int64_t pick = args_int(args, "pick", 1);
    if (pick < 1 || (size_t)pick > p->search->n_plans)
        return err_set(e, RC_USAGE, "option '--pick' is %lld, but %zu plans were found",
            (long long)pick, p->search->n_plans);
    const struct plan *plan = &p->search->plans[pick - 1];
    const char *at = out_is_reproducible(out) ? NULL : clock_rfc3339(now, clock_wall_s());
    struct json *doc = plan_file_make(
        plan, &p->job, offers_at(p->offers, plan->offer), p->rates, BERTH_VERSION, at);
    plan_reasons_add(doc, p->search, (size_t)pick - 1, &p->job, p->offers);
    json_add(doc, "break_even", p->break_even ? json_clone(p->break_even) : NULL);
    char *text = json_print(doc, true);
    enum rc rc = RC_OK;
    if (is_stdout(args))
        out_bytes(out, text, strlen(text));
    else
        rc = file_write(path, text, strlen(text), 0644, e);
    if (!rc && !is_stdout(args))
        out_note(out, "wrote plan %lld to %s", (long long)pick, path);
    free(text);
    json_free(doc);
    return rc;
}

/* A stack of the job file must exist, too. */
static enum rc take_stack(struct planning *p, const struct args *args, struct err *e)
{
    struct job *j = &p->job;
    char stack[RATES_NAME];
    if (j->stack[0] && !args_has(args, "stack"))
        return engine_check_stack(p->rates, j->engine, j->stack, e);
    enum rc rc = engine_stack_from_args(stack, p->rates, j->engine, args, e);
    if (!rc && !profile_of(j->engine)->is_bundled)
        str_copy(j->stack, sizeof j->stack, stack);
    return rc;
}

static enum rc search(struct planning *p, const struct args *args, struct err *e)
{
    int64_t top = args_int(args, "top", 10);
    if (top < 1 || top > 1000)
        return err_set(e, RC_USAGE, "option '--top' must be 1 to 1000");
    int64_t pick = args_int(args, "pick", 1);
    if (pick > top && pick <= 1000)
        top = pick; /* what is picked is listed */
    enum rc rc = rates_load(&p->rates, args, e);
    if (!rc)
        rc = take_stack(p, args, e);
    if (rc)
        return rc;
    p->in = (struct search_input){
        .job = &p->job, .offers = p->offers, .rates = p->rates, .max_plans = (size_t)top};
    double start = clock_now_s();
    rc = search_run(&p->search, &p->in, e);
    p->seconds = clock_now_s() - start;
    return rc;
}

/* What is said beside the list: of plans that are shown alone. */
static enum rc look_around(struct planning *p, const struct args *args, struct err *e)
{
    size_t pick = (size_t)args_int(args, "pick", 1);
    enum rc rc = search_find_network(p->search, &p->in, e);
    if (!rc && pick >= 1 && pick <= p->search->n_plans)
        rc = break_even_find_json(&p->break_even, &p->in, p->search, pick - 1, e);
    return rc ? rc : what_ifs_answer(&p->what_ifs, &p->in, first_plan(p), e);
}

static enum rc print(
    const struct planning *p, const struct args *args, struct out *out, struct err *e)
{
    note_cap(p, out);
    if (p->search->n_plans == 0)
        return print_nothing(p, args, out, e);
    enum rc rc = args_text(args, "output") ? write_plan(p, args, out, e) : RC_OK;
    if (rc)
        return rc;
    note_launchable(p, out);
    if (is_stdout(args))
        return RC_OK;
    if (out_is_json(out)) {
        print_json(p, args, out);
        return RC_OK;
    }
    return print_text(p, args, out, e);
}

/* Nothing that was asked for may fall silent. */
static enum rc check_outputs(const struct args *args, struct out *out, struct err *e)
{
    if (is_stdout(args) && out_is_json(out))
        return err_set(e, RC_USAGE,
            "options '--json' and '--output -' exclude each other: both write standard output");
    if (args_has(args, "what-if") && (is_stdout(args) || (out_is_plain(out) && !out_is_json(out))))
        return err_set(e, RC_USAGE,
            "option '--what-if' has nowhere to answer beside '%s'; --json "
            "holds everything",
            is_stdout(args) ? "--output -" : "--plain");
    return RC_OK;
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct planning p;
    memset(&p, 0, sizeof(p));
    enum rc rc = check_outputs(args, out, e);
    if (!rc)
        rc = table_check_args(COLUMNS, args, e);
    if (!rc)
        rc = what_ifs_from_args(&p.what_ifs, args, e);
    if (!rc)
        rc = job_from_args(&p.job, args_operand(args, 0), args, out, e);
    if (rc) {
        what_ifs_release(&p.what_ifs);
        return rc;
    }
    rc = offers_load(&p.offers, args, out, e);
    if (!rc)
        warn_of_words(&p, out);
    if (!rc)
        rc = search(&p, args, e);
    if (!rc)
        rc = look_around(&p, args, e);
    if (!rc)
        rc = print(&p, args, out, e);
    release(&p);
    return rc;
}

const struct command CMD_PLAN = {
    .name = "plan",
    .topic = COMMAND_PLAN,
    .summary = "find what to rent and how to shard a job over it",
    .operands = "[JOB]",
    .max_operands = 1,
    .about = "JOB is a JSON file (`berth help job`); options say the same and win over it. For "
             "every offer the fastest strategy that fits is found; plans are ranked by the "
             "objective. Costs and times are the middle of a 90 % band.\n\n"
             "The bill holds boot, staging and upload, the steps, checkpoints, expected failures, "
             "restarts and replacement nodes, whole billing units and minimums; where the job "
             "states them, weights to upload, tokenising and evaluation; and, where the offer "
             "prices them, keeping checkpoints and bringing the last one home. A job that does not "
             "say how "
             "often to save does so as often as wastes the least time.\n\n"
             "Beside the first plan stands what the network between nodes must carry: the rate at "
             "which a step is 5 % longer than on wires without limit; and at what price the best "
             "plan of another GPU would be as good (--json: of every kind listed).\n\n"
             "Exit code 3 means that nothing fits; what is missing and which single change would "
             "do is then listed.",
    .examples = (const char *const[]){"berth plan --model llama-3.1-8b --tokens 10B",
        "berth plan --model llama-3.1-8b --tokens 10B --deadline 2d --budget-usd 2000",
        "berth plan job.json --offers nodes.csv -o plan.json",
        "berth plan job.json --what-if network=0.5x --what-if price.h100-sxm=+10%",
        "berth plan --model llama-3.1-70b --tokens 200M --lora 16 --base-bits 4 --gpu a100",
        "berth plan job.json --json | jq '.plans[0].cost_usd.mid'", NULL},
    .groups = (const struct option_group *const[]){&JOB_OPTIONS, &LIMIT_OPTIONS, &BITS_OPTIONS,
        &ADAPTER_OPTIONS, &ENGINE_OPTIONS, &OFFERS_OPTIONS, &PLAN_OPTIONS, &WHAT_IF_OPTIONS, NULL},
    .run = run,
};
