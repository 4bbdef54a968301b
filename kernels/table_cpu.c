/* One instruction set's table of kernels: compiled once for each, as every *_cpu.c (Makefile). */
#include "kernels/variant.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const struct kernels K_NAME(k_table) = {
    .name = TEXT(K_VARIANT),
    .embed_fwd = K_NAME(k_embed_fwd),
    .embed_bwd = K_NAME(k_embed_bwd),
    .norm_fwd = K_NAME(k_norm_fwd),
    .norm_bwd = K_NAME(k_norm_bwd),
    .qk_norm_fwd = K_NAME(k_qk_norm_fwd),
    .qk_norm_bwd = K_NAME(k_qk_norm_bwd),
    .matmul = K_NAME(k_matmul),
    .bias_bwd = K_NAME(k_bias_bwd),
    .rope_fwd = K_NAME(k_rope_fwd),
    .rope_bwd = K_NAME(k_rope_bwd),
    .attn_fwd = K_NAME(k_attn_fwd),
    .attn_bwd = K_NAME(k_attn_bwd),
    .swiglu_fwd = K_NAME(k_swiglu_fwd),
    .swiglu_bwd = K_NAME(k_swiglu_bwd),
    .gelu_fwd = K_NAME(k_gelu_fwd),
    .gelu_bwd = K_NAME(k_gelu_bwd),
    .cross_entropy = K_NAME(k_cross_entropy),
    .grad_norm = K_NAME(k_grad_norm),
    .adamw = K_NAME(k_adamw),
    .sgd = K_NAME(k_sgd),
    .moment_read = K_NAME(k_moment_read),
    .moment_write = K_NAME(k_moment_write),
    .weights_read = K_NAME(k_weights_read),
    .weights_write = K_NAME(k_weights_write),
    .fp32_to_bf16 = K_NAME(k_fp32_to_bf16),
    .bf16_to_fp32 = K_NAME(k_bf16_to_fp32),
    .amax = K_NAME(k_amax),
    .quantise = K_NAME(k_quantise),
    .fp8_to_fp32 = K_NAME(k_fp8_to_fp32),
    .sum_f32 = K_NAME(k_sum_f32),
    .scale_f32 = K_NAME(k_scale_f32),
    .sum_ranks_f32 = K_NAME(k_sum_ranks_f32),
    .encode = K_NAME(k_encode),
    .decode = K_NAME(k_decode),
    .sum_wires = K_NAME(k_sum_wires),
};
