#include "planner/evidence_memory.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "planner/engine_memory.h"

/* --- what spares memory --- */

/* Rows have no column for these; sources say them in words that the notes repeat. */
enum spared {
    SPARED_MASTER,
    SPARED_GRADIENTS,
    SPARED_STATES,
    SPARED_LOSS,
    SPARED_LOSS_PARTS,
    SPARED_BLOCKS
};
static const struct {
    const char *text;
    enum spared what;
} sparing[] = {
    {"weights in BF16", SPARED_MASTER},
    {"weights and states BF16", SPARED_MASTER},
    {"weights, gradients and AdamW states BF16", SPARED_MASTER},
    {"BF16 master weights", SPARED_MASTER},
    {"optimizer in backward", SPARED_GRADIENTS},
    {"optimizer-in-backward", SPARED_GRADIENTS},
    {"paged optimizer", SPARED_STATES},
    {"Liger", SPARED_LOSS},
    {"hunked cross entropy", SPARED_LOSS_PARTS},
    {"AC every 2nd layer", SPARED_BLOCKS},
};

static void spare(struct strategy *s, enum spared what)
{
    switch (what) {
    case SPARED_MASTER:
        s->master_bytes = 0;
        break;
    case SPARED_GRADIENTS:
        s->memory.frees_gradients = true;
        break;
    case SPARED_STATES:
        s->memory.pages_optimizer = true;
        break;
    case SPARED_LOSS: /* Liger's kernels fuse norms, rotary embedding and the MLP too */
        s->memory.loss = LOSS_FUSED;
        s->memory.is_fused = true;
        break;
    case SPARED_LOSS_PARTS:
        s->memory.loss = LOSS_CHUNKED;
        break;
    case SPARED_BLOCKS:
        s->memory.whole_blocks = 0.5;
        break;
    }
}

static bool is_stack(const struct evidence_row *o, const char *start)
{
    return strncmp(o->stack, start, strlen(start)) == 0;
}

static bool is_blackwell(const char *gpu)
{
    return gpu[0] == 'b' || strncmp(gpu, "gb", 2) == 0;
}

void evidence_memory_options(struct evidence_row *row, const struct memory_words *w)
{
    struct strategy *s = &row->strategy;
    struct memory_options *o = &s->memory;
    bool is_compiled = strcasecmp(w->compile, "yes") == 0 || strcasecmp(w->compile, "thunder") == 0;
    o->is_fused = stack_is_fused(row->stack);
    /* grad_reduce_in_fp32 is off in NVIDIA's recipes for performance */
    o->reduces_in_16bit = is_stack(row, "megatron-bridge") || is_stack(row, "megatron-nemo");
    /* sequence parallelism: Megatron from 2022 on (arXiv 2205.05198), torchtitan always */
    o->has_sequence_parallel =
        s->engine == ENGINE_FSDP2 ||
        (s->engine == ENGINE_MEGATRON && w->year >= 2022 && !is_stack(row, "internevo"));
    /* torchtune's default; torch 2.7, the first for these GPUs, fuses what follows the logits */
    bool is_new = s->engine == ENGINE_FSDP2 && is_blackwell(row->hw.gpu);
    o->shards_tables = is_stack(row, "fsdp2-torchtune") || is_new;
    if (is_stack(row, "fsdp2-torchtune") || (is_compiled && is_new))
        o->loss = LOSS_CHUNKED;
    if (o->loss != LOSS_WHOLE)
        row->unstated |= UNSTATED_LOSS;
    for (size_t i = 0; i < BASE_COUNT(sparing); i++) {
        const char *at = strstr(w->notes, sparing[i].text);
        bool is_denied = at && at >= w->notes + 3 && strncmp(at - 3, "no ", 3) == 0;
        if (at && !is_denied)
            spare(s, sparing[i].what);
        if (at && (sparing[i].what == SPARED_LOSS || sparing[i].what == SPARED_LOSS_PARTS))
            row->unstated &= ~(unsigned)UNSTATED_LOSS;
    }
}

/* --- what a run must have done --- */

static void do_selective(struct strategy *s)
{
    s->recompute = RECOMPUTE_SELECTIVE;
}

static void do_full(struct strategy *s)
{
    s->recompute = RECOMPUTE_FULL;
}

static void do_chunks(struct strategy *s)
{
    s->memory.loss = s->memory.loss == LOSS_WHOLE ? LOSS_CHUNKED : s->memory.loss;
}

static void do_fuse(struct strategy *s)
{
    s->memory.loss = LOSS_FUSED;
}

