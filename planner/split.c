#include "planner/split.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t at_least_one(int64_t x)
{
    return x > 1 ? x : 1;
}

enum rc split_check(const struct model *m, const struct strategy *s, struct err *e)
{
    const struct parallel *p = &s->parallel;
    int64_t split = p->tensor * p->pipeline * p->context;
    if (s->ranks % split != 0)
        return err_set(e, RC_INVALID,
            "tensor %lld x pipeline %lld x context %lld parallelism does not divide %lld ranks",
            (long long)p->tensor, (long long)p->pipeline, (long long)p->context,
            (long long)s->ranks);
    if (m->heads % p->tensor != 0)
        return err_set(e, RC_INVALID, "tensor parallelism %lld does not divide %lld heads",
            (long long)p->tensor, (long long)m->heads);
    if (p->expert > 1 && m->expert_params == 0)
        return err_set(e, RC_INVALID, "expert parallelism %lld, but model '%s' has no experts",
            (long long)p->expert, m->name);
    if (m->experts > 0 && m->experts % p->expert != 0)
        return err_set(e, RC_INVALID,
            "expert parallelism %lld does not divide the %lld experts of model '%s'",
            (long long)p->expert, (long long)m->experts, m->name);
    return RC_OK;
}

/* Ranks that an expert is split over. Where experts are not spread out tensor ranks split them as
 * they split all else. */
static int64_t split_of_expert(const struct parallel *p)
{
    return p->splits_experts || p->expert == 1 ? p->tensor : 1;
}

/* Experts that are whole are spread over tensor ranks first. */
int64_t split_expert_copies_apart(const struct parallel *p)
{
    return at_least_one(p->expert * split_of_expert(p) / p->tensor);
}

struct model split_model(const struct model *m, const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    struct model out = *m;
    if (strategy_is_data_parallel(s))
        return out;
    out.layers = ceil_div(m->layers, p->pipeline);
    out.heads = m->heads / p->tensor;
    out.kv_heads = at_least_one(m->kv_heads / p->tensor);
    out.ffn = ceil_div(m->ffn, p->tensor);
    out.vocab = ceil_div(m->vocab, p->tensor);
    out.expert_params = m->expert_params / (p->expert * split_of_expert(p));
    out.expert_ranks = split_expert_copies_apart(p);
    /* the first stage holds the embedding, the last one the head: one matrix each */
    if (p->pipeline > 1)
        out.is_tied = true;
    return out;
}

struct strategy split_strategy(const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    struct strategy out = *s;
    if (strategy_is_data_parallel(s))
        return out;
    out.ranks = s->ranks / (p->tensor * p->pipeline);
    out.ranks_per_node = at_least_one(s->ranks_per_node / p->tensor);
    if (out.ranks_per_node > out.ranks)
        out.ranks_per_node = out.ranks;
    out.seq = ceil_div(s->seq, p->context);
    return out;
}

double split_in_flight(const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    double stages = (double)p->pipeline, chunks = (double)p->virtual_stages;
    if (p->pipeline == 1)
        return 1;
    if (s->grad_accum < p->pipeline)
        return (double)s->grad_accum;
    return chunks > 1 ? stages * (1 + (stages - 1) / (stages * chunks)) : stages;
}

double split_bubble(const struct strategy *s)
{
    return (double)(s->parallel.pipeline - 1) / (double)s->parallel.virtual_stages;
}
