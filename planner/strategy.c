#include "planner/strategy.h"

#include <math.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/units.h"
#include "planner/model.h"
#include "planner/split.h"

enum { MAX_RANKS = 1 << 20, MAX_MICRO_BATCH = 1 << 20, MAX_GRAD_ACCUM = STRATEGY_MAX_ACCUM };

/* --- words --- */

static const char *const kind_names[] = {"ddp", "zero1", "zero2", "zero3", "hsdp"};
static const char *const recompute_names[] = {"none", "selective", "selective-ffn", "full"};
static const char mixed_name[] = "mixed";
static const char *const precision_names[] = {"fp32", "bf16", "fp16", "fp8", "fp4"};
static const char *const optimizer_names[] = {"adamw", "sgd"};
static const char *const moment_form_names[] = {"fp32", "8bit", "fp8"};
static const struct {
    const char *name;
    int bytes;
} masters[] = {{"fp32", MASTER_FP32}, {"split", MASTER_SPLIT}, {"pure", MASTER_NONE}};

static enum rc parse_word(
    int *out, const char *const *words, size_t n, const char *what, const char *word, struct err *e)
{
    char all[256] = "";
    for (size_t i = 0, used = 0; i < n; i++) {
        if (word && strcmp(words[i], word) == 0) {
            *out = (int)i;
            return RC_OK;
        }
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", words[i]);
    }
    return err_set(e, RC_USAGE, "unknown %s '%s'; there are %s", what, word ? word : "", all);
}

#define WORDS(type, prefix, table, what)                                                           \
    const char *prefix##_name(enum type x)                                                         \
    {                                                                                              \
        return table[x];                                                                           \
    }                                                                                              \
    enum rc prefix##_parse(const char *name, enum type *out, struct err *e)                        \
    {                                                                                              \
        int i = 0;                                                                                 \
        enum rc rc = parse_word(&i, table, BASE_COUNT(table), what, name, e);                      \
        if (!rc)                                                                                   \
            *out = (enum type)i;                                                                   \
        return rc;                                                                                 \
    }

WORDS(strategy_kind, strategy_kind, kind_names, "strategy")
WORDS(recompute, recompute, recompute_names, "recompute mode")
WORDS(precision, precision, precision_names, "precision")
WORDS(optimizer, optimizer, optimizer_names, "optimizer")
WORDS(moment_form, moment_form, moment_form_names, "form of moments")

const char *strategy_recompute_name(const struct strategy *s)
{
    return s->full_blocks ? mixed_name : recompute_names[s->recompute];
}

/* Those of the search first; the others are said of runs of other engines. */
static const struct {
    const char *name;
    unsigned offload;
} offloads[] = {
    {"none", OFFLOAD_NONE},
    {"optimizer", OFFLOAD_OPTIMIZER},
    {"optimizer+params", OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS},
    {"nvme", OFFLOAD_OPTIMIZER | OFFLOAD_DISK},
    {"nvme+params", OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK},
    {"activations", OFFLOAD_ACTIVATIONS},
    {"optimizer+activations", OFFLOAD_OPTIMIZER | OFFLOAD_ACTIVATIONS},
    {"optimizer+params+activations", OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS},
    {"params", OFFLOAD_PARAMETERS},
    {"params+activations", OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS},
};

_Static_assert(BASE_COUNT(offloads) == OFFLOAD_SETS, "every set of the table is counted");

unsigned offload_at(size_t i)
{
    return offloads[i].offload;
}

static const char *find_offload(unsigned offload)
{
    for (size_t i = 0; i < BASE_COUNT(offloads); i++)
        if (offloads[i].offload == offload)
            return offloads[i].name;
    return NULL;
}

const char *offload_name(unsigned offload)
{
    const char *name = find_offload(offload);
    return name ? name : "unknown";
}

enum rc offload_parse(const char *name, unsigned *out, struct err *e)
{
    const char *names[BASE_COUNT(offloads)];
    int i = 0;
    for (size_t k = 0; k < BASE_COUNT(offloads); k++)
        names[k] = offloads[k].name;
    enum rc rc = parse_word(&i, names, BASE_COUNT(names), "offload mode", name, e);
    if (!rc)
        *out = offloads[i].offload;
    return rc;
}

bool precision_is_trainable(enum precision p)
{
    return p == PRECISION_FP32 || p == PRECISION_BF16 || p == PRECISION_FP8;
}

