/* DeepSpeed's JSON (deepspeed.ai/docs/config-json). */
#include "base/json.h"
#include "base/str.h"
#include "planner/export.h"

static int zero_stage(enum strategy_kind k)
{
    static const int stages[] = {[STRATEGY_DDP] = 0,
        [STRATEGY_ZERO1] = 1,
        [STRATEGY_ZERO2] = 2,
        [STRATEGY_ZERO3] = 3,
        [STRATEGY_HSDP] = 3};
    return stages[k];
}

static struct json *enabled(void)
{
    struct json *v = json_obj();
    json_add_bool(v, "enabled", true);
    return v;
}

/* In stage 3 only, by its documentation. */
static bool is_on_disk(const struct strategy *s)
{
    return (s->offload & OFFLOAD_DISK) && zero_stage(s->kind) == 3;
}

/* Where the disk is mounted is for whoever knows the nodes. */
static struct json *offload_json(bool is_on_disk)
{
    struct json *v = json_obj();
    json_add_str(v, "device", is_on_disk ? "nvme" : "cpu");
    if (is_on_disk) {
        json_add_str(v, "nvme_path", "/local_nvme");
        json_add_int(v, "buffer_count", 4);
        json_add_bool(v, "pipeline_read", true);
        json_add_bool(v, "pipeline_write", true);
    }
    json_add_bool(v, "pin_memory", true);
    return v;
}

/* A buffer holds what a rank has of one tensor; its default is too small for large tables. */
static struct json *param_json(const struct export_input *in)
{
    static const int64_t usual_elems = 100000000;
    const struct model *m = in->model;
    if (!is_on_disk(in->strategy))
        return offload_json(false);
    int64_t largest = (m->vocab > m->ffn ? m->vocab : m->ffn) * m->width;
    int64_t elems = largest / strategy_parameter_shards(in->strategy) + 1;
    struct json *v = json_obj();
    json_add_str(v, "device", "nvme");
    json_add_str(v, "nvme_path", "/local_nvme");
    json_add_int(v, "buffer_count", 5);
    json_add_int(v, "buffer_size", elems > usual_elems ? elems : usual_elems);
    json_add_bool(v, "pin_memory", true);
    return v;
}

/* Buckets are DeepSpeed's defaults, which the prediction is of. */
static struct json *zero_json(const struct export_input *in)
{
    const struct strategy *s = in->strategy;
    struct json *v = json_obj();
    json_add_int(v, "stage", zero_stage(s->kind));
    json_add_bool(v, "overlap_comm", true);
    json_add_bool(v, "contiguous_gradients", true);
    json_add_int(v, "reduce_bucket_size", 500000000);
    if (zero_stage(s->kind) == 3) {
        json_add_int(v, "stage3_prefetch_bucket_size", 50000000);
        json_add_int(v, "stage3_max_live_parameters", 1000000000);
        json_add_int(v, "stage3_max_reuse_distance", 1000000000);
        json_add_bool(v, "stage3_gather_16bit_weights_on_model_save", true);
    }
    if (s->kind == STRATEGY_HSDP)
        json_add_int(v, "mics_shard_size", s->shard_degree);
    if (s->offload & OFFLOAD_OPTIMIZER)
        json_add(v, "offload_optimizer", offload_json(is_on_disk(s)));
    if (strategy_parks_parameters(s))
        json_add(v, "offload_param", param_json(in));
    return v;
}

/* For blocks that deepspeed.checkpointing wraps. */
static struct json *checkpointing_json(void)
{
    struct json *v = json_obj();
    json_add_bool(v, "cpu_checkpointing", true);
    return v;
}

static struct json *typed(const char *type, struct json *params)
{
    struct json *v = json_obj();
    json_add_str(v, "type", type);
    json_add(v, "params", params);
    return v;
}

/* DeepSpeed takes others than its own from torch.optim by name. */
static struct json *sgd_json(const struct training *t)
{
    struct json *params = json_obj();
    json_add_num(params, "lr", t->lr);
    json_add_num(params, "momentum", t->momentum);
    json_add_num(params, "weight_decay", t->weight_decay);
    return typed("SGD", params);
}

