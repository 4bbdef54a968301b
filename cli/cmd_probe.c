/* `berth probe`: measure this machine with steps of a plan, so that plans for it are predicted from
 * what it does and not from what its kind usually does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/engine_child.h"
#include "cli/evidence_load.h"
#include "cli/output.h"
#include "cli/table.h"
#include "planner/estimate.h"
#include "planner/explain.h"
#include "planner/hardware.h"
#include "planner/plan_file.h"
#include "planner/probe.h"
#include "planner/profile.h"
#include "run/bench_record.h"

/* Plans take turns, so that a slow minute of a shared machine meets all of them. */
enum { ROUNDS = 4, DEFAULT_STEPS = 20, MAX_FILE_BYTES = 16 << 20 };

static const struct option PROBE[] = {
    {.name = "plan",
        .kind = OPTION_FILE,
        .is_repeatable = true,
        .help = "plan whose steps to run here; it must be for one node",
        .detail = "Several plans tell more: with one rank and with several, small and large, "
                  "short and long sequences.",
        .example = "--plan plan.json"},
    {.name = "steps",
        .kind = OPTION_COUNT,
        .argument = "N",
        .def = "20",
        .help = "steps of each plan that count, rounded up to a multiple of 4",
        .example = "--steps 8"},
    {.name = "nvme-dir",
        .kind = OPTION_TEXT,
        .argument = "DIR[,DIR...]",
        .help = "folders for what plans keep on disk, whose drives are measured",
        .detail = "As of `berth launch`: absolute, one on each drive. Nothing is left there.",
        .example = "--nvme-dir /nvme0,/nvme1"},
    {.name = "output",
        .letter = 'o',
        .kind = OPTION_FILE,
        .help = "write the constants to this file, for --calibration",
        .detail = "Without it they go to calibration.json in the folder for data (`berth paths`), "
                  "which all commands read, in place of those of an earlier probe of the same "
                  "processor.",
        .example = "-o mine.json"},
    {0},
};
static const struct option_group PROBE_OPTIONS = {"Options", PROBE};

/* One plan, and what became of it. */
struct probed {
    const char *path;
    struct plan_file plan;
    struct schedule *schedule;
    struct hardware hw;
    struct bench *rounds; /* ROUNDS */
    double *op_s, *op_shared;
    double step_s;
    struct estimate before, after;
};

struct probe {
    struct probed *v;
    size_t n;
    int64_t steps;         /* of a round */
    const char *nvme_dirs; /* "DIR,DIR"; NULL: none */
    int64_t ranks;         /* most of a plan, 2 at least: so many time collectives, once */
    struct probe_collective *collectives;
    size_t n_collectives;
    struct bench by_parts[ROUNDS]; /* the same parts in each */
    struct probe_part *parts;
    size_t n_parts;
    struct json *document;
};

static void release(struct probe *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct probed *x = &p->v[i];
        for (int r = 0; x->rounds && r < ROUNDS; r++)
            bench_release(&x->rounds[r]);
        free(x->rounds);
        free(x->op_s);
        free(x->op_shared);
        schedule_free(x->schedule);
        plan_file_release(&x->plan);
    }
    for (int r = 0; r < ROUNDS; r++)
        bench_release(&p->by_parts[r]);
    free(p->v);
    free(p->collectives);
    free(p->parts);
    json_free(p->document);
}

/* --- plans --- */

static enum rc take_plan(struct probed *x, struct err *e)
{
    struct plan_file *p = &x->plan;
    enum rc rc = plan_file_read(p, x->path, e);
    if (!rc && !p->is_launchable)
        rc = err_set(e, RC_INVALID, "the plan cannot be launched: %s", p->not_launchable);
    if (!rc && p->nodes != 1)
        rc = err_set(e, RC_INVALID,
            "the plan is for %lld nodes and this is one machine; plan with --here",
            (long long)p->nodes);
    if (!rc)
        rc = plan_file_check_hash(p, e);
    if (!rc)
        rc = hardware_from_offer(&x->hw, &p->offer, 1, e);
    if (!rc)
        rc = schedule_make(&x->schedule, &p->job.model, &p->strategy, e);
    return rc;
}

