#include "planner/space.h"

#include "base/alloc.h"
#include "planner/engine_use.h"

enum { MAX_MICRO_BATCH = 64 };

struct maker {
    struct space *out;
    size_t cap;
    const struct job *job;
    const struct shape_of_ranks *shape;
    enum space_stage stage;
    int64_t per_rank; /* sequences of a rank and step */
    int64_t most;     /* in a micro batch */
};

static void add(struct maker *k, const struct strategy *s)
{
    if (s->fp8_gradients && strategy_check(s, &k->job->model, NULL))
        return; /* with accumulation, say */
    BASE_GROW(k->out->items, k->cap, k->out->n + 1);
    k->out->items[k->out->n++] = *s;
}

static void add_micro_batches(struct maker *k, struct strategy s)
{
    for (int64_t mb = 1; mb <= k->most && mb <= k->per_rank; mb++) {
        if (k->per_rank % mb != 0)
            continue;
        s.micro_batch = mb;
        s.grad_accum = k->per_rank / mb;
        add(k, &s);
    }
}

/* Products of the FFN alone save no more for their time than recompute in full, so that they are
 * there only where they are asked for. */
static bool is_wanted(const struct job *j, int recompute)
{
    if (j->recompute[0] == '\0')
        return recompute != RECOMPUTE_SELECTIVE_FFN;
    return job_allows(j->recompute, recompute_name((enum recompute)recompute));
}

/* The first blocks in full, the others selective, which is cheap for what it saves. Memory is short
 * then: logits in chunks cost less than a block, and whatever else takes memory for speed is tried
 * beside it only where it is asked for. */
static void add_mixed(struct maker *k, struct strategy s)
{
    const char *named = k->job->recompute;
    bool is_spare = s.prefetch == 1 && s.offload == OFFLOAD_NONE &&
                    (s.kind < STRATEGY_ZERO3 || s.reshard_after_forward);
    bool is_wanted = named[0] ? job_allows(named, "mixed") : is_spare;
    if (k->stage != SPACE_USUAL || k->job->model.layers < 3 || !is_wanted)
        return;
    s.recompute = RECOMPUTE_SELECTIVE;
    s.full_blocks = STRATEGY_FILL;
    s.loss_chunks = s.seq < 8 ? 1 : 8;
    add_micro_batches(k, s);
}

static void add_recomputes(struct maker *k, struct strategy s)
{
    static const int chunks[] = {1, 8};
    for (int recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_FULL; recompute++) {
        for (size_t c = 0; c < BASE_COUNT(chunks) && is_wanted(k->job, recompute); c++) {
            s.recompute = (enum recompute)recompute;
            s.loss_chunks = chunks[c];
            if (chunks[c] <= s.seq)
                add_micro_batches(k, s);
        }
    }
    add_mixed(k, s);
}

/* What makes room at the price of time, from nothing to everything. */
static void add_savings(struct maker *k, struct strategy s)
{
    unsigned offload[OFFLOAD_SETS];
    size_t n = space_offloads(offload, k->job, k->stage, k->shape->is_gpu);
    for (size_t i = 0; i < n; i++) {
        s.offload = offload[i];
        bool is_gathered = s.kind == STRATEGY_ZERO3 || s.kind == STRATEGY_HSDP;
        bool needs_gathers = s.offload & OFFLOAD_PARAMETERS;
        /* such weights are updated where they are */
        if (strategy_converts_master(&s) && (s.offload & (OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS)))
            continue;
        /* a single rank has something to gather only where it is not on the device */
        bool has_sense =
            needs_gathers ? is_gathered && !s.splits_over_replicas : s.ranks > 1 || !is_gathered;
        if (has_sense)
            add_recomputes(k, s);
    }
}

/* Words of a job are known to be good when it is finished. */
static void add_bucketed(struct maker *k, struct strategy s)
{
    if (k->job->bucket[0])
        strategy_parse_bucket(&s, k->job->bucket, NULL);
    add_savings(k, s);
}

static void add_gathered(struct maker *k, struct strategy s)
{
    const char *reshard = k->job->reshard;
    if (reshard[0])
        strategy_parse_reshard(&s, reshard, NULL);
    add_savings(k, s);
    if (k->stage != SPACE_USUAL)
        return;
    if (s.kind == STRATEGY_HSDP) {
        s.splits_over_replicas = true;
        add_savings(k, s);
        s.splits_over_replicas = false;
    }
    s.prefetch = 2;
    add_savings(k, s);
    s.prefetch = 1;
    s.reshard_after_forward = false;
    if (!reshard[0])
        add_savings(k, s);
}

