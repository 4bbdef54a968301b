/* accelerate's YAML, for FSDP 1 and 2 and for DeepSpeed. */
#include "base/str.h"
#include "planner/export.h"

static const char *yes_no(bool x)
{
    return x ? "true" : "false";
}

static bool is_deepspeed(const struct strategy *s)
{
    switch (s->engine) {
    case ENGINE_DEEPSPEED:
    case ENGINE_ACCELERATE_ZERO3:
    case ENGINE_MEGATRON_DEEPSPEED:
        return true;
    case ENGINE_FSDP1:
    case ENGINE_FSDP2:
        return false;
    default: /* FSDP does not shard the optimizer alone, nor move it alone to the host */
        return s->kind == STRATEGY_ZERO1 ||
               ((s->offload & OFFLOAD_OPTIMIZER) && !export_fsdp_offload(s));
    }
}

struct export_ability export_accelerate_can(const struct strategy *s)
{
    if (is_deepspeed(s))
        return (struct export_ability){
            .offload = OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK,
            .batch = true,
            .clipping = true};
    if (s->kind == STRATEGY_DDP)
        return (struct export_ability){0};
    return (struct export_ability){.offload = export_fsdp_offload(s),
        .full_recompute = true,
        .reshard = true,
        .tensor = s->engine != ENGINE_FSDP1,
        .context = s->engine != ENGINE_FSDP1};
}

static void add_precision(struct str *out, struct str *left_out, enum precision p)
{
    static const char *const words[PRECISION_KINDS] = {[PRECISION_FP32] = "no",
        [PRECISION_BF16] = "bf16",
        [PRECISION_FP16] = "fp16",
        [PRECISION_FP8] = "fp8",
        [PRECISION_FP4] = "bf16"};
    str_addf(out, "mixed_precision: \"%s\"\n", words[p]);
    if (p != PRECISION_FP8)
        return;
    str_add(out, "fp8_config:\n  backend: \"AO\"\n");
    export_lost(left_out, "which fp8 recipe; torchao's is named");
}

static void add_machines(struct str *out, struct str *left_out, const struct export_input *in)
{
    str_addf(out,
        "machine_rank: 0\n"
        "main_training_function: \"main\"\n"
        "num_machines: %lld\n"
        "num_processes: %lld\n"
        "rdzv_backend: \"static\"\n"
        "same_network: true\n"
        "use_cpu: %s\n",
        (long long)export_nodes(in), (long long)in->strategy->ranks, yes_no(!in->is_gpu));
    if (export_nodes(in) > 1)
        export_lost(left_out, "addresses of the nodes; give accelerate launch --machine_rank, "
                              "--main_process_ip and --main_process_port on each");
}

static void add_head(struct str *out, const struct export_input *in, const char *type)
{
    str_add(out, "# ");
    export_plain(out, in->model->name);
    str_addf(out, " on %lld x %lld\n", (long long)export_nodes(in),
        (long long)in->strategy->ranks_per_node);
    str_addf(out,
        "compute_environment: \"LOCAL_MACHINE\"\n"
        "debug: false\n"
        "distributed_type: \"%s\"\n",
        type);
}

/* --- FSDP --- */

/* Groups and splits, which FSDP2 takes as a mesh. */
static void add_mesh(struct str *out, const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    if (s->kind != STRATEGY_HSDP && p->tensor * p->context == 1)
        return;
    int64_t data = s->ranks / (p->tensor * p->context);
    int64_t shard = s->kind == STRATEGY_HSDP ? s->shard_degree : data;
    shard = shard < data ? shard : data;
    str_addf(out,
        "parallelism_config:\n"
        "  parallelism_config_dp_replicate_size: %lld\n"
        "  parallelism_config_dp_shard_size: %lld\n"
        "  parallelism_config_tp_size: %lld\n"
        "  parallelism_config_cp_size: %lld\n",
        (long long)(data / shard), (long long)shard, (long long)p->tensor, (long long)p->context);
}

static void add_version_1(struct str *out, struct str *left_out, const struct strategy *s)
{
    const char *sharding = s->kind == STRATEGY_ZERO2  ? "SHARD_GRAD_OP"
                           : s->kind == STRATEGY_HSDP ? "HYBRID_SHARD"
                                                      : "FULL_SHARD";
    str_addf(out,
        "  fsdp_version: 1\n"
        "  fsdp_sharding_strategy: \"%s\"\n"
        "  fsdp_backward_prefetch: \"BACKWARD_PRE\"\n"
        "  fsdp_use_orig_params: true\n"
        "  fsdp_sync_module_states: true\n",
        sharding);
    if (s->kind == STRATEGY_HSDP && s->shard_degree != s->ranks_per_node)
        export_lost(left_out, "groups of %lld: HYBRID_SHARD shards over a node",
            (long long)s->shard_degree);
}