enum rc precision_parse_trainable(const char *name, enum precision *out, struct err *e)
{
    enum precision p = PRECISION_FP32;
    enum rc rc = precision_parse(name, &p, e);
    if (!rc && !precision_is_trainable(p))
        rc = err_set(e, RC_USAGE,
            "the bundled engine computes in bf16, fp32 and fp8, not in %s; other engines are "
            "predicted with it (--engine)",
            name);
    if (!rc)
        *out = p;
    return rc;
}

int64_t precision_bytes(enum precision p)
{
    return p == PRECISION_FP32 ? 4 : 2;
}

enum rc precision_check_model(enum precision p, const struct model *m, struct err *e)
{
    if (p == PRECISION_FP8 && (m->adapter.rank > 0 || m->expert_params > 0))
        return err_set(e, RC_INVALID,
            "the bundled engine has fp8 for models without adapters and experts; bf16 has them");
    return RC_OK;
}

enum rc strategy_parse_reshard(struct strategy *s, const char *text, struct err *e)
{
    int64_t above = 0;
    bool is_word = strcmp(text, "always") == 0 || strcmp(text, "never") == 0;
    if (!is_word && units_parse_bytes(text, &above, e))
        return err_set(e, RC_USAGE,
            "parameters are freed after forward always, never, or above a size as in 64MiB, not "
            "'%s'",
            text);
    s->reshard_after_forward = strcmp(text, "never") != 0;
    s->reshard_above_bytes = above;
    return RC_OK;
}

enum rc strategy_parse_bucket(struct strategy *s, const char *text, struct err *e)
{
    int64_t bytes = INT64_MAX;
    if (strcmp(text, "unlimited") != 0 && units_parse_bytes(text, &bytes, e))
        return err_set(e, RC_USAGE, "a bucket is a size as in 64MiB, or unlimited, not '%s'", text);
    if (bytes < STRATEGY_LEAST_BUCKET)
        return err_set(e, RC_USAGE, "a bucket has 16MiB or more, not '%s'", text);
    s->bucket_bytes = bytes;
    return RC_OK;
}

enum rc strategy_parse_recompute(struct strategy *s, const char *text, struct err *e)
{
    bool is_mixed = text && strcmp(text, mixed_name) == 0;
    s->full_blocks = is_mixed ? STRATEGY_FILL : 0;
    s->recompute = RECOMPUTE_SELECTIVE;
    if (is_mixed)
        return RC_OK;
    enum rc rc = recompute_parse(text, &s->recompute, e);
    return rc ? err_set(e, RC_USAGE,
                    "unknown recompute mode '%s'; there are none, selective, selective-ffn, full, "
                    "mixed",
                    text ? text : "")
              : RC_OK;
}

const char *strategy_master_name(const struct strategy *s)
{
    size_t i = 0;
    while (masters[i].bytes != s->master_bytes)
        i++;
    return masters[i].name;
}

enum rc strategy_parse_master(struct strategy *s, const char *text, struct err *e)
{
    for (size_t i = 0; i < BASE_COUNT(masters); i++)
        if (text && strcmp(masters[i].name, text) == 0) {
            s->master_bytes = masters[i].bytes;
            return RC_OK;
        }
    return err_set(e, RC_USAGE, "unknown form of master weights '%s'; there are fp32, split, pure",
        text ? text : "");
}

enum rc strategy_parse_gradients(struct strategy *s, const char *text, struct err *e)
{
    bool is_fp8 = text && strcmp(text, "fp8") == 0;
    if (!is_fp8 && (!text || strcmp(text, "fp32") != 0))
        return err_set(e, RC_USAGE, "gradients wait for the update in fp32 or fp8, not in '%s'",
            text ? text : "");
    s->fp8_gradients = is_fp8;
    return RC_OK;
}

/* --- defaults and checks --- */

struct strategy strategy_default(enum strategy_kind kind, int64_t ranks, int64_t ranks_per_node)
{
    struct strategy s = {
        .kind = kind,
        .precision = PRECISION_BF16,
        .ranks = ranks,
        .ranks_per_node = ranks_per_node,
        .shard_degree = ranks,
        .seq = 1,
        .micro_batch = 1,
        .grad_accum = 1,
        .prefetch = 1,
        .reshard_after_forward = true,
        .loss_chunks = 1,
        .parallel = {1, 1, 1, 1, 1, false},
        .moment_bytes = 8,
        .master_bytes = MASTER_FP32,
    };
    if (kind == STRATEGY_DDP)
        s.shard_degree = 1;
    else if (kind == STRATEGY_HSDP)
        s.shard_degree = ranks_per_node;
    return s;
}