static void add_kind(struct maker *k, enum strategy_kind kind, int64_t degree)
{
    bool is_gathered = kind == STRATEGY_ZERO3 || kind == STRATEGY_HSDP;
    if (!job_allows(k->job->strategy, strategy_kind_name(kind)))
        return;
    const struct {
        enum precision precision;
        bool is_allowed;
    } all[] = {{PRECISION_BF16, k->job->allow_bf16}, {PRECISION_FP32, k->job->allow_fp32},
        {PRECISION_FP8, k->job->allow_fp8}};
    for (size_t i = 0; i < BASE_COUNT(all); i++) {
        struct strategy s = strategy_default(kind, k->shape->ranks, k->shape->ranks_per_node);
        s.seq = k->job->seq;
        s.doc_tokens = k->job->doc_tokens;
        s.evaluates = k->job->eval_data[0] != '\0';
        strategy_take_optimizer(&s, job_optimizer(k->job));
        s.precision = all[i].precision;
        s.shard_degree = degree;
        if (s.precision != PRECISION_FP32)
            s.master_bytes = k->job->master_bytes;
        s.fp8_gradients = k->job->fp8_gradients;
        strategy_take_moments(&s, k->job->moment_form);
        if (is_gathered && k->job->gather_format[0])
            wire_parse(k->job->gather_format, &s.gather_format, NULL);
        if (k->job->reduce_format[0])
            wire_parse(k->job->reduce_format, &s.reduce_format, NULL);
        if (!all[i].is_allowed)
            continue;
        if (is_gathered)
            add_gathered(k, s);
        else
            add_bucketed(k, s);
    }
}

/* Where the search thinks of a set by itself; -1: nowhere. */
static int usual_stage(unsigned offload, bool is_gpu)
{
    static const struct {
        unsigned offload;
        enum space_stage stage;
    } all[] = {
        {OFFLOAD_NONE, SPACE_USUAL},
        {OFFLOAD_OPTIMIZER, SPACE_USUAL},
        {OFFLOAD_ACTIVATIONS, SPACE_SPARING},
        {OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS, SPACE_SPARING},
        {OFFLOAD_OPTIMIZER | OFFLOAD_DISK, SPACE_DISK},
        {OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK, SPACE_DISK},
    };
    bool has_gain = is_gpu || offload == OFFLOAD_NONE || (offload & OFFLOAD_DISK);
    for (size_t i = 0; i < BASE_COUNT(all) && has_gain; i++)
        if (all[i].offload == offload)
            return (int)all[i].stage;
    return -1;
}

/* States on disk come last, whoever names them, and a single rank gathers its parameters only where
 * little fits. */
static int named_stage(unsigned offload)
{
    return offload & OFFLOAD_DISK         ? SPACE_DISK
           : offload & OFFLOAD_PARAMETERS ? SPACE_SPARING
                                          : SPACE_USUAL;
}

size_t space_offloads(
    unsigned out[OFFLOAD_SETS], const struct job *j, enum space_stage stage, bool is_gpu)
{
    size_t n = 0;
    for (size_t i = 0; i < OFFLOAD_SETS; i++) {
        unsigned offload = offload_at(i);
        bool is_named = job_allows(j->offload, offload_name(offload));
        int at = j->offload[0] ? named_stage(offload) : usual_stage(offload, is_gpu);
        if (is_named && at == (int)stage)
            out[n++] = offload;
    }
    return n;
}

/* Groups of ranks that share one copy: within the only node, or of whole nodes; others cut nodes
 * for nothing. */
static bool is_group(const struct shape_of_ranks *shape, int64_t g)
{
    bool is_inside = shape->ranks == shape->ranks_per_node,
         is_whole = g % shape->ranks_per_node == 0;
    return shape->ranks % g == 0 && (is_inside || is_whole);
}

