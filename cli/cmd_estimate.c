/* `berth estimate`: one setup, described by options alone, through the same model as plans; no
 * search and no offers. */
#include <stdlib.h>
#include <strings.h>

#include "base/json.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/output.h"
#include "inventory/gpu.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"
#include "planner/explain.h"
#include "planner/hardware.h"
#include "planner/search.h"

static const struct option WHAT[] = {
    {.name = "model",
        .kind = OPTION_TEXT,
        .is_setting = true,
        .argument = "NAME|PATH",
        .help = "what to train: a preset, or the path of a Hugging Face config.json",
        .example = "--model llama-3.1-8b",
        .complete = "models"},
    {.name = "seq",
        .kind = OPTION_COUNT,
        .is_setting = true,
        .help = "tokens of a sequence; default 4096, or what the model can",
        .example = "--seq 8192"},
    {.name = "gpu",
        .kind = OPTION_TEXT,
        .argument = "NAME",
        .def = "h100-sxm",
        .help = "the GPU, or cpu for cores like this machine's",
        .example = "--gpu a100-80-sxm",
        .complete = "gpus"},
    {.name = "gpus",
        .kind = OPTION_COUNT,
        .def = "8",
        .help = "how many GPUs (on CPU: ranks)",
        .example = "--gpus 64"},
    {.name = "gpus-per-node",
        .kind = OPTION_COUNT,
        .help = "how many of them in a node; default 8, or all if fewer",
        .example = "--gpus-per-node 4"},
    {.name = "inter-gbps-per-gpu",
        .kind = OPTION_NUMBER,
        .help = "gigabit/s per GPU between nodes; default what such nodes usually have",
        .example = "--inter-gbps-per-gpu 400"},
    {.name = "cores-per-rank",
        .kind = OPTION_COUNT,
        .help = "with --gpu cpu: cores of each rank; default what this machine has",
        .example = "--cores-per-rank 4"},
    {0},
};
static const struct option_group WHAT_OPTIONS = {"What on what", WHAT};

static const struct option HOW[] = {
    {.name = "strategy",
        .kind = OPTION_CHOICE,
        .choices = "ddp|zero1|zero2|zero3|hsdp",
        .def = "zero3",
        .help = "what is sharded",
        .example = "--strategy zero1"},
    {.name = "shard-degree",
        .kind = OPTION_COUNT,
        .help = "with hsdp: ranks that share one copy; default a node",
        .example = "--shard-degree 8"},
    {.name = "micro-batch",
        .kind = OPTION_COUNT,
        .def = "1",
        .help = "sequences of a rank at a time",
        .example = "--micro-batch 4"},
    {.name = "grad-accum",
        .kind = OPTION_COUNT,
        .help = "micro steps of an optimizer step; default 1",
        .example = "--grad-accum 8"},
    {.name = "global-batch-tokens",
        .kind = OPTION_COUNT,
        .is_setting = true,
        .help = "tokens of an optimizer step, instead of --grad-accum",
        .example = "--global-batch-tokens 4194304"},
    {.name = "precision",
        .kind = OPTION_CHOICE,
        .is_setting = true,
        .choices = "bf16|fp32",
        .help = "of parameters in use and activations; default bf16",
        .example = "--precision fp32"},
    {.name = "recompute",
        .kind = OPTION_CHOICE,
        .choices = "none|selective|full",
        .def = "none",
        .help = "activations to compute again instead of keeping",
        .example = "--recompute full"},
    {.name = "offload",
        .kind = OPTION_CHOICE,
        .choices = "none|optimizer",
        .def = "none",
        .help = "states to keep in host memory",
        .example = "--offload optimizer"},
    {.name = "prefetch",
        .kind = OPTION_COUNT,
        .def = "1",
        .help = "blocks gathered ahead",
        .example = "--prefetch 2"},
    {.name = "loss-chunks",
        .kind = OPTION_COUNT,
        .def = "1",
        .help = "pieces in which the logits are worked on",
        .example = "--loss-chunks 4"},
    {.name = "no-reshard",
        .kind = OPTION_FLAG,
        .help = "keep gathered parameters from forward to backward"},
    {0},
};
static const struct option_group HOW_OPTIONS = {"How", HOW};

/* --- hardware --------------------------------------------------------------------------------- */

struct counts {
    int64_t gpus, per_node;
};

