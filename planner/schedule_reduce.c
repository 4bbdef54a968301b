/* Gradients: where backward writes those of a unit, and how they are reduced, a bucket at a time.
 */
#include "planner/schedule_builder.h"

void make_buckets(struct builder *b)
{
    int64_t enough = b->s->strategy.bucket_bytes;
    for (int last = b->s->n_units - 1, first; last >= 0; last = first - 1) {
        int64_t elems = b->trained[last].elems, at = 0, shard_at = 0;
        for (first = last; elems > 0 && first > 0; first--) {
            if (elems * b->grad_bytes >= enough || b->trained[first - 1].elems == 0)
                break;
            elems += b->trained[first - 1].elems;
        }
        for (int u = first; u <= last; u++) {
            b->buckets[u] = (struct bucket){first, last, at, shard_at};
            at += b->trained[u].elems;
            shard_at += b->trained[u].shard_elems;
        }
    }
}

int64_t bucket_elems(const struct builder *b, int unit)
{
    int last = b->buckets[unit].last;
    return b->buckets[last].at + b->trained[last].elems;
}

int64_t bucket_shard_elems(const struct builder *b, int unit)
{
    int last = b->buckets[unit].last;
    return b->buckets[last].shard_at + b->trained[last].shard_elems;
}

/* A buffer for gradients of all units of a bucket, whichever comes first. */
static int32_t begin_bucket_grad(struct builder *b, int unit)
{
    const struct bucket *k = &b->buckets[unit];
    for (int u = k->first; u <= k->last; u++)
        if (b->unit_grad[u] >= 0)
            return b->unit_grad[u];
    return builder_unit_buffer(
        b, "unit_grad", PART_UNIT_GRADIENTS, unit, bucket_elems(b, unit) * written_grad_bytes(b));
}

void begin_unit_grad(struct builder *b, int unit)
{
    struct schedule *s = b->s;
    if (b->trained[unit].elems == 0)
        return;
    if (!shards_gradients(b)) {
        b->unit_grad[unit] = s->state[unit].grad;
        return;
    }
    if (b->unit_grad[unit] >= 0)
        return;
    b->unit_grad[unit] = begin_bucket_grad(b, unit);
    struct op *op = builder_op(b, OP_ZERO_GAPS, LANE_COMPUTE, unit);
    arg_unit_grad(b, op, ACCESS_WRITE, unit, 0, b->trained[unit].elems);
}

void emit_all_reduce(struct builder *b, int unit, enum op_group group, int32_t buffer)
{
    struct op *op = builder_op(b, OP_ALL_REDUCE, LANE_REDUCE, unit);
    op->group = (uint8_t)group;
    op->dim[0] = b->s->buffers[buffer].bytes / 4;
    op_arg(b, op, ACCESS_BOTH, buffer);
    op_arg(b, op, ACCESS_WRITE, b->reduce_scratch);
    op->bytes =
        (double)(b->s->buffers[buffer].bytes / b->grad_bytes) * (double)b->profile->reduce_bytes;
}

/* The first unit of a bucket stands for all of it. */
static void emit_reduce_scatter(struct builder *b, int unit, int32_t grad)
{
    const struct bucket *k = &b->buckets[unit];
    bool is_first = b->kind == SECTION_FIRST || b->kind == SECTION_ONLY;
    int units = k->last - k->first + 1;
    struct op *op = builder_op(b, OP_REDUCE_SCATTER, LANE_REDUCE, unit);
    op->group = GROUP_SHARD;
    op->dim[0] = bucket_elems(b, unit);
    op->dim[1] = bucket_shard_elems(b, unit);
    op->dim[2] = units > 1 ? units : 0;
    op_arg(b, op, ACCESS_READ, b->unit_grad[unit]);
    if (shards_gradients(b)) {
        if (!is_first)
            op->flags |= OP_ACCUMULATE;
        op_arg(b, op, is_first ? ACCESS_WRITE : ACCESS_BOTH, grad);
    } else if (units > 1) {
        op->flags |= OP_IN_PLACE;
        op_arg(b, op, ACCESS_WRITE, grad);
    } else {
        op_arg_own(op, ACCESS_WRITE, grad, OWNER_SHARD,
            b->trained[unit].shard_elems * written_grad_bytes(b));
    }
    op_arg(b, op, ACCESS_WRITE, b->reduce_scratch);
    op->bytes = (double)(op->dim[0] * b->profile->reduce_bytes);
}

