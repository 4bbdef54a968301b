/* One way of sharding, described by options alone: see strategy_options.h. */
#include "cli/strategy_options.h"

#include "cli/adapter_options.h"
#include "cli/engine_options.h"
#include "cli/what_options.h"
#include "planner/engine_use.h"
#include "planner/model.h"

static const struct option HOW[] = {
    {.name = "strategy",
        .kind = OPTION_CHOICE,
        .choices = "ddp|zero1|zero2|zero3|hsdp",
        .help = "what is sharded; default zero3, or what the engine has",
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
        .choices = "bf16|fp32|fp16|fp8|fp4",
        .help = "of parameters in use and activations; default bf16",
        .detail =
            "The bundled engine has bf16, fp32 and fp8. With fp8 and fp4 the products of blocks "
            "are of such numbers, all else is as with bf16.",
        .example = "--precision fp32"},
    {.name = "optimizer",
        .kind = OPTION_CHOICE,
        .choices = "adamw|sgd",
        .help = "how weights are updated; default adamw",
        .detail = "sgd: with momentum, 4 bytes of a parameter where AdamW's moments are 8.",
        .example = "--optimizer sgd"},
    {.name = "recompute",
        .kind = OPTION_CHOICE,
        .choices = "none|selective|selective-ffn|full|mixed",
        .def = "none",
        .help = "activations to compute again instead of keeping",
        .detail = "selective: the outputs of norms and of the activation function; -ffn: and the "
                  "first products of the FFN; full: all of a block but its input; mixed: the first "
                  "blocks in full, the others selective.",
        .example = "--recompute full"},
    {.name = "full-blocks",
        .kind = OPTION_COUNT,
        .help = "with mixed: so many in full; default what fills the memory",
        .example = "--full-blocks 12"},
    {.name = "offload",
        .kind = OPTION_CHOICE,
        .choices = "none|optimizer|optimizer+params|nvme|nvme+params|activations",
        .def = "none",
        .help = "what to keep off the GPU",
        .detail =
            "optimizer: its states in host memory, where they are updated beside the next step's "
            "forward pass (exactly: nothing is late); +params: "
            "parameters and gradients too (zero3, hsdp), copied up for each gather; nvme: the "
            "optimizer's states on the disk of the node; nvme+params: parameters there too (zero3, "
            "hsdp), read for each gather; activations: in host memory what blocks keep for "
            "backward.",
        .example = "--offload optimizer"},
    {.name = "prefetch",
        .kind = OPTION_COUNT,
        .help = "blocks gathered ahead; default 1, or the engine's",
        .example = "--prefetch 2"},
    {.name = "loss-chunks",
        .kind = OPTION_COUNT,
        .def = "1",
        .help = "pieces in which the logits are worked on",
        .example = "--loss-chunks 4"},
    {.name = "reshard",
        .kind = OPTION_TEXT,
        .argument = "always|never|SIZE",
        .help = "free gathered parameters after forward; default always",
        .detail = "With a size only units whose parameters are larger: a block, or the embedding "
                  "where the head needs it again (zero3, hsdp).",
        .example = "--reshard never"},
    {.name = "optimizer-over-replicas",
        .kind = OPTION_FLAG,
        .help = "with hsdp: optimizer states over all ranks, not over groups",
        .detail = "What they update is then gathered across replicas."},
    {.name = "bucket",
        .kind = OPTION_TEXT,
        .argument = "SIZE|unlimited",
        .help = "gradients reduced together; default each unit's alone",
        .detail = "From 16MiB on; with ddp, zero1 and zero2. The result is the same to the bit.",
        .example = "--bucket 64MiB"},
    {0},
};
const struct option_group HOW_OPTIONS = {"How", HOW};

