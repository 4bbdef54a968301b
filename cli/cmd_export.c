/* `berth export`: a plan, or a setup described by options, as the configuration of other software.
 */
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/adapter_options.h"
#include "cli/bits_options.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/evidence_load.h"
#include "cli/output.h"
#include "cli/strategy_options.h"
#include "cli/what_options.h"
#include "inventory/offer.h"
#include "planner/adapter.h"
#include "planner/export.h"
#include "planner/plan_file.h"

static const struct option EXPORT[] = {
    {.name = "to",
        .kind = OPTION_CHOICE,
        .argument = "TARGET",
        .choices = "deepspeed|fsdp2|accelerate|torchtitan|slurm|env",
        .help = "what to write",
        .detail = "deepspeed: its JSON; fsdp2: accelerate's YAML for FSDP2; accelerate: the same "
                  "for the engine of the plan, FSDP or DeepSpeed; torchtitan: TOML of version "
                  "0.2; slurm: a script for sbatch; env: variables for a shell to read.",
        .example = "--to deepspeed"},
    {.name = "output",
        .letter = 'o',
        .kind = OPTION_FILE,
        .help = "write to this file instead of standard output",
        .example = "-o ds_config.json"},
    {0},
};
static const struct option_group EXPORT_OPTIONS = {"Options", EXPORT};

/* What is exported, and what it borrows from. */
struct exported {
    struct plan_file plan;
    struct model model;
    struct strategy strategy;
    struct training training;
    struct export_input in;
};

/* Saves at the plan's interval. */
static double steps_between_saves(const struct plan_file *p)
{
    double steps = p->job.checkpoint_every_s / p->step_s;
    return steps < 1 ? 1 : steps < 1e15 ? steps : 1e15;
}

/* A plan says it all. */
static enum rc refuse_setup(const struct args *args, struct err *e)
{
    static const struct option_group *const setup[] = {&WHAT_OPTIONS, &HOW_OPTIONS, &BITS_OPTIONS,
        &ADAPTER_OPTIONS, &ENGINE_OPTIONS, &SPLIT_OPTIONS};
    for (size_t g = 0; g < sizeof setup / sizeof setup[0]; g++)
        for (const struct option *o = setup[g]->options; o->name; o++)
            if (args_has(args, o->name) && args_origin(args, o->name) == ORIGIN_FLAG)
                return err_set(
                    e, RC_USAGE, "a plan file and option '--%s' exclude each other", o->name);
    return RC_OK;
}

static enum rc take_plan(struct exported *x, const struct args *args, struct err *e)
{
    struct plan_file *p = &x->plan;
    enum rc rc = refuse_setup(args, e);
    if (!rc)
        rc = plan_file_read(p, args_operand(args, 0), e);
    if (!rc)
        rc = training_from_json(&x->training, p->job.training, p->steps, e);
    if (rc)
        return rc;
    x->in = (struct export_input){.model = &p->job.model,
        .strategy = &p->strategy,
        .training = &x->training,
        .steps = p->steps,
        .limit_s = json_num(json_get(p->prediction, "hours"), "high", 0) * 3600,
        .checkpoint_every_steps = steps_between_saves(p),
        .cores_per_node = p->offer.vcpus > 0 ? p->offer.vcpus : 0,
        .is_gpu = p->offer.device == DEVICE_GPU,
        .data = p->job.data};
    return RC_OK;
}

static enum rc take_options(struct exported *x, const struct args *args, struct err *e)
{
    struct rates *rates = NULL;
    char stack[RATES_NAME];
    if (!args_has(args, "model"))
        return err_set(e, RC_USAGE, "export what? give a plan file, or --model NAME");
    struct adapter lora = {0};
    enum rc rc = model_find(&x->model, args_text(args, "model"), e);
    if (!rc)
        rc = adapter_from_args(&lora, args, e);
    if (!rc)
        rc = adapter_take(&x->model, &lora, e);
    if (!rc)
        rc = rates_load(&rates, args, e);
    if (!rc)
        rc = engine_stack_from_args(stack, rates, engine_from_args(args), args, e);
    if (!rc)
        rc = strategy_from_args(&x->strategy, &x->model, args, stack, e);
    if (!rc && x->strategy.full_blocks == STRATEGY_FILL)
        rc = err_set(e, RC_USAGE,
            "of how many blocks? give --full-blocks N with --recompute mixed, or a plan file");
    x->in = (struct export_input){.model = &x->model,
        .strategy = &x->strategy,
        .is_gpu = strcasecmp(args_text(args, "gpu"), "cpu") != 0};
    rates_free(rates);
    return rc;
}