/* Of what the ranks of a group hold alike, each replica sums the part that it updates. */
static void emit_replica_scatter(struct builder *b, int unit, int32_t grad)
{
    int64_t own = own_elems(b, unit);
    struct op *op = builder_op(b, OP_REDUCE_SCATTER, LANE_REDUCE, unit);
    op->group = GROUP_REPLICA;
    op->dim[0] = b->trained[unit].shard_elems;
    op->dim[1] = own;
    op_arg(b, op, ACCESS_READ, grad);
    op_arg_own(op, ACCESS_WRITE, grad, OWNER_REPLICA, own * b->grad_bytes);
    op_arg(b, op, ACCESS_WRITE, b->reduce_scratch);
    op->bytes = (double)(op->dim[0] * b->profile->reduce_bytes);
}

/* In blocks each unit goes by itself. */
static void scatter_in_blocks(struct builder *b, int unit, int32_t grad)
{
    bool is_first = b->kind == SECTION_FIRST || b->kind == SECTION_ONLY;
    for (int u = unit; u <= b->buckets[unit].last; u++) {
        const struct bucket *k = &b->buckets[u];
        const struct ref from = {
            .buffer = b->unit_grad[unit], .offset = k->at * written_grad_bytes(b)};
        const struct ref shard = {.buffer = grad,
            .access = is_first ? ACCESS_WRITE : ACCESS_BOTH,
            .offset = k->shard_at * b->grad_bytes};
        emit_scatter_in_blocks(
            b, u, GROUP_SHARD, &from, b->trained[u].elems, shards_gradients(b) ? &shard : NULL);
    }
}

static void all_reduce_in_blocks(struct builder *b, int unit, int32_t grad)
{
    for (int u = unit; u <= b->buckets[unit].last; u++) {
        const struct ref data = {.buffer = grad, .offset = b->buckets[u].at * b->grad_bytes};
        emit_all_reduce_in_blocks(b, u, GROUP_WORLD, &data, b->trained[u].elems);
    }
}

static void reduce_over_ranks(struct builder *b, int unit, int32_t grad)
{
    bool is_scattered = shards_optimizer(b);
    if (reduces_in_blocks(b, is_scattered ? GROUP_SHARD : GROUP_WORLD))
        (is_scattered ? scatter_in_blocks : all_reduce_in_blocks)(b, unit, grad);
    else if (is_scattered)
        emit_reduce_scatter(b, unit, grad);
    else
        emit_all_reduce(b, unit, GROUP_WORLD, grad);
}

static void reduce_over_replicas(struct builder *b, int unit, int32_t grad)
{
    const struct ref shard = {.buffer = grad};
    int64_t elems = b->trained[unit].shard_elems;
    if (strategy_replicas(&b->s->strategy) == 1)
        return;
    if (reduces_in_blocks(b, GROUP_REPLICA) && splits_over_replicas(b))
        emit_scatter_in_blocks(b, unit, GROUP_REPLICA, &shard, elems, NULL);
    else if (reduces_in_blocks(b, GROUP_REPLICA))
        emit_all_reduce_in_blocks(b, unit, GROUP_REPLICA, &shard, elems);
    else if (splits_over_replicas(b))
        emit_replica_scatter(b, unit, grad);
    else
        emit_all_reduce(b, unit, GROUP_REPLICA, grad);
}

void reduce_unit(struct builder *b, int unit)
{
    const struct strategy *st = &b->s->strategy;
    bool is_first = b->kind == SECTION_FIRST || b->kind == SECTION_ONLY;
    bool is_final = b->kind == SECTION_LAST || b->kind == SECTION_ONLY;
    bool is_parked = strategy_takes_norms_early(st);
    emit_parked_down(b);
    if (unit < 0 || unit != b->buckets[unit].first || bucket_elems(b, unit) == 0)
        return;
    int32_t grad = is_parked ? begin_parked_grad(b, unit, is_first) : b->s->state[unit].grad;
    if (shards_gradients(b) || is_final)
        reduce_over_ranks(b, unit, grad);
    if (is_final)
        reduce_over_replicas(b, unit, grad);
    if (is_parked)
        park_grad(b, unit, grad, is_final);
}
