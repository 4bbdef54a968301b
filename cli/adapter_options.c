#include "cli/adapter_options.h"

#include "planner/adapter.h"
#include "planner/job.h"

static const struct option OPTIONS[] = {
    {.name = "lora",
        .kind = OPTION_COUNT,
        .argument = "RANK",
        .help = "train adapters of this rank beside the frozen model (LoRA)",
        .detail = "Predicted, not launched. Frozen parameters have no gradients and no optimizer "
                  "states; checkpoints hold the adapters alone.",
        .example = "--lora 16"},
    {.name = "lora-targets",
        .kind = OPTION_TEXT,
        .argument = "WHICH",
        .help = "with --lora: matrices that have adapters; default all",
        .detail = "All, attention, mlp, or a list of q, k, v, o, gate, up and down.",
        .example = "--lora-targets q,v"},
    {.name = "base-bits",
        .kind = OPTION_CHOICE,
        .choices = "16|8|4",
        .help = "with --lora: bits of frozen parameters; default 16",
        .detail = "With 8 and 4 the matrices of blocks are kept in blocks of 64 numbers with a "
                  "scale (QLoRA) and brought to 16 bits before products. Embedding, head and norms "
                  "keep 16 bits.",
        .example = "--base-bits 4"},
    {.name = "doc-tokens",
        .kind = OPTION_COUNT,
        .help = "mean tokens of packed documents; default one text a sequence",
        .detail = "Tokens attend within their document alone, and positions count from its start; "
                  "the data say where documents end (documents=apart, see `berth help formats`). "
                  "For prediction lengths are taken to be spread geometrically about the mean, and "
                  "documents to be cut at the end of a sequence, as the engine does.",
        .example = "--doc-tokens 1024"},
    {0},
};
const struct option_group ADAPTER_OPTIONS = {"Adapters and documents", OPTIONS};

enum rc adapter_from_args(struct adapter *a, const struct args *args, struct err *e)
{
    static const int BITS[] = {16, 8, 4};
    int bits = args_choice(args, "base-bits");
    if (args_has(args, "lora")) {
        a->rank = args_int(args, "lora", 0);
        if (job_refuse_zero("lora", (double)a->rank, e))
            return err_in(e, "option '--lora'");
    }
    if (args_has(args, "lora-targets") &&
        adapter_targets_parse(args_text(args, "lora-targets"), &a->targets, e))
        return err_in(e, "option '--lora-targets'");
    if (bits >= 0)
        a->base_bits = BITS[bits];
    return RC_OK;
}

enum rc doc_tokens_from_args(int64_t *tokens, const struct args *args, struct err *e)
{
    if (!args_has(args, "doc-tokens"))
        return RC_OK;
    *tokens = args_int(args, "doc-tokens", 0);
    if (job_refuse_zero("doc_tokens", (double)*tokens, e))
        return err_in(e, "option '--doc-tokens'");
    return job_check_documents(*tokens, e);
}