static enum rc read_counts(struct counts *c, const struct args *args, struct err *e)
{
    c->gpus = args_int(args, "gpus", 8);
    c->per_node = args_int(args, "gpus-per-node", c->gpus < 8 ? c->gpus : 8);
    if (c->gpus < 1 || c->gpus > 1 << 20)
        return err_set(e, RC_USAGE, "option '--gpus' must be 1 to 1048576");
    if (c->per_node < 1 || c->per_node > 1024)
        return err_set(e, RC_USAGE, "option '--gpus-per-node' must be 1 to 1024");
    if (c->gpus % c->per_node != 0)
        return err_set(e, RC_USAGE, "%lld GPUs are not whole nodes of %lld", (long long)c->gpus,
            (long long)c->per_node);
    return RC_OK;
}

static enum rc cpu_offer(
    struct offer *o, const struct args *args, const struct counts *c, struct err *e)
{
    struct offers *here = offers_new();
    struct source_input in = {.ranks_per_node = c->per_node, .is_reproducible = true};
    enum rc rc = SOURCE_HERE.read(here, &in, e);
    if (!rc)
        *o = *offers_at(here, 0);
    offers_free(here);
    if (rc)
        return rc;
    o->device = DEVICE_CPU;
    if (args_has(args, "cores-per-rank") && args_int(args, "cores-per-rank", 1) < 1)
        return err_set(e, RC_USAGE, "option '--cores-per-rank' must be at least 1");
    if (args_has(args, "cores-per-rank"))
        o->vcpus = args_int(args, "cores-per-rank", 1) * c->per_node;
    return RC_OK;
}

static enum rc gpu_offer(struct offer *o, const char *name, const struct counts *c, struct err *e)
{
    const struct gpu *g = gpu_find(name, 0);
    const char *near = gpu_nearest(name), *family = gpu_family(name);
    struct str models = STR_INIT;
    enum rc rc = RC_OK;
    if (family && gpu_family_is_open(family, &models))
        rc = err_set(e, RC_USAGE, "which '%s' is meant? There are %s", name, str_text(&models));
    str_release(&models);
    if (rc)
        return rc;
    if (!g && near)
        return err_set(e, RC_USAGE, "unknown GPU '%s'; did you mean '%s'?", name, near);
    if (!g)
        return err_set(e, RC_USAGE, "unknown GPU '%s'", name);
    offer_put_number(o, OFFER_DEVICE, DEVICE_GPU, PROVENANCE_ASSUMED);
    offer_put_text(o, OFFER_GPU, g->id, PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_GPUS_PER_NODE, (double)c->per_node, PROVENANCE_REPORTED);
    return RC_OK;
}

/* A node as described, settled like any offer so that gaps are filled the same way. */
static enum rc make_hardware(
    struct hardware *hw, const struct args *args, const struct counts *c, struct err *e)
{
    const char *name = args_text(args, "gpu");
    int64_t nodes = c->gpus / c->per_node;
    bool is_cpu = strcasecmp(name, "cpu") == 0;
    struct offer o;
    offer_init(&o);
    offer_put_text(&o, OFFER_ID, "estimate", PROVENANCE_ASSUMED);
    enum rc rc = is_cpu ? cpu_offer(&o, args, c, e) : gpu_offer(&o, name, c, e);
    if (rc)
        return rc;
    if (args_has(args, "inter-gbps-per-gpu") &&
        !(args_num(args, "inter-gbps-per-gpu", 0) >= 0.001 &&
            args_num(args, "inter-gbps-per-gpu", 0) <= 1e6))
        return err_set(
            e, RC_USAGE, "option '--inter-gbps-per-gpu' must be 0.001 to 1000000 gigabit/s");
    if (nodes > 1) {
        o.fabric = is_cpu ? FABRIC_ETHERNET : FABRIC_INFINIBAND;
        if (args_has(args, "inter-gbps-per-gpu"))
            o.inter_gbps_per_node = args_num(args, "inter-gbps-per-gpu", 0) * (double)c->per_node;
    }
    offer_settle(&o);
    if (nodes > 1 && !(o.inter_gbps_per_node > 0))
        return err_set(
            e, RC_USAGE, "how fast is the network between nodes? give --inter-gbps-per-gpu N");
    return hardware_from_offer(hw, &o, nodes, e);
}

/* --- strategy --------------------------------------------------------------------------------- */