static enum rc take_plans(struct probe *p, const struct args *args, struct err *e)
{
    enum rc rc = RC_OK;
    p->n = args_times(args, "plan");
    p->v = base_calloc(p->n + 1, sizeof *p->v);
    for (size_t i = 0; i < p->n; i++)
        job_init(&p->v[i].plan.job);
    p->ranks = 2;
    for (size_t i = 0; i < p->n && !rc; i++) {
        p->v[i].path = args_nth(args, "plan", i);
        rc = take_plan(&p->v[i], e);
        if (rc)
            err_in(e, "%s", p->v[i].path);
        else if (p->v[i].plan.strategy.ranks > p->ranks)
            p->ranks = p->v[i].plan.strategy.ranks;
    }
    return rc;
}

/* --- running --- */

static enum rc run_bench(struct bench *out, const char *const *words, struct err *e)
{
    struct str text = STR_INIT;
    struct json *v = NULL;
    enum rc rc = engine_child_run(&text, words, e);
    if (!rc)
        rc = json_parse(&v, str_text(&text), text.len, e);
    if (!rc)
        rc = bench_from_json(out, v, e);
    json_free(v);
    str_release(&text);
    return rc;
}

static enum rc run_round(struct probe *p, struct probed *x, int round, struct err *e)
{
    char steps[24], ranks[24];
    bool is_first = round == 0 && x == p->v;
    snprintf(steps, sizeof steps, "%lld", (long long)p->steps);
    snprintf(ranks, sizeof ranks, "%lld", (long long)p->ranks);
    const char *words[16] = {"bench", "--plan", x->path, "--steps", steps, "--warm-up", "2"};
    size_t n = 7;
    if (p->nvme_dirs) {
        words[n++] = "--nvme-dir";
        words[n++] = p->nvme_dirs;
    }
    if (is_first) {
        words[n++] = "--collectives";
        words[n++] = ranks;
    }
    enum rc rc = run_bench(&x->rounds[round], words, e);
    if (!rc && x->rounds[round].n_ops != (size_t)x->schedule->n_ops)
        rc = err_set(e, RC_FAILED, "the engine ran another schedule than planned");
    return rc ? err_in(e, "%s", x->path) : RC_OK;
}

/* The plan whose products are largest. */
static const struct probed *largest_plan(const struct probe *p)
{
    const struct probed *best = p->v;
    double most = -1;
    for (size_t i = 0; i < p->n; i++)
        for (int32_t k = 0; k < p->v[i].schedule->n_ops; k++) {
            const struct op *op = &p->v[i].schedule->ops[k];
            if (op->kind != OP_MATMUL || op->flops <= most)
                continue;
            most = op->flops;
            best = &p->v[i];
        }
    return best;
}

/* Products of the largest plan, memory and optimizer at one thread to all, and drives. */
static enum rc run_parts(struct probe *p, int round, struct err *e)
{
    const struct probed *x = largest_plan(p);
    char threads[24];
    snprintf(threads, sizeof threads, "%lld", (long long)(x->hw.vcpus < 256 ? x->hw.vcpus : 256));
    const char *words[] = {"bench", "--plan", x->path, "--steps", "0", "--products", threads,
        "--memory", threads, "--optimizer", threads, p->nvme_dirs ? "--nvme-dir" : NULL,
        p->nvme_dirs, NULL};
    return run_bench(&p->by_parts[round], words, e);
}

static bool take_part(struct probe_part *to, const struct bench_part *from)
{
    static const enum probe_what whats[] = {[BENCH_PRODUCT] = PROBE_PRODUCT,
        [BENCH_MEMORY] = PROBE_MEMORY,
        [BENCH_OPTIMIZER] = PROBE_OPTIMIZER,
        [BENCH_DISK] = PROBE_DISK};
    *to = (struct probe_part){.what = whats[from->what],
        .threads = from->threads,
        .at_once = from->at_once,
        .seconds = from->seconds};
    memcpy(to->size, from->size, sizeof to->size);
    if (from->what == BENCH_PRODUCT)
        return precision_parse(from->form, &to->precision, NULL) == RC_OK;
    return from->what != BENCH_OPTIMIZER || strcmp(from->form, "fp32") == 0;
}

/* Medians over the rounds. */
static void take_parts(struct probe *p)
{
    const struct bench *first = &p->by_parts[0];
    p->parts = base_calloc(first->n_parts + 1, sizeof *p->parts);
    for (size_t i = 0; i < first->n_parts; i++) {
        double seconds[ROUNDS];
        size_t n = 0;
        for (int r = 0; r < ROUNDS; r++)
            if (i < p->by_parts[r].n_parts)
                seconds[n++] = p->by_parts[r].parts[i].seconds;
        if (take_part(&p->parts[p->n_parts], &first->parts[i]))
            p->parts[p->n_parts++].seconds = bench_median(seconds, n);
    }
}