static enum rc write_fsdp(struct str *out, struct str *left_out, const struct export_input *in,
    int version, struct err *e)
{
    const struct strategy *s = in->strategy;
    bool keeps = s->kind == STRATEGY_ZERO2 || !s->reshard_after_forward;
    if (s->kind == STRATEGY_DDP || s->kind == STRATEGY_ZERO1)
        return err_set(e, RC_INVALID,
            "FSDP has no %s: it shards gradients and the optimizer, and "
            "parameters too or not",
            strategy_kind_name(s->kind));
    add_head(out, in, "FSDP");
    str_add(out, "fsdp_config:\n");
    if (version == 1)
        add_version_1(out, left_out, s);
    else
        str_addf(out, "  fsdp_version: 2\n  fsdp_reshard_after_forward: %s\n", yes_no(!keeps));
    str_addf(out,
        "  fsdp_offload_params: %s\n"
        "  fsdp_auto_wrap_policy: \"TRANSFORMER_BASED_WRAP\"\n"
        "  fsdp_state_dict_type: \"SHARDED_STATE_DICT\"\n"
        "  fsdp_cpu_ram_efficient_loading: true\n"
        "  fsdp_activation_checkpointing: %s\n",
        yes_no(export_fsdp_offload(s)), yes_no(export_full_recompute(s)));
    if (version == 2)
        add_mesh(out, s);
    add_precision(out, left_out, s->precision);
    add_machines(out, left_out, in);
    return RC_OK;
}

enum rc export_fsdp2(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e)
{
    return write_fsdp(out, left_out, in, 2, e);
}

/* --- DeepSpeed --- */

static enum rc write_deepspeed(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e)
{
    const struct strategy *s = in->strategy;
    bool is_whole = s->kind == STRATEGY_ZERO3 || s->kind == STRATEGY_HSDP;
    if (s->kind == STRATEGY_HSDP)
        return err_set(
            e, RC_INVALID, "accelerate's DeepSpeed has no groups; `--to deepspeed` writes them");
    add_head(out, in, "DEEPSPEED");
    str_add(out, "deepspeed_config:\n");
    if (export_nodes(in) > 1)
        str_add(out, "  deepspeed_multinode_launcher: \"standard\"\n");
    str_addf(out, "  gradient_accumulation_steps: %lld\n", (long long)s->grad_accum);
    if (in->training && in->training->clip_norm > 0)
        str_addf(out, "  gradient_clipping: %.17g\n", in->training->clip_norm);
    str_addf(out,
        "  offload_optimizer_device: \"%s\"\n"
        "%s"
        "  offload_param_device: \"%s\"\n"
        "%s"
        "  zero3_init_flag: %s\n"
        "  zero3_save_16bit_model: %s\n"
        "  zero_stage: %d\n",
        s->offload & OFFLOAD_DISK        ? "nvme"
        : s->offload & OFFLOAD_OPTIMIZER ? "cpu"
                                         : "none",
        s->offload & OFFLOAD_DISK ? "  offload_optimizer_nvme_path: \"/local_nvme\"\n" : "",
        strategy_streams_parameters(s) ? "nvme"
        : strategy_parks_parameters(s) ? "cpu"
                                       : "none",
        strategy_streams_parameters(s) ? "  offload_param_nvme_path: \"/local_nvme\"\n" : "",
        yes_no(is_whole), yes_no(is_whole),
        s->kind == STRATEGY_DDP ? 0 : (int)s->kind - (int)STRATEGY_DDP);
    add_precision(out, left_out, s->precision);
    add_machines(out, left_out, in);
    return RC_OK;
}

enum rc export_accelerate(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e)
{
    if (in->strategy->kind == STRATEGY_DDP && !is_deepspeed(in->strategy)) {
        add_head(out, in, in->is_gpu ? "MULTI_GPU" : "MULTI_CPU");
        add_precision(out, left_out, in->strategy->precision);
        add_machines(out, left_out, in);
        return RC_OK;
    }
    if (is_deepspeed(in->strategy))
        return write_deepspeed(out, left_out, in, e);
    return write_fsdp(out, left_out, in, in->strategy->engine == ENGINE_FSDP1 ? 1 : 2, e);
}
