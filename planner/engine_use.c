#include "planner/engine_use.h"

#include "base/alloc.h"
#include "base/str.h"

enum { MAX_MICRO_BATCH = 64, MAX_TENSOR = 8, MAX_PIPELINE = 16, STACKS_SHOWN = 400 };

#define KIND(k) (1u << STRATEGY_##k)
/* Sets of what is offloaded. */
#define OFFLOADS(set)      (1u << (set))
#define STATES             OFFLOADS(OFFLOAD_OPTIMIZER)
#define ACTIVATIONS        OFFLOADS(OFFLOAD_ACTIVATIONS)
#define STATES_ACTIVATIONS OFFLOADS(OFFLOAD_OPTIMIZER | OFFLOAD_ACTIVATIONS)
#define ALL_STATES         OFFLOADS(OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS)
#define EVERYTHING         OFFLOADS(OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS)
#define ON_DISK                                                                                    \
    (OFFLOADS(OFFLOAD_OPTIMIZER | OFFLOAD_DISK) |                                                  \
        OFFLOADS(OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK))

/* What the engine itself offers, by its documentation. */
static const struct ability {
    unsigned kinds;
    enum strategy_kind usual;
    unsigned offloads; /* sets beside none: FSDP moves all states or none, DeepSpeed has a disk,
                          PyTorch and DeepSpeed wrap checkpointed blocks */
    bool splits;       /* tensor, pipeline, context, experts */
    const char *export;
    bool searches_splits; /* tensor and pipeline, without which nobody uses it */
    bool is_adam_alone;   /* its optimizer takes no other (Megatron's distrib_optimizer.py) */
} abilities[ENGINE_COUNT] = {
    [ENGINE_BERTH] = {.kinds = KIND(DDP) | KIND(ZERO1) | KIND(ZERO2) | KIND(ZERO3) | KIND(HSDP),
        .usual = STRATEGY_ZERO3,
        .offloads = STATES | ALL_STATES | ON_DISK | ACTIVATIONS | STATES_ACTIVATIONS | EVERYTHING},
    [ENGINE_FSDP1] = {.kinds = KIND(ZERO2) | KIND(ZERO3) | KIND(HSDP),
        .usual = STRATEGY_ZERO3,
        .offloads = ALL_STATES | ACTIVATIONS | EVERYTHING,
        .export = "accelerate"},
    [ENGINE_FSDP2] = {.kinds = KIND(ZERO2) | KIND(ZERO3) | KIND(HSDP),
        .usual = STRATEGY_ZERO3,
        .offloads = ALL_STATES | ACTIVATIONS | EVERYTHING,
        .splits = true,
        .export = "fsdp2"},
    [ENGINE_DEEPSPEED] = {.kinds = KIND(ZERO1) | KIND(ZERO2) | KIND(ZERO3),
        .usual = STRATEGY_ZERO3,
        .offloads = STATES | ALL_STATES | ON_DISK | ACTIVATIONS | STATES_ACTIVATIONS | EVERYTHING,
        .splits = true,
        .export = "deepspeed"},
    [ENGINE_ACCELERATE_ZERO3] = {.kinds = KIND(ZERO3),
        .usual = STRATEGY_ZERO3,
        .offloads = STATES | ALL_STATES | ON_DISK,
        .export = "accelerate"},
    [ENGINE_MEGATRON] = {.kinds = KIND(ZERO1),
        .usual = STRATEGY_ZERO1,
        .offloads = STATES,
        .splits = true,
        .searches_splits = true,
        .is_adam_alone = true},
    [ENGINE_MEGATRON_DEEPSPEED] = {.kinds = KIND(ZERO1),
        .usual = STRATEGY_ZERO1,
        .offloads = STATES,
        .splits = true,
        .searches_splits = true,
        .export = "deepspeed"},
    [ENGINE_DDP] = {.kinds = KIND(DDP), .usual = STRATEGY_DDP, .export = "accelerate"},
};

/* --- stacks --- */

enum engine engine_of_stack(const char *stack)
{
    enum engine best = ENGINE_COUNT;
    size_t longest = 0;
    for (int g = 0; g < ENGINE_COUNT; g++) {
        const char *name = profile_of((enum engine)g)->stack;
        size_t n = strlen(name);
        bool is_whole_word = strncmp(stack, name, n) == 0 && strchr("-+", stack[n]);
        if (is_whole_word && n > longest) {
            longest = n;
            best = (enum engine)g;
        }
    }
    return best;
}

static bool is_pattern(const char *word)
{
    return strchr(word, '*') != NULL;
}

void engine_stack(char out[RATES_NAME], const struct rates *r, enum engine g)
{
    const struct rates_entry *best = NULL;
    for (size_t i = 0; i < r->n && !profile_of(g)->is_bundled; i++) {
        const struct rates_entry *en = &r->entries[i];
        bool is_usable = engine_of_stack(en->stack) == g && !is_pattern(en->stack) &&
                         !strstr(en->stack, "+plain");
        if (is_usable && (!best || en->rows > best->rows))
            best = en;
    }
    str_copy(out, RATES_NAME, best ? best->stack : profile_of(g)->stack);
}

