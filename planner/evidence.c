#include "planner/evidence.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/str.h"
#include "inventory/gpu.h"
#include "planner/adapter.h"
#include "planner/evidence_check.h"
#include "planner/evidence_memory.h"

/* --- words --- */

static const struct {
    const char *word, *help;
} skips[] = {
#define X(name, word, help) {word, help},
    SKIP_MAP(X)
#undef X
};

const char *skip_word(enum skip s)
{
    return skips[s].word;
}

const char *skip_help(enum skip s)
{
    return skips[s].help;
}

static const char *const mem_kinds[MEM_KINDS] = {
    "", "allocated", "active", "reserved", "nvidia-smi"};

const char *mem_kind_name(enum mem_kind k)
{
    return k == MEM_UNSAID ? "unsaid" : mem_kinds[k];
}

/* --- columns --- */

#define COLUMN_MAP(X)                                                                              \
    X(id, "name of the run; up to its number it names the group")                                  \
    X(year, "of the run")                                                                          \
    X(framework, "software, as its authors call it")                                               \
    X(model, "name")                                                                               \
    X(n_layers, "blocks")                                                                          \
    X(d_model, "width")                                                                            \
    X(n_heads, "attention heads")                                                                  \
    X(n_kv_heads, "key and value heads; absent: as many as heads")                                 \
    X(d_ff, "width of the MLP, or of one expert")                                                  \
    X(mlp, "swiglu, gelu, squared-relu or moe")                                                    \
    X(vocab, "tokens of the vocabulary")                                                           \
    X(tied_embeddings, "yes or no")                                                                \
    X(pos, "rope, learned, alibi")                                                                 \
    X(params, "parameters, all")                                                                   \
    X(active_params, "parameters that a token passes through, with experts")                       \
    X(seq_len, "tokens of a sequence")                                                             \
    X(n_gpus, "GPUs, all")                                                                         \
    X(gpu, "model, as berth offers names it")                                                      \
    X(gpus_per_node, "absent: 8")                                                                  \
    X(intra, "nvswitch, nvlink or pcie")                                                           \
    X(nvlink_domain, "GPUs that reach each other over NVLink; 72 in a rack")                       \
    X(inter_gbps_per_gpu, "gigabit/s between nodes, one way, per GPU")                             \
    X(strategy, "ddp, zero1, zero2, zero3 or hsdp")                                                \
    X(shard_degree, "ranks of a shard group")                                                      \
    X(tp, "tensor parallelism")                                                                    \
    X(pp, "pipeline parallelism")                                                                  \
    X(vp, "virtual stages of a pipeline rank")                                                     \
    X(cp, "context parallelism")                                                                   \
    X(ep, "expert parallelism")                                                                    \
    X(micro_batch, "sequences of a rank and micro step")                                           \
    X(grad_accum, "micro steps of a step")                                                         \
    X(global_batch_seqs, "sequences of a step")                                                    \
    X(precision, "fp32, bf16, fp16, fp8, mxfp8 or nvfp4")                                          \
    X(opt_states, "of the moments: fp32, bf16, 8bit, 4bit or sgd")                                 \
    X(notes, "what spares memory: Liger, paged optimizer, ...")                                    \
    X(release, "of the software; \"26.02\"")                                                       \
    X(act_ckpt, "recompute: none, selective or full")                                              \
    X(offload, "none, optimizer-cpu, param+optimizer-cpu")                                         \
    X(compile, "yes or no")                                                                        \
    X(flash_attn, "yes or no")                                                                     \
    X(tokens_per_s_per_gpu, "measured")                                                            \
    X(step_time_s, "measured; used where tokens/s is absent")                                      \
    X(peak_mem_gib, "measured, of the fullest GPU")                                                \
    X(mem_kind, "allocated, active, reserved or nvidia-smi")                                       \
    X(train_type, "full; lora and qlora are predicted apart")                                      \
    X(row_kind, "chart: read off a chart, not predicted")                                          \
    X(status, "ok; oom: ran out of memory; others are not predicted")

enum column {
#define X(name, help) COL_##name,
    COLUMN_MAP(X)
#undef X
        COLUMN_COUNT
};

static const struct evidence_column columns[COLUMN_COUNT + 1] = {
#define X(name, help) {#name, help},
    COLUMN_MAP(X)
#undef X
};

const struct evidence_column *evidence_column_at(int i)
{
    return &columns[i < COLUMN_COUNT ? i : COLUMN_COUNT];
}

/* Reads one row; the first thing that cannot be predicted is remembered. */
struct reader {
    const struct csv *table;
    const int *column; /* index of each enum column, -1 when absent */
    size_t row;
    struct evidence_row *out;
    bool is_bad;
    enum skip why;
    enum twin twin;
    bool wants_adapted; /* rows of adapters instead of full training */
};