static void take_collectives(struct probe *p)
{
    const struct bench *b = &p->v[0].rounds[0];
    p->collectives = base_calloc(b->n_collectives + 1, sizeof *p->collectives);
    for (size_t i = 0; i < b->n_collectives; i++) {
        const struct bench_collective *c = &b->collectives[i];
        p->collectives[p->n_collectives++] = (struct probe_collective){
            .kind = c->kind == OP_ALL_GATHER       ? COLLECTIVE_ALL_GATHER
                    : c->kind == OP_REDUCE_SCATTER ? COLLECTIVE_REDUCE_SCATTER
                    : c->kind == OP_ALL_TO_ALL     ? COLLECTIVE_ALL_TO_ALL
                                                   : COLLECTIVE_ALL_REDUCE,
            .is_tcp = c->path == BENCH_TCP,
            .ranks = c->ranks,
            .bytes = (double)c->bytes,
            .seconds = c->seconds};
    }
}

/* Medians over the rounds, and of all steps. */
static void combine(struct probed *x)
{
    size_t n = (size_t)x->schedule->n_ops, n_steps = 0;
    double seconds[ROUNDS], shared[ROUNDS];
    x->op_s = base_calloc(n, sizeof *x->op_s);
    x->op_shared = base_calloc(n, sizeof *x->op_shared);
    for (size_t i = 0; i < n; i++) {
        size_t seen = 0;
        for (int r = 0; r < ROUNDS; r++) {
            if (isnan(x->rounds[r].op_s[i]))
                continue;
            seconds[seen] = x->rounds[r].op_s[i];
            shared[seen++] = x->rounds[r].op_shared[i];
        }
        x->op_s[i] = bench_median(seconds, seen);
        x->op_shared[i] = bench_median(shared, seen);
    }
    for (int r = 0; r < ROUNDS; r++)
        n_steps += x->rounds[r].n_steps;
    double *steps = base_calloc(n_steps + 1, sizeof *steps);
    n_steps = 0;
    for (int r = 0; r < ROUNDS; r++)
        for (size_t i = 0; i < x->rounds[r].n_steps; i++)
            steps[n_steps++] = x->rounds[r].step_s[i];
    x->step_s = bench_median(steps, n_steps);
    free(steps);
}

static enum rc run_all(struct probe *p, struct out *out, struct err *e)
{
    enum rc rc = RC_OK;
    for (size_t i = 0; i < p->n; i++)
        p->v[i].rounds = base_calloc(ROUNDS, sizeof *p->v[i].rounds);
    for (int r = 0; r < ROUNDS && !rc; r++) {
        for (size_t i = 0; i < p->n && !rc; i++) {
            out_progress(out, "round %d of %d: %s", r + 1, ROUNDS, p->v[i].path);
            rc = run_round(p, &p->v[i], r, e);
        }
        out_progress(out, "round %d of %d: products, memory, optimizer", r + 1, ROUNDS);
        if (!rc)
            rc = run_parts(p, r, e);
    }
    out_progress_end(out);
    for (size_t i = 0; i < p->n && !rc; i++)
        combine(&p->v[i]);
    if (!rc) {
        take_collectives(p);
        take_parts(p);
    }
    return rc;
}

/* --- constants --- */

static enum rc predict(struct estimate *out, const struct probed *x, const struct rates *rates,
    const char *stack, struct err *e)
{
    struct machine m;
    enum rc rc = machine_make(&m, rates, &x->hw, stack, e);
    return rc ? rc : estimate_make(out, &x->plan.job.model, &x->plan.strategy, &m, e);
}