void strategy_take_optimizer(struct strategy *s, enum optimizer o)
{
    s->optimizer = o;
    strategy_take_moments(s, MOMENT_FP32);
}

void strategy_take_moments(struct strategy *s, enum moment_form f)
{
    s->moment_form = f;
    s->moment_bytes = (f == MOMENT_FP32 ? 4 : 1) * strategy_moments(s);
}

static enum rc in_range(const char *what, int64_t v, int64_t max, struct err *e)
{
    if (v >= 1 && v <= max)
        return RC_OK;
    return err_set(
        e, RC_INVALID, "%s is %lld; it must lie in 1 to %lld", what, (long long)v, (long long)max);
}

static enum rc check_ranges(const struct strategy *s, const struct model *m, struct err *e)
{
    bool is_small = s->seq <= INT32_MAX && s->micro_batch <= MAX_MICRO_BATCH;
    const struct {
        const char *what;
        int64_t v, max;
    } range[] = {
        {"the number of ranks", s->ranks, MAX_RANKS},
        {"ranks per node", s->ranks_per_node, MAX_RANKS},
        {"the shard degree", s->shard_degree, MAX_RANKS},
        {"the sequence length", s->seq, m->max_positions},
        {"the micro batch", s->micro_batch, MAX_MICRO_BATCH},
        {"gradient accumulation", s->grad_accum, MAX_GRAD_ACCUM},
        {"prefetch", s->prefetch, m->layers + 2},
        {"the number of loss chunks", s->loss_chunks, is_small ? s->seq * s->micro_batch : 1},
        {"tensor parallelism", s->parallel.tensor, MAX_RANKS},
        {"pipeline parallelism", s->parallel.pipeline, m->layers},
        {"the number of virtual stages", s->parallel.virtual_stages, MAX_RANKS},
        {"context parallelism", s->parallel.context, s->seq},
        {"expert parallelism", s->parallel.expert, MAX_RANKS},
    };
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < BASE_COUNT(range); i++)
        rc = in_range(range[i].what, range[i].v, range[i].max, e);
    return rc;
}

/* How gradients and states of kinds that have them are moved. */
static enum rc check_moves(const struct strategy *s, struct err *e)
{
    if (s->splits_over_replicas && s->kind != STRATEGY_HSDP)
        return err_set(e, RC_INVALID,
            "only hsdp has replicas to split optimizer states over, %s has not",
            kind_names[s->kind]);
    if (s->splits_over_replicas && (s->offload & OFFLOAD_PARAMETERS))
        return err_set(e, RC_INVALID,
            "optimizer states over all replicas go with parameters on the device, not with "
            "offload '%s'",
            offload_name(s->offload));
    if (s->bucket_bytes < 0 || s->reshard_above_bytes < 0)
        return err_set(e, RC_INVALID, "a size of %lld bytes",
            (long long)(s->bucket_bytes < 0 ? s->bucket_bytes : s->reshard_above_bytes));
    if (s->bucket_bytes > 0 && s->kind > STRATEGY_ZERO2)
        return err_set(e, RC_INVALID,
            "%s reduces the gradients of each unit alone: buckets are for ddp, zero1 and zero2",
            kind_names[s->kind]);
    return RC_OK;
}

static enum rc check_formats(const struct strategy *s, const struct model *m, struct err *e)
{
    if (s->gather_format != WIRE_PLAIN && s->kind < STRATEGY_ZERO3)
        return err_set(e, RC_INVALID,
            "%s keeps whole parameters, which are gathered as they are: a gather format is for "
            "zero3 and hsdp",
            kind_names[s->kind]);
    bool is_plain = s->gather_format == WIRE_PLAIN && s->reduce_format == WIRE_PLAIN;
    return is_plain || m->adapter.rank == 0
               ? RC_OK
               : err_set(e, RC_INVALID,
                     "beside a frozen model, adapters and their gradients travel as they are kept: "
                     "leave out the gather and reduce formats");
}

