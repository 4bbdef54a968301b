/* The table of kernels of a GPU, and what needs no kernel. */
#include <string.h>

#include "kernels/gpu_kernel.cuh"

void gpu_zero(struct pool *p, void *x, int64_t bytes)
{
    if (bytes > 0)
        cudaMemsetAsync(x, 0, (size_t)bytes, (cudaStream_t)gpu_lane_of(p)->stream);
}

void gpu_copy(struct pool *p, void *dst, const void *src, int64_t bytes)
{
    if (bytes > 0)
        cudaMemcpyAsync(
            dst, src, (size_t)bytes, cudaMemcpyDefault, (cudaStream_t)gpu_lane_of(p)->stream);
}

struct kernels kernels_gpu(void)
{
    struct kernels k;
    memset(&k, 0, sizeof(k));
    k.name = "gpu";
    k.embed_fwd = gpu_embed_fwd;
    k.embed_bwd = gpu_embed_bwd;
    k.norm_fwd = gpu_norm_fwd;
    k.norm_bwd = gpu_norm_bwd;
    k.qk_norm_fwd = gpu_qk_norm_fwd;
    k.qk_norm_bwd = gpu_qk_norm_bwd;
    k.bias_bwd = gpu_bias_bwd;
    k.rope_fwd = gpu_rope_fwd;
    k.rope_bwd = gpu_rope_bwd;
    k.attn_fwd = gpu_attn_fwd;
    k.attn_bwd = gpu_attn_bwd;
    k.swiglu_fwd = gpu_swiglu_fwd;
    k.swiglu_bwd = gpu_swiglu_bwd;
    k.gelu_fwd = gpu_gelu_fwd;
    k.gelu_bwd = gpu_gelu_bwd;
    k.cross_entropy = gpu_cross_entropy;
    k.grad_norm = gpu_grad_norm;
    k.adamw = gpu_adamw;
    k.sgd = gpu_sgd;
    k.weights_read = gpu_weights_read;
    k.weights_write = gpu_weights_write;
    k.moment_read = gpu_moment_read;
    k.moment_write = gpu_moment_write;
    k.fp32_to_bf16 = gpu_fp32_to_bf16;
    k.bf16_to_fp32 = gpu_bf16_to_fp32;
    k.amax = gpu_amax;
    k.quantise = gpu_quantise;
    k.fp8_to_fp32 = gpu_fp8_to_fp32;
    k.sum_f32 = gpu_sum_f32;
    k.scale_f32 = gpu_scale_f32;
    k.sum_ranks_f32 = gpu_sum_ranks_f32;
    k.zero = gpu_zero;
    k.copy = gpu_copy;
    k.encode = gpu_encode;
    k.decode = gpu_decode;
    k.sum_wires = gpu_sum_wires;
    return k;
}
