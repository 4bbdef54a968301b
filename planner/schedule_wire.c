/* Gathers and reductions of what travels in blocks of few bits. Encoding, exchange and decoding are
 * operations of the lane of the collective, so that the list says what each takes in time and
 * memory, and the communicator moves bytes. What is larger goes in rounds through buffers of
 * WIRE_ROUND_BYTES, which last as long as the run: the memory of a round is not another one's. */
#include "planner/schedule_builder.h"

/* A vector that is split over the ranks of a group, and a round of it: elements [from, from +
 * count) of every rank's piece. */
struct split {
    int unit;
    enum lane lane;
    enum op_group group;
    enum wire format;
    bool is_gradient; /* fp32; else parameters */
    int64_t ranks, elems, piece_elems;
    int64_t from, count;
};

static int64_t group_ranks(const struct builder *b, enum op_group group)
{
    return group == GROUP_SHARD     ? b->s->shards
           : group == GROUP_REPLICA ? strategy_replicas(&b->s->strategy)
                                    : b->s->strategy.ranks;
}

/* A group of one rank sends nothing. */
bool gathers_in_blocks(const struct builder *b)
{
    return b->s->strategy.gather_format != WIRE_PLAIN && b->s->shards > 1;
}

bool reduces_in_blocks(const struct builder *b, enum op_group group)
{
    return b->s->strategy.reduce_format != WIRE_PLAIN && group_ranks(b, group) > 1;
}

/* --- rounds --- */

/* Elements of a piece in a round: whole blocks. */
static int64_t round_elems(int64_t ranks)
{
    int64_t blocks = WIRE_ROUND_BYTES / ranks / wire_bytes(WIRE_BLOCK);
    return (blocks > 0 ? blocks : 1) * WIRE_BLOCK;
}

static void begin_round(struct split *s, int64_t from)
{
    int64_t most = round_elems(s->ranks), left = s->piece_elems - from;
    s->from = from;
    s->count = left < most ? left : most;
}