static enum rc check_recompute(const struct strategy *s, const struct model *m, struct err *e)
{
    if (s->full_blocks == 0)
        return RC_OK;
    if (s->recompute == RECOMPUTE_FULL)
        return err_set(e, RC_INVALID, "mixed recompute needs blocks that do not recompute in full");
    return s->full_blocks > 0 && s->full_blocks < m->layers
               ? RC_OK
               : err_set(e, RC_INVALID,
                     "mixed recompute with %d blocks in full; of %lld blocks it must be 1 to %lld",
                     s->full_blocks, (long long)m->layers, (long long)m->layers - 1);
}

/* Other engines have none of it. */
static enum rc check_unbundled(const struct strategy *s, struct err *e)
{
    if (s->full_blocks > 0 || s->recompute == RECOMPUTE_SELECTIVE_FFN || s->bucket_bytes > 0 ||
        s->reshard_above_bytes > 0 || s->splits_over_replicas || s->gather_format != WIRE_PLAIN ||
        s->reduce_format != WIRE_PLAIN || s->fp8_gradients)
        return err_set(e, RC_INVALID,
            "mixed and selective-ffn recompute, buckets, resharding by size, optimizer states over "
            "replicas, formats of gathers and reductions and gradients in fp8 are of the bundled "
            "engine alone");
    return RC_OK;
}

static enum rc check_enums(const struct strategy *s, struct err *e)
{
    if ((unsigned)s->kind >= BASE_COUNT(kind_names) ||
        (unsigned)s->recompute >= BASE_COUNT(recompute_names) || !find_offload(s->offload) ||
        (unsigned)s->precision >= BASE_COUNT(precision_names) ||
        (unsigned)s->engine >= ENGINE_COUNT ||
        (unsigned)s->optimizer >= BASE_COUNT(optimizer_names) ||
        (unsigned)s->moment_form >= BASE_COUNT(moment_form_names) ||
        (unsigned)s->gather_format >= WIRE_COUNT || (unsigned)s->reduce_format >= WIRE_COUNT)
        return err_set(e, RC_INVALID, "a strategy with unknown words");
    return RC_OK;
}

/* How weights are kept: of the bundled engine, which updates such on the device alone. */
static enum rc check_master(const struct strategy *s, struct err *e)
{
    if (s->master_bytes == MASTER_FP32)
        return RC_OK;
    if (s->master_bytes != MASTER_SPLIT && s->master_bytes != MASTER_NONE)
        return err_set(e, RC_INVALID, "a master copy of %d bytes", s->master_bytes);
    if (s->precision == PRECISION_FP32)
        return err_set(e, RC_INVALID,
            "weights in fp32 are their own master copy: master '%s' is for bf16",
            strategy_master_name(s));
    if (s->offload & (OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS))
        return err_set(e, RC_INVALID,
            "master '%s' goes with weights and optimizer on the device, not with offload '%s'",
            strategy_master_name(s), offload_name(s->offload));
    return RC_OK;
}

/* Eight bits are written once, from the whole gradient of a step, and read by the device. */
static enum rc check_gradients(const struct strategy *s, struct err *e)
{
    if (!s->fp8_gradients)
        return RC_OK;
    if (s->kind < STRATEGY_ZERO2)
        return err_set(e, RC_INVALID,
            "gradients in fp8 are for zero2, zero3 and hsdp: %s writes them where they are kept",
            kind_names[s->kind]);
    if (s->grad_accum > 1)
        return err_set(e, RC_INVALID,
            "nothing can be added to gradients in fp8 without loss: a step must be one micro step, "
            "not %lld",
            (long long)s->grad_accum);
    if (s->splits_over_replicas || s->bucket_bytes > 0 ||
        (s->offload & (OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS)))
        return err_set(e, RC_INVALID,
            "gradients in fp8 go with weights and optimizer on the device, with states that are "
            "not "
            "split over replicas and without buckets");
    return RC_OK;
}

/* What the bundled engine runs. */
static enum rc check_bundled(const struct strategy *s, const struct model *m, struct err *e)
{
    if (!precision_is_trainable(s->precision))
        return err_set(e, RC_INVALID,
            "the bundled engine computes in fp32, bf16 and fp8, not in %s",
            precision_names[s->precision]);
    if (!strategy_is_data_parallel(s) || s->has_plain_attention ||
        s->moment_bytes != (s->moment_form == MOMENT_FP32 ? 4 : 1) * strategy_moments(s))
        return err_set(e, RC_INVALID,
            "the bundled engine is data-parallel, with fused attention and optimizer states in a "
            "form of its own");
    if ((s->offload & OFFLOAD_PARAMETERS) && !strategy_parks_parameters(s))
        return err_set(e, RC_INVALID,
            "%s keeps whole parameters on the device: those of zero3 and hsdp can be offloaded",
            kind_names[s->kind]);
    enum rc rc = check_master(s, e);
    if (!rc)
        rc = check_gradients(s, e);
    return rc ? rc : precision_check_model(s->precision, m, e);
}

