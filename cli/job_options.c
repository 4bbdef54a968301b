#include "cli/job_options.h"

#include <string.h>

#include "base/str.h"
#include "base/units.h"
#include "cli/adapter_options.h"
#include "cli/output.h"
#include "planner/job.h"

static const struct option JOB[] = {
    {.name = "model",
        .kind = OPTION_TEXT,
        .is_setting = true,
        .argument = "NAME|PATH",
        .help = "what to train: a preset, or the path of a Hugging Face config.json",
        .detail = "`berth help models` lists the presets.",
        .example = "--model llama-3.1-8b",
        .complete = "models"},
    {.name = "tokens",
        .kind = OPTION_COUNT,
        .help = "tokens to train on",
        .example = "--tokens 10B"},
    {.name = "seq",
        .kind = OPTION_COUNT,
        .is_setting = true,
        .help = "tokens of a sequence; default 4096, or what the model can",
        .example = "--seq 8192"},
    {.name = "global-batch-tokens",
        .kind = OPTION_COUNT,
        .is_setting = true,
        .help = "tokens of an optimizer step; default by the size of the model",
        .example = "--global-batch-tokens 4194304"},
    {.name = "precision",
        .kind = OPTION_CHOICE,
        .is_setting = true,
        .choices = "bf16|fp32|fp16|fp8|fp4",
        .help = "of parameters in use and activations; default bf16, with fp32 master copies",
        .detail =
            "The bundled engine has bf16, fp32 and fp8. With fp8 the products of blocks are of "
            "8-bit numbers, all else is as with bf16.",
        .example = "--precision fp32"},
    {.name = "allow",
        .kind = OPTION_CHOICE,
        .is_repeatable = true,
        .choices = "bf16|fp32|fp8",
        .help = "a precision that the search may also try",
        .example = "--allow bf16"},
    {0},
};
const struct option_group JOB_OPTIONS = {"Job", JOB};

static const struct option LIMITS[] = {
    {.name = "objective",
        .kind = OPTION_CHOICE,
        .is_setting = true,
        .choices = "cost|time|balanced",
        .help = "what the first plan is best at; default cost",
        .detail = "Balanced minimises cost times time. All plans between cheapest and fastest are "
                  "listed in either case.",
        .example = "--objective time"},
    {.name = "budget-usd",
        .kind = OPTION_USD,
        .is_setting = true,
        .help = "most that the whole run may cost",
        .example = "--budget-usd 1500"},
    {.name = "deadline",
        .kind = OPTION_SECONDS,
        .is_setting = true,
        .help = "longest that the whole run may take",
        .example = "--deadline 7d"},
    {.name = "max-gpus",
        .kind = OPTION_COUNT,
        .is_setting = true,
        .help = "most GPUs (on CPU: ranks) to rent",
        .example = "--max-gpus 64"},
    {.name = "gpu",
        .kind = OPTION_TEXT,
        .is_repeatable = true,
        .argument = "NAME",
        .help = "only this GPU: a model (h100-sxm) or a family (h100); cpu for CPU nodes",
        .example = "--gpu h100",
        .complete = "gpus"},
    {.name = "provider",
        .kind = OPTION_TEXT,
        .is_repeatable = true,
        .argument = "NAME",
        .help = "only this provider",
        .example = "--provider nebius",
        .complete = "providers"},
    {.name = "region",
        .kind = OPTION_TEXT,
        .is_repeatable = true,
        .argument = "NAME",
        .help = "only this region",
        .example = "--region us-east-1"},
    {.name = "fabric",
        .kind = OPTION_CHOICE,
        .is_repeatable = true,
        .argument = "KIND",
        .choices = "none|ethernet|roce|infiniband|ib|efa|tcpx",
        .help = "only this network between nodes",
        .example = "--fabric infiniband"},
    {.name = "strategy",
        .kind = OPTION_CHOICE,
        .is_repeatable = true,
        .argument = "KIND",
        .choices = "ddp|zero1|zero2|zero3|hsdp",
        .help = "only this way of sharding",
        .example = "--strategy zero3"},
    {.name = "offload",
        .kind = OPTION_CHOICE,
        .is_repeatable = true,
        .argument = "WHAT",
        .choices = "none|optimizer|optimizer+params|nvme|nvme+params|activations",
        .help = "only with this kept off the device, on CPU nodes too",
        .detail =
            "Without it the search thinks of optimizer on GPUs, of activations and "
            "optimizer+params where nothing fits without, and of nvme and nvme+params last. On "
            "CPU nodes these alone save memory.",
        .example = "--offload nvme"},
    {.name = "recompute",
        .kind = OPTION_CHOICE,
        .is_repeatable = true,
        .argument = "KIND",
        .choices = "none|selective|selective-ffn|full|mixed",
        .help = "only this recompute of activations",
        .detail = "Without it all but selective-ffn are tried. mixed: the first blocks in full, as "
                  "many as memory asks for, the others selective.",
        .example = "--recompute mixed"},
    {.name = "reshard",
        .kind = OPTION_TEXT,
        .argument = "always|never|SIZE",
        .help = "free gathered parameters after forward; default what is best",
        .detail = "With a size only units whose parameters are larger (zero3, hsdp).",
        .example = "--reshard always"},
    {.name = "bucket",
        .kind = OPTION_TEXT,
        .argument = "SIZE|unlimited",
        .help = "gradients reduced together; default each unit's alone",
        .detail = "From 16MiB on; with ddp, zero1 and zero2.",
        .example = "--bucket 64MiB"},
    {.name = "spot",
        .kind = OPTION_CHOICE,
        .is_setting = true,
        .choices = "no|allow|only",
        .help = "offers that may be taken away; default no",
        .detail = "Interruptions are billed where the offer says how often they come; else the "
                  "figures are those of an undisturbed run, and such plans say so. An offer that "
                  "goes away too often for the run ever to finish is refused.",
        .example = "--spot allow"},
    {0},
};
const struct option_group LIMIT_OPTIONS = {"Limits", LIMITS};

