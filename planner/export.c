#include "planner/export.h"

#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/text.h"
#include "planner/adapter.h"

static const struct target {
    const char *name;
    enum rc (*make)(
        struct str *out, struct str *left_out, const struct export_input *in, struct err *e);
    struct export_ability can;
} targets[EXPORT_COUNT] = {
    [EXPORT_DEEPSPEED] = {"deepspeed", export_deepspeed,
        {.offload = OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS | OFFLOAD_DISK,
            .micro = true,
            .batch = true,
            .optimizer = true,
            .tensor = true}},
    [EXPORT_FSDP2] = {"fsdp2", export_fsdp2,
        {.full_recompute = true, .reshard = true, .tensor = true, .context = true}},
    [EXPORT_ACCELERATE] = {"accelerate", export_accelerate, {0}}, /* as export_accelerate_can */
    [EXPORT_TORCHTITAN] = {"torchtitan", export_torchtitan,
        {.full_recompute = true,
            .selective_recompute = true,
            .reshard = true,
            .micro = true,
            .batch = true,
            .sequence = true,
            .optimizer = true,
            .tensor = true,
            .pipeline = true,
            .context = true,
            .expert = true}},
    [EXPORT_SLURM] = {"slurm", export_slurm, {0}},
    [EXPORT_ENV] = {"env", export_env, {0}},
};

const char *export_name(enum export_target t)
{
    return targets[t].name;
}

/* --- text --- */

void export_quote(struct str *out, const char *text)
{
    size_t n = strlen(text);
    str_addc(out, '"');
    while (n > 0) {
        unsigned cp;
        size_t len = text_decode(text, n, &cp);
        if (cp == '"' || cp == '\\')
            str_addf(out, "\\%c", (char)cp);
        else if (cp >= 0x20 && cp < 0x7f)
            str_addc(out, (char)cp);
        else
            str_addf(out, cp > 0xffff ? "\\U%08x" : "\\u%04x", cp);
        text += len;
        n -= len;
    }
    str_addc(out, '"');
}

void export_plain(struct str *out, const char *text)
{
    for (; *text; text++)
        str_addc(out, *text >= 0x20 && *text < 0x7f ? *text : '?');
}

void export_lost(struct str *left_out, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    str_addf(left_out, "%s\n", line);
}

int64_t export_nodes(const struct export_input *in)
{
    return in->strategy->ranks / in->strategy->ranks_per_node;
}

int64_t export_sequences(const struct export_input *in)
{
    const struct strategy *s = in->strategy;
    return strategy_data_ranks(s) * s->micro_batch * s->grad_accum;
}

/* --- what is left out --- */

static void say_splits(
    struct str *left_out, const struct export_ability *can, const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    const struct {
        const char *what;
        int64_t n;
        bool can;
    } all[] = {{"tensor", p->tensor, can->tensor}, {"pipeline", p->pipeline, can->pipeline},
        {"context", p->context, can->context}, {"expert", p->expert, can->expert}};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        if (all[i].n > 1 && !all[i].can)
            export_lost(left_out, "%s parallelism of %lld", all[i].what, (long long)all[i].n);
}

bool export_full_recompute(const struct strategy *s)
{
    return s->recompute >= RECOMPUTE_SELECTIVE_FFN || s->full_blocks > 0;
}

unsigned export_fsdp_offload(const struct strategy *s)
{
    const unsigned states = OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS;
    bool is_on_host = (s->offload & states) == states && !(s->offload & OFFLOAD_DISK);
    return is_on_host ? states : OFFLOAD_NONE;
}

static void say_offload(struct str *left_out, unsigned can, unsigned offload)
{
    static const struct {
        unsigned what;
        const char *words;
    } all[] = {{OFFLOAD_OPTIMIZER, "the optimizer alone in host memory"},
        {OFFLOAD_PARAMETERS, "parameters in host memory"},
        {OFFLOAD_ACTIVATIONS, "activations in host memory"}, {OFFLOAD_DISK, "states on NVMe"}};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        if (offload & ~can & all[i].what)
            export_lost(left_out, "%s", all[i].words);
}