static enum rc check_degree(const struct strategy *s, struct err *e)
{
    if (s->ranks % s->ranks_per_node != 0)
        return err_set(e, RC_INVALID, "%lld ranks are not whole nodes of %lld", (long long)s->ranks,
            (long long)s->ranks_per_node);
    if (s->kind == STRATEGY_DDP && s->shard_degree != 1)
        return err_set(e, RC_INVALID, "ddp does not shard: its shard degree is 1, not %lld",
            (long long)s->shard_degree);
    int64_t ranks = s->ranks / (s->parallel.tensor * s->parallel.pipeline);
    if (s->kind == STRATEGY_HSDP && ranks % s->shard_degree != 0)
        return err_set(e, RC_INVALID, "shard degree %lld does not divide %lld ranks",
            (long long)s->shard_degree, (long long)ranks);
    if (s->kind != STRATEGY_DDP && s->kind != STRATEGY_HSDP && s->shard_degree != ranks)
        return err_set(e, RC_INVALID, "%s shards over all %lld ranks, not over %lld; use hsdp",
            kind_names[s->kind], (long long)ranks, (long long)s->shard_degree);
    return RC_OK;
}

/* Every column that a block or the head keeps of a token, in floating point, so that absurd
 * products are seen instead of overflowing. At least as much as any engine keeps. */
static double rough_activation_bytes(const struct strategy *s, const struct model *m)
{
    double heads = (double)((m->heads + 2 * m->kv_heads) * m->head_dim + m->heads);
    double block = 16 * (double)m->width + 3 * heads + 8 * (double)m->ffn;
    block += 8 * (double)m->adapter.rank;
    if (s->has_plain_attention)
        block += 2 * (double)s->seq * (double)m->heads;
    double table = 4 * ((double)m->vocab + (double)m->width);
    return 4 * (double)s->seq * (double)s->micro_batch * ((double)m->layers * block + table);
}

bool strategy_is_countable(const struct strategy *s, const struct model *m)
{
    static const double max_activations = 1e17;
    return s->seq <= INT32_MAX / s->micro_batch && rough_activation_bytes(s, m) <= max_activations;
}

int64_t strategy_countable_batch(const struct strategy *s, const struct model *m, int64_t most)
{
    struct strategy larger = *s;
    larger.micro_batch = most;
    while (larger.micro_batch > 0 && !strategy_is_countable(&larger, m))
        larger.micro_batch--;
    return larger.micro_batch;
}

static enum rc check_amounts(const struct strategy *s, const struct model *m, struct err *e)
{
    static const double max_tokens = 1e18;
    if (!strategy_is_countable(s, m))
        return err_set(e, RC_INVALID, "a micro step of %lld sequences of %lld tokens is too large",
            (long long)s->micro_batch, (long long)s->seq);
    double step = (double)s->seq * (double)s->micro_batch * (double)s->grad_accum;
    if (step * (double)s->ranks > max_tokens)
        return err_set(e, RC_INVALID, "a step of more than 10^18 tokens cannot be planned");
    return RC_OK;
}

enum rc strategy_check(const struct strategy *s, const struct model *m, struct err *e)
{
    enum rc rc = check_enums(s, e);
    if (!rc)
        rc = check_ranges(s, m, e);
    if (!rc)
        rc = split_check(m, s, e);
    if (!rc)
        rc = profile_of(s->engine)->is_bundled ? check_bundled(s, m, e) : check_unbundled(s, e);
    if (!rc)
        rc = check_degree(s, e);
    if (!rc)
        rc = check_moves(s, e);
    if (!rc)
        rc = check_formats(s, m, e);
    if (!rc)
        rc = check_recompute(s, m, e);
    if (!rc && s->doc_tokens < 0)
        rc = err_set(e, RC_INVALID, "documents of %lld tokens", (long long)s->doc_tokens);
    return rc ? rc : check_amounts(s, m, e);
}

/* --- JSON --- */

