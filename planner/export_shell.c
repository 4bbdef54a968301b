/* A Slurm script, and an environment for scripts of one's own. */
#include <math.h>

#include "base/alloc.h"
#include "base/str.h"
#include "planner/export.h"

enum { RENDEZVOUS_PORT = 29500 };

/* Letters, digits and "._-" only: a line of #SBATCH knows no quotes that all versions agree on. */
static void add_word(struct str *out, const char *text)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    for (; *text; text++)
        str_addc(out, strchr(good, *text) ? *text : '-');
}

/* D-HH:MM:SS, rounded up to minutes. */
static void add_limit(struct str *out, double seconds)
{
    int64_t minutes = (int64_t)ceil(seconds / 60);
    if (!(seconds > 0 && seconds < 3e8))
        return;
    str_addf(out, "#SBATCH --time=%lld-%02lld:%02lld:00\n", (long long)(minutes / 1440),
        (long long)(minutes / 60 % 24), (long long)(minutes % 60));
}

/* --- Megatron-LM's arguments --- */

static void add_argument(struct str *out, const char *name, int64_t n)
{
    str_addf(out, "    %s %lld\n", name, (long long)n);
}

static void add_megatron_model(struct str *out, const struct model *m)
{
    add_argument(out, "--num-layers", m->layers);
    add_argument(out, "--hidden-size", m->width);
    add_argument(out, "--ffn-hidden-size", m->ffn);
    add_argument(out, "--num-attention-heads", m->heads);
    if (m->kv_heads != m->heads) {
        str_add(out, "    --group-query-attention\n");
        add_argument(out, "--num-query-groups", m->kv_heads);
    }
    add_argument(out, "--kv-channels", m->head_dim);
    add_argument(out, "--max-position-embeddings", m->max_positions);
    if (!m->is_tied)
        str_add(out, "    --untie-embeddings-and-output-weights\n");
    if (m->has_qkv_bias)
        str_add(out, "    --add-qkv-bias\n");
    if (m->has_qk_norm)
        str_add(out, "    --qk-layernorm\n");
    if (m->family == MODEL_GPT2)
        return;
    str_add(out, "    --normalization RMSNorm --swiglu --disable-bias-linear\n"
                 "    --position-embedding-type rope\n");
    add_argument(out, "--rotary-base", (int64_t)llround(m->rope_theta));
}

static void add_megatron_split(struct str *out, const struct model *m, const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    add_argument(out, "--tensor-model-parallel-size", p->tensor);
    if (p->tensor > 1)
        str_add(out, "    --sequence-parallel\n");
    add_argument(out, "--pipeline-model-parallel-size", p->pipeline);
    if (p->virtual_stages > 1)
        add_argument(out, "--num-layers-per-virtual-pipeline-stage",
            m->layers / (p->pipeline * p->virtual_stages));
    if (p->context > 1)
        add_argument(out, "--context-parallel-size", p->context);
    if (p->expert > 1)
        add_argument(out, "--expert-model-parallel-size", p->expert);
    if (p->expert > 1 && p->tensor > 1)
        add_argument(out, "--expert-tensor-parallel-size", p->splits_experts ? p->tensor : 1);
    if (s->kind != STRATEGY_DDP)
        str_add(out, "    --use-distributed-optimizer\n");
}

static void add_megatron(struct str *out, const struct export_input *in)
{
    const struct strategy *s = in->strategy;
    str_add(out, "# what Megatron-LM's pretrain_gpt.py takes; give it as the first argument\n"
                 "plan=(\n");
    add_megatron_model(out, in->model);
    add_megatron_split(out, in->model, s);
    add_argument(out, "--micro-batch-size", s->micro_batch);
    add_argument(out, "--global-batch-size", export_sequences(in));
    add_argument(out, "--seq-length", s->seq);
    if (in->steps > 0)
        add_argument(out, "--train-iters", in->steps);
    if (s->precision == PRECISION_FP16)
        str_add(out, "    --fp16\n");
    else if (s->precision != PRECISION_FP32)
        str_add(out, "    --bf16\n");
    if (s->precision == PRECISION_FP8)
        str_add(out, "    --fp8-format hybrid\n");
    if (s->full_blocks > 0)
        str_addf(out,
            "    --recompute-granularity full --recompute-method block\n"
            "    --recompute-num-layers %d\n",
            s->full_blocks);
    else if (export_full_recompute(s))
        str_add(out, "    --recompute-granularity full --recompute-method uniform\n"
                     "    --recompute-num-layers 1\n");
    else if (s->recompute == RECOMPUTE_SELECTIVE)
        str_add(out, "    --recompute-granularity selective\n");
    str_add(out, ")\n");
}