static void add_usual(struct maker *k)
{
    int64_t ranks = k->shape->ranks;
    add_kind(k, STRATEGY_DDP, 1);
    if (ranks == 1)
        return;
    add_kind(k, STRATEGY_ZERO1, ranks);
    add_kind(k, STRATEGY_ZERO2, ranks);
    add_kind(k, STRATEGY_ZERO3, ranks);
    for (int64_t g = 2; g < ranks; g++)
        if (is_group(k->shape, g))
            add_kind(k, STRATEGY_HSDP, g);
}

/* Where little fits it is of the most sharded kind that the job allows. */
static void add_most_sharded(struct maker *k)
{
    int64_t ranks = k->shape->ranks;
    if (ranks == 1) {
        add_kind(k, STRATEGY_DDP, 1);
        add_kind(k, STRATEGY_ZERO3, 1);
        return;
    }
    for (int kind = STRATEGY_ZERO3; kind >= STRATEGY_DDP; kind--) {
        if (!job_allows(k->job->strategy, strategy_kind_name((enum strategy_kind)kind)))
            continue;
        add_kind(k, (enum strategy_kind)kind, kind == STRATEGY_DDP ? 1 : ranks);
        return;
    }
    for (int64_t g = ranks - 1; g > 1; g--) {
        if (!is_group(k->shape, g))
            continue;
        add_kind(k, STRATEGY_HSDP, g);
        return;
    }
}

void space_make(struct space *out, const struct job *j, const struct shape_of_ranks *shape,
    enum space_stage stage)
{
    *out = (struct space){NULL, 0};
    if (!profile_of(j->engine)->is_bundled) {
        engine_space(out, j, shape, stage);
        return;
    }
    if (job_step_sequences(j) % shape->ranks != 0)
        return;
    struct strategy any = strategy_default(STRATEGY_DDP, shape->ranks, shape->ranks_per_node);
    any.seq = j->seq;
    struct maker k = {.out = out,
        .job = j,
        .shape = shape,
        .stage = stage,
        .per_rank = job_step_sequences(j) / shape->ranks,
        .most = strategy_countable_batch(&any, &j->model, MAX_MICRO_BATCH)};
    if (stage == SPACE_USUAL)
        add_usual(&k);
    else
        add_most_sharded(&k);
}

void space_release(struct space *s)
{
    free(s->items);
    *s = (struct space){NULL, 0};
}

int64_t space_unit_shards(const struct strategy *s)
{
    return s->kind == STRATEGY_HSDP ? s->shard_degree : s->ranks;
}

int64_t space_unit_parts(const struct strategy *s)
{
    return s->splits_over_replicas ? s->ranks : space_unit_shards(s);
}

struct unit_elems space_unit_elems(const struct model *m, const struct strategy *s)
{
    struct unit_elems out = {0};
    const int kinds[] = {0, 1, model_units(m) - 1};
    int64_t parts = space_unit_parts(s);
    for (size_t i = 0; i < BASE_COUNT(kinds); i++) {
        struct unit_layout u;
        struct trained_unit trained =
            model_split_unit(m, kinds[i], space_unit_shards(s), parts, &u);
        int64_t times = i == 1 ? m->layers : 1;
        out.full += times * trained.elems;
        out.own += times * trained.shard_elems;
        out.part += times * (trained.elems / parts);
        out.tensors += times * u.n;
        for (int k = 0; k < 2; k++) {
            struct frozen_unit frozen = model_frozen_unit(m, kinds[i], &u, 2 * (k + 1));
            out.frozen[k].bytes += times * frozen.bytes;
            out.frozen[k].shard_bytes += times * frozen.shard_bytes;
        }
    }
    return out;
}

int64_t space_state_bytes(const struct unit_elems *x, const struct strategy *s)
{
    int64_t element = precision_bytes(s->precision);
    const struct frozen_unit *frozen = &x->frozen[element / 2 - 1];
    bool is_split = strategy_parameter_shards(s) > 1;
    int64_t bytes = 0;
    if (!strategy_parks_parameters(s)) {
        bytes += element * (is_split ? x->own : x->full);
        bytes += is_split ? frozen->shard_bytes : frozen->bytes;
    }
    if (!strategy_parks_gradients(s))
        bytes += (s->fp8_gradients ? 1 : 4) * (strategy_gradient_shards(s) > 1 ? x->own : x->full);
    if (!(s->offload & OFFLOAD_OPTIMIZER))
        bytes += strategy_state_bytes(s) * (strategy_optimizer_shards(s) > 1 ? x->part : x->full);
    return bytes;
}
