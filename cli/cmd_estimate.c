/* `berth estimate`: one setup, described by options alone, through the same model as plans; no
 * search and no offers. */
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
#include "planner/engine_use.h"
#include "planner/explain.h"
#include "planner/hardware.h"
#include "planner/search.h"

struct question {
    struct model model;
    struct strategy strategy;
    struct machine machine;
    struct estimate answer;
};

static void print_json(const struct question *q, struct out *out)
{
    struct json *doc = out_document(out, "estimate/1");
    json_add(doc, "model", model_to_json(&q->model));
    json_add_int(doc, "parameters", model_params(&q->model));
    json_add_int(doc, "active_parameters", model_active_params(&q->model));
    if (q->model.adapter.rank > 0)
        json_add_int(doc, "adapter_parameters", model_trained_params(&q->model));
    json_add(doc, "strategy", strategy_to_json(&q->strategy));
    json_add_members(doc, estimate_to_json(&q->answer, &q->machine));
    out_json(out, doc);
}

static void print_text(const struct question *q, struct out *out)
{
    struct str s = STR_INIT;
    explain_estimate(&s, &q->answer, &q->model, &q->strategy, &q->machine);
    out_lines(out, str_text(&s));
    str_release(&s);
}

static enum rc find(
    struct question *q, const struct args *args, const struct rates *rates, struct err *e)
{
    struct gpu_counts counts;
    struct offer offer;
    struct hardware hw;
    char stack[RATES_NAME];
    struct adapter lora = {0};
    enum rc rc = model_find(&q->model, args_text(args, "model"), e);
    if (!rc)
        rc = adapter_from_args(&lora, args, e);
    if (!rc)
        rc = adapter_take(&q->model, &lora, e);
    if (!rc)
        rc = engine_stack_from_args(stack, rates, engine_from_args(args), args, e);
    if (!rc)
        rc = strategy_from_args(&q->strategy, &q->model, args, stack, e);
    if (!rc)
        rc = gpu_counts_from_args(&counts, args, e);
    if (!rc)
        rc = offer_from_args(&offer, args, &counts, e);
    if (!rc)
        rc = hardware_from_offer(&hw, &offer, counts.gpus / counts.per_node, e);
    if (!rc)
        rc = engine_check_device(q->strategy.engine, hw.is_gpu, e);
    if (!rc)
        rc = machine_make(&q->machine, rates, &hw, stack, e);
    if (!rc)
        rc = estimate_fill(&q->strategy, &q->model, &q->machine, e);
    if (!rc)
        rc = estimate_make(&q->answer, &q->model, &q->strategy, &q->machine, e);
    return rc;
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct question q;
    struct rates *rates = NULL;
    if (!args_has(args, "model"))
        return err_set(e, RC_USAGE, "which model? give --model NAME");
    enum rc rc = rates_load(&rates, args, e);
    if (!rc)
        rc = find(&q, args, rates, e);
    if (!rc && out_is_json(out))
        print_json(&q, out);
    else if (!rc)
        print_text(&q, out);
    rates_free(rates);
    return rc;
}

const struct command CMD_ESTIMATE = {
    .name = "estimate",
    .topic = COMMAND_PLAN,
    .summary = "predict memory and speed of one setup",
    .about = "Answers for exactly the setup described, whether it fits or not: memory by name, "
             "seconds of a step by lane, with a 90 % band. To have the setup chosen, use "
             "`berth plan`. Of another engine memory is what its allocator holds, and the "
             "constants are those of the software that was measured most.",
    .examples = (const char *const[]){"berth estimate --model llama-3.1-8b --gpu h100-sxm --gpus 8",
        "berth estimate --model llama-2-70b --gpus 32 --strategy hsdp --recompute full",
        "berth estimate --model llama-3-70b --gpus 64 --engine megatron --tensor 8",
        "berth estimate --model llama-3.1-70b --gpus 8 --lora 16 --base-bits 4",
        "berth estimate --model qwen2.5-7b --gpu a100-80-sxm --json | jq .memory", NULL},
    .groups = (const struct option_group *const[]){&WHAT_OPTIONS, &HOW_OPTIONS, &BITS_OPTIONS,
        &ADAPTER_OPTIONS, &ENGINE_OPTIONS, &SPLIT_OPTIONS, NULL},
    .run = run,
};
