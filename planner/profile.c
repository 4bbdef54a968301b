#include "planner/profile.h"

#include <stdio.h>
#include <string.h>

/* Sources. States: ZeRO (arXiv 1910.02054), Megatron-LM's distributed optimizer (bf16 parameters,
 * fp32 gradients, 12 bytes of optimizer per parameter and rank), FSDP's fp32 shards cast when
 * gathered, FSDP2's flat gather buffer beside the parameters copied out of it and its fp32 reduce
 * input. Buckets: DeepSpeed's defaults of 5e8 reduced and 5e7 prefetched elements of two bytes; DDP
 * of torch 25 MB. Logits: bf16, an fp32 copy, log-probabilities and their gradient in eager
 * PyTorch; Megatron's vocabulary-parallel loss works in place. */
static const struct engine_profile profiles[ENGINE_COUNT] = {
    [ENGINE_BERTH] = {.name = "berth",
        .stack = "berth",
        .help = "the bundled engine",
        .is_bundled = true,
        .grad_bytes = 4,
        .unit_grad_bytes = 4,
        .reduce_bytes = 4,
        .gathered_copies = 1,
        .activation_factor = 1,
        .prefetch = 1},
    [ENGINE_FSDP1] = {.name = "fsdp1",
        .stack = "fsdp1",
        .help = "PyTorch FSDP, flat parameters",
        .has_fp32_shard = true,
        .grad_bytes = 4,
        .unit_grad_bytes = 2,
        .reduce_bytes = 2,
        .gathered_copies = 1,
        .logit_bytes = 10,
        .activation_factor = 1.3,
        .prefetch = 1},
    [ENGINE_FSDP2] = {.name = "fsdp2",
        .stack = "fsdp2",
        .help = "PyTorch fully_shard",
        .has_fp32_shard = true,
        .grad_bytes = 4,
        .unit_grad_bytes = 6,
        .reduce_bytes = 4,
        .gathered_copies = 2,
        .logit_bytes = 14,
        .activation_factor = 1.1,
        .prefetch = 1,
        .selective = SELECTIVE_MATMULS},
    [ENGINE_DEEPSPEED] = {.name = "deepspeed",
        .stack = "deepspeed",
        .help = "DeepSpeed ZeRO-1/2/3",
        .grad_bytes = 2,
        .unit_grad_bytes = 2,
        .reduce_bytes = 2,
        .gathered_copies = 1,
        .logit_bytes = 14,
        .activation_factor = 1.3,
        .bucket_bytes = 1.1e9,
        .prefetch = 2},
    [ENGINE_ACCELERATE_ZERO3] = {.name = "accelerate-zero3",
        .stack = "deepspeed-accelerate",
        .help = "DeepSpeed ZeRO-3 as accelerate starts it",
        .grad_bytes = 2,
        .unit_grad_bytes = 2,
        .reduce_bytes = 2,
        .gathered_copies = 1,
        .logit_bytes = 16,
        .activation_factor = 1.6,
        .bucket_bytes = 1.1e9,
        .prefetch = 2},
    [ENGINE_MEGATRON] = {.name = "megatron",
        .stack = "megatron",
        .help = "Megatron's distributed optimizer",
        .grad_bytes = 4,
        .unit_grad_bytes = 4,
        .reduce_bytes = 4,
        .gathered_copies = 1,
        .logit_bytes = 6,
        .activation_factor = 1.1,
        .prefetch = 1,
        .selective = SELECTIVE_ATTENTION},
    [ENGINE_DDP] = {.name = "ddp",
        .stack = "ddp",
        .help = "PyTorch, nothing sharded",
        .grad_bytes = 4,
        .unit_grad_bytes = 4,
        .reduce_bytes = 4,
        .gathered_copies = 1,
        .logit_bytes = 14,
        .activation_factor = 1.3,
        .bucket_bytes = 5e7,
        .prefetch = 1},
};

const struct engine_profile *profile_of(enum engine g)
{
    return &profiles[g];
}

const char *engine_name(enum engine g)
{
    return profiles[g].name;
}

enum rc engine_parse(const char *name, enum engine *out, struct err *e)
{
    char all[256] = "";
    size_t used = 0;
    for (int i = 0; i < ENGINE_COUNT; i++) {
        if (strcmp(profiles[i].name, name) == 0) {
            *out = (enum engine)i;
            return RC_OK;
        }
        used += (size_t)snprintf(
            all + used, sizeof all - used, "%s%s", i ? ", " : "", profiles[i].name);
    }
    return err_set(e, RC_USAGE, "unknown engine '%s'; there are %s", name, all);
}