enum rc engine_check_stack(const struct rates *r, enum engine g, const char *stack, struct err *e)
{
    struct str all = STR_INIT;
    bool is_known = strcmp(stack, profile_of(g)->stack) == 0;
    for (size_t i = 0; i < r->n && !is_known; i++) {
        const char *name = r->entries[i].stack;
        bool is_first = true;
        for (size_t k = 0; k < i; k++)
            is_first = is_first && strcmp(r->entries[k].stack, name) != 0;
        if (is_pattern(name) || engine_of_stack(name) != g)
            continue;
        is_known = strcmp(name, stack) == 0;
        if (is_first && all.len < STACKS_SHOWN)
            str_addf(&all, "%s%s", all.len ? ", " : "", name);
    }
    enum rc rc = RC_OK;
    if (!is_known)
        rc = err_set(e, RC_USAGE, "no stack '%s' of engine %s was measured%s%s", stack,
            engine_name(g), all.len ? "; there are " : "", str_text(&all));
    str_release(&all);
    return rc;
}

/* --- strategies --- */

void engine_take(struct strategy *s, enum engine g, const char *stack)
{
    s->engine = g;
    if (profile_of(g)->is_bundled)
        return;
    s->has_plain_attention = strstr(stack, "+plain") != NULL;
    s->memory.is_fused = stack_is_fused(stack);
    s->memory.has_sequence_parallel = g == ENGINE_MEGATRON || g == ENGINE_FSDP2;
    s->prefetch = profile_of(g)->prefetch;
}

enum strategy_kind engine_default_kind(enum engine g)
{
    return abilities[g].usual;
}

bool engine_offloads(enum engine g)
{
    return abilities[g].offloads & STATES;
}

const char *engine_export(enum engine g)
{
    return abilities[g].export;
}

/* DeepSpeed's documentation: NVMe in ZeRO stage 3 only. */
static bool has_stage_for_disk(const struct strategy *s)
{
    return !(s->offload & OFFLOAD_DISK) || s->kind == STRATEGY_ZERO3 ||
           profile_of(s->engine)->is_bundled;
}

enum rc engine_check_optimizer(enum engine g, enum optimizer o, struct err *e)
{
    if (o == OPTIMIZER_ADAMW || !abilities[g].is_adam_alone)
        return RC_OK;
    return err_set(e, RC_INVALID, "the distributed optimizer of engine %s is adamw, not %s",
        engine_name(g), optimizer_name(o));
}

enum rc engine_check(const struct strategy *s, struct err *e)
{
    const struct ability *a = &abilities[s->engine];
    const char *name = engine_name(s->engine);
    if (!(a->kinds & 1u << s->kind))
        return err_set(e, RC_INVALID, "engine %s has no %s", name, strategy_kind_name(s->kind));
    if (s->offload == OFFLOAD_OPTIMIZER && !(a->offloads & STATES))
        return err_set(
            e, RC_INVALID, "engine %s does not keep the optimizer alone in host memory", name);
    if (s->offload != OFFLOAD_NONE && !(a->offloads & OFFLOADS(s->offload)))
        return err_set(
            e, RC_INVALID, "engine %s has no offload '%s'", name, offload_name(s->offload));
    if (!has_stage_for_disk(s))
        return err_set(e, RC_INVALID, "engine %s keeps states on NVMe with zero3 alone", name);
    if ((s->offload & OFFLOAD_PARAMETERS) && !strategy_parks_parameters(s))
        return err_set(e, RC_INVALID,
            "engine %s offloads parameters where they are sharded, not with %s", name,
            strategy_kind_name(s->kind));
    if (!s->reshard_after_forward && !profile_of(s->engine)->is_bundled)
        return err_set(e, RC_INVALID,
            "of engine %s parameters kept from forward to backward go by the name of zero2", name);
    if (!strategy_is_data_parallel(s) && !a->splits)
        return err_set(e, RC_INVALID,
            "engine %s is data-parallel: it has no tensor, pipeline, context or expert parallelism",
            name);
    return engine_check_optimizer(s->engine, s->optimizer, e);
}

enum rc engine_check_device(enum engine g, bool is_gpu, struct err *e)
{
    if (is_gpu || profile_of(g)->is_bundled)
        return RC_OK;
    return err_set(e, RC_INVALID, "engine %s is predicted on GPUs only", engine_name(g));
}

/* --- what is searched --- */

struct maker {
    struct space *out;
    size_t cap;
    const struct job *job;
    const struct shape_of_ranks *shape;
    enum space_stage stage;
};