static const char *cell(const struct reader *r, enum column c)
{
    return csv_cell(r->table, r->row, r->column[c]);
}

static void refuse(struct reader *r, enum skip why)
{
    if (!r->is_bad)
        r->why = why;
    r->is_bad = true;
}

static bool is_one_of(const char *word, const char *a, const char *b)
{
    return strcasecmp(word, a) == 0 || strcasecmp(word, b) == 0;
}

/* A positive number; 0 when the cell is empty. */
static double number(struct reader *r, enum column c)
{
    const char *text = cell(r, c);
    double x;
    if (!*text)
        return 0;
    if (!evidence_number(text, &x) || x > 1e16) {
        refuse(r, SKIP_BAD_CELL);
        return 0;
    }
    return x;
}

/* Of ranks, dimensions and sequences; products of three of them are exact. */
static const double max_whole = 1 << 28, max_tokens = 1e15;

static int64_t whole(struct reader *r, enum column c, int64_t absent)
{
    double x = number(r, c);
    if (x > 0 && (x != floor(x) || x > max_whole)) {
        refuse(r, SKIP_BAD_CELL);
        return absent;
    }
    return x >= 1 ? (int64_t)x : absent;
}

/* --- stacks --- */

/* First match wins; the text is looked for anywhere in the framework's name. */
static const struct {
    const char *text, *stack;
    enum engine engine;
} frameworks[] = {
    {"llm-foundry", "fsdp1-composer", ENGINE_FSDP1},
    {"fms-fsdp", "fsdp1-fms", ENGINE_FSDP1},
    {"Accelerate FSDP1", "fsdp1-accelerate", ENGINE_FSDP1},
    {"FSDP1", "fsdp1-pytorch", ENGINE_FSDP1},
    {"torchtitan", "fsdp2-torchtitan", ENGINE_FSDP2},
    {"torchtune", "fsdp2-torchtune", ENGINE_FSDP2},
    {"AutoModel", "fsdp2-nemo", ENGINE_FSDP2},
    {"KempnerForge", "fsdp2-kempner", ENGINE_FSDP2},
    {"MaxText", "jax-maxtext", ENGINE_FSDP2},
    {"PaxML", "jax-paxml", ENGINE_FSDP2},
    {"Megatron-Bridge", "megatron-bridge", ENGINE_MEGATRON},
    {"NeMo", "megatron-nemo", ENGINE_MEGATRON},
    {"Megatron-Core", "megatron-core", ENGINE_MEGATRON},
    {"Megatron-LM 0", "megatron-core", ENGINE_MEGATRON},
    {"Megatron-DeepSpeed", "megatron-deepspeed", ENGINE_MEGATRON_DEEPSPEED},
    {"Megatron-LLaMA", "megatron-llama", ENGINE_MEGATRON},
    {"Megatron", "megatron-lm", ENGINE_MEGATRON},
    {"nanotron", "megatron-nanotron", ENGINE_MEGATRON},
    {"InternEvo", "internevo", ENGINE_MEGATRON},
    {"Accelerate DeepSpeed", "deepspeed-accelerate", ENGINE_ACCELERATE_ZERO3},
    {"HF Trainer + DeepSpeed", "deepspeed-hf", ENGINE_DEEPSPEED},
    {"DeepSpeed", "deepspeed", ENGINE_DEEPSPEED},
    {"LitGPT", "fsdp1-litgpt", ENGINE_FSDP1},
    {"lightning-thunder", "fsdp1-litgpt", ENGINE_FSDP1},
    {"ColossalAI", "colossalai", ENGINE_DEEPSPEED},
    {"BMTrain", "bmtrain", ENGINE_DEEPSPEED},
    {"DDP", "ddp", ENGINE_DDP},
    {"", EVIDENCE_NO_STACK, ENGINE_DDP},
};

/* Recipes of NVIDIA's containers grow faster from release to release; the notes name it. */
static const char *release_of(const struct reader *r)
{
    static const char words[] = "NeMo container ";
    const char *note = strstr(cell(r, COL_notes), words);
    const char *text = note ? note + strlen(words) : cell(r, COL_release);
    double release = strtod(text, NULL);
    return release <= 0 ? "" : release < 26 ? "-25" : release < 26.05 ? "-26.02" : "-26.06";
}

