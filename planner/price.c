#include "planner/price.h"

#include <string.h>

#include "base/alloc.h"

static const char *const WORK_NAMES[] = {
#define X(name, word) word,
    WORK_MAP(X)
#undef X
};

const char *work_name(enum work w)
{
    return WORK_NAMES[w];
}

enum work op_work(enum op_kind kind)
{
    switch (kind) {
    case OP_MATMUL:
        return WORK_PRODUCTS;
    case OP_ATTN_FWD:
    case OP_ATTN_BWD:
        return WORK_ATTENTION;
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
    case OP_ALL_REDUCE:
    case OP_ALL_TO_ALL:
    case OP_SCALARS:
    case OP_MAX:
        return WORK_COLLECTIVES;
    case OP_COPY_DOWN:
    case OP_COPY_UP:
        return WORK_COPIES;
    case OP_DISK_READ:
    case OP_DISK_WRITE:
        return WORK_DISK;
    case OP_ADAMW:
    case OP_SGD:
    case OP_UPDATE_8BIT:
    case OP_GRAD_NORM:
    case OP_GRAD_AMAX:
    case OP_GRAD_TO_FP8:
    case OP_GRAD_FROM_FP8:
        return WORK_OPTIMIZER;
    default:
        return WORK_ELEMENTWISE;
    }
}

double price_host_share(const struct strategy *s)
{
    static const double of_8_bits =
        6; /* own measurement: 5 to 6.5 ns a parameter and thread, to 1 */
    if (s->moment_form != MOMENT_FP32)
        return of_8_bits * strategy_moments(s) / 2;
    return s->optimizer == OPTIMIZER_SGD ? 20.0 / 28 : 1;
}

/* Which function of rates.h prices an operation. */
enum form {
    FORM_STREAM,
    FORM_MATMUL,
    FORM_ATTENTION,
    FORM_COLLECTIVE,
    FORM_COPY,
    FORM_HOST_ADAM,
    FORM_HOST_STREAM,
    FORM_LOW_RANK,
    FORM_DISK,
    FORM_LANE_STREAM
};

/* Kinds that are not listed stream memory; their variant is the kind. */
static const struct {
    enum form form;
    uint32_t variant; /* attention: is backward; collectives: enum collective */
} FORMS[OP_KIND_COUNT] = {
    [OP_MATMUL] = {FORM_MATMUL, 0},
    [OP_ATTN_FWD] = {FORM_ATTENTION, false},
    [OP_ATTN_BWD] = {FORM_ATTENTION, true},
    [OP_ALL_GATHER] = {FORM_COLLECTIVE, COLLECTIVE_ALL_GATHER},
    [OP_REDUCE_SCATTER] = {FORM_COLLECTIVE, COLLECTIVE_REDUCE_SCATTER},
    [OP_ALL_REDUCE] = {FORM_COLLECTIVE, COLLECTIVE_ALL_REDUCE},
    [OP_ALL_TO_ALL] = {FORM_COLLECTIVE, COLLECTIVE_ALL_TO_ALL},
    [OP_SCALARS] = {FORM_COLLECTIVE, COLLECTIVE_ALL_REDUCE},
    [OP_MAX] = {FORM_COLLECTIVE, COLLECTIVE_ALL_GATHER},
    [OP_COPY_DOWN] = {FORM_COPY, 0},
    [OP_COPY_UP] = {FORM_COPY, 0},
    [OP_DISK_READ] = {FORM_DISK, 0},
    [OP_DISK_WRITE] = {FORM_DISK, 0},
};

/* --- keys --- */

static bool is_of_block(const struct schedule *s, const struct op *op)
{
    return op->unit > 0 && op->unit < s->n_units - 1;
}

/* Products with A or B of an adapter: one of the dimensions is the rank. */
static bool is_low_rank(const struct schedule *s, const struct op *op)
{
    int64_t rank = s->model.adapter.rank;
    return rank > 0 && is_of_block(s, op) &&
           (op->dim[0] == rank || op->dim[1] == rank || op->dim[2] == rank);
}

enum precision price_precision(const struct schedule *s, const struct op *op)
{
    enum precision p = s->strategy.precision;
    return p > PRECISION_FP16 && !is_of_block(s, op) ? PRECISION_BF16 : p;
}

/* Experts see few tokens each. */
static void key_matmul(struct price_key *k, const struct schedule *s, const struct op *op)
{
    enum precision p = price_precision(s, op);
    for (int i = 0; i < 3; i++)
        k->dim[i] = op->dim[i];
    if (is_low_rank(s, op)) {
        k->form = FORM_LOW_RANK;
        k->variant = (uint32_t)(p > PRECISION_FP16 ? PRECISION_BF16 : p);
        k->amount = op->bytes;
        return;
    }
    k->variant = (uint32_t)p;
    k->amount = is_of_block(s, op) && s->model.expert_params > 0; /* has experts */
}