static const struct option SPLIT[] = {
    {.name = "tensor",
        .alias = "tp",
        .kind = OPTION_COUNT,
        .def = "1",
        .help = "GPUs that split each layer",
        .example = "--tensor 8"},
    {.name = "pipeline",
        .alias = "pp",
        .kind = OPTION_COUNT,
        .def = "1",
        .help = "stages of consecutive layers",
        .example = "--pipeline 4"},
    {.name = "virtual-stages",
        .alias = "vp",
        .kind = OPTION_COUNT,
        .def = "1",
        .help = "stages of each pipeline rank, interleaved",
        .example = "--virtual-stages 2"},
    {.name = "context",
        .alias = "cp",
        .kind = OPTION_COUNT,
        .def = "1",
        .help = "GPUs that split each sequence",
        .example = "--context 2"},
    {.name = "expert",
        .alias = "ep",
        .kind = OPTION_COUNT,
        .def = "1",
        .help = "GPUs that split the experts",
        .example = "--expert 8"},
    {0},
};
const struct option_group SPLIT_OPTIONS = {"Splits of other engines", SPLIT};

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
            ? strategy_data_ranks(s) * s->micro_batch * s->seq
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

struct small {
    int64_t def, most;
};

/* An option that is held in an int, before it is. */
static enum rc read_small(
    int *out, const struct args *args, const char *option, struct small of, struct err *e)
{
    int64_t n = args_int(args, option, of.def), most = of.most;
    if (n < 1 || n > most)
        return err_set(e, RC_USAGE, "option '--%s' is %lld; it must lie in 1 to %lld", option,
            (long long)n, (long long)most);
    *out = (int)n;
    return RC_OK;
}

/* The ranks that are left when layers are split share the states. */
static enum rc read_splits(struct strategy *s, const struct args *args, struct err *e)
{
    struct parallel *p = &s->parallel;
    const struct {
        const char *option;
        int64_t *field;
    } all[] = {{"tensor", &p->tensor}, {"pipeline", &p->pipeline},
        {"virtual-stages", &p->virtual_stages}, {"context", &p->context}, {"expert", &p->expert}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        *all[i].field = args_int(args, all[i].option, 1);
        if (*all[i].field < 1 || *all[i].field > s->ranks)
            return err_set(e, RC_USAGE, "option '--%s' is %lld; it must lie in 1 to %lld",
                all[i].option, (long long)*all[i].field, (long long)s->ranks);
    }
    int64_t layers = p->tensor * p->pipeline, split = layers * p->context;
    if (layers > s->ranks || split > s->ranks || s->ranks % split != 0)
        return err_set(e, RC_USAGE,
            "%lld GPUs are not a multiple of --tensor, --pipeline and "
            "--context together, %lld x %lld x %lld",
            (long long)s->ranks, (long long)p->tensor, (long long)p->pipeline,
            (long long)p->context);
    int64_t per_node = s->ranks_per_node / p->tensor;
    if (s->kind == STRATEGY_HSDP)
        s->shard_degree = per_node > 1 ? per_node : 1;
    else if (s->kind != STRATEGY_DDP)
        s->shard_degree = s->ranks / layers;
    return RC_OK;
}

/* How gradients and states are moved and kept. */
static enum rc read_moves(struct strategy *s, const struct args *args, struct err *e)
{
    enum rc rc = RC_OK;
    s->splits_over_replicas = args_flag(args, "optimizer-over-replicas");
    if (args_has(args, "optimizer"))
        strategy_take_optimizer(s, (enum optimizer)args_choice(args, "optimizer"));
    bool has_form = args_has(args, "master") || args_has(args, "moments");
    if (has_form && !profile_of(s->engine)->is_bundled)
        return err_set(e, RC_USAGE, "how engine %s keeps weights and moments is its own affair",
            engine_name(s->engine));
    if (args_has(args, "moments"))
        strategy_take_moments(s, (enum moment_form)args_choice(args, "moments"));
    if (args_has(args, "master"))
        rc = strategy_parse_master(s, args_text(args, "master"), e);
    if (!rc && args_has(args, "gradients"))
        rc = strategy_parse_gradients(s, args_text(args, "gradients"), e);
    if (!rc && args_has(args, "reshard"))
        rc = strategy_parse_reshard(s, args_text(args, "reshard"), e);
    if (!rc && args_has(args, "bucket"))
        rc = strategy_parse_bucket(s, args_text(args, "bucket"), e);
    if (!rc && args_has(args, "gather-format"))
        rc = wire_parse(args_text(args, "gather-format"), &s->gather_format, e);
    if (!rc && args_has(args, "reduce-format"))
        rc = wire_parse(args_text(args, "reduce-format"), &s->reduce_format, e);
    return rc;
}