/* The ways of splitting that are named in JSON and on the command line. */
static int64_t *split_at(struct parallel *p, size_t i)
{
    int64_t *const all[] = {&p->tensor, &p->pipeline, &p->virtual_stages, &p->context, &p->expert};
    return i < BASE_COUNT(all) ? all[i] : NULL;
}
static const char *const split_names[] = {
    "tensor", "pipeline", "virtual_stages", "context", "expert"};

/* What only other engines have. */
static void add_engine(struct json *v, const struct strategy *s)
{
    struct parallel p = s->parallel;
    json_add_str(v, "engine", engine_name(s->engine));
    for (size_t i = 0; i < BASE_COUNT(split_names); i++)
        json_add_int(v, split_names[i], *split_at(&p, i));
    if (p.splits_experts)
        json_add_bool(v, "splits_experts", true);
    json_add_bool(v, "plain_attention", s->has_plain_attention);
    json_add_bool(v, "fused", s->memory.is_fused);
    json_add_bool(v, "sequence_parallel", s->memory.has_sequence_parallel);
}

static enum rc read_engine(struct strategy *s, const struct json *v, struct err *e)
{
    enum rc rc = engine_parse(json_str(v, "engine", ""), &s->engine, e);
    for (size_t i = 0; !rc && i < BASE_COUNT(split_names); i++)
        rc = json_need_int(v, split_names[i], 1, MAX_RANKS, split_at(&s->parallel, i), e);
    s->parallel.splits_experts = json_bool(v, "splits_experts", false);
    s->has_plain_attention = json_bool(v, "plain_attention", false);
    s->memory.is_fused = json_bool(v, "fused", false);
    s->memory.has_sequence_parallel = json_bool(v, "sequence_parallel", false);
    return rc;
}

void strategy_add_variants(struct json *v, const struct strategy *s)
{
    json_add_int(v, "prefetch", s->prefetch);
    json_add_bool(v, "reshard_after_forward", s->reshard_after_forward);
    if (s->reshard_above_bytes > 0)
        json_add_int(v, "reshard_above_bytes", s->reshard_above_bytes);
    if (s->splits_over_replicas)
        json_add_bool(v, "optimizer_over_replicas", true);
    if (s->bucket_bytes > 0)
        json_add_int(v, "bucket_bytes", s->bucket_bytes);
    if (s->gather_format != WIRE_PLAIN)
        json_add_str(v, "gather_format", wire_name(s->gather_format));
    if (s->reduce_format != WIRE_PLAIN)
        json_add_str(v, "reduce_format", wire_name(s->reduce_format));
    json_add_int(v, "loss_chunks", s->loss_chunks);
    if (s->optimizer != OPTIMIZER_ADAMW)
        json_add_str(v, "optimizer", optimizer_names[s->optimizer]);
    if (strategy_converts_master(s))
        json_add_str(v, "master", strategy_master_name(s));
    if (s->fp8_gradients)
        json_add_str(v, "gradients", "fp8");
    if (s->moment_form != MOMENT_FP32)
        json_add_str(v, "moments", moment_form_names[s->moment_form]);
}

struct json *strategy_to_json(const struct strategy *s)
{
    struct json *v = json_obj();
    json_add_str(v, "kind", kind_names[s->kind]);
    json_add_str(v, "recompute", strategy_recompute_name(s));
    if (s->full_blocks > 0) {
        json_add_int(v, "full_blocks", s->full_blocks);
        json_add_str(v, "other_blocks", recompute_names[s->recompute]);
    }
    json_add_str(v, "offload", offload_name(s->offload));
    json_add_str(v, "precision", precision_names[s->precision]);
    json_add_int(v, "ranks", s->ranks);
    json_add_int(v, "ranks_per_node", s->ranks_per_node);
    json_add_int(v, "shard_degree", s->shard_degree);
    json_add_int(v, "seq", s->seq);
    json_add_int(v, "micro_batch", s->micro_batch);
    json_add_int(v, "grad_accum", s->grad_accum);
    strategy_add_variants(v, s);
    if (s->evaluates)
        json_add_bool(v, "evaluates", true);
    if (s->doc_tokens > 0)
        json_add_int(v, "doc_tokens", s->doc_tokens);
    if (!profile_of(s->engine)->is_bundled)
        add_engine(v, s);
    return v;
}