static enum rc fit(struct probe *p, const struct rates *base, struct out *out, struct err *e)
{
    char date[CLOCK_TEXT], source[160];
    const char *stack = profile_of(ENGINE_BERTH)->stack;
    struct probe_run *runs = base_calloc(p->n, sizeof *runs);
    struct rates *rates = NULL;
    clock_rfc3339(date, clock_wall_s());
    date[10] = '\0';
    snprintf(source, sizeof source, "berth probe: %zu plan%s, %lld steps each", p->n,
        p->n == 1 ? "" : "s", (long long)p->steps * ROUNDS);
    for (size_t i = 0; i < p->n; i++) {
        const struct probed *x = &p->v[i];
        runs[i] = (struct probe_run){.schedule = x->schedule,
            .hw = x->hw,
            .op_s = x->op_s,
            .op_shared = x->op_shared,
            .step_s = x->step_s,
            .external_bytes = NAN};
        for (int r = 0; r < ROUNDS; r++)
            runs[i].external_bytes = fmax(runs[i].external_bytes, x->rounds[r].external_bytes);
    }
    struct probe_input in = {.runs = runs,
        .n = p->n,
        .collectives = p->collectives,
        .n_collectives = p->n_collectives,
        .parts = p->parts,
        .n_parts = p->n_parts,
        .base = base,
        .stack = stack,
        .source = source,
        .date = out_is_reproducible(out) ? "" : date};
    enum rc rc = probe_fit(&p->document, &in, e);
    if (!rc)
        rc = rates_with(&rates, base, p->document, e);
    for (size_t i = 0; i < p->n && !rc; i++) {
        rc = predict(&p->v[i].before, &p->v[i], base, stack, e);
        if (!rc)
            rc = predict(&p->v[i].after, &p->v[i], rates, stack, e);
    }
    rates_free(rates);
    free(runs);
    return rc;
}

static bool same_word(const struct json *a, const struct json *b, const char *key)
{
    return strcmp(json_str(a, key, ""), json_str(b, key, "")) == 0;
}

/* The user's file with this probe in place of the last one of the same processor and stack. */
static enum rc write_user(const struct json *document, const char *path, struct err *e)
{
    const struct json *mine = json_at(json_get(document, "entries"), 0);
    struct json *old = NULL, *list = json_arr(), *merged = json_obj();
    struct rates *checked = NULL;
    enum rc rc = file_exists(path) ? json_read(&old, path, MAX_FILE_BYTES, e) : RC_OK;
    if (!rc && old)
        rc = rates_from_json(&checked, json_clone(old), e);
    const struct json *entries = json_get(old, "entries");
    for (size_t i = 0; i < json_len(entries); i++) {
        const struct json *entry = json_at(entries, i);
        bool is_same = same_word(entry, mine, "device") && same_word(entry, mine, "chip") &&
                       same_word(entry, mine, "stack");
        if (!is_same)
            json_push(list, json_clone(entry));
    }
    json_push(list, json_clone(mine));
    json_add_str(merged, "schema", "calibration/1");
    json_add(merged, "entries", list);
    if (!rc)
        rc = rates_write(merged, path, e);
    else
        err_in(e, "calibration '%s'", path);
    rates_free(checked);
    json_free(merged);
    json_free(old);
    return rc;
}

static enum rc keep(const struct probe *p, const struct args *args, struct out *out, struct err *e)
{
    if (args_has(args, "output")) {
        enum rc rc = rates_write(p->document, args_text(args, "output"), e);
        if (!rc)
            out_note(out, "wrote %s; use it with --calibration", args_text(args, "output"));
        return rc;
    }
    char *folder = path_user(PATH_DATA), *path = rates_user_path();
    enum rc rc = dir_make(folder, 0755, e);
    if (!rc)
        rc = write_user(p->document, path, e);
    if (!rc)
        out_note(out, "wrote %s, which plans use from now on", path);
    free(path);
    free(folder);
    return rc;
}

/* --- the answer --- */

static struct json *plan_json(const struct probed *x)
{
    struct json *v = json_obj(), *before = json_obj(), *after = json_obj();
    json_add_str(v, "plan", x->path);
    json_add_str(v, "model", x->plan.job.model.name);
    json_add(v, "strategy", strategy_to_json(&x->plan.strategy));
    json_add_num(v, "step_seconds", x->step_s);
    json_add_num(before, "seconds", x->before.step_s);
    json_add_num(before, "seconds_low", x->before.step_low_s);
    json_add_num(before, "seconds_high", x->before.step_high_s);
    json_add_num(after, "seconds", x->after.step_s);
    json_add_num(after, "seconds_low", x->after.step_low_s);
    json_add_num(after, "seconds_high", x->after.step_high_s);
    json_add(v, "before", before);
    json_add(v, "after", after);
    return v;
}