static void add_micro_batches(struct maker *k, struct strategy s)
{
    int64_t per_rank = job_step_sequences(k->job) / strategy_data_ranks(&s);
    int64_t most = strategy_countable_batch(&s, &k->job->model, MAX_MICRO_BATCH);
    for (int64_t mb = 1; mb <= most && mb <= per_rank; mb++) {
        /* fewer micro steps than stages leave most of a pipeline idle */
        if (per_rank % mb != 0 || per_rank / mb < s.parallel.pipeline)
            continue;
        s.micro_batch = mb;
        s.grad_accum = per_rank / mb;
        BASE_GROW(k->out->items, k->cap, k->out->n + 1);
        k->out->items[k->out->n++] = s;
    }
}

static void add_savings(struct maker *k, struct strategy s)
{
    /* nobody measured Megatron's, and figures of others do not carry over */
    bool is_measured = !abilities[s.engine].searches_splits;
    unsigned can = is_measured && k->shape->is_gpu ? abilities[s.engine].offloads : 0;
    unsigned offload[OFFLOAD_SETS];
    size_t n = space_offloads(offload, k->job, k->stage, k->shape->is_gpu);
    for (size_t i = 0; i < n; i++) {
        s.offload = offload[i];
        bool has_sense = !(s.offload & OFFLOAD_PARAMETERS) || strategy_parks_parameters(&s);
        bool is_offered = s.offload == OFFLOAD_NONE || (can & OFFLOADS(s.offload));
        if (!has_sense || !is_offered || !has_stage_for_disk(&s))
            continue;
        for (int recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_FULL; recompute++) {
            s.recompute = (enum recompute)recompute;
            if (recompute != RECOMPUTE_SELECTIVE_FFN &&
                job_allows(k->job->recompute, recompute_name(s.recompute)))
                add_micro_batches(k, s);
        }
    }
}

/* Experts are held by every rank, or spread over as many of a node as divide them. */
static void add_expert_splits(struct maker *k, struct strategy s)
{
    const struct model *m = &k->job->model;
    int64_t most = 1;
    add_savings(k, s);
    while (
        most * 2 <= s.ranks_per_node && m->experts % (most * 2) == 0 && s.ranks % (most * 2) == 0)
        most *= 2;
    if (m->experts <= 1 || !abilities[s.engine].splits || most == 1)
        return;
    s.parallel.expert = most;
    add_savings(k, s);
}

/* Layers split over GPUs of a node, and over nodes. */
static void add_splits(struct maker *k, struct strategy s)
{
    const struct model *m = &k->job->model;
    for (int64_t tensor = 1; tensor <= MAX_TENSOR && tensor <= s.ranks_per_node; tensor *= 2) {
        for (int64_t pipeline = 1; pipeline <= MAX_PIPELINE; pipeline *= 2) {
            if (m->kv_heads % tensor != 0 || m->layers < pipeline ||
                s.ranks % (tensor * pipeline) != 0)
                continue;
            s.parallel.tensor = tensor;
            s.parallel.pipeline = pipeline;
            s.shard_degree = s.ranks / (tensor * pipeline);
            add_expert_splits(k, s);
        }
    }
}

static void add_kind(struct maker *k, enum strategy_kind kind, int64_t degree)
{
    const struct job *j = k->job;
    bool is_offered = abilities[j->engine].kinds & 1u << kind;
    if (!is_offered || !job_allows(j->strategy, strategy_kind_name(kind)))
        return;
    for (int p = 0; p < PRECISION_KINDS; p++) {
        bool is_allowed = p == (int)j->precision || (p == PRECISION_FP32 && j->allow_fp32) ||
                          (p == PRECISION_BF16 && j->allow_bf16) ||
                          (p == PRECISION_FP8 && j->allow_fp8);
        if (!is_allowed)
            continue;
        struct strategy s = strategy_default(kind, k->shape->ranks, k->shape->ranks_per_node);
        engine_take(&s, j->engine, j->stack);
        s.seq = j->seq;
        s.doc_tokens = j->doc_tokens;
        strategy_take_optimizer(&s, job_optimizer(j));
        s.precision = (enum precision)p;
        s.shard_degree = degree;
        if (abilities[s.engine].searches_splits)
            add_splits(k, s);
        else
            add_expert_splits(k, s);
    }
}

void engine_space(struct space *out, const struct job *j, const struct shape_of_ranks *shape,
    enum space_stage stage)
{
    *out = (struct space){NULL, 0};
    int64_t ranks = shape->ranks, per_node = shape->ranks_per_node;
    if (job_step_sequences(j) % ranks != 0)
        return;
    struct maker k = {.out = out, .job = j, .shape = shape, .stage = stage};
    add_kind(&k, STRATEGY_DDP, 1);
    add_kind(&k, STRATEGY_ZERO1, ranks);
    add_kind(&k, STRATEGY_ZERO2, ranks);
    add_kind(&k, STRATEGY_ZERO3, ranks);
    if (ranks > per_node && per_node > 1)
        add_kind(&k, STRATEGY_HSDP, per_node);
}