/* Of mixed recompute the words are about the other blocks. */
static enum rc read_recompute(struct strategy *s, const struct json *v, struct err *e)
{
    const char *word = json_str(v, "recompute", NULL);
    if (!word || strcmp(word, mixed_name) != 0)
        return recompute_parse(word, &s->recompute, e);
    int64_t blocks = 0;
    enum rc rc = recompute_parse(json_str(v, "other_blocks", NULL), &s->recompute, e);
    if (!rc)
        rc = json_need_int(v, "full_blocks", 1, INT16_MAX, &blocks, e);
    s->full_blocks = (int)blocks;
    return rc;
}

static enum rc read_words(struct strategy *s, const struct json *v, struct err *e)
{
    enum rc rc = strategy_kind_parse(json_str(v, "kind", NULL), &s->kind, e);
    if (!rc)
        rc = read_recompute(s, v, e);
    if (!rc)
        rc = offload_parse(json_str(v, "offload", NULL), &s->offload, e);
    if (!rc)
        rc = precision_parse(json_str(v, "precision", NULL), &s->precision, e);
    if (!rc && json_get(v, "engine"))
        rc = read_engine(s, v, e);
    if (!rc && profile_of(s->engine)->is_bundled)
        rc = precision_parse_trainable(json_str(v, "precision", NULL), &s->precision, e);
    return rc;
}

/* What is left out where it is not used. */
static enum rc read_optional(struct strategy *s, const struct json *v, struct err *e)
{
    const struct {
        const char *key;
        int64_t *field;
        int64_t max;
    } fields[] = {
        {"doc_tokens", &s->doc_tokens, STRATEGY_MAX_DOCUMENT},
        {"reshard_above_bytes", &s->reshard_above_bytes, INT64_MAX},
        {"bucket_bytes", &s->bucket_bytes, INT64_MAX},
    };
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < BASE_COUNT(fields); i++)
        if (json_get(v, fields[i].key))
            rc = json_need_int(v, fields[i].key, 1, fields[i].max, fields[i].field, e);
    const struct json *splits = json_get(v, "optimizer_over_replicas");
    if (!rc && splits && !json_is_bool(splits))
        rc = err_set(e, RC_INVALID, "'optimizer_over_replicas' must be true or false");
    s->splits_over_replicas = json_bool(v, "optimizer_over_replicas", false);
    if (!rc && json_get(v, "gather_format"))
        rc = wire_parse(json_str(v, "gather_format", NULL), &s->gather_format, e);
    if (!rc && json_get(v, "reduce_format"))
        rc = wire_parse(json_str(v, "reduce_format", NULL), &s->reduce_format, e);
    if (!rc && json_get(v, "optimizer"))
        rc = optimizer_parse(json_str(v, "optimizer", NULL), &s->optimizer, e);
    if (!rc)
        strategy_take_optimizer(s, s->optimizer);
    if (!rc && json_get(v, "master"))
        rc = strategy_parse_master(s, json_str(v, "master", NULL), e);
    if (!rc && json_get(v, "gradients"))
        rc = strategy_parse_gradients(s, json_str(v, "gradients", NULL), e);
    if (!rc && json_get(v, "moments"))
        rc = moment_form_parse(json_str(v, "moments", NULL), &s->moment_form, e);
    if (!rc)
        strategy_take_moments(s, s->moment_form);
    return rc;
}

enum rc strategy_from_json(struct strategy *out, const struct json *v, struct err *e)
{
    struct strategy s = strategy_default(STRATEGY_DDP, 1, 1);
    int64_t prefetch = 0, loss_chunks = 0;
    const struct {
        const char *key;
        int64_t *field;
        int64_t max;
    } fields[] = {
        {"ranks", &s.ranks, MAX_RANKS},
        {"ranks_per_node", &s.ranks_per_node, MAX_RANKS},
        {"shard_degree", &s.shard_degree, MAX_RANKS},
        {"seq", &s.seq, INT32_MAX},
        {"micro_batch", &s.micro_batch, MAX_MICRO_BATCH},
        {"grad_accum", &s.grad_accum, MAX_GRAD_ACCUM},
        {"prefetch", &prefetch, INT16_MAX},
        {"loss_chunks", &loss_chunks, INT32_MAX},
    };
    if (!json_is_obj(v))
        return err_set(e, RC_INVALID, "a strategy must be a JSON object");
    enum rc rc = read_words(&s, v, e);
    for (size_t i = 0; !rc && i < BASE_COUNT(fields); i++)
        rc = json_need_int(v, fields[i].key, 1, fields[i].max, fields[i].field, e);
    if (rc)
        return err_in(e, "strategy");
    if (!json_is_bool(json_get(v, "reshard_after_forward")))
        return err_set(e, RC_INVALID, "strategy: 'reshard_after_forward' must be true or false");
    rc = read_optional(&s, v, e);
    if (rc)
        return err_in(e, "strategy");
    s.reshard_after_forward = json_bool(v, "reshard_after_forward", true);
    s.evaluates = json_bool(v, "evaluates", false);
    s.prefetch = (int)prefetch;
    s.loss_chunks = (int)loss_chunks;
    *out = s;
    return RC_OK;
}

