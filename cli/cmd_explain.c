/* `berth explain`: a plan file, computed again from its inputs and shown beside what it says. */
#include "base/json.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/evidence_load.h"
#include "cli/output.h"
#include "planner/explain.h"
#include "planner/figure.h"
#include "planner/hardware.h"
#include "planner/plan_file.h"

/* What is found beside what the file says. */
struct found {
    struct alternative all[ALTERNATIVES];
    struct network_needs network;
    struct terms memory, host, work; /* what the figures are made of */
    bool agree;                      /* with the figures of the file */
};

static void add_reasons(struct json *doc, const struct json *reasons)
{
    static const char *const keys[] = {"runner_up", "rejected", "rejected_more"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct json *v = json_get(reasons, keys[i]);
        json_add(doc, keys[i], v ? json_clone(v) : NULL);
    }
}

static struct json *made_of_json(const struct found *f)
{
    struct json *v = json_obj();
    json_add(v, "memory", terms_json(&f->memory));
    json_add(v, "host_of_a_rank", terms_json(&f->host));
    json_add(v, "work", terms_json(&f->work));
    return v;
}

static void print_json(const struct plan_file *p, const struct found *f, struct out *out)
{
    struct json *doc = out_document(out, "explain/1");
    json_add(doc, "job", job_to_json(&p->job));
    json_add(doc, "offer", offer_to_json(&p->offer));
    json_add_int(doc, "nodes", p->nodes);
    json_add_int(doc, "steps", p->steps);
    json_add(doc, "strategy", strategy_to_json(&p->strategy));
    json_add_int(doc, "parameters", model_params(&p->job.model));
    json_add_num(doc, "model_flops_per_token", estimate_model_flops(&p->job.model, &p->strategy));
    json_add_str(doc, "flops_definition", estimate_flops_definition(&p->job.model, &p->strategy));
    json_add(doc, "made_of", made_of_json(f));
    add_reasons(doc, p->reasons);
    json_add(doc, "alternatives", explain_alternatives_json(f->all));
    json_add(doc, "network", network_needs_json(&f->network));
    json_add(doc, "break_even", p->break_even ? json_clone(p->break_even) : NULL);
    json_add_bool(doc, "figures_agree", f->agree);
    json_add(doc, "prediction", json_clone(p->prediction));
    json_add(doc, "constants", json_clone(p->constants));
    out_json(out, doc);
}

static void print_text(const struct plan_file *p, const struct found *f, struct out *out)
{
    struct str s = STR_INIT;
    struct plan_findings findings = {f->all, &f->network, &f->memory, &f->host, &f->work};
    explain_plan_file(&s, p, &findings);
    out_lines(out, str_text(&s));
    str_release(&s);
}

/* What the figures of the file are made of. */
static enum rc take_apart(struct found *f, const struct plan_file *p, struct err *e)
{
    const struct model *m = &p->job.model;
    const struct json *work = json_get(json_get(p->prediction, "step"), "work");
    double work_s[WORK_COUNT];
    for (int w = 0; w < WORK_COUNT; w++)
        work_s[w] = json_num(work, work_name((enum work)w), 0);
    enum rc rc = figure_memory(&f->memory, m, &p->strategy, MEMORY_DEVICE, e);
    if (!rc)
        rc = figure_memory(&f->host, m, &p->strategy, MEMORY_HOST, e);
    return rc ? rc : figure_work(&f->work, m, &p->strategy, work_s, e);
}

static enum rc find(
    struct found *f, const struct plan_file *p, const struct rates *rates, struct err *e)
{
    struct hardware hw;
    enum rc rc = plan_file_check_figures(&f->agree, p, rates, e);
    if (!rc)
        rc = search_alternatives(f->all, &p->job, &p->offer, p->nodes, rates, e);
    if (!rc)
        rc = hardware_from_offer(&hw, &p->offer, p->nodes, e);
    if (!rc)
        rc = network_needs_make(
            &f->network, &p->job.model, &p->strategy, &hw, job_stack(&p->job), rates, e);
    return rc ? rc : take_apart(f, p, e);
}

static void release(struct found *f)
{
    terms_release(&f->memory);
    terms_release(&f->host);
    terms_release(&f->work);
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct plan_file p;
    struct rates *rates = NULL;
    struct found f = {.agree = false};
    enum rc rc = plan_file_read(&p, args_operand(args, 0), e);
    if (rc)
        return rc;
    rc = plan_file_check_hash(&p, e);
    if (!rc)
        rc = rates_load(&rates, args, e);
    if (!rc)
        rc = find(&f, &p, rates, e);
    if (!rc && !f.agree)
        out_warn(out,
            "the figures of the plan are not those that this program finds for it: they were "
            "changed after it was made, it was made with other constants (--calibration, a probe), "
            "or by another version (%s)",
            p.program);
    if (!rc && out_is_json(out))
        print_json(&p, &f, out);
    else if (!rc)
        print_text(&p, &f, out);
    release(&f);
    rates_free(rates);
    plan_file_release(&p);
    return rc;
}

static const struct option OPTIONS[] = {
    {.name = "calibration",
        .kind = OPTION_FILE,
        .help = "constants that the plan was made with (plan --calibration)",
        .example = "--calibration mine.json"},
    {0},
};
static const struct option_group EXPLAIN_OPTIONS = {"Options", OPTIONS};

const struct command CMD_EXPLAIN = {
    .name = "explain",
    .topic = COMMAND_PLAN,
    .summary = "show the whole reasoning behind a plan",
    .operands = "PLAN",
    .min_operands = 1,
    .max_operands = 1,
    .about = "Prints what the plan rests on: the inputs of every formula, memory by name and what "
             "each part is made of (so many blocks x tokens x width x bytes), a step by lane and "
             "the work in it with the rate reached, what the network must carry for it, the "
             "runner-up, what differs and by how much, what was rejected, how much that misses and "
             "the cheapest change that would do, what other ways of sharding would do on the same "
             "nodes, the bill line by line, the prices at which other GPUs would have been the "
             "first choice, and every constant with its source and date. A plan whose "
             "schedule this program would build differently is refused; figures that it would not "
             "find again are warned about, and figures_agree is false in JSON.",
    .examples = (const char *const[]){"berth explain plan.json",
        "berth explain plan.json --json | jq '.constants'", NULL},
    .groups = (const struct option_group *const[]){&EXPLAIN_OPTIONS, NULL},
    .run = run,
};