static void read_stack(struct reader *r)
{
    struct evidence_row *o = r->out;
    const char *name = cell(r, COL_framework);
    size_t i = 0;
    while (!strstr(name, frameworks[i].text))
        i++;
    o->strategy.engine = frameworks[i].engine;
    const char *compiled = is_one_of(cell(r, COL_compile), "yes", "thunder") ? "+compile" : "";
    /* how attention is computed belongs to the software, too */
    const char *plain = strcasecmp(cell(r, COL_flash_attn), "no") == 0 ? "+plain" : "";
    snprintf(
        o->stack, sizeof o->stack, "%s%s%s%s", frameworks[i].stack, compiled, plain, release_of(r));
    /* Megatron-FSDP, and InternEvo's own sharding */
    if (o->strategy.engine == ENGINE_MEGATRON && o->strategy.kind >= STRATEGY_ZERO2)
        o->strategy.engine = strstr(name, "Intern") ? ENGINE_DEEPSPEED : ENGINE_FSDP2;
}

/* --- the model --- */

/* Experts that a token passes through, and all of a block where each is as wide as the MLP that
 * rows state, by what is in the model's name (public configurations). */
struct experts {
    const char *text;
    int64_t top, count;
};
static const struct experts *experts_of(const char *model)
{
    static const struct experts all[] = {{"mixtral", 2, 8}, {"grok", 2, 8}, {"deepseek-v2", 6, 0},
        {"deepseek", 8, 0}, {"qwen3", 8, 0}, {"gpt-oss", 4, 0}, {"gpt_oss", 4, 0}, {"llama4", 1, 0},
        {"kimi", 8, 0}, {"nemotron", 6, 0}, {"", 4, 0}};
    size_t i = 0;
    while (all[i].text[0] && !strcasestr(model, all[i].text))
        i++;
    return &all[i];
}

/* The width of an MLP that gives the stated active parameters, and the experts that all of them
 * need beside it. */
static void fit_experts(struct reader *r, double params, double active)
{
    struct model *m = &r->out->model;
    struct model thin = *m;
    thin.ffn = 128;
    double rest = (active - (double)model_params(&thin)) / (double)m->layers;
    double per_column = (double)m->width * (m->has_plain_mlp ? 2 : 3);
    double ffn = 128 + rest / per_column;
    if (!(ffn >= 128) || ffn > 1e6) {
        refuse(r, SKIP_NO_MODEL);
        return;
    }
    m->ffn = (int64_t)(ffn / 128) * 128;
    double dense = (double)model_params(m);
    double own = (double)m->ffn * per_column;
    m->expert_params = (int64_t)(fmax(0, params - dense) / (double)m->layers + own);
    m->expert_top = experts_of(m->name)->top;
}

/* Where only the width of an expert is stated, and how many there are is known. */
static void count_experts(struct reader *r)
{
    struct model *m = &r->out->model;
    const struct experts *x = experts_of(m->name);
    if (x->count == 0 || !*cell(r, COL_d_ff)) {
        refuse(r, SKIP_NO_MODEL);
        return;
    }
    m->expert_params = x->count * m->ffn * m->width * 3;
    m->expert_top = x->top;
    m->ffn *= x->top;
}

enum { MOST_HEADS = 1 << 14 };

/* Heads of about 128 elements that tensor parallelism divides. */
static int64_t usual_heads(int64_t width, int64_t tensor)
{
    int64_t best = 1;
    for (int64_t heads = tensor; heads * 32 <= width && heads <= MOST_HEADS; heads += tensor)
        if (width % heads == 0 && llabs(width / heads - 128) < llabs(width / best - 128))
            best = heads;
    return best;
}

static void read_heads(struct reader *r)
{
    struct model *m = &r->out->model;
    m->heads = whole(r, COL_n_heads, 0);
    if (m->heads == 0) {
        r->out->unstated |= UNSTATED_MODEL;
        m->heads = usual_heads(m->width, whole(r, COL_tp, 1));
    }
    m->head_dim = m->width / m->heads;
    /* models whose heads are wider than their share */
    if (m->head_dim < 64 && m->width >= 2048)
        m->head_dim = 128;
    m->kv_heads = whole(r, COL_n_kv_heads, m->heads);
    if (m->kv_heads <= m->heads && m->heads % m->kv_heads == 0)
        return;
    if (!(r->out->unstated & UNSTATED_MODEL))
        refuse(r, SKIP_CONTRADICTION);
    m->kv_heads = m->heads; /* of which only these are stated */
}