/* Bytes of the buffer that the largest round of a vector needs. */
static int64_t buffer_bytes(int64_t ranks, int64_t elems)
{
    struct split s = {.ranks = ranks, .piece_elems = (elems + ranks - 1) / ranks};
    begin_round(&s, 0);
    return ranks * wire_bytes(s.count);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void make_wire_buffers(struct builder *b)
{
    int64_t gather = 0, reduce = 0;
    for (int u = 0; u < b->s->n_units; u++) {
        const struct trained_unit *t = &b->trained[u];
        if (gathers_in_blocks(b))
            gather = larger(gather, buffer_bytes(b->s->shards, t->elems));
        if (reduces_in_blocks(b, GROUP_SHARD))
            reduce = larger(reduce, buffer_bytes(b->s->shards, t->elems));
        if (reduces_in_blocks(b, GROUP_REPLICA))
            reduce = larger(reduce, buffer_bytes(group_ranks(b, GROUP_REPLICA), t->shard_elems));
    }
    if (gather > 0)
        b->wire_param = builder_buffer(b, "wire_param", PART_SCRATCH, -1, gather);
    if (reduce == 0)
        return;
    b->wire_grad = builder_buffer(b, "wire_grad", PART_SCRATCH, -1, reduce);
    b->wire_pieces = builder_buffer(b, "wire_pieces", PART_SCRATCH, -1, reduce);
}

/* --- operations of a round --- */

static int64_t elem_bytes(const struct builder *b, const struct split *s)
{
    return s->is_gradient ? b->grad_bytes : b->param_bytes;
}

static struct op *round_op(struct builder *b, enum op_kind kind, const struct split *s)
{
    struct op *op = builder_op(b, kind, s->lane, s->unit);
    op->group = (uint8_t)s->group;
    op->dim[0] = s->elems - s->from;
    op->dim[1] = s->piece_elems;
    op->dim[2] = s->count;
    op->dim[3] = s->format;
    op->flags = s->is_gradient ? OP_OUT_FP32 : 0;
    return op;
}

/* From the round's first element of the first piece to the end of the last one. */
static void arg_whole(const struct builder *b, struct op *op, const struct split *s,
    enum access access, const struct ref *whole)
{
    int64_t bytes = elem_bytes(b, s);
    op_arg_part(
        op, access, whole->buffer, whole->offset + s->from * bytes, (s->elems - s->from) * bytes);
}

static void arg_wire(struct op *op, const struct split *s, enum access access, int32_t wire)
{
    op_arg_part(op, access, wire, 0, s->ranks * wire_bytes(s->count));
}

static void arg_own_wire(struct op *op, const struct split *s, int32_t wire)
{
    op_arg_own(op, ACCESS_WRITE, wire, s->group == GROUP_REPLICA ? OWNER_REPLICA : OWNER_SHARD,
        wire_bytes(s->count));
}

/* Encoded pieces of all ranks: to == from for a gather of them. */
static void emit_exchange(struct builder *b, const struct split *s, int32_t from, int32_t to)
{
    struct op *op = builder_op(b, from == to ? OP_ALL_GATHER : OP_ALL_TO_ALL, s->lane, s->unit);
    op->group = (uint8_t)s->group;
    op->dim[1] = wire_bytes(s->count);
    op->dim[0] = s->ranks * op->dim[1];
    op->dim[2] = 1;
    if (from != to)
        arg_wire(op, s, ACCESS_READ, from);
    else
        op->flags |= OP_IN_PLACE;
    arg_wire(op, s, from == to ? ACCESS_BOTH : ACCESS_WRITE, to);
    op->bytes = (double)op->dim[0];
}

/* --- parameters --- */

void emit_gather_in_blocks(struct builder *b, int unit, int32_t shard, int32_t full)
{
    const struct unit_layout *u = &b->s->unit[unit];
    const struct ref whole = {.buffer = full};
    struct split s = {.unit = unit,
        .lane = LANE_GATHER,
        .group = GROUP_SHARD,
        .format = b->s->strategy.gather_format,
        .ranks = b->s->shards,
        .elems = u->elems,
        .piece_elems = u->shard_elems};
    for (int64_t from = 0; from < s.piece_elems; from += s.count) {
        begin_round(&s, from);
        struct op *op = round_op(b, OP_QUANTISE, &s);
        op->dim[0] = op->dim[1] = s.count;
        op_arg_part(op, ACCESS_READ, shard, from * b->param_bytes, s.count * b->param_bytes);
        arg_own_wire(op, &s, b->wire_param);
        emit_exchange(b, &s, b->wire_param, b->wire_param);
        op = round_op(b, OP_DEQUANTISE, &s);
        arg_wire(op, &s, ACCESS_READ, b->wire_param);
        arg_whole(b, op, &s, ACCESS_WRITE, &whole);
    }
}

/* --- gradients --- */

static struct split split_of(const struct builder *b, int unit, enum op_group group, int64_t elems)
{
    int64_t ranks = group_ranks(b, group);
    return (struct split){.unit = unit,
        .lane = LANE_REDUCE,
        .group = group,
        .format = b->s->strategy.reduce_format,
        .is_gradient = true,
        .ranks = ranks,
        .elems = elems,
        .piece_elems = (elems + ranks - 1) / ranks};
}

/* Every rank has the pieces of all others that it sums. */
static void emit_pieces(struct builder *b, const struct split *s, const struct ref *from)
{
    struct op *op = round_op(b, OP_QUANTISE, s);
    arg_whole(b, op, s, ACCESS_READ, from);
    arg_wire(op, s, ACCESS_WRITE, b->wire_grad);
    emit_exchange(b, s, b->wire_grad, b->wire_pieces);
}

static void emit_sum(
    struct builder *b, const struct split *s, const struct ref *to, bool is_in_place)
{
    struct op *op = round_op(b, OP_SUM_PIECES, s);
    arg_wire(op, s, ACCESS_READ, b->wire_pieces);
    if (is_in_place) {
        op->flags |= OP_IN_PLACE;
        arg_whole(b, op, s, ACCESS_WRITE, to);
        return;
    }
    op->flags |= to->access == ACCESS_BOTH ? OP_ACCUMULATE : 0;
    op_arg_part(op, (enum access)to->access, to->buffer, to->offset + s->from * b->grad_bytes,
        s->count * b->grad_bytes);
}

void emit_scatter_in_blocks(struct builder *b, int unit, enum op_group group,
    const struct ref *from, int64_t elems, const struct ref *to)
{
    struct split s = split_of(b, unit, group, elems);
    for (int64_t at = 0; at < s.piece_elems; at += s.count) {
        begin_round(&s, at);
        emit_pieces(b, &s, from);
        emit_sum(b, &s, to ? to : from, !to);
    }
}

/* Sums travel in blocks too, and all ranks see them so, whoever made them. */
void emit_all_reduce_in_blocks(
    struct builder *b, int unit, enum op_group group, const struct ref *data, int64_t elems)
{
    struct split s = split_of(b, unit, group, elems);
    for (int64_t at = 0; at < s.piece_elems; at += s.count) {
        begin_round(&s, at);
        emit_pieces(b, &s, data);
        emit_sum(b, &s, data, true);
        struct op *op = round_op(b, OP_QUANTISE, &s);
        op->flags |= OP_IN_PLACE;
        arg_whole(b, op, &s, ACCESS_READ, data);
        arg_own_wire(op, &s, b->wire_grad);
        emit_exchange(b, &s, b->wire_grad, b->wire_grad);
        op = round_op(b, OP_DEQUANTISE, &s);
        arg_wire(op, &s, ACCESS_READ, b->wire_grad);
        arg_whole(b, op, &s, ACCESS_WRITE, data);
    }
}