static enum rc write_text(
    const struct str *text, const struct args *args, struct out *out, struct err *e)
{
    const char *path = args_text(args, "output");
    if (!path || strcmp(path, "-") == 0) {
        out_bytes(out, str_text(text), text->len);
        return RC_OK;
    }
    enum rc rc = file_write(path, str_text(text), text->len, 0644, e);
    if (!rc)
        out_note(out, "wrote %s", path);
    return rc;
}

/* Sentences of left_out, one by one. */
static void each_line(const struct str *lines, void (*use)(void *arg, const char *line), void *arg)
{
    const char *p = str_text(lines);
    while (*p) {
        char line[512];
        size_t n = strcspn(p, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, p);
        use(arg, line);
        p += n + (p[n] == '\n');
    }
}

static void push_line(void *list, const char *line)
{
    json_push_str(list, line);
}

static void note_line(void *out, const char *line)
{
    out_note(out, "left to you: %s", line);
}

static enum rc print(const struct str *text, const struct str *left_out, const struct args *args,
    struct out *out, struct err *e)
{
    bool is_json = out_is_json(out);
    if (is_json) {
        struct json *doc = out_document(out, "export/1"), *list = json_arr();
        json_add_str(doc, "target", args_text(args, "to"));
        json_add_str(doc, "text", str_text(text));
        each_line(left_out, push_line, list);
        json_add(doc, "left_out", list);
        out_json(out, doc);
        return args_text(args, "output") ? write_text(text, args, out, e) : RC_OK;
    }
    enum rc rc = write_text(text, args, out, e);
    if (!rc)
        each_line(left_out, note_line, out);
    return rc;
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct exported x;
    struct str text = STR_INIT, left_out = STR_INIT;
    memset(&x, 0, sizeof x);
    job_init(&x.plan.job);
    if (args_choice(args, "to") < 0)
        return err_set(e, RC_USAGE, "export to what? give --to TARGET");
    const char *path = args_text(args, "output");
    if (out_is_json(out) && path && strcmp(path, "-") == 0)
        return err_set(e, RC_USAGE,
            "options '--json' and '--output -' exclude each other: both write standard output");
    enum rc rc = args_operand(args, 0) ? take_plan(&x, args, e) : take_options(&x, args, e);
    if (!rc)
        rc = export_make(&text, &left_out, (enum export_target)args_choice(args, "to"), &x.in, e);
    if (!rc)
        rc = print(&text, &left_out, args, out, e);
    str_release(&text);
    str_release(&left_out);
    plan_file_release(&x.plan);
    return rc;
}

const struct command CMD_EXPORT = {
    .name = "export",
    .topic = COMMAND_PLAN,
    .summary = "write a plan as configuration of other software",
    .operands = "[PLAN]",
    .max_operands = 1,
    .about = "PLAN is a file that `berth plan -o` wrote; without one the setup is described by "
             "options, as for `berth estimate`. What the target's file cannot say is noted on "
             "standard error and left to the training script. A target that has no such way of "
             "sharding at all is refused.",
    .examples = (const char *const[]){"berth export plan.json --to deepspeed -o ds_config.json",
        "berth export plan.json --to slurm -o job.sbatch",
        "berth export --model llama-3.1-8b --engine fsdp2 --gpus 32 --to torchtitan", NULL},
    .groups = (const struct option_group *const[]){&EXPORT_OPTIONS, &WHAT_OPTIONS, &HOW_OPTIONS,
        &BITS_OPTIONS, &ADAPTER_OPTIONS, &ENGINE_OPTIONS, &SPLIT_OPTIONS, NULL},
    .run = run,
};