static void print(const struct probe *p, const struct args *args, struct out *out)
{
    if (out_is_json(out)) {
        struct json *doc = out_document(out, "probe/1"), *plans = json_arr();
        for (size_t i = 0; i < p->n; i++)
            json_push(plans, plan_json(&p->v[i]));
        json_add(doc, "plans", plans);
        json_add(doc, "calibration", json_clone(p->document));
        out_json(out, doc);
        return;
    }
    char a[UNITS_TEXT], b[UNITS_TEXT], c[UNITS_TEXT], d[UNITS_TEXT], how[SEARCH_TEXT];
    for (size_t i = 0; i < p->n; i++) {
        const struct probed *x = &p->v[i];
        out_printf(out, "%s: %s, %s\n", x->path, x->plan.job.model.name,
            explain_strategy(&x->plan.strategy, how));
        out_printf(out, "  a step took %s; planned %s before, %s now (%s to %s)\n",
            units_seconds(a, x->step_s), units_seconds(b, x->before.step_s),
            units_seconds(c, x->after.step_s), units_seconds(d, x->after.step_low_s),
            units_seconds((char[UNITS_TEXT]){0}, x->after.step_high_s));
    }
}

static void print_way(
    struct out *out, const struct json *values, const char *what, const char *rate, const char *hop)
{
    char a[UNITS_TEXT], b[UNITS_TEXT];
    double bytes_per_s = json_num(values, rate, NAN);
    if (isfinite(bytes_per_s))
        out_printf(out, "  %s: %s/s a rank, %s a hop\n", what, units_bytes(a, bytes_per_s),
            units_seconds(b, json_num(values, hop, 0)));
}

/* What collectives were found to do. */
static void print_collectives(const struct probe *p, struct out *out)
{
    const struct json *values = json_get(json_at(json_get(p->document, "entries"), 0), "values");
    out_printf(out, "collectives\n");
    print_way(out, values, "in shared memory", "link_bytes_per_s", "link_hop_s");
    print_way(
        out, values, "between nodes, at best", "fabric_stream_bytes_per_s", "fabric_tcp_hop_s");
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct probe p = {0};
    struct rates *base = NULL, *mine = NULL;
    int64_t steps = args_int(args, "steps", DEFAULT_STEPS);
    if (!args_has(args, "plan"))
        return err_set(e, RC_USAGE,
            "probe with what? give --plan FILE; `berth plan --here -o FILE` makes one");
    if (steps < 1 || steps > ROUNDS * (int64_t)BENCH_MAX_STEPS)
        return err_set(e, RC_USAGE, "option '--steps' takes 1 to %d", ROUNDS * BENCH_MAX_STEPS);
    p.steps = (steps + ROUNDS - 1) / ROUNDS;
    p.nvme_dirs = args_text(args, "nvme-dir");
    enum rc rc = take_plans(&p, args, e);
    if (!rc)
        rc = rates_load_user(&mine, e); /* before minutes of work: it will be read to be kept */
    if (!rc)
        rc = rates_builtin(&base, e);
    if (!rc)
        rc = run_all(&p, out, e);
    if (!rc)
        rc = fit(&p, base, out, e);
    if (!rc)
        rc = keep(&p, args, out, e);
    if (!rc)
        print(&p, args, out);
    if (!rc && !out_is_json(out))
        print_collectives(&p, out);
    rates_free(base);
    rates_free(mine);
    release(&p);
    return rc;
}

const struct command CMD_PROBE = {
    .name = "probe",
    .topic = COMMAND_PLAN,
    .summary = "measure this machine with steps of a plan",
    .about =
        "Runs a few steps of each plan here, on made-up tokens and without saving anything, times "
        "every operation, and turns what it saw into constants: how fast matrix products, "
        "attention, elementwise work and collectives are on this processor. Collectives are also "
        "timed "
        "by themselves, in shared memory and over TCP on loopback: plans for nodes of this kind "
        "take from the latter what a connection can carry at most. Products of the largest plan in "
        "every precision, memory and the optimizer are timed with one thread of a rank and with "
        "more. Plans for it are then predicted from those, with a narrower band. Nothing else "
        "should be running.",
    .examples = (const char *const[]){"berth probe --plan plan.json",
        "berth probe --plan one-rank.json --plan two-ranks.json -o mine.json", NULL},
    .groups = (const struct option_group *const[]){&PROBE_OPTIONS, NULL},
    .run = run,
};