/* A flag or an environment variable beats the job file, which beats a configuration file. */
static bool wins(const struct args *args, const char *name, bool is_in_job)
{
    return args_has(args, name) && (args_origin(args, name) <= ORIGIN_ENV || !is_in_job);
}

static void take_int(const struct args *args, const char *name, int64_t *field)
{
    if (wins(args, name, *field > 0))
        *field = args_int(args, name, 0);
}

static enum rc take_list(
    const struct args *args, const char *name, char field[JOB_LIST], struct err *e)
{
    struct str s = STR_INIT;
    for (size_t i = 0; i < args_times(args, name); i++)
        str_addf(&s, "%s%s", i ? "," : "", args_nth(args, name, i));
    bool fits = s.len == 0 || str_copy(field, JOB_LIST, str_text(&s));
    str_release(&s);
    return fits ? RC_OK : err_set(e, RC_LIMIT, "option '--%s' names too many", name);
}

static enum rc take_word(
    const struct args *args, const char *name, char field[JOB_WORD], struct err *e)
{
    if (!args_has(args, name) || str_copy(field, JOB_WORD, args_text(args, name)))
        return RC_OK;
    return err_set(e, RC_USAGE, "option '--%s' is too long", name);
}

static enum rc take_bits(struct job *j, const struct args *args, bool has_file, struct err *e)
{
    enum rc rc = RC_OK;
    if (wins(args, "master", has_file))
        rc = job_parse_master(j, args_text(args, "master"), e);
    if (!rc && wins(args, "gradients", has_file))
        rc = job_parse_gradients(j, args_text(args, "gradients"), e);
    if (!rc && wins(args, "moments", has_file))
        rc = moment_form_parse(args_text(args, "moments"), &j->moment_form, e);
    if (!rc)
        rc = take_word(args, "gather-format", j->gather_format, e);
    if (!rc)
        rc = take_word(args, "reduce-format", j->reduce_format, e);
    return rc;
}

enum rc job_take_bits(struct job *j, const struct args *args, struct err *e)
{
    return take_bits(j, args, false, e);
}