static struct json *adamw_json(const struct training *t)
{
    struct json *params = json_obj(), *betas = json_arr();
    json_push_num(betas, t->beta1);
    json_push_num(betas, t->beta2);
    json_add_num(params, "lr", t->lr);
    json_add(params, "betas", betas);
    json_add_num(params, "eps", t->eps);
    json_add_num(params, "weight_decay", t->weight_decay);
    return typed("AdamW", params);
}

static struct json *scheduler_json(const struct training *t, int64_t steps, struct str *left_out)
{
    struct json *params = json_obj();
    json_add_int(params, "warmup_num_steps", t->warmup_steps);
    json_add_str(params, "warmup_type", "linear");
    if (t->schedule == LR_COSINE) {
        json_add_int(params, "total_num_steps", steps);
        json_add_num(params, "cos_min_ratio", t->lr > 0 ? t->min_lr / t->lr : 0);
        return typed("WarmupCosineLR", params);
    }
    json_add_num(params, "warmup_min_lr", 0);
    json_add_num(params, "warmup_max_lr", t->lr);
    if (t->schedule == LR_WSD)
        export_lost(left_out, "the fall of the learning rate in the last %lld steps",
            (long long)t->decay_steps);
    if (t->schedule == LR_CONSTANT || t->schedule == LR_WSD)
        return typed("WarmupLR", params);
    if (t->min_lr > 0)
        export_lost(left_out, "a learning rate that ends at %g, not 0", t->min_lr);
    json_add_int(params, "total_num_steps", steps);
    return typed("WarmupDecayLR", params);
}

static void add_precision(struct json *v, const struct strategy *s, struct str *left_out)
{
    if (s->precision == PRECISION_FP16)
        json_add(v, "fp16", enabled());
    else if (s->precision != PRECISION_FP32)
        json_add(v, "bf16", enabled());
    if (s->precision == PRECISION_FP8)
        export_lost(left_out, "products of 8-bit numbers");
}

static void add_training(struct json *v, const struct export_input *in, struct str *left_out)
{
    const struct training *t = in->training;
    if (!t)
        return;
    if (t->clip_norm > 0)
        json_add_num(v, "gradient_clipping", t->clip_norm);
    if (t->optimizer == OPTIMIZER_SGD) {
        json_add(v, "optimizer", sgd_json(t));
        json_add_bool(v, "zero_allow_untested_optimizer", true);
        if (in->strategy->offload & OFFLOAD_OPTIMIZER)
            json_add_bool(v, "zero_force_ds_cpu_optimizer", false);
    } else {
        json_add(v, "optimizer", adamw_json(t));
    }
    if (in->steps > 0)
        json_add(v, "scheduler", scheduler_json(t, in->steps, left_out));
}

enum rc export_deepspeed(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e)
{
    const struct strategy *s = in->strategy;
    if (s->parallel.tensor > 1 && zero_stage(s->kind) == 3)
        return err_set(
            e, RC_INVALID, "DeepSpeed does not combine tensor parallelism with ZeRO stage 3");
    struct json *v = json_obj();
    json_add_int(v, "train_batch_size", export_sequences(in));
    json_add_int(v, "train_micro_batch_size_per_gpu", s->micro_batch);
    json_add_int(v, "gradient_accumulation_steps", s->grad_accum);
    add_precision(v, s, left_out);
    json_add(v, "zero_optimization", zero_json(in));
    if (s->parallel.tensor > 1) {
        struct json *tensor = json_obj();
        json_add_int(tensor, "autotp_size", s->parallel.tensor);
        json_add(v, "tensor_parallel", tensor);
    }
    if ((s->offload & OFFLOAD_DISK) && !is_on_disk(s))
        export_lost(left_out, "the optimizer's states on NVMe, which take stage 3");
    if (s->offload & OFFLOAD_ACTIVATIONS)
        json_add(v, "activation_checkpointing", checkpointing_json());
    add_training(v, in, left_out);
    if (s->kind == STRATEGY_HSDP)
        export_lost(left_out,
            "building the model under deepspeed.zero.MiCS_Init, which groups of "
            "%lld need",
            (long long)s->shard_degree);
    char *text = json_print(v, true);
    str_addf(out, "%s%s", text, str_ends(text, "\n") ? "" : "\n");
    free(text);
    json_free(v);
    return RC_OK;
}
