/* torchtitan's TOML, as version 0.2 reads it. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "planner/export.h"

/* torchtitan/models, MODEL/__init__.py */
static const struct {
    const char *name, *model, *flavor;
} models[] = {
    {"llama-3-8b", "llama3", "8B"},
    {"llama-3.1-8b", "llama3", "8B"},
    {"llama-3-70b", "llama3", "70B"},
    {"llama-3.1-70b", "llama3", "70B"},
    {"llama-3.1-405b", "llama3", "405B"},
    {"qwen3-0.6b", "qwen3", "0.6B"},
    {"qwen3-1.7b", "qwen3", "1.7B"},
    {"qwen3-4b", "qwen3", "4B"},
    {"qwen3-8b", "qwen3", "8B"},
    {"qwen3-14b", "qwen3", "14B"},
    {"qwen3-32b", "qwen3", "32B"},
};

static void add_text(struct str *out, const char *key, const char *text)
{
    str_addf(out, "%s = ", key);
    export_quote(out, text);
    str_add(out, "\n");
}

static void add_int(struct str *out, const char *key, int64_t n)
{
    str_addf(out, "%s = %lld\n", key, (long long)n);
}

/* TOML tells whole numbers from others by their form. */
static void add_num(struct str *out, const char *key, double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", x);
    for (int digits = 1; digits < 17; digits++) {
        char shorter[40];
        snprintf(shorter, sizeof shorter, "%.*g", digits, x);
        if (!(fabs(strtod(shorter, NULL) - x) > 0)) {
            memcpy(text, shorter, sizeof text);
            break;
        }
    }
    str_addf(out, "%s = %s%s\n", key, text, strpbrk(text, ".e") ? "" : ".0");
}

static void add_model(struct str *out, struct str *left_out, const struct export_input *in)
{
    size_t i = 0;
    while (i < BASE_COUNT(models) && strcmp(models[i].name, in->model->name) != 0)
        i++;
    bool is_known = i < BASE_COUNT(models);
    str_add(out, "\n[model]\n");
    if (is_known) {
        add_text(out, "name", models[i].model);
        add_text(out, "flavor", models[i].flavor);
    } else {
        export_lost(left_out, "the model: set name and flavor to one that torchtitan has");
    }
    if (in->strategy->precision == PRECISION_FP8)
        str_add(out, "converters = [\"quantize.linear.float8\"]\n");
}

static void add_adamw(struct str *out, const struct training *t)
{
    str_add(out, "\n[optimizer]\n");
    add_text(out, "name", "AdamW");
    add_num(out, "lr", t->lr);
    add_num(out, "beta1", t->beta1);
    add_num(out, "beta2", t->beta2);
    add_num(out, "eps", t->eps);
    add_num(out, "weight_decay", t->weight_decay);
}

static void add_optimizer(struct str *out, struct str *left_out, const struct export_input *in)
{
    static const char *const decays[] = {
        [LR_COSINE] = "cosine", [LR_LINEAR] = "linear", [LR_WSD] = "linear"};
    const struct training *t = in->training;
    if (!t)
        return;
    if (t->optimizer == OPTIMIZER_SGD)
        export_lost(left_out, "optimizer sgd with its rate: torchtitan has Adam and AdamW");
    else
        add_adamw(out, t);
    str_add(out, "\n[lr_scheduler]\n");
    add_int(out, "warmup_steps", t->warmup_steps);
    if (t->schedule == LR_CONSTANT) {
        add_num(out, "decay_ratio", 0);
        return;
    }
    if (t->schedule == LR_WSD && in->steps > 0)
        add_num(out, "decay_ratio", fmin(1, (double)t->decay_steps / (double)in->steps));
    add_text(out, "decay_type", decays[t->schedule]);
    add_num(out, "min_lr_factor", t->lr > 0 ? t->min_lr / t->lr : 0);
}