/* --- derived figures --- */

int64_t strategy_data_ranks(const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    return s->ranks / (p->tensor * p->pipeline * p->context);
}

bool strategy_is_data_parallel(const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    return p->tensor * p->pipeline * p->context * p->expert == 1;
}

int64_t strategy_tokens_per_step(const struct strategy *s)
{
    return strategy_data_ranks(s) * s->micro_batch * s->grad_accum * s->seq;
}

double strategy_mean_document(const struct strategy *s)
{
    double n = (double)s->seq, mean = (double)s->doc_tokens;
    if (s->doc_tokens == 0)
        return n;
    /* of documents far longer than a sequence, the first terms of the sum below: its own would
     * cancel out */
    if (mean > 1e3 * n)
        return n * (1 - (n - 1 / n) / (3 * mean));
    /* the sum of q^|i-j| over all pairs, q = 1 - 1/mean */
    double apart = -expm1(n * log1p(-1 / mean));
    return 2 * mean - 1 - 2 * mean * (mean - 1) * apart / n;
}

bool strategy_has_positions(const struct strategy *s)
{
    return s->doc_tokens > 0 && profile_of(s->engine)->is_bundled;
}

int64_t strategy_optimizer_shards(const struct strategy *s)
{
    if (s->kind == STRATEGY_DDP)
        return 1;
    return s->splits_over_replicas ? s->ranks : s->shard_degree;
}

int strategy_moments(const struct strategy *s)
{
    return s->optimizer == OPTIMIZER_SGD ? 1 : 2;
}

int64_t strategy_state_bytes(const struct strategy *s)
{
    return s->moment_bytes + (s->precision == PRECISION_FP32 ? 0 : s->master_bytes);
}

bool strategy_converts_master(const struct strategy *s)
{
    return s->master_bytes != MASTER_FP32 && profile_of(s->engine)->is_bundled;
}

int64_t strategy_saved_bytes(const struct strategy *s)
{
    return 4 * (1 + strategy_moments(s));
}

int64_t strategy_replicas(const struct strategy *s)
{
    return s->kind == STRATEGY_HSDP ? s->ranks / s->shard_degree : 1;
}

bool strategy_reshards(const struct strategy *s, int64_t gathered_bytes)
{
    return s->reshard_after_forward && gathered_bytes > s->reshard_above_bytes;
}

int64_t strategy_gradient_shards(const struct strategy *s)
{
    return s->kind == STRATEGY_DDP || s->kind == STRATEGY_ZERO1 ? 1 : s->shard_degree;
}

static bool gathers_parameters(const struct strategy *s)
{
    return s->kind == STRATEGY_ZERO3 || s->kind == STRATEGY_HSDP;
}

int64_t strategy_parameter_shards(const struct strategy *s)
{
    return gathers_parameters(s) ? s->shard_degree : 1;
}

/* Of other engines some take the wish where parameters are whole, and do nothing about it. */
bool strategy_parks_parameters(const struct strategy *s)
{
    return (s->offload & OFFLOAD_PARAMETERS) && gathers_parameters(s) && !s->memory.absorbs_copies;
}

bool strategy_streams_parameters(const struct strategy *s)
{
    return (s->offload & OFFLOAD_DISK) && strategy_parks_parameters(s);
}

bool strategy_parks_gradients(const struct strategy *s)
{
    return (s->offload & OFFLOAD_OPTIMIZER) && strategy_parks_parameters(s);
}

bool strategy_takes_norms_early(const struct strategy *s)
{
    return strategy_parks_gradients(s) || s->fp8_gradients;
}

bool strategy_defers_update(const struct strategy *s)
{
    return (s->offload & OFFLOAD_OPTIMIZER) && profile_of(s->engine)->defers_update;
}