static enum rc read_batch(struct strategy *s, const struct args *args, struct err *e)
{
    bool has_batch = args_has(args, "global-batch-tokens");
    if (args_has(args, "grad-accum")) {
        if (has_batch && args_origin(args, "global-batch-tokens") == ORIGIN_FLAG)
            return err_set(e, RC_USAGE,
                "options '--grad-accum' and '--global-batch-tokens' exclude each other");
        s->grad_accum = args_int(args, "grad-accum", 1);
        return RC_OK;
    }
    int64_t tokens = args_int(args, "global-batch-tokens", 0);
    int64_t micro =
        s->micro_batch > 0 && s->seq > 0 && s->seq <= INT32_MAX && s->micro_batch <= INT32_MAX
            ? s->ranks * s->micro_batch * s->seq
            : 0;
    if (!has_batch || micro <= 0)
        return RC_OK;
    int64_t nearest = tokens < micro ? micro : (tokens - micro / 2) / micro * micro + micro;
    if (tokens / micro > STRATEGY_MAX_ACCUM)
        return err_set(e, RC_USAGE,
            "a global batch of %lld tokens is too large; in micro steps of %lld it may have %lld",
            (long long)tokens, (long long)micro, (long long)micro * STRATEGY_MAX_ACCUM);
    if (tokens % micro != 0 || tokens == 0)
        return err_set(e, RC_USAGE,
            "a global batch of %lld token%s is not a whole number of micro steps of %lld tokens; "
            "the nearest is %lld",
            (long long)tokens, tokens == 1 ? "" : "s", (long long)micro, (long long)nearest);
    s->grad_accum = tokens / micro;
    return RC_OK;
}

/* An option that is held in an int, before it is. */
static enum rc read_small(
    int *out, const struct args *args, const char *option, int64_t most, struct err *e)
{
    int64_t n = args_int(args, option, 1);
    if (n < 1 || n > most)
        return err_set(e, RC_USAGE, "option '--%s' is %lld; it must lie in 1 to %lld", option,
            (long long)n, (long long)most);
    *out = (int)n;
    return RC_OK;
}

static enum rc read_strategy(struct strategy *s, const struct model *m, const struct args *args,
    const struct counts *c, struct err *e)
{
    *s = strategy_default((enum strategy_kind)args_choice(args, "strategy"), c->gpus, c->per_node);
    if (args_has(args, "shard-degree"))
        s->shard_degree = args_int(args, "shard-degree", 0);
    s->seq = args_int(args, "seq", m->max_positions < 4096 ? m->max_positions : 4096);
    s->micro_batch = args_int(args, "micro-batch", 1);
    s->recompute = (enum recompute)args_choice(args, "recompute");
    s->offload = (enum offload)args_choice(args, "offload");
    s->reshard_after_forward = !args_flag(args, "no-reshard");
    if (args_has(args, "precision") &&
        precision_parse_trainable(args_text(args, "precision"), &s->precision, e))
        return e->code;
    enum rc rc = model_check_seq(m, s->seq, e);
    if (!rc)
        rc = read_small(&s->prefetch, args, "prefetch", m->layers + 2, e);
    if (!rc)
        rc = read_small(&s->loss_chunks, args, "loss-chunks", INT32_MAX, e);
    if (!rc)
        rc = read_batch(s, args, e);
    return rc ? rc : strategy_check(s, m, e);
}

/* --- doing it --------------------------------------------------------------------------------- */

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

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct question q;
    struct counts counts;
    struct hardware hw;
    struct rates *rates = NULL;
    if (!args_has(args, "model"))
        return err_set(e, RC_USAGE, "which model? give --model NAME");
    enum rc rc = model_find(&q.model, args_text(args, "model"), e);
    if (!rc)
        rc = read_counts(&counts, args, e);
    if (!rc)
        rc = read_strategy(&q.strategy, &q.model, args, &counts, e);
    if (!rc)
        rc = make_hardware(&hw, args, &counts, e);
    if (!rc)
        rc = rates_builtin(&rates, e);
    if (!rc)
        rc = machine_make(&q.machine, rates, &hw, "berth", e);
    if (!rc)
        rc = estimate_make(&q.answer, &q.model, &q.strategy, &q.machine, e);
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
             "`berth plan`.",
    .examples = (const char *const[]){"berth estimate --model llama-3.1-8b --gpu h100-sxm --gpus 8",
        "berth estimate --model llama-2-70b --gpus 32 --strategy hsdp --recompute full",
        "berth estimate --model qwen2.5-7b --gpu a100-80-sxm --json | jq .memory", NULL},
    .groups = (const struct option_group *const[]){&WHAT_OPTIONS, &HOW_OPTIONS, NULL},
    .run = run,
};