static void read_model(struct reader *r)
{
    struct model *m = &r->out->model;
    const char *mlp = cell(r, COL_mlp);
    bool is_moe = strcasestr(mlp, "moe") != NULL || *cell(r, COL_active_params);
    str_copy(m->name, sizeof m->name, cell(r, COL_model));
    m->layers = whole(r, COL_n_layers, 0);
    m->width = whole(r, COL_d_model, 0);
    m->vocab = whole(r, COL_vocab, 0);
    if (m->layers < 1 || m->width < 1 || m->vocab < 1) {
        refuse(r, SKIP_NO_MODEL);
        return;
    }
    read_heads(r);
    bool is_gated = strcasecmp(mlp, "swiglu") == 0 || is_moe;
    m->family = is_gated || m->kv_heads != m->heads || m->heads * m->head_dim != m->width
                    ? MODEL_LLAMA
                    : MODEL_GPT2;
    m->has_plain_mlp = m->family == MODEL_LLAMA && !is_gated;
    m->head_dim += m->family == MODEL_LLAMA ? m->head_dim % 2 : 0;
    m->ffn = whole(r, COL_d_ff, 0);
    if (m->ffn == 0) {
        r->out->unstated |= UNSTATED_MODEL;
        m->ffn = is_gated ? m->width * 8 / 3 : m->width * 4;
    }
    m->is_tied = strcasecmp(cell(r, COL_tied_embeddings), "no") != 0;
    m->norm_eps = 1e-5;
    m->rope_theta = m->family == MODEL_LLAMA ? 1e4 : 0;
    m->max_positions = whole(r, COL_seq_len, 2048);
    /* before anything is multiplied with it */
    if (model_check(m, NULL)) {
        refuse(r, SKIP_LAYOUT);
        return;
    }
    double params = number(r, COL_params), active = number(r, COL_active_params);
    if (is_moe && params > 0 && active > 0 && active < params)
        fit_experts(r, params, active);
    else if (is_moe)
        count_experts(r);
}

