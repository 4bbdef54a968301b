#include "planner/simulate.h"

#include <math.h>
#include <string.h>

#include "planner/split.h"

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
        return WORK_COLLECTIVES;
    case OP_COPY_DOWN:
    case OP_COPY_UP:
        return WORK_COPIES;
    case OP_ADAMW:
    case OP_GRAD_NORM:
        return WORK_OPTIMIZER;
    default:
        return WORK_ELEMENTWISE;
    }
}

/* Ranks of a collective, and the share of it that takes the compute lane's time. */
struct reach {
    struct rank_group group;
    double exposed;
};

static struct reach reach_of(const struct schedule *s, const struct machine *m, enum op_group group)
{
    const struct strategy *st = &s->strategy;
    const struct parallel *p = &st->parallel;
    switch (group) {
    case GROUP_SHARD:
        return (struct reach){machine_shard_group(st), 1};
    case GROUP_REPLICA:
        return (struct reach){machine_replica_group(st), 1};
    case GROUP_TENSOR:
        return (struct reach){machine_strided_group(&m->hw, p->tensor, 1), m->tensor_exposed};
    case GROUP_CONTEXT:
        return (struct reach){
            machine_strided_group(&m->hw, p->context, p->tensor), m->context_exposed};
    case GROUP_EXPERT:
        return (struct reach){
            machine_strided_group(&m->hw, p->expert, p->tensor), m->expert_exposed};
    default:
        return (struct reach){machine_world(st), 1};
    }
}

static double collective_s(
    const struct schedule *s, const struct machine *m, const struct op *op, enum collective kind)
{
    struct reach r = reach_of(s, m, (enum op_group)op->group);
    return r.group.ranks > 1 ? r.exposed * machine_collective_s(m, kind, r.group, op->bytes) : 0;
}

/* The embedding and the head keep 16 bits where blocks use fewer; experts see few tokens each. */
static double matmul_s(const struct schedule *s, const struct machine *m, const struct op *op)
{
    enum precision p = s->strategy.precision;
    bool is_block = op->unit > 0 && op->unit < s->n_units - 1;
    if (p > PRECISION_FP16 && !is_block)
        p = PRECISION_BF16;
    double seconds = machine_matmul_s(m, p, op->dim[0], op->dim[1], op->dim[2]);
    return is_block && s->model.expert_params > 0 ? seconds / m->moe_efficiency : seconds;
}

double simulate_op_s(const struct schedule *s, const struct machine *m, const struct op *op)
{
    switch ((enum op_kind)op->kind) {
    case OP_MATMUL:
        return matmul_s(s, m, op);
    case OP_ATTN_FWD:
    case OP_ATTN_BWD:
        return machine_attention_s(m, s->strategy.precision, op->flops, op->kind == OP_ATTN_BWD);
    case OP_ALL_GATHER:
        return collective_s(s, m, op, COLLECTIVE_ALL_GATHER);
    case OP_REDUCE_SCATTER:
        return collective_s(s, m, op, COLLECTIVE_REDUCE_SCATTER);
    case OP_ALL_TO_ALL:
        return collective_s(s, m, op, COLLECTIVE_ALL_TO_ALL);
    case OP_ALL_REDUCE:
    case OP_SCALARS:
        return collective_s(s, m, op, COLLECTIVE_ALL_REDUCE);
    case OP_COPY_DOWN:
    case OP_COPY_UP:
        return machine_copy_s(m, op->bytes);
    case OP_ADAMW:
        if (op->lane == LANE_HOST)
            return machine_host_adam_s(m, (double)op->dim[0]);
        return machine_stream_s(m, op->bytes);
    default:
        return machine_stream_s(m, op->bytes);
    }
}

/* --- one section --- */

struct lane_state {
    int32_t op;    /* running, -1: idle */
    int32_t next;  /* list index from which the lane's next operation is searched */
    int32_t last;  /* last finished, -1 */
    double left_s; /* of the running one, as if alone */
    double rate;
};

struct sim {
    const struct schedule *s;
    const struct machine *m;
    const struct section *sec;
    struct lane_state lane[LANE_COUNT];
    double cores; /* of one rank, CPU only */
    double now_s;
    struct simulation *out;
    struct op_span *spans;
};

static int32_t next_on_lane(const struct sim *x, int lane, int32_t from)
{
    int32_t end = x->sec->first_op + x->sec->n_ops;
    for (int32_t i = from; i < end; i++)
        if (x->s->ops[i].lane == lane)
            return i;
    return end;
}

static bool is_ready(const struct sim *x, const struct op *op)
{
    for (int l = 0; l < LANE_COUNT; l++)
        if (op->waits[l] > x->lane[l].last)
            return false;
    return true;
}