/* Ranks and nodes, or ranks and stride where they are spread over the nodes by the machine. */
static void key_collective(struct price_key *k, const struct schedule *s, const struct op *op)
{
    const struct strategy *st = &s->strategy;
    const struct parallel *p = &st->parallel;
    struct rank_group g = machine_world(st);
    if (op->group == GROUP_SHARD)
        g = machine_shard_group(st);
    else if (op->group == GROUP_REPLICA)
        g = machine_replica_group(st);
    else if (op->group >= GROUP_TENSOR)
        k->group = op->group;
    k->dim[0] = g.ranks;
    k->dim[1] = g.nodes;
    bool is_apart = op->group == GROUP_CONTEXT || (op->group == GROUP_EXPERT && p->splits_experts);
    if (k->group) {
        k->dim[0] = op->group == GROUP_TENSOR    ? p->tensor
                    : op->group == GROUP_CONTEXT ? p->context
                                                 : p->expert;
        k->dim[1] = is_apart ? p->tensor : 1;
    }
    k->amount = op->bytes;
}

static struct price_key key_of(const struct schedule *s, const struct op *op)
{
    struct price_key k = {.form = FORMS[op->kind].form,
        .variant = FORMS[op->kind].variant,
        .work = op_work((enum op_kind)op->kind)};
    if (op_is_update((enum op_kind)op->kind) && op->lane == LANE_HOST)
        k.form = FORM_HOST_ADAM;
    if (op->kind == OP_WEIGHT_AMAX && op->lane == LANE_HOST)
        k.form = FORM_HOST_STREAM;
    switch ((enum form)k.form) {
    case FORM_MATMUL:
        key_matmul(&k, s, op);
        break;
    case FORM_ATTENTION:
        k.dim[0] = s->strategy.precision;
        k.amount = op->flops;
        break;
    case FORM_COLLECTIVE:
        key_collective(&k, s, op);
        break;
    case FORM_HOST_ADAM:
        k.amount = (double)op->dim[0] * price_host_share(&s->strategy);
        break;
    case FORM_COPY:
    case FORM_HOST_STREAM:
    case FORM_DISK:
        k.amount = op->flags & OP_UNLESS_UPDATE ? 0 : op->bytes;
        break;
    default:
        if (op->lane == LANE_GATHER || op->lane == LANE_REDUCE)
            k.form = FORM_LANE_STREAM;
        k.variant = op->kind;
        k.amount = op->bytes;
    }
    return k;
}

/* --- prices --- */

/* Only a share of some collectives takes the compute lane's time. */
static double collective_s(const struct price_key *k, const struct machine *m)
{
    struct rank_group g = {k->dim[0], k->dim[1]};
    double exposed = k->group == GROUP_TENSOR    ? m->tensor_exposed
                     : k->group == GROUP_CONTEXT ? m->context_exposed
                     : k->group == GROUP_EXPERT  ? m->expert_exposed
                                                 : 1;
    if (k->group)
        g = machine_strided_group(&m->hw, k->dim[0], k->dim[1]);
    return g.ranks > 1
               ? exposed * machine_collective_s(m, (enum collective)k->variant, g, k->amount)
               : 0;
}

static double price_s(const struct price_key *k, const struct machine *m)
{
    double seconds;
    switch ((enum form)k->form) {
    case FORM_MATMUL:
        seconds = machine_matmul_s(m, (enum precision)k->variant, k->dim[0], k->dim[1], k->dim[2]);
        return k->amount > 0 ? seconds / m->moe_efficiency : seconds;
    case FORM_LOW_RANK:
        return machine_low_rank_s(m, (enum precision)k->variant, k->dim, k->amount);
    case FORM_ATTENTION:
        return machine_attention_s(m, (enum precision)k->dim[0], k->amount, k->variant);
    case FORM_COLLECTIVE:
        return collective_s(k, m);
    case FORM_COPY:
        return machine_copy_s(m, k->amount);
    case FORM_HOST_ADAM:
        return machine_host_adam_s(m, k->amount);
    case FORM_HOST_STREAM:
        return machine_host_stream_s(m, k->amount);
    case FORM_DISK:
        return machine_disk_s(m, k->amount);
    case FORM_LANE_STREAM:
        return machine_lane_stream_s(m, (enum op_kind)k->variant, k->amount);
    default:
        return machine_stream_s(m, (enum op_kind)k->variant, k->amount);
    }
}

double simulate_op_s(const struct schedule *s, const struct machine *m, const struct op *op)
{
    struct price_key k = key_of(s, op);
    return price_s(&k, m);
}

/* --- tables --- */

static uint64_t hash_key(const struct price_key *k)
{
    uint64_t words[sizeof *k / sizeof(uint64_t)], h = 0;
    _Static_assert(sizeof words == sizeof *k, "keys are whole words");
    memcpy(words, k, sizeof words);
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        h = index_hash_word(h, words[i]);
    return h;
}

static bool same_key(const void *keys, size_t i, const void *key)
{
    return memcmp((const struct price_key *)keys + i, key, sizeof(struct price_key)) == 0;
}

int32_t prices_add(struct prices *p, const struct schedule *s, const struct op *op)
{
    struct price_key k = key_of(s, op);
    uint64_t hash = hash_key(&k);
    ptrdiff_t at = index_find(&p->index, hash, same_key, p->keys, &k);
    if (at != INDEX_NONE)
        return (int32_t)at;
    BASE_GROW(p->keys, p->cap, p->n + 1);
    p->keys[p->n] = k;
    index_add(&p->index, hash, (size_t)p->n);
    return p->n++;
}

void prices_release(struct prices *p)
{
    free(p->keys);
    index_release(&p->index);
    *p = (struct prices){0};
}

void prices_fill(double *seconds, const struct prices *p, const struct machine *m)
{
    for (int32_t i = 0; i < p->n; i++)
        seconds[i] = price_s(&p->keys[i], m);
}