/* --- the machine --- */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Largest divisor of n that is at most max. */
static int64_t divisor_below(int64_t n, int64_t max)
{
    for (int64_t d = max < n ? max : n; d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

/* What a GPU of a generation usually has to itself, gigabit/s, where the source is silent. */
static double usual_gbps(const struct gpu *g)
{
    static const struct {
        const char *family;
        double gbps;
    } usual[] = {{"v100", 25}, {"a100", 200}, {"a800", 200}, {"h100", 400}, {"h200", 400},
        {"h800", 400}, {"b200", 400}, {"gb200", 400}, {"b300", 800}, {"gb300", 800},
        {"mi300x", 400}};
    for (size_t i = 0; i < BASE_COUNT(usual); i++)
        if (strncmp(g->id, usual[i].family, strlen(usual[i].family)) == 0)
            return usual[i].gbps;
    return 100;
}

/* For a GPU whose memory the source does not tell: the variant that has most. */
static const struct gpu *largest_sibling(const struct gpu *g)
{
    const struct gpu *best = NULL;
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *o = gpu_at(i);
        bool is_sibling = strcmp(o->family, g->family) == 0 && strcmp(o->form, g->form) == 0;
        if (is_sibling && o->memory_bytes > 0 && (!best || o->memory_bytes > best->memory_bytes))
            best = o;
    }
    return best;
}

static void read_hardware(struct reader *r)
{
    struct hardware *hw = &r->out->hw;
    const struct gpu *g = *cell(r, COL_gpu) ? gpu_find(cell(r, COL_gpu), 0) : NULL;
    int64_t gpus = whole(r, COL_n_gpus, 0);
    if (g && g->memory_bytes_per_s <= 0)
        g = largest_sibling(g);
    if (!g || gpus < 1) {
        refuse(r, g ? SKIP_NO_GPUS : SKIP_NO_GPU);
        return;
    }
    int64_t per_node = whole(r, COL_gpus_per_node, 8);
    int64_t domain = whole(r, COL_nvlink_domain, 0);
    per_node = domain > per_node ? divisor_below(gpus, domain) : gcd(gpus, per_node);
    hw->is_gpu = true;
    str_copy(hw->gpu, sizeof hw->gpu, g->id);
    hw->nodes = gpus / per_node;
    hw->ranks_per_node = per_node;
    hw->peak_flops[PRECISION_FP32] = g->fp32_flops_per_s;
    hw->peak_flops[PRECISION_BF16] = g->bf16_flops_per_s;
    hw->peak_flops[PRECISION_FP16] = g->fp16_flops_per_s;
    hw->peak_flops[PRECISION_FP8] = g->fp8_flops_per_s;
    hw->peak_flops[PRECISION_FP4] = 2 * g->fp8_flops_per_s;
    hw->measured_flops = g->bf16_measured_flops_per_s;
    hw->memory_bytes_per_s = g->memory_bytes_per_s;
    hw->memory_bytes = g->memory_bytes > 0 ? g->memory_bytes : (int64_t)(g->memory_gb_sold * 1e9);
    hw->pcie_bytes_per_s = g->pcie_bytes_per_s;
    hw->is_link_pcie = strcasecmp(cell(r, COL_intra), "pcie") == 0 || g->link_bytes_per_s <= 0;
    hw->link_bytes_per_s = hw->is_link_pcie ? g->pcie_bytes_per_s : g->link_bytes_per_s;
    double gbps = number(r, COL_inter_gbps_per_gpu);
    if (gbps <= 0 && hw->nodes > 1)
        r->out->unstated |= UNSTATED_NETWORK;
    gbps = gbps > 0 ? gbps : usual_gbps(g);
    hw->fabric_bytes_per_s = hw->nodes > 1 ? gbps * 1e9 / 8 * (double)per_node : 0;
    hw->is_fabric_rdma = true;
    r->out->strategy.ranks = gpus;
    r->out->strategy.ranks_per_node = per_node;
}

/* --- the strategy --- */

static void read_kind(struct reader *r)
{
    struct evidence_row *o = r->out;
    static const struct {
        const char *word;
        enum strategy_kind kind;
    } words[] = {{"ddp", STRATEGY_DDP}, {"zero1", STRATEGY_ZERO1}, {"zero2", STRATEGY_ZERO2},
        {"zero3", STRATEGY_ZERO3}, {"hsdp", STRATEGY_HSDP}, {"gemini", STRATEGY_ZERO3}};
    const char *word = cell(r, COL_strategy);
    if (!*word || strstr(cell(r, COL_notes), "ZeRO stage not stated"))
        o->unstated |= UNSTATED_STRATEGY;
    bool is_known = !*word;
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        if (strcasecmp(word, words[i].word) == 0) {
            o->strategy.kind = words[i].kind;
            is_known = true;
        }
    if (!is_known)
        refuse(r, SKIP_UNSUPPORTED);
}

/* NVIDIA's recipes interleave pipeline stages whether their tables say so or not. */
static bool interleaves(const char *stack)
{
    return strncmp(stack, "megatron-nemo", 13) == 0 || strncmp(stack, "megatron-bridge", 15) == 0;
}

static int64_t usual_stages(int64_t layers_of_rank)
{
    return layers_of_rank < 1 ? 1 : layers_of_rank < 6 ? layers_of_rank : 6;
}

/* Megatron's way, unless told otherwise; NVIDIA's recipes of models with many small experts tell it
 * to leave these whole, and so must all with more ways of splitting than ranks. */
static bool splits_experts(const struct reader *r)
{
    enum { MANY = 64 };
    const struct model *m = &r->out->model;
    const struct strategy *s = &r->out->strategy;
    const struct parallel *p = &s->parallel;
    double ways = (double)p->tensor * (double)p->pipeline * (double)p->expert;
    double active =
        3.0 * (double)m->width * (double)m->ffn / (double)(m->expert_top + !m->expert_top);
    return strncmp(r->out->stack, "megatron", 8) == 0 && p->expert > 1 &&
           ways <= (double)s->ranks && (double)m->expert_params < MANY * active;
}

static void read_parallel(struct reader *r)
{
    struct strategy *s = &r->out->strategy;
    s->parallel = (struct parallel){.tensor = whole(r, COL_tp, 1),
        .pipeline = whole(r, COL_pp, 1),
        .context = whole(r, COL_cp, 1),
        .expert = whole(r, COL_ep, 1),
        .virtual_stages = whole(r, COL_vp, 1)};
    /* AutoModel's recipes spread experts over all ranks whether its tables say so or not */
    if (!*cell(r, COL_ep) && strncmp(r->out->stack, "fsdp2-nemo", 10) == 0)
        s->parallel.expert = s->ranks / (s->parallel.tensor * s->parallel.pipeline);
    if (r->out->model.expert_params == 0 || s->parallel.expert < 1)
        s->parallel.expert = 1;
    if (!*cell(r, COL_vp) && interleaves(r->out->stack))
        s->parallel.virtual_stages = usual_stages(r->out->model.layers / s->parallel.pipeline);
    s->parallel.splits_experts = splits_experts(r);
    double ways = (double)s->parallel.tensor * (double)s->parallel.pipeline;
    ways *= (double)s->parallel.context;
    int64_t split = ways <= max_whole ? (int64_t)ways : 0;
    if (s->ranks < 1 || split < 1 || s->ranks % split != 0) {
        refuse(r, SKIP_LAYOUT);
        return;
    }
    int64_t data = s->ranks / (s->parallel.tensor * s->parallel.pipeline);
    s->shard_degree = s->kind == STRATEGY_DDP ? 1 : data;
    if (s->kind == STRATEGY_HSDP) {
        s->shard_degree = whole(r, COL_shard_degree, s->ranks_per_node);
        if (data % s->shard_degree != 0)
            refuse(r, SKIP_LAYOUT);
    }
}

/* Sequences that make a micro step of a small model long enough to be worth its launches: some
 * 50 Tflop, as 7B runs have at 1,024 tokens. Where nothing is said of the batch. */
static int64_t usual_micro_batch(const struct model *m, int64_t seq)
{
    const double enough = 8e12;
    int64_t micro = 1;
    while (micro < 64 && (double)micro * (double)seq * (double)model_params(m) < enough)
        micro *= 2;
    return micro;
}

/* Micro batch and accumulation, from whichever of three figures are there. */
static void read_batch(struct reader *r)
{
    struct evidence_row *o = r->out;
    struct strategy *s = &o->strategy;
    if (r->is_bad)
        return;
    int64_t micro = whole(r, COL_micro_batch, 0), accum = whole(r, COL_grad_accum, 0);
    int64_t batch = whole(r, COL_global_batch_seqs, 0);
    int64_t own = batch > 0 ? batch / strategy_data_ranks(s) : 0; /* sequences of a data rank */
    if (micro > 0 && accum > 0 && own > 0 && micro * accum != own)
        refuse(r, SKIP_CONTRADICTION);
    if (micro == 0)
        o->unstated |= UNSTATED_BATCH;
    /* torchtitan makes as many micro batches as there are stages, unless told otherwise */
    bool is_titan = strncmp(o->stack, "fsdp2-torchtitan", 16) == 0;
    if (micro == 0 && accum == 0 && is_titan && s->parallel.pipeline > 1)
        accum = own > s->parallel.pipeline ? s->parallel.pipeline : own > 0 ? own : 1;
    if (micro == 0 && accum > 0)
        micro = own > accum ? own / accum : 1;
    if (micro == 0 && batch == 0 && accum == 0 && s->parallel.pipeline == 1)
        micro = usual_micro_batch(&o->model, s->seq);
    if (micro == 0)
        micro = s->parallel.pipeline > 1 || own < 1 ? 1 : own <= 8 ? own : 1;
    if (accum == 0)
        accum = own > micro ? own / micro : 1;
    s->micro_batch = micro;
    s->grad_accum = accum;
    if ((double)s->seq * (double)micro * (double)accum * (double)s->ranks > max_tokens)
        refuse(r, SKIP_BAD_CELL);
}

static void read_precision(struct reader *r)
{
    static const struct {
        const char *word;
        enum precision precision;
    } words[] = {{"bf16", PRECISION_BF16}, {"fp16", PRECISION_FP16}, {"fp32", PRECISION_FP32},
        {"tf32", PRECISION_FP32}, {"fp8", PRECISION_FP8}, {"mxfp8", PRECISION_FP8},
        {"nvfp4", PRECISION_FP4}};
    struct evidence_row *o = r->out;
    const char *word = cell(r, COL_precision);
    o->strategy.precision = o->hw.peak_flops[PRECISION_BF16] > 0 ? PRECISION_BF16 : PRECISION_FP16;
    if (!*word)
        o->unstated |= UNSTATED_PRECISION;
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        if (strcasecmp(word, words[i].word) == 0)
            o->strategy.precision = words[i].precision;
    if (!r->is_bad && !(o->hw.peak_flops[o->strategy.precision] > 0))
        refuse(r, SKIP_CONTRADICTION);
}

static void read_states(struct reader *r)
{
    static const struct {
        const char *word;
        int moments, master;
    } words[] = {{"fp32", 8, 4}, {"bf16", 4, 4}, {"8bit", 2, 4}, {"4bit", 1, 4}, {"sgd", 0, 4}};
    struct evidence_row *o = r->out;
    const char *word = cell(r, COL_opt_states);
    if (!*word)
        o->unstated |= UNSTATED_OPTIMIZER;
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        if (strcasecmp(word, words[i].word) == 0) {
            o->strategy.moment_bytes = words[i].moments;
            o->strategy.master_bytes = words[i].master;
        }
    /* torchtune keeps everything in bf16, moments included */
    if (strncmp(o->stack, "fsdp2-torchtune", 15) == 0) {
        o->strategy.master_bytes = 0;
        if (!*word)
            o->strategy.moment_bytes = 4;
    }
}

/* What recipes adapt unless told otherwise: NVIDIA's the fused queries, keys and values alone
 * (NeMo's finetune recipes, peft.target_modules), AutoModel's and fsdp_qlora's all, LitGPT
 * queries and values, torchtune queries, values, outputs and the MLP. */
static const struct usual_adapter {
    const char *stack;
    struct adapter a;
} usual_adapters[] = {
    {"megatron", {8, ADAPT_Q | ADAPT_K | ADAPT_V, 16}},
    {"fsdp2-torchtune", {8, ADAPT_Q | ADAPT_V | ADAPT_O | ADAPT_MLP, 16}},
    {"fsdp1-litgpt", {8, ADAPT_Q | ADAPT_V, 16}},
    {"fsdp1-pytorch", {64, ADAPT_ALL, 16}},
    {"", {8, ADAPT_ALL, 16}},
};

static void read_adapter(struct reader *r)
{
    const struct usual_adapter *u = usual_adapters;
    while (strncmp(r->out->stack, u->stack, strlen(u->stack)) != 0)
        u++;
    r->out->model.adapter = u->a;
    if (strcasecmp(cell(r, COL_train_type), "qlora") == 0)
        r->out->model.adapter.base_bits = 4;
}

static void read_recompute(struct reader *r)
{
    struct evidence_row *o = r->out;
    const char *word = cell(r, COL_act_ckpt);
    /* torchtune's recipes for full training recompute unless told otherwise */
    if (!*word && strncmp(o->stack, "fsdp2-torchtune", 15) == 0)
        word = "full";
    if (!*word)
        o->unstated |= UNSTATED_RECOMPUTE;
    o->strategy.recompute = strncasecmp(word, "full", 4) == 0        ? RECOMPUTE_FULL
                            : strncasecmp(word, "selective", 9) == 0 ? RECOMPUTE_SELECTIVE
                                                                     : RECOMPUTE_NONE;
    const char *offload = cell(r, COL_offload);
    o->strategy.offload = (strstr(offload, "optimizer-cpu") ? OFFLOAD_OPTIMIZER : 0u) |
                          (strstr(offload, "param") ? OFFLOAD_PARAMETERS : 0u) |
                          (strstr(offload, "activation") ? OFFLOAD_ACTIVATIONS : 0u);
    o->strategy.memory.absorbs_copies = true;
    if (!*cell(r, COL_flash_attn))
        o->unstated |= UNSTATED_ATTENTION;
    o->strategy.has_plain_attention = strcasecmp(cell(r, COL_flash_attn), "no") == 0;
}

/* --- what was measured --- */

static void read_measured(struct reader *r)
{
    struct evidence_row *o = r->out;
    const struct strategy *s = &o->strategy;
    if (r->is_bad)
        return;
    o->tokens_per_s = number(r, COL_tokens_per_s_per_gpu);
    double step = number(r, COL_step_time_s);
    double batch = number(r, COL_global_batch_seqs);
    bool is_batch_known = batch > 0 || !(o->unstated & UNSTATED_BATCH);
    if (o->tokens_per_s <= 0 && step > 0 && is_batch_known) {
        double tokens = batch > 0 ? batch * (double)s->seq : (double)strategy_tokens_per_step(s);
        o->tokens_per_s = tokens / step / (double)s->ranks;
    }
    o->peak_bytes = number(r, COL_peak_mem_gib) * 1073741824.0;
    for (int k = 1; k < MEM_KINDS; k++)
        if (strcasecmp(cell(r, COL_mem_kind), mem_kinds[k]) == 0)
            o->mem_kind = (enum mem_kind)k;
    if (o->peak_bytes > 0 && o->mem_kind == MEM_UNSAID)
        o->unstated |= UNSTATED_MEMORY_KIND;
    if (o->tokens_per_s <= 0 && o->peak_bytes <= 0 && !o->is_oom)
        refuse(r, SKIP_NOTHING_MEASURED);
}

static void check_figures(struct reader *r)
{
    struct stated stated = {number(r, COL_tokens_per_s_per_gpu), number(r, COL_step_time_s),
        number(r, COL_global_batch_seqs)};
    if (!r->is_bad && evidence_contradicts(r->out, &stated))
        refuse(r, SKIP_CONTRADICTION);
}

/* Also where nothing is predicted from it: who writes units into one cell writes them into others.
 */
static void check_cells(struct reader *r)
{
    static const enum column numbers[] = {COL_year, COL_n_heads, COL_n_kv_heads, COL_d_ff,
        COL_params, COL_active_params, COL_gpus_per_node, COL_nvlink_domain, COL_inter_gbps_per_gpu,
        COL_shard_degree, COL_tp, COL_pp, COL_vp, COL_cp, COL_ep, COL_micro_batch, COL_grad_accum,
        COL_global_batch_seqs, COL_tokens_per_s_per_gpu, COL_step_time_s, COL_peak_mem_gib};
    for (size_t i = 0; i < BASE_COUNT(numbers); i++)
        number(r, numbers[i]);
}

/* "nv-mb-012" belongs to "nv-mb". */
static void make_group(struct reader *r)
{
    struct evidence_row *o = r->out;
    size_t n = strlen(o->id);
    while (n > 0 && isalpha((unsigned char)o->id[n - 1]))
        n--;
    size_t digits = n;
    while (digits > 0 && isdigit((unsigned char)o->id[digits - 1]))
        digits--;
    if (digits == n)
        digits = strlen(o->id);
    while (digits > 0 && o->id[digits - 1] == '-')
        digits--;
    snprintf(o->group, sizeof o->group, "%.*s|%s|%s", (int)digits, o->id, cell(r, COL_model),
        cell(r, COL_gpu));
}

/* A longest sequence says little of what a step holds. */
static void read_sequence(struct reader *r)
{
    int64_t seq = whole(r, COL_seq_len, 0);
    r->out->strategy.seq = seq;
    if (seq < 1 || strstr(cell(r, COL_notes), "samples may be shorter"))
        refuse(r, SKIP_NO_SEQ);
}

static void read_row(struct reader *r)
{
    struct evidence_row *o = r->out;
    o->strategy = strategy_default(STRATEGY_DDP, 1, 1);
    str_copy(o->id, sizeof o->id, cell(r, COL_id));
    o->line = r->table->lines[r->row];
    o->is_oom = strncasecmp(cell(r, COL_status), "oom", 3) == 0;
    make_group(r);
    if (!*o->id)
        refuse(r, SKIP_BAD_CELL);
    if (r->twin != TWIN_NONE)
        refuse(r, r->twin == TWIN_REPEATS ? SKIP_REPEATED : SKIP_CONTRADICTION);
    bool is_full = is_one_of(cell(r, COL_train_type), "full", "");
    bool is_adapted = is_one_of(cell(r, COL_train_type), "lora", "qlora");
    if (!(r->wants_adapted ? is_adapted : is_full))
        refuse(r, SKIP_NOT_FULL);
    if (!is_one_of(cell(r, COL_status), "ok", "") && !o->is_oom)
        refuse(r, SKIP_STATUS);
    if (strcasecmp(cell(r, COL_row_kind), "chart") == 0)
        refuse(r, SKIP_CHART);
    read_model(r);
    read_hardware(r);
    read_kind(r);
    read_stack(r);
    read_sequence(r);
    read_parallel(r);
    read_batch(r);
    read_precision(r);
    read_states(r);
    if (r->wants_adapted)
        read_adapter(r);
    read_recompute(r);
    struct memory_words words = {.year = whole(r, COL_year, 2022),
        .compile = cell(r, COL_compile),
        .notes = cell(r, COL_notes)};
    evidence_memory_options(o, &words);
    read_measured(r);
    check_cells(r);
    struct err e = ERR_INIT;
    if (!r->is_bad && (model_check(&o->model, &e) || strategy_check(&o->strategy, &o->model, &e)))
        refuse(r, SKIP_LAYOUT);
    check_figures(r);
    if (!r->is_bad)
        evidence_assume_fit(o);
}

static enum rc read_rows(
    struct evidence *out, const struct csv *table, bool wants_adapted, struct err *e)
{
    int column[COLUMN_COUNT];
    for (int i = 0; i < COLUMN_COUNT; i++)
        column[i] = csv_column(table, columns[i].name);
    static const enum column needed[] = {COL_id, COL_gpu, COL_n_gpus, COL_n_layers, COL_d_model};
    for (size_t i = 0; i < BASE_COUNT(needed); i++)
        if (column[needed[i]] < 0)
            return err_set(e, RC_INVALID, "there is no column '%s'", columns[needed[i]].name);
    for (size_t i = 0; i < table->columns; i++)
        if (csv_column(table, table->header[i]) != (int)i && *table->header[i])
            return err_set(e, RC_INVALID, "there are two columns '%s'", table->header[i]);
    if (table->rows == 0)
        return err_set(e, RC_INVALID, "there are no rows below the header");
    memset(out, 0, sizeof *out);
    out->rows = base_calloc(table->rows + 1, sizeof *out->rows);
    out->skipped = base_calloc(table->rows + 1, sizeof *out->skipped);
    unsigned char *twins = evidence_twins(table, column[COL_id]);
    for (size_t i = 0; i < table->rows; i++) {
        struct evidence_row *row = &out->rows[out->n_rows];
        memset(row, 0, sizeof *row);
        struct reader r = {.table = table,
            .column = column,
            .row = i,
            .out = row,
            .twin = (enum twin)twins[i],
            .wants_adapted = wants_adapted};
        read_row(&r);
        bool is_counted = !row->is_oom && !(r.is_bad && r.why <= SKIP_CHART);
        out->n_full_and_ok += is_counted;
        if (!r.is_bad) {
            out->n_rows++;
            continue;
        }
        struct evidence_skip *skip = &out->skipped[out->n_skipped++];
        str_copy(skip->id, sizeof skip->id, row->id);
        skip->line = row->line;
        skip->why = r.why;
        skip->is_full_and_ok = is_counted;
    }
    free(twins);
    return RC_OK;
}

enum rc evidence_read(struct evidence *out, const struct csv *table, struct err *e)
{
    return read_rows(out, table, false, e);
}

enum rc evidence_read_adapted(struct evidence *out, const struct csv *table, struct err *e)
{
    return read_rows(out, table, true, e);
}

void evidence_release(struct evidence *v)
{
    free(v->rows);
    free(v->skipped);
    memset(v, 0, sizeof *v);
}