static void do_shard_optimizer(struct strategy *s)
{
    if (s->kind != STRATEGY_DDP)
        return;
    s->kind = STRATEGY_ZERO1;
    s->shard_degree = s->ranks / (s->parallel.tensor * s->parallel.pipeline);
}

static void do_shard_all(struct strategy *s)
{
    do_shard_optimizer(s);
    if (s->parallel.pipeline == 1)
        s->kind = STRATEGY_ZERO3;
}

/* DeepSpeed's partition_activations, what a block reads is split over the tensor ranks, and its
 * cpu_checkpointing: it waits on the host. Both are on in its scripts for Megatron. */
static void do_partition_checkpoints(struct strategy *s)
{
    s->memory.has_sequence_parallel = true;
}

static void do_offload_checkpoints(struct strategy *s)
{
    s->offload |= OFFLOAD_ACTIVATIONS;
}

static void do_one_sequence(struct strategy *s)
{
    s->grad_accum *= s->micro_batch;
    s->micro_batch = 1;
}

/* Steps of torchtune's low-memory recipes. */
static void do_free_gradients(struct strategy *s)
{
    s->memory.frees_gradients = true;
}

static void do_8bit_states(struct strategy *s)
{
    s->moment_bytes = s->moment_bytes < 2 ? s->moment_bytes : 2;
}

static void do_page_states(struct strategy *s)
{
    s->memory.pages_optimizer = true;
}

/* In the order in which people turn to them. */
static const struct {
    unsigned unstated; /* that must be */
    const char *stack; /* that it must be, NULL: any */
    void (*act)(struct strategy *s);
} remedies[] = {
    {UNSTATED_STRATEGY, NULL, do_shard_optimizer},
    {UNSTATED_STRATEGY, NULL, do_shard_all},
    {UNSTATED_BATCH, NULL, do_one_sequence},
    {0, "megatron-deepspeed", do_partition_checkpoints},
    {0, "megatron-deepspeed", do_offload_checkpoints},
    {UNSTATED_RECOMPUTE, "fsdp2", do_selective},
    {UNSTATED_RECOMPUTE, NULL, do_full},
    {0, "fsdp2-torchtune", do_free_gradients},
    {UNSTATED_OPTIMIZER, "fsdp2-torchtune", do_8bit_states},
    {0, "fsdp2-torchtune", do_page_states},
    {0, NULL, do_chunks},
    {0, NULL, do_fuse},
};

/* Of the card's memory less the CUDA context, at most; runs leave some. */
static const double filled_at_most = 0.95, context_bytes = 2e9;

static bool fits(const struct evidence_row *o)
{
    double room = filled_at_most * ((double)o->hw.memory_bytes - context_bytes);
    return engine_memory(&o->model, &o->strategy).total <= room;
}

/* Nobody computes all blocks again where a few are enough. */
static void recompute_least(struct evidence_row *o)
{
    struct memory_options *m = &o->strategy.memory;
    bool is_open = (o->unstated & UNSTATED_RECOMPUTE) && o->strategy.recompute == RECOMPUTE_FULL;
    if (!is_open || !fits(o))
        return;
    const double least = 1.0 / 256;
    o->strategy.recompute = RECOMPUTE_SELECTIVE;
    for (m->whole_blocks = 1 - least; m->whole_blocks > least && !fits(o);)
        m->whole_blocks -= least;
    o->again = 1 - m->whole_blocks;
}

/* "ddp" also stands where a table names no ZeRO stage: where the states alone, unsharded, are more
 * than the card has, the run sharded them. */
static void doubt_replication(struct evidence_row *o)
{
    struct engine_memory m = engine_memory(&o->model, &o->strategy);
    double states = m.part[PART_PARAMETERS] + m.part[PART_GRADIENTS] + m.part[PART_OPTIMIZER];
    if (o->strategy.kind == STRATEGY_DDP && states > (double)o->hw.memory_bytes)
        o->unstated |= UNSTATED_STRATEGY;
}

void evidence_assume_fit(struct evidence_row *o)
{
    if (o->is_oom || profile_of(o->strategy.engine)->is_bundled)
        return;
    doubt_replication(o);
    for (size_t i = 0; i < BASE_COUNT(remedies) && !fits(o); i++) {
        unsigned needed = remedies[i].unstated;
        bool is_open = needed == 0 || (o->unstated & needed);
        if (!is_open || (remedies[i].stack && !is_stack(o, remedies[i].stack)))
            continue;
        struct strategy s = o->strategy;
        remedies[i].act(&s);
        if (strategy_check(&s, &o->model, NULL))
            continue;
        if (s.memory.loss != o->strategy.memory.loss)
            o->unstated |= UNSTATED_LOSS;
        o->strategy = s;
        o->is_inferred = true;
    }
    recompute_least(o);
}