static void say_memory(
    struct str *left_out, const struct export_ability *can, const struct strategy *s)
{
    bool is_plain = s->full_blocks == 0 && s->recompute != RECOMPUTE_SELECTIVE_FFN;
    bool can_recompute = is_plain && (s->recompute == RECOMPUTE_FULL ? can->full_recompute
                                                                     : can->selective_recompute);
    bool is_gathered = s->kind == STRATEGY_ZERO3 || s->kind == STRATEGY_HSDP;
    if ((s->recompute != RECOMPUTE_NONE || s->full_blocks > 0) && !can_recompute)
        export_lost(left_out, "%s recompute of activations", strategy_recompute_name(s));
    say_offload(left_out, can->offload, s->offload);
    if (is_gathered && !s->reshard_after_forward && !can->reshard)
        export_lost(left_out, "parameters kept from forward to backward");
    if (is_gathered && s->reshard_after_forward && s->reshard_above_bytes > 0)
        export_lost(left_out, "parameters freed after forward by their size");
    if (strategy_converts_master(s))
        export_lost(left_out, "%s master weights", strategy_master_name(s));
    if (s->moment_form != MOMENT_FP32)
        export_lost(left_out, "%s moments of the optimizer", moment_form_name(s->moment_form));
    if (s->splits_over_replicas)
        export_lost(left_out, "optimizer states over replicas");
    if (s->bucket_bytes > 0)
        export_lost(left_out, "the size of gradient buckets");
    if (s->gather_format != WIRE_PLAIN)
        export_lost(left_out, "parameters gathered in %s", wire_name(s->gather_format));
    if (s->reduce_format != WIRE_PLAIN)
        export_lost(left_out, "gradients reduced in %s", wire_name(s->reduce_format));
    if (s->loss_chunks > 1)
        export_lost(left_out, "a loss in %d pieces", s->loss_chunks);
}

static void say_training(
    struct str *left_out, const struct export_ability *can, const struct export_input *in)
{
    const struct strategy *s = in->strategy;
    if (!can->micro)
        export_lost(left_out, "a micro batch of %lld", (long long)s->micro_batch);
    if (!can->batch)
        export_lost(left_out, "%lld micro step%s of an optimizer step", (long long)s->grad_accum,
            s->grad_accum == 1 ? "" : "s");
    if (!can->sequence)
        export_lost(left_out, "sequences of %lld tokens", (long long)s->seq);
    if (!can->optimizer && in->training)
        export_lost(left_out, "optimizer%s",
            can->clipping && in->training->clip_norm > 0 ? " and learning rate"
                                                         : ", learning rate and clipping");
    if (s->precision == PRECISION_FP4)
        export_lost(left_out, "products of 4-bit numbers");
}

/* No target's file says what is trained of a model, nor how attention sees a sequence. */
static void say_job(struct str *left_out, const struct export_input *in)
{
    const struct adapter *a = &in->model->adapter;
    if (a->rank > 0) {
        struct str which = STR_INIT;
        adapter_targets_text(&which, a->targets);
        export_lost(left_out, "adapters of rank %lld beside %s of the frozen model",
            (long long)a->rank, a->targets == ADAPT_ALL ? "all matrices" : str_text(&which));
        str_release(&which);
    }
    if (a->rank > 0 && a->base_bits < 16)
        export_lost(left_out, "the frozen model in %d bits", a->base_bits);
    if (in->strategy->doc_tokens > 0)
        export_lost(left_out, "attention within packed documents alone");
}

enum rc export_make(struct str *out, struct str *left_out, enum export_target t,
    const struct export_input *in, struct err *e)
{
    if (t == EXPORT_TORCHTITAN && in->model->adapter.rank > 0)
        return err_set(e, RC_INVALID,
            "torchtitan trains whole models: its file has no adapters beside a frozen one");
    enum rc rc = targets[t].make(out, left_out, in, e);
    if (rc)
        return err_in(e, "export to %s", targets[t].name);
    say_job(left_out, in);
    if (t == EXPORT_SLURM || t == EXPORT_ENV)
        return RC_OK;
    struct export_ability can = targets[t].can;
    if (t == EXPORT_TORCHTITAN)
        can.offload = export_fsdp_offload(in->strategy);
    if (t == EXPORT_ACCELERATE)
        can = export_accelerate_can(in->strategy);
    say_splits(left_out, &can, in->strategy);
    say_memory(left_out, &can, in->strategy);
    say_training(left_out, &can, in);
    return RC_OK;
}