static void add_training(struct str *out, struct str *left_out, const struct export_input *in)
{
    const struct strategy *s = in->strategy;
    str_add(out, "\n[training]\n");
    add_int(
        out, "local_batch_size", s->micro_batch * (s->parallel.pipeline > 1 ? s->grad_accum : 1));
    add_int(out, "global_batch_size", export_sequences(in));
    add_int(out, "seq_len", s->seq);
    if (in->steps > 0)
        add_int(out, "steps", in->steps);
    if (in->training && in->training->clip_norm > 0)
        add_num(out, "max_norm", in->training->clip_norm);
    else if (in->training)
        export_lost(left_out, "training without clipping");
    if (export_fsdp_offload(s))
        str_add(out, "enable_cpu_offload = true\n");
    add_text(out, "mixed_precision_param", s->precision == PRECISION_FP32 ? "float32" : "bfloat16");
    if (s->precision == PRECISION_FP16)
        export_lost(left_out, "fp16; bf16 is written");
    if (in->data && in->data[0]) {
        str_add(out, "# data of the plan: ");
        export_plain(out, in->data);
        str_add(out, "\n");
        export_lost(left_out, "the data: set dataset and dataset_path to what torchtitan reads");
    }
}

static void add_parallelism(struct str *out, const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    int64_t data = s->ranks / (p->tensor * p->pipeline * p->context);
    int64_t shard = s->kind == STRATEGY_HSDP && s->shard_degree < data ? s->shard_degree : data;
    bool keeps = s->kind == STRATEGY_ZERO2 || !s->reshard_after_forward;
    bool is_ddp = s->kind == STRATEGY_DDP;
    str_add(out, "\n[parallelism]\n");
    add_int(out, "data_parallel_replicate_degree", is_ddp ? data : data / shard);
    add_int(out, "data_parallel_shard_degree", is_ddp ? 1 : shard);
    add_text(out, "fsdp_reshard_after_forward", keeps ? "never" : "always");
    add_int(out, "tensor_parallel_degree", p->tensor);
    add_int(out, "pipeline_parallel_degree", p->pipeline);
    add_int(out, "context_parallel_degree", p->context);
    add_int(out, "expert_parallel_degree", p->expert);
    if (p->pipeline == 1)
        return;
    add_text(out, "pipeline_parallel_schedule", p->virtual_stages > 1 ? "Interleaved1F1B" : "1F1B");
    add_int(out, "pipeline_parallel_microbatch_size", s->micro_batch);
}

static void add_rest(struct str *out, struct str *left_out, const struct export_input *in)
{
    const struct strategy *s = in->strategy;
    bool is_full = export_full_recompute(s);
    str_add(out, "\n[activation_checkpoint]\n");
    add_text(out, "mode", is_full ? "full" : recompute_name(s->recompute));
    if (s->recompute == RECOMPUTE_SELECTIVE && !is_full) {
        add_text(out, "selective_ac_option", "op");
        if (s->engine != ENGINE_FSDP2)
            export_lost(left_out, "selective recompute as planned; torchtitan's drops more");
    }
    str_addf(out, "\n[compile]\nenable = %s\n", s->memory.is_fused ? "true" : "false");
    if (in->checkpoint_every_steps >= 1) {
        str_add(out, "\n[checkpoint]\nenable = true\n");
        add_int(out, "interval", (int64_t)in->checkpoint_every_steps);
    }
}

enum rc export_torchtitan(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e)
{
    const struct strategy *s = in->strategy;
    if (s->kind == STRATEGY_ZERO1)
        return err_set(e, RC_INVALID, "torchtitan has no zero1: it shards gradients too");
    str_add(out, "# for torchtitan 0.2\n[job]\n");
    add_text(out, "description", in->model->name);
    add_model(out, left_out, in);
    add_optimizer(out, left_out, in);
    add_training(out, left_out, in);
    add_parallelism(out, s);
    add_rest(out, left_out, in);
    return RC_OK;
}