static void start_ready(struct sim *x)
{
    int32_t end = x->sec->first_op + x->sec->n_ops;
    for (int l = 0; l < LANE_COUNT; l++) {
        struct lane_state *st = &x->lane[l];
        if (st->op >= 0 || st->next >= end || !is_ready(x, &x->s->ops[st->next]))
            continue;
        st->op = st->next;
        st->left_s = simulate_op_s(x->s, x->m, &x->s->ops[st->op]);
        x->out->work_s[op_work((enum op_kind)x->s->ops[st->op].kind)] +=
            st->left_s * (double)x->sec->repeat;
        if (x->spans)
            x->spans[st->op].start_s = x->now_s;
        st->next = next_on_lane(x, l, st->op + 1);
    }
}

static bool is_collective(const struct op *op)
{
    return op_work((enum op_kind)op->kind) == WORK_COLLECTIVES;
}

/* How fast each running operation progresses beside the others, 1 = as if alone. */
static void set_rates(struct sim *x)
{
    int collectives = 0, others = 0;
    bool has_compute = x->lane[LANE_COMPUTE].op >= 0;
    for (int l = 0; l < LANE_COUNT; l++) {
        if (x->lane[l].op < 0)
            continue;
        collectives += is_collective(&x->s->ops[x->lane[l].op]);
        others += l != LANE_COMPUTE;
    }
    /* CPU: a lane beside the compute lane takes one core, products want them all */
    double demand = (has_compute ? x->cores : 0) + others;
    double share = x->m->is_shared && demand > x->cores ? x->cores / demand : 1;
    for (int l = 0; l < LANE_COUNT; l++) {
        struct lane_state *st = &x->lane[l];
        if (st->op < 0)
            continue;
        st->rate = share;
        if (is_collective(&x->s->ops[st->op]))
            st->rate /= collectives;
        else if (l == LANE_COMPUTE && collectives > 0)
            st->rate /= x->m->overlap_slowdown;
    }
}

static void account(struct sim *x, double dt)
{
    int busy = 0;
    double times = dt * (double)x->sec->repeat;
    for (int l = 0; l < LANE_COUNT; l++)
        busy += x->lane[l].op >= 0;
    for (int l = 0; l < LANE_COUNT; l++) {
        if (x->lane[l].op < 0)
            continue;
        x->out->busy_s[l] += times;
        if (x->lane[LANE_COMPUTE].op < 0)
            x->out->exposed_s[l] += times / busy;
    }
}

/* Let time pass until the first running operation ends; false when nothing runs. */
static bool advance(struct sim *x)
{
    double dt = INFINITY;
    for (int l = 0; l < LANE_COUNT; l++)
        if (x->lane[l].op >= 0 && x->lane[l].left_s / x->lane[l].rate < dt)
            dt = x->lane[l].left_s / x->lane[l].rate;
    if (!isfinite(dt))
        return false;
    account(x, dt);
    x->now_s += dt;
    for (int l = 0; l < LANE_COUNT; l++) {
        struct lane_state *st = &x->lane[l];
        if (st->op < 0)
            continue;
        double needed = st->left_s / st->rate;
        st->left_s -= dt * st->rate;
        if (needed > dt)
            continue;
        if (x->spans)
            x->spans[st->op].end_s = x->now_s;
        st->last = st->op;
        st->op = -1;
    }
    return true;
}

static double run_section(struct sim *x)
{
    x->now_s = 0;
    for (int l = 0; l < LANE_COUNT; l++)
        x->lane[l] =
            (struct lane_state){.op = -1, .last = -1, .next = next_on_lane(x, l, x->sec->first_op)};
    do {
        start_ready(x);
        set_rates(x);
    } while (advance(x));
    return x->now_s;
}

void simulate(struct simulation *out, const struct schedule *s, const struct machine *m,
    struct op_span *spans)
{
    memset(out, 0, sizeof(*out));
    struct sim x = {.s = s, .m = m, .out = out, .spans = spans};
    x.cores = m->hw.ranks_per_node > 0 && m->hw.vcpus > 0
                  ? (double)m->hw.vcpus / (double)m->hw.ranks_per_node
                  : 1;
    for (int i = 0; i < s->n_sections; i++) {
        x.sec = &s->section[i];
        out->section_s[i] = run_section(&x);
        out->step_s += out->section_s[i] * (double)x.sec->repeat;
    }
    out->step_s += split_bubble(&s->strategy) * out->section_s[0];
    double doublings = log2((double)s->strategy.ranks / 8);
    out->step_s += m->step_overhead_s;
    out->step_s *= 1 + m->jitter_per_doubling * (doublings > 0 ? doublings : 0);
}