static enum rc take_words(struct job *j, const struct args *args, bool has_file, struct err *e)
{
    enum rc rc = RC_OK;
    if (wins(args, "precision", has_file))
        rc = precision_parse(args_text(args, "precision"), &j->precision, e);
    if (!rc)
        rc = take_bits(j, args, has_file, e);
    if (!rc && wins(args, "engine", has_file))
        rc = engine_parse(args_text(args, "engine"), &j->engine, e);
    if (!rc && wins(args, "objective", has_file))
        rc = objective_parse(args_text(args, "objective"), &j->objective, e);
    if (!rc && wins(args, "spot", has_file))
        rc = spot_parse(args_text(args, "spot"), &j->spot, e);
    if (!rc && wins(args, "data-kind", j->data_kind != DATA_AUTO))
        rc = data_kind_parse(args_text(args, "data-kind"), &j->data_kind, e);
    for (size_t i = 0; !rc && i < args_times(args, "allow"); i++)
        rc = job_allow(j, args_nth(args, "allow", i), e);
    return rc;
}

static enum rc take_all(struct job *j, const struct args *args, bool has_file, struct err *e)
{
    enum rc rc = RC_OK;
    if (wins(args, "model", j->has_model)) {
        rc = model_find(&j->model, args_text(args, "model"), e);
        j->has_model = rc == RC_OK;
    }
    take_int(args, "tokens", &j->tokens);
    take_int(args, "seq", &j->seq);
    if (!rc)
        rc = adapter_from_args(&j->lora, args, e);
    if (!rc)
        rc = doc_tokens_from_args(&j->doc_tokens, args, e);
    take_int(args, "global-batch-tokens", &j->global_batch_tokens);
    take_int(args, "budget-usd", &j->budget_micro_usd);
    take_int(args, "max-gpus", &j->max_gpus);
    if (wins(args, "deadline", j->deadline_s > 0))
        j->deadline_s = args_num(args, "deadline", 0);
    if (!rc)
        rc = take_words(j, args, has_file, e);
    if (!rc)
        rc = take_list(args, "provider", j->provider, e);
    if (!rc)
        rc = take_list(args, "region", j->region, e);
    if (!rc)
        rc = take_list(args, "fabric", j->fabric, e);
    if (!rc)
        rc = take_list(args, "strategy", j->strategy, e);
    if (!rc)
        rc = take_list(args, "offload", j->offload, e);
    if (!rc)
        rc = take_list(args, "recompute", j->recompute, e);
    if (!rc)
        rc = take_word(args, "reshard", j->reshard, e);
    if (!rc)
        rc = take_word(args, "bucket", j->bucket, e);
    if (!rc)
        rc = take_list(args, "gpu", j->gpu, e);
    return rc;
}

/* As a job file refuses it. */
static enum rc check_zero(const struct args *args, struct err *e)
{
    static const struct {
        const char *option, *field;
    } NAMES[] = {{"tokens", "tokens"}, {"seq", "seq"},
        {"global-batch-tokens", "global_batch_tokens"}, {"budget-usd", "budget_usd"},
        {"max-gpus", "max_gpus"}, {"deadline", "deadline"}};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        if (args_has(args, NAMES[i].option) &&
            job_refuse_zero(NAMES[i].field, args_num(args, NAMES[i].option, 0), e))
            return err_in(e, "option '--%s'", NAMES[i].option);
    return RC_OK;
}

static void note_assumptions(const struct job *j, struct out *out)
{
    char text[UNITS_TEXT];
    if (j->is_seq_assumed)
        out_note(out, "sequences of %lld tokens assumed%s; --seq N for others", (long long)j->seq,
            j->model.is_windowed ? ", within the model's sliding_window" : "");
    if (j->is_batch_assumed)
        out_note(out,
            "a batch of %s tokens (%lld sequences) per step assumed; "
            "--global-batch-tokens N for others",
            units_count(text, (double)j->global_batch_tokens), (long long)job_step_sequences(j));
}

enum rc job_from_args(
    struct job *j, const char *path, const struct args *args, struct out *out, struct err *e)
{
    job_init(j);
    enum rc rc = check_zero(args, e);
    if (!rc && path)
        rc = job_read_file(j, path, e);
    if (!rc)
        rc = take_all(j, args, path != NULL, e);
    if (!rc)
        rc = job_finish(j, e);
    if (rc)
        job_release(j);
    else
        note_assumptions(j, out);
    return rc;
}