static enum rc read_recompute(
    struct strategy *s, const struct model *m, const struct args *args, struct err *e)
{
    int64_t blocks = args_int(args, "full-blocks", 0);
    enum rc rc = strategy_parse_recompute(s, args_text(args, "recompute"), e);
    if (rc || !args_has(args, "full-blocks"))
        return rc;
    if (s->full_blocks != STRATEGY_FILL)
        return err_set(e, RC_USAGE, "option '--full-blocks' goes with --recompute mixed");
    if (blocks < 1 || blocks >= m->layers)
        return err_set(e, RC_USAGE, "option '--full-blocks' is %lld; it must lie in 1 to %lld",
            (long long)blocks, (long long)m->layers - 1);
    s->full_blocks = (int)blocks;
    return RC_OK;
}

/* Apart from what the machine decides. */
static enum rc check(const struct strategy *s, const struct model *m, struct err *e)
{
    struct strategy known = *s;
    if (known.full_blocks == STRATEGY_FILL)
        known.full_blocks = 1;
    enum rc rc = engine_check(&known, e);
    return rc ? rc : strategy_check(&known, m, e);
}

enum rc strategy_from_args(struct strategy *s, const struct model *m, const struct args *args,
    const char *stack, struct err *e)
{
    enum engine engine = engine_from_args(args);
    struct gpu_counts c;
    enum rc rc = gpu_counts_from_args(&c, args, e);
    if (rc)
        return rc;
    int kind = args_choice(args, "strategy");
    *s = strategy_default(
        kind >= 0 ? (enum strategy_kind)kind : engine_default_kind(engine), c.gpus, c.per_node);
    engine_take(s, engine, stack);
    rc = read_splits(s, args, e);
    if (rc)
        return rc;
    if (args_has(args, "shard-degree"))
        s->shard_degree = args_int(args, "shard-degree", 0);
    rc = doc_tokens_from_args(&s->doc_tokens, args, e);
    if (rc)
        return rc;
    s->seq = args_int(args, "seq", m->max_positions < 4096 ? m->max_positions : 4096);
    s->micro_batch = args_int(args, "micro-batch", 1);
    rc = read_recompute(s, m, args, e);
    if (!rc)
        rc = offload_parse(args_text(args, "offload"), &s->offload, e);
    if (!rc)
        rc = read_moves(s, args, e);
    if (!rc && args_has(args, "precision"))
        rc = precision_parse(args_text(args, "precision"), &s->precision, e);
    if (!rc && profile_of(engine)->is_bundled)
        rc = precision_parse_trainable(precision_name(s->precision), &s->precision, e);
    if (!rc)
        rc = model_check_seq(m, s->seq, e);
    if (!rc)
        rc = read_small(
            &s->prefetch, args, "prefetch", (struct small){s->prefetch, m->layers + 2}, e);
    if (!rc)
        rc = read_small(&s->loss_chunks, args, "loss-chunks", (struct small){1, INT32_MAX}, e);
    if (!rc && s->loss_chunks > 1 && !profile_of(engine)->is_bundled)
        s->memory.loss = LOSS_CHUNKED;
    if (!rc)
        rc = read_batch(s, args, e);
    return rc ? rc : check(s, m, e);
}
