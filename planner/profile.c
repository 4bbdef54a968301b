#include "planner/profile.h"

#include <stdio.h>
#include <string.h>

/* Sources.
 *
 * States: ZeRO (arXiv 1910.02054); Megatron-LM's theoretical_memory_usage.py (bf16 parameters, fp32
 * gradients, 12 bytes of optimizer); FSDP keeps fp32 shards and casts what it gathers; DeepSpeed
 * copies a rank's 16-bit gradients to fp32 before its step (stage_1_and_2.py), and its
 * BF16_Optimizer, which pipelines use, accumulates in fp32 beside them.
 * Gathered: FSDP2's flat buffer beside the parameters copied out of it, and its fp32 reduce input;
 * DeepSpeed's stage3_max_live_parameters of 1e9. Buckets: DeepSpeed's reduce_bucket_size of 5e8
 * elements of two bytes, twice (one fills while the other is reduced), and
 * stage3_prefetch_bucket_size of 5e7; DDP of torch 25 MB, twice. Pipelines under DeepSpeed reduce
 * at their end and need half a bucket's worth (bigscience: 1e9 in 60 runs; without one 3e9 in 7).
 * Disk: DeepSpeed swaps fp32 gradients out and in beside the states (stage3.py,
 * swap_out_gradients of runtime/swap_tensor/optimizer_utils.py).
 * Logits: bf16, an fp32 copy, log-probabilities, their gradient and its copy: 16 bytes in eager
 * PyTorch, 14 compiled (torchtitan's Llama-3-8B over sequence lengths); Megatron's
 * vocabulary-parallel loss keeps bf16 logits, an fp32 copy and the softmax, 10, and 6 with
 * cross_entropy_loss_fusion (SimuMax).
 * Factors over what a block keeps: fp32 copies in norms, rotary embedding and SiLU. Eager FSDP2 1.4
 * and compiled 1.1 (torchtitan without recompute, 53.1 and 46.6 GiB: torchao's float8 table;
 * torchtune 60 and 51 GiB), Hugging Face models 1.5 (stas00/ml-engineering, 99 GiB without
 * recompute), Megatron with fused kernels 1.0 (SimuMax). */
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
        .defers_update = true,
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
        .fused_logit_bytes = 8,
        .fused_factor = 1.0,
        .prefetch = 1},
    [ENGINE_FSDP2] = {.name = "fsdp2",
        .stack = "fsdp2",
        .help = "PyTorch fully_shard",
        .has_fp32_shard = true,
        .grad_bytes = 4,
        .unit_grad_bytes = 6,
        .reduce_bytes = 4,
        .gathered_copies = 2,
        .logit_bytes = 16,
        .activation_factor = 1.4,
        .fused_logit_bytes = 14,
        .fused_factor = 1.1,
        .prefetch = 1,
        .selective = SELECTIVE_MATMULS},
    [ENGINE_DEEPSPEED] = {.name = "deepspeed",
        .stack = "deepspeed",
        .help = "DeepSpeed ZeRO-1/2/3",
        .grad_bytes = 2,
        .unit_grad_bytes = 2,
        .reduce_bytes = 2,
        .gathered_copies = 1,
        .logit_bytes = 16,
        .activation_factor = 1.5,
        .bucket_bytes = 2.1e9,
        .fused_logit_bytes = 14,
        .fused_factor = 1.3,
        .live_params = 1e9,
        .step_grad_bytes = 4,
        .keeps_gradients = true,
        .disk_grad_bytes = 4,
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
        .bucket_bytes = 2.1e9,
        .fused_logit_bytes = 14,
        .fused_factor = 1.3,
        .live_params = 1e9,
        .step_grad_bytes = 4,
        .keeps_gradients = true,
        .disk_grad_bytes = 4,
        .prefetch = 2},
    [ENGINE_MEGATRON] = {.name = "megatron",
        .stack = "megatron",
        .help = "Megatron's distributed optimizer",
        .grad_bytes = 4,
        .unit_grad_bytes = 4,
        .reduce_bytes = 4,
        .gathered_copies = 1,
        .logit_bytes = 10,
        .activation_factor = 1.3,
        .fused_logit_bytes = 6,
        .fused_factor = 1.0,
        .fuses_split_loss = true,
        .keeps_gradients = true,
        .keeps_8bit_inputs = true,
        .prefetch = 1,
        .selective = SELECTIVE_ATTENTION},
    [ENGINE_MEGATRON_DEEPSPEED] = {.name = "megatron-deepspeed",
        .stack = "megatron-deepspeed",
        .help = "Megatron under DeepSpeed's ZeRO",
        .grad_bytes = 2,
        .unit_grad_bytes = 4,
        .reduce_bytes = 4,
        .gathered_copies = 1,
        .logit_bytes = 6,
        .fused_logit_bytes = 6,
        .activation_factor = 1.1,
        .fused_factor = 1.1,
        .bucket_bytes = 1e9,
        .unpiped_bytes = 2e9,
        .prefetch = 1,
        .live_params = 1e9,
        .step_grad_bytes = 4,
        .bf16_accumulator_bytes = 4,
        .stage_outputs = 1,
        .fuses_split_loss = true,
        .keeps_gradients = true,
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
        .fused_logit_bytes = 14,
        .fused_factor = 1.0,
        .prefetch = 1},
};

const struct engine_profile *profile_of(enum engine g)
{
    return &profiles[g];
}

const char ENGINE_CHOICES[] =
    "berth|fsdp1|fsdp2|deepspeed|accelerate-zero3|megatron|megatron-deepspeed|ddp";

const char *engine_name(enum engine g)
{
    return profiles[g].name;
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Composer's MPT normalises in low precision; it and Megatron bring fused kernels, nanotron does
 * not. */
bool stack_is_fused(const char *stack)
{
    bool is_megatron = has_prefix(stack, "megatron") && !has_prefix(stack, "megatron-nanotron");
    return strstr(stack, "+compile") || has_prefix(stack, "fsdp1-composer") || is_megatron;
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