/* --- Slurm --- */

static void add_head(struct str *out, const struct export_input *in)
{
    const struct strategy *s = in->strategy;
    str_add(out, "#!/bin/bash\n#SBATCH --job-name=");
    add_word(out, in->model->name);
    str_addf(
        out, "\n#SBATCH --nodes=%lld\n#SBATCH --ntasks-per-node=1\n", (long long)export_nodes(in));
    if (in->is_gpu)
        str_addf(out, "#SBATCH --gpus-per-node=%lld\n", (long long)s->ranks_per_node);
    if (in->cores_per_node > 0)
        str_addf(out, "#SBATCH --cpus-per-task=%lld\n", (long long)in->cores_per_node);
    add_limit(out, in->limit_s);
    str_add(out, "#SBATCH --exclusive\n"
                 "# sbatch THIS train.py ARGUMENTS\n"
                 "set -euo pipefail\n"
                 "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n");
}

enum rc export_slurm(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e)
{
    const struct strategy *s = in->strategy;
    bool is_megatron = s->engine == ENGINE_MEGATRON || s->engine == ENGINE_MEGATRON_DEEPSPEED;
    (void)e;
    add_head(out, in);
    if (is_megatron)
        add_megatron(out, in);
    str_addf(out,
        "srun torchrun --nnodes=%lld --nproc-per-node=%lld --rdzv-id=\"$SLURM_JOB_ID\" \\\n"
        "    --rdzv-backend=c10d --rdzv-endpoint=\"$head:%d\" \"$@\"%s\n",
        (long long)export_nodes(in), (long long)s->ranks_per_node, RENDEZVOUS_PORT,
        is_megatron ? " \"${plan[@]}\"" : "");
    if (!is_megatron)
        export_lost(left_out, "how the model is sharded; `--to` another target writes it");
    else if (s->offload == OFFLOAD_OPTIMIZER)
        export_lost(left_out, "the optimizer in host memory");
    else if (s->offload != OFFLOAD_NONE)
        export_lost(left_out, "offload of %s", offload_name(s->offload));
    if (is_megatron && in->training)
        export_lost(left_out, "optimizer, learning rate, tokenizer and data");
    return RC_OK;
}

/* --- environment --- */

static void add_variable(struct str *out, const char *name, const char *value)
{
    str_addf(out, "export %s=", name);
    str_add_shell_quoted(out, value);
    str_add(out, "\n");
}

static void add_number(struct str *out, const char *name, int64_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)n);
    add_variable(out, name, text);
}

enum rc export_env(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e)
{
    const struct strategy *s = in->strategy;
    const struct parallel *p = &s->parallel;
    (void)e;
    str_add(out, "# torchrun reads PET_; PLAN_ is for scripts of your own\n");
    add_number(out, "PET_NNODES", export_nodes(in));
    add_number(out, "PET_NPROC_PER_NODE", s->ranks_per_node);
    add_variable(out, "PLAN_MODEL", in->model->name);
    add_variable(out, "PLAN_ENGINE", engine_name(s->engine));
    add_variable(out, "PLAN_STRATEGY", strategy_kind_name(s->kind));
    add_variable(out, "PLAN_PRECISION", precision_name(s->precision));
    add_variable(out, "PLAN_RECOMPUTE", strategy_recompute_name(s));
    add_variable(out, "PLAN_OFFLOAD", offload_name(s->offload));
    const struct {
        const char *name;
        int64_t n;
    } numbers[] = {{"PLAN_RANKS", s->ranks}, {"PLAN_SHARD_DEGREE", s->shard_degree},
        {"PLAN_TENSOR", p->tensor}, {"PLAN_PIPELINE", p->pipeline}, {"PLAN_CONTEXT", p->context},
        {"PLAN_EXPERT", p->expert}, {"PLAN_SEQ", s->seq}, {"PLAN_MICRO_BATCH", s->micro_batch},
        {"PLAN_GRAD_ACCUM", s->grad_accum}, {"PLAN_GLOBAL_BATCH", export_sequences(in)}};
    for (size_t i = 0; i < BASE_COUNT(numbers); i++)
        add_number(out, numbers[i].name, numbers[i].n);
    if (in->steps > 0)
        add_number(out, "PLAN_STEPS", in->steps);
    if (in->data && in->data[0])
        add_variable(out, "PLAN_DATA", in->data);
    if (export_nodes(in) > 1)
        export_lost(left_out, "addresses of the nodes; set PET_RDZV_ENDPOINT, PET_RDZV_BACKEND and "
                              "PET_NODE_RANK");
    return RC_OK;
}
